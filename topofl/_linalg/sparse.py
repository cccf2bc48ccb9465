"""Sparse matrices: checks of their format and entries, symmetry, Laplacian; vectors over nodes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import TOLERANCE, as_array, check_nodes


def as_csr(name: str, matrix: Any) -> sparse.csr_array:
    """Return a dense or sparse matrix as a new canonical CSR array of float64.

    The indices of sparse matrices are checked first, since scipy's compiled routines do not check
    them and would write out of bounds.

    Raises
    ------
    TypeError
        If the matrix does not hold real numbers.
    ValueError
        If it is not a non-empty square matrix, has masked, negative or non-finite entries, or has
        indices out of bounds.
    """
    if not sparse.issparse(matrix):
        matrix = as_array(name, matrix)
    if matrix.dtype.kind not in "buif":
        raise TypeError(f"`{name}` must hold real numbers, got dtype {matrix.dtype}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(
            f"`{name}` must be a square matrix with at least one node, got shape {matrix.shape}"
        )
    if sparse.issparse(matrix):
        check_format(name, matrix)
    csr = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    check_entries(name, csr)
    return csr


def check_format(name: str, matrix: Any) -> None:
    """Raise ``ValueError`` if the index arrays of a sparse matrix are inconsistent."""
    rows, columns = matrix.shape
    check_nodes(rows, name=f"{name}.shape[0]")
    fault = ""
    indices: Iterable[tuple[Any, int]] = ()  # those of dok and dia are checked by conversions
    if matrix.format in ("csr", "csc", "bsr"):
        height, width = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        major, minor = (
            (columns, rows) if matrix.format == "csc" else (rows // height, columns // width)
        )
        fault, indices = _fault_of_pointers(matrix, major), [(matrix.indices, minor)]
    elif matrix.format == "coo":
        if len({len(matrix.data), *map(len, matrix.coords)}) > 1:
            fault = "`coords` and `data` of different lengths"
        indices = zip(matrix.coords, matrix.shape, strict=True)
    elif matrix.format == "lil":
        lengths = list(map(len, matrix.rows))
        if len(lengths) != rows or lengths != list(map(len, matrix.data)):
            fault = "`rows` that do not fit its `data`"
        indices = ((np.asarray(row), columns) for row in matrix.rows)
    fault = fault or next(filter(None, (_fault_of_indices(*one) for one in indices)), "")
    if fault:
        raise ValueError(
            f"`{name}` must be a well-formed sparse matrix, got {fault}; build it again from its "
            "entries"
        )


def _fault_of_pointers(matrix: Any, major: int) -> str:
    """Return the fault of the index pointers of a compressed sparse matrix, or an empty string."""
    pointers = matrix.indptr
    if pointers.ndim != 1 or pointers.dtype.kind not in "iu" or len(pointers) != major + 1:
        return (
            f"`indptr` of shape {pointers.shape} and dtype {pointers.dtype}, "
            f"not {major + 1} integers"
        )
    if len(matrix.indices) != len(matrix.data) or matrix.data.ndim != (
        3 if matrix.format == "bsr" else 1
    ):
        return f"{len(matrix.indices)} `indices` for `data` of shape {matrix.data.shape}"
    if (
        pointers[0] != 0
        or (pointers[1:] < pointers[:-1]).any()
        or pointers[-1] > len(matrix.indices)
    ):
        return f"`indptr` that does not ascend from 0 to at most {len(matrix.indices)}"
    return ""


def _fault_of_indices(indices: np.ndarray, size: int) -> str:
    """Return the fault of indices that must be in ``0..size - 1``, or an empty string."""
    if indices.size == 0:
        return ""
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return f"indices of shape {indices.shape} and dtype {indices.dtype}"
    outside = [one for one in (int(indices.min()), int(indices.max())) if not 0 <= one < size]
    return f"index {outside[0]}, outside 0..{size - 1}" if outside else ""


def check_entries(name: str, matrix: sparse.csr_array) -> None:
    """Raise ``ValueError`` if a stored entry is negative or not finite, naming the first."""
    for bad, wanted in (
        (~np.isfinite(matrix.data), "be finite"),
        (matrix.data < 0, "have no negative entry"),
    ):
        places = np.flatnonzero(bad)
        if len(places):
            row = int(np.searchsorted(matrix.indptr, places[0], side="right")) - 1
            raise ValueError(
                f"`{name}` must {wanted}, got {matrix.data[places[0]]:g} at ({row}, "
                f"{matrix.indices[places[0]]}) ({len(places)} such entries)"
            )


def is_symmetric(matrix: sparse.csr_array, *, edges: bool = False) -> bool:
    """Return whether a canonical CSR array is symmetric up to :data:`TOLERANCE`.

    Mixing weights are at most 1 and compared absolutely. With `edges`, entries are edge weights of
    any scale, and every edge needs a reverse edge, however small its weight. Differences are then
    relative to the larger of both weights if that is above 1, and to the largest weight of all if
    that is below 1e-3.
    """
    if matrix.nnz == 0:
        return True
    if not edges:
        return bool(abs(matrix - matrix.T).max() <= TOLERANCE)
    other = sparse.csr_array(matrix.T)
    if not (
        np.array_equal(matrix.indptr, other.indptr)
        and np.array_equal(matrix.indices, other.indices)
    ):
        return False
    largest = matrix.data.max()
    scale = np.maximum(1.0 if largest >= 1e-3 else largest, np.maximum(matrix.data, other.data))
    return bool((np.abs(matrix.data - other.data) <= TOLERANCE * scale).all())


def centered(values: np.ndarray) -> np.ndarray:
    """Return the disagreement of (n,) or (n, k) values: their differences from the node mean."""
    return values - values.mean(axis=0)


def start_vector(n: int) -> np.ndarray:
    """Return a fixed random (n,) start vector for iterative eigensolvers."""
    return np.random.default_rng(0).standard_normal(n)


def laplacian(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Return the combinatorial Laplacian ``D - A`` of a symmetric matrix of edge weights."""
    return sparse.csr_array(sparse.diags_array(adjacency.sum(axis=1)) - adjacency)
