"""Claims of DFedPGP (Liu et al. 2024) about its tables and figures, judged by curves over seeds.

There is one function per table or figure, for example ``tab01(panels)``, which returns the claims
in the order of the paper's sentences. Panels and arms are those of
:mod:`paper_figures.dfedpgp.figures`, every arm at its best stage; curves are accuracies against
rounds.

These rules were chosen from the paper's words, before the results of our runs were known. All of
them compare arms of the same seed:

- "Best" is a lead over every other arm of the paper's table, each with its own paired differences
  (:func:`paper_figures.kit.judging.judge_every`), never over the highest of them, which is biased
  upward by noise. Any consistent lead over seeds counts, as the paper's are as small as 0.01
  points. Reports show the lead over the arm with the highest mean: the difference of the means,
  which is what the paper prints.
- Accuracy is final: the mean over clients in the last tenth of the rounds. The authors' code
  reports the maximum over rounds, which rewards unstable arms; it is in the tables.
- Speed is the number of rounds to the target, interpolated between the rounds that were tested, and
  in figures the mean accuracy over all rounds. An arm that never reaches the target counts with the
  length of the run, which underestimates its time. Training alone is in table 1 only, so it is
  shown in table 2 and figure 2 but not compared with.
- "Almost twice" is 1.8 times. "By a great margin" is half of the margin that the paper prints for
  that comparison. Few clients do better than many if each of the two smallest numbers does better
  than each number of the upper half. "Stable" is to end within 5 % of the best round. An ordering
  is kept if ranks have a correlation (Spearman's) of at least 0.5.
- "FedRep is the best PFL method [...] in CFL" refers to table 3 "with Dirichlet-0.3 distribution",
  and is judged only there; in the paper's own table it is false with two classes per client.
- Splits that the paper does not have, means over splits, and whether unequal devices keep the order
  of the methods are our questions (:data:`paper_figures.kit.claims.OUR_QUESTION`).
"""

from collections.abc import Iterable, Mapping

import numpy as np

from ..kit.claims import OUR_QUESTION, PAPER, Claim, points
from ..kit.curves import Curve, Panels, average, final, rounds_to
from ..kit.judging import judge_every, judge_seeds, rank_correlation
from .printed_numbers import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TARGETS, margin
from .settings import EQUAL

OURS = "DFedPGP"


TWICE, STABLE, KEPT = 1.8, 0.95, 0.5


WHY_ANY = "any consistent lead over seeds counts"


WHY_TWICE = "“almost twice”: nine tenths of it"


WHY_GREAT = "“by a great margin”: half of the margin that the paper prints here"


WHY_STABLE = "it ends within a twentieth of its best round"


WHY_KEPT = "ranks agree: correlations of 0.5 and more are called large"


FINAL = "final accuracy"


LEAD = "minus each other method, points"


ALONE = "Local"
"""Label of training alone, which is neither in table 2 nor, apparently, in figure 2."""


Values = Mapping[str, np.ndarray]
"""Numbers per seed, by arm label."""


Arms = Mapping[str, Curve]


def kind_of_claims(title: str) -> str:
    """Return the kind of the claims on a split: the paper's, or ours if it lacks the split."""
    return PAPER if title.removesuffix(EQUAL) in TABLE_1[OURS] else OUR_QUESTION


def tab01(panels: Panels) -> list[Claim]:
    """Judge "outperforms other baseline methods" per split and on average.

    "[...] with the best stability and better performance in both different datasets and different
    data heterogeneity scenarios": so on every split. The mean over the paper's splits is our
    question.
    """
    return (
        _on_average(panels)
        + [_best(title, arms) for title, arms in panels.items()]
        + _steadier(panels)
    )


def _on_average(panels: Panels) -> list[Claim]:
    theirs = [title for title in panels if kind_of_claims(title) == PAPER]
    if not theirs:
        return []
    values = [finals(panels[title]) for title in theirs]
    mean = {label: np.mean([value[label] for value in values], axis=0) for label in values[0]}
    return [
        judge_every(
            "DFedPGP is the most accurate of all methods on average over the paper's splits.",
            f"{FINAL}, mean over {len(values)} splits: DFedPGP {LEAD}",
            leads(mean),
            at_least=0,
            why=WHY_ANY,
            paper=_margin(theirs),
            kind=OUR_QUESTION,
        )
    ]


