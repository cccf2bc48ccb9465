"""Parser of specs, one line of text such as ``dcliques:100,inter=ring,seed=0``."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from topofl._support.check import shown
from topofl._support.suffixes import is_graph_file
from topofl._support.text import split_at_commas

__all__ = ["NONE", "Spec", "named", "parse_spec", "parse_value", "table_of"]

NONE = "none"
"""Text for None in specs and in TOML, which has no null."""


_CONSTANTS = {"true": True, "false": False, NONE: None}


class Spec(NamedTuple):
    """The name and the arguments of a function."""

    name: str
    arguments: dict[str, Any]


def parse_spec(text: str) -> Spec:
    """Return the name and the arguments in ``name[:n][,key=value]*``.

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
    >>> parse_spec("mygraphs:wheel,n=10")
    Spec(name='mygraphs:wheel', arguments={'n': 10})
    """
    head, *parts = _split(text)
    if "=" in head and (name := head.rpartition(":")[0].strip()) and "=" not in name:
        raise ValueError(
            f"{text!r} must have a comma before each key=value: write "
            f"{name},{text[len(name) + 1 :]}"
        )
    if not head.partition(":")[0].strip() or "=" in head:
        raise ValueError(f"{text!r} must begin with a name, as in dcliques:100,inter=ring,seed=0")
    name, arguments = _name_and_n(head)
    for part in parts:
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or not equals:
            raise ValueError(
                f"{part!r} in {text!r} must be key=value, as in dcliques:100,inter=ring,seed=0"
            )
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
