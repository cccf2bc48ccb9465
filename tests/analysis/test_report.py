"""The technical report has the numbers of the results, and no others."""

import json
import re
import shutil
from pathlib import Path

import pytest

from analysis import report

ROOT = Path(__file__).parents[2]
FOLDER, RESULTS = ROOT / "analysis" / "report", ROOT / "analysis" / "results"
PROSE = (FOLDER / "report.tex").read_text(encoding="utf-8")
BODY = PROSE.partition(r"\begin{document}")[2]

COMMANDS = {"Bigl", "Bigr", "E", "IfFileExists", "Pi", "R", "SourcesChecksum", "Xi"}
"""Commands with a capital letter that are no numbers."""

SETTINGS = {"0.05", "0.1", "0.5", "0.9", "100", "200", "1,000"}
"""Decimals and numbers of three digits that are settings: rates, decays, partitions and nodes."""


@pytest.fixture(scope="module")
def written():
    return report.contents(RESULTS, FOLDER)


# The report in the tree


def test_files_are_those_that_the_results_give(written):
    patterns = ("numbers.tex", "checksum.tex", "tables/*", "figures/*")
    paths = [path for pattern in patterns for path in FOLDER.glob(pattern)]
    stored = {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in paths}
    assert stored == written, "run make report"


def test_the_pdf_is_that_of_the_sources(written):
    (total,) = re.findall(r"[0-9a-f]{64}", written["checksum.tex"])
    pdf = (FOLDER / "report.pdf").read_bytes()
    assert f"/SourcesSHA256 ({total})".encode() in pdf, "run make report"
    assert len(pdf) < 2**20


def test_every_number_is_used_and_every_used_one_is_defined(written):
    defined = re.findall(r"^\\newcommand{\\(\w+)}", written["numbers.tex"], flags=re.MULTILINE)
    used = set(re.findall(r"\\([A-Z][A-Za-z]*)", PROSE)) - COMMANDS
    assert len(defined) == len(set(defined)) > 50
    assert used == set(defined)


def test_every_number_follows_its_place(written):
    lines = written["numbers.tex"].splitlines()
    for place, number in zip(lines[::2], lines[1::2], strict=True):
        assert number.startswith(r"\newcommand{")
        file, *fields = place.removeprefix("% ").split("; ")
        assert fields
        assert (RESULTS / file).exists() or file.endswith("results.json")


def test_every_table_and_figure_is_in_the_prose(written):
    for name in written:
        kind, _, own = name.removesuffix(".tex").partition("/")
        if own:
            label = {"tables": "tab", "figures": "fig"}[kind]
            assert rf"\input{{{kind}/{own}}}" in BODY
            assert rf"\label{{{label}:{own}}}" in BODY
            assert rf"\ref{{{label}:{own}}}" in BODY + written["tables/commands.tex"]


def test_every_reference_is_cited_and_every_cited_one_is_there():
    keys = re.findall(r"^@\w+{(\w+),", (FOLDER / "report.bib").read_text(), flags=re.MULTILINE)
    cited = {key for keys in re.findall(r"\\cite{([^}]*)}", BODY) for key in keys.split(",")}
    assert len(keys) == len(set(keys))
    assert cited == set(keys)


def test_each_statement_is_proved_and_names_tests_that_exist():
    named = re.findall(r"\\path{(tests/[^}]*)::(\w+)}", BODY)
    assert len(named) >= 15
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")
    statement = r"\\begin{(?:theorem|proposition)}(?:\[[^]]*\])?\s*\\label{([^}]*)}"
    labels = re.findall(statement, BODY)
    checked = BODY.partition("statement & tests")[2].partition(r"\bottomrule")[0]
    assert labels == re.findall(r"\\ref{([^}]*)} & \\path", checked)
    assert len(labels) == BODY.count(r"\begin{proof}") == BODY.count(r"\end{proof}")


