"""Mixing matrices from weights or sizes that are given, without a rule."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch

from topofl._linalg.sparse import as_csr
from topofl._support.check import as_array, check_choice, shown
from topofl._support.public import public, warn_caller
from topofl.mixing.matrix import MixingMatrix, rows_of
from topofl.topology import Topology, need_topology, read_networkx, read_pyg
from topofl.topology.interchange import is_networkx, is_pyg


@public
def from_weights(
    weights: Any,
    topology: Topology | None = None,
    *,
    edges: str | None = None,
    name: str | None = None,
) -> MixingMatrix:
    """Return a mixing matrix from user-defined weights.

    Parameters
    ----------
    weights
        (n, n) array, torch tensor or scipy sparse matrix, or a networkx or PyG graph whose edges
        and self-loops carry the weights (``weight`` and ``edge_weight``, default 1). Nodes of
        graphs are numbered as by :func:`as_topology`, or matched by label with a labeled
        `topology`; the result has the same labels. In float32 or float16, rows (else columns) whose
        sums differ from 1 only by rounding are divided by their sums.
    topology
        If given, weights off its edges are refused, and the rows of a matrix are its nodes.
    edges
        Direction of entry [u, v] or of the edge (u, v). ``"u->v"``: u sends to v, and v gives this
        weight to what it receives from u, ``W[v, u]``; the default for graphs, and the right choice
        for matrices from ``networkx.to_numpy_array``. ``"u<-v"``: u receives from v, ``W[u, v]``;
        the default for matrices, whose rows are then receivers.
    name
        Reproducible label; default: ``"from_weights(n=...)"``.

    Raises
    ------
    TypeError
        If `weights` is neither a matrix of real numbers nor a graph.
    ValueError
        As :class:`MixingMatrix` and :meth:`MixingMatrix.check_on`; if `edges` has another value, or
        the nodes of a graph are not those of `topology`.

    Warns
    -----
    UserWarning
        If only columns sum to 1, so that the weights push, and `edges` is not given: in the other
        direction they would average.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_weighted_edges_from([(0, 0, 0.5), (1, 0, 0.5), (1, 1, 0.9), (0, 1, 0.1)])
    >>> from_weights(graph).weights.toarray().tolist()
    [[0.5, 0.5], [0.1, 0.9]]
    >>> from_weights(nx.to_numpy_array(graph), edges="u->v").weights.toarray().tolist()
    [[0.5, 0.5], [0.1, 0.9]]
    """
    is_graph = is_networkx(weights) or is_pyg(weights)
    default = "u->v" if is_graph else "u<-v"
    direction = check_choice("edges", default if edges is None else edges, ["u->v", "u<-v"])
    if topology is not None:
        need_topology("topology", topology)
    if is_graph:
        matrix, nodes = _matrix_of_graph(weights, topology)
    else:
        matrix = as_csr("weights", weights)
        nodes = () if topology is None else topology.nodes
    name = f"from_weights(n={matrix.shape[0]})" if name is None else name
    receiver_rows = sparse.csr_array(matrix.T) if direction == "u->v" else matrix
    try:
        normalized = _without_rounding(receiver_rows, _epsilon(weights))
        mixing = MixingMatrix(normalized, name=name, nodes=nodes)
    except ValueError as error:
        if not is_graph:
            raise
        raise ValueError(
            f"{error}; if the rest of each row is the self-weight, use as_topology(graph, "
            "own_weights=True)"
        ) from error
    if edges is None and not mixing.is_row_stochastic:
        _warn_of_direction(direction, is_graph)
    return mixing if topology is None else mixing.check_on(topology)


def _matrix_of_graph(
    graph: Any, topology: Topology | None
) -> tuple[sparse.csr_array, tuple[Hashable, ...]]:
    """Return the weights and labels of a graph, in the node order of the topology if given."""
    matrix, nodes = (read_networkx if is_networkx(graph) else read_pyg)("weights", graph)
    if topology is None or nodes == topology.nodes or matrix.shape[0] != topology.n:
        return matrix, nodes
    order = rows_of(topology, nodes)
    return matrix[order][:, order], topology.nodes


def _warn_of_direction(direction: str, is_graph: bool) -> None:
    """Warn that weights push in this direction but would average in the other one."""
    entry = "the edge" if is_graph else "entry"
    opposite, giver, taker = ("u<-v", "u", "v") if direction == "u->v" else ("u->v", "v", "u")
    meaning = f"the weight that {giver} gives to {taker}"
    warn_caller(
        f"`weights`: only columns sum to 1, so these weights push. If {entry} (u, v) is {meaning}, "
        f"pass edges={opposite!r} and they average; to push, pass edges={direction!r}"
    )


def _without_rounding(weights: sparse.csr_array, eps: float) -> sparse.csr_array:
    """Return the weights divided by their row or column sums if these are 1 up to rounding."""
    tolerance = min(1e-3, weights.shape[0] * eps)
    for axis in (1, 0) if eps > np.finfo(np.float64).eps else ():
        sums = weights.sum(axis=axis)
        if (np.abs(sums - 1) <= tolerance).all():
            factors = 1 / sums[:, None] if axis else 1 / sums[None, :]
            return sparse.csr_array(weights.multiply(factors))
    return weights


def _epsilon(weights: Any) -> float:
    """Return the machine epsilon of a floating-point array or tensor, 0 for anything else."""
    dtype = getattr(weights, "dtype", None)
    if isinstance(dtype, torch.dtype):
        return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return float(np.finfo(dtype).eps) if isinstance(dtype, np.dtype) and dtype.kind == "f" else 0.0


@public
def average_of(sizes: Any, members: Any = None) -> MixingMatrix:
    """Return the mixing matrix of a server: every row averages over the members, weighted by sizes.

    ``W[i, j] = sizes[j] / sum_{k in members} sizes[k]`` for members j and every node i.

    Parameters
    ----------
    sizes
        (n,) non-negative weights, for example numbers of examples.
    members
        (n,) booleans that mark the nodes to average over; None: all nodes.

    Raises
    ------
    ValueError
        If a size is negative or not finite, or if the sizes of the members sum to zero.

    Examples
    --------
    >>> average_of([1, 1, 2], [True, False, True]).weights.toarray().round(2)[0].tolist()
    [0.33, 0.0, 0.67]
    """
    sizes = as_array("sizes", sizes, np.float64)
    chosen = np.ones(sizes.shape, bool) if members is None else as_array("members", members, bool)
    if sizes.ndim != 1:
        raise ValueError(f"`sizes` must be one number per node, got shape {sizes.shape}")
    if chosen.shape != sizes.shape:
        raise ValueError(
            f"`members` must be one boolean per node, shape {sizes.shape}, got {chosen.shape}"
        )
    if not np.isfinite(sizes).all() or (sizes < 0).any():
        raise ValueError(
            "`sizes` must be finite and at least 0, got "
            f"{sizes[~(sizes >= 0) | np.isinf(sizes)][0]:g}"
        )
    nodes = np.flatnonzero(chosen & (sizes > 0))
    if not len(nodes):
        raise ValueError(
            "`members` must include a node with examples, got none; choose at least one node"
        )
    n = len(sizes)
    shares = sizes[nodes] / sizes[nodes].sum()
    columns = np.tile(nodes, n)
    row_starts = len(nodes) * np.arange(n + 1)
    label = "all" if len(nodes) == n else f"{len(nodes)} of {n}"
    weights = sparse.csr_array((np.tile(shares, n), columns, row_starts), shape=(n, n))
    return MixingMatrix(weights, name=f"server({label})")


@public
def average_of_chosen(chosen: Any, sizes: Any = None, *, name: str = "chosen") -> MixingMatrix:
    """Return the mixing matrix that averages each node with the nodes it chose, weighted by sizes.

    ``W[i, j] = sizes[j] / sum_{k in C_i + i} sizes[k]`` for j in ``C_i + i``, where ``C_i`` is the
    set of nodes that i receives from.

    Parameters
    ----------
    chosen
        (n, n) booleans; row i marks the nodes that node i receives from. The diagonal is ignored:
        every node averages over its own model too.
    sizes
        (n,) positive weights, for example numbers of examples; None: equal weights.
    name
        Reproducible label.

    Raises
    ------
    ValueError
        If `chosen` is not square or contains NaN, or a size is not positive and finite.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), equation 4.

    Examples
    --------
    >>> chosen = [[0, 1, 0], [0, 0, 0], [1, 1, 0]]
    >>> average_of_chosen(chosen, sizes=[1, 3, 4]).weights.toarray().tolist()
    [[0.25, 0.75, 0.0], [0.0, 1.0, 0.0], [0.125, 0.375, 0.5]]
    """
    marks = as_array("chosen", chosen)
    if marks.ndim != 2 or marks.shape[0] != marks.shape[1]:
        raise ValueError(
            f"`chosen` must have one row and one column per node, got shape {marks.shape}"
        )
    if marks.dtype.kind == "f" and np.isnan(marks).any():
        raise ValueError("`chosen` must be booleans, got NaN")
    n = len(marks)
    is_member = marks.astype(bool) | np.eye(n, dtype=bool)
    sizes = np.ones(n) if sizes is None else as_array("sizes", sizes, np.float64)
    if sizes.shape != (n,) or not np.isfinite(sizes).all() or not (sizes > 0).all():
        raise ValueError(f"`sizes` must be one positive number per node, n={n}, got {shown(sizes)}")
    shares = sparse.csr_array(is_member * sizes)
    totals = np.repeat(shares.sum(axis=1), np.diff(shares.indptr))
    weights = sparse.csr_array((shares.data / totals, shares.indices, shares.indptr), (n, n))
    return MixingMatrix(weights, name=name)
