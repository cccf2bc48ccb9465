"""Graphs on nodes 0..n-1: a read-only Topology, and a TopologySequence of changing graphs."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import shortest_path

from topofl._drawing.axes import draw_adjacency, draw_graph, draw_rounds
from topofl._drawing.picture import rounds_svg, topology_svg
from topofl._linalg import spectral
from topofl._linalg.sparse import as_csr, hop_counts, is_strong, is_symmetric
from topofl._support.check import (
    TOLERANCE,
    check_int,
    check_nodes,
    check_sequence,
    check_switch,
    shown,
)
from topofl._support.text import node_name
from topofl.topology.interchange import as_networkx, as_pyg

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch_geometric.data import Data


class TopologyError(ValueError):
    """No such graph exists, or the graph lacks a required property.

    Examples
    --------
    >>> from topofl import topologies
    >>> try:
    ...     topologies.random_regular(5, 3, seed=0)
    ... except TopologyError as error:
    ...     print(error)
    `n` * `k` must be even, got n=5 and k=3: a regular graph has n k / 2 edges
    """


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """A graph on nodes 0..n-1; an edge (u, v) means that u sends to v.

    The properties of edges are in one class, so that they are found and documented together.

    Parameters
    ----------
    adjacency
        (n, n) matrix; ``adjacency[u, v] > 0`` is the weight of the edge from u to v (source to
        target, as in networkx and PyG). Stored as a read-only ``scipy.sparse.csr_array`` of
        float64. A graph is undirected if every edge has a reverse edge of the same weight, up to
        rounding (1e-9).
    name
        Reproducible label, for example ``"ring(n=16)"``.
    groups
        Cliques or clusters: disjoint tuples of nodes.
    nodes
        Labels of the nodes in the source of the graph: ``nodes[i]`` is the label of node i, which
        is client i in a run. Empty means 0..n-1.
    own_weights
        Whether the edge weights are mixing weights that belong to the graph (base graphs, EquiTopo,
        STL-FW): v gives the weight ``adjacency[u, v]`` to what it receives from u, and its
        self-weight is the rest. These are then the default weights
        (:func:`topofl.mixing.own_weights`).

    Raises
    ------
    ValueError
        If the matrix is not square, is empty, has self-loops, or weights that are negative, NaN or
        infinite; if `groups` overlap or contain nodes outside the graph; if `nodes` is not one
        distinct label per node; if with `own_weights` the weights into a node sum to more than 1.

    Examples
    --------
    >>> from topofl import topologies
    >>> topologies.ring(4)
    Topology('ring(n=4)', n=4, edges=4, undirected)
    """

    adjacency: sparse.csr_array
    name: str = "graph"
    groups: tuple[tuple[int, ...], ...] = ()
    nodes: tuple[Hashable, ...] = ()
    own_weights: bool = False

    def __post_init__(self) -> None:
        adjacency = as_csr("adjacency", self.adjacency)  # a canonical copy
        for array in (adjacency.data, adjacency.indices, adjacency.indptr):
            _readonly(array)
        object.__setattr__(self, "adjacency", adjacency)
        object.__setattr__(self, "groups", _as_groups(self.groups, self.n))
        object.__setattr__(self, "nodes", as_labels(self.nodes, self.n))
        _check_no_loops(self.adjacency, self.nodes)
        if check_switch("own_weights", self.own_weights, auto=False):
            _check_received_shares(self.adjacency, self.nodes)

    def __repr__(self) -> str:
        kind = "directed" if self.is_directed else "undirected"
        return f"Topology({self.name!r}, n={self.n}, edges={self.n_edges}, {kind})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, since pickling and deep copies would make the arrays writable.
        return Topology, (self.adjacency, self.name, self.groups, self.nodes, self.own_weights)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.adjacency.shape[0]

    @property
    def period(self) -> int:
        """Period of the graph as a sequence: 1, since it is static."""
        return 1

    def at(self, t: int) -> "Topology":
        """Return the graph of round `t`, which is this graph in every round."""
        del t
        return self

    @cached_property
    def is_directed(self) -> bool:
        """Whether some edge has no reverse edge of the same weight, up to rounding."""
        return not is_symmetric(self.adjacency, edges=True)

    @cached_property
    def has_unused_weights(self) -> bool:
        """Whether edges carry unequal weights that are ignored: not mixing weights."""
        data = self.adjacency.data
        return bool(
            not self.own_weights and len(data) and data.max() - data.min() > TOLERANCE * data.max()
        )

    @cached_property
    def n_edges(self) -> int:
        """Number of edges; an undirected edge counts once."""
        return self.adjacency.nnz if self.is_directed else self.adjacency.nnz // 2

    @cached_property
    def in_degrees(self) -> np.ndarray:
        """(n,) number of nodes that each node receives from, itself excluded."""
        return _readonly(np.bincount(self.adjacency.indices, minlength=self.n))

    @cached_property
    def out_degrees(self) -> np.ndarray:
        """(n,) number of nodes that each node sends to, itself excluded."""
        return _readonly(np.diff(self.adjacency.indptr).astype(np.int64))

    @cached_property
    def edge_index(self) -> np.ndarray:
        """(2, E) int64 sources and targets as in PyG; undirected edges in both directions."""
        sources = np.repeat(np.arange(self.n), self.out_degrees)
        return _readonly(np.stack([sources, self.adjacency.indices.astype(np.int64)]))

    @cached_property
    def group_of(self) -> np.ndarray:
        """(n,) number of the group of each node, -1 for nodes that are in none."""
        number = np.full(self.n, -1, dtype=np.int64)
        for k, group in enumerate(self.groups):
            number[list(group)] = k
        return _readonly(number)

    @cached_property
    def is_connected(self) -> bool:
        """Whether every node reaches every other along directed edges (strong connectivity)."""
        return is_strong(self.adjacency)

    @cached_property
    def algebraic_connectivity(self) -> float:
        """Second smallest eigenvalue of the Laplacian (Fiedler 1973); 0 exactly if disconnected.

        Raises
        ------
        TopologyError
            If the graph is directed.
        """
        if self.is_directed:
            raise TopologyError(
                f"algebraic connectivity needs an undirected graph, {self.name} is directed"
            )
        return spectral.algebraic_connectivity(self.adjacency)

    @cached_property
    def distances(self) -> np.ndarray:
        """(n, n) distances in hops along directed edges, infinite without a path; 8 n^2 bytes.

        Raises
        ------
        TopologyError
            If the matrix would take more than 4 GiB, that is, above 23,170 nodes.
        """
        if 8 * self.n**2 > MATRIX_BYTES:
            raise TopologyError(
                f"the distances between all n={self.n:,} nodes of {self.name} would take "
                f"{8 * self.n**2:,} bytes, above the limit of {MATRIX_BYTES:,}; use diameter or "
                "mean_distance, which need no such matrix, or "
                "scipy.sparse.csgraph.shortest_path(graph.adjacency, unweighted=True, "
                "indices=nodes) for some nodes"
            )
        return _readonly(shortest_path(self.adjacency, directed=True, unweighted=True))

    @cached_property
    def _hop_counts(self) -> np.ndarray:
        return hop_counts(self.adjacency)

    @cached_property
    def diameter(self) -> float:
        """Largest distance in hops; infinite if the graph is not (strongly) connected.

        It takes O(n) memory in addition to the graph, and the time of a search from every node.
        """
        return float(len(self._hop_counts) - 1) if self.is_connected else float("inf")

    @cached_property
    def mean_distance(self) -> float:
        """Mean distance in hops over ordered pairs of distinct nodes.

        It is 0 for a single node and infinite if the graph is not (strongly) connected. It is
        computed together with :attr:`diameter`.
        """
        if self.n == 1 or not self.is_connected:
            return 0.0 if self.n == 1 else float("inf")
        total = int(self._hop_counts @ np.arange(len(self._hop_counts)))
        return total / (self.n * (self.n - 1))

    def in_neighbors(self, node: int) -> np.ndarray:
        """Return the nodes that `node` receives from, in ascending order."""
        return np.flatnonzero(self.adjacency[:, [self._check_node(node)]].toarray()[:, 0])

    def out_neighbors(self, node: int) -> np.ndarray:
        """Return the nodes that `node` sends to, in ascending order."""
        node = self._check_node(node)
        first, last = self.adjacency.indptr[node : node + 2]
        return self.adjacency.indices[first:last].astype(np.int64)

    def _check_node(self, node: int) -> int:
        return check_int("node", node, minimum=0, maximum=self.n - 1)

    def renamed(self, name: str) -> "Topology":
        """Return the same graph with another name."""
        return replace(self, name=name)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        label_counts: Any = None,
        labels: bool | Sequence[Any] | None = None,
        positions: Any = None,
    ) -> "Figure":
        """Draw the graph, laid out to show its structure, and return the figure.

        D-Cliques are drawn as circles on a circle, circulants as chords of a circle, grids as
        grids, and so on; graphs without known structure have a spring layout, or a spectral layout
        above 500 nodes. Edges between groups are dark, edges within groups are light. Nodes are
        colored by class label or by group. Directed graphs have arrowheads up to 400 edges. Above
        2,000 nodes or 20,000 edges :meth:`plot_adjacency` is drawn instead; the title states what
        is omitted.

        Parameters
        ----------
        ax
            Axes to draw on; None: a new figure.
        label_counts
            (n, classes) counts, or an object with such a ``label_counts``, for example a Partition,
            whose class names are then in the legend: each node is a pie chart of its labels, or
            above 200 nodes has the color of its most frequent label.
        labels
            Text at the nodes: True for ``nodes`` or the node numbers, else one text per node.
        positions
            (n, 2) positions of the nodes that replace the layout.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, to show or to save; notebooks show it.

        Raises
        ------
        TypeError, ValueError
            If `label_counts`, `labels` or `positions` do not fit the graph.
        """
        return draw_graph(self, ax, label_counts=label_counts, labels=labels, positions=positions)

    def plot_adjacency(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the adjacency matrix, senders as rows and receivers as columns; return the figure.

        Nodes are ordered by group, and each group is outlined. Rows and columns have the labels of
        their nodes, if the graph has labels. Above 512 nodes a cell is dark if any entry that it
        covers is an edge.

        Parameters
        ----------
        ax
            Axes to draw on; None: a new figure.
        """
        return draw_adjacency(self, ax)

    def _repr_svg_(self) -> str | None:
        """Return the SVG that notebooks show, or None above 300 nodes or 3,000 edges."""
        return topology_svg(self)

    def to_scipy(self) -> sparse.csr_array:
        """Return a writable copy of the adjacency matrix (source, target)."""
        return self.adjacency.copy()

    def to_networkx(self) -> "nx.Graph":
        """Return the graph as an ``nx.DiGraph`` if directed, else as an ``nx.Graph``.

        Nodes are in order, and edges have a ``weight`` unless all weights are 1.
        :func:`as_topology` restores the same nodes in the same order. Integer labels that are not
        ascending would be sorted when read (0..n-1 always, others from files); their order is
        stored as text in the graph attribute ``node_order``, which GraphML and GML preserve.
        """
        return as_networkx(self.adjacency, self.nodes, directed=self.is_directed)

    def to_pyg(self) -> "Data":
        """Return PyG ``Data`` with ``edge_index``, ``edge_weight`` (float64) and ``num_nodes``."""
        return as_pyg(self.edge_index, self.adjacency.data, self.n)


