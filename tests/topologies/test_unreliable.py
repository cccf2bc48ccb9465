"""Links that fail in bursts, nodes that stay away."""

import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topofl import mixing, topologies
from topofl._support.seeding import torch_seed
from topofl.topologies import derived as unreliable
from topofl.topology import Topology, from_edges

shares = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


def forward(links, rounds, fail, recover, key):
    """Run the chains from round 0 on, link by link, with the uniform numbers of the library."""
    states = np.zeros((rounds, len(links)), bool)
    share = fail / (fail + recover) if fail else 0.0
    states[0] = unreliable._uniforms(links, 0, key) >= share
    for t in range(1, rounds):
        for k, u in enumerate(unreliable._uniforms(links, t, key)):
            states[t, k] = u >= fail if states[t - 1, k] else u >= 1 - recover
    return states


def up(graphs, base, rounds):
    """Return (rounds, links) which edges of an undirected or directed base are there."""
    u, v = (
        base.edge_index
        if base.is_directed
        else base.edge_index[:, base.edge_index[0] < base.edge_index[1]]
    )
    return np.array([graphs.at(t).adjacency.toarray()[u, v] > 0 for t in rounds])


@given(fail=shares, recover=shares, seed=st.integers(0, 2**32))
def test_looking_back_gives_what_going_forward_gives(fail, recover, seed):
    links = np.arange(20) * 7
    key = torch_seed(seed, "links")
    wanted = forward(links, 12, fail, recover, key)
    for t in reversed(range(12)):
        np.testing.assert_array_equal(
            unreliable._links_up(links, t, fail=fail, recover=recover, key=key), wanted[t]
        )


@pytest.mark.parametrize("base", [topologies.torus(16), topologies.exponential(12, directed=True)])
def test_graphs_are_those_of_the_forward_chains(base):
    graphs = topologies.link_failures(base, fail=0.2, recover=0.3, seed=5)
    u, v = (
        base.edge_index
        if base.is_directed
        else base.edge_index[:, base.edge_index[0] < base.edge_index[1]]
    )
    wanted = forward(u * base.n + v, 15, 0.2, 0.3, torch_seed(5, "links"))
    np.testing.assert_array_equal(up(graphs, base, range(15)), wanted)


@pytest.mark.parametrize(("fail", "recover"), [(0.1, 0.3), (0.02, 0.05), (0.6, 0.4), (0.9, 0.7)])
def test_shares_and_transitions_are_as_declared(fail, recover):
    """Frequencies over independent links: up in rounds 0 and 40, and each transition."""
    base = topologies.ring(20_000)
    graphs = topologies.link_failures(base, fail=fail, recover=recover, seed=3)
    before, after = (
        graphs.at(t).adjacency[base.edge_index[0], base.edge_index[1]] > 0 for t in (40, 41)
    )
    one_way = base.edge_index[0] < base.edge_index[1]
    before, after = before[one_way], after[one_way]
    share = recover / (fail + recover)
    assert stats.binomtest(int(before.sum()), len(before), share).pvalue > 1e-3
    assert stats.binomtest(graphs.at(0).n_edges, base.n_edges, share).pvalue > 1e-3
    assert stats.binomtest(int((before & ~after).sum()), int(before.sum()), fail).pvalue > 1e-3
    assert (
        stats.binomtest(int((~before & after).sum()), int((~before).sum()), recover).pvalue > 1e-3
    )


def test_one_link_has_bursts_of_the_declared_length():
    base = topologies.path(2)
    graphs = topologies.link_failures(base, fail=0.05, recover=0.25, seed=0)
    states = up(graphs, base, range(4000))[:, 0]
    changes = np.diff(np.concatenate([[1], states.astype(int), [1]]))
    lengths = np.flatnonzero(changes == 1) - np.flatnonzero(changes == -1)
    assert abs(lengths.mean() - 4) < 4 * np.sqrt(0.75) / 0.25 / np.sqrt(len(lengths))  # geometric
    assert abs(states.mean() - 5 / 6) < 0.05


def test_links_are_independent_of_each_other():
    base = topologies.fully_connected(40)
    states = up(
        topologies.link_failures(base, fail=0.3, recover=0.5, seed=0), base, range(0, 300, 5)
    )
    share, links = 0.5 / 0.8, base.n_edges
    statistic = (len(states) - 1) * states.sum(axis=1).var(ddof=1) / (links * share * (1 - share))
    assert 1e-3 < stats.chi2.sf(statistic, len(states) - 1) < 1 - 1e-3


