"""Smallest eigenvalue, largest singular value on disagreement, and algebraic connectivity."""

import math

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl._linalg.spectral import limits, symmetric
from topofl._linalg.spectral.full_spectrum import circulant_spectrum
from topofl._linalg.spectral.operators import compact
from topofl._linalg.spectral.solution import clipped_modulus
from topofl._support.vectors import centered, laplacian, start_vector

__all__ = ["algebraic_connectivity", "sigma", "smallest"]


def smallest(matrix: sparse.csr_array) -> float:
    """Return the smallest eigenvalue of a symmetric stochastic matrix.

    Raises
    ------
    NoConvergence
        If neither Lanczos nor shift-invert converges.
    """
    values = circulant_spectrum(matrix)
    if values is not None:
        return float(np.real(values).min())
    n = matrix.shape[0]
    if n <= limits.DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    packed = compact(matrix)
    # This operator has the eigenvalues (1 - lambda) / 2, in [0, 1].
    found = symmetric.lanczos(lambda x: centered(x - packed @ x) / 2, n)
    if found is not None:
        return 1 - 2 * found[0]
    return symmetric.nearest(matrix.tocsc(), -1 - limits.NEAR, 1)[0][0]


def sigma(matrix: sparse.csr_array) -> float:
    """Return the largest singular value of ``W - J``, the worst factor of one step on disagreement.

    J has all entries 1/n. Only for doubly stochastic matrices is it at most 1 and a contraction to
    the mean. Above ``DENSE_LIMIT``, where the matrix must be doubly stochastic, it is the root of
    the second eigenvalue of ``W^T W``.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if n <= limits.DENSE_LIMIT:
        return clipped_modulus(scipy.linalg.svdvals(matrix.toarray() - 1.0 / n)[0], n)
    values = circulant_spectrum(matrix)
    if values is not None:
        # Circulants are normal: their singular values are the moduli of their eigenvalues.
        return clipped_modulus(np.abs(values[1:]).max(), n)
    transpose = compact(sparse.csr_array(matrix.T))
    matrix = compact(matrix)
    found = symmetric.lanczos(lambda x: centered(transpose @ (matrix @ x)), n)
    if found is not None:
        return math.sqrt(max(found[0], 0.0))
    (second, _), *_ = symmetric.nearest(sparse.csc_array(transpose @ matrix), 1 + limits.NEAR, 2)
    return math.sqrt(max(second, 0.0))


def algebraic_connectivity(adjacency: sparse.csr_array) -> float:
    """Return the second smallest eigenvalue of the combinatorial Laplacian of an undirected graph.

    It is exactly 0 if the graph is disconnected. Edge weights count.
    """
    n = adjacency.shape[0]
    if n == 1 or connected_components(adjacency, directed=False)[0] > 1:
        return 0.0
    values = circulant_spectrum(adjacency)
    if values is not None:
        return float(np.real(values[0] - values[1:]).min())
    matrix = laplacian(adjacency)
    if n <= limits.DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[1])
    bound = 2 * float(adjacency.sum(axis=1).max())  # on all eigenvalues, by Gershgorin
    packed = compact(matrix)
    # The eigenvalues 1 - lambda / bound lie in [0, 1]; on centered vectors that of lambda_2 is the
    # largest.
    found = symmetric.lanczos(lambda x: centered(x - (packed @ x) / bound), n)
    if found is not None:
        return bound * (1 - found[0])
    shifted = sparse_linalg.eigsh(
        matrix.tocsc(), k=2, sigma=-1e-6, return_eigenvectors=False, v0=start_vector(n)
    )
    return float(np.sort(shifted)[1])
