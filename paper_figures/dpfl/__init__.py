"""DPFL (Kharrat, Canini and Horvath 2025): its tables and figures, and its claims about them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import NotApplicable, Table

from ..kit.claims import Claim
from ..kit.curves import plus_minus, read_panels, write_panels
from ..kit.drawing import convergence, dots, side_by_side
from ..kit.paper import Arms, Data, Figure, Setting, by_title, each_arm
from ..kit.store import Store
from . import arms as training
from . import claims as judged
from . import graphs, study
from .arms import DECLARED, DIR, PATHO, Outcome
from .claims import ACCURACIES
from .graphs import draw_graphs, graph_table, graphs_of, malicious_shares, round_page

Panels = Mapping[str, Mapping[str, Outcome]]

NOTES = "each client's best model by validation; mean ± standard deviation over seeds"


def _accuracy_figure(
    name: str,
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[Panels], Picture],
    claims: Callable[[Panels], Sequence[Claim]],
    tables: Callable[[Panels], Sequence[Table]],
) -> Figure:
    def compute(setting: Setting, store: Store) -> Data:
        panels = each_arm(arms(setting), lambda label, runs: training.measured(label, runs, store))
        return {"panels": write_panels(panels)}

    return DECLARED.figure(
        name,
        compute=compute,
        draw=lambda data: draw(read_panels(data["panels"])),
        claims=lambda data: claims(read_panels(data["panels"])),
        tables=lambda data: tables(read_panels(data["panels"])),
        arms=arms,
        differences=DECLARED.differences,
    )


def _graph_figure(
    name: str,
    arms: Callable[[Setting], Arms],
    claims: Callable[[Mapping[str, Any]], Sequence[Claim]],
    *,
    shown: Callable[[int, int], Sequence[int]] = lambda last, step: [*range(0, last, step), last],
    **code: Any,
) -> Figure:
    """Return a figure of graphs over rounds.

    `shown` gives the rounds, the first of which is 0, from the last one and the usual step.
    """

    def compute(setting: Setting, store: Store) -> Data:
        scale = training.scale_of(setting)
        rounds = shown(scale.rounds - 1, scale.snapshots)
        panels = {
            label: graphs_of(runs, store, rounds)
            for panel in arms(setting).values()
            for label, runs in panel.items()
        }
        return {"graphs": panels}

    def draw(data: Data) -> Picture:
        return draw_graphs({label: seeds[0] for label, seeds in data["graphs"].items()})

    return DECLARED.figure(
        name,
        compute=compute,
        claims=lambda data: claims(data["graphs"]),
        tables=lambda data: [graph_table(label, seeds) for label, seeds in data["graphs"].items()],
        arms=arms,
        differences=DECLARED.differences,
        **{"draw": draw, **code},
    )


def _paged(
    name: str,
    arms: Callable[[Setting], Arms],
    claims: Callable[[Mapping[str, Any]], Sequence[Claim]],
) -> Figure:
    """Return a figure of graphs with a page of all rounds."""
    title = f"dpfl-{name}: {DECLARED['figures'][name]['title']}"
    return _graph_figure(name, arms, claims, page=_page_of(arms, title))


def _page_of(arms: Callable[[Setting], Arms], title: str) -> Callable[[Setting, Store], str]:
    """Return a function that makes a page of the rounds of the first run."""

    def page(setting: Setting, store: Store) -> str:
        panel, *_ = arms(setting).values()
        runs, *_ = panel.values()
        return round_page(runs[0], store, title)

    return page


def _variances(name: str, *titles: str, elsewhere: Sequence[str] = ()) -> Figure:
    """Return a figure of accuracy and variance on some splits; others judge those `elsewhere`."""
    return _accuracy_figure(
        name,
        lambda setting: training.tab01(setting, *titles),
        draw=draw_variances,
        claims=lambda panels: judged.variances(
            {title: arms for title, arms in panels.items() if title not in elsewhere}
        ),
        tables=accuracy_tables,
    )


def draw_accuracies(
    panels: Panels, paper: Mapping[str, Mapping[str, float]] | None = None
) -> Picture:
    """Return a dot plot of accuracies with the paper's numbers by title and label, if given."""
    accuracies = each_arm(panels, lambda label, one: one["accuracy"])
    return dots(accuracies, xlabel="test accuracy, %", paper=paper)


def draw_variances(panels: Panels) -> Picture:
    """Return a plot of variance over clients against accuracy, one dot per method (seed means)."""
    picture, axes = side_by_side(len(panels), (4.6 * len(panels), 3.8))
    for ax, (title, arms) in zip(axes, panels.items(), strict=True):
        for label, one in arms.items():
            if label in judged.hidden(title):
                continue
            color = "#7F7F7F" if label in training.BASELINES else "#D55E00"
            place = (one["accuracy"].mean(), one["variance"].mean())
            ax.plot(*place, "o", color=color, markersize=4)
            ax.annotate(label, place, fontsize=7, xytext=(3, 2), textcoords="offset points")
        ax.set(title=title, xlabel="test accuracy, mean over clients, %")
    axes[0].set_ylabel("variance over clients, points²")
    return picture


