"""Figures of a report as inline SVG, with descriptions for screen readers."""

import base64
import io
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from topofl._drawing.charts import SCALES
from topofl._drawing.figures import INK, MEASURED, RULE, THEORY
from topofl._drawing.labels import label_points
from topofl.topology import Topology, TopologySequence, as_topology

SVG_LIMIT = 350_000
"""Largest SVG, in characters; larger figures are embedded as PNG images."""

PIXELS = 1600
"""Largest width of a PNG image, in pixels."""

_VARIABLES = {
    INK: "var(--ink)",
    RULE: "var(--rule)",
    MEASURED: "var(--measured)",
    THEORY: "var(--theory)",
}
"""What the page replaces colors by, for its dark mode."""

_REFERENCE = re.compile(r"(?:(?<=url\(#)|(?<=^#))[\w.-]+")
_FONT_FAMILY = re.compile(r"font-family:[^;]*(;\s*|$)")
_DIGITS = re.compile(r"(\.\d\d)\d+")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "topofl",
    "font.size": 9,
    "axes.titlesize": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


styled = mpl.rc_context(_STYLE)
"""Sets the colors and sizes of the page for the figures of a function that it decorates."""


@styled
def inline(drawn: "DescribedFigure", key: str) -> Markup:
    """Return a figure as an ``svg`` element, or as an ``img`` with a PNG if it is too large.

    Parameters
    ----------
    drawn
        Figure of a :data:`styled` function.
    key
        Prefix of all ids; unique among the figures of a page.
    """
    stream = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.figure.savefig(stream, format="svg", metadata=metadata)
    text = _cleaned(ElementTree.fromstring(stream.getvalue()), key, drawn)
    if len(text) <= SVG_LIMIT:
        return Markup(text)
    return _raster(drawn.figure, f"{drawn.title}. {drawn.description}")


def _raster(figure: Figure, text: str) -> Markup:
    """Return an ``img`` element with a PNG of 128 colors, which are enough for lines and discs."""
    stream, small = io.BytesIO(), io.BytesIO()
    dpi = min(200, PIXELS / figure.get_figwidth())
    figure.savefig(stream, format="png", dpi=dpi, facecolor="white")
    Image.open(stream).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    image = '<img class="pixels" alt="{}" title="{}" src="data:image/png;base64,{}">'
    return Markup(image).format(text, text, data)


