"""The collaboration graph of the choices of all nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.collaboration import seeds, table_reward
from topofl import metrics, topologies
from topofl.topologies import bggc, ggc
from topofl.topology import from_edges


@given(seed=seeds, n=st.integers(1, 7), data=st.data())
def test_edges_are_the_choices_within_candidates_and_budgets(
    seed: int, n: int, data: st.DataObject
) -> None:
    allowed = np.random.default_rng(seed).random((n, n)) < 0.5
    candidates = from_edges(np.argwhere(allowed & ~np.eye(n, dtype=bool)), n, directed=True)
    budget = data.draw(
        st.none() | st.integers(0, 6) | st.lists(st.integers(0, 6), min_size=n, max_size=n)
    )
    graph = topologies.greedy_collaboration(
        table_reward(seed), n, budget, candidates=candidates, seed=seed
    )
    each = budget if isinstance(budget, list) else [budget] * n
    for k in range(n):
        pool = candidates.in_neighbors(k).tolist()
        chosen = ggc(table_reward(seed), k, pool, each[k], seed=seed)
        assert graph.in_neighbors(k).tolist() == list(chosen)
        assert set(chosen) <= set(pool)
        assert each[k] is None or len(chosen) <= each[k]


def test_by_default_everyone_else_is_a_candidate() -> None:
    graph = topologies.greedy_collaboration(lambda k, members: len(members), 6, seed=0)
    assert (graph.adjacency != topologies.fully_connected(6).adjacency).nnz == 0
    ring = topologies.ring(6)
    within = topologies.greedy_collaboration(
        lambda k, members: len(members), 6, candidates=ring, seed=0
    )
    assert (within.adjacency != ring.adjacency).nnz == 0
    alone = topologies.greedy_collaboration(lambda k, members: len(members), 6, 0, seed=0)
    assert alone.n_edges == 0


def test_a_node_does_not_depend_on_the_other_nodes() -> None:
    """With an integer seed: the choice of a node is the same whoever else chooses before it."""
    few = topologies.greedy_collaboration(table_reward(0), 6, [0, 0, 0, 0, 0, 4], seed=1)
    all_of_them = topologies.greedy_collaboration(table_reward(0), 6, 4, seed=1)
    assert few.in_neighbors(5).tolist() == all_of_them.in_neighbors(5).tolist()


def test_edges_go_to_those_who_choose() -> None:
    graph = topologies.greedy_collaboration(
        lambda k, members: float(0 in members) - 0.1 * len(members), 5, seed=0
    )
    assert graph.in_degrees.tolist() == [0, 1, 1, 1, 1]
    assert graph.out_degrees.tolist() == [4, 0, 0, 0, 0]


def test_sparsity_is_bounded_by_the_budget() -> None:
    for budget in (1, 3, 5):
        graph = topologies.greedy_collaboration(
            table_reward(0), 20, budget, count_self=True, seed=0
        )
        assert metrics.sparsity(graph, count_self=True) >= 1 - budget / 20


def test_names() -> None:
    def reward(k: int, members: tuple[int, ...]) -> float:
        return 0.0

    named = {
        "greedy_collaboration(reward, n=3, seed=0)": {},
        "greedy_collaboration(reward, n=3, budget=2, count_self=True, seed=0)": {
            "budget": 2,
            "count_self": True,
        },
        "greedy_collaboration(reward, n=3, candidates=ring(n=3), seed=0)": {
            "candidates": topologies.ring(3)
        },
        "greedy_collaboration(reward, budget[3], n=3, seed=0)": {"budget": [1, 2, 0]},
    }
    for name, arguments in named.items():
        assert topologies.greedy_collaboration(reward, 3, **arguments, seed=0).name == name


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_not_finite_name_node_and_group(bad: float) -> None:
    def reward(k: int, members: tuple[int, ...]) -> float:
        return bad if members == (1, 2, 3) else 0.0

    with pytest.raises(
        ValueError,
        match=rf"`reward` .* finite number, got {bad} for node 2 with the group \(1, 2, 3\)",
    ):
        ggc(reward, 2, [1, 3], seed=0)
    with pytest.raises(ValueError, match=r"for node 1 with the group \(1, 2, 3\)"):
        topologies.greedy_collaboration(
            reward, 4, candidates=from_edges([(2, 1), (3, 1)], 4, directed=True), seed=0
        )
    models = np.arange(4.0)[:, None]
    with pytest.raises(
        ValueError,
        match=rf"`loss` .* finite number, got {bad} for node 0 with the group \(0, 1, 2\)",
    ):
        bggc(
            lambda k, model: bad if model == 1 else 0.0,
            0,
            [1, 2],
            models=models,
            weights=np.ones(4),
            seed=0,
        )


def test_inputs_of_everybody_are_checked() -> None:
    def reward(k: int, members: tuple[int, ...]) -> float:
        return 0.0

    with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
        topologies.greedy_collaboration(reward, 0, seed=0)
    with pytest.raises(TypeError, match="`reward` must be a function"):
        topologies.greedy_collaboration(5, 3, seed=0)  # pyright: ignore
    with pytest.raises(ValueError, match=r"one per node \(n=3\), got shape \(2,\)"):
        topologies.greedy_collaboration(reward, 3, [1, 2], seed=0)
    with pytest.raises(TypeError, match=r"`budget` must be an integer, got 1\.5"):
        topologies.greedy_collaboration(reward, 3, 1.5, seed=0)  # pyright: ignore
    with pytest.raises(ValueError, match=r"`candidates` must have n=3 nodes, ring\(n=4\) has 4"):
        topologies.greedy_collaboration(reward, 3, candidates=topologies.ring(4), seed=0)
    with pytest.raises(
        TypeError, match="`candidates` must be a Topology, got list; use as_topology"
    ):
        topologies.greedy_collaboration(reward, 3, candidates=[(0, 1)], seed=0)  # pyright: ignore
