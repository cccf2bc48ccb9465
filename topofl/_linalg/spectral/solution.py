"""The result of an eigenvalue solver: its value, the solver and the residual."""

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.nilpotent import DENOMINATOR

__all__ = ["PROVABLE", "NoConvergence", "Solution", "clipped_modulus", "rounding_of", "solution_of"]

PROVABLE = (
    "exact averaging is proven for weights that are fractions with denominators "
    f"up to {DENOMINATOR:,}"
)
"""Remedy where 0 and a small eigenvalue cannot be distinguished."""


class NoConvergence(ValueError):
    """No eigenvalue was found to the guaranteed precision."""


@dataclass(frozen=True)
class Solution:
    """An eigenvalue or its modulus, with the solver that found it and the residual.

    Parameters
    ----------
    value
        The eigenvalue or modulus.
    solver
        ``"components"``: exact, from the connected components alone; ``"circulant DFT"``: closed
        form, the discrete Fourier transform of the first row; ``"dense"``: LAPACK; ``"lanczos"``
        (symmetric) and ``"arnoldi"``: iterations that only multiply by the sparse matrix;
        ``"shift-invert"``: a sparse factorization of ``W - s I``, s close to 1 or -1;
        ``"fractions"``: 0, since W averages exactly after some rounds, which is proven without
        rounding; ``"equal rows"``: 0, since repeatedly merging nodes with equal rows leaves a
        single node.
    residual
        ``||W x - lambda x|| / ||x||`` for the computed eigenvector x, in the 2-norm. For
        ``"dense"``, which computes no vectors, it is the bound ``n eps ||W||`` on LAPACK's backward
        error. For symmetric and for circulant W an eigenvalue lies within this distance of the
        returned one (if several do, any of them may be meant); for other W the returned value is an
        eigenvalue of a matrix that differs from W by this much. For column-stochastic W it is the
        residual of the transpose. If the graph has several strongly connected classes, W is the
        diagonal block of the class whose eigenvalue was returned; if nodes have equal rows (more
        than 1,500 nodes, not symmetric), W is the matrix in which they are merged. NaN for the root
        of an eigenvalue of a product of several rounds.

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


def solution_of(
    matrix: sparse.csr_array, value: complex, vector: np.ndarray, solver: str
) -> Solution:
    """Return the modulus of an eigenvalue as a Solution, with the residual of its eigenvector."""
    residual = float(np.linalg.norm(matrix @ vector - value * vector) / np.linalg.norm(vector))
    return Solution(clipped_modulus(value, matrix.shape[0]), solver, residual)


def clipped_modulus(value: complex, n: int) -> float:
    """Return the modulus, clipped to [0, 1] and exactly 0 below rounding."""
    return 0.0 if abs(value) < n * np.finfo(float).eps else min(1.0, float(abs(value)))


def rounding_of(matrix: np.ndarray | sparse.csr_array) -> float:
    """Return the bound ``n eps ||W||`` on LAPACK's backward error of a non-negative matrix."""
    norm = math.sqrt(matrix.sum(axis=0).max() * matrix.sum(axis=1).max())  # at least the 2-norm
    return matrix.shape[0] * float(np.finfo(float).eps) * norm
