"""Weight rules equal matrices computed by hand and check their arguments."""

import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tests.mixing.samples import directed_path
from topofl import mixing, topologies
from topofl.topology import Topology, as_topology, from_edges


def test_metropolis_hastings_by_hand():
    W = mixing.metropolis_hastings(topologies.star(4))
    expected = np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4
    assert np.allclose(W.weights.toarray(), expected, rtol=0, atol=1e-15)
    assert W.name == "metropolis_hastings(star(n=4))"
    name = "'metropolis_hastings(star(n=4))'"
    assert repr(W) == f"MixingMatrix({name}, n=4, doubly stochastic, messages=6)"


def test_metropolis_hastings_on_cliques_is_the_papers():
    """D-Cliques: on the complete graph all weights are 1/n; edges' own weights are not used."""
    assert mixing.metropolis_hastings(topologies.fully_connected(7)).is_uniform_mean
    heavy = Topology(5.0 * topologies.ring(6).adjacency)
    light = mixing.metropolis_hastings(topologies.ring(6))
    assert abs(mixing.metropolis_hastings(heavy).weights - light.weights).max() < 1e-15


def weighted(*edges):
    graph = nx.Graph()
    graph.add_weighted_edges_from(edges)
    return as_topology(graph)


def test_weighted_metropolis_by_hand():
    """Strengths are 3 + 3, 4 + 3 and 1 + 1; the larger one of each edge divides its weight."""
    W = mixing.weighted_metropolis(weighted((0, 1, 3.0), (1, 2, 1.0))).weights.toarray()
    assert np.allclose(W, np.array([[4, 3, 0], [3, 3, 1], [0, 1, 6]]) / 7, rtol=0, atol=1e-15)


def test_weighted_metropolis_ignores_scale_and_is_metropolis_hastings_for_equal_weights():
    graph = topologies.erdos_renyi(12, 0.4, seed=1)
    plain = mixing.metropolis_hastings(graph).weights.toarray()
    rng = np.random.default_rng(0)
    strengths = np.triu(rng.random((12, 12)), 1)
    heavy = graph.adjacency.multiply(strengths + strengths.T)
    for scale in (0.01, 1.0, 300.0):
        equal = mixing.weighted_metropolis(Topology(scale * graph.adjacency))
        assert np.allclose(equal.weights.toarray(), plain, rtol=0, atol=1e-15)
        W = mixing.weighted_metropolis(Topology(scale * heavy))
        once = mixing.weighted_metropolis(Topology(heavy))
        assert np.allclose(W.weights.toarray(), once.weights.toarray(), rtol=0, atol=1e-14)
        assert W.is_doubly_stochastic
        assert np.isclose(W.spectral_gap, _gap(W.weights.toarray()), rtol=0, atol=1e-9)


def test_weighted_metropolis_of_a_node_without_edges_keeps_its_model():
    graph = nx.Graph()
    graph.add_node(0)
    graph.add_edge(1, 2, weight=5.0)
    W = mixing.weighted_metropolis(as_topology(graph)).weights.toarray()
    assert W.tolist() == [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]


def _gap(W) -> float:
    """Return 1 minus the second largest absolute eigenvalue of a symmetric matrix."""
    return 1 - np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]


@pytest.mark.parametrize("kind", ["networkx", "pyg weights", "pyg attributes"])
def test_own_mixing_weights_of_a_graph_have_its_spectral_gap(kind):
    """The weights of a user's matrix come back, with its gap, and predict its contraction."""
    W = np.array([[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.2, 0.7]])
    edges = W - np.diag(np.diag(W))
    if kind == "networkx":
        graph = nx.relabel_nodes(nx.from_numpy_array(edges), dict(enumerate("abc")))
    else:
        senders, receivers = np.nonzero(edges)
        values = torch.from_numpy(edges[senders, receivers])
        own = {"edge_weight": values} if "weights" in kind else {"edge_attr": values[:, None]}
        graph = Data(edge_index=torch.tensor(np.array([senders, receivers])), num_nodes=3, **own)
    found = mixing.metropolis_or_uniform(as_topology(graph, own_weights=True))
    assert np.allclose(found.weights.toarray(), W, rtol=0, atol=1e-15)
    assert np.isclose(found.spectral_gap, _gap(W), rtol=0, atol=1e-12)


