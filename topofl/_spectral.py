"""Spectra of plain (sparse or dense) matrices; knows nothing of topologies."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl._check import is_symmetric

__all__ = [
    "DENSE_LIMIT",
    "SPECTRUM_LIMIT",
    "NoConvergence",
    "Solution",
    "algebraic_connectivity",
    "circulant_spectrum",
    "eigenvalues",
    "second_modulus",
    "sigma",
    "smallest",
    "vanishes",
]

DENSE_LIMIT = 1500
"""Matrices up to this order are decomposed densely (under a second); larger ones by Lanczos or Arnoldi iterations."""

SPECTRUM_LIMIT = 6000
"""Up to this order all eigenvalues are computed densely (minutes) where they are asked for or nothing else decides."""

STEPS = 3000
"""Lanczos steps before shift-invert takes over."""

TOLERANCE = 1e-9
"""Residual at which Lanczos stops; the eigenvalue itself is then closer, by about its square over the next gap."""

_NEAR = 1e-8
"""Distance of shift-invert's shift from 1 and -1: outside of the spectrum, so that nothing is divided by zero."""


class NoConvergence(ValueError):
    """No eigenvalue to the precision that is promised."""


@dataclass(frozen=True)
class Solution:
    """An eigenvalue, or its modulus, and how it was found.

    Parameters
    ----------
    value
        The number that was asked for.
    solver
        ``"components"``: from the number of components alone, exact; ``"circulant DFT"``: closed form, the discrete
        Fourier transform of the first row; ``"dense"``: LAPACK; ``"lanczos"`` (symmetric) and ``"arnoldi"``: products
        with the sparse matrix only; ``"shift-invert"``: a sparse factorization of ``W - s I``, s next to 1 or -1.
    residual
        ``||W x - lambda x|| / ||x||`` of the eigenvector x that was found, in the 2-norm. Of ``"dense"``, which
        computes no vectors, the bound ``n eps ||W||`` on LAPACK's backward error. For symmetric and for circulant W an
        eigenvalue lies within this of the one returned (which of several that are as near is not said); for others it
        says only that W, changed by this much, has it. Of column-stochastic W, that of the transpose.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> solution = mixing.metropolis_hastings(topologies.ring(10_000)).slem_solution
    >>> solution.solver, f"{1 - solution.value:.4e}", solution.residual < 1e-12
    ('circulant DFT', '1.3159e-07', True)
    """

    value: float
    solver: str
    residual: float


def eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues, real and descending if `matrix` is symmetric, else by descending modulus.

    By a Fourier transform if `matrix` is circulant, whatever its order, else densely.

    Raises
    ------
    ValueError
        If it is not circulant and its order is above ``SPECTRUM_LIMIT``.
    """
    values = circulant_spectrum(matrix)
    if values is None:
        return _dense_eigenvalues(matrix)
    if is_symmetric(matrix):
        return np.sort(np.real(values))[::-1]
    return values[np.argsort(-np.abs(values), kind="stable")]


def _dense_eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    n = matrix.shape[0]
    if n > SPECTRUM_LIMIT:
        raise ValueError(
            f"all eigenvalues are computed densely, up to n={SPECTRUM_LIMIT} unless the matrix is circulant, got "
            f"n={n}; use slem for the second one"
        )
    dense = matrix.toarray()
    if is_symmetric(matrix):
        return scipy.linalg.eigvalsh(dense)[::-1]
    values = scipy.linalg.eigvals(dense)
    return values[np.argsort(-np.abs(values), kind="stable")]


def circulant_spectrum(matrix: sparse.csr_array) -> np.ndarray | None:
    """Return all eigenvalues of a circulant matrix, that of the constant vector first, or None if it is not circulant.

    Eigenvalue k is ``sum_d W[0, d] exp(-2 pi i k d / n)``; its vector is ``exp(-2 pi i k j / n)``. Entries may differ
    from those of a shifted first row by rounding (4 eps of the largest), which moves eigenvalues by rounding too (Bauer
    and Fike: circulants are normal). O(nnz + n log n).

    References
    ----------
    Davis, "Circulant Matrices" (1979), Theorem 3.2.2.
    """
    n, width = matrix.shape[0], int(matrix.indptr[1])
    if not (matrix.has_canonical_format and (np.diff(matrix.indptr) == width).all()):
        return None
    row = np.zeros(n)
    row[matrix.indices[:width]] = matrix.data[:width]
    offsets = matrix.indices.reshape(n, width) - np.arange(n)[:, None]
    expected = row[offsets]  # a negative index counts from the end: offsets are taken modulo n
    rounding = 4 * np.finfo(float).eps * row.max()
    is_shifted = (expected != 0) & (np.abs(expected - matrix.data.reshape(n, width)) <= rounding)
    return np.fft.fft(row) if is_shifted.all() else None


def second_modulus(matrix: sparse.csr_array) -> Solution:
    """Return the second largest eigenvalue modulus of a stochastic matrix (its largest is 1), and how it was found.

    Parameters
    ----------
    matrix
        (n, n), row- or column-stochastic.

    Returns
    -------
    Solution
        Value in [0, 1]; exactly 1 if the matrix has several closed classes that never meet, 0 if n is 1.

    Raises
    ------
    NoConvergence
        If n is above ``SPECTRUM_LIMIT`` and neither iterations nor shift-invert decide.
    """
    n = matrix.shape[0]
    if n == 1 or connected_components(matrix, directed=False)[0] > 1:
        return Solution(float(n > 1), "components", 0.0)
    values = circulant_spectrum(matrix)
    if values is not None:
        k = 1 + int(np.abs(values[1:]).argmax())
        vector = np.exp(-2j * np.pi / n * (k * np.arange(n) % n))
        return _solution(matrix, values[k], vector, "circulant DFT")
    if n <= DENSE_LIMIT:
        return _densely(matrix)
    return _second_symmetric(matrix) if is_symmetric(matrix) else _second_asymmetric(matrix)


def _solution(matrix: sparse.csr_array, value: complex, vector: np.ndarray, solver: str) -> Solution:
    residual = float(np.linalg.norm(matrix @ vector - value * vector) / np.linalg.norm(vector))
    return Solution(_modulus(value, matrix.shape[0]), solver, residual)


def _modulus(value: complex, n: int) -> float:
    """Return a modulus in [0, 1]; exactly 0 where there is rounding only."""
    return 0.0 if abs(value) < n * np.finfo(float).eps else min(1.0, float(abs(value)))


def vanishes(apply: Callable[[np.ndarray], np.ndarray], vector: np.ndarray) -> bool:
    """Return whether an operator is nilpotent: a generic vector becomes rounding at once after up to log2(n) + 2 steps.

    Eigenvalues that are computed of it are not 0 but a root of the rounding error, since the one they all are is
    defective: 1e-16 to the power 1/2, 1/3, ...
    """
    rounding = len(vector) * float(np.finfo(float).eps)
    for _ in range(len(vector).bit_length() + 2):
        vector = apply(vector)
        norm = float(np.linalg.norm(vector))
        if norm < rounding:
            return True
        vector = vector / norm
    return False


def _densely(matrix: sparse.csr_array) -> Solution:
    rows = matrix if np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-9) else sparse.csr_array(matrix.T)
    if vanishes(lambda x: _centered(rows @ x), _centered(_start(matrix.shape[0]))):
        return Solution(0.0, "dense", matrix.shape[0] * float(np.finfo(float).eps))
    moduli = np.sort(np.abs(_dense_eigenvalues(matrix)))
    norm = math.sqrt(matrix.sum(axis=0).max() * matrix.sum(axis=1).max())  # at least the 2-norm
    bound = matrix.shape[0] * float(np.finfo(float).eps) * norm
    return Solution(_modulus(moduli[-2], matrix.shape[0]), "dense", bound)


def _second_symmetric(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| by Lanczos without the all-ones direction, by shift-invert where that stalls."""
    compact = _compact(matrix)
    found = _lanczos(lambda x: _centered(compact @ x), matrix.shape[0])
    if found is not None:
        return _solution(matrix, *found, "lanczos")
    columns = matrix.tocsc()
    second = _solution(matrix, *_nearest(columns, 1 + _NEAR, 2)[0], "shift-invert")
    if 2 * matrix.diagonal().min() - 1 >= -second.value:  # Gershgorin: no eigenvalue is below the left-hand side
        return second
    bottom = _solution(matrix, *_nearest(columns, -1 - _NEAR, 1)[0], "shift-invert")
    return max(second, bottom, key=lambda solution: solution.value)


