"""The report of a paper, as one self-contained HTML page and as Markdown with pictures."""

import base64
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from topofl import NotApplicable, Table
from topofl.report import page_template, replacing
from topofl.runs.identity import versions
from topofl.toolkit import as_text, machine

from .claims import (
    CHECK,
    CONFIDENCE,
    FAILS,
    HOLDS,
    OUR_QUESTION,
    PAPER,
    UNDECIDED,
    Claim,
    claims_table,
    shown_number,
    shown_statement,
)
from .paper import LOOKS, Figure, Paper, Setting
from .reproduce import LeftOut, Result, panels_lacking
from .sequential import FIRST, MOST

VERDICTS = (HOLDS, FAILS, UNDECIDED)


HEADINGS = {
    HOLDS: "Claims of the paper that hold",
    FAILS: "Claims of the paper that fail",
    UNDECIDED: "Claims of the paper that are undecided",
}


APART = "Our checks and questions"
"""Heading of the claims that are not the paper's."""


NAMES = {CHECK: "Check", OUR_QUESTION: "Ours"}


SCALE_PURPOSES = {
    "smoke": (
        "a test of the code on tiny problems with few rounds; its verdicts say nothing about the "
        "paper"
    ),
    "quick": (
        "evidence from a small computer; differences from the paper's setting are stated with "
        "every figure"
    ),
    "paper": "the paper's own setting; remaining differences are stated with every figure",
    **{
        scale: f"a second look at orderings of methods on {name}, which is not the paper's data"
        for scale, name in LOOKS.items()
    },
}
"""Purpose of each scale."""


JUDGED = (
    f"A claim HOLDS if the {100 * CONFIDENCE:g} % confidence interval of its number's mean over "
    "seeds (Student's t, from the spread between seeds) lies on the claimed side of the threshold. "
    "It FAILS if the interval lies on the other side. It is UNDECIDED if the interval contains the "
    "threshold, or if there is only one seed.",
    "A number that does not depend on training, for example a count of edges, is compared with the "
    "expected number: the claim HOLDS or FAILS without an interval.",
    "A claim on several arms at once, for example “better than all other methods”, combines one "
    "comparison per arm, each of differences between runs of the same seed (an intersection-union "
    f"test). It HOLDS if every comparison holds at {100 * CONFIDENCE:g} %, which needs no "
    "correction, since the claim is false as soon as one of them is. It FAILS if the interval of "
    "at least one of the m comparisons lies on the other side at the level 1 - 0.05/m "
    "(Bonferroni's correction); this is the interval in parentheses. The column “ours” shows the "
    "comparison whose mean is closest to refuting the claim: where arms are compared by "
    "differences, this is the difference of the means, as papers print it.",
    "Thresholds were chosen from the paper's words, before the results of our runs were known, "
    "unless a figure's differences say otherwise; the column “holds if” gives the reason for each "
    "threshold. Each claim is judged separately, without a correction for the number of claims; "
    "many share their runs. The column “ours” is the mean over seeds, with the lowest and the "
    "highest value in parentheses.",
    "The summary counts the paper's own claims. “Check” marks our comparisons with other "
    "implementations, “Ours” our questions beyond the paper: on data that it does not use, or "
    "that it does not ask. Both are judged in the same way and counted separately.",
)
"""Explanation of the verdicts, one paragraph each."""


MOVES = (
    "Seeds were added to the arms of claims that might still be decided, where most decisions per "
    "hour were expected. Verdicts of claims that were decided stay; arms that no undecided claim "
    "needs get no more seeds, so that the arms of a figure may have different numbers of them. Its "
    "picture and tables show the seeds that all of them have."
)
"""Explanation of the tables of added seeds."""


ADDED = (
    f"In this report, claims were judged after every added seed, from {FIRST} to at most {MOST}. "
    "The intervals are therefore wider than Student's: all intervals up to the last seed contain "
    f"the mean together with a probability of {100 * CONFIDENCE:g} %, or of the level that is "
    "stated (a group-sequential t-test with exact critical values: Jennison and Turnbull 1991; "
    "error spending: Lan and DeMets 1983). A claim on several arms is decided by the first "
    "verdicts of its comparisons.",
)
"""What else explains the verdicts if seeds were added."""


