"""Compare the library's methods on one task over four graphs, with equal budgets.

``python -m analysis.methods`` gives each of 20 nodes two label shards of scikit-learn's digits and
runs every method for 200 gradient steps per node on ridge logistic regression, whose loss is
strongly convex. Learning rates are tuned on one seed and validation data; tables and figures report
other seeds and test data. Finished cells are kept in ``cells.jsonl``: the same command resumes an
interrupted run.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from tqdm.auto import tqdm

from topofl import Table

from .method_cells import (
    GRAPHS,
    LEFT_OUT,
    METHODS,
    NO_GRAPH,
    Cell,
    ComparisonTask,
    Method,
    cells_of,
    compute,
    selected,
)
from .program import parser_of, write

Cells = Mapping[tuple[str, str], Cell]
Show = Callable[[Method, Cell], str]
COLUMNS = (*GRAPHS, NO_GRAPH)
TARGET = 0.9
QUICK = ComparisonTask(n=10, steps=10, every=5, rates=(0.3,), seeds=(0,))


def _reached(run: Mapping[str, Any], what: str) -> float:
    """Return steps, bytes or seconds at the first evaluation at the target; NaN if none is."""
    return next(
        (at for at, got in zip(run.get(what, ()), run["accuracy"], strict=False) if got >= TARGET),
        math.nan,
    )


def _final(run: Mapping[str, Any]) -> float:
    return 100 * run["accuracy"][-1]


def _rates(method: Method, cell: Cell) -> str:
    tried = list(map(float, cell.tuned or {}))
    return ", ".join(
        f"{lr:g}{'*' * (lr in (min(tried), max(tried)))}" for lr in (cell.lr, cell.bias_lr)
    )


def _cost(method: Method, cell: Cell) -> str:
    """Return rounds, megabytes and simulated seconds to the target, averaged over seeds."""
    runs = [run for run in cell.accurate if run is not None]
    steps, sent, seconds = (
        np.array([_reached(run, what) for run in runs]) for what in ("steps", "bytes", "seconds")
    )
    if np.isnan(steps).any():
        return "-"
    said = "-" if np.isnan(seconds).any() else f"{seconds.mean():.0f} s"
    return f"{steps.mean() / method.steps:.0f}; {sent.mean() / 1e6:.2f} MB; {said}"


def _spread(part: str, value: Callable[[Any], float], form: str) -> Show:
    """Return what shows a value of runs of a cell: its mean with the lowest and the highest."""

    def show(method: Method, cell: Cell) -> str:
        values = np.array([value(run) for run in getattr(cell, part) if run is not None])
        return f"{values.mean():{form}} ({values.min():{form}} to {values.max():{form}})"

    return show


def _row(method: Method, cells: Cells, show: Callable[[Method, Cell], str]) -> tuple[str, ...]:
    """Return a method's row of a table: what is shown of its cells, or why there is nothing."""
    row = [method.title, method.family]
    for graph in COLUMNS:
        cell = cells.get((method.title, graph))
        if method.has_graph == (graph == NO_GRAPH):
            row.append("")
        elif cell is None:
            row.append("not run")
        elif cell.error:
            row.append(f"n/a: {cell.refused}")
        elif math.isnan(cell.lr) or None in (*cell.accurate, *cell.near):
            row.append("diverged")
        else:
            row.append(show(method, cell))
    return tuple(row)


def tables(cells: Cells, methods: Sequence[str] | None = None) -> dict[str, Table]:
    """Return the tables by name: one row per method (None: all) and one column per graph."""
    cost = "Rounds; megabytes sent by all nodes; simulated seconds to"
    final, distance = "Final test accuracy, %:", "Final relative distance of the"
    rates = "Tuned learning rates: for accuracy, for distance (*: at an end of the grid)"
    worst, bias = (lambda run: 100 * run["worst_accuracy"]), itemgetter("worst")
    shown: dict[str, tuple[str, Show]] = {
        "accuracy": (f"{final} mean over nodes", _spread("accurate", _final, ".1f")),
        "worst node": (f"{final} worst node", _spread("accurate", worst, ".1f")),
        "cost": (f"{cost} {TARGET:.0%} mean accuracy", _cost),
        "bias": (f"{distance} worst node from the optimum", _spread("near", bias, ".1e")),
        "mean bias": (
            f"{distance} mean model from the optimum",
            _spread("near", itemgetter("mean"), ".1e"),
        ),
        "rates": (rates, _rates),
    }
    columns = ("method", "family", *COLUMNS)
    return {
        name: Table(columns, tuple(_row(m, cells, show) for m in selected(methods)), title=title)
        for name, (title, show) in shown.items()
    }


