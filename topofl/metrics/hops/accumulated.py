"""What repeated exchanges leave of values that differ between nodes, hop by hop and in total."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.csgraph as csgraph
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._support.check import check_int, check_positive, shown
from topofl._support.table import NotApplicable
from topofl.metrics._declaration import Entry
from topofl.metrics._rounds import check_push_weights, n_rounds
from topofl.metrics.averaging.perron import perron_vector
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError

__all__ = [
    "CONSENSUS",
    "HOPS",
    "MEAN",
    "accumulated",
    "check_discount",
    "check_hops",
    "left_by_hop",
    "over_hops",
]

HOPS = 10
"""Hops of the columns of :func:`topofl.metrics.compare`."""

INFINITE = "inf"
"""``hops`` of the sum over all hops."""

CONSENSUS, MEAN = "consensus", "mean"
"""Around what values are compared: their limit under repeated averaging, or their mean."""

MOST_HOPS = 20_000
"""Largest number of exchanges after which a sum without end has to have converged."""

CONVERGED = 1e-12
"""Relative tolerance of sums without end that are not solved for."""

BAND_COST = 1e10
"""Largest n times squared bandwidth for which a linear system is solved directly."""


NO_ENERGY = 1e-24
"""Share of the energy below which that along an eigenvector is rounding."""


def over_hops(entry: Entry, compute: Callable[[int | None], float]) -> float | NotApplicable:
    """Return ``compute(rounds)`` of a column over :data:`HOPS` hops, if there are enough rounds."""
    if entry.limit is None:
        return compute(None)
    if entry.limit < HOPS:
        return NotApplicable(f"the sum over {HOPS} hops needs {HOPS} rounds, got {entry.limit}")
    return compute(min(entry.limit, 2 * HOPS))


def check_hops(hops: object) -> int | str:
    """Return the number of hops, at least 1, or ``"inf"``."""
    if isinstance(hops, str):
        if hops != INFINITE:
            raise ValueError(f'`hops` must be a number of at least 1 or "inf", got {shown(hops)}')
        return hops
    if isinstance(hops, float) and math.isinf(hops) and hops > 0:
        return INFINITE
    return check_int("hops", hops, minimum=1)


def check_discount(discount: object) -> float:
    """Return the factor by which each further hop counts, in (0, 1]."""
    value = check_positive("discount", discount, remedy="1 counts all hops equally")
    if value > 1:
        raise ValueError(f"`discount` must be at most 1, got {shown(discount)}")
    return value


def accumulated(
    source: MixingSequence,
    values: np.ndarray,
    hops: int | str,
    discount: float = 1.0,
    rounds: int | None = None,
    around: str = CONSENSUS,
) -> float:
    """Return ``sum_k discount^(k-1) (1/n) ||A_k V - limit||_F^2`` over hops k, from 1.

    ``A_k`` is the product of k rounds (see :func:`left_by_hop`), `values` are V, (n, c).
    """
    if hops == INFINITE:
        return _without_end(source, values, discount, rounds, around)
    left = left_by_hop(source, values, int(hops), rounds, around)
    return float(left @ discount ** np.arange(len(left)))


def left_by_hop(
    source: MixingSequence,
    values: np.ndarray,
    hops: int,
    rounds: int | None = None,
    around: str = CONSENSUS,
) -> np.ndarray:
    """Return (hops,) the mean squared distances ``(1/n) ||A_k V - limit||_F^2`` by hop k.

    ``A_k = W_{s+k-1} ... W_s``, averaged over the start s: each round of a period, or every start
    whose k rounds are among those examined. Rows of the limit are equal: ``pi^T V`` with the
    Perron vector for row-stochastic W. For column-stochastic W, ``A_k`` is the product divided by
    its row sums, which are push-sum weights, and the limit is the mean of V. With
    ``around="mean"`` the limit is the mean of V for row-stochastic W, too.
    """
    starts = _starts(source, hops, rounds)
    last = starts[-1] + hops
    matrices = [source.at(t) for t in range(min(last, source.period or last))]
    source = replace(source, generate=matrices.__getitem__)  # every start needs most of them again
    pushed = _is_pushed(matrices, source)
    rounding = _rounding(values)
    total = np.zeros(hops)
    means = pushed or around == MEAN
    for start, limit in zip(starts, _limits(source, values, starts, last, means), strict=True):
        states = _states(source, values, start, pushed)
        total += [_mean_square(next(states) - limit, k * rounding) for k in range(1, hops + 1)]
    return total / len(starts)


def _rounding(values: np.ndarray) -> float:
    """Return a bound of the rounding error of one exchange."""
    return 8 * np.finfo(float).eps * float(np.abs(values).max(initial=0.0))


def _mean_square(deviations: np.ndarray, rounding: float) -> float:
    """Return ``(1/n) ||D||_F^2``, in which entries within rounding count as 0."""
    kept = np.where(np.abs(deviations) <= rounding, 0.0, deviations)
    return float(np.square(kept).sum() / len(kept))


def _starts(source: MixingSequence, hops: int, rounds: int | None) -> range:
    examined = n_rounds(source, rounds)
    if source.period is not None:
        return range(examined)
    if hops > examined:
        raise ValueError(
            f"`hops` must be at most the {examined} rounds examined of {source.name}, got {hops}; "
            "examine more rounds, or sum over fewer hops"
        )
    return range(examined - hops + 1)


def _is_pushed(matrices: Sequence[MixingMatrix], source: MixingSequence) -> bool:
    """Return whether columns sum to 1 (push-sum) in place of rows, or raise."""
    if all(matrix.is_row_stochastic for matrix in matrices):
        return False
    if not all(matrix.is_column_stochastic for matrix in matrices):
        raise TopologyError(
            f"the matrices of {source.name} must be row-stochastic in all rounds, or "
            "column-stochastic in all; use one direction: mixing.uniform(topology, direction=...)"
        )
    if source.period is not None:
        check_push_weights(list(matrices), source.name)
    return True


def _states(
    source: MixingSequence, values: np.ndarray, start: int, pushed: bool
) -> Iterator[np.ndarray]:
    """Yield the values after 1, 2, ... exchanges from round `start`; with push-sum, de-biased."""
    values, push_sum_weights, t = np.asarray(values, dtype=float), np.ones(source.n), start
    while True:
        matrix = source.at(t if source.period is None else t % source.period)
        values, t = matrix @ values, t + 1
        if pushed:
            push_sum_weights = matrix @ push_sum_weights
            yield values / push_sum_weights[:, None]
        else:
            yield values


def _limits(
    source: MixingSequence, values: np.ndarray, starts: range, last: int, means: bool
) -> list[np.ndarray]:
    """Return for each start the row (c,) that all nodes would agree on, or the mean."""
    if means:
        return [values.mean(axis=0)] * len(starts)
    if source.period is not None:
        matrices = source.one_period()
        if all(matrix.is_doubly_stochastic for matrix in matrices):
            return [values.mean(axis=0)] * len(starts)
        return [perron_vector(matrices[s:] + matrices[:s]) @ values for s in starts]
    pi, found = np.full(source.n, 1 / source.n), {}
    for t in range(last - 1, -1, -1):  # pi_s^T = pi_{s+1}^T W_s, uniform at the end
        pi = pi @ source.at(t).weights
        found[t] = pi @ values
    return [found[s] for s in starts]


def _without_end(
    source: MixingSequence, values: np.ndarray, discount: float, rounds: int | None, around: str
) -> float:
    if source.period is None:
        raise TopologyError(
            f'`hops="inf"` needs rounds that repeat, {source.name} has no period; use a number of '
            "hops, such as 20"
        )
    n_rounds(source, rounds)
    matrix, deviations = source.at(0), values - values.mean(axis=0)
    if source.period > 1:
        return _summed(source, values, discount, around)
    spectrum = spectral.circulant_spectrum(matrix.weights)
    if spectrum is not None and matrix.is_row_stochastic:
        energies = np.square(np.abs(np.fft.fft(deviations, axis=0))).sum(axis=1) / matrix.n
        return geometric(np.abs(spectrum) ** 2, energies, discount) / matrix.n
    if matrix.is_symmetric and matrix.is_row_stochastic:
        return _of_symmetric(matrix, deviations, discount)
    return _summed(source, values, discount, around)


def _of_symmetric(matrix: MixingMatrix, deviations: np.ndarray, discount: float) -> float:
    """Return the infinite sum by the spectrum, or by solving ``(I - discount W^2) x = W d``."""
    if matrix.n <= spectral.limits.DENSE_LIMIT:
        eigenvalues, vectors = scipy.linalg.eigh(matrix.weights.toarray())
        energies = np.square(vectors.T @ deviations).sum(axis=1)
        return geometric(eigenvalues**2, energies, discount) / matrix.n
    left = matrix @ deviations
    squared = sparse.csr_array(matrix.weights @ matrix.weights)
    labels = csgraph.connected_components(squared, directed=False)[1]
    if discount == 1 and _stays_apart(labels, left):
        return math.inf
    return float((left * _solved(squared, labels, left, discount)).sum() / matrix.n)


def _stays_apart(labels: np.ndarray, left: np.ndarray) -> bool:
    """Return whether values converge to different limits, or to none, under symmetric W.

    `labels` are the components of the graph of W^2. The powers of W converge to J if there is one;
    else, the values of each component keep their mean.
    """
    sums = np.zeros((int(labels.max()) + 1, left.shape[1]))
    np.add.at(sums, labels, left)
    return len(sums) > 1 and bool((np.abs(sums) > len(left) * _rounding(left)).any())


def geometric(squares: np.ndarray, energies: np.ndarray, discount: float) -> float:
    """Return ``sum_i e_i s_i / (1 - discount s_i)``; eigenvalues without energy do not count."""
    counted = energies > NO_ENERGY * energies.sum()
    squares, energies = np.minimum(squares[counted], 1.0), energies[counted]
    rest = 1 - discount * squares
    if (rest <= 4 * np.finfo(float).eps).any():
        return math.inf
    return float((energies * squares / rest).sum())


def _solved(
    squared: sparse.csr_array, labels: np.ndarray, right: np.ndarray, discount: float
) -> np.ndarray:
    """Return x with ``(I - discount W^2) x = right``, whose columns sum to 0 in each component."""
    n = len(right)
    system = sparse.csr_array(sparse.eye_array(n) - discount * squared)
    order = csgraph.reverse_cuthill_mckee(sparse.csr_matrix(system), symmetric_mode=True)
    banded = sparse.coo_array(system[order][:, order])
    width = int(np.abs(banded.coords[0] - banded.coords[1]).max(initial=1))
    if n * width**2 <= BAND_COST:
        # With discount 1, x is unique up to a constant per component: 0 at the first node of each.
        firsts = np.unique(labels[order], return_index=True)[1]
        free = np.delete(order, firsts) if discount == 1 else order
        regular = sparse.csc_array(system[free][:, free])
        x = np.zeros_like(right)
        x[free] = sparse_linalg.splu(regular, permc_spec="NATURAL").solve(right[free])
        return x
    return np.stack([_by_gradients(system, column) for column in right.T], axis=1)


def _by_gradients(matrix: sparse.csr_array, right: np.ndarray) -> np.ndarray:
    """Return the solution by conjugate gradients; raise ``TopologyError`` where they stall."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The sum is a quadratic form of x: its relative error is the square of the residual's.
        x, failed = sparse_linalg.cg(matrix, right, rtol=CONVERGED**0.5, maxiter=MOST_HOPS)
    if failed:
        raise TopologyError(
            "the sum over all hops did not converge, since the graph mixes too slowly; use a "
            "number of hops, or discount=0.99"
        )
    return x


