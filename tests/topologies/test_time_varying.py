"""Graphs that are drawn anew every round."""

import numpy as np
import pytest
from scipy import stats

from topofl import metrics, mixing, topologies


@pytest.mark.parametrize(("n", "k"), [(2, 1), (10, 9), (10, 3), (60, 5), (60, 20)])
def test_degrees_are_k_on_the_side_that_chooses(n, k):
    for t in (0, 1, 17):
        assert set(topologies.random_out(n, k, seed=3).at(t).out_degrees) == {k}
        assert set(topologies.random_in(n, k, seed=3).at(t).in_degrees) == {k}


def test_rounds_are_pure_in_seed_and_t_and_differ():
    graphs, again = topologies.random_out(30, 4, seed=1), topologies.random_out(30, 4, seed=1)
    later = again.at(5)  # asked for first
    for t in range(5):
        assert (graphs.at(t).adjacency != again.at(t).adjacency).nnz == 0
    assert (graphs.at(5).adjacency != later.adjacency).nnz == 0
    assert (graphs.at(0).adjacency != graphs.at(1).adjacency).nnz > 0
    assert (graphs.at(0).adjacency != topologies.random_out(30, 4, seed=2).at(0).adjacency).nnz > 0


@pytest.mark.parametrize(("n", "k"), [(12, 2), (12, 5)])  # one with each way of drawing
def test_all_others_are_equally_likely(n, k):
    graphs = topologies.random_out(n, k, seed=0)
    counts = sum(graphs.at(t).adjacency.toarray() for t in range(1500))
    off = counts[~np.eye(n, dtype=bool)]
    assert not counts.diagonal().any()
    expected = 1500 * k / (n - 1)
    # Within a row the k choices exclude each other, which shrinks the variance by (1 - k / (n - 1)).
    statistic = ((off - expected) ** 2 / expected).sum() / (1 - k / (n - 1))
    assert stats.chi2.sf(statistic, n * (n - 2)) > 1e-3


def test_push_and_pull_weights_are_what_the_directions_promise():
    out, into = topologies.random_out(40, 6, seed=0).at(2), topologies.random_in(40, 6, seed=0).at(2)
    push, pull = mixing.uniform(out, direction="push"), mixing.uniform(into)
    assert push.is_column_stochastic
    assert pull.is_row_stochastic
    assert np.allclose(push.weights.data, 1 / 7)
    assert np.allclose(pull.weights.data, 1 / 7)


@pytest.mark.parametrize(("k", "known"), [(2, 0.324), (5, 0.159), (10, 0.081), (20, 0.038), (40, 0.014)])
def test_one_pull_shrinks_disagreement_as_known(k, known):
    """E|(I-J) W x|^2 / |(I-J) x|^2 over draws, and its closed form (1 - k / (n - 1)) / (k + 1)."""
    graphs, rng = topologies.random_in(100, k, seed=0), np.random.default_rng(0)
    ratios = []
    for t in range(200):
        x = rng.standard_normal(100)
        y = mixing.uniform(graphs.at(t)) @ x
        ratios.append(((y - y.mean()) ** 2).sum() / ((x - x.mean()) ** 2).sum())
    standard_error = np.std(ratios) / np.sqrt(len(ratios))
    closed = (1 - k / 99) / (k + 1)
    assert abs(np.mean(ratios) - closed) < 4 * standard_error
    assert known == pytest.approx(closed, rel=0.05)


def test_measured_contraction_of_pulls_is_near_the_square_root():
    measured = metrics.measured_contraction(topologies.random_in(100, 10, seed=0), rounds=100, seed=0)
    assert measured == pytest.approx(np.sqrt((1 - 10 / 99) / 11), rel=0.05)


@pytest.mark.parametrize("generator", [topologies.random_out, topologies.random_in])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"n": 1, "k": 1}, "n"), ({"n": 5, "k": 0}, "k"), ({"n": 5, "k": 5}, "k"), ({"n": 5, "k": 2, "seed": -1}, "seed")],
)
def test_bad_arguments_are_named(generator, arguments, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        generator(**{"seed": 0} | arguments)
