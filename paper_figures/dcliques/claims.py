"""Claims of D-Cliques (Bellet, Kermarrec and Lavoie 2022) about its figures, judged over seeds.

There is one function per figure, for example ``fig08(panels)``, which returns the claims in the
order of the paper's sentences. Panels and arms are those of :mod:`paper_figures.dcliques.arms`;
in figures with one panel per dataset, the available panels are judged.

The paper shows curves and prints few numbers, so these rules were chosen from its words, before the
results of our runs were known, as what a reader of a figure with an axis from 0 to 100 % can see:

- Speed is the accuracy during learning: the mean over nodes, averaged over the evaluations up to
  the one at which the complete graph (in figures without it, D-Cliques) first reaches 99 % of its
  final accuracy, "the learning phase". A gap of up to 2 points is "almost the same", from 1 point
  one curve is "faster", from 5 points "clearly", from 10 points "much". Windows follow the curves,
  so they mean the same in runs of any length.
- Where the paper's axis starts at 89 (figures 9 and 15), only the visible part is judged: from 97 %
  of the complete graph's final accuracy on, which is 89 of 92.
- "Much slower" (figures 13 and 14) and "significantly faster" (figure 19) are about time: epochs to
  97 % of the complete graph's final accuracy, or to the faster arm's accuracy halfway through the
  run if that is lower, so that a delay is visible. An arm that never reaches it counts with the
  length of the run, which underestimates its delay.
- "Variance" is what the thin lines show, the best minus the worst node; "less" means at least 10 %
  less.

Differences and ratios are between arms with the same seed. "Points either way" is the size of a
difference in a single seed, whichever arm is ahead; the mean of these sizes over seeds is judged,
so that opposite differences do not cancel. A claim on several arms ("fastest of the four", "better
than with a ring or a grid", "up to 5 edges") is judged by each of its comparisons, never by their
extreme: see :func:`paper_figures.kit.claims.judge`. "The effect of the topology is very
significant" requires one sparse graph with such an effect. Numbers of edges and messages are judged
once, in figure ``dcliques-numbers``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

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
    judge_each,
    spread_of,
)
from ..kit.curves import Curve, Panels, average, epochs_to, final, spread
from .arms import (
    ALL,
    CA,
    CLIQUES,
    DECLARED,
    EXPONENTIAL_LABEL,
    FULLY,
    RANDOM_CLIQUES,
    RANDOM_LABEL,
    RANDOM_MOMENTUM,
    TWO_SHARDS,
)

# Speed: points of accuracy, averaged over the learning phase.
SAME = at_most(
    2.0, "a gap of 2 points is 1 mm in a figure 5 cm high: such curves count as the same"
)
FASTER = at_least(
    1.0,
    "1 point is the width of a bold line, the smallest visible gap, which suffices as the paper "
    "adds no qualifier",
    tie=0,
)
SLOWER = at_most(-FASTER.value, FASTER.why, tie=0)
CLEAR = at_least(5.0, "more than twice the gap at which curves count as the same", tie=0)
SMALL = at_most(CLEAR.value, "gaps below 5 points do not count as clear")
MUCH = at_least(
    10.0, "a gap of a tenth of the axis, five times that at which curves count as the same", tie=0
)

# On an axis that starts at 89.
FINE = at_most(
    0.2, "a twentieth of the paper's axis, which starts at 89: smaller gaps are invisible there"
)
SLIGHT = at_most(
    1.0, "a quarter of the paper's axis, which starts at 89; from 0 it would be barely visible"
)

# Ratios of the distance between best and worst node.
LESS = at_most(
    0.9, "distances between thin lines that differ by less than a tenth look the same", tie=1
)
MORE = at_least(1.1, LESS.why, tie=1)

WHY_ANY = "any consistent advantage over seeds counts"
SLIGHTLY_ANY = at_least(0, f"the paper says “slightly”: {WHY_ANY}", tie=0)

LEARNED, SHOWN = 99, 97
"""End of the learning phase and start of axes from 89, in % of the complete graph's accuracy."""

