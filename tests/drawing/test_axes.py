"""Pictures show the graph that they are of, and where its nodes stand follows from its edges."""

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
from scipy.spatial.distance import pdist

import topofl
from topofl import mixing, topologies
from topofl._drawing import layout
from topofl._drawing.picture import PALETTE, compose
from topofl.topology import as_topology, from_edges

GRAPHS = [
    topologies.ring(1),
    topologies.ring(2),
    topologies.ring(12),
    topologies.exponential(16, directed=True),
    topologies.path(30),
    topologies.grid(12),
    topologies.torus(25),
    topologies.star(9),
    topologies.tree(31, branching=2),
    topologies.tree(80, branching=3),
    *[topologies.hypercube(2**k) for k in range(1, 8)],
    topologies.complete_bipartite(9, left=3),
    topologies.random_regular(30, 3, seed=0),
    topologies.random_regular(502, 3, seed=0),
    topologies.barabasi_albert(60, seed=0),
    topologies.erdos_renyi(40, 0.2, seed=0),
    topologies.random_cliques(24, 4, seed=0),
    topologies.dcliques(n=33, clique_size=5, inter="small_world", seed=0),
    topologies.dcliques(n=81, clique_size=3, inter="fractal", seed=0),
    topologies.dcliques(n=50, clique_size=5, inter="fractal", group_size=4, seed=0),
    from_edges([], 7),
    from_edges([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 6), (6, 3), (3, 5)], 9, name="pieces"),
    from_edges([(0, 1), (2, 3)], 300, name="crumbs"),
    from_edges([(0, 1), (1, 2)], 6, groups=[[0, 1, 2]], name="one group and strays"),
]

every_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)


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
    """Return the two ends of every line that is drawn."""
    return np.array(
        [[path[0], path[-1]] for path in only(ax, LineCollection).get_segments()]
    ).reshape(-1, 2, 2)


def shuffled(graph, seed=0):
    order = np.random.default_rng(seed).permutation(graph.n)
    return as_topology(graph.adjacency[order][:, order])


# Layouts


@every_graph
def test_positions_are_finite_distinct_and_repeatable(graph):
    positions = layout(graph)
    assert positions.shape == (graph.n, 2)
    assert np.abs(positions).max() <= 1 + 1e-9
    assert graph.n == 1 or pdist(positions).min() > 1e-3
    np.testing.assert_array_equal(positions, layout(graph))


@every_graph
def test_nodes_do_not_overlap(graph):
    picture = compose(graph)
    assert picture.radius > 0
    assert graph.n == 1 or 2 * picture.radius < pdist(picture.positions).min()


@every_graph
def test_global_generators_and_direction_do_not_matter(graph):
    expected = layout(graph)
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    np.testing.assert_array_equal(layout(graph), expected)
    np.random.set_state(state)  # noqa: NPY002
    u, v = graph.edge_index
    backwards = np.stack([v, u], axis=1)[(u < v) | graph.is_directed]
    one_way = from_edges(backwards, graph.n, directed=True, groups=graph.groups)
    np.testing.assert_array_equal(layout(one_way), expected)


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
def test_circulants_and_cycles_stand_on_a_circle(graph):
    positions = layout(graph)
    distances = np.linalg.norm(positions - positions.mean(axis=0), axis=1)
    np.testing.assert_allclose(distances, distances[0], rtol=1e-9)
    assert pdist(positions).min() == pytest.approx(2 * distances[0] * np.sin(np.pi / graph.n))


def test_neighbors_of_a_shuffled_cycle_stand_side_by_side():
    graph = shuffled(topologies.ring(11))
    positions = layout(graph)
    u, v = graph.edge_index
    np.testing.assert_allclose(
        np.linalg.norm(positions[u] - positions[v], axis=1), pdist(positions).min()
    )


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
def test_members_of_a_clique_stand_together(inter):
    graph = topologies.dcliques(n=60, clique_size=5, inter=inter, seed=1)
    positions = layout(graph)
    centers = np.array([positions[list(group)].mean(axis=0) for group in graph.groups])
    nearest = np.linalg.norm(positions[:, None] - centers[None], axis=2).argmin(axis=1)
    for k, group in enumerate(graph.groups):
        assert (nearest[list(group)] == k).all()


def test_fractal_cliques_are_nested():
    graph = topologies.dcliques(n=81, clique_size=3, inter="fractal", seed=0)
    positions = layout(graph)
    for size in (1, 3, 9):  # cliques, batches of three, batches of nine
        batches = [np.concatenate(graph.groups[k : k + size]) for k in range(0, 27, size)]
        widest = max(pdist(positions[batch]).max() for batch in batches)
        centers = np.array([positions[batch].mean(axis=0) for batch in batches])
        assert widest < 1.2 * pdist(centers).min()


