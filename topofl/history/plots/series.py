"""A column of a history at the positions of an axis, and what is drawn of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.charts.lines import Line
from topofl.history.columns import COSTS, why_unrecorded
from topofl.history.statistics import goodness, over_nodes
from topofl.history.summary import run_name
from topofl.history.targets import elapsed

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["Series", "series_of"]


@dataclass(frozen=True, eq=False)
class Series:
    """A column of a history.

    Parameters
    ----------
    name
        Name of the run.
    column
        Name of the column.
    rounds
        (E,) rounds of its values.
    x
        (E,) positions on the horizontal axis.
    values
        (E, n) values per node, or (E,).
    low_is_good
        Whether lower values are better.
    final
        The last evaluated round of the run, which may be later than those of `rounds`.
    labels
        Labels of the nodes; empty means 0..n-1.
    """

    name: str
    column: str
    rounds: np.ndarray
    x: np.ndarray
    values: np.ndarray
    low_is_good: bool
    final: int
    labels: Sequence[object] = ()

    @property
    def per_node(self) -> np.ndarray:
        """(E, n) values; ``ValueError`` if the column has a single one for all nodes."""
        if self.values.ndim == 1:
            raise ValueError(
                "`column` must have one value per node, such as a score, got "
                f"{self.column!r} of {self.name} with one for all nodes; take kind='band'"
            )
        return self.values

    def line(self, quantiles: tuple[float, float]) -> Line:
        """Return the mean over nodes and a band between quantiles, by linear interpolation."""
        if self.values.ndim == 1:
            none = np.full(len(self.x), np.nan)
            return Line(self.x, self.values.astype(float), none, none)
        low, high = np.full((2, len(self.x)), np.nan)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite losses
            for k, row in enumerate(self.values):
                if len(known := row[~np.isnan(row)]):
                    low[k], high[k] = np.quantile(known, quantiles)
        return Line(self.x, over_nodes(self.values)["mean"], low, high)

    def scores(self, round_: int | None) -> np.ndarray:
        """Return the scores of all nodes in a round, (n,), the last one for None.

        Raises
        ------
        ValueError
            If the round was not evaluated.
        """
        if round_ is None:
            return self.per_node[-1]
        if round_ not in self.rounds:
            listed = ", ".join(map(str, self.rounds[:8].tolist()))
            more = f", ..., {self.rounds[-1]}" if len(self.rounds) > 8 else ""
            raise ValueError(
                f"`at` must be an evaluated round of {self.name} with scores in {self.column!r}, "
                f"{listed}{more}, got {round_}"
            )
        return self.per_node[int(np.flatnonzero(self.rounds == round_)[0])]

    def at(self, round_: int | None) -> np.ndarray:
        """Return the finite scores of nodes in a round, the last one for None.

        Raises
        ------
        ValueError
            If the round was not evaluated, or no node has a finite score in it.
        """
        values = self.scores(round_)
        if not np.isfinite(values).any():
            drawn = self.rounds[-1] if round_ is None else round_
            raise ValueError(
                f"`column` must have a finite value for some node, {self.column!r} of {self.name} "
                f"has none in round {drawn}; leave it out, or take another round"
            )
        return values[np.isfinite(values)]

    def worst(self, count: int) -> list[int]:
        """Return the nodes with the worst last scores, the worst one first."""
        good = goodness(self.per_node[-1], self.low_is_good)
        known = np.flatnonzero(good > -np.inf)
        return known[np.argsort(good[known], kind="stable")][:count].tolist()


def series_of(history: "History", column: str, x: str, name: str) -> Series:
    """Return a column of a history against an axis.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If the axis was not recorded, or the history has no evaluation of the column.
    """
    values = history[column]
    if x in COSTS and COSTS[x] not in history.rounds:
        raise ValueError(f"`x` must be a recorded cost, got {x!r}, {why_unrecorded(history, x)}")
    rounds = np.arange(1, history.n_rounds + 1)
    if column in history.evaluations:
        rounds = history.evaluations["round"]
        if not len(rounds):
            raise ValueError(
                f"`column` must have been evaluated, {run_name(history)} has no evaluations; run "
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
        places = elapsed(history, x, rounds, column) / unit
    return Series(
        name, column, rounds, places, values, history.low_is_good(column), final,
        labels=history.meta.get("nodes", ()),
    )  # fmt: skip
