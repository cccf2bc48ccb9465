"""Claims of DFedPGP (Liu et al. 2024) about its tables and figures, judged by curves over seeds.

There is one function per table or figure, for example ``tab01(panels)``, which returns the claims
in the order of the paper's sentences. Panels and arms are those of
:mod:`paper_figures.dfedpgp`, every arm at its best stage; curves are accuracies against
rounds.

These rules were chosen from the paper's words, before the results of our runs were known. All of
them compare arms of the same seed:

- "Best" is a lead over every other arm of the paper's table, each with its own paired differences
  (:func:`paper_figures.kit.claims.judge`), never over the highest of them, which is biased
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

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ..kit.claims import (
    OUR_QUESTION,
    PAPER,
    Claim,
    at_least,
    judge,
    judge_each,
    kind_of,
    points,
    rank_correlation,
)
from ..kit.comparison import ANY_LEAD, ends_well, leads, rounds_needed
from ..kit.curves import Curve, Panels, average, final
from ..kit.paper import by_title, declared

DECLARED = declared("dfedpgp/paper.toml")

ACCURACIES: Mapping[str, Mapping[str, tuple[float, float]]] = DECLARED.printed("accuracies")
"""Table 1: mean and standard deviation over 3 seeds, by method and title of the split."""

TARGETS: Mapping[str, float] = DECLARED["targets"]
"""Accuracies that table 2 counts the rounds to."""

ROUNDS: Mapping[str, Mapping[str, int | None]] = DECLARED.printed("rounds")
"""Table 2: first round with that accuracy, None if there is none in 500; by method and title."""


UNEQUAL_NUMBERS = by_title(DECLARED.printed("unequal_devices"))
"""Table 3: accuracies with unequal devices by title and method, None where our copy is blank."""

ABLATION_NUMBERS = by_title(DECLARED.printed("ablation"))
"""Table 4: accuracies of the ablation by title and method."""

EQUAL = ", equal devices"
"""Suffix of a split's title for its runs of table 1, shown next to those of table 3."""

OURS = "DFedPGP"

ALONE = "Local"
"""Label of training alone, which is neither in table 2 nor, apparently, in figure 2."""

TWICE = at_least(1.8, "“almost twice”: nine tenths of it", tie=1)

KEPT = at_least(0.5, "ranks agree: correlations of 0.5 and more are called large")

WHY_GREAT = "“by a great margin”: half of the margin that the paper prints here"

FINAL = "final accuracy"

BEST = "DFedPGP is the most accurate of all methods."

Values = Mapping[str, np.ndarray]
"""Numbers per seed, by arm label."""

Arms = Mapping[str, Curve]


def finals(arms: Arms) -> dict[str, np.ndarray]:
    """Return the final accuracies of all arms, one per seed."""
    return {label: final(curve) for label, curve in arms.items()}


def margin(titles: list[str], label: str = OURS) -> float:
    """Return a method's lead over the best other one in table 1, in points, mean over splits."""
    mean = {
        name: float(np.mean([row[title][0] for title in titles]))
        for name, row in ACCURACIES.items()
    }
    return mean.pop(label) - max(mean.values())


def _margin(titles: Iterable[str]) -> str:
    """Return the paper's mean lead over the given splits as text; empty if it has none of them."""
    theirs = [title for title in titles if title in ACCURACIES[OURS]]
    return points(margin(theirs)) if theirs else ""


def _most_accurate(
    statement: str,
    values: Values,
    paper: str,
    kind: str = PAPER,
    *,
    of: str = FINAL,
    others: str = "each other method",
) -> Claim:
    """Return the claim that DFedPGP has the highest accuracy."""
    statistic = f"{of}: DFedPGP minus {others}, points"
    return judge(statement, statistic, leads(values, OURS), ANY_LEAD, paper=paper, kind=kind)


