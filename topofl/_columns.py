"""Columns of histories: those of rounds, and scores by stage of the round and set of examples."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

STAGES = ("", "before_exchange", "fine_tuned", "knn")
"""Built-in stages of evaluation; the first is the end of a round, which names leave out."""

RANK_COLUMNS = ("cut_edges", "rank_bytes", "exchange_seconds")
"""Columns of rounds that only distributed runs have."""

SECONDS = "simulated_seconds"
"""Column of the simulated time, which phases of runs on a simulated clock note."""

OWN_COLUMNS = frozenset(
    (
        *RANK_COLUMNS,
        SECONDS,
        "round",
        "node",
        "label",
        "loss",
        "train_loss",
        "node_loss",
        "steps",
        "messages",
        "bytes",
        "messages_paper",
        "bytes_paper",
        "busiest_messages",
        "busiest_bytes",
        "seconds",
        "smallest_push_weight",
        "consensus_distance",
        "gradient_diversity",
        "push_weight",
    )
)
"""Columns of histories, of their tables and of events: no score and no value of a user has them."""


class ScoreColumn(NamedTuple):
    """Score, stage and set of a column of scores.

    Attributes
    ----------
    score
        For example ``"accuracy"``.
    stage
        The models that were scored: ``""`` at the end of a round, ``"before_exchange"``,
        ``"fine_tuned"``, ``"knn"``, or a custom stage.
    set
        The examples, such as ``"own_test"``.
    """

    score: str
    stage: str
    set: str


def name_of(column: ScoreColumn, first: str) -> str:
    """Return the name of a column: score, stage, and the set unless it is the `first` set.

    Examples
    --------
    >>> name_of(ScoreColumn("loss", "fine_tuned", "own_val"), "own_test")
    'loss_fine_tuned_own_val'
    >>> name_of(ScoreColumn("loss", "", "test"), "test")
    'loss'
    """
    parts = (column.score, column.stage, "" if column.set == first else column.set)
    return "_".join(part for part in parts if part)


def columns_of(
    scores: Iterable[str], stages: Iterable[str], sets: Iterable[str]
) -> dict[str, ScoreColumn]:
    """Return the columns of all scores, stages and sets by name, in the order of a history.

    Raises
    ------
    ValueError
        If two columns have the same name.
    """
    scores = list(scores)
    sets = list(sets)
    found: dict[str, ScoreColumn] = {}
    for column in (
        ScoreColumn(score, stage, on) for stage in stages for on in sets for score in scores
    ):
        name = name_of(column, sets[0])
        if name in found:
            one, other = (" ".join(filter(None, each)) for each in (found[name], column))
            raise ValueError(
                f"`evaluation.also` must give every column a unique name, got {name!r} for both "
                f"{one} and {other}; rename the evaluation or the score"
            )
        found[name] = column
    return found


def columns_named(
    names: Iterable[str], scores: Iterable[str], first: str
) -> dict[str, ScoreColumn]:
    """Return the columns of scores among these names, for histories that only have names.

    Only built-in stages are recognized; the rest of a name is the set, or `first` if it is empty.

    Examples
    --------
    >>> found = columns_named(["round", "loss_knn_own_val"], ["accuracy", "loss"], "own_test")
    >>> found["loss_knn_own_val"]
    ScoreColumn(score='loss', stage='knn', set='own_val')
    """
    scores = list(scores)
    found = {}
    for name in names:
        score = max((one for one in scores if _starts(name, one)), key=len, default=None)
        if score is None:
            continue
        rest = name[len(score) + 1 :]
        stage = max((one for one in STAGES if _starts(rest, one)), key=len, default="")
        found[name] = ScoreColumn(score, stage, rest[len(stage) + bool(stage) :] or first)
    return found


def _starts(name: str, part: str) -> bool:
    """Return whether a name is `part`, or starts with it and an underscore."""
    return name == part or name.startswith(f"{part}_")


def as_json(columns: Mapping[str, ScoreColumn]) -> dict[str, Any]:
    """Return columns as JSON values."""
    return {name: column._asdict() for name, column in columns.items()}


def from_json(value: Any) -> dict[str, ScoreColumn]:
    """Return columns from the values of :func:`as_json`, or raise ``ValueError`` if damaged."""
    if not isinstance(value, Mapping):
        raise ValueError(f"columns must be a dictionary, got {type(value).__name__}")
    for name, fields in value.items():
        known = isinstance(fields, Mapping) and set(fields) == set(ScoreColumn._fields)
        if not known or not all(isinstance(text, str) for text in fields.values()):
            raise ValueError(f"the column {name!r} must have a score, a stage and a set")
    return {name: ScoreColumn(**fields) for name, fields in value.items()}
