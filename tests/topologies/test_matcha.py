"""MATCHA: probabilities against closed forms and a grid, the weight against an enumeration."""

from itertools import product

import networkx as nx
import numpy as np
import pytest

from topofl import as_topology, mixing, topologies
from topofl.topologies.matcha import GAP, activation

BARBELL = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]

SMALL = [
    topologies.tree(7),
    topologies.path(4),
    as_topology(BARBELL),
    topologies.grid(6),
    topologies.star(4),
    topologies.barabasi_albert(7, 2, seed=1),
]


def laplacians(found, n):
    result = np.zeros((len(found.edges), n, n))
    for total, pairs in zip(result, found.edges, strict=True):
        for u, v in pairs:
            total[[u, v], [u, v]] += 1
            total[[u, v], [v, u]] -= 1
    return result


def connectivity_of(found, n, p):
    return np.linalg.eigvalsh(np.tensordot(p, laplacians(found, n), 1))[1]


@pytest.mark.slow
@pytest.mark.parametrize("base", SMALL, ids=str)
@pytest.mark.parametrize("budget", [0.3, 0.5, 0.8])
def test_no_probabilities_of_a_grid_connect_better(base, budget):
    """On the face where the budget is used up, which has an optimum."""
    found = activation(base, budget=budget)
    size = len(found.edges)
    steps = np.linspace(0, 1, 101 if size < 4 else 13)
    first = np.array(list(product(steps, repeat=size - 1)))
    last = budget * size - first.sum(axis=1)
    inside = (last >= 0) & (last <= 1)
    points = np.column_stack([first[inside], last[inside]])
    expected = np.tensordot(points, laplacians(found, base.n), 1)
    best = np.linalg.eigvalsh(expected)[:, 1].max()
    assert best <= found.bound + 1e-12
    assert best - GAP * found.bound <= found.connectivity
    away = size * (steps[1] - steps[0])  # from the optimum to a point of the grid, at most
    assert found.connectivity <= best + 2 * away  # the norm of a matching's Laplacian is 2


@pytest.mark.parametrize("base", [*SMALL, topologies.erdos_renyi(40, 0.2, seed=0)], ids=str)
def test_probabilities_keep_the_budget_and_have_the_stated_connectivity(base):
    found = activation(base, budget=0.4)
    p = found.probabilities
    assert (p >= 0).all()
    assert (p <= 1).all()
    assert p.sum() <= 0.4 * len(p) + 1e-9
    assert connectivity_of(found, base.n, p) == pytest.approx(found.connectivity, abs=1e-12)
    assert -1e-12 <= found.bound - found.connectivity <= GAP * found.bound
    uniform = connectivity_of(found, base.n, np.full(len(p), 0.4))
    assert found.connectivity >= uniform - 1e-12


@pytest.mark.parametrize("budget", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [4, 6, 10])
def test_matchings_of_symmetric_graphs_are_equally_likely(n, budget):
    """Averaged over the rotations of a graph, probabilities are equal and not worse."""
    ring = activation(topologies.ring(n), budget=budget)
    assert ring.connectivity == pytest.approx(budget * (2 - 2 * np.cos(2 * np.pi / n)), rel=GAP)
    np.testing.assert_allclose(ring.probabilities, budget)
    complete = activation(topologies.fully_connected(n), budget=budget)
    assert complete.connectivity == pytest.approx(budget * n, rel=GAP)
    np.testing.assert_allclose(complete.probabilities, budget)


def test_a_path_of_four_nodes_has_the_probabilities_of_the_cubic():
    """Ends with p, the middle with q: the second eigenvalue is p + q - sqrt(p^2 + q^2).

    With p + q given, it is largest for p = q.
    """
    for budget in (0.5, 0.8):
        found = activation(topologies.path(4), budget=budget)
        assert found.connectivity == pytest.approx(budget * (2 - np.sqrt(2)), rel=GAP)
        np.testing.assert_allclose(found.probabilities, budget, atol=0.01)


def test_the_bridge_of_two_cliques_occurs_most_often():
    base = as_topology(nx.barbell_graph(5, 0))
    found = activation(base, budget=0.4)
    with_bridge = [(pairs == [4, 5]).all(axis=1).any() for pairs in found.edges]
    others = np.delete(found.probabilities, np.flatnonzero(with_bridge))
    assert found.probabilities[with_bridge] > 0.999 > 1.5 * others.max()


