"""Conversion of edge lists and of graphs in any common format to a Topology or TopologySequence."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.sparse import as_csr
from topofl._support.check import (
    NODES_LIMIT,
    TOLERANCE,
    check_kind,
    check_nodes,
    check_switch,
    check_unmasked,
    shown,
)
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.topology.graph import Topology, TopologyError, TopologySequence, restricted
from topofl.topology.interchange import is_networkx, is_pyg, lacks_labels, read_networkx, read_pyg


@public
def from_edges(
    edges: Iterable[tuple[int, int]] | np.ndarray,
    n: int,
    *,
    name: str = "graph",
    directed: bool = False,
    groups: Iterable[Sequence[int]] = (),
) -> Topology:
    """Return the graph with the given edges.

    Parameters
    ----------
    edges
        Pairs (source, target), or an array of shape (E, 2). Repeated edges count once, and all
        weights are 1.
    n
        Number of nodes.
    name, groups
        As in :class:`Topology`.
    directed
        If False, every edge is added in both directions.

    Raises
    ------
    ValueError
        If a node is not in 0..n-1, an edge is a self-loop, or `n` is above 10 million.

    Examples
    --------
    >>> from_edges([(0, 1), (1, 2)], 4, directed=True).out_degrees.tolist()
    [1, 1, 0, 0]
    """
    n = check_nodes(n)
    pairs = as_pairs(edges)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        raise ValueError(
            f"`edges` must join nodes 0..{n - 1}, got node "
            f"{pairs.max() if pairs.max() >= n else pairs.min()}"
        )
    if not check_switch("directed", directed, auto=False):
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    adjacency = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    adjacency.data[:] = 1  # the constructor has summed repeated edges
    return Topology(adjacency, name=name, groups=groups)  # pyright: ignore[reportArgumentType]


def as_pairs(edges: Iterable[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """Return edges as an integer array of shape (E, 2), or raise."""
    check_unmasked("edges", edges)
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"`edges` must be pairs (source, target), got {shown(edges)}") from error
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if not np.issubdtype(pairs.dtype, np.integer):
        raise TypeError(f"`edges` must be pairs of integers, got dtype {pairs.dtype}")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"`edges` must be pairs (source, target), got shape {pairs.shape}")
    return pairs


class _Options(NamedTuple):
    """The options of :func:`as_topology`, except for the name."""

    n: int | None
    drop_self_loops: bool
    own_weights: bool
    is_round: bool = False
    """Whether the graph is one round of a sequence, in which nodes may be idle."""


@public
def as_topology(
    graph: Any,
    *,
    n: int | None = None,
    name: str | None = None,
    drop_self_loops: bool = False,
    own_weights: bool = False,
) -> Topology | TopologySequence:
    """Convert a graph in any common format to a :class:`Topology` or :class:`TopologySequence`.

    Node i of the result is client i of a run. ``nodes[i]`` is the label of node i in the given
    graph; without labels, nodes keep their numbers 0..n-1.

    See the page :doc:`Your own data, model and graph </docs/tutorials/own-data-model-graph>`.

    Parameters
    ----------
    graph
        * a Topology or TopologySequence (returned unchanged, or renamed);
        * ``nx.Graph`` or ``nx.DiGraph``: labels, ``weight`` and direction are preserved;
        * PyG ``Data``: ``edge_index`` and, if present, ``edge_weight`` (or a one-column
          ``edge_attr``; several features per edge are ignored). The labels are ``n_id``, if
          present;
        * a square numpy array, nested list of n rows, torch tensor or scipy sparse matrix: entry
          [u, v] is the weight of the edge from u to v. (For a mixing matrix, whose rows are
          receivers, use :meth:`MixingMatrix.support`.);
        * an edge list of pairs of integers, read as undirected; use :func:`from_edges` for directed
          edges. The integers are the numbers of nodes, from 0 on; for labels, such as numbers from
          1 on, use a networkx graph. Write a list of two pairs as tuples, since two rows of two
          numbers are a matrix.
          Nodes may be named by text, and are then numbered in the order in which they first occur,
          as by networkx;
        * a callable ``t -> graph``: a time-varying sequence;
        * a list of graphs: a periodic sequence.

        If the labels of a networkx or PyG graph are 0..n-1 in any order, node i is the one labeled
        i; other labels stay in the order of the graph.

        All graphs of a sequence must have the same nodes. Nodes are matched by label and ordered as
        in the graph of round 0.
    n
        Number of nodes; required for edge lists in which a node has no edges (default: the largest
        node plus 1).
    name
        Name of the result; the default depends on the source.
    drop_self_loops
        Whether to remove self-loops instead of raising an error.
    own_weights
        Whether the edge weights are mixing weights: v gives the weight of (u, v) to what it
        receives from u, and its self-weight is the rest, 1 minus the sum over edges into v.
        Self-loops may state the self-weights. If False, a rule such as
        :func:`topofl.mixing.metropolis_hastings` computes mixing weights from the edges, and edge
        weights are ignored; ``topofl.run`` and metrics warn if they are unequal.

    Raises
    ------
    TypeError
        If `graph` is of none of these types.
    ValueError
        If the graph has self-loops, parallel edges, invalid weights, no nodes, another number of
        nodes than `n`, or more than 10 million nodes; if no pair of an edge list without `n` has a
        node below the largest, except in one round of a sequence; if graphs of a sequence have
        different nodes; if with `own_weights` the weights into a node sum to more than 1, or a
        self-loop is not the rest.

    Examples
    --------
    >>> as_topology([(0, 1), (1, 2)], name="path")
    Topology('path', n=3, edges=2, undirected)

    Names of nodes:

    >>> as_topology([("Zug", "Bern"), ("Bern", "Genf")]).nodes
    ('Zug', 'Bern', 'Genf')

    Edge weights as mixing weights:

    >>> from topofl.mixing import metropolis_or_uniform
    >>> graph = as_topology([[0, 0.5], [0.2, 0]], own_weights=True)
    >>> metropolis_or_uniform(graph).weights.toarray().tolist()
    [[0.8, 0.2], [0.5, 0.5]]
    """
    own = bool(check_switch("own_weights", own_weights, auto=False))
    n = None if n is None else check_nodes(n)
    return _checked("graph", graph, name, _Options(n, drop_self_loops, own))


def graph_of(argument: str, graph: Any) -> Topology | TopologySequence:
    """Convert a graph by :func:`as_topology`; errors name the caller's argument."""
    return _checked(argument, graph, None, _Options(None, False, False))


