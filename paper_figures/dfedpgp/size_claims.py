"""Claims of DFedPGP about numbers of neighbors and clients (figures 3a and 3b), over seeds."""

from collections.abc import Callable

import numpy as np

from ..kit.claims import Claim
from ..kit.curves import Curve, Panels, average, final
from ..kit.judging import judge_every, judge_seeds, rank_correlation
from .claims import FINAL, KEPT, STABLE, WHY_ANY, WHY_KEPT, WHY_STABLE, Arms, finals, leads


def fig03a(panels: Panels) -> list[Claim]:
    """Judge that more neighbors are better and faster, and that two are enough to be stable."""
    (arms,) = panels.values()
    counts = {label: int(label.split()[0]) for label in arms}
    most, fewest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    fewer = arms[fewest]
    speeds = np.array([average(arms[label]) for label in counts])
    return [
        judge_every(
            "The accuracy is highest with the most neighbors.",
            f"{FINAL}: {most} minus each other number, points",
            leads(finals(arms), most),
            at_least=0,
            why=WHY_ANY,
        ),
        judge_seeds(
            "With more neighbors convergence is quicker.",
            "rank correlation of the number of neighbors with the mean accuracy over all rounds",
            [rank_correlation(list(counts.values()), row) for row in speeds.T],
            at_least=KEPT,
            why=WHY_KEPT,
        ),
        judge_seeds(
            f"Convergence is stable even with only {fewest}.",
            "final accuracy over that of the best round",
            final(fewer) / np.maximum(fewer.mean.max(axis=1), 1e-9),
            at_least=STABLE,
            why=WHY_STABLE,
        ),
    ]


def fig03b(panels: Panels) -> list[Claim]:
    """Judge that few clients with much data each do better than many with little."""
    (arms,) = panels.values()
    ordered = sorted(arms, key=lambda label: int(label.split()[0]))
    few, many = ordered[:2], ordered[-(len(ordered) // 2) :]
    many = [label for label in many if label not in few]
    compared = f"each of {' and '.join(few)} minus each of {', '.join(many)}, points"
    return [
        _apart(
            "Few clients reach a higher accuracy than many.",
            f"{FINAL}: {compared}",
            final,
            arms,
            few,
            many,
        ),
        _apart(
            "Few clients converge faster than many.",
            f"accuracy over rounds: {compared}",
            average,
            arms,
            few,
            many,
        ),
    ]


def _apart(
    statement: str,
    statistic: str,
    value: Callable[[Curve], np.ndarray],
    arms: Arms,
    few: list[str],
    many: list[str],
) -> Claim:
    values = {label: value(curve) for label, curve in arms.items()}
    gaps = {f"{one} and {other}": values[one] - values[other] for one in few for other in many}
    return judge_every(statement, statistic, gaps, at_least=0, why=WHY_ANY)
