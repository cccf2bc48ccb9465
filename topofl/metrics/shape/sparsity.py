"""Size, degrees, sparsity and reciprocity of a graph."""

from topofl._support.check import check_choice, check_switch
from topofl._support.public import public
from topofl.metrics._declaration import MetricColumn
from topofl.mixing import need_topology
from topofl.topology import Topology

__all__ = ["reciprocity", "sparsity"]

COLUMNS = (
    MetricColumn("nodes", "structure", "number of nodes", lambda entry: entry.n),
    MetricColumn(
        "edges",
        "structure",
        "number of edges; an undirected edge counts once",
        lambda entry: entry.mean_over_graphs(lambda graph: graph.n_edges),
    ),
    MetricColumn(
        "mean degree",
        "structure",
        "mean number of neighbors that a node sends to, excluding itself",
        lambda entry: entry.mean_over_graphs(lambda graph: graph.out_degrees.mean()),
    ),
    MetricColumn(
        "max degree",
        "structure",
        "largest number of in- or out-neighbors of a node, excluding itself",
        lambda entry: max(
            int(max(graph.in_degrees.max(), graph.out_degrees.max())) for graph in entry.graphs
        ),
    ),
    MetricColumn(
        "sparsity",
        "structure",
        "share of possible edges that are absent",
        lambda entry: entry.mean_over_graphs(sparsity),
    ),
    MetricColumn(
        "reciprocity",
        "structure",
        "share of directed edges that have a reverse edge",
        lambda entry: entry.mean_over_graphs(reciprocity),
    ),
)


@public
def sparsity(topology: Topology, *, count_self: bool = False) -> float:
    """Return the sparsity, the share of possible edges that are absent: ``1 - E / (n (n - 1))``.

    E counts directed edges, so an undirected edge counts twice.

    Parameters
    ----------
    topology
        One graph; for a sequence, pass one round.
    count_self
        Count each node as a neighbor of itself, as in the matrix of a collaboration graph: ``1 - (E
        + n) / n^2``. If each node receives from at most B - 1 others, this is at least ``1 - B /
        n``.

    Returns
    -------
    float
        In [0, 1]: 1 without edges, or ``1 - 1/n`` with `count_self`; 0 for the complete graph of
        two or more nodes.

    Raises
    ------
    TypeError
        If `topology` is not a Topology.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), section 4.3, reports sparsity without defining it.

    Examples
    --------
    >>> from topofl.topologies import ring
    >>> sparsity(ring(5)), sparsity(ring(5), count_self=True)
    (0.5, 0.4)
    """
    need_topology(topology)
    if check_switch("count_self", count_self, auto=False):
        return 1 - (topology.adjacency.nnz + topology.n) / topology.n**2
    return 1 - topology.adjacency.nnz / max(1, topology.n * (topology.n - 1))


@public
def reciprocity(topology: Topology, *, over: str = "edges") -> float:
    """Return the reciprocity, the share of directed edges that have a reverse edge.

    It is 1 for undirected graphs and for graphs without edges.

    Parameters
    ----------
    topology
        One graph; for a sequence, pass one round.
    over
        ``"edges"``, or ``"pairs"``: the share of unordered pairs of nodes with edges in both
        directions or in neither (1 for one node). For sparse graphs, the latter is always near 1:
        with at most B edges into each node it is at least ``1 - 2 B / (n - 1)``.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError
        If `topology` is not a Topology.
    ValueError
        If `over` is unknown.

    References
    ----------
    Garlaschelli and Loffredo, "Patterns of link reciprocity in directed networks" (2004), equation
    1. Kharrat, Canini and Horvath, "DPFL" (2025), section 4.3, reports a symmetry without defining
    it.

    Examples
    --------
    >>> from topofl.topology import from_edges
    >>> graph = from_edges([(0, 1), (1, 0), (0, 2)], 3, directed=True)
    >>> print(f"{reciprocity(graph):.3f} {reciprocity(graph, over='pairs'):.3f}")
    0.667 0.667
    """
    need_topology(topology)
    edges = topology.adjacency != 0
    mutual = int(edges.multiply(edges.T).sum())
    if check_choice("over", over, ["edges", "pairs"]) == "edges":
        return mutual / edges.nnz if edges.nnz else 1.0
    return 1 - (edges.nnz - mutual) / max(1, topology.n * (topology.n - 1) // 2)