SECOND_LOOK = (
    "Where images are too few to decide, the orderings of methods that the paper claims were also "
    "judged on other data sets, with small networks and the paper's settings where they carry "
    "over. Here an ordering is judged by any margin on all data sets: a claim with a threshold "
    "for the size of a difference may fail while its ordering holds. These data are not the "
    "paper's, and their verdicts do not count in the summary."
)
"""Explanation of the table of orderings."""


SHARED = (
    "Runs that several figures share are trained once; each of these figures counts their time."
)


@dataclass(frozen=True)
class Report:
    """The results of one paper, with the information needed to repeat them.

    Reports of equal arguments are equal byte by byte.

    Parameters
    ----------
    title, citation
        Title and citation of the paper.
    results
        Results of the figures in the order of the report.
    left_out
        Why a figure, or some of its panels, were not computed, by the figure's id.
    command
        The command that makes the report.
    scale
        One of ``SCALES`` of :mod:`paper_figures.kit.paper`.
    seeds
        Seeds of every arm's runs.
    machine, versions
        Description of the machine, and versions by name of the program.
    generated
        Time at which the report was made, as text.
    terms
        Definitions of the terms in the claims, one sentence each.
    moves
        Tables of seeds that were added until claims were decided; empty if all arms have the same.
    orderings
        Verdicts on orderings of methods on this and on other data sets; None without others.
    """

    title: str
    citation: str
    results: Sequence[Result]
    left_out: Mapping[str, str]
    command: str
    scale: str
    seeds: Sequence[int]
    machine: str
    versions: Mapping[str, str]
    generated: str
    terms: Sequence[str] = ()
    moves: Sequence[Table] = ()
    orderings: Table | None = None

    @property
    def tally(self) -> Counter[str]:
        """Number of the paper's claims by verdict."""
        return tally_of(self.claims(PAPER))

    def claims(self, *kinds: str) -> list[Claim]:
        """Return the claims of some kinds, in the order of the figures."""
        return [claim for result in self.results for claim in result.claims if claim.kind in kinds]

    @property
    def made(self) -> list[Mapping[str, Any]]:
        """The distinct environments of all figures' runs."""
        return list(
            {made_text(made): made for result in self.results for made in result.made}.values()
        )


def tally_of(claims: Iterable[Claim]) -> Counter[str]:
    """Return the number of claims by verdict."""
    return Counter(claim.verdict for claim in claims)


def summary_of(report: Report) -> str:
    """Return a summary of the verdicts on the paper's claims and, separately, on ours."""
    claims, figures = report.claims(PAPER), len(report.results)
    texts = [
        f"Of {len(claims)} claim{'s' * (len(claims) != 1)} of the paper about {figures} "
        f"figure{'s' * (figures != 1)}, {_counted(claims)}."
    ]
    if count := sum(claim.interval is not None for claim in claims):
        texts.append(
            f"Each of the {count} claims judged by an interval may hold, or fail, by chance in one "
            f"case in forty, so that up to about {count * (1 - CONFIDENCE) / 2:.1f} of them "
            "wrongly hold, and as many wrongly fail."
        )
    for kind, what in (
        (CHECK, "compare topofl with other implementations"),
        (OUR_QUESTION, "are questions that the paper does not ask"),
    ):
        if claims := report.claims(kind):
            texts.append(f"{len(claims)} more (“{NAMES[kind]}”) {what}: {_counted(claims)}.")
    return " ".join(texts)


def _counted(claims: Sequence[Claim]) -> str:
    tally = tally_of(claims)
    hold, fail = (
        f"{tally[v]} {word}{'s' * (tally[v] == 1)}"
        for v, word in ((HOLDS, "hold"), (FAILS, "fail"))
    )
    be = "is" if tally[UNDECIDED] == 1 else "are"
    return f"{hold}, {fail} and {tally[UNDECIDED]} {be} undecided"


def warnings_of(report: Report) -> list[str]:
    """Return warnings that limit the verdicts of a report."""
    warnings = []
    if report.scale == "smoke":
        warnings.append(f"This is the scale “smoke”: {SCALE_PURPOSES['smoke']}.")
    if report.scale in LOOKS:
        warnings.append(f"This is {SCALE_PURPOSES[report.scale]}.")
    if len(report.seeds) == 1:
        warnings.append("There is only one seed, so no claim on training can be decided.")
    return warnings


