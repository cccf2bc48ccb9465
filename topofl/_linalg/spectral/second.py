"""Second largest eigenvalue modulus of a stochastic matrix, class by class."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl._linalg.classes import Classes, blocks_of, classes_of, stacks
from topofl._linalg.nilpotent import averages_exactly, merged
from topofl._linalg.spectral import asymmetric, limits, symmetric
from topofl._linalg.spectral.full_spectrum import (
    STACKED,
    circulant_spectrum,
    dense_eigenvalues,
    second_of_all,
    second_of_all_or_raise,
)
from topofl._linalg.spectral.operators import compact
from topofl._linalg.spectral.solution import (
    PROVABLE,
    NoConvergence,
    Solution,
    rounding_of,
    solution_of,
)
from topofl._support.check import is_symmetric
from topofl._support.vectors import centered

__all__ = ["Blocks", "over_classes", "second_modulus"]

Blocks: TypeAlias = list[sparse.csr_array]
"""Blocks of one class over a period, as returned by :func:`topofl._linalg.classes.blocks_of`."""


def second_modulus(matrix: sparse.csr_array) -> Solution:
    """Return the second largest eigenvalue modulus of a stochastic matrix, with its solver.

    The largest is 1.

    Parameters
    ----------
    matrix
        (n, n), row- or column-stochastic.

    Returns
    -------
    Solution
        Value in [0, 1]; exactly 1 if the matrix has several closed classes, 0 if n is 1.

    Raises
    ------
    NoConvergence
        If n is above ``SPECTRUM_LIMIT`` and neither iterations nor shift-invert converge.
    """
    n = matrix.shape[0]
    if n == 1 or connected_components(matrix, directed=False)[0] > 1:
        return Solution(float(n > 1), "components", 0.0)
    values = circulant_spectrum(matrix)
    if values is not None:
        k = 1 + int(np.abs(values[1:]).argmax())
        vector = np.exp(-2j * np.pi / n * (k * np.arange(n) % n))
        return solution_of(matrix, values[k], vector, "circulant DFT")
    if is_symmetric(matrix):
        return second_of_all(matrix) if n <= limits.DENSE_LIMIT else _second_symmetric(matrix)
    return over_classes([_as_rows(matrix)], _largest_of_class, _second_of_class)


def _as_rows(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the stochastic matrix or its transpose, whichever has rows that sum to 1."""
    return (
        matrix
        if np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-9)
        else sparse.csr_array(matrix.T)
    )


def over_classes(
    factors: Sequence[sparse.csr_array],
    largest: Callable[[Blocks], Solution],
    second: Callable[[Blocks], Solution],
) -> Solution:
    """Return ``|lambda_2|^(1/p)`` of a product of p row-stochastic matrices, class by class.

    The closed class, whose rows sum to 1, contributes its second largest modulus, and every other
    class its largest.

    Parameters
    ----------
    factors
        p matrices (n, n), in order of application.
    largest, second
        Functions that return the largest and the second largest modulus per round of a class, given
        its blocks.

    Returns
    -------
    Solution
        The value is exactly 1 if there are several closed classes.
    """
    classes = classes_of(factors)
    closed = np.flatnonzero(classes.is_closed)
    if len(closed) > 1:
        return Solution(1.0, "components", 0.0)
    is_open = classes.is_cyclic & ~classes.is_closed
    found = list(
        _largest_of_small(factors, classes, np.flatnonzero(is_open & (classes.orders <= STACKED)))
    )
    for label in np.flatnonzero(is_open & (classes.orders > STACKED)):
        found.append(largest(blocks_of(factors, classes, int(label))))
    is_whole = len(classes.sizes) == 1
    found.append(second(list(factors) if is_whole else blocks_of(factors, classes, int(closed[0]))))
    return max(found, key=lambda solution: solution.value)