def test_other_ways_to_join_cliques_are_not_nested():
    for inter in ("ring", "fully_connected", "small_world"):
        graph = topologies.dcliques(n=50, clique_size=5, inter=inter, seed=0)
        positions = layout(graph)
        centers = np.array([positions[list(group)].mean(axis=0) for group in graph.groups])
        distances = np.linalg.norm(centers - centers.mean(axis=0), axis=1)
        np.testing.assert_allclose(distances, distances[0], rtol=0.05)


def test_nodes_face_the_cliques_that_they_are_joined_to():
    graph = topologies.dcliques(n=40, clique_size=5, inter="ring", seed=0)
    positions = layout(graph)
    label = compose(graph).between
    edges = compose(graph).edges[label]
    assert len(edges) == 8
    lengths = np.linalg.norm(positions[edges[:, 0]] - positions[edges[:, 1]], axis=1)
    centers = np.array([positions[list(group)].mean(axis=0) for group in graph.groups])
    assert lengths.max() < pdist(centers).min()


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
    positions = layout(graph)
    u, v = graph.edge_index
    assert (
        np.linalg.norm(positions[u] - positions[v], axis=1).mean() < 0.5 * pdist(positions).mean()
    )


# Drawing


@every_graph
def test_lines_are_the_edges(graph, ax):
    graph.plot(ax)
    positions = layout(graph)
    u, v = graph.edge_index
    wanted = {
        (i, j) for i, j in zip(u.tolist(), v.tolist(), strict=True) if graph.is_directed or i < j
    }
    drawn = ends(ax)
    places = {tuple(np.round(place, 9)): i for i, place in enumerate(positions)}
    found = [(places[tuple(np.round(a, 9))], places[tuple(np.round(b, 9))]) for a, b in drawn]
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


def test_lines_pass_nodes_that_are_no_ends(ax):
    graph = topologies.torus(25)
    picture = compose(graph)
    for (u, v), curve in zip(picture.edges, picture.curves, strict=True):
        others = np.delete(picture.positions, [u, v], axis=0)
        assert np.linalg.norm(curve[:, None] - others[None], axis=2).min() > picture.radius


def test_majority_and_pies_have_the_colors_of_the_labels(ax):
    counts = np.array([[4, 0, 0], [0, 1, 3], [0, 0, 0]])
    topologies.path(3).plot(ax, label_counts=counts)
    pies = only(ax, PatchCollection)
    assert [to_hex(color).upper() for color in pies.get_facecolor()] == [
        PALETTE[0],
        PALETTE[1],
        PALETTE[2],
    ]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1", "2"]
    big, many = Figure().subplots(), np.eye(3, dtype=int)[np.arange(250) % 3] * 5 + 1
    topologies.ring(250).plot(big, label_counts=many)
    fills = [to_hex(color).upper() for color in only(big, EllipseCollection).get_facecolor()]
    assert fills == [PALETTE[k % 3] for k in range(250)]


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
    fills = np.array([to_hex(color) for color in only(ax, EllipseCollection).get_facecolor()])
    colors = []
    for group in graph.groups:
        assert len(set(fills[list(group)])) == 1
        colors.append(fills[group[0]])
    assert all(a != b for a, b in zip(colors, colors[1:] + colors[:1], strict=True))


def test_partitions_and_positions_and_labels_are_taken(ax):
    clients = topofl.data.shards(topofl.data.digits(), n=10, per_node=2, seed=0)
    positions = np.random.default_rng(0).random((10, 2))
    topologies.ring(10).plot(ax, label_counts=clients, positions=positions, labels=True)
    assert [text.get_text() for text in ax.texts] == [str(i) for i in range(10)]
    np.testing.assert_array_equal(
        ends(ax)[:, 0], positions[compose(topologies.ring(10)).edges[:, 0]]
    )
    named, other = as_topology(nx.Graph([("a", "b")])), Figure().subplots()
    named.plot(other, labels=True)
    assert [text.get_text() for text in other.texts] == ["a", "b"]


def test_large_graphs_say_what_is_left_out(ax):
    topologies.ring(2_001).plot(ax)
    assert "adjacency: 2,001 nodes" in ax.get_title()
    dense = Figure().subplots()
    topologies.fully_connected(80).plot(dense)
    assert "3,160 edges, drawn thin" in dense.get_title()
    digraph = Figure().subplots()
    topologies.exponential(128, directed=True).plot(digraph)
    assert "arrowheads left out" in digraph.get_title()


def test_a_figure_is_made_only_without_axes(ax):
    before = plt.get_fignums()
    graph, sequence = topologies.ring(6), topologies.one_peer_exponential(8)
    assert graph.plot(ax) is ax
    graph.plot_adjacency(Figure().subplots())
    assert graph._repr_svg_() is not None
    assert sequence._repr_svg_() is not None
    assert plt.get_fignums() == before
    graph.plot()
    assert len(plt.get_fignums()) == len(before) + 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            {"positions": np.zeros((5, 2))},
            r"`positions` must have shape \(n, 2\) with n=6, got \(5, 2\)",
        ),
        ({"positions": np.full((6, 2), np.nan)}, "`positions` must be finite"),
        (
            {"label_counts": np.ones((5, 3))},
            r"`label_counts` must have shape \(n, classes\) with n=6, got \(5, 3\)",
        ),
        ({"label_counts": np.ones(6)}, r"`label_counts` must have shape \(n, classes\)"),
        (
            {"label_counts": -np.ones((6, 2))},
            "`label_counts` must be non-negative, got -1 for node 0, class 0",
        ),
        ({"labels": ["a"]}, "`labels` must be True or one label for each of the n=6 nodes, got 1"),
    ],
)
def test_bad_arguments_are_named(arguments, match, ax):
    with pytest.raises(ValueError, match=match):
        topologies.ring(6).plot(ax, **arguments)


