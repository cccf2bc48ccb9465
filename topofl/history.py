"""What a run leaves behind: tidy columns a round, arrays a node, and the mixing matrices that were used."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from topofl._check import (
    as_array,
    check_choice,
    check_int,
    check_probability,
    did_you_mean,
    shown,
)
from topofl._drawing import new_axes
from topofl._npz import read_arrays
from topofl._table import NotApplicable
from topofl.mixing import MixingMatrix, MixingSequence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["BEFORE_EXCHANGE", "FINE_TUNED", "NEAREST", "History", "Personal", "evaluation_record", "over_nodes"]

BEFORE_EXCHANGE, FINE_TUNED, NEAREST = "_before_exchange", "_fine_tuned", "_knn"
"""Moments of an evaluation, as they stand in the names of columns."""


@dataclass(frozen=True)
class Personal:
    """What the nodes' own scores come to.

    Parameters
    ----------
    mean
        Over nodes with a score, each counting the same, whatever its number of examples.
    variance
        Over these nodes: the mean squared deviation from `mean`.
    worst_tenth
        Mean over the worst tenth of these nodes, rounded down to whole ones, but at least one.
    n
        Number of nodes with a score.
    without
        Number of nodes without one: they have no examples in the set, or were not evaluated.
    """

    mean: float
    variance: float
    worst_tenth: float
    n: int
    without: int

    @classmethod
    def of(cls, values: Any, *, low_is_good: bool = False) -> "Personal":
        """Return the summary of (n,) scores, NaN where a node has none; NaN too if no node has one.

        Parameters
        ----------
        values
            For example ``history.best_on_validation()``.
        low_is_good
            Whether the worst are the largest, as of losses.

        Raises
        ------
        ValueError
            If they are not (n,).

        Examples
        --------
        >>> Personal.of([0.5, 1.0, float("nan")])
        Personal(mean=0.75, variance=0.0625, worst_tenth=0.5, n=2, without=1)
        """
        values = as_array("values", values, np.float64)
        if values.ndim != 1:
            raise ValueError(f"`values` must be one a node, (n,), got shape {values.shape}; take history.last()")
        there = np.sort(values[~np.isnan(values)])
        without = len(values) - len(there)
        if not len(there):
            return cls(math.nan, math.nan, math.nan, 0, without)
        worst = (there[::-1] if low_is_good else there)[: max(1, len(there) // 10)]
        with np.errstate(invalid="ignore"):  # infinite losses have no variance
            return cls(float(there.mean()), float(there.var()), float(worst.mean()), len(there), without)


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """The record of one run.

    Parameters
    ----------
    meta
        What determined the run: algorithm, topology, seed, sizes, versions. JSON values only.
    rounds
        Columns of length R, one entry a round 1..R: ``train_loss`` (mean over nodes of the minibatch loss before each
        step), ``messages``, ``bytes``, ``busiest_messages``, ``busiest_bytes`` (sums over nodes, and the largest
        in + out of one node, or of a server), and ``messages_paper``, ``bytes_paper`` (the D-Cliques paper's
        accounting, in which gradients go to all neighbors); of push-sum ``smallest_push_weight``.
    evaluations
        Entries of length E, one an evaluation: ``round`` (0 is before training), ``accuracy`` and ``loss`` (E, n) of
        every node's model at the end of the round (NaN for nodes that were not evaluated), ``consensus_distance``,
        ``gradient_diversity`` of the round's first step (NaN for round 0, which has none); with ``moments="both"`` also
        ``accuracy_before_exchange`` and ``loss_before_exchange`` (E, n); with fine-tuning also ``accuracy_fine_tuned``
        and ``loss_fine_tuned`` (E, n), NaN where models were evaluated without; beside their nearest neighbors
        ``accuracy_knn`` and ``loss_knn`` (E, n). Where several sets are evaluated, those
        of the further ones end in their names, as in ``accuracy_own_val`` and ``loss_before_exchange_own_val``. Of
        push-sum also ``push_weight`` (E, n). Where only a part of the models travels, distances are of that part.
    node_loss
        (R, n) minibatch loss of each node, mean over the steps of the last phase that trains what predicts; NaN where
        the node did not train.
    matrices
        The distinct mixing matrices, in order of first use.
    matrix_of_round
        (R,) index into `matrices`.
    """

    meta: Mapping[str, Any]
    rounds: Mapping[str, np.ndarray]
    evaluations: Mapping[str, np.ndarray]
    node_loss: np.ndarray
    matrices: tuple[MixingMatrix, ...] = ()
    matrix_of_round: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __repr__(self) -> str:
        accuracy = self.evaluations["accuracy"][-1]
        mean = float(over_nodes(accuracy)["mean"])
        return (
            f"History({self.meta.get('algorithm')} on {self.meta.get('topology')}: {self.n_rounds} rounds, "
            f"n={len(accuracy)}, final accuracy {mean:.4f}{self._evaluated}{self._diverged})"
        )

    @property
    def _diverged(self) -> str:
        found = self.meta.get("diverged") or []
        return f", {len(found)} nodes diverged" if found else ""

    @property
    def _evaluated(self) -> str:
        """What a sample of examples or nodes was evaluated, if not all."""
        sizes = {what: self.meta.get(f"eval_{what}") for what in ("nodes", "examples")}
        said = " and ".join(f"{size} {what}" for what, size in sizes.items() if size is not None)
        return said and f" of a sample of {said}"

    @property
    def n_rounds(self) -> int:
        """Number of rounds run."""
        return len(self.node_loss)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column of `rounds` or an entry of `evaluations`.

        Raises
        ------
        KeyError
            Naming the nearest known column.
        TypeError
            If `name` is not text.
        """
        if not isinstance(name, str):
            raise TypeError(f"`column` must be the name of a column, such as 'accuracy', got {shown(name)}")
        for table in (self.evaluations, self.rounds):
            if name in table:
                return table[name]
        known = [*self.evaluations, *self.rounds]
        raise KeyError(f"no column {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")

    def mixing(self, t: int) -> MixingMatrix:
        """Return the mixing matrix of round `t` (from 0; negative counts from the end).

        Raises
        ------
        ValueError
            If there was no such round, or the algorithm exchanged nothing.
        """
        if not self.matrices:
            run = f"{self.meta.get('algorithm', 'the run')} on {self.meta.get('topology', 'no graph')}"
            raise ValueError(f"{run} has no mixing matrices: its algorithm exchanges nothing; leave it out")
        t = check_int("t", t, minimum=-self.n_rounds, maximum=self.n_rounds - 1)
        return self.matrices[self.matrix_of_round[t]]

    @property
    def mixings(self) -> MixingSequence:
        """The mixing matrices of all rounds, as functions of :mod:`topofl.metrics` that take sequences use them.

        They take the History itself too. One matrix in all rounds counts as a period of 1.
        """
        name = f"{self.meta.get('algorithm', 'run')} over {self.meta.get('topology', 'graphs')}"
        period = 1 if len(self.matrices) == 1 else None
        return MixingSequence(self.mixing(0).n, self.mixing, name, period, self.n_rounds)

    def rounds_to(self, accuracy: float, column: str = "accuracy") -> int | None:
        """Return the first evaluated round whose mean accuracy over nodes reaches `accuracy`, None if none does.

        It is as fine as the run's ``eval_every``: evaluate every round to count rounds.

        Parameters
        ----------
        accuracy
            A share between 0 and 1.
        column
            Which accuracy, for example ``"accuracy_before_exchange"``.

        Raises
        ------
        ValueError
            If `accuracy` is not a share between 0 and 1, or `column` is no accuracy.
        KeyError
            If there is no such column.
        """
        check_probability("accuracy", accuracy)
        values = self._scores("column", column)
        if not column.startswith("accuracy"):
            raise ValueError(
                f"`column` must be an accuracy such as 'accuracy', which can be reached, got {shown(column)}"
            )
        reached = over_nodes(values)["mean"] >= accuracy
        return int(self.evaluations["round"][reached.argmax()]) if reached.any() else None

    def bytes_to(self, accuracy: float, column: str = "accuracy") -> int | NotApplicable:
        """Return the bytes that all nodes sent up to the round of :meth:`rounds_to`, or why there is no number.

        Parameters
        ----------
        accuracy, column
            As there; so are the errors. Accuracies before an exchange do not count the bytes of its round.
        """
        done = self.rounds_to(accuracy, column)
        if done is not None:
            counted = max(0, done - 1) if BEFORE_EXCHANGE in column else done
            return int(self.rounds["bytes"][:counted].sum())
        best = over_nodes(self.evaluations[column])["mean"]
        reached = "it has no value" if np.isnan(best).all() else f"the highest is {np.nanmax(best):.4g}"
        return NotApplicable(
            f"no mean {column} of {len(best)} evaluations in {self.n_rounds} rounds is {accuracy:g} or more: {reached}"
        )

    def last(self, column: str = "accuracy") -> np.ndarray:
        """Return the nodes' scores after the last round, (n,); NaN for nodes without one.

        Parameters
        ----------
        column
            One with a value a node, such as ``"accuracy_fine_tuned"``.

        Raises
        ------
        KeyError
            If there is no such column, naming the nearest.
        ValueError
            If it has one value for all nodes.
        """
        return self._scores("column", column)[-1]

    def best(self, column: str = "accuracy") -> np.ndarray:
        """Return the nodes' scores, (n,), at the evaluation where their mean over nodes is best, the latest of equals.

        On a test set this chooses the round by the examples that it is judged by, and so promises too much: it is here
        since papers report it. An honest choice is :meth:`best_on_validation`.

        Parameters
        ----------
        column
            An accuracy (the highest is best) or a loss (the lowest is).

        Raises
        ------
        KeyError, ValueError
            As :meth:`last`.
        """
        values = self._scores("column", column)
        means = _goodness(column, over_nodes(values)["mean"])
        return values[len(means) - 1 - means[::-1].argmax()]

    def best_on_validation(self, column: str = "accuracy", validation: str = "accuracy_own_val") -> np.ndarray:
        """Return each node's score, (n,), at the evaluation where its own validation score is best.

        Each node keeps the model of its own best round, of equal ones the latest. Evaluations in which one of the two
        is NaN are left out; NaN for nodes that have no other.

        Parameters
        ----------
        column
            What is reported.
        validation
            An accuracy (the highest is best) or a loss (the lowest is) on other examples, of the same moment: with
            ``"accuracy_before_exchange"`` go ``"accuracy_before_exchange_own_val"``.

        Raises
        ------
        KeyError
            If there is no such column; validation needs ``topofl.run(evaluate_on=("own_test", "own_val"))``.
        ValueError
            As :meth:`last`.

        References
        ----------
        Kharrat, Canini and Horváth (2025), DPFL, appendix F and its code.
        """
        values, judged = self._scores("column", column), self._scores("validation", validation)
        usable = ~(np.isnan(values) | np.isnan(judged))
        goodness = np.where(usable, _goodness(validation, judged), -np.inf)
        place = len(goodness) - 1 - goodness[::-1].argmax(0)
        chosen = np.take_along_axis(values, place[None], axis=0)[0]
        return np.where(usable.any(0), chosen, np.nan)

    def personal(self, column: str = "accuracy", *, validation: str | None = None) -> Personal:
        """Return mean, variance and worst tenth over nodes, after the last round or of each node's best one.

        Parameters
        ----------
        column
            An accuracy or a loss.
        validation
            Take each node's evaluation that is best by this column, as :meth:`best_on_validation`; None: the last.

        Raises
        ------
        KeyError, ValueError
            As :meth:`best_on_validation`.
        """
        values = self.last(column) if validation is None else self.best_on_validation(column, validation)
        return Personal.of(values, low_is_good=_low_is_good(column))

    def _scores(self, argument: str, name: str) -> np.ndarray:
        """Return a column of (E, n), or raise naming the argument."""
        try:
            values = self[name]
        except TypeError as error:
            raise TypeError(str(error).replace("`column`", f"`{argument}`")) from None
        except KeyError as error:
            remedy = "; run with evaluate_on=('own_test', 'own_val')" if argument == "validation" else ""
            raise KeyError(f"`{argument}`: {error.args[0]}{remedy}") from None
        if values.ndim != 2:
            nodewise = ", ".join(key for key, column in self.evaluations.items() if column.ndim == 2)
            raise ValueError(
                f"`{argument}` must have a score a node, as {nodewise}, got {shown(name)}, one number for all"
            )
        return values

    def to_pandas(self, per: str = "round") -> "pd.DataFrame":
        """Return a tidy table.

        Parameters
        ----------
        per
            ``"round"``: one row a round, statistics over nodes, NaN where the round was not evaluated.
            ``"node"``: one row an evaluation and node.
        """
        import pandas as pd

        check_choice("per", per, ["round", "node"])
        if per == "round":
            return pd.DataFrame(self._records()).set_index("round")
        shape = self.evaluations["accuracy"].shape
        nodes = np.tile(np.arange(shape[1]), shape[0])
        index = {"round": np.repeat(self.evaluations["round"], shape[1]), "node": nodes}
        nodewise = {key: value.reshape(-1) for key, value in self.evaluations.items() if value.shape == shape}
        return pd.DataFrame(index | nodewise)

    def _records(self) -> list[dict[str, Any]]:
        """Return one dict a round, round 0 first, of numbers that may be NaN or infinite."""
        records: list[dict[str, Any]] = [{"round": t} for t in range(self.n_rounds + 1)]
        for name, column in self.rounds.items():
            for t, value in enumerate(column.tolist(), start=1):
                records[t][name] = value
        for k, t in enumerate(self.evaluations["round"].tolist()):
            records[t] |= evaluation_record({name: column[k] for name, column in self.evaluations.items()})
        return records

    def plot(self, column: str = "accuracy", *, ax: "Axes | None" = None, label: str | None = None) -> "Axes":
        """Draw a column against rounds: mean over nodes as a line, min to max as a band.

        Parameters
        ----------
        column
            Any column of `evaluations` or `rounds`.
        ax
            Where to draw; None makes a figure.
        label
            Legend entry; default is algorithm and topology.
        """
        import matplotlib.pyplot as plt

        values = self[column]
        ax = plt.subplots()[1] if ax is None else new_axes(ax)
        t = self.evaluations["round"] if column in self.evaluations else np.arange(1, self.n_rounds + 1)
        if FINE_TUNED in column:  # the others would tear the line apart
            t, values = (part[~np.isnan(values).all(1)] for part in (t, values))
        nodes = None if values.ndim == 1 else over_nodes(values)
        name = label or f"{self.meta.get('algorithm')}, {self.meta.get('topology')}"
        marker = "o" if len(t) == 1 else None
        (line,) = ax.plot(t, values if nodes is None else nodes["mean"], marker=marker, label=name)
        if nodes is not None:
            ax.fill_between(t, nodes["min"], nodes["max"], alpha=0.2, color=line.get_color(), linewidth=0)
        ax.set_xlabel("round")
        ax.set_ylabel(column.replace("_", " "))
        return ax

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the history to a folder: ``meta.json``, ``rounds.jsonl`` and ``arrays.npz``.

        JSON has no NaN and no infinity: where a run diverged, ``rounds.jsonl`` has null, and :meth:`load` gives NaN.

        The folder appears under its name only when it is complete; an older history there is replaced.

        Raises
        ------
        FileExistsError
            If `path` exists and is not a history.
        """
        path = Path(path)
        if path.exists() and not (path / "meta.json").exists():
            raise FileExistsError(f"`path` must be free or hold an older history, {path} holds something else")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            _write(self, partial)
            umask = os.umask(0)
            os.umask(umask)
            partial.chmod(0o777 & ~umask)  # mkdtemp lets nobody else in
            if path.exists():
                shutil.rmtree(path)
            os.replace(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "History":
        """Read a history that :meth:`save` wrote; the folder of ``topofl run``, which holds one, will do too.

        Raises
        ------
        FileNotFoundError
            If there is no history at `path`.
        ValueError
            If it is half-written or damaged, naming the file.
        """
        path = Path(path)
        path = path / "history" if (path / "history" / "meta.json").is_file() else path
        for name in ("meta.json", "rounds.jsonl", "arrays.npz"):
            if not (path / name).is_file():
                raise FileNotFoundError(
                    f"{path} is not a complete history: {name} is missing; give a folder that History.save or "
                    "topofl run wrote"
                )
        meta = _parse(path / "meta.json", _text(path / "meta.json"))
        lines = _text(path / "rounds.jsonl").splitlines()
        records = [_parse(path / "rounds.jsonl", line, k) for k, line in enumerate(lines, start=1)]
        arrays = _read_arrays(path / "arrays.npz")
        try:
            return _assemble(path, meta, records, arrays)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path} is damaged: meta.json, rounds.jsonl and arrays.npz do not fit ({error!r})"
            ) from error


def _assemble(
    path: Path, meta: dict[str, Any], records: list[dict[str, Any]], arrays: dict[str, np.ndarray]
) -> History:
    """Return the history that the three files hold, or raise whatever shows that they do not fit."""
    n_rounds = meta.pop("n_rounds")
    if len(records) != n_rounds + 1 or len(arrays["node_loss"]) != n_rounds:
        raise ValueError(f"{path / 'rounds.jsonl'} is half-written: {len(records)} lines, expected {n_rounds + 1}")
    columns = {name: _column([r[name] for r in records[1:]]) for name in meta.pop("columns")}
    evaluations = {k.removeprefix("evaluation."): v for k, v in arrays.items() if k.startswith("evaluation.")}
    matrices = _unpack(arrays, meta.pop("matrices"))
    history = History(meta, columns, evaluations, arrays["node_loss"], matrices, arrays["matrix_of_round"])
    if what := _misfit(history):
        raise ValueError(f"{what} is missing or does not fit the rest; run it again")
    return history


def _misfit(history: History) -> str:
    """Return the name of the first part that cannot belong to the others, or an empty text."""
    for name in ("train_loss", "messages", "bytes"):
        if name not in history.rounds:
            return name
    for name, column in history.rounds.items():
        if column.shape != (history.n_rounds,) or column.dtype.kind not in "iuf":
            return name
    shape = history.evaluations["accuracy"].shape
    for name in ("round", "accuracy", "loss", *history.evaluations):
        wanted = shape if history.evaluations[name].ndim == 2 else shape[:1]
        if history.evaluations[name].shape != wanted or history.evaluations[name].dtype.kind not in "iuf":
            return name
    places = history.matrix_of_round
    known = places.dtype.kind in "iu" and bool(((places >= 0) & (places < len(history.matrices))).all())
    if history.matrices and (places.shape != (history.n_rounds,) or not known):
        return "matrix_of_round"
    return "" if len(shape) == 2 and history.node_loss.shape[1:] == shape[1:] else "accuracy"


def _write(history: History, folder: Path) -> None:
    extra = {
        "n_rounds": history.n_rounds,
        "columns": list(history.rounds),
        "matrices": [matrix.name for matrix in history.matrices],
    }
    lines = [json.dumps({k: _finite(v) for k, v in record.items()}, allow_nan=False) for record in history._records()]
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    arrays = {"node_loss": history.node_loss, "matrix_of_round": history.matrix_of_round}
    arrays |= {f"evaluation.{name}": value for name, value in history.evaluations.items()}
    for k, matrix in enumerate(history.matrices):
        arrays |= {f"matrix.{k}.{part}": getattr(matrix.weights, part) for part in ("data", "indices", "indptr")}
    np.savez_compressed(folder / "arrays.npz", **arrays)  # pyright: ignore[reportArgumentType]
    (folder / "meta.json").write_text(json.dumps(dict(history.meta) | extra, indent=2) + "\n")


def over_nodes(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, min and max over the last axis, of the entries that are not NaN; NaN where there is none."""
    seen = ~np.isnan(values)
    count = seen.sum(-1)
    with np.errstate(invalid="ignore"):  # 0 / 0, and the sum of infinities of both signs
        mean = np.where(seen, values, 0.0).sum(-1) / count
    low, high = (np.where(seen, values, limit) for limit in (np.inf, -np.inf))
    bounds = {"min": low.min(-1), "max": high.max(-1)}
    return {"mean": mean} | {key: np.where(count > 0, bound, np.nan) for key, bound in bounds.items()}


