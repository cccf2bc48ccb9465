"""The rate at which a period of different matrices averages: the spectrum of its product, class by class."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl import _spectral
from topofl._nilpotent import averages_exactly, dense_spectrum
from topofl._spectral import Blocks, NoConvergence, Solution

__all__ = ["second_modulus_per_round"]

RESTARTS = 500
"""Restarts of Arnoldi's method before it is given up."""

LOST = 1e-10
"""What shrinks disagreement in one round, or all but the largest eigenvalue, by more than this, is lost in rounding."""

Operator = Callable[[np.ndarray], np.ndarray]


def second_modulus_per_round(factors: Sequence[sparse.csr_array]) -> float:
    """Return ``|lambda_2|^(1/p)`` of the product of p row-stochastic matrices, first to act first.

    Raises
    ------
    NoConvergence
        If a class of nodes is too large to be decomposed densely and iterations do not decide.
    """
    closed = _of_circulants(factors)
    return _spectral.over_classes(factors, _largest, _second).value if closed is None else closed


def _of_circulants(factors: Sequence[sparse.csr_array]) -> float | None:
    """Return the same of circulants of any size, None if one is not: they commute, so their eigenvalues multiply."""
    logs = np.zeros(factors[0].shape[0] - 1)
    for factor in factors:
        values = _spectral.circulant_spectrum(factor)
        if values is None:
            return None
        moduli = np.abs(values[1:])
        rounding = factor.shape[0] * np.finfo(float).eps  # circulants are normal
        with np.errstate(divide="ignore"):
            logs += np.log(np.where(moduli < rounding, 0.0, moduli))
    return float(min(1.0, np.exp(logs.max(initial=-np.inf) / len(factors))))


def _largest(blocks: Blocks) -> Solution:
    """Return the largest modulus per round of a class that is not closed."""
    n = blocks[0].shape[1]
    cycle, log, _ = _scaled(blocks, np.ones(n), _unchanged)
    return _rooted(_largest_modulus(cycle, n, "LR"), log, len(blocks))


def _second(blocks: Blocks) -> Solution:
    """Return the second largest modulus per round of the closed class: the largest on disagreement."""
    n = blocks[0].shape[1]
    if n == 1 or averages_exactly(blocks):
        return Solution(0.0, "fractions", 0.0)
    start = np.random.default_rng(0).standard_normal(n)
    cycle, log, least = _scaled(blocks, start, _centered)
    modulus = 0.0 if least < LOST else _largest_modulus(cycle, n, "LM", float(np.finfo(float).eps) / least)
    return _of_embedding(blocks) if modulus < LOST else _rooted(modulus, log, len(blocks))


def _scaled(blocks: Blocks, start: np.ndarray, project: Operator) -> tuple[Operator, float, float]:
    """Return the product as an operator, each factor divided by its effect on `start`; the sum of logs; the least."""
    values = project(start)
    values, scales = values / np.linalg.norm(values), []
    for block in blocks:
        values = project(block @ values)
        scales.append(float(np.linalg.norm(values)) or 1.0)
        values = values / scales[-1]

    def cycle(values: np.ndarray) -> np.ndarray:
        values = values.reshape(len(start), -1)
        for block, scale in zip(blocks, scales, strict=True):
            values = project(block @ values) / scale
        return values

    return cycle, float(np.log(scales).sum()), min(scales)


def _largest_modulus(cycle: Operator, n: int, which: str, noise: float = 0.0) -> float:
    if n <= _spectral.DENSE_LIMIT:
        return float(np.abs(dense_spectrum(cycle(np.eye(n)), noise)).max())
    operator = sparse_linalg.LinearOperator((n, n), matvec=cycle, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    start = np.random.default_rng(0).standard_normal(n)
    try:
        values = sparse_linalg.eigs(
            operator, k=1, which=which, return_eigenvectors=False, v0=start, ncv=40, maxiter=RESTARTS
        )
    except sparse_linalg.ArpackError as error:
        raise NoConvergence(f"the second eigenvalue of this period did not converge for n={n}") from error
    return float(np.abs(values[0]))


def _rooted(modulus: float, log: float, p: int) -> Solution:
    """Return the p-th root of a modulus times the exponential of `log`."""
    with np.errstate(divide="ignore"):
        return Solution(float(min(1.0, np.exp((np.log(modulus) + log) / p))), "dense", 0.0)


def _of_embedding(blocks: Blocks) -> Solution:
    """Return the same where the product is below rounding, from the matrix that acts on all rounds at once.

    The p-th powers of its eigenvalues are those of the product, so that a small one is not multiplied out.
    """
    sizes = [block.shape[1] for block in blocks]
    if sum(sizes) > _spectral.DENSE_LIMIT:
        raise NoConvergence(
            f"the second eigenvalue of this period is below rounding or 0, which cannot be told apart for n={sizes[0]}"
        )
    p = len(blocks)
    rows = [[blocks[(t - 1) % p] if s == (t - 1) % p else sparse.csr_array((sizes[t], sizes[s])) for s in range(p)]
            for t in range(p)]  # fmt: skip
    moduli = np.sort(np.abs(dense_spectrum(sparse.block_array(rows).toarray())))
    return Solution(float(min(1.0, moduli[-p - 1])), "dense", 0.0)


def _unchanged(values: np.ndarray) -> np.ndarray:
    return values


def _centered(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=0)
