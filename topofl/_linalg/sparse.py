"""Sparse matrices: checks of format and entries, symmetry, Laplacian, hops; vectors over nodes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.sparse.linalg import LinearOperator

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
    dimensions = 3 if matrix.format == "bsr" else 1
    if len(matrix.indices) != len(matrix.data) or matrix.data.ndim != dimensions:
        return f"{len(matrix.indices)} `indices` for `data` of shape {matrix.data.shape}"
    ascends = pointers[0] == 0 and (pointers[1:] >= pointers[:-1]).all()
    if not ascends or pointers[-1] > len(matrix.indices):
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
    pairs = ((matrix.indptr, other.indptr), (matrix.indices, other.indices))
    if not all(np.array_equal(*pair) for pair in pairs):
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


def operator_of(apply: Callable[[np.ndarray], np.ndarray], n: int) -> LinearOperator:
    """Return a function of (n,) vectors as an operator for iterative eigensolvers."""
    return LinearOperator((n, n), matvec=apply, dtype=np.float64)  # pyright: ignore[reportCallIssue]


def laplacian(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Return the combinatorial Laplacian ``D - A`` of a symmetric matrix of edge weights."""
    return sparse.csr_array(sparse.diags_array(adjacency.sum(axis=1)) - adjacency)


def is_strong(edges: sparse.csr_array) -> bool:
    """Return whether each node reaches every other along directed edges."""
    return connected_components(edges, directed=True, connection="strong")[0] == 1


BLOCK_BYTES = 64 * 2**20
"""Memory in bytes of the searches that run at the same time."""

SHALLOW = 64
"""Eccentricity of node 0 up to which 64 searches run at once, one per bit of a word."""


def hop_counts(adjacency: sparse.csr_array) -> np.ndarray:
    """Return the number of ordered node pairs at each distance of 0, 1, ..., diameter hops.

    The graph must be strongly connected. Takes O(n) memory in addition to the graph and the time of
    n breadth-first searches, 64 of which run at once where distances are short.
    """
    if adjacency.shape[0] == 1:
        return np.ones(1, dtype=np.int64)
    first = shortest_path(adjacency, directed=True, unweighted=True, indices=0)
    search = _counts_by_bits if first.max() <= SHALLOW else _counts_by_rows
    counts = np.zeros(1, dtype=np.int64)
    for found in search(adjacency):
        longer, shorter = (found, counts) if len(found) > len(counts) else (counts, found)
        counts = longer + np.pad(shorter, (0, len(longer) - len(shorter)))
    return counts


def _counts_by_rows(adjacency: sparse.csr_array) -> Iterator[np.ndarray]:
    """Yield the counts of some sources at a time, from rows of the distance matrix."""
    n = adjacency.shape[0]
    size = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, n, size):
        sources = np.arange(start, min(start + size, n))
        distances = shortest_path(adjacency, directed=True, unweighted=True, indices=sources)
        yield np.bincount(distances.astype(np.int64).reshape(-1))


def _counts_by_bits(adjacency: sparse.csr_array) -> Iterator[np.ndarray]:
    """Yield the counts of some sources at a time.

    Each source has one bit at every node, which is set once the search from it reaches the node.
    """
    n = adjacency.shape[0]
    receivers = sparse.csr_array(adjacency.T)
    words = max(1, BLOCK_BYTES // (8 * adjacency.nnz))
    for start in range(0, n, 64 * words):
        sources = np.arange(start, min(start + 64 * words, n))
        reached = np.zeros((n, -(-len(sources) // 64)), dtype=np.uint64)
        bits = np.left_shift(np.uint64(1), ((sources - start) % 64).astype(np.uint64))
        reached[sources, (sources - start) // 64] = bits
        totals = [0, len(sources)]
        while totals[-1] < n * len(sources):
            sent = reached[receivers.indices]
            reached |= np.bitwise_or.reduceat(sent, receivers.indptr[:-1], axis=0)
            totals.append(int(np.bitwise_count(reached).sum(dtype=np.int64)))
        yield np.diff(totals)
