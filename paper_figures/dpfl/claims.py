"""Claims of DPFL (Kharrat, Canini and Horvath 2025) about its tables and figures, over seeds.

These rules were chosen from the paper's words and numbers, before the results of our runs were
known; all compare arms of the same seed:

- Accuracy is that of each client's best model by validation, averaged over clients. "Best" is a
  lead over every other arm, each with its own paired differences
  (:func:`paper_figures.kit.judging.judge_every`), never over the highest of them, which is biased
  upward by noise; any consistent lead over seeds counts. Reports show the lead over the arm with
  the highest mean: the difference of the means, which is what the paper prints.
- Gains that the paper gives in points ("outperform FedAvg by 37 and 33 p.p", "better results than
  local training by 3 and 5") hold from half of them on. A split that the paper does not have is
  our question.
- "DPFL is consistently in the right-bottom corner", "across all variants of budget constraints", is
  judged for every budget, against the methods that the paper's figures show. In the paper's own
  table the smallest budget is 0.19 points behind Ditto on CIFAR-10, Dir(0.1), so that the claim as
  printed fails there.
- Thresholds for "approximately", "comparable" and "slight" follow from the numbers that the paper
  prints next to these words; each is given with its reason.
- The graph of a round has an edge from j to k if k averages j's model; symmetry is reciprocity, the
  share of edges whose reverse exists, because the paper does not define it.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from ..kit.claims import OUR_QUESTION, PAPER, Claim, points
from ..kit.judging import judge_every, judge_seeds, rank_correlation
from .arms import Outcome
from .methods import BASELINES
from .printed_numbers import TABLE_1, TABLE_2, TABLE_3

OURS = "DPFL"


OVER_LOCAL: Mapping[str, float] = {
    "CIFAR-10, Dir(0.1)": 3,
    "CIFAR-10, Patho(3)": 5,
    "CINIC-10, Dir(0.1)": 3,
    "CINIC-10, Patho(3)": 3,
    "FEMNIST": 7,
}
"""Points in “We achieve better results than local training by” (section 4.2)."""


OVER_FEDAVG: Mapping[str, float] = {
    "CIFAR-10, Dir(0.1)": 37,
    "CIFAR-10, Patho(3)": 33,
    "CINIC-10, Dir(0.1)": 43,
    "CINIC-10, Patho(3)": 41,
    "FEMNIST": 7,
}
"""Points in “outperform FedAvg by”; on CINIC-10 “by a notable margin of” (section 4.2)."""


LITTLE = 2.0
"""Largest small difference of accuracies, in points."""


OVER_RANDOM = 2.0
"""Smallest lead over random graphs, in points."""


SPARSER = 0.9
"""Largest ratio of last to first number of edges of a graph that gets sparser."""


STATIC = 0.8
"""Smallest share of common edges of almost static graphs."""


RARE = 0.1
"""Largest share that is rare."""


SYMMETRY = 0.84
"""Center of the paper's range of symmetry, 80 to 88 %."""


NEAR = 0.14
"""Largest distance from :data:`SYMMETRY`."""


WHY_ANY = "any consistent difference over seeds counts"


WHY_LITTLE = "the paper's own numbers differ by at most 1.5 points"


WHY_PERIODS = "the means of the paper's rows differ by at most 1.7 points"


WHY_RANDOM = "half of the paper's “≈ 4 p.p.”"


WHY_RARE = "“less than 10 %”"


Panels = Mapping[str, Mapping[str, Outcome]]


def kind_of_claims(title: str) -> str:
    """Return the kind of the claims on a split: the paper's, or ours if it lacks the split."""
    return PAPER if title in OVER_FEDAVG else OUR_QUESTION


def hidden(title: str) -> tuple[str, ...]:
    """Return the methods that the paper's figures of variances omit on a split.

    They omit methods below 80 and 78 % on CIFAR-10, 78 and 77 % on CINIC-10 (appendix G.1), and
    none on FEMNIST.
    """
    return () if title == "FEMNIST" else ("FedAvg", "FedProx", "FedProx+FT")


def table_1(panels: Panels) -> list[Claim]:
    """Judge leads over all baselines, Local and FedAvg by far, and the cost of small budgets.

    "Our method significantly outperforms other personalized methods regarding average test
    accuracy. We achieve better results than local training by 3 and 5 percentage points (p.p),
    outperform FedAvg by 37 and 33 p.p [...]".
    """
    return [claim for title, arms in panels.items() for claim in _of_split(title, arms)]


