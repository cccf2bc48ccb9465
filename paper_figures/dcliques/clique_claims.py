"""Claims of D-Cliques about cliques with missing edges or random members, and the reference."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from ..kit.claims import (
    CHECK,
    CONFIDENCE,
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    at_least,
    at_most,
    judge,
    spread_of,
)
from ..kit.curves import Curve, Panels, average, spread
from .arms import CA, DECLARED, FULLY, RANDOM_CLIQUES
from .comparisons import (
    BETWEEN,
    CLEAR,
    FASTER,
    FINE,
    LATE,
    LEARNING,
    MORE,
    MUCH,
    SHOWING,
    SLIGHT,
    SLIGHTLY_ANY,
    SMALL,
    Arms,
    judge_each,
    lateness,
    lateness_statistic,
    lead_of,
    learning_phase,
    shown_phase,
    spread_ratio,
)

REFERENCE = {
    label: {int(epoch): value for epoch, value in row.items()}
    for label, row in DECLARED.printed("simulator").items()
}
"""Mean test accuracy over nodes in %, by epoch, of the authors' own simulator."""

JUDGED_FROM = 5
"""First epoch compared with :data:`REFERENCE`; before, seeds differ by up to 5 points."""


def fig15(panels: Panels) -> list[Claim]:
    """Judge "slightly slower" without and "not noticeably" with Clique Averaging, on MNIST."""
    plain, averaged = panels["without Clique Averaging"], panels["with Clique Averaging"]
    showing = shown_phase(plain[FULLY])
    complete = plain["0 removed"]
    slower = lead_of(complete, plain["5 removed"], showing)
    statistic = f"{SHOWING}: 0 minus 5 removed, points"
    return [
        judge(
            "Without Clique Averaging, removing edges slows the convergence.",
            statistic,
            slower,
            SLIGHTLY_ANY,
        ),
        judge(
            "Without Clique Averaging, removing edges slows the convergence only slightly.",
            statistic,
            slower,
            SLIGHT,
        ),
        judge(
            "Without Clique Averaging, removing edges increases the variance between nodes.",
            f"{LATE}: ratio of 5 to 0 removed",
            spread_ratio(plain["5 removed"], complete, (showing[0], np.inf)),
            MORE,
        ),
        *_unnoticed(averaged),
    ]


def _unnoticed(arms: Arms) -> list[Claim]:
    showing = shown_phase(arms[FULLY])
    late = (showing[0], np.inf)
    return [
        judge(
            "With Clique Averaging, removing up to 5 edges does not noticeably affect the speed.",
            f"{SHOWING}: gap of 1 and of 5 to 0 removed, points either way",
            _gaps(arms, lambda curve: average(curve, *showing)),
            FINE,
        ),
        judge(
            (
                "With Clique Averaging, removing up to 5 edges does not noticeably affect the "
                "variance."
            ),
            f"{LATE}: change from 0 to 1 and to 5 removed, points either way",
            _gaps(arms, lambda curve: spread(curve, *late)),
            FINE,
        ),
    ]


def _gaps(arms: Arms, measure: Callable[[Curve], np.ndarray]) -> dict[str, np.ndarray]:
    """Return how far arms with 1 and 5 edges removed are from that with none, either way."""
    complete = measure(arms["0 removed"])
    return {label: np.abs(measure(arms[label]) - complete) for label in ("1 removed", "5 removed")}


def fig16(panels: Panels) -> list[Claim]:
    """Judge "a small effect" without and "damages" with Clique Averaging, on CIFAR-10."""
    return _too_slow(panels["without Clique Averaging"]) + _damaged(panels["with Clique Averaging"])


def _too_slow(arms: Arms) -> list[Claim]:
    phase = learning_phase(arms[FULLY])
    return [
        judge(
            "Without Clique Averaging, removing edges has a small effect on the speed.",
            f"{LEARNING}: gap of 1 and of 5 to 0 removed, points either way",
            _gaps(arms, lambda curve: average(curve, *phase)),
            SMALL,
        ),
        judge(
            "Without Clique Averaging, removing edges has a small effect on the variance.",
            f"{BETWEEN}, mean over training: change from 0 to 1 and to 5 removed, points either "
            "way",
            _gaps(arms, spread),
            SMALL,
        ),
        judge(
            "Without Clique Averaging, the convergence is too slow to be practical.",
            f"{LEARNING}: complete graph minus D-Cliques with all edges, points",
            lead_of(arms[FULLY], arms["0 removed"], phase),
            MUCH,
        ),
    ]


