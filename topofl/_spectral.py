"""Spectra of plain (sparse or dense) matrices; knows nothing of topologies."""

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

__all__ = ["DENSE_LIMIT", "algebraic_connectivity", "eigenvalues", "second_modulus", "sigma"]

DENSE_LIMIT = 1500
"""Matrices up to this order are decomposed densely (under a second); larger ones by Lanczos or Arnoldi iterations."""


def eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues, real and descending if `matrix` is symmetric, else by descending modulus (dense)."""
    dense = matrix.toarray()
    if _is_symmetric(matrix):
        return scipy.linalg.eigvalsh(dense)[::-1]
    values = scipy.linalg.eigvals(dense)
    return values[np.argsort(-np.abs(values), kind="stable")]


def second_modulus(matrix: sparse.csr_array) -> float:
    """Return the second largest eigenvalue modulus of a stochastic matrix (its largest is 1).

    Parameters
    ----------
    matrix
        (n, n), row- or column-stochastic.

    Returns
    -------
    float
        In [0, 1]; exactly 1 if the matrix has several closed classes that never meet, 0 if n is 1.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if connected_components(matrix, directed=False)[0] > 1:
        return 1.0
    if n <= DENSE_LIMIT:
        moduli = np.sort(np.abs(eigenvalues(matrix)))
        return float(np.clip(moduli[-2], 0.0, 1.0))
    return float(np.clip(_second_modulus_iterative(matrix), 0.0, 1.0))


def _second_modulus_iterative(matrix: sparse.csr_array) -> float:
    """Return |lambda_2| by ARPACK: Lanczos without the all-ones direction, shift-invert where that stalls."""
    n = matrix.shape[0]
    if not _is_symmetric(matrix):
        try:
            values = sparse_linalg.eigs(matrix, k=2, return_eigenvectors=False, v0=_start(n), maxiter=100, ncv=40)
            return float(np.sort(np.abs(values))[0])
        except sparse_linalg.ArpackNoConvergence:
            return _second_modulus_near_one(matrix)
    deflated = sparse_linalg.LinearOperator((n, n), matvec=lambda x: matrix @ x - x.mean(), dtype=float)
    try:
        values = sparse_linalg.eigsh(
            deflated, k=1, which="LM", return_eigenvectors=False, v0=_start(n), maxiter=100, ncv=40
        )
        return float(np.abs(values[0]))
    except sparse_linalg.ArpackNoConvergence:
        columns = matrix.tocsc()
        top = sparse_linalg.eigsh(columns, k=2, sigma=1 + 1e-8, return_eigenvectors=False, v0=_start(n))
        second = float(np.sort(top)[0])
        if 2 * matrix.diagonal().min() - 1 >= -second:  # Gershgorin: no eigenvalue is below the left-hand side
            return second
        bottom = sparse_linalg.eigsh(columns, k=1, sigma=-1 - 1e-8, return_eigenvectors=False, v0=_start(n))
        return max(second, float(abs(bottom[0])))


def _second_modulus_near_one(matrix: sparse.csr_array) -> float:
    """Return |lambda_2| of a slowly mixing non-symmetric matrix from its eigenvalues nearest to 1.

    By Gershgorin's theorem all eigenvalues lie in the disc around a of radius 1 - a, a being the smallest diagonal
    entry, so ``|1 - lambda|^2 <= (1 - |lambda|^2) (1 / a - 1)``: once all eigenvalues up to a distance are known, none
    farther away can have a larger modulus than this allows. Where that decides nothing, all are computed (dense).
    """
    least, columns = matrix.diagonal().min(), matrix.tocsc()
    for k in (6, 24, 96) if least > 0 else ():
        values = sparse_linalg.eigs(
            columns, k=k, sigma=1 + 1e-8, return_eigenvectors=False, v0=_start(columns.shape[0])
        )
        second = np.sort(np.abs(values))[-2]
        if (1 - second**2) * (1 / least - 1) <= np.abs(1 - values).max() ** 2:
            return float(second)
    return float(np.sort(np.abs(eigenvalues(matrix)))[-2])


def sigma(matrix: sparse.csr_array) -> float:
    """Return the largest singular value of ``W - J`` (J = all entries 1/n): the worst one-step factor on disagreement.

    Only for doubly stochastic matrices is it at most 1 and a contraction towards the mean.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if n <= DENSE_LIMIT:
        return float(scipy.linalg.svdvals(matrix.toarray() - 1.0 / n)[0])
    operator = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda x: matrix @ x - x.mean(), rmatvec=lambda x: matrix.T @ x - x.mean(), dtype=float
    )
    return float(sparse_linalg.svds(operator, k=1, return_singular_vectors=False, v0=_start(n))[0])


def algebraic_connectivity(adjacency: sparse.csr_array) -> float:
    """Return the second smallest eigenvalue of the combinatorial Laplacian of an undirected graph.

    0 exactly if the graph is disconnected; weights of edges are counted.
    """
    n = adjacency.shape[0]
    if n == 1 or connected_components(adjacency, directed=False)[0] > 1:
        return 0.0
    laplacian = sparse.csr_array(sparse.diags_array(adjacency.sum(axis=1)) - adjacency)
    if n <= DENSE_LIMIT:
        return float(scipy.linalg.eigvalsh(laplacian.toarray(), subset_by_index=[1, 1])[0])
    bound = 2 * float(adjacency.sum(axis=1).max())  # above all eigenvalues, by Gershgorin
    flipped = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda x: bound * (x - x.mean()) - laplacian @ x, dtype=float
    )  # without the constant vector, its largest eigenvalue is bound - lambda_2
    try:
        top = sparse_linalg.eigsh(
            flipped, k=1, which="LA", return_eigenvectors=False, v0=_start(n), maxiter=100, ncv=40
        )
        return bound - float(top[0])
    except sparse_linalg.ArpackNoConvergence:
        shifted = sparse_linalg.eigsh(laplacian.tocsc(), k=2, sigma=-1e-6, return_eigenvectors=False, v0=_start(n))
        return float(np.sort(shifted)[1])


def _is_symmetric(matrix: sparse.csr_array) -> bool:
    return abs(matrix - matrix.T).max() <= 1e-12 if matrix.nnz else True


def _start(n: int) -> np.ndarray:
    """Return ARPACK's start vector; its own would come from numpy's global generator."""
    return np.random.default_rng(0).standard_normal(n)
