"""Suggestions for unknown keyword arguments."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import ParamSpec, TypeVar

from topofl.engine.options import Compute, Evaluation, Saving

__all__ = ["suggesting_options"]


P = ParamSpec("P")


R = TypeVar("R")


OPTIONS = {"evaluation": Evaluation, "compute": Compute, "saving": Saving}
"""The arguments of a run that group options, by name."""


def suggesting_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that an unknown keyword raises ``TypeError`` with a suggestion.

    Examples
    --------
    >>> @suggesting_options
    ... def train(compute=None):
    ...     pass
    >>> train(device="cuda")
    Traceback (most recent call last):
    ...
    TypeError: train() has no argument 'device'; write compute=Compute(device=...)
    """
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in known:
                raise TypeError(
                    f"{function.__name__}() has no argument {word!r}{_suggestion(word, known)}"
                )
        return function(*args, **kwargs)

    return call


def _suggestion(word: str, known: Sequence[str]) -> str:
    """Return a suggestion for an unknown keyword: an option of that name, else a similar name."""
    places = [
        (name, own.name) for name in known if name in OPTIONS for own in fields(OPTIONS[name])
    ]
    same = [place for place in places if place[1] == word]
    if not same:
        names = {name: [] for name in known} | {"_".join(place): [place] for place in places}
        near = difflib.get_close_matches(word, names, n=1)
        if near and not names[near[0]]:
            return f"; did you mean {near[0]!r}?"
        same = names[near[0]] if near else []
    written = " or ".join(f"{name}={OPTIONS[name].__name__}({own}=...)" for name, own in same)
    return f"; write {written}" if written else f"; it has {', '.join(known)}"
