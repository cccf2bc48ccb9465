"""Private label histograms: their noise, and the cliques that are made of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from topofl import data, topologies
from topofl.metrics import clique_skew

SCALES = {"scale": 1.0, "sd": 1 / np.sqrt(2), "replace_one": 2.0}


def two_shards(n: int, seed: int) -> np.ndarray:
    """Return label counts of n nodes with two of 2n shards of 50 examples, of ten classes."""
    shards = np.repeat(np.arange(10), n * 10).reshape(2 * n, -1)
    order = np.random.default_rng(seed).permutation(2 * n).reshape(n, 2)
    return np.stack([np.bincount(shards[pair].ravel(), minlength=10) for pair in order])


@pytest.mark.parametrize("noise", SCALES)
def test_noise_is_laplace_of_the_scale(noise: str) -> None:
    counts = np.tile([[300, 200], [1500, 500]], (20_000, 1))
    told = data.private_label_histograms(counts, epsilon=0.5, seed=0, noise=noise)
    added = told - counts / counts.sum(axis=1, keepdims=True)
    for row, m in ((0, 500), (1, 2000)):
        mine, b = added[row::2].ravel(), SCALES[noise] / (m * 0.5)
        assert stats.kstest(mine, stats.laplace(scale=b).cdf).pvalue > 1e-3
        # Standard errors: sd / sqrt(k) of the mean; of the variance sqrt(20 / k) b^2, by the fourth
        # moment 24 b^4.
        assert abs(mine.mean()) < 4 * np.sqrt(2 / len(mine)) * b  # unbiased
        assert abs(mine.var() - 2 * b**2) < 4 * np.sqrt(20 / len(mine)) * b**2
    assert abs(np.corrcoef(added.T)[0, 1]) < 4 / np.sqrt(len(added))  # entries are independent


def test_the_papers_example() -> None:
    """With epsilon = 1 and 500 examples the standard deviation is 0.002, as literally read."""
    counts = np.full((40_000, 1), 500)
    for noise, expected in (
        ("sd", 0.002),
        ("scale", 0.002 * np.sqrt(2)),
        ("replace_one", 0.004 * np.sqrt(2)),
    ):
        sd = (data.private_label_histograms(counts, epsilon=1, seed=1, noise=noise) - 1).std()
        assert sd == pytest.approx(expected, rel=4 * np.sqrt(5 / 40_000))
    mean_size = np.abs(data.private_label_histograms(counts, epsilon=1, seed=1) - 1).mean()
    assert mean_size == pytest.approx(
        0.002, rel=4 / np.sqrt(40_000)
    )  # the mean absolute value of Laplace noise is b


def test_noise_depends_on_the_seed_and_only_its_size_on_epsilon() -> None:
    counts = two_shards(20, seed=0)
    shares = counts / counts.sum(axis=1, keepdims=True)
    one, tenth = (
        data.private_label_histograms(counts, epsilon=e, seed=3) - shares for e in (1, 0.1)
    )
    np.testing.assert_allclose(tenth, 10 * one, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, data.private_label_histograms(counts, epsilon=1, seed=4) - shares)
    given = data.private_label_histograms(SimpleNamespace(label_counts=counts), epsilon=1, seed=3)
    np.testing.assert_array_equal(given - shares, one)
    twins = [
        data.private_label_histograms(counts, epsilon=1, seed=np.random.default_rng(5))
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*twins)


def test_clipped_histograms_are_distributions() -> None:
    told = data.private_label_histograms(two_shards(200, seed=0), epsilon=1e-3, seed=0, clip=True)
    assert (told >= 0).all()
    np.testing.assert_allclose(told.sum(axis=1), 1, rtol=1e-12)
    raw = data.private_label_histograms(np.ones((500, 1), int), epsilon=1e-3, seed=0)
    assert (raw < 0).any()
    assert (
        data.private_label_histograms(np.ones((500, 1), int), epsilon=1e-3, seed=0, clip=True) == 1
    ).all()


@pytest.mark.parametrize("noise", SCALES)
def test_the_least_epsilon_gives_finite_shares(noise: str) -> None:
    counts, how = np.ones((3, 10_000), int), {"epsilon": 1e-300, "noise": noise}
    for seed in range(5):
        assert np.isfinite(data.private_label_histograms(counts[:, :1], seed=seed, **how)).all()
        told = data.private_label_histograms(counts, seed=seed, clip=True, **how)
        np.testing.assert_allclose(told.sum(axis=1), 1, rtol=1e-12)
    largest = -np.log(2.0**-53) * 2 / 1e-300  # of `replace_one`, for one example
    assert 1e6 * largest < np.finfo(float).max


def test_much_noise_gives_random_cliques_and_none_gives_those_of_greedy_swap() -> None:
    known, random, lost, negligible = [], [], [], []
    for seed in range(15):
        counts = two_shards(100, seed)
        exact = topologies.greedy_swap(counts, 10, seed=seed)
        told = data.private_label_histograms(counts, epsilon=1e12, seed=seed)
        assert (
            topologies.greedy_swap(label_shares=told, clique_size=10, seed=seed).groups
            == exact.groups
        )
        for epsilon, skews in ((1e-6, lost), (1, negligible)):
            told = data.private_label_histograms(counts * 5, epsilon=epsilon, seed=seed)
            graph = topologies.greedy_swap(label_shares=told, clique_size=10, seed=seed)
            skews.append(clique_skew(graph, counts).mean())
        known.append(clique_skew(exact, counts).mean())
        random.append(clique_skew(topologies.random_cliques(100, 10, seed=seed), counts).mean())
    lost, random = np.array(lost), np.array(random)
    assert abs((lost - random).mean()) < 3 * (lost - random).std(ddof=1) / np.sqrt(15)
    assert np.mean(negligible) < np.mean(known) + 0.1 * (
        random.mean() - np.mean(known)
    )  # the paper: negligible


def test_distances_between_distributions_need_clipping() -> None:
    counts = two_shards(40, seed=0)
    told = data.private_label_histograms(counts, epsilon=1, seed=0)
    with pytest.raises(ValueError, match="clip=True"):
        topologies.greedy_swap(label_shares=told, distance="hellinger", seed=0)
    told = data.private_label_histograms(counts, epsilon=1, seed=0, clip=True)
    graph = topologies.greedy_swap(label_shares=told, distance="hellinger", seed=0)
    before = topologies.random_cliques(40, seed=0)
    assert clique_skew(graph, counts).mean() < clique_skew(before, counts).mean()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"epsilon": 0}, ValueError, "`epsilon` must be a finite number above 0, got 0"),
        ({"epsilon": -1.0}, ValueError, "`epsilon`"),
        (
            {"epsilon": 1e-320},
            ValueError,
            "`epsilon` must be at least 1e-300, got 1e-320, whose noise is too large",
        ),
        ({"epsilon": 9.99e-301}, ValueError, "`epsilon` must be at least 1e-300, got 9.99e-301"),
        ({"epsilon": "a"}, TypeError, "`epsilon` must be a number"),
        (
            {"noise": "variance"},
            ValueError,
            "`noise` must be one of 'scale', 'sd', 'replace_one', got 'variance'",
        ),
        (
            {"label_counts": [[1, 0], [0, 0]]},
            ValueError,
            "at least one example per node, node 1 has none",
        ),
        ({"label_counts": [[0.5, 0.5]]}, TypeError, "`label_counts` must be integers"),
        ({"label_counts": [1, 2]}, ValueError, "`label_counts` must have shape"),
        ({"seed": None}, TypeError, "`seed`"),
    ],
)
def test_arguments_are_checked(call, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        data.private_label_histograms(
            **({"label_counts": [[1, 2]], "epsilon": 1.0, "seed": 0} | call)
        )
