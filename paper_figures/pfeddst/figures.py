"""PFedDST: figures 2 to 4, table 1, the peers that clients choose, and the score's constants.

The setting is that of DFedPGP (:mod:`paper_figures.kit.personalization.settings`), with whose runs
most of these are shared: two classes per client on CIFAR-10, five on CIFAR-100. Figure 2 looks at
one client's peers while PFedDST trains.
"""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure as Picture

import topofl
from topofl.runs.identity import Run

from ..kit.claims import Claim
from ..kit.curves import Panels, rounds_to
from ..kit.dots import Dots, dots
from ..kit.drawing import convergence
from ..kit.figure import Arms, Data, Figure
from ..kit.personalization.arms import (
    arm,
    measured,
    read,
    reported,
    scale_of,
    splits_of,
    targets_by_rule,
    written,
)
from ..kit.personalization.tables import accuracy_table, rounds_table
from ..kit.setting import Setting
from ..kit.training.store import Store
from . import peers, sensitivity
from .claims import best, curves_at_all_rounds, own_best, reported_curves, sooner, steady, useful
from .experiments import all_methods, pfeddst_alone, tab01
from .one_client import draw_peers, peer_accuracies
from .printed_numbers import TABLE_1, TARGETS
from .settings import CIFAR_10, CIFAR_100, COMMON, COUNTERFACTUAL, OURS, TITLES


def _targets(setting: Setting, panels: Panels) -> dict[str, float]:
    """Return the target accuracies in %: the paper's, or DFedPGP's rule at other scales."""
    return (
        {title: TARGETS[title] for title in panels}
        if setting.scale == "paper"
        else targets_by_rule(panels)
    )


def _table(setting: Setting, store: Store) -> Data:
    curves = measured(tab01(setting), store)
    return {"panels": written(curves), "targets": _targets(setting, reported(curves))}


def _by_rounds(data: Data) -> Picture:
    panels = {}
    for title, arms in reported_curves(data).items():
        target, paper = (
            data["targets"][title],
            {label: row.get(title) for label, row in TABLE_1.items()},
        )
        panels[f"{title}: {target:g} %"] = {
            label: Dots(rounds_to(curve, target), paper.get(label)) for label, curve in arms.items()
        }
    return dots(panels, xlabel="rounds to the target")


def _figure_2(id: str, title: str, kind: str, claims: Callable[[Data], list[Claim]]) -> Figure:
    return Figure(
        id,
        title,
        peer_accuracies,
        draw_peers(kind),
        claims,
        runs=lambda setting: [
            run for title in splits_of(setting, CIFAR_10) for run in arm(setting, title, OURS)
        ],
        differences=lambda setting: (
            *_differences(setting, CIFAR_10),
            COUNTERFACTUAL,
            "the client is the first one",
        ),
        datasets=("cifar10",),
    )


def _curve_figure(id: str, title: str, split: str, datasets: tuple[str, ...]) -> Figure:
    def compute(setting: Setting, store: Store) -> Data:
        return {"panels": written(measured(all_methods(setting, split), store))}

    return Figure(
        id,
        title,
        compute,
        draw=lambda data: convergence(reported_curves(data), xlabel="round", extremes=False),
        claims=lambda data: [*best(reported_curves(data)), *steady(curves_at_all_rounds(data))],
        runs=lambda setting: _runs(all_methods(setting, split)),
        arms=lambda setting: all_methods(setting, split),
        tables=lambda data: _accuracies(data),
        differences=lambda setting: _differences(setting, split),
        datasets=datasets,
    )


def _accuracies(data: Data) -> Sequence[topofl.Table]:
    return [accuracy_table(title, arms, {}) for title, arms in read(data["panels"]).items()]


def _runs(arms: Arms) -> list[Run]:
    return [run for panel in arms.values() for runs in panel.values() for run in runs]


def _differences(setting: Setting, *titles: str) -> tuple[str, ...]:
    there = splits_of(setting, *titles)
    return (
        *scale_of(setting).differences,
        *COMMON,
        *([peers.exploration(setting, there)] if there else []),
    )


FIGURES: tuple[Figure, ...] = (
    _figure_2("pfeddst-fig02a", "Models of random peers on one client's data", "random", useful),
    _figure_2(
        "pfeddst-fig02b",
        "Models of peers with similar heads on one client's data",
        "near",
        own_best,
    ),
    _curve_figure("pfeddst-fig03", "Accuracy against rounds, CIFAR-10", CIFAR_10, ("cifar10",)),
    _curve_figure("pfeddst-fig04", "Accuracy against rounds, CIFAR-100", CIFAR_100, ("cifar100",)),
    Figure(
        "pfeddst-tab01",
        "Rounds of all methods to a target accuracy",
        _table,
        _by_rounds,
        sooner,
        runs=lambda setting: _runs(tab01(setting)),
        arms=tab01,
        tables=lambda data: [
            rounds_table(title, arms, data["targets"][title], TABLE_1, TARGETS)
            for title, arms in reported_curves(data).items()
        ],
        differences=lambda setting: _differences(setting, *TITLES),
        datasets=("cifar10",),
        optional=("cifar100", "mnist"),
    ),
    Figure(
        "pfeddst-labels",
        "Labels that PFedDST's clients share with the peers they choose",
        compute=lambda setting, store: peers.compute(pfeddst_alone(setting), OURS, store),
        draw=peers.draw,
        claims=peers.alike,
        runs=lambda setting: _runs(pfeddst_alone(setting)),
        tables=peers.tables,
        differences=lambda setting: _differences(setting, *TITLES),
        datasets=("cifar10",),
        optional=("cifar100", "mnist"),
    ),
    Figure(
        "pfeddst-sensitivity",
        "How PFedDST depends on the constants of its score, which the paper does not give",
        sensitivity.compute,
        sensitivity.draw,
        claims=lambda data: [],
        runs=sensitivity.runs,
        tables=sensitivity.tables,
        differences=sensitivity.differences,
    ),
)
