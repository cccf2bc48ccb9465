"""Small tables: aligned text, HTML, Markdown, LaTeX, CSV and pandas from one tuple of rows."""

import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topofl._support.check import check_choice, check_path, shown
from topofl._support.files import naming
from topofl._support.text import plain_cell, printable

if TYPE_CHECKING:
    import pandas as pd


LINE_LIMIT = 160
"""Tables with longer lines of text, in characters, are printed transposed."""

HEAD_LIMIT = 28
"""Longer names of rows, in characters, are shortened where they are the headings of columns."""

_LATEX_ESCAPES = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    # after \\, a bare [ would start an optional argument, and a bare * would vanish
    | {"±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}", "[": "{[}", "*": "{*}"}
)

LATEX_WIDTH = 40
"""Most characters of a line in a cell of LaTeX; long names, as of D-Cliques, get several lines."""

_SIGNED = re.compile(r"-[\d.,]+|-?[\d.,]+ ± [\d.,]+")
"""A negative number, or one with the half-width of its interval."""


@dataclass(frozen=True)
class NotApplicable:
    """A cell without a value, printed as ``n/a`` with its reason below the table.

    Examples
    --------
    >>> print(Table(("graph", "SLEM"), (("a", 0.5), ("b", NotApplicable("not connected")))))
    graph     SLEM
    -----  -------
    a          0.5
    b      n/a [1]
    [1] not connected
    """

    reason: str

    def __str__(self) -> str:
        return "n/a"