def _cleaned(root: ElementTree.Element, key: str, drawn: "DescribedFigure") -> str:
    """Return the markup of an SVG without namespaces, unused ids, and styles of the whole page."""
    box = root.get("viewBox", "")
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
    for element in list(root.iter()):
        for child in [child for child in element if child.tag in ("metadata", "style")]:
            element.remove(child)
    texts = [text for element in root.iter() for text in element.attrib.values()]
    # matplotlib's ids are hashes of unrounded coordinates, whose last bits vary between processes
    used = dict.fromkeys(name for text in texts for name in _REFERENCE.findall(text))
    ids = {name: f"{key}-{number}" for number, name in enumerate(used, start=1)}
    for element in root.iter():
        element.attrib = {
            name.rpartition("}")[2]: _value(name, text, ids)
            for name, text in element.attrib.items()
            if name != "id" or text in used
        }
        element.text = element.text if (element.text or "").strip() else None
        element.tail = None
    root.attrib = {"viewBox": box, "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for position, (name, text) in enumerate((("title", drawn.title), ("desc", drawn.description))):
        root.insert(position, ElementTree.Element(name, {"id": f"{key}-{name}"}))
        root[position].text = text
    return ElementTree.tostring(root, encoding="unicode", method="html")


def _value(name: str, text: str, ids: dict[str, str]) -> str:
    """Return the value of an attribute with the figure's ids and the page's colors and font."""
    if name == "id":
        return ids[text]
    if name in ("d", "x", "y"):
        return _DIGITS.sub(r"\1", text).replace(" \n", "")
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    return _REFERENCE.sub(lambda found: ids[found[0]], _FONT_FAMILY.sub("", text))


BINS = 41
"""Bins of a histogram of eigenvalues in [-1, 1]; odd, so that 0 is in the middle of a bin."""

FLOOR = 1e-15
"""Smallest relative consensus distance that is drawn."""

ROUNDING_FLOOR = 1e-14
"""Relative consensus distances below this are rounding errors."""

Point = tuple[str, float, float]
"""Short name, predicted value and measured value of a graph."""


class DescribedFigure(NamedTuple):
    """A figure with its title and a description of its content."""

    figure: Figure
    title: str
    description: str


def _axes(width: float = 3.5, height: float = 2.7) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _legend(figure: Figure) -> None:
    """Add a legend above the axes, where it covers nothing."""
    figure.legend(loc="outside upper left", ncols=2, borderpad=0)


@styled
def spectrum(eigenvalues: np.ndarray, *, rounds: int = 1) -> DescribedFigure:
    """Plot real eigenvalues as a histogram, or complex ones in the plane.

    Parameters
    ----------
    eigenvalues
        All eigenvalues of the mixing matrix, or of the product of the matrices of one period; real
        if it is symmetric.
    rounds
        Length of the period.
    """
    of = "the mixing matrix"
    if rounds > 1:
        of = f"the product of one period's {rounds} mixing matrices"
    draw = _plane if np.iscomplexobj(eigenvalues) else _histogram
    figure, ax = _axes()
    return DescribedFigure(figure, "Spectrum", f"{draw(ax, eigenvalues)} Eigenvalues of {of}.")


def _histogram(ax: Any, eigenvalues: np.ndarray) -> str:
    ax.hist(eigenvalues, bins=np.linspace(-1, 1, BINS + 1) * (1 + 1e-9), color=MEASURED)
    ax.set(xlabel="eigenvalue", ylabel="count", xlim=(-1.05, 1.05), xticks=[-1, -0.5, 0, 0.5, 1])
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.grid(axis="x", visible=False)
    low, high = (round(float(end), 9) + 0.0 for end in (eigenvalues.min(), eigenvalues.max()))
    return f"Histogram of {len(eigenvalues):,} real eigenvalues between {low:.4g} and {high:.4g}."


def _plane(ax: Any, eigenvalues: np.ndarray) -> str:
    angle, ends = np.linspace(0, 2 * np.pi, 121), (-1.08, 1.08)
    ax.plot(np.cos(angle), np.sin(angle), color=INK, linewidth=0.8)
    look: dict[str, Any] = {"markersize": 3.5, "alpha": 0.7, "markeredgewidth": 0}
    ax.plot(np.real(eigenvalues), np.imag(eigenvalues), "o", color=MEASURED, **look)
    ax.set(xlabel="real part", ylabel="imaginary part", aspect="equal", xlim=ends, ylim=ends)
    moduli = np.sort(np.abs(eigenvalues))[::-1]
    second = f", the second largest modulus is {moduli[1]:.4g}" if len(moduli) > 1 else ""
    count = f"{len(eigenvalues):,} eigenvalues"
    return f"{count} in the complex plane, inside the unit circle{second}."


@styled
def decay(
    distances: np.ndarray, factor: float | None, *, period: int | None = 1
) -> DescribedFigure:
    """Plot consensus distance over rounds with the predicted rate.

    Parameters
    ----------
    distances
        Consensus distance after 0, 1, ... rounds, relative to the start.
    factor
        Predicted long-run factor per round; None if there is no prediction.
    period
        Number of rounds after which averaging is exact if `factor` is 0.
    """
    rounds, seen = np.arange(len(distances)), np.maximum(distances, FLOOR)
    dashed: dict[str, Any] = {"color": THEORY, "linestyle": "--"}
    figure, ax = _axes()
    if factor:
        ax.plot(rounds, factor**rounds, **dashed, label=f"theory: {factor:.4g} per round")
    elif factor == 0 and period is not None:
        ax.axvline(period, **dashed, label=f"theory: exact after {_rounds(period)}")
    ax.plot(rounds, seen, color=MEASURED, label="measured", linewidth=1.8)
    ax.set(xlabel="round", ylabel="relative consensus distance", yscale="log")
    # The measured values, and at least one decade.
    ax.set(xlim=(0, max(len(rounds) - 1, 1)), ylim=(min(seen.min() / 2, 0.09), 2))
    _write_plainly(ax.yaxis)
    ax.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure)
    return DescribedFigure(figure, "Consensus over rounds", _decay_in_words(distances, factor))


@styled
def line(rounds: np.ndarray, values: np.ndarray, name: str) -> DescribedFigure:
    """Plot a metric over rounds, with gaps for NaN."""
    known = values[np.isfinite(values)]
    figure, ax = _axes(3.0, 2.0)
    ax.plot(rounds, values, color=MEASURED, marker="o", markersize=3, linewidth=1.5)
    margin = max((rounds[-1] - rounds[0]) / 20, 0.5)  # the same rounds where values are missing
    ax.set(xlabel="round", title=name, xlim=(rounds[0] - margin, rounds[-1] + margin))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ends = f"From {known[0]:.4g} to {known[-1]:.4g}"
    words = f"{ends}, lowest {known.min():.4g}, highest {known.max():.4g}."
    return DescribedFigure(figure, name, words)


