"""What advice consists of: ranked candidates with predictions, costs, reasons and code."""

import textwrap
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing import figure_of, new_axes
from topofl._drawing.figures import MEASURED
from topofl._support.notebook import paragraph
from topofl._support.table import NotApplicable, Spread, Table
from topofl.topology import Topology, TopologySequence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Candidate", "Recommendation"]

EXPLAINED = 3
"""Candidates whose reason and code are printed below the table."""

PAGE = 'page "What predicts convergence" of the documentation, docs/what-predicts-convergence.md'
"""Where the columns are derived and tested."""

BARS = 20
"""Most candidates in a picture."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A topology within the budget, as :func:`topofl.topologies.recommend` returns it.

    Parameters
    ----------
    name
        The call of the generator, without the data and the seed, and with the names of its other
        arguments.
    topology
        The graph, or the sequence of graphs.
    rounds, low, high
        Predicted rounds to a target, relative to the complete graph, and their interval; None if
        no curve is fitted for this number of hops.
    heterogeneity, noise
        H_K and N_K, see :func:`topofl.metrics.neighborhood_heterogeneity` and
        :func:`topofl.metrics.accumulated_noise`.
    deviation
        H_K plus the noise ratio times N_K, by which candidates are ranked: the predicted squared
        deviation of nodes, in units of label shares; N_K if the noise ratio is infinite.
    degree
        Most messages that a node sends, or receives, in a round.
    messages, busiest
        Messages of all nodes per round, and sent and received by the node with the most.
    bytes
        Bytes of all messages per round; None without a model.
    reason
        What the deviation consists of, in a sentence.
    code
        The line of Python that builds the graph, where `clients` is what was given.
    spec
        The text that stands for the graph in a configuration file and on the command line.

    Examples
    --------
    >>> from topofl import data, topologies
    >>> clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    >>> best = topologies.recommend(clients, max_degree=2, static=True).best
    >>> rebuilt = eval(best.code)
    >>> (rebuilt.adjacency != best.topology.adjacency).nnz
    0
    """

    name: str
    topology: Topology | TopologySequence
    rounds: float | None
    low: float | None
    high: float | None
    heterogeneity: float
    noise: float
    deviation: float
    degree: int
    messages: float
    busiest: int
    bytes: float | None
    reason: str
    code: str
    spec: str


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """Candidates by predicted deviation, printed as a table with reasons and code.

    Parameters
    ----------
    candidates
        From the lowest to the highest predicted deviation, and so by predicted rounds.
    hops
        K, the horizon of H_K and N_K.
    noise_ratio
        Weight of N_K against H_K; infinite if the gradients of nodes differ by noise only.
    budget
        The limit, as it was given.
    warnings
        In what the setting is outside of those to which predicted rounds are fitted, and what was
        left out.
    fitted_to
        The settings to which they are fitted.

    Examples
    --------
    >>> from topofl import data, topologies
    >>> clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    >>> found = topologies.recommend(clients, max_degree=2, static=True)
    >>> found.budget, found.hops, found.best is found.candidates[0]
    ('max_degree=2', 10, True)
    """

    candidates: tuple[Candidate, ...]
    hops: int
    noise_ratio: float
    budget: str
    warnings: tuple[str, ...]
    fitted_to: str

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest predicted deviation."""
        return self.candidates[0]

    @property
    def table(self) -> Table:
        """All candidates with predictions, costs, reasons and code."""
        return self._table(explained=True)

    def to_markdown(self) -> str:
        """Return the table in Markdown, followed by what its columns are, and warnings."""
        legend = "\n".join(f"- {line}" for line in self._legend())
        notes = (f"\n{note}" for note in self._notes())
        return "\n".join([self.table.to_markdown(), "", legend, *notes])

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame with one row per candidate."""
        return self.table.to_pandas()

    def __str__(self) -> str:
        """Return the table, reason and code of the first candidates, and warnings."""
        lines = [str(self._table(explained=False)), ""]
        for place, candidate in enumerate(self.candidates[:EXPLAINED], start=1):
            lines.append(f"{place}. {candidate.code}")
            lines.append(f'   In a configuration file: topology = "{candidate.spec}"')
            lines.append(f"   {candidate.reason}")
        notes = (textwrap.fill(note, 120) for note in self._notes())
        return "\n".join([*lines, "", *self._legend(), "", *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(
            f"<li><code>{escape(candidate.code)}</code><br>In a configuration file: "
            f"<code>topology = &quot;{escape(candidate.spec)}&quot;</code>"
            f"<br>{escape(candidate.reason)}</li>"
            for candidate in self.candidates[:EXPLAINED]
        )
        notes = (*self._legend(), *self._notes())
        table = self._table(explained=False)._repr_html_()
        return f"{table}<ol>{items}</ol>{''.join(map(paragraph, notes))}"

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the predicted rounds of the first candidates with intervals, and return the figure.

        Without predicted rounds, their deviations are drawn.
        """
        shown = self.candidates[:BARS]
        ax = new_axes(ax, 8, 1 + 0.28 * len(shown))
        places = np.arange(len(shown))
        spreads = [_spread(candidate) for candidate in shown]
        known = [spread for spread in spreads if spread is not None]
        centers = np.array([c.deviation for c in shown] if not known else [s.mean for s in known])
        ends = np.array([[s.mean - s.low, s.high - s.mean] for s in known]).T if known else None
        ends = None if ends is None else np.maximum(ends, 0)
        ax.errorbar(centers, places, xerr=ends, fmt="o", color=MEASURED, capsize=3)
        ax.set_yticks(places, [candidate.name for candidate in shown])
        ax.invert_yaxis()
        ax.set_xscale("log")
        what = "rounds to target / complete graph" if known else "deviation"
        ax.set(xlabel=f"predicted {what}", title=self.budget)
        return figure_of(ax)

    def _notes(self) -> list[str]:
        fit = f"Predicted rounds are fitted to {self.fitted_to}."
        return [
            *(f"Warning: {text}." for text in self.warnings),
            *([] if self.best.rounds is None else [fit]),
        ]

    def _legend(self) -> list[str]:
        """Return one line per column: what it is, and whether small or large values are good."""
        k = self.hops
        terms = f"H_{k} + {self.noise_ratio:.3g} N_{k}"
        if np.isinf(self.noise_ratio):
            terms = f"N_{k}"
        left = f"that is left after 1 to {k} exchanges, summed; lower is better"
        return [
            "graph: how to create it; `topofl list topology` describes generators",
            "rounds / complete: predicted rounds to a target, relative to the complete graph, with "
            "an interval; lower is better",
            f"deviation: {terms}, predicts how far apart models are, and ranks graphs; lower is "
            "better",
            f"H_{k}: label heterogeneity of neighborhoods {left}",
            f"N_{k}: gradient noise {left}",
            "degree: most messages that a node sends, or receives, per round; lower is cheaper",
            "messages, MB: of all nodes per round; lower is cheaper",
            "busiest node: most messages that a node sends and receives together; lower is cheaper",
            f"More: {PAGE}",
        ]

    def _table(self, *, explained: bool) -> Table:
        columns = [
            *("graph", "rounds / complete", "deviation", f"H_{self.hops}", f"N_{self.hops}"),
            *("degree", "messages", "MB", "busiest node"),
            *(("reason", "code", "spec") if explained else ()),
        ]
        rows = tuple(
            (
                candidate.name,
                _spread(candidate) or NotApplicable("not predicted; see the warnings"),
                candidate.deviation,
                candidate.heterogeneity,
                candidate.noise,
                candidate.degree,
                candidate.messages,
                NotApplicable("no model given")
                if candidate.bytes is None
                else candidate.bytes / 1e6,
                candidate.busiest,
                *((candidate.reason, candidate.code, candidate.spec) if explained else ()),
            )
            for candidate in self.candidates
        )
        count = len(rows)
        title = f"{count} candidate{'s' * (count != 1)} within {self.budget}; costs per round"
        return Table(tuple(columns), rows, title=title)


def _spread(candidate: Candidate) -> Spread | None:
    """Return the predicted rounds with their interval, or None if there are none."""
    if candidate.rounds is None or candidate.low is None or candidate.high is None:
        return None
    return Spread(candidate.rounds, candidate.low, candidate.high)
