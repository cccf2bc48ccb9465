"""PFedDST (Fan et al.): its figures and table, and its claims about them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..kit import comparison
from ..kit.claims import Claim, at_least, judge, judge_each, kind_of
from ..kit.comparison import ANY_LEAD, arms_on, compared, leads, reported_curves, splits_of
from ..kit.curves import Curve, Panels, average, final, read_panels
from ..kit.drawing import convergence
from ..kit.paper import Data, Figure, Setting, declared
from ..kit.store import Store
from . import peers

DECLARED = declared("pfeddst/paper.toml")

TARGETS: Mapping[str, float] = DECLARED["targets"]
"""Accuracies that table 1 counts the rounds to."""

ROUNDS: Mapping[str, Mapping[str, int | None]] = DECLARED.printed("rounds")
"""Table 1: first round with that accuracy, None if there is none in 500."""

OURS = "PFedDST"

LABELS = ("FedAvg", "FedPer", "FedBABU", "DFedAvgM", "Dis-PFL", "DFedPGP", OURS)


def sooner(data: Data) -> list[Claim]:
    """Judge that PFedDST is fastest, and DFedPGP next, by rounds interpolated between tests.

    "PFedDST has the fastest convergence among the methods tested [...]. Notably, DFedPGP
    demonstrates that a convergence rate is much better than other methods in both CIFAR-10 and
    CIFAR-100 scenarios."
    """
    claims = []
    for title, arms in reported_curves(data).items():
        target = data["targets"][title]
        needed = comparison.rounds_needed(arms, target)
        for label, said in ((OURS, "all other methods"), ("DFedPGP", "all methods but PFedDST")):
            others = sorted(set(arms) - {OURS, label})
            printed = None
            if title in TARGETS:  # the ratio of the paper's rounds to those of the next method
                rounds = {name: ROUNDS[name][title] or 500 for name in (label, *others)}
                printed = min(rounds[other] for other in others) / rounds[label]
            bound = at_least(1, ANY_LEAD.why, tie=1)
            if label == "DFedPGP" and printed is not None:
                why = "“much better”: half of the lead in the paper's own rounds"
                bound = at_least(round((1 + printed) / 2, 3), why, tie=1)
            claims.append(
                judge(
                    f"{title}: {label} reaches the target before {said}.",
                    f"rounds to {target:g} %, linear between tests: each other method's over "
                    f"{label}'s",
                    {other: needed[other] / needed[label] for other in others},
                    bound,
                    paper=f"{printed:.2f}" if printed else "",
                    kind=kind_of(title, TARGETS),
                    of_means=min(needed[other].mean() for other in others) / needed[label].mean(),
                )
            )
    return claims


def best(panels: Panels) -> list[Claim]:
    """Judge that PFedDST is most accurate, and learns fastest."""
    return judge_each(panels, _leads)


def _leads(title: str, arms: Mapping[str, Curve]) -> list[Claim]:
    def lead(
        statement: str, name: str, score: Callable[[Curve], np.ndarray], paper: str = ""
    ) -> Claim:
        statistic = f"{name}: PFedDST minus each other method, points"
        scores = {label: score(curve) for label, curve in arms.items()}
        return judge(f"{title}: {statement}", statistic, leads(scores, OURS), ANY_LEAD, paper=paper)

    printed = DECLARED["leads"]
    paper = f"{printed[title]:+.1f} points" if title in printed else ""
    return [
        lead("PFedDST is the most accurate of all methods.", "final accuracy", final, paper),
        lead("PFedDST learns fastest of all methods.", "mean accuracy over all rounds", average),
    ]


def steady(panels: Panels) -> list[Claim]:
    """Judge that PFedDST is stable, by curves at all rounds that were tested."""
    return [
        comparison.ends_well(f"{title}: PFedDST is stable.", arms[OURS], "of all rounds")
        for title, arms in panels.items()
    ]


def _apart(data: Data, ahead: str, behind: str) -> np.ndarray:
    """Return the difference of two kinds of accuracies, means over rounds, one per seed."""
    return np.array([np.mean(seed[ahead]) - np.mean(seed[behind]) for seed in data["seeds"]])


def useful(data: Data) -> list[Claim]:
    """Judge that peers with similar heads have more useful models than random peers."""
    return [
        judge(
            "Models of peers with similar heads are better on a client's data than those of random "
            "peers.",
            "mean accuracy over rounds: similar minus random peers, points",
            _apart(data, "near", "random"),
            at_least(0, "“generally outperform”: any consistent difference over seeds counts"),
        )
    ]


def own_best(data: Data) -> list[Claim]:
    """Judge that the client's own model is better than those of similar peers."""
    return [
        judge(
            "A client's own model is better on its data than the models of peers with similar "
            "heads.",
            "mean accuracy over rounds: its own minus that of peers with similar heads, points",
            _apart(data, "own", "near"),
            at_least(0, "any consistent difference over seeds counts"),
        )
    ]


