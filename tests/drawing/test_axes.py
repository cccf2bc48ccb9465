"""Drawings on matplotlib Axes and as SVG show the edges, labels and weights of a graph."""

import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from matplotlib.collections import (
    EllipseCollection,
    LineCollection,
    PatchCollection,
    PolyCollection,
)
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import topofl
from tests.drawing.graphs import GRAPHS, every_graph
from topofl import mixing, topologies
from topofl._drawing.figures import PALETTE
from topofl._drawing.layout import layout
from topofl._drawing.picture import compose
from topofl.topology import as_topology, from_edges


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


def only(ax, kind):
    (found,) = [c for c in ax.collections if type(c) is kind]
    return found


def ends(ax):
    """Return the two ends of all lines."""
    lines = only(ax, LineCollection).get_segments()
    return np.array([[path[0], path[-1]] for path in lines]).reshape(-1, 2, 2)


def fills_of(ax, kind):
    return [to_hex(color).upper() for color in only(ax, kind).get_facecolor()]


@every_graph
def test_lines_are_the_edges(graph, ax):
    graph.plot(ax)
    positions = layout(graph)
    pairs = zip(*graph.edge_index.tolist(), strict=True)
    wanted = {(i, j) for i, j in pairs if graph.is_directed or i < j}
    places = {tuple(np.round(place, 9)): i for i, place in enumerate(positions)}
    found = [tuple(places[tuple(np.round(end, 9))] for end in line) for line in ends(ax)]
    assert len(found) == len(wanted)
    assert set(found) == wanted
    np.testing.assert_allclose(only(ax, EllipseCollection).get_offsets(), positions)