def _largest_of_small(
    factors: Sequence[sparse.csr_array], classes: Classes, chosen: np.ndarray
) -> Iterator[Solution]:
    """Yield the largest modulus per round among the classes of each stack."""
    for _, products, logs in stacks(factors, classes, chosen):
        with np.errstate(divide="ignore"):
            values = np.exp(
                (np.log(np.abs(np.linalg.eigvals(products)).max(axis=1)) + logs) / len(factors)
            )
        k = int(values.argmax())
        residual = rounding_of(products[k]) * math.exp(logs[k]) if len(factors) == 1 else math.nan
        yield Solution(min(1.0, float(values[k])), "dense", residual)


def _largest_of_class(blocks: Blocks) -> Solution:
    """Return the largest modulus of an irreducible block, its Perron eigenvalue."""
    (block,) = blocks
    if block.shape[0] <= limits.DENSE_LIMIT:
        return Solution(
            min(1.0, float(np.abs(dense_eigenvalues(block)).max())), "dense", rounding_of(block)
        )
    start = np.ones(block.shape[0])
    packed = compact(block)
    try:
        values, vectors = sparse_linalg.eigs(
            packed, k=1, which="LR", v0=start, maxiter=50, ncv=100, tol=1e-12
        )
        return solution_of(block, values[0].real, vectors[:, 0], "arnoldi")
    except sparse_linalg.ArpackError:
        pass
    try:  # the Perron eigenvalue is the one nearest to any real number above it
        values, vectors = sparse_linalg.eigs(block.tocsc(), k=1, sigma=1 + limits.NEAR, v0=start)
    except (sparse_linalg.ArpackError, RuntimeError, MemoryError) as error:
        raise NoConvergence(
            f"the largest eigenvalue of {block.shape[0]} nodes did not converge: {error}"
        ) from error
    return solution_of(block, values[0].real, vectors[:, 0], "shift-invert")


def _second_of_class(blocks: Blocks) -> Solution:
    """Return the second largest modulus of an irreducible row-stochastic matrix."""
    (block,) = blocks
    n = block.shape[0]
    if n == 1:
        return Solution(0.0, "components", 0.0)
    if circulant_spectrum(block) is not None or is_symmetric(block):
        return second_modulus(block)
    return second_of_all(block) if n <= limits.DENSE_LIMIT else _second_asymmetric(block)


def _second_symmetric(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| of a symmetric matrix by Lanczos iterations on centered vectors.

    If these stall, shift-invert finds it.
    """
    packed = compact(matrix)
    found = symmetric.lanczos(lambda x: centered(packed @ x), matrix.shape[0])
    if found is not None:
        return solution_of(matrix, *found, "lanczos")
    columns = matrix.tocsc()
    second = solution_of(matrix, *symmetric.nearest(columns, 1 + limits.NEAR, 2)[0], "shift-invert")
    lower_bound = 2 * matrix.diagonal().min() - 1  # on all eigenvalues, by Gershgorin
    if lower_bound >= -second.value:
        return second
    bottom = solution_of(
        matrix, *symmetric.nearest(columns, -1 - limits.NEAR, 1)[0], "shift-invert"
    )
    return max(second, bottom, key=lambda solution: solution.value)


def _second_asymmetric(rows: sparse.csr_array) -> Solution:
    """Return |lambda_2| by Arnoldi iterations on disagreement, or by shift-invert if they stall."""
    n = rows.shape[0]
    packed = compact(rows)
    if averages_exactly([packed]):
        return Solution(0.0, "fractions", 0.0)
    (smaller,) = merged([rows])
    if smaller.shape[0] == 1:
        return Solution(0.0, "equal rows", 0.0)
    if smaller.shape[0] < n:
        return _second_of_class([smaller])
    found = asymmetric.arnoldi(packed)
    if found is None:
        return asymmetric.second_near_one(rows)
    value, vector = found
    if abs(value) < limits.SUSPECT and asymmetric.is_defective(packed, value, vector):
        return second_of_all_or_raise(
            rows, f"is too small to be distinguished from a 0 perturbed by rounding; {PROVABLE}"
        )
    if abs(value - 1) > 1e-12:
        # The eigenvector of W itself, which need not be centered.
        vector = vector + (rows @ vector).mean() / (value - 1)
    return solution_of(rows, value, vector, "arnoldi")