@pytest.mark.parametrize("base", SMALL, ids=str)
@pytest.mark.parametrize("budget", [0.4, 1.0])
def test_alpha_has_the_fastest_contraction_of_all_subsets_of_matchings(base, budget):
    found = activation(base, budget=budget)
    single, identity = laplacians(found, base.n), np.eye(base.n)

    def contraction(alpha):
        expected = np.zeros((base.n, base.n))
        for occurs in product([False, True], repeat=len(single)):
            chance = np.where(occurs, found.probabilities, 1 - found.probabilities).prod()
            W = identity - alpha * single[list(occurs)].sum(axis=0)
            expected += chance * W @ W
        return np.linalg.eigvalsh(expected - 1 / base.n)[-1]

    assert contraction(found.alpha) == pytest.approx(found.contraction, abs=1e-12)
    others = [contraction(found.alpha * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2)]
    assert min(others) > found.contraction


@pytest.mark.parametrize("base", SMALL, ids=str)
def test_with_the_whole_budget_alpha_is_that_of_a_constant_laplacian(base):
    found = activation(base, budget=1)
    eigenvalues = np.linalg.eigvalsh(laplacians(found, base.n).sum(axis=0))
    low, high = eigenvalues[1], eigenvalues[-1]
    assert found.alpha == pytest.approx(2 / (low + high), rel=1e-6)
    assert found.contraction == pytest.approx(((high - low) / (high + low)) ** 2, rel=1e-6)


@pytest.mark.slow
def test_matchings_occur_with_their_probabilities_and_alone():
    """Within four standard errors over 2,000 rounds, also for pairs of matchings."""
    base = topologies.grid(6)
    found = activation(base, budget=0.5)
    graphs = topologies.matcha(base, budget=0.5, seed=3)
    pairs = [tuple(one[0]) for one in found.edges]  # an edge of each matching
    occurs = np.array([[graphs.at(t).adjacency[pair] > 0 for pair in pairs] for t in range(2000)])
    p = found.probabilities
    error = np.sqrt(p * (1 - p) / 2000)
    assert (abs(occurs.mean(axis=0) - p) <= 4 * error).all()
    both = (occurs[:, :, None] & occurs[:, None]).mean(axis=0)
    upper = np.triu_indices(len(p), 1)
    apart = abs(both - np.outer(p, p))[upper]
    assert (apart <= 4 * np.sqrt(0.25 / 2000)).all()


@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_edges_have_alpha_unless_a_self_weight_is_negative(budget):
    base = topologies.star(6)
    found = activation(base, budget=budget)
    graphs = topologies.matcha(base, budget=budget, seed=0)
    limited = 0
    for t in range(50):
        graph = graphs.at(t)
        W = mixing.own_weights(graph)
        assert W.is_doubly_stochastic
        assert graph.own_weights
        degree = graph.out_degrees.max()
        expected = min(found.alpha, 1 / degree) if degree else 0
        np.testing.assert_allclose(graph.adjacency.data, expected)
        limited += found.alpha * degree > 1
    assert limited == 50 if budget == 1 else 0 < limited < 50


def test_groups_and_labels_are_kept_and_rounds_are_functions_of_their_number():
    base = topologies.with_groups(
        as_topology(nx.relabel_nodes(nx.cycle_graph(4), dict(enumerate("abcd")))), [(0, 1), (2, 3)]
    )
    first, again = (topologies.matcha(base, budget=0.5, seed=1) for _ in range(2))
    assert first.period is None
    for t in (7, 2):
        a, b = first.at(t), again.at(t)
        assert a.nodes == b.nodes == tuple("abcd")
        assert a.groups == b.groups == ((0, 1), (2, 3))
        assert (a.adjacency != b.adjacency).nnz == 0
    assert first.name == f"matcha({base.name}, budget=0.5, seed=1)"


@pytest.mark.parametrize("budget", [1e-12, 1e-5, 0.1])
def test_below_all_limits_probabilities_are_proportional_to_the_budget(budget):
    base = as_topology(BARBELL)
    found, large = activation(base, budget=budget), activation(base, budget=0.2)
    assert large.probabilities.max() < 1
    assert found.connectivity / budget == pytest.approx(large.connectivity / 0.2, rel=GAP)
    np.testing.assert_allclose(found.probabilities / budget, large.probabilities / 0.2)


@pytest.mark.slow
def test_a_graph_of_a_hundred_nodes_is_solved():
    found = activation(topologies.erdos_renyi(100, 0.1, seed=1), budget=0.5)
    assert found.bound - found.connectivity <= GAP * found.bound
