"""What the pages of the documentation show works as it stands there."""

import itertools
import re
import shlex
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from topofl import algorithms, topologies
from topofl.algorithms.contract import round
from topofl.cli import main

FOLDER = Path(__file__).resolve().parents[1] / "docs"
MANUSCRIPT = "paper/paper.md"
PAGES = sorted({str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.md")} - {MANUSCRIPT})
WITH_CODE = [page for page in PAGES if "```python\n" in (FOLDER / page).read_text()]
WITH_COMMANDS = [page for page in PAGES if "```sh\n" in (FOLDER / page).read_text()]


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", (FOLDER / page).read_text(), flags=re.DOTALL | re.MULTILINE
    )


def code(page):
    """Return the Python code of a page, on the lines of the page, for messages."""
    inside, lines = False, []
    for line in (FOLDER / page).read_text().splitlines():
        lines.append(line if inside and line != "```" else "")
        inside = line == "```python" or (inside and line != "```")
    return "\n".join(lines)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder, and forget the modules that were written there."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    plt.close("all")


def write_files(page, folder):
    """Write the blocks whose first line is a comment with the name of a file."""
    for language in ("python", "toml", "text"):
        for block in blocks(page, language):
            if named := re.match(r"# (\w+\.\w+)\n", block):
                (folder / named[1]).write_text(block)


@pytest.mark.parametrize("page", WITH_CODE)
@pytest.mark.slow
def test_python_runs(page, elsewhere):
    exec(compile(code(page), page, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", WITH_COMMANDS)
@pytest.mark.slow
def test_shell_commands_run(page, elsewhere, capsys):
    write_files(page, elsewhere)
    for line in "".join(blocks(page, "sh")).splitlines():
        command, *words = shlex.split(line, comments=True)
        assert (command, main(words)) == ("topofl", 0), line
    capsys.readouterr()


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_known_and_links_lead_somewhere(page):
    text = (FOLDER / page).read_text()
    known = {"python", "toml", "sh", "text", "py"}  # py: for other libraries
    assert set(re.findall(r"^```(\w+)$", text, flags=re.MULTILINE)) <= known
    folder = (FOLDER / page).parent
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert (folder / target).exists(), target


def prose(text):
    """Return a page without comments, code, tables and the targets of links."""
    text = re.sub(r"<!--.*?-->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^(?:\||    ).*$|(?<=\])\([^)]*\)", "", text, flags=re.MULTILINE)


DONE_BEFORE = {
    # The method is written, run and checked; each further section is one more question.
    "write-your-own-method.md": "## Phases are played on meta tensors first",
    # The two sums, for readers who only use them. Then a section for each further question: proofs,
    # evidence, which graph to take, and how to design one; the last two need the sums only.
    "what-predicts-convergence.md": "## Derivation",
}
"""Pages with more than 600 words of prose, and the heading before which a reader is done."""


@pytest.mark.parametrize("page", PAGES)
def test_nobody_reads_more_than_600_words_to_do_one_thing(page):
    text = (FOLDER / page).read_text()
    before, heading, after = text.partition(DONE_BEFORE.get(page, "\0"))
    assert (heading != "") == (page in DONE_BEFORE)
    sections = re.split(r"^(?=## )", after, flags=re.MULTILINE)
    words = [len(prose(part).split()) for part in (before, *sections)]
    assert max(words) <= 600, f"{page}: {words}; split it, or link what another page says"


def test_no_two_pages_say_the_same():
    pages_of = defaultdict(set)
    for page in PAGES:
        text = (FOLDER / page).read_text()
        rows = re.findall(r"^\|.{60,}$", text, flags=re.MULTILINE)
        paragraphs = re.split(r"\n\s*\n|^- ", prose(text), flags=re.MULTILINE)
        sentences = [re.split(r"(?<=[.:!?])\s", " ".join(words.split())) for words in paragraphs]
        for said in [*rows, *itertools.chain(*sentences)]:
            if said.startswith("|") or len(said.split()) >= 10:
                pages_of[said].add(page)
    assert {said: pages for said, pages in pages_of.items() if len(pages) > 1} == {}


def test_pages_do_not_repeat_tables_of_the_results():
    results = FOLDER.parent / "analysis" / "results"
    rows = {row for path in results.rglob("*.md") for row in path.read_text().splitlines()}
    rows = {row for row in rows if row.startswith("|") and len(row) > 60}
    assert len(rows) > 100
    for page in PAGES:
        repeated = [row for row in (FOLDER / page).read_text().splitlines() if row in rows]
        assert repeated == [], page


@pytest.mark.parametrize("module", [algorithms, topologies])
def test_the_overview_names_every_method_and_generator(module):
    page = (FOLDER / "overview.md").read_text()
    assert set(module.__all__) - set(re.findall(r"\w+", page)) == set()


TABLES = {
    "Attributes and methods of `models`, the first argument of `apply`:": round.Models,
    "Attributes and methods of `round`, its last argument:": round.Round,
    "The parts of a `Phase`:": algorithms.Phase,
    "The parts of a `Term` of local steps:": algorithms.Term,
    "The parts of a `GradientPoint`, at which gradients are taken:": algorithms.GradientPoint,
    "The parts of an `Objective`, which `train(objective=...)` minimizes in place of the task's "
    "loss:": algorithms.Objective,
}


@pytest.mark.parametrize("title", TABLES)
def test_tables_name_all_that_a_method_can_use(title):
    table = (FOLDER / "write-your-own-method.md").read_text().split(title)[1].split("\n\n")[1]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    of = TABLES[title]
    wanted = getattr(of, "_fields", None) or [name for name in vars(of) if not name.startswith("_")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(wanted)
