"""Extreme eigenvalues of large symmetric matrices: Lanczos iterations and shift-invert."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg.spectral import limits
from topofl._linalg.spectral.solution import NoConvergence
from topofl._support.vectors import centered, start_vector

__all__ = ["lanczos", "nearest"]


def nearest(columns: sparse.csc_array, shift: float, k: int) -> list[tuple[float, np.ndarray]]:
    """Return the k eigenpairs of a symmetric matrix nearest to `shift`, farthest first."""
    try:
        values, vectors = sparse_linalg.eigsh(
            columns, k=k, sigma=shift, v0=start_vector(columns.shape[0])
        )
    except (sparse_linalg.ArpackError, RuntimeError, MemoryError) as error:
        raise NoConvergence(f"shift-invert at {shift:g} failed: {error}") from error
    order = np.argsort(-np.abs(values - shift))
    return [(float(values[i]), vectors[:, i]) for i in order]


def lanczos(apply: Callable[[np.ndarray], np.ndarray], n: int) -> tuple[float, np.ndarray] | None:
    """Return the eigenpair of largest modulus of a symmetric operator on centered vectors.

    This is the three-term recurrence without reorthogonalization: rounding repeats eigenvalues but
    does not move extreme ones (Paige 1980). A step costs little more than its product, so it is
    several times faster than ARPACK. The eigenvector is accumulated in a second run of the same
    recurrence, which takes the memory of a few vectors only. Returns None if the residual is above
    ``TOLERANCE`` after ``STEPS`` steps.
    """
    start = centered(start_vector(n))
    alphas: list[float] = []
    betas: list[float] = []
    for _, alpha, beta in _krylov(apply, start):
        alphas.append(alpha)
        betas.append(beta)
        if beta < 1e-14 or len(alphas) % 20 == 0:
            coordinates = _converged(alphas, betas)
            if coordinates is not None or beta < 1e-14 or len(alphas) >= limits.STEPS:
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


def _krylov(
    apply: Callable[[np.ndarray], np.ndarray], start: np.ndarray
) -> Iterator[tuple[np.ndarray, float, float]]:
    """Yield the Lanczos vectors, each with two entries of the tridiagonal matrix.

    These are its diagonal entry and the off-diagonal entry after it.
    """
    previous = np.zeros_like(start)
    vector = start / np.linalg.norm(start)
    beta = 0.0
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
    """Return the eigenvector of largest modulus of the tridiagonal matrix, or None.

    It is returned once it has converged and the other end of the spectrum is not larger in
    modulus, up to the tolerance.
    """
    k = len(alphas)
    ends = []
    for i in {0, k - 1}:
        value, vector = scipy.linalg.eigh_tridiagonal(
            alphas, betas[:-1], select="i", select_range=(i, i)
        )
        ends.append((abs(float(value[0])), betas[-1] * abs(float(vector[-1, 0])), vector[:, 0]))
    (modulus, error, coordinates), *others = sorted(ends, key=lambda end: -end[0])
    if error > limits.TOLERANCE or any(
        other[0] + other[1] > modulus + limits.TOLERANCE for other in others
    ):
        return None
    return coordinates