def tab01(panels: Panels) -> list[Claim]:
    """Judge "outperforms other baseline methods" per split and on average.

    "[...] with the best stability and better performance in both different datasets and different
    data heterogeneity scenarios": so on every split. The mean over the paper's splits is our
    question.
    """
    claims = []
    if theirs := [title for title in panels if kind_of(title, ACCURACIES[OURS]) == PAPER]:
        values = [finals(panels[title]) for title in theirs]
        mean = {label: np.mean([value[label] for value in values], axis=0) for label in values[0]}
        of = f"{FINAL}, mean over {len(values)} splits"
        said = "DFedPGP is the most accurate of all methods on average over the paper's splits."
        claims.append(_most_accurate(said, mean, _margin(theirs), OUR_QUESTION, of=of))
    for title, arms in panels.items():
        said, kind = f"{title}: {BEST}", kind_of(title, ACCURACIES[OURS])
        claims.append(_most_accurate(said, finals(arms), _margin([title]), kind))
    severe, mild = titles = ("CIFAR-10, Dir(0.1)", "CIFAR-10, Dir(0.3)")
    if not all(title in panels for title in titles):
        return claims
    labels = ("FedRep", OURS)
    lost = [final(panels[severe][label]) - final(panels[mild][label]) for label in labels]
    paper = [ACCURACIES[label][severe][0] - ACCURACIES[label][mild][0] for label in labels]
    steadier = judge(
        "CIFAR-10: from Dir(0.1) to Dir(0.3) DFedPGP loses less than FedRep.",
        "loss of final accuracy: FedRep minus DFedPGP, points",
        lost[0] - lost[1],
        ANY_LEAD,
        paper=points(paper[0] - paper[1]),
    )
    return [*claims, steadier]


def fig02(panels: Panels) -> list[Claim]:
    """Judge "achieves the fastest convergence speed among the comparison methods" by curves."""
    return [
        judge(
            f"{title}: DFedPGP learns fastest of all methods.",
            "mean accuracy over all rounds: DFedPGP minus each other method, points",
            leads({k: average(curve) for k, curve in arms.items() if k != ALONE}, OURS),
            ANY_LEAD,
            kind=kind_of(title, ACCURACIES[OURS]),
        )
        for title, arms in panels.items()
    ]


def tab02(panels: Panels, targets: Mapping[str, float]) -> list[Claim]:
    """Judge fewer rounds to a target than every baseline, and "almost twice as fast" with Dir-0.3.

    "DFedPGP is almost twice as fast as the other methods in Dirichlet-0.3 on CIFAR-10 and CIFAR-100
    settings."
    """
    return judge_each(panels, lambda title, arms: _sooner(title, arms, targets[title]))


def _sooner(title: str, arms: Arms, target: float) -> list[Claim]:
    needed = rounds_needed({k: curve for k, curve in arms.items() if k != ALONE}, target)
    ratios = {label: needed[label] / needed[OURS] for label in needed if label != OURS}
    # A method that misses the paper's target counts with all 500 rounds.
    paper = [
        (ROUNDS[name][title] or 500) / (ROUNDS[OURS][title] or 500)
        for name in ratios
        if title in TARGETS and name in ROUNDS
    ]
    statistic = f"rounds to {target:g} %, linear between tests, as ratios to DFedPGP's"
    claims = [
        judge(
            f"{title}: DFedPGP reaches the target in fewer rounds than each other method.",
            f"{statistic}: each other method",
            ratios,
            at_least(1, ANY_LEAD.why, tie=1),
            paper=f"{min(paper):.2f}" if paper else "",
            kind=kind_of(title, ACCURACIES[OURS]),
            of_means=min(needed[label].mean() for label in ratios) / needed[OURS].mean(),
        )
    ]
    if "Dir(0.3)" in title:
        claims.append(
            judge(
                f"{title}: DFedPGP is almost twice as fast as the other methods.",
                f"{statistic}: mean over the other methods",
                np.mean(list(ratios.values()), axis=0),
                TWICE,
                paper=f"{np.mean(paper):.2f}" if paper else "",
                kind=kind_of(title, ACCURACIES[OURS]),
            )
        )
    return claims


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
    values, paper = finals(panels[title]), UNEQUAL_NUMBERS[title]
    lead = points(_lead_of_paper(paper))
    claims = [_most_accurate(f"{title}, unequal devices: {BEST}", values, lead)]
    if title == "CIFAR-10, Dir(0.3)":  # the split about which the paper makes the claim
        served = ("FedRep", "FedAvg", "FedPer", "FedBABU", "Ditto")
        claims.append(
            judge(
                f"{title}, unequal devices: FedRep is the most accurate of the methods with a "
                "server.",
                f"{FINAL}: FedRep minus each other method with a server, points",
                leads({label: values[label] for label in served}, "FedRep"),
                ANY_LEAD,
            )
        )
    equal = finals(panels[title + EQUAL])
    both = [label for label in values if paper.get(label) is not None]
    theirs = rank_correlation(
        [float(paper[label]) for label in both], [ACCURACIES[label][title][0] for label in both]
    )
    orders = zip(
        np.transpose(list(values.values())),
        np.transpose([equal[label] for label in values]),
        strict=True,
    )
    kept = judge(
        f"{title}: unequal devices keep the order of the methods.",
        "rank correlation of final accuracies with those of equal devices",
        [rank_correlation(one, other) for one, other in orders],
        KEPT,
        paper=f"{theirs:.2f} (of the {len(both)} methods whose numbers we have)",
        kind=OUR_QUESTION,
    )
    return [*claims, kept]


