"""Seconds of the rounds that a run has recorded."""

from dataclasses import replace

import numpy as np
import pytest

import topofl
from tests import problems
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, clocks, data, metrics, topologies
from topofl.cli import main
from topofl.history import SECONDS
from topofl.metrics import Hardware, round_time
from topofl.topology import TopologyError

C, ALPHA, BANDWIDTH = 0.3, 0.7, 1000.0
SERIAL = Hardware(compute=C, latency=ALPHA, bandwidth=BANDWIDTH)
PARALLEL = replace(SERIAL, messages="parallel")
OWN_CLOCK = {"ad_psgd", "fedasync", "fedbuff", "random_walks"}
OTHER_LINKS = {"clique_averaging", "dpfl"}
GRAPHS = {
    "relay_sgd": topologies.path(6),
    "clique_averaging": topologies.with_groups(topologies.ring(6), [[0, 1, 2], [3, 4, 5]]),
}


def run(algorithm, n=6, rounds=2, **options):
    """Return a run of nodes with equally many examples, and therefore equally many steps."""
    settings = {"model": problems.perceptron(), "rounds": rounds, "seed": 0, "progress": False}
    settings |= {"topology": topologies.ring(n) if n > 2 else topologies.path(n)} | options
    clients = data.iid(problems.dataset(), n, seed=0, val_fraction=0.3)
    return topofl.run(algorithm, clients=clients, **settings)


# With one receiver per node, hand-overs of teleportation are taken for exchanges along its ring.
@problems.by_turns(
    2, name=[x for x in algorithms.__all__ if x not in OWN_CLOCK | {"teleportation"}]
)
def test_seconds_are_those_of_the_clock_of_every_algorithm(name):
    # The clock of `timed` sends messages in parallel, and waits for all nodes.
    algorithm = getattr(algorithms, name)(**ALGORITHMS[name].arguments)
    clock = clocks.Clock(compute=C, delay=ALPHA, bandwidth=BANDWIDTH)
    history = run(algorithms.timed(algorithm, clock), topology=GRAPHS.get(name, topologies.ring(6)))
    if name in OTHER_LINKS:
        with pytest.raises(TopologyError, match="`x` must have recorded the links"):
            round_time(history, hardware=PARALLEL)
        return
    found = round_time(history, hardware=PARALLEL)
    assert found.elapsed == pytest.approx(history["simulated_seconds"], rel=1e-9)
    assert found.messages == history["messages"].mean()
    assert found.bytes == pytest.approx(history["bytes"].mean(), rel=1e-15)
    assert found.network_bytes == pytest.approx(found.bytes)


@pytest.mark.parametrize("n", [2, 6])
@pytest.mark.parametrize("name", ["fedavg", "pfedgraph"])
def test_a_server_shares_its_link(name, n):
    # Models of different nodes have different weights in pfedgraph. Two nodes send as many messages
    # to a server as two exchanges along their edge would have.
    history = run(getattr(algorithms, name)(lr=0.1, epochs=1, batch_size=128), n=n)
    size = history["bytes"][0] / history["messages"][0]
    expected = C + 2 * ALPHA + 2 * n * size / BANDWIDTH
    assert history.meta["server"]
    # runs of earlier versions have it in the name of the graph only
    old = {key: value for key, value in history.meta.items() if key != "server"}
    for recorded in (history, replace(history, meta=old))[: 1 + (name == "fedavg")]:
        assert round_time(recorded, hardware=SERIAL).per_round == pytest.approx(expected)


@pytest.mark.parametrize("n", [2, 6])
def test_two_exchanges_along_edges_are_not_a_server(n):
    history = run(algorithms.dfedsam(lr=0.1, epochs=1, batch_size=128, gossip_steps=2), n=n)
    assert "server" not in history.meta
    message = 4 * history.meta["parameters"] / BANDWIDTH
    expected = C + 2 * (ALPHA + min(2, n - 1) * message)
    assert round_time(history, hardware=SERIAL).per_round == pytest.approx(expected)


def test_models_that_are_handed_on_are_not_exchanges_along_the_graph():
    history = run(algorithms.teleportation(lr=0.1, active=4), rounds=3)
    with pytest.raises(TopologyError, match="`x` must have recorded the links"):
        round_time(history, hardware=PARALLEL)


