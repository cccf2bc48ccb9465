"""Plots of accuracy against epochs, histograms, repetitions against steps, and dot plots.

Plots are drawn without pyplot, so that no figure stays open and threads can draw concurrently.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, TextIO, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

from topofl.report import replacing

from .curves import Curve, Panels, listed_counts

BOLD, THIN = 1.8, 0.7
"""Line widths of means and of extremes, in points."""


COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's color-blind safe colors, without the yellow, which is faint on white."""


LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
"""Line styles; 5 and 7 colors have no common divisor, so that 35 combinations differ."""


MARKERS = ("o", "s", "^", "D", "v", "P", "X")


BINS = 40
"""Number of bins of histograms."""


START = " (axis starts at {:g})"
"""What labels of axes say that do not start at 0."""


SKEW = "mean skew of the cliques"


HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")


def convergence(
    panels: Panels,
    *,
    bottom: float = 0.0,
    top: float = 100.0,
    hidden: Sequence[str] = (),
    xlabel: str = "epoch",
    extremes: bool = True,
) -> Figure:
    """Return a plot of accuracy against epochs, with one axes per panel.

    Bold lines show the mean over the nodes, thin lines of the same color the worst and best node,
    all averaged over seeds; a band spans the lowest to the highest seed's mean (layout of Bellet,
    Kermarrec and Lavoie 2022, figure 8).

    Parameters
    ----------
    panels
        Curves by panel title and arm label; a label has the same style in all panels.
    bottom
        Lower limit of the accuracy axis in %. It is lowered if the mean of an arm never reaches it;
        the axis label states a limit other than 0.
    top
        Upper limit in %, raised to the next whole number above the best node if necessary.
    hidden
        Labels that are not drawn.
    xlabel
        Label of the axes of time.
    extremes
        Whether worst and best node are drawn.

    Raises
    ------
    ValueError
        If there is no panel, or a panel has no arm to draw.
    """
    shown = {
        title: {k: arm for k, arm in arms.items() if k not in hidden}
        for title, arms in panels.items()
    }
    figure, axes = _panels(shown)
    styles = _styles(label for arms in shown.values() for label in arms)
    for ax, arms in zip(axes, shown.values(), strict=True):
        for label, curve in arms.items():
            _draw_arm(ax, curve, label, styles[label], extremes)
        ax.set(xlabel=xlabel, xlim=(0, max(curve.epochs[-1] for curve in arms.values())))
    curves = [curve for arms in shown.values() for curve in arms.values()]
    limits = _limits(curves, bottom, top)
    note = START.format(limits[0]) if limits[0] > 0 else ""
    axes[0].set(ylim=limits, ylabel=f"test accuracy, %{note}")
    _add_legend(figure, axes, _seeds_note(max(len(curve.seeds) for curve in curves), extremes))
    return figure