def test_max_degree_by_hand():
    W = mixing.max_degree(topologies.path(3)).weights.toarray()
    assert np.allclose(W, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3, rtol=0, atol=1e-15)
    laplacian = nx.laplacian_matrix(topologies.star(5).to_networkx()).toarray()
    found = mixing.max_degree(topologies.star(5)).weights.toarray()
    assert np.allclose(found, np.eye(5) - laplacian / 5)


def test_rows_are_receivers():
    """0 -> 1 -> 2: node 1 hears node 0, so row 1 has a weight in column 0; only this transposes."""
    pull = mixing.uniform(directed_path(), direction="pull")
    push = mixing.uniform(directed_path(), direction="push")
    assert pull.weights.toarray().tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]
    assert push.weights.toarray().tolist() == [[0.5, 0, 0], [0.5, 0.5, 0], [0, 0.5, 1]]
    assert pull.stochasticity == "row stochastic"
    assert push.stochasticity == "column stochastic"
    assert (pull @ np.array([4.0, 0.0, 0.0])).tolist() == [4, 2, 0]
    assert pull.out_messages.tolist() == push.out_messages.tolist() == [1, 1, 0]
    assert pull.in_messages.tolist() == push.in_messages.tolist() == [0, 1, 1]
    assert pull.support().edge_index.tolist() == directed_path().edge_index.tolist()
    assert pull.support().name == "support(uniform(path, direction='pull'))"


def test_lazy_keeps_a_share():
    W = mixing.metropolis_hastings(topologies.ring(5))
    found = mixing.lazy(W, share=0.25).weights.toarray()
    assert np.allclose(found, 0.25 * np.eye(5) + 0.75 * W.weights.toarray())
    assert (mixing.lazy(W).eigenvalues >= 0).all()
    assert mixing.lazy(W, share=0.25).name == f"lazy({W.name}, share=0.25)"
    assert abs(mixing.lazy(W, share=0).weights - W.weights).max() == 0


def test_own_weights_are_those_of_the_edges_and_the_default_of_graphs_that_came_with_them():
    # adjacency[u, v]: what v takes from u
    edges = np.array([[0, 0.5, 0], [0.25, 0, 1], [0, 0.5, 0]])
    graph = Topology(edges, name="g", own_weights=True)
    W = mixing.metropolis_or_uniform(graph)
    assert W.name == "own_weights(g)"
    assert W.weights.toarray().tolist() == [[0.75, 0.25, 0], [0.5, 0, 0.5], [0, 1, 0]]
    named = mixing.metropolis_or_uniform(Topology(edges, name="g"))
    assert named.name == "uniform(g, direction='pull')"
    assert pickle.loads(pickle.dumps(graph)).own_weights
    assert graph.renamed("h").own_weights


def test_metropolis_or_uniform_follows_direction():
    assert mixing.metropolis_or_uniform(topologies.star(4)).name == "metropolis_hastings(star(n=4))"
    assert mixing.metropolis_or_uniform(directed_path()).name == "uniform(path, direction='pull')"


def test_within_groups_averages_cliques():
    graph = topologies.dcliques(n=11, clique_size=5, inter="fully_connected", seed=0)
    W = mixing.within_groups(graph).weights.toarray()
    for group in graph.groups:
        for i in group:
            assert np.flatnonzero(W[i]).tolist() == sorted(group)
            assert np.allclose(W[i, list(group)], 1 / len(group), rtol=0, atol=1e-15)


def test_within_groups_where_edges_were_removed():
    """Each averages with members still adjacent: rows sum to 1, columns not; others stay."""
    graph = from_edges([(0, 1), (1, 2), (2, 3), (3, 4)], 5, groups=[(0, 1, 2)])
    W = mixing.within_groups(graph)
    own = np.diag([3, 2, 3, 6, 6])
    own[0, 1], own[1, [0, 2]], own[2, 1] = 3, 2, 3
    assert W.weights.toarray() == pytest.approx(own / 6)
    assert W.stochasticity == "row stochastic"
