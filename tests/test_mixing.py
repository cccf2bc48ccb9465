import copy
import dataclasses
import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, as_topology, from_edges


def path(n: int) -> Topology:
    return topologies.grid(n, rows=1)


def directed_path() -> Topology:
    return from_edges([(0, 1), (1, 2)], 3, directed=True, name="path")


# Rules, by hand


def test_metropolis_hastings_by_hand() -> None:
    W = mixing.metropolis_hastings(topologies.star(4))
    assert np.allclose(
        W.weights.toarray(),
        np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4,
        rtol=0,
        atol=1e-15,
    )
    assert W.name == "metropolis_hastings(star(n=4))"
    assert (
        repr(W)
        == "MixingMatrix('metropolis_hastings(star(n=4))', n=4, doubly stochastic, messages=6)"
    )


def test_metropolis_hastings_on_cliques_is_the_papers() -> None:
    """D-Cliques: on the complete graph all weights are 1/n; edges' own weights are not used."""
    assert mixing.metropolis_hastings(topologies.fully_connected(7)).is_uniform_mean
    heavy = Topology(5.0 * topologies.ring(6).adjacency)
    light = mixing.metropolis_hastings(topologies.ring(6))
    assert abs(mixing.metropolis_hastings(heavy).weights - light.weights).max() < 1e-15


def test_max_degree_by_hand() -> None:
    W = mixing.max_degree(path(3)).weights.toarray()
    assert np.allclose(W, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3, rtol=0, atol=1e-15)
    laplacian = nx.laplacian_matrix(topologies.star(5).to_networkx()).toarray()
    assert np.allclose(
        mixing.max_degree(topologies.star(5)).weights.toarray(), np.eye(5) - laplacian / 5
    )


def test_rows_are_receivers() -> None:
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


def test_uniform_weights_are_doubly_stochastic_on_regular_graphs() -> None:
    for graph in (topologies.ring(9), topologies.exponential(10, directed=True)):
        pull, push = mixing.uniform(graph), mixing.uniform(graph, direction="push")
        assert pull.is_doubly_stochastic
        assert abs(pull.weights - push.weights).max() < 1e-15


def test_lazy_keeps_a_share() -> None:
    W = mixing.metropolis_hastings(topologies.ring(5))
    assert np.allclose(
        mixing.lazy(W, share=0.25).weights.toarray(), 0.25 * np.eye(5) + 0.75 * W.weights.toarray()
    )
    assert (mixing.lazy(W).eigenvalues >= 0).all()
    assert mixing.lazy(W, share=0.25).name == f"lazy({W.name}, share=0.25)"
    assert abs(mixing.lazy(W, share=0).weights - W.weights).max() == 0


def test_own_weights_are_those_of_the_edges_and_the_default_of_graphs_that_came_with_them() -> None:
    edges = np.array(
        [[0, 0.5, 0], [0.25, 0, 1], [0, 0.5, 0]]
    )  # adjacency[u, v]: what v takes from u
    graph = Topology(edges, name="g", own_weights=True)
    W = mixing.metropolis_or_uniform(graph)
    assert W.name == "own_weights(g)"
    assert W.weights.toarray().tolist() == [[0.75, 0.25, 0], [0.5, 0, 0.5], [0, 1, 0]]
    assert (
        mixing.metropolis_or_uniform(Topology(edges, name="g")).name
        == "uniform(g, direction='pull')"
    )
    assert pickle.loads(pickle.dumps(graph)).own_weights
    assert graph.renamed("h").own_weights
    with pytest.raises(
        ValueError,
        match="must, with `own_weights`, have weights of at most 1 in sum into each",
    ):
        Topology(2 * edges, own_weights=True)
    with pytest.raises(ValueError, match="into node 1 of graph sum to 2; use another rule"):
        mixing.own_weights(Topology(2 * edges))


def test_metropolis_or_uniform_follows_direction() -> None:
    assert mixing.metropolis_or_uniform(topologies.star(4)).name == "metropolis_hastings(star(n=4))"
    assert mixing.metropolis_or_uniform(directed_path()).name == "uniform(path, direction='pull')"


def test_within_groups_averages_cliques() -> None:
    graph = topologies.dcliques(n=11, clique_size=5, inter="fully_connected", seed=0)
    W = mixing.within_groups(graph).weights.toarray()
    for group in graph.groups:
        for i in group:
            assert np.flatnonzero(W[i]).tolist() == sorted(group)
            assert np.allclose(W[i, list(group)], 1 / len(group), rtol=0, atol=1e-15)


