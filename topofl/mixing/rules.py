"""Weight rules, functions that compute a mixing matrix from a graph, and what exchanges accept."""

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import TOLERANCE, check_choice, check_fraction
from topofl._support.public import public, warn_caller
from topofl._support.text import node_name
from topofl.mixing.matrix import MixingMatrix, WeightRule
from topofl.topology import Topology, TopologyError, need_topology, unused_weights


@public
def metropolis_hastings(topology: Topology) -> MixingMatrix:
    """Return Metropolis-Hastings weights, symmetric and doubly stochastic.

    ``W[i, j] = 1 / (max(deg_i, deg_j) + 1)`` on edges, and the rest of each row is on the diagonal.
    Degrees do not count the node itself, and edge weights are ignored.

    Raises
    ------
    TopologyError
        If the graph is directed.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), equation 2.

    Examples
    --------
    >>> from topofl import topologies
    >>> metropolis_hastings(topologies.star(3)).weights.toarray().round(2).tolist()
    [[0.33, 0.33, 0.33], [0.33, 0.67, 0.0], [0.33, 0.0, 0.67]]
    """
    need_undirected(topology, "metropolis_hastings")
    degrees = topology.out_degrees
    larger = np.maximum(np.repeat(degrees, degrees), degrees[topology.adjacency.indices])
    return _with_rest_on_diagonal(topology, 1.0 / (larger + 1), "metropolis_hastings")


@public
def weighted_metropolis(topology: Topology) -> MixingMatrix:
    """Return Metropolis-Hastings weights in proportion to edge weights, doubly stochastic.

    Edge weights are strengths of any scale, such as similarities or bandwidths. The strength of
    node i is ``s_i = sum_j a_ij + max_j a_ij``, in which its own model counts as much as its
    strongest edge; ``W[i, j] = a_ij / max(s_i, s_j)`` on edges, and the rest of each row is on the
    diagonal. With equal edge weights, this is :func:`metropolis_hastings`.

    Raises
    ------
    TopologyError
        If the graph is directed.

    See Also
    --------
    own_weights : edge weights that are mixing weights already.

    References
    ----------
    Hastings, "Monte Carlo sampling methods using Markov chains and their applications" (1970), with
    proposals ``a_ij / s_i`` and the uniform distribution as target.

    Examples
    --------
    >>> import networkx as nx
    >>> from topofl import as_topology
    >>> graph = nx.Graph()
    >>> graph.add_weighted_edges_from([("a", "b", 30), ("b", "c", 10)])
    >>> weighted_metropolis(as_topology(graph)).weights.toarray().round(2).tolist()
    [[0.57, 0.43, 0.0], [0.43, 0.43, 0.14], [0.0, 0.14, 0.86]]
    """
    need_undirected(topology, "weighted_metropolis")
    edges = topology.adjacency
    largest = edges.max(axis=1).toarray().reshape(-1) if edges.nnz else np.zeros(topology.n)
    strengths = np.asarray(edges.sum(axis=1)).reshape(-1) + largest
    larger = np.maximum(np.repeat(strengths, topology.out_degrees), strengths[edges.indices])
    return _with_rest_on_diagonal(topology, edges.data / larger, "weighted_metropolis")


@public
def max_degree(topology: Topology) -> MixingMatrix:
    """Return max-degree weights, ``W = I - L / (max degree + 1)``: the same weight on every edge.

    The matrix is symmetric and doubly stochastic.

    Raises
    ------
    TopologyError
        If the graph is directed.

    References
    ----------
    Xiao and Boyd, "Fast linear iterations for distributed averaging" (2004), section 4.1.

    Examples
    --------
    >>> from topofl import topologies
    >>> max_degree(topologies.path(3)).weights.toarray().round(2).tolist()
    [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33], [0.0, 0.33, 0.67]]
    """
    need_undirected(topology, "max_degree")
    weights = np.full(topology.adjacency.nnz, 1.0 / (topology.out_degrees.max() + 1))
    return _with_rest_on_diagonal(topology, weights, "max_degree")


@public
def uniform(topology: Topology, *, direction: str = "pull") -> MixingMatrix:
    """Return equal weights over the neighbors and the node itself.

    Parameters
    ----------
    topology
        Any graph, directed or not.
    direction
        ``"pull"``: node i averages what it receives, ``W[i, j] = 1 / (in_degree_i + 1)``,
        row-stochastic. ``"push"``: node j splits its value equally, ``W[i, j] = 1 / (out_degree_j +
        1)``, column-stochastic. On a regular graph both are the same doubly stochastic matrix.

    References
    ----------
    Assran et al., "Stochastic Gradient Push" (2019), for push; DFedPGP's appendix for pull.

    Examples
    --------
    >>> from topofl import topologies
    >>> uniform(topologies.star(3)).weights.toarray().round(2).tolist()
    [[0.33, 0.33, 0.33], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    >>> uniform(topologies.star(3), direction="push").weights.toarray().round(2).tolist()
    [[0.33, 0.5, 0.5], [0.33, 0.5, 0.0], [0.33, 0.0, 0.5]]
    """
    need_topology("topology", topology)
    direction = check_choice("direction", direction, ["pull", "push"])
    senders, receivers = topology.edge_index
    shares = 1.0 / (1 + (topology.in_degrees if direction == "pull" else topology.out_degrees))
    of_edges = shares[receivers if direction == "pull" else senders]
    name = f"uniform({topology.name}, direction={direction!r})"
    return _matrix(topology, (receivers, senders), of_edges, shares, name)