def _nearest(columns: sparse.csc_array, shift: float, k: int) -> list[tuple[float, np.ndarray]]:
    """Return the k eigenvalues of a symmetric matrix nearest to `shift`, farthest first, with their vectors."""
    try:
        values, vectors = sparse_linalg.eigsh(columns, k=k, sigma=shift, v0=_start(columns.shape[0]))
    except (sparse_linalg.ArpackError, RuntimeError, MemoryError) as error:
        raise NoConvergence(f"shift-invert at {shift:g} failed: {error}") from error
    order = np.argsort(-np.abs(values - shift))
    return [(float(values[i]), vectors[:, i]) for i in order]


def _lanczos(apply: Callable[[np.ndarray], np.ndarray], n: int) -> tuple[float, np.ndarray] | None:
    """Return the eigenvalue of largest modulus of a symmetric operator on centered vectors, with its vector.

    Three-term recurrence without reorthogonalization: rounding repeats eigenvalues, but moves none of the extreme ones
    (Paige 1980), and a step costs little more than its product, which is why this is several times faster than ARPACK.
    The vector is summed in a second run of the same recurrence, so memory stays at a few vectors. None where the
    residual is above ``TOLERANCE`` after ``STEPS`` steps.
    """
    start = _centered(_start(n))
    alphas, betas = [], []
    for _, alpha, beta in _krylov(apply, start):
        alphas.append(alpha)
        betas.append(beta)
        if beta < 1e-14 or len(alphas) % 20 == 0:
            coordinates = _converged(alphas, betas)
            if coordinates is not None or beta < 1e-14 or len(alphas) >= STEPS:
                break
    else:
        coordinates = None
    if coordinates is None:
        return None
    vector = np.zeros(n)
    for coordinate, (direction, _, _) in zip(coordinates, _krylov(apply, start), strict=False):
        vector += coordinate * direction
    vector /= np.linalg.norm(vector)
    return float(vector @ apply(vector)), vector


