"""Curves of many runs in one array each, so that no work is done run by run."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from topofl._support.check import did_you_mean, shown
from topofl.summary.sources import Entry

__all__ = ["Curves", "check_column", "goes_down"]


@dataclass(frozen=True, eq=False)
class Curves:
    """Numbers of R runs at their evaluations, one run after the other.

    Parameters
    ----------
    values
        All numbers; NaN where a run has none.
    starts
        (R,) position of the first number of each run.
    lengths
        (R,) number of evaluations of each run; 0 for runs that did not record this column.
    """

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[float | None]]) -> "Curves":
        """Return the curves of runs, from one list of numbers per run.

        Examples
        --------
        >>> curves = Curves.of([[0.0, 0.5], [0.1, None, 0.7]])
        >>> curves.last().tolist(), curves[1].tolist()
        ([0.5, 0.7], [0.1, nan, 0.7])
        """
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.array(list(chain.from_iterable(rows)), dtype=np.float64)
        return cls(values, np.cumsum(lengths) - lengths, lengths)

    def __getitem__(self, run: int) -> np.ndarray:
        """Return the numbers of one run."""
        return self.values[self.starts[run] : self.starts[run] + self.lengths[run]]

    def last(self) -> np.ndarray:
        """Return the last number of each run, (R,); NaN for runs without one."""
        return self.at(self.lengths - 1)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return each run's number at its own position, (R,); NaN beyond its ends."""
        inside = (positions >= 0) & (positions < self.lengths)
        found = np.full(len(self.starts), np.nan)
        found[inside] = self.values[(self.starts + positions)[inside]]
        return found

    def first(self, wanted: np.ndarray) -> np.ndarray:
        """Return the position of the first number of each run for which `wanted` is true.

        Parameters
        ----------
        wanted
            (numbers of all runs,) booleans.

        Returns
        -------
        np.ndarray
            (R,) integers; -1 for runs without such a number.
        """
        found = np.full(len(self.starts), -1)
        hits = np.flatnonzero(wanted)
        run = np.searchsorted(self.starts + self.lengths, hits, side="right")
        runs, first = np.unique(run, return_index=True)
        found[runs] = hits[first] - self.starts[runs]
        return found


def check_column(entries: Sequence[Entry], column: Any) -> str:
    """Return the name of the column of scores, the first one recorded if it is None.

    Raises
    ------
    TypeError
        If `column` is not text.
    ValueError
        If runs lack it, with the nearest name or the names of these runs.
    """
    known = dict.fromkeys(chain.from_iterable(entry.curves["scores"] for entry in entries))
    if not known:
        raise ValueError(
            "`runs` must have evaluations with scores, got none with any; runs with "
            "Evaluation(on=()) evaluate nothing, so run them with a set, as in evaluation='test'"
        )
    name = next(iter(known)) if column is None else column
    if not isinstance(name, str):
        raise TypeError(f"`column` must be the name of a score, got {shown(column)}")
    if name not in known:
        listed = ", ".join(map(repr, known))
        raise ValueError(
            f"`column` must be one of {listed}, got {shown(name)}{did_you_mean(name, known)}"
        )
    without = [entry for entry in entries if not entry.curves["scores"].get(name, {}).get("mean")]
    if without:
        shared = [
            other for other in known if all(other in entry.curves["scores"] for entry in entries)
        ]
        remedy = f"all runs have {', '.join(shared)}" if shared else "no score is in all runs"
        raise ValueError(
            f"`column` must be in all runs, {len(without)} of {len(entries)} lack {name!r} "
            f"({', '.join(entry.name for entry in without[:3])}"
            f"{', ...' if len(without) > 3 else ''}); {remedy}; leave the others out"
        )
    return name


def goes_down(score: str, best: Curves, worst: Curves) -> bool:
    """Return whether low values are good, for runs that did not record it.

    The sign of the difference between what is called the best and the worst node tells.

    If all nodes of all runs have equal scores, the name decides: losses and errors are low.

    Examples
    --------
    >>> goes_down("mse", Curves.of([[0.1]]), Curves.of([[0.9]]))
    True
    """
    with np.errstate(invalid="ignore"):
        sign = float(np.nansum(np.sign(best.values - worst.values)))
    if sign:
        return sign < 0
    return any(word in score for word in ("loss", "mse", "mae", "error", "perplexity"))