@public
def own_weights(topology: Topology) -> MixingMatrix:
    """Return the weights of the edges as mixing weights, with the rest of each row on the diagonal.

    ``W[i, j] = adjacency[j, i]`` off the diagonal. This is the rule for graphs that define their
    weights, for example base graphs. The matrix is row-stochastic, and doubly stochastic if the
    weights into and out of each node have the same sum.

    Raises
    ------
    ValueError
        If the weights of the edges into some node sum to more than 1.

    Examples
    --------
    >>> from topofl import as_topology
    >>> graph = as_topology([[0, 0.5], [0.2, 0]], own_weights=True)
    >>> own_weights(graph).weights.toarray().tolist()
    [[0.8, 0.2], [0.5, 0.5]]
    """
    need_topology("topology", topology)
    senders, receivers = topology.edge_index
    shares = topology.adjacency.data
    rest = 1.0 - np.bincount(receivers, weights=shares, minlength=topology.n)
    if rest.min() < -TOLERANCE:
        node = int(rest.argmin())
        raise ValueError(
            "`topology` must have edge weights that sum to at most 1 into each node, but those "
            f"into node {node_name(topology.nodes, node)} of {topology.name} sum to "
            f"{1 - rest[node]:.6g}; use another rule, such as metropolis_hastings"
        )
    rest = np.where(rest > TOLERANCE, rest, 0.0)
    name = f"own_weights({topology.name})"
    return _matrix(topology, (receivers, senders), shares, rest, name)


@public
def metropolis_or_uniform(topology: Topology) -> MixingMatrix:
    """Return the default weights: own weights, Metropolis-Hastings or uniform.

    These are :func:`own_weights` if ``topology.own_weights`` is set, else Metropolis-Hastings if
    the graph is undirected and uniform pull if it is directed. Rows sum to 1 in each case; columns
    do for undirected graphs.

    Examples
    --------
    >>> from topofl import topologies
    >>> metropolis_or_uniform(topologies.ring(8)).name
    'metropolis_hastings(ring(n=8))'
    >>> metropolis_or_uniform(topologies.de_bruijn(8)).name
    "uniform(de_bruijn(n=8, degree=2), direction='pull')"
    """
    need_topology("topology", topology)
    if topology.own_weights:
        return own_weights(topology)
    if topology.is_directed:
        return uniform(topology, direction="pull")
    return metropolis_hastings(topology)


@public
def lazy(mixing: MixingMatrix, *, share: float = 0.5) -> MixingMatrix:
    """Return lazy weights, ``share * I + (1 - share) * W``.

    With a share of 1/2, symmetric weights have no negative eigenvalue.

    Parameters
    ----------
    mixing
        Any mixing matrix; the result is stochastic in the same way.
    share
        Additional self-weight, in [0, 1).

    Examples
    --------
    >>> from topofl import topologies
    >>> W = metropolis_hastings(topologies.ring(4))
    >>> f"{W.eigenvalues.min():.3f} {lazy(W).eigenvalues.min():.3f}"
    '-0.333 0.333'
    """
    if not isinstance(mixing, MixingMatrix):
        raise TypeError(
            f"`mixing` must be a MixingMatrix, got {type(mixing).__name__}; use from_weights or a "
            "rule on a graph"
        )
    share = check_fraction("share", share)
    weights = sparse.csr_array(share * sparse.eye_array(mixing.n) + (1 - share) * mixing.weights)
    return MixingMatrix(weights, name=f"lazy({mixing.name}, share={share:g})", nodes=mixing.nodes)


@public
def within_groups(topology: Topology) -> MixingMatrix:
    """Return the mixing matrix of Clique Averaging, uniform over neighbors in the same group.

    ``W[i, j] = 1 / (1 + number of group members adjacent to i)``; in a complete clique this is the
    mean of the clique, and if edges inside cliques were removed each node averages over its
    remaining neighbors. Nodes without a group keep their own model.

    Raises
    ------
    TopologyError
        If the graph has no groups, or is directed.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Figure 7.

    Examples
    --------
    >>> from topofl import topologies
    >>> graph = topologies.with_groups(topologies.path(4), [(0, 1), (2, 3)])
    >>> within_groups(graph).weights.toarray().tolist()[0]
    [0.5, 0.5, 0.0, 0.0]
    """
    need_undirected(topology, "within_groups")
    if not topology.groups:
        raise TopologyError(
            f"`topology` must have groups for Clique Averaging, {topology.name} has none; use "
            "topologies.dcliques(...)"
        )
    label = topology.group_of
    i, j = topology.edge_index
    inside = (label[i] == label[j]) & (label[i] >= 0)
    i, j = i[inside], j[inside]
    shares = 1.0 / (1 + np.bincount(i, minlength=topology.n))
    return _matrix(topology, (i, j), shares[i], shares, f"within_groups({topology.name})")