def _best(title: str, arms: Arms) -> Claim:
    return judge_every(
        f"{title}: DFedPGP is the most accurate of all methods.",
        f"{FINAL}: DFedPGP {LEAD}",
        leads(finals(arms)),
        at_least=0,
        why=WHY_ANY,
        paper=_margin([title]),
        kind=kind_of_claims(title),
    )


def _margin(titles: Iterable[str]) -> str:
    """Return the paper's mean lead over the given splits as text; empty if it has none of them."""
    theirs = [title for title in titles if title in TABLE_1[OURS]]
    return points(margin(theirs)) if theirs else ""


def _steadier(panels: Panels) -> list[Claim]:
    titles = ["CIFAR-10, Dir(0.1)", "CIFAR-10, Dir(0.3)"]
    if not all(title in panels for title in titles):
        return []
    severe, mild = titles
    lost = {
        label: final(panels[severe][label]) - final(panels[mild][label])
        for label in ("FedRep", OURS)
    }
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
    """Judge "achieves the fastest convergence speed among the comparison methods" by curves."""
    return [
        judge_every(
            f"{title}: DFedPGP learns fastest of all methods.",
            f"mean accuracy over all rounds: DFedPGP {LEAD}",
            leads({label: average(curve) for label, curve in arms.items() if label != ALONE}),
            at_least=0,
            why=WHY_ANY,
            kind=kind_of_claims(title),
        )
        for title, arms in panels.items()
    ]


def tab02(panels: Panels, targets: Mapping[str, float]) -> list[Claim]:
    """Judge fewer rounds to a target than every baseline, and "almost twice as fast" with Dir-0.3.

    "DFedPGP is almost twice as fast as the other methods in Dirichlet-0.3 on CIFAR-10 and CIFAR-100
    settings."
    """
    return [
        claim for title, arms in panels.items() for claim in _sooner(title, arms, targets[title])
    ]


def _sooner(title: str, arms: Arms, target: float) -> list[Claim]:
    needed = {label: _rounds(curve, target) for label, curve in arms.items() if label != ALONE}
    ratios = {label: needed[label] / needed[OURS] for label in needed if label != OURS}
    paper = _ratios_of_paper(title, list(ratios))
    statistic = f"rounds to {target:g} %, linear between tests, as ratios to DFedPGP's"
    claims = [
        judge_every(
            f"{title}: DFedPGP reaches the target in fewer rounds than each other method.",
            f"{statistic}: each other method",
            ratios,
            at_least=1,
            why=WHY_ANY,
            paper=f"{min(paper):.2f}" if paper else "",
            kind=kind_of_claims(title),
            of_means=min(needed[label].mean() for label in ratios) / needed[OURS].mean(),
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
            kind=kind_of_claims(title),
        ),
    ]


def _rounds(curve: Curve, target: float) -> np.ndarray:
    """Return the rounds to a target, of at least one and at most those of the run."""
    return np.minimum(rounds_to(curve, target), curve.epochs[-1])


def _ratios_of_paper(title: str, labels: list[str]) -> list[float]:
    """Return the paper's ratios; a method that misses the target counts with all 500 rounds."""
    if title not in TARGETS:
        return []
    return [
        (TABLE_2[name][title] or 500) / (TABLE_2[OURS][title] or 500)
        for name in labels
        if name in TABLE_2
    ]


def tab03(panels: Panels) -> list[Claim]:
    """Judge "achieves the best" with unequal devices, FedRep among servers, and the order.

    "DFedPGP achieves the best compared with the other baselines", and, with Dir-0.3, "FedRep is the
    best PFL method encountering the computation heterogeneous challenge in CFL". Whether the order
    stays is our question.
    """
    return [
        claim for title in panels if not title.endswith(EQUAL) for claim in _unequal(title, panels)
    ]


def _unequal(title: str, panels: Panels) -> list[Claim]:
    values, paper = finals(panels[title]), TABLE_3[title]
    best = judge_every(
        f"{title}, unequal devices: DFedPGP is the most accurate of all methods.",
        f"{FINAL}: DFedPGP {LEAD}",
        leads(values),
        at_least=0,
        why=WHY_ANY,
        paper=points(_lead_of_paper(paper)),
    )
    return [best, *_served(title, values), _ordered(title, panels)]


