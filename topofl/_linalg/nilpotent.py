"""Eigenvalues of exactly 0: deflated from a dense matrix, or proven for a large sparse one.

LAPACK returns zeros in Jordan blocks of order k as numbers of modulus ``eps^(1/k)``: 0.01 for the 8
x 8 blocks of a De Bruijn graph of 256 nodes, which averages exactly in 8 rounds. Their size alone
does not distinguish them from small eigenvalues.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import scipy.linalg
import scipy.sparse as sparse

from topofl._linalg.sparse import centered, start_vector

PRIMES = (1048573, 1048571)
"""Largest primes below 2^20: the sum of 2^23 products of two residues fits into 64 bits."""

DENOMINATOR = 10**6
"""Largest denominator of weights that are read as fractions."""

DISTINCT = 10_000
"""Largest number of distinct weights that are read as fractions."""

COLLAPSE = 1e-6
"""Factor on disagreement below which a round may be one of exact averaging, up to rounding."""


def dense_spectrum(matrix: np.ndarray, noise: float = 0.0) -> np.ndarray:
    """Return all eigenvalues of a real square matrix.

    Eigenvalues equal to 0 or to the most frequent diagonal entry are exact.

    Parameters
    ----------
    matrix
        (m, m).
    noise
        Relative error of the matrix, if larger than rounding.
    """
    if not len(matrix):
        return np.zeros(0)
    tolerance = max(len(matrix) * float(np.finfo(float).eps), noise) * float(np.linalg.norm(matrix))
    rest = matrix
    removed = []
    shifts = {0.0, _common_diagonal(matrix)}
    # A Jordan block of order k at one shift makes the matrix nearly singular at the other, by
    # shift^k, but only once.
    if len(shifts) > 1:
        shifts = sorted(shifts, key=lambda shift: -_nullity(matrix, shift, tolerance))
    for shift in shifts:
        rest, count = deflated(rest, shift, tolerance)
        removed += [shift] * count
    values = scipy.linalg.eigvals(rest) if len(rest) else np.zeros(0)
    return np.concatenate([values, np.array(removed)])


def _nullity(matrix: np.ndarray, shift: float, tolerance: float) -> int:
    """Return the dimension of the null space of ``matrix - shift I``, up to the tolerance."""
    shifted = matrix - shift * np.eye(len(matrix))
    if _is_regular(shifted, tolerance):
        return 0
    return int((scipy.linalg.svdvals(shifted) <= tolerance).sum())


def _common_diagonal(matrix: np.ndarray) -> float:
    """Return the most frequent diagonal entry, or 0 if all differ.

    For lazy weights it is the self-weight that all nodes share.
    """
    diagonal = np.diagonal(matrix)
    _, first, counts = np.unique(diagonal.round(12), return_index=True, return_counts=True)
    return float(diagonal[first[counts.argmax()]]) if counts.max() > 1 else 0.0


def deflated(matrix: np.ndarray, shift: float, tolerance: float) -> tuple[np.ndarray, int]:
    """Return a matrix with all eigenvalues except `shift`, and the multiplicity of `shift`.

    Uses unitary similarities (the staircase algorithm): the null space of the matrix is removed,
    then the null space of the rest, and so on, one step for each order of the Jordan blocks.
    Singular values up to `tolerance` count as 0: the result is exact for a matrix that differs from
    the given one by not much more than that.

    References
    ----------
    Kublanovskaya, "On a method of solving the complete eigenvalue problem for a degenerate matrix"
    (1966); Golub and Wilkinson, "Ill-conditioned eigensystems and the computation of the Jordan
    canonical form" (1976), section 8.
    """
    order = len(matrix)
    rest = matrix - shift * np.eye(order)
    while len(rest) and not _is_regular(rest, tolerance):
        left, singular, right = scipy.linalg.svd(rest)
        rank = int((singular > tolerance).sum())
        if rank == len(rest):
            break
        rest = (right[:rank] @ left[:, :rank]) * singular[:rank]
    if len(rest) == order:
        return matrix, 0  # exactly the given numbers, without rounding from the shift
    return rest + shift * np.eye(len(rest)), order - len(rest)


def _is_regular(matrix: np.ndarray, tolerance: float) -> bool:
    """Return whether all singular values are clearly above `tolerance`.

    An LU factorization bounds them, at far less cost than computing them.
    """
    norm = float(np.abs(matrix).sum(axis=0).max())
    if norm == 0:
        return False
    factors, _, failed = scipy.linalg.lapack.dgetrf(matrix)
    if failed:
        return False
    reciprocal, _ = scipy.linalg.lapack.dgecon(factors, norm)
    # the 1-norm is within sqrt(m) of the 2-norm
    return bool(reciprocal * norm > 100 * len(matrix) * tolerance)


def averages_exactly(factors: Sequence[sparse.csr_array]) -> bool:
    """Return whether a few periods of row-stochastic matrices multiply to a matrix of equal rows.

    This is a proof up to a negligible probability: weights are read as fractions, and the product
    is applied to random vectors of residues modulo two primes. There is no rounding, and a product
    whose rows differ is missed with probability below 1e-40. Weights that are not fractions with
    denominators up to a million cannot be checked and count as not exact.

    Parameters
    ----------
    factors
        Sparse, in order of application; the rows of one are the columns of the next.
    """
    return collapses(factors) and all(_is_constant(factors, prime) for prime in PRIMES)


def _periods_of(factors: Sequence[sparse.csr_array]) -> int:
    """Return the number of periods in which exact averaging is searched for."""
    return 2 * factors[0].shape[1].bit_length() + 8


def collapses(factors: Sequence[sparse.csr_array]) -> bool:
    """Return whether disagreement drops sharply in some round, as exact averaging implies."""
    return any(shrinkage < COLLAPSE for shrinkage in _shrinkages(factors))


def _shrinkages(factors: Sequence[sparse.csr_array]) -> Iterator[float]:
    """Yield the factor of each round on the disagreement of a random starting vector.

    Ends early once all entries agree to the last bit.
    """
    values = centered(start_vector(factors[0].shape[1]))
    values = values / np.linalg.norm(values)
    for _ in range(_periods_of(factors)):
        for factor in factors:
            values = centered(factor @ values)
            shrinkage = float(np.linalg.norm(values))
            yield shrinkage
            if shrinkage == 0:
                return
            values = values / shrinkage


def decay_rate(matrix: sparse.csr_array) -> float:
    """Return the long-run factor per round on a random vector's disagreement, 0 if it collapses.

    This is the geometric mean over the second half of the rounds, after Jordan blocks of the
    eigenvalue 0 have vanished, unless their order exceeds that number of rounds.
    """
    shrinkages = np.array(list(_shrinkages([matrix])))
    if shrinkages.min() < COLLAPSE:
        return 0.0
    return float(np.exp(np.log(shrinkages[len(shrinkages) // 2 :]).mean()))


def merged(factors: Sequence[sparse.csr_array]) -> list[sparse.csr_array]:
    """Return a period with the same nonzero eigenvalues in which nodes with equal rows are merged.

    Nodes are merged until no two have equal rows. A matrix whose rows are equal within groups is
    ``E B``, where B holds one row of each group and E assigns each node to its group: the nonzero
    eigenvalues of ``E B F`` are those of ``B F E``. If a single node is left, the period averages
    exactly. Rows count as equal if they differ only by rounding (4 eps of their largest entry).

    Parameters
    ----------
    factors
        Sparse, in order of application; the rows of each are the columns of the next, and the rows
        of the last are the columns of the first.
    """
    factors = list(factors)
    p = len(factors)
    unchanged = 0
    for t in range(p * _periods_of(factors)):
        now, following = t % p, (t + 1) % p
        first, member = np.unique(_first_equal(factors[now]), return_inverse=True)
        n = len(member)
        unchanged += 1
        if len(first) < n:
            unchanged = 0
            factors[now] = sparse.csr_array(factors[now][first])
            groups = sparse.csr_array((np.ones(n), (np.arange(n), member)), shape=(n, len(first)))
            factors[following] = sparse.csr_array(factors[following] @ groups)
            factors[following].sum_duplicates()
        if unchanged == p:
            break
    return factors


def _first_equal(matrix: sparse.csr_array) -> np.ndarray:
    """Return for each of n rows the index of a representative among the rows equal to it.

    Candidates are found by the product with one random vector.
    """
    marks = matrix @ np.random.default_rng(0).random(matrix.shape[1])
    order = np.argsort(marks, kind="stable")
    is_new = np.diff(marks[order], prepend=-np.inf) > 1e-12 * marks.max()
    first = np.empty_like(order)
    first[order] = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
    others = np.flatnonzero(first != np.arange(len(first)))
    rows = matrix[others]
    differences = abs(rows - matrix[first[others]]).max(axis=1).toarray().reshape(-1)
    unequal = differences > 4 * np.finfo(float).eps * rows.max(axis=1).toarray().reshape(-1)
    first[others[unequal]] = others[unequal]
    return first


def without_zeros(factors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return square matrices of one order whose product has the given nonzero eigenvalues.

    This is the staircase algorithm of :func:`deflated` over a period: every factor is reduced to
    its range, and the next one is restricted to it. A direction is removed only if a single factor
    maps it to 0 up to rounding: one that many factors together shrink below rounding, for example
    by 0.001 in each of ten, stays.

    Parameters
    ----------
    factors
        Dense, in order of application; the rows of each are the columns of the next, and the rows
        of the last are the columns of the first.
    """
    factors = list(factors)
    p = len(factors)
    unchanged = 0
    eps = float(np.finfo(float).eps)
    tolerances = [max(f.shape) * eps * float(np.linalg.norm(f)) for f in factors]
    t = 0
    while unchanged < p and min(map(len, factors)):
        now = t % p
        unchanged += 1
        rows, columns = factors[now].shape
        if rows != columns or not _is_regular(factors[now], tolerances[now]):
            left, singular, right = scipy.linalg.svd(factors[now], full_matrices=False)
            rank = int((singular > tolerances[now]).sum())
            if rank < rows:
                unchanged = 0
                factors[now] = singular[:rank, None] * right[:rank]
                factors[(t + 1) % p] = factors[(t + 1) % p] @ left[:, :rank]
        t += 1
    return factors if min(map(len, factors)) else [np.zeros((0, 0))] * p


