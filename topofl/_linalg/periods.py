"""Averaging rate of a periodic sequence of matrices, from the spectrum of their product."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._linalg.nilpotent import (
    averages_exactly,
    collapses,
    dense_spectrum,
    merged,
    without_zeros,
)
from topofl._linalg.spectral import PROVABLE, Blocks, NoConvergence, Solution, limits
from topofl._support.vectors import centered, start_vector

__all__ = ["second_modulus_per_round"]

RESTARTS = 500
"""Restarts after which Arnoldi's method gives up."""

LOST = 1e-10
"""Threshold below which a factor on disagreement is rounding.

It applies to the factor of a single round and to the largest modulus of the scaled product.
"""

Operator = Callable[[np.ndarray], np.ndarray]


def second_modulus_per_round(factors: Sequence[sparse.csr_array]) -> float:
    """Return ``|lambda_2|^(1/p)`` of the product of p row-stochastic matrices.

    Raises
    ------
    NoConvergence
        If a class of nodes is too large for a dense decomposition and the iterations do not
        converge.
    """
    exact = _modulus_of_circulants(factors)
    return spectral.over_classes(factors, _largest, _second).value if exact is None else exact


def _modulus_of_circulants(factors: Sequence[sparse.csr_array]) -> float | None:
    """Return ``|lambda_2|^(1/p)`` of p circulants of any size, or None if one is not circulant.

    Circulants commute, so their eigenvalues multiply.
    """
    logs = np.zeros(factors[0].shape[0] - 1)
    for factor in factors:
        values = spectral.circulant_spectrum(factor)
        if values is None:
            return None
        moduli = np.abs(values[1:])
        rounding = (
            factor.shape[0] * np.finfo(float).eps
        )  # a valid bound, since circulants are normal
        with np.errstate(divide="ignore"):
            logs += np.log(np.where(moduli < rounding, 0.0, moduli))
    return float(min(1.0, np.exp(logs.max(initial=-np.inf) / len(factors))))


def _largest(blocks: Blocks) -> Solution:
    """Return the largest modulus per round of a class that is not closed."""
    n = blocks[0].shape[1]
    cycle, log, _ = _scaled(blocks, np.ones(n), _unchanged)
    return _rooted(_largest_modulus(cycle, n, "LR"), log, blocks)


def _second(blocks: Blocks) -> Solution:
    """Return the second largest modulus per round of the closed class."""
    nodes = blocks[0].shape[1]
    if nodes == 1:
        return Solution(0.0, "components", 0.0)
    if averages_exactly(blocks):
        return Solution(0.0, "fractions", 0.0)
    if nodes > limits.DENSE_LIMIT:
        blocks = merged(blocks)
    n = blocks[0].shape[1]
    if n == 1:
        return Solution(0.0, "equal rows", 0.0)
    start = start_vector(n)
    cycle, log, smallest = _scaled(blocks, start, centered)
    modulus = (
        0.0
        if smallest < LOST
        else _largest_modulus(cycle, n, "LM", float(np.finfo(float).eps) / smallest)
    )
    found = _rooted(modulus, log, blocks)
    # Iterations return nonzero numbers where rounding has moved zeros of a defective product;
    # dense_spectrum deflates these zeros.
    is_suspect = n > limits.DENSE_LIMIT and found.value < limits.SUSPECT and collapses(blocks)
    return _below_rounding(blocks, nodes) if modulus < LOST or is_suspect else found


def _scaled(blocks: Blocks, start: np.ndarray, project: Operator) -> tuple[Operator, float, float]:
    """Return the scaled product as an operator, the log of its scale and the smallest factor.

    Each factor is divided by its effect on the norm of `start`; these effects multiply to the
    scale.
    """
    values = project(start)
    values = values / np.linalg.norm(values)
    scales = []
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
    """Return the largest eigenvalue modulus of an operator; `which` is that of scipy's ``eigs``."""
    if n <= limits.DENSE_LIMIT:
        return float(np.abs(dense_spectrum(cycle(np.eye(n)), noise)).max())
    operator = sparse_linalg.LinearOperator((n, n), matvec=cycle, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    start = start_vector(n)
    try:
        values = sparse_linalg.eigs(
            operator,
            k=1,
            which=which,
            return_eigenvectors=False,
            v0=start,
            ncv=40,
            maxiter=RESTARTS,
        )
    except sparse_linalg.ArpackError as error:
        raise NoConvergence(
            f"the second eigenvalue of this period did not converge for n={n}"
        ) from error
    return float(np.abs(values[0]))


def _rooted(modulus: float, log: float, blocks: Blocks) -> Solution:
    """Return the p-th root of a modulus times ``exp(log)``, for a period of p blocks."""
    with np.errstate(divide="ignore"):
        value = float(min(1.0, np.exp((np.log(modulus) + log) / len(blocks))))
    return Solution(
        value, "dense" if blocks[0].shape[1] <= limits.DENSE_LIMIT else "arnoldi", math.nan
    )


def _below_rounding(blocks: Blocks, nodes: int) -> Solution:
    """Return the modulus per round where the product is below rounding, without multiplying it out.

    Nodes with equal rows are merged, then directions that a single factor maps to 0 are removed.
    The rest is decided by the matrix that acts on all rounds at once: the p-th powers of its
    eigenvalues are the eigenvalues of the product.
    """
    blocks = merged(blocks)
    if min(block.shape[0] for block in blocks) == 1:
        return Solution(0.0, "equal rows", 0.0)
    if sum(block.shape[0] * block.shape[1] for block in blocks) <= limits.SPECTRUM_LIMIT**2:
        factors = without_zeros([_on_disagreement(block.toarray()) for block in blocks])
        if sum(map(len, factors)) <= limits.SPECTRUM_LIMIT:
            return Solution(_largest_root(factors), "dense", math.nan)
    raise NoConvergence(
        "the second eigenvalue of this period is 0 or below rounding, which cannot be "
        f"distinguished for n={nodes}; {PROVABLE}"
    )


def _on_disagreement(matrix: np.ndarray) -> np.ndarray:
    """Return the action of a matrix with row sums 1 on disagreement, without its eigenvalue 1.

    It is written in orthonormal bases of the vectors with mean 0: all columns but the first of the
    reflection that maps the constant unit vector to the first axis.
    """
    return _without_mean(_without_mean(matrix).T).T


def _without_mean(matrix: np.ndarray) -> np.ndarray:
    """Return the (m, n - 1) coordinates of (m, n) rows in a basis of the vectors with mean 0."""
    n = matrix.shape[1]
    normal = np.full(n, 1 / math.sqrt(n))
    normal[0] += 1
    return (matrix - np.outer(matrix @ normal, 2 * normal / (normal @ normal)))[:, 1:]


def _largest_root(factors: list[np.ndarray]) -> float:
    """Return the p-th root of the largest modulus of a product of p square matrices.

    The product itself is never formed.
    """
    p, n = len(factors), len(factors[0])
    if n == 0:
        return 0.0
    embedding = np.zeros((p, n, p, n))
    for t, factor in enumerate(factors):
        embedding[(t + 1) % p, :, t] = factor
    return float(min(1.0, np.abs(np.linalg.eigvals(embedding.reshape(p * n, p * n))).max()))


def _unchanged(values: np.ndarray) -> np.ndarray:
    """Return the values: the projection for classes that are not closed."""
    return values
