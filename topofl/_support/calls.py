"""Calls given as text: specs such as ``ring:9,k=2``, and ``"top_k(share=0.1)"`` in a TOML file."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from topofl._support.check import did_you_mean, shown
from topofl._support.plugins import error_context, load_function
from topofl._support.text import split_at_commas

T = TypeVar("T")
Functions = Mapping[str, Callable[..., Any]]

_USER_FUNCTION = re.compile(r"\s*([\w.]+\s*:\s*[\w.]+)\s*(\(.*)?", re.DOTALL)
"""``module:function``, with or without arguments."""

_CALL = re.compile(r"([^(=]+)\((.*)\)\s*", re.DOTALL)
"""A name with its arguments in parentheses, as a call in Python."""

NONE = "none"
"""Text for None in specs and in TOML, which has no null."""

_EXAMPLE = "as in dcliques:100,inter=ring,seed=0"
_CONSTANTS = {"true": True, "false": False, NONE: None}


class Spec(NamedTuple):
    """The name and the arguments of a function."""

    name: str
    arguments: dict[str, Any]


def parse_spec(text: str) -> Spec:
    """Return the name and the arguments in ``name[:n][,key=value]*``, or in ``name(key=value)``.

    The name may be ``module:function`` or the path of a file with a graph.

    Raises
    ------
    ValueError
        If there is no name, a part is not ``key=value``, a key occurs twice, or a bracket is not
        closed.

    Examples
    --------
    >>> parse_spec("dcliques:100,inter=ring,seed=0")
    Spec(name='dcliques', arguments={'n': 100, 'inter': 'ring', 'seed': 0})
    >>> parse_spec("participation,base=(tree:10,branching=3),fraction=0.5,seed=0").arguments["base"]
    '(tree:10,branching=3)'
    >>> parse_spec("mygraphs:wheel,n=10"), parse_spec("ring(n=10)")
    (Spec(name='mygraphs:wheel', arguments={'n': 10}), Spec(name='ring', arguments={'n': 10}))
    """
    head, *parts = _split(text)
    if not parts and (call := _CALL.fullmatch(text)):
        head, *parts = [call[1], *(_split(call[2]) if call[2].strip() else ())]
    if "=" in head and (name := head.rpartition(":")[0].strip()) and "=" not in name:
        raise ValueError(
            f"{text!r} must have a comma before each key=value: write "
            f"{name},{text[len(name) + 1 :]}"
        )
    if not head.partition(":")[0].strip() or "=" in head:
        raise ValueError(f"{text!r} must begin with a name, {_EXAMPLE}")
    name, arguments = _name_and_n(head)
    for part in parts:
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key.isidentifier() or not equals:  # as in timed(dsgd(lr=0.1))
            raise ValueError(f"{part!r} in {text!r} must be key=value, {_EXAMPLE}")
        if key in arguments:
            raise ValueError(f"`{key}` must be given once, got it twice in {text!r}")
        arguments[key] = parse_value(value)
    return Spec(name, arguments)


def _name_and_n(head: str) -> tuple[str, dict[str, Any]]:
    """Return the name, and `n` if a number follows the last colon."""
    name, _, size = head.rpartition(":")
    if not name or is_graph_file(head.strip()):
        return head.strip(), {}
    if not size.strip():
        raise ValueError(
            f"{head!r} must have a number or a function after its colon: ring:100 or mymodule:wheel"
        )
    words = [word.strip() for word in head.split(":")]
    n = parse_value(size)
    return (":".join(words), {}) if isinstance(n, str) else (":".join(words[:-1]), {"n": n})


def parse_value(text: str) -> Any:
    """Return `text` as an integer, float, boolean, None or list of these if it is one.

    Examples
    --------
    >>> [parse_value(text) for text in ("8", "1e-3", "true", "none", "ring", "[1, 28, 28]")]
    [8, 0.001, True, None, 'ring', [1, 28, 28]]
    """
    text = text.strip()
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return [parse_value(item) for item in _split(text[1:-1]) if item.strip()]
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _split(text: str) -> list[str]:
    """Return the parts between commas outside of brackets and parentheses."""
    parts, missing = split_at_commas(text, {"[": "]", "(": ")"})
    if missing:
        raise ValueError(f"{text!r} must close its brackets, {missing!r} is missing")
    return parts


def table_of(value: Any) -> dict[str, Any]:
    """Return a table as a dictionary; text, or text under the key ``spec``, is parsed as a spec.

    Raises
    ------
    ValueError, TypeError
        If `value` is neither a table nor text, or if the text also sets a key of the table.

    Examples
    --------
    >>> table_of("(ring:100)"), table_of({"spec": "tree:10", "branching": 3})
    ({'name': 'ring', 'n': 100}, {'name': 'tree', 'n': 10, 'branching': 3})
    """
    table = {"spec": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError(f"must be a table or text such as 'ring', got {shown(value)}")
    if "spec" not in table:
        return dict(table)
    if not isinstance(table["spec"], str):
        raise TypeError(f"`spec` must be text such as 'ring', got {table['spec']!r}")
    text = table["spec"].strip()
    spec = parse_spec(text[1:-1] if text.startswith("(") and text.endswith(")") else text)
    words = {"name": spec.name, **spec.arguments}
    twice = [key for key in table if key in words]
    if twice:
        raise ValueError(f"`{twice[0]}` must be given once, got it in `spec`, too")
    return words | {key: value for key, value in table.items() if key != "spec"}


def named(table: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the name in a table and its other entries, or raise ``ValueError`` without a name."""
    if "name" not in table:
        raise ValueError("`name` is missing")
    return table["name"], {key: value for key, value in table.items() if key != "name"}