def overview_of(report: Report) -> Table:
    """Return a table with one row per figure: verdicts, other claims, and cost."""
    columns = ("figure", "what it shows", *VERDICTS, "checks and ours", "runs", "time", "memory")
    rows = []
    for result in report.results:
        tally = tally_of(claim for claim in result.claims if claim.kind == PAPER)
        counts = (*(tally[verdict] for verdict in VERDICTS), len(result.claims) - tally.total())
        cost = (result.runs, _time(result.seconds), _memory(result.megabytes))
        rows.append((result.figure.id, result.figure.title, *counts, *cost))
    return Table(columns, tuple(rows), title="Verdicts and cost of every figure")


def cost_of(report: Report, result: Result) -> list[tuple[str, str]]:
    """Return the training runs, time, memory and environment of a figure, by heading."""
    known = [made_text(made) for made in report.made]
    made = sorted({known.index(made_text(made)) + 1 for made in result.made})
    seeds = sorted({run.seed for run in result.figure.runs(result.setting)})  # maybe more
    facts = {
        "Round by round": _page(result) if result.figure.page is not None else "",
        "Training runs": f"{result.runs:,}",
        "From an earlier report": _from_earlier_report(result) if result.kept else "",
        "Time": f"{_time(result.seconds)}, of all runs and of the figure itself",
        "Memory": f"{_memory(result.megabytes)}, the largest of a process",
        "Seeds": listed(seeds),
        "Made": f"as in note {listed(made)} of “How it was made”" if made else "",
    }
    return [(name, text) for name, text in facts.items() if text]


def _page(result: Result) -> str:
    """Return a description of the figure's page, or the command that writes it."""
    name = result.figure.page_name
    if result.page is not None:
        return f"{name}, next to this page: the graph and the numbers of every round, with a slider"
    command = command_of(result.figure.id, [result.figure], result.setting)
    return f"“{command}”, without --kept, trains the runs and writes {name}, a page with a slider"


def _from_earlier_report(result: Result) -> str:
    text = (
        f"the numbers of {result.kept:,} of these runs, which had the same settings, data and "
        "versions"
    )
    if result.untimed:
        text += f"; time and memory of {result.untimed:,} of these are unknown"
    if result.unnoted:
        text += f"; the environment of {result.unnoted:,} of these was not recorded"
    return text


def command_of(
    name: str, figures: Sequence[Figure], setting: Setting, options: Sequence[str] = ()
) -> str:
    """Return the command that repeats a setting, without the number of processes.

    `options` stand in place of the number of seeds.
    """
    words = ["topofl", "reproduce", name, "--scale", setting.scale]
    words += options or ["--seeds", str(len(setting.seeds))]
    shown = {dataset for figure in figures for dataset in (*figure.datasets, *figure.optional)}
    used = [dataset for dataset in setting.datasets if dataset in shown]
    if setting.scale not in ("smoke", "mnist1d") and used:  # these read no files
        words += ["--data", "DIR"]
    if used and set(used) != shown and setting.scale not in LOOKS:
        words += ["--datasets", ",".join(used)]
    return " ".join([*words, *(["--device", setting.device] if setting.device else []), "--report"])


