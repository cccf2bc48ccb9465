"""DFedPGP (Liu et al. 2024): tables 1 to 4, figures 2, 3a and 3b, and the claims made with them.

Settings are in :mod:`paper_figures.kit.personalization.settings`, methods in
:mod:`paper_figures.kit.personalization.methods`, and the paper's numbers in
:mod:`paper_figures.dfedpgp.printed_numbers`. Tables 1 and 2 and figure 2 show the same runs. Table
4 shows some of them and an additional method; table 3 and figures 3a and 3b share runs where
possible.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import Table

from ..kit.claims import Claim
from ..kit.curves import Panels, final, rounds_to
from ..kit.dots import Dots, dots
from ..kit.drawing import convergence
from ..kit.figure import Arms, Data, Figure
from ..kit.personalization.arms import measured, read, reported, scale_of, written
from ..kit.personalization.settings import ADDED, COMMON
from ..kit.personalization.tables import accuracy_table, rounds_table
from ..kit.setting import Setting
from ..kit.training.store import Store
from . import claims as dfedpgp_claims
from . import size_claims
from .experiments import fig03a, fig03b, tab01, tab02, tab03, tab04, targets
from .printed_numbers import TABLE_1 as PAPERS_TABLE_1
from .printed_numbers import TABLE_2, TABLE_3, TABLE_4, TARGETS
from .settings import ALONE, EQUAL, PUSHED


def _figure(
    id: str,
    title: str,
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[Data], Picture],
    claims: Callable[[Data], Sequence[Claim]],
    tables: Callable[[Data], Sequence[Table]],
    more: Sequence[str] = (),
    optional: tuple[str, ...] = (),
) -> Figure:
    def compute(setting: Setting, store: Store) -> Data:
        curves = measured(arms(setting), store)
        some = {
            name: panel for name, panel in reported(curves).items() if name in {**TARGETS, **ADDED}
        }
        return {"panels": written(curves), "targets": targets(setting.scale, some)}

    return Figure(
        id,
        title,
        compute,
        draw,
        claims,
        runs=lambda setting: [
            run for panel in arms(setting).values() for runs in panel.values() for run in runs
        ],
        differences=lambda setting: (*scale_of(setting).differences, *COMMON, *more),
        tables=tables,
        datasets=("cifar10",),
        optional=optional,
        arms=arms,
    )


def _curves(data: Data) -> Panels:
    return reported(read(data["panels"]))


def _accuracies(paper: Mapping[str, Mapping[str, str]]) -> Callable[[Data], Sequence[Table]]:
    """Return a function that makes one table per panel, with the paper's numbers by label."""
    return lambda data: [
        accuracy_table(title, arms, paper.get(title, {}))
        for title, arms in read(data["panels"]).items()
    ]


def _by_accuracy(paper: Mapping[str, Mapping[str, float]]) -> Callable[[Data], Picture]:
    def draw(data: Data) -> Picture:
        panels = {
            title: {
                label: Dots(final(curve), paper.get(title, {}).get(label))
                for label, curve in arms.items()
            }
            for title, arms in _curves(data).items()
        }
        return dots(panels, xlabel="test accuracy, %")

    return draw


def _rounds(data: Data) -> list[Table]:
    return [
        rounds_table(title, arms, data["targets"][title], TABLE_2, TARGETS)
        for title, arms in _curves(data).items()
    ]


def _by_rounds(data: Data) -> Picture:
    panels = {}
    for title, arms in _curves(data).items():
        target = data["targets"][title]
        paper = {label: row.get(title) for label, row in TABLE_2.items()}
        panels[f"{title}: {target:g} %"] = {
            label: Dots(rounds_to(curve, target), paper.get(label)) for label, curve in arms.items()
        }
    return dots(panels, xlabel="rounds to the target")


def _lines(data: Data) -> Picture:
    return convergence(_curves(data), xlabel="round", extremes=False)


def _judged(judge: Callable[[Panels], Sequence[Claim]]) -> Callable[[Data], Sequence[Claim]]:
    return lambda data: judge(_curves(data))


