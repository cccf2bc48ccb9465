"""Metrics round by round, and costs of rounds."""

import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from tests.rows.metrics import ONE_PEER, dcliques
from topofl import History, NotApplicable, algorithms, data, mixing, models, run, topologies
from topofl.metrics import (
    Cost,
    Hardware,
    b_connectivity,
    clique_skew,
    compare,
    over_rounds,
    round_cost,
    round_time,
)
from topofl.mixing import MixingSequence
from topofl.mixing.matrix import all_reduce_share
from topofl.topology import as_topology, from_edges

PEERS = topologies.random_in(8, 2, seed=0)
MATRICES = [mixing.uniform(PEERS.at(t), direction="pull") for t in range(6)]
RECORDED = MixingSequence(8, MATRICES.__getitem__, "a run", length=6)
COUNTS = np.random.default_rng(0).integers(1, 9, (8, 3))


def test_rows_equal_compare_of_each_round():
    table = over_rounds(RECORDED, label_counts=COUNTS)
    alone = compare(MATRICES, label_counts=COUNTS, about=["structure", "averaging", "data"])
    assert table.column("round") == tuple(range(6))
    assert table.columns[2:] == alone.columns[1:]
    assert [row[2:] for row in table.rows] == [row[1:] for row in alone.rows]
    some = over_rounds(RECORDED, rounds=[4, 1], about="structure")
    edges = table.column("edges")
    assert some.column("edges") == (edges[4], edges[1])
    assert over_rounds(PEERS, rounds=3).column("round") == (0, 1, 2)


def test_rounds_until_strong_are_shortest_windows_and_at_most_b():
    lengths = over_rounds(RECORDED, about=[]).column("rounds until strong")
    for start, length in enumerate(lengths):
        is_last = isinstance(length, NotApplicable)
        rest = MATRICES[start:] if is_last else MATRICES[start : start + length]
        window = MixingSequence(8, rest.__getitem__, length=len(rest))
        assert b_connectivity(window, windows="block") == (np.inf if is_last else length)
    windows = over_rounds(ONE_PEER(16), about=[]).column("rounds until strong")
    assert max(windows) == b_connectivity(ONE_PEER(16))
    apart = over_rounds(topologies.random_cliques(6, 3, seed=0)).column("rounds until strong")
    reason = "the rounds from this one to the last do not connect all nodes"
    assert apart == (NotApplicable(reason),)


