"""Functions and columns that specs can name, read from the source of topofl.

Importing the catalogue (:func:`topofl._spec.catalogue`) loads torch, which takes seconds. Both read
the same declarations; ``tests/cli/test_declared.py`` compares them.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from topofl.cli.sources import (
    Found,
    constant,
    decorated,
    find,
    names_of,
    value_of,
)

__all__ = ["KINDS_OF_NAMES", "Column", "Declaration", "declarations", "declared_columns"]


class Declaration(NamedTuple):
    """A function as its source declares it.

    Attributes
    ----------
    parameters
        Parameters, with defaults as in configurations: a tuple is a list, and a part of a model is
        its pattern.
    summary
        First line of the docstring.
    """

    parameters: tuple[inspect.Parameter, ...]
    summary: str


class Column(NamedTuple):
    """A column of :func:`topofl.metrics.compare` as its module declares it."""

    name: str
    group: str
    meaning: str


def _topologies() -> Iterable[tuple[str, Found]]:
    return sorted(decorated("topofl.topologies", "generator"))


def _algorithms() -> Iterable[tuple[str, Found]]:
    return [*_exported("algorithms"), ("timed", find("topofl.algorithms", "timed"))]


def _models() -> Iterable[tuple[str, Found]]:
    return [(name, found) for name, found in _exported("models") if _first(found) != "module"]


def _datasets() -> Iterable[tuple[str, Found]]:
    return decorated("topofl.data", "reader")


def _partitions() -> Iterable[tuple[str, Found]]:
    return _returning("Partition", sorted(_exported("data", "_OTHERS")), first="dataset")


def _augmentations() -> Iterable[tuple[str, Found]]:
    return _returning("Augmentation", sorted(_exported("data", "_OTHERS")))


def _mixings() -> Iterable[tuple[str, Found]]:
    return [(name, found) for name, found in _exported("mixing") if _first(found) == "topology"]


def _tasks() -> Iterable[tuple[str, Found]]:
    return _exported("tasks")


def _attacks() -> Iterable[tuple[str, Found]]:
    return _returning("Attack", _exported("attacks"))


def _clocks() -> Iterable[tuple[str, Found]]:
    clock = ("Clock", find("topofl.clocks", "Clock"))
    return [clock, *_returning("Times", _exported("clocks"))]


def _compressors() -> Iterable[tuple[str, Found]]:
    return _returning("Compressor", _parts_of_algorithms())


def _schedules() -> Iterable[tuple[str, Found]]:
    return _returning("Schedule", _parts_of_algorithms())


_READERS: Mapping[str, Callable[[], Iterable[tuple[str, Found]]]] = {
    "topology": _topologies,
    "algorithm": _algorithms,
    "model": _models,
    "dataset": _datasets,
    "partition": _partitions,
    "augmentation": _augmentations,
    "mixing": _mixings,
    "task": _tasks,
    "attack": _attacks,
    "clock": _clocks,
    "compressor": _compressors,
    "schedule": _schedules,
}
"""Functions that find the definitions of each kind of the catalogue, in its order."""

KINDS_OF_NAMES = (*_READERS, "metric")
"""Arguments of ``topofl list``."""


def declarations(kind: str) -> dict[str, Declaration]:
    """Return the declarations of a kind by name, as in :func:`topofl._spec.catalogue`."""
    return {name: _declaration(*found) for name, found in _READERS[kind]()}


def _exported(part: str, names: str = "__all__") -> list[tuple[str, Found]]:
    """Return the functions of a module of topofl that it lists in a constant."""
    module = f"topofl.{part}"
    found = [(name, find(module, name)) for name in constant(module, names)]
    return [(name, f) for name, f in found if isinstance(f.node, ast.FunctionDef)]


def _parts_of_algorithms() -> list[tuple[str, Found]]:
    """Return all that the package of algorithms defines or imports, in order."""
    module = "topofl.algorithms"
    return [(name, find(module, name)) for name in names_of(module)]


def _returning(
    annotation: str, named: Iterable[tuple[str, Found]], first: str = ""
) -> Iterator[tuple[str, Found]]:
    """Yield the functions with an annotation of their result and, if given, a first parameter."""
    for name, found in named:
        returns = getattr(found.node, "returns", None)
        if (
            isinstance(returns, ast.Name)
            and returns.id == annotation
            and first in ("", _first(found))
        ):
            yield name, found


def _first(found: Found) -> str:
    """Return the name of a function's first parameter, or an empty string if it has none."""
    if not isinstance(found.node, ast.FunctionDef):
        return ""
    return next((p.arg for p in [*found.node.args.posonlyargs, *found.node.args.args]), "")


