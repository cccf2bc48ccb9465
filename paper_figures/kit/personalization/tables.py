"""Tables of the comparison of personalized methods: our numbers next to a paper's."""

from collections.abc import Mapping

import numpy as np

from topofl import NotApplicable, Table

from ..curves import Curve, final, rounds_to
from ..tables import Cell, plus_minus
from .arms import STAGES, best_stage

NOTES = (
    "mean over clients of the accuracy on their own test images, in the last tenth of the rounds; "
    "mean ± standard deviation over seeds; best round: the highest accuracy of any round after the "
    "exchange, which the authors' code reports"
)


def accuracy_table(
    title: str, arms: Mapping[str, Mapping[str, Curve]], paper: Mapping[str, str]
) -> Table:
    """Return a table with one row per arm: accuracies at all stages and the paper's number.

    Parameters
    ----------
    title
        Title of the panel.
    arms
        Curves by label and stage.
    paper
        The paper's numbers as text, by label.
    """
    columns = (
        "method",
        *(f"{stage}, %" for stage in STAGES),
        "best round, %",
        "judged by",
        "paper, %",
        "MB per client and round",
        "MB of the busiest",
    )
    rows = tuple(_accuracy_row(label, curves, paper.get(label)) for label, curves in arms.items())
    return Table(columns, rows, title=f"{title}: {NOTES}; MB per round; busiest: client or server")


def _accuracy_row(label: str, curves: Mapping[str, Curve], paper: str | None) -> tuple[Cell, ...]:
    cells: list[Cell] = [
        plus_minus(final(curves[stage]))
        if stage in curves
        else NotApplicable(f"{label} is not tested at this stage ({stage})")
        for stage in STAGES
    ]
    best = curves.get("after exchange", next(iter(curves.values())))
    printed = NotApplicable("the paper does not print it") if paper is None else paper
    return (
        label,
        *cells,
        plus_minus(best.mean.max(axis=1)),
        best_stage(curves),
        printed,
        *_megabytes(best),
    )


def _megabytes(curve: Curve) -> tuple[float, float]:
    each, busiest = (float(curve.numbers[key].mean()) / 1e6 for key in ("bytes", "busiest_bytes"))
    return round(each, 9), round(busiest, 9)


Rounds = Mapping[str, Mapping[str, int | None]]
"""A paper's rounds to its target by label and title, None if a method does not reach it."""


def rounds_table(
    title: str,
    arms: Mapping[str, Curve],
    target: float,
    paper: Rounds,
    targets: Mapping[str, float],
) -> Table:
    """Return a table with one row per method: rounds and bytes to the target, ours and the paper's.

    Bytes are the mean per round times the number of rounds, since every round of a method sends the
    same number of messages.

    Parameters
    ----------
    title, arms, target
        Title of the panel, its curves, and the target accuracy in %.
    paper, targets
        The paper's rounds, and its target accuracies by title.
    """
    columns = (
        "method",
        "rounds",
        "over DFedPGP's",
        "MB per client",
        "MB of the busiest",
        "paper: rounds",
        "paper: over DFedPGP's",
    )
    reference = rounds_to(arms["DFedPGP"], target)
    rows = tuple(
        (*_rounds_row(label, curve, target, reference), *_paper_rounds(paper, title, label))
        for label, curve in arms.items()
    )
    papers_target = f"; the paper's target is {targets[title]:g} %" if title in targets else ""
    notes = (
        f"until the mean accuracy over clients on their own test images is {target:g} %, "
        "interpolated linearly between tests; mean ± standard deviation"
    )
    return Table(columns, rows, title=f"{title}: {notes}{papers_target}")


def _rounds_row(label: str, curve: Curve, target: float, reference: np.ndarray) -> tuple[Cell, ...]:
    rounds = rounds_to(curve, target)
    missed = int(np.isinf(rounds).sum())
    if missed:
        none = NotApplicable(f"{label}: {missed} of {len(rounds)} seeds stayed below {target:g} %")
        return (label, *[none] * 4)
    ratio: Cell = NotApplicable("DFedPGP did not reach it in all seeds")
    if np.isfinite(reference).all() and (reference > 0).all():
        ratio = plus_minus(rounds / reference)
    sent = [plus_minus(rounds * megabytes) for megabytes in _megabytes(curve)]
    return (label, plus_minus(rounds), ratio, *sent)


def _paper_rounds(paper: Rounds, title: str, label: str) -> tuple[Cell, Cell]:
    if title not in paper.get(label, {}):
        silent = NotApplicable("the paper does not print it")
        return silent, silent
    rounds, ours = paper[label][title], paper["DFedPGP"][title]
    if rounds is None or ours is None:
        never = NotApplicable("not within its 500 rounds")
        return never, never
    return float(rounds), round(rounds / ours, 2)
