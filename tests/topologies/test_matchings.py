"""Graphs in turns: proper edge colorings."""

import dataclasses

import networkx as nx
import numpy as np
import pytest

from topofl import mixing, topologies
from topofl.topology import TopologyError, as_topology


def period_after_checks(graph):
    """Return the number of rounds, which must be matchings that hold each edge once."""
    turns = topologies.matchings(graph)
    base = as_topology(graph)
    rounds = [turns.at(t) for t in range(turns.period)]
    assert turns.n == base.n
    assert all(member.out_degrees.max() <= 1 for member in rounds)
    assert all(member.n_edges for member in rounds) or turns.period == 1  # no turn without edges
    union = sum(member.adjacency for member in rounds)
    assert np.array_equal(union.toarray(), base.adjacency.toarray() != 0)
    return turns.period


def test_all_graphs_of_up_to_six_nodes_and_some_of_seven():
    """At most one round above the largest degree (Vizing); exactly it if bipartite (König)."""
    atlas = nx.graph_atlas_g()
    for graph in atlas[1:209] + atlas[209::8]:
        period, degree = period_after_checks(graph), max(dict(graph.degree).values())
        assert max(1, degree) <= period <= degree + (not nx.is_bipartite(graph) or degree == 0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [20, 41])
def test_random_graphs_need_at_most_one_round_more_than_their_largest_degree(n, p):
    for seed in range(5):
        graph = nx.gnp_random_graph(n, p, seed=seed)
        assert period_after_checks(graph) <= max(dict(graph.degree).values()) + 1


def test_random_bipartite_graphs_need_their_largest_degree():
    for seed in range(10):
        graph = nx.bipartite.random_graph(15, 20, 0.4, seed=seed)
        assert period_after_checks(graph) == max(dict(graph.degree).values())


@pytest.mark.parametrize("n", range(2, 12))
def test_complete_graphs(n):
    assert period_after_checks(topologies.fully_connected(n)) == n - 1 + n % 2


@pytest.mark.parametrize("n", [4, 7, 12, 31])
def test_rings(n):
    assert period_after_checks(topologies.ring(n)) == 2 + n % 2


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_exponential_graphs_of_powers_of_two_need_their_degree(n):
    graph = topologies.exponential(n)
    assert period_after_checks(graph) == graph.out_degrees[0]


@pytest.mark.parametrize(
    ("n", "offsets"), [(8, [1, 2]), (8, [3, 4]), (12, [1, 3, 6]), (20, [5, 10, 6]), (6, [3])]
)
def test_circulants_of_even_cycles_need_their_degree(n, offsets):
    graph = topologies.circulant(n, offsets)
    assert period_after_checks(graph) == graph.out_degrees[0]


def test_known_chromatic_indices():
    assert (
        period_after_checks(nx.petersen_graph()) == 4
    )  # class two, as are rings and complete graphs of odd order
    assert period_after_checks(nx.heawood_graph()) == 3
    assert period_after_checks(topologies.star(9)) == 8
    assert period_after_checks(topologies.hypercube(16)) == 4
    assert period_after_checks(topologies.grid(12)) == 4
    assert period_after_checks(topologies.circulant(9, [3])) == 3  # three triangles
    assert period_after_checks(topologies.random_cliques(9, 3, seed=0)) == 3


def test_graphs_without_edges_have_one_round():
    assert period_after_checks(topologies.ring(1)) == 1
    assert period_after_checks(np.zeros((4, 4))) == 1


def test_matched_nodes_average():
    turns = topologies.matchings(topologies.ring(4))
    values = np.array([0.0, 1.0, 2.0, 5.0])
    for t in range(2):
        values = mixing.metropolis_or_uniform(turns.at(t)) @ values
    assert values.tolist() == [2.0] * 4  # two pairs, twice: the one-peer hypercube


def test_labels_are_kept_and_weights_are_not():
    graph = nx.Graph([("a", "b", {"weight": 0.25}), ("b", "c", {"weight": 0.5})], name="abc")
    with pytest.warns(
        UserWarning, match=r"abc carry weights from 0.25 to 0.5, .*: .* the edges of `base`"
    ) as told:
        turns = topologies.matchings(graph)
    assert [str(warning.filename) for warning in told] == [__file__]
    assert turns.name == "matchings(abc)"
    assert turns.at(1).name == "matchings(abc).at(1)"
    assert [turns.at(t).nodes for t in range(2)] == [("a", "b", "c")] * 2
    assert set(turns.at(0).adjacency.data) == {1.0}
    own = topologies.u_equistatic(7, 2, seed=0)
    with pytest.raises(
        ValueError,
        match=r"`base` must not have its own mixing weights, .* dataclasses.replace\(graph, adj",
    ):
        topologies.matchings(own)
    plain = topologies.matchings(
        dataclasses.replace(own, adjacency=own.adjacency != 0, own_weights=False)
    )
    assert not plain.at(0).own_weights


def test_groups_are_kept():
    graph = topologies.dcliques(n=20, clique_size=5, inter="ring", seed=0)
    turns = topologies.matchings(graph)
    assert graph.groups
    assert all(turns.at(t).groups == graph.groups for t in range(turns.period))


def test_edge_lists_are_taken():
    assert period_after_checks([(0, 1), (1, 2), (2, 0)]) == 3


def test_what_is_not_one_undirected_graph_is_refused():
    with pytest.raises(
        TopologyError,
        match=r"`base` must be undirected, exponential\(n=8, directed=True\) is directed",
    ):
        topologies.matchings(topologies.exponential(8, directed=True))
    with pytest.raises(
        TypeError,
        match=r"`base` must be one graph, got TopologySequence\(.random_in.*; "
        r"take one of its rounds",
    ):
        topologies.matchings(topologies.random_in(8, 2, seed=0))
    with pytest.raises(TypeError, match="`base`"):
        topologies.matchings(3)
