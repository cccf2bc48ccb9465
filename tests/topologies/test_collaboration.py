"""Greedy collaboration graphs: the choice of one node, in batches, and of all."""

from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl import topologies
from topofl.topologies import averaged_reward, bggc, ggc
from topofl.topologies.collaboration import Reward
from topofl.topology import from_edges

seeds = st.integers(0, 2**32)


def table_reward(seed: int) -> Reward:
    """Return a reward that draws its own number for each node and group."""
    return lambda k, members: float(np.random.default_rng([seed, k, *members]).normal())


def naive_ggc(
    reward: Reward, k: int, pool: list[int], budget: int | None, rng: np.random.Generator
) -> set[int]:
    """Return the choice of the corrected listing, with four rewards a candidate."""
    order = rng.permutation(sorted(pool))
    coins = rng.random(len(pool))
    x, y = {k}, {k, *pool}

    def value(members: set[int]) -> float:
        return reward(k, tuple(sorted(members)))

    for j, coin in zip(order.tolist(), coins, strict=True):
        if budget is not None and len(x - {k}) >= budget:
            break
        a = max(value(x | {j}) - value(x), 0)
        b = max(value(y - {j}) - value(y), 0)
        p = 1 if a == b == 0 else a / (a + b)
        if coin < p:
            x = x | {j}
        else:
            y = y - {j}
    return x - {k}


@given(seed=seeds, m=st.integers(0, 8), budget=st.none() | st.integers(0, 9))
def test_it_is_the_corrected_listing(seed, m, budget):
    reward, k = table_reward(seed), 3
    pool = [j for j in range(m + 1) if j != k][:m]
    chosen = ggc(reward, k, pool, budget, seed=np.random.default_rng(seed))
    assert set(chosen) == naive_ggc(reward, k, pool, budget, np.random.default_rng(seed))
    assert list(chosen) == sorted(chosen)
    assert len(chosen) <= (m if budget is None else budget)
    assert set(chosen) <= set(pool)


@given(seed=seeds, m=st.integers(0, 9), budget=st.none() | st.integers(0, 10))
def test_rewards_are_asked_for_at_most_twice_a_candidate_and_twice(seed, m, budget):
    asked = []

    def counted(k: int, members: tuple[int, ...]) -> float:
        assert k in members
        assert list(members) == sorted(set(members))
        asked.append(members)
        return table_reward(seed)(k, members)

    ggc(counted, 0, range(1, m + 1), budget, seed=seed)
    assert len(asked) <= (2 * m + 2 if m and budget != 0 else 0)


@pytest.mark.parametrize("problem", range(5))
def test_half_of_the_best_is_expected_of_submodular_rewards(problem):
    """The theorem of Buchbinder et al. on cuts, which are submodular and not negative."""
    edges = np.random.default_rng(problem).random((6, 6)) ** 4

    @cache
    def cut(k: int, members: tuple[int, ...]) -> float:
        inside = np.isin(np.arange(6), [j for j in members if j != k])
        return float(edges[inside][:, ~inside].sum())

    groups = chain.from_iterable(combinations(range(1, 6), size) for size in range(6))
    best = max(cut(0, (0, *group)) for group in groups)
    reached = np.array([cut(0, (0, *ggc(cut, 0, range(1, 6), seed=seed))) for seed in range(300)])
    assert reached.mean() >= best / 2


def test_gains_of_rounding_are_none():
    noise = iter(np.random.default_rng(0).normal(size=100) * 1e-15)
    assert ggc(lambda k, members: 0.7 + next(noise), 0, range(1, 10), seed=0) == tuple(range(1, 10))


def quadratics(n: int, d: int, seed: int):
    """Return models, weights, and a loss that is a different random quadratic at each node."""
    rng = np.random.default_rng(seed)
    models, weights = rng.normal(size=(n, d)), rng.integers(1, 500, n).astype(float)
    roots, centers = rng.normal(size=(n, d, d)), rng.normal(size=(n, d))

    def loss(k: int, model: np.ndarray) -> float:
        return float(np.square(roots[k] @ (model - centers[k])).sum())

    return models, weights, loss


