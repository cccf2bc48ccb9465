"""What the pages of the documentation show works as it stands there."""

import itertools
import re
import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from topofl import algorithms
from topofl.algorithms.contract import round
from topofl.cli import main

FOLDER = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.md"))
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
def test_python_runs(page, elsewhere):
    exec(compile(code(page), page, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_shell_commands_run(page, elsewhere, capsys):
    write_files(page, elsewhere)
    for line in "".join(blocks(page, "sh")).splitlines():
        command, *words = shlex.split(line, comments=True)
        assert (command, main(words)) == ("topofl", 0), line
    capsys.readouterr()


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_known_and_links_lead_somewhere(page):
    text = (FOLDER / page).read_text()
    known = {"python", "toml", "sh", "text"}
    assert set(re.findall(r"^```(\w+)$", text, flags=re.MULTILINE)) <= known
    folder = (FOLDER / page).parent
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert (folder / target).exists(), target


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("results/demo.md", "analysis/results/demo/table.md"),
        ("results/benchmarks.md", "analysis/results/benchmark/cpu-training.md"),
        ("results/benchmarks.md", "analysis/results/benchmark/cpu-graphs.md"),
    ],
)
def test_first_tables_are_those_of_the_results(page, path):
    lines = (FOLDER.parent / path).read_text().splitlines()
    rest = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), rest))
    assert len(rows) > 4
    assert [row for row in rows if row not in (FOLDER / page).read_text().splitlines()] == []


TABLES = {
    "Attributes and methods of `models`, the first argument of `apply`:": round.Models,
    "Attributes and methods of `round`, its last argument:": round.Round,
    "The parts of a `Phase`:": algorithms.Phase,
    "The parts of a `Term` of local steps:": algorithms.Term,
    "The parts of a `GradientPoint`, at which gradients are taken:": algorithms.GradientPoint,
}


@pytest.mark.parametrize("title", TABLES)
def test_tables_name_all_that_a_method_can_use(title):
    table = (FOLDER / "write-your-own-method.md").read_text().split(title)[1].split("\n\n")[1]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    of = TABLES[title]
    wanted = getattr(of, "_fields", None) or [name for name in vars(of) if not name.startswith("_")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(wanted)
