"""Citations: the BibTeX entries of what runs used.

The section "References" of a docstring quotes the titles of the works that a function comes from.
The file references.bib has their entries, found by these titles.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from topofl import _spec, data
from topofl._support.check import shown
from topofl._support.public import public
from topofl._version import __version__
from topofl.history import History

__all__ = ["citations"]

Used = History | Callable[..., Any]
"""A run, or what it used."""

_PLACES = {
    "algorithm": ("algorithm",),
    "settings": ("compressor", "schedule", "clock", "task"),
    "topology": ("topology",),
    "clients": ("edit", "partition", "dataset"),
    "augment": ("augmentation",),
    "attackers": ("attack",),
    "task": ("task",),
}
"""Kinds of functions that are named in the metadata of a history, by key."""

_TABLES = {
    "data": ("partition", "dataset", "augmentation"),
    "topology": ("topology",),
    "mixing": ("mixing",),
    "algorithm": ("algorithm", "compressor", "schedule", "clock"),
    "model": ("model",),
    "task": ("task",),
    "attackers": ("attack",),
}
"""Kinds of functions that are named in the tables of a configuration, by table."""

_WORK = re.compile(r'"([^"]+)" \(([^()]*)\)')
"""A title and, in parentheses, venue and year, in the references of a docstring."""


class Work(NamedTuple):
    """An entry of references.bib: its key, its fields and its text.

    Examples
    --------
    >>> from topofl import algorithms
    >>> (work,) = works_of(algorithms.teleportation)
    >>> work.fields["year"]
    '2025'
    """

    key: str
    fields: Mapping[str, str]
    text: str

    @property
    def titles(self) -> list[str]:
        """The title and the short titles, as they are compared."""
        short = self.fields.get("shorttitle", "").split(";")
        return [_plain(title) for title in (self.fields["title"], *short) if title]

    def is_cited_by(self, title: str, year: str) -> bool:
        """Return whether a quoted title, which may be the beginning of the title, is this one's."""
        quoted = _plain(title)
        whole, *short = self.titles
        same = quoted in short or f"{whole} ".startswith(f"{quoted} ")
        return same and year == self.fields["year"]


@public
def citations(used: Used | Sequence[Used]) -> str:
    """Return the BibTeX entries of the methods, graphs and data that runs used, and of topofl.

    A comment above each entry says what is cited by it.

    Parameters
    ----------
    used
        A history; a function of topofl, such as metrics, networks and weight rules, which a history
        does not know; or a sequence of these.

    Raises
    ------
    TypeError
        If one of `used` is neither a history nor a function of topofl.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, metrics, models, topologies
    >>> clients = data.shards(data.digits(), n=8, per_node=2, seed=0)
    >>> history = topofl.run(
    ...     algorithms.extra(lr=0.1),
    ...     model=models.logistic_regression(64),
    ...     clients=clients,
    ...     topology=topologies.exponential(8),
    ...     rounds=2,
    ...     seed=0,
    ... )
    >>> text = topofl.citations([history, metrics.effective_neighbors])
    >>> for line in text.splitlines():
    ...     if line.startswith("%"):
    ...         print(line)
    % digits
    % exponential, shards
    % shards
    % extra
    % effective_neighbors
    % effective_neighbors
    % exponential
    """
    found: dict[str, Callable[..., Any]] = {}
    for one in used if isinstance(used, list | tuple) else [used]:
        if isinstance(one, History):
            found |= functions_in(one.meta, _PLACES)
        elif inspect.isfunction(one) and _spec.is_ours(one):
            found[one.__name__] = one
        else:
            raise TypeError(
                "`used` must be histories and functions of topofl such as metrics.slem, got "
                f"{shown(one)} ({type(one).__name__})"
            )
    return bibtex(found)


def functions_of_tables(tables: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return the functions that the tables of a configuration name."""
    edits = {key: f for key, f in _edits().items() if key in tables.get("data", {})}
    return functions_in(tables, _TABLES) | edits


def functions_in(
    settings: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]
) -> dict[str, Callable[..., Any]]:
    """Return the functions of topofl that settings name, by name; `places` are kinds by key."""
    found, catalogue = {}, _spec.catalogue() | {"edit": _edits()}
    for key, kinds in places.items():
        known = {name: f for kind in kinds for name, f in catalogue[kind].items()}
        found |= {name: known[name] for name in _names(settings.get(key)) if name in known}
    return found


def _edits() -> dict[str, Callable[..., Any]]:
    """Return the functions that change a partition, by name."""
    functions = {name: getattr(data, name) for name in data.__all__}
    return {
        name: f
        for name, f in functions.items()
        if inspect.isfunction(f) and _spec.first(f) == "clients"
    }


def _names(value: Any) -> Iterator[str]:
    """Yield the words in settings that may name functions: all but keys and values of arguments."""
    if isinstance(value, str):
        yield from re.findall(r"(?:^|[(,]\s*)(\w+)(?=\s*(?:[(,)]|$))", value)
        yield from re.findall(r"=\s*(\w+)\(", value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _names(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _names(part)


def bibtex(functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return the entries that functions cite, each below the names of these, and that of topofl."""
    citing: dict[str, list[str]] = {}
    for name, function in functions.items():
        for work in works_of(function):
            citing.setdefault(work.key, []).append(name)
    entries = {work.key: work.text for work in references()}
    own = entries["topofl"].replace("VERSION", __version__)
    cited = (f"% {', '.join(names)}\n{entries[key]}\n" for key, names in sorted(citing.items()))
    return "\n".join([f"{own}\n", *cited])


def works_of(function: Callable[..., Any]) -> list[Work]:
    """Return the works whose titles the references of a function's docstring quote.

    Examples
    --------
    >>> from topofl import algorithms
    >>> [work.key for work in works_of(algorithms.teleportation)]
    ['takezawa2025scalable']
    """
    titles = quoted(function)
    return [work for work in references() if any(work.is_cited_by(*title) for title in titles)]


def quoted(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Return the titles that the references of a docstring quote, with years."""
    sections = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n-{3,}\n)", inspect.getdoc(function) or "")
    ours = [" ".join(part.split()) for part in sections if part.startswith("References\n")]
    found = [match for part in ours for match in _WORK.findall(part)]
    return [(title, about[-4:]) for title, about in found if about[-4:].isdecimal()]


@cache
def references() -> tuple[Work, ...]:
    """Return the entries of references.bib, each of which ends in a line with a brace alone."""
    text = Path(__file__).with_name("references.bib").read_text("utf-8")
    return tuple(map(_work, re.findall(r"^@.*?^}$", text, re.DOTALL | re.MULTILINE)))


def _work(text: str) -> Work:
    fields = dict(re.findall(r"^ {2}(\w+) = \{(.*?)\},?$", text, re.DOTALL | re.MULTILINE))
    key = text[text.index("{") + 1 : text.index(",")]
    return Work(key, fields, text)


def _plain(title: str) -> str:
    """Return lower-case words without marks and the braces of BibTeX, as titles are compared."""
    return " ".join(re.findall(r"[a-z0-9]+", title.lower().replace("{", "").replace("}", "")))