def draw_curves(panels: Panels) -> Picture:
    """Return a plot of accuracy against rounds."""
    curves = each_arm(panels, lambda label, one: one["curve"])
    return convergence(curves, xlabel="round", extremes=False)


def draw_malicious_shares(data: Data) -> Picture:
    """Return a plot of the share of malicious peers against rounds, per seed and on average."""
    picture, (ax,) = side_by_side(1, (4.8, 3.2))
    shares = 100 * malicious_shares(data["graphs"]["DPFL"])
    ax.plot(shares.T, color="#D55E00", alpha=0.35, linewidth=0.8)
    ax.plot(shares.mean(axis=0), color="#D55E00", linewidth=1.8)
    ax.set(xlabel="round", ylabel="malicious among benign clients' peers, %", ylim=(0, None))
    return picture


def accuracy_tables(panels: Panels) -> list[Table]:
    """Return one table per panel with one row per method."""
    columns = ("method", "accuracy, %", "variance, points²", "worst tenth, %", "paper, %")
    tables = []
    for title, arms in panels.items():
        rows = []
        for label, one in arms.items():
            paper = ACCURACIES.get(label, {}).get(title)
            printed = "{:.2f} ± {:.2f}".format(*paper) if paper else UNPRINTED
            ours = (plus_minus(one[name]) for name in ("accuracy", "variance", "worst_tenth"))
            rows.append((label, *ours, printed))
        tables.append(Table(columns, tuple(rows), title=f"{title}: {NOTES}"))
    return tables


UNPRINTED = NotApplicable("the paper does not print it")


def grid_tables(
    paper: Mapping[int, tuple[float, ...]], name: str
) -> Callable[[Panels], list[Table]]:
    """Return a function that makes a table with one row per number (`name`) and budget."""

    def tables(panels: Panels) -> list[Table]:
        ((title, arms),) = panels.items()
        labels = list(dict.fromkeys(label.rpartition("; ")[0] for label in arms))
        rows = []
        for label, one in arms.items():
            budget, _, number = label.rpartition("; ")
            row = paper.get(int(number))
            printed = row[labels.index(budget)] if row else UNPRINTED
            rows.append((int(number), budget, plus_minus(one["accuracy"]), printed))
        columns = (name, "budget", "accuracy, %", "paper, %")
        return [Table(columns, tuple(rows), title=f"{title}: {NOTES}")]

    return tables


def _ends(last: int, step: int) -> Sequence[int]:
    return 0, last


def _nothing(shown: Mapping[str, Any]) -> Sequence[Claim]:
    """Return no claim: figures 4a and 4b judge the same runs."""
    return ()


_MEANS = each_arm(by_title(ACCURACIES), lambda label, cell: cell[0])

PAPER = DECLARED.paper(
    (
        _accuracy_figure(
            "tab01",
            training.tab01,
            draw=partial(draw_accuracies, paper=_MEANS),
            claims=judged.table_1,
            tables=accuracy_tables,
        ),
        _accuracy_figure(
            "tab02",
            training.tab02,
            draw=draw_accuracies,
            claims=judged.comparable,
            tables=grid_tables(judged.FIRST_EPOCHS, "epochs"),
        ),
        _accuracy_figure(
            "tab03",
            training.tab03,
            draw=draw_accuracies,
            claims=judged.periods,
            tables=grid_tables(judged.PERIODS, "period"),
        ),
        _variances("fig01", PATHO),
        _graph_figure("fig02", training.learned_with(2, 3), graphs.sparser, shown=_ends),
        _accuracy_figure(
            "fig03",
            training.fig03,
            draw=draw_curves,
            claims=judged.random_graph,
            tables=accuracy_tables,
        ),
        _graph_figure("fig04a", training.malicious_senders, graphs.ceased, shown=_ends),
        _graph_figure("fig04b", training.malicious_choosers, graphs.segregated, shown=_ends),
        _variances("fig05", "FEMNIST"),
        _variances("fig06", "CINIC-10, Dir(0.1)", "CINIC-10, Patho(3)"),
        _variances("fig07", DIR, PATHO, elsewhere=[PATHO]),
        *(_paged(f"fig{8 + k:02d}", training.learned_with(k), graphs.evolution) for k in range(4)),
        _paged("fig12", training.malicious_senders, _nothing),
        _paged("fig13", training.malicious_choosers, _nothing),
        _graph_figure(
            "fig14",
            training.malicious_choosers,
            graphs.rare,
            shown=lambda last, step: range(last + 1),
            draw=draw_malicious_shares,
        ),
        _graph_figure("fig15", training.learned, graphs.asymmetry),
        DECLARED.figure(
            "study",
            compute=study.compute,
            draw=study.draw,
            claims=study.judged,
            arms=study.arms,
            differences=lambda setting: training.scale_of(setting).differences,
            tables=study.tables,
            page=_page_of(study.arms, "dpfl-study: learned graphs of DPFL with a budget"),
        ),
        DECLARED.figure(
            "expA",
            compute=study.compute_clients,
            draw=study.draw_clients,
            claims=lambda data: study.judged_clients(data["accuracies"]),
        ),
    ),
    DECLARED["terms"],
)
