"""Metrics round by round, and costs of rounds."""

import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from topofl import History, NotApplicable, algorithms, data, mixing, models, run, topologies
from topofl.metrics import Cost, b_connectivity, clique_skew, compare, over_rounds, round_cost
from topofl.mixing import MixingSequence
from topofl.topology import Topology, TopologyError, as_topology, from_edges

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


def test_rounds_until_strong_are_shortest_windows_and_at_most_b():
    lengths = over_rounds(RECORDED, about=[]).column("rounds until strong")
    for start, length in enumerate(lengths):
        if isinstance(length, NotApplicable):
            assert (
                b_connectivity(
                    MixingSequence(8, lambda t, s=start: MATRICES[s + t], length=6 - start)
                )
                == np.inf
            )
        else:
            window = MATRICES[start : start + length]
            assert (
                b_connectivity(
                    MixingSequence(8, window.__getitem__, length=length), windows="block"
                )
                == length
            )
    periodic = topologies.one_peer_exponential(16)
    assert max(over_rounds(periodic, about=[]).column("rounds until strong")) == b_connectivity(
        periodic
    )
    apart = topologies.random_cliques(6, 3, seed=0)
    assert over_rounds(apart).column("rounds until strong") == (
        NotApplicable("the rounds from this one to the last do not connect all nodes"),
    )


