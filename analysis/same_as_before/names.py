"""Public names with their parameters, and those that a changelog lists as renamed or dropped."""

import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType


def entries(prefix: str, module: ModuleType) -> Iterator[str]:
    """Yield the public names below a module: functions and classes with parameters, members.

    A name is public if it is in ``__all__`` of its module, and so is that module.
    """
    for name in sorted(getattr(module, "__all__", ())):
        value, full = getattr(module, name), f"{prefix}.{name}"
        if inspect.ismodule(value):
            yield from entries(full, importlib.import_module(value.__name__))
            continue
        yield f"{full}({', '.join(_parameters(value))})"
        if inspect.isclass(value):
            yield from (f"{full}.{one}" for one in sorted(vars(value)) if not one.startswith("_"))


def _parameters(value: object) -> list[str]:
    try:
        names = inspect.signature(value).parameters if callable(value) else ()
    except (TypeError, ValueError):
        return []
    return [name for name in names if not name.startswith("_")]


def lost(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return names, and parameters as ``name(parameter)``, that are no longer there.

    Examples
    --------
    >>> lost(["topofl.run(a, b)", "topofl.Run(a)", "topofl.Run.go"], ["topofl.run(b, c)"])
    ['topofl.run(a)', 'topofl.Run', 'topofl.Run.go']
    """
    own = dict(map(_parted, after))
    gone = list[str]()
    for name, parameters in map(_parted, before):
        if name not in own:
            gone.append(name)
        else:
            gone += [f"{name}({one})" for one in parameters if one not in own[name]]
    return gone


def _parted(line: str) -> tuple[str, list[str]]:
    """Return the name and the parameters of a line."""
    name, _, rest = line.strip().partition("(")
    return name, [one for one in rest.rstrip(")").split(", ") if one]


def dropped_in(changelog: str) -> Collection[str]:
    """Return the names in the first column of tables headed "renamed or dropped".

    Examples
    --------
    >>> rows = ["| renamed or dropped | why |", "| --- | --- |", "| `topofl.run(a)` | unused |"]
    >>> dropped_in(chr(10).join(rows))
    {'topofl.run(a)'}
    """
    names, inside = set[str](), False
    for line in changelog.splitlines():
        first = line.strip().strip("|").partition("|")[0]
        inside = line.startswith("|") and (inside or first.strip().lower() == "renamed or dropped")
        names |= {*re.findall(r"`([^`]+)`", first)} if inside else set()
    return names