def typed(text):
    """Return the decimals, percentages and numbers of three digits that are typed in prose."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    text = re.sub(r"\\(?:path|cite|ref|label|input|eqref|setlength{\\\w+}){[^}]*}", "", text)
    return set(re.findall(r"\d+\.\d+|\d+(?:,\d{3})+|\d{3,}|\d+ ?\\?,?\\%", text))


def test_no_measured_number_is_typed():
    assert typed(BODY) <= SETTINGS
    assert typed(r"in 0.97 of 2,294 pairs, 12\,\% or 3 % 0.5") == {"0.97", "2,294", r"12\,\%"}


# The program


def test_parts_of_cells():
    cell = "-0.987 (-0.993 to -0.969; 47)"
    parts = [report.part_of(cell, one) for one in ("whole", "estimate", "interval", "both")]
    assert parts == [cell, "-0.987", "-0.993 to -0.969", "-0.987 (-0.993 to -0.969)"]
    assert report.part_of("[+0.151 (-0.178 to +0.490; 47)]", "estimate") == "[+0.151]"
    assert report.part_of("+0.77 (+0.53 to +1.01) better", "both") == "+0.77 (+0.53 to +1.01)"
    assert report.part_of("-15.49", "both") == "-15.49"
    assert report.part_of("-", "estimate") == "-"


def test_text_of_results_becomes_latex():
    assert report.latex("|n_W(0.9)| minus |N_10|, D²") == "|$n_W(0.9)$| minus |$N_{10}$|, D$^2$"
    assert report.latex("N_inf of D-SGD, 4-regular") == r"$N_\infty$ of D-SGD, 4-regular"
    assert report.latex("96.6 %, -0.36 to +1,000") == r"96.6\,\%, $-0.36$ to $+1,000$"
    assert report.latex("small_world ± 2") == r"small\_world $\pm$ 2"


@pytest.fixture
def made_up(tmp_path):
    """Return a folder of results with one table under two headings, and with records."""
    row = "| {} | {} (1.0 to 3.0; 4) |\n"
    head = "| graph | \\|x\\| |\n| :--- | :--- |\n"
    text = f"# First\n\n{head}{row.format('a', 2)}{row.format('b', -2)}\n## Second\n\n{head}"
    (tmp_path / "one.md").write_text(text + row.format("b", 7))
    records = [{"graph": graph, "seed": seed, "x": x} for graph, seed, x in
               (("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 5.0), ("b", 1, 7.0))]  # fmt: skip
    (tmp_path / "two.json").write_text(json.dumps(records))
    return tmp_path


def test_numbers_are_found_in_tables_and_records(made_up):
    table = {"file": "one.md", "table": "Second", "column": "|x|", "take": "estimate"}
    assert report.number_of(made_up, table, "b") == "7"
    with pytest.raises(ValueError, match=r"Second: no row \['a'\]"):
        report.number_of(made_up, table, "a")
    with pytest.raises(ValueError, match="Third: no row"):
        report.number_of(made_up, table | {"table": "Third"}, "a")
    group = {"file": "two.json", "column": "x", "by": "graph", "of": ["seed"]}
    wanted = {"count": "4", "distinct": "2", "mean": "3.75", "means": "1.50 to 6.00"}
    for take, number in (wanted | {"extremes": "1.00 to 7.00"}).items():
        assert report.number_of(made_up, group | {"take": take}, {}) == number
    counted = group | {"take": "count", "below": {"x": 5}}
    assert report.number_of(made_up, counted, {"graph": ["a", "b"], "seed": 0}) == "1"
    with pytest.raises(ValueError, match="no record with"):
        report.number_of(made_up, counted, {"graph": "c"})
    quoted = {"file": "one.md", "take": "pattern"}
    assert report.number_of(made_up, quoted, r"a \| (\d) \(") == "2"
    with pytest.raises(ValueError, match="nothing like"):
        report.number_of(made_up, quoted, "absent (.)")


def test_tables_are_stacked_joined_or_transposed(made_up):
    parts = [{"table": "First", "label": "one"}, {"table": "Second", "label": "two"}]
    table = {"align": "lr", "parts": parts, "columns": [["graph", "g"], ["|x|", "$x$", "estimate"]]}
    lines = report.tabular(made_up / "one.md", table).splitlines()
    label = r"\multicolumn{2}{l}{\textit{one}} \\"
    assert lines[:5] == [r"\begin{tabular}{lr}", r"\toprule", r"g & $x$ \\", r"\midrule", label]
    assert [line for line in lines if line.startswith(("a", "b"))] == [
        r"a & 2 \\",
        r"b & $-2$ \\",
        r"b & 7 \\",
    ]
    beside = [{**part, "columns": [table["columns"][1]]} for part in parts]
    joined = table | {"parts": beside, "columns": [["graph", "g"]], "join": True}
    assert report.tabular(made_up / "one.md", joined).splitlines()[4:6] == [
        r"a & 2 & -- \\",
        r"b & $-2$ & 7 \\",
    ]
    with pytest.raises(ValueError, match="no table 'Third'"):
        report.tabular(made_up / "one.md", table | {"parts": [{"table": "Third"}]})
    few = table | {"parts": parts[:1], "rows": ["b"]}
    assert "a & 2" not in report.tabular(made_up / "one.md", few)
    turned = [["of", "of"], ["b", "b", "estimate"]]
    other = table | {"parts": [{"table": "First"}], "transpose": "of", "columns": turned}
    assert report.tabular(made_up / "one.md", other).splitlines()[4] == r"|x| & $-2$ \\"


def test_verdicts_of_a_study_that_is_not_there_are_not_said(tmp_path):
    path = tmp_path / "results.json"
    assert report.verdicts_said(path) == "This study has not been run to its end."
    states = ["HOLDS", "FAILS", "HOLDS", "OPEN"]
    path.write_text(json.dumps({"verdicts": [{"state": one} for one in states]}))
    said = "2 upheld, 1 refuted, 1 open, because runs are missing"
    text = f"The verdicts on its 4 claims are: {said}."
    assert report.verdicts_said(path) == text


def test_the_program_replaces_files_and_reports_what_is_missing(tmp_path, capsys):
    out = shutil.copytree(FOLDER, tmp_path / "report", ignore=shutil.ignore_patterns("*.pdf"))
    (out / "tables" / "old.tex").touch()
    assert report.main(["--results", str(RESULTS), "--out", str(out)]) == 0
    assert not (out / "tables" / "old.tex").exists()
    assert (out / "numbers.tex").read_text() == (FOLDER / "numbers.tex").read_text()
    assert report.main(["--results", str(tmp_path), "--out", str(out)]) == 2
    assert "error: " in capsys.readouterr().err