WHOLE = (0.0, np.inf)
"""All epochs except the evaluation before training."""

LEARNING = "mean accuracy in the learning phase"
SHOWING = "mean accuracy from 97 % to 99 % of the complete graph's final accuracy"
BETWEEN = "best minus worst node"
LATENESS = (
    "epochs to 97 % of the complete graph's final accuracy, or to the faster arm's accuracy halfway"
)
LATE = f"{BETWEEN}, mean from 97 % of the complete graph's final accuracy on"

Arms = Mapping[str, Curve]


def judge_alike(statement: str, difference: str, gap: np.ndarray, full: Curve) -> Claim:
    """Return the claim that two arms learn at almost the same speed, whichever is ahead.

    It is undecided if even the complete graph has not learned, since all arms are then alike.
    """
    statistic = f"{LEARNING}: {difference}, points either way"
    claim = judge(statement, statistic, np.abs(gap), SAME)
    learned = (final(full) - full.mean[:, 0]).mean() >= MUCH.value
    return claim if learned else replace(claim, verdict=UNDECIDED, evidence=None)


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


def fig01(panels: Panels) -> list[Claim]:
    """Judge that the topology matters little for homogeneous and much for heterogeneous data."""
    iid, skewed = panels["IID"], panels[TWO_SHARDS]
    phase, iid_phase = learning_phase(skewed[FULLY]), learning_phase(iid[FULLY])
    gaps = {
        f"{one} and {other}": np.abs(lead_of(iid[one], iid[other], iid_phase))
        for one, other in combinations(iid, 2)
    }
    sparse = {label: lead_of(skewed[FULLY], skewed[label], phase) for label in ("ring", "grid")}
    both = lead_of(iid[FULLY], skewed[FULLY], (0.0, max(iid_phase[1], phase[1])))
    return [
        judge(
            "With IID data the effect of the topology is negligible.",
            f"{LEARNING}: gap between any two of the three graphs, points either way",
            gaps,
            SAME,
        ),
        judge(
            "With label skew the effect of the topology is very significant.",
            f"{LEARNING}: complete graph minus ring or grid, points",
            sparse,
            MUCH,
            any_of=True,
        ),
        judge(
            "With label skew every sparse topology clearly jeopardizes the speed of convergence.",
            f"{LEARNING}: complete graph minus ring and grid, points",
            sparse,
            CLEAR,
        ),
        judge_alike(
            "On a fully-connected network, IID and skewed data converge similarly.",
            "IID minus skewed",
            both,
            iid[FULLY],
        ),
    ]


def fig08(panels: Panels) -> list[Claim]:
    """Judge "very close to a fully-connected topology", and better than a ring or a grid."""
    sparse = {title: arms for title, arms in panels.items() if "ring" in arms}
    return judge_each(panels, _close_to_complete) + judge_each(sparse, _better_than_sparse)


def _close_to_complete(title: str, arms: Arms) -> list[Claim]:
    gap = lead_of(arms[FULLY], arms[CA], learning_phase(arms[FULLY]))
    statement = (
        f"{title}: the convergence speed of D-Cliques is very close to that of a fully-connected "
        "network."
    )
    return [judge_alike(statement, "complete graph minus D-Cliques", gap, arms[FULLY])]


def _better_than_sparse(title: str, arms: Arms) -> list[Claim]:
    sparse = {label: arms[label] for label in ("ring", "grid")}
    phase = learning_phase(arms[FULLY])
    return [
        judge(
            f"{title}: D-Cliques converge significantly better than a ring or a grid.",
            f"{LEARNING}: D-Cliques minus ring and grid, points",
            {label: lead_of(arms[CA], curve, phase) for label, curve in sparse.items()},
            CLEAR,
        ),
        judge(
            f"{title}: D-Cliques have less variance between nodes than both the ring and the grid.",
            f"{BETWEEN}, mean over training: D-Cliques over ring and grid",
            {label: spread_ratio(arms[CA], curve) for label, curve in sparse.items()},
            LESS,
        ),
    ]


