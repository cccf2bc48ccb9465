"""Arguments of clique generators: reported label shares, counts and sizes."""

import numpy as np
import pytest

from tests.topologies.cliques import unequal_counts
from topofl import topologies
from topofl.topologies import greedy_swap_trace


def test_shares_that_nodes_tell_replace_their_counts() -> None:
    counts = unequal_counts(20, 4, seed=2)
    shares = counts / counts.sum(axis=1, keepdims=True)
    told, known = (
        topologies.greedy_swap(**k, clique_size=5, seed=0)
        for k in ({"label_shares": shares}, {"label_counts": counts})
    )
    assert told.groups == known.groups
    assert told.name == "greedy_swap(label_shares[20x4], clique_size=5, seed=0)"
    wrong = shares + np.random.default_rng(0).normal(size=shares.shape)
    groups, skews = greedy_swap_trace(label_shares=wrong, clique_size=5, steps=50, seed=0)
    expected = [
        np.abs(wrong[list(group)].mean(axis=0) - wrong.mean(axis=0)).sum() for group in groups
    ]
    assert np.allclose(skews[-1], expected, rtol=0, atol=1e-12)
    assert topologies.dcliques(label_shares=wrong, clique_size=5, steps=50, seed=0).groups == groups


def test_shares_are_checked() -> None:
    shares = np.full((4, 2), 0.5)
    for make in (topologies.greedy_swap, topologies.dcliques):
        for given in ({"label_counts": np.ones((4, 2), int)}, {"n": 4}):
            with pytest.raises(ValueError, match="`label_shares` must be given alone"):
                make(label_shares=shares, clique_size=2, seed=0, **given)
        with pytest.raises(ValueError, match=r"`label_shares` must be finite, got nan at \(0, 1\)"):
            make(label_shares=[[0.5, np.nan]] * 4, clique_size=2, seed=0)
        with pytest.raises(
            ValueError, match=r"`label_shares` must have shape \(n, classes\), got \(2,\)"
        ):
            make(label_shares=[0.5, 0.5], clique_size=2, seed=0)
        with pytest.raises(TypeError, match="`label_shares` must be real numbers, got dtype <U1"):
            make(label_shares=[["a"]], clique_size=2, seed=0)
        with pytest.raises(ValueError, match="`weighting` must be 'uniform' with `label_shares`"):
            make(label_shares=shares, weighting="pooled", clique_size=2, seed=0)
        for bad in ([[1.5, -0.5]] * 4, [[0.5, 0.4]] * 4):
            make(label_shares=bad, distance="euclidean", clique_size=2, seed=0)
            with pytest.raises(ValueError, match=r"sum to 1 for distance='kl'.*clip=True"):
                make(label_shares=bad, distance="kl", clique_size=2, seed=0)
        with pytest.raises(ValueError, match=r"`distance` must be one of .*got 'l2'"):
            make(label_shares=shares, distance="l2", clique_size=2, seed=0)
        with pytest.raises(ValueError, match="`clique_size` must be between 2 and n=4, got 5"):
            make(label_shares=shares, clique_size=5, seed=0)


BAD_COUNTS = [
    ([1, 2, 3], ValueError, r"`label_counts` must have shape \(n, classes\), got \(3,\)"),
    (np.zeros((0, 3), int), ValueError, r"`label_counts` must have shape"),
    (5, ValueError, "`label_counts` must have shape"),
    ([[1, 2], [3]], ValueError, "`label_counts` must be an"),
    ([[1.0, 2.0], [0.5, 1.0]], TypeError, "`label_counts` must be integers, got dtype float64"),
    (
        [[1.0, np.nan], [0.5, 1.0]],
        ValueError,
        r"`label_counts` must be finite, got nan at \(0, 1\)",
    ),
    ([["a", "b"], ["c", "d"]], TypeError, "`label_counts` must be integers"),
    (
        [[1, 2], [3, -4]],
        ValueError,
        "`label_counts` must be non-negative, got -4 for node 1, class 1",
    ),
    (
        [[1, 2], [0, 0], [1, 1]],
        ValueError,
        "`label_counts` must give every node at least one example, but node 1 has none",
    ),
]


@pytest.mark.parametrize(("counts", "error", "match"), BAD_COUNTS)
@pytest.mark.parametrize(
    "generator",
    [topologies.greedy_swap, topologies.dcliques, topologies.dissimilar_ring, greedy_swap_trace],
)
def test_bad_label_counts(generator, counts, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        generator(counts, seed=0)


@pytest.mark.parametrize("size", [1, 0, -3, 101])
def test_clique_size_is_checked(size: int) -> None:
    match = f"`clique_size` must be between 2 and n=100, got {size}"
    counts = np.ones((100, 2), dtype=int)
    for make in (
        lambda: topologies.random_cliques(100, size, seed=0),
        lambda: topologies.greedy_swap(counts, size, seed=0),
        lambda: topologies.greedy_swap(n=100, clique_size=size, seed=0),
        lambda: greedy_swap_trace(counts, size, seed=0),
        lambda: topologies.dcliques(counts, clique_size=size, seed=0),
        lambda: topologies.dcliques(n=100, clique_size=size, seed=0),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    with pytest.raises(TypeError, match="`clique_size` must be an integer"):
        topologies.random_cliques(100, 10.0, seed=0)


def test_other_arguments_are_checked() -> None:
    counts = np.ones((4, 2), dtype=int)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.random_cliques(1, 2, seed=0)
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        topologies.greedy_swap(n=1, seed=0)
    with pytest.raises(ValueError, match="`label_counts` and `n`"):
        topologies.greedy_swap(seed=0)
    with pytest.raises(ValueError, match="`label_counts` and `n`"):
        topologies.greedy_swap(counts, 2, n=4, seed=0)
    for make in (topologies.greedy_swap, greedy_swap_trace):
        with pytest.raises(ValueError, match="`steps` must be at least 0, got -1"):
            make(counts, 2, steps=-1, seed=0)
        with pytest.raises(TypeError, match="`steps` must be an integer"):
            make(counts, 2, steps=1.5, seed=0)
        with pytest.raises(
            ValueError,
            match=r"`weighting` must be one of 'uniform', 'pooled', got 'pool'.*'pooled'",
        ):
            make(counts, 2, weighting="pool", seed=0)
        with pytest.raises(TypeError, match="`seed`"):
            make(counts, 2, seed=None)


def test_a_number_of_nodes_is_given_by_name():
    with pytest.raises(ValueError, match="for one class per node pass n=50"):
        topologies.dcliques(50, seed=0)
