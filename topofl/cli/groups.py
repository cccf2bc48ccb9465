"""``topofl compare --group-by``: statistics of groups of runs."""

import argparse
from typing import Any

from topofl._support.calls import parse_value
from topofl.cli.folders import unfinished_run
from topofl.cli.notes import print_notes
from topofl.cli.output import print_json, save_picture, with_columns
from topofl.summary import Summary, summarize

__all__ = ["compare_groups"]

WITH_X = ("band", "pareto")
"""Kinds of plots that have an axis of costs."""

WITH_BAND = ("band", "nodes", "pareto")
"""Kinds of plots that have bands or bars over runs."""


def compare_groups(options: argparse.Namespace) -> None:
    """Print a table of groups of runs; with ``--plot``, draw them."""
    for path in options.runs:
        if unfinished := unfinished_run(path):
            raise ValueError(f"{unfinished}, or leave it out")
    summary = summarize(
        options.runs,
        _words(options.group_by),
        column=options.column,
        target=options.target,
        baseline=_baseline(options.baseline),
        over=_words(options.over),
        hardware=options.hardware,
    )
    summary = with_columns(summary, options.columns)
    if options.plot is not None:
        _plot(summary, options)
    if options.csv is not None:
        summary.to_csv(options.csv)
    _print(summary, options)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _baseline(text: str | None) -> Any:
    """Return the baseline in ``ring``, or in ``topology=ring,alpha=0.1``."""
    if text is None or "=" not in text:
        return text
    parts = [part.partition("=") for part in text.split(",")]
    if not all(equals and name.strip() and value.strip() for name, equals, value in parts):
        return text  # a table with an argument, such as "dcliques, clique_size=5"
    return {name.strip(): parse_value(value.strip()) for name, _, value in parts}


def _plot(summary: Summary, options: argparse.Namespace) -> None:
    kind = options.kind or "band"
    more = {}
    if options.x is not None:
        if kind not in WITH_X:
            raise ValueError(
                f"`--x` must come with --kind {' or '.join(WITH_X)}, got --kind {kind}; "
                "leave it out"
            )
        more["x"] = options.x
    if options.band is not None:
        if kind not in WITH_BAND:
            raise ValueError(
                f"`--band` must come with --kind {', '.join(WITH_BAND)}, got --kind {kind}; "
                "leave it out"
            )
        more["band"] = options.band
    save_picture(summary.plot(kind, **more), options.plot)


def _print(summary: Summary, options: argparse.Namespace) -> None:
    """Print the table in the format that was asked for, with its notes."""
    if options.json:
        print_json(summary.numbers)
        print_notes(summary.notes)
    elif options.latex:
        print(summary.to_latex())
    else:
        print(summary.to_markdown() if options.markdown else summary)
