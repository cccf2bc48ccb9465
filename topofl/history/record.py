"""What a run recorded: its columns by name, what it cost, and its mixing matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from topofl._columns import SECONDS, ScoreColumn, as_json, columns_named, from_json
from topofl._support.check import check_int, did_you_mean, shown
from topofl._support.text import printable
from topofl.history import plots
from topofl.mixing import MixingMatrix, MixingSequence

if TYPE_CHECKING:
    from topofl.trained import Trained

COSTS = {"seconds": SECONDS, "megabytes": "bytes", "steps": "steps"}
"""Columns with the cost of rounds, by axis of plots."""


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """The fields of a :class:`topofl.History`, which describes them, and how they are found."""

    meta: Mapping[str, Any]
    rounds: Mapping[str, np.ndarray]
    evaluations: Mapping[str, np.ndarray]
    node_loss: np.ndarray
    matrices: Sequence[MixingMatrix] = ()
    matrix_of_round: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    models: "Trained | None" = None

    @classmethod
    def _of_files(cls, *parts: Any) -> Self:
        """Return a history with parts from files, or raise ``ValueError`` if they do not match."""
        history = cls(*parts)
        columns = as_json(history.score_columns)  # an older version did not write them
        history = replace(history, meta={**history.meta, "columns": columns})
        scored = [] if why_not_scored(history) else [*history.scores]
        missing = {"train_loss", "messages", "bytes"} - history.rounds.keys()
        missing |= {*scored, *columns} - history.evaluations.keys()
        if scored and not missing and history.evaluations[history.primary].ndim != 2:
            missing = {history.primary}
        if missing:
            raise ValueError(f"{min(missing)} is missing or does not match the rest; run it again")
        return history

    @property
    def _run(self) -> str:
        """Algorithm and topology as printable text."""
        algorithm = self.meta.get("algorithm", "the run")
        return printable(f"{algorithm} on {self.meta.get('topology', 'no graph')}")

    def _with_attack(self, text: str) -> str:
        """Return the text followed by the attack, if there is one."""
        return f"{text}, {self.attack}" if self.attack else text

    @property
    def n_rounds(self) -> int:
        """Number of rounds run."""
        return len(self.node_loss)

    @property
    def scores(self) -> dict[str, str]:
        """The task's scores, the primary one first: ``"high"`` or ``"low"``, which is better."""
        task = self.meta.get("task")
        return dict(task["scores"]) if task else {"accuracy": "high", "loss": "low"}

    @property
    def primary(self) -> str:
        """Name of the task's primary score."""
        return next(iter(self.scores))

    @property
    def attackers(self) -> list[int]:
        """The attacking nodes, in ascending order; see :class:`topofl.attacks.Attack`."""
        return list(self.meta.get("attackers", {}).get("nodes", []))

    @property
    def attack(self) -> str:
        """Number of attackers and the attack, as ``"2 attackers (sign_flip)"``; empty if none."""
        if not (count := len(self.attackers)):
            return ""
        name = printable(str(self.meta["attackers"].get("name", "")))
        return f"{count} attacker{'s' if count > 1 else ''}{f' ({name})' if name else ''}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, those of evaluations and then those of rounds.

        ``history[name]`` has their values and :meth:`plot` draws them. Columns of scores, which
        have a value per node and a direction (higher or lower is better), are also in
        :attr:`score_columns`. Losses per round and node are not columns; see `node_loss`.

        Examples
        --------
        >>> from topofl import History
        >>> sent, scores = {"bytes": np.zeros(1)}, {"round": np.zeros(1), "loss": np.ones((1, 2))}
        >>> history = History({}, sent, scores, np.zeros((1, 2)))
        >>> history.columns, list(history.score_columns)
        (('round', 'loss', 'bytes'), ['loss'])
        """
        return tuple(dict.fromkeys([*self.evaluations, *self.rounds]))

    @cached_property
    def score_columns(self) -> Mapping[str, ScoreColumn]:
        """Score, stage and set of each column of scores, by name; :attr:`columns` has all names."""
        if (known := self.meta.get("columns")) is not None:
            return from_json(known)
        sets = self.meta.get("evaluation", {}).get("on") or ["test"]  # an older version wrote it
        first = sets if isinstance(sets, str) else str(sets[0])
        return columns_named(self.evaluations, self.scores, first)

    def score_of(self, column: str) -> str | None:
        """Return the score that a column contains; None if it contains none.

        Examples
        --------
        >>> from topofl import History
        >>> history = History({}, {}, {"accuracy_own_val": np.zeros((1, 2))}, np.zeros((0, 2)))
        >>> history.score_of("accuracy_own_val")
        'accuracy'
        """
        found = self.score_columns.get(column)
        return found and found.score

    def low_is_good(self, column: str) -> bool:
        """Return whether lower values are better in a column of scores."""
        return self.scores.get(self.score_of(column) or "loss") == "low"

    def column(self, score: str | None = None, stage: str = "", on: str | None = None) -> str:
        """Return the name of a column of scores, for ``history[name]`` and other methods.

        Parameters
        ----------
        score
            For example ``"accuracy"``; None: the task's primary score.
        stage
            ``""``: the models at the end of a round; ``"before_exchange"``, ``"fine_tuned"``,
            ``"knn"``, or a name in `also` of the run's :class:`topofl.Evaluation`.
        on
            The set of examples, such as ``"own_val"``; None: the run's first one.

        Raises
        ------
        ValueError
            If there is no such column, listing the possible values.

        Examples
        --------
        >>> from topofl import History
        >>> evaluations = {"accuracy": np.zeros((1, 2)), "accuracy_knn": np.ones((1, 2))}
        >>> history = History({}, {}, evaluations, np.zeros((0, 2)))
        >>> history.column(stage="knn"), history.score_columns["accuracy_knn"].stage
        ('accuracy_knn', 'knn')
        """
        if why := why_not_scored(self):
            raise ValueError(why)
        columns = self.score_columns
        first = next((column.set for column in columns.values()), "test")
        wanted = ScoreColumn(
            self.primary if score is None else score, stage, first if on is None else on
        )
        for name, column in columns.items():
            if column == wanted:
                return name
        given = {"score": score, "stage": stage, "on": on}
        for place, (argument, value) in enumerate(given.items()):
            known = dict.fromkeys(column[place] for column in columns.values())
            if value is not None and value not in known:
                raise ValueError(
                    f"`{argument}` must be one that was evaluated, {', '.join(map(repr, known))}, "
                    f"got {shown(value)}"
                )
        raise ValueError(
            f"`score`, `stage` and `on` must name one of {', '.join(columns)}, got {tuple(wanted)}"
        )

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column of `rounds` or of `evaluations`; :attr:`columns` has their names.

        Raises
        ------
        KeyError
            If there is no such column, with the nearest name, or how to record it.
        TypeError
            If `name` is not text.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"`column` must be the name of a column, such as 'accuracy', got {shown(name)}"
            )
        for table in (self.evaluations, self.rounds):
            if name in table:
                return table[name]
        for cost, column in COSTS.items():
            if name == column:
                raise KeyError(f"no column {name!r}: {self._why_unrecorded(cost)}")
        known = self.columns
        if (why := why_not_scored(self)) and columns_named([name], self.scores, ""):
            raise KeyError(f"no column {name!r}: {why}")
        raise KeyError(
            f"no column {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}"
        )

    def _why_unrecorded(self, cost: str) -> str:
        """Return why a cost of rounds (a key of :data:`COSTS`) is missing, and the remedy."""
        if cost == "seconds":
            return (
                f"{self._run} has no simulated seconds: run algorithms.timed(algorithm, clock), "
                "ad_psgd or random_walks, or take history.with_seconds(hardware)"
            )
        return (
            f"{self._run} has no {COSTS[cost]} in its rounds, since an older version wrote it: run "
            "it again"
        )

    def mixing(self, t: int) -> MixingMatrix:
        """Return the mixing matrix of round `t` (from 0; negative values count from the end).

        Raises
        ------
        ValueError
            If there was no such round, or the algorithm exchanged nothing.
        """
        if not self.matrices:
            raise ValueError(
                f"{self._run} has no mixing matrices, since its algorithm exchanges nothing; "
                "leave it out"
            )
        t = check_int("t", t, minimum=-self.n_rounds, maximum=self.n_rounds - 1)
        return self.matrices[int(self.matrix_of_round[t])]

    @property
    def mixings(self) -> MixingSequence:
        """The mixing matrices of all rounds, for functions of :mod:`topofl.metrics`.

        These functions also accept the History itself. A single matrix in all rounds has period 1.
        """
        algorithm = self.meta.get("algorithm", "run")
        name = self._with_attack(f"{algorithm} over {self.meta.get('topology', 'graphs')}")
        period = 1 if len(self.matrices) == 1 else None
        return MixingSequence(self.mixing(0).n, self.mixing, name, period, self.n_rounds)

    def _elapsed(self, cost: str, rounds: Any, column: str) -> np.ndarray:
        """Return the seconds, bytes or steps from the start of the run until a column was scored.

        Parameters
        ----------
        cost
            A key of :data:`COSTS`.
        rounds
            Numbers of completed rounds.
        column
            The scored column. For scores before an exchange, the bytes of that exchange do not
            count.
        """
        stage = self.score_columns[column].stage if column in self.score_columns else ""
        counted = np.asarray(rounds)
        if cost == "megabytes" and stage == "before_exchange":
            counted = np.maximum(0, counted - 1)
        values = self.rounds[COSTS[cost]]
        totals = values if cost == "seconds" else np.cumsum(values)
        return np.concatenate([[0], totals])[counted]


def why_not_scored(history: Record) -> str:
    """Return why a run has no scores, and the remedy; empty if it evaluated models.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models
    >>> clients = data.iid(data.digits(), 2, seed=0)
    >>> history = topofl.run(algorithms.local_only(lr=0.1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=1, seed=0, evaluation=())
    >>> why_not_scored(history).partition(", since")[0]
    'local_only on no edges evaluated nothing'
    """
    if history.meta.get("evaluation", {}).get("on") != []:
        return ""
    return (
        f"{history._run} evaluated nothing, since it ran with Evaluation(on=()): run it again "
        "with a set of examples, as in Evaluation(on='test')"
    )


def series_of(history: Record, column: str, x: str, name: str) -> plots.Series:
    """Return a column of a history against an axis.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If the axis was not recorded, or the history has no evaluation of the column.
    """
    values = history[column]
    if column in history.meta.get("evaluation", {}).get("without", ()):
        raise ValueError(
            f"`column` must have been computed, {history._run} left out {column!r} by "
            "Evaluation(without=...); run it again with it, or take another column"
        )
    if x in COSTS and COSTS[x] not in history.rounds:
        raise ValueError(f"`x` must be a recorded cost, got {x!r}, {history._why_unrecorded(x)}")
    rounds = np.arange(1, history.n_rounds + 1)
    if column in history.evaluations:
        rounds = history.evaluations["round"]
        if not len(rounds):
            raise ValueError(
                f"`column` must have been evaluated, {history._run} has no evaluations; run "
                "it with topofl.run(evaluation=1), or take a column of rounds such as 'train_loss'"
            )
    final = int(rounds.max(initial=0))
    if column in history.score_columns and history.score_columns[column].stage:
        evaluated = ~np.isnan(values).all(1)  # NaN would interrupt the line
        if evaluated.any():
            rounds, values = rounds[evaluated], values[evaluated]
    places = rounds
    if x in COSTS:
        unit = {"steps": history.node_loss.shape[1], "megabytes": 1e6}.get(x, 1)
        places = history._elapsed(x, rounds, column) / unit
    return plots.Series(
        name, column, rounds, places, values, history.low_is_good(column), final,
        labels=history.meta.get("nodes", ()),
    )  # fmt: skip
