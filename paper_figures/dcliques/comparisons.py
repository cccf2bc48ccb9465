"""How D-Cliques' claims compare curves: windows of epochs, differences, ratios, bounds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..kit.claims import UNDECIDED, Claim, at_least, at_most, judge
from ..kit.curves import Curve, average, epochs_to, final, spread

# Speed: points of accuracy, averaged over the learning phase.
SAME = at_most(
    2.0, "a gap of 2 points is 1 mm in a figure 5 cm high: such curves count as the same"
)
FASTER = at_least(
    1.0,
    "1 point is the width of a bold line, the smallest visible gap, which suffices as the paper "
    "adds no qualifier",
)
SLOWER = at_most(-FASTER.value, FASTER.why)
CLEAR = at_least(5.0, "more than twice the gap at which curves count as the same")
SMALL = at_most(CLEAR.value, "gaps below 5 points do not count as clear")
MUCH = at_least(
    10.0, "a gap of a tenth of the axis, five times that at which curves count as the same"
)

# On an axis that starts at 89.
FINE = at_most(
    0.2, "a twentieth of the paper's axis, which starts at 89: smaller gaps are invisible there"
)
SLIGHT = at_most(
    1.0, "a quarter of the paper's axis, which starts at 89; from 0 it would be barely visible"
)

# Ratios of the distance between best and worst node.
LESS = at_most(0.9, "distances between thin lines that differ by less than a tenth look the same")
MORE = at_least(1.1, LESS.why)

WHY_ANY = "any consistent advantage over seeds counts"

SLIGHTLY_ANY = at_least(0, f"the paper says “slightly”: {WHY_ANY}")

LEARNED, SHOWN = 99, 97
"""End of the learning phase and start of axes from 89, in % of the complete graph's accuracy."""

WHOLE = (0.0, np.inf)
"""All epochs except the evaluation before training."""

LEARNING = "mean accuracy in the learning phase"

SHOWING = "mean accuracy from 97 % to 99 % of the complete graph's final accuracy"

BETWEEN = "best minus worst node"

LATE = f"{BETWEEN}, mean from 97 % of the complete graph's final accuracy on"


Arms = Mapping[str, Curve]


def judge_alike(statement: str, difference: str, gap: np.ndarray, full: Curve) -> Claim:
    """Return the claim that two arms learn at almost the same speed, whichever is ahead.

    It is undecided if even the complete graph has not learned, since all arms are then alike.
    """
    statistic = f"{LEARNING}: {difference}, points either way"
    claim = judge(statement, statistic, np.abs(gap), SAME)
    learned = (final(full) - full.mean[:, 0]).mean() >= MUCH.value
    return claim if learned else replace(claim, verdict=UNDECIDED)


def _reaching(reference: Curve, percent: float) -> float:
    """Return the epoch at which the mean over seeds first reaches a share of its final accuracy."""
    mean = reference.mean.mean(axis=0)
    reached = mean[1:] >= percent / 100 * final(reference).mean()
    return float(reference.epochs[1:][np.argmax(reached)])


def learning_phase(reference: Curve) -> tuple[float, float]:
    """Return the epochs at which the learning phase starts and ends."""
    return 0.0, _reaching(reference, LEARNED)


def shown_phase(full: Curve) -> tuple[float, float]:
    """Return the part of the learning phase that an axis from 89 shows: one evaluation or more."""
    return _reaching(full, SHOWN) - 1e-9, _reaching(full, LEARNED)


def lead_of(ahead: Curve, behind: Curve, window: tuple[float, float] = WHOLE) -> np.ndarray:
    """Return the lead of one arm over another in a window of epochs, in points per seed."""
    return average(ahead, *window) - average(behind, *window)


def spread_ratio(above: Curve, below: Curve, window: tuple[float, float] = WHOLE) -> np.ndarray:
    """Return the ratio of two arms' best minus worst node, each at least 0.01 points."""
    apart = [np.maximum(spread(curve, *window), 0.01) for curve in (above, below)]
    return apart[0] / apart[1]


def lateness_statistic(arms: str) -> str:
    """Return the description of :func:`lateness` for two arms."""
    return (
        "epochs to 97 % of the complete graph's final accuracy, or to the faster arm's accuracy "
        f"halfway: {arms}"
    )


def lateness(slow: Curve, fast: Curve, full: Curve) -> np.ndarray:
    """Return the ratio of the epochs that a slow and a fast arm need, one per seed.

    Times are at least a tenth of the first interval between evaluations.
    """
    halfway = fast.mean[:, np.searchsorted(fast.epochs, fast.epochs[-1] / 2, side="right") - 1]
    levels = np.minimum(SHOWN / 100 * final(full), halfway)
    late, early = (
        np.clip(epochs_to(c, levels), 0.1 * c.epochs[1], c.epochs[-1]) for c in (slow, fast)
    )
    return late / early


def degree_of(curve: Curve) -> float:
    """Return the mean degree of an arm's graph."""
    return float(curve.numbers["degree"].mean())
