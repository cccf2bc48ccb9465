"""Mixing matrices of runs: weights of graphs, fixed matrices and changing graphs."""

import functools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse.linalg as sparse_linalg
import torch

import topofl
from tests import problems
from tests.engine import runs
from tests.engine.runs import run, same
from tests.rows.runs import cycle_with_hub, weighted_ring
from topofl import algorithms, data, mixing, topologies
from topofl.metrics import spectral
from topofl.metrics.spectral import largest_share


def test_each_matrix_of_a_long_period_is_computed_once():
    graphs = [topologies.random_regular(6, 3, seed=seed) for seed in range(70)]
    assert len(run(topology=graphs, rounds=150, every=150).matrices) == 70


def test_equal_matrices_are_stored_once():
    graphs = topofl.as_topology(lambda t: topologies.random_regular(6, 3, seed=t % 2))
    history = run(topology=graphs, rounds=5)
    assert list(history.matrix_of_round) == [0, 1, 0, 1, 0]
    assert len(history.matrices) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_on_sparse_graphs(dtype):
    clients = data.iid(problems.dataset(), 12, seed=0)
    history = run(clients=clients, topology=topologies.ring(12), dtype=dtype)
    assert np.isfinite(history["loss"]).all()


def averaging(rule):
    """Return a method that averages the gradients of its step."""
    descent = algorithms.descend(lr=0.1)
    local = algorithms.train(descent, batch_size=4, gradient=rule)
    return algorithms.chain("mine", local=local)


def test_gradient_rules_may_be_any_callable():
    mine = averaging(functools.partial(mixing.uniform, direction="pull"))
    assert "partial" in run(mine).meta["settings"]["local"]["gradient"]
    with pytest.raises(TypeError, match="`gradient` must be a weight rule"):
        averaging("metropolis")


EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def test_sequences_of_networkx_matchings():
    turns = topologies.matchings(topologies.ring(6))  # the same two, without networkx
    told = [topofl.from_edges(edges, 6) for edges in (EVEN, ODD)]
    same_edges = {frozenset(map(tuple, turns.at(t).edge_index.T.tolist())) for t in (0, 1)}
    assert same_edges == {frozenset(map(tuple, one.edge_index.T.tolist())) for one in told}

    def lettered(t):
        return nx.relabel_nodes(nx.Graph([EVEN, ODD][t % 2]), dict(enumerate("abcdef")))

    wanted = run(topology=told, rounds=6)
    turn = [nx.Graph(EVEN), nx.Graph(ODD)]
    for graphs in (lambda t: turn[t % 2], turn, lettered):
        assert same(run(topology=graphs, rounds=6, on_disconnected="allow"), wanted)
    alone = run(topology=told[0], rounds=6, on_disconnected="allow")  # one leaves pairs apart
    assert wanted["consensus_distance"][-1] < 0.5 * alone["consensus_distance"][-1]


def test_edge_weights_are_used_or_dropped_with_a_warning():
    graph = weighted_ring()
    ignored = r"edges of networkx carry weights from 0.1 to 0.4, .*own_weights=True"
    with pytest.warns(UserWarning, match=ignored) as told:
        dropped = run(topology=graph, rounds=2)
    assert [str(warning.filename) for warning in told] == [runs.__file__]
    assert "mixing=mixing.metropolis_hastings" in str(told[0].message)
    assert "topofl.run(..., mixing=mixing.weighted_metropolis)" in str(told[0].message)
    named = run(topology=graph, rounds=2, mixing=mixing.metropolis_hastings)  # and no warning
    np.testing.assert_array_equal(named["loss"], dropped["loss"])
    own = run(topology=topofl.as_topology(graph, own_weights=True), rounds=2)
    by_hand = mixing.from_weights(nx.to_numpy_array(graph) + 0.5 * np.eye(6))
    given = run(topology=graph, rounds=2, mixing=by_hand)
    np.testing.assert_array_equal(own["loss"], given["loss"])
    assert (own["loss"] != dropped["loss"]).any()
    with pytest.warns(UserWarning, match="carry weights"):
        run(topology=lambda t: graph, rounds=2)
    for rule in (mixing.metropolis_or_uniform, mixing.uniform):
        run(topology=graph, rounds=2, mixing=rule)  # named, the default too, and no warning
    remedy = r"pass a rule: mixing=functools.partial\(mixing.uniform, direction='push'\)"
    directed = nx.DiGraph()
    directed.add_weighted_edges_from(graph.edges(data="weight"))
    with pytest.warns(UserWarning, match=remedy):
        run(algorithms.osgp(lr=0.1), topology=directed, rounds=2, on_disconnected="allow")


def test_weights_dropped_in_later_rounds_raise_one_warning():
    unweighted = nx.cycle_graph(6)
    later = topofl.as_topology(lambda t: weighted_ring() if t >= 4 else unweighted, name="later")
    few = topologies.participation(weighted_ring(), fraction=1, seed=0)
    down = topologies.link_failures(weighted_ring(), fail=0.5, recover=0.5, seed=0)
    for graphs in (later, few, down):
        how = {"topology": graphs, "rounds": 6, "on_disconnected": "allow"}
        ignored = "carry weights from 0.1 to 0.4, which are ignored"
        seen = []
        with pytest.warns(UserWarning, match=ignored) as told:
            run(**how, callbacks=[problems.each_round(lambda *_: seen.append(len(told)))])  # noqa: B023
        assert [str(warning.filename) for warning in told] == [runs.__file__]
        if graphs is later:
            assert seen == [0, 0, 0, 0, 1, 1]
        run(**how, mixing=mixing.metropolis_hastings)
    run(topology=lambda t: unweighted, rounds=2)
    own = topofl.as_topology(weighted_ring(), own_weights=True)
    some = topologies.participation(own, fraction=0.7, seed=0)
    run(topology=some, rounds=2, on_disconnected="allow")


