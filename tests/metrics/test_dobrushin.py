"""Dobrushin's coefficient: brute force, its theorems, and known values of products."""

import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from topofl import mixing, topologies
from topofl.metrics import dobrushin, slem
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError, TopologySequence, from_edges

push = partial(mixing.uniform, direction="push")


def stochastic(n: int) -> st.SearchStrategy[MixingMatrix]:
    """Draw row-stochastic matrices with many zeros."""
    entries = arrays.arrays(np.float64, (n, n), elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0]))
    return entries.map(
        lambda a: mixing.from_weights((a + np.eye(n)) / (a + np.eye(n)).sum(axis=1, keepdims=True))
    )


@st.composite
def matrices(draw: st.DrawFn, count: int = 1) -> list[MixingMatrix]:
    n = draw(st.integers(1, 6))
    return [draw(stochastic(n)) for _ in range(count)]


def brute(matrix: np.ndarray) -> float:
    """Return one minus the smallest overlap of two rows, an equivalent formula."""
    return 1 - min(np.minimum(a, b).sum() for a in matrix for b in matrix)


def product(members: list[MixingMatrix]) -> np.ndarray:
    """Return the product of the matrices in chronological order."""
    result = np.eye(members[0].n)
    for member in members:
        result = member.weights.toarray() @ result
    return result


# Definition


@given(matrices(3))
def test_agrees_with_brute_force_over_pairs_and_windows(members):
    for member in members:
        assert dobrushin(member) == pytest.approx(brute(member.weights.toarray()), abs=1e-12)
    assert dobrushin(members) == pytest.approx(brute(product(members)), abs=1e-12)
    later = [members[1], members[2], members[0], members[1]]  # the period begins again
    assert dobrushin(members, start=1, rounds=4) == pytest.approx(brute(product(later)), abs=1e-12)


@given(matrices(2))
def test_columns_are_compared_where_columns_sum_to_one(members):
    transposed = [mixing.from_weights(member.weights.T, edges="u<-v") for member in members]
    for member, other in zip(members, transposed, strict=True):
        assert dobrushin(other) == pytest.approx(dobrushin(member), abs=1e-12)
    if not any(other.is_row_stochastic for other in transposed):
        reverse = product(transposed)
        assert dobrushin(transposed) == pytest.approx(brute(reverse.T), abs=1e-12)


def test_rows_are_compared_where_both_sum_to_one():
    # Rows (1, 0, 0), (0, 1/2, 1/2) twice: 1 by rows as by columns; a permutation of it differs from
    # its transpose.
    doubly = mixing.from_weights([[0, 0.5, 0.5], [0.5, 0.5, 0], [0.5, 0, 0.5]])
    circulant = mixing.from_weights([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    assert dobrushin(doubly) == pytest.approx(0.5)
    assert dobrushin(circulant) == pytest.approx(brute(circulant.weights.toarray()), abs=1e-15)


# Theorems


@given(matrices(2))
def test_is_submultiplicative_and_bounds_the_second_eigenvalue(members):
    first, second = members
    assert 0 <= dobrushin(members) <= dobrushin(first) * dobrushin(second) + 1e-12
    # Rounding moves an eigenvalue of multiplicity m, here 5 at most, by the m-th root of 2e-16.
    assert slem(first) <= dobrushin(first) + 1e-3


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(5),
        topologies.star(6),
        topologies.grid(9),
        topologies.exponential(12, directed=True),
    ],
    ids=lambda graph: graph.name,
)
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_bounds_the_second_eigenvalue_of_powers(graph, rounds):
    assert slem(graph) ** rounds <= dobrushin(graph, rounds=rounds) + 1e-12


@given(matrices(), st.integers(0, 100))
def test_bounds_how_the_range_of_values_shrinks(members, seed):
    values = np.random.default_rng(seed).standard_normal((members[0].n, 5))
    mixed = members[0] @ values
    assert (np.ptp(mixed, axis=0) <= dobrushin(members) * np.ptp(values, axis=0) + 1e-12).all()


@given(matrices())
def test_is_zero_exactly_for_rank_one(members):
    rank = np.linalg.matrix_rank(members[0].weights.toarray())
    assert (dobrushin(members) < 1e-12) == (rank == 1)
    equal = mixing.from_weights(np.tile(members[0].weights.toarray()[:1], (members[0].n, 1)))
    assert dobrushin(equal) == 0.0


def test_never_grows_with_the_window():
    values = [
        dobrushin(topologies.random_out(30, 2, seed=3), rounds=k, weights=push)
        for k in range(1, 12)
    ]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    assert values[0] == 1.0
    assert values[-1] < 0.2


