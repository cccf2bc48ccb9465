"""Graphs: who can send to whom. Weights of mixing live in :mod:`topofl.mixing`."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, shortest_path

from topofl import _drawing, _spectral
from topofl._check import check_entries, check_int, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch_geometric.data import Data

__all__ = ["Topology", "TopologyError", "TopologySequence", "as_topology", "from_edges"]


class TopologyError(ValueError):
    """No such graph exists, or the graph lacks a property that was asked of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """One graph on nodes 0..n-1; an edge (u, v) means that u sends to v.

    Parameters
    ----------
    adjacency
        (n, n) matrix; ``adjacency[u, v] > 0`` is the weight of the edge from u to v (source to target, as in networkx
        and PyG). Stored as a read-only ``scipy.sparse.csr_array`` of float64. An undirected graph is a symmetric one.
    name
        Reproducible label, for example ``"ring(n=16)"``.
    groups
        Cliques or clusters: disjoint tuples of nodes.
    nodes
        Labels that the nodes had where the graph came from; empty means 0..n-1.
    own_weights
        Whether the weights of the edges are the mixing weights that the graph was made with (base graphs, EquiTopo,
        STL-FW): ``adjacency[u, v]`` is what v gives to what it receives from u, the rest of v's row is its own share.
        The default weights are then these, :func:`topofl.mixing.own_weights`.

    Raises
    ------
    ValueError
        If the matrix is not square, is empty, has self-loops, or weights that are negative, NaN or infinite; if
        `groups` overlap or leave the graph; if `nodes` is not one distinct label a node; if with `own_weights` what
        some node takes from others sums to more than 1.

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
        object.__setattr__(self, "adjacency", _frozen_adjacency(self.adjacency))
        for group in self.groups:
            if not isinstance(group, Iterable):
                raise TypeError(f"`groups` must hold sequences of nodes, got {shown(group)}; as in [(0, 1), (2, 3)]")
        groups = tuple(tuple(int(i) for i in group) for group in self.groups)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "nodes", tuple(self.nodes))
        _check_groups(groups, self.n)
        if self.nodes and (len(self.nodes) != self.n or len(set(self.nodes)) != self.n):
            raise ValueError(f"`nodes` must have one distinct label for each of the n={self.n} nodes")
        if self.own_weights:
            _check_taken(self.adjacency)

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
        """A static graph is a sequence of period 1."""
        return 1

    def at(self, t: int) -> "Topology":
        """Return the graph of round `t`: always this one."""
        del t
        return self

    @cached_property
    def is_directed(self) -> bool:
        """Whether some edge has no equal edge back."""
        return bool((self.adjacency != self.adjacency.T).nnz)

    @cached_property
    def n_edges(self) -> int:
        """Number of edges; the two directions of an undirected edge count once."""
        return self.adjacency.nnz if self.is_directed else self.adjacency.nnz // 2

    @cached_property
    def in_degrees(self) -> np.ndarray:
        """(n,) number of nodes that each node hears, itself excluded."""
        return _readonly(np.bincount(self.adjacency.indices, minlength=self.n))

    @cached_property
    def out_degrees(self) -> np.ndarray:
        """(n,) number of nodes that each node sends to, itself excluded."""
        return _readonly(np.diff(self.adjacency.indptr).astype(np.int64))

    @cached_property
    def edge_index(self) -> np.ndarray:
        """(2, E) int64, sources over targets as in PyG; an undirected edge appears in both directions."""
        sources = np.repeat(np.arange(self.n), self.out_degrees)
        return _readonly(np.stack([sources, self.adjacency.indices.astype(np.int64)]))

    @cached_property
    def is_connected(self) -> bool:
        """Whether every node reaches every other along directed edges (strong connectivity)."""
        return int(connected_components(self.adjacency, directed=True, connection="strong")[0]) == 1

    @cached_property
    def algebraic_connectivity(self) -> float:
        """Second smallest eigenvalue of the Laplacian (Fiedler 1973); 0 exactly if disconnected.

        Raises
        ------
        TopologyError
            If the graph is directed.
        """
        if self.is_directed:
            raise TopologyError(f"algebraic connectivity needs an undirected graph, {self.name} is directed")
        return _spectral.algebraic_connectivity(self.adjacency)

    @cached_property
    def distances(self) -> np.ndarray:
        """(n, n) hops along directed edges, infinite where there is no path."""
        return _readonly(shortest_path(self.adjacency, directed=True, unweighted=True))

    @cached_property
    def diameter(self) -> float:
        """Largest distance in hops; infinite if not (strongly) connected."""
        return float(self.distances.max())

    @cached_property
    def mean_distance(self) -> float:
        """Mean distance in hops over ordered pairs of distinct nodes; 0 for one node, infinite if not connected."""
        return float(self.distances.sum() / (self.n * (self.n - 1))) if self.n > 1 else 0.0

    def in_neighbors(self, node: int) -> np.ndarray:
        """Return the nodes that `node` hears, ascending."""
        return np.flatnonzero(self.adjacency[:, [self._check_node(node)]].toarray()[:, 0])

    def out_neighbors(self, node: int) -> np.ndarray:
        """Return the nodes that `node` sends to, ascending."""
        node = self._check_node(node)
        return self.adjacency.indices[self.adjacency.indptr[node] : self.adjacency.indptr[node + 1]].astype(np.int64)

    def _check_node(self, node: int) -> int:
        return check_int("node", node, minimum=0, maximum=self.n - 1)

    def renamed(self, name: str) -> "Topology":
        """Return the same graph under another name."""
        return replace(self, name=name)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        label_counts: Any = None,
        labels: bool | Sequence[Any] | None = None,
        positions: Any = None,
    ) -> "Axes":
        """Draw the graph, laid out to show its structure, and return the Axes.

        D-Cliques become circles on a circle, circulants chords, lattices lattices, and so on; graphs without known
        structure are laid out by springs, or by eigenvectors above 500 nodes. Edges between groups are dark, those
        within light. Nodes are colored by their labels or by group. Directed graphs have arrowheads up to 400 edges.
        Above 2,000 nodes or 20,000 edges the picture is :meth:`plot_adjacency`; the title says what was left out.

        Parameters
        ----------
        ax
            Where to draw; None makes a figure.
        label_counts
            (n, classes) counts, or an object with such a ``label_counts``, as a Partition: each node is a pie of its
            labels, or above 200 nodes has the color of its most frequent one.
        labels
            Text at the nodes: True for :attr:`nodes`, or their numbers, else one text a node.
        positions
            (n, 2) places of the nodes, instead of the layout.

        Raises
        ------
        TypeError, ValueError
            If `label_counts`, `labels` or `positions` do not fit the graph.
        """
        return _drawing.draw(self, ax, label_counts=label_counts, labels=labels, positions=positions)

    def plot_adjacency(self, ax: "Axes | None" = None) -> "Axes":
        """Draw who sends (rows) to whom (columns), and return the Axes.

        Nodes are ordered group by group, and each group is outlined. Above 512 nodes a cell is dark if any of its
        entries is an edge.

        Parameters
        ----------
        ax
            Where to draw; None makes a figure.
        """
        return _drawing.draw_adjacency(self, ax)

    def _repr_svg_(self) -> str | None:
        """Return the picture that notebooks show, or None above 300 nodes or 3,000 edges."""
        return _drawing.topology_svg(self)

    def to_scipy(self) -> sparse.csr_array:
        """Return a writable copy of the adjacency matrix (source, target)."""
        return self.adjacency.copy()

    def to_networkx(self) -> nx.Graph:
        """Return an ``nx.DiGraph`` if directed, else an ``nx.Graph``; nodes in order, ``weight`` if not all are 1."""
        labels = self.nodes or range(self.n)
        graph = nx.DiGraph() if self.is_directed else nx.Graph()
        graph.add_nodes_from(labels)
        weighted = bool((self.adjacency.data != 1).any())
        for u, v, weight in zip(*self.edge_index.tolist(), self.adjacency.data.tolist(), strict=True):
            if self.is_directed or u < v:
                graph.add_edge(labels[u], labels[v], **({"weight": weight} if weighted else {}))
        return graph

    def to_pyg(self) -> "Data":
        """Return a ``torch_geometric.data.Data`` with ``edge_index``, ``edge_weight`` (float64) and ``num_nodes``."""
        import torch
        from torch_geometric.data import Data

        return Data(
            edge_index=torch.from_numpy(self.edge_index.copy()),
            edge_weight=torch.from_numpy(self.adjacency.data.copy()),
            num_nodes=self.n,
        )


@dataclass(frozen=True, eq=False, repr=False)
class TopologySequence:
    """Graphs that change from round to round, on the same nodes.

    Parameters
    ----------
    n
        Number of nodes.
    generate
        Pure function of the round ``t >= 0``: the same t gives the same graph.
    name
        Reproducible label.
    period
        Number of rounds after which it repeats, None if it does not.
    """

    n: int
    generate: Callable[[int], Topology]
    name: str = "sequence"
    period: int | None = None

    def __post_init__(self) -> None:
        check_int("n", self.n, minimum=1)
        if self.period is not None:
            check_int("period", self.period, minimum=1)

    def __repr__(self) -> str:
        return f"TopologySequence({self.name!r}, n={self.n}, period={self.period})"

    def at(self, t: int) -> Topology:
        """Return the graph of round `t`.

        Raises
        ------
        ValueError
            If `t` is negative or the graph has another number of nodes than the sequence.
        """
        t = check_int("t", t, minimum=0)
        graph = self.generate(t % self.period if self.period else t)
        if graph.n != self.n:
            raise ValueError(f"every graph of {self.name} must have n={self.n} nodes, round {t} has {graph.n}")
        return graph

    def plot(self, rounds: int | None = None, *, label_counts: Any = None, positions: Any = None) -> np.ndarray:
        """Draw the first rounds side by side, each node at the same place in all of them, and return the Axes.

        Parameters
        ----------
        rounds
            How many, at least 1; default: one period, but at most 6.
        label_counts, positions
            As in :meth:`Topology.plot`.

        Returns
        -------
        numpy.ndarray
            (rounds,) matplotlib Axes of one new figure.

        Raises
        ------
        TypeError, ValueError
            If an argument is of another kind or does not fit the graphs.
        """
        return _drawing.draw_rounds(self, rounds, label_counts=label_counts, positions=positions)

    def _repr_svg_(self) -> str | None:
        """Return the picture that notebooks show, of one period or at most 6 rounds, or None if one is too large."""
        return _drawing.rounds_svg(self)


def from_edges(
    edges: Iterable[tuple[int, int]] | np.ndarray,
    n: int,
    *,
    name: str = "graph",
    directed: bool = False,
    groups: Iterable[Sequence[int]] = (),
) -> Topology:
    """Return the graph with these edges.

    Parameters
    ----------
    edges
        Pairs (source, target), or an array of shape (E, 2). Repeated edges count once. Weights are 1.
    n
        Number of nodes.
    name, groups
        As in :class:`Topology`.
    directed
        False adds every edge in both directions.

    Raises
    ------
    ValueError
        If a node is not in 0..n-1 or an edge is a self-loop.
    """
    n = check_int("n", n, minimum=1)
    pairs = _as_pairs(edges)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        raise ValueError(
            f"`edges` must join nodes 0..{n - 1}, got node {pairs.max() if pairs.max() >= n else pairs.min()}"
        )
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    adjacency = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    adjacency.data[:] = 1  # building it has summed repeated edges
    return Topology(adjacency, name=name, groups=tuple(tuple(group) for group in groups))


def _as_pairs(edges: Iterable[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """Return edges as an integer array of shape (E, 2), or raise."""
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except ValueError as error:
        raise ValueError(f"`edges` must be pairs (source, target): {error}") from error
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if not np.issubdtype(pairs.dtype, np.integer):
        raise TypeError(f"`edges` must be pairs of integers, got dtype {pairs.dtype}")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"`edges` must be pairs (source, target), got shape {pairs.shape}")
    return pairs


def as_topology(
    graph: Any, *, n: int | None = None, name: str | None = None, drop_self_loops: bool = False
) -> Topology | TopologySequence:
    """Return any common description of a graph as a :class:`Topology` or a :class:`TopologySequence`.

    Parameters
    ----------
    graph
        * a Topology or TopologySequence (returned as it is, or renamed);
        * ``nx.Graph`` or ``nx.DiGraph``: order of nodes, their labels, ``weight`` and direction are kept;
        * PyG ``Data``: ``edge_index`` and, if present, ``edge_weight`` (or a one-column ``edge_attr``);
        * a square numpy array, nested list of n rows, torch tensor or scipy sparse matrix: entry [u, v] is the weight
          of the edge from u to v. (For a mixing matrix, whose rows are receivers, use :meth:`MixingMatrix.support`.)
        * an edge list, pairs of integers: undirected; use :func:`from_edges` for directed ones. Two pairs must be
          tuples, since two rows of two numbers are a matrix;
        * a callable ``t -> graph``: a time-varying sequence;
        * a list of graphs: a periodic sequence.
    n
        Number of nodes; needed for edge lists whose last nodes have no edge (default: the largest node plus 1).
    name
        Label; default depends on the source.
    drop_self_loops
        Remove self-loops instead of refusing them.

    Raises
    ------
    TypeError
        If the kind of `graph` is not one of these.
    ValueError
        If it has self-loops, parallel edges, bad weights, no nodes, or another number of nodes than `n`.

    Examples
    --------
    >>> as_topology([(0, 1), (1, 2)], name="path")
    Topology('path', n=3, edges=2, undirected)
    """
    topology = _convert(graph, n, name, drop_self_loops)
    if n is not None and topology.n != n:
        raise ValueError(f"`n` must be left out or be {topology.n}, the number of nodes of `graph`, got {n}")
    return topology


def _convert(graph: Any, n: int | None, name: str | None, loops: bool) -> Topology | TopologySequence:
    if isinstance(graph, Topology | TopologySequence):
        return graph if name is None else replace(graph, name=name)
    if isinstance(graph, nx.Graph):
        return _from_networkx(graph, name or graph.name or "networkx", loops)
    if hasattr(graph, "edge_index") and hasattr(graph, "num_nodes"):
        return _from_pyg(graph, name or "pyg", loops)
    if sparse.issparse(graph):
        return _from_matrix(sparse.csr_array(graph), name or "matrix", loops)
    if callable(graph) and not hasattr(graph, "__array__"):
        return _from_callable(graph, name or getattr(graph, "__name__", "sequence"), loops)
    if isinstance(graph, Sequence) and len(graph) and not np.isscalar(graph[0]) and not _is_rows(graph[0]):
        return _from_list(graph, name or "periodic", loops)
    return _from_array(graph, n, name, loops)


def _is_rows(item: Any) -> bool:
    """Whether `item` is a row of numbers: a pair of an edge list or a row of a matrix."""
    return isinstance(item, list | tuple | np.ndarray) and np.ndim(item) == 1


def _from_array(graph: Any, n: int | None, name: str | None, loops: bool) -> Topology:
    try:
        array = np.asarray(graph)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists; torch tensors that are sparse or need grad
        raise TypeError(f"`graph` must be a graph, a matrix or a list of pairs: {error}") from error
    if array.shape in ((0,), (0, 2)) and n is not None:
        return from_edges([], n, name=name or "edges")
    if array.size == 0:
        raise ValueError("`graph` must have at least one node, got none; for nodes without edges give `n`")
    if array.dtype.kind not in "buif" or array.ndim != 2:
        raise TypeError(
            "`graph` must be a networkx or PyG graph, a square matrix, a list of pairs, a callable or a list of "
            f"graphs, got {type(graph).__name__}" + (f" of shape {array.shape}" if array.ndim else "")
        )
    is_edge_list = array.shape[1] == 2 and isinstance(graph, Sequence) and all(isinstance(row, tuple) for row in graph)
    if is_edge_list or (array.shape[1] == 2 and array.shape[0] != 2):
        n = max(int(array.max()) + 1, 1) if n is None else n
        return from_edges(array[array[:, 0] != array[:, 1]] if loops else array, n, name=name or "edges")
    return _from_matrix(sparse.csr_array(array.astype(float)), name or "matrix", loops)


def _from_matrix(matrix: sparse.csr_array, name: str, loops: bool, nodes: tuple = ()) -> Topology:
    if loops and matrix.shape[0] == matrix.shape[1]:
        matrix = sparse.csr_array(matrix, dtype=np.float64, copy=True)
        matrix.setdiag(0)
    return Topology(matrix, name=name, nodes=nodes)


def _from_networkx(graph: nx.Graph, name: str, loops: bool) -> Topology:
    if graph.is_multigraph():
        raise ValueError("`graph` must not have parallel edges; merge them first, e.g. nx.Graph(multigraph)")
    if graph.number_of_nodes() == 0:
        raise ValueError("`graph` must have at least one node, got none")
    nodes = tuple(graph.nodes)
    void = next(((u, v) for u, v, weight in graph.edges(data="weight", default=1) if weight == 0), None)
    if void:
        raise ValueError(f"`graph` must have edge weights above 0, got 0 at {void}; remove such edges")
    matrix = sparse.csr_array(nx.to_scipy_sparse_array(graph, nodelist=list(nodes), dtype=float, format="csr"))
    return _from_matrix(matrix, name, loops, () if nodes == tuple(range(len(nodes))) else nodes)


def _from_pyg(graph: Any, name: str, loops: bool) -> Topology:
    if graph.edge_index is None:
        raise ValueError("`graph` must have an `edge_index`, got a Data object without one")
    edge_index = graph.edge_index.cpu().numpy()
    weights = next((w for w in (graph.get("edge_weight"), graph.get("edge_attr")) if w is not None), None)
    values = np.ones(edge_index.shape[1]) if weights is None else weights.cpu().numpy().astype(float)
    if values.size != edge_index.shape[1]:
        raise ValueError(f"`edge_attr` must have one number an edge, got shape {values.shape}; set `edge_weight`")
    n = int(graph.num_nodes)
    if not np.issubdtype(edge_index.dtype, np.integer):
        raise TypeError(f"`edge_index` must be integers, got dtype {edge_index.dtype}")
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= n):
        raise ValueError(f"`edge_index` must join nodes 0..{n - 1}, got {edge_index.min()} to {edge_index.max()}")
    if len(np.unique(edge_index[0].astype(np.int64) * n + edge_index[1])) != edge_index.shape[1]:
        raise ValueError("`graph` must not have parallel edges; call graph.coalesce() first")
    matrix = sparse.csr_array((values.reshape(-1), (edge_index[0], edge_index[1])), shape=(n, n))
    return _from_matrix(matrix, name, loops)


def _from_callable(graph: Callable[[int], Any], name: str, loops: bool) -> TopologySequence:
    try:
        first = _round_of(graph, loops, 0)
    except (TypeError, ValueError, MemoryError):
        raise
    except Exception as error:  # whatever a function of something else than rounds raises
        raise TypeError(f"`graph` must return a graph for round 0, {name} raised {error!r}") from error
    return TopologySequence(first.n, partial(_round_of, graph, loops), name=name)


def _round_of(graph: Callable[[int], Any], loops: bool, t: int) -> Topology:
    return _static(graph(t), loops)


def _from_list(graphs: Sequence[Any], name: str, loops: bool) -> TopologySequence:
    members = tuple(_static(graph, loops) for graph in graphs)
    sizes = [member.n for member in members]
    if len(set(sizes)) != 1:
        raise ValueError(f"`graph` must be graphs with the same number of nodes, got {sizes}")
    return TopologySequence(sizes[0], members.__getitem__, name=name, period=len(members))


def _static(graph: Any, loops: bool) -> Topology:
    topology = as_topology(graph, drop_self_loops=loops)
    if not isinstance(topology, Topology):
        raise TypeError(f"one round of a sequence must be a single graph, got {shown(topology)}")
    return topology


def _frozen_adjacency(matrix: Any) -> sparse.csr_array:
    """Return a canonical, validated, read-only copy."""
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.dtype.kind not in "buif":
        raise TypeError(f"`adjacency` must hold real numbers, got dtype {matrix.dtype}")
    adjacency = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1] or adjacency.shape[0] == 0:
        raise ValueError(f"`adjacency` must be a square matrix with at least one node, got shape {adjacency.shape}")
    adjacency.sum_duplicates()
    adjacency.eliminate_zeros()
    check_entries("adjacency", adjacency)
    loops = np.flatnonzero(adjacency.diagonal())
    if len(loops):
        raise ValueError(
            f"`adjacency` must have no self-loops, got one at node {loops[0]} ({len(loops)} in all); a node always "
            "keeps its own model, so remove them: as_topology(graph, drop_self_loops=True)"
        )
    for array in (adjacency.data, adjacency.indices, adjacency.indptr):
        _readonly(array)
    return adjacency


def _check_groups(groups: tuple[tuple[int, ...], ...], n: int) -> None:
    members = [i for group in groups for i in group]
    if len(set(members)) != len(members):
        raise ValueError("`groups` must be disjoint, got a node in two of them")
    outside = [i for i in members if not 0 <= i < n]
    if outside:
        raise ValueError(f"`groups` must hold nodes 0..{n - 1}, got {outside[0]}")


def _check_taken(adjacency: sparse.csr_array) -> None:
    taken = np.asarray(adjacency.sum(axis=0))
    if taken.max() > 1 + 1e-9:
        node = int(taken.argmax())
        raise ValueError(
            f"`adjacency` must, with `own_weights`, give each node at most 1 from others, node {node} takes "
            f"{taken[node]:.6g}; divide the weights, or leave `own_weights` False and use a rule of topofl.mixing"
        )


def _readonly(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
