"""``topofl reproduce``: regeneration of the figures of papers."""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from topofl.cli.as_json import print_rows
from topofl.cli.output import json_rows, plain_cell, print_json
from topofl.engine import DivergenceError

__all__ = ["reproduce"]


def reproduce(options: argparse.Namespace) -> None:
    """Regenerate figures of the papers, or list them."""
    # Imported here, since it depends on all of topofl and loads matplotlib.
    paper_figures = import_module("topofl.paper_figures")
    if options.list:
        _print_list(paper_figures, options)
    elif options.name is None:
        raise ValueError("name a figure or a paper; topofl reproduce --list shows all")
    else:
        if options.dry_run:
            table = paper_figures.planned(**_arguments_of(paper_figures.planned, options))
            print_json(table) if options.json else print(table)
            return
        arguments = _arguments_of(paper_figures.reproduce, options)
        show = _print_on_stderr if options.json else _print_and_flush
        try:
            results = paper_figures.reproduce(**arguments, show=show)
        except paper_figures.Failed as error:
            raise DivergenceError(str(error)) from error
        if options.json:
            print_rows(row for result in results for row in _rows(result))


def _print_list(paper_figures: Any, options: argparse.Namespace) -> None:
    """Print papers and figures, and the figures that are not reproduced."""
    listed, absent = paper_figures.listed(), paper_figures.absent()
    if not options.json:
        print(listed, absent, sep="\n\n")
        return
    reproduced = [{**row, "reproduced": True} for row in json_rows(listed)]
    others = [
        {"name": name, listed.columns[1]: reason, "data": None, "reproduced": False}
        for name, reason in absent.rows
    ]
    print_rows([*reproduced, *others])


def _rows(result: Any) -> Iterator[dict[str, Any]]:
    """Yield the claims about a figure, with our numbers and verdicts."""
    for claim in result.claims:
        yield {
            "figure": result.figure.id,
            "scale": result.setting.scale,
            "claim": claim.statement,
            "kind": claim.kind,
            "statistic": claim.statistic,
            "holds if": claim.threshold,
            "ours": plain_cell(claim.ours),
            "interval": claim.interval,
            "paper": claim.paper or None,
            "verdict": claim.verdict,
            "picture": str(result.picture),
        }


def _arguments_of(function: Callable[..., Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that are parameters of a function."""
    known = inspect.signature(function).parameters
    return {key: value for key, value in vars(options).items() if key in known}


def _print_and_flush(text: object) -> None:
    print(text, flush=True)  # since the next figure may take minutes


def _print_on_stderr(text: object) -> None:
    print(text, file=sys.stderr, flush=True)  # stdout is for JSON