def _with_rest_on_diagonal(topology: Topology, weights: np.ndarray, rule: str) -> MixingMatrix:
    """Return the matrix with these weights on undirected edges, and rows that sum to 1."""
    i, j = topology.edge_index
    rest = 1.0 - np.bincount(i, weights=weights, minlength=topology.n)
    return _matrix(topology, (i, j), weights, rest, f"{rule}({topology.name})")


def _matrix(
    topology: Topology,
    positions: tuple[np.ndarray, np.ndarray],
    of_edges: np.ndarray,
    of_nodes: np.ndarray,
    name: str,
) -> MixingMatrix:
    """Return the matrix with weights at positions (receivers, senders), and on the diagonal."""
    nodes = np.arange(topology.n)
    i, j = (np.append(ends, nodes) for ends in positions)
    entries = np.append(of_edges, of_nodes)
    weights = sparse.csr_array((entries, (i, j)), shape=(topology.n, topology.n))
    return MixingMatrix(weights, name=name, nodes=topology.nodes)


def need_undirected(topology: Topology, rule: str) -> None:
    """Raise ``TopologyError`` unless `topology` is undirected, as the rule requires."""
    need_topology("topology", topology)
    if topology.is_directed:
        raise TopologyError(
            f"`topology` must be undirected: {rule} needs an undirected graph, {topology.name} is "
            "directed; use uniform(topology, direction='pull' or 'push')"
        )


def check_pulls(weights: MixingMatrix) -> MixingMatrix:
    """Return the weights if they average (rows sum to 1), else raise ``ValueError``."""
    if not weights.is_row_stochastic:
        raise ValueError(
            f"`mixing` must have rows that sum to 1 to average models, {weights.name} is only "
            "column stochastic; use uniform(topology, direction='pull'), or the transpose, "
            "from_weights(weights, edges='u->v')"
        )
    return weights


def check_pushes(weights: MixingMatrix) -> MixingMatrix:
    """Return the weights if they push (columns sum to 1), else raise ``ValueError``."""
    if not weights.is_column_stochastic:
        raise ValueError(
            f"`mixing` must have columns that sum to 1 to push models, {weights.name} is only row "
            "stochastic; use uniform(topology, direction='push'), or leave it out"
        )
    return weights


def warn_of_unused_weights(
    graphs: Iterable[Topology], argument: str, *, pushes: bool = False
) -> None:
    """Warn once if edges of a graph carry unequal weights, which the default rule ignores.

    `argument` is the caller's argument for a weight rule, "weights" of metrics or "mixing" of runs;
    the default rule pushes if `pushes`, else it averages.
    """
    graph = next((graph for graph in graphs if graph.has_unused_weights), None)
    if graph is None:
        return
    rule = "mixing.metropolis_hastings"
    if graph.is_directed:
        push = "functools.partial(mixing.uniform, direction='push')"
        rule = push if pushes else "mixing.uniform"
    largest = graph.adjacency.sum(axis=0).max()
    ways = [
        "to mix with them, pass own_weights=True, as in topofl.as_topology(graph, "
        "own_weights=True), or own_weights=true in the spec of a file"
    ]
    if largest > 1 + TOLERANCE:
        ways = [
            f"they are no mixing weights, since those into a node sum to up to {largest:.4g}, "
            "above 1"
        ]
    if not graph.is_directed:
        ways.append(f"to scale them first, {_CALLS[argument]}")
    ways.append(f"to ignore them, pass a rule: {argument}={rule}")
    warn_caller(f"{unused_weights(graph)}: {'; '.join(ways)}")


_CALLS = {
    "weights": (
        "metrics.spectral_gap(graph, weights=mixing.weighted_metropolis), the same for "
        "metrics.compare, or --weights weighted_metropolis of topofl spectral"
    ),
    "mixing": (
        "topofl.run(..., mixing=mixing.weighted_metropolis), or mixing = 'weighted_metropolis' in "
        "a TOML file"
    ),
}
"""Calls that scale the weights of edges, by the argument for a weight rule."""


def warning_once(rule: WeightRule, argument: str, *, pushes: bool = False) -> WeightRule:
    """Return the default rule, with a warning for the first graph whose weights it ignores."""
    warned = False

    def warning(graph: Topology) -> MixingMatrix:
        nonlocal warned
        if not warned and graph.has_unused_weights:
            warned = True
            warn_of_unused_weights([graph], argument, pushes=pushes)
        return rule(graph)

    return warning
