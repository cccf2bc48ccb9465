"""What the README shows works as it stands there."""

import itertools
import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import pytest

from topofl.cli import main

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text(blocks("toml")[0])
    yield tmp_path
    plt.close("all")


def test_python_runs(elsewhere, capsys):
    exec(compile("\n".join(blocks("python")), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "spectral gap" in printed
    assert "History(clique_averaging on dcliques" in printed
    assert (elsewhere / "runs" / "dcliques" / "meta.json").exists()
    assert list((elsewhere / "runs" / "long" / "checkpoints").glob("*.json"))


def test_shell_commands_run(elsewhere, capsys):
    assert main(["run", "experiment.toml", "--set", "run.rounds=2", "--out", "runs/b"]) == 0
    lines = [
        line.split("  #")[0]
        for block in blocks("sh")
        for line in block.splitlines()
        if line.startswith("topofl ")
    ]
    assert len(lines) == 14
    nx.write_graphml(
        nx.Graph([(0, 1, {"weight": 0.3}), (1, 2, {"weight": 0.6})]), elsewhere / "graph.graphml"
    )
    for line in lines:
        words = shlex.split(line)[1:]
        fewer = {"run.rounds=50": "run.rounds=2", "run.rounds=60": "run.rounds=3"}
        assert main([fewer.get(word, word) for word in words]) == 0, line
    assert (elsewhere / "accuracy.png").exists()
    capsys.readouterr()


def test_files_it_points_to_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (Path(__file__).resolve().parents[1] / target).exists(), target


@pytest.mark.parametrize(
    "path",
    [
        "analysis/results/demo/table.md",
        "analysis/results/benchmark/cpu-training.md",
        "analysis/results/benchmark/cpu-graphs.md",
    ],
)
def test_first_tables_are_those_of_the_results(path):
    lines = (Path(__file__).resolve().parents[1] / path).read_text().splitlines()
    rest = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), rest))
    assert len(rows) > 4
    assert [row for row in rows if row not in README.splitlines()] == []