def _lead_of_paper(row: Mapping[str, float | None]) -> float:
    known = {label: value for label, value in row.items() if value is not None}
    return known.pop(OURS) - max(known.values())


STEPS = (
    (
        ("DFedAvgM-P", "DFedAvgM"),
        "keeping heads personal helps by a great margin on undirected graphs",
    ),
    ((OURS, "OSGP"), "keeping heads personal helps by a great margin on directed graphs"),
    (("OSGP", "DFedAvgM"), "directed graphs help where whole models travel"),
    ((OURS, "DFedAvgM-P"), "directed graphs help where bodies travel"),
)
"""The four differences between the rows of table 4."""


def tab04(panels: Panels) -> list[Claim]:
    """Judge that both components together are best, and that each of them helps.

    "DFedPGP achieves the best in both Dirichlet-0.3 and Pathological-2. In the comparison of
    partial personalization, DFedAvgM-P and DFedPGP outperform their full personalization versions
    DFedAvgM and OSGP by a great margin separately. In directed communication comparison, DFedPGP
    and OSGP outperform their undirected versions."
    """
    return judge_each(panels, _ablated)


def _ablated(title: str, arms: Arms) -> list[Claim]:
    paper, values = ABLATION_NUMBERS[title], finals(arms)
    said, lead = f"{title}: DFedPGP is the most accurate of the four.", _lead_of_paper(paper)
    others = "each of the other three"
    claims = [_most_accurate(said, values, points(lead), others=others)]
    for (more, less), said in STEPS:
        printed = paper[more] - paper[less]
        great = at_least(round(printed / 2, 3), WHY_GREAT, tie=0)
        claims.append(
            judge(
                f"{title}: {said}.",
                f"{FINAL}: {more} minus {less}, points",
                values[more] - values[less],
                great if "great margin" in said else ANY_LEAD,
                paper=points(printed),
            )
        )
    return claims


def fig03a(panels: Panels) -> list[Claim]:
    """Judge that more neighbors are better and faster, and that two are enough to be stable."""
    (arms,) = panels.values()
    counts = {label: int(label.split()[0]) for label in arms}
    most, fewest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    speeds = np.array([average(arms[label]) for label in counts])
    return [
        judge(
            "The accuracy is highest with the most neighbors.",
            f"{FINAL}: {most} minus each other number, points",
            leads(finals(arms), most),
            ANY_LEAD,
        ),
        judge(
            "With more neighbors convergence is quicker.",
            "rank correlation of the number of neighbors with the mean accuracy over all rounds",
            [rank_correlation(list(counts.values()), row) for row in speeds.T],
            KEPT,
        ),
        ends_well(f"Convergence is stable even with only {fewest}.", arms[fewest], "round"),
    ]


def fig03b(panels: Panels) -> list[Claim]:
    """Judge that few clients with much data each do better than many with little."""
    (arms,) = panels.values()
    ordered = sorted(arms, key=lambda label: int(label.split()[0]))
    few, many = ordered[:2], ordered[-(len(ordered) // 2) :]
    many = [label for label in many if label not in few]
    compared = f"each of {' and '.join(few)} minus each of {', '.join(many)}, points"

    def apart(statement: str, name: str, value: Callable[[Curve], np.ndarray]) -> Claim:
        values = {label: value(curve) for label, curve in arms.items()}
        gaps = {f"{one} and {other}": values[one] - values[other] for one in few for other in many}
        return judge(statement, f"{name}: {compared}", gaps, ANY_LEAD)

    return [
        apart("Few clients reach a higher accuracy than many.", FINAL, final),
        apart("Few clients converge faster than many.", "accuracy over rounds", average),
    ]