def test_symmetric_weights_shrink_by_the_second_eigenvalue_in_the_long_run():
    graph = topologies.ring(7)
    ratio = dobrushin(graph, rounds=40) / dobrushin(graph, rounds=39)
    assert ratio == pytest.approx(slem(graph), rel=1e-9)


# Known values


def test_one_peer_exponential():
    assert dobrushin(topologies.one_peer_exponential(100)) == pytest.approx(0.219, abs=5e-4)
    # Rows of the product of 7 rounds are uniform on 128 offsets, 28 of 100 of them twice: shifts by
    # 28..72 share least.
    assert dobrushin(topologies.one_peer_exponential(100)) == pytest.approx(28 / 128, abs=1e-12)
    for n in (2, 8, 64):
        assert dobrushin(topologies.one_peer_exponential(n)) == 0.0


def test_closed_forms():
    assert dobrushin(topologies.fully_connected(9)) == pytest.approx(0, abs=1e-15)
    assert dobrushin(topologies.star(10)) == pytest.approx(
        1 - 1 / 10
    )  # two leaves share the center's 1/n
    assert dobrushin(topologies.ring(6)) == 1.0
    assert dobrushin(topologies.ring(5)) == pytest.approx(
        2 / 3
    )  # neighbors of opposite nodes: one of three in common
    assert dobrushin(from_edges([], 1)) == 0.0
    assert dobrushin(from_edges([], 2)) == 1.0
    assert dobrushin(from_edges([(0, 1)], 2)) == 0.0
    assert dobrushin(from_edges([(0, 1), (2, 3)], 4), rounds=50) == 1.0


# Large graphs


def test_large_graphs_with_nodes_without_common_sources_have_coefficient_one():
    for graph in (
        topologies.ring(100_000),
        topologies.one_peer_exponential(100_000),
        topologies.grid(10_000),
    ):
        assert dobrushin(graph, rounds=2) == 1.0
    # In 11 rounds, each of 4,096 nodes receives from 2^11 nodes: opposite nodes have no sources in
    # common, all other pairs do.
    assert dobrushin(topologies.one_peer_exponential(4096), rounds=11) == 1.0
    # A star whose leaf 1 has a leaf of its own: the center shares with all, but the latter and leaf
    # 2 nothing.
    star = from_edges([(0, i) for i in range(1, 2500)] + [(1, 2500)], 2501)
    assert dobrushin(star) == 1.0
    directed = topologies.random_out(5000, 3, seed=0)
    assert dobrushin(directed, rounds=2, weights=push) == 1.0


def test_other_large_graphs_are_refused(monkeypatch):
    with pytest.raises(TopologyError, match=r"up to n=2,000, star.* has n=2,001; use metrics.slem"):
        dobrushin(topologies.star(2001))
    with pytest.raises(TopologyError, match="up to n=2,000"):
        dobrushin(topologies.one_peer_exponential(2048), rounds=11)  # exact averaging
    monkeypatch.setattr(sys.modules["topofl.metrics.averaging"], "ENTRY_LIMIT", 20_000)
    with pytest.raises(TopologyError, match=r"too large from round 3 on .* use fewer rounds"):
        dobrushin(topologies.one_peer_exponential(2048))


# Bad input


def test_needs_a_window_and_matrices_of_one_kind():
    endless = topologies.random_out(6, 2, seed=0)
    assert endless.period is None
    with pytest.raises(
        TopologyError, match=r"has no period, so `rounds` is needed: dobrushin\(sequence, rounds"
    ):
        dobrushin(endless)
    line = from_edges([(0, 1), (1, 2)], 3, directed=True)
    with pytest.raises(
        TopologyError,
        match="of matrices must be row-stochastic in all rounds, or column",
    ):
        dobrushin([mixing.uniform(line), push(line)])
    with pytest.raises(ValueError, match="`rounds` must be at least 1, got 0"):
        dobrushin(line, rounds=0)
    with pytest.raises(ValueError, match="`start` must be at least 0, got -1"):
        dobrushin(line, start=-1)
    with pytest.raises(TypeError, match="`x`"):
        dobrushin(np.eye(2))


def test_every_round_is_computed_once():
    asked = []

    def graph(t):
        asked.append(t)
        return topologies.ring(4)

    sequence = TopologySequence(4, graph)
    assert sequence.nodes == ()  # the labels that all rounds must have, of round 0
    asked.clear()
    dobrushin(sequence, start=3, rounds=4)
    assert asked == [3, 4, 5, 6]
