"""Function calls given as text, such as ``"top_k(share=0.1)"`` in a TOML file."""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from topofl._support.check import shown
from topofl._support.plugins import error_context, load_function

__all__ = ["evaluate_call"]

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