def _declaration(module: str, node: Any) -> Declaration:
    """Return the declaration of a function, or of a dataclass whose fields are its arguments."""
    is_class = isinstance(node, ast.ClassDef)
    parameters = _fields(module, node) if is_class else _parameters(module, node)
    return Declaration(tuple(parameters), (ast.get_docstring(node) or "").partition("\n")[0])


def _parameters(module: str, node: ast.FunctionDef) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function in the order of its signature."""
    kinds, given = inspect.Parameter, node.args
    ordinary = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(ordinary) - len(given.defaults)) + given.defaults
    for k, (arg, default) in enumerate(zip(ordinary, defaults, strict=True)):
        is_only = k < len(given.posonlyargs)
        kind = kinds.POSITIONAL_ONLY if is_only else kinds.POSITIONAL_OR_KEYWORD
        yield kinds(arg.arg, kind, default=_default(module, default))
    if given.vararg:
        yield kinds(given.vararg.arg, kinds.VAR_POSITIONAL)
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield kinds(arg.arg, kinds.KEYWORD_ONLY, default=_default(module, default))
    if given.kwarg:
        yield kinds(given.kwarg.arg, kinds.VAR_KEYWORD)


def _fields(module: str, node: ast.ClassDef) -> Iterator[inspect.Parameter]:
    for field in node.body:
        match field:
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
                yield inspect.Parameter(name, kind, default=_default(module, value))


def _default(module: str, node: ast.expr | None) -> Any:
    return inspect.Parameter.empty if node is None else value_of(module, node)


def declared_columns() -> tuple[Column, ...]:
    """Return the columns that modules of ``topofl.metrics`` declare, in the order of ``compare``.

    Examples
    --------
    >>> [column.name for column in declared_columns()][:2]
    ['nodes', 'edges']
    """
    modules: Any = find("topofl.metrics.compare", "MODULES").node
    declared = [column for name in modules.elts for column in _columns(f"topofl.metrics.{name.id}")]
    groups = list(constant("topofl.metrics._columns", "GROUPS"))
    return tuple(sorted(declared, key=lambda column: groups.index(column.group)))


def _columns(module: str) -> Iterator[Column]:
    """Yield the columns in the tuple ``COLUMNS`` of a module."""
    for call in getattr(find(module, "COLUMNS").node, "elts", ()):
        given = _arguments_of_column(module, call)
        yield Column(*(value_of(module, given[name]) for name in Column._fields))


def _arguments_of_column(module: str, call: ast.Call) -> dict[str | None, ast.expr]:
    """Return the arguments of ``MetricColumn`` by name.

    The call may be of a function of the module that returns ``MetricColumn(...)``, and passes its
    own arguments on.
    """
    name = getattr(call.func, "id", "")
    keywords = {word.arg: word.value for word in call.keywords}
    if name == "MetricColumn":
        return dict(zip(Column._fields, call.args, strict=False)) | keywords
    helper: Any = find(module, name).node
    passed = dict(zip((p.arg for p in helper.args.args), call.args, strict=False)) | keywords
    inner = _arguments_of_column(module, helper.body[-1].value)
    return {key: passed.get(getattr(node, "id", None), node) for key, node in inner.items()}
