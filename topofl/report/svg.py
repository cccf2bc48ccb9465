"""Matplotlib figures as inline SVG, with unique ids and the colors of the page."""

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from topofl._drawing.figures import INK, MEASURED, RULE, THEORY

__all__ = ["inline", "styled"]

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


@contextmanager
def styled(*, grid: bool = True) -> Iterator[None]:
    """Set the colors and sizes of the page for figures drawn in this context."""
    with mpl.rc_context({**_STYLE, "axes.grid": grid}):
        yield


def inline(figure: Figure, key: str, title: str, description: str) -> Markup:
    """Return a figure as an ``svg`` element, or as an ``img`` with a PNG if it is too large.

    Parameters
    ----------
    figure
        Figure drawn inside :func:`styled`.
    key
        Prefix of all ids; unique among the figures of a page.
    title, description
        Short and full description for screen readers.
    """
    with styled():
        text = _cleaned(ElementTree.fromstring(_svg_bytes(figure)), key, title, description)
        return (
            Markup(text) if len(text) <= SVG_LIMIT else _raster(figure, f"{title}. {description}")
        )


def _svg_bytes(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(
        stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    return stream.getvalue()


def _raster(figure: Figure, text: str) -> Markup:
    """Return an ``img`` element with a PNG of 128 colors, which are enough for lines and discs."""
    stream = io.BytesIO()
    small = io.BytesIO()
    figure.savefig(
        stream, format="png", dpi=min(200, PIXELS / figure.get_figwidth()), facecolor="white"
    )
    Image.open(stream).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    return Markup('<img class="pixels" alt="{}" title="{}" src="data:image/png;base64,{}">').format(
        text, text, data
    )


def _cleaned(root: ElementTree.Element, key: str, title: str, description: str) -> str:
    box = root.get("viewBox", "")
    _drop(root, ("metadata", "style"))  # styles would apply to the whole page
    used = {
        name
        for element in root.iter()
        for text in element.attrib.values()
        for name in _REFERENCE.findall(text)
    }
    for element in root.iter():
        element.tag = _without_namespace(element.tag)
        element.attrib = {
            _without_namespace(name): _value(name, text, key)
            for name, text in element.attrib.items()
            if name != "id" or text in used
        }
        element.text = element.text if (element.text or "").strip() else None
        element.tail = None
    root.attrib = {"viewBox": box, "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for position, (name, text) in enumerate((("title", title), ("desc", description))):
        root.insert(position, ElementTree.Element(name, {"id": f"{key}-{name}"}))
        root[position].text = text
    return ElementTree.tostring(root, encoding="unicode", method="html")


def _without_namespace(name: str) -> str:
    """Return a name without its XML namespace."""
    return name.rpartition("}")[2]


def _drop(root: ElementTree.Element, names: tuple[str, ...]) -> None:
    for element in list(root.iter()):
        for child in [child for child in element if _without_namespace(child.tag) in names]:
            element.remove(child)


def _value(name: str, text: str, key: str) -> str:
    """Return the value of an attribute with the figure's ids and the page's colors and font."""
    if name == "id":
        return f"{key}-{text}"
    if name in ("d", "x", "y"):
        return _DIGITS.sub(r"\1", text).replace(" \n", "")
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    return _REFERENCE.sub(rf"{key}-\g<0>", _FONT_FAMILY.sub("", text))
