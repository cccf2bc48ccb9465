"""``topofl recommend``."""

import csv
from typing import Any

import pytest

from topofl import TopologySequence, data, topologies
from topofl.toolkit import build_topology, parse_spec

LINE = "recommend --data digits --n 12 --max-degree 3 --static"
BYTES = 2600 * 20


@pytest.mark.slow
def test_it_is_that_of_python(rows, tmp_path):
    path = tmp_path / "candidates.csv"
    found = rows(f"{LINE} --lr 0.5 --csv {path}")
    clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    wanted = topologies.recommend(clients, max_degree=3, static=True, lr=0.5)
    assert [row["code"] for row in found] == [c.code for c in wanted.candidates]
    assert found[0]["rounds / complete"]["mean"] == wanted.best.rounds
    with path.open() as file:
        written = [float(row["deviation"]) for row in csv.DictReader(file)]
    assert written == [c.deviation for c in wanted.candidates]


def test_it_prints_reasons_and_warnings(shell):
    printed = shell(f"{LINE} --per-node 3 --seed 1").out
    assert "\nH_10: label heterogeneity of neighborhoods that is left" in printed
    assert "no model given" not in printed  # MB are those of logistic regression
    assert printed.startswith("Warning: the predicted rounds are fitted to a number of nodes")


@pytest.mark.slow
def test_the_first_graphs_are_compared_by_the_command_that_is_printed(shell, rows):
    printed = shell(f"{LINE} --per-node 3 --seed 1")
    found = rows(f"{LINE} --per-node 3 --seed 1")
    (command,) = [line for line in printed.err.splitlines() if "topofl spectral " in line]
    compared = rows(command.partition(", topofl ")[2])
    assert [row["H_10"] for row in compared] == pytest.approx([row["H_10"] for row in found[:3]])
    for row in found:
        name, arguments = parse_spec(row["spec"])
        assert build_topology(name, arguments).value.n == 12  # also without data


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


def test_markdown_and_picture(shell, tmp_path):
    path = tmp_path / "rounds.png"
    printed = shell(f"{LINE} --markdown --plot {path}").out
    assert "| graph | rounds / complete |" in printed
    assert printed.startswith("Warning: the predicted rounds are fitted to")
    assert "- H_10: label heterogeneity" in printed
    assert path.stat().st_size > 1000


def test_an_experiment_gives_data_learning_rate_and_rounds(rows, toml):
    found = rows("recommend small.toml --max-degree 2 --static")
    assert "H_4" in found[0]  # four rounds
    assert found[0]["messages"] <= 20
    assert found[0]["rounds / complete"] is None  # no curve is fitted for four hops
    row = rows(f"recommend small.toml --max-bytes {BYTES} --static --rounds 9")[0]
    assert row["MB"] <= 0.052
    assert "H_9" in row


@pytest.mark.slow
def test_noise_is_measured_with_the_batch_size_of_the_experiment(toml, monkeypatch, shell):
    given = []

    def recorded(clients, **options):
        given.append(options)
        return topologies.recommend(clients, **options)

    monkeypatch.setattr("topofl.cli.graphs.ranked", recorded)
    for budget in ("--max-messages 20", f"--max-bytes {BYTES}", "--max-degree 2 --batch-size 5"):
        shell(f"recommend small.toml {budget} --static")
    assert [one["batch_size"] for one in given] == [8, 8, 5]
    assert all(one["model"] is not None for one in given)
    shell("recommend --data digits --n 12 --max-bytes 90000 --static")
    assert given[-1]["batch_size"] is None


def test_the_format_of_a_picture_is_checked_before_anything_is_computed(fails, monkeypatch):
    monkeypatch.setattr("topofl.cli.graphs.ranked", None)  # calling it would fail
    assert "`--plot` must end in .png, .pdf or .svg, got x.foo" in fails(f"{LINE} --plot x.foo")
