"""The second largest eigenvalue modulus of a stochastic matrix, or of a period of matrices."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl._linalg import nilpotent, spectral
from topofl._linalg.sparse import centered, is_symmetric, operator_of, start_vector
from topofl._linalg.spectral import (
    NoConvergence,
    Solution,
    blocks_of,
    circulant_spectrum,
    solution_of,
)

Blocks: TypeAlias = list[sparse.csr_array]
"""Blocks of one class over a period, as returned by :func:`topofl._linalg.spectral.blocks_of`."""


_eigs = partial(sparse_linalg.eigs, maxiter=50, ncv=100, tol=1e-12)


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
    if is_symmetric(matrix) and n > spectral.DENSE_LIMIT:
        return _second_symmetric(matrix)
    if is_symmetric(matrix):
        return spectral.second_of_all(matrix)
    is_pulled = np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-9)
    rows = matrix if is_pulled else sparse.csr_array(matrix.T)
    return over_classes([rows], _largest_of_class, _second_of_class)


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
    classes = spectral.classes_of(factors)
    closed = np.flatnonzero(classes.is_closed)
    if len(closed) > 1:
        return Solution(1.0, "components", 0.0)
    is_open = classes.is_cyclic & ~classes.is_closed
    small = np.flatnonzero(is_open & (classes.orders <= spectral.STACKED))
    found = list(_largest_of_small(factors, classes, small))
    for label in np.flatnonzero(is_open & (classes.orders > spectral.STACKED)):
        found.append(largest(blocks_of(factors, classes, int(label))))
    is_whole = len(classes.sizes) == 1
    found.append(second(list(factors) if is_whole else blocks_of(factors, classes, int(closed[0]))))
    return max(found, key=lambda solution: solution.value)


def _largest_of_small(
    factors: Sequence[sparse.csr_array], classes: spectral.Classes, chosen: np.ndarray
) -> Iterator[Solution]:
    """Yield the largest modulus per round among the classes of each stack."""
    for _, products, logs in spectral.stacks(factors, classes, chosen):
        moduli = np.abs(np.linalg.eigvals(products)).max(axis=1)
        with np.errstate(divide="ignore"):
            values = np.exp((np.log(moduli) + logs) / len(factors))
        k = int(values.argmax())
        residual = math.nan
        if len(factors) == 1:
            residual = spectral.rounding_of(products[k]) * math.exp(logs[k])
        yield Solution(min(1.0, float(values[k])), "dense", residual)


def _largest_of_class(blocks: Blocks) -> Solution:
    """Return the largest modulus of an irreducible block, its Perron eigenvalue."""
    (block,) = blocks
    if block.shape[0] <= spectral.DENSE_LIMIT:
        largest = float(np.abs(spectral.dense_eigenvalues(block)).max())
        return Solution(min(1.0, largest), "dense", spectral.rounding_of(block))
    start = np.ones(block.shape[0])
    packed = spectral.compact(block)
    try:
        values, vectors = _eigs(packed, k=1, which="LR", v0=start)
        return solution_of(block, values[0].real, vectors[:, 0], "arnoldi")
    except sparse_linalg.ArpackError:
        pass
    try:  # the Perron eigenvalue is the one nearest to any real number above it
        values, vectors = sparse_linalg.eigs(block.tocsc(), k=1, sigma=1 + spectral.NEAR, v0=start)
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
    return spectral.second_of_all(block) if n <= spectral.DENSE_LIMIT else _second_asymmetric(block)


def _second_symmetric(matrix: sparse.csr_array) -> Solution:
    """Return |lambda_2| of a symmetric matrix by Lanczos iterations on centered vectors.

    If these stall, shift-invert finds it.
    """
    packed = spectral.compact(matrix)
    found = spectral.lanczos(lambda x: centered(packed @ x), matrix.shape[0])
    if found is not None:
        return solution_of(matrix, *found, "lanczos")
    columns = matrix.tocsc()
    found = spectral.nearest(columns, 1 + spectral.NEAR, 2)[0]
    second = solution_of(matrix, *found, "shift-invert")
    lower_bound = 2 * matrix.diagonal().min() - 1  # on all eigenvalues, by Gershgorin
    if lower_bound >= -second.value:
        return second
    found = spectral.nearest(columns, -1 - spectral.NEAR, 1)[0]
    bottom = solution_of(matrix, *found, "shift-invert")
    return max(second, bottom, key=lambda solution: solution.value)


def _second_asymmetric(rows: sparse.csr_array) -> Solution:
    """Return |lambda_2| by Arnoldi iterations on disagreement, or by shift-invert if they stall."""
    n = rows.shape[0]
    packed = spectral.compact(rows)
    if nilpotent.averages_exactly([packed]):
        return Solution(0.0, "fractions", 0.0)
    (smaller,) = nilpotent.merged([rows])
    if smaller.shape[0] == 1:
        return Solution(0.0, "equal rows", 0.0)
    if smaller.shape[0] < n:
        return _second_of_class([smaller])
    found = arnoldi(packed)
    if found is None:
        return second_near_one(rows)
    value, vector = found
    if abs(value) < spectral.SUSPECT and is_defective(packed, value, vector):
        return spectral.second_of_all(
            rows,
            f"is too small to be distinguished from a 0 perturbed by rounding; {spectral.PROVABLE}",
        )
    if abs(value - 1) > 1e-12:
        # The eigenvector of W itself, which need not be centered.
        vector = vector + (rows @ vector).mean() / (value - 1)
    return solution_of(rows, value, vector, "arnoldi")


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
    operator = operator_of(lambda x: centered(rows @ x), n)
    start = centered(start_vector(n))
    retry = (6, 200, spectral.TOLERANCE) if nilpotent.decay_rate(rows) < FAST else (1, 50, 1e-12)
    for k, restarts, tolerance in ((6, 50, 1e-12), retry):
        try:
            values, vectors = _eigs(operator, k=k, v0=start, maxiter=restarts, tol=tolerance)
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
        return not 0.8 < nilpotent.decay_rate(rows) / abs(value) < 1.25
    rounding = rows.shape[0] * float(np.finfo(float).eps) * float(sparse_linalg.norm(rows, 1))
    return rounding > 0.01 * abs(value) * abs(np.vdot(left, vector)) / np.linalg.norm(vector)


def _left_vector(rows: sparse.csr_array, value: complex) -> np.ndarray | None:
    """Return the left unit eigenvector y, ``y^H W = value y^H``, on disagreement.

    Returns None if the iterations do not find this eigenvalue.
    """
    n = rows.shape[0]
    columns = sparse.csr_array(rows.T)
    adjoint = operator_of(lambda y: columns @ centered(y), n)
    try:
        values, vectors = _eigs(adjoint, k=2, v0=centered(start_vector(n)))
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
    least = matrix.diagonal().min()
    columns = matrix.tocsc()
    inverse = spectral.shifted_inverse(columns, 1 + spectral.NEAR) if least > 0 else None
    for k in (6, 24, 96) if inverse is not None else ():
        try:
            options = {"sigma": 1 + spectral.NEAR, "OPinv": inverse, "v0": start_vector(n)}
            values, vectors = sparse_linalg.eigs(columns, k=k, **options)
        except (sparse_linalg.ArpackError, MemoryError):
            continue
        second = np.argsort(np.abs(values))[-2]
        bound = (1 - np.abs(values[second]) ** 2) * (1 / least - 1)
        if bound <= np.abs(1 - values).max() ** 2:
            return solution_of(matrix, values[second], vectors[:, second], "shift-invert")
    return spectral.second_of_all(matrix, "did not converge")


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
    return over_classes(factors, _largest, _second).value if exact is None else exact


def _modulus_of_circulants(factors: Sequence[sparse.csr_array]) -> float | None:
    """Return ``|lambda_2|^(1/p)`` of p circulants of any size, or None if one is not circulant.

    Circulants commute, so their eigenvalues multiply.
    """
    logs = np.zeros(factors[0].shape[0] - 1)
    for factor in factors:
        values = circulant_spectrum(factor)
        if values is None:
            return None
        moduli = np.abs(values[1:])
        # a valid bound, since circulants are normal
        rounding = factor.shape[0] * np.finfo(float).eps
        with np.errstate(divide="ignore"):
            logs += np.log(np.where(moduli < rounding, 0.0, moduli))
    return float(min(1.0, np.exp(logs.max(initial=-np.inf) / len(factors))))


def _largest(blocks: Blocks) -> Solution:
    """Return the largest modulus per round of a class that is not closed."""
    n = blocks[0].shape[1]
    cycle, log, _ = _scaled(blocks, np.ones(n), lambda values: values)
    return _rooted(_largest_modulus(cycle, n, "LR"), log, blocks)


def _second(blocks: Blocks) -> Solution:
    """Return the second largest modulus per round of the closed class."""
    nodes = blocks[0].shape[1]
    if nodes == 1:
        return Solution(0.0, "components", 0.0)
    if nilpotent.averages_exactly(blocks):
        return Solution(0.0, "fractions", 0.0)
    if nodes > spectral.DENSE_LIMIT:
        blocks = nilpotent.merged(blocks)
    n = blocks[0].shape[1]
    if n == 1:
        return Solution(0.0, "equal rows", 0.0)
    start = start_vector(n)
    cycle, log, smallest = _scaled(blocks, start, centered)
    modulus = 0.0
    if smallest >= LOST:
        modulus = _largest_modulus(cycle, n, "LM", float(np.finfo(float).eps) / smallest)
    found = _rooted(modulus, log, blocks)
    # Iterations return nonzero numbers where rounding has moved zeros of a defective product;
    # dense_spectrum deflates these zeros.
    is_suspect = (
        n > spectral.DENSE_LIMIT and found.value < spectral.SUSPECT and nilpotent.collapses(blocks)
    )
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
    if n <= spectral.DENSE_LIMIT:
        return float(np.abs(nilpotent.dense_spectrum(cycle(np.eye(n)), noise)).max())
    options = {"v0": start_vector(n), "ncv": 40, "maxiter": RESTARTS, "return_eigenvectors": False}
    try:
        values = sparse_linalg.eigs(operator_of(cycle, n), k=1, which=which, **options)
    except sparse_linalg.ArpackError as error:
        raise NoConvergence(
            f"the second eigenvalue of this period did not converge for n={n}"
        ) from error
    return float(np.abs(values[0]))


def _rooted(modulus: float, log: float, blocks: Blocks) -> Solution:
    """Return the p-th root of a modulus times ``exp(log)``, for a period of p blocks."""
    with np.errstate(divide="ignore"):
        value = float(min(1.0, np.exp((np.log(modulus) + log) / len(blocks))))
    solver = "dense" if blocks[0].shape[1] <= spectral.DENSE_LIMIT else "arnoldi"
    return Solution(value, solver, math.nan)


def _below_rounding(blocks: Blocks, nodes: int) -> Solution:
    """Return the modulus per round where the product is below rounding, without multiplying it out.

    Nodes with equal rows are merged, then directions that a single factor maps to 0 are removed.
    The rest is decided by the matrix that acts on all rounds at once: the p-th powers of its
    eigenvalues are the eigenvalues of the product.
    """
    blocks = nilpotent.merged(blocks)
    if min(block.shape[0] for block in blocks) == 1:
        return Solution(0.0, "equal rows", 0.0)
    if sum(block.shape[0] * block.shape[1] for block in blocks) <= spectral.SPECTRUM_LIMIT**2:
        factors = nilpotent.without_zeros([_on_disagreement(block.toarray()) for block in blocks])
        if sum(map(len, factors)) <= spectral.SPECTRUM_LIMIT:
            return Solution(_largest_root(factors), "dense", math.nan)
    raise NoConvergence(
        "the second eigenvalue of this period is 0 or below rounding, which cannot be "
        f"distinguished for n={nodes}; {spectral.PROVABLE}"
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
