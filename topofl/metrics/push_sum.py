"""Constants of push-sum over directed, changing graphs: theoretical bounds and measured values."""

import math
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._linalg import spectral
from topofl._linalg.sparse import hop_counts
from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.table import NotApplicable, Table
from topofl._support.text import node_name
from topofl.metrics._columns import CUBIC_LIMIT, Entry, MetricColumn, limited
from topofl.metrics._rounds import (
    ROUNDS,
    Mixable,
    WeightRule,
    as_rounds,
    averages,
    check_size,
    losing_node,
    lost_weight_message,
)
from topofl.metrics.averaging import ergodicity_coefficient
from topofl.metrics.shape import b_connectivity, longest_window
from topofl.mixing import MixingMatrix, MixingSequence, own_weights, uniform
from topofl.topology import Topology, TopologySequence

__all__ = ["GeometricBound", "PushSumConstants", "push_sum_constants"]


@dataclass(frozen=True)
class GeometricBound:
    """A bound ``C q^t``, as logarithms since 1 - q underflows for graphs of ordinary size.

    Parameters
    ----------
    log10_gap
        log10(1 - q), at most 0; -inf if the bound does not decrease.
    log10_c
        log10(C), or the reason why it is not known.
    note
        Reason why the premise of the bound fails, or is undecided, for these rounds; empty if it
        holds.

    Examples
    --------
    >>> GeometricBound(log10_gap=-1.0, log10_c=2.0).q  # the bound is 100 * 0.9^t
    0.9
    >>> GeometricBound(log10_gap=-40.0, log10_c=2.0).q
    1.0
    """

    log10_gap: float
    log10_c: float | NotApplicable
    note: str = ""

    @property
    def q(self) -> float:
        """Factor per round; 1.0 if 1 - q is below machine precision."""
        return 1.0 - 10.0**self.log10_gap


NEVER_STRONG = "no window of these rounds is strongly connected for every start"
"""Reason why bounds over strongly connected windows do not apply."""


def sgp_bound(
    n: int, m: int | float, degree: float, dimension: int, note: str = ""
) -> GeometricBound | NotApplicable:
    """Return the bound of stochastic gradient push (SGP), with ``m = (Delta + 1) B``."""
    if m == math.inf:
        return NotApplicable(NEVER_STRONG)
    log_e = math.log(n) - m * math.log(degree)
    if log_e > 1e-9:
        return NotApplicable(
            f"lambda = 1 - n D_max^-((Delta+1) B) is negative for n={n}, D_max={degree:g}"
        )
    log10_c = (
        math.log10(2 * math.sqrt(dimension))
        + m * math.log10(degree)
        - (m + 2) / (m + 1) * _log10_complement(log_e)
    )
    return GeometricBound(log10_gap_of_root(log_e, m + 1), log10_c, note)


def dfedpgp_bound(
    n: int, m: int | float, degree: float, note: str = ""
) -> GeometricBound | NotApplicable:
    """Return the bound of DFedPGP, with ``m = Delta B``."""
    if m == math.inf:
        return NotApplicable(NEVER_STRONG)
    if degree <= 1 and n > 1:
        return NotApplicable("a = 1 / D_max must be below 1, and the smallest weight is 1")
    log10_gap = log10_gap_of_root(-m * math.log(degree), m + 1)
    return GeometricBound(log10_gap, NotApplicable("the paper does not specify C"), note)


def proven_bound(
    n: int, degree: float, reach: int | float, horizon: int | float = math.inf
) -> GeometricBound | NotApplicable:
    """Return the bound proven for the given rounds; see :func:`push_sum_constants`."""
    if reach == math.inf:
        ever = horizon == math.inf
        within = "after any number of rounds" if ever else f"within the {horizon} rounds examined"
        return NotApplicable(f"some nodes hold no share of some others {within}")
    log_e = math.log(n) - reach * math.log(degree)
    log10_c = -(reach - 1) / reach * _log10_complement(log_e) if reach > 1 else 0.0
    return GeometricBound(log10_gap_of_root(log_e, reach), log10_c)


def log10_delta_bound(
    source: MixingSequence, b: int | float, degree: float, rounds: int
) -> float | NotApplicable:
    """Return log10 of Nedic and Olshevsky's lower bound on delta, if its premise holds."""
    diagonals = [source.at(t).weights.diagonal().min() for t in range(source.period or rounds)]
    if min(diagonals) <= 0 or degree > source.n * (1 + 1e-9):
        return NotApplicable("needs weights of at least 1/n, including each node's own weight")
    return -source.n * b * math.log10(source.n) if source.n > 1 else 0.0


