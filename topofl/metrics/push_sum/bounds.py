"""Bounds ``C q^t`` on the convergence of push-sum, as logarithms."""

import math
from dataclasses import dataclass

from topofl._support.table import NotApplicable
from topofl.mixing import MixingSequence

__all__ = [
    "GeometricBound",
    "dfedpgp_bound",
    "log10_delta_bound",
    "log10_gap_of_root",
    "proven_bound",
    "sgp_bound",
]


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


def sgp_bound(
    n: int,
    b: int | float,
    diameter: int | float,
    degree: float,
    reach: int | float,
    dimension: int,
    horizon: int | float = math.inf,
) -> GeometricBound | NotApplicable:
    """Return the bound of stochastic gradient push (SGP); see :func:`push_sum_constants`."""
    if b == math.inf:
        return NotApplicable("no window of these rounds is strongly connected for every start")
    m = (diameter + 1) * b
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
    return GeometricBound(
        log10_gap_of_root(log_e, m + 1),
        log10_c,
        _violated_premise(m, "(Delta+1) B", reach, horizon),
    )


def dfedpgp_bound(
    n: int,
    b: int | float,
    diameter: int | float,
    degree: float,
    reach: int | float,
    horizon: int | float = math.inf,
) -> GeometricBound | NotApplicable:
    """Return the bound of DFedPGP; see :func:`push_sum_constants`."""
    if b == math.inf:
        return NotApplicable("no window of these rounds is strongly connected for every start")
    if degree <= 1 and n > 1:
        return NotApplicable("a = 1 / D_max must be below 1, and the smallest weight is 1")
    m = diameter * b
    note = _violated_premise(m, "Delta B", reach, horizon)
    return GeometricBound(
        log10_gap_of_root(-m * math.log(degree), m + 1),
        NotApplicable("the paper does not specify C"),
        note,
    )


def proven_bound(
    n: int, degree: float, reach: int | float, horizon: int | float = math.inf
) -> GeometricBound | NotApplicable:
    """Return the bound proven for the given rounds; see :func:`push_sum_constants`."""
    if reach == math.inf:
        how_long = (
            "after any number of rounds"
            if horizon == math.inf
            else f"within the {horizon} rounds examined"
        )
        return NotApplicable(f"some nodes hold no share of some others {how_long}")
    log_e = math.log(n) - reach * math.log(degree)
    return GeometricBound(
        log10_gap_of_root(log_e, reach),
        -(reach - 1) / reach * _log10_complement(log_e) if reach > 1 else 0.0,
    )


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
