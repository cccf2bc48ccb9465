"""Greedy Graph Construction: the choice of one node."""

from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.collaboration import naive_ggc, seeds, table_reward
from topofl.topologies import ggc
from topofl.topologies.collaboration import Reward


@given(seed=seeds, m=st.integers(0, 8), budget=st.none() | st.integers(0, 9))
def test_it_is_the_corrected_listing(seed: int, m: int, budget: int | None) -> None:
    reward, k = table_reward(seed), 3
    pool = [j for j in range(m + 1) if j != k][:m]
    chosen = ggc(reward, k, pool, budget, seed=np.random.default_rng(seed))
    assert set(chosen) == naive_ggc(reward, k, pool, budget, np.random.default_rng(seed))
    assert list(chosen) == sorted(chosen)
    assert len(chosen) <= (m if budget is None else budget)
    assert set(chosen) <= set(pool)


@given(seed=seeds, m=st.integers(0, 9), budget=st.none() | st.integers(0, 10))
def test_rewards_are_asked_for_at_most_twice_a_candidate_and_twice(
    seed: int, m: int, budget: int | None
) -> None:
    asked = []

    def counted(k: int, members: tuple[int, ...]) -> float:
        assert k in members
        assert list(members) == sorted(set(members))
        asked.append(members)
        return table_reward(seed)(k, members)

    ggc(counted, 0, range(1, m + 1), budget, seed=seed)
    assert len(asked) <= (2 * m + 2 if m and budget != 0 else 0)


def expected_by_all_branches(
    reward: Reward, k: int, order: list[int], x: set[int], y: set[int]
) -> float:
    """Return the expected final reward of the listing for this order, over all coins."""
    if not order:
        return reward(k, tuple(sorted(x)))
    j, rest = order[0], order[1:]
    a = max(reward(k, tuple(sorted(x | {j}))) - reward(k, tuple(sorted(x))), 0)
    b = max(reward(k, tuple(sorted(y - {j}))) - reward(k, tuple(sorted(y))), 0)
    p = 1 if a + b == 0 else a / (a + b)
    added = p * expected_by_all_branches(reward, k, rest, x | {j}, y) if p else 0.0
    return added + (
        (1 - p) * expected_by_all_branches(reward, k, rest, x, y - {j}) if p < 1 else 0.0
    )


@pytest.mark.parametrize("problem", range(5))
def test_half_of_the_best_is_expected_of_submodular_rewards(problem: int) -> None:
    """The theorem of Buchbinder et al. on cuts, which are submodular and not negative.

    The mean is checked by force, too.
    """
    edges = np.random.default_rng(problem).random((6, 6)) ** 4

    @cache
    def cut(k: int, members: tuple[int, ...]) -> float:
        inside = np.isin(np.arange(6), [j for j in members if j != k])
        return float(edges[inside][:, ~inside].sum())

    groups = chain.from_iterable(combinations(range(1, 6), size) for size in range(6))
    best = max(cut(0, (0, *group)) for group in groups)
    reached = np.array([cut(0, (0, *ggc(cut, 0, range(1, 6), seed=seed))) for seed in range(300)])
    assert reached.mean() >= best / 2
    orders = [
        np.random.default_rng(seed).permutation(np.arange(1, 6)).tolist() for seed in range(60)
    ]
    exact = [expected_by_all_branches(cut, 0, order, {0}, set(range(6))) for order in orders]
    assert min(exact) >= best / 2
    error = np.sqrt(reached.var() / len(reached) + np.var(exact) / len(exact))
    assert reached.mean() == pytest.approx(np.mean(exact), abs=4 * error + 1e-12)


def greedy_forward(reward: Reward, k: int, pool: range) -> set[int]:
    """Return what adding the best single node while it helps chooses."""
    chosen: set[int] = set()
    while rest := set(pool) - chosen:
        scores = {j: reward(k, tuple(sorted({k, *chosen, j}))) for j in rest}
        best = max(scores, key=scores.__getitem__)
        if scores[best] <= reward(k, tuple(sorted({k, *chosen}))):
            break
        chosen.add(best)
    return chosen


PAIRS_HURT = {(0,): 0.0, (0, 1): -11.0, (0, 2): -11.0, (0, 1, 2): 6.0}


TRIPLE_HURTS = {(0,): 0.0, (0, 1): 4.0, (0, 2): 5.0, (0, 1, 2): -3.0}


def test_a_group_that_helps_is_found_though_each_alone_hurts() -> None:
    def reward(k: int, members: tuple[int, ...]) -> float:
        return PAIRS_HURT[members]

    assert greedy_forward(reward, 0, range(1, 3)) == set()
    assert {ggc(reward, 0, [1, 2], seed=seed) for seed in range(50)} == {(1, 2)}


