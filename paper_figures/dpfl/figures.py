"""DPFL (Kharrat, Canini and Horvath 2025): tables 1 to 3, figures 1 to 15, and three clients.

Settings are in :mod:`paper_figures.dpfl.settings`, methods in :mod:`paper_figures.dpfl.methods`,
and the paper's numbers in :mod:`paper_figures.dpfl.printed_numbers`. Figures 1 and 5 to 7 show the
runs of table 1, figures 2, 8 to 11 and 15 their graphs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import Table

from ..kit.claims import Claim
from ..kit.figure import Data, Figure
from ..kit.setting import Setting
from ..kit.training.store import Store
from . import graph_claims, study
from .arms import Outcome, graphs, measured, read, scale_of, written
from .claims import comparable, periods, random_graph, table_1, three_clients, variances
from .experiments import (
    Arms,
    fig03,
    learned,
    learned_with,
    malicious_choosers,
    malicious_senders,
    runs_of,
    tab01,
    tab02,
    tab03,
)
from .graphs import draw_graphs, round_page
from .pictures import (
    draw_accuracies,
    draw_curves,
    draw_malicious_shares,
    draw_own_accuracies,
    draw_three_clients,
    draw_variances,
)
from .printed_numbers import TABLE_2, TABLE_3
from .settings import COMMON, DIR, FLIPPED, PATHO, Scale
from .tables import accuracy_tables, graph_table, grid_tables
from .three_clients import accuracies


def _accuracy_figure(
    id: str,
    title: str,
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[dict[str, dict[str, Outcome]]], Picture],
    claims: Callable[[dict[str, dict[str, Outcome]]], Sequence[Claim]],
    tables: Callable[[dict[str, dict[str, Outcome]]], Sequence[Table]],
    more: Sequence[str] = (),
    datasets: tuple[str, ...] = ("cifar10",),
    optional: tuple[str, ...] = (),
) -> Figure:
    def compute(setting: Setting, store: Store) -> Data:
        panels = {
            name: {k: measured(one, store) for k, one in panel.items()}
            for name, panel in arms(setting).items()
        }
        return {"panels": written(panels)}

    return Figure(
        id,
        title,
        compute,
        draw=lambda data: draw(read(data["panels"])),
        claims=lambda data: claims(read(data["panels"])),
        tables=lambda data: tables(read(data["panels"])),
        runs=lambda setting: runs_of(arms(setting)),
        differences=lambda setting: (*scale_of(setting).differences, *COMMON, *more),
        datasets=datasets,
        optional=optional,
    )


def _graph_figure(
    id: str,
    title: str,
    arms: Callable[[Setting], Arms],
    *,
    claims: Callable[[Mapping[str, Any]], Sequence[Claim]],
    ends_only: bool = False,
    paged: bool = False,
    more: Sequence[str] = (),
) -> Figure:
    """Return a figure of graphs over rounds.

    With `ends_only`, only the first and the last round are shown; with `paged`, an HTML page shows
    all rounds.
    """

    def compute(setting: Setting, store: Store) -> Data:
        shown = _shown(scale_of(setting), ends_only)
        panels = {
            label: graphs(one, store, shown)
            for panel in arms(setting).values()
            for label, one in panel.items()
        }
        return {"graphs": panels}

    return Figure(
        id,
        title,
        compute,
        draw=lambda data: draw_graphs({label: seeds[0] for label, seeds in data["graphs"].items()}),
        claims=lambda data: claims(data["graphs"]),
        tables=lambda data: [graph_table(label, seeds) for label, seeds in data["graphs"].items()],
        runs=lambda setting: runs_of(arms(setting)),
        differences=lambda setting: (
            *scale_of(setting).differences,
            *COMMON,
            "pictures show the first seed",
            *more,
        ),
        datasets=("cifar10",),
        page=(lambda setting, store: round_page(runs_of(arms(setting))[0], store, f"{id}: {title}"))
        if paged
        else None,
    )


def _shown(scale: Scale, ends_only: bool) -> list[int]:
    """Return the rounds whose graphs are shown, including the first (0) and the last."""
    last = scale.rounds - 1
    return [0, last] if ends_only else sorted({*range(0, last, scale.snapshots), last})


def _variances(
    id: str, *titles: str, datasets: tuple[str, ...] = ("cifar10",), elsewhere: Sequence[str] = ()
) -> Figure:
    """Return a figure of accuracy and variance on some splits; others judge those `elsewhere`."""

    def judged(panels: dict[str, dict[str, Outcome]]) -> list[Claim]:
        return variances({title: arms for title, arms in panels.items() if title not in elsewhere})

    return _accuracy_figure(
        id,
        f"Accuracy and variance over clients, {' and '.join(titles)}",
        lambda setting: tab01(setting, *titles),
        draw=draw_variances,
        claims=judged,
        tables=accuracy_tables,
        datasets=datasets,
        more=(
            "FedAvg, FedProx and FedProx+FT are neither drawn nor compared with except on FEMNIST, "
            "as in the paper, whose figures omit methods below 80 and 78 % (CINIC-10: 78 and 77 %)",
        ),
    )


def _fig14(setting: Setting, store: Store) -> Data:
    """Return the graphs of all rounds."""
    ((one,),) = (panel.values() for panel in malicious_choosers(setting).values())
    return {"graphs": {"DPFL": graphs(one, store, range(scale_of(setting).rounds))}}


def _three_clients(setting: Setting, store: Store) -> Data:
    size = (
        {"rounds": 2, "epochs": 1, "share": 0.1}
        if setting.scale == "smoke"
        else {"rounds": 20, "epochs": 5}
    )
    return {"accuracies": accuracies(setting, **size)}


def _judged_elsewhere(graphs: Mapping[str, Any]) -> Sequence[Claim]:
    return ()


def _over_rounds(k: int, budget: str) -> Figure:
    """Return one of figures 8 to 11, the graphs of a budget over rounds."""
    return _graph_figure(
        f"dpfl-fig{k:02d}",
        f"Graphs over rounds, {budget}",
        learned_with(k - 8),
        claims=graph_claims.evolution,
        paged=True,
    )


FIGURES: tuple[Figure, ...] = (
    _accuracy_figure(
        "dpfl-tab01",
        "Accuracy of all methods on all splits",
        tab01,
        draw=draw_accuracies,
        claims=table_1,
        tables=accuracy_tables,
        optional=("mnist", "cinic10", "femnist"),
    ),
    _accuracy_figure(
        "dpfl-tab02",
        "DPFL with several numbers of epochs in the first round",
        tab02,
        draw=draw_own_accuracies,
        claims=comparable,
        tables=grid_tables(TABLE_2, "epochs"),
    ),
    _accuracy_figure(
        "dpfl-tab03",
        "DPFL with several refresh periods",
        tab03,
        draw=draw_own_accuracies,
        claims=periods,
        tables=grid_tables(TABLE_3, "period"),
        more=("three seeds instead of the paper's one",),
    ),
    _variances("dpfl-fig01", PATHO),
    _graph_figure(
        "dpfl-fig02",
        "The first and the last graph, small budgets",
        learned_with(2, 3),
        claims=graph_claims.sparser,
        ends_only=True,
    ),
    _accuracy_figure(
        "dpfl-fig03",
        "Chosen and random peers",
        fig03,
        draw=draw_curves,
        claims=random_graph,
        tables=accuracy_tables,
        more=(
            "the random graph is fixed: each client averages with as many random peers as the "
            "budget allows, the same in all rounds",
        ),
    ),
    _graph_figure(
        "dpfl-fig04a",
        "Flipped labels: malicious clients only send",
        malicious_senders,
        claims=graph_claims.ceased,
        ends_only=True,
        more=(FLIPPED,),
    ),
    _graph_figure(
        "dpfl-fig04b",
        "Flipped labels: malicious clients also choose peers",
        malicious_choosers,
        claims=graph_claims.segregated,
        ends_only=True,
        more=(FLIPPED,),
    ),
    _variances("dpfl-fig05", "FEMNIST", datasets=("femnist",)),
    _variances("dpfl-fig06", "CINIC-10, Dir(0.1)", "CINIC-10, Patho(3)", datasets=("cinic10",)),
    _variances("dpfl-fig07", DIR, PATHO, elsewhere=[PATHO]),
    _over_rounds(8, "no limit"),
    _over_rounds(9, "budget 0.2 n"),
    _over_rounds(10, "budget 0.1 n"),
    _over_rounds(11, "budget 0.05 n"),
    _graph_figure(
        "dpfl-fig12",
        "Flipped labels over rounds: malicious clients only send",
        malicious_senders,
        claims=_judged_elsewhere,
        paged=True,
        more=(FLIPPED,),
    ),
    _graph_figure(
        "dpfl-fig13",
        "Flipped labels over rounds: malicious clients also choose peers",
        malicious_choosers,
        claims=_judged_elsewhere,
        paged=True,
        more=(FLIPPED,),
    ),
    Figure(
        "dpfl-fig14",
        "Malicious clients among the peers of benign clients",
        _fig14,
        draw_malicious_shares,
        lambda data: graph_claims.rare(data["graphs"]),
        runs=lambda setting: runs_of(malicious_choosers(setting)),
        differences=lambda setting: (*scale_of(setting).differences, *COMMON, FLIPPED),
        tables=lambda data: [graph_table(label, seeds) for label, seeds in data["graphs"].items()],
        datasets=("cifar10",),
    ),
    _graph_figure(
        "dpfl-fig15",
        "Graphs of all budgets, and their symmetry",
        learned,
        claims=graph_claims.asymmetry,
    ),
    Figure(
        "dpfl-study",
        "Beyond the paper: similar or different neighbors",
        study.compute,
        study.draw,
        study.judged,
        runs=study.runs,
        differences=lambda setting: (*scale_of(setting).differences, *study.DIFFERENCES),
        tables=study.tables,
        datasets=("cifar10",),
        optional=("mnist",),
        page=lambda setting, store: round_page(
            study.runs(setting)[0], store, "dpfl-study: learned graphs of DPFL with a budget"
        ),
    ),
    Figure(
        "dpfl-expA",
        "Three clients: partners that hurt alone and help together",
        _three_clients,
        draw_three_clients,
        lambda data: three_clients(data["accuracies"]),
        differences=lambda setting: (
            "the three clients have as many images as in the paper, without overlap (scale smoke: "
            "a tenth of them, digits)",
            "DPFL's network, 20 rounds of FedAvg with 5 epochs each, then 5 epochs of fine-tuning: "
            "the paper does not specify these",
        ),
        datasets=("cifar10",),
    ),
)
