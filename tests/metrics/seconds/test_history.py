"""Histories, summaries and tables with the seconds of some hardware."""

import numpy as np
import pytest

import topofl
from tests import problems
from topofl import algorithms, metrics, topologies
from topofl.cli import main
from topofl.history import SECONDS

HARDWARE = {"compute": 0.5, "latency": 0.25, "bandwidth": 1e4}


def run(graph, seed=0, rounds=4):
    return topofl.run(
        algorithms.dsgd(lr=0.5),
        model=problems.linear(),
        clients=problems.equal_clients(8),
        topology=graph,
        rounds=rounds,
        seed=seed,
        evaluation=1,
        progress=False,
    )


def seconds_of(history):
    """Return the closed form for regular graphs."""
    d, degree = history.meta["parameters"], history["messages"][0] / 8
    return 0.5 + 0.25 + degree * 4 * d / 1e4


def test_with_seconds_keeps_all_else():
    history = run(topologies.ring(8))
    timed = history.with_seconds(HARDWARE)
    assert SECONDS not in history.rounds
    assert timed[SECONDS] == pytest.approx(seconds_of(history) * np.arange(1, 5))
    assert timed["accuracy"] is history["accuracy"]
    assert timed.models is history.models
    target = float(history["accuracy"][2].mean())
    done = timed.rounds_to(target)
    assert timed.seconds_to(target) == pytest.approx(done * seconds_of(history))
    again = timed.with_seconds({"compute": 1.0})
    assert again[SECONDS].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert timed.meta["hardware"]["compute"] == "0.5"
    line = timed.plot(x="seconds").axes[0].get_lines()[0]
    assert line.get_xdata() == pytest.approx(seconds_of(history) * np.arange(5))


def test_saved_histories_keep_their_seconds(tmp_path):
    timed = run(topologies.ring(8)).with_seconds(HARDWARE)
    loaded = topofl.History.load(timed.save(tmp_path / "timed"))
    assert loaded[SECONDS].tolist() == timed[SECONDS].tolist()


def test_summaries_have_seconds_of_hardware():
    graphs = (topologies.ring(8), topologies.fully_connected(8))
    runs = {graph.name: [run(graph, seed) for seed in (0, 1)] for graph in graphs}
    summary = topofl.summarize(runs, target=0.0, hardware=HARDWARE)
    assert summary.target is not None
    assert summary.target.costs["seconds"].median.tolist() == [0.0, 0.0]  # before any training
    reached = topofl.summarize(runs, target=0.3, hardware=HARDWARE).target
    assert reached is not None
    rounds, seconds = reached.costs["rounds"].median, reached.costs["seconds"].median
    each = [seconds_of(runs[graph.name][0]) for graph in graphs]
    assert np.isfinite(rounds).all()
    assert (rounds > 0).all()
    assert seconds == pytest.approx(rounds * each)
    without = topofl.summarize(runs, target=0.3).target
    assert without is not None
    assert "seconds" not in without.costs


def test_compare_has_seconds_of_graphs_and_runs():
    history = run(topologies.ring(8))
    size = history.meta["parameters"]
    options = {"about": "cost", "n_parameters": size}
    table = metrics.compare([topologies.ring(8), history], hardware=HARDWARE, **options)
    column = table.column("seconds per round")
    assert column == pytest.approx([seconds_of(history)] * 2)
    assert table.column("bound by") == ("compute", "compute")
    assert "seconds per round" not in metrics.compare([history], **options).columns
    declared = metrics.columns()
    row = dict(zip(declared.column("column"), declared.rows, strict=True))["seconds per round"]
    assert row[1] == "cost"
    assert row[3] == "hardware"
    with pytest.raises(ValueError, match=r"`compute` must be for all nodes, n=8, got shape \(2,\)"):
        metrics.compare([topologies.ring(8)], hardware={"compute": [1.0, 2.0]})


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = run(topologies.ring(8))
    history.save("a")
    text = "Hardware(compute=0.5, latency=0.25, bandwidth=1e4)"
    plot = ["--plot", "t.png", "--x", "seconds"]
    assert main(["compare", "a", "--target", "0.3", "--hardware", text, "--json", *plot]) == 0
    assert "simulated seconds to 0.3" in capsys.readouterr().out
    assert (tmp_path / "t.png").exists()
    groups = ["--group-by", "topology", "--target", "0.3"]
    assert main(["compare", "a", *groups, "--hardware", text, *plot]) == 0
    assert main(["compare", "a", "--hardware", "Hardware(speed=3)"]) == 2
    assert "`hardware` must be such as Hardware(compute=0.1" in capsys.readouterr().err
