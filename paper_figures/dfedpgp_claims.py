"""What DFedPGP (Liu et al. 2024) says of its tables and figures, judged by curves over seeds.

One function a table or figure: ``tab01(panels)`` -> the claims, in the order of the paper's sentences. Panels and arms
are those of :mod:`paper_figures.dfedpgp`, every arm at its best moment; curves are accuracies against rounds.

These rules were chosen from the paper's words, without a look at our runs. All of them compare arms of the same seed:

- "Best" is the lead in points over the best other arm of the same seed, whichever that is, so that no arm is picked
  afterwards. Any lead that seeds agree on counts, as the paper's are as small as 0.01 points.
- Accuracy is final: the mean over clients in the last tenth of the rounds. The authors' code reports the maximum over
  rounds, which rewards arms that jump about; it stands in the tables.
- Speed is the first round with the target, and in figures the mean accuracy over all rounds. Who never gets to the
  target is counted with the whole run, which is less than the truth.
- "Almost twice" is 1.8 times. "Stable" is to end within 5 % of the best round. An ordering is kept if ranks have a
  correlation (Spearman's) of at least 0.5.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from .claims import Claim, judge_seeds, points, rank_correlation
from .curves import Curve, Panels, average, final
from .dfedpgp_paper import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TARGETS, margin

__all__ = ["EQUAL", "fig02", "fig03a", "fig03b", "first_round", "tab01", "tab02", "tab03", "tab04"]

OURS = "DFedPGP"
EQUAL = ", equal devices"
"""What is added to the title of a split for its runs of table 1 beside those of table 3."""

TWICE, STABLE, KEPT = 1.8, 0.95, 0.5
WHY_ANY = "any lead that seeds agree on counts"
WHY_TWICE = "“almost twice”: nine tenths of it"
WHY_STABLE = "it ends within a twentieth of its best round"
WHY_KEPT = "ranks agree more than not: a correlation of 0.5 and more is called large"
FINAL = "final accuracy"
LEAD = "minus the best other method, points"

Values = Mapping[str, np.ndarray]
"""One number a seed, by label of the arm."""

Arms = Mapping[str, Curve]


def tab01(panels: Panels) -> list[Claim]:
    """Judge "outperforms other baseline methods" in all settings, and the loss from Dir-0.1 to Dir-0.3."""
    values = [_finals(arms) for arms in panels.values()]
    mean = {label: np.mean([value[label] for value in values], axis=0) for label in values[0]}
    claims = [
        judge_seeds(
            "DFedPGP is the most accurate of all methods on average over the splits.",
            f"{FINAL}, mean over {len(values)} splits: DFedPGP {LEAD}",
            _lead(mean),
            at_least=0,
            why=WHY_ANY,
            paper=_margin(panels),
        )
    ]
    for title, arms in panels.items():
        claims.append(
            judge_seeds(
                f"{title}: DFedPGP is the most accurate of all methods.",
                f"{FINAL}: DFedPGP {LEAD}",
                _lead(_finals(arms)),
                at_least=0,
                why=WHY_ANY,
                paper=_margin([title]),
            )
        )
    return claims + _steadier(panels)


def _margin(titles: Iterable[str]) -> str:
    """Return the paper's lead, in the mean over those splits that it has; nothing if it has none of them."""
    theirs = [title for title in titles if title in TABLE_1[OURS]]
    return points(margin(theirs)) if theirs else ""


def _steadier(panels: Panels) -> list[Claim]:
    titles = ["CIFAR-10, Dir(0.1)", "CIFAR-10, Dir(0.3)"]
    if not all(title in panels for title in titles):
        return []
    severe, mild = titles
    lost = {label: final(panels[severe][label]) - final(panels[mild][label]) for label in ("FedRep", OURS)}
    paper = {label: TABLE_1[label][severe][0] - TABLE_1[label][mild][0] for label in lost}
    return [
        judge_seeds(
            "CIFAR-10: from Dir(0.1) to Dir(0.3) DFedPGP loses less than FedRep.",
            "loss of final accuracy: FedRep minus DFedPGP, points",
            lost["FedRep"] - lost[OURS],
            at_least=0,
            why=WHY_ANY,
            paper=points(paper["FedRep"] - paper[OURS]),
        )
    ]


def fig02(panels: Panels) -> list[Claim]:
    """Judge "achieves the fastest convergence speed" by curves."""
    return [
        judge_seeds(
            f"{title}: DFedPGP learns fastest of all methods.",
            f"mean accuracy over all rounds: DFedPGP {LEAD}",
            _lead({label: average(curve) for label, curve in arms.items()}),
            at_least=0,
            why=WHY_ANY,
        )
        for title, arms in panels.items()
    ]


def first_round(curve: Curve, accuracy: float) -> np.ndarray:
    """Return the first evaluated round whose mean over clients reaches `accuracy` in %, (S,); infinite if none does."""
    reached = curve.mean >= accuracy
    return np.where(reached.any(axis=1), curve.epochs[reached.argmax(axis=1)], np.inf)


def tab02(panels: Panels, targets: Mapping[str, float]) -> list[Claim]:
    """Judge the rounds to a target: fewer than every baseline's, and with Dir-0.3 "almost twice as fast"."""
    return [claim for title, arms in panels.items() for claim in _sooner(title, arms, targets[title])]


