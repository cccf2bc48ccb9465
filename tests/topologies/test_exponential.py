from math import floor, log2

import networkx as nx
import numpy as np
import pytest

from topofl import mixing, topologies


def offsets(n: int) -> list[int]:
    return [2**e for e in range(floor(log2(n - 1)) + 1)] if n > 1 else []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 16, 17, 33])
def test_static_exponential_is_a_circulant(n: int) -> None:
    graph = topologies.exponential(n)
    assert not graph.is_directed
    assert nx.is_isomorphic(graph.to_networkx(), nx.circulant_graph(n, offsets(n)))
    degree = len({d % n for d in offsets(n)} | {-d % n for d in offsets(n)})
    assert graph.out_degrees.tolist() == [degree] * n


@pytest.mark.parametrize("n", [4, 5, 8, 9, 16, 17, 33])
def test_directed_exponential_sends_forwards(n: int) -> None:
    graph = topologies.exponential(n, directed=True)
    assert graph.is_directed
    for i in range(n):
        assert graph.out_neighbors(i).tolist() == sorted((i + d) % n for d in offsets(n))


@pytest.mark.parametrize(("n", "degree"), [(100, 14), (1000, 20)])
def test_degrees_of_the_papers(n: int, degree: int) -> None:
    assert topologies.exponential(n).out_degrees.tolist() == [degree] * n
    assert topologies.exponential(n, directed=True).out_degrees.tolist() == [len(offsets(n))] * n


@pytest.mark.parametrize("n", [4, 8, 16, 64, 128])
def test_gap_of_the_directed_exponential_graph(n: int) -> None:
    """2 / (1 + log2 n) for powers of two (Ying et al. 2021, Proposition 1), with uniform weights."""
    W = mixing.uniform(topologies.exponential(n, directed=True))
    assert W.is_doubly_stochastic
    assert W.spectral_gap == pytest.approx(2 / (1 + log2(n)), abs=1e-10)


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_one_peer_exponential_averages_exactly_in_one_period(n: int) -> None:
    pushes = topologies.one_peer_exponential(n)
    assert pushes.period == log2(n)
    for start in range(pushes.period):  # any consecutive period
        product = np.eye(n)
        for t in range(start, start + pushes.period):
            product = mixing.uniform(pushes.at(t), direction="push") @ product
        assert (product == 1 / n).all()  # powers of two: exact also in floating point


def test_one_peer_exponential_contracts_where_n_is_no_power_of_two() -> None:
    """Dobrushin's coefficient of the product over one period at n = 100."""
    product = np.eye(100)
    for t in range(7):
        product = mixing.uniform(topologies.one_peer_exponential(100).at(t), direction="push") @ product
    distances = np.abs(product.T[:, None, :] - product.T[None, :, :]).sum(axis=2)
    assert distances.max() / 2 == pytest.approx(0.219, abs=5e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 100])
def test_rounds_of_one_peer_exponential(n: int) -> None:
    pushes = topologies.one_peer_exponential(n)
    assert pushes.period == floor(log2(n - 1)) + 1
    assert pushes.name == f"one_peer_exponential(n={n})"
    for t in range(2 * pushes.period):
        graph = pushes.at(t)
        shift = 2 ** (t % pushes.period)
        assert [graph.out_neighbors(i).tolist() for i in range(n)] == [[(i + shift) % n] for i in range(n)]
        assert graph is pushes.at(t % pushes.period)
        assert graph.name == f"one_peer_exponential(n={n}).at({t % pushes.period})"


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
        topologies.exponential(0)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        topologies.exponential(8.0)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.one_peer_exponential(1)
    with pytest.raises(TypeError, match="`n` must be an integer"):
        topologies.one_peer_exponential("8")
