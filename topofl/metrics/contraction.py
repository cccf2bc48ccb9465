"""What rounds do to disagreement: their product, its expectation, and measured contraction."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sparse

from topofl._drawing.figures import WIDE, figure_of, legend_above, own_axes, style
from topofl._linalg import spectral
from topofl._linalg.sparse import centered
from topofl._linalg.spectral import without_rounding
from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl._support.text import node_name
from topofl.metrics._columns import Entry, MetricColumn, need
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_rounds,
    averages,
    check_averaging,
    check_push_weights,
    largest_eigenvalue,
    mixed_kinds,
    n_rounds,
    product_of_rounds,
)
from topofl.metrics.spectral import slem
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = [
    "expected_gap",
    "measured_contraction",
    "plot_contraction",
    "product_contraction",
    "window_product",
]


@public
def window_product(
    x: Mixable, *, rounds: int, start: int = 0, weights: WeightRule | None = None
) -> MixingMatrix:
    """Return the product ``W_{start+rounds-1} ... W_start`` of a window of mixing matrices.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, any TopologySequence, or a list of MixingMatrix, which is one
        period.
    rounds, start
        Number of rounds, at least 1, and first round.
    weights
        As in :func:`topofl.metrics.mixing_time`.

    Raises
    ------
    TopologyError
        If n is above 5,000 and `rounds` above 1, since the product would be dense.
    ValueError, TypeError
        If an argument is out of range, or the rounds mix row- with column-stochastic matrices.

    Examples
    --------
    >>> from topofl import topologies
    >>> window_product(topologies.one_peer_exponential(8), rounds=3).is_uniform_mean
    True
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    start = check_int("start", start, minimum=0)
    product = product_of_rounds(source, rounds, start)
    name = f"window_product({source.name}, rounds={rounds}, start={start})"
    return MixingMatrix(product, name=name)


@public
def product_contraction(
    x: Mixable, *, rounds: int, start: int = 0, weights: WeightRule | None = None
) -> float:
    """Return ``||W_{start+rounds-1} ... W_start - J||_2``, the worst-case factor over a window.

    This factor on consensus distance is defined for doubly stochastic rounds. For one round, it is
    :func:`topofl.metrics.sigma`. It is at most the product of the factors of parts of the window,
    and often far smaller: most single rounds of the one-peer exponential graph do not contract, but
    a period averages exactly. For other weights, use :func:`topofl.metrics.dobrushin`.

    Parameters
    ----------
    x, rounds, start, weights
        As in :func:`window_product`.

    Returns
    -------
    float
        In [0, 1], for the whole window; the factor per round is its power ``1 / rounds``.

    Raises
    ------
    TopologyError
        If a round is not doubly stochastic, or n is above 5,000 and `rounds` above 1.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{product_contraction(topologies.ring(16), rounds=10):.4f}")
    0.5940
    """
    product = window_product(x, rounds=rounds, start=start, weights=weights)
    if not product.is_doubly_stochastic:
        raise TopologyError(
            f"product contraction needs doubly stochastic rounds, {product.name} is "
            f"{product.stochasticity}; use metrics.dobrushin(..., rounds=...)"
        )
    return without_rounding(spectral.sigma(product.weights), product.n)


@public
def expected_gap(
    x: Mixable, *, rounds: int | None = None, weights: WeightRule | None = None
) -> float:
    """Return the expected gap p: ``E ||W x - mean(W x)||^2 <= (1 - p) ||x - mean(x)||^2``.

    ``p = 1 - lambda_max(E[W^T (I - J) W])`` on disagreement, for the worst direction of x (all
    entries of J are 1/n; for doubly stochastic W the matrix is ``E[W^T W] - J``). E is the mean
    over a period or, for a random sequence, over rounds 0..rounds-1, which must be independent and
    identically distributed for p to hold beyond them. Use many rounds, since few underestimate p
    (the largest eigenvalue of a sample mean is biased upwards).

    Parameters
    ----------
    x
        As in :func:`window_product`.
    rounds
        Number of rounds to average over; required, and only allowed, for sequences without a
        period. Default for recorded rounds: all.
    weights
        As in :func:`topofl.metrics.mixing_time`.

    Returns
    -------
    float
        At most 1 (exact averaging). For row-stochastic rounds it may be negative, since the mean
        squared disagreement may grow. For a static doubly stochastic W it is ``1 - sigma^2``.

    Raises
    ------
    TopologyError
        If rows of a matrix do not sum to 1, or `rounds` is missing for a sequence without a period.
    ValueError
        If `rounds` is given for a sequence with a period, or is below 1.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, "Randomized gossip algorithms" (2006); p as in Koloskova et
    al., "A unified theory of decentralized SGD with changing topology and local updates" (2020),
    Assumption 4.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{expected_gap(topologies.star(4)):.4f}")  # 1 - 0.75^2
    0.4375
    """
    source = as_rounds(x, weights)
    times = range(n_rounds(source, rounds))
    n = source.n
    total = sparse.csr_array((n, n))
    sums = []
    for t in times:
        matrix = source.at(t)
        remedy = "metrics.push_sum_constants, or mixing.uniform(topology, direction='pull')"
        check_averaging("the expected gap needs", matrix, use=remedy)
        total = total + matrix.weights.T @ matrix.weights
        sums.append(np.asarray(matrix.weights.sum(axis=0)))
    mean = sparse.csr_array(total / len(times))
    worst = _largest_on_disagreement(mean, np.stack(sums) / math.sqrt(n))
    return 1.0 - without_rounding(worst, n)


