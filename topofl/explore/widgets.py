"""The widgets of the explorer, and how its page shows pictures and messages."""

import html
import io
from typing import Any, Literal

import marimo as mo

from topofl.explore.model import Choice
from topofl.explore.results import Picture

PIXELS = 90
"""Pixels per inch of a figure."""


def widget(title: str, values: tuple[Any, ...], default: Any) -> Any:
    """Return a slider for numbers, and a list for texts."""
    if isinstance(default, str):
        return mo.ui.dropdown(values, value=default, label=title)
    return mo.ui.slider(steps=values, value=default, label=title, show_value=True, debounce=True)


def widgets(choice: Choice) -> Any:
    """Return the widgets of the parameters of a choice."""
    return mo.ui.dictionary({name: widget(*one) for name, one in choice.parameters.items()})


def beside(*pictures: Picture) -> mo.Html:
    """Return pictures with their descriptions, side by side where there is room."""
    images = []
    for figure, text in pictures:
        file, width = io.BytesIO(), round(PIXELS * figure.get_figwidth())
        figure.savefig(file, format="png", dpi=2 * PIXELS)  # for screens with many pixels
        look = {"width": width, "style": {"max-width": "100%"}}
        images.append(mo.image(file.getvalue(), alt=text, **look))
    return mo.hstack(images, justify="start", wrap=True)


def said(text: str, kind: Literal["warn", "danger"]) -> mo.Html:
    """Return a text in a box, in which it is wrapped."""
    return mo.callout(mo.Html(f"<div>{html.escape(text)}</div>"), kind=kind)