CIFAR_10, CIFAR_100, MNIST = TITLES = "CIFAR-10, c=2", "CIFAR-100, c=5", "MNIST, Dir(0.3)"


tab01 = arms_on(LABELS, *TITLES)
"""All methods on all splits, including MNIST's where a scale has it."""

pfeddst_alone = arms_on((OURS,), *TITLES)


def _figure(name: str, *titles: str, **code: Any) -> Figure:
    """Return a figure with the differences of runs on some splits."""

    def of_runs(setting: Setting) -> tuple[str, ...]:
        there = splits_of(setting, *titles)
        exploration = [peers.exploration(setting, there)] if there else []
        return (*comparison.differences(setting), *DECLARED["differences"], *exploration)

    return DECLARED.figure(name, differences=of_runs, **code)


def _figure_2(name: str, kind: str, claims: Callable[[Data], list[Claim]]) -> Figure:
    arms = arms_on((OURS,), CIFAR_10)

    def compute(setting: Setting, store: Store) -> Data:
        return peers.accuracies_of_peers(arms(setting), comparison.scale_of(setting).neighbors)

    draw = peers.draw_peers(kind)
    return _figure(name, CIFAR_10, compute=compute, draw=draw, claims=claims, arms=arms)


def _curve_figure(name: str, split: str) -> Figure:
    return _figure(
        name,
        split,
        **compared(
            arms_on(LABELS, split),
            draw=lambda data: convergence(reported_curves(data), xlabel="round", extremes=False),
            claims=lambda data: [
                *best(reported_curves(data)),
                *steady(comparison.at_best_stages(read_panels(data["panels"]))),
            ],
            tables=comparison.accuracy_tables({}),
        ),
    )


PAPER = DECLARED.paper(
    (
        _figure_2("fig02a", "random", useful),
        _figure_2("fig02b", "near", own_best),
        _curve_figure("fig03", CIFAR_10),
        _curve_figure("fig04", CIFAR_100),
        _figure(
            "tab01",
            *TITLES,
            **compared(
                tab01,
                draw=comparison.draw_rounds(ROUNDS),
                claims=sooner,
                tables=comparison.rounds_tables(ROUNDS, TARGETS),
                targets=TARGETS,
            ),
        ),
        _figure(
            "labels",
            *TITLES,
            compute=lambda setting, store: peers.compute(pfeddst_alone(setting), OURS, store),
            draw=peers.draw,
            claims=peers.alike,
            arms=pfeddst_alone,
            tables=peers.tables,
        ),
        DECLARED.figure(
            "sensitivity",
            compute=peers.compute_sensitivity,
            draw=peers.draw_sensitivity,
            claims=lambda data: [],
            arms=peers.sensitivity_arms,
            tables=peers.sensitivity_tables,
            differences=peers.sensitivity_differences,
        ),
    ),
    comparison.TERMS,
)
