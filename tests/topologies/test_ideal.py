import sys
from itertools import combinations

import numpy as np
import pytest

from topofl import topologies
from topofl.metrics import clique_skew


def one_class(classes: list[int], sizes: int = 7) -> np.ndarray:
    return sizes * np.eye(max(classes) + 1, dtype=int)[classes]


@pytest.mark.parametrize("per_class", [1, 3, 10])
def test_every_clique_holds_every_class_once(per_class: int) -> None:
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(10), per_class))
    graph = topologies.ideal_cliques(one_class(classes.tolist()), seed=0)
    assert len(graph.groups) == per_class
    assert all(sorted(classes[list(group)]) == list(range(10)) for group in graph.groups)
    assert graph.n_edges == 45 * per_class


def test_no_skew_where_cliques_divide_the_classes_whatever_their_sizes() -> None:
    classes = np.repeat([0, 1, 2], [20, 10, 30])  # five cliques of 12: 4, 2 and 6 of each class
    graph = topologies.ideal_cliques(one_class(classes.tolist()), 12, seed=0)
    assert clique_skew(graph, one_class(classes.tolist())).max() < 1e-15


@pytest.mark.parametrize("seed", range(5))
def test_sizes_and_classes_are_shared_out_evenly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    size = int(rng.integers(2, n + 1))
    classes = rng.integers(0, 7, n)
    graph = topologies.ideal_cliques(one_class([*classes.tolist()]), size, seed=seed)
    assert sorted(node for group in graph.groups for node in group) == list(range(n))
    assert len(graph.groups) == -(-n // size)
    held = np.array([np.bincount(classes[list(group)], minlength=7) for group in graph.groups])
    assert held.sum(axis=1).max() <= size
    assert np.ptp(held.sum(axis=1)) <= 1
    assert np.ptp(held, axis=0).max() <= 1


@pytest.mark.parametrize("classes", [[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 2, 3]])
def test_cliques_of_equal_size_have_the_least_skew_there_is(classes: list[int]) -> None:
    counts = one_class(classes)
    least = min(
        clique_skew([first, [k for k in range(6) if k not in first]], counts).sum()
        for first in combinations(range(6), 3)
    )
    for seed in range(5):
        graph = topologies.ideal_cliques(counts, 3, seed=seed)
        assert clique_skew(graph, counts).sum() == pytest.approx(least, abs=1e-12)


def test_nodes_and_classes_are_dealt_at_random() -> None:
    graphs = [topologies.ideal_cliques(n=6, clique_size=3, seed=seed) for seed in range(200)]
    together = [any({0, 1} <= set(group) for group in graph.groups) for graph in graphs]
    assert abs(sum(together) - 100) < 4 * np.sqrt(
        50
    )  # node 1 is in the clique of node 0 or in the other one


def test_cliques_may_be_joined() -> None:
    disjoint, ring = (
        topologies.ideal_cliques(n=40, inter=inter, seed=0) for inter in (None, "ring")
    )
    assert disjoint.groups == ring.groups
    assert (disjoint.is_connected, ring.is_connected) == (False, True)
    assert ring.n_edges == disjoint.n_edges + 4
    assert ring.name == "ideal_cliques(n=40, clique_size=10, inter='ring', seed=0)"
    assert topologies.ideal_cliques(n=7, seed=0).name == "ideal_cliques(n=7, clique_size=7, seed=0)"


def test_the_default_size_is_the_number_of_classes_as_far_as_it_can() -> None:
    assert [
        len(g) for g in topologies.ideal_cliques(one_class([0, 2, 2, 0, 2, 0]), seed=0).groups
    ] == [2, 2, 2]
    assert [len(g) for g in topologies.ideal_cliques(one_class([1, 1, 1]), seed=0).groups] == [2, 1]
    assert [len(g) for g in topologies.ideal_cliques(one_class([0, 1]), seed=0).groups] == [2]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            {"label_counts": [[3, 0], [1, 1], [0, 2]]},
            ValueError,
            "one class, node 1 has 2 .*use greedy_swap",
        ),
        ({"label_counts": [[3, 0], [0, 0]]}, ValueError, "node 1 has none"),
        (
            {"label_counts": [[3, 0]]},
            ValueError,
            "`label_counts` must have at least 2 nodes, got 1",
        ),
        ({"n": 1}, ValueError, "`n` must be at least 2, got 1"),
        ({"n": 8, "clique_size": 9}, ValueError, "`clique_size` must be between 2 and n=8, got 9"),
        (
            {"n": 8, "clique_size": 4, "inter": "rings"},
            ValueError,
            "`inter` must be one of .*did you mean 'ring'",
        ),
        ({}, ValueError, "exactly one of `label_counts` and `n` must be given, got neither"),
        ({"n": 8, "seed": None}, TypeError, "`seed`"),
    ],
)
def test_arguments_are_checked(call, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        topologies.ideal_cliques(**({"seed": 0} | call))


@pytest.mark.parametrize(
    "make", [topologies.ideal_cliques, topologies.decentralized_greedy_swap, topologies.dcliques]
)
def test_ways_to_join_are_checked_before_the_work(make, monkeypatch):
    with pytest.raises(
        ValueError, match=r"`inter` must be one of .*, got 'rings'; did you mean 'ring'"
    ):
        make(n=40, clique_size=5, inter="rings", seed=0)
    monkeypatch.setattr(sys.modules["topofl.topologies.dcliques"], "MOST_PAIRS", 10)
    with pytest.raises(ValueError, match="`inter` must not be 'fully_connected' for 8 cliques"):
        make(n=40, clique_size=5, inter="fully_connected", seed=0)