def _sooner(title: str, arms: Arms, target: float) -> list[Claim]:
    needed = {label: _rounds(curve, target) for label, curve in arms.items()}
    ratios = {label: needed[label] / needed[OURS] for label in needed if label != OURS}
    paper = _ratios_of_paper(title, list(ratios))
    statistic = f"rounds to {target:g} %, as ratios to DFedPGP's"
    claims = [
        judge_seeds(
            f"{title}: DFedPGP reaches the target in fewer rounds than each other method.",
            f"{statistic}: the smallest",
            np.min(list(ratios.values()), axis=0),
            at_least=1,
            why=WHY_ANY,
            paper=f"{min(paper):.2f}" if paper else "",
        )
    ]
    if "Dir(0.3)" not in title:
        return claims
    return [
        *claims,
        judge_seeds(
            f"{title}: DFedPGP is almost twice as fast as the other methods.",
            f"{statistic}: mean over the other methods",
            np.mean(list(ratios.values()), axis=0),
            at_least=TWICE,
            why=WHY_TWICE,
            paper=f"{np.mean(paper):.2f}" if paper else "",
        ),
    ]


def _rounds(curve: Curve, target: float) -> np.ndarray:
    """Return the rounds to a target, of at least one and at most those of the run."""
    return np.clip(first_round(curve, target), 1, curve.epochs[-1])


def _ratios_of_paper(title: str, labels: list[str]) -> list[float]:
    """Return the paper's ratios, who never got to its target being counted with its 500 rounds."""
    if title not in TARGETS:
        return []
    return [(TABLE_2[name][title] or 500) / (TABLE_2[OURS][title] or 500) for name in labels if name in TABLE_2]


def tab03(panels: Panels) -> list[Claim]:
    """Judge "achieves the best" with unequal devices, FedRep among servers' methods, and the order of methods."""
    return [claim for title in panels if not title.endswith(EQUAL) for claim in _unequal(title, panels)]


def _unequal(title: str, panels: Panels) -> list[Claim]:
    values, equal, paper = _finals(panels[title]), _finals(panels[title + EQUAL]), TABLE_3[title]
    both = [label for label in values if paper.get(label) is not None]
    served = {label: values[label] for label in ("FedRep", "FedAvg", "FedPer", "FedBABU", "Ditto")}
    theirs = rank_correlation([float(paper[k] or 0) for k in both], [TABLE_1[k][title][0] for k in both])
    return [
        judge_seeds(
            f"{title}, unequal devices: DFedPGP is the most accurate of all methods.",
            f"{FINAL}: DFedPGP {LEAD}",
            _lead(values),
            at_least=0,
            why=WHY_ANY,
            paper=points(_lead_of_paper(paper)),
        ),
        judge_seeds(
            f"{title}, unequal devices: FedRep is the most accurate of the methods with a server.",
            f"{FINAL}: FedRep {LEAD}",
            _lead(served, "FedRep"),
            at_least=0,
            why=WHY_ANY,
        ),
        judge_seeds(
            f"{title}: unequal devices keep the order of the methods.",
            "rank correlation of final accuracies with those of equal devices",
            [
                rank_correlation([values[k][s] for k in values], [equal[k][s] for k in values])
                for s in range(len(values[OURS]))
            ],
            at_least=KEPT,
            why=WHY_KEPT,
            paper=f"{theirs:.2f} (of the {len(both)} methods whose numbers we have)",
        ),
    ]


def _lead_of_paper(row: Mapping[str, float | None]) -> float:
    known = {label: value for label, value in row.items() if value is not None}
    return known.pop(OURS) - max(known.values())


STEPS = {
    ("DFedAvgM-P", "DFedAvgM"): "keeping heads personal helps on undirected graphs",
    (OURS, "OSGP"): "keeping heads personal helps on directed graphs",
    ("OSGP", "DFedAvgM"): "directed graphs help where whole models travel",
    (OURS, "DFedAvgM-P"): "directed graphs help where bodies travel",
}
"""The four differences between the rows of table 4."""


def tab04(panels: Panels) -> list[Claim]:
    """Judge that both components help, each without and with the other."""
    return [
        judge_seeds(
            f"{title}: {said}.",
            f"{FINAL}: {more} minus {less}, points",
            final(arms[more]) - final(arms[less]),
            at_least=0,
            why=WHY_ANY,
            paper=points(TABLE_4[title][more] - TABLE_4[title][less]),
        )
        for title, arms in panels.items()
        for (more, less), said in STEPS.items()
    ]


def fig03a(panels: Panels) -> list[Claim]:
    """Judge that more neighbors are better and faster, and that two are enough to be stable."""
    (arms,) = panels.values()
    counts = {label: int(label.split()[0]) for label in arms}
    most, fewest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    values, fewer = _finals(arms), arms[fewest]
    speeds = np.array([average(arms[label]) for label in counts])
    return [
        judge_seeds(
            "The accuracy is highest with most neighbors.",
            f"{FINAL}: {most} minus the best other number, points",
            _lead(values, most),
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
    said = f"{' and '.join(few)} minus {', '.join(many)}, means of each, points"
    return [
        _apart("Few clients reach a higher accuracy than many.", f"{FINAL}: {said}", final, arms, few, many),
        _apart("Few clients converge faster than many.", f"accuracy over rounds: {said}", average, arms, few, many),
    ]


def _apart(
    statement: str, statistic: str, value: Callable[[Curve], np.ndarray], arms: Arms, few: list[str], many: list[str]
) -> Claim:
    means = [np.mean([value(arms[label]) for label in labels], axis=0) for labels in (few, many)]
    return judge_seeds(statement, statistic, means[0] - means[1], at_least=0, why=WHY_ANY)


def _finals(arms: Arms) -> dict[str, np.ndarray]:
    return {label: final(curve) for label, curve in arms.items()}


def _lead(values: Values, label: str = OURS) -> np.ndarray:
    """Return by how much one arm is above the highest other one of the same seed."""
    return values[label] - np.max([value for other, value in values.items() if other != label], axis=0)
