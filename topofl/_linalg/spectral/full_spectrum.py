"""All eigenvalues of a matrix, by a Fourier transform or densely."""

import numpy as np
import scipy.linalg
import scipy.sparse as sparse

from topofl._linalg.classes import blocks_of, classes_of, stacks
from topofl._linalg.nilpotent import dense_spectrum
from topofl._linalg.spectral import limits
from topofl._linalg.spectral.solution import NoConvergence, Solution, clipped_modulus, rounding_of
from topofl._support.check import TOLERANCE as SYMMETRIC_WITHIN
from topofl._support.check import is_symmetric

__all__ = [
    "STACKED",
    "circulant_spectrum",
    "dense_eigenvalues",
    "eigenvalues",
    "second_of_all",
    "second_of_all_or_raise",
]

STACKED = 64
"""Largest order of blocks of strongly connected classes that are decomposed in one call."""


def eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues: real and descending if symmetric, else by descending modulus.

    A circulant matrix of any order is diagonalized by a Fourier transform; otherwise the
    eigenvalues are those of the diagonal blocks of the strongly connected classes, computed
    densely.

    Raises
    ------
    ValueError
        If the matrix is not circulant and a block is of an order above ``SPECTRUM_LIMIT``.
    """
    values = circulant_spectrum(matrix)
    if values is None:
        values = _spectrum_of_classes(matrix)
    if is_symmetric(matrix):
        return np.sort(np.real(values))[::-1]
    return values[np.argsort(-np.abs(values), kind="stable")]


def _spectrum_of_classes(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues: 0 for nodes on no cycle, and those of strongly connected classes."""
    classes = classes_of([matrix])
    orders = classes.orders
    largest = int(orders.max())
    if largest > limits.SPECTRUM_LIMIT:
        raise ValueError(
            f"all eigenvalues are computed densely, up to n={limits.SPECTRUM_LIMIT} unless the "
            f"matrix is circulant, got n={largest} in one strongly connected class; use slem for "
            "the second largest modulus"
        )
    found = [np.zeros(int((~classes.is_cyclic).sum()))]
    for _, blocks, logs in stacks(
        [matrix], classes, np.flatnonzero(classes.is_cyclic & (orders <= STACKED))
    ):
        found.append(_spectra(blocks * np.exp(logs)[:, None, None]).reshape(-1))
    for label in np.flatnonzero(orders > STACKED):
        found.append(dense_eigenvalues(blocks_of([matrix], classes, int(label))[0]))
    return np.concatenate(found)


def _spectra(blocks: np.ndarray) -> np.ndarray:
    """Return the (k, m) eigenvalues of (k, m, m) blocks; symmetric ones take one call."""
    symmetric = np.abs(blocks - blocks.transpose(0, 2, 1)).max(axis=(1, 2)) <= SYMMETRIC_WITHIN
    values = np.zeros(blocks.shape[:2], dtype=complex)
    values[symmetric] = np.linalg.eigvalsh(blocks[symmetric])
    for k in np.flatnonzero(~symmetric):
        values[k] = dense_spectrum(blocks[k])
    return values if np.iscomplex(values).any() else np.real(values)


def dense_eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues by LAPACK."""
    dense = matrix.toarray()
    return scipy.linalg.eigvalsh(dense) if is_symmetric(matrix) else dense_spectrum(dense)


def circulant_spectrum(matrix: sparse.csr_array) -> np.ndarray | None:
    """Return all eigenvalues of a circulant matrix, or None if it is not circulant.

    The eigenvalue of the constant vector comes first. Eigenvalue k is ``sum_d W[0, d] exp(-2 pi i k
    d / n)``; its vector is ``exp(-2 pi i k j / n)``. Entries may differ from those of a shifted
    first row by rounding (4 eps of the largest), which perturbs the eigenvalues by rounding only
    (Bauer and Fike: circulants are normal). O(nnz + n log n).

    References
    ----------
    Davis, "Circulant Matrices" (1979), Theorem 3.2.2.
    """
    n = matrix.shape[0]
    width = int(matrix.indptr[1])
    if not (matrix.has_canonical_format and (np.diff(matrix.indptr) == width).all()):
        return None
    row = np.zeros(n)
    row[matrix.indices[:width]] = matrix.data[:width]
    offsets = matrix.indices.reshape(n, width) - np.arange(n)[:, None]
    expected = row[offsets]  # a negative index counts from the end: offsets are taken modulo n
    rounding = 4 * np.finfo(float).eps * row.max()
    is_shifted = (expected != 0) & (np.abs(expected - matrix.data.reshape(n, width)) <= rounding)
    return np.fft.fft(row) if is_shifted.all() else None


def second_of_all(matrix: sparse.csr_array) -> Solution:
    """Return the second largest modulus from all eigenvalues."""
    moduli = np.sort(np.abs(dense_eigenvalues(matrix)))
    return Solution(clipped_modulus(moduli[-2], matrix.shape[0]), "dense", rounding_of(matrix))


def second_of_all_or_raise(matrix: sparse.csr_array, failure: str) -> Solution:
    """Return the second largest modulus from all eigenvalues, or raise if there are too many."""
    n = matrix.shape[0]
    if n <= limits.SPECTRUM_LIMIT:
        return second_of_all(matrix)
    raise NoConvergence(
        f"the second eigenvalue of {n} nodes {failure}; all are computed densely only up to "
        f"n={limits.SPECTRUM_LIMIT}"
    )
