"""Greedy collaboration graphs: the choice of one node, in batches, and of all."""

from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.collaboration import naive_ggc, seeds, table_reward
from topofl import metrics, topologies
from topofl.topologies import averaged_reward, bggc, ggc
from topofl.topologies.collaboration import Reward
from topofl.topology import from_edges


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
def test_batches_choose_the_same_on_quadratics(n, seed, budget, batch, count_self, data) -> None:
    """Theorem 1."""
    models, weights, loss = quadratics(n, 3, seed)
    k = data.draw(st.integers(0, n - 1))
    pool = [j for j in range(n) if j != k]
    whole = ggc(
        averaged_reward(loss, models, weights), k, pool, budget, count_self=count_self, seed=seed
    )
    how = {"weights": weights, "batch": batch, "count_self": count_self, "seed": seed}
    assert bggc(loss, k, pool, budget, models=models, **how) == whole
    assert bggc(loss, k, pool, budget, models=lambda nodes: models[nodes], **how) == whole
    scaled = averaged_reward(loss, models, 3.7 * weights)  # only the ratios of weights matter
    assert ggc(scaled, k, pool, budget, count_self=count_self, seed=seed) == whole


def logistic_clients(n: int = 8, classes: int = 4, d: int = 5, seed: int = 0):
    """Return logistic models trained on two classes a node, sizes, and validation losses."""
    rng = np.random.default_rng(seed)
    centers = 2 * rng.normal(size=(classes, d))
    labels = [rng.choice([i % classes, (i + 1) % classes], size=40 + 10 * i) for i in range(n)]
    inputs = [centers[y] + rng.normal(size=(len(y), d)) for y in labels]

    def log_shares(model: np.ndarray, x: np.ndarray) -> np.ndarray:
        scores = x @ model.reshape(d, classes)
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    models = np.zeros((n, d * classes))
    for i in range(n):
        for _ in range(60):
            x, y = inputs[i][20:], labels[i][20:]
            errors = np.exp(log_shares(models[i], x)) - np.eye(classes)[y]
            models[i] -= 0.3 * (x.T @ errors / len(y)).ravel()

    def loss(k: int, model: np.ndarray) -> float:
        return float(-log_shares(model, inputs[k][:20])[np.arange(20), labels[k][:20]].mean())

    return models, np.array([len(y) for y in labels]), loss


def test_batches_choose_the_same_on_logistic_regression() -> None:
    models, sizes, loss = logistic_clients()
    reward = averaged_reward(loss, models, sizes)
    sets = set()
    for k in range(8):
        pool = [j for j in range(8) if j != k]
        for seed in range(6):
            for budget in (None, 1, 3):
                whole = ggc(reward, k, pool, budget, seed=seed)
                assert bggc(loss, k, pool, budget, models=models, weights=sizes, seed=seed) == whole
                sets.add((k, whole))
    assert len({nodes for _, nodes in sets}) > 8  # not always everybody, or nobody


def test_models_come_in_batches_and_twice_at_most() -> None:
    models, weights, loss = quadratics(20, 2, 0)
    asked: list[np.ndarray] = []

    def fetch(nodes: np.ndarray) -> np.ndarray:
        asked.append(nodes)
        return models[nodes]

    bggc(loss, 0, range(1, 20), 4, models=fetch, weights=weights, seed=0)
    assert max(len(nodes) for nodes in asked) == 4
    assert len(np.concatenate(asked)) <= 2 * 19 + 1
    assert sorted(np.concatenate(asked)[1:20]) == list(range(1, 20))


def test_equal_models_are_all_chosen() -> None:
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
def test_nodes_with_almost_no_weight_choose_the_same_in_batches(weights: list[float]) -> None:
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


def test_everyone_refused_leaves_exactly_the_nodes_own_model() -> None:
    models, asked = np.array([[0.1], [5.0], [7.0]]), []

    def loss(k: int, model: np.ndarray) -> float:
        asked.append(float(model[0]))
        return abs(float(model[0]) - 0.1)

    for seed in range(20):
        bggc(loss, 0, [1, 2], models=models, weights=[1e-40, 1 / 3, 0.1], seed=seed)
    assert all(model == 0.1 or abs(model - 0.1) > 1 for model in asked)


def test_models_may_be_tensors_of_less_precision() -> None:
    models, weights, loss = quadratics(6, 3, 1)
    single = torch.tensor(models, dtype=torch.float32)
    exact = single.numpy().astype(np.float64)
    assert bggc(loss, 0, range(1, 6), models=single, weights=weights, seed=0) == bggc(  # pyright: ignore
        loss, 0, range(1, 6), models=exact, weights=weights, seed=0
    )


def test_inputs_of_batches_are_checked() -> None:
    def loss(k: int, model: np.ndarray) -> float:
        return 0.0

    models, good = np.zeros((3, 2)), {"weights": np.ones(3), "seed": 0}
    with pytest.raises(
        TypeError, match=r"`loss` must be a function \(node, model\) -> number, got None"
    ):
        bggc(None, 0, [1], models=models, **good)  # pyright: ignore
    for weights, match in (
        ([1, 0, 1], "above 0, got 0 for node 1"),
        ([1, 1], "at least 3 nodes"),
        (1.0, "one number"),
    ):
        with pytest.raises(ValueError, match=f"`weights` .*{match}"):
            bggc(loss, 0, [1, 2], models=models, weights=weights, seed=0)
        with pytest.raises(ValueError, match=f"`weights` .*{match}"):
            averaged_reward(loss, models, weights)
    for bad in (np.zeros(3), 1.0, np.zeros((2, 2)), lambda nodes: np.zeros((7, 2))):
        with pytest.raises(ValueError, match=r"`models` must have shape \(n, d\), here with n="):
            bggc(loss, 0, [1, 2], models=bad, **good)
    with pytest.raises(ValueError, match="`models` must be finite, got nan"):
        bggc(loss, 0, [1, 2], models=np.full((3, 2), np.nan), **good)
    with pytest.raises(ValueError, match="`batch` must be at least 1, got 0"):
        bggc(loss, 0, [1, 2], models=models, batch=0, **good)
    assert (
        bggc(loss, 0, [], models=models, **good)
        == bggc(loss, 0, [1], 0, models=models, **good)
        == ()
    )


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