def static_graph(argument: str, graph: Any) -> Topology:
    """Convert a graph that does not change by :func:`as_topology`, or raise ``TypeError``."""
    remedy = "take one of its rounds, e.g. .at(0)"
    return check_kind(argument, graph_of(argument, graph), Topology, "one graph", remedy)


def _checked(
    argument: str, graph: Any, name: str | None, options: _Options
) -> Topology | TopologySequence:
    """Convert a graph by its type, and check its number of nodes; errors name the argument."""
    try:
        topology = _convert(graph, name, options)
    except (TypeError, ValueError) as error:
        text = str(error)
        if f"`{argument}`" in text:
            raise
        named = f"`{argument}` must be a graph: {text}"
        if text.startswith("`graph` must be "):
            named = text.replace("`graph`", f"`{argument}`", 1)
        kinds = (TopologyError, TypeError, ValueError)
        raise next(kind for kind in kinds if isinstance(error, kind))(named) from error.__cause__
    if options.n not in (None, topology.n):
        raise ValueError(
            f"`n` must be left out or be {topology.n}, the number of nodes of `graph`, got "
            f"{options.n}"
        )
    return topology


def _convert(graph: Any, name: str | None, options: _Options) -> Topology | TopologySequence:
    """Convert a graph by its type."""
    if isinstance(graph, Topology | TopologySequence):
        if options.own_weights and isinstance(graph, TopologySequence):
            graph = replace(graph, generate=partial(_round_with_own_weights, graph))
        elif options.own_weights:
            graph = replace(graph, own_weights=True)
        return graph if name is None else replace(graph, name=name)
    if is_networkx(graph):
        matrix, nodes = read_networkx("graph", graph)
        return _from_matrix(matrix, nodes, name or graph.name or "networkx", options)
    if is_pyg(graph):
        matrix, nodes = read_pyg("graph", graph, own_weights=options.own_weights)
        return _from_matrix(matrix, nodes, name or "pyg", options)
    if sparse.issparse(graph):
        return _from_matrix(graph, (), name or "matrix", options)
    if callable(graph) and not hasattr(graph, "__array__"):
        return _from_callable(graph, name or getattr(graph, "__name__", "sequence"), options)
    if isinstance(graph, Sequence) and len(graph) and not np.isscalar(graph[0]):
        is_row = isinstance(graph[0], list | tuple | np.ndarray) and np.ndim(graph[0]) == 1
        if not is_row:  # of an edge list or of a matrix
            return _from_list(graph, name or "periodic", options)
    return _from_array(graph, name, options)


def _round_with_own_weights(graphs: TopologySequence, t: int) -> Topology:
    return replace(graphs.at(t), own_weights=True)