def _of_split(title: str, arms: Mapping[str, Outcome]) -> list[Claim]:
    baselines = [label for label in arms if label in BASELINES]
    smallest = [label for label in arms if label not in BASELINES][-1]
    paper = {label: row[title][0] for label, row in TABLE_1.items() if title in row}
    lead = paper[OURS] - max(paper[label] for label in baselines) if paper else None
    return [
        judge_every(
            f"{title}: DPFL is more accurate than all baselines.",
            "accuracy: DPFL minus each baseline, points",
            {label: arms[OURS].accuracy - arms[label].accuracy for label in baselines},
            at_least=0,
            why=WHY_ANY,
            paper=points(lead),
            kind=kind_of_claims(title),
        ),
        _gain(title, arms, "Local", "training alone", OVER_LOCAL),
        _gain(title, arms, "FedAvg", "FedAvg", OVER_FEDAVG),
        judge_seeds(
            f"{title}: a small budget costs little.",
            f"accuracy: DPFL without a limit minus {smallest}, points",
            arms[OURS].accuracy - arms[smallest].accuracy,
            at_most=LITTLE,
            why=WHY_LITTLE,
            paper=points(paper[OURS] - paper[smallest] if smallest in paper else None),
            kind=kind_of_claims(title),
        ),
    ]


def _gain(
    title: str, arms: Mapping[str, Outcome], label: str, name: str, gains: Mapping[str, float]
) -> Claim:
    """Return the claim that DPFL gains at least half of the points that the paper states."""
    gain = gains.get(title, min(gains.values()))
    papers_gain = TABLE_1[OURS][title][0] - TABLE_1[label][title][0] if title in gains else None
    source = "the paper's" if title in gains else "the paper's smallest gain on any split,"
    return judge_seeds(
        f"{title}: DPFL is far more accurate than {name}.",
        f"accuracy: DPFL minus {label}, points",
        arms[OURS].accuracy - arms[label].accuracy,
        at_least=gain / 2,
        why=f"half of {source} {gain:g} percentage points",
        paper=points(papers_gain),
        kind=kind_of_claims(title),
    )


def variances(panels: Panels) -> list[Claim]:
    """Judge "consistently in the right-bottom corner": higher accuracy and lower variance.

    "All figures show that our method (DPFL) is situated in the right-bottom corner across all
    variants of budget constraints" (appendix G.1): every budget is compared with every other method
    that the figure shows.
    """
    return [claim for title, arms in panels.items() for claim in _in_the_corner(title, arms)]


def _in_the_corner(title: str, arms: Mapping[str, Outcome]) -> list[Claim]:
    others = {
        label: one
        for label, one in arms.items()
        if label in BASELINES and label not in hidden(title)
    }
    ours = {label: one for label, one in arms.items() if label not in BASELINES}
    pairs = {f"{one} and {other}": (ours[one], others[other]) for one in ours for other in others}
    return [
        judge_every(
            f"{title}: with every budget DPFL is more accurate than the other methods.",
            "accuracy: DPFL with each budget minus each other method in the paper's figure, points",
            {name: one.accuracy - other.accuracy for name, (one, other) in pairs.items()},
            at_least=0,
            why=WHY_ANY,
            paper=points(_smallest_lead_in_paper(title)),
            kind=kind_of_claims(title),
        ),
        judge_every(
            f"{title}: with every budget DPFL has a lower variance over clients than the others.",
            "variance: each other method in the paper's figure minus DPFL with each budget, "
            "squared points",
            {name: other.variance - one.variance for name, (one, other) in pairs.items()},
            at_least=0,
            why=WHY_ANY,
            kind=kind_of_claims(title),
        ),
    ]


def _smallest_lead_in_paper(title: str) -> float | None:
    """Return the lead of DPFL's worst budget over the best shown baseline; None if not printed."""
    printed = {
        label: row[title][0]
        for label, row in TABLE_1.items()
        if title in row and label not in hidden(title)
    }
    ours = [value for label, value in printed.items() if label not in BASELINES]
    best = max((value for label, value in printed.items() if label in BASELINES), default=0.0)
    return min(ours) - best if ours else None


