"""Greedy Graph Construction in batches chooses the same nodes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.collaboration import seeds
from topofl.topologies import averaged_reward, bggc, ggc


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
