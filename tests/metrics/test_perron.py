"""Perron vectors against eigenvectors of numpy, closed forms, and the limits that they describe."""

import networkx as nx
import numpy as np
import pytest

from topofl import metrics, mixing, topologies
from topofl._linalg import spectral
from topofl.metrics import perron
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, as_topology, from_edges


def strongly_connected(n: int, seed: int) -> Topology:
    graph = as_topology(nx.gnp_random_graph(n, 4 / n, seed=seed, directed=True))
    cycle = nx.cycle_graph(n, create_using=nx.DiGraph)
    return as_topology(nx.compose(graph.to_networkx(), cycle))


def pull(graph: Topology) -> MixingMatrix:
    return mixing.uniform(graph, direction="pull")


def push(graph: Topology) -> MixingMatrix:
    return mixing.uniform(graph, direction="push")


@pytest.mark.parametrize("rule", [pull, push])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_eigenvector_of_numpy(rule, seed: int) -> None:
    W = rule(strongly_connected(12, seed))
    dense = W.weights.toarray()
    values, vectors = np.linalg.eig(dense.T if W.is_row_stochastic else dense)
    expected = np.abs(vectors[:, np.abs(values - 1).argmin()])
    assert np.allclose(metrics.perron_vector(W), expected / expected.sum(), rtol=0, atol=1e-12)


def test_closed_forms() -> None:
    graph = topologies.star(5)  # reversible: pi is proportional to degree + 1
    assert np.allclose(metrics.perron_vector(pull(graph)), np.array([5, 2, 2, 2, 2]) / 13)
    assert np.allclose(metrics.perron_vector(push(graph)), np.array([5, 2, 2, 2, 2]) / 13)
    assert metrics.perron_skewness(pull(graph)) == pytest.approx(2.5)
    assert metrics.perron_vector(topologies.ring(7)).tolist() == [1 / 7] * 7
    assert metrics.perron_skewness(topologies.ring(7)) == 1
    assert metrics.perron_vector(topologies.ring(1)).tolist() == [1.0]
    assert metrics.pi_weighted_gap(topologies.ring(1)) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_averaging_and_push_sum_converge_to_it(seed: int) -> None:
    graph = strongly_connected(9, seed)
    x = np.random.default_rng(seed).standard_normal(9)
    W, P = pull(graph), push(graph)
    limit = np.linalg.matrix_power(W.weights.toarray(), 2000) @ x
    assert np.allclose(limit, metrics.perron_vector(W) @ x, rtol=0, atol=1e-12)
    mass = np.linalg.matrix_power(P.weights.toarray(), 2000) @ np.ones(9)
    assert np.allclose(mass, 9 * metrics.perron_vector(P), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [pull, push])
def test_for_a_period_it_is_that_of_the_product(rule) -> None:
    period = [rule(strongly_connected(8, seed)) for seed in (3, 4, 5)]
    product = (
        period[2].weights.toarray() @ period[1].weights.toarray() @ period[0].weights.toarray()
    )
    pi = metrics.perron_vector(period)
    image = pi @ product if rule is pull else product @ pi
    assert np.allclose(image, pi, rtol=0, atol=1e-14)
    assert pi.sum() == pytest.approx(1)


def test_nodes_that_send_to_none_have_weight_zero() -> None:
    graph = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)  # node 2 only receives
    assert metrics.perron_vector(pull(graph)).tolist() == [0.5, 0.5, 0.0]
    assert metrics.perron_skewness(pull(graph)) == float("inf")
    assert metrics.perron_vector(push(graph)).tolist() == [0.0, 0.0, 1.0]  # it keeps all weight
    with pytest.raises(
        TopologyError, match=r"needs a strongly connected graph, node 2 of .* has Perron weight 0"
    ):
        metrics.pi_weighted_gap(pull(graph))


def test_not_unique_for_groups_that_never_receive_from_each_other() -> None:
    graph = from_edges([(0, 1), (2, 3)], 5)
    with pytest.raises(
        TopologyError,
        match="is not unique: 3 groups of nodes never receive from each other; connect them",
    ):
        metrics.perron_vector(graph)
    with pytest.raises(TopologyError, match="has no period"):
        metrics.perron_vector(topologies.random_in(5, 2, seed=0))
    with pytest.raises(TopologyError, match="must be row-stochastic in all rounds"):
        metrics.perron_vector([pull(topologies.star(4)), push(topologies.star(4))])


@pytest.mark.parametrize("rule", [pull, push])
def test_iterations_agree_with_the_dense_solution(rule, monkeypatch: pytest.MonkeyPatch) -> None:
    W = rule(strongly_connected(80, 1))
    pi, gap = metrics.perron_vector(W), metrics.pi_weighted_gap(W)
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
    assert np.allclose(metrics.perron_vector(W), pi, rtol=0, atol=1e-12)
    assert metrics.pi_weighted_gap(W) == pytest.approx(gap, abs=1e-10)