def fig09(panels: Panels) -> list[Claim]:
    """Judge "reduces the variance across nodes and slightly accelerates the convergence"."""
    return judge_each(panels, _averaged)


def _averaged(title: str, arms: Arms) -> list[Claim]:
    gain = lead_of(arms[CA], arms[CLIQUES], shown_phase(arms[FULLY]))
    statistic = f"{SHOWING}: with minus without Clique Averaging, points"
    return [
        judge(
            f"{title}: Clique Averaging reduces the variance of models across nodes.",
            f"{LATE}: ratio of with to without Clique Averaging",
            spread_ratio(arms[CA], arms[CLIQUES], (shown_phase(arms[FULLY])[0], np.inf)),
            LESS,
        ),
        judge(
            f"{title}: Clique Averaging accelerates the convergence.", statistic, gain, SLIGHTLY_ANY
        ),
        judge(f"{title}: the acceleration by Clique Averaging is slight.", statistic, gain, SLIGHT),
    ]


def fig10(panels: Panels) -> list[Claim]:
    """Judge "much more pronounced on CIFAR10, especially with momentum", and best together."""
    both = panels["without momentum"], panels["with momentum"]
    return _effect_of_averaging(*both) + _both_together(*both)


SPEED = "mean accuracy over training"


def _effect_of_averaging(plain: Arms, heavy: Arms) -> list[Claim]:
    gains = [lead_of(arms[CA], arms[CLIQUES]) for arms in (plain, heavy)]
    return [
        judge(
            "The effect of Clique Averaging is much more pronounced than on MNIST.",
            f"{SPEED}: with minus without Clique Averaging, mean of both panels, points",
            np.mean(gains, axis=0),
            at_least(CLEAR.value, f"on MNIST it is called slight; {CLEAR.why}"),
        ),
        judge(
            "Clique Averaging has more effect in combination with momentum.",
            f"{SPEED}: gain by Clique Averaging with momentum minus that without, points",
            gains[1] - gains[0],
            at_least(
                CLEAR.value,
                "“especially”: clearly more than two barely visible effects (1 point each)",
            ),
        ),
        judge(
            "Without Clique Averaging, momentum is detrimental.",
            f"{SPEED}: with minus without momentum, points",
            lead_of(heavy[CLIQUES], plain[CLIQUES]),
            SLOWER,
        ),
        judge(
            "With Clique Averaging, momentum is beneficial.",
            f"{SPEED}: with minus without momentum, points",
            lead_of(heavy[CA], plain[CA]),
            FASTER,
        ),
    ]


def _both_together(plain: Arms, heavy: Arms) -> list[Claim]:
    others = {"neither": plain[CLIQUES], "Clique Averaging": plain[CA], "momentum": heavy[CLIQUES]}
    return [
        judge(
            "Clique Averaging and momentum together converge fastest of the four.",
            f"{SPEED}: both together minus each of the other three, points",
            {label: lead_of(heavy[CA], curve) for label, curve in others.items()},
            at_least(0, f"“fastest”: {WHY_ANY}", tie=0),
        ),
        judge(
            "Clique Averaging and momentum together have the lowest variance of the four.",
            f"{BETWEEN}, mean over training: both together over each of the other three",
            {label: spread_ratio(heavy[CA], curve) for label, curve in others.items()},
            at_most(1, f"“lowest”: {WHY_ANY}", tie=1),
        ),
    ]


def fig11(panels: Panels) -> list[Claim]:
    """Judge "faster and with lower variance" than a random graph, without Clique Averaging."""
    return judge_each(panels, lambda title, arms: _better(title, arms, RANDOM_LABEL)) + [
        judge(
            f"{title}: momentum is detrimental on a random graph.",
            "mean accuracy over training: with minus without momentum, points",
            lead_of(arms[RANDOM_MOMENTUM], arms[RANDOM_LABEL]),
            SLOWER,
        )
        for title, arms in panels.items()
        if RANDOM_MOMENTUM in arms
    ]


