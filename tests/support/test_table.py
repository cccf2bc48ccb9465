"""Tables as text, Markdown, LaTeX, HTML, pandas and CSV."""

import io
import re
import sys
import unicodedata

import numpy as np
import pandas as pd
import pytest

from topofl._support.table import NotApplicable, Spread, Table
from topofl._support.text import printable

TABLE = Table(
    ("graph", "nodes", "gap & co", "accuracy"),
    (
        ("ring_16", 16, 0.0507468, Spread(0.91237, 0.9, 0.92)),
        ("D-Cliques | 10%", 12345, 123456.7, NotApplicable("not <run>")),
        ("[star]", np.int64(1), NotApplicable("n = 1"), NotApplicable("not <run>")),
    ),
    title="A & B",
)


def test_text():
    assert str(TABLE).splitlines() == [
        "A & B",
        "graph             nodes  gap & co              accuracy",
        "---------------  ------  --------  --------------------",
        "ring_16              16   0.05075  0.9124 (0.9 to 0.92)",
        "D-Cliques | 10%  12,345   123,457               n/a [1]",
        "[star]                1   n/a [2]               n/a [1]",
        "[1] not <run>",
        "[2] n = 1",
    ]
    assert repr(TABLE) == str(TABLE)


NUMBERS = [
    *((1234567, "1,234,567"), (-1234, "-1,234"), (0.5, "0.5"), (1 / 3, "0.3333")),
    *((9999.4, "9999"), (12345.6, "12,346"), (1.23456e-7, "1.235e-07"), (1e20, "1e+20")),
    *((float("inf"), "inf"), (np.float32(0.25), "0.25"), (True, "True"), ("text", "text")),
    (Spread(10000.4, 1, 20000), "10,000 (1 to 20,000)"),
]


def test_numbers():
    for value, expected in NUMBERS:
        assert str(Table(("x",), ((value,),))).splitlines()[-1] == expected


def test_markdown():
    assert TABLE.to_markdown().splitlines() == [
        "**A & B**",
        "",
        "| graph | nodes | gap & co | accuracy |",
        "| :--- | ---: | ---: | ---: |",
        "| ring_16 | 16 | 0.05075 | 0.9124 (0.9 to 0.92) |",
        r"| D-Cliques \| 10% | 12,345 | 123,457 | n/a [1] |",
        "| [star] | 1 | n/a [2] | n/a [1] |",
        "",
        "[1] not <run>",
        "",
        "[2] n = 1",
    ]


def test_latex_is_escaped():
    assert TABLE.to_latex().splitlines() == [
        r"A \& B\par",
        r"\begin{tabular}{lrrr}",
        r"\hline",
        r"graph & nodes & gap \& co & accuracy \\",
        r"\hline",
        r"ring\_16 & 16 & 0.05075 & 0.9124 (0.9 to 0.92) \\",
        r"D-Cliques | 10\% & 12,345 & 123,457 & n/a {[}1] \\",
        r"{[}star] & 1 & n/a {[}2] & n/a {[}1] \\",
        r"\hline",
        r"\end{tabular}",
        r"\par {[}1] not \textless{}run\textgreater{}",
        r"\par {[}2] n = 1",
    ]
    special = Table(("c",), ((r"\ ~ ^ { } $ #",),)).to_latex()
    assert r"\textbackslash{} \textasciitilde{} \textasciicircum{} \{ \} \$ \#" in special


def test_asterisks_after_the_end_of_a_line_remain_in_latex():
    rows = Table(("*c",), (("*a",), ("*b",))).to_latex().splitlines()
    assert [row for row in rows if "*" in row] == [r"{*}c \\", r"{*}a \\", r"{*}b \\"]
    wrapped = Table(("c",), ((f"{'x' * 39} *b",),)).to_latex()
    assert r"\\ {*}b" in wrapped


def test_long_names_have_several_lines_in_latex():
    name = "dcliques(label_counts[20x10], clique_size=10, inter='ring', seed=0)"
    row = Table(("graph", "gap"), ((name, 0.5),)).to_latex().splitlines()[4]
    lines = [r"dcliques(label\_counts{[}20x10],", r"clique\_size=10, inter='ring', seed=0)"]
    assert row == r"\shortstack[l]{" + r" \\ ".join(lines) + r"} & 0.5 \\"


def test_html_is_escaped():
    text = TABLE._repr_html_()
    assert text.startswith("<table><caption>A &amp; B</caption><tr><th>graph</th>")
    assert "<td>0.9124 (0.9 to 0.92)</td>" in text
    assert text.endswith("</table><p>[1] not &lt;run&gt;</p><p>[2] n = 1</p>")
    assert "caption" not in Table(("c",), ())._repr_html_()


def test_pandas_keeps_numbers_and_splits_spreads():
    frame = TABLE.to_pandas()
    spread = ["accuracy", "accuracy low", "accuracy high"]
    assert list(frame.columns) == ["graph", "nodes", "gap & co", *spread]
    assert frame["nodes"].tolist() == [16, 12345, 1]
    assert frame["accuracy high"][0] == 0.92
    assert frame["accuracy"].isna().tolist() == [False, True, True]
    assert pd.api.types.is_float_dtype(frame["gap & co"])


def test_csv(tmp_path):
    text = TABLE.to_csv(tmp_path / "table.csv")
    assert text.splitlines()[1] == "ring_16,16,0.0507468,0.91237,0.9,0.92"
    assert text.splitlines()[3] == "[star],1,,,,"
    assert (tmp_path / "table.csv").read_bytes() == text.encode()
    assert TABLE.to_csv() == text