def test_large_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perron, "PRODUCT_LIMIT", 7)
    with pytest.raises(
        TopologyError, match=r"products of several rounds are computed up to n=7, .* has n=8"
    ):
        metrics.perron_vector(topologies.one_peer_exponential(8))
    assert metrics.perron_vector(topologies.ring(8)).tolist() == [1 / 8] * 8


@pytest.mark.parametrize("seed", range(4))
def test_the_weighted_norm_never_expands_and_bounds_the_gap(seed: int) -> None:
    graph = strongly_connected(10, seed)
    for W in (pull(graph), push(graph)):
        gap = metrics.pi_weighted_gap(W)
        assert 0 <= gap <= W.spectral_gap + 1e-12  # a norm is at least the spectral radius
        pi = metrics.perron_vector(W)
        dense = W.weights.toarray() if W.is_row_stochastic else W.weights.toarray().T
        x = np.random.default_rng(seed).standard_normal((10, 200))
        x -= pi @ x  # what is left to forget
        before, after = (pi @ x**2) ** 0.5, (pi @ (dense @ x) ** 2) ** 0.5
        assert (after <= (1 - gap) * before + 1e-12).all()
        assert (after / before).max() > 0.5 * (1 - gap)  # and the bound is not idle


def test_it_is_the_gap_of_reversible_and_one_minus_sigma_of_doubly_stochastic_weights() -> None:
    for graph in (topologies.star(6), topologies.path(5), topologies.tree(10)):
        assert metrics.pi_weighted_gap(pull(graph)) == pytest.approx(
            pull(graph).spectral_gap, abs=1e-12
        )
        W = mixing.metropolis_hastings(graph)
        assert metrics.pi_weighted_gap(W) == pytest.approx(1 - metrics.sigma(W), abs=1e-12)
    circulant = pull(topologies.exponential(11, directed=True))
    assert metrics.pi_weighted_gap(circulant) == pytest.approx(
        1 - metrics.sigma(circulant), abs=1e-12
    )


@pytest.mark.parametrize("n", [50, 60, 80])
def test_entries_far_below_machine_precision_are_accurate(n: int) -> None:
    # Node i receives from i + 1 and from node 0: pi halves from node to node, by an integer
    # recursion that is exact in floating point.
    graph = from_edges(
        [(i, i - 1) for i in range(1, n)] + [(0, i) for i in range(1, n)], n, directed=True
    )
    W = pull(graph)
    from fractions import Fraction

    rows = [
        [Fraction(float(x)).limit_denominator(1000) for x in row] for row in W.weights.toarray()
    ]
    for k in range(n - 1, 0, -1):
        left = sum(rows[k][:k])
        for i in range(k):
            rows[i][k] /= left
            for j in range(k):
                rows[i][j] += rows[i][k] * rows[k][j]
    pi = [Fraction(1)]
    for k in range(1, n):
        pi.append(sum(pi[i] * rows[i][k] for i in range(k)))
    assert metrics.perron_skewness(W) == pytest.approx(float(max(pi) / min(pi)), rel=1e-9)
    assert np.allclose(
        metrics.perron_vector(W), [float(p / sum(pi)) for p in pi], rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("n", [20, 40, 60])
def test_the_gap_of_reversible_chains_that_are_very_uneven(n: int) -> None:
    up, down = (
        0.2,
        0.6,
    )  # birth and death: similar to a symmetric matrix, whose eigenvalues are exact
    dense = np.diag(np.full(n - 1, up), 1) + np.diag(np.full(n - 1, down), -1)
    dense += np.diag(1 - dense.sum(axis=1))
    symmetric = np.diag(np.diag(dense)) + np.sqrt(up * down) * (np.eye(n, k=1) + np.eye(n, k=-1))
    expected = 1 - np.sort(np.abs(np.linalg.eigvalsh(symmetric)))[-2]
    assert metrics.pi_weighted_gap(mixing.from_weights(dense)) == pytest.approx(expected, rel=1e-9)


def test_nearly_doubly_stochastic_weights_are_distinguished() -> None:
    W = mixing.from_weights([[1 - 1e-13, 1e-13], [3e-13, 1 - 3e-13]])
    assert metrics.perron_vector(W) == pytest.approx(
        [0.75, 0.25], rel=1e-3
    )  # 1 - 1e-13 is a float only roughly


def test_large_vectors_that_are_too_uneven_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 60
    graph = from_edges(
        [(i, i - 1) for i in range(1, n)] + [(0, i) for i in range(1, n)], n, directed=True
    )
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
    with pytest.raises(
        TopologyError, match="is too uneven to be computed for n=60: it is exact up to n=10"
    ):
        metrics.perron_vector(pull(graph))