def _from_array(graph: Any, name: str | None, options: _Options) -> Topology:
    check_unmasked("graph", graph)
    try:
        array = np.asarray(graph)
    except (TypeError, ValueError, RuntimeError) as error:
        # Ragged lists, and torch tensors that are sparse or require grad.
        raise TypeError(f"`graph` must be a graph, a matrix or a list of pairs: {error}") from error
    if array.shape in ((0,), (0, 2)) and options.n is not None:
        return from_edges([], options.n, name=name or "edges")
    if array.size == 0:
        raise ValueError(
            "`graph` must have at least one node, got none; for nodes without edges pass `n`"
        )
    has_pairs = array.ndim == 2 and array.shape[1] == 2
    if has_pairs and array.dtype.kind in "UO":
        pairs = [tuple(pair) for pair in (graph if isinstance(graph, Sequence) else array.tolist())]
        if any(isinstance(node, str) for pair in pairs for node in pair):
            return _from_named_pairs(pairs, name or "edges", options)
    # A list of two tuples is no 2 x 2 matrix.
    in_tuples = isinstance(graph, Sequence) and all(isinstance(row, tuple) for row in graph)
    is_edge_list = has_pairs and (len(array) != 2 or in_tuples)
    if is_edge_list and array.dtype.kind in "Of" and isinstance(graph, Sequence):
        # Integers too large for int64 make numpy choose object or float.
        nodes = [node for pair in graph for node in pair if isinstance(node, int)]
        _check_largest(max(nodes, key=abs, default=0))
    if array.dtype.kind not in "buif" or array.ndim != 2:
        raise TypeError(
            "`graph` must be a networkx or PyG graph, a square matrix, a list of pairs, a callable "
            f"or a list of graphs, got {type(graph).__name__}"
            + (f" of shape {array.shape}" if array.ndim else "")
        )
    if is_edge_list:
        return _from_pairs(array, name or "edges", options)
    return _from_matrix(array.astype(float), (), name or "matrix", options)


def _from_named_pairs(pairs: list[tuple[Hashable, ...]], name: str, options: _Options) -> Topology:
    """Return the graph of pairs of names, numbered in the order of their first occurrence."""
    ends = [node for pair in pairs for node in pair]
    odd = [node for node in ends if not isinstance(node, str | int)]
    if odd:
        raise TypeError(
            f"`graph` must be pairs of texts or of integers, got the node {shown(odd[0])}; for "
            "edges with weights use a networkx graph"
        )
    place = {node: number for number, node in enumerate(dict.fromkeys(ends))}
    numbers = np.array([place[node] for node in ends]).reshape(-1, 2)
    graph = _from_pairs(numbers, name, options._replace(n=len(place)))
    return replace(graph, nodes=tuple(place))


def _from_pairs(pairs: np.ndarray, name: str, options: _Options) -> Topology:
    pairs = as_pairs(pairs)
    if options.n is None:
        _check_largest(int(pairs.max()))
        if not options.is_round:
            _check_numbered(pairs)
    n = max(int(pairs.max()) + 1, 1) if options.n is None else options.n
    pairs = pairs[pairs[:, 0] != pairs[:, 1]] if options.drop_self_loops else pairs
    graph = from_edges(pairs, n, name=name)
    return replace(graph, own_weights=True) if options.own_weights else graph


def _check_largest(node: int) -> None:
    """Raise ``ValueError`` if a node of an edge list would make the graph too large."""
    if abs(node) >= NODES_LIMIT:
        raise ValueError(
            f"`graph` must have nodes below {NODES_LIMIT:,}, since all numbers up to the largest "
            f"are nodes, got {shown(node)}; number them 0..n-1, or use a networkx graph, which "
            "may have any labels"
        )


def _check_numbered(pairs: np.ndarray) -> None:
    """Raise ``ValueError`` if a node below the largest one of an edge list is in no pair."""
    named = np.unique(pairs[pairs >= 0])
    size = int(named[-1]) + 1 if len(named) else 0
    if len(named) == size:
        return
    lone = np.setdiff1d(np.arange(size), named)
    some = ", ".join(map(str, lone[:3])) + (f" and {len(lone) - 3:,} more" if lone[3:].size else "")
    raise ValueError(
        f"`graph` must have each node from 0 to {size - 1} in a pair, got none with {some}; if "
        f"nodes have no edges, pass n={size}; if the numbers are labels, as of nodes counted from "
        "1, convert a networkx graph, as_topology(nx.Graph(pairs))"
    )


def _from_matrix(
    matrix: Any, nodes: tuple[Hashable, ...], name: str, options: _Options
) -> Topology:
    shape = np.shape(matrix)
    if (options.drop_self_loops or options.own_weights) and shape[:1] == shape[1:]:
        matrix = as_csr("adjacency", matrix)
        if not options.drop_self_loops:
            _check_self_weights(matrix, nodes)
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        off = rows != matrix.indices
        entries = matrix.data[off], (rows[off], matrix.indices[off])
        matrix = sparse.csr_array(entries, shape=matrix.shape)
    return Topology(matrix, name=name, nodes=nodes, own_weights=options.own_weights)


