"""Write the report of a paper, or of one of its figures."""

import time
from collections.abc import Sequence
from pathlib import Path

from topofl.runs.identity import versions

from ..arguments import machine
from ..figure import Figure
from ..paper import Paper
from ..results import LeftOut, Result, panels_lacking
from ..setting import Setting
from . import Report, write
from .contents import command_of


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
        command=command_of(name, figures, setting),
        scale=setting.scale,
        seeds=setting.seeds,
        machine=machine(),
        versions=versions(),
        generated=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        terms=paper.terms,
    )
    return write(report, out / setting.scale, f"{name}-report")