def _krylov(apply: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> Iterator[tuple[np.ndarray, float, float]]:
    """Yield Lanczos' unit vectors, each with its diagonal and its next off-diagonal entry of the tridiagonal matrix."""
    previous, vector, beta = np.zeros_like(start), start / np.linalg.norm(start), 0.0
    while True:
        following = apply(vector)
        following -= beta * previous
        alpha = float(vector @ following)
        following -= alpha * vector
        beta = math.sqrt(following @ following)
        yield vector, alpha, beta
        following /= beta
        previous, vector = vector, following


def _converged(alphas: list[float], betas: list[float]) -> np.ndarray | None:
    """Return the tridiagonal matrix's eigenvector of largest modulus if it has converged and the other end is below."""
    k = len(alphas)
    ends = []
    for i in {0, k - 1}:
        value, vector = scipy.linalg.eigh_tridiagonal(alphas, betas[:-1], select="i", select_range=(i, i))
        ends.append((abs(float(value[0])), betas[-1] * abs(float(vector[-1, 0])), vector[:, 0]))
    (modulus, error, coordinates), *others = sorted(ends, key=lambda end: -end[0])
    if error > TOLERANCE or any(other[0] + other[1] > modulus + TOLERANCE for other in others):
        return None
    return coordinates


def _second_asymmetric(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| by Arnoldi without the eigenvalue 1, by shift-invert where that stalls."""
    rows = matrix if np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-9) else sparse.csr_array(matrix.T)
    n, compact = rows.shape[0], _compact(rows)
    # Rows sum to 1, so centering moves the eigenvalue 1 to 0 and leaves all others.
    centered = sparse_linalg.LinearOperator((n, n), matvec=lambda x: _centered(compact @ x), dtype=float)
    try:
        values, vectors = sparse_linalg.eigs(centered, k=1, v0=_centered(_start(n)), maxiter=50, ncv=100, tol=1e-12)
    except sparse_linalg.ArpackError:
        return _second_near_one(rows)
    value, vector = values[0], vectors[:, 0]
    if abs(value - 1) > 1e-12:
        vector = vector + (rows @ vector).mean() / (value - 1)  # W's own vector, which need not be centered
    return _solution(rows, value, vector, "arnoldi")


def _second_near_one(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| of a slowly mixing non-symmetric matrix from its eigenvalues nearest to 1.

    By Gershgorin's theorem all eigenvalues lie in the disc around a of radius 1 - a, a being the smallest diagonal
    entry, so ``|1 - lambda|^2 <= (1 - |lambda|^2) (1 / a - 1)``: once all eigenvalues up to a distance are known, none
    farther away can have a larger modulus than this allows. Where that decides nothing, all are computed (dense).
    """
    n, least, columns = matrix.shape[0], matrix.diagonal().min(), matrix.tocsc()
    for k in (6, 24, 96) if least > 0 else ():
        try:
            values, vectors = sparse_linalg.eigs(columns, k=k, sigma=1 + _NEAR, v0=_start(n))
        except (sparse_linalg.ArpackError, RuntimeError, MemoryError):
            continue
        second = np.argsort(np.abs(values))[-2]
        if (1 - np.abs(values[second]) ** 2) * (1 / least - 1) <= np.abs(1 - values).max() ** 2:
            return _solution(matrix, values[second], vectors[:, second], "shift-invert")
    if n <= SPECTRUM_LIMIT:
        return _densely(matrix)
    raise NoConvergence(
        f"the second eigenvalue did not converge for n={n}, and all are computed densely up to n={SPECTRUM_LIMIT} only"
    )


def smallest(matrix: sparse.csr_array) -> float:
    """Return the smallest eigenvalue of a symmetric stochastic matrix.

    Raises
    ------
    NoConvergence
        If neither Lanczos nor shift-invert find it.
    """
    values = circulant_spectrum(matrix)
    if values is not None:
        return float(np.real(values).min())
    n = matrix.shape[0]
    if n <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    compact = _compact(matrix)
    found = _lanczos(lambda x: _centered(x - compact @ x) / 2, n)  # eigenvalues (1 - lambda) / 2 in [0, 1]
    if found is not None:
        return 1 - 2 * found[0]
    return _nearest(matrix.tocsc(), -1 - _NEAR, 1)[0][0]


def sigma(matrix: sparse.csr_array) -> float:
    """Return the largest singular value of ``W - J`` (J = all entries 1/n): the worst one-step factor on disagreement.

    Only for doubly stochastic matrices is it at most 1 and a contraction towards the mean. Above ``DENSE_LIMIT`` it is
    the root of the second eigenvalue of ``W^T W``, as by :func:`second_modulus`, for doubly stochastic matrices only.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if n <= DENSE_LIMIT:
        return _modulus(scipy.linalg.svdvals(matrix.toarray() - 1.0 / n)[0], n)
    values = circulant_spectrum(matrix)
    if values is not None:
        return _modulus(np.abs(values[1:]).max(), n)  # normal, so singular values are the eigenvalues' moduli
    matrix, transpose = _compact(matrix), _compact(sparse.csr_array(matrix.T))
    found = _lanczos(lambda x: _centered(transpose @ (matrix @ x)), n)
    if found is not None:
        return math.sqrt(max(found[0], 0.0))
    (second, _), *_ = _nearest(sparse.csc_array(transpose @ matrix), 1 + _NEAR, 2)
    return math.sqrt(max(second, 0.0))


def algebraic_connectivity(adjacency: sparse.csr_array) -> float:
    """Return the second smallest eigenvalue of the combinatorial Laplacian of an undirected graph.

    0 exactly if the graph is disconnected; weights of edges are counted.
    """
    n = adjacency.shape[0]
    if n == 1 or connected_components(adjacency, directed=False)[0] > 1:
        return 0.0
    values = circulant_spectrum(adjacency)
    if values is not None:
        return float(np.real(values[0] - values[1:]).min())
    laplacian = sparse.csr_array(sparse.diags_array(adjacency.sum(axis=1)) - adjacency)
    if n <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(laplacian.toarray())[1])
    bound = 2 * float(adjacency.sum(axis=1).max())  # above all eigenvalues, by Gershgorin
    compact = _compact(laplacian)
    # Eigenvalues 1 - lambda / bound lie in [0, 1]; without the constant vector lambda_2's is the largest.
    found = _lanczos(lambda x: _centered(x - (compact @ x) / bound), n)
    if found is not None:
        return bound * (1 - found[0])
    shifted = sparse_linalg.eigsh(laplacian.tocsc(), k=2, sigma=-1e-6, return_eigenvectors=False, v0=_start(n))
    return float(np.sort(shifted)[1])


def _compact(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the matrix with 32-bit indices if it is small enough: a product takes a quarter less time."""
    if matrix.nnz > np.iinfo(np.int32).max:
        return matrix
    indices, pointers = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array((matrix.data, indices, pointers), shape=matrix.shape)


def _centered(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


def _start(n: int) -> np.ndarray:
    """Return the start vector of iterations; ARPACK's own would come from numpy's global generator."""
    return np.random.default_rng(0).standard_normal(n)
