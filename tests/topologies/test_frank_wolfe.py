from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl.topologies import stl_fw_trace


def random_counts(n: int, classes: int, seed: int) -> np.ndarray:
    """Return label counts, very unequal ones, with data for every node."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, (n, classes)) ** 3
    return counts + np.eye(classes, dtype=int)[rng.integers(classes, size=n)]


def two_shards(n: int, seed: int) -> np.ndarray:
    """Return label counts of nodes with two random shards each of ten classes of equal size."""
    order = np.random.default_rng(seed).permutation(2 * n)
    shards = np.repeat(np.arange(10), n // 5)[order].reshape(n, 2)
    return np.array([np.bincount(pair, minlength=10) for pair in shards])


def dense_weights(*arguments, **keywords) -> np.ndarray:
    return mixing.own_weights(topologies.stl_fw(*arguments, **keywords)).weights.toarray()


def objective(weights: np.ndarray, counts: np.ndarray, lam: float) -> Any:
    """Return g(W) straight from its definition, of one W or of each of a stack."""
    n = len(counts)
    shares, mean = counts / counts.sum(axis=1, keepdims=True), np.full((n, n), 1 / n)
    skew = np.linalg.norm(weights @ shares - mean @ shares, axis=(-2, -1)) ** 2
    return (skew + lam * np.linalg.norm(weights - mean, axis=(-2, -1)) ** 2) / n


problems = {
    "counts": st.builds(
        random_counts, st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32)
    ),
    "degree": st.integers(0, 6),
    "lam": st.sampled_from([0.0, 0.01, 0.1, 1.0, 30.0]),
}


@given(**problems)
def test_weights_are_doubly_stochastic_and_neighbors_few(counts, degree, lam):
    graph = topologies.stl_fw(counts, degree, lam=lam)
    weights = dense_weights(counts, degree, lam=lam)
    assert graph.own_weights
    assert np.abs(weights.sum(axis=0) - 1).max() <= 1e-12
    assert np.abs(weights.sum(axis=1) - 1).max() <= 1e-12
    assert weights.min() >= 0
    assert max(graph.in_degrees.max(), graph.out_degrees.max()) <= degree
    default = mixing.metropolis_or_uniform(graph)
    assert np.array_equal(default.weights.toarray(), weights)


@given(**problems)
def test_the_trace_is_the_objective_of_its_definition_and_never_rises(counts, degree, lam):
    trace = stl_fw_trace(counts, degree, lam=lam)
    assert trace.shape == (degree + 1, 2)
    values = trace @ [1, lam]
    assert (np.diff(values) <= 1e-14 * (1 + lam)).all()
    for step, value in enumerate(values):  # fewer steps are the same path, ended earlier
        weights = dense_weights(counts, step, lam=lam)
        assert value == pytest.approx(objective(weights, counts, lam), abs=1e-12 * (1 + lam))
        skew = metrics.neighborhood_heterogeneity(topologies.stl_fw(counts, step, lam=lam), counts)
        assert trace[step, 0] == pytest.approx(skew, abs=1e-12)


@given(**problems)
def test_the_rate_of_frank_wolfe(counts, degree, lam):
    """The bound of the docstring; the minimum over doubly stochastic matrices is 0, at J."""
    values = stl_fw_trace(counts, degree, lam=lam) @ [1, lam]
    without = objective(np.eye(len(counts)), counts, 0.0)
    steps = np.arange(1, degree + 1)
    assert (values[1:] <= 16 / (steps + 2) * (lam / 2 + without) + 1e-12).all()


@pytest.mark.parametrize("lam", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_is_the_best_point_on_the_way_to_a_steepest_permutation(seed, lam):
    counts, eye = random_counts(4, 3, seed), np.eye(4)
    shares = counts / counts.sum(axis=1, keepdims=True)
    for step in range(4):
        before, after = (dense_weights(counts, k, lam=lam) for k in (step, step + 1))
        apart = before @ shares - shares.mean(axis=0)
        gradient = 2 / 4 * (apart @ shares.T + lam * (before - 1 / 4))
        every = permutations(range(4))
        slopes = {p: float((gradient * (eye[list(p)] - before)).sum()) for p in every}
        steepest = [p for p, slope in slopes.items() if slope <= min(slopes.values()) + 1e-12]
        steps = np.linspace(0, 1, 1001)[:, None, None]
        towards = [before + steps * (eye[list(p)] - before) for p in steepest]
        best = [objective(on_the_way, counts, lam).min() for on_the_way in towards]
        reached = objective(after, counts, lam)
        assert any(value - 1e-5 <= reached <= value + 1e-12 for value in best)
        if not np.allclose(before, after):  # it lies on the segment to one of them
            ways = [eye[list(p)] - before for p in steepest]
            pairs = (np.stack([way.ravel(), (after - before).ravel()]) for way in ways)
            assert any(np.linalg.matrix_rank(pair, 1e-9) == 1 for pair in pairs)


@given(counts=problems["counts"], lam=problems["lam"])
def test_the_first_step_halves(counts, lam):
    """I and a permutation have the same g, so the best point between them is the middle."""
    weights = dense_weights(counts, 1, lam=lam)
    moved = np.diag(weights) < 0.75
    assert np.allclose(np.diag(weights), np.where(moved, 0.5, 1.0), atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.1])
@pytest.mark.parametrize(("n", "classes"), [(10, 10), (30, 10), (12, 3), (7, 7)])
def test_one_class_a_node_needs_one_neighbor_fewer_than_classes(n, classes, lam):
    counts = np.eye(classes, dtype=int)[np.arange(n) % classes]
    trace = stl_fw_trace(counts, classes, lam=lam)
    # After l steps each node hears l + 1 classes in equal parts: 1 / (l + 1) - 1 / K is left of the
    # skew.
    expected = [1 / (step + 1) - 1 / classes for step in range(classes)]
    assert np.allclose(trace[:classes, 0], expected, rtol=0, atol=1e-12)
    assert topologies.stl_fw(counts, classes - 1, lam=lam).in_degrees.tolist() == [classes - 1] * n
    if lam == 0 and n > classes:  # nothing is left to do
        assert topologies.stl_fw(counts, classes, lam=0.0).in_degrees.tolist() == [classes - 1] * n


@pytest.mark.parametrize("degree", [2, 4, 10])
@pytest.mark.parametrize("seed", range(3))
def test_less_skew_than_random_graphs_of_equal_degree(degree, seed):
    counts = two_shards(100, seed)
    learned = metrics.neighborhood_heterogeneity(topologies.stl_fw(counts, degree), counts)
    random = topologies.random_regular(100, degree, seed=seed)
    assert learned < metrics.neighborhood_heterogeneity(random, counts)


def test_variance_counts_where_nothing_else_does():
    equal = np.ones((6, 2), int)
    assert topologies.stl_fw(equal, 5, lam=0.0).n_edges == 0
    # W then goes to J, which is the mean of I and 5 permutations that all differ.
    assert np.allclose(dense_weights(equal, 5, lam=0.1), 1 / 6)