def need_topology(argument: str, graph: Any, n: int | None = None) -> Topology:
    """Return a graph that must be a Topology, of n nodes if n is given, or raise."""
    if not isinstance(graph, Topology):
        raise TypeError(
            f"`{argument}` must be a Topology, got {type(graph).__name__}; use "
            "topofl.as_topology(graph), or .at(t) of a sequence"
        )
    if n not in (None, graph.n):
        raise ValueError(f"`{argument}` must have n={n} nodes, {graph.name} has {graph.n}")
    return graph


def restricted(
    graph: Topology, kept: np.ndarray, labels: tuple[Hashable, ...], name: str
) -> Topology:
    """Return the graph induced by the nodes `kept`, in this order, with other labels and name."""
    new_index = np.full(graph.n, -1)
    new_index[kept] = np.arange(len(kept))
    groups = [[int(new_index[i]) for i in group if new_index[i] >= 0] for group in graph.groups]
    return replace(
        graph,
        adjacency=graph.adjacency[kept][:, kept],
        name=name,
        groups=tuple(tuple(group) for group in groups if group),
        nodes=labels,
    )


def unused_weights(graph: Topology) -> str:
    """Return the first part of the warning that unequal edge weights are ignored."""
    low = graph.adjacency.data.min()
    high = graph.adjacency.data.max()
    return (
        f"the edges of {graph.name} carry weights from {low:.4g} to {high:.4g}, which are ignored"
    )


