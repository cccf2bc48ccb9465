"""Second eigenvalue of large asymmetric matrices: Arnoldi iterations and shift-invert."""

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg.nilpotent import decay_rate
from topofl._linalg.spectral import limits
from topofl._linalg.spectral.full_spectrum import second_of_all_or_raise
from topofl._linalg.spectral.operators import shifted_inverse
from topofl._linalg.spectral.solution import Solution, solution_of
from topofl._support.vectors import centered, start_vector

__all__ = ["FAST", "SAME", "arnoldi", "is_defective", "second_near_one"]

FAST = 0.9
"""Decay rate below which Arnoldi's method gets more restarts before shift-invert."""


SAME = 1e-6
"""Relative difference up to which eigenvalues of a matrix and of its transpose are matched."""


def arnoldi(rows: sparse.csr_array) -> tuple[complex, np.ndarray] | None:
    """Return the eigenpair of largest modulus on disagreement, or None if the iterations stall.

    On random directed graphs many eigenvalues have almost the second largest modulus. Iterations
    for a single eigenvalue may converge to a slightly smaller one; this is far less likely for six
    at once. If these stall, a looser tolerance and more restarts are tried if the weights mix fast,
    and a single eigenvalue if they mix slowly.
    """
    n = rows.shape[0]
    # Rows sum to 1, so centering moves the eigenvalue 1 to 0 and does not change the others.
    operator = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda x: centered(rows @ x), dtype=float
    )
    start = centered(start_vector(n))
    retry = (6, 200, limits.TOLERANCE) if decay_rate(rows) < FAST else (1, 50, 1e-12)
    for k, restarts, tolerance in ((6, 50, 1e-12), retry):
        try:
            values, vectors = sparse_linalg.eigs(
                operator, k=k, v0=start, maxiter=restarts, ncv=100, tol=tolerance
            )
        except sparse_linalg.ArpackError:
            continue
        largest = int(np.abs(values).argmax())
        return values[largest], vectors[:, largest]
    return None


def is_defective(rows: sparse.csr_array, value: complex, vector: np.ndarray) -> bool:
    """Return whether an eigenvalue may be a perturbed 0 of a defective matrix.

    It may be if a perturbation of W by rounding moves it by about its own modulus. A relative
    perturbation of eps moves an eigenvalue with right and left eigenvectors x and y by up to ``eps
    ||W|| / |y^H x|``. For a simple eigenvalue this is negligible; for one of the k values into
    which rounding splits a k-fold 0 it is about 1/k of the value itself. If no left eigenvector is
    found, the decay of disagreement decides.
    """
    left = _left_vector(rows, value)
    if left is None:
        return not 0.8 < decay_rate(rows) / abs(value) < 1.25
    rounding = rows.shape[0] * float(np.finfo(float).eps) * float(sparse_linalg.norm(rows, 1))
    return rounding > 0.01 * abs(value) * abs(np.vdot(left, vector)) / np.linalg.norm(vector)


def _left_vector(rows: sparse.csr_array, value: complex) -> np.ndarray | None:
    """Return the left unit eigenvector y, ``y^H W = value y^H``, on disagreement.

    Returns None if the iterations do not find this eigenvalue.
    """
    n = rows.shape[0]
    columns = sparse.csr_array(rows.T)
    adjoint = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda y: columns @ centered(y), dtype=float
    )
    try:
        values, vectors = sparse_linalg.eigs(
            adjoint, k=2, v0=centered(start_vector(n)), maxiter=50, ncv=100, tol=1e-12
        )
    except sparse_linalg.ArpackNoConvergence as partial:
        values, vectors = partial.eigenvalues, partial.eigenvectors
    except sparse_linalg.ArpackError:
        return None
    # W is real, so conjugates of eigenpairs of its transpose are eigenpairs too.
    values = np.concatenate([values, values.conj()])
    vectors = np.concatenate([vectors, vectors.conj()], axis=1)
    errors = np.abs(values - np.conj(value))
    found = len(errors) > 0 and errors.min() <= SAME * abs(value)
    return vectors[:, errors.argmin()] if found else None


def second_near_one(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| of a slowly mixing asymmetric matrix from its eigenvalues nearest to 1.

    By Gershgorin's theorem all eigenvalues lie in the disc with center a and radius 1 - a, where a
    is the smallest diagonal entry, so ``|1 - lambda|^2 <= (1 - |lambda|^2) (1 / a - 1)``: once all
    eigenvalues within some distance of 1 are known, this bounds the modulus of those farther away.
    If the bound does not decide, all eigenvalues are computed densely.
    """
    n = matrix.shape[0]
    smallest_diagonal = matrix.diagonal().min()
    columns = matrix.tocsc()
    inverse = shifted_inverse(columns, 1 + limits.NEAR) if smallest_diagonal > 0 else None
    for k in (6, 24, 96) if inverse is not None else ():
        try:
            values, vectors = sparse_linalg.eigs(
                columns, k=k, sigma=1 + limits.NEAR, OPinv=inverse, v0=start_vector(n)
            )
        except (sparse_linalg.ArpackError, MemoryError):
            continue
        second = np.argsort(np.abs(values))[-2]
        bound = (1 - np.abs(values[second]) ** 2) * (1 / smallest_diagonal - 1)
        if bound <= np.abs(1 - values).max() ** 2:
            return solution_of(matrix, values[second], vectors[:, second], "shift-invert")
    return second_of_all_or_raise(matrix, "did not converge")