def test_edges_in_both_directions_of_a_digraph_are_two_lines_with_heads(ax):
    graph = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)
    graph.plot(ax)
    middles = np.array([path[len(path) // 2] for path in only(ax, LineCollection).get_segments()])
    assert len(np.unique(np.round(middles, 6), axis=0)) == 3
    heads = only(ax, PolyCollection).get_paths()
    positions, radius = layout(graph), compose(graph).radius
    tips = np.array([path.vertices[0] for path in heads])
    np.testing.assert_allclose(np.linalg.norm(tips - positions[[1, 0, 2]], axis=1), radius)


def test_lines_avoid_other_nodes(ax):
    graph = topologies.torus(25)
    picture = compose(graph)
    for (u, v), curve in zip(picture.edges, picture.curves, strict=True):
        others = np.delete(picture.positions, [u, v], axis=0)
        assert np.linalg.norm(curve[:, None] - others[None], axis=2).min() > picture.radius


def test_majority_and_pies_have_the_colors_of_the_labels(ax):
    counts = np.array([[4, 0, 0], [0, 1, 3], [0, 0, 0]])
    topologies.path(3).plot(ax, label_counts=counts)
    assert fills_of(ax, PatchCollection) == [*PALETTE[:3]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1", "2"]
    big, many = Figure().subplots(), np.eye(3, dtype=int)[np.arange(250) % 3] * 5 + 1
    topologies.ring(250).plot(big, label_counts=many)
    assert fills_of(big, EllipseCollection) == [PALETTE[k % 3] for k in range(250)]


def test_pies_have_the_shares_of_the_labels(ax):
    topologies.ring(3).plot(ax, label_counts=np.array([[1, 3], [2, 2], [4, 0]]))
    picture = compose(topologies.ring(3))
    areas = []
    for path in only(ax, PatchCollection).get_paths():
        x, y = path.to_polygons()[0].T
        areas.append(abs(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1])) / 2)
    shares = np.array(areas) / (np.pi * picture.radius**2)
    np.testing.assert_allclose(shares, [0.25, 0.75, 0.5, 0.5, 1.0], atol=0.01)


def test_groups_have_colors_and_neighbors_on_the_circle_differ(ax):
    graph = topologies.dcliques(n=50, clique_size=5, inter="ring", seed=0)
    graph.plot(ax)
    fills = np.array(fills_of(ax, EllipseCollection))
    colors = [set(fills[list(group)]) for group in graph.groups]
    assert all(len(own) == 1 for own in colors)
    assert all(a != b for a, b in zip(colors, colors[1:] + colors[:1], strict=True))


def test_partitions_and_positions_and_labels_are_taken(ax):
    clients = topofl.data.shards(topofl.data.digits(), n=10, per_node=2, seed=0)
    positions = np.random.default_rng(0).random((10, 2))
    topologies.ring(10).plot(ax, label_counts=clients, positions=positions, labels=True)
    assert [text.get_text() for text in ax.texts] == [str(i) for i in range(10)]
    starts = positions[compose(topologies.ring(10)).edges[:, 0]]
    np.testing.assert_array_equal(ends(ax)[:, 0], starts)
    named, other = as_topology(nx.Graph([("a", "b")])), Figure().subplots()
    named.plot(other, labels=True)
    assert [text.get_text() for text in other.texts] == ["a", "b"]


def test_titles_of_large_graphs_mention_simplifications(ax):
    topologies.ring(2_001).plot(ax)
    assert "adjacency: 2,001 nodes" in ax.get_title()
    dense = Figure().subplots()
    topologies.fully_connected(80).plot(dense)
    assert "3,160 edges, drawn thin" in dense.get_title()
    digraph = Figure().subplots()
    topologies.exponential(128, directed=True).plot(digraph)
    assert "arrowheads left out" in digraph.get_title()


def test_a_figure_is_created_only_without_axes(ax):
    before = plt.get_fignums()
    graph, sequence = topologies.ring(6), topologies.one_peer_exponential(8)
    assert graph.plot(ax) is ax.figure
    graph.plot_adjacency(Figure().subplots())
    assert graph._repr_svg_() is not None
    assert sequence._repr_svg_() is not None
    assert graph.plot() is not graph.plot()
    assert plt.get_fignums() == before


def test_rounds_are_drawn_side_by_side_with_nodes_in_place():
    sequence = topologies.one_peer_exponential(8)
    axes = sequence.plot().axes
    assert len(axes) == 3
    offsets = [only(ax, EllipseCollection).get_offsets() for ax in axes]
    assert all(np.array_equal(offsets[0], other) for other in offsets)
    assert [len(ends(ax)) for ax in axes] == [sequence.at(t).n_edges for t in range(3)]
    assert len(topologies.random_in(9, 2, seed=0).plot().axes) == 6
    assert len(sequence.plot(2).axes) == 2


@pytest.mark.parametrize("graph", [g for g in GRAPHS if g.n <= 300], ids=lambda graph: graph.name)
def test_svg_is_xml_with_a_title_and_one_circle_per_node(graph):
    text = graph._repr_svg_()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == graph.name
    assert len(root.findall(f".//{space}circle")) == graph.n
    paths = root.findall(f".//{space}path")
    lines = [path.get("d") for path in paths if path.get("fill") == "none"]
    assert sum(line.count("M") for line in lines) == graph.n_edges
    assert len(text) < 200_000
    assert "href" not in text


def test_svg_of_a_sequence_has_one_panel_per_round_and_escaped_names():
    root = ElementTree.fromstring(topologies.one_peer_exponential(8)._repr_svg_())
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == 3
    assert len(root.findall(f".//{space}circle")) == 24
    odd = ElementTree.fromstring(topologies.ring(3).renamed("a < b & c")._repr_svg_())
    assert odd.find(f"{space}title").text == "a < b & c"


def test_svg_of_a_large_graph_is_left_out():
    assert topologies.ring(301)._repr_svg_() is None
    assert topologies.fully_connected(100)._repr_svg_() is None
    assert topologies.random_in(301, 2, seed=0)._repr_svg_() is None


def test_adjacency_is_drawn_group_by_group_with_senders_as_rows(ax):
    graph = topologies.random_cliques(12, 4, seed=0)
    graph.plot_adjacency(ax)
    blocks = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)
    np.testing.assert_array_equal(ax.images[0].get_array(), blocks)
    assert len(only(ax, PatchCollection).get_paths()) == 3
    assert "12 nodes, 18 edges" in ax.get_title()
    for n, edges in ((3, [(0, 1), (2, 1)]), (2_000, [(0, 1_999)])):
        from_edges(edges, n, directed=True).plot_adjacency(ax)
        size = min(n, 512)  # larger ones are drawn by blocks
        image = ax.images[-1].get_array()
        assert image.shape == (size, size)
        assert np.argwhere(image).tolist() == [[u * size // n, v * size // n] for u, v in edges]
    assert "largest of" in ax.get_title().replace("\n", " ")


def test_weights_are_drawn_with_receivers_as_rows(ax):
    matrix = mixing.uniform(from_edges([(0, 1), (1, 2)], 3, directed=True))
    matrix.plot(ax)
    np.testing.assert_allclose(ax.images[0].get_array(), matrix.weights.toarray())


def test_real_spectra_are_histograms(ax):
    matrix = mixing.metropolis_hastings(topologies.ring(16))
    matrix.plot_spectrum(ax)
    assert sum(bar.get_height() for bar in ax.patches) == 16
    drawn = sorted(line.get_xdata()[0] for line in ax.lines)
    np.testing.assert_allclose(drawn, [-matrix.slem, matrix.slem], rtol=1e-9)


def test_complex_spectra_are_drawn_in_the_unit_circle(ax):
    matrix = mixing.uniform(topologies.exponential(12, directed=True))
    matrix.plot_spectrum(ax)
    (points,) = [c for c in ax.collections if len(c.get_offsets()) == 12]
    drawn = points.get_offsets() @ np.array([1, 1j])
    np.testing.assert_allclose(drawn, matrix.eigenvalues)
    radii = [np.abs(line.get_xdata() + 1j * line.get_ydata()) for line in ax.lines]
    np.testing.assert_allclose([r.mean() for r in radii], [1.0, matrix.slem])
