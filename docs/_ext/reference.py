"""The reference: one page per public name, and one per module, written from the package itself.

``__all__`` of the modules below decides what is public. A page of a method also lists what it
requires of a graph, and a page of a generator shows its example graphs.
"""

import importlib
import inspect
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

import pictures
from sphinx.application import Sphinx
from sphinx.config import Config

__all__ = ["MODULES", "public_names", "setup"]

MODULES = (
    "topofl",
    "topofl.topologies",
    "topofl.mixing",
    "topofl.metrics",
    "topofl.data",
    "topofl.models",
    "topofl.tasks",
    "topofl.algorithms",
    "topofl.attacks",
    "topofl.clocks",
    "topofl.privacy",
    "topofl.callbacks",
    "topofl.history",
    "topofl.leaderboard",
    "topofl.trained",
    "topofl.runs",
    "topofl.summary",
    "topofl.report",
    "topofl.config",
    "topofl.toolkit",
    "topofl.topology",
    "topofl.engine",
    "topofl.estimate",
    "topofl.advice",
    "topofl.cli",
)
"""Modules in the order of the reference; a name belongs to the first that has it."""

ALSO_PUBLIC = ("topofl.algorithms", "topofl.topologies")
"""Modules whose ``__all__`` lists methods and generators only, but whose other names are public."""

TITLES = {
    "asynchronous": "Methods: asynchronous",
    "bias_free": "Methods: no bias from heterogeneous data",
    "bias_free_momentum": "Methods: no bias, with momentum",
    "byzantine_robust": "Methods: robust against attackers",
    "compressed": "Methods: compressed messages",
    "decentralized": "Methods: decentralized",
    "learned_graphs": "Methods: graphs that nodes choose",
    "personalized": "Methods: personalized",
    "references": "Methods: references",
    "server": "Methods: with a server",
    "exchanges": "Exchanges, policies and compressors",
    "contract": "Phases, terms, parts and requirements",
    **dict.fromkeys(("averaging", "contraction", "perron", "spectral"), "Speed of averaging"),
    **dict.fromkeys(("consensus", "labels"), "Fit of graph and data"),
    **dict.fromkeys(("gradients", "hops", "spectrum"), "Fit of graph and data over several hops"),
    "connectivity": "Graphs that change over time",
    "push_sum": "Push-sum",
    **dict.fromkeys(("shape", "walks"), "Shape of the graph"),
    "readers": "Readers",
    "partitioners": "Partitions",
    "edits": "Edits of partitions",
    "derived": "Operations on graphs",
}
"""Titles of groups by the folder or file that names come from."""


def _public(module: ModuleType) -> list[str]:
    """Return the public names of a module that are not modules."""
    names = list(module.__all__)
    if module.__name__ in ALSO_PUBLIC:
        names += [
            name
            for name, value in vars(module).items()
            if name not in names
            and not name.startswith("_")
            and str(getattr(value, "__module__", module.__name__)).startswith(module.__name__)
        ]
    if module.__name__ == "topofl.topologies":
        names.append("recommend")
    return sorted(n for n in names if not isinstance(getattr(module, n), ModuleType))


def _is_class(value: Any) -> bool:
    return isinstance(value, type)  # not an alias of a type, as for inspect.isclass


def _is_documented_by_itself(value: Any) -> bool:
    return _is_class(value) or inspect.isfunction(value)


@cache
def _pages() -> dict[str, dict[str, Any]]:
    """Return the public names of each module with their values, each in one module only."""
    seen: set[int] = set()
    pages: dict[str, dict[str, Any]] = {}
    for path in MODULES:
        module = importlib.import_module(path)
        names = {name: getattr(module, name) for name in _public(module)}
        pages[path] = {
            name: value
            for name, value in names.items()
            if not (_is_documented_by_itself(value) and id(value) in seen)
        }
        seen |= {id(value) for value in names.values()}
    return {path: names for path, names in pages.items() if names}


@cache
def public_names() -> dict[int, str]:
    """Return the public path of each function and class, by its id."""
    return {
        id(value): f"{module}.{name}"
        for module, names in _pages().items()
        for name, value in names.items()
        if _is_documented_by_itself(value)
    }


