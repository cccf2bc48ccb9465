"""B-connectivity against brute force over all windows."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import topologies
from topofl.metrics import b_connectivity
from topofl.topology import TopologyError, TopologySequence, from_edges


def union_is_strong(graphs):
    union = nx.DiGraph()
    union.add_nodes_from(range(graphs[0].n))
    for graph in graphs:
        union.add_edges_from(graph.edge_index.T.tolist())
    return nx.is_strongly_connected(union)


def brute(at, starts, longest):
    """Return the smallest B up to `longest` with all windows at starts(B) strongly connected."""
    for b in range(1, longest + 1):
        if all(union_is_strong([at(start + s) for s in range(b)]) for start in starts(b)):
            return b
    return math.inf


@st.composite
def members(draw):
    n = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    density = draw(st.sampled_from([0.1, 0.25, 0.5]))
    masks = [rng.random((n, n)) < density for _ in range(draw(st.integers(1, 8)))]
    return [
        from_edges(np.argwhere(mask & ~np.eye(n, dtype=bool)), n, directed=True) for mask in masks
    ]


@given(graphs=members())
def test_periodic_sequences_equal_brute_force_for_all_time(graphs):
    p = len(graphs)
    sequence = TopologySequence(graphs[0].n, graphs.__getitem__, period=p)
    sliding = brute(sequence.at, lambda b: range(p), p)
    block = brute(sequence.at, lambda b: range(0, p * b, b), p)
    assert b_connectivity(sequence) == sliding
    assert b_connectivity(sequence, windows="block") == block
    assert block <= sliding
    assert sliding <= 2 * block - 1


@given(graphs=members())
def test_finite_horizons_equal_brute_force(graphs):
    t = len(graphs)
    sequence = TopologySequence(graphs[0].n, graphs.__getitem__)
    assert b_connectivity(sequence, rounds=t) == brute(sequence.at, lambda b: range(t - b + 1), t)
    assert b_connectivity(sequence, rounds=t, windows="block") == brute(
        sequence.at, lambda b: range(0, t - b + 1, b), t
    )


def test_known_graphs():
    assert b_connectivity(topologies.ring(5)) == 1
    assert b_connectivity(topologies.random_cliques(6, 3, seed=0)) == math.inf
    assert b_connectivity(topologies.one_peer_exponential(2)) == 1
    assert (
        b_connectivity(topologies.one_peer_exponential(12)) == 4
    )  # from offset 2 on until offset 1 comes again
    assert b_connectivity(topologies.random_out(100, k=10, seed=0), rounds=50) in (1, 2)


def test_long_random_sequences_cost_linear_time():
    """Each round is computed once for windows of any length, connected or not."""
    asked = []
    graphs = topologies.random_out(20, 1, seed=0)

    def counted(t):
        asked.append(t)
        return graphs.at(t)

    assert b_connectivity(TopologySequence(20, counted), rounds=300) > 1
    assert asked == list(range(300))
    asked.clear()
    assert b_connectivity(TopologySequence(20, counted), rounds=300, windows="block") > 1
    assert asked == list(range(300))
    apart = topologies.random_cliques(20, 10, seed=0)
    never = TopologySequence(20, lambda t: asked.append(t) or apart)
    asked.clear()
    assert b_connectivity(never, rounds=300, windows="block") == math.inf
    assert asked == list(range(300))


def test_bad_input():
    endless = topologies.random_out(5, 1, seed=0)
    with pytest.raises(TopologyError, match="`rounds` must be given"):
        b_connectivity(endless)
    with pytest.raises(ValueError, match="`rounds` must be left out"):
        b_connectivity(topologies.ring(4), rounds=5)
    with pytest.raises(ValueError, match="`rounds` must be at least 1"):
        b_connectivity(endless, rounds=0)
    with pytest.raises(ValueError, match="did you mean 'sliding'"):
        b_connectivity(topologies.ring(4), windows="slidin")
    with pytest.raises(TypeError, match="`graphs`"):
        b_connectivity(3.5)