def _largest_on_disagreement(gram: sparse.csr_array, sums: np.ndarray) -> float:
    """Return the largest eigenvalue of ``G - S^T S / k`` on vectors of mean 0; S is (k, n)."""
    n = gram.shape[0]
    k = len(sums)
    if n == 1:
        return 0.0
    if n <= spectral.DENSE_LIMIT:
        dense = gram.toarray() - sums.T @ sums / k
        centered = dense - dense.mean(axis=0)
        centered -= centered.mean(axis=1, keepdims=True)
        # All eigenvalues are computed, since LAPACK's subsets fail on rounding around 0.
        return float(max(np.linalg.eigvalsh(centered)[-1], 0.0))

    def apply(values: np.ndarray) -> np.ndarray:
        values = values.reshape(-1) - values.mean()
        image = gram @ values - sums.T @ (sums @ values) / k
        return image - image.mean()

    return largest_eigenvalue(apply, n, "the expected gap")


EXACT = 1e-12
"""Exchanges with a smaller factor on disagreement average exactly, up to rounding."""


@public
def measured_contraction(
    x: Mixable,
    *,
    rounds: int,
    seed: Seed,
    weights: WeightRule | None = None,
    burn_in: int | None = None,
) -> float:
    """Return the measured factor per round on consensus distance, from a random start.

    This geometric mean tends to :func:`slem` if that exists. No period is needed: random graphs can
    be measured too. For column-stochastic weights, the models are those of push-sum,
    ``z = x / w``.

    Parameters
    ----------
    x, weights
        As in :func:`slem`, but a sequence need not be periodic.
    rounds
        Number of measured rounds; for a periodic sequence preferably a multiple of its period.
    seed
        Seed of the random start: one standard normal number per node.
    burn_in
        Number of rounds before the measured ones, after which only the slowest mode is left;
        default: `rounds`, or fewer if not as many were recorded.

    Returns
    -------
    float
        Factor per round; 0 if the nodes come to agree up to rounding. It may exceed 1 over few
        rounds of weights that are not doubly stochastic.

    Raises
    ------
    TopologyError
        If the rounds mix row- with column-stochastic matrices, or if a push-sum weight becomes 0 or
        tends to 0 when the period is repeated, so that the models never agree.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    The computation is in float64; after each round, the disagreement is rescaled to norm 1, so that
    any number of rounds can be measured.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{measured_contraction(topologies.ring(16), rounds=100, seed=0):.4f}")
    0.9493
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    if burn_in is None:
        burn_in = rounds if source.length is None else max(0, min(rounds, source.length - rounds))
    burn_in = check_int("burn_in", burn_in, minimum=0)
    if source.length is not None and burn_in + rounds > source.length:
        most = f"at most the {source.length} rounds of {source.name}"
        raise ValueError(f"`burn_in` + `rounds` must be {most}, got {burn_in} + {rounds}")
    if source.period is not None:
        averages(source.one_period(), source.name)
        check_push_weights(source.one_period(), source.name)
    factors = list(islice(contraction_factors(source, seed), burn_in, burn_in + rounds))
    return float(np.exp(np.log(factors).sum() / rounds)) if len(factors) == rounds else 0.0


def contraction_factors(source: MixingSequence, seed: Seed) -> Iterator[float]:
    """Yield the factor of each round on consensus distance, until the nodes agree."""
    disagreement = centered(stream(seed, "measured_contraction").standard_normal(source.n))
    disagreement /= np.linalg.norm(disagreement) or 1.0
    push_weights = np.ones(source.n)
    kinds = {"row", "column"}
    for t in count():
        matrix = source.at(t)
        kinds = {kind for kind in kinds if getattr(matrix, f"is_{kind}_stochastic")}
        if not kinds:
            raise mixed_kinds(matrix.name)
        pushed = push_weights * disagreement
        push_weights = _next_push_weights(matrix, push_weights, t)
        # Any multiple of w may be subtracted from x, since both are mixed in the same way: here
        # the mean of z = x / w.
        disagreement = centered((matrix @ pushed) / push_weights)
        factor = float(np.linalg.norm(disagreement))
        if factor < EXACT:
            return
        disagreement /= factor
        yield factor


def _next_push_weights(matrix: MixingMatrix, push_weights: np.ndarray, t: int) -> np.ndarray:
    """Return the push-sum weights after round `t`; they stay 1 if rows sum to 1."""
    if (push_weights == 1).all() and matrix.is_row_stochastic:
        return push_weights
    push_weights = matrix @ push_weights
    if push_weights.min() <= 0:
        name = node_name(matrix.nodes, int(push_weights.argmin()))
        raise TopologyError(
            f"push-sum needs positive weights, that of node {name} became 0 in round {t}; every "
            "node must keep a share of its own weight and receive from others"
        )
    return push_weights


def _measured_over_periods(entry: Entry) -> float:
    """Return the contraction measured over whole periods, or the last half of a recording."""
    period = entry.rounds.period or 1
    rounds = -(-entry.horizon // period) * period
    if entry.rounds.length is not None:
        rounds = min(rounds, entry.rounds.length // 2)
    return measured_contraction(entry.rounds, rounds=rounds, seed=entry.seed)


@public
def plot_contraction(
    x: Mixable,
    *,
    rounds: int,
    seed: Seed,
    ax: "Axes | None" = None,
    weights: WeightRule | None = None,
) -> "Figure":
    """Plot the measured consensus distance from a random start and the predicted ``slem(x) ** t``.

    Both lines start at 1. For one symmetric matrix, the dashed prediction is an upper bound, to
    which the measured line becomes parallel; otherwise it is the long-run rate only. If no rate is
    predicted, the legend gives the reason. The measured line ends in a cross before a round that
    averages exactly, since a logarithmic axis cannot show 0.

    Parameters
    ----------
    x, weights
        As in :func:`topofl.metrics.measured_contraction`; several graphs may be drawn on one `ax`.
    rounds
        Number of measured rounds, at least 1.
    seed
        Seed of the random start: one standard normal number per node.
    ax
        Axes to draw on; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, to show or to save.

    Raises
    ------
    TopologyError, TypeError, ValueError
        As :func:`topofl.metrics.measured_contraction`.

    Examples
    --------
    >>> from topofl import topologies
    >>> figure = plot_contraction(topologies.ring(16), rounds=50, seed=0)
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['ring(n=16): measured', 'predicted, 0.9493 per round']
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    distances = np.cumprod([1.0, *islice(contraction_factors(source, seed), rounds)])
    rate, label = _predicted(x, weights)
    ax = own_axes(ax, WIDE, 3.8)
    drawn = sum(str(line.get_label()).endswith(": measured") for line in ax.lines)
    color = style(drawn)["color"]  # another one for each graph
    ax.plot(np.arange(len(distances)), distances, label=f"{source.name}: measured", color=color)
    if len(distances) <= rounds:
        ax.plot(len(distances) - 1, distances[-1], "x", color=color, label="then exact averaging")
    t = np.arange(rounds + 1 if rate > 0 else 1)
    ax.plot(t, rate**t, "--", color=color, alpha=0.7, label=label)
    ax.set(xlabel="round", ylabel="consensus distance, relative to the start", yscale="log")
    legend_above(ax)
    return figure_of(ax)


def _predicted(x: Mixable, weights: WeightRule | None) -> tuple[float, str]:
    """Return the predicted rate and its label in the legend; 0 if no line can be drawn."""
    try:
        rate = slem(x, weights=weights)
    except TopologyError:
        return 0.0, "no rate predicted: no period, or no second eigenvalue found"
    if rate > 0:
        return rate, f"predicted, {rate:.4g} per round"
    return rate, "predicted: exact averaging within a period"


_rounds = partial(MetricColumn, "rounds")

COLUMNS = (
    _rounds(
        "expected gap",
        "guaranteed relative decrease of squared consensus distance per round, mean over rounds",
        lambda entry: expected_gap(entry.rounds, rounds=entry.limit),
    ),
    _rounds(
        "measured contraction",
        "measured factor on consensus distance per round, from a random start",
        _measured_over_periods,
        needs=(
            need(
                "at least two rounds",
                lambda entry: entry.rounds.length != 1,
                "one round was recorded: two are needed",
            ),
        ),
    ),
)