def _low_is_good(column: str) -> bool:
    return column.startswith("loss")


def _goodness(column: str, values: np.ndarray) -> np.ndarray:
    """Return numbers that are larger where a column is better, above -inf where it is not NaN."""
    signed = -values if _low_is_good(column) else values
    largest = np.finfo(np.float64).max
    return np.where(np.isnan(values), -np.inf, np.clip(signed, -largest, largest))


def evaluation_record(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation as in ``rounds.jsonl``: of nodes' values mean, min and max, as ``accuracy_mean``."""
    record = {}
    for name, value in evaluation.items():
        if np.ndim(value) == 1:
            record |= {f"{name}_{key}": float(number) for key, number in over_nodes(value).items()}
        else:
            record[name] = int(value) if name == "round" else float(value)
    return record


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _column(values: list[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}; run it again") from error


def _parse(path: Path, text: str, line: int | None = None) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (MemoryError, RecursionError, ValueError) as error:
        where = f" in line {line}" if line else ""
        raise ValueError(f"{path} is half-written or damaged{where}: {error}; run it again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: expected a JSON object, got {type(value).__name__}")
    return value


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_arrays(path)
    except Exception as error:  # numpy, zipfile and zlib each have their own
        raise ValueError(f"{path} is half-written or damaged: {error}; run it again") from error


def _unpack(arrays: Mapping[str, np.ndarray], names: list[str]) -> tuple[MixingMatrix, ...]:
    matrices = []
    for k, name in enumerate(names):
        data, indices, indptr = (arrays[f"matrix.{k}.{part}"] for part in ("data", "indices", "indptr"))
        n = len(indptr) - 1
        matrices.append(MixingMatrix(sparse.csr_array((data, indices, indptr), shape=(n, n)), name=name))
    return tuple(matrices)