HOSTILE = Table(
    ("=cmd|' /C calc'!A0", "a\nb", "x\x1b[2J"),
    (
        ("=1+1", -0.5, NotApplicable("be\x07ll\nand line")),
        ("+1+1", -0.25, 1),
        ("-2+3", float("-inf"), 2),
        ("@SUM(A1)", 1, 3),
        ("\t=1", 1, 3),
        ("\r=1", 1, 3),
        ("-0.5", 1, 3),
        ("a\\|b|c", 1, 3),
        ("two\nlines\u2028three", 1, 3),
        ("\x1b]0;title\x07\x9b2J\u202e\udc80", 1, 3),
    ),
    title="ti\ntle\x1b[31m",
)


def test_no_cell_of_csv_is_a_formula(tmp_path):
    text = HOSTILE.to_csv()
    frame = pd.read_csv(io.StringIO(text), dtype={0: str})
    cells = frame.iloc[:, 0].tolist()
    assert frame.columns[0] == "'=cmd|' /C calc'!A0"
    assert cells[:7] == ["'=1+1", "'+1+1", "'-2+3", "'@SUM(A1)", r"\t=1", r"\r=1", "-0.5"]
    assert frame.iloc[:3, 1].tolist() == [-0.5, -0.25, -np.inf], "numbers stay numbers"
    assert HOSTILE.column(HOSTILE.columns[0])[0] == "=1+1"


@pytest.mark.parametrize("write", [str, repr, Table.to_markdown, Table.to_latex, Table._repr_html_])
def test_control_characters_are_escaped(write):
    text = write(HOSTILE)
    hostile = ("Cc", "Cs", "Zl", "Zp", "Cf")
    assert not [c for c in text if unicodedata.category(c) in hostile and c != "\n"]
    plain = write(Table(("a", "b", "c"), (("d", 1, 3),)))
    one = write(Table(HOSTILE.columns, HOSTILE.rows[8:9]))
    assert len(one.splitlines()) == len(plain.splitlines())
    text.encode()


def test_vertical_bars_in_markdown_are_escaped():
    rows = [line for line in HOSTILE.to_markdown().splitlines() if line.startswith("| ")]
    for row in rows:
        bare = re.sub(r"\\.", "", row)  # without what a backslash stands before
        assert bare.count("|") == 4, row


PRINTED = {
    "ring(n=4), größer ✓": "ring(n=4), größer ✓",
    "a\tb\r\n": r"a\tb\r\n",
    "\x1b[2J\x7f\x9b": r"\x1b[2J\x7f\x9b",
    "\u202eabc\u2069": r"\u202eabc\u2069",
    "\udc80": r"\udc80",
    "👩\u200d🔬": "👩\u200d🔬",
}


def test_printable():
    for text, shown in PRINTED.items():
        assert printable(text) == printable(shown) == shown


def test_tables_without_rows_or_title():
    empty = Table(("a", "b"), ())
    assert str(empty) == "a  b\n-  -"
    assert empty.to_markdown().splitlines()[0] == "| a | b |"
    assert empty.to_latex().startswith(r"\begin{tabular}")
    assert empty.to_csv() == "a,b\n"


def test_is_frozen_and_compares_by_value():
    assert TABLE.column("nodes") == (16, 12345, 1)
    assert Table(["a"], [[1]]) == Table(("a",), ((1,),))
    with pytest.raises(AttributeError):
        TABLE.title = "other"


def test_pandas_is_only_imported_when_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert str(TABLE)
    assert TABLE.to_latex()
    with pytest.raises(ImportError):
        TABLE.to_pandas()


def test_wide_tables_are_transposed_if_that_is_narrower():
    columns = ("graph", *(f"a long name of a number {k}" for k in range(8)))
    last = (*range(7), NotApplicable("because " * 40))
    table = Table(columns, (("ring", *range(8)), ("ring", *last)), title="two")
    lines = str(table).splitlines()
    assert lines[1].split() == ["graph", "ring", "ring", "(2)"]
    assert lines[3].split()[-2:] == ["0", "0"]
    assert lines[-2].split()[-3:] == ["7", "n/a", "[1]"]
    assert lines[-1].startswith("[1] because because")
    assert table.transposed().columns == ("graph", "ring", "ring (2)")
    assert str(table) == str(table.transposed())
    assert "<tr><th>graph</th><th>ring</th><th>ring (2)</th>" in table._repr_html_()
    narrow = Table(("graph", "edges", "more"), (("ring", 4, 5),))
    assert str(narrow).splitlines()[0] == "graph  edges  more"
    rows = tuple((f"a graph of a long name, number {k}", 1, 2, 3, 4) for k in range(30))
    many = Table(columns[:5], rows)
    assert str(many).splitlines()[0].startswith("graph ")
    assert len(str(many).splitlines()) == 32  # turned round it would be wider still


def test_columns_are_selected_in_the_order_given():
    table = Table(("graph", "edges", "gap"), (("ring", 4, 0.5), ("star", 3, 0.25)), "graphs")
    found = table.select(["gap", "graph"])
    assert found == Table(("gap", "graph"), ((0.5, "ring"), (0.25, "star")), "graphs")
    assert table.select("edges").rows == ((4,), (3,))
    assert Table(("a", "b"), ()).select(["b"]).columns == ("b",)
