"""Mixing matrices of averages weighted by sizes: over a server's nodes, or over chosen peers."""

from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import as_array, shown
from topofl.mixing.matrix import MixingMatrix

__all__ = ["average_of", "average_of_chosen"]


def average_of(sizes: Any, members: Any = None) -> MixingMatrix:
    """Return the matrix of a server: every row is the mean over its members, weighted by sizes.

    ``W[i, j] = sizes[j] / sum_{k in members} sizes[k]`` for members j and every node i.

    Parameters
    ----------
    sizes
        (n,) non-negative, such as numbers of examples.
    members
        (n,) booleans; None: all nodes.

    Raises
    ------
    ValueError
        If a size is negative or not finite, or if those of the members sum to zero.

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
            "`members` must hold nodes with examples, got none; choose at least one node"
        )
    n, shares = len(sizes), sizes[nodes] / sizes[nodes].sum()
    places = np.tile(nodes, n), len(nodes) * np.arange(n + 1)
    label = "all" if len(nodes) == n else f"{len(nodes)} of {n}"
    return MixingMatrix(
        sparse.csr_array((np.tile(shares, n), *places), shape=(n, n)), name=f"server({label})"
    )


def average_of_chosen(chosen: Any, sizes: Any = None, *, name: str = "chosen") -> MixingMatrix:
    """Return the matrix that averages over each node and the nodes it chose, weighted by sizes.

    ``W[i, j] = sizes[j] / sum_{k in C_i + i} sizes[k]`` for j in ``C_i + i``, where ``C_i`` are
    the nodes that i receives from.

    Parameters
    ----------
    chosen
        (n, n) booleans; row i marks the nodes that node i receives from. The diagonal does not
        matter: a node always counts itself.
    sizes
        (n,) positive, such as numbers of examples; None: all the same.
    name
        Reproducible label.

    Raises
    ------
    ValueError
        If `chosen` is not square or has NaN, or a size is not positive and finite.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), equation 4.

    Examples
    --------
    >>> chosen = [[0, 1, 0], [0, 0, 0], [1, 1, 0]]
    >>> average_of_chosen(chosen, sizes=[1, 3, 4]).weights.toarray().tolist()
    [[0.25, 0.75, 0.0], [0.0, 1.0, 0.0], [0.125, 0.375, 0.5]]
    """
    given = as_array("chosen", chosen)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(
            f"`chosen` must have one row and one column per node, got shape {given.shape}"
        )
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError("`chosen` must be booleans, got NaN")
    n = len(given)
    averaged = given.astype(bool) | np.eye(n, dtype=bool)
    sizes = np.ones(n) if sizes is None else as_array("sizes", sizes, np.float64)
    if sizes.shape != (n,) or not np.isfinite(sizes).all() or not (sizes > 0).all():
        raise ValueError(f"`sizes` must be one positive number per node, n={n}, got {shown(sizes)}")
    shares = sparse.csr_array(averaged * sizes)
    totals = np.repeat(shares.sum(axis=1), np.diff(shares.indptr))
    return MixingMatrix(
        sparse.csr_array((shares.data / totals, shares.indices, shares.indptr), (n, n)), name=name
    )