def numbers(setting: ComparisonTask, cells: Cells) -> Table:
    """Return one row per run with a reported seed."""
    columns = (
        *("method", "family", "graph", "seed", "lr", "accuracy %", "worst node %"),
        *(f"{what} to {TARGET:.0%}" for what in ("steps", "bytes", "seconds")),
        *("bytes", "bias lr", "mean distance", "worst distance"),
    )
    rows = []
    for (title, graph), cell in cells.items():
        for seed, run, near in zip(setting.seeds, cell.accurate, cell.near, strict=False):
            if run is not None and near is not None:
                reached = [_reached(run, what) for what in ("steps", "bytes", "seconds")]
                ran = (title, METHODS[title].family, graph, seed, cell.lr)
                scores = (_final(run), 100 * run["worst_accuracy"])
                apart = (cell.bias_lr, near["mean"], near["worst"])
                rows.append((*ran, *scores, *reached, run["bytes"][-1], *apart))
    return Table(columns, tuple(rows))


def _page(setting: ComparisonTask, cells: Cells, methods: Sequence[str] | None = None) -> str:
    """Return the results in Markdown: how they were obtained, and the tables."""
    settings = [(m.title, m.steps, m.settings) for m in selected(methods)]
    left_out = "; ".join(
        f"{reason}: {', '.join(name for name, why in LEFT_OUT.items() if why == reason)}"
        for reason in dict.fromkeys(LEFT_OUT.values())
    )
    columns = ("method", "steps per round", "settings")
    rates = ", ".join(f"{lr:g}" for lr in setting.rates)
    seeds = f"{len(setting.seeds)} other seed{'s' * (len(setting.seeds) > 1)}"
    parts = [
        f"{setting.n} nodes hold two label shards of the digits each and train ridge logistic "
        f"regression (650 parameters, ridge {setting.ridge:g}). Every method takes {setting.steps} "
        "gradient steps per node, each on all of the node's examples; methods that take several "
        "steps per round run for fewer rounds. The same learning rates are tried for every method: "
        f"{rates}. The other settings were fixed beforehand, with two exceptions: for the "
        "compressed methods, `gamma` of 0.1 and 0.3 (for DeepSqueeze also 0.05) was tried with the "
        "tuning seed, and the row of tracked Adam was added after results had been seen. With the "
        "tuning seed and validation data, the rate of the highest accuracy is selected for "
        "accuracies and costs, and the rate whose worst node is nearest to the optimum for "
        f"distances. The tables report test data and {seeds}: mean (lowest to highest). Distances "
        "are relative to the norm of the optimum, which L-BFGS finds in float64; runs use float32. "
        f"In simulated time, a gradient step takes 1 second, {setting.slow:g} seconds at one of "
        f"the nodes, and a message {setting.delay:g} seconds.",
        _time(cells),
        *(table.to_markdown() for table in tables(cells, methods).values()),
        Table(columns, tuple(settings), title="Settings").to_markdown(),
        f"Not compared, because the method {left_out}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _time(cells: Cells) -> str:
    """Return a sentence about the processor time of the cells."""
    timed = [cell for cell in cells.values() if not math.isnan(cell.seconds)]
    if not timed:
        return ""
    minutes = sum(cell.seconds for cell in timed) / 60
    slowest = max(timed, key=lambda cell: cell.seconds)
    return (
        f"{len(timed)} cells took {minutes:.1f} minutes of processor time in total and at most "
        f"{slowest.seconds / 60:.1f} minutes each ({slowest.method} on {slowest.graph}), which is "
        f"about {minutes / 2:.0f} minutes with `--jobs 2` on two idle cores."
    )


def draw_curves(cells: Cells, graph: str, path: str | Path) -> None:
    """Write the figure of accuracy by gradient steps, bytes and seconds, one row per family."""
    shown = {METHODS[title].family for title, _ in cells}
    families = list(dict.fromkeys(m.family for m in METHODS.values() if m.family in shown))
    families = [family for family in families if family != "reference"] or ["reference"]
    size, count = (12, 0.6 + 2.5 * len(families)), len(families)
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(count, 3, sharey=True, squeeze=False)
    axes_of = (
        ("steps", "gradient steps per node", 1),
        ("bytes", "megabytes", 1e6),
        ("seconds", "simulated seconds", 1),
    )
    for row, family in zip(axes, families, strict=True):
        for ax, (what, label, unit) in zip(row, axes_of, strict=True):
            for title, runs, style in _curves(cells, graph, family):
                _draw_curve(ax, title, [run for run in runs if what in run], what, unit, style)
            ax.set(xlabel=label, ylim=(0, 100), xscale="log" if what == "bytes" else "linear")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.grid(alpha=0.3)
        row[0].set_ylabel("test accuracy, %")
        row[0].set_title(family, loc="left", fontsize=10)
        if handles := row[0].get_legend_handles_labels()[0]:
            row[0].legend(handles=handles, fontsize=7, loc="lower right")
    figure.suptitle(
        f"{graph}: mean over nodes and seeds; band: lowest to highest seed; black: dsgd (solid), "
        "centralized (dotted)"
    )
    figure.savefig(path, dpi=90)


def _curves(
    cells: Cells, graph: str, family: str
) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield title, runs and style of each curve in the panels of a family."""
    for title, method in METHODS.items():
        cell = cells.get((title, graph)) or cells.get((title, NO_GRAPH))
        runs = [run for run in cell.accurate if run is not None] if cell else []
        if runs and method.family == family:
            yield title, runs, {"linewidth": 1.6}
        elif runs and title in ("dsgd", "centralized"):
            style = {"color": "black", "linestyle": "-" if title == "dsgd" else ":"}
            yield title, runs, style | {"linewidth": 1.0}


def _draw_curve(
    ax: Any, title: str, runs: Sequence[Any], what: str, unit: float, style: Mapping[str, Any]
) -> None:
    if not runs or (what == "bytes" and not any(run["bytes"][-1] for run in runs)):
        return
    at = np.mean([run[what] for run in runs], axis=0) / unit
    accuracy = 100 * np.array([run["accuracy"] for run in runs])
    if what == "bytes":  # on a logarithmic axis, which does not have the 0 of the start
        at, accuracy = at[at > 0], accuracy[:, at > 0]
    (line,) = ax.plot(at, accuracy.mean(0), label=title, **style)
    ax.fill_between(
        at, accuracy.min(0), accuracy.max(0), color=line.get_color(), alpha=0.12, linewidth=0
    )


def draw_bias(cells: Cells, path: str | Path, methods: Sequence[str] | None = None) -> None:
    """Write the figure of distances from the optimum: one row per method, one column per graph."""
    titles = [method.title for method in selected(methods)][::-1]
    size = (15, 1.2 + 0.24 * len(titles))
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(1, len(COLUMNS), sharex=True, sharey=True)
    for ax, graph in zip(axes, COLUMNS, strict=True):
        for y, title in enumerate(titles):
            cell = cells.get((title, graph))
            for near in filter(None, cell.near if cell else ()):
                ax.plot(near["worst"], y, "o", color="#0072B2", markersize=5)
                ax.plot(near["mean"], y, "o", color="#D55E00", markersize=5, fillstyle="none")
        ax.set(xscale="log", title=graph, xlabel="relative distance from the optimum")
        ax.grid(alpha=0.3)
    axes[0].set_yticks(range(len(titles)), titles, fontsize=8)
    axes[0].set_ylim(-0.7, len(titles) - 0.3)
    figure.suptitle("filled: worst node; open: mean model; one pair per seed")
    figure.savefig(path, dpi=90)


def save(
    setting: ComparisonTask, cells: Cells, out: Path, methods: Sequence[str] | None = None
) -> None:
    """Write tables, numbers and figures of methods (None: all) to the folder `out`."""
    write(out, table=_page(setting, cells, methods))
    numbers(setting, cells).to_csv(out / "numbers.csv")
    draw_bias(cells, out / "bias.png", methods)
    for graph in GRAPHS:
        draw_curves(cells, graph, out / f"curves-{graph.replace(' ', '-').lower()}.png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    parser = parser_of(
        "methods",
        __doc__,
        quick=(False, "10 nodes, 10 steps, one rate and one seed: about a minute"),
        jobs=(2, "processes of one thread each"),
        minutes=(math.inf, "start no further cell after this time"),
        out=(Path, "folder of the results; cells found there are kept (default: out/methods)"),
    )
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), metavar="NAME", help="compare only these"
    )
    options = parser.parse_args(argv)
    setting = QUICK if options.quick else ComparisonTask()
    out = options.out or Path("out", "methods-quick" if options.quick else "methods")
    if options.jobs < 1:
        print(f"methods: error: `--jobs` must be at least 1, got {options.jobs}", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tqdm(total=len(cells_of(options.methods)), desc="cells", unit="cell", disable=None) as bar:

        def on_cell(cell: Cell, done: int, total: int) -> None:
            bar.set_postfix_str(f"{cell.method} on {cell.graph}")
            bar.update(done - bar.n)

        cells = compute(
            setting,
            out / "cells.jsonl",
            methods=options.methods,
            jobs=options.jobs,
            keep_going=lambda: time.monotonic() - began < 60 * options.minutes,
            on_cell=on_cell,
        )
    save(setting, cells, out, options.methods)
    shown = tables(cells, options.methods)
    print(shown["accuracy"], shown["bias"], sep="\n\n")
    minutes = (time.monotonic() - began) / 60
    print(
        f"wrote {out}/table.md, numbers.csv, bias.png and curves-*.png; took {minutes:.1f} minutes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
