"""Write the numbers, tables and figures of the technical report from the results in the tree.

``python -m analysis.report`` reads ``analysis/results`` and writes ``numbers.tex``, ``tables/`` and
``figures/`` into ``analysis/report``, as ``numbers.toml`` there declares. The prose is
``report.tex``, in which no measured number is typed. ``make report`` does both this and
``report.pdf``, for which it needs LaTeX. A study without results has no tables, and the report says
that it has not been run to its end.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .program import parser_of

PROSE = ("report.tex", "report.bib")
"""Sources of the report that are written by hand."""

CELL = re.compile(r"(\[?)([+-]?[\d.]+)(?: \((.+?) to (.+?)(?:; \d+)?\))?(\]?)(.*)")
"""Cells of tables: an estimate, maybe with an interval, a number of graphs, and a verdict."""

LATEX = (
    (r"([&%#_])", r"\\\1"),
    (r"\b([HN])\\_(\d+|inf)\b", r"$\1_{\2}$"),
    (r"_\{inf\}", r"_\\infty"),
    (r"n\\_W(\([\d.]+\))", r"$n_W\1$"),
    (r"(?<![\w.$-])[+-][\d.,]*\d", r"$\g<0>$"),
    (r" (\\%)", r"\\,\1"),
    ("²", "$^2$"),
    (" ± ", r" $\\pm$ "),
)
"""Replacements that turn text of results into LaTeX, in order."""


def latex(text: str) -> str:
    """Return text of a table of results as LaTeX."""
    for pattern, replacement in LATEX:
        text = re.sub(pattern, replacement, text)
    return text


def markdown_tables(path: Path) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the heading and the rows of each table of a Markdown file."""
    heading, block = "", list[list[str]]()
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            block.append([cell.strip().replace("\\|", "|") for cell in cells])
        elif block:
            names, _, *rows = block
            yield heading, [dict(zip(names, row, strict=True)) for row in rows]
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def table_of(path: Path, heading: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of all tables under a heading that have these columns."""
    return [
        row
        for own, rows in markdown_tables(path)
        for row in rows
        if own == heading and set(columns) <= set(row)
    ]


def part_of(cell: str, take: str = "whole") -> str:
    """Return the "whole" of a cell, its "estimate", its "interval", or "both" without the rest."""
    found = CELL.fullmatch(cell)
    if take == "whole" or found is None:
        return cell
    begin, estimate, low, high, end, _ = found.groups()
    interval = "" if low is None else f"{low} to {high}"
    both = f"{begin}{estimate} ({interval}){end}" if interval else f"{begin}{estimate}{end}"
    return {"estimate": f"{begin}{estimate}{end}", "interval": interval, "both": both}[take]


@cache
def records_of(path: Path) -> pd.DataFrame:
    """Return the records of a JSON or CSV file."""
    return (
        pd.DataFrame(json.loads(path.read_text())) if path.suffix == ".json" else pd.read_csv(path)
    )


def selected(path: Path, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the records with the given values, or with one of those of a list."""
    found = records_of(path)
    for name, wanted in where.items():
        found = found[found[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    if found.empty:
        raise ValueError(f"{path} has no record with {where}")
    return found


def reduced(path: Path, group: Mapping[str, Any], where: Mapping[str, Any]) -> str:
    """Return what a group of numbers takes from the records of a file."""
    records = selected(path, where)
    for name, limit in group.get("below", {}).items():
        records = records[records[name] < limit]
    if group["take"] == "count":
        return f"{len(records):,}"
    if group["take"] == "distinct":
        return f"{len(records[group['of']].drop_duplicates()):,}"
    values = records[group["column"]]
    if group["take"] == "mean":
        values = pd.Series([values.mean()])
    elif group["take"] == "means":
        values = records.groupby(group["by"])[group["column"]].mean()
    ends = (f"{value:{group.get('format', '.2f')}}" for value in (values.min(), values.max()))
    return " to ".join(dict.fromkeys(ends))


def number_of(results: Path, group: Mapping[str, Any], row: Any) -> str:
    """Return a number as it is declared."""
    path = results / group["file"]
    if group["take"] == "pattern":
        found = re.search(row, path.read_text(encoding="utf-8"))
        if found is None:
            raise ValueError(f"{path} has nothing like {row}")
        return found[1]
    if path.suffix != ".md":
        return reduced(path, group, row)
    names = [row] if isinstance(row, str) else row
    for cells in table_of(path, group["table"], group["column"]):
        if [*cells.values()][: len(names)] == names:
            return part_of(cells[group["column"]], group["take"]).strip("[]")
    raise ValueError(f"{path}, {group['table']}: no row {names}")


def verdicts_said(path: Path) -> str:
    """Return a sentence on the verdicts of a study."""
    if not path.exists():
        return "This study has not been run to its end."
    states = Counter(one["state"] for one in json.loads(path.read_text())["verdicts"])
    words = {"HOLDS": "upheld", "FAILS": "refuted", "OPEN": "open, because runs are missing"}
    said = ", ".join(f"{states[one]} {word}" for one, word in words.items() if states[one])
    return f"The verdicts on its {states.total()} claims are: {said}."


def numbers(results: Path, declared: Mapping[str, Any]) -> str:
    """Return the macros of all numbers, each after the place that it is taken from."""
    lines = []
    for group in declared["numbers"]:
        place = [group["file"], *(group[name] for name in ("table", "column") if name in group)]
        for name, row in group["rows"].items():
            lines.append("% " + "; ".join([*place, f"{row}", group["take"]]))
            lines.append(f"\\newcommand{{\\{name}}}{{{latex(number_of(results, group, row))}}}")
    for name, folder in declared["verdicts"].items():
        lines.append(f"% {folder}/results.json; verdicts")
        lines.append(
            f"\\newcommand{{\\{name}}}{{{verdicts_said(results / folder / 'results.json')}}}"
        )
    return "\n".join(lines) + "\n"


def stacked(path: Path, table: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of the parts of a table, each after its label."""
    for part in table["parts"]:
        if "label" in part:
            yield [f"\\multicolumn{{{len(table['columns'])}}}{{l}}{{\\textit{{{part['label']}}}}}"]
        turned = table.get("transpose")
        names = [] if turned else [column[0] for column in table["columns"]]
        rows = table_of(path, part["table"], *names)
        if not rows:
            raise ValueError(f"{path} has no table {part['table']!r} with the columns {names}")
        if turned:
            first, *columns = rows[0]
            rows = [{turned: one} | {row[first]: row[one] for row in rows} for one in columns]
        for row in rows:
            if row[table["columns"][0][0]] in table.get("rows", [*row.values()]):
                yield [latex(part_of(row[name], *how)) for name, _, *how in table["columns"]]


def joined(path: Path, table: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield rows with the columns of all parts of a table, by their first column."""
    first, found = table["columns"][0][0], list[dict[str, list[str]]]()
    for part in table["parts"]:
        names = [column[0] for column in part["columns"]]
        rows = table_of(path, part["table"], first, *names)
        found.append({
            row[first]: [latex(part_of(row[name], *how)) for name, _, *how in part["columns"]]
            for row in rows
        })  # fmt: skip
    for name in table.get("rows", found[0]):
        absent = [["--"] * len(part["columns"]) for part in table["parts"]]
        own = (rows.get(name, none) for rows, none in zip(found, absent, strict=True))
        yield [latex(name), *(cell for cells in own for cell in cells)]


def tabular(path: Path, table: Mapping[str, Any]) -> str:
    """Return a table as it is declared."""
    columns = [*table["columns"], *(c for part in table["parts"] for c in part.get("columns", []))]
    rows = (joined if table.get("join") else stacked)(path, table)
    above = [f"{table['above']} \\\\"] if "above" in table else []
    header = " & ".join(column[1] for column in columns)
    body = [" & ".join(row) + " \\\\" for row in rows]
    return tabular_of(table["align"], [*above, f"{header} \\\\"], body)


def tabular_of(align: str, header: Sequence[str], body: Sequence[str]) -> str:
    """Return lines as a LaTeX table."""
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", *header, "\\midrule", *body]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def commands(declared: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the table of which command computes what is in the report."""
    rows = []
    for folder, command in declared["commands"].items():
        uses = []
        for kind, label in (("tables", "Table~\\ref{tab:%s}"), ("figures", "Figure~\\ref{fig:%s}")):
            for name, own in declared[kind].items():
                if own["file"].startswith(f"{folder}/") and f"{kind}/{name}.tex" in names:
                    uses.append(label % name)
        count = sum(
            len(group["rows"])
            for group in declared["numbers"]
            if group["file"].startswith(f"{folder}/") and group["take"] != "pattern"
        )
        uses += [f"{count} numbers of the text"] if count else []
        shown = latex(command).replace("--", "-{}-")
        used = ", ".join(uses) or "nothing yet"
        rows.append(f"{latex(folder)} & \\texttt{{{shown}}} & {used} \\\\")
    header = ["results & command & what it computes here \\\\"]
    ragged = ">{\\raggedright\\arraybackslash}"
    return tabular_of(f"l{ragged}p{{62mm}}{ragged}p{{58mm}}", header, rows)


WIDTH, HEIGHT, ACROSS, DOWN = 42, 27, 54, 42
"""Size of a panel, and distances from a panel to the next, in millimeters."""

Ticks = Sequence[tuple[float, str]]
"""Places between 0 and 1, and labels."""


def panel(
    left: float, bottom: float, ticks: tuple[Ticks, Ticks], points: Sequence[Any]
) -> list[str]:
    """Return commands that draw a frame, its ticks, and symbols at points between 0 and 1."""
    lines = [f"\\put({left},{bottom}){{\\framebox({WIDTH},{HEIGHT}){{}}}}"]
    for place, label in ticks[0]:
        x = left + WIDTH * place
        lines.append(f"\\put({x:.2f},{bottom}){{\\line(0,1){{1}}}}")
        lines.append(f"\\put({x:.2f},{bottom - 1.5}){{\\makebox(0,0)[t]{{\\scriptsize {label}}}}}")
    for place, label in ticks[1]:
        y = bottom + HEIGHT * place
        lines.append(f"\\put({left},{y:.2f}){{\\line(1,0){{1}}}}")
        lines.append(f"\\put({left - 1},{y:.2f}){{\\makebox(0,0)[r]{{\\scriptsize {label}}}}}")
    for x, y, symbol in points:
        place = f"{left + WIDTH * x:.2f},{bottom + HEIGHT * y:.2f}"
        lines.append(f"\\put({place}){{\\makebox(0,0){{\\scriptsize ${symbol}$}}}}")
    return lines


def axis(values: np.ndarray, log: bool = False) -> tuple[Callable[[Any], np.ndarray], Ticks]:
    """Return a function from values to places between 0 and 1, and ticks."""
    scale: Callable[[Any], np.ndarray] = np.log10 if log else np.asarray
    shown = scale(values)
    margin = 0.06 * np.ptp(shown)
    low, high = shown.min() - margin, shown.max() + margin
    if not log:
        step = next(step for step in (0.02, 0.05, 0.1, 0.2) if (high - low) / step < 6)
        ticks = [(value, f"{value:.3g}") for value in step * np.arange(1, 1 / step)]
    elif high - low > 2:
        step = 1 + int((high - low) / 5)
        ticks = [(power, f"$10^{{{power}}}$") for power in range(-10, 4, step)]
    else:
        ticks = [(np.log10(value), f"{value:g}") for value in (0.1, 0.2, 0.5, 1, 2, 5, 10)]
    inside = [((x - low) / (high - low), label) for x, label in ticks if low <= x <= high]
    return lambda values: (scale(values) - low) / (high - low), inside


def scatter(path: Path, figure: Mapping[str, Any]) -> str:
    """Return panels of an outcome over numbers of graphs, with a symbol per family."""
    lines, names = [], figure["x"]
    for row, one in enumerate(figure["panels"]):
        bottom = DOWN * (len(figure["panels"]) - 1 - row) + 9
        records = selected(path, one["where"])
        y, y_ticks = axis(records[figure["y"]].to_numpy())
        for column, name in enumerate(names):
            left, own = ACROSS * column + 12, records[records[name] > 1e-9]
            x, x_ticks = axis(own[name].to_numpy(), log=True)
            symbols = [figure["symbols"][family] for family in own["family"]]
            points = [*zip(x(own[name]), y(own[figure["y"]]), symbols, strict=True)]
            lines += panel(left, bottom, (x_ticks, y_ticks), points)
            label = f"\\makebox(0,0){{\\small {latex(name)}}}"
            lines.append(f"\\put({left + WIDTH / 2},{bottom - 7}){{{label}}}")
        title = f"\\makebox(0,0)[bl]{{\\small {one['label']}}}"
        lines.append(f"\\put(12,{bottom + HEIGHT + 1}){{{title}}}")
    return picture(ACROSS * len(names), DOWN * len(figure["panels"]), lines)


def ratios(path: Path, figure: Mapping[str, Any]) -> str:
    """Return panels with one row per graph and symbols at means of columns, around 1."""
    lines, every = [], records_of(path)
    x, ticks = axis(every[[*figure["symbols"]]].to_numpy().ravel(), log=True)
    for column, one in enumerate(figure["panels"]):
        means = selected(path, one["where"]).groupby("graph", sort=False).mean(numeric_only=True)
        places = 1 - (np.arange(len(means)) + 0.5) / len(means)
        points = [
            (float(x(row[name])), place, symbol)
            for place, (_, row) in zip(places, means.iterrows(), strict=True)
            for name, symbol in figure["symbols"].items()
        ]
        left = (WIDTH + 30) * column + 24
        lines += panel(left, 9, (ticks, [*zip(places, means.index, strict=True)]), points)
        at_one = left + WIDTH * float(x(1.0))
        lines.append(f"\\put({at_one:.2f},9){{\\line(0,1){{{HEIGHT}}}}}")
        label = f"\\makebox(0,0){{\\small {one['label']}}}"
        lines.append(f"\\put({left + WIDTH / 2},2){{{label}}}")
    return picture((WIDTH + 30) * len(figure["panels"]), HEIGHT + 11, lines)


def picture(width: float, height: float, lines: Sequence[str]) -> str:
    """Return commands as a LaTeX picture whose size is in millimeters."""
    size = f"\\begin{{picture}}({width},{height})"
    return "\n".join(["\\setlength{\\unitlength}{1mm}%", size, *lines, "\\end{picture}", ""])


def contents(results: Path, folder: Path) -> dict[str, str]:
    """Return the text of each file that is written, by its name in the folder of the report."""
    declared = tomllib.loads((folder / "numbers.toml").read_text(encoding="utf-8"))
    found = {"numbers.tex": numbers(results, declared)}
    for name, table in declared["tables"].items():
        if (path := results / table["file"]).exists():
            found[f"tables/{name}.tex"] = tabular(path, table)
    for name, figure in declared["figures"].items():
        draw = scatter if "x" in figure else ratios
        found[f"figures/{name}.tex"] = draw(results / figure["file"], figure)
    found["tables/commands.tex"] = commands(declared, [*found])
    texts = [(folder / name).read_text(encoding="utf-8") for name in PROSE]
    total = hashlib.sha256("\0".join([*texts, *found.values()]).encode()).hexdigest()
    return found | {"checksum.tex": f"\\newcommand{{\\SourcesChecksum}}{{{total}}}\n"}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files; returns the exit code."""
    options = parser_of(
        "report",
        __doc__,
        results=(Path("analysis", "results"), "folder of the results"),
        out=(Path("analysis", "report"), "folder of the report, with its prose and numbers.toml"),
    ).parse_args(argv)
    try:
        found = contents(options.results, options.out)
    except (OSError, ValueError) as error:
        print(f"analysis.report: error: {error}", file=sys.stderr)
        return 2
    for path in [*options.out.glob("tables/*.tex"), *options.out.glob("figures/*.tex")]:
        path.unlink()
    for name, text in found.items():
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"written: {len(found)} files in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