def test_one_matrix_in_all_rounds_is_measured_once(monkeypatch):
    asked = []
    module = sys.modules["topofl.metrics.over_rounds"]  # the function has the same name
    monkeypatch.setattr(
        module, "compare", lambda m, **how: asked.append(len(m)) or compare(m, **how)
    )
    sequence = MixingSequence(8, lambda t: MATRICES[t // 3], "a run", length=6)
    edges = over_rounds(sequence).column("edges")
    assert asked == [2]
    assert edges == tuple(MATRICES[t // 3].support().n_edges for t in range(6))


def test_costs_of_a_history_are_the_recorded_messages():
    clients = data.with_validation(
        data.dirichlet_per_class(data.digits(), 6, alpha=0.5, seed=0), seed=0
    )
    model = models.logistic_regression(64)
    learned = run(
        algorithms.dpfl(0.1, budget=2, epochs=1), model=model, clients=clients, rounds=3, seed=0
    )
    table = over_rounds(learned, about="cost")
    assert table.column("messages per round") == tuple(learned["messages"].tolist())
    assert table.column("MB per round") == tuple((learned["bytes"] / 1e6).tolist())
    assert table.column("busiest node messages") == tuple(learned["busiest_messages"].tolist())
    edges = over_rounds(learned, about="structure").column("edges")
    assert table.column("messages per round")[0] > edges[0]  # models that were tried
    ring = run(
        algorithms.dsgd(0.1),
        model=model,
        clients=clients,
        topology=topologies.ring(6),
        rounds=3,
        seed=0,
    )
    assert over_rounds(ring, about="cost").column("messages per round") == (
        12,
        12,
        12,
    )  # one matrix, three rounds
    both = compare([learned, ring], about="cost")
    assert both.title == "2 graphs; costs as recorded"
    mixed = compare([ring, topologies.ring(6)], about="cost", n_parameters=5)
    assert (
        mixed.title
        == "2 graphs; costs of runs as recorded, of graphs with messages of 5 parameters"
    )
    assert mixed.column("MB per round") == pytest.approx((12 * 650 * 4 / 1e6, 12 * 5 * 4 / 1e6))
    assert both.column("messages per round") == (learned["messages"].mean(), 12)
    assert both.column("MB per round") == pytest.approx(
        ((learned["bytes"] / 1e6).mean(), 12 * 650 * 4 / 1e6)
    )
    assert both.column("busiest node messages") == (learned["busiest_messages"].mean(), 4)
    less = replace(
        ring, rounds={key: value for key, value in ring.rounds.items() if key != "busiest_messages"}
    )
    for table in (compare([less], about="cost"), over_rounds(less, about="cost")):
        assert all(
            cell.reason == "the run did not record it"
            for cell in table.column("busiest node messages")
        )
        assert set(table.column("messages per round")) == {12}


def test_edges_are_counted_in_one_way_in_all_rounds():
    full = topologies.fully_connected(8)
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    directed = from_edges(pairs[1:], 8, directed=True)
    assert over_rounds(as_topology([full, directed, full])).column("edges") == (56, 55, 56)
    assert over_rounds(as_topology([full, full])).column("edges") == (28, 28)


def test_a_list_of_rounds_is_accepted():
    whole = over_rounds(RECORDED, about="structure")
    assert over_rounds(RECORDED, rounds=[4, 1], about="structure").column("edges") == tuple(
        whole.column("edges")[t] for t in (4, 1)
    )
    assert over_rounds(PEERS, rounds=3).column("round") == (0, 1, 2)


def test_bad_rounds_are_refused():
    with pytest.raises(TopologyError, match="`rounds` must be given"):
        over_rounds(PEERS)
    for rounds, words in (
        (7, "between 1 and"), (0, "between 1 and"), ([6], "between 0 and"), ([-1], "between 0 and"),
        ([], "one or more different"), ([1, 1], "one or more different"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            over_rounds(RECORDED, rounds=rounds)
    with pytest.raises(TypeError):
        over_rounds("ring")


def test_cliques_of_a_run_are_known_to_its_history(tmp_path):
    clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    graph = topologies.dcliques(clients, clique_size=4, inter="ring", seed=0)
    history = run(
        algorithms.dsgd(0.1, batch_size=4), model=models.logistic_regression(64), clients=clients,
        topology=graph, rounds=2, seed=0,
    )  # fmt: skip
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


def dcliques(n: int, size: int = 10) -> Topology:
    """Return cliques of consecutive nodes, each pair connected at its least loaded nodes."""
    groups = np.arange(n).reshape(-1, size)
    edges = [(i, j) for group in groups.tolist() for i in group for j in group if i < j]
    loads = np.zeros(n, dtype=int)
    for a in range(len(groups)):
        for b in range(a + 1, len(groups)):
            ends = [group[loads[group].argmin()] for group in (groups[a], groups[b])]
            loads[ends] += 1
            edges.append((int(ends[0]), int(ends[1])))
    return from_edges(edges, n, groups=groups.tolist())


def test_star_by_hand():
    matrix = mixing.metropolis_hastings(as_topology(nx.star_graph(3)))
    assert round_cost(matrix, 100) == Cost(6, 2400, 6, 2400, "exact")
    assert round_cost(matrix, 100, itemsize=2) == Cost(6, 1200, 6, 1200, "exact")


def test_directions_are_counted_separately():
    # 0 -> 1, 0 -> 2, 1 -> 2: three messages; each node has two in and out together.
    matrix = mixing.uniform(from_edges([(0, 1), (0, 2), (1, 2)], 3, directed=True))
    assert round_cost(matrix, 1) == Cost(3, 12, 2, 8, "exact")


def test_without_edges_there_are_no_messages():
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
        assert round_cost(models, 7850, accounting=accounting).messages / n == pytest.approx(
            plain, abs=1e-12
        )


def test_busiest_node_of_clique_averaging():
    graph = dcliques(
        20
    )  # two cliques and a bridge: its ends have degree 10, of which 9 in the clique
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    exact = round_cost(models, 1, gradient_mixing=gradients)
    paper = round_cost(models, 1, gradient_mixing=gradients, accounting="paper")
    assert (exact.busiest_messages, paper.busiest_messages) == (2 * (10 + 9), 2 * (10 + 10))
    assert exact.busiest_bytes == 4 * exact.busiest_messages


def test_bad_input():
    graph = from_edges([(0, 1)], 2)
    matrix = mixing.metropolis_hastings(graph)
    with pytest.raises(TypeError, match="`mixing` must be a MixingMatrix, got Topology"):
        round_cost(graph, 1)
    with pytest.raises(TypeError, match="`gradient_mixing`"):
        round_cost(matrix, 1, gradient_mixing=graph)
    with pytest.raises(ValueError, match="`gradient_mixing` must have n=2"):
        round_cost(matrix, 1, gradient_mixing=mixing.from_weights(np.eye(3)))
    with pytest.raises(ValueError, match="`n_parameters`"):
        round_cost(matrix, 0)
    with pytest.raises(ValueError, match="`itemsize`"):
        round_cost(matrix, 1, itemsize=0)
    with pytest.raises(ValueError, match="`accounting` must be one of 'exact', 'paper'"):
        round_cost(matrix, 1, accounting="papers")
