"""Mixing matrices of a run, stored by their distinct rows, which are few for servers."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.sparse import check_entries, check_format
from topofl._support.check import TOLERANCE
from topofl.mixing import MixingMatrix

PACKED_FROM = 2**13
"""Bytes from which a matrix with one distinct row, such as a server's, is packed.

Smaller matrices stay unchanged, with their cached properties."""

SEARCHED_FROM = 2**16
"""Bytes from which a matrix with several distinct rows is packed."""

_BLOCK = 2**18
"""Number of entries that are compared at a time."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A mixing matrix of n nodes with fewer distinct rows.

    Parameters
    ----------
    weights
        (k, n), the distinct rows, in order of first use.
    row_of
        (n,) index of each node's row in `weights`.
    name, nodes
        Name and node labels of the matrix.
    """

    weights: sparse.csr_array
    row_of: np.ndarray
    name: str
    nodes: tuple[Hashable, ...] = ()

    def unpacked(self) -> MixingMatrix:
        """Return the whole matrix."""
        return MixingMatrix(sparse.csr_array(self.weights[self.row_of]), self.name, self.nodes)


Kept = MixingMatrix | Packed


def arrays_of(matrix: Kept) -> dict[str, np.ndarray]:
    """Return the arrays of a stored matrix: those of its rows and, if it is packed, ``row_of``."""
    arrays = {part: getattr(matrix.weights, part) for part in ("data", "indices", "indptr")}
    return arrays | ({"row_of": matrix.row_of} if isinstance(matrix, Packed) else {})


def bytes_of(matrix: Kept) -> int:
    """Return the bytes of a stored matrix."""
    return sum(array.nbytes for array in arrays_of(matrix).values())


def digest_of(matrix: Kept) -> bytes:
    """Return a hash of the values and the name of a matrix."""
    digest = hashlib.sha256(matrix.name.encode())
    for part, array in arrays_of(matrix).items():
        whole = array.astype(np.int64) if part in ("indices", "indptr") else array
        digest.update(np.ascontiguousarray(whole).data)
    return digest.digest()


def kept(matrix: MixingMatrix) -> Kept:
    """Return a matrix as it is stored: packed if large and at most half the size, else unchanged.

    Distinct rows are found by a product with a random vector, and all entries are compared only if
    rows have equal products.
    """
    if bytes_of(matrix) < PACKED_FROM:
        return matrix
    weights = matrix.weights
    products = weights @ np.random.default_rng(0).random(matrix.n)  # the same for equal rows
    _, first, row_of = np.unique(products, return_index=True, return_inverse=True)
    if len(first) > 1 and bytes_of(matrix) < SEARCHED_FROM:
        return matrix
    order = np.argsort(first)
    first = first[order]
    row_of = np.argsort(order)[row_of].astype(np.int32)
    size = np.diff(weights.indptr)[first].sum() + matrix.n / 3
    if 2 * size > weights.nnz or not _equal_rows(weights, first[row_of]):
        return matrix
    return Packed(_frozen(sparse.csr_array(weights[first])), row_of, matrix.name, matrix.nodes)


def _equal_rows(weights: sparse.csr_array, like: np.ndarray) -> bool:
    """Return whether each row i equals row ``like[i]``, to the last bit."""
    starts = weights.indptr[:-1].astype(np.int64)
    lengths = np.diff(weights.indptr)
    if (lengths != lengths[like]).any():
        return False
    step = max(1, _BLOCK // max(1, int(lengths.max())))
    for first in range(0, len(like), step):
        rows = slice(first, first + step)
        own = slice(starts[first], starts[first] + lengths[rows].sum())
        shift = np.repeat(starts[like[rows]] - starts[rows], lengths[rows])
        other = np.arange(own.start, own.stop) + shift
        for part in (weights.indices, weights.data.view(np.int64)):
            if (part[own] != part[other]).any():
                return False
    return True


def _frozen(rows: sparse.csr_array) -> sparse.csr_array:
    """Return a sparse array whose arrays are now read-only."""
    for array in (rows.data, rows.indices, rows.indptr):
        array.setflags(write=False)
    return rows


def kept_of(parts: dict[str, np.ndarray], n: int, name: str) -> Kept:
    """Return a stored matrix of n nodes from its saved arrays.

    Parameters
    ----------
    parts
        ``data``, ``indices`` and ``indptr`` of its rows, and for a packed matrix ``row_of``.
    n, name
        Number of nodes and name of the matrix.

    Raises
    ------
    ValueError
        If they are not a mixing matrix of n nodes. Everything is checked, since scipy's products
        are not.
    """
    row_of = parts.get("row_of")
    for part, kinds in {"data": "f", "indices": "iu", "indptr": "iu", "row_of": "iu"}.items():
        if part in parts and (parts[part].ndim != 1 or parts[part].dtype.kind not in kinds):
            raise ValueError(
                f"{part} of {name} must be a vector of dtype kind {kinds}, got {parts[part].dtype} "
                f"of shape {parts[part].shape}"
            )
    k = len(parts["indptr"]) - 1
    if k < 1 or (k != n if row_of is None else len(row_of) != n):
        raise ValueError(
            f"{name} must have a row per node, n={n}, got {k if row_of is None else len(row_of)}"
        )
    rows = sparse.csr_array(
        (parts["data"], parts["indices"], parts["indptr"]), shape=(k, n), dtype=np.float64
    )
    check_format(name, rows)
    if row_of is None:
        return kept(MixingMatrix(rows, name=name))
    if row_of.min() < 0 or row_of.max() >= k:
        raise ValueError(f"row_of of {name} must be in 0..{k - 1}")
    check_entries(name, rows)
    columns = rows.T @ np.bincount(row_of, minlength=k)
    if all(np.abs(sums - 1).max() > TOLERANCE for sums in (rows.sum(axis=1), columns)):
        raise ValueError(f"{name} must have rows or columns that sum to 1")
    return Packed(_frozen(rows), row_of.astype(np.int32), name)


class Matrices(Sequence[MixingMatrix]):
    """A sequence of distinct mixing matrices, which unpacks those stored by distinct rows.

    As long as an unpacked matrix is in use, the sequence returns the same object.

    Parameters
    ----------
    kept
        The matrices as returned by :func:`kept`.
    """

    def __init__(self, kept: Sequence[Kept] = ()) -> None:
        self.kept = tuple(kept)
        self._unpacked: WeakValueDictionary[int, MixingMatrix] = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return Matrices, (self.kept,)  # to pickle it between processes

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Matrices(self.kept[place])
        stored = self.kept[place]
        if isinstance(stored, MixingMatrix):
            return stored
        index = range(len(self))[place]
        if (unpacked := self._unpacked.get(index)) is None:
            unpacked = self._unpacked[index] = stored.unpacked()
        return unpacked