def _damaged(arms: Arms) -> list[Claim]:
    complete = arms["0 removed"]
    phase = learning_phase(arms[FULLY])
    one, five = (lead_of(complete, arms[f"{removed} removed"], phase) for removed in (1, 5))
    return [
        judge(
            "With Clique Averaging, removing a single edge has a noticeable effect.",
            f"{LEARNING}: 0 minus 1 removed, points",
            one,
            FASTER,
        ),
        judge(
            "With Clique Averaging, the effect of removing a single edge is small.",
            f"{LEARNING}: 0 minus 1 removed, points",
            one,
            SMALL,
        ),
        judge(
            "With Clique Averaging, removing 5 edges per clique significantly damages convergence.",
            f"{LEARNING}: 0 minus 5 removed, points",
            five,
            CLEAR,
        ),
        judge(
            "With Clique Averaging, removing 5 edges per clique sharply increases the variance "
            "across nodes.",
            f"{BETWEEN}, mean over training: ratio of 5 to 0 removed",
            spread_ratio(arms["5 removed"], complete),
            at_least(1.5, "50 % more: five times the smallest visible change"),
        ),
    ]


def fig19(panels: Panels) -> list[Claim]:
    """Judge that Greedy-Swap increases the speed and decreases the variance between nodes."""
    return judge_each(panels, _swapped)


def _swapped(title: str, arms: Arms) -> list[Claim]:
    return [
        judge(
            (
                f"{title}: cliques made by Greedy-Swap converge significantly faster than random "
                "cliques."
            ),
            lateness_statistic("random cliques over Greedy-Swap"),
            lateness(arms[RANDOM_CLIQUES], arms[CA], arms[FULLY]),
            at_least(1.25, "25 % more epochs; half of what “much” requires"),
        ),
        judge(
            f"{title}: with Greedy-Swap the variance between nodes decreases dramatically.",
            f"{BETWEEN}, mean over training: Greedy-Swap over random cliques",
            spread_ratio(arms[CA], arms[RANDOM_CLIQUES]),
            at_most(0.5, "“dramatically”: at least halved"),
        ),
    ]


def reference(panels: Panels) -> list[Claim]:
    """Judge whether the simulator's single seed is consistent with our seeds, from epoch 5 on.

    HOLDS if the accuracy of the authors' simulator lies in the 95 % prediction interval for one
    more seed, from our seeds alone: ``mean ± t(k - 1) * s * sqrt(1 + 1 / k)`` for k seeds with
    standard deviation s; else FAILS. The fewer our seeds and the larger their spread, the weaker
    the evidence of a HOLDS.
    """
    return [
        _reproduced(title, label, epoch, arms[label].mean[:, at[0]], theirs)
        for title, arms in panels.items()
        for label, points in REFERENCE.items()
        for epoch, theirs in points.items()
        if epoch >= JUDGED_FROM and len(at := np.flatnonzero(np.isclose(arms[label].epochs, epoch)))
    ]


def _reproduced(title: str, label: str, epoch: int, ours: np.ndarray, theirs: float) -> Claim:
    k = len(ours)
    verdict, width = UNDECIDED, "undefined for one seed"
    if k > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, k - 1) * ours.std(ddof=1) * np.sqrt(1 + 1 / k)
        verdict, width = HOLDS if abs(ours.mean() - theirs) <= half else FAILS, f"ours ± {half:.2f}"
    return Claim(
        f"{title}, {label}, epoch {epoch}: the authors' simulator and topofl agree.",
        "mean accuracy over nodes, %",
        f"the simulator's single seed lies in the 95 % prediction interval of our seeds, {width}",
        spread_of(ours),
        f"{theirs:.2f} (authors' simulator)",
        verdict,
        kind=CHECK,
    )