@dataclass(frozen=True)
class Spread:
    """A mean with the lowest and highest of its values, for example over seeds.

    Examples
    --------
    >>> print(Spread(0.81, 0.78, 0.83))
    0.81 (0.78 to 0.83)
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{as_text(self.mean)} ({as_text(self.low)} to {as_text(self.high)})"


@dataclass(frozen=True, repr=False)
class Table:
    """A table with named columns, printed as text and converted to pandas, CSV and other formats.

    Parameters
    ----------
    columns
        Distinct column names.
    rows
        One tuple per row with one cell per column: text, a number, :class:`Spread` or
        :class:`NotApplicable`.
    title
        Line above the table; empty for none.
    meanings
        Pairs of a column and its meaning, printed below the table, after the reasons of values
        that do not apply.
    notes
        Further lines below it.

    Raises
    ------
    ValueError
        If two columns have the same name, or a row has the wrong number of cells.

    Examples
    --------
    >>> print(Table(("graph", "edges"), (("ring", 4), ("path", NotApplicable("unknown")))))
    graph    edges
    -----  -------
    ring         4
    path   n/a [1]
    [1] unknown
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    meanings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"`columns` must have distinct names, got {self.columns}")
        lengths = [len(row) for row in self.rows]
        if any(k != len(self.columns) for k in lengths):
            raise ValueError(f"`rows` must have {len(self.columns)} cells each, got {lengths}")

    def column(self, name: str) -> tuple[Any, ...]:
        """Return the values of a column, or raise ``ValueError`` for an unknown name."""
        position = self.columns.index(check_choice("name", name, self.columns))
        return tuple(row[position] for row in self.rows)

    def select(self, columns: str | Sequence[str]) -> "Table":
        """Return the table with some of its columns, in the order given, for all output formats.

        Raises
        ------
        ValueError
            If there is no such column, or one is given twice.
        TypeError
            If `columns` is neither a name nor a list of names.

        Examples
        --------
        >>> table = Table(("graph", "edges", "gap"), (("ring", 4, 0.5), ("star", 3, 0.25)))
        >>> print(table.select(["gap", "graph"]))
         gap  graph
        ----  -----
         0.5  ring
        0.25  star
        """
        names = [columns] if isinstance(columns, str) else columns
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"`columns` must be a name of a column or a list of names, got {shown(columns)}"
            )
        if not names:
            raise ValueError("`columns` must name at least one column, got none")
        for k, name in enumerate(names):
            if name in names[:k]:
                raise ValueError(f"`columns` must have distinct names, got {name!r} twice")
        cells = [self.column(check_choice("columns", name, self.columns)) for name in names]
        of = dict(self.meanings)
        known = tuple((name, of[name]) for name in names if name in of)
        rows = tuple(zip(*cells, strict=True))
        return replace(self, columns=tuple(names), rows=rows, meanings=known)

    def transposed(self) -> "Table":
        """Return the transposed table, with the cells of its first column as column names."""
        heads = [as_text(cell) for cell in self.column(self.columns[0])]
        seen: dict[str, int] = {}
        for k, head in enumerate(heads):
            seen[head] = seen.get(head, 0) + 1
            heads[k] = head if seen[head] == 1 else f"{head} ({seen[head]})"
        rows = tuple((name, *self.column(name)) for name in self.columns[1:])
        return replace(self, columns=(self.columns[0], *heads), rows=rows)

    def __str__(self) -> str:
        """Return aligned text; tables wider than 160 characters are transposed if that helps."""
        return self._as_printed().upright()

    def _as_printed(self) -> "Table":
        """Return the table, or its transpose if that has shorter lines and the table is wide."""
        width = self._width()
        if len(self.columns) < 3 or width <= LINE_LIMIT:
            return self
        short = [tuple(_shortened(as_text(row[0])) for row in self.rows)]
        cells = [*short, *(self.column(name) for name in self.columns[1:])]
        turned = replace(self, rows=tuple(zip(*cells, strict=True))).transposed()
        return turned if turned._width() < width else self

    def _width(self) -> int:
        """Return the length of the longest line that is not a note."""
        return max(map(len, self._aligned()[0]))

    def upright(self) -> str:
        """Return aligned text with one line per row, however long."""
        lines, notes = self._aligned()
        return "\n".join([*lines, *notes])

    def _aligned(self) -> tuple[list[str], list[str]]:
        """Return title, heading and rows as aligned lines, and the notes below them."""
        lines, notes, right = self._render()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        pad = [str.rjust if r else str.ljust for r in right]
        wide = ([p(c, w) for p, c, w in zip(pad, line, widths, strict=True)] for line in lines)
        body = ["  ".join(line).rstrip() for line in wide]
        return [printable(self.title), *body] if self.title else body, notes

    __repr__ = __str__

    def to_markdown(self) -> str:
        """Return a Markdown pipe table, followed by footnotes."""
        lines, notes, right = self._render()
        head, *body = [f"| {' | '.join(map(_without_bars, line))} |" for line in lines]
        rule = f"| {' | '.join('---:' if r else ':---' for r in right)} |"
        title = [f"**{printable(self.title)}**", ""] if self.title else []
        return "\n".join([*title, head, rule, *body, *(f"\n{note}" for note in notes)])

    def to_latex(self, *, booktabs: bool = False) -> str:
        """Return a LaTeX ``tabular`` with special characters escaped, and long names in lines.

        It needs no packages or, for the lines of `booktabs`, the package of that name.
        """
        lines, notes, right = self._render()
        head, *body = [" & ".join(map(_as_latex, line)) + r" \\" for line in lines]
        begin = rf"\begin{{tabular}}{{{''.join('r' if r else 'l' for r in right)}}}"
        title = [printable(self.title).translate(_LATEX_ESCAPES) + r"\par"] if self.title else []
        rules = (r"\toprule", r"\midrule", r"\bottomrule") if booktabs else (r"\hline",) * 3
        top, middle, bottom = rules
        rows = [*title, begin, top, head, middle, *body, bottom, r"\end{tabular}"]
        return "\n".join([*rows, *(rf"\par {note.translate(_LATEX_ESCAPES)}" for note in notes)])

    def _repr_html_(self) -> str:
        lines, notes, _ = self._as_printed()._render()
        inner = f"<caption>{html.escape(printable(self.title))}</caption>" if self.title else ""
        for k, line in enumerate(lines):
            tag = "td" if k else "th"
            inner += f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in line)}</tr>"
        return f"<table>{inner}</table>" + "".join(f"<p>{html.escape(note)}</p>" for note in notes)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame; a column ``x`` of Spreads adds columns ``x low`` and ``x high``."""
        import pandas as pd

        data: dict[str, list[Any]] = {}
        for name in self.columns:
            cells = [None if isinstance(c, NotApplicable) else c for c in self.column(name)]
            data[name] = [c.mean if isinstance(c, Spread) else c for c in cells]
            for end in ("low", "high") if any(isinstance(c, Spread) for c in cells) else ():
                own = [getattr(c, end) if isinstance(c, Spread) else c for c in cells]
                data[f"{name} {end}"] = own
        return pd.DataFrame(data)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return comma-separated values in full precision, and write them to `path` if given.

        Text that a spreadsheet would interpret as a formula, such as ``=1+1``, is prefixed with an
        apostrophe; numbers are unchanged.
        """
        frame = self.to_pandas().rename(columns=plain_cell)
        for column in frame.columns[[dtype.kind not in "biuf" for dtype in frame.dtypes]]:
            frame[column] = [plain_cell(c) if isinstance(c, str) else c for c in frame[column]]
        text = frame.to_csv(index=False, lineterminator="\n")
        if path is not None:
            with naming(path):
                check_path("path", path, "file").write_text(text, encoding="utf-8", newline="\n")
        return text

    def _render(self) -> tuple[list[list[str]], list[str], list[bool]]:
        """Return heading and rows as text, their footnotes, and which columns are right-aligned."""
        mark, rows = dict[str, str](), list[list[str]]()
        for row in self.rows:
            for reason in (c.reason for c in row if isinstance(c, NotApplicable)):
                mark.setdefault(reason, f"n/a [{len(mark) + 1}]")
            rows += [[mark[c.reason] if isinstance(c, NotApplicable) else as_text(c) for c in row]]
        right = [not any(isinstance(c, str) for c in self.column(name)) for name in self.columns]
        notes = [f"{m[4:]} {printable(reason)}" for reason, m in mark.items()]
        notes += [printable(f"{name}: {meaning}") for name, meaning in self.meanings]
        notes += map(printable, self.notes)
        return [[printable(name) for name in self.columns], *rows], notes, right


