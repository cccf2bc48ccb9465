"""PFedDST (Fan et al.): its figures and table, and its claims about them."""

from collections.abc import Callable
from typing import Any

from ..kit.claims import Claim
from ..kit.comparison import (
    TERMS,
    accuracy_tables,
    arm,
    at_best_stages,
    compared,
    differences,
    draw_rounds,
    reported_curves,
    rounds_tables,
    scale_of,
    splits_of,
)
from ..kit.curves import read_panels
from ..kit.drawing import convergence
from ..kit.paper import Arms, Data, Figure, Setting
from ..kit.store import Store
from . import peers
from .claims import DECLARED, LABELS, OURS, ROUNDS, TARGETS, best, own_best, sooner, steady, useful

CIFAR_10, CIFAR_100, MNIST = TITLES = "CIFAR-10, c=2", "CIFAR-100, c=5", "MNIST, Dir(0.3)"


def _on(*titles: str, labels: tuple[str, ...] = LABELS) -> Callable[[Setting], Arms]:
    """Return a function that gives the arms of some methods on some splits."""
    return lambda setting: {
        title: {label: arm(setting, title, label) for label in labels}
        for title in splits_of(setting, *titles)
    }


tab01 = _on(*TITLES)
"""All methods on all splits, including MNIST's where a scale has it."""

pfeddst_alone = _on(*TITLES, labels=(OURS,))


def _figure(name: str, *titles: str, **code: Any) -> Figure:
    """Return a figure with the differences of runs on some splits."""

    def of_runs(setting: Setting) -> tuple[str, ...]:
        there = splits_of(setting, *titles)
        exploration = [peers.exploration(setting, there)] if there else []
        return (*differences(setting), *DECLARED["differences"], *exploration)

    return DECLARED.figure(name, differences=of_runs, **code)


def _figure_2(name: str, kind: str, claims: Callable[[Data], list[Claim]]) -> Figure:
    arms = _on(CIFAR_10, labels=(OURS,))

    def compute(setting: Setting, store: Store) -> Data:
        return peers.accuracies_of_peers(arms(setting), scale_of(setting).neighbors)

    draw = peers.draw_peers(kind)
    return _figure(name, CIFAR_10, compute=compute, draw=draw, claims=claims, arms=arms)


def _curve_figure(name: str, split: str) -> Figure:
    return _figure(
        name,
        split,
        **compared(
            _on(split),
            draw=lambda data: convergence(reported_curves(data), xlabel="round", extremes=False),
            claims=lambda data: [
                *best(reported_curves(data)),
                *steady(at_best_stages(read_panels(data["panels"]))),
            ],
            tables=accuracy_tables({}),
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
                draw=draw_rounds(ROUNDS),
                claims=sooner,
                tables=rounds_tables(ROUNDS, TARGETS),
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
    TERMS,
)
