"""Mixing matrices from weights and from sizes."""

import copy
import dataclasses
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mixing.samples import shares
from topofl import mixing, topologies
from topofl.topology import as_topology

TAKEN = [[0.7, 0.1, 0.2], [0.5, 0.5, 0], [0, 0.6, 0.4]]


def test_from_weights_takes_networkx_graphs() -> None:
    for W in (
        mixing.from_weights(shares()),
        mixing.from_weights(shares(), edges="u->v"),
        mixing.from_weights(shares().reverse(), edges="u<-v"),
        mixing.from_weights(nx.to_numpy_array(shares(), nodelist=range(3)), edges="u->v"),
        mixing.from_weights(nx.to_scipy_sparse_array(shares(), nodelist=range(3)), edges="u->v"),
        mixing.from_weights(TAKEN, edges="u<-v"),
        mixing.from_weights(mixing.from_weights(TAKEN).to_pyg()),
    ):
        assert W.weights.toarray().tolist() == TAKEN
        assert W.is_row_stochastic
        assert W.name == "from_weights(n=3)"
    assert mixing.from_weights(nx.Graph([(0, 1)])).weights.toarray().tolist() == [[0, 1], [1, 0]]


def test_weights_of_a_graph_stand_where_the_nodes_of_its_topology_do() -> None:
    names = {0: "z", 1: "x", 2: "y"}
    graph = nx.relabel_nodes(shares(), names)
    support = nx.DiGraph()
    support.add_nodes_from("xyz")
    support.add_edges_from((u, v) for u, v in graph.edges if u != v)
    W = mixing.from_weights(graph, as_topology(support))
    order = [1, 2, 0]  # where x, y and z were
    assert W.weights.toarray().tolist() == np.array(TAKEN)[order][:, order].tolist()
    with pytest.raises(
        ValueError,
        match="`weights` must have the nodes of networkx, node 'x' is missing; use the same labels",
    ):
        mixing.from_weights(shares(), as_topology(support))


def test_matrices_keep_labels_and_are_not_used_in_another_order() -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from("cba")
    graph.add_weighted_edges_from([(u, v, 1 / 3) for u in "abc" for v in "abc"])
    graph["a"]["b"]["weight"], graph["b"]["b"]["weight"] = 0.1, 1 - 0.1 - 1 / 3
    support = as_topology(nx.relabel_nodes(nx.complete_graph(3), dict(enumerate("abc"))))
    W = mixing.from_weights(graph)
    assert W.nodes == W.support().nodes == mixing.lazy(W).nodes == ("c", "b", "a")
    assert pickle.loads(pickle.dumps(W)).nodes == copy.deepcopy(W).nodes == W.nodes
    with pytest.raises(
        ValueError,
        match=r"order: node 'a' is row 2 of from_weights\(n=3\) and node 0 .* "
        r"from_weights\(graph, topo",
    ):
        W.check_on(support)
    placed = mixing.from_weights(graph, support)
    assert placed.nodes == support.nodes
    assert placed.check_on(support) is placed
    assert placed.weights[1, 0] == W.weights[1, 2] == 0.1
    with pytest.raises(
        ValueError,
        match=r"node 0 is missing; use the same labels in both, or take rows .* nodes=\(\)",
    ):
        W.check_on(topologies.ring(3))
    assert dataclasses.replace(W, nodes=()).check_on(topologies.ring(3)).nodes == ()
    assert (
        mixing.from_weights(placed.weights).check_on(support).nodes == ()
    )  # rows of a matrix without labels
    for rule in (
        mixing.metropolis_hastings,
        mixing.max_degree,
        mixing.uniform,
        mixing.metropolis_or_uniform,
    ):
        assert rule(support).nodes == ("a", "b", "c")
    with pytest.raises(
        ValueError, match="`nodes` must have one distinct label for each of the n=3 nodes"
    ):
        dataclasses.replace(W, nodes=("a", "b"))


def test_weights_that_push_are_not_taken_for_averaging_without_a_word() -> None:
    array = nx.to_numpy_array(shares(), nodelist=range(3))  # (source, target): columns sum to 1
    with pytest.warns(
        UserWarning,
        match=r"only columns sum to 1, so these weights push. If entry \(u, v\) is the weight that "
        r"v gives to u, pass edges='u->v' and they average; to push, pass edges='u<-v'",
    ):
        pushes = mixing.from_weights(array)
    assert pushes.stochasticity == "column stochastic"
    with pytest.warns(
        UserWarning,
        match=r"If the edge \(u, v\) is the weight that u gives to v, pass edges='u<-v' and .* "
        "pass edges='u->v'",
    ):
        mixing.from_weights(shares().reverse())
    assert mixing.from_weights(array, edges="u<-v").weights.toarray().tolist() == array.tolist()
    with pytest.raises(ValueError, match=r"or the transpose, from_weights.weights, edges='u->v'."):
        mixing.check_pulls(pushes)
    graph = as_topology(shares(), drop_self_loops=True)
    with pytest.raises(
        ValueError,
        match=r"those of its transpose are on edges: from_weights.weights, topology, edges=",
    ):
        mixing.from_weights(array, graph, edges="u<-v")
    assert mixing.from_weights(array, graph, edges="u->v").weights.toarray().tolist() == TAKEN


def test_graphs_that_are_no_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="`edges` must be one of 'u->v', 'u<-v', got 'v->u'"):
        mixing.from_weights(TAKEN, edges="v->u")
    graph = shares()
    graph.remove_edges_from([(i, i) for i in range(3)])
    with pytest.raises(ValueError, match=r"sum to 1; .* use as_topology.graph, own_weights=True."):
        mixing.from_weights(graph)
    graph[1][0]["weight"] = "heavy"
    with pytest.raises(TypeError, match="`weights` must have numbers as edge weights"):
        mixing.from_weights(graph)
    with pytest.raises(ValueError, match="`weights` must not have parallel edges"):
        mixing.from_weights(nx.MultiGraph([(0, 1), (0, 1)]))


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_average_of_chosen_is_the_weighted_mean_of_groups(n, seed):
    rng = np.random.default_rng(seed)
    receives, sizes = rng.random((n, n)) < 0.4, rng.integers(1, 9, n)
    weights = mixing.average_of_chosen(receives, sizes).weights.toarray()
    for k in range(n):
        group = sorted({k, *np.flatnonzero(receives[k])})
        wanted = np.zeros(n)
        wanted[group] = sizes[group] / sizes[group].sum()
        np.testing.assert_allclose(weights[k], wanted, rtol=1e-12)
    scaled = mixing.average_of_chosen(receives, 3.7 * sizes).weights.toarray()
    np.testing.assert_allclose(scaled, weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("chosen", "sizes", "name"),
    [
        (np.ones((2, 3)), None, "chosen"),
        (np.full((2, 2), np.nan), None, "chosen"),
        (1, None, "chosen"),
        (np.eye(2), [1, 0], "sizes"),
        (np.eye(2), [1], "sizes"),
    ],
)
def test_average_of_chosen_refuses(chosen, sizes, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        mixing.average_of_chosen(chosen, sizes)
