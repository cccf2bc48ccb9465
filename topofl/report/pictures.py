"""Pictures of graphs and of the first rounds of sequences."""

from typing import Any

from matplotlib.figure import Figure

from topofl.report.figures import DescribedFigure
from topofl.report.svg import styled
from topofl.topology import Topology, TopologySequence, as_topology

__all__ = ["picture"]


def picture(graph: Topology | TopologySequence, label_counts: Any = None) -> DescribedFigure:
    """Return the picture of a graph, or of the first rounds of a sequence.

    Its description mentions simplifications of the drawing.

    Parameters
    ----------
    graph
        Graph or sequence, which is drawn without its name.
    label_counts
        (n, classes) counts that determine the colors of the nodes.
    """
    nameless = as_topology(graph, name="")
    with styled(grid=False):
        if isinstance(nameless, Topology):
            return _graph_picture(nameless, label_counts)
        return _sequence_picture(nameless, label_counts)


def _graph_picture(graph: Topology, label_counts: Any) -> DescribedFigure:
    figure = Figure(
        figsize=(3.5, 2.7) if label_counts is None else (4.2, 2.7), layout="constrained"
    )
    ax = figure.subplots()
    graph.plot(ax, label_counts=label_counts)
    remark = ax.get_title().replace("\n", " ")
    ax.set_title("")
    kind = "directed" if graph.is_directed else "undirected"
    groups = f", in {len(graph.groups):,} groups" if graph.groups else ""
    words = f"{graph.n:,} nodes and {graph.n_edges:,} {kind} edges{groups}."
    return DescribedFigure(figure, "Picture", words + (f" Drawn: {remark}." if remark else ""))


def _sequence_picture(graphs: TopologySequence, label_counts: Any) -> DescribedFigure:
    figure = graphs.plot(label_counts=label_counts)
    repeats = "without a period" if graphs.period is None else f"of a period of {graphs.period:,}"
    return DescribedFigure(
        figure, "Picture", f"Rounds 0 to {len(figure.axes) - 1} {repeats}, {graphs.n:,} nodes."
    )
