"""The widgets of the explorer, and how its page shows pictures and messages."""

import html
from typing import Any, Literal

import marimo as mo

from topofl.explore.model import Choice, Parameter
from topofl.explore.results import Picture


def widget(parameter: Parameter) -> Any:
    """Return a slider for numbers, and a list for texts."""
    if isinstance(parameter.default, str):
        return mo.ui.dropdown(parameter.values, value=parameter.default, label=parameter.title)
    return mo.ui.slider(
        steps=parameter.values,
        value=parameter.default,
        label=parameter.title,
        show_value=True,
        debounce=True,
    )


def widgets(choice: Choice) -> Any:
    """Return the widgets of the parameters of a choice."""
    return mo.ui.dictionary({one.name: widget(one) for one in choice.parameters})


def beside(*pictures: Picture) -> mo.Html:
    """Return pictures with their descriptions, side by side where there is room."""
    images = [
        mo.image(one.png, alt=one.text, width=one.width, style={"max-width": "100%"})
        for one in pictures
    ]
    return mo.hstack(images, justify="start", wrap=True)


def said(text: str, kind: Literal["warn", "danger"]) -> mo.Html:
    """Return a text in a box, in which it is wrapped."""
    return mo.callout(mo.Html(f"<div>{html.escape(text)}</div>"), kind=kind)