def _decay_in_words(distances: np.ndarray, factor: float | None) -> str:
    left = "0 up to rounding"
    if distances[-1] > ROUNDING_FLOOR:
        left = f"{distances[-1]:.3g} of its initial value"
    if factor is None:
        prediction = "theory predicts no rate"
    elif factor == 0:
        prediction = "theory predicts exact averaging within a period"
    else:
        prediction = f"theory predicts {factor:.4g} per round in the long run"
    return f"Consensus distance is {left} after {_rounds(len(distances) - 1)}; {prediction}."


def _rounds(count: int) -> str:
    return f"{count:,} round{'' if count == 1 else 's'}"


def _write_plainly(axis: Any) -> None:
    """Write numbers, not powers, at the major ticks of a logarithmic axis, and none at others."""
    axis.set_major_formatter(lambda value, place: f"{value:g}")
    axis.set_minor_formatter(lambda value, place: "")


@styled
def against_identity(
    points: Sequence[Point], title: str, x: str, y: str, *, logarithmic: bool
) -> DescribedFigure:
    """Plot measured against predicted values with the line of equality.

    Parameters
    ----------
    points
        One point per graph, at least one; points that are close share a label.
    title, x, y
        Title of the figure and labels of its axes.
    logarithmic
        Whether axes are logarithmic; if so, all values must be above 0.
    """
    values = np.array([point[1:] for point in points], dtype=float)
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        low, high = 10 ** np.floor(np.log10(low)) / 1.5, 10 ** np.ceil(np.log10(high)) * 1.5
    else:
        margin = max((high - low) / 10, 0.05)
        low, high = low - margin, high + margin
    for scale in SCALES:
        figure, ax = _axes(4.8 * scale, 4.0 * scale)
        ax.plot([low, high], [low, high], color=THEORY, linestyle="--", label="measured = theory")
        ax.plot(*values.T, "o", color=MEASURED, markersize=6, markeredgewidth=0)
        if logarithmic:
            ax.set(xscale="log", yscale="log")
            _write_plainly(ax.xaxis)
            _write_plainly(ax.yaxis)
        ax.set(xlabel=x, ylabel=y, xlim=(low, high), ylim=(low, high), aspect="equal")
        _legend(figure)
        line = np.array([[low, low], [high, high]])
        if label_points(ax, values, _shared_labels(ax, points), [line], ink=INK):
            break
    words = "; ".join(f"{name}: theory {a:.4g}, measured {b:.4g}" for name, a, b in points)
    return DescribedFigure(figure, title, f"{words}. The dashed line is where both are equal.")  # pyright: ignore[reportPossiblyUnboundVariable]


LABEL = 40
"""Characters in a line of a label."""


def _shared_labels(ax: Any, points: Sequence[Point]) -> list[str]:
    """Return a label per point; the first of points at the same place has the names of all."""
    ax.figure.draw_without_rendering()
    at = np.round(ax.transData.transform([point[1:] for point in points]) / 4)
    places, names = [tuple(place) for place in at.tolist()], {}
    for place, (name, *_) in zip(places, points, strict=True):
        names.setdefault(place, []).append(name)
    return [textwrap.fill(", ".join(names.pop(place, ())), LABEL) for place in places]


@mpl.rc_context({**_STYLE, "axes.grid": False})
def picture(graph: Topology | TopologySequence, label_counts: Any = None) -> DescribedFigure:
    """Return the picture of a graph, or of the first rounds of a sequence.

    Its description mentions simplifications of the drawing.

    Parameters
    ----------
    graph
        Graph or sequence, which is drawn without its name.
    label_counts
        (n, classes) counts that determine the colors of the nodes.
    """
    nameless = as_topology(graph, name="")
    if isinstance(nameless, TopologySequence):
        figure, period = nameless.plot(label_counts=label_counts), nameless.period
        repeats = "without a period" if period is None else f"of a period of {period:,}"
        words = f"Rounds 0 to {len(figure.axes) - 1} {repeats}, {nameless.n:,} nodes."
        return DescribedFigure(figure, "Picture", words)
    figure, ax = _axes(3.5 if label_counts is None else 4.2)
    nameless.plot(ax, label_counts=label_counts)
    remark = ax.get_title().replace("\n", " ")
    ax.set_title("")
    kind = "directed" if nameless.is_directed else "undirected"
    groups = f", in {len(nameless.groups):,} groups" if nameless.groups else ""
    words = f"{nameless.n:,} nodes and {nameless.n_edges:,} {kind} edges{groups}."
    return DescribedFigure(figure, "Picture", words + (f" Drawn: {remark}." if remark else ""))