def facts_of(report: Report) -> list[tuple[str, str]]:
    """Return scale, seeds, machine, versions and time of a report, by heading."""
    return [
        ("Scale", f"{report.scale}: {SCALE_PURPOSES[report.scale]}"),
        ("Seeds", listed(report.seeds)),
        ("Machine", report.machine),
        ("Versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
        ("Generated", report.generated),
    ]


def listed(values: Sequence[Any]) -> str:
    """Return values as text with commas."""
    return ", ".join(map(str, values))


def made_text(made: Mapping[str, Any]) -> str:
    """Return the environment of a run as text, without the time at which it finished."""
    texts = []
    for name, value in made.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {entry}" for key, entry in value.items())
        texts += [f"{name}: {value}"] if name != "finished" else []
    return "; ".join(texts)


def _time(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"


def _memory(megabytes: float) -> str:
    return f"{megabytes:,.0f} MiB" if megabytes < 9999.5 else f"{megabytes / 1024:,.1f} GiB"


def alt_of(result: Result) -> str:
    """Return the alternative text of a picture, which refers to tables for the numbers."""
    panels = [
        f"{table.title or 'Arms'}: {listed(table.column(table.columns[0]))}."
        for table in result.tables
    ]
    where = "The numbers are in the tables below." if result.tables or result.claims else ""
    return " ".join(filter(None, [f"Plot: {result.figure.title}.", *panels, where]))


def _contents(report: Report) -> dict[str, Any]:
    """Return what the templates of both forms show."""
    return {
        "report": report,
        "verdicts": VERDICTS,
        "headings": HEADINGS,
        "summary": summary_of(report),
        "warnings": warnings_of(report),
        "shared": SHARED,
        "judged": [*(ADDED if report.moves else ()), *JUDGED, *report.terms],
        "moves_text": MOVES,
        "orderings_text": SECOND_LOOK,
        "shown_statement": shown_statement,
        "paper": PAPER,
        "apart": APART,
        "others": report.claims(CHECK, OUR_QUESTION),
        "facts": facts_of(report),
        "made": [made_text(made) for made in report.made],
    }


# The folder is paper_figures in a checkout, topofl.paper_figures where it is installed.
_PACKAGE = __name__.rpartition(".")[0]


def to_markdown(report: Report, folder: Path) -> str:
    """Return the report as Markdown for GitHub; links to pictures are relative to `folder`."""
    overview = _escaped(overview_of(report))
    rows = tuple(
        (f"[{row[0]}](#{result.figure.id})", *row[1:])
        for row, result in zip(overview.rows, report.results, strict=True)
    )
    return page_template(_PACKAGE, "report.md.jinja").render(
        _contents(report),
        overview=Table(overview.columns, rows).to_markdown(),
        command=_fenced(report.command),
        md=_escape,
        table=lambda table: _escaped(table).to_markdown(),
        link=lambda one: quote(Path(os.path.relpath(one.picture, folder)).as_posix()),
        alt_of=alt_of,
        cost_of=cost_of,
        claims_table=claims_table,
    )


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


def write_report(
    name: str,
    paper: Paper,
    figures: Sequence[Figure],
    results: Sequence[Result],
    left_out: Sequence[LeftOut],
    setting: Setting,
    out: Path,
    *,
    moves: Sequence[Table] = (),
    options: Sequence[str] = (),
    orderings: Table | None = None,
) -> tuple[Path, Path]:
    """Write the report of a paper or figure as HTML and Markdown, and return the paths.

    `moves` are tables of seeds that were added until claims were decided, by a command with
    `options`; `orderings` has verdicts on other data sets.
    """
    report = Report(
        paper.title,
        paper.citation,
        tuple(results),
        {each.figure.id: each.reason for each in left_out}
        | {r.figure.id: text for r in results if (text := panels_lacking(r))}
        | (dict(paper.absent) if name == paper.id else {}),
        command=command_of(name, figures, setting, options),
        scale=setting.scale,
        seeds=setting.seeds,
        machine=machine(),
        versions=versions(),
        generated=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        terms=paper.terms,
        moves=moves,
        orderings=orderings,
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
    return page_template(_PACKAGE, "report.html").render(
        _contents(report),
        marks={HOLDS: "✓", FAILS: "✗", UNDECIDED: "?"},
        overview=_grid(overview_of(report), "report:overview"),
        moves=[_grid(table, f"report:moves-{k}") for k, table in enumerate(report.moves, 1)],
        orderings=_grid(report.orderings, "report:orderings-1") if report.orderings else None,
        sections=[_section(report, result) for result in report.results],
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
        "tally": tally_of(result.claims),
        "source": f"data:image/png;base64,{base64.b64encode(data).decode()}",
        "width": width,
        "height": height,
        "alt": alt_of(result),
        "claims": [
            (f"{name}:claim-{k}", claim, shown_number(claim))
            for k, claim in enumerate(result.claims, start=1)
        ],
        "tables": [_grid(table, f"{name}:table-{k}") for k, table in enumerate(result.tables, 1)],
        "cost": cost_of(report, result),
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
            [{"text": as_text(cell), "note": note(cell)} for cell in row] for row in table.rows
        ],
        "reasons": reasons,
    }