def _group(module: str, name: str, value: Any) -> str:
    """Return the title under which a module lists a name."""
    from topofl.topologies import GENERATORS

    if module == "topofl.topologies" and name in GENERATORS:
        return f"Generators: {GENERATORS[name].family}"
    folders = str(getattr(value, "__module__", "")).removeprefix(f"{module}.").split(".")
    titles = [TITLES[folder] for folder in folders if folder in TITLES]
    if titles:
        return titles[0]
    if not _is_documented_by_itself(value):
        return "Constants and types"
    return "Classes" if _is_class(value) else "Functions"


def _heading(text: str, underline: str) -> list[str]:
    return [text, underline * len(text), ""]


def _module_page(module: str, names: dict[str, Any]) -> str:
    """Return the page of a module: its docstring, and tables of its names by group."""
    groups: dict[str, list[str]] = {}
    for name, value in names.items():
        groups.setdefault(_group(module, name, value), []).append(name)
    lines = [*_heading(module, "="), f".. automodule:: {module}", "   :no-members:", ""]
    for title in sorted(groups, key=_order):
        lines += [*_heading(title, "-"), ".. list-table::", "   :widths: 30 70", ""]
        lines += [line for name in groups[title] for line in _row(module, name, names[name])]
        lines += [""]
    lines += [".. toctree::", "   :hidden:", ""]
    return "\n".join([*lines, *(f"   {name} <{_file(module, name)}>" for name in names), ""])


def _row(module: str, name: str, value: Any) -> list[str]:
    """Return the row of a name in a table: a link, and the first line of its docstring."""
    text = (inspect.getdoc(value) or "") if _is_documented_by_itself(value) else ""
    role = "obj" if text else "data"
    return [f"   * - :{role}:`{name} <{module}.{name}>`", f"     - {text.partition(chr(10))[0]}"]


def _order(title: str) -> tuple[int, str]:
    """Return the place of a group: families of graphs as declared, constants last."""
    from topofl.topologies import FAMILIES

    order = [*(f"Generators: {family}" for family in FAMILIES), "Classes", "Functions"]
    last = ["Exchanges, policies and compressors", TITLES["contract"], "Constants and types"]
    if title in order:
        return order.index(title), ""
    return 100 + (last.index(title) + 1 if title in last else 0), title


def _file(module: str, name: str) -> str:
    """Return the name of a page; upper and lower case differ in more than case."""
    return f"{module}.{name}" + ("-class" if name[0].isupper() else "")


def _name_page(module: str, name: str, value: Any) -> str:
    """Return the page of one public name."""
    path = f"{module}.{name}"
    lines = [*_heading(path, "="), f".. currentmodule:: {module}", ""]
    if _is_class(value):
        above = value.__mro__[1:]
        foreign = [one.__name__ for one in above if not one.__module__.startswith("topofl")]
        ours = len(foreign) < len(above)
        lines += [f".. autoclass:: {path}", "   :members:"]
        lines += [f"   :inherited-members: {', '.join(foreign)}"] * ours + [""]
    elif inspect.isfunction(value):
        lines += [f".. autofunction:: {path}", ""]
    elif isinstance(value, GenericAlias):  # autodoc takes it for a class
        lines += [f".. py:data:: {path}", "", f"   Alias of ``{value}``.", ""]
    else:
        lines += [f".. autodata:: {path}", "   :no-value:", ""]
    return "\n".join([*lines, *_requirements(module, name), *pictures.of_generator(module, name)])


def _requirements(module: str, name: str) -> list[str]:
    """Return what a method requires of a graph and its weights."""
    algorithms = importlib.import_module("topofl.algorithms")
    needs_of = importlib.import_module("topofl.algorithms.contract.needs").needs_of
    if module != algorithms.__name__ or name not in algorithms.__all__:
        return []
    needs = list(needs_of(getattr(algorithms, name)))
    lines = [".. rubric:: What it requires of the graph", ""]
    if not needs:
        return [*lines, "It declares no requirement beyond what the description says.", ""]
    return lines + [f"- **{n.name}**{n.condition}: {n.meaning}" for n in needs] + [""]


def _write(folder: Path, pages: Iterable[tuple[str, str]]) -> None:
    for name, text in pages:
        (folder / f"{name}.rst").write_text(text)


def _generate(app: Sphinx, config: Config) -> None:
    """Write all pages before Sphinx looks for sources."""
    folder = Path(app.confdir) / "reference" / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pictures.draw_generators(folder)
    for module, names in _pages().items():
        _write(folder, [(module, _module_page(module, names))])
        _write(folder, ((_file(module, n), _name_page(module, n, v)) for n, v in names.items()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("config-inited", _generate)
    return {"parallel_read_safe": True}
