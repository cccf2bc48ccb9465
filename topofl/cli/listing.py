"""``topofl list``: names for specs and configurations."""

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from topofl._support.plugins import EntryPoint, has_entry_points, resolve_name, signature
from topofl._support.text import printable
from topofl.cli.as_json import print_rows
from topofl.cli.declared import KINDS_OF_NAMES, declarations, declared_columns
from topofl.cli.sources import reading

__all__ = ["list_names"]


def list_names(options: argparse.Namespace) -> None:
    """Print the names of each kind, with parameters and descriptions.

    Torch is imported only for ``--needs``, and by functions of installed packages.
    """
    offers = _offers if has_entry_points() else _no_offers
    kinds = [options.kind] if options.kind else KINDS_OF_NAMES
    with reading():
        if options.json:
            print_rows(row for kind in kinds for row in _rows(kind, options.needs, offers(kind)))
            return
        for kind in kinds:
            own = _own_names(kind)
            needs = _needs_by_name(kind) if options.needs else {}
            print(f"{kind}:")
            for name, text in own.items():
                print(f"  {text}{''.join(map(_need_as_text, needs.get(name, ())))}")
            for offer in offers(kind):
                print(f"  {_describe_offer(kind, offer, own)}")


def _rows(kind: str, with_needs: bool, offers: Iterable[EntryPoint]) -> Iterator[dict[str, Any]]:
    """Yield the names of a kind for JSON; a parameter without a default has to be given."""
    if kind == "metric":
        for c in declared_columns():
            yield {"kind": kind, "name": c.name, "group": c.group, "description": c.meaning}
        return
    needs = _needs_by_name(kind) if with_needs else {}
    for name, found in declarations(kind).items():
        parameters = [
            {"name": p.name} if p.default is p.empty else {"name": p.name, "default": p.default}
            for p in found.parameters
        ]
        row = {"kind": kind, "name": name, "parameters": parameters}
        row["description"] = _without_roles(found.summary)
        own = [
            {"if": n.condition.strip(), "needs": n.name, "meaning": n.meaning}
            for n in needs.get(name, ())
        ]
        yield row | ({"needs": own} if with_needs else {})
    for offer in offers:
        yield {"kind": kind, "name": offer.name, "package": offer.package, "target": offer.target}


def _own_names(kind: str) -> dict[str, str]:
    """Return the descriptions of topofl's own names."""
    if kind == "metric":
        columns = declared_columns()
        return {c.name: f"{c.name}\n      {c.group}: {c.meaning}" for c in columns}
    return {
        name: _description(name, found.parameters, found.summary)
        for name, found in declarations(kind).items()
    }


def _needs_by_name(kind: str) -> dict[str, Sequence[Any]]:
    """Return the requirements on graphs and weights, by name."""
    from topofl._spec import catalogue
    from topofl.algorithms.contract.needs import needs_of

    return {name: needs_of(function) for name, function in catalogue().get(kind, {}).items()}


def _need_as_text(need: Any) -> str:
    return f"\n      needs{need.condition}: {need.name} ({need.meaning})"


def _offers(kind: str) -> Iterable[EntryPoint]:
    """Return the functions that installed packages offer."""
    from topofl._spec import offers

    return offers(kind)


def _no_offers(kind: str) -> Iterable[EntryPoint]:
    """Return nothing, without importing the catalogue."""
    return ()


def _describe_offer(kind: str, offer: EntryPoint, own_names: Iterable[str]) -> str:
    """Return two lines about a function of a package, or why it cannot be loaded."""
    if offer.name in own_names:
        about = f"not used, since topofl has its own {offer.name}; write {offer.target}"
        return f"{printable(offer.name)}\n      {printable(f'{about} (package {offer.package})')}"
    try:
        head, _, about = _describe(offer.name, resolve_name(kind, offer.name, {})).partition("\n")
    except (ValueError, TypeError) as error:
        return f"{printable(offer.name)}\n      {printable(str(error))}"
    return f"{printable(head)}\n      {printable(f'{about.strip()} (package {offer.package})')}"


def _describe(name: str, function: Callable[..., Any]) -> str:
    """Return two lines: the signature and the first docstring line of a function."""
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    parameters = [
        p.replace(default=_as_in_configuration(p.default))
        for p in signature(name, function).values()
    ]
    return _description(name, parameters, summary)


def _description(name: str, parameters: Iterable[inspect.Parameter], summary: str) -> str:
    """Return two lines: a call with its parameters, and a summary without the roles of Sphinx."""
    return f"{name}({', '.join(_parameters_as_text(parameters))})\n      {_without_roles(summary)}"


def _without_roles(summary: str) -> str:
    return re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", summary)


def _parameters_as_text(given: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as in Python."""
    bare = True
    for p in given:
        if bare and p.kind is p.KEYWORD_ONLY:
            bare = False
            yield "*"
        yield p.name if p.default is p.empty else f"{p.name}={p.default!r}"


def _as_in_configuration(default: Any) -> Any:
    """Return a default as a configuration would hold it, if possible."""
    from topofl.algorithms import Part

    if isinstance(default, Part) and len(default.patterns) == 1 and not default.complement:
        return default.patterns[0]
    return list(default) if isinstance(default, tuple) else default
