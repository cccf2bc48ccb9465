"""Layouts are finite, repeatable, and show the structure of a graph."""

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from tests.drawing.graphs import every_graph
from topofl import topologies
from topofl._drawing.layout import layout
from topofl._drawing.picture import compose
from topofl.topology import as_topology, from_edges


def shuffled(graph, seed=0):
    order = np.random.default_rng(seed).permutation(graph.n)
    return as_topology(graph.adjacency[order][:, order])


def lengths(graph):
    """Return the lengths of all edges."""
    ends = layout(graph)[np.stack(graph.edge_index)]
    return np.linalg.norm(ends[0] - ends[1], axis=1)


def centers_of(graph):
    """Return the positions of the nodes, and the centers of the groups."""
    positions = layout(graph)
    return positions, np.array([positions[list(group)].mean(axis=0) for group in graph.groups])


@every_graph
def test_positions_are_apart_and_depend_on_edges_alone(graph):
    picture = compose(graph)
    positions = picture.positions
    assert positions.shape == (graph.n, 2)
    assert np.abs(positions).max() <= 1 + 1e-9
    assert picture.radius > 0
    if graph.n > 1:
        assert pdist(positions).min() > max(1e-3, 2 * picture.radius)
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    np.testing.assert_array_equal(layout(graph), positions)
    np.random.set_state(state)  # noqa: NPY002
    u, v = graph.edge_index
    backwards = np.stack([v, u], axis=1)[(u < v) | graph.is_directed]
    one_way = from_edges(backwards, graph.n, directed=True, groups=graph.groups)
    np.testing.assert_array_equal(layout(one_way), positions)


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(12),
        topologies.exponential(13),
        topologies.fully_connected(9),
        topologies.circulant(15, [1, 4]),
        shuffled(topologies.ring(11)),
        topologies.dissimilar_ring(n=20, seed=0),
    ],
    ids=lambda graph: graph.name,
)
def test_circulants_and_cycles_are_drawn_on_a_circle(graph):
    positions = layout(graph)
    distances = np.linalg.norm(positions - positions.mean(axis=0), axis=1)
    np.testing.assert_allclose(distances, distances[0], rtol=1e-9)
    assert pdist(positions).min() == pytest.approx(2 * distances[0] * np.sin(np.pi / graph.n))


def test_neighbors_of_a_shuffled_cycle_are_adjacent():
    graph = shuffled(topologies.ring(11))
    np.testing.assert_allclose(lengths(graph), pdist(layout(graph)).min())


@pytest.mark.parametrize("make", [topologies.grid, topologies.torus])
@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 3), (4, 4), (2, 6)])
def test_grids_and_tori_are_lattices(make, rows, columns):
    positions = layout(make(rows * columns, rows=rows))
    places = positions.reshape(rows, columns, 2)
    step = places[0, 1, 0] - places[0, 0, 0]
    np.testing.assert_allclose(np.diff(places[..., 0], axis=1), step)
    np.testing.assert_allclose(np.diff(places[..., 1], axis=0), -step)
    np.testing.assert_allclose(np.diff(places[..., 0], axis=0), 0, atol=1e-12)


@pytest.mark.parametrize(
    "graph",
    [
        topologies.star(6),
        topologies.complete_bipartite(9, left=3),
        as_topology(nx.davis_southern_women_graph()),
    ],
)
def test_bipartite_graphs_have_two_columns(graph):
    positions = layout(graph)
    left = positions[:, 0] == positions[0, 0]
    assert len(np.unique(positions[:, 0])) == 2
    u, v = graph.edge_index
    assert (left[u] != left[v]).all()


def test_trees_have_a_level_for_each_depth_and_no_crossings():
    graph = topologies.tree(15, branching=2)
    positions = layout(graph)
    depth = np.floor(np.log2(np.arange(15) + 1))
    assert [len(set(positions[depth == k, 1].tolist())) for k in range(4)] == [1] * 4
    assert (np.diff([positions[depth == k, 1][0] for k in range(4)]) < 0).all()
    for k in range(4):
        assert (np.diff(positions[depth == k, 0]) != 0).all()
    for parent in range(7):
        children = positions[[2 * parent + 1, 2 * parent + 2], 0]
        assert children.mean() == pytest.approx(positions[parent, 0])


@pytest.mark.parametrize("inter", ["ring", "fully_connected", "small_world", "fractal"])
def test_members_of_a_clique_are_close_and_only_fractal_cliques_are_nested(inter):
    graph = topologies.dcliques(n=60, clique_size=5, inter=inter, seed=1)
    positions, centers = centers_of(graph)
    nearest = np.linalg.norm(positions[:, None] - centers[None], axis=2).argmin(axis=1)
    for k, group in enumerate(graph.groups):
        assert (nearest[list(group)] == k).all()
    if inter != "fractal":
        distances = np.linalg.norm(centers - centers.mean(axis=0), axis=1)
        np.testing.assert_allclose(distances, distances[0], rtol=0.05)


def test_fractal_cliques_are_nested():
    graph = topologies.dcliques(n=81, clique_size=3, inter="fractal", seed=0)
    positions = layout(graph)
    for size in (1, 3, 9):  # cliques, batches of three, batches of nine
        batches = [np.concatenate(graph.groups[k : k + size]) for k in range(0, 27, size)]
        widest = max(pdist(positions[batch]).max() for batch in batches)
        centers = np.array([positions[batch].mean(axis=0) for batch in batches])
        assert widest < 1.2 * pdist(centers).min()


def test_nodes_face_the_cliques_that_they_have_edges_to():
    graph = topologies.dcliques(n=40, clique_size=5, inter="ring", seed=0)
    (positions, centers), picture = centers_of(graph), compose(graph)
    start, end = positions[picture.edges[picture.between].T]
    assert len(start) == 8
    assert np.linalg.norm(start - end, axis=1).max() < pdist(centers).min()


def test_hypercube_edges_of_one_direction_are_parallel():
    graph = topologies.hypercube(32)
    positions = layout(graph)
    nodes = np.arange(32)
    for bit in range(5):
        low = nodes[(nodes >> bit) & 1 == 0]
        steps = positions[low | 1 << bit] - positions[low]
        np.testing.assert_allclose(steps, steps[:1].repeat(16, axis=0), atol=1e-12)


def test_springs_put_neighbors_closer_than_others():
    graph = topologies.random_regular(60, 3, seed=0)
    assert lengths(graph).mean() < 0.5 * pdist(layout(graph)).mean()
