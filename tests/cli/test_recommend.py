"""``topofl recommend``."""

import csv
import json
from typing import Any

import pytest

from tests.cli.commands import fails
from topofl import TopologySequence, data, topologies
from topofl.cli import main
from topofl.toolkit import build_topology, parse_spec

WORDS = ["recommend", "--data", "digits", "--n", "12", "--max-degree", "3", "--static"]


def test_it_is_that_of_python(capsys, tmp_path):
    path = tmp_path / "candidates.csv"
    assert main([*WORDS, "--lr", "0.5", "--json", "--csv", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    found = topologies.recommend(clients, max_degree=3, static=True, lr=0.5)
    assert [row["code"] for row in rows] == [c.code for c in found.candidates]
    assert rows[0]["rounds / complete"]["mean"] == found.best.rounds
    with path.open() as file:
        written = [float(row["deviation"]) for row in csv.DictReader(file)]
    assert written == [c.deviation for c in found.candidates]


def test_it_prints_reasons_and_warnings(capsys):
    assert main([*WORDS, "--per-node", "3", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "candidates within max_degree=3" in printed
    assert "1. topologies." in printed
    assert 'In a configuration file: topology = "' in printed
    assert "\nH_10: label heterogeneity of neighborhoods that is left" in printed
    assert "no model given" not in printed  # MB are those of logistic regression
    assert "Warning: the predicted rounds are fitted to a number of nodes" in printed


@pytest.mark.slow
def test_specs_build_the_same_graphs():
    clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    found = topologies.recommend(clients, max_degree=4, directed=True)
    assert any("(" in one.spec for one in found.candidates)  # matchings of a base graph
    for one in found.candidates:
        name, arguments = parse_spec(one.spec)
        built = build_topology(name, arguments, clients.label_counts).value
        changing = isinstance(built, TopologySequence)
        assert changing == isinstance(one.topology, TopologySequence)
        for t in range(3 if changing else 1):
            pair: list[Any] = [g.at(t) if changing else g for g in (built, one.topology)]
            assert (pair[0].adjacency != pair[1].adjacency).nnz == 0, one.spec


def test_markdown_and_picture(capsys, tmp_path):
    path = tmp_path / "rounds.png"
    assert main([*WORDS, "--markdown", "--plot", str(path)]) == 0
    captured = capsys.readouterr()
    assert "| graph | rounds / complete |" in captured.out
    assert "\nWarning: the predicted rounds are fitted to" in captured.out
    assert "- H_10: label heterogeneity" in captured.out
    assert path.stat().st_size > 1000


def test_an_experiment_gives_data_learning_rate_and_rounds(capsys, toml):
    assert main(["recommend", toml, "--max-degree", "2", "--static", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "H_4" in rows[0]  # four rounds
    assert rows[0]["messages"] <= 20
    assert rows[0]["rounds / complete"] is None  # no curve is fitted for four hops
    words = ["--max-bytes", str(2600 * 20), "--static", "--rounds", "9", "--json"]
    assert main(["recommend", toml, *words]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["MB"] <= 0.052
    assert "H_9" in row


def test_noise_is_measured_with_the_batch_size_of_the_experiment(toml, monkeypatch, capsys):
    given = []

    def recorded(clients, **options):
        given.append(options)
        return topologies.recommend(clients, **options)

    monkeypatch.setattr("topofl.cli.graphs.ranked", recorded)
    for budget in (["--max-messages", "20"], ["--max-bytes", str(2600 * 20)]):
        assert main(["recommend", toml, *budget, "--static"]) == 0
    assert main(["recommend", toml, "--max-degree", "2", "--static", "--batch-size", "5"]) == 0
    assert [one["batch_size"] for one in given] == [8, 8, 5]
    assert all(one["model"] is not None for one in given)
    assert main([*WORDS[:5], "--max-bytes", "90000", "--static"]) == 0
    assert given[-1]["batch_size"] is None
    capsys.readouterr()


def test_the_format_of_a_picture_is_checked_before_anything_is_computed(capsys, monkeypatch):
    monkeypatch.setattr("topofl.cli.graphs.ranked", None)  # calling it would fail
    printed = fails(capsys, 2, *WORDS, "--plot", "x.foo")
    assert "`--plot` must end in .png, .pdf or .svg, got x.foo" in printed


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--data", "digits", "--max-degree", "2"], "`--n` must be given"),
        (["--data", "digitz", "--n", "12", "--max-degree", "2"], "did you mean 'digits'?"),
        (["--max-degree", "2"], "exactly one of CONFIG.toml and `--data` must be given, got nei"),
        (["--data", "digits", "--n", "12"], "one of the arguments --max-degree"),
        ([*WORDS[1:], "--max-bytes", "5"], "not allowed with argument"),
        ([*WORDS[1:5], "--max-messages", "3", "--static"], r"at least 2(n-1)=22"),
    ],
)
def test_mistakes(capsys, words, text):
    assert text in fails(capsys, 2, "recommend", *words)