def _turned(
    paper: Mapping[str, Mapping[str, Any]], form: Callable[[Any], Any]
) -> dict[str, dict[str, Any]]:
    """Return numbers by title and label; those that are not there have no entry."""
    return {
        title: {label: form(value) for label, value in row.items() if value is not None}
        for title, row in paper.items()
    }


def _by_title(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    titles = next(iter(rows.values()))
    return {title: {label: row[title] for label, row in rows.items()} for title in titles}


ONE = _by_title(PAPERS_TABLE_1)


THREE = {
    **TABLE_3,
    **{title + EQUAL: {k: v[0] for k, v in ONE[title].items()} for title in TABLE_3},
}


FIGURES: tuple[Figure, ...] = (
    _figure(
        "dfedpgp-tab01",
        "Accuracy of all methods on all splits",
        tab01,
        draw=_by_accuracy(_turned(ONE, lambda cell: cell[0])),
        claims=_judged(dfedpgp_claims.tab01),
        tables=_accuracies(_turned(ONE, lambda cell: f"{cell[0]:.2f} ± {cell[1]:.2f}")),
        optional=("cifar100", "mnist"),
    ),
    _figure(
        "dfedpgp-fig02",
        "Accuracy of all methods against rounds",
        tab01,
        draw=_lines,
        claims=_judged(dfedpgp_claims.fig02),
        tables=_accuracies(_turned(ONE, lambda cell: f"{cell[0]:.2f} ± {cell[1]:.2f}")),
        more=(ALONE,),
        optional=("cifar100", "mnist"),
    ),
    _figure(
        "dfedpgp-tab02",
        "Rounds and bytes of all methods to a target accuracy",
        tab02,
        draw=_by_rounds,
        claims=lambda data: dfedpgp_claims.tab02(_curves(data), data["targets"]),
        tables=_rounds,
        more=(
            "except at scale “paper”, the target is 90 % of the best method's final accuracy, "
            "rounded down; this rule was fixed before the results were known",
            ALONE,
        ),
        optional=("cifar100", "mnist"),
    ),
    _figure(
        "dfedpgp-tab03",
        "Accuracy of all methods with different numbers of local epochs per group of clients",
        tab03,
        draw=_by_accuracy(_turned(THREE, float)),
        claims=_judged(dfedpgp_claims.tab03),
        tables=_accuracies(_turned(THREE, lambda value: f"{value:.2f}")),
        more=(
            "heads that are trained separately have the same epochs in all groups; Ditto's epochs "
            "are divided between its two models as elsewhere, with at least one each",
        ),
    ),
    _figure(
        "dfedpgp-tab04",
        "Whole models or bodies over undirected or directed graphs",
        tab04,
        draw=_by_accuracy(TABLE_4),
        claims=_judged(dfedpgp_claims.tab04),
        tables=_accuracies(_turned(TABLE_4, lambda value: f"{value:.2f}")),
        more=(
            "DFedAvgM-P trains head and body alternately as DFedPGP does; the paper does not "
            "specify this",
            "“directed” has two meanings: OSGP pushes (columns sum to 1, weights are corrected by "
            "push-sum), DFedPGP pulls (rows sum to 1, averages are not preserved); the step from "
            "OSGP to DFedPGP therefore changes more than the exchanged part of the model, and the "
            "step from DFedAvgM to OSGP differs from that from DFedAvgM-P to DFedPGP",
        ),
    ),
    _figure(
        "dfedpgp-fig03a",
        "DFedPGP with several numbers of neighbors",
        fig03a,
        draw=_lines,
        claims=_judged(size_claims.fig03a),
        tables=_accuracies({}),
        more=(PUSHED,),
    ),
    _figure(
        "dfedpgp-fig03b",
        "DFedPGP with several numbers of clients",
        fig03b,
        draw=_lines,
        claims=_judged(size_claims.fig03b),
        tables=_accuracies({}),
        more=("with few clients, each client receives from at most all others",),
    ),
)