@given(
    n=st.integers(1, 9),
    seed=seeds,
    budget=st.none() | st.integers(1, 9),
    batch=st.none() | st.integers(1, 10),
    count_self=st.booleans(),
    data=st.data(),
)
def test_batches_choose_the_same_on_quadratics(n, seed, budget, batch, count_self, data):
    """Theorem 1."""
    models, weights, loss = quadratics(n, 3, seed)
    k = data.draw(st.integers(0, n - 1))
    pool = [j for j in range(n) if j != k]
    reward = averaged_reward(loss, models, weights)
    whole = ggc(reward, k, pool, budget, count_self=count_self, seed=seed)
    how = {"weights": weights, "batch": batch, "count_self": count_self, "seed": seed}
    assert bggc(loss, k, pool, budget, models=models, **how) == whole
    assert bggc(loss, k, pool, budget, models=lambda nodes: models[nodes], **how) == whole
    scaled = averaged_reward(loss, models, 3.7 * weights)  # only the ratios of weights matter
    assert ggc(scaled, k, pool, budget, count_self=count_self, seed=seed) == whole


def test_models_come_in_batches_and_twice_at_most():
    models, weights, loss = quadratics(20, 2, 0)
    asked: list[np.ndarray] = []

    def fetch(nodes: np.ndarray) -> np.ndarray:
        asked.append(nodes)
        return models[nodes]

    bggc(loss, 0, range(1, 20), 4, models=fetch, weights=weights, seed=0)
    assert max(len(nodes) for nodes in asked) == 4
    assert len(np.concatenate(asked)) <= 2 * 19 + 1
    assert sorted(np.concatenate(asked)[1:20]) == list(range(1, 20))


def test_equal_models_are_all_chosen():
    models = np.tile(np.random.default_rng(0).normal(size=6), (9, 1))
    weights = np.random.default_rng(1).random(9)

    def loss(k: int, model: np.ndarray) -> float:
        return float(np.square(model - 0.1).sum())

    everyone = tuple(range(1, 9))
    for seed in range(10):
        assert ggc(averaged_reward(loss, models, weights), 0, everyone, seed=seed) == everyone
        assert bggc(loss, 0, everyone, models=models, weights=weights, seed=seed) == everyone


@pytest.mark.parametrize(
    "weights", [[1e-18, 1, 1], [1e-18, 1, 1, 1e-18], [1e-18, 3e5, 0.1, 1e-18, 0.7], [1e-300, 1, 1]]
)
def test_nodes_with_almost_no_weight_choose_the_same_in_batches(weights):
    n, choices = len(weights), set()
    for model_seed in range(4):
        models = np.random.default_rng(model_seed).normal(size=(n, 3))

        def loss(
            k: int, model: np.ndarray, best: np.ndarray = 0.7 * models[0] + 0.3 * models[-1]
        ) -> float:
            return float(np.square(model - best).sum())

        for seed in range(12):
            whole = ggc(averaged_reward(loss, models, weights), 0, range(1, n), seed=seed)
            assert bggc(loss, 0, range(1, n), models=models, weights=weights, seed=seed) == whole
            choices.add(whole)
    assert len(choices) > 1


def test_everyone_refused_leaves_exactly_the_nodes_own_model():
    models, asked = np.array([[0.1], [5.0], [7.0]]), []

    def loss(k: int, model: np.ndarray) -> float:
        asked.append(float(model[0]))
        return abs(float(model[0]) - 0.1)

    for seed in range(20):
        bggc(loss, 0, [1, 2], models=models, weights=[1e-40, 1 / 3, 0.1], seed=seed)
    assert all(model == 0.1 or abs(model - 0.1) > 1 for model in asked)


def test_models_may_be_tensors_of_less_precision():
    models, weights, loss = quadratics(6, 3, 1)
    single = torch.tensor(models, dtype=torch.float32)
    exact = single.numpy().astype(np.float64)
    assert bggc(loss, 0, range(1, 6), models=single, weights=weights, seed=0) == bggc(  # pyright: ignore
        loss, 0, range(1, 6), models=exact, weights=weights, seed=0
    )


