"""A report as one self-contained HTML page."""

import base64
from collections import Counter
from typing import NamedTuple

from PIL import Image

from topofl import NotApplicable, Table
from topofl.report import page_template

from ..arguments import text_of
from ..claims import (
    CHECK,
    FAILS,
    HOLDS,
    OUR_QUESTION,
    PAPER,
    UNDECIDED,
    Claim,
    shown_number,
    shown_statement,
)
from ..results import Result
from .contents import (
    APART,
    HEADINGS,
    JUDGED,
    SHARED,
    VERDICTS,
    Report,
    alt_of,
    cost_of,
    facts_of,
    made_text,
    overview_of,
    summary_of,
    tally_of,
    warnings_of,
)


class Cell(NamedTuple):
    """A table cell: its text, and the number of the reason for a missing value, or 0."""

    text: str
    note: int


class Grid(NamedTuple):
    """A table for the template: rows of cells, numeric columns, and reasons of missing values."""

    id: str
    caption: str
    columns: tuple[str, ...]
    numeric: list[bool]
    rows: list[list[Cell]]
    reasons: list[str]


class Judged(NamedTuple):
    """A claim for the template: the id of its row, the claim, and our number as text."""

    id: str
    claim: Claim
    ours: str


class Section(NamedTuple):
    """A figure for the template: result and tallies, picture and its size, tables and cost."""

    result: Result
    tally: Counter[str]
    source: str
    width: int
    height: int
    alt: str
    claims: list[Judged]
    tables: list[Grid]
    cost: list[tuple[str, str]]


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
        verdicts=VERDICTS,
        headings=HEADINGS,
        marks={HOLDS: "✓", FAILS: "✗", UNDECIDED: "?"},
        summary=summary_of(report),
        warnings=warnings_of(report),
        overview=_grid(overview_of(report), "report:overview"),
        shared=SHARED,
        sections=[_section(report, result) for result in report.results],
        judged=[*JUDGED, *report.terms],
        shown_statement=shown_statement,
        paper=PAPER,
        apart=APART,
        others=report.claims(CHECK, OUR_QUESTION),
        facts=facts_of(report),
        made=[made_text(made) for made in report.made],
    )


def _section(report: Report, result: Result) -> Section:
    name = result.figure.id  # derived ids contain a colon, which ids of figures cannot
    data = result.picture.read_bytes()
    with Image.open(result.picture) as image:
        # The picture's 7-point letters become as large as the page's small ones.
        scale = 130 / image.info.get("dpi", (130, 130))[0]
        width, height = (round(scale * length) for length in image.size)
    return Section(
        result,
        tally_of(result.claims),
        f"data:image/png;base64,{base64.b64encode(data).decode()}",
        width,
        height,
        alt_of(result),
        [
            Judged(f"{name}:claim-{k}", claim, shown_number(claim))
            for k, claim in enumerate(result.claims, start=1)
        ],
        [_grid(table, f"{name}:table-{k}") for k, table in enumerate(result.tables, start=1)],
        cost_of(report, result),
    )


def _grid(table: Table, key: str) -> Grid:
    reasons = list(
        dict.fromkeys(
            cell.reason for row in table.rows for cell in row if isinstance(cell, NotApplicable)
        )
    )
    cells = [
        [
            Cell(
                text_of(cell),
                reasons.index(cell.reason) + 1 if isinstance(cell, NotApplicable) else 0,
            )
            for cell in row
        ]
        for row in table.rows
    ]
    numeric = [
        not any(isinstance(row[k], str) for row in table.rows) for k in range(len(table.columns))
    ]
    return Grid(key, table.title, table.columns, numeric, cells, reasons)