def fig12(panels: Panels) -> list[Claim]:
    """Judge "faster and with less variance" than an exponential graph."""
    return judge_each(panels, lambda title, arms: _better(title, arms, EXPONENTIAL_LABEL))


def _better(title: str, arms: Arms, other: str) -> list[Claim]:
    return [
        judge(
            f"{title}: even without Clique Averaging, D-Cliques converge faster than the {other}.",
            f"{LEARNING} (of D-Cliques): D-Cliques minus {other}, points",
            lead_of(arms[CLIQUES], arms[other], learning_phase(arms[CLIQUES])),
            FASTER,
        ),
        judge(
            f"{title}: D-Cliques have less variance between nodes than the {other}.",
            f"{BETWEEN}, mean over training: D-Cliques over {other}",
            spread_ratio(arms[CLIQUES], arms[other]),
            LESS,
        ),
    ]


def fig13(panels: Panels) -> list[Claim]:
    """Judge four ways of joining cliques against each other and the complete graph."""
    return judge_each(panels, _joined) + judge_each(panels, _small_world)


fig14 = fig13
"""The same claims, on CIFAR-10."""


def _joined(title: str, arms: Arms) -> list[Claim]:
    phase = learning_phase(arms[ALL])
    return [
        judge(
            f"{title}: D-Cliques joined in a ring converge.",
            "final accuracy, ring over all nodes connected",
            final(arms["ring"]) / final(arms[ALL]),
            at_least(
                0.75,
                "at most a quarter below the complete graph: the task is learned, however slowly",
            ),
        ),
        judge(
            f"{title}: joined in a ring, they are much slower than joined in the fractal scheme.",
            f"{LATENESS}: ring over fractal",
            lateness(arms["ring"], arms["fractal"], arms[ALL]),
            at_least(
                1.5,
                "50 % more epochs; the gap in accuracy vanishes once both have nearly converged",
                tie=1,
            ),
        ),
        judge_alike(
            f"{title}: D-Cliques (fully-connected) are about as fast as connecting all nodes.",
            "all nodes connected minus D-Cliques",
            lead_of(arms[ALL], arms[FULLY], phase),
            arms[ALL],
        ),
    ]


def _small_world(title: str, arms: Arms) -> list[Claim]:
    small, joined = (arms[label].numbers["degree"].mean() for label in ("small-world", FULLY))
    if small >= joined:  # a small world saves edges only from about 50 cliques on
        return []
    return [
        judge(
            f"{title}: joined as a small world, they are almost as fast as with one edge between "
            "any two cliques.",
            f"{LEARNING}: fully-connected minus small-world, points either way",
            np.abs(lead_of(arms[FULLY], arms["small-world"], learning_phase(arms[ALL]))),
            at_most(
                FASTER.value,
                "from 1 point on a curve is “faster”; stricter than against the complete graph, as "
                "both are D-Cliques",
            ),
        )
    ]


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
            "With Clique Averaging, removing up to 5 edges does not noticeably affect the "
            "variance.",
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
            at_least(1.5, "50 % more: five times the smallest visible change", tie=1),
        ),
    ]


def fig19(panels: Panels) -> list[Claim]:
    """Judge that Greedy-Swap increases the speed and decreases the variance between nodes."""
    return judge_each(panels, _swapped)


def _swapped(title: str, arms: Arms) -> list[Claim]:
    return [
        judge(
            f"{title}: cliques made by Greedy-Swap converge significantly faster than random "
            "cliques.",
            f"{LATENESS}: random cliques over Greedy-Swap",
            lateness(arms[RANDOM_CLIQUES], arms[CA], arms[FULLY]),
            at_least(1.25, "25 % more epochs; half of what “much” requires", tie=1),
        ),
        judge(
            f"{title}: with Greedy-Swap the variance between nodes decreases dramatically.",
            f"{BETWEEN}, mean over training: Greedy-Swap over random cliques",
            spread_ratio(arms[CA], arms[RANDOM_CLIQUES]),
            at_most(0.5, "“dramatically”: at least halved", tie=1),
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