def _check_no_loops(adjacency: sparse.csr_array, nodes: tuple[Hashable, ...]) -> None:
    """Raise ``ValueError`` if an edge leads from a node to itself."""
    loops = np.flatnonzero(adjacency.diagonal())
    if len(loops):
        name = node_name(nodes, int(loops[0]))
        raise ValueError(
            f"`adjacency` must have no self-loops, got one at node {name} ({len(loops)} in "
            "all); every node averages its own model anyway, so remove them: as_topology(graph, "
            "drop_self_loops=True)"
        )


def as_labels(nodes: Any, n: int) -> tuple[Hashable, ...]:
    """Return node labels as a tuple; raise unless empty or n distinct hashable labels."""
    labels = tuple(check_sequence("nodes", nodes, "labels"))
    for label in labels:
        try:
            hash(label)
        except TypeError as error:
            raise TypeError(
                f"`nodes` must be hashable labels, for example strings, got {shown(label)}"
            ) from error
    if labels and (len(labels) != n or len(set(labels)) != n):
        raise ValueError(f"`nodes` must have one distinct label for each of the n={n} nodes")
    return labels


def _as_groups(groups: Any, n: int) -> tuple[tuple[int, ...], ...]:
    """Return groups as tuples, or raise unless they are disjoint and of nodes 0..n-1."""
    found = []
    for group in check_sequence("groups", groups, "sequences of nodes"):
        try:
            found.append(tuple(index(i) for i in group))
        except (TypeError, ValueError, RuntimeError) as error:  # tensors raise RuntimeError
            raise TypeError(
                "`groups` must hold sequences of nodes, which are integers, got "
                f"{shown(group)}; as in [(0, 1), (2, 3)]"
            ) from error
    members = [i for group in found for i in group]
    if len(set(members)) != len(members):
        raise ValueError("`groups` must be disjoint, got a node in two of them")
    outside = [i for i in members if not 0 <= i < n]
    if outside:
        raise ValueError(f"`groups` must hold nodes 0..{n - 1}, got {outside[0]}")
    return tuple(found)


