"""What repeated exchanges leave of differences between nodes: heterogeneity and noise by hops."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
import scipy.sparse.csgraph as csgraph
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._support.check import check_choice, check_int, check_share, shown
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl._support.table import NotApplicable
from topofl.metrics._columns import LABELS, Entry, MetricColumn, iterated, mean
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_rounds,
    averages,
    check_push_weights,
    n_rounds,
)
from topofl.metrics.consensus import check_gradients
from topofl.metrics.labels import check_row_per_node, label_distributions
from topofl.metrics.spectral import perron_vector
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError

__all__ = ["accumulated_noise", "neighborhood_heterogeneity"]


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

MOST_DOUBLINGS = 40
"""Largest number of times that sums of powers are doubled; rounding would dominate after more."""

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


check_discount = partial(check_share, "discount", remedy="1 counts all hops equally")
"""The check of the factor by which each further hop counts."""


def accumulated(
    source: MixingSequence,
    values: np.ndarray,
    hops: int | str,
    discount: float = 1.0,
    rounds: int | None = None,
    around: str = CONSENSUS,
) -> float:
    """Return ``sum_k discount^(k-1) (1/n) ||A_k V - limit||_F^2`` over hops k, from 1.

    `values` are V, (n, c). ``A_k = W_{s+k-1} ... W_s``, averaged over the start s: each round of a
    period, or every start whose k rounds are among those examined. Rows of the limit are equal:
    ``pi^T V`` with the Perron vector for row-stochastic W. For column-stochastic W, ``A_k`` is the
    product divided by its row sums, which are push-sum weights, and the limit is the mean of V.
    With ``around="mean"`` the limit is the mean of V for row-stochastic W, too.
    """
    examined = rounds_for(source, hops, rounds)
    if hops == INFINITE:
        return _without_end(source, values, discount, around)
    hops = int(hops)
    starts = range(examined - hops + 1 if source.period is None else examined)
    last = starts[-1] + hops
    matrices = [source.at(t) for t in range(min(last, source.period or last))]
    source = replace(source, generate=matrices.__getitem__)  # every start needs most of them again
    pushed = _is_pushed(matrices, source)
    rounding = rounding_of(values)
    total = np.zeros(hops)
    means = pushed or around == MEAN
    for start, limit in zip(starts, _limits(source, values, starts, last, means), strict=True):
        states = _states(source, values, start, pushed)
        total += [mean_square(next(states) - limit, k * rounding) for k in range(1, hops + 1)]
    return float(total / len(starts) @ discount ** np.arange(hops))


def rounds_for(source: MixingSequence, hops: int | str, rounds: int | None) -> int:
    """Return the number of rounds to examine; raise if they are too few for so many hops."""
    if hops == INFINITE and source.period is None:
        raise TopologyError(
            f'`hops="inf"` needs rounds that repeat, {source.name} has no period; use a number of '
            "hops, such as 20"
        )
    examined = n_rounds(source, rounds)
    if source.period is None and int(hops) > examined:
        raise ValueError(
            f"`hops` must be at most the {examined} rounds examined of {source.name}, got {hops}; "
            "examine more rounds, or sum over fewer hops"
        )
    return examined


def rounding_of(values: np.ndarray) -> float:
    """Return a bound of the rounding error of one exchange."""
    return 8 * np.finfo(float).eps * float(np.abs(values).max(initial=0.0))


def mean_square(deviations: np.ndarray, rounding: float) -> float:
    """Return ``(1/n) ||D||_F^2``, in which entries within rounding count as 0."""
    kept = np.where(np.abs(deviations) <= rounding, 0.0, deviations)
    return float(np.square(kept).sum() / len(kept))


def _is_pushed(matrices: Sequence[MixingMatrix], source: MixingSequence) -> bool:
    """Return whether columns sum to 1 (push-sum) in place of rows, or raise."""
    is_pushed = not averages(matrices, source.name)
    if is_pushed and source.period is not None:
        check_push_weights(matrices, source.name)
    return is_pushed


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


def _without_end(source: MixingSequence, values: np.ndarray, discount: float, around: str) -> float:
    """Return the infinite sum over rounds that repeat."""
    matrix, deviations = source.at(0), values - values.mean(axis=0)
    if source.period != 1:
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
    if matrix.n <= spectral.DENSE_LIMIT:
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
    return len(sums) > 1 and bool((np.abs(sums) > len(left) * rounding_of(left)).any())


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
    rounding = rounding_of(values)
    total = 0.0
    factor = 1.0
    recent = math.inf
    for hop in range(1, MOST_HOPS + 1):
        apart = [next(walk) - limit for walk, limit in zip(walks, limits, strict=True)]
        left = factor * np.mean([mean_square(one, hop * rounding) for one in apart])
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


def deviation_of(matrices: Sequence[MixingMatrix]) -> np.ndarray:
    """Return ``Q - J`` for the product Q of the rounds of a period, (n, n)."""
    product = np.eye(matrices[0].n)
    for matrix in matrices:
        product = matrix @ product
    return product - 1 / len(product)


@public
def neighborhood_heterogeneity(
    x: Mixable,
    label_counts: Any = None,
    *,
    hops: int | str = 1,
    discount: float = 1.0,
    gradients: Any = None,
    around: str | None = None,
    rounds: int | None = None,
    weights: WeightRule | None = None,
) -> float:
    """Return the label skew left after averaging, ``(1/n) sum_{k=1..K} ||W^k Pi - J Pi||_F^2``.

    ``Pi`` holds the (n, classes) label shares, and all entries of ``J`` are 1/n. With ``hops=1``,
    row i compares the weighted labels that node i receives with the mean over all nodes. Over K
    hops it is the heterogeneity H_K that gradients of the last K rounds leave between models, which
    ranks graphs by how fast decentralized learning converges on these data.

    See the page :doc:`What predicts convergence </docs/what-predicts-convergence>`.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, a list of MixingMatrix, which is one
        period, or a History, whose recorded matrices are taken.
    label_counts
        As in :func:`label_distributions`.
    hops
        K, at least 1, or ``"inf"``: the sum over all hops (only for rounds that repeat).
    discount
        d in (0, 1]: hop k counts ``d^(k-1)``.
    gradients
        (n, d) values in place of label shares, such as the nodes' gradients at a model; then leave
        out `label_counts`.
    around
        For weights that are not doubly stochastic: ``"mean"``, the distance from the mean over all
        nodes, as published for one hop, or ``"consensus"``, that from the limit of ``W^k Pi``.
        None: the mean for one hop, the consensus for more.
    rounds
        Number of rounds to examine of a sequence that neither repeats nor ends; the sums are
        averaged over all starts within these.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        At least 0: 0 if every neighborhood has the global label distribution. For doubly stochastic
        W, each hop contributes at most the value without communication (W = I), which is at most
        1 - 1/classes for labels. Infinite for ``hops="inf"`` and d = 1 if labels stay apart.

    Raises
    ------
    TopologyError
        If neither all rows nor all columns of W sum to 1, if ``hops="inf"`` is used with rounds
        that do not repeat or that mix too slowly, or if the Perron vector is not unique.
    TypeError, ValueError
        If an argument is of another kind or out of range, if values do not have one row per node,
        or if `hops` exceeds the rounds examined.

    Notes
    -----
    Symmetric W: ``H_K = sum_i e_i sum_k d^(k-1) lambda_i^(2k)`` with the energies e_i of
    :func:`heterogeneity_spectrum`. For sequences, powers are products of successive rounds,
    averaged over the starts of a period.

    The limit of ``W^k Pi`` under row-stochastic W has equal rows ``pi^T Pi`` with the Perron vector
    pi, which differ from the mean by a bias that no averaging removes. For column-stochastic W, the
    powers are divided by their row sums (push-sum weights), and the limit is ``J Pi``. For products
    of rounds that do not repeat, the limit is taken from the last round examined.

    References
    ----------
    Le Bars, Bellet, Tommasi, Lavoie and Kermarrec, "Refined convergence and topology learning for
    decentralized SGD with heterogeneous data" (2023): the bias term of neighborhood heterogeneity,
    with labels in place of gradients; it is that of one hop.

    Examples
    --------
    >>> from topofl import topologies
    >>> from topofl.topology import from_edges
    >>> neighborhood_heterogeneity(from_edges([(0, 1)], n=2), [[5, 0], [0, 5]])
    0.0
    >>> labels = np.eye(4, dtype=int)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> ring = topologies.ring(8)
    >>> [round(neighborhood_heterogeneity(ring, labels, hops=k), 3) for k in (1, 5, "inf")]
    [0.306, 0.728, 0.817]
    """
    hops, discount = check_hops(hops), check_discount(discount)
    source = as_rounds(x, weights)
    name = source.at(0).name if source.period == 1 else source.name
    values = values_of(source.n, name, label_counts, gradients)
    if around is None:
        around = MEAN if hops == 1 else CONSENSUS
    check_choice("around", around, [MEAN, CONSENSUS])
    return accumulated(source, values, hops, discount, rounds, around)


def values_of(n: int, name: str, label_counts: Any, gradients: Any) -> np.ndarray:
    """Return label shares (n, classes), or the gradients (n, d) given in their place."""
    if (label_counts is None) == (gradients is None):
        raise TypeError(
            "one of `label_counts` and `gradients` must be given, got "
            + ("neither" if gradients is None else "both")
            + "; for data without labels, give gradients"
        )
    if gradients is not None:
        return check_gradients(gradients, n, name)
    shares = label_distributions(label_counts)
    check_row_per_node(shares, n, name)
    return shares


EXACT_LIMIT = 2000
"""Largest number of nodes whose products of rounds are computed in full."""

PROBED_LIMIT = 200_000
"""Largest graph whose column is estimated by random vectors unless it is asked for by name."""


@public
def accumulated_noise(
    x: Mixable,
    hops: int | str = HOPS,
    *,
    discount: float = 1.0,
    rounds: int | None = None,
    weights: WeightRule | None = None,
    probes: int = 64,
    seed: int = 0,
) -> float:
    """Return the accumulated noise ``N_K = (1/n) sum_{k=1..K} d^(k-1) ||W^k - J||_F^2``.

    All entries of J are 1/n. If the nodes' gradients have independent noise of unit variance, term
    k is the variance that gradients of k rounds ago still contribute to a node's deviation from the
    mean model. For homogeneous data, noise is all that sets the nodes' models apart.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, a list of MixingMatrix, which is one
        period, or a History, whose recorded matrices are taken.
    hops
        K, at least 1, or ``"inf"``: the sum over all hops (only for rounds that repeat).
    discount
        d in (0, 1], the factor by which each further hop counts.
    rounds
        Number of rounds to examine of a sequence that neither repeats nor ends; the sums are
        averaged over all starts within these.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.
    probes, seed
        For more than 2,000 nodes, the norm is estimated from this number of random sign vectors
        (Hutchinson), drawn with this seed. Sums of circulants, such as rings, are exact for any
        number of nodes, and sums over all hops of symmetric weights for up to 6,000.

    Returns
    -------
    float
        At least 0: 0 for exact averaging, K (1 - 1/n) without communication for d = 1. Infinite for
        ``hops="inf"``, d = 1 and weights whose powers do not converge to J.

    Raises
    ------
    TopologyError
        If neither all rows nor all columns sum to 1, if ``hops="inf"`` is used with rounds that do
        not repeat or that mix too slowly, or if the Perron vector is not unique.
    TypeError, ValueError
        If an argument is of another kind or out of range; if `hops` exceeds the rounds examined.

    Notes
    -----
    Symmetric W: ``N_K = (1/n) sum_{i>=2} sum_k d^(k-1) lambda_i^(2k)``. The effective number of
    neighbors of doubly stochastic W is a function of the sum over all hops: ``n_W(d) = 1 / (1/n +
    (1 - d) N_inf(d))``. Without discount, ``N_inf = (1/n) sum_{i>=2} lambda_i^2 / (1 -
    lambda_i^2)`` depends on the whole spectrum.

    For row-stochastic W, J is replaced by the limit of ``W^k``, whose rows are the Perron vector.
    For column-stochastic W, the powers are divided by their row sums (push-sum weights). For
    products of rounds that do not repeat, the limit is taken from the last round examined.

    References
    ----------
    Vogels, Hendrikx and Jaggi, "Beyond spectral gap: the role of the topology in decentralized
    learning" (2022), for n_W. Hutchinson, "A stochastic estimator of the trace of the influence
    matrix for Laplacian smoothing splines" (1989).

    Examples
    --------
    >>> from topofl import topologies
    >>> [round(accumulated_noise(topologies.ring(100), hops), 3) for hops in (1, 10, "inf")]
    [0.323, 1.592, 11.939]
    """
    hops, discount = check_hops(hops), check_discount(discount)
    probes = check_int("probes", probes, minimum=1)
    source = as_rounds(x, weights)
    if hops == "inf" or source.n > EXACT_LIMIT:
        known = _of_spectrum(source, hops, discount)
        if known is None and hops == "inf" and rounds is None:
            known = _of_repeated_rounds(source, discount)
        if known is not None:
            return known
    return accumulated(source, independent(source.n, probes, seed), hops, discount, rounds)


def independent(n: int, probes: int = 64, seed: int = 0) -> np.ndarray:
    """Return V for which ``||A V||_F^2`` is ``||A||_F^2``, or estimates it on a large graph."""
    if n <= EXACT_LIMIT:
        return np.eye(n)
    signs = stream(seed, "probes of accumulated noise").integers(2, size=(n, probes))
    return (2.0 * signs - 1.0) / probes**0.5


def _of_spectrum(source: MixingSequence, hops: int | str, discount: float) -> float | None:
    """Return the sum from the eigenvalues of one normal matrix, or None."""
    if source.period != 1 or not source.at(0).is_doubly_stochastic:
        return None
    matrix = source.at(0)
    eigenvalues = spectral.circulant_spectrum(matrix.weights)
    if eigenvalues is None:
        if hops != "inf" or not matrix.is_symmetric or matrix.n > spectral.SPECTRUM_LIMIT:
            return None
        eigenvalues = matrix.eigenvalues
    others = np.delete(eigenvalues, int(np.abs(eigenvalues - 1).argmin()))
    squares = np.abs(others) ** 2
    if hops != "inf":
        terms = (discount ** (k - 1) * float((squares**k).sum()) for k in range(1, int(hops) + 1))
        return sum(terms) / matrix.n
    return geometric(squares, np.ones(len(others)), discount) / matrix.n


def _of_repeated_rounds(source: MixingSequence, discount: float) -> float | None:
    """Return the discounted sum over all hops of doubly stochastic rounds that repeat, or None.

    From the Gramians ``U_s = sum_k d^(k-1) (A_k - J)^T (A_k - J)`` of the starts s of a period:
    ``U_s = W_s^T (I + d U_{s+1}) W_s - J``.
    """
    if discount == 1 or source.period is None or source.n > spectral.DENSE_LIMIT:
        return None
    matrices, identity = source.one_period(), np.eye(source.n)
    if not all(matrix.is_doubly_stochastic for matrix in matrices):
        return None

    def period(gramian: np.ndarray) -> Iterator[np.ndarray]:
        for matrix in reversed(matrices):
            left = matrix.weights.T @ (identity + discount * gramian)
            gramian = matrix.weights.T @ left.T - 1 / source.n
            yield gramian

    *_, total = period(np.zeros_like(identity))
    product, rest = deviation_of(matrices), discount ** len(matrices)
    for _ in range(MOST_DOUBLINGS):  # total is of 1, 2, 4, ... periods
        more = rest * product.T @ total @ product
        total += more
        if more.trace() <= np.finfo(float).eps * total.trace():
            return float(np.mean([one.trace() for one in period(total)]) / source.n)
        product, rest = product @ product, rest**2
    raise TopologyError(
        f"the sum over all hops of {source.name} would be lost in rounding, since some nodes do "
        "not average, and distant hops hardly count less than near ones; use a number of hops"
    )


_data = partial(MetricColumn, "data")

COLUMNS = (
    _data(
        "neighborhood heterogeneity",
        "distance of neighborhood label distributions from the global one, mean over nodes",
        lambda entry: mean(
            neighborhood_heterogeneity(matrix, entry.label_counts) for matrix in entry.matrices
        ),
        needs=(LABELS,),
    ),
    _data(
        f"H_{HOPS}",
        f"label skew that 1 to {HOPS} exchanges leave in neighborhoods, summed; low is good",
        lambda entry: over_hops(
            entry,
            lambda rounds: neighborhood_heterogeneity(
                entry.rounds, entry.label_counts, hops=HOPS, rounds=rounds
            ),
        ),
        needs=(LABELS,),
    ),
    MetricColumn(
        "averaging",
        f"N_{HOPS}",
        f"gradient noise that 1 to {HOPS} exchanges leave, summed; low is good",
        lambda entry: over_hops(
            entry, lambda rounds: accumulated_noise(entry.rounds, rounds=rounds, seed=entry.seed)
        ),
        limit=iterated("metrics.accumulated_noise", nodes=PROBED_LIMIT),
    ),
)
