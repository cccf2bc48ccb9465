"""Mixing matrices of averages weighted by sizes: of a server's clients, or of chosen peers."""

from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import as_array, shown
from topofl._support.public import public
from topofl.mixing.matrix import MixingMatrix

__all__ = ["average_of", "average_of_chosen"]


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
    return MixingMatrix(
        sparse.csr_array((np.tile(shares, n), columns, row_starts), shape=(n, n)),
        name=f"server({label})",
    )


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
    return MixingMatrix(
        sparse.csr_array((shares.data / totals, shares.indices, shares.indptr), (n, n)), name=name
    )