def test_within_groups_where_edges_were_removed() -> None:
    """Each averages with members still adjacent: rows sum to 1, columns not; others stay."""
    graph = from_edges([(0, 1), (1, 2), (2, 3), (3, 4)], 5, groups=[(0, 1, 2)])
    W = mixing.within_groups(graph)
    assert W.weights.toarray() == pytest.approx(
        np.array(
            [[3, 3, 0, 0, 0], [2, 2, 2, 0, 0], [0, 3, 3, 0, 0], [0, 0, 0, 6, 0], [0, 0, 0, 0, 6]]
        )
        / 6
    )
    assert W.stochasticity == "row stochastic"


# Spectra: closed forms and the values of the papers' graphs


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_gaps_of_classic_graphs(n: int) -> None:
    gap = {
        "ring": 1 - max((1 + 2 * np.cos(2 * np.pi / n)) / 3, 1 / 3),
        "star": 1 / n,
        "fully_connected": 1.0,
    }
    for name, expected in gap.items():
        W = mixing.metropolis_hastings(getattr(topologies, name)(n))
        assert W.spectral_gap == pytest.approx(expected, abs=1e-10)
        assert W.spectral_gap == 1 - W.slem


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 5), (4, 4), (5, 8)])
def test_spectrum_of_the_torus(rows: int, columns: int) -> None:
    W = mixing.metropolis_hastings(topologies.torus(rows * columns, rows=rows))
    a, b = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    expected = (1 + 2 * np.cos(2 * np.pi * a) + 2 * np.cos(2 * np.pi * b)) / 5
    assert np.allclose(W.eigenvalues, np.sort(expected.reshape(-1))[::-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6, 25])
