"""FedLay's overlay: rings by random coordinates, nearly a random regular graph."""

import networkx as nx
import numpy as np
import pytest

from topofl import topologies
from topofl._support.seeding import stream


@pytest.mark.parametrize(("n", "spaces"), [(1, 2), (2, 3), (3, 1), (9, 2), (40, 3)])
def test_nodes_are_joined_to_the_nearest_in_both_directions(n, spaces):
    rng, expected = stream(5, "graph"), nx.empty_graph(n)
    for _ in range(spaces):
        place = rng.random(n)
        for i in range(n):
            others = [j for j in range(n) if j != i]
            for sign in (1, -1):  # how far j is, clockwise or counterclockwise
                far = {j: sign * (place[j] - place[i]) % 1 for j in others}
                if others:
                    expected.add_edge(i, min(far, key=far.__getitem__))
    graph = topologies.fedlay(n, spaces, seed=5)
    np.testing.assert_array_equal(graph.adjacency.toarray(), nx.to_numpy_array(expected))


@pytest.mark.parametrize("n", [3, 10, 51])
def test_one_space_is_a_ring(n):
    graph = topologies.fedlay(n, 1, seed=2)
    assert nx.is_isomorphic(graph.to_networkx(), nx.cycle_graph(n))


@pytest.mark.parametrize(("n", "spaces"), [(8, 2), (20, 4)])
def test_the_number_of_edges_is_as_expected(n, spaces):
    """Within four standard errors over 500 graphs."""
    graphs = [topologies.fedlay(n, spaces, seed=k) for k in range(500)]
    edges = np.array([graph.n_edges for graph in graphs])
    assert max(graph.out_degrees.max() for graph in graphs) == 2 * spaces
    expected = n * (n - 1) / 2 * (1 - (1 - 2 / (n - 1)) ** spaces)
    assert abs(edges.mean() - expected) < 4 * edges.std() / np.sqrt(500)


@pytest.mark.parametrize("spaces", [2, 3, 5])
def test_its_spectrum_is_that_of_a_random_regular_graph(spaces):
    """Friedman (2008): the second eigenvalue of random d-regular graphs tends to 2 sqrt(d - 1)."""
    graph = topologies.fedlay(1000, spaces, seed=0)
    eigenvalues = np.linalg.eigvalsh(graph.adjacency.toarray())
    limit = 2 * np.sqrt(2 * spaces - 1)
    assert eigenvalues[-2] == pytest.approx(limit, rel=0.02)
    assert eigenvalues[0] == pytest.approx(-limit, rel=0.02)
