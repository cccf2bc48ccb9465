"""Function calls given as text, such as ``"top_k(share=0.1)"`` in a TOML file."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from topofl._support.check import did_you_mean, shown
from topofl._support.plugins import error_context, load_function

__all__ = ["as_instance", "evaluate_call"]

T = TypeVar("T")

_USER_FUNCTION = re.compile(r"\s*([\w.]+\s*:\s*[\w.]+)\s*(\(.*)?", re.DOTALL)
"""``module:function``, with or without arguments."""


def evaluate_call(
    argument: str, text: str, functions: Mapping[str, Callable[..., Any]], example: str
) -> Any:
    """Evaluate a function call given as text, whose arguments are literals or nested calls.

    Parameters
    ----------
    argument
        Name of the argument whose value is the text, for error messages.
    text
        The call. A name alone is a call without arguments. ``module:function``, with or without
        arguments, calls a user-defined function.
    functions
        Functions that may be called, by name. No other code is executed, except for
        ``module:function``, whose module is imported.
    example
        Example of such a text, for error messages.

    Raises
    ------
    ValueError
        If the text is not such a call, a keyword is repeated, the module or its function does not
        exist, the arguments do not match the function, or the function raises ``ValueError``.
    TypeError
        If ``module:function`` is not callable.

    Examples
    --------
    >>> functions = {"largest": max, "range": lambda stop: stop - 1}
    >>> evaluate_call("x", "largest([range(stop=3), -1])", functions, "largest([1])")
    Traceback (most recent call last):
        ...
    ValueError: `x` must be such as largest([1]), by one of largest, range, \
got 'largest([range(stop=3), -1])'
    >>> evaluate_call("x", "largest(range(stop=3), -1)", functions, "largest(1, 2)")
    2
    >>> evaluate_call("x", "math:hypot(3, 4)", {"largest": max}, "largest(1, 2)")
    5.0
    """
    expression = text
    if own := _USER_FUNCTION.fullmatch(text):
        with error_context(f"`{argument}` names a function that cannot be loaded:"):
            functions = {**functions, "_own": load_function(own[1])}
        expression = f"_own{own[2] or '()'}"
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        _check_keywords(argument, tree, text)
        make = _prepare_call(
            tree if isinstance(tree, ast.Call) else ast.Call(tree, [], []), functions
        )
    except _RepeatedKeyword as error:
        raise ValueError(str(error)) from None
    except (SyntaxError, TypeError, ValueError, KeyError, RecursionError, MemoryError):
        known = ", ".join(name for name in functions if name != "_own")
        raise ValueError(
            f"`{argument}` must be such as {example}, by one of {known}, got {shown(text)}"
        ) from None
    try:
        return make()
    except TypeError as error:
        raise ValueError(
            f"`{argument}` must be such as {example}, got {shown(text)}: {error}"
        ) from error


def as_instance(
    argument: str,
    value: Any,
    kind: type[T],
    functions: Mapping[str, Callable[..., Any]],
    example: str,
) -> T:
    """Return an instance of a dataclass from itself, a dictionary of its arguments, or text.

    Parameters
    ----------
    argument, functions, example
        As in :func:`evaluate_call`.
    value
        The instance, dictionary or text.
    kind
        The dataclass.

    Raises
    ------
    ValueError
        If a dictionary has unknown keys or lacks a required one; as :func:`evaluate_call` for text.
    TypeError
        If the value is neither.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    >>> as_instance("p", {"x": 2}, Point, {"Point": Point}, "Point(1)")
    Point(x=2)
    >>> as_instance("p", "Point(3)", Point, {"Point": Point}, "Point(1)")
    Point(x=3)
    """
    if isinstance(value, str):
        value = evaluate_call(argument, value, functions, example)
    if isinstance(value, Mapping):
        known: Any = fields(kind)  # pyright: ignore[reportArgumentType]
        names = [one.name for one in known]
        if unknown := [key for key in value if key not in names]:
            raise ValueError(
                f"`{argument}` must only have the keys {', '.join(names)}, got "
                f"{shown(unknown[0])}{did_you_mean(unknown[0], names)}"
            )
        for one in known:
            if one.name not in value and one.default is one.default_factory is MISSING:
                raise ValueError(
                    f"`{argument}` must have the key {one.name}, got none; for example the "
                    f"arguments of {example}"
                )
        return kind(**value)
    if not isinstance(value, kind):
        raise TypeError(
            f"`{argument}` must be a {kind.__name__} such as {example}, got {shown(value)}"
        )
    return value


class _RepeatedKeyword(Exception):
    """Raised for a call with a repeated keyword, which Python would not compile."""


def _check_keywords(argument: str, tree: ast.expr, text: str) -> None:
    for call in ast.walk(tree):
        names = [one.arg for one in call.keywords] if isinstance(call, ast.Call) else []
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _RepeatedKeyword(
                f"`{argument}` must set `{twice}` once, got it twice in {shown(text)}; remove one"
            )


def _prepare_call(node: ast.expr, functions: Mapping[str, Callable[..., Any]]) -> Callable[[], Any]:
    """Return a function that evaluates an expression; raise here if a part is not allowed."""
    if not isinstance(node, ast.Call):
        value = ast.literal_eval(node)
        return lambda: value
    if not isinstance(node.func, ast.Name) or any(one.arg is None for one in node.keywords):
        raise ValueError("a call must be of a name, without * or **")
    function = functions[node.func.id]
    args = [_prepare_call(one, functions) for one in node.args]
    named = {str(one.arg): _prepare_call(one.value, functions) for one in node.keywords}
    return lambda: function(*(one() for one in args), **{key: one() for key, one in named.items()})