def test_spectrum_of_the_path(n: int) -> None:
    W = mixing.max_degree(path(n))  # I - L / 3; the path's Laplacian has 2 - 2 cos(pi k / n)
    assert np.allclose(
        W.eigenvalues, (1 + 2 * np.cos(np.pi * np.arange(n) / n)) / 3, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("graph", "slem", "tolerance"),
    [
        (topologies.ring(100), 0.998684, 5e-7),
        (topologies.grid(100), 0.979470, 5e-7),
        (topologies.exponential(100), 11 / 15, 1e-10),
        (topologies.star(100), 0.99, 1e-10),
        (topologies.fully_connected(100), 0.0, 1e-10),
        (topologies.exponential(1000), 17 / 21, 1e-10),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_slem_of_the_papers_graphs(graph: Topology, slem: float, tolerance: float) -> None:
    assert mixing.metropolis_hastings(graph).slem == pytest.approx(slem, abs=tolerance)


@pytest.mark.parametrize("graph", [topologies.ring(16), topologies.star(7), topologies.grid(12)])
def test_measured_contraction_is_one_minus_the_gap(graph: Topology) -> None:
    """Declared against measured: disagreement shrinks by SLEM per exchange, in the long run."""
    W = mixing.lazy(mixing.metropolis_hastings(graph))
    x = np.random.default_rng(0).standard_normal(graph.n)
    norms = []
    for _ in range(400):
        x = W @ x
        x -= x.mean()
        norms.append(np.linalg.norm(x))
        x /= norms[-1]
    assert norms[-1] == pytest.approx(1 - W.spectral_gap, abs=1e-4)


def test_gap_is_zero_without_connection_or_with_a_period() -> None:
    assert mixing.metropolis_hastings(from_edges([(0, 1), (2, 3)], 4)).spectral_gap == 0
    shift = mixing.from_weights(
        np.eye(5)[:, [1, 2, 3, 4, 0]]
    )  # each takes over another's model: connected, period 5
    assert shift.support().is_connected
    assert shift.spectral_gap == pytest.approx(0, abs=1e-12)
    assert mixing.metropolis_hastings(from_edges([], 1)).spectral_gap == 1


def test_directed_spectra_are_complex_and_by_modulus() -> None:
    values = mixing.uniform(topologies.exponential(12, directed=True)).eigenvalues
    assert np.iscomplexobj(values)
    assert (np.diff(np.abs(values)) <= 1e-12).all()


# The type


@pytest.mark.parametrize(
    "remake", [copy.copy, copy.deepcopy, lambda W: pickle.loads(pickle.dumps(W))]
)
def test_nothing_can_be_changed_in_place(remake) -> None:
    W = mixing.metropolis_hastings(topologies.ring(4))
    for matrix in (W, remake(W)):
        for array in (matrix.weights.data, matrix.weights.indices, matrix.weights.indptr):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            matrix.name = "other"
    assert remake(W).name == W.name
    assert (remake(W).weights != W.weights).nnz == 0


def test_from_weights_takes_arrays_tensors_and_sparse_matrices() -> None:
    dense = mixing.metropolis_hastings(topologies.ring(4)).weights.toarray()
    for weights in (
        dense,
        dense.tolist(),
        torch.from_numpy(dense),
        sparse.coo_matrix(dense),
        sparse.csc_array(dense),
    ):
        W = mixing.from_weights(weights, topologies.ring(4), name="mine")
        assert W.weights.toarray().tolist() == dense.tolist()
        assert W.name == "mine"
    dense[:] = 0
    assert W.weights.sum() == pytest.approx(4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_of_low_precision_are_divided_by_their_sums(dtype) -> None:
    shares = torch.softmax(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), 1).to(
        dtype
    )
    exact = shares.double().numpy()
    assert np.abs(exact.sum(axis=1) - 1).max() > 1e-8
    for axis, weights in ((1, shares), (0, shares.T)):
        wanted = (exact if axis else exact.T) / (exact if axis else exact.T).sum(
            axis=axis, keepdims=True
        )
        W = mixing.from_weights(weights, edges="u<-v")
        np.testing.assert_allclose(W.weights.toarray(), wanted, rtol=1e-15)
    with pytest.raises(ValueError, match="sum to 1"):
        mixing.from_weights(1.01 * shares)
    with pytest.raises(ValueError, match="sum to 1"):
        mixing.from_weights(exact)  # of float64 nothing is taken for rounding


def test_to_torch() -> None:
    W = mixing.metropolis_hastings(topologies.ring(4))
    assert W.to_torch().dtype == torch.float32
    assert W.to_torch(dtype=torch.float64).tolist() == W.weights.toarray().tolist()


def test_messages_are_off_diagonal_weights() -> None:
    graph = topologies.star(5)
    W = mixing.metropolis_hastings(graph)
    assert W.out_messages.tolist() == W.in_messages.tolist() == [4, 1, 1, 1, 1]
    assert W.n_messages == 2 * graph.n_edges == 8
    empty_diagonal = mixing.from_weights([[0, 1], [1, 0]])
    assert empty_diagonal.n_messages == 2


def test_check_on_names_the_first_weight_off_the_edges() -> None:
    W = mixing.uniform(directed_path())
    assert W.check_on(directed_path()) is W
    reverse = from_edges([(1, 0), (2, 1)], 3, directed=True, name="reverse")
    with pytest.raises(
        ValueError,
        match=r"`weights` .* node 1 gives 0.5 to node 0, but there is no edge 0 -> 1 \(2 such",
    ):
        W.check_on(reverse)
    with pytest.raises(
        ValueError, match=r"`weights` must have one row per node: got n=3, ring\(n=4\) has n=4"
    ):
        W.check_on(topologies.ring(4))


@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        (
            np.ones((2, 3)) / 3,
            ValueError,
            r"`weights` must be a square matrix .* got shape \(2, 3\)",
        ),
        (np.zeros((0, 0)), ValueError, "`weights` must be a square matrix"),
        (
            np.ones(3),
            ValueError,
            r"`weights` must be a square matrix with at least one node, got shape \(3,\)",
        ),
        ([[1, 2], [3]], ValueError, "`weights` must be an array of numbers, got list"),
        (np.eye(2) * 1j, TypeError, "`weights` must hold real numbers, got dtype complex128"),
        (sparse.csr_array(np.eye(2) * 1j), TypeError, "`weights` must hold real numbers"),
        ("ring", TypeError, "`weights` must hold real numbers"),
        ([["a", "b"], ["c", "d"]], TypeError, "`weights` must hold real numbers"),
        (
            np.array([[1, 0], [np.nan, 1]]),
            ValueError,
            r"`weights` must be finite, got nan at \(1, 0\)",
        ),
        (
            np.array([[2, -1], [-1, 2]]),
            ValueError,
            r"`weights` must have no negative entry, got -1 at \(0, 1\)",
        ),
        (
            np.array([[0.5, 0.4], [0.5, 0.5]]),
            ValueError,
            "`weights` must have rows or columns that sum to 1; row 0 sums",
        ),
    ],
)
def test_bad_weights(weights, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        mixing.from_weights(weights)


def test_sums_may_be_off_by_rounding_only() -> None:
    assert mixing.from_weights(np.array([[0.5, 0.5 + 1e-10], [0.5, 0.5]])).is_row_stochastic
    with pytest.raises(ValueError, match="`weights` must have rows or columns that sum to 1"):
        mixing.from_weights(np.array([[0.5, 0.5 + 1e-7], [0.5, 0.5 + 1e-6]]))


RULES = [
    mixing.metropolis_hastings,
    mixing.max_degree,
    mixing.uniform,
    mixing.within_groups,
    mixing.metropolis_or_uniform,
    mixing.own_weights,
]


@pytest.mark.parametrize("rule", RULES)
def test_rules_take_topologies_only(rule) -> None:
    for graph in (nx.path_graph(3), np.eye(3), topologies.one_peer_exponential(4), None):
        with pytest.raises(
            TypeError, match=f"`topology` must be a Topology, got {type(graph).__name__}"
        ):
            rule(graph)


def test_rules_check_their_arguments() -> None:
    with pytest.raises(ValueError, match="`direction` must be one of 'pull', 'push', got 'both'"):
        mixing.uniform(topologies.ring(3), direction="both")
    for rule in (mixing.metropolis_hastings, mixing.max_degree):
        with pytest.raises(
            TopologyError, match="needs an undirected graph, path is directed; use uniform"
        ):
            rule(directed_path())
    with pytest.raises(
        TopologyError, match=r"must have groups for Clique Averaging, ring\(n=3\) has none"
    ):
        mixing.within_groups(topologies.ring(3))
    W = mixing.metropolis_hastings(topologies.ring(3))
    for share in (1, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"`share` must be in \[0, 1\)"):
            mixing.lazy(W, share=share)
    with pytest.raises(TypeError, match="`share` must be a number"):
        mixing.lazy(W, share="half")
    with pytest.raises(TypeError, match="`mixing` must be a MixingMatrix, got Topology"):
        mixing.lazy(topologies.ring(3))


def test_it_is_a_frozen_value() -> None:
    W = mixing.from_weights(np.eye(2))
    assert isinstance(W, MixingMatrix)
    assert W.is_doubly_stochastic
    assert W.is_symmetric
    assert not W.is_uniform_mean
    assert W.n_messages == 0
    assert W.eigenvalues.tolist() == [1, 1]


@pytest.mark.parametrize(
    "graph",
    [
        topologies.star(6),
        topologies.exponential(9, directed=True),
        topologies.random_in(8, 3, seed=0).at(4),
    ],
)
def test_message_passing_of_pyg_with_our_weights_is_the_product(graph) -> None:
    from torch_geometric.nn import MessagePassing

    class Mix(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")

        def forward(self, x, edge_index, edge_weight):
            return self.propagate(edge_index, x=x, edge_weight=edge_weight)

        def message(self, x_j, edge_weight):
            return edge_weight[:, None] * x_j

    x = np.random.default_rng(0).standard_normal((graph.n, 3))
    for W in (mixing.metropolis_or_uniform(graph), mixing.uniform(graph, direction="push")):
        data = W.to_pyg()
        assert data.num_nodes == graph.n
        mixed = Mix()(torch.from_numpy(x), data.edge_index, data.edge_weight)
        assert np.allclose(mixed.numpy(), W @ x, rtol=0, atol=1e-15)


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


# Weights of the user's own graphs


def shares() -> nx.DiGraph:
    """Return a graph whose edges, with those of nodes to themselves, sum to 1 into every node."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(1, 0, 0.1), (2, 0, 0.2), (0, 0, 0.7), (0, 1, 0.5), (1, 1, 0.5)])
    graph.add_weighted_edges_from([(1, 2, 0.6), (2, 2, 0.4)])
    return graph


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


def test_one_tolerance_decides_what_is_symmetric() -> None:
    for gap in (1e-16, 5e-10):
        weights = np.array([[0.5, 0.3 + gap, 0.2 - gap], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
        W = mixing.from_weights(weights)
        assert W.is_symmetric
        assert np.isrealobj(W.eigenvalues)
        assert not as_topology(weights - np.diag(np.diag(weights))).is_directed
