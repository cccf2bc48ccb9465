"""Graphs made of others: matchings, failing links, participation, thinned cliques, operations."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topofl import mixing, topologies
from topofl._support.seeding import torch_seed
from topofl.topologies import derived, induced_subgraph, relabel, remove_edges, union, with_groups
from topofl.topology import Topology, as_topology, from_edges


def period_after_checks(graph):
    """Return the number of rounds, which must be matchings that hold each edge once."""
    turns = topologies.matchings(graph)
    base = as_topology(graph)
    rounds = [turns.at(t) for t in range(turns.period)]
    assert turns.n == base.n
    assert all(member.out_degrees.max() <= 1 for member in rounds)
    assert all(member.n_edges for member in rounds) or turns.period == 1  # no turn without edges
    union = sum(member.adjacency for member in rounds)
    assert np.array_equal(union.toarray(), base.adjacency.toarray() != 0)
    return turns.period


@pytest.mark.slow
def test_all_graphs_of_up_to_six_nodes_and_some_of_seven():
    """At most one round above the largest degree (Vizing); exactly it if bipartite (König)."""
    atlas = nx.graph_atlas_g()
    for graph in atlas[1:209] + atlas[209::8]:
        period, degree = period_after_checks(graph), max(dict(graph.degree).values())
        assert max(1, degree) <= period <= degree + (not nx.is_bipartite(graph) or degree == 0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [20, 41])
def test_random_graphs_need_at_most_one_round_more_than_their_largest_degree(n, p):
    for seed in range(5):
        graph = nx.gnp_random_graph(n, p, seed=seed)
        assert period_after_checks(graph) <= max(dict(graph.degree).values()) + 1


def test_random_bipartite_graphs_need_their_largest_degree():
    for seed in range(10):
        graph = nx.bipartite.random_graph(15, 20, 0.4, seed=seed)
        assert period_after_checks(graph) == max(dict(graph.degree).values())


@pytest.mark.parametrize(
    ("graph", "period"),
    [
        *((topologies.fully_connected(n), n - 1 + n % 2) for n in range(2, 12)),
        *((topologies.ring(n), 2 + n % 2) for n in (4, 7, 12, 31)),
        *((topologies.exponential(2**e), 2 * e - 1) for e in (1, 2, 3, 4, 6)),  # the degree
        (topologies.circulant(8, [1, 2]), 4),  # even cycles: the degree
        (topologies.circulant(8, [3, 4]), 3),
        (topologies.circulant(12, [1, 3, 6]), 5),
        (topologies.circulant(20, [5, 10, 6]), 5),
        (topologies.circulant(6, [3]), 1),
        (topologies.circulant(9, [3]), 3),  # three triangles
        (topologies.random_cliques(9, 3, seed=0), 3),
        (nx.petersen_graph(), 4),  # class two, as are rings and complete graphs of odd order
        (nx.heawood_graph(), 3),
        (topologies.star(9), 8),
        (topologies.hypercube(16), 4),
        (topologies.grid(12), 4),
        (topologies.ring(1), 1),
        (np.zeros((4, 4)), 1),
        ([(0, 1), (1, 2), (2, 0)], 3),
    ],
    ids=str,
)
def test_known_chromatic_indices(graph, period):
    assert period_after_checks(graph) == period


def test_labels_and_groups_are_kept_and_weights_are_not():
    graph = nx.Graph([("a", "b", {"weight": 0.25}), ("b", "c", {"weight": 0.5})], name="abc")
    message = r"abc carry weights from 0.25 to 0.5, .*: .* the edges of `base`"
    with pytest.warns(UserWarning, match=message) as told:
        turns = topologies.matchings(graph)
    assert [str(warning.filename) for warning in told] == [__file__]
    assert turns.at(1).name == "matchings(abc).at(1)"
    assert [turns.at(t).nodes for t in range(2)] == [("a", "b", "c")] * 2
    assert set(turns.at(0).adjacency.data) == {1.0}
    own = topologies.u_equistatic(7, 2, seed=0)
    plain = replace(own, adjacency=own.adjacency != 0, own_weights=False)
    assert not topologies.matchings(plain).at(0).own_weights
    cliques = topologies.dcliques(n=20, clique_size=5, inter="ring", seed=0)
    assert topologies.matchings(cliques).at(1).groups == cliques.groups


shares = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


def forward(links, rounds, fail, recover, key):
    """Run the chains from round 0 on, link by link, with the uniform numbers of the library."""
    states = np.zeros((rounds, len(links)), bool)
    share = fail / (fail + recover) if fail else 0.0
    states[0] = derived._uniforms(links, 0, key) >= share
    for t in range(1, rounds):
        for k, u in enumerate(derived._uniforms(links, t, key)):
            states[t, k] = u >= fail if states[t - 1, k] else u >= 1 - recover
    return states


def links_of(base):
    """Return the ends of the links of an undirected or directed base, (2, links)."""
    u, v = base.edge_index
    return base.edge_index[:, base.is_directed | (u < v)]


def up(graphs, base, rounds):
    """Return (rounds, links) which links of the base are there."""
    u, v = links_of(base)
    return np.array([graphs.at(t).adjacency.toarray()[u, v] > 0 for t in rounds])


@given(fail=shares, recover=shares, seed=st.integers(0, 2**32))
def test_looking_back_gives_what_going_forward_gives(fail, recover, seed):
    links = np.arange(20) * 7
    key = torch_seed(seed, "links")
    wanted = forward(links, 12, fail, recover, key)
    for t in reversed(range(12)):
        found = derived._links_up(links, t, fail=fail, recover=recover, key=key)
        np.testing.assert_array_equal(found, wanted[t])


@pytest.mark.parametrize("base", [topologies.torus(16), topologies.exponential(12, directed=True)])
def test_graphs_are_those_of_the_forward_chains(base):
    graphs = topologies.link_failures(base, fail=0.2, recover=0.3, seed=5)
    u, v = links_of(base)
    wanted = forward(u * base.n + v, 15, 0.2, 0.3, torch_seed(5, "links"))
    np.testing.assert_array_equal(up(graphs, base, range(15)), wanted)


@pytest.mark.parametrize(("fail", "recover"), [(0.1, 0.3), (0.02, 0.05), (0.6, 0.4), (0.9, 0.7)])
def test_shares_and_transitions_are_as_declared(fail, recover):
    """Frequencies over independent links: up in rounds 0 and 40, and each transition."""
    base = topologies.ring(20_000)
    graphs = topologies.link_failures(base, fail=fail, recover=recover, seed=3)
    u, v = links_of(base)
    before, after = (graphs.at(t).adjacency[u, v] > 0 for t in (40, 41))
    share = recover / (fail + recover)
    assert stats.binomtest(int(before.sum()), len(before), share).pvalue > 1e-3
    assert stats.binomtest(graphs.at(0).n_edges, base.n_edges, share).pvalue > 1e-3
    assert stats.binomtest(int((before & ~after).sum()), int(before.sum()), fail).pvalue > 1e-3
    recovered, down = int((~before & after).sum()), int((~before).sum())
    assert stats.binomtest(recovered, down, recover).pvalue > 1e-3


def test_links_are_independent_of_each_other():
    base = topologies.fully_connected(40)
    graphs = topologies.link_failures(base, fail=0.3, recover=0.5, seed=0)
    states = up(graphs, base, range(0, 300, 5))
    share, links = 0.5 / 0.8, base.n_edges
    statistic = (len(states) - 1) * states.sum(axis=1).var(ddof=1) / (links * share * (1 - share))
    assert 1e-3 < stats.chi2.sf(statistic, len(states) - 1) < 1 - 1e-3


def test_directed_links_fail_one_by_one_and_undirected_ones_in_both_directions():
    both = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)
    graphs = topologies.link_failures(both, fail=0.5, recover=0.5, seed=0)
    states = {tuple(graphs.at(t).adjacency.toarray()[[0, 1], [1, 0]]) for t in range(40)}
    assert states == {(0, 0), (0, 1), (1, 0), (1, 1)}
    undirected = topologies.link_failures(topologies.torus(16), fail=0.5, recover=0.5, seed=0)
    assert not any(undirected.at(t).is_directed for t in range(10))


COUNTS = np.eye(3, dtype=int)[np.arange(12) % 3] * 5
SEQUENCES = [
    topologies.rotating_cliques(COUNTS, 3, seed=0),
    topologies.random_matching(12, seed=1),
    topologies.one_peer_exponential(12),
]


@pytest.mark.parametrize("base", SEQUENCES, ids=lambda base: base.name)
def test_links_of_changing_graphs_fail_also_in_rounds_that_do_not_use_them(base):
    failing = topologies.link_failures(base, fail=0.3, recover=0.2, seed=4)
    states = forward(np.arange(144), 12, 0.3, 0.2, torch_seed(4, "links"))
    for t in range(12):
        graph = base.at(t)
        u, v = graph.edge_index
        link = u * 12 + v if graph.is_directed else np.minimum(u, v) * 12 + np.maximum(u, v)
        kept = np.zeros((12, 12))
        kept[u, v] = states[t][link]
        np.testing.assert_array_equal(failing.at(t).adjacency.toarray() > 0, kept > 0)
        assert failing.at(t).groups == graph.groups
    assert (
        0
        < sum(failing.at(t).n_edges for t in range(12))
        < sum(base.at(t).n_edges for t in range(12))
    )


def weighted(own_weights):
    weights = np.array([[0, 0.5, 0.25], [0.5, 0, 0.25], [0.25, 0.25, 0]])
    return Topology(sparse.csr_array(weights), "mine", ((0, 1), (2,)), ("a", "b", "c"), own_weights)


@pytest.mark.parametrize("change", [{"fail": 0.5, "recover": 0.5}, {"fraction": 0.7}])
def test_weights_groups_and_labels_are_kept(change):
    generator = topologies.link_failures if "fail" in change else topologies.participation
    base = weighted(own_weights=True)
    graphs = generator(base, **change, seed=0)
    for t in range(20):
        graph = graphs.at(t)
        assert (graph.groups, graph.nodes, graph.own_weights) == (base.groups, base.nodes, True)
        kept = graph.adjacency.toarray()
        np.testing.assert_array_equal(kept, np.where(kept > 0, base.adjacency.toarray(), 0))
        W = mixing.metropolis_or_uniform(graph)
        assert W.is_doubly_stochastic  # what was not sent stays with the receivers
        np.testing.assert_allclose(W.weights.diagonal(), 1 - graph.adjacency.toarray().sum(axis=0))


def test_graphs_of_networkx_are_taken():
    graphs = topologies.link_failures(nx.path_graph(["x", "y", "z"]), fail=0.0, recover=1.0, seed=0)
    assert graphs.at(0).nodes == ("x", "y", "z")
    assert graphs.name == "link_failures(networkx, fail=0.0, recover=1.0, seed=0)"
    one = topologies.link_failures(topologies.ring(1), fail=0.5, recover=0.5, seed=0)
    assert one.at(3).n_edges == 0


@pytest.mark.parametrize(
    ("n", "fraction", "k"), [(10, 0.3, 3), (10, 0.01, 1), (10, 1, 10), (7, 0.5, 4), (1, 0.2, 1)]
)
def test_as_many_nodes_take_part_as_the_fraction_says(n, fraction, k):
    graphs = topologies.participation(topologies.fully_connected(n), fraction=fraction, seed=0)
    for t in range(5):
        assert graphs.at(t).n_edges == k * (k - 1) // 2
        assert k == 1 or sorted(graphs.at(t).out_degrees) == [0] * (n - k) + [k - 1] * k


def test_all_sets_of_participants_are_equally_likely():
    graphs = topologies.participation(topologies.fully_connected(6), fraction=0.5, seed=0)
    there = [graphs.at(t).out_degrees > 0 for t in range(2000)]
    sets, counts = np.unique(there, axis=0, return_counts=True)
    assert len(sets) == 20
    assert stats.chisquare(counts).pvalue > 1e-3


def test_participants_keep_the_edges_between_them():
    base = topologies.small_world(30, seed=0)
    whole = topologies.participation(topologies.fully_connected(30), fraction=0.4, seed=8)
    graphs = topologies.participation(base, fraction=0.4, seed=8)
    for t in range(5):
        there = np.flatnonzero(whole.at(t).out_degrees)  # the same seed, so the same nodes
        wanted = base.to_networkx().subgraph(there)
        assert nx.utils.edges_equal(list(graphs.at(t).to_networkx().edges), list(wanted.edges))


TRACE = [[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]


def test_the_nodes_of_a_trace_keep_the_edges_between_them(tmp_path):
    base = topologies.fully_connected(4)
    path = tmp_path / "trace.csv"
    path.write_text("1,1,0,1\n0, 0,0,1\n\n1,1,1,1\n")
    for trace in (TRACE, np.array(TRACE, bool), path, str(path)):
        graphs = topologies.availability(base, trace=trace)
        assert graphs.period == 3
        for t in range(7):
            there = np.flatnonzero(TRACE[t % 3])
            wanted = base.to_networkx().subgraph(there)
            assert nx.utils.edges_equal(list(graphs.at(t).to_networkx().edges), list(wanted.edges))


def test_a_trace_of_a_sequence_has_a_period_if_both_fit():
    for n_rounds, period in ((2, 2), (4, 4), (3, None)):
        pairs = topologies.one_peer_exponential(4)  # of period 2
        trace = np.ones((n_rounds, 4), int)
        graphs = topologies.availability(pairs, trace=trace)
        assert graphs.period == period
        assert all(graphs.at(t).n_edges == pairs.at(t).n_edges for t in range(6))
    aperiodic = topologies.availability(topologies.random_in(4, 2, seed=0), trace=TRACE)
    assert aperiodic.period is None


def test_participation_in_a_sequence_follows_its_rounds():
    pulls = topologies.random_in(20, 5, seed=0)
    graphs = topologies.participation(pulls, fraction=0.5, seed=0)
    for t in (0, 3):
        graph = graphs.at(t)
        assert (graph.adjacency.multiply(pulls.at(t).adjacency) != graph.adjacency).nnz == 0
        assert graph.n_edges > 0
    peers = topologies.participation(topologies.one_peer_exponential(8), fraction=1, seed=0)
    assert peers.period is None
    turns = topologies.one_peer_exponential(8)
    assert all((peers.at(t).adjacency != turns.at(t % 3).adjacency).nnz == 0 for t in range(7))
    failing = topologies.link_failures(topologies.ring(8), fail=0.5, recover=0.5, seed=0)
    both = topologies.participation(failing, fraction=0.5, seed=0)
    assert both.name == f"participation({failing.name}, fraction=0.5, seed=0)"
    assert both.at(1).n == 8


def test_chains_that_no_round_decides_cost_nothing_at_late_rounds():
    base = topologies.ring(20)
    far = 10**15
    assert topologies.link_failures(base, fail=0, recover=0, seed=0).at(far).n_edges == 20
    assert topologies.link_failures(base, fail=0.2, recover=0, seed=0).at(far).n_edges == 0
    swapping = topologies.link_failures(base, fail=1, recover=1, seed=0)
    even, odd = swapping.at(far - 1).adjacency, swapping.at(far).adjacency
    assert ((even + odd) != base.adjacency).nnz == 0
    assert 0 < even.nnz < 40
    assert (swapping.at(0).adjacency != odd).nnz in (0, 40)


def test_participation_in_participation_is_thinner_under_another_seed_only():
    once = topologies.participation(topologies.fully_connected(40), fraction=0.5, seed=0)
    same, other = (topologies.participation(once, fraction=0.5, seed=seed) for seed in (0, 1))
    assert same.at(3).n_edges == once.at(3).n_edges == 190
    assert other.at(3).n_edges < 100


def edges(graph: Topology) -> set[tuple[int, int]]:
    return {(u, v) for u, v in graph.edge_index.T.tolist() if u < v}


def inside(graph: Topology) -> list[set[tuple[int, int]]]:
    """Return the edges inside each group."""
    return [{edge for edge in edges(graph) if set(edge) <= set(group)} for group in graph.groups]


# the last has 7 nodes
BASE = topologies.dcliques(n=47, clique_size=10, inter="small_world", cliques="random", seed=0)


@pytest.mark.parametrize("removed", [0, 1, 5, 21])
def test_every_clique_loses_as_many_edges_and_nothing_else_changes(removed):
    thinned = topologies.thin_cliques(BASE, removed, seed=1)
    assert edges(thinned) < edges(BASE) or removed == 0
    sizes = [[len(group) for group in inside(graph)] for graph in (thinned, BASE)]
    assert sizes[0] == [size - removed for size in sizes[1]]
    between = [edges(graph) - set().union(*inside(graph)) for graph in (thinned, BASE)]
    assert between[0] == between[1]
    assert thinned.groups == BASE.groups
    assert not thinned.is_directed
    assert thinned.name == f"thin_cliques({BASE.name}, removed={removed}, seed=1)"


def test_edges_are_removed_uniformly_and_independently_in_each_clique():
    groups = [range(4), range(4, 8)]
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    base = from_edges(pairs, 8, groups=groups)
    pairs, both = Counter(), Counter()
    for seed in range(900):
        gone = edges(base) - edges(topologies.thin_cliques(base, 2, seed=seed))
        first, second = (tuple(sorted(e for e in gone if e[0] in group)) for group in groups)
        pairs[first] += 1
        both[first == tuple((u - 4, v - 4) for u, v in second)] += 1
    assert len(pairs) == 15  # of six edges two
    assert all(abs(count - 60) < 4.5 * np.sqrt(900 * 14 / 225) for count in pairs.values())
    assert abs(both[True] - 60) < 4 * np.sqrt(900 * 14 / 225)


def test_removal_may_cut_nodes_off_only_from_k_minus_1_edges_on():
    cliques = topologies.random_cliques(4, 4, seed=0)
    connected = [topologies.thin_cliques(cliques, 2, seed=s).is_connected for s in range(40)]
    cut = [topologies.thin_cliques(cliques, 3, seed=s).is_connected for s in range(40)]
    assert all(connected)
    assert 0 < sum(cut) < 40
    assert topologies.thin_cliques(cliques, 6, seed=0).n_edges == 0


def test_weights_and_what_else_the_base_has_are_kept():
    weights = np.triu(np.random.default_rng(0).uniform(0.01, 0.1, (6, 6)), 1)
    more = {"groups": ((0, 1, 2), (3, 4)), "nodes": tuple("abcdef"), "own_weights": True}
    base = Topology(sparse.csr_array(weights + weights.T), **more)
    thinned = topologies.thin_cliques(base, 1, seed=0)
    assert (thinned.nodes, thinned.groups, thinned.own_weights) == (base.nodes, base.groups, True)
    kept = thinned.adjacency.toarray()
    assert ((kept == base.adjacency.toarray()) | (kept == 0)).all()
    assert thinned.n_edges == base.n_edges - 2
    assert thinned.adjacency.nnz == 2 * thinned.n_edges
    assert base.n_edges == 15  # the base is left alone


def test_groups_may_be_empty():
    base = topologies.with_groups(topologies.fully_connected(4), [(0, 1), ()])
    assert topologies.thin_cliques(base, 0, seed=0).n_edges == 6


# Operations


@st.composite
def any_graph(draw: st.DrawFn, n: int | None = None, labels: bool = True) -> Topology:
    """Any weighted graph on a few nodes, directed or not, with groups, and labels or none."""
    n = draw(st.integers(1, 8)) if n is None else n
    node = st.integers(0, n - 1)
    pairs = st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
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
    same = all(getattr(a, one) == getattr(b, one) for one in ("groups", "nodes", "own_weights"))
    return same and (a.adjacency != b.adjacency).nnz == 0


def nx_equal(a: nx.Graph, b: nx.Graph) -> bool:
    """Whether two graphs have the same labels and the same edges, of the same weights."""

    def edges(graph):
        pair = tuple if graph.is_directed() else frozenset
        return {pair((u, v)): w for u, v, w in graph.edges(data="weight", default=1)}

    return set(a) == set(b) and a.is_directed() == b.is_directed() and edges(a) == edges(b)


@pytest.mark.filterwarnings("ignore:the edges of any carry weights")
@given(data=st.data())
def test_union_is_that_of_networkx(data):
    first = data.draw(any_graph(labels=False))
    others = data.draw(st.lists(any_graph(n=first.n, labels=False), max_size=3))
    joined = union(first, *others)
    wanted = nx.compose_all([nx.DiGraph(graph.to_networkx()) for graph in (first, *others)])
    got = nx.DiGraph(joined.to_networkx())
    assert set(got) == set(wanted)
    assert set(got.edges) == set(wanted.edges)
    assert (joined.adjacency.data == 1).all()
    assert joined.groups == first.groups
    assert equal(union(joined, *others), joined)  # nothing is new the second time
    regrouped = any(graph.groups != first.groups for graph in others)
    assert regrouped or equal(union(*others, first), joined)


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
def test_relabelling_is_that_of_networkx(data):
    graph = data.draw(any_graph(labels=False))
    order = np.array(data.draw(st.permutations(range(graph.n))))
    new_number = {int(old): new for new, old in enumerate(order)}
    got = relabel(graph, order)
    assert nx_equal(got.to_networkx(), nx.relabel_nodes(graph.to_networkx(), new_number))
    assert got.groups == tuple(tuple(new_number[i] for i in group) for group in graph.groups)


@given(data=st.data())
def test_with_labels_relabelling_changes_nothing_but_the_order(data):
    graph = data.draw(any_graph(labels=False))
    graph = replace(graph, nodes=tuple("abcdefgh"[: graph.n]))
    got = relabel(graph, data.draw(st.permutations(range(graph.n))))
    assert nx_equal(got.to_networkx(), graph.to_networkx())
    groups = [[{one.nodes[i] for i in group} for group in one.groups] for one in (got, graph)]
    assert groups[0] == groups[1]


@given(data=st.data())
def test_subgraphs_are_those_of_networkx(data):
    graph = data.draw(any_graph())
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
    graph = data.draw(any_graph(labels=False))
    size = graph.adjacency.nnz
    some = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    edges = [tuple(edge) for edge in graph.edge_index.T[np.array(some, bool)].tolist()]
    less = remove_edges(graph, edges)
    wanted = graph.to_networkx()
    wanted.remove_edges_from(edges)
    assert set(nx.DiGraph(less.to_networkx()).edges) == set(nx.DiGraph(wanted).edges)
    kept = less.adjacency.toarray()
    np.testing.assert_array_equal(kept, np.where(kept > 0, graph.adjacency.toarray(), 0))
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
    relabelled = mixing.metropolis_or_uniform(relabel(graph, order)).weights.toarray()
    np.testing.assert_allclose(relabelled, W[np.ix_(order, order)])
    part = mixing.metropolis_or_uniform(induced_subgraph(graph, [0, 1])).weights.toarray()
    np.testing.assert_allclose(part, [[0.5, 0.5], [0.5, 0.5]])  # node 0 keeps what 2 gave it
    message = r"own mixing weights, own does; .* dataclasses.replace\(graph, adj"
    with pytest.raises(ValueError, match=message):
        union(replace(topologies.ring(3), nodes=("a", "b", "c")), graph)
    ignored = r"edges of own carry weights from .*: .* the edges of `graphs`"
    with pytest.warns(UserWarning, match=ignored) as told:
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


def test_operations_are_names_but_no_generators():
    for function in (induced_subgraph, relabel, remove_edges, union, with_groups):
        assert getattr(topologies, function.__name__) is function
        assert function.__name__ not in topologies.__all__