def _is_constant(factors: Sequence[sparse.csr_array], prime: int) -> bool:
    """Return whether the product maps random residues modulo a prime to constant vectors."""
    residues = [_residues(factor, prime) for factor in factors]
    values = np.random.default_rng(0).integers(prime, size=(factors[0].shape[1], 4))
    for _ in range(_periods_of(factors)):
        for matrix in residues:
            if matrix is None:
                return False
            values = matrix @ values % prime
        if (values == values[0]).all():
            return True
    return False


def _residues(matrix: sparse.csr_array, prime: int) -> sparse.csr_array | None:
    """Return the weights, read as fractions, as residues modulo a prime.

    Returns None if they are not such fractions or their rows do not sum to 1.
    """
    weights, inverse = np.unique(matrix.data, return_inverse=True)
    if len(weights) > DISTINCT:
        return None
    fractions = [Fraction(float(weight)).limit_denominator(DENOMINATOR) for weight in weights]
    if np.abs(np.array(fractions, dtype=float) - weights).max() > 4 * np.finfo(float).eps:
        return None
    found = [f.numerator * pow(f.denominator, -1, prime) % prime for f in fractions]
    entries = np.array(found, dtype=np.int64)[inverse]
    residues = sparse.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape)
    return residues if (residues.sum(axis=1) % prime == 1).all() else None
