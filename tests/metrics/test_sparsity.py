"""Sparsity and reciprocity: known values, networkx and dense matrices."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import topologies
from topofl.metrics import reciprocity, sparsity
from topofl.topology import Topology, as_topology, from_edges


@st.composite
def digraphs(draw: st.DrawFn) -> Topology:
    n, density = draw(st.integers(1, 9)), draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    chosen = np.random.default_rng(draw(st.integers(0, 2**32))).random((n, n)) < density
    return from_edges(np.argwhere(chosen & ~np.eye(n, dtype=bool)), n, directed=True)


@given(graph=digraphs())
def test_reciprocity_agrees_with_networkx_and_dense_matrices(graph: Topology) -> None:
    present = graph.adjacency.toarray() != 0
    if present.any():
        digraph = nx.DiGraph(present.astype(int))
        assert reciprocity(graph) == pytest.approx(nx.overall_reciprocity(digraph), abs=1e-15)
    else:
        assert reciprocity(graph) == 1.0
    upper = np.triu_indices(graph.n, 1)
    agree = (present == present.T)[upper]
    assert reciprocity(graph, over="pairs") == pytest.approx(
        agree.mean() if agree.size else 1.0, abs=1e-15
    )
    if graph.n > 1:
        most = int(graph.in_degrees.max())
        assert reciprocity(graph, over="pairs") >= 1 - 2 * most / (graph.n - 1) - 1e-15


@given(graph=digraphs())
def test_sparsity_is_one_minus_density(graph: Topology) -> None:
    present = graph.adjacency.toarray() != 0
    digraph = nx.DiGraph(present.astype(int))
    assert sparsity(graph) == pytest.approx(1 - nx.density(digraph), abs=1e-15)
    assert sparsity(graph, count_self=True) == pytest.approx(
        1 - (present | np.eye(graph.n, dtype=bool)).mean(), abs=1e-15
    )
    budget = int(graph.in_degrees.max()) + 1
    assert sparsity(graph, count_self=True) >= 1 - budget / graph.n - 1e-15


def test_known_graphs() -> None:
    assert sparsity(topologies.fully_connected(7)) == 0
    assert sparsity(topologies.fully_connected(7), count_self=True) == 0
    assert sparsity(topologies.ring(100), count_self=True) == pytest.approx(0.97)
    assert sparsity(from_edges([], 1)) == 1
    assert sparsity(from_edges([], 4)) == 1
    assert sparsity(from_edges([], 4), count_self=True) == 0.75
    for graph in (topologies.torus(12), topologies.star(5), from_edges([], 3)):
        assert reciprocity(graph) == reciprocity(graph, over="pairs") == 1
    assert reciprocity(topologies.exponential(8, directed=True)) == pytest.approx(
        1 / 3
    )  # offset 4 is its own way back


def test_edge_weights_are_ignored() -> None:
    graph = as_topology(np.array([[0, 0.5, 0.1], [2.0, 0, 0], [0, 0, 0]]))
    assert reciprocity(graph) == pytest.approx(2 / 3)
    assert sparsity(graph) == pytest.approx(1 / 2)


def test_large_graphs_stay_sparse() -> None:
    graph = topologies.random_out(100_000, 3, seed=0).at(0)
    assert sparsity(graph) == pytest.approx(1 - 3 / 99_999)
    assert reciprocity(graph) < 0.001


def test_inputs_are_checked() -> None:
    for metric in (sparsity, reciprocity):
        with pytest.raises(
            TypeError, match=r"`topology` must be a Topology, got TopologySequence; .*\.at\(t\)"
        ):
            metric(topologies.random_out(4, 2, seed=0))
    with pytest.raises(
        ValueError, match="`over` must be one of 'edges', 'pairs', got 'pair'; did you mean 'pairs'"
    ):
        reciprocity(topologies.ring(4), over="pair")
