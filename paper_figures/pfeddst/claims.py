"""Claims of PFedDST (Fan et al.) about its figures, judged by curves over seeds."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from ..kit.claims import OUR_QUESTION, PAPER, Claim
from ..kit.curves import Curve, Panels, average, final, rounds_to
from ..kit.figure import Data
from ..kit.judging import judge_every, judge_seeds
from ..kit.personalization.arms import best_stage, read, reported
from .printed_numbers import LEADS, TABLE_1, TARGETS
from .settings import OURS

STABLE = 0.95


ANY = "any consistent lead over seeds counts"


def kind_of_claims(title: str) -> str:
    """Return the kind of the claims on a split: the paper's, or ours if it lacks the split."""
    return PAPER if title in TARGETS else OUR_QUESTION


def reported_curves(data: Data) -> Panels:
    """Return every arm's curve at its best stage, at the rounds that all arms of a panel have."""
    return reported(read(data["panels"]))


def curves_at_all_rounds(data: Data) -> Panels:
    """Return every arm's curve at its best stage, at all rounds that were tested."""
    panels = read(data["panels"])
    return {
        title: {label: arm[best_stage(arm)] for label, arm in panel.items()}
        for title, panel in panels.items()
    }


def sooner(data: Data) -> list[Claim]:
    """Judge that PFedDST is fastest, and DFedPGP next, by rounds interpolated between tests.

    "PFedDST has the fastest convergence among the methods tested [...]. Notably, DFedPGP
    demonstrates that a convergence rate is much better than other methods in both CIFAR-10 and
    CIFAR-100 scenarios."
    """
    claims = []
    for title, arms in reported_curves(data).items():
        target, last = data["targets"][title], next(iter(arms.values())).epochs[-1]
        needed = {
            label: np.minimum(rounds_to(curve, target), last) for label, curve in arms.items()
        }
        for label, others in (
            (OURS, set(arms) - {OURS}),
            ("DFedPGP", set(arms) - {OURS, "DFedPGP"}),
        ):
            said = "all other methods" if label == OURS else "all methods but PFedDST"
            printed = _sooner_in_paper(title, label, others)
            bound, why = _how_much(printed) if label == "DFedPGP" else (1.0, ANY)
            claims.append(
                judge_every(
                    f"{title}: {label} reaches the target before {said}.",
                    f"rounds to {target:g} %, linear between tests: each other method's over "
                    f"{label}'s",
                    {other: needed[other] / needed[label] for other in sorted(others)},
                    at_least=bound,
                    why=why,
                    paper=f"{printed:.2f}" if printed else "",
                    kind=kind_of_claims(title),
                    of_means=min(needed[other].mean() for other in others) / needed[label].mean(),
                )
            )
    return claims


def _sooner_in_paper(title: str, label: str, others: Collection[str]) -> float | None:
    """Return the ratio of the paper's rounds, the fastest other method's over a method's."""
    if title not in TARGETS:
        return None
    return min(TABLE_1[other][title] or 500 for other in others) / (TABLE_1[label][title] or 500)


def _how_much(printed: float | None) -> tuple[float, str]:
    """Return from where on DFedPGP's rate is "much better than other methods", and why."""
    if printed is None:
        return 1.0, ANY
    return round((1 + printed) / 2, 3), "“much better”: half of the lead in the paper's own rounds"


def best(panels: Panels) -> list[Claim]:
    """Judge that PFedDST is most accurate, and learns fastest."""
    return [claim for title, arms in panels.items() for claim in _leads(title, arms)]


def _leads(title: str, arms: Mapping[str, Curve]) -> list[Claim]:
    def lead(
        statement: str, name: str, score: Callable[[Curve], np.ndarray], paper: str = ""
    ) -> Claim:
        return judge_every(
            f"{title}: {statement}",
            f"{name}: PFedDST minus each other method, points",
            {
                label: score(arms[OURS]) - score(curve)
                for label, curve in arms.items()
                if label != OURS
            },
            at_least=0,
            why=ANY,
            paper=paper,
        )

    printed = f"{LEADS[title]:+.1f} points" if title in LEADS else ""
    return [
        lead("PFedDST is the most accurate of all methods.", "final accuracy", final, printed),
        lead("PFedDST learns fastest of all methods.", "mean accuracy over all rounds", average),
    ]


def steady(panels: Panels) -> list[Claim]:
    """Judge that PFedDST is stable, by curves at all rounds that were tested."""
    return [
        judge_seeds(
            f"{title}: PFedDST is stable.",
            "final accuracy over that of the best of all rounds",
            final(arms[OURS]) / np.maximum(arms[OURS].mean.max(axis=1), 1e-9),
            at_least=STABLE,
            why="it ends within a twentieth of its best round",
        )
        for title, arms in panels.items()
    ]


def _mean(data: Data, name: str) -> np.ndarray:
    """Return mean accuracies over rounds, one per seed."""
    return np.array([np.mean(seed[name]) for seed in data["seeds"]])


def useful(data: Data) -> list[Claim]:
    """Judge that peers with similar heads have more useful models than random peers."""
    return [
        judge_seeds(
            "Models of peers with similar heads are better on a client's data than those of random "
            "peers.",
            "mean accuracy over rounds: similar minus random peers, points",
            _mean(data, "near") - _mean(data, "random"),
            at_least=0,
            why="“generally outperform”: any consistent difference over seeds counts",
        )
    ]


def own_best(data: Data) -> list[Claim]:
    """Judge that the client's own model is better than those of similar peers."""
    return [
        judge_seeds(
            (
                "A client's own model is better on its data than the models of peers with similar "
                "heads."
            ),
            "mean accuracy over rounds: its own minus that of peers with similar heads, points",
            _mean(data, "own") - _mean(data, "near"),
            at_least=0,
            why="any consistent difference over seeds counts",
        )
    ]
