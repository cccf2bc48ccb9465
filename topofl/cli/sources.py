"""Reading of declarations from the source files of topofl, without importing them or torch."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Found",
    "constant",
    "decorated",
    "find",
    "names_of",
    "reading",
    "value_of",
]

ROOT = Path(__file__).resolve().parents[2]
"""Folder that holds the package topofl."""


class Found(NamedTuple):
    """A function, a class or the expression of a constant, and the module that defines it."""

    module: str
    node: ast.FunctionDef | ast.ClassDef | ast.expr


class _Link(NamedTuple):
    """A name that a module imports from another one."""

    module: str
    name: str


@contextmanager
def reading() -> Iterator[None]:
    """Keep the syntax trees of files in this context, without looking for cycles to collect.

    Trees have no reference cycles. The collector would traverse them again and again while they
    grow, and once more when Python exits, which takes longer than reading the files.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for kept in (_text, _statements, _index):
            kept.cache_clear()
        if was_enabled:
            gc.enable()


def find(module: str, name: str) -> Found:
    """Return the definition of a name in a module, or in the module that it is imported from.

    Raises
    ------
    ValueError
        If the module neither defines the name nor imports it by name from a module of topofl.
    """
    found = _index(module).get(name)
    if found is None:
        raise ValueError(f"{module} must define {name}, or import it by its name from topofl")
    return find(*found) if isinstance(found, _Link) else found


def names_of(module: str) -> list[str]:
    """Return the names that a module defines or imports by name from topofl, in their order."""
    return list(_index(module))


def constant(module: str, name: str) -> Any:
    """Return the value of a constant of a module; see :func:`value_of`."""
    found = find(module, name)
    if not isinstance(found.node, ast.expr):
        raise ValueError(f"{name} of {module} must be a constant, got a function or a class")
    return value_of(found.module, found.node)


def value_of(module: str, node: ast.expr) -> Any:
    """Return the value of an expression in a module, with tuples as lists.

    Raises
    ------
    ValueError
        If it has other parts than literals, constants of topofl, f-strings of these, and parts of
        models with one pattern, which stands for the part, as in configurations.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name):
            return constant(module, name)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [value_of(module, part) for part in parts]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(filter(None, keys), values, strict=True)
            return {value_of(module, key): value_of(module, value) for key, value in pairs}
        case ast.JoinedStr(values=parts):
            return "".join(str(value_of(module, part)) for part in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return value_of(module, value)
        case ast.Call(func=ast.Name(id="Part"), args=[ast.Tuple(elts=[pattern])], keywords=[]):
            return value_of(module, pattern)
    raise ValueError(
        f"{ast.unparse(node)} in {module} must be a literal, a constant of topofl or a part of "
        "models, for topofl list to read it without importing torch"
    )


def decorated(package: str, decorator: str) -> Iterator[tuple[str, Found]]:
    """Yield the functions with a decorator in the modules that a package imports from, by name."""
    imports = [node.module for node in _statements(package) if isinstance(node, ast.ImportFrom)]
    for module in dict.fromkeys(name for name in imports if name and name.startswith("topofl.")):
        for node in _statements(module) if f"\n@{decorator}" in _text(module) else ():
            if isinstance(node, ast.FunctionDef) and decorator in map(
                _decorator, node.decorator_list
            ):
                yield node.name, Found(module, node)


@cache
def _text(module: str) -> str:
    place = ROOT.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return path.read_text(encoding="utf-8")


@cache
def _statements(module: str) -> list[ast.stmt]:
    """Return the statements of a module; of functions, only the docstring and the last statement.

    The trees of whole functions would take ten times the memory.
    """
    statements = ast.parse(_text(module)).body
    for statement in statements:
        match statement:
            case ast.FunctionDef(body=[first, *_, last]):
                statement.body = [first, last]
            case ast.ClassDef(body=[first, *others]):
                statement.body = [first, *(s for s in others if isinstance(s, ast.AnnAssign))]
    return statements


@cache
def _index(module: str) -> dict[str, Found | _Link]:
    """Return what a module defines or imports from topofl by name."""
    found: dict[str, Found | _Link] = {}
    for statement in _statements(module):
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = Found(module, statement)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found[name] = Found(module, value)
            case ast.ImportFrom(module=str(other), names=names) if other.startswith("topofl"):
                found |= {name.asname or name.name: _Link(other, name.name) for name in names}
    return found


def _decorator(node: ast.expr) -> str:
    """Return the name of a decorator, which may be called with arguments."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.id if isinstance(function, ast.Name) else ""
