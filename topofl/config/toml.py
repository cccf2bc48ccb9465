"""Reading, overriding and writing of configurations in TOML, and what these name."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from topofl._spec import at, check_keys
from topofl._support.calls import NONE, parse_value, table_of
from topofl._support.check import check_path, shown

Tables = dict[str, dict[str, Any]]
"""Arguments by table and key, as in the example of :class:`Experiment`."""

TABLES = (
    "data", "topology", "mixing", "algorithm", "model", "task", "attackers", "run", "evaluation",
    "compute", "saving", "modules",
)  # fmt: skip


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the contents of a TOML file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not a TOML file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "run.toml")
    >>> _ = path.write_text(dumps({"run": {"rounds": 100}}))
    >>> read(path)
    {'run': {'rounds': 100}}
    """
    place = check_path("path", path, "file")
    if not place.exists():
        raise FileNotFoundError(f"`path` must be a TOML file, got {place}, which does not exist")
    if not place.is_file():
        kind = "a folder" if place.is_dir() else "not a regular file"
        raise ValueError(
            f"`path` must be a TOML file, got {place}, which is {kind}; pass a file such as "
            "run.toml"
        )
    content = place.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from error


def with_modules(tables: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the tables of a file with the folder in which modules of custom functions are found.

    It is that of the file unless the table ``[modules]`` names another one, relative to the file.

    Examples
    --------
    >>> with_modules({"modules": {"folder": "lib"}}, "/home/me/run.toml")
    {'modules': {'folder': '/home/me/lib'}}
    """
    given = as_table("modules", tables.get("modules", {"folder": "."}))
    folder = given.get("folder")
    if isinstance(folder, str):
        place = os.path.dirname(os.path.abspath(path))
        given["folder"] = os.path.normpath(os.path.join(place, os.path.expanduser(folder)))
    return {**tables, "modules": given}


def override(tables: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the tables after assignments ``table.key=value`` or ``table=spec``.

    Keys of nested tables are separated by dots, as in ``algorithm.clock.delay=0.1``. ``table=none``
    removes a table.

    Raises
    ------
    ValueError
        If an assignment has another form, or sets a key of something that is not a table.

    Examples
    --------
    >>> override({"run": {"rounds": 100}}, ["run.rounds=10", "topology=ring", "evaluation=4"])
    {'run': {'rounds': 10}, 'topology': 'ring', 'evaluation': 4}
    >>> override({"attackers": {"name": "sign_flip", "nodes": [1]}}, ["attackers=none"])
    {}
    >>> override({}, ["algorithm=ad_psgd,lr=0.1", "algorithm.clock.compute=exponential(1.0)"])
    {'algorithm': {'name': 'ad_psgd', 'lr': 0.1, 'clock': {'compute': 'exponential(1.0)'}}}
    """
    tables = dict(tables)
    for text in assignments:
        key, equals, value = text.partition("=")
        table, *names = (word.strip() for word in key.split("."))
        if not equals or not table or not all(names):
            raise ValueError(
                "`--set` must be table.key=value, as in run.rounds=100, or table=spec, got "
                f"{text!r}"
            )
        is_value = names or table in _SHORT or is_none(parse_value(value))
        tables = assign(tables, key.strip(), parse_value(value) if is_value else value.strip())
    return tables


def assign(tables: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return the tables after one assignment, of a key such as ``"run.rounds"`` or a whole table.

    A whole table that is None or ``"none"`` is removed.

    Raises
    ------
    ValueError
        If there is no such table (the message suggests the nearest), or the key is in something
        that is not a table.

    Examples
    --------
    >>> assign({"run": {"rounds": 100}}, "run.rounds", 10)
    {'run': {'rounds': 10}}
    """
    tables = dict(tables)
    table, *names = (word.strip() for word in key.split("."))
    check_keys("an experiment", [table], TABLES)
    if names:
        given = {} if is_none(tables.get(table)) else as_table(table, tables[table])
        tables[table] = _with_entry(given, names, value, f"{key}={value}")
    elif is_none(value):
        tables.pop(table, None)
    else:
        tables[table] = value
    return tables


def is_none(value: Any) -> bool:
    """Return whether a value is None, or the text ``"none"`` by which configurations write it."""
    return value is None or (isinstance(value, str) and value == NONE)


def _with_entry(
    table: Mapping[str, Any], names: Sequence[str], value: Any, text: str
) -> dict[str, Any]:
    """Return a copy of a table with a changed entry, which may be in a nested table."""
    name, *deeper = names
    if not deeper:
        return {**table, name: value}
    inner = {} if is_none(table.get(name)) else table[name]
    if not isinstance(inner, Mapping):
        raise ValueError(
            f"`--set` must name a key of a table, {name!r} is {shown(inner)}, got {text!r}; set "
            f"{name!r} as a whole"
        )
    return {**table, name: _with_entry(inner, deeper, value, text)}


_SHORT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "evaluation": lambda value: {"every" if isinstance(value, int) else "on": value},
    "compute": lambda value: {"device": value},
    "saving": lambda value: {"every": value},
    "modules": lambda value: {"folder": value},
}
"""Conversion of the short form of these tables, a single value, into a table."""


def as_table(name: str, value: Any) -> dict[str, Any]:
    """Return a table as a dictionary; text, or text under the key ``spec``, is parsed."""
    if name in _SHORT:
        return dict(value) if isinstance(value, Mapping) else _SHORT[name](value)
    with at(f"[{name}]"):
        return table_of(value)


def dumps(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables as TOML text, without entries that are None.

    Raises
    ------
    TypeError
        If a value is neither a number, a boolean, text, a list nor a table.

    Examples
    --------
    >>> print(dumps({"run": {"rounds": 10, "executor": "auto", "chunk": None}}))
    [run]
    rounds = 10
    executor = "auto"
    <BLANKLINE>
    """
    lines = []
    for name, table in tables.items():
        lines += [
            f"[{name}]",
            *(f"{key} = {_toml(value)}" for key, value in table.items() if value is not None),
            "",
        ]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):  # JSON, except for the control character that TOML forbids
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if value is None:  # in a list
        return f'"{NONE}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        entries = [f"{key} = {_toml(entry)}" for key, entry in value.items() if entry is not None]
        return f"{{{', '.join(entries)}}}"
    raise TypeError(
        "a value in a configuration must be a number, true, false, text, a list or a table, got "
        f"{shown(value)}"
    )


def names_functions(tables: Any) -> bool:
    """Return whether any text in the tables of a configuration names a ``module:function``.

    Examples
    --------
    >>> names_functions({"algorithm": {"name": "mymodule:method", "lr": 0.1}})
    True
    >>> names_functions({"compute": {"device": "cuda:0"}, "data": {"root": "/data/a:b"}})
    False
    """
    return any(True for _ in modules_in(tables))


def modules_in(tables: Any) -> Iterator[str]:
    """Yield the modules of the functions that texts in the tables of a configuration name."""
    if isinstance(tables, str):
        yield from _MODULE.findall(tables)
    elif isinstance(tables, Mapping | list | tuple):
        for value in tables.values() if isinstance(tables, Mapping) else tables:
            yield from modules_in(value)


_MODULE = re.compile(r"(?<![\w./\\])([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_]")
"""The module in ``module:function``, also within a text with arguments."""
