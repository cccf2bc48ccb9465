"""The figure of a benchmark: the ratio of each case to its floor, with its target."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MARKS = {"batched": ("o", "#0072B2"), "looped": ("s", "#E69F00"), "auto": ("D", "#009E73")}
"""Marker and color of each executor, from the colorblind-safe palette of Okabe and Ito."""

APART = 0.2
"""Vertical distance between the executors of a case, in rows."""


class Point(NamedTuple):
    """A point of the figure: an executor's ratio to its floor in a case, and its target, if any."""

    case: str
    executor: str
    ratio: float
    target: float | None = None


def draw(points: Sequence[Point], stem: Path, title: str = "") -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: one row per case; 1 is the floor, bars are targets.

    Without points, nothing is written.
    """
    if not points:
        return []
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(point.case for point in points))
    figure = Figure(figsize=(8, 1.6 + 0.36 * len(cases)), layout="constrained")
    axes = figure.add_subplot()
    _add_points(axes, points, cases)
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set_xscale("log")
    _label_ticks(
        axes, [value for point in points for value in (point.ratio, point.target) if value]
    )
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlabel("step time / time of the bare kernels (1: the floor)")
    axes.grid(axis="x", color="0.9", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with rc_context({"svg.hashsalt": "benchmark"}):
        for path in paths:
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
            )
    return paths


def _add_points(axes, points: Sequence[Point], cases: Sequence[str]) -> None:
    for k, (executor, (marker, color)) in enumerate(MARKS.items()):
        own = [point for point in points if point.executor == executor]
        rows = [cases.index(point.case) + (k - 1) * APART for point in own]
        if own:
            style = {
                "color": color,
                "marker": marker,
                "linestyle": "none",
                "markersize": 6,
                "label": executor,
            }
            axes.plot([point.ratio for point in own], rows, **style, zorder=3)
    targets = {
        (cases.index(point.case), point.target) for point in points if point.target is not None
    }
    if targets:
        rows, values = zip(*sorted(targets), strict=True)
        axes.plot(
            values,
            rows,
            "|",
            color="#D55E00",
            markersize=18,
            markeredgewidth=2.5,
            label="target",
            zorder=2,
        )


def _label_ticks(axes, values: Sequence[float]) -> None:
    """Label the logarithmic axis with decimal numbers, as many as the range needs."""
    low, high = min([0.9, *values]) * 0.95, max([2.0, *values]) * 1.08
    steps = [0.1, 0.2, 0.5, 0.7, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000]
    shown = [step for step in steps if low <= step <= high and (high < 3 or step not in (1.1, 1.2))]
    axes.set_xlim(low, high)
    axes.set_xticks(shown, [f"{step:g}" for step in shown])
    axes.minorticks_off()