def test_one_matrix_in_all_rounds_is_measured_once(monkeypatch):
    asked = []
    module = sys.modules["topofl.metrics.compare"]  # the function has the same name
    counted = lambda graphs, **how: asked.append(len(graphs)) or compare(graphs, **how)  # noqa: E731
    monkeypatch.setattr(module, "compare", counted)
    sequence = MixingSequence(8, lambda t: MATRICES[t // 3], "a run", length=6)
    edges = over_rounds(sequence).column("edges")
    assert asked == [2]
    assert edges == tuple(MATRICES[t // 3].support().n_edges for t in range(6))


def test_costs_of_a_history_are_the_recorded_messages():
    clients = data.dirichlet_per_class(data.digits(), 6, alpha=0.5, seed=0)
    settings = {"model": models.logistic_regression(64), "rounds": 3, "seed": 0}
    settings["clients"] = data.with_validation(clients, seed=0)
    learned = run(algorithms.dpfl(0.1, budget=2, epochs=1), **settings)
    table = over_rounds(learned, about="cost")
    megabytes = learned["bytes"] / 1e6
    assert table.column("messages per round") == tuple(learned["messages"].tolist())
    assert table.column("MB per round") == tuple(megabytes.tolist())
    assert table.column("busiest node messages") == tuple(learned["busiest_messages"].tolist())
    edges = over_rounds(learned, about="structure").column("edges")
    assert table.column("messages per round")[0] > edges[0]  # models that were tried
    ring = run(algorithms.dsgd(0.1), topology=topologies.ring(6), **settings)
    messages = over_rounds(ring, about="cost").column("messages per round")
    assert messages == (12, 12, 12)  # one matrix, three rounds
    mixed = compare([ring, topologies.ring(6)], about="cost", n_parameters=5)
    of_graphs = "of graphs with messages of 5 parameters"
    assert mixed.title == f"2 graphs; costs of runs as recorded, {of_graphs}"
    size = 12 * 4 / 1e6
    assert mixed.column("MB per round") == pytest.approx((650 * size, 5 * size))
    both = compare([learned, ring], about="cost")
    assert both.title == "2 graphs; costs as recorded"
    assert both.column("messages per round") == (learned["messages"].mean(), 12)
    assert both.column("MB per round") == pytest.approx((megabytes.mean(), 650 * size))
    assert both.column("busiest node messages") == (learned["busiest_messages"].mean(), 4)
    kept = {key: value for key, value in ring.rounds.items() if key != "busiest_messages"}
    less = replace(ring, rounds=kept)
    for table in (compare([less], about="cost"), over_rounds(less, about="cost")):
        missing = {cell.reason for cell in table.column("busiest node messages")}
        assert missing == {"the run did not record it"}
        assert set(table.column("messages per round")) == {12}


def test_edges_are_counted_in_one_way_in_all_rounds():
    full = topologies.fully_connected(8)
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    directed = from_edges(pairs[1:], 8, directed=True)
    assert over_rounds(as_topology([full, directed, full])).column("edges") == (56, 55, 56)
    assert over_rounds(as_topology([full, full])).column("edges") == (28, 28)


def test_cliques_of_a_run_are_known_to_its_history(tmp_path):
    clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    graph = topologies.dcliques(clients, clique_size=4, inter="ring", seed=0)
    settings = {"model": models.logistic_regression(64), "rounds": 2, "seed": 0}
    history = run(algorithms.dsgd(0.1, batch_size=4), clients=clients, topology=graph, **settings)
    skew = clique_skew(graph, clients).mean()
    history.save(tmp_path / "run")
    for x in (history, History.load(tmp_path / "run"), graph):
        assert set(over_rounds(x, label_counts=clients).column("mean clique skew")) == {skew}
        assert compare([x], label_counts=clients, about="all").column("mean clique skew") == (skew,)


def test_groups_that_change_between_rounds_are_not_used():
    first, second = from_edges([(0, 1)], 3, groups=[(0, 1)]), from_edges([(1, 2)], 3)
    for other, known in ((second, False), (replace(second, groups=first.groups), True)):
        graphs = as_topology([first, other])
        column = over_rounds(graphs, label_counts=COUNTS[:3]).column("mean clique skew")
        assert all(isinstance(value, float) for value in column) == known


def test_costs_by_hand():
    star = mixing.metropolis_hastings(as_topology(nx.star_graph(3)))
    assert round_cost(star, 100) == Cost(6, 2400, 6, 2400, "exact")
    assert round_cost(star, 100, itemsize=2) == Cost(6, 1200, 6, 1200, "exact")
    # 0 -> 1, 0 -> 2, 1 -> 2: three messages; each node has two in and out together.
    directed = mixing.uniform(from_edges([(0, 1), (0, 2), (1, 2)], 3, directed=True))
    assert round_cost(directed, 1) == Cost(3, 12, 2, 8, "exact")
    assert round_cost(mixing.from_weights(np.eye(3)), 5) == Cost(0, 0, 0, 0, "exact")


@pytest.mark.parametrize(
    ("n", "plain", "paper", "exact"), [(100, 9.9, 2 * 9.9, 18.9), (1000, 18.9, 37.8, 27.9)]
)
def test_messages_per_node_of_dcliques(n, plain, paper, exact):
    graph = dcliques(n)
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    for accounting, expected in (("paper", paper), ("exact", exact)):
        cost = round_cost(models, 7850, gradient_mixing=gradients, accounting=accounting)
        assert cost.messages / n == pytest.approx(expected, abs=1e-12)
        assert cost.bytes == cost.messages * 7850 * 4
        assert cost.accounting == accounting
        alone = round_cost(models, 7850, accounting=accounting)
        assert alone.messages / n == pytest.approx(plain, abs=1e-12)


def test_busiest_node_of_clique_averaging():
    graph = dcliques(20)  # two cliques and a bridge: its ends have degree 10, 9 in the clique
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    exact = round_cost(models, 1, gradient_mixing=gradients)
    paper = round_cost(models, 1, gradient_mixing=gradients, accounting="paper")
    assert (exact.busiest_messages, paper.busiest_messages) == (2 * (10 + 9), 2 * (10 + 10))
    assert exact.busiest_bytes == 4 * exact.busiest_messages


@pytest.mark.parametrize(("n", "k"), [(12, 1), (12, 2), (12, 4), (11, 4), (9, 9)])
@pytest.mark.parametrize("numbers", [1, 3, 12, 7850])
def test_groups_send_two_models_by_all_reduce(n, k, numbers):
    groups = np.array_split(np.arange(n), -(-n // k))
    edges = [(i, j) for group in groups for i in group for j in group if i < j]
    matrix = mixing.metropolis_hastings(from_edges(edges, n))
    sizes = np.array([len(group) for group in groups])
    found = round_cost(matrix, numbers, groups="all-reduce")
    assert found.bytes == 4 * numbers * 2 * (sizes - 1).sum()
    assert found.messages == 2 * (sizes * (sizes - 1)).sum()
    assert found.busiest_messages == 2 * 2 * (max(sizes) - 1)
    # Whoever adds up a part sends and receives the others, and that part for each of the others.
    parts = [-(-numbers // size) for size in sizes]
    each = [2 * (numbers - p) + 2 * (size - 1) * p for size, p in zip(sizes, parts, strict=True)]
    assert found.busiest_bytes == 4 * max(each)
    timed = round_time(matrix, hardware=Hardware(None, groups="all-reduce"), n_parameters=numbers)
    assert (timed.messages, timed.bytes) == (found.messages, found.bytes)
    share = all_reduce_share(matrix)
    assert found.bytes == pytest.approx(share * round_cost(matrix, numbers).bytes, rel=1e-14)


def test_other_weights_send_messages_and_gradients_of_cliques_may_be_reduced():
    graph = dcliques(20)
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    for matrix in (models, mixing.lazy(gradients)):
        assert round_cost(matrix, 5, groups="all-reduce") == round_cost(matrix, 5)
    both = round_cost(models, 10, gradient_mixing=gradients, groups="all-reduce")
    alone = round_cost(models, 10), round_cost(gradients, 10, groups="all-reduce")
    assert (both.bytes, both.messages) == (
        sum(one.bytes for one in alone), sum(one.messages for one in alone)
    )  # fmt: skip
    assert both.busiest_bytes == 4 * (2 * 10 * 10 + 2 * (9 + 9))


def test_all_reduces_of_graphs_and_runs():
    graph = topologies.rotating_cliques(n=12, clique_size=4, partitions=3, steps=10, seed=0)
    mixed = as_topology([graph.at(0), topologies.ring(12)])
    name, size = "MB per round by all-reduce", 4 * 650 / 1e6
    settings = {"model": models.logistic_regression(64), "rounds": 3, "seed": 0}
    settings["clients"] = data.shards(data.digits(), n=12, per_node=2, seed=0)
    runs = [run(algorithms.dsgd(0.1), topology=one, **settings) for one in (graph, mixed)]
    ring = run(algorithms.dsgd(0.1), topology=topologies.ring(12), **settings)
    three = data.iid(data.digits(), 3, seed=0)
    server = run(algorithms.fedavg(0.1, epochs=1), **settings | {"clients": three})
    table = compare([graph, mixed, *runs, server, ring], about="cost", n_parameters=650)
    groups, edges = 12 * 2 * 3 / 4, 24
    wanted = (groups, (groups + edges) / 2, groups, (2 * groups + edges) / 3, 6, 24)
    assert table.column(name) == pytest.approx([size * one for one in wanted])
    sent = (36, (36 + edges) / 2, 36, (2 * 36 + edges) / 3, 6, 24)
    assert table.column("MB per round") == pytest.approx([size * one for one in sent])
    per_round = over_rounds(runs[1], about="cost").column(name)
    assert per_round == pytest.approx([size * one for one in (groups, edges, groups)])
    kept = {key: value for key, value in runs[0].rounds.items() if key != "messages"}
    less = compare([replace(runs[0], rounds=kept)], about="cost")
    assert less.column(name) == (NotApplicable("the run did not record it"),)
    # One more message than two exchanges have, such as to choose peers, may be any.
    more = replace(runs[0], rounds=runs[0].rounds | {"messages": 2 * 36 + np.ones(3)})
    assert compare([more], about="cost").column(name) == pytest.approx((36 * size,))