def histogram(values: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Return histograms of skews of cliques, one axes per panel, with the same bins.

    Parameters
    ----------
    values
        Vectors of at least one number by panel title and label.

    Raises
    ------
    ValueError
        If there is no panel, or a panel has no vector.
    """
    figure, axes = _panels(values)
    largest = max(row.max() for rows in values.values() for row in rows.values())
    edges = np.linspace(0, largest or 1, BINS + 1).tolist()
    styles = _styles(label for rows in values.values() for label in rows)
    for ax, rows in zip(axes, values.values(), strict=True):
        for label, row in rows.items():
            color = styles[label]["color"]
            hatch = HATCHES[list(styles).index(label) % len(HATCHES)]
            look: dict[str, Any] = {"fc": (color, 0.25), "ec": color, "hatch": hatch}
            ax.hist(row, edges, histtype="stepfilled", label=label, **look)
        ax.set(xlabel=SKEW, xlim=(0, edges[-1] * 1.02))
    axes[0].set_ylabel("experiments")
    _add_legend(figure, axes)
    return figure


def descent(panels: Mapping[str, np.ndarray]) -> Figure:
    """Return a plot of repeated skews against steps: mean (bold) and extremes (thin).

    Parameters
    ----------
    panels
        (repetitions, steps + 1) arrays by panel title; the first column is before the first step.

    Raises
    ------
    ValueError
        If there is no panel, or an array is empty.
    """
    figure, axes = _panels(panels)
    for ax, rows in zip(axes, panels.values(), strict=True):
        ax.plot(rows.mean(axis=0), color=COLORS[1], linewidth=BOLD)
        for extreme in (rows.min(axis=0), rows.max(axis=0)):
            ax.plot(extreme, color=COLORS[1], linewidth=THIN)
        ax.set(xlabel="step", xlim=(0, rows.shape[1] - 1))
    axes[0].set(ylabel=SKEW, ylim=(0, None))
    count = listed_counts(map(len, panels.values()))
    figure.supxlabel(f"bold: mean over {count} experiments; thin: lowest and highest", fontsize=7)
    return figure


def mark_smoke(picture: Figure, replaced: Sequence[str]) -> None:
    """Say that a picture is of the scale smoke, and start its axes of accuracy at 0.

    Titles say that the digits of scikit-learn are in place of the `replaced` datasets, as "mnist".
    """

    def with_digits(found: re.Match[str]) -> str:
        is_replaced = found[0].lower().replace("-", "") in replaced
        return f"digits for {found[0]}" if is_replaced else found[0]

    for ax in picture.axes:
        title = re.sub(r"\b[A-Z]+(-\d+)?\b", with_digits, ax.get_title())
        ax.set_title(title, fontsize=ax.title.get_fontsize())
        start = START.format(ax.get_ylim()[0])
        if ax.get_ylabel().endswith(start):
            ax.set(ylim=(0, None), ylabel=ax.get_ylabel().removesuffix(start))
    data = ", on digits of scikit-learn" if replaced else ""
    said = f"scale smoke: only tests the code{data}"
    notes = {picture.get_supxlabel(): "\n", picture.get_suptitle(): "; "}
    known = [text for text in picture.texts if notes.get(text.get_text())]
    for text in known[:1]:
        text.set_text(text.get_text() + notes[text.get_text()] + said)
    if not known:
        picture.supxlabel(said, fontsize=7)


def save(picture: Figure, path: Path) -> tuple[Path, Path]:
    """Write a picture as PNG and PDF, atomically and with reproducible bytes.

    Parameters
    ----------
    picture
        The picture, whose layout is fixed by this call. Both files are rendered before writing.
    path
        Path without the suffix; missing folders are created.

    Returns
    -------
    tuple
        The paths of the PNG, with 150 pixels per inch, and of the PDF.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    picture.draw_without_rendering()
    picture.set_layout_engine("none")  # each further run of the engine would move things slightly
    png, pdf = io.BytesIO(), io.BytesIO()
    picture.savefig(png, format="png", dpi=150, metadata={"Software": None})
    picture.savefig(pdf, format="pdf", dpi=150, metadata={"CreationDate": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.pdf")
    for place, content in zip(paths, (_with_palette(png), pdf.getvalue()), strict=True):
        with replacing(place) as file:
            cast(TextIO, file).buffer.write(content)
    return paths


def _with_palette(png: io.BytesIO) -> bytes:
    """Return a PNG reduced to at most 256 colors, a third of the size."""
    content = io.BytesIO()
    with Image.open(png) as image:
        reduced = image.convert("RGB").quantize(
            256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
        reduced.save(content, "PNG", optimize=True, dpi=image.info["dpi"])
    return content.getvalue()


def _panels(panels: Mapping[str, Any]) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with one axes per panel, side by side, sharing the y axis."""
    empty = [title for title, content in panels.items() if not len(content)]
    if not panels or empty:
        where = f"panel {empty[0]!r}" if empty else "it"
        raise ValueError(f"`panels` must contain data in every panel, but {where} is empty")
    figure = Figure(
        figsize=(max(4.6, 3.7 * len(panels)), 3.5), layout=ConstrainedLayoutEngine(w_pad=0.07)
    )
    axes = list(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0])
    for letter, title, ax in zip(ascii_lowercase, panels, axes, strict=False):
        ax.set_title(f"({letter}) {title}" if len(panels) > 1 else title, fontsize=10)
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.tick_params(labelsize=8)
        ax.locator_params(axis="x", nbins=6)
        for side in (ax.xaxis, ax.yaxis):
            side.label.set_size(9)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return color, line style and marker by label, in order of occurrence."""
    return {
        label: {
            "color": COLORS[k % len(COLORS)],
            "linestyle": LINES[k % len(LINES)],
            "marker": MARKERS[(k + k // len(COLORS)) % len(MARKERS)],  # differs for equal colors
        }
        for k, label in enumerate(dict.fromkeys(labels))
    }


def _draw_arm(ax: Axes, curve: Curve, label: str, style: Mapping[str, Any], extremes: bool) -> None:
    seeds, low, high = curve.mean.mean(0), curve.mean.min(0), curve.mean.max(0)
    ax.fill_between(curve.epochs, low, high, color=style["color"], alpha=0.15, linewidth=0)
    thin = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": THIN}
    for extreme in (curve.low, curve.high) if extremes else ():
        ax.plot(curve.epochs, extreme.mean(0), **thin)
    start = 0.04 * MARKERS.index(style["marker"])  # shifted, so that markers do not overlap
    bold = {"linewidth": BOLD, "markersize": 4, "markevery": (start, 0.28)}
    ax.plot(curve.epochs, seeds, label=label, **bold, **style)


def _limits(curves: Sequence[Curve], bottom: float, top: float) -> tuple[float, float]:
    """Return limits of the accuracy axis that show every mean and the best node."""
    lowest_peak = min(curve.mean.mean(0).max() for curve in curves)
    best = max(curve.high.mean(0).max() for curve in curves)
    if lowest_peak <= bottom:
        bottom = min(bottom, max(0.0, 10 * np.floor((lowest_peak - 5) / 10)))
    return bottom, max(top, float(np.ceil(best)))


def _seeds_note(seeds: int, extremes: bool) -> str:
    if not extremes:
        return (
            f"mean over the nodes and {seeds} seed{'s' * (seeds > 1)}; shaded: from the lowest to "
            "the highest seed"
        )
    if seeds == 1:
        return "bold: mean over the nodes; thin: worst and best node (one seed)"
    return (
        f"bold: mean over the nodes; thin: worst and best node (averages over {seeds} seeds)\n"
        "shaded: from the lowest to the highest mean of a seed"
    )


def _add_legend(figure: Figure, axes: Sequence[Axes], note: str = "") -> None:
    """Add one legend for all panels outside of them, and a note below."""
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    width = max(map(len, handles)) + 9  # characters of an entry with its line, 16 per inch
    columns = max(1, min(len(handles), int(16 * figure.get_figwidth() / width)))
    figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(handles) // columns) - 1))
    look: dict[str, Any] = {"loc": "outside upper center", "fontsize": 8, "frameon": False}
    look |= {"ncols": columns, "handlelength": 3, "columnspacing": 1.2}
    figure.legend(list(handles.values()), list(handles), **look)
    if note:
        figure.supxlabel(note, fontsize=7)


def side_by_side(
    count: int, size: tuple[float, float], *, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with axes in rows of four, without their upper and right spines.

    `size` is the width and height of the figure in inches.
    """
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(-(-count // 4), min(4, count), sharey=sharey, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def dots(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    xlabel: str,
    paper: Mapping[str, Mapping[str, float | None]] | None = None,
) -> Figure:
    """Return a dot plot with one axes per panel and one row per arm.

    Parameters
    ----------
    panels
        Numbers, one per seed (missing where not finite), by panel title and arm label; all panels
        have the same labels.
    xlabel
        Label of every x axis.
    paper
        The paper's numbers by title and label, as far as there are any.
    """
    labels = list(next(iter(panels.values())))
    height = 0.9 + (0.26 * len(labels) + 0.7) * -(-len(panels) // 4)
    size = 1.6 + 2.8 * min(4, len(panels)), height
    picture, axes = side_by_side(len(panels), size, sharey=True)
    for ax, (title, arms) in zip(axes, panels.items(), strict=True):
        printed = (paper or {}).get(title, {})
        for place, label in enumerate(labels):
            _draw_dots(ax, -place, arms[label], printed.get(label))
        ax.set_title(title, fontsize=9)
        ax.set_yticks([-place for place in range(len(labels))], labels, fontsize=8)
        ax.set_xlabel(xlabel, fontsize=8)
        ax.tick_params(labelsize=8)
        ax.grid(alpha=0.25, linewidth=0.5)
    words = "bar: mean over seeds; circles: seeds; hollow diamond: the paper's number"
    picture.supxlabel(words, x=0.01, ha="left", fontsize=7)  # scale "smoke" writes at the right
    return picture


def _draw_dots(ax: Axes, place: float, ours: np.ndarray, paper: float | None) -> None:
    seen, blue = ours[np.isfinite(ours)], "#0072B2"
    if len(seen) == len(ours):
        ax.plot([seen.mean()] * 2, [place - 0.3, place + 0.3], color=blue, linewidth=1.8)
    ax.plot(seen, [place] * len(seen), "o", color=blue, markersize=3, alpha=0.6)
    if paper is not None:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": "#D55E00"}
        ax.plot([paper], [place], "D", markersize=4.5, **hollow)