def comparable(panels: Panels) -> list[Claim]:
    """Judge that the epochs of the first round matter little, and that more are slightly better."""
    (values,) = [_means_by_number(arms) for arms in panels.values()]
    most, fewest = max(values), min(values)
    others = np.mean([value for number, value in values.items() if number != most], axis=0)
    gaps = {
        f"{one} and {other} epochs": values[one] - values[other]
        for one, other in permutations(values, 2)
    }
    paper = {number: float(np.mean(row)) for number, row in TABLE_2.items()}
    return [
        judge_every(
            "Accuracies are comparable across numbers of epochs in the first round.",
            "accuracy, mean over budgets: any number of epochs minus any other, points",
            gaps,
            at_most=LITTLE,
            why=WHY_LITTLE,
            paper=points(max(paper.values()) - min(paper.values())),
        ),
        judge_seeds(
            f"Performance is on average slightly better with {most} epochs.",
            f"accuracy, mean over budgets: {most} epochs minus the mean of the others, points",
            values[most] - others,
            at_least=0,
            why=WHY_ANY,
            paper=points(paper[10] - (paper[1] + paper[5]) / 2),
        ),
        judge_every(
            f"Even {fewest} epoch in the first round yields good results.",
            f"accuracy, mean over budgets: each other number minus {fewest} epoch, points",
            {
                f"{number} epochs": value - values[fewest]
                for number, value in values.items()
                if number != fewest
            },
            at_most=LITTLE,
            why=WHY_LITTLE,
            paper=points(max(paper.values()) - paper[1]),
        ),
    ]


def periods(panels: Panels) -> list[Claim]:
    """Judge that accuracy decreases only slightly as the refresh period grows."""
    (values,) = [_means_by_number(arms) for arms in panels.values()]
    numbers, rows = list(values), np.array(list(values.values()))
    paper = {number: float(np.mean(row)) for number, row in TABLE_3.items()}
    return [
        judge_seeds(
            "DPFL maintains good performance across refresh periods.",
            f"accuracy, mean over budgets: choosing every round minus every {max(numbers)} rounds, "
            "points",
            values[min(numbers)] - values[max(numbers)],
            at_most=LITTLE,
            why=WHY_PERIODS,
            paper=points(paper[1] - paper[max(numbers)] if max(numbers) in paper else None),
        ),
        judge_seeds(
            "Accuracy decreases slightly as the refresh period grows.",
            "rank correlation of the period with accuracy, mean over budgets",
            [rank_correlation(numbers, row) for row in rows.T],
            at_most=-0.5,
            why="a negative trend: correlations of magnitude 0.5 and more are called large",
            paper=f"{rank_correlation(list(paper), list(paper.values())):.2f}",
        ),
    ]


def _means_by_number(arms: Mapping[str, Outcome]) -> dict[int, np.ndarray]:
    """Return accuracies averaged over budgets, by the last number of labels "DPFL, 0.2 n; 5"."""
    accuracies: dict[int, list[np.ndarray]] = {}
    for label, one in arms.items():
        accuracies.setdefault(int(label.rpartition("; ")[2]), []).append(one.accuracy)
    return {number: np.mean(values, axis=0) for number, values in sorted(accuracies.items())}


def random_graph(panels: Panels) -> list[Claim]:
    """Judge that DPFL outperforms random graphs "by ≈ 4 p.p." for each budget."""
    (arms,) = panels.values()
    budgets = [label.removesuffix(", random") for label in arms if label.endswith(", random")]
    return [
        judge_seeds(
            f"{label}: chosen peers are better than random ones.",
            "accuracy: DPFL minus the random graph, points",
            arms[label].accuracy - arms[f"{label}, random"].accuracy,
            at_least=OVER_RANDOM,
            why=WHY_RANDOM,
            paper="≈ 4 points",
        )
        for label in budgets
    ]


def three_clients(accuracies: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Judge that each of two partners alone hurts the first client, and that both together help."""
    values = {label: np.array(row) for label, row in accuracies.items()}
    alone = values["alone"]

    def judge(statement: str, label: str, paper: str, **bound: Any) -> Claim:
        statistic = f"accuracy of client 1: {label} minus alone, points"
        return judge_seeds(
            statement, statistic, values[label] - alone, why=WHY_ANY, paper=paper, **bound
        )

    return [
        judge(
            "Collaboration with client 2 alone hurts client 1.", "with 2", "-11 points", at_most=0
        ),
        judge(
            "Collaboration with client 3 alone hurts client 1.", "with 3", "-11 points", at_most=0
        ),
        judge("Collaboration with both helps client 1.", "with both", "+6 points", at_least=0),
    ]
