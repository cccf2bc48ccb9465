"""Mixing matrices of runs: weights of graphs, fixed matrices and changing graphs."""

import functools
import json

import networkx as nx
import numpy as np
import pytest
import scipy.sparse.linalg as sparse_linalg
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import runs
from tests.engine.runs import run, weighted_ring
from topofl import algorithms, data, mixing, topologies
from topofl.metrics import spectral
from topofl.metrics.spectral import largest_share


def test_a_sequence_is_connected_if_its_union_is():
    halves = [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]]
    graphs = [topofl.as_topology(half) for half in halves]
    assert np.isfinite(run(topology=graphs)["accuracy"]).all()
    with pytest.raises(topofl.TopologyError, match="must be connected"):
        run(topology=[graphs[0], graphs[0]])


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


class Summed(nn.Module):
    """A model that adds two parameters, for which autograd returns one gradient tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(36, 3)), nn.Parameter(torch.ones(36, 3))

    def forward(self, x):
        return x.flatten(1) @ (self.a + self.b)


def test_gradients_that_share_memory_are_mixed_once():
    mine = algorithms.chain(
        "mine",
        local=algorithms.train(
            algorithms.descend(lr=0.1), batch_size=4, gradient=mixing.metropolis_hastings
        ),
    )
    settings = {"model": Summed(), "init": "given", "dtype": torch.float64}
    batched, looped = (
        run(mine, executor=executor, **settings) for executor in ("batched", "looped")
    )
    np.testing.assert_allclose(batched["loss"], looped["loss"], rtol=1e-12)


def test_gradient_rules_may_be_any_callable():
    rule = functools.partial(mixing.uniform, direction="pull")
    local = algorithms.train(algorithms.descend(lr=0.1), batch_size=4, gradient=rule)
    mine = algorithms.chain("mine", local=local)
    assert "partial" in run(mine).meta["settings"]["local"]["gradient"]
    with pytest.raises(TypeError, match="`gradient` must be a weight rule"):
        algorithms.train(algorithms.descend(lr=0.1), gradient="metropolis")


def test_single_and_isolated_nodes_train_locally():
    alone = run(clients=problems.equal_clients(1), topology=topologies.ring(1))
    assert np.isfinite(alone["accuracy"]).all()
    parts = topologies.random_cliques(6, 3, seed=0)
    apart = run(topology=parts, on_disconnected="allow", init="independent")
    assert apart["consensus_distance"][-1] > 0


EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def test_sequences_of_networkx_matchings():
    turns = topologies.matchings(topologies.ring(6))  # the same two, without networkx
    told = [topofl.from_edges(edges, 6) for edges in (EVEN, ODD)]
    assert {frozenset(map(tuple, turns.at(t).edge_index.T.tolist())) for t in (0, 1)} == {
        frozenset(map(tuple, graph.edge_index.T.tolist())) for graph in told
    }
    wanted = run(topology=told, rounds=6)
    histories = [
        run(topology=lambda t: nx.Graph([EVEN, ODD][t % 2]), rounds=6, on_disconnected="allow"),
        run(topology=[nx.Graph(EVEN), nx.Graph(ODD)], rounds=6),
        run(
            topology=lambda t: nx.relabel_nodes(
                nx.Graph([EVEN, ODD][t % 2]), dict(enumerate("abcdef"))
            ),
            rounds=6,
        ),
    ]
    for history in histories:
        np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])
        np.testing.assert_array_equal(history["loss"], wanted["loss"])
    alone = run(topology=told[0], rounds=6, on_disconnected="allow")
    assert (
        wanted["consensus_distance"][-1] < 0.5 * alone["consensus_distance"][-1]
    )  # one matching leaves pairs apart


def test_edge_weights_are_used_or_dropped_with_a_warning():
    graph = weighted_ring()
    with pytest.warns(
        UserWarning, match=r"edges of networkx carry weights from 0.1 to 0.4, .*own_weights=True"
    ) as told:
        dropped = run(topology=graph, rounds=2)
    assert [str(warning.filename) for warning in told] == [runs.__file__]
    assert "mixing=mixing.metropolis_hastings" in str(told[0].message)
    assert "topofl.run(..., mixing=mixing.weighted_metropolis)" in str(told[0].message)
    named = run(topology=graph, rounds=2, mixing=mixing.metropolis_hastings)  # and no warning
    np.testing.assert_array_equal(named["loss"], dropped["loss"])
    own = run(topology=topofl.as_topology(graph, own_weights=True), rounds=2)
    given = run(
        topology=graph,
        rounds=2,
        mixing=mixing.from_weights(nx.to_numpy_array(graph) + 0.5 * np.eye(6)),
    )
    np.testing.assert_array_equal(own["loss"], given["loss"])
    assert (own["loss"] != dropped["loss"]).any()
    with pytest.warns(UserWarning, match="carry weights"):
        run(topology=lambda t: graph, rounds=2)
    for rule in (mixing.metropolis_or_uniform, mixing.uniform):
        run(topology=graph, rounds=2, mixing=rule)  # named, the default too, and no warning


def test_weights_dropped_in_later_rounds_raise_one_warning():
    unweighted = nx.cycle_graph(6)
    later = topofl.as_topology(lambda t: weighted_ring() if t >= 4 else unweighted, name="later")
    few = topologies.participation(weighted_ring(), fraction=1, seed=0)
    down = topologies.link_failures(weighted_ring(), fail=0.5, recover=0.5, seed=0)
    for graphs in (later, few, down):
        seen = []
        with pytest.warns(
            UserWarning, match="carry weights from 0.1 to 0.4, which are ignored"
        ) as told:
            run(
                topology=graphs,
                rounds=6,
                on_disconnected="allow",
                callbacks=[problems.each_round(lambda t, m: seen.append((t, len(told))))],  # noqa: B023
            )
        assert [str(warning.filename) for warning in told] == [runs.__file__]
        if graphs is later:
            assert dict(seen) == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
        run(topology=graphs, rounds=6, on_disconnected="allow", mixing=mixing.metropolis_hastings)
    run(topology=lambda t: unweighted, rounds=2)
    own = topofl.as_topology(weighted_ring(), own_weights=True)
    run(
        topology=topologies.participation(own, fraction=0.7, seed=0),
        rounds=2,
        on_disconnected="allow",
    )


def test_own_weights_that_are_not_column_stochastic_are_refused():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((i, (i + 1) % 6, (0.1, 0.4)[i % 2]) for i in range(6))
    own = {"topology": topofl.as_topology(graph, own_weights=True), "rounds": 2}
    with pytest.raises(
        ValueError, match=r"`topology` must, with `own_weights`, .* column 0 of networkx .*; push"
    ):
        run(algorithms.osgp(lr=0.1), **own)
    assert len(
        run(
            algorithms.osgp(lr=0.1),
            **own,
            mixing=functools.partial(mixing.uniform, direction="push"),
        ).rounds
    )
    with pytest.warns(
        UserWarning,
        match=r"pass a rule: mixing=functools.partial\(mixing.uniform, direction='push'\)",
    ):
        run(algorithms.osgp(lr=0.1), topology=graph, rounds=2)


def test_a_fixed_matrix_must_have_the_labels_of_its_graph():
    ring = nx.relabel_nodes(nx.cycle_graph(6), dict(enumerate("abcdef")))
    weights = nx.DiGraph()
    weights.add_nodes_from("fedcba")
    weights.add_weighted_edges_from(
        [(u, v, 0.3) for u, v in nx.DiGraph(ring).edges] + [(u, u, 0.4) for u in ring]
    )
    with pytest.raises(
        ValueError, match="the nodes of networkx in the same order: node 'a' is row 5"
    ):
        run(topology=ring, mixing=mixing.from_weights(weights))
    run(topology=ring, rounds=1, mixing=mixing.from_weights(weights, topofl.as_topology(ring)))


def test_runs_with_own_weights_are_resumed(tmp_path):
    own = {"topology": topofl.as_topology(weighted_ring(), own_weights=True)}
    whole = run(**own, rounds=4)
    run(**own, rounds=2, saving=tmp_path / "c")
    resumed = run(**own, rounds=4, saving=topofl.Saving(tmp_path / "c", resume=True))
    np.testing.assert_array_equal(resumed["loss"], whole["loss"])
    loaded = topofl.History.load(resumed.save(tmp_path / "h"))
    assert loaded.mixing(0).spectral_gap == whole.mixing(0).spectral_gap
    with (
        pytest.raises(ValueError, match="topology"),
        pytest.warns(UserWarning, match="carry weights"),
    ):
        run(topology=weighted_ring(), rounds=4, saving=topofl.Saving(tmp_path / "c", resume=True))


def cycle_with_hub(n):
    """Return the directed cycle with edges from node 0 to all, which give node 0 a share of 0.4."""
    edges = {(i, (i + 1) % n) for i in range(n)} | {(0, j) for j in range(1, n)}
    return topofl.from_edges(sorted(edges), n, directed=True)


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


def test_groups_that_never_agree_need_no_warning():
    edges = [(i, j) for k in (0, 3) for i in range(k, k + 3) for j in range(k, k + 3) if i < j]
    graph = topofl.from_edges([*edges, (1, 0), (4, 3), (2, 1)], 6, directed=True)
    history = run(topology=graph, compute=topofl.Compute(on_disconnected="allow"))
    assert "largest_share" not in history.meta


def test_a_rule_given_for_a_directed_graph_keeps_its_shares_without_a_warning():
    history = run(topology=cycle_with_hub(6), mixing=mixing.uniform)
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
    ],
    ids=lambda graph: graph.name,
)
def test_equal_shares_and_graphs_without_a_period_need_no_warning(topology):
    history = run(topology=topology)
    assert "largest_share" not in history.meta
    assert "of the average" not in repr(history)


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


def test_weights_named_to_keep_the_shares_of_a_period_do_not_warn():
    graphs = [cycle_with_hub(6), topologies.star(6)]
    history = run(topology=graphs, mixing=mixing.metropolis_or_uniform)
    assert history.meta["largest_share"][0] == 0


def test_a_period_whose_graphs_cancel_their_unequal_shares_does_not_warn():
    """Shares are 2/3 and 1/3 of periods from round 0 on, and 1/3 and 2/3 from round 1 on."""
    forth, back = (topofl.from_edges([edge], 2, directed=True) for edge in ((0, 1), (1, 0)))
    history = run(clients=problems.equal_clients(2), topology=[forth, back], rounds=1)
    assert "largest_share" not in history.meta


def test_nodes_that_push_are_weighted_equally():
    history = run(algorithms.osgp(0.1, epochs=1), topology=cycle_with_hub(6))
    assert "largest_share" not in history.meta


def test_shares_of_large_graphs_are_found_though_the_smallest_underflow():
    n = 3000
    node, share = largest_share([mixing.uniform(cycle_with_hub(n))])
    assert (node, share) == (0, pytest.approx(0.4, rel=1e-9))


@pytest.mark.parametrize("given", [0.4, [0], [0, "x"], [-1, 0.4], [0, 2.0], [True, 0.4]])
def test_damaged_shares_are_refused(tmp_path, given):
    run(topology=topologies.ring(6)).save(tmp_path / "saved")
    path = tmp_path / "saved" / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"largest_share": given}))
    with pytest.raises(ValueError, match="damaged"):
        topofl.History.load(tmp_path / "saved")
