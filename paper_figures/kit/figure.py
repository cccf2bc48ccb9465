"""A figure: compute(setting) -> data, draw(data) -> picture, claims(data) -> verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import Table
from topofl.runs.identity import Run

from .claims import Claim
from .curves import Curve, Panels, read_panels, write_panels
from .setting import Setting
from .tables import arms_table
from .training.store import Store

Data = dict[str, Any]
"""The numbers that a figure shows, as JSON values."""


Arms = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs, one per seed, by panel title and arm label."""


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    Parameters
    ----------
    id
        For example ``"dcliques-fig09"``.
    title
        Description in one line.
    compute
        ``compute(setting, store)`` -> data; called after all `runs` are finished.
    draw
        ``draw(data)`` -> a matplotlib figure in the paper's layout.
    claims
        ``claims(data)`` -> the paper's claims about it, judged.
    runs
        ``runs(setting)`` -> the required training runs.
    differences
        ``differences(setting)`` -> differences from the paper's setting, one sentence each.
    tables
        ``tables(data)`` -> tables of its arms' numbers.
    datasets
        Required datasets. A panel without its dataset is left out, and so is the figure if none of
        them is available.
    optional
        Datasets that are also shown if their files are available.
    arms
        ``arms(setting)`` -> runs by panel and arm, for figures that show only their curves, which
        can be read from an earlier report. None if the figure needs the runs themselves.
    page
        ``page(setting, store)`` -> an additional HTML page with a slider over rounds, which needs
        the runs themselves; None without one.
    """

    id: str
    title: str
    compute: Callable[[Setting, Store], Data]
    draw: Callable[[Data], Picture]
    claims: Callable[[Data], Sequence[Claim]]
    runs: Callable[[Setting], Sequence[Run]] = lambda setting: ()
    differences: Callable[[Setting], Sequence[str]] = lambda setting: ()
    tables: Callable[[Data], Sequence[Table]] = lambda data: ()
    datasets: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    arms: Callable[[Setting], Arms] | None = None
    page: Callable[[Setting, Store], str] | None = None

    @property
    def page_name(self) -> str:
        """File name of the page with a slider over rounds."""
        return f"{self.id}-rounds.html"


def trained(
    id: str,
    title: str,
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[Panels], Picture],
    claims: Callable[[Panels], Sequence[Claim]],
    shown_titles: Mapping[str, str] | None = None,
    **more: Any,
) -> Figure:
    """Return a figure of accuracy curves; `draw` and `claims` take curves by panel and label.

    Pictures and tables have `shown_titles` in place of the panel titles under which data are
    stored.
    """

    def displayed(data: Data) -> Panels:
        names = shown_titles or {}
        return {names.get(panel, panel): arms for panel, arms in read_panels(data).items()}

    return Figure(
        id,
        title,
        compute=lambda setting, store: write_panels(curves_of(arms(setting), store)),
        draw=lambda data: draw(displayed(data)),
        claims=lambda data: claims(read_panels(data)),
        runs=lambda setting: [
            run for panel in arms(setting).values() for runs in panel.values() for run in runs
        ],
        tables=lambda data: [arms_table(panel, arms) for panel, arms in displayed(data).items()],
        arms=arms,
        **more,
    )


def curves_of(arms: Arms, store: Store) -> Panels:
    """Return the curves of finished runs."""
    return {
        title: {label: _curve(runs, store) for label, runs in panel.items()}
        for title, panel in arms.items()
    }


def _curve(runs: Sequence[Run], store: Store) -> Curve:
    if (earlier := store.earlier_curves(runs)) is not None:
        return Curve.from_json(earlier)
    loaded = [store.load(run) for run in runs]
    numbers = [
        note["numbers"] | {key: note[key] for key in ("seconds", "megabytes")} for _, note in loaded
    ]
    histories = [history for history, _ in loaded]
    return Curve.of(
        [run.seed for run in runs], histories, loaded[0][1]["rounds_per_epoch"], numbers
    )