def _violated_premise(
    steps: int | float, what: str, reach: int | float, horizon: int | float
) -> str:
    """Return why products of this many rounds may have zeros; empty if they have none."""
    if reach <= steps:
        return ""
    if reach == math.inf and steps > horizon:
        return (
            f"whether products of {what} = {steps} rounds have zeros "
            f"cannot be decided from {horizon} rounds"
        )
    return f"products of {what} = {steps} rounds have zeros (reach is {reach}): its premise fails"


def log10_gap_of_root(log_e: float, k: float) -> float:
    """Return ``log10(1 - (1 - e)^(1/k))`` for ``e = exp(log_e)`` in (0, 1]."""
    if log_e < -30:  # (1 - e)^(1/k) = 1 - e/k up to a relative 1e-13
        return (log_e - math.log(k)) / math.log(10)
    if log_e >= 0:
        return 0.0
    return math.log10(-math.expm1(math.log1p(-math.exp(log_e)) / k))


def _log10_complement(log_e: float) -> float:
    """Return ``log10(1 - e)``, -inf for e = 1."""
    return -math.inf if log_e >= 0 else math.log1p(-math.exp(log_e)) / math.log(10)


STARTS = 5
"""Number of evenly spaced windows over which contraction is measured."""

FLOOR = 1e-12
"""Ergodicity coefficients below this are rounding errors."""


def measured_rate(source: MixingSequence, rounds: int, by_rows: bool) -> tuple[float, float]:
    """Return q_hat and c_hat of the largest ergodicity coefficient over all windows."""
    coefficients = np.array(_ergodicity_coefficients(source, rounds, by_rows))
    q = _slope(coefficients, source.period or 1)
    times = np.arange(len(coefficients))
    if q == 0:
        return 0.0, math.inf
    with np.errstate(divide="ignore"):
        return q, float(np.exp(np.max(np.log(coefficients) - times * math.log(q))))


def _ergodicity_coefficients(source: MixingSequence, rounds: int, by_rows: bool) -> list[float]:
    """Return the largest coefficient of any window of 0, 1, 2, ... rounds."""
    starts = _window_starts(source, rounds)
    products = [np.eye(source.n) for _ in starts]
    largest = [1.0 if source.n > 1 else 0.0]
    length = rounds if source.period else rounds - max(starts)
    for t in range(length):
        products = [source.at(s + t).weights @ one for s, one in zip(starts, products, strict=True)]
        rows = products if by_rows else [one.T for one in products]
        largest.append(max(map(ergodicity_coefficient, rows)))
        if largest[-1] < FLOOR:
            largest[-1] = 0.0
            break
    return largest


def _window_starts(source: MixingSequence, rounds: int) -> list[int]:
    if source.period:
        spaced = np.linspace(0, source.period - 1, min(STARTS, source.period))
        return sorted({round(s) for s in spaced})
    spaced = np.linspace(0, rounds / 2, STARTS) if rounds >= 2 * STARTS else [0]
    return sorted({int(s) for s in spaced})