def _served(title: str, values: Values) -> list[Claim]:
    """Return the claim on FedRep for the split about which the paper makes it."""
    if title != "CIFAR-10, Dir(0.3)":
        return []
    served = {label: values[label] for label in ("FedRep", "FedAvg", "FedPer", "FedBABU", "Ditto")}
    return [
        judge_every(
            f"{title}, unequal devices: FedRep is the most accurate of the methods with a server.",
            f"{FINAL}: FedRep minus each other method with a server, points",
            leads(served, "FedRep"),
            at_least=0,
            why=WHY_ANY,
        )
    ]


def _ordered(title: str, panels: Panels) -> Claim:
    values, equal, paper = finals(panels[title]), finals(panels[title + EQUAL]), TABLE_3[title]
    both = [label for label in values if paper.get(label) is not None]
    theirs = rank_correlation(
        [float(paper[k] or 0) for k in both], [TABLE_1[k][title][0] for k in both]
    )
    return judge_seeds(
        f"{title}: unequal devices keep the order of the methods.",
        "rank correlation of final accuracies with those of equal devices",
        [
            rank_correlation([values[k][s] for k in values], [equal[k][s] for k in values])
            for s in range(_seeds(values))
        ],
        at_least=KEPT,
        why=WHY_KEPT,
        paper=f"{theirs:.2f} (of the {len(both)} methods whose numbers we have)",
        kind=OUR_QUESTION,
    )


def _seeds(values: Values) -> int:
    return len(next(iter(values.values())))


def _lead_of_paper(row: Mapping[str, float | None]) -> float:
    known = {label: value for label, value in row.items() if value is not None}
    return known.pop(OURS) - max(known.values())


STEPS = {
    (
        "DFedAvgM-P",
        "DFedAvgM",
    ): "keeping heads personal helps by a great margin on undirected graphs",
    (OURS, "OSGP"): "keeping heads personal helps by a great margin on directed graphs",
    ("OSGP", "DFedAvgM"): "directed graphs help where whole models travel",
    (OURS, "DFedAvgM-P"): "directed graphs help where bodies travel",
}
"""The four differences between the rows of table 4."""


def tab04(panels: Panels) -> list[Claim]:
    """Judge that both components together are best, and that each of them helps.

    "DFedPGP achieves the best in both Dirichlet-0.3 and Pathological-2. In the comparison of
    partial personalization, DFedAvgM-P and DFedPGP outperform their full personalization versions
    DFedAvgM and OSGP by a great margin separately. In directed communication comparison, DFedPGP
    and OSGP outperform their undirected versions."
    """
    return [claim for title, arms in panels.items() for claim in _ablated(title, arms)]


def _ablated(title: str, arms: Arms) -> list[Claim]:
    paper, values = TABLE_4[title], finals(arms)
    best = judge_every(
        f"{title}: DFedPGP is the most accurate of the four.",
        f"{FINAL}: DFedPGP minus each of the other three, points",
        leads(values),
        at_least=0,
        why=WHY_ANY,
        paper=points(_lead_of_paper(paper)),
    )
    return [best, *(_step(title, more, less, said, values) for (more, less), said in STEPS.items())]


def _step(title: str, more: str, less: str, said: str, values: Values) -> Claim:
    printed = TABLE_4[title][more] - TABLE_4[title][less]
    great = "great margin" in said
    return judge_seeds(
        f"{title}: {said}.",
        f"{FINAL}: {more} minus {less}, points",
        values[more] - values[less],
        at_least=round(printed / 2, 3) if great else 0,
        why=WHY_GREAT if great else WHY_ANY,
        paper=points(printed),
    )


def finals(arms: Arms) -> dict[str, np.ndarray]:
    """Return the final accuracies of all arms, one per seed."""
    return {label: final(curve) for label, curve in arms.items()}


def leads(values: Values, label: str = OURS) -> dict[str, np.ndarray]:
    """Return the leads of one arm over each other arm for the same seeds, by the other's label."""
    return {other: values[label] - value for other, value in values.items() if other != label}