def test_unequal_shares_of_a_directed_graph_are_named_once_and_recorded(tmp_path):
    graph = cycle_with_hub(6)
    weights = mixing.uniform(graph).weights.toarray()
    limit = np.linalg.matrix_power(weights, 10_000)[0]
    with pytest.warns(UserWarning, match="node 0 a share of") as told:
        history = run(topology=graph, rounds=3)
    assert len(told) == 1
    text = str(told[0].message)
    assert f"node 0 a share of {limit[0]:.3f} " in text
    assert f"({6 * limit[0]:.3g} times 1/n)" in text
    for remedy in ("algorithms.osgp", "algorithms.push_diging", "algorithms.sab", "mixing.uniform"):
        assert remedy in text
    assert "columns sum to 1" not in text  # no rule makes such weights of a directed graph
    assert told[0].filename == runs.__file__
    node, share = history.meta["largest_share"]
    assert (node, share) == (0, pytest.approx(limit[0]))
    assert f"node 0 has {limit[0]:.3f} of the average, not 1/6" in repr(history)
    history.save(tmp_path / "saved")
    assert repr(topofl.History.load(tmp_path / "saved")) == repr(history)


def test_shares_that_cannot_be_computed_are_named_without_a_number(monkeypatch):
    def fails(*given, **options):
        raise sparse_linalg.ArpackNoConvergence("no convergence", np.zeros(0), np.zeros((0, 0)))

    monkeypatch.setattr(spectral, "QUICK_LIMIT", 5)
    monkeypatch.setattr(spectral.sparse_linalg, "eigs", fails)
    with pytest.warns(UserWarning, match="unequal shares, which could not be computed, in the"):
        history = run(topology=cycle_with_hub(6))
    assert "largest_share" not in history.meta


def two_groups():
    """Return a directed graph of two groups that never agree."""
    edges = [(i, j) for k in (0, 3) for i in range(k, k + 3) for j in range(k, k + 3) if i < j]
    return topofl.from_edges([*edges, (1, 0), (4, 3), (2, 1)], 6, directed=True)


@pytest.mark.parametrize("graphs", [cycle_with_hub(6), [cycle_with_hub(6), topologies.star(6)]])
def test_a_rule_given_for_directed_graphs_keeps_its_shares_without_a_warning(graphs):
    history = run(topology=graphs, mixing=mixing.metropolis_or_uniform)
    assert history.meta["largest_share"][0] == 0


def test_own_weights_of_a_directed_graph_are_named_as_the_rule_that_keeps_them():
    weights = nx.DiGraph()
    weights.add_weighted_edges_from([(0, 1, 0.5), (1, 0, 0.25)])
    clients = problems.equal_clients(2)
    graph = topofl.as_topology(weights, own_weights=True)
    with pytest.warns(UserWarning, match=r"node 0 a share of 0\.667 .*mixing=mixing\.own_weights"):
        history = run(clients=clients, topology=graph)
    assert history.meta["largest_share"] == [0, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    "topology",
    [
        topologies.exponential(6),
        topologies.remove_edges(topologies.fully_connected(6), [(0, 1)]),
        topologies.random_in(6, 2, seed=0),
        topologies.star(6),
        two_groups(),
    ],
    ids=lambda graph: graph.name,
)
def test_equal_shares_and_graphs_without_a_period_need_no_warning(topology):
    history = run(topology=topology, on_disconnected="allow")
    assert "largest_share" not in history.meta
    assert "of the average" not in repr(history)
    pushed = run(algorithms.osgp(0.1, epochs=1), topology=cycle_with_hub(6))
    assert "largest_share" not in pushed.meta  # nodes that push are weighted equally


@pytest.mark.parametrize("other", [cycle_with_hub(6), topologies.ring(6)], ids=["twice", "ring"])
def test_unequal_shares_of_a_period_of_graphs_are_named_and_recorded(other):
    """D-SGD on f_i(x) = (x - b_i)^2 / 2 with a small step tends to the weighted mean of the b_i."""
    graphs = [cycle_with_hub(6), other]
    with pytest.warns(UserWarning, match="repeats after 2 rounds, give node 0 a share") as told:
        history = run(topology=graphs, rounds=2)
    assert len(told) == 1
    assert "mixing=mixing.metropolis_or_uniform" in str(told[0].message)
    weights = [mixing.metropolis_or_uniform(graph).weights.toarray() for graph in graphs]
    models, lr = np.zeros((6, 6)), 1e-3  # of each node, the coefficients of the b_i
    for t in range(20_000):
        models = weights[t % 2] @ (models - lr * (models - np.eye(6)))
    assert history.meta["largest_share"] == [0, pytest.approx(models.mean(0).max(), abs=2e-3)]


def test_a_period_whose_graphs_cancel_their_unequal_shares_does_not_warn():
    """Shares are 2/3 and 1/3 of periods from round 0 on, and 1/3 and 2/3 from round 1 on."""
    forth, back = (topofl.from_edges([edge], 2, directed=True) for edge in ((0, 1), (1, 0)))
    history = run(clients=problems.equal_clients(2), topology=[forth, back], rounds=1)
    assert "largest_share" not in history.meta


def test_shares_of_large_graphs_are_found_though_the_smallest_underflow():
    n = 3000
    node, share = largest_share([mixing.uniform(cycle_with_hub(n))])
    assert (node, share) == (0, pytest.approx(0.4, rel=1e-9))