def _slope(coefficients: np.ndarray, period: int) -> float:
    """Return the factor per round, exp of the slope of log tau(t); 0 if averaging becomes exact."""
    times = np.flatnonzero((coefficients > FLOOR) & (coefficients <= 0.5))
    if len(times) < 2:
        if coefficients[-1] <= FLOOR:
            return 0.0
        times = np.arange(len(coefficients) // 2, len(coefficients))
    if len(times) < 2:
        return float(coefficients[-1])
    q = float(min(1.0, np.exp(np.polyfit(times, np.log(coefficients[times]), 1)[0])))
    # A geometric sequence approaches the floor before it drops below it, up to variation within a
    # period. A sequence that drops from far above it has become exact.
    return 0.0 if coefficients[-1] <= FLOOR < coefficients[-2] * q ** (2 * max(period, 2)) else q


def smallest_push_weight(source: MixingSequence, rounds: int) -> float:
    """Return the smallest push-sum weight in any round; 1 if rows always sum to 1."""
    weights = np.ones(source.n)
    smallest = 1.0
    for t in range(rounds):
        matrix = source.at(t)
        if matrix.is_row_stochastic:
            if (weights == 1).all():
                continue
            if not matrix.is_column_stochastic:
                break
        weights = matrix @ weights
        smallest = min(smallest, float(weights.min()))
    return smallest


def structure_constants(
    source: MixingSequence, rounds: int
) -> tuple[int | float, int | float, float, int | float]:
    """Return B, Delta, D_max and reach; see :class:`PushSumConstants`."""
    b = b_connectivity(source, rounds=None if source.period else rounds)
    weights = [source.at(t).weights for t in range(source.period or rounds)]
    # Patterns include the diagonal, which is zero for a node that keeps no share of its own value.
    patterns = [sparse.csr_array(one != 0, dtype=np.float32) for one in weights]
    diameter = math.inf
    if b != math.inf:
        length, twice = int(b), patterns * 2
        starts = range(len(patterns) if source.period else len(patterns) - length + 1)
        windows = (twice[start : start + length] for start in starts)
        unions = (sum(rest, start=first) for first, *rest in windows)
        diameter = max(len(hop_counts(union)) - 1 for union in unions)
    smallest = min(float(one.data.min()) for one in weights)
    return b, diameter, 1 / smallest, _reach(patterns, source.period)


def _reach(patterns: list[sparse.csr_array], period: int | None) -> int | float:
    """Return the smallest T for which no product of T consecutive patterns has a zero."""
    for pattern in patterns:
        # A zero row or column, of a node that receives or sends nothing, remains in some product.
        if min(pattern.count_nonzero(axis=0).min(), pattern.count_nonzero(axis=1).min()) == 0:
            return math.inf
    if period and not _becomes_full(patterns):
        return math.inf
    lengths = [_rounds_until_full(patterns, start, period) for start in range(len(patterns))]
    return longest_window(np.array(lengths, dtype=float), periodic=period is not None)


def _rounds_until_full(
    patterns: list[sparse.csr_array], start: int, period: int | None
) -> int | float:
    """Return the number of rounds from `start` until no entry is 0; infinite if there is none."""
    reached = np.eye(patterns[0].shape[0], dtype=np.float32)
    for t in count(1) if period else range(1, len(patterns) - start + 1):
        reached = (patterns[(start + t - 1) % len(patterns)] @ reached > 0).astype(np.float32)
        if reached.all():
            return t
    return math.inf


def _becomes_full(patterns: list[sparse.csr_array]) -> bool:
    """Return whether the product over a period is primitive, so that some power is positive.

    (Then the products that start at other rounds are primitive too, since no pattern has an empty
    row or column.) A primitive matrix of order n has a positive power below n^2, by Wielandt, and
    all its later powers are positive.
    """
    product = patterns[0].toarray()
    for pattern in patterns[1:]:
        product = (pattern @ product > 0).astype(np.float32)
    for _ in range(2 * len(product).bit_length()):
        if product.all():
            break
        product = (product @ product > 0).astype(np.float32)
    return bool(product.all())


@dataclass(frozen=True)
class PushSumConstants:
    """Constants of push-sum over a sequence of rounds, as returned by :func:`push_sum_constants`.

    Parameters
    ----------
    name, n, rounds
        Name and size of the sequence, and the number of its rounds that were examined.
    b
        Smallest B such that any B consecutive graphs are jointly strongly connected; infinite if
        none.
    diameter
        Delta: the largest diameter, in hops, of the union of B consecutive graphs; infinite if `b`
        is.
    max_degree
        D_max: 1 / the smallest positive weight; with uniform weights the largest degree, self
        included.
    reach
        Smallest T such that after any T consecutive rounds every node holds a share of every
        other node's push-sum weight (or, if row-stochastic, model); infinite if there is none
        within the rounds examined.
    sgp, dfedpgp, proven
        Bounds of the form ``C q^t``, or the reason why they do not apply.
    q_hat, c_hat
        Measured constants: ``tau(t) <= c_hat * q_hat**t`` in each window examined, where tau is the
        ergodicity coefficient of its t rounds; 0 and infinite if averaging is exact after a few
        rounds. If the push-sum weight of a node tends to 0 (the Perron vector has a zero entry),
        models never agree although columns do, and both are a NotApplicable with this reason.
    delta
        Smallest push-sum weight of any node in any of the rounds; 1 for row- and doubly stochastic
        weights. A NotApplicable if a weight tends to 0.
    log10_delta_bound
        log10 of the lower bound ``n**(-n * b)`` on delta, for weights of at least 1/n where each
        node keeps a share of its own model.

    Examples
    --------
    >>> from topofl import topologies
    >>> constants = push_sum_constants(topologies.one_peer_exponential(8), rounds=30)
    >>> constants.reach, constants.q_hat  # averages are exact after three rounds
    (3, 0.0)
    >>> constants.to_table().rows[1]
    ('B (length of strongly connected windows)', 3)
    """

    name: str
    n: int
    rounds: int
    b: int | float
    diameter: int | float
    max_degree: float
    reach: int | float
    sgp: GeometricBound | NotApplicable
    dfedpgp: GeometricBound | NotApplicable
    proven: GeometricBound | NotApplicable
    q_hat: float | NotApplicable
    c_hat: float | NotApplicable
    delta: float | NotApplicable
    log10_delta_bound: float | NotApplicable

    def to_table(self) -> Table:
        """Return all constants as a table with one row per quantity."""
        rows = [
            ("rounds examined", self.rounds),
            ("B (length of strongly connected windows)", self.b),
            ("Delta (diameter of a window's union)", self.diameter),
            ("D_max (1 / smallest weight)", self.max_degree),
            ("reach (rounds until every node holds a share of every other)", self.reach),
        ]
        for label, bound in [("SGP", self.sgp), ("DFedPGP", self.dfedpgp), ("proven", self.proven)]:
            known = isinstance(bound, GeometricBound)
            rows.append((f"log10(1 - q), {label}", bound.log10_gap if known else bound))
            rows.append((f"log10(C), {label}", bound.log10_c if known else bound))
        rows += [
            ("q measured", self.q_hat),
            ("C measured", self.c_hat),
            ("delta (smallest push-sum weight)", self.delta),
            ("log10 of delta's bound n^(-nB)", self.log10_delta_bound),
        ]
        return Table(("quantity", "value"), tuple(rows), title=f"Push-sum over {self.name}")

    def __str__(self) -> str:
        return str(self.to_table())

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()


@public
def push_sum_constants(
    x: Mixable, *, rounds: int | None = None, dimension: int = 1, weights: WeightRule | None = None
) -> PushSumConstants:
    """Return bounds and measurements of the constants q and C of push-sum's geometric convergence.

    There are two published bounds and one that is proven for the given rounds.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, any TopologySequence, or a list of MixingMatrix, which is one
        period. Up to 1,500 nodes.
    rounds
        Number of rounds to examine; default: 100, as in :func:`compare`, or all that were recorded.
        B, Delta and reach of a periodic sequence hold for all rounds; those of other sequences hold
        for the examined rounds only.
    dimension
        d, the number of parameters of a model, in SGP's C.
    weights
        Rule from Topology to MixingMatrix for graphs; default: ``uniform(topology,
        direction="push")``, or the graph's own weights if it has any. For row-stochastic weights,
        push-sum weights stay 1.

    Returns
    -------
    PushSumConstants

    Raises
    ------
    TopologyError
        If n is above 1,500, or the rounds mix row- with column-stochastic matrices.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    With ``D = max_degree``, the smallest positive weight is 1/D:

    * SGP: ``lambda = 1 - n D^-((Delta+1) B)``, ``q = lambda^(1 / ((Delta+1) B + 1))``, ``C = 2
      sqrt(d) D^((Delta+1) B) lambda^-(((Delta+1) B + 2) / ((Delta+1) B + 1))``; then ``||mean -
      z_i||_2 <= C q^t ||x_0||_2`` without gradients. The published text of the lemma was not
      available; this form is cited from secondary sources. Its premise is that products of
      (Delta+1) B rounds have no zero entry, which may fail on changing graphs even if each is
      strongly connected with a small diameter (stars whose center moves). Where `reach` shows that
      it fails, `note` says so.
    * DFedPGP: ``q = (1 - a^(Delta B))^(1 / (Delta B + 1))`` with a = 1/D; the paper does not
      specify a and C.
    * Proven: any T = reach consecutive rounds multiply to a matrix with entries >= D^-T, whose
      ergodicity coefficient is at most ``1 - n D^-T``; coefficients are submultiplicative, so
      ``tau(t) <= C q^t`` with ``q = (1 - n D^-T)^(1/T)`` and ``C = (1 - n D^-T)^(-(T-1)/T)``.

    Measured: tau(t) is half the largest L1 distance between two columns (rows, if row-stochastic)
    of the product of t rounds, maximized over up to five windows whose starts are evenly spaced in
    the period or in the first half of the rounds. q_hat is its least-squares slope on a logarithmic
    scale where it is between 1e-12 and 1/2, or over the last half of the rounds if it never falls
    to 1/2. It is 0 if averaging becomes exact, that is, if tau drops below 1e-12 abruptly.

    References
    ----------
    Assran, Loizou, Ballas and Rabbat, "Stochastic gradient push for distributed deep learning"
    (2019), Lemma 3. Liu et al., "DFedPGP" (2024), Remark 2. Nedic and Olshevsky, "Distributed
    optimization over time-varying directed graphs" (2015), for delta and its bound.

    Examples
    --------
    >>> from topofl import topologies
    >>> constants = push_sum_constants(topologies.exponential(8, directed=True), rounds=50)
    >>> constants.b, constants.diameter, constants.max_degree, constants.reach
    (1, 3, 4.0, 3)
    >>> constants.q_hat < constants.proven.q < constants.sgp.q < 1
    True
    """
    if weights is None and isinstance(x, Topology | TopologySequence):
        weights = _push_weights
    source = as_rounds(x, weights)
    if rounds is None:
        rounds = source.length or ROUNDS
    rounds = check_int("rounds", rounds, minimum=1, maximum=source.length)
    dimension = check_int("dimension", dimension, minimum=1)
    remedy = "metrics.b_connectivity and metrics.measured_contraction take more"
    check_size("push-sum constants are", source, spectral.DENSE_LIMIT, remedy)
    # Random graphs are drawn again on each access.
    matrices = [source.at(t) for t in range(source.period or rounds)]
    source = MixingSequence(source.n, matrices.__getitem__, source.name, source.period)
    pushes = all(matrix.is_column_stochastic for matrix in matrices)
    by_rows = not pushes and averages(matrices, source.name)
    b, diameter, max_degree, reach = structure_constants(source, rounds)
    lost = _reason_for_lost_weight(source, matrices)
    q_hat, c_hat = measured_rate(source, rounds, by_rows) if lost is None else (lost, lost)
    horizon = math.inf if source.period else rounds
    strong, twice = diameter * b, (diameter + 1) * b
    of_strong = _violated_premise(strong, "Delta B", reach, horizon)
    of_twice = _violated_premise(twice, "(Delta+1) B", reach, horizon)
    return PushSumConstants(
        name=source.name,
        n=source.n,
        rounds=rounds,
        b=b,
        diameter=diameter,
        max_degree=max_degree,
        reach=reach,
        sgp=sgp_bound(source.n, twice, max_degree, dimension, of_twice),
        dfedpgp=dfedpgp_bound(source.n, strong, max_degree, of_strong),
        proven=proven_bound(source.n, max_degree, reach, horizon),
        q_hat=q_hat,
        c_hat=c_hat,
        delta=smallest_push_weight(source, rounds) if lost is None else lost,
        log10_delta_bound=log10_delta_bound(source, b, max_degree, rounds),
    )


def _push_weights(topology: Topology) -> MixingMatrix:
    return own_weights(topology) if topology.own_weights else uniform(topology, direction="push")


def _reason_for_lost_weight(
    source: MixingSequence, matrices: list[MixingMatrix]
) -> NotApplicable | None:
    """Return the reason why push-sum does not converge if a weight tends to 0, else None."""
    if source.period is None:  # weight may return in any of the rounds
        mean = sum(matrix.weights for matrix in matrices) / len(matrices)
        matrices = [MixingMatrix(sparse.csr_array(mean))]
    node = losing_node(matrices)
    if node is None:
        return None
    name = node_name(source.at(0).nodes, node)
    return NotApplicable(lost_weight_message(name, source.name))


def _constant_column(name: str, path: str, meaning: str) -> MetricColumn:
    """Return the column of a constant, or of a field of one; all share one computation."""

    def compute(entry: Entry) -> Any:
        value: Any = entry.shared(_constants)
        for field in path.split("."):
            value = value if isinstance(value, NotApplicable) else getattr(value, field)
        return value

    limit = limited(CUBIC_LIMIT, "metrics.push_sum_constants")
    return MetricColumn("push-sum", name, meaning, compute, limit=limit)


def _constants(entry: Entry) -> PushSumConstants:
    return push_sum_constants(entry.push_sum_source, rounds=entry.horizon)


COLUMNS = tuple(
    _constant_column(*constant)
    for constant in (
        ("Delta", "diameter", "largest diameter of the union of B consecutive rounds"),
        ("D_max", "max_degree", "1 / the smallest positive weight"),
        (
            "reach",
            "reach",
            "rounds after which every node holds a share of every other node's push-sum weight",
        ),
        ("log10(1 - q), SGP", "sgp.log10_gap", "push-sum contracts by q per round, bound of SGP"),
        ("log10(C), SGP", "sgp.log10_c", "constant C of the bound C q^t of SGP"),
        (
            "log10(1 - q), DFedPGP",
            "dfedpgp.log10_gap",
            "push-sum contracts by q per round, bound of DFedPGP",
        ),
        (
            "log10(1 - q), proven",
            "proven.log10_gap",
            "push-sum contracts by q per round, bound proven for these rounds",
        ),
        ("q measured", "q_hat", "measured factor by which push-sum contracts per round"),
        (
            "C measured",
            "c_hat",
            "smallest C for which C q^t, with q measured, bounds the measurement",
        ),
        ("delta", "delta", "smallest push-sum weight of any node in any round"),
    )
)
