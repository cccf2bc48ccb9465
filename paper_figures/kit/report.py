"""The report of a paper, as one self-contained HTML page and as Markdown with pictures."""

import base64
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from topofl import NotApplicable, Table
from topofl.report import page_template, replacing
from topofl.runs.cost import versions
from topofl.toolkit import machine

from . import contents
from .arguments import text_of
from .claims import (
    CHECK,
    FAILS,
    HOLDS,
    OUR_QUESTION,
    PAPER,
    UNDECIDED,
    shown_number,
    shown_statement,
)
from .contents import Report
from .markdown import to_markdown
from .paper import Figure, Paper, Setting
from .reproduce import LeftOut, Result, panels_lacking


def write_report(
    name: str,
    paper: Paper,
    figures: Sequence[Figure],
    results: Sequence[Result],
    left_out: Sequence[LeftOut],
    setting: Setting,
    out: Path,
) -> tuple[Path, Path]:
    """Write the report of a paper or figure as HTML and Markdown, and return the paths."""
    report = Report(
        paper.title,
        paper.citation,
        tuple(results),
        {each.figure.id: each.reason for each in left_out}
        | {r.figure.id: text for r in results if (text := panels_lacking(r))}
        | (dict(paper.absent) if name == paper.id else {}),
        command=contents.command_of(name, figures, setting),
        scale=setting.scale,
        seeds=setting.seeds,
        machine=machine(),
        versions=versions(),
        generated=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        terms=paper.terms,
    )
    return write(report, out / setting.scale, f"{name}-report")


def write(report: Report, folder: Path, stem: str) -> tuple[Path, Path]:
    """Write ``stem.html`` and ``stem.md`` into a folder and return their paths.

    Each file is written atomically; nothing is written if a picture is missing.

    Raises
    ------
    FileNotFoundError
        If the folder or a picture does not exist.
    OSError
        If a file cannot be written.
    """
    texts = {
        folder / f"{stem}.html": to_html(report),
        folder / f"{stem}.md": to_markdown(report, folder),
    }
    for path, text in texts.items():
        with replacing(path) as file:
            file.write(text)
    page, markdown = texts
    return page, markdown


def to_html(report: Report) -> str:
    """Return a report as one HTML page with embedded pictures, without scripts or other files.

    Raises
    ------
    FileNotFoundError
        If a picture does not exist.
    """
    # The folder is paper_figures in a checkout, topofl.paper_figures where it is installed.
    template = page_template(__name__.rpartition(".")[0], "report.html")
    return template.render(
        report=report,
        verdicts=contents.VERDICTS,
        headings=contents.HEADINGS,
        marks={HOLDS: "✓", FAILS: "✗", UNDECIDED: "?"},
        summary=contents.summary_of(report),
        warnings=contents.warnings_of(report),
        overview=_grid(contents.overview_of(report), "report:overview"),
        shared=contents.SHARED,
        sections=[_section(report, result) for result in report.results],
        judged=[*contents.JUDGED, *report.terms],
        shown_statement=shown_statement,
        paper=PAPER,
        apart=contents.APART,
        others=report.claims(CHECK, OUR_QUESTION),
        facts=contents.facts_of(report),
        made=[contents.made_text(made) for made in report.made],
    )


def _section(report: Report, result: Result) -> Mapping[str, Any]:
    """Return a figure for the template: result and tallies, picture, claims, tables and cost."""
    name = result.figure.id  # derived ids contain a colon, which ids of figures cannot
    data = result.picture.read_bytes()
    with Image.open(result.picture) as image:
        # The picture's 7-point letters become as large as the page's small ones.
        scale = 130 / image.info.get("dpi", (130, 130))[0]
        width, height = (round(scale * length) for length in image.size)
    return {
        "result": result,
        "tally": contents.tally_of(result.claims),
        "source": f"data:image/png;base64,{base64.b64encode(data).decode()}",
        "width": width,
        "height": height,
        "alt": contents.alt_of(result),
        "claims": [
            (f"{name}:claim-{k}", claim, shown_number(claim))
            for k, claim in enumerate(result.claims, start=1)
        ],
        "tables": [_grid(table, f"{name}:table-{k}") for k, table in enumerate(result.tables, 1)],
        "cost": contents.cost_of(report, result),
    }


def _grid(table: Table, key: str) -> Mapping[str, Any]:
    """Return a table for the template: cells with the numbers of reasons, or 0, and the reasons."""
    missing = [cell for row in table.rows for cell in row if isinstance(cell, NotApplicable)]
    reasons = list(dict.fromkeys(cell.reason for cell in missing))

    def note(cell: Any) -> int:
        return reasons.index(cell.reason) + 1 if isinstance(cell, NotApplicable) else 0

    return {
        "id": key,
        "caption": table.title,
        "columns": table.columns,
        "numeric": [
            not any(isinstance(row[k], str) for row in table.rows)
            for k in range(len(table.columns))
        ],
        "rows": [
            [{"text": text_of(cell), "note": note(cell)} for cell in row] for row in table.rows
        ],
        "reasons": reasons,
    }
