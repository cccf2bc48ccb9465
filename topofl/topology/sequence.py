"""The class TopologySequence: graphs that change from round to round."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from topofl import _drawing
from topofl._support.check import check_int, check_nodes, shown
from topofl.topology.graph import Topology

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TopologySequence"]


@dataclass(frozen=True, eq=False, repr=False)
class TopologySequence:
    """Graphs that change from round to round, on the same nodes.

    See the page :doc:`Directed and changing graphs </docs/tutorials/directed-and-changing-graphs>`.

    Parameters
    ----------
    n
        Number of nodes.
    generate
        Pure function of the round ``t >= 0`` that returns its graph.
    name
        Reproducible label.
    period
        Number of rounds after which the sequence repeats; None if it does not.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = [topologies.ring(4), topologies.star(4)]
    >>> sequence = TopologySequence(4, lambda t: graphs[t], name="ring and star", period=2)
    >>> sequence
    TopologySequence('ring and star', n=4, period=2)
    >>> sequence.at(3).name
    'star(n=4)'
    """

    n: int
    generate: Callable[[int], Topology]
    name: str = "sequence"
    period: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.generate):
            raise TypeError(
                "`generate` must be a function from a round to its Topology, got "
                f"{shown(self.generate)}"
            )
        check_nodes(self.n)
        if self.period is not None:
            check_int("period", self.period, minimum=1)

    def __repr__(self) -> str:
        return f"TopologySequence({self.name!r}, n={self.n}, period={self.period})"

    def at(self, t: int) -> Topology:
        """Return the graph of round `t`.

        Raises
        ------
        ValueError
            If `t` is negative, if the number of nodes differs from that of the sequence, or if the
            labels differ from those of round 0.
        """
        t = check_int("t", t, minimum=0)
        graph = self.generate(t % self.period if self.period else t)
        if not isinstance(graph, Topology):
            raise TypeError(
                f"`generate` must return a Topology for every round, got {shown(graph)} in round "
                f"{t}"
            )
        if graph.n != self.n:
            raise ValueError(
                f"every graph of {self.name} must have n={self.n} nodes, round {t} has {graph.n}; "
                "give each graph all nodes, including those without edges"
            )
        nodes = self.__dict__.setdefault("nodes", graph.nodes) if t == 0 else self.nodes
        if graph.nodes != nodes:
            raise ValueError(
                f"every graph of {self.name} must have the same labels in the same order, those of "
                f"round {t} differ from those of round 0; use as_topology(function), which matches "
                "nodes by label, or drop labels in all rounds: "
                "dataclasses.replace(graph, nodes=())"
            )
        return graph

    @cached_property
    def nodes(self) -> tuple[Hashable, ...]:
        """Labels of the nodes in round 0: ``nodes[i]`` labels node i; empty means 0..n-1."""
        return self.generate(0).nodes

    def plot(
        self, rounds: int | None = None, *, label_counts: Any = None, positions: Any = None
    ) -> "Figure":
        """Draw the first rounds side by side and return the figure.

        Each node has the same position in all rounds.

        Parameters
        ----------
        rounds
            Number of rounds, at least 1; default: one period, at most 6.
        label_counts, positions
            As in :meth:`Topology.plot`.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, with one Axes per round in ``figure.axes``.

        Raises
        ------
        TypeError, ValueError
            If an argument has the wrong type or does not fit the graphs.
        """
        return _drawing.draw_rounds(self, rounds, label_counts=label_counts, positions=positions)

    def _repr_svg_(self) -> str | None:
        """Return the SVG that notebooks show, of at most 6 rounds, or None if it is too large."""
        return _drawing.rounds_svg(self)
