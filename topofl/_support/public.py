"""Calls by users: wrong ones are answered with names that exist; warnings point to their line."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, overload

from topofl._support.text import nearest

Made = TypeVar("Made", bound=Callable[..., Any])

ELSEWHERE = {
    "optimizer": "use dadam, or compose your own, see the recipe 'Another optimizer'",
    "optim": "use dadam, or compose your own, see the recipe 'Another optimizer'",
    "loss": "the task of a run has it: write task=Task(loss=...), see 'Write your own task'",
    "criterion": "the task of a run has it: write task=Task(loss=...), see 'Write your own task'",
    "metrics": "scores belong to the task of a run, see 'Write your own task'; models of your own "
    "that are evaluated beside the nodes' models belong to Evaluation(also=...)",
}
"""Where to say what other libraries say by these arguments."""


@overload
def public(function: Made, /) -> Made: ...


@overload
def public(*, options: Mapping[str, Any]) -> Callable[[Made], Made]: ...


def public(function: Any = None, /, *, options: Mapping[str, Any] | None = None) -> Any:
    """Decorate a function or dataclass: an unknown keyword raises ``TypeError`` with a suggestion.

    The message names the nearest argument, all arguments, and the page of the function; too many
    arguments without a name are answered with the names and the page, too. Signature,
    docstring and name stay those of the function, which hence can be pickled. Arguments are looked
    at only after a call has failed. A decorated class is changed in place.

    Parameters
    ----------
    function
        The function or dataclass.
    options
        Arguments that group options, by name, and their dataclasses: the message says in which one
        a keyword belongs.

    Examples
    --------
    >>> @public
    ... def train(*, lr, batch_size=16):
    ...     pass
    >>> train(lr=0.1, batchsize=8)
    Traceback (most recent call last):
    ...
    TypeError: train() has no argument 'batchsize'; did you mean 'batch_size'? It has lr, \
batch_size; see the reference of topofl._support.public.train
    """
    if function is None:
        return functools.partial(_decorated, options=options or {})
    return _decorated(function, {})


def _decorated(function: Any, options: Mapping[str, Any]) -> Any:
    """Return a function that explains why a call of it failed; of a class, change this method."""
    make = function.__init__ if inspect.isclass(function) else function

    @functools.wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return make(*args, **kwargs)
        except TypeError:
            n = len(args) - (make is not function)  # without `self`
            message = _of_names(function, kwargs, options) or _of_places(function, n)
            if not message:
                raise
        raise TypeError(message)

    if make is function:
        return call
    function.__init__ = call
    return function


def _of_names(function: Any, given: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the error message for the first unknown keyword; empty if there is none."""
    takes, known = _parameters(function)
    word = next((word for word in given if word not in known), None)
    if word is None or any(p.kind is p.VAR_KEYWORD for p in takes):
        return ""
    hint = _hint(word, known, options)
    hint += " It" if hint.endswith("?") else "; it"
    return f"{function.__name__}() has no argument {word!r}{hint} {_reference(function, known)}"


def _of_places(function: Any, n: int) -> str:
    """Return the error message for n positional arguments; empty if these are not too many."""
    takes, known = _parameters(function)
    places = [p.name for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if n <= len(places) or any(p.kind is p.VAR_POSITIONAL for p in takes):
        return ""
    count = f"only {places[0]}" if len(places) == 1 else ", ".join(places) or "no argument"
    others = "; write the others as name=value" if len(places) < len(known) else ""
    return (
        f"{function.__name__}() takes {count} without a name, got {n} argument{'s' * (n > 1)}"
        f"{others}. It {_reference(function, known)}"
    )


def _parameters(function: Any) -> tuple[list[inspect.Parameter], list[str]]:
    """Return the parameters of a function, and the names of those that can be given by name."""
    takes = list(inspect.signature(function).parameters.values())
    return takes, [p.name for p in takes if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _reference(function: Any, known: list[str]) -> str:
    return f"has {', '.join(known) or 'none'}; see the reference of {_public_name(function)}"


def _hint(word: str, known: list[str], options: Mapping[str, Any]) -> str:
    """Return a suggestion for an unknown keyword: an option of that name, else a similar name."""
    groups = {name: kind for name, kind in options.items() if name in known}
    places = [(name, own.name) for name, kind in groups.items() for own in fields(kind)]
    same = [place for place in places if place[1] == word]
    if not same:
        near = nearest(word, [*known, *map("_".join, places)])
        if near in known:
            return f"; did you mean {near!r}?"
        if near is None:
            return f"; {ELSEWHERE[word]}" if word in ELSEWHERE else ""
        same = [place for place in places if "_".join(place) == near]
    written = " or ".join(f"{name}={groups[name].__name__}({own}=...)" for name, own in same)
    return f"; write {written}"


def _public_name(function: Any) -> str:
    """Return the name by which users import a function, such as ``topofl.algorithms.dsgd``."""
    package, _, module = function.__module__.partition(".")
    for place in (package, f"{package}.{module.partition('.')[0]}"):
        holder = sys.modules.get(place)
        is_there = holder is not None and function.__name__ in getattr(holder, "__all__", ())
        if is_there or (place != package and hasattr(holder, function.__name__)):
            return f"{place}.{function.__name__}"
    return f"{function.__module__}.{function.__name__}"


def warn_caller(message: str, kind: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the innermost line outside of this library."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "topofl":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