@given(seed=seeds, n=st.integers(1, 7), data=st.data())
def test_edges_are_the_choices_within_candidates_and_budgets(seed, n, data):
    allowed = np.random.default_rng(seed).random((n, n)) < 0.5
    candidates = from_edges(np.argwhere(allowed & ~np.eye(n, dtype=bool)), n, directed=True)
    most = st.integers(0, 6)
    budget = data.draw(st.none() | most | st.lists(most, min_size=n, max_size=n))
    how = {"candidates": candidates, "seed": seed}
    graph = topologies.greedy_collaboration(table_reward(seed), n, budget, **how)
    each = budget if isinstance(budget, list) else [budget] * n
    for k in range(n):
        pool = candidates.in_neighbors(k).tolist()
        chosen = ggc(table_reward(seed), k, pool, each[k], seed=seed)
        assert graph.in_neighbors(k).tolist() == list(chosen)
        assert set(chosen) <= set(pool)
        assert each[k] is None or len(chosen) <= each[k]


def rewarded(value: dict[tuple[int, ...], float]) -> Reward:
    return lambda k, members: value[members]


def test_a_group_that_helps_is_found_though_each_alone_hurts():
    reward = rewarded({(0,): 0.0, (0, 1): -11.0, (0, 2): -11.0, (0, 1, 2): 6.0})
    assert {ggc(reward, 0, [1, 2], seed=seed) for seed in range(50)} == {(1, 2)}


def test_removal_can_keep_what_adding_alone_would_refuse():
    """Adding 1 hurts at first (a = 0), removing it from all hurts too (b = 0): it is added."""
    value = {(0,): 0.0, (0, 1): -1.0, (0, 2): 1.0, (0, 3): 1.0}
    value |= {(0, 1, 2): 0.5, (0, 1, 3): 0.5, (0, 2, 3): 1.5, (0, 1, 2, 3): 9.0}
    chosen = {ggc(rewarded(value), 0, [1, 2, 3], seed=seed) for seed in range(100)}
    assert chosen == {(1, 2, 3)}
    value[0, 1, 2, 3] = 1.4  # now removing 1 from the group helps, and 1 is never chosen
    chosen = {ggc(rewarded(value), 0, [1, 2, 3], seed=seed) for seed in range(100)}
    assert chosen == {(2, 3)}


def test_the_coin_has_the_stated_odds():
    """Each alone helps, both hurt, one is chosen: with 1 first, a = 4, b = 8 and P(1) = 1/3.

    With 2 first, a = 5 and b = 7, so 1 is left with probability 7/12. Either comes first equally
    often.
    """
    reward = rewarded({(0,): 0.0, (0, 1): 4.0, (0, 2): 5.0, (0, 1, 2): -3.0})
    chosen = [ggc(reward, 0, [1, 2], seed=seed) for seed in range(3000)]
    assert set(chosen) == {(1,), (2,)}
    expected = (4 / 12 + 7 / 12) / 2
    share = np.mean([nodes == (1,) for nodes in chosen])
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 3000))


def size(k: int, members: tuple[int, ...]) -> float:
    return len(members)


@given(budget=st.none() | st.integers(0, 6), count_self=st.booleans(), gain=st.sampled_from([0, 1]))
def test_without_a_loss_the_budget_is_used_up(budget, count_self, gain):
    """Also where no group gains: then candidates are added."""
    budget = max(budget, 1) if budget is not None and count_self else budget
    chosen = ggc(
        lambda k, members: gain * len(members),
        0,
        range(1, 6),
        budget,
        count_self=count_self,
        seed=0,
    )
    assert len(chosen) == (5 if budget is None else min(5, budget - count_self))


def test_by_default_everyone_else_is_a_candidate():
    graph = topologies.greedy_collaboration(size, 6, seed=0)
    assert (graph.adjacency != topologies.fully_connected(6).adjacency).nnz == 0
    ring = topologies.ring(6)
    within = topologies.greedy_collaboration(size, 6, candidates=ring, seed=0)
    assert (within.adjacency != ring.adjacency).nnz == 0


def test_a_node_does_not_depend_on_the_other_nodes():
    """With an integer seed: the choice of a node is the same whoever else chooses before it."""
    few = topologies.greedy_collaboration(table_reward(0), 6, [0, 0, 0, 0, 0, 4], seed=1)
    all_of_them = topologies.greedy_collaboration(table_reward(0), 6, 4, seed=1)
    assert few.in_neighbors(5).tolist() == all_of_them.in_neighbors(5).tolist()
