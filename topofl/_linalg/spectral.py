"""Eigenvalues of stochastic matrices and Laplacians: all of them, or those at the ends."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl._linalg.nilpotent import DENOMINATOR, dense_spectrum
from topofl._linalg.sparse import centered, is_symmetric, laplacian, operator_of, start_vector
from topofl._support.check import TOLERANCE as SYMMETRIC_WITHIN

DENSE_LIMIT = 1500
"""Largest order of matrices that are decomposed densely (under a second).

Lanczos or Arnoldi iterations are used for larger ones.
"""

SPECTRUM_LIMIT = 6000
"""Largest order of matrices whose eigenvalues are all computed densely (minutes).

This is done if all eigenvalues are requested, or if no other method succeeds.
"""

STEPS = 3000
"""Lanczos steps before shift-invert takes over."""

TOLERANCE = 1e-9
"""Residual at which the Lanczos iteration stops.

The error of the eigenvalue is smaller: about the square of the residual over the next gap.
"""

SUSPECT = 0.25
"""Modulus below which an eigenvalue from iterations may be a zero of a defective matrix.

The conditioning of such an eigenvalue is checked.
"""

NEAR = 1e-8
"""Distance from 1 and -1 of the shift of shift-invert.

The shift lies outside the spectrum, so the shifted matrix is nonsingular.
"""


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


CELLS = 2**21
"""Entries of one stack of dense blocks, which are decomposed in one call: 16 MiB."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Strongly connected classes of pairs (round, node).

    An edge joins a node to each node that receives from it in a round. A single matrix is a period
    of one round. If there are more rounds, a node may belong to different classes in different
    rounds. The nonzero eigenvalues of the product are those of the products of the blocks of each
    class.

    Parameters
    ----------
    labels
        (p, n) class of each node before each of the p rounds.
    sizes
        (k, p) number of nodes of each of the k classes before each round.
    is_closed
        (k,) whether the nodes of the class receive only from each other.
    is_cyclic
        (k,) whether the class contains a cycle; a class without one is a single node with
        eigenvalue 0.
    """

    labels: np.ndarray
    sizes: np.ndarray
    is_closed: np.ndarray
    is_cyclic: np.ndarray

    @property
    def orders(self) -> np.ndarray:
        """(k,) largest size of each class over the rounds, the order of its square blocks."""
        return self.sizes.max(axis=1)


def classes_of(factors: Sequence[sparse.csr_array]) -> Classes:
    """Return the strongly connected classes of (n, n) matrices, in order of application."""
    p, n = len(factors), factors[0].shape[0]
    receivers, senders = [], []
    for t, factor in enumerate(factors):
        i, j = factor.nonzero()
        receivers.append((t + 1) % p * n + i)
        senders.append(t * n + j)
    i, j = np.concatenate(receivers), np.concatenate(senders)
    graph = sparse.csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(p * n, p * n))
    k, labels = connected_components(graph, directed=True, connection="strong")
    labels = labels.astype(np.int64)
    is_inner = labels[i] == labels[j]
    is_closed, is_cyclic = np.ones(k, dtype=bool), np.zeros(k, dtype=bool)
    is_closed[labels[i[~is_inner]]] = False
    is_cyclic[labels[i[is_inner]]] = True
    sizes = np.bincount(labels * p + np.repeat(np.arange(p), n), minlength=k * p).reshape(k, p)
    return Classes(labels.reshape(p, n), sizes, is_closed, is_cyclic)


def blocks_of(
    factors: Sequence[sparse.csr_array], classes: Classes, label: int
) -> list[sparse.csr_array]:
    """Return the blocks of one class, starting in the round in which the class is smallest.

    The rows of one block are the columns of the next, so their product has the smallest possible
    order. The choice of the first round affects no eigenvalue but 0.
    """
    p = len(factors)
    members = [np.flatnonzero(labels == label) for labels in classes.labels]
    first = int(classes.sizes[label].argmin())
    rounds = [(first + t) % p for t in range(p)]
    return [sparse.csr_array(factors[t][members[(t + 1) % p]][:, members[t]]) for t in rounds]


def stacks(
    factors: Sequence[sparse.csr_array], classes: Classes, chosen: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the block products of the `chosen` classes, with those of equal order stacked.

    Yields
    ------
    labels
        (k,) classes of the stack.
    products
        (k, m, m) product of each class's blocks over the period, divided by its scale; padded with
        zeros where a class has fewer than m nodes before the first round.
    logs
        (k,) natural logarithms of the scales.
    """
    orders = classes.orders
    ranks = _ranks(classes)
    for m in np.unique(orders[chosen]):
        alike = chosen[orders[chosen] == m]
        for start in range(0, len(alike), max(1, CELLS // m**2)):
            labels = alike[start : start + max(1, CELLS // m**2)]
            yield labels, *_products(factors, classes, ranks, labels, int(m))


def _ranks(classes: Classes) -> np.ndarray:
    """Return the (p, n) rank of each node within its class before each round."""
    p, n = classes.labels.shape
    key = classes.labels.reshape(-1) * p + np.repeat(np.arange(p), n)
    order = np.argsort(key, kind="stable")
    sizes = classes.sizes.reshape(-1)
    ranks = np.empty(p * n, dtype=np.int64)
    ranks[order] = np.arange(p * n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks.reshape(p, n)


def _products(
    factors: Sequence[sparse.csr_array],
    classes: Classes,
    ranks: np.ndarray,
    labels: np.ndarray,
    m: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the (k, m, m) scaled products of the classes' blocks and the logs of the scales."""
    p = len(factors)
    slot = np.full(len(classes.sizes), -1)
    slot[labels] = np.arange(len(labels))
    products = np.broadcast_to(np.eye(m), (len(labels), m, m))
    logs = np.zeros(len(labels))
    for t, factor in enumerate(factors):
        after = (t + 1) % p
        entries = factor.tocoo()
        i, j = entries.coords
        label = classes.labels[t, j]
        is_inside = (classes.labels[after, i] == label) & (slot[label] >= 0)
        i, j, label = i[is_inside], j[is_inside], label[is_inside]
        blocks = np.zeros((len(labels), m, m))
        blocks[slot[label], ranks[after, i], ranks[t, j]] = entries.data[is_inside]
        products = blocks @ products if p > 1 else blocks
        scales = products.max(axis=(1, 2))
        products = products / scales[:, None, None]
        logs += np.log(scales)
    return products, logs


STACKED = 64
"""Largest order of blocks of strongly connected classes that are decomposed in one call."""


def eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues: real and descending if symmetric, else by descending modulus.

    A circulant matrix of any order is diagonalized by a Fourier transform; otherwise the
    eigenvalues are those of the diagonal blocks of the strongly connected classes, computed
    densely.

    Raises
    ------
    ValueError
        If the matrix is not circulant and a block is of an order above ``SPECTRUM_LIMIT``.
    """
    values = circulant_spectrum(matrix)
    if values is None:
        values = _spectrum_of_classes(matrix)
    if is_symmetric(matrix):
        return np.sort(np.real(values))[::-1]
    return values[np.argsort(-np.abs(values), kind="stable")]


def _spectrum_of_classes(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues: 0 for nodes on no cycle, and those of strongly connected classes."""
    classes = classes_of([matrix])
    orders = classes.orders
    largest = int(orders.max())
    if largest > SPECTRUM_LIMIT:
        raise ValueError(
            f"all eigenvalues are computed densely, up to n={SPECTRUM_LIMIT} unless the "
            f"matrix is circulant, got n={largest} in one strongly connected class; use slem for "
            "the second largest modulus"
        )
    found = [np.zeros(int((~classes.is_cyclic).sum()))]
    small = np.flatnonzero(classes.is_cyclic & (orders <= STACKED))
    for _, blocks, logs in stacks([matrix], classes, small):
        found.append(_spectra(blocks * np.exp(logs)[:, None, None]).reshape(-1))
    for label in np.flatnonzero(orders > STACKED):
        found.append(dense_eigenvalues(blocks_of([matrix], classes, int(label))[0]))
    return np.concatenate(found)


def _spectra(blocks: np.ndarray) -> np.ndarray:
    """Return the (k, m) eigenvalues of (k, m, m) blocks; symmetric ones take one call."""
    symmetric = np.abs(blocks - blocks.transpose(0, 2, 1)).max(axis=(1, 2)) <= SYMMETRIC_WITHIN
    values = np.zeros(blocks.shape[:2], dtype=complex)
    values[symmetric] = np.linalg.eigvalsh(blocks[symmetric])
    for k in np.flatnonzero(~symmetric):
        values[k] = dense_spectrum(blocks[k])
    return values if np.iscomplex(values).any() else np.real(values)


def dense_eigenvalues(matrix: sparse.csr_array) -> np.ndarray:
    """Return all eigenvalues by LAPACK."""
    dense = matrix.toarray()
    return scipy.linalg.eigvalsh(dense) if is_symmetric(matrix) else dense_spectrum(dense)


def circulant_spectrum(matrix: sparse.csr_array) -> np.ndarray | None:
    """Return all eigenvalues of a circulant matrix, or None if it is not circulant.

    The eigenvalue of the constant vector comes first. Eigenvalue k is ``sum_d W[0, d] exp(-2 pi i k
    d / n)``; its vector is ``exp(-2 pi i k j / n)``. Entries may differ from those of a shifted
    first row by rounding (4 eps of the largest), which perturbs the eigenvalues by rounding only
    (Bauer and Fike: circulants are normal). O(nnz + n log n).

    References
    ----------
    Davis, "Circulant Matrices" (1979), Theorem 3.2.2.
    """
    n = matrix.shape[0]
    width = int(matrix.indptr[1])
    if not (matrix.has_canonical_format and (np.diff(matrix.indptr) == width).all()):
        return None
    row = np.zeros(n)
    row[matrix.indices[:width]] = matrix.data[:width]
    offsets = matrix.indices.reshape(n, width) - np.arange(n)[:, None]
    expected = row[offsets]  # a negative index counts from the end: offsets are taken modulo n
    rounding = 4 * np.finfo(float).eps * row.max()
    is_shifted = (expected != 0) & (np.abs(expected - matrix.data.reshape(n, width)) <= rounding)
    return np.fft.fft(row) if is_shifted.all() else None


def second_of_all(matrix: sparse.csr_array, failure: str = "") -> Solution:
    """Return the second largest modulus from all eigenvalues; raise if large after a `failure`."""
    n = matrix.shape[0]
    if failure and n > SPECTRUM_LIMIT:
        raise NoConvergence(
            f"the second eigenvalue of {n} nodes {failure}; all are computed densely only up to "
            f"n={SPECTRUM_LIMIT}"
        )
    moduli = np.sort(np.abs(dense_eigenvalues(matrix)))
    return Solution(clipped_modulus(moduli[-2], n), "dense", rounding_of(matrix))


def compact(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the matrix with 32-bit indices if it is small enough for them.

    A product then takes a quarter less time.
    """
    if matrix.nnz > np.iinfo(np.int32).max:
        return matrix
    indices, pointers = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array((matrix.data, indices, pointers), shape=matrix.shape)


def shifted_inverse(columns: sparse.csc_array, shift: float) -> sparse_linalg.LinearOperator | None:
    """Return the inverse of ``W - shift I`` from a sparse factorization, or None if that fails."""
    n = columns.shape[0]
    try:
        shifted = columns - shift * sparse.eye_array(n, format="csc")
        factors = sparse_linalg.splu(sparse.csc_array(shifted))
    except (RuntimeError, MemoryError):
        return None
    return operator_of(factors.solve, n)


def nearest(columns: sparse.csc_array, shift: float, k: int) -> list[tuple[float, np.ndarray]]:
    """Return the k eigenpairs of a symmetric matrix nearest to `shift`, farthest first."""
    try:
        start = start_vector(columns.shape[0])
        values, vectors = sparse_linalg.eigsh(columns, k=k, sigma=shift, v0=start)
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
        one = {"select": "i", "select_range": (i, i)}
        value, vector = scipy.linalg.eigh_tridiagonal(alphas, betas[:-1], **one)
        ends.append((abs(float(value[0])), betas[-1] * abs(float(vector[-1, 0])), vector[:, 0]))
    (modulus, error, coordinates), *others = sorted(ends, key=lambda end: -end[0])
    if error > TOLERANCE or any(other[0] + other[1] > modulus + TOLERANCE for other in others):
        return None
    return coordinates


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
    if n <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    packed = compact(matrix)
    # This operator has the eigenvalues (1 - lambda) / 2, in [0, 1].
    found = lanczos(lambda x: centered(x - packed @ x) / 2, n)
    if found is not None:
        return 1 - 2 * found[0]
    return nearest(matrix.tocsc(), -1 - NEAR, 1)[0][0]


def sigma(matrix: sparse.csr_array) -> float:
    """Return the largest singular value of ``W - J``, the worst factor of one step on disagreement.

    J has all entries 1/n. Only for doubly stochastic matrices is it at most 1 and a contraction to
    the mean. Above ``DENSE_LIMIT``, where the matrix must be doubly stochastic, it is the root of
    the second eigenvalue of ``W^T W``.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if n <= DENSE_LIMIT:
        return clipped_modulus(scipy.linalg.svdvals(matrix.toarray() - 1.0 / n)[0], n)
    values = circulant_spectrum(matrix)
    if values is not None:
        # Circulants are normal: their singular values are the moduli of their eigenvalues.
        return clipped_modulus(np.abs(values[1:]).max(), n)
    transpose = compact(sparse.csr_array(matrix.T))
    matrix = compact(matrix)
    found = lanczos(lambda x: centered(transpose @ (matrix @ x)), n)
    if found is not None:
        return math.sqrt(max(found[0], 0.0))
    (second, _), *_ = nearest(sparse.csc_array(transpose @ matrix), 1 + NEAR, 2)
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
    if n <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[1])
    bound = 2 * float(adjacency.sum(axis=1).max())  # on all eigenvalues, by Gershgorin
    packed = compact(matrix)
    # The eigenvalues 1 - lambda / bound lie in [0, 1]; on centered vectors that of lambda_2 is the
    # largest.
    found = lanczos(lambda x: centered(x - (packed @ x) / bound), n)
    if found is not None:
        return bound * (1 - found[0])
    options = {"sigma": -1e-6, "return_eigenvectors": False, "v0": start_vector(n)}
    return float(np.sort(sparse_linalg.eigsh(matrix.tocsc(), k=2, **options))[1])


def without_rounding(value: float, n: int) -> float:
    """Return an eigenvalue of a stochastic matrix, rounded to -1, 0 or 1 if it is close."""
    near = (whole for whole in (-1.0, 0.0, 1.0) if abs(value - whole) < n * np.finfo(float).eps)
    return float(next(near, value))