def test_rounds_do_not_depend_on_the_order_in_which_they_are_asked_for():
    base = topologies.torus(25)
    graphs, again = (
        topologies.link_failures(base, fail=0.3, recover=0.4, seed=1) for _ in range(2)
    )
    later = [again.at(t).adjacency for t in reversed(range(10))][::-1]
    assert all((graphs.at(t).adjacency != later[t]).nnz == 0 for t in range(10))
    other = topologies.link_failures(base, fail=0.3, recover=0.4, seed=2)
    assert (graphs.at(0).adjacency != other.at(0).adjacency).nnz > 0


def test_certain_chains():
    base = topologies.fully_connected(20)

    def edges(fail, recover):
        graphs = topologies.link_failures(base, fail=fail, recover=recover, seed=0)
        return [graphs.at(t).n_edges for t in range(6)]

    assert edges(0, 0) == edges(0, 0.5) == edges(0, 1) == [190] * 6
    assert edges(1, 0) == edges(0.5, 0) == [0] * 6
    flipping = edges(1, 1)
    assert flipping == [flipping[0], 190 - flipping[0]] * 3
    assert 60 < flipping[0] < 130


def test_directed_links_fail_one_by_one_and_undirected_ones_in_both_directions():
    both = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)
    graphs = topologies.link_failures(both, fail=0.5, recover=0.5, seed=0)
    assert {tuple(graphs.at(t).adjacency.toarray()[[0, 1], [1, 0]]) for t in range(40)} == {
        (0, 0), (0, 1), (1, 0), (1, 1)
    }  # fmt: skip
    undirected = topologies.link_failures(topologies.torus(16), fail=0.5, recover=0.5, seed=0)
    assert not any(undirected.at(t).is_directed for t in range(10))


def weighted(own_weights):
    weights = np.array([[0, 0.5, 0.25], [0.5, 0, 0.25], [0.25, 0.25, 0]])
    return Topology(sparse.csr_array(weights), "mine", ((0, 1), (2,)), ("a", "b", "c"), own_weights)


@pytest.mark.parametrize("change", [{"fail": 0.5, "recover": 0.5}, {"fraction": 0.7}])
def test_weights_groups_and_labels_are_kept(change):
    generator = topologies.link_failures if "fail" in change else topologies.participation
    base = weighted(own_weights=True)
    graphs = generator(base, **change, seed=0)
    for t in range(20):
        graph = graphs.at(t)
        assert (graph.groups, graph.nodes, graph.own_weights) == (base.groups, base.nodes, True)
        present = graph.adjacency.toarray() > 0
        np.testing.assert_array_equal(
            graph.adjacency.toarray(), np.where(present, base.adjacency.toarray(), 0)
        )
        W = mixing.metropolis_or_uniform(graph)
        assert W.is_doubly_stochastic  # what was not sent stays with the receivers
        np.testing.assert_allclose(W.weights.diagonal(), 1 - graph.adjacency.toarray().sum(axis=0))


def test_graphs_of_networkx_are_taken():
    graphs = topologies.link_failures(nx.path_graph(["x", "y", "z"]), fail=0.0, recover=1.0, seed=0)
    assert graphs.at(0).nodes == ("x", "y", "z")
    assert graphs.name == "link_failures(networkx, fail=0.0, recover=1.0, seed=0)"
    one = topologies.link_failures(topologies.ring(1), fail=0.5, recover=0.5, seed=0)
    assert one.at(3).n_edges == 0


@pytest.mark.parametrize(
    ("n", "fraction", "k"), [(10, 0.3, 3), (10, 0.01, 1), (10, 1, 10), (7, 0.5, 4), (1, 0.2, 1)]
)
def test_as_many_nodes_take_part_as_the_fraction_says(n, fraction, k):
    graphs = topologies.participation(topologies.fully_connected(n), fraction=fraction, seed=0)
    for t in range(5):
        assert graphs.at(t).n_edges == k * (k - 1) // 2
        assert k == 1 or sorted(graphs.at(t).out_degrees) == [0] * (n - k) + [k - 1] * k


def test_all_sets_of_participants_are_equally_likely():
    graphs = topologies.participation(topologies.fully_connected(6), fraction=0.5, seed=0)
    sets, counts = np.unique(
        [graphs.at(t).out_degrees > 0 for t in range(2000)], axis=0, return_counts=True
    )
    assert len(sets) == 20
    assert stats.chisquare(counts).pvalue > 1e-3