def _check_received_shares(adjacency: sparse.csr_array, nodes: tuple[Hashable, ...]) -> None:
    """Raise ``ValueError`` if the weights of the edges into a node sum to more than 1."""
    received = np.asarray(adjacency.sum(axis=0))
    if received.max() > 1 + TOLERANCE:
        node = int(received.argmax())
        reverse = ""
        if (adjacency.data == 1).all():
            reverse = (
                "; all weights are 1, as of edges without weights: networkx stores them as the "
                "attribute 'weight', PyTorch Geometric as edge_weight"
            )
        elif adjacency.sum(axis=1).max() <= 1 + TOLERANCE:
            reverse = (
                "; the weights out of each node sum to at most 1, so if the edge (u, v) is the "
                "weight that u gives to v, reverse it: graph.reverse() of networkx, matrix.T"
            )
        raise ValueError(
            "`adjacency` with `own_weights` must have weights that sum to at most 1 into each "
            f"node, but those into node {node_name(nodes, node)} sum to {received[node]:.6g}; "
            "divide the weights, or leave `own_weights` False and use a rule of topofl.mixing, "
            f"such as weighted_metropolis, which scales them{reverse}"
        )


def _readonly(array: np.ndarray) -> np.ndarray:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


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
        check_nodes(self.n)
        check_generate(self.generate, Topology)
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
        graph = generated(self, Topology, t)
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
        return draw_rounds(self, rounds, label_counts=label_counts, positions=positions)

    def _repr_svg_(self) -> str | None:
        """Return the SVG that notebooks show, of at most 6 rounds, or None if it is too large."""
        return rounds_svg(self)


def check_generate(generate: object, kind: type) -> None:
    """Raise ``TypeError`` unless a sequence is given a function."""
    if not callable(generate):
        raise TypeError(
            f"`generate` must be a function from a round to its {kind.__name__}, got "
            f"{shown(generate)}"
        )


def generated(sequence: Any, kind: type, t: int) -> Any:
    """Return what a sequence generates in round t, or raise if its type or size is another one."""
    found = sequence.generate(t % sequence.period if sequence.period else t)
    if not isinstance(found, kind):
        raise TypeError(
            f"`generate` must return a {kind.__name__} for every round, got {shown(found)} in "
            f"round {t}"
        )
    if found.n != sequence.n:
        raise ValueError(
            f"every {kind.__name__} of {sequence.name} must have n={sequence.n} nodes, round {t} "
            f"has {found.n}; give each round all nodes, including those without edges"
        )
    return found


MATRIX_BYTES = 4 * 2**30
"""Largest matrix of distances in bytes, that of 23,170 nodes."""