def _shortened(head: str) -> str:
    """Return a heading of at most `HEAD_LIMIT` characters, without its middle if it is longer."""
    if len(head) <= HEAD_LIMIT:
        return head
    return f"{head[: HEAD_LIMIT // 2]}…{head[1 - HEAD_LIMIT // 2 :]}"


def _without_bars(cell: str) -> str:
    """Return a Markdown cell with its vertical bars escaped."""
    return re.sub(r"(\\*)\|", lambda m: m[1] + "\\|" if len(m[1]) % 2 == 0 else m[0], cell)


def _as_latex(cell: str) -> str:
    """Return a cell with special characters escaped, and long ones in several lines.

    Numbers with a sign or ± are formulas.
    """
    if _SIGNED.fullmatch(cell):
        return f"${cell.replace('±', chr(92) + 'pm').replace(',', '{,}')}$"
    lines = textwrap.wrap(cell, LATEX_WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2:
        return cell.translate(_LATEX_ESCAPES)
    inner = r" \\ ".join(line.translate(_LATEX_ESCAPES) for line in lines)
    return rf"\shortstack[l]{{{inner}}}"


def as_text(cell: Any) -> str:
    """Return a cell as text: integers with thousands separators, floats with at least 4 digits.

    Examples
    --------
    >>> as_text(12_345), as_text(1 / 3), as_text("ring")
    ('12,345', '0.3333', 'ring')
    """
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return printable(str(cell))
    if isinstance(cell, Integral):
        return f"{int(cell):,}"
    return f"{float(cell):,.0f}" if 1e4 <= abs(float(cell)) < 1e15 else f"{float(cell):.4g}"
