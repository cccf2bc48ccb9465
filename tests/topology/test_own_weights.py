"""Edge weights as mixing weights."""

import networkx as nx
import numpy as np
import pytest

from analysis import gallery
from topofl import mixing, topologies
from topofl.topology import Topology, as_topology, from_edges

SHARES = nx.DiGraph()


SHARES.add_weighted_edges_from([(1, 0, 0.1), (2, 0, 0.2), (0, 1, 0.5), (1, 2, 0.6)])


W_OF_SHARES = [[0.7, 0.1, 0.2], [0.5, 0.5, 0], [0, 0.6, 0.4]]  # row i: what node i takes from whom


def with_loops(share: float) -> nx.DiGraph:
    graph = SHARES.copy()
    graph.add_weighted_edges_from([(0, 0, share), (1, 1, 0.5)])
    return graph


@pytest.mark.parametrize(
    "graph",
    [
        SHARES,
        with_loops(0.7),
        nx.to_numpy_array(SHARES, nodelist=range(3)),
        nx.to_scipy_sparse_array(with_loops(0.7), nodelist=range(3), format="csc"),
        as_topology(SHARES),
        as_topology(SHARES).to_pyg(),
    ],
    ids=lambda graph: type(graph).__name__,
)
def test_weights_of_edges_are_the_mixing_weights_where_asked(graph) -> None:
    for own in (
        as_topology(graph, own_weights=True),
        as_topology([graph, graph], own_weights=True).at(1),
    ):
        assert own.own_weights
        np.testing.assert_allclose(
            mixing.metropolis_or_uniform(own).weights.toarray(), W_OF_SHARES, atol=1e-15
        )
    later = as_topology(as_topology(lambda t: graph, drop_self_loops=True), own_weights=True)
    assert later.at(3).own_weights
    back = as_topology(as_topology(graph, own_weights=True).to_networkx(), own_weights=True)
    np.testing.assert_allclose(
        mixing.metropolis_or_uniform(back).weights.toarray(), W_OF_SHARES, atol=1e-15
    )


def test_own_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"node 0 has a self-loop of 0.3 and 0.3 from others .* drop_self_loops",
    ):
        as_topology(with_loops(0.3), own_weights=True)
    dropped = as_topology(with_loops(0.3), own_weights=True, drop_self_loops=True)
    np.testing.assert_allclose(
        mixing.metropolis_or_uniform(dropped).weights.toarray(), W_OF_SHARES, atol=1e-15
    )
    heavy = nx.DiGraph()
    heavy.add_weighted_edges_from([(1, 0, 0.8), (2, 0, 0.9)])
    with pytest.raises(
        ValueError,
        match=r"node 0 sum to 1.7; .* .u, v. is the weight that u gives to v, reverse it",
    ):
        as_topology(heavy, own_weights=True)
    assert as_topology(heavy.reverse(), own_weights=True).own_weights
    with pytest.raises(ValueError, match="`own_weights` must be True or False, got 'yes'"):
        as_topology(SHARES, own_weights="yes")  # type: ignore[arg-type]


def test_weights_that_no_rule_uses_are_known_and_the_librarys_graphs_have_none() -> None:
    assert as_topology(SHARES).has_unused_weights
    assert not as_topology(SHARES, own_weights=True).has_unused_weights
    assert not as_topology(nx.path_graph(3)).has_unused_weights
    assert not Topology(3 * topologies.ring(4).adjacency).has_unused_weights
    assert not from_edges([], 2).has_unused_weights
    for spec in gallery.EXAMPLES.values():
        graphs = gallery.example(spec)
        assert not any(graphs.at(t).has_unused_weights for t in range(min(graphs.period or 3, 3)))


def test_symmetric_up_to_rounding_is_undirected() -> None:
    karate = nx.to_numpy_array(nx.karate_club_graph(), weight=None)
    degrees = karate.sum(axis=0)
    normalized = karate / np.sqrt(degrees)[:, None] / np.sqrt(degrees)
    assert (normalized != normalized.T).any()
    for scale in (1.0, 1e-6, 1e9):
        graph = as_topology(scale * normalized)
        assert not graph.is_directed
        assert graph.n_edges == 78
        assert mixing.metropolis_or_uniform(graph).name == "metropolis_hastings(matrix)"
    for other in (1e-10, 0.5 * (1 + 1e-6), 0):  # a light edge with none back, one of another weight
        matrix = np.array([[0, 0.5, 1e-10], [0.5, 0, 1], [other, 1, 0]])
        matrix[1, 0] = 0.5 if other == 1e-10 else 0.5 + 1e-7
        assert as_topology(matrix).is_directed == (other != 1e-10)
    lonely = np.zeros((3, 3))
    lonely[0, 1] = 1e-12
    assert as_topology(lonely).is_directed