def test_a_table_has_the_reason_of_a_run_that_cannot_be_timed():
    graphs = [run(algorithms.dpfl(lr=0.1, epochs=1)), topologies.ring(6)]
    table = metrics.compare(graphs, about="cost", n_parameters=10, hardware=PARALLEL)
    seconds = table.column("seconds per round")
    assert "some went along other links" in seconds[0].reason
    assert seconds[1] == pytest.approx(C + ALPHA + 40 / BANDWIDTH)


HARDWARE = {"compute": 0.5, "latency": 0.25, "bandwidth": 1e4}


def run_over(graph, seed=0, rounds=4, **options):
    settings = {"model": problems.linear(), "clients": problems.equal_clients(8), "evaluation": 1}
    settings |= {"topology": graph, "rounds": rounds, "seed": seed, "progress": False}
    return topofl.run(algorithms.dsgd(lr=0.5, **options), **settings)


def seconds_of(history):
    """Return the closed form for regular graphs."""
    d, degree = history.meta["parameters"], history["messages"][0] / 8
    return 0.5 + 0.25 + degree * 4 * d / 1e4


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_recorded_rounds_of_fixed_graph_are_those_of_the_graph(waiting):
    history = run_over(topologies.ring(8), rounds=40, local_steps=2)
    options = {"hardware": SERIAL, "waiting": waiting}
    found, size = round_time(history, **options), history.meta["parameters"]
    again = round_time(topologies.ring(8), n_parameters=size, steps=2, **options)
    assert found.per_round == pytest.approx(again.seconds)
    assert found.elapsed[-1] == pytest.approx(40 * again.seconds)


def test_with_seconds_keeps_all_else(tmp_path):
    history = run_over(topologies.ring(8))
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
    loaded = topofl.History.load(timed.save(tmp_path / "timed"))
    assert loaded[SECONDS].tolist() == timed[SECONDS].tolist()


def test_summaries_have_seconds_of_hardware():
    graphs = (topologies.ring(8), topologies.fully_connected(8))
    runs = {graph.name: [run_over(graph, seed) for seed in (0, 1)] for graph in graphs}

    def costs(target, **hardware):
        found = topofl.summarize(runs, target=target, **hardware).numbers
        names = {head.removesuffix(f" to {target:g}"): head for head in found.columns}
        return {name: np.array(found.column(head)) for name, head in names.items()}

    start = costs(0.0, hardware=HARDWARE)["seconds"]
    assert start.tolist() == [0.0, 0.0]  # before any training
    reached = costs(0.3, hardware=HARDWARE)
    rounds, seconds = reached["rounds"], reached["seconds"]
    each = [seconds_of(runs[graph.name][0]) for graph in graphs]
    assert np.isfinite(rounds).all()
    assert (rounds > 0).all()
    assert seconds == pytest.approx(rounds * each)
    assert "seconds" not in costs(0.3)


def test_compare_has_seconds_of_graphs_and_runs():
    history = run_over(topologies.ring(8))
    options = {"about": "cost", "n_parameters": history.meta["parameters"]}
    table = metrics.compare([topologies.ring(8), history], hardware=HARDWARE, **options)
    column = table.column("seconds per round")
    assert column == pytest.approx([seconds_of(history)] * 2)
    assert table.column("bound by") == ("compute", "compute")
    assert "seconds per round" not in metrics.compare([history], **options).columns


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_over(topologies.ring(8)).save("a")
    text = "Hardware(compute=0.5, latency=0.25, bandwidth=1e4)"
    plot = ["--plot", "t.png", "--x", "seconds"]
    assert main(["compare", "a", "--target", "0.3", "--hardware", text, "--json", *plot]) == 0
    assert "simulated seconds to 0.3" in capsys.readouterr().out
    assert (tmp_path / "t.png").exists()
    groups = ["--group-by", "topology", "--target", "0.3"]
    assert main(["compare", "a", *groups, "--hardware", text, *plot]) == 0
    assert main(["compare", "a", "--hardware", "Hardware(speed=3)"]) == 2
    assert "`hardware` must be such as Hardware(compute=0.1" in capsys.readouterr().err