def _summed(source: MixingSequence, values: np.ndarray, discount: float, around: str) -> float:
    """Return the infinite sum hop by hop, until the rest is negligible."""
    period = source.period or 1
    starts = range(period)
    pushed = _is_pushed(source.one_period(), source)
    limits = _limits(source, values, starts, period, pushed or around == MEAN)
    walks = [_states(source, values, start, pushed) for start in starts]
    rounding = _rounding(values)
    total = 0.0
    factor = 1.0
    recent = math.inf
    for hop in range(1, MOST_HOPS + 1):
        left = factor * np.mean(
            [
                _mean_square(next(walk) - limit, hop * rounding)
                for walk, limit in zip(walks, limits, strict=True)
            ]
        )
        total, factor = total + left, factor * discount
        if hop % 20:
            continue
        # Over 20 hops the terms shrink by the ratio q: the rest is about left * 20 q / (1 - q).
        ratio = left / recent if math.isfinite(recent) else 1.0
        if left == 0 or (ratio < 1 and 20 * left * ratio / (1 - ratio) <= CONVERGED * total):
            return float(total)
        if ratio > 1 - 1e-12 and discount == 1 and hop >= 200:
            return math.inf
        recent = left
    raise TopologyError(
        f"the sum over all hops of {source.name} did not converge within {MOST_HOPS:,} hops, since "
        "the graph mixes too slowly; use a number of hops, or discount=0.99"
    )
