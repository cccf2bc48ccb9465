"""``topofl reproduce``: regeneration of the figures of papers."""

import argparse
import inspect
from importlib import import_module

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
        known = inspect.signature(paper_figures.reproduce).parameters
        words = {key: value for key, value in vars(options).items() if key in known}
        try:
            paper_figures.reproduce(**words, show=_print_and_flush)
        except paper_figures.Failed as error:
            raise DivergenceError(str(error)) from error


def _print_and_flush(text: object) -> None:
    print(text, flush=True)  # since the next figure may take minutes
