"""Designed topologies keep degrees and limits, and leave less heterogeneity than their starts."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

from tests import problems
from topofl import as_topology, data, metrics, mixing, topologies
from topofl.topologies._edge_swaps import (
    Design,
    _ranked,
    _with_swaps,
    heterogeneity,
    metropolis,
    slopes,
)
from topofl.topologies.frank_wolfe import _joined, _Objective
from topofl.topology import from_edges

CLIENTS = data.shards(data.digits(), n=30, per_node=2, seed=0)
RNG = np.random.default_rng(0)


def left(graph, hops=10, clients=CLIENTS):
    return metrics.neighborhood_heterogeneity(graph, clients, hops=hops)


def deviations_of(clients=CLIENTS):
    shares = metrics.label_distributions(clients)
    return shares - shares.mean(axis=0)


@pytest.mark.slow
@problems.by_turns(2, degree=[2, 3, 4, 9])
def test_designed_graphs_beat_random_and_clique_graphs_of_the_same_degree(degree):
    graph = topologies.designed(CLIENTS, degree=degree, seed=0)
    assert graph.is_connected
    assert not graph.is_directed
    assert set(graph.out_degrees.tolist()) == {degree}
    randoms = [topologies.random_regular(30, degree, seed=seed) for seed in range(5)]
    assert left(graph) < 0.75 * min(left(other) for other in randoms)


@pytest.mark.slow
def test_designed_graphs_beat_d_cliques_with_as_many_edges():
    cliques = topologies.dcliques(CLIENTS, clique_size=10, inter="ring", seed=0)
    graph = topologies.designed(CLIENTS, edges=cliques.n_edges, seed=0)
    assert graph.n_edges == cliques.n_edges
    assert np.ptp(graph.out_degrees) <= 1
    assert left(graph) < left(cliques)


def test_more_steps_never_leave_more():
    values = [left(topologies.designed(CLIENTS, degree=3, steps=k, seed=0)) for k in (0, 5, 50)]
    assert values[0] > values[1] > values[2]


def test_the_objective_is_that_of_metropolis_hastings_weights():
    graph = topologies.random_regular(30, 4, seed=0)
    edges = graph.edge_index.T[graph.edge_index[0] < graph.edge_index[1]]
    weights = metropolis(edges, graph.out_degrees)
    wanted = mixing.metropolis_hastings(graph).weights.toarray()
    np.testing.assert_allclose(weights.toarray(), wanted, atol=1e-15)
    assert heterogeneity(weights, deviations_of(), 7) == pytest.approx(left(graph, 7), rel=1e-12)


@pytest.mark.parametrize("hops", [1, 4])
def test_slopes_are_derivatives(hops):
    weights = mixing.uniform(topologies.random_out(30, 3, seed=0).at(0)).weights
    first, second = slopes(weights, deviations_of(), hops)
    gradient = first @ second.T
    direction = RNG.standard_normal((30, 30))
    step = 1e-6
    up, down = (
        heterogeneity(weights + s * step * direction, deviations_of(), hops) for s in (1, -1)
    )
    assert (up - down) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-6)


@pytest.mark.parametrize("edges", [45, 50])
def test_for_one_hop_every_swap_that_is_proposed_lowers_the_objective(edges):
    graph = topologies.designed(CLIENTS, edges=edges, hops=1, steps=3, seed=0)
    ends = graph.edge_index.T[graph.edge_index[0] < graph.edge_index[1]]
    degrees = graph.out_degrees
    swaps = _ranked(ends, Design(degrees, deviations_of(), 1), RNG)

    def value(chosen):
        changed = _with_swaps(ends, chosen)
        return heterogeneity(metropolis(changed, degrees), deviations_of(), 1)

    assert len(swaps) > 0
    assert all(value(swap[None]) < left(graph, 1) + 1e-12 for swap in swaps)  # rounding


@pytest.mark.slow
def test_same_seed_same_graph():
    graphs = [topologies.designed(CLIENTS, degree=3, seed=seed) for seed in (0, 0, 1)]
    edges = [graph.edge_index.tolist() for graph in graphs]
    assert edges[0] == edges[1] != edges[2]
    assert graphs[0].name == "designed(label_counts[30x10], degree=3, seed=0)"


def test_edges_stay_on_a_physical_network():
    network = topologies.random_regular(30, 10, seed=3)
    backbone = topologies.ring(30)
    allowed = topologies.union(network, backbone)
    graph = topologies.designed(CLIENTS, degree=4, allowed=allowed, required=backbone, seed=0)
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert edges <= set(map(tuple, allowed.edge_index.T.tolist()))
    assert edges >= set(map(tuple, backbone.edge_index.T.tolist()))
    how = {"allowed": allowed, "required": backbone, "seed": 0}
    start = topologies.designed(CLIENTS, degree=4, steps=0, **how)
    assert left(graph) < left(start)


@pytest.mark.slow
def test_large_sparse_networks_are_possible():
    network = topologies.circulant(1500, range(1, 9))
    counts = np.eye(10, dtype=int)[np.random.default_rng(0).integers(10, size=1500)]
    how = {"degree": 4, "allowed": network, "seed": 0}
    start, found = (topologies.designed(counts, steps=k, **how) for k in (0, 40))
    assert set(found.out_degrees.tolist()) == {4}
    assert found.is_connected
    assert not (found.adjacency > network.adjacency).nnz
    assert left(found, clients=counts) < 0.8 * left(start, clients=counts)


def test_small_graphs_are_designed_and_the_diameter_is_kept():
    assert topologies.designed(CLIENTS, degree=3, max_diameter=5, seed=0).diameter <= 5
    assert topologies.designed(n=2, degree=1, seed=0).edge_index.T.tolist() == [[0, 1], [1, 0]]
    assert nx.is_tree(topologies.designed(n=7, edges=6, seed=0).to_networkx())


@pytest.mark.slow
def test_private_histograms_take_the_place_of_counts():
    shares = data.private_label_histograms(CLIENTS, epsilon=5.0, seed=0)
    graph = topologies.designed(label_shares=shares, degree=4, seed=0)
    assert left(graph) < left(topologies.random_regular(30, 4, seed=0))
    exact = topologies.designed(label_shares=metrics.label_distributions(CLIENTS), degree=4, seed=0)
    same = topologies.designed(CLIENTS, degree=4, seed=0)
    assert exact.edge_index.tolist() == same.edge_index.tolist()


# Directed


def test_the_numerical_line_search_finds_the_closed_form_of_one_hop():
    counts = np.random.default_rng(0).integers(1, 50, (30, 10))
    shares = metrics.label_distributions(counts)
    objective = _Objective(shares - shares.mean(axis=0), 1, 0.1, None)
    weights = objective.minimized(sparse.csr_array(np.eye(30)), 1)
    wanted = mixing.own_weights(topologies.stl_fw(counts, degree=1)).weights.toarray()
    np.testing.assert_allclose(weights.toarray(), wanted, atol=1e-6)


def test_one_hop_is_stl_fw():
    ours = topologies.designed_directed(CLIENTS, degree=4, hops=1)
    theirs = topologies.stl_fw(CLIENTS, degree=4)
    found, wanted = (mixing.own_weights(graph).weights.toarray() for graph in (ours, theirs))
    np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize("hops", [1, 5])
def test_directed_weights_are_doubly_stochastic_with_bounded_degrees(hops):
    graph = topologies.designed_directed(CLIENTS, degree=3, hops=hops)
    weights = mixing.own_weights(graph)
    assert weights.is_doubly_stochastic
    assert max(graph.in_degrees.max(), graph.out_degrees.max()) <= 3
    graphs = [topologies.designed_directed(CLIENTS, degree=k, hops=hops) for k in (0, 1, 2, 3)]
    values = [left(graph, hops) for graph in graphs]
    assert values == sorted(values, reverse=True)


def test_directed_edges_stay_on_a_physical_network():
    allowed = topologies.random_regular(30, 8, seed=0)
    graph = topologies.designed_directed(CLIENTS, degree=3, allowed=allowed)
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert edges
    assert edges <= set(map(tuple, allowed.edge_index.T.tolist()))


EQUAL = np.ones((40, 10), dtype=int)


@pytest.mark.parametrize("hops", [1, 10])
@pytest.mark.parametrize(
    ("n", "degree"), [(12, 1), (12, 3), (20, 2), (20, 3), (40, 2), (40, 3), (40, 5)]
)
def test_directed_designs_of_equal_labels_are_connected(n, degree, hops):
    graph = topologies.designed_directed(EQUAL[:n], degree=degree, hops=hops)
    assert graph.is_connected
    assert max(graph.in_degrees.max(), graph.out_degrees.max()) <= degree
    weights = mixing.own_weights(graph)
    assert weights.is_doubly_stochastic
    assert weights.spectral_gap >= mixing.own_weights(_cycle(n)).spectral_gap * (1 - 1e-9)


def _cycle(n):
    """Directed cycle with weights of one half, the least that any connected design starts from."""
    return as_topology(np.roll(np.eye(n), 1, axis=1) / 2, own_weights=True)


@pytest.mark.parametrize("degree", [1, 2])
def test_cycles_are_joined_on_the_edges_of_a_physical_network(degree):
    allowed = topologies.random_regular(20, 10, seed=0)
    graph = topologies.designed_directed(EQUAL[:20], degree=degree, allowed=allowed)
    assert graph.is_connected
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert edges <= set(map(tuple, allowed.edge_index.T.tolist()))
    assert max(graph.in_degrees.max(), graph.out_degrees.max()) <= degree


def test_joined_cycles_cost_as_little_as_swaps_allow():
    costs = np.full((6, 6), 5.0)
    costs[[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]] = 0.0  # three pairs
    costs[0, 3] = costs[2, 1] = costs[3, 5] = costs[4, 2] = 1.0
    costs[5, 2] = np.inf
    assert _joined(np.array([1, 0, 3, 2, 5, 4]), costs).tolist() == [3, 0, 1, 5, 2, 4]


def test_designs_that_the_allowed_edges_leave_disconnected_are_reported():
    allowed = as_topology([(0, 1), (2, 3), (1, 2)])
    with pytest.warns(UserWarning, match="is not strongly connected.*edges of `allowed`") as found:
        graph = topologies.designed_directed(EQUAL[:4], degree=1, allowed=allowed)
    assert found[0].filename == __file__
    assert not graph.is_connected


def test_nodes_may_keep_to_themselves_where_a_physical_network_has_no_permutation():
    """On a path of three nodes, every permutation leaves some node as it is."""
    path = from_edges([(0, 1), (1, 2)], 3)
    graph = topologies.designed_directed(np.eye(3, dtype=int), degree=2, allowed=path)
    assert sorted(map(tuple, graph.edge_index.T.tolist())) == [(0, 1), (1, 0), (1, 2), (2, 1)]
