"""``topofl list``: names for specs and configurations."""

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from topofl._spec import catalogue, offers
from topofl._support.plugins import EntryPoint, resolve_name, signature
from topofl._support.text import printable
from topofl.algorithms.contract.needs import needs_of
from topofl.algorithms.contract.parts import Part
from topofl.metrics._columns import all_columns

__all__ = ["list_names"]


def list_names(options: argparse.Namespace) -> None:
    """Print the names of each kind, with parameters and descriptions."""
    kinds: dict[str, dict[str, str]] = {
        **{
            kind: {
                name: _describe(name, f) + (_describe_needs(f) if options.needs else "")
                for name, f in found.items()
            }
            for kind, found in catalogue().items()
        },
        "metric": {
            column.name: f"{column.name}\n      {column.group}: {column.meaning}"
            for column in all_columns()
        },
    }
    for kind in [options.kind] if options.kind else kinds:
        print(f"{kind}:")
        for text in [
            *kinds[kind].values(),
            *(_describe_offer(kind, offer, kinds[kind]) for offer in offers(kind)),
        ]:
            print(f"  {text}")


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
    words = ", ".join(_parameters_as_text(signature(name, function).values()))
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    without_roles = re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", summary)
    return f"{name}({words})\n      {without_roles}"


def _describe_needs(function: Callable[..., Any]) -> str:
    """Return a line for each requirement of an algorithm on graphs and weights."""
    return "".join(
        f"\n      needs{need.condition}: {need.name} ({need.meaning})"
        for need in needs_of(function)
    )


def _parameters_as_text(given: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as in Python, with defaults as specs write them."""
    bare = True
    for p in given:
        if bare and p.kind is p.KEYWORD_ONLY:
            bare = False
            yield "*"
        yield p.name if p.default is p.empty else f"{p.name}={_as_in_configuration(p.default)!r}"


def _as_in_configuration(default: Any) -> Any:
    """Return a default as a configuration would hold it, if possible."""
    if isinstance(default, Part) and len(default.patterns) == 1 and not default.complement:
        return default.patterns[0]
    return list(default) if isinstance(default, tuple) else default
