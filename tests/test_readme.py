"""What the README and the citation file state is true, and what the README shows works."""

import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import yaml

import topofl
from topofl import topologies
from topofl.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


def test_is_short():
    assert len(README.split()) < 900
    (python,) = blocks("python")
    assert len([line for line in python.splitlines() if line]) <= 18


def test_python_runs(capsys):
    exec(compile("\n".join(blocks("python")), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "spectral gap" in printed
    assert re.search(r"^D-Cliques \d+ 0\.\d+$", printed, flags=re.MULTILINE)


def test_shell_commands_run(capsys):
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [command[0] for command in commands] == ["pip", "topofl"]
    assert main(commands[1][1:]) == 0
    printed = capsys.readouterr().out
    for column in ("spectral gap", "neighborhood heterogeneity", "messages per round"):
        assert column in printed
    assert len(printed.splitlines()) < 20  # these, and few others


def test_files_it_points_to_exist():
    local = [t for t in re.findall(r"\]\(([^)]+)\)", README) if not t.startswith("https://")]
    assert len(local) > 10
    for target in local:
        assert (ROOT / target.partition("#")[0]).exists(), target


def test_links_to_other_libraries_are_repositories():
    links = re.findall(r"\]\((https?://[^)]+)\)", README)
    assert len(links) == len(set(links)) == 7
    for link in links:
        assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+", link)


def test_numbers_of_topofl_are_current():
    assert f"| {len(topologies.__all__)} generators" in README


def test_citation_file_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    required = {"cff-version", "message", "title", "authors"}  # of version 1.2.0 of the format
    assert required <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == topofl.__version__
    assert citation["authors"] == [{"name": "The topofl authors"}]
    assert citation["license"] == "MIT"
    assert citation["type"] == "software"