def test_removal_can_keep_what_adding_alone_would_refuse() -> None:
    """Adding 1 hurts at first (a = 0), removing it from all hurts too (b = 0): it is added."""
    value = {
        (0,): 0.0,
        (0, 1): -1.0,
        (0, 2): 1.0,
        (0, 3): 1.0,
        (0, 1, 2): 0.5,
        (0, 1, 3): 0.5,
        (0, 2, 3): 1.5,
    }
    value[0, 1, 2, 3] = 9.0
    chosen = {
        ggc(lambda k, members: value[members], 0, [1, 2, 3], seed=seed) for seed in range(100)
    }
    assert chosen == {(1, 2, 3)}
    assert greedy_forward(lambda k, members: value[members], 0, range(1, 4)) == {1, 2, 3}
    value[0, 1, 2, 3] = 1.4  # now removing 1 from the group helps, and 1 is never chosen
    chosen = {
        ggc(lambda k, members: value[members], 0, [1, 2, 3], seed=seed) for seed in range(100)
    }
    assert chosen == {(2, 3)}


def test_the_coin_has_the_stated_odds() -> None:
    """Each alone helps, both hurt, one is chosen: with 1 first, a = 4, b = 8 and P(1) = 1/3."""
    chosen = [
        ggc(lambda k, members: TRIPLE_HURTS[members], 0, [1, 2], seed=seed) for seed in range(3000)
    ]
    assert set(chosen) == {(1,), (2,)}
    # With 2 first, a = 5 and b = 7, so 1 is left with probability 7/12. Either comes first equally
    # often.
    expected = (4 / 12 + 7 / 12) / 2
    share = np.mean([nodes == (1,) for nodes in chosen])
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 3000))


@given(seed=seeds, budget=st.none() | st.integers(0, 6))
def test_monotone_rewards_take_all_that_the_budget_allows(seed: int, budget: int | None) -> None:
    worth = np.random.default_rng(seed).random(6)
    chosen = ggc(
        lambda k, members: float(worth[list(members)].sum()), 2, [0, 1, 3, 4, 5], budget, seed=seed
    )
    assert len(chosen) == min(5, 5 if budget is None else budget)


def test_no_gain_either_way_adds() -> None:
    assert ggc(lambda k, members: 0.0, 0, [1, 2, 3], seed=0) == (1, 2, 3)
    assert len(ggc(lambda k, members: 0.0, 0, [1, 2, 3], 2, seed=0)) == 2


def test_gains_of_rounding_are_none() -> None:
    noise = iter(np.random.default_rng(0).normal(size=100) * 1e-15)
    assert ggc(lambda k, members: 0.7 + next(noise), 0, range(1, 10), seed=0) == tuple(range(1, 10))


def test_counting_itself_leaves_one_choice_less() -> None:
    for budget in range(1, 6):
        with_self = ggc(
            lambda k, members: len(members), 0, range(1, 6), budget, count_self=True, seed=0
        )
        without = ggc(lambda k, members: len(members), 0, range(1, 6), budget - 1, seed=0)
        assert with_self == without
        assert len(with_self) == budget - 1


def test_inputs_of_one_node_are_checked() -> None:
    def reward(k: int, members: tuple[int, ...]) -> float:
        return 0.0

    with pytest.raises(
        TypeError, match=r"`reward` must be a function \(node, members\) -> number, got 3"
    ):
        ggc(3, 0, [1], seed=0)  # pyright: ignore
    with pytest.raises(
        TypeError, match=r"`reward` must return a number, got None for node 0 with the group \(0,\)"
    ):
        ggc(lambda k, members: None, 0, [1], seed=0)  # pyright: ignore
    with pytest.raises(ValueError, match="`candidates` must not contain the node itself, k=1"):
        ggc(reward, 1, [0, 1], seed=0)
    with pytest.raises(ValueError, match=r"`candidates` must be distinct, got \[0, 2, 2\]"):
        ggc(reward, 1, [2, 0, 2], seed=0)
    with pytest.raises(ValueError, match="`candidates` must be at least 0, got -1"):
        ggc(reward, 1, [-1], seed=0)
    with pytest.raises(ValueError, match="`budget` must be at least 0, got -1"):
        ggc(reward, 0, [1], -1, seed=0)
    with pytest.raises(ValueError, match="`budget` must be at least 1, got 0"):
        ggc(reward, 0, [1], 0, count_self=True, seed=0)
    assert ggc(reward, 0, [], seed=0) == ()
    assert ggc(reward, 0, [1], 0, seed=0) == ()