def test_what_is_no_array_of_numbers_is_refused(ax):
    with pytest.raises(TypeError, match="`positions` must be an"):
        topologies.ring(6).plot(ax, positions="circle")
    with pytest.raises(TypeError, match="`label_counts` must be an"):
        topologies.ring(6).plot(ax, label_counts="digits")


# Sequences


def test_rounds_are_drawn_side_by_side_with_nodes_in_place():
    sequence = topologies.one_peer_exponential(8)
    axes = sequence.plot()
    assert len(axes) == 3
    offsets = [only(ax, EllipseCollection).get_offsets() for ax in axes]
    assert all(np.array_equal(offsets[0], other) for other in offsets)
    assert [len(ends(ax)) for ax in axes] == [sequence.at(t).n_edges for t in range(3)]
    assert len(topologies.random_in(9, 2, seed=0).plot()) == 6
    assert len(sequence.plot(2)) == 2
    with pytest.raises(ValueError, match="`rounds` must be at least 1"):
        sequence.plot(0)
    with pytest.raises(ValueError, match="`positions` must have shape"):
        sequence.plot(positions=np.zeros((3, 2)))


# SVG


@pytest.mark.parametrize("graph", [g for g in GRAPHS if g.n <= 300], ids=lambda graph: graph.name)
def test_svg_is_xml_with_a_title_and_a_circle_a_node(graph):
    text = graph._repr_svg_()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == graph.name
    assert len(root.findall(f".//{space}circle")) == graph.n
    lines = [
        path.get("d") for path in root.findall(f".//{space}path") if path.get("fill") == "none"
    ]
    assert sum(line.count("M") for line in lines) == graph.n_edges
    assert len(text) < 200_000
    assert "href" not in text


def test_svg_of_a_sequence_has_a_panel_a_round_and_names_are_escaped():
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


# Matrices


def test_adjacency_is_drawn_group_by_group(ax):
    graph = topologies.random_cliques(12, 4, seed=0)
    graph.plot_adjacency(ax)
    blocks = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)
    np.testing.assert_array_equal(ax.images[0].get_array(), blocks)
    assert len(only(ax, PatchCollection).get_paths()) == 3
    assert "12 nodes, 18 edges" in ax.get_title()


def test_adjacency_rows_are_senders(ax):
    from_edges([(0, 1), (2, 1)], 3, directed=True).plot_adjacency(ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), [[0, 1, 0], [0, 0, 0], [0, 1, 0]])


def test_large_matrices_are_drawn_by_blocks(ax):
    from_edges([(0, 1_999)], 2_000, directed=True).plot_adjacency(ax)
    image = ax.images[0].get_array()
    assert image.shape == (512, 512)
    assert np.argwhere(image).tolist() == [[0, 511]]
    assert "largest of" in ax.get_title().replace("\n", " ")


def test_weights_are_drawn_with_receivers_as_rows(ax):
    matrix = mixing.uniform(from_edges([(0, 1), (1, 2)], 3, directed=True))
    matrix.plot(ax)
    np.testing.assert_allclose(ax.images[0].get_array(), matrix.weights.toarray())


def test_real_spectra_are_histograms(ax):
    matrix = mixing.metropolis_hastings(topologies.ring(16))
    matrix.plot_spectrum(ax)
    assert sum(bar.get_height() for bar in ax.patches) == 16
    assert {round(line.get_xdata()[0], 9) for line in ax.lines} == {
        round(matrix.slem, 9),
        -round(matrix.slem, 9),
    }


def test_complex_spectra_lie_in_the_unit_circle(ax):
    matrix = mixing.uniform(topologies.exponential(12, directed=True))
    matrix.plot_spectrum(ax)
    (points,) = [c for c in ax.collections if len(c.get_offsets()) == 12]
    drawn = points.get_offsets() @ np.array([1, 1j])
    np.testing.assert_allclose(drawn, matrix.eigenvalues)
    radii = [np.abs(line.get_xdata() + 1j * line.get_ydata()) for line in ax.lines]
    np.testing.assert_allclose([r.mean() for r in radii], [1.0, matrix.slem])


def test_spectra_of_large_matrices_are_refused(ax):
    matrix = mixing.metropolis_hastings(topologies.ring(1_501))
    with pytest.raises(ValueError, match="at most 1500 nodes, got n=1501"):
        matrix.plot_spectrum(ax)