def _check_self_weights(matrix: sparse.csr_array, nodes: Sequence[object]) -> None:
    """Raise ``ValueError`` unless each self-loop is 1 minus the weights of the other edges in."""
    self_weights = matrix.diagonal()
    sums = matrix.sum(axis=0)
    wrong = np.flatnonzero((self_weights != 0) & (np.abs(sums - 1) > TOLERANCE))
    if len(wrong):
        node = wrong[0]
        raise ValueError(
            "`graph` must, with `own_weights`, have self-loops of 1 minus the weights of the other "
            f"edges into the node: node {node_name(nodes, int(node))} has a self-loop of "
            f"{self_weights[node]:.6g} and {sums[node] - self_weights[node]:.6g} from others "
            f"({len(wrong)} such nodes); divide the weights into each node by their sum, or drop "
            "self-loops: drop_self_loops=True"
        )


def _from_callable(graph: Callable[[int], Any], name: str, options: _Options) -> TopologySequence:
    try:
        given = graph(0)
        first = _single_graph(given, options)
    except MemoryError:
        raise
    except Exception as error:  # a function that does not take a round can raise anything
        if isinstance(error, TypeError | ValueError) and "`" in str(error):
            raise  # an error of topofl, which names the argument already
        raise TypeError(
            f"`graph` must return a graph for round 0, {name} raised {error!r}"
        ) from error
    later = partial(_ordered_round, graph, options, first, lacks_labels(given))
    return TopologySequence(first.n, later, name=name)


def _ordered_round(
    graph: Callable[[int], Any], options: _Options, first: Topology, lacked: bool | None, t: int
) -> Topology:
    """Return the graph of round t, with its nodes in the order of round 0."""
    given = graph(t)
    _check_labels("round", t, 0, lacks_labels(given), lacked)
    return _ordered_as(_single_graph(given, options), first, f"round {t}")


def _check_labels(what: str, k: int, first: int, lacks: bool | None, lacked: bool | None) -> None:
    """Raise ``ValueError`` if only one of two PyG graphs has ``n_id``."""
    if None not in (lacks, lacked) and lacks != lacked:
        having, lacking = (first, k) if lacks else (k, first)
        raise ValueError(
            f"`graph` must be graphs that all have `n_id`, or none, since nodes are matched by it: "
            f"{what} {having} has one, {what} {lacking} has none; set data.n_id in all, or "
            "delete it"
        )


def _from_list(graphs: Sequence[Any], name: str, options: _Options) -> TopologySequence:
    members = [_single_graph(graph, options) for graph in graphs]
    lacking = [lacks_labels(graph) for graph in graphs]
    pyg = [k for k, lacks in enumerate(lacking) if lacks is not None]
    for k in pyg[1:]:
        _check_labels("graph", k, pyg[0], lacking[k], lacking[pyg[0]])
    sizes = [member.n for member in members]
    if len(set(sizes)) != 1:
        raise ValueError(
            f"`graph` must be graphs with the same number of nodes, got {sizes}; give each graph "
            "all nodes, including those without edges"
        )
    rounds = [_ordered_as(member, members[0], f"graph {k}") for k, member in enumerate(members)]
    return TopologySequence(sizes[0], rounds.__getitem__, name=name, period=len(rounds))


def _single_graph(graph: Any, options: _Options) -> Topology:
    """Convert the graph of one round, or raise ``TypeError`` if it changes over time."""
    topology = _checked("graph", graph, None, options._replace(is_round=True))
    if not isinstance(topology, Topology):
        raise TypeError(f"one round of a sequence must be a single graph, got {shown(topology)}")
    return topology


def _ordered_as(graph: Topology, first: Topology, which: str) -> Topology:
    """Return the graph with its nodes in the order of the first one; no labels are 0..n-1.

    A graph of another size is returned unchanged.

    Raises
    ------
    ValueError
        If the graph has other nodes; `which` names the graph in the message.
    """
    if graph.n != first.n or graph.nodes == first.nodes:
        return graph
    try:
        order = places_of(first.nodes, graph.nodes, first.n)
    except KeyError as missing:
        raise ValueError(
            f"`graph` must be graphs of the same nodes, {which} has no node {missing}, which the "
            "first one has; use the same labels in all graphs, or drop labels by "
            "dataclasses.replace(topology, nodes=())"
        ) from None
    return restricted(graph, order, first.nodes, graph.name)


def places_of(wanted: tuple[Hashable, ...], nodes: tuple[Hashable, ...], n: int) -> np.ndarray:
    """Return the nodes with the wanted labels, or raise ``KeyError``; empty labels mean 0..n-1."""
    index_of = {label: i for i, label in enumerate(nodes or range(n))}
    return np.array([index_of[label] for label in wanted or range(n)])