def evaluate_call(argument: str, text: str, functions: Functions, example: str) -> Any:
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
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        make = _prepare_call(call, functions)
    except (SyntaxError, TypeError, ValueError, KeyError, RecursionError, MemoryError):
        known = ", ".join(name for name in functions if name != "_own")
        raise ValueError(
            f"`{argument}` must be such as {example}, by one of {known}, got {shown(text)}"
        ) from None
    for part in ast.walk(call):  # Python would not compile a repeated keyword
        names = [one.arg for one in part.keywords] if isinstance(part, ast.Call) else []
        if twice := [name for name in names if names.count(name) > 1]:
            must = f"`{argument}` must set `{twice[0]}` once"
            raise ValueError(f"{must}, got it twice in {shown(text)}; remove one")
    try:
        return make()
    except TypeError as error:
        raise ValueError(
            f"`{argument}` must be such as {example}, got {shown(text)}: {error}"
        ) from error


def as_instance(argument: str, value: Any, kind: type[T], functions: Functions, example: str) -> T:
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
            must = f"`{argument}` must only have the keys {', '.join(names)}"
            raise ValueError(f"{must}, got {shown(unknown[0])}{did_you_mean(unknown[0], names)}")
        for one in known:
            if one.name not in value and one.default is one.default_factory is MISSING:
                must = f"`{argument}` must have the key {one.name}"
                raise ValueError(f"{must}, got none; for example the arguments of {example}")
        return kind(**value)
    if not isinstance(value, kind):
        raise TypeError(
            f"`{argument}` must be a {kind.__name__} such as {example}, got {shown(value)}"
        )
    return value


def _prepare_call(node: ast.expr, functions: Functions) -> Callable[[], Any]:
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


GRAPH_SUFFIXES = (".graphml", ".gml", ".edgelist", ".csv", ".npz", ".npy")
"""Suffixes of graph files: networkx formats, edges as CSV, scipy sparse matrices, numpy arrays."""


def is_graph_file(name: object) -> bool:
    """Return whether a file name has the suffix of a graph file."""
    return isinstance(name, str) and Path(name).suffix.lower() in GRAPH_SUFFIXES
