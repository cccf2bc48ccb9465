"""Operations on graphs against networkx, and what they keep."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl.topologies import induced_subgraph, relabel, remove_edges, union, with_groups
from topofl.topology import Topology, from_edges


@st.composite
def graphs(draw: st.DrawFn, n: int | None = None, labels: bool = True) -> Topology:
    """Any weighted graph on a few nodes, directed or not, with groups, and labels or none."""
    n = draw(st.integers(1, 8)) if n is None else n
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    edges = draw(st.lists(pairs, max_size=3 * n)) if n > 1 else []
    graph = from_edges(edges, n, directed=draw(st.booleans()))
    weights = graph.to_scipy()
    if draw(st.booleans()):
        u, v = graph.edge_index
        weights.data = 1.0 + (u * v % 5 if not graph.is_directed else u + 2 * v)
    cut = draw(st.integers(0, n))
    groups = tuple(group for group in (tuple(range(cut)), tuple(range(cut, n - 1))) if group)
    named = labels and draw(st.booleans())
    return Topology(weights, "any", groups, tuple("abcdefgh"[:n]) if named else ())


def equal(a: Topology, b: Topology) -> bool:
    return (a.adjacency != b.adjacency).nnz == 0 and (a.groups, a.nodes, a.own_weights) == (
        b.groups, b.nodes, b.own_weights
    )  # fmt: skip


def nx_equal(a: nx.Graph, b: nx.Graph) -> bool:
    """Whether two graphs have the same labels and the same edges, of the same weights."""

    def edges(graph):
        return {
            ((u, v) if graph.is_directed() else frozenset((u, v))): w
            for u, v, w in graph.edges(data="weight", default=1)
        }

    return set(a) == set(b) and a.is_directed() == b.is_directed() and edges(a) == edges(b)


@pytest.mark.filterwarnings("ignore:the edges of any carry weights")
@given(data=st.data())
def test_union_is_that_of_networkx(data):
    first = data.draw(graphs(labels=False))
    others = data.draw(st.lists(graphs(n=first.n, labels=False), max_size=3))
    joined = union(first, *others)
    wanted = nx.compose_all([nx.DiGraph(graph.to_networkx()) for graph in (first, *others)])
    got = nx.DiGraph(joined.to_networkx())
    assert set(got) == set(wanted)
    assert set(got.edges) == set(wanted.edges)
    assert (joined.adjacency.data == 1).all()
    assert joined.groups == first.groups
    assert equal(union(joined, *others), joined)  # nothing is new the second time
    assert equal(union(*others, first), joined) or any(
        graph.groups != first.groups for graph in others
    )


def test_unions_have_names_and_labels():
    joined = union(topologies.ring(6), topologies.star(6))
    assert joined.name == "union(ring(n=6), star(n=6))"
    assert equal(eval(joined.name, dict(vars(topologies))), joined)
    assert union(topologies.ring(6), name="mine").name == "mine"
    families = topologies.florentine_families()
    assert union(families, families).nodes == families.nodes
    assert union([(0, 1)], [(1, 0)]).n_edges == 1
    assert union(from_edges([(0, 1)], 2, directed=True), [(0, 1)]).is_directed is False


@given(data=st.data())
def test_relabelling_there_and_back_is_the_identity(data):
    graph = data.draw(graphs())
    order = np.array(data.draw(st.permutations(range(graph.n))))
    there = relabel(graph, order)
    back = relabel(there, np.argsort(order))
    assert equal(back, graph)
    assert equal(relabel(there, np.arange(graph.n)), there)
    assert equal(relabel(relabel(graph, order), order), relabel(graph, order[order]))


@given(data=st.data())
def test_relabelling_is_that_of_networkx(data):
    graph = data.draw(graphs(labels=False))
    order = np.array(data.draw(st.permutations(range(graph.n))))
    new_number = {int(old): new for new, old in enumerate(order)}
    got = relabel(graph, order)
    assert nx_equal(got.to_networkx(), nx.relabel_nodes(graph.to_networkx(), new_number))
    assert got.groups == tuple(tuple(new_number[i] for i in group) for group in graph.groups)


@given(data=st.data())
def test_with_labels_relabelling_changes_nothing_but_the_order(data):
    graph = data.draw(graphs(labels=False))
    graph = replace(graph, nodes=tuple("abcdefgh"[: graph.n]))
    got = relabel(graph, data.draw(st.permutations(range(graph.n))))
    assert nx_equal(got.to_networkx(), graph.to_networkx())
    assert [{got.nodes[i] for i in group} for group in got.groups] == [
        {graph.nodes[i] for i in group} for group in graph.groups
    ]


@pytest.mark.parametrize(
    "graph", [topologies.small_world(30, seed=0), topologies.dcliques(n=20, seed=0)]
)
def test_relabelling_leaves_spectra_unchanged(graph):
    other = relabel(graph, np.random.default_rng(0).permutation(graph.n))
    assert (graph.adjacency != other.adjacency).nnz > 0
    for a, b in [
        (
            mixing.metropolis_hastings(graph).eigenvalues,
            mixing.metropolis_hastings(other).eigenvalues,
        ),
        (
            np.linalg.eigvalsh(graph.adjacency.toarray()),
            np.linalg.eigvalsh(other.adjacency.toarray()),
        ),
    ]:
        np.testing.assert_allclose(np.sort(a), np.sort(b), atol=1e-9)
    if graph.groups:  # weights within groups follow too
        inner = [np.sort(mixing.within_groups(g).eigenvalues) for g in (graph, other)]
        np.testing.assert_allclose(*inner, atol=1e-9)


@given(data=st.data())
def test_subgraphs_are_those_of_networkx(data):
    graph = data.draw(graphs())
    nodes = data.draw(st.lists(st.integers(0, graph.n - 1), min_size=1, unique=True))
    part = induced_subgraph(graph, nodes)
    labels = [(graph.nodes or range(graph.n))[i] for i in nodes]
    wanted = graph.to_networkx().subgraph(labels)
    wanted = nx.DiGraph(wanted) if part.is_directed else nx.Graph(wanted)
    assert nx_equal(part.to_networkx(), wanted)
    assert list(part.nodes or range(part.n)) == labels
    groups = [[label for label in group if label in labels] for group in labelled(graph)]
    assert labelled(part) == [group for group in groups if group]
    assert equal(induced_subgraph(part, range(part.n)), part)


def labelled(graph: Topology) -> list[list[object]]:
    """Return the groups, by the labels of their nodes."""
    labels = graph.nodes or range(graph.n)
    return [[labels[i] for i in group] for group in graph.groups]


def test_parts_of_parts_remember_where_they_came_from():
    part = induced_subgraph(induced_subgraph(topologies.ring(10), [9, 8, 7, 6]), [1, 2])
    assert part.nodes == (8, 7)
    assert part.name == "induced_subgraph(induced_subgraph(ring(n=10), nodes[4]), nodes[2])"
    women = induced_subgraph(topologies.davis_southern_women(), range(18))
    assert (women.n_edges, len(women.groups), women.nodes[0]) == (0, 1, "Evelyn Jefferson")


@given(data=st.data())
def test_removed_edges_are_those_of_networkx(data):
    graph = data.draw(graphs(labels=False))
    some = np.array(
        data.draw(
            st.lists(st.booleans(), min_size=graph.adjacency.nnz, max_size=graph.adjacency.nnz)
        ),
        bool,
    )
    edges = [tuple(edge) for edge in graph.edge_index.T[some].tolist()]
    less = remove_edges(graph, edges)
    wanted = graph.to_networkx()
    wanted.remove_edges_from(edges)
    assert set(nx.DiGraph(less.to_networkx()).edges) == set(nx.DiGraph(wanted).edges)
    kept = less.adjacency.toarray() > 0
    np.testing.assert_array_equal(
        less.adjacency.toarray(), np.where(kept, graph.adjacency.toarray(), 0)
    )
    assert (less.groups, less.nodes) == (graph.groups, graph.nodes)
    assert less.name == f"remove_edges(any, edges[{len(edges)}])"
    assert equal(remove_edges(graph, []), graph)


def test_removing_all_edges_and_opposite_ones():
    ring = topologies.ring(5)
    assert remove_edges(ring, ring.edge_index.T).n_edges == 0
    assert remove_edges(ring, [(0, 1), (1, 0), (1, 0)]).n_edges == 4
    both = from_edges([(0, 1), (1, 0)], 2, directed=True)
    assert remove_edges(both, [(1, 0)]).n_edges == 0  # a symmetric graph is an undirected one
    three = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)
    assert remove_edges(three, [(1, 0)]).edge_index.T.tolist() == [[0, 1], [1, 2]]


def own(directed: bool) -> Topology:
    weights = np.array([[0, 0.5, 0.25], [0.5, 0, 0.25], [0.25, 0.25 - 0.25 * directed, 0]])
    return Topology(sparse.csr_array(weights), "own", ((0, 1),), ("a", "b", "c"), own_weights=True)


@pytest.mark.parametrize("directed", [False, True])
def test_receivers_keep_what_removed_edges_carried(directed):
    graph = own(directed)
    W, less = mixing.metropolis_or_uniform(graph).weights.toarray(), remove_edges(graph, [(0, 1)])
    got = mixing.metropolis_or_uniform(less).weights.toarray()
    W[1, 1] += W[1, 0]
    W[1, 0] = 0
    if not directed:
        W[0, 0] += W[0, 1]
        W[0, 1] = 0
    np.testing.assert_allclose(got, W, atol=1e-15)


def test_own_weights_follow_in_parts_and_orders_but_have_no_union():
    graph = own(directed=True)
    W = mixing.own_weights(graph).weights.toarray()
    order = [2, 0, 1]
    np.testing.assert_allclose(
        mixing.metropolis_or_uniform(relabel(graph, order)).weights.toarray(),
        W[np.ix_(order, order)],
    )
    part = mixing.metropolis_or_uniform(induced_subgraph(graph, [0, 1])).weights.toarray()
    np.testing.assert_allclose(part, [[0.5, 0.5], [0.5, 0.5]])  # node 0 keeps what 2 gave it
    with pytest.raises(
        ValueError, match=r"own mixing weights, own does; .* dataclasses.replace\(graph, adj"
    ):
        union(replace(topologies.ring(3), nodes=("a", "b", "c")), graph)
    with pytest.warns(
        UserWarning, match=r"edges of own carry weights from .*: .* the edges of `graphs`"
    ) as told:
        assert union(replace(graph, own_weights=False)).adjacency.toarray().max() == 1
    assert [str(warning.filename) for warning in told] == [__file__]
    plain = replace(graph, adjacency=graph.adjacency != 0, own_weights=False)
    assert equal(union(plain), plain)
    assert equal(union(3 * plain.adjacency), union(plain.adjacency))  # equal weights say nothing


def test_groups_are_replaced():
    graph = with_groups(topologies.dcliques(n=20, seed=0), [range(5), np.arange(5, 20)])
    assert graph.groups == (tuple(range(5)), tuple(range(5, 20)))
    assert (graph.adjacency != topologies.dcliques(n=20, seed=0).adjacency).nnz == 0
    assert with_groups(graph, []).groups == ()
    assert with_groups(topologies.ring(4), [(0, 1)]).name == "with_groups(ring(n=4), groups[1])"


def test_other_kinds_of_graphs_are_taken():
    assert relabel(nx.path_graph(["x", "y"]), [1, 0]).nodes == ("y", "x")
    assert induced_subgraph(np.ones((3, 3)) - np.eye(3), [0, 2]).n_edges == 1


RING, PULLS = topologies.ring(5), topologies.random_in(5, 2, seed=0)


def test_operations_are_names_but_no_generators():
    for function in (induced_subgraph, relabel, remove_edges, union, with_groups):
        assert getattr(topologies, function.__name__) is function
        assert function.__name__ not in topologies.__all__
