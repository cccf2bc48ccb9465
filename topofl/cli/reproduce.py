"""``topofl reproduce``: regeneration of the figures of papers."""

import argparse
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from topofl.engine import DivergenceError

__all__ = ["reproduce"]


def reproduce(options: argparse.Namespace) -> None:
    """Regenerate figures of the papers, or list them."""
    # Imported here, since it depends on all of topofl and loads matplotlib.
    paper_figures = import_module("topofl.paper_figures")
    if options.list:
        print(paper_figures.listed(), paper_figures.absent(), sep="\n\n")
    elif options.name is None:
        raise ValueError("name a figure or a paper; topofl reproduce --list shows all")
    else:
        if options.dry_run:
            print(paper_figures.planned(**_arguments_of(paper_figures.planned, options)))
            return
        arguments = _arguments_of(paper_figures.reproduce, options)
        try:
            paper_figures.reproduce(**arguments, show=_print_and_flush)
        except paper_figures.Failed as error:
            raise DivergenceError(str(error)) from error


def _arguments_of(function: Callable[..., Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that are parameters of a function."""
    known = inspect.signature(function).parameters
    return {key: value for key, value in vars(options).items() if key in known}


def _print_and_flush(text: object) -> None:
    print(text, flush=True)  # since the next figure may take minutes