def test_participants_keep_the_edges_between_them():
    base = topologies.small_world(30, seed=0)
    whole = topologies.participation(topologies.fully_connected(30), fraction=0.4, seed=8)
    graphs = topologies.participation(base, fraction=0.4, seed=8)
    for t in range(5):
        there = np.flatnonzero(whole.at(t).out_degrees)  # the same seed, so the same nodes
        wanted = base.to_networkx().subgraph(there)
        assert nx.utils.edges_equal(list(graphs.at(t).to_networkx().edges), list(wanted.edges))


def test_participation_in_a_sequence_follows_its_rounds():
    pulls = topologies.random_in(20, 5, seed=0)
    graphs = topologies.participation(pulls, fraction=0.5, seed=0)
    for t in (0, 3):
        graph = graphs.at(t)
        assert (graph.adjacency.multiply(pulls.at(t).adjacency) != graph.adjacency).nnz == 0
        assert graph.n_edges > 0
    peers = topologies.participation(topologies.one_peer_exponential(8), fraction=1, seed=0)
    assert peers.period is None
    assert all(
        (peers.at(t).adjacency != topologies.one_peer_exponential(8).at(t % 3).adjacency).nnz == 0
        for t in range(7)
    )
    failing = topologies.link_failures(topologies.ring(8), fail=0.5, recover=0.5, seed=0)
    both = topologies.participation(failing, fraction=0.5, seed=0)
    assert both.name == (
        "participation(link_failures(ring(n=8), fail=0.5, recover=0.5, seed=0), "
        "fraction=0.5, seed=0)"
    )
    assert both.at(1).n == 8


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"base": 3}, TypeError, "`base` must be"),
        (
            {"base": topologies.random_in(5, 2, seed=0)},
            TypeError,
            r"`base` must be one graph.*take one of its rounds",
        ),
        ({"fail": 1.5}, ValueError, "`fail`"),
        ({"recover": -1}, ValueError, "`recover`"),
        ({"recover": "soon"}, TypeError, "`recover`"),
        ({"seed": -1}, ValueError, "`seed`"),
        ({"seed": np.random.default_rng(0)}, TypeError, "`seed` must be an integer"),
    ],
)
def test_bad_arguments_of_link_failures_are_named(change, error, message):
    arguments = {"base": topologies.ring(5), "fail": 0.5, "recover": 0.5, "seed": 0} | change
    with pytest.raises(error, match=message):
        topologies.link_failures(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"base": "ring"}, TypeError, "`base` must be"),
        ({"fraction": 0}, ValueError, "`fraction` must be above 0"),
        ({"fraction": 1.1}, ValueError, "`fraction`"),
        ({"fraction": None}, TypeError, "`fraction`"),
        ({"seed": 0.5}, TypeError, "`seed`"),
    ],
)
def test_bad_arguments_of_participation_are_named(change, error, message):
    with pytest.raises(error, match=message):
        topologies.participation(
            **{"base": topologies.ring(5), "fraction": 0.5, "seed": 0} | change
        )


def test_chains_that_no_round_decides_cost_nothing_at_late_rounds():
    base = topologies.ring(20)
    far = 10**15
    assert topologies.link_failures(base, fail=0, recover=0, seed=0).at(far).n_edges == 20
    assert topologies.link_failures(base, fail=0.2, recover=0, seed=0).at(far).n_edges == 0
    swapping = topologies.link_failures(base, fail=1, recover=1, seed=0)
    even, odd = swapping.at(far - 1).adjacency, swapping.at(far).adjacency
    assert ((even + odd) != base.adjacency).nnz == 0
    assert 0 < even.nnz < 40
    assert (swapping.at(0).adjacency != odd).nnz in (0, 40)


def test_they_can_be_pickled():
    for graphs in (
        topologies.link_failures(topologies.ring(9), fail=0.3, recover=0.4, seed=2),
        topologies.participation(topologies.random_out(9, 2, seed=0).at(0), fraction=0.5, seed=2),
    ):
        again = pickle.loads(pickle.dumps(graphs))
        assert all((again.at(t).adjacency != graphs.at(t).adjacency).nnz == 0 for t in range(5))


def test_participation_in_participation_is_thinner_under_another_seed_only():
    once = topologies.participation(topologies.fully_connected(40), fraction=0.5, seed=0)
    same, other = (topologies.participation(once, fraction=0.5, seed=seed) for seed in (0, 1))
    assert same.at(3).n_edges == once.at(3).n_edges == 190
    assert other.at(3).n_edges < 100
