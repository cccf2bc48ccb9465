"""A report as Markdown for GitHub, with links to its pictures."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from topofl import NotApplicable, Table

from . import contents
from .claims import FAILS, HOLDS, PAPER, UNDECIDED, claims_table, shown_statement
from .contents import Report
from .reproduce import Result


def to_markdown(report: Report, folder: Path) -> str:
    """Return the report as Markdown for GitHub; links to pictures are relative to `folder`."""
    parts = [
        f"# Reproduction: {_escape(report.title)}",
        _escape(report.citation),
        *_markdown_summary(report),
        *(part for result in report.results for part in _markdown_section(report, result, folder)),
        "## Left out",
        _markdown_list(
            f"**{_escape(name)}:** {_escape(why)}" for name, why in report.left_out.items()
        )
        or "No figure was left out.",
        "## How verdicts are made",
        *map(_escape, [*contents.JUDGED, *report.terms]),
        "## How it was made",
        _fenced(report.command),
        _markdown_facts(contents.facts_of(report)),
        "\n".join(
            f"{k}. Runs were made with {_escape(contents.made_text(made))}"
            for k, made in enumerate(report.made, start=1)
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _markdown_summary(report: Report) -> list[str]:
    overview = _escaped(contents.overview_of(report))
    rows = tuple(
        (f"[{row[0]}](#{result.figure.id})", *row[1:])
        for row, result in zip(overview.rows, report.results, strict=True)
    )
    parts = ["## Summary", f"**{contents.summary_of(report)}**"]
    parts += [f"**{_escape(text)}**" for text in contents.warnings_of(report)]
    parts += [Table(overview.columns, rows).to_markdown(), contents.SHARED]
    claims = [(claim, result.figure.id) for result in report.results for claim in result.claims]
    for verdict in (FAILS, UNDECIDED, HOLDS):
        links = [
            f"{_escape(claim.statement)} ([{_escape(id)}](#{id}))"
            for claim, id in claims
            if claim.verdict == verdict and claim.kind == PAPER
        ]
        parts += [
            f"### {contents.HEADINGS[verdict]} ({len(links)})",
            _markdown_list(links) or "None.",
        ]
    links = [
        f"{claim.verdict}: {_escape(shown_statement(claim))} ([{_escape(id)}](#{id}))"
        for claim, id in claims
        if claim.kind != PAPER
    ]
    return (
        [*parts, f"### {contents.APART} ({len(links)})", _markdown_list(links)] if links else parts
    )


def _markdown_section(report: Report, result: Result, folder: Path) -> list[str]:
    name = result.figure.id
    link = quote(Path(os.path.relpath(result.picture, folder)).as_posix())
    claims = (
        _escaped(claims_table(result.claims)).to_markdown()
        if result.claims
        else "No claim is judged here."
    )
    missing = report.left_out.get(name)
    return [
        f'<a id="{name}"></a>',
        f"## {_escape(name)}: {_escape(result.figure.title)}",
        f"![{_escape(contents.alt_of(result))}]({link})",
        f"**Not computed:** {_escape(missing)}" if missing else "",
        "### Claims",
        claims,
        "### Differences from the paper's setting",
        _markdown_list(map(_escape, result.differences)) or "None known.",
        *(["### Numbers of the arms"] if result.tables else []),
        *(_escaped(table).to_markdown() for table in result.tables),
        "### Cost",
        _markdown_facts(contents.cost_of(report, result)),
    ]


def _markdown_facts(facts: Sequence[tuple[str, str]]) -> str:
    return _markdown_list(f"**{name}:** {_escape(text)}" for name, text in facts)


def _markdown_list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _escape(text: str) -> str:
    """Return a text as one line of Markdown with special characters escaped."""
    line = re.sub(r"[\\`*{}\[\]<>#~$&]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))
    line = re.sub(r"^([-+=])|^(\d+)([.)])(?=\s|$)", lambda m: f"{m[2] or ''}\\{m[1] or m[3]}", line)
    return line.replace("|", "&#124;")  # an escaped bar is ambiguous in a table


def _escaped(table: Table) -> Table:
    """Return a table with its texts escaped for Markdown."""

    def escaped(cell: Any) -> Any:
        if isinstance(cell, NotApplicable):
            return NotApplicable(_escape(cell.reason))
        return _escape(cell) if isinstance(cell, str) else cell

    rows = tuple(tuple(map(escaped, row)) for row in table.rows)
    return Table(tuple(map(_escape, table.columns)), rows, _escape(table.title))


def _fenced(code: str) -> str:
    """Return a code block, fenced with more backticks than the code has in a row."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}sh\n{code}\n{fence}"
