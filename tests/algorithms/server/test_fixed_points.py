"""Fixed points of FedNova, FedAvg and FedDyn on linear regression are those of the theory."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.algorithms.convergence import WHOLE, distances, unlike_lines
from tests.algorithms.server.test_server import STEPS, engine
from topofl import algorithms, tasks


def rest(lr, normalized):
    """Return where whole-batch linear regression of `unlike_lines` rests, by its matrices alone.

    K steps from x end at ``w + (1 - lr H)^K (x - w)``, where H is the matrix and w the optimum of a
    node's loss.
    """
    clients, _ = unlike_lines()
    left, right = np.zeros((3, 3)), np.zeros(3)
    for own, steps in zip(clients.train, STEPS, strict=True):
        x, y = (
            part[torch.tensor(own)].double().numpy()
            for part in (clients.dataset.inputs, clients.dataset.targets)
        )
        curvature = 2 * x.T @ x / len(x)
        best = np.linalg.solve(x.T @ x, x.T @ y)
        pull = np.eye(3) - np.linalg.matrix_power(np.eye(3) - lr * curvature, steps)
        pull /= steps if normalized else 1
        left, right = left + pull, right + pull @ best
    return np.linalg.solve(left, right)


def uneven(lr, normalized):
    """Return the models after many rounds of nodes that take unlike numbers of steps."""
    clients, _ = unlike_lines()
    if normalized:
        algorithm = algorithms.fednova(lr, batch_size=WHOLE, epochs=None, steps=STEPS)
    else:
        local = algorithms.sgd(lr, batch_size=WHOLE, steps=STEPS)
        algorithm = algorithms.chain("fedavg", local=local, server=algorithms.server_average())
    model = nn.Linear(3, 1, bias=False)
    rounds = round(10 / lr)
    _, models = engine(
        algorithm, model, clients, task=tasks.regression(), rounds=rounds, every=rounds
    )
    return models[0].numpy()


@pytest.mark.parametrize("normalized", [True, False], ids=["fednova", "fedavg"])
def test_fixed_points_with_different_local_steps(normalized):
    np.testing.assert_allclose(uneven(0.05, normalized), rest(0.05, normalized), rtol=0, atol=1e-9)


def test_fednova_approaches_the_optimum_with_small_steps_and_fedavg_does_not(
):  # fmt: skip
    """What is left is of the order of the step size: nodes go a way of their own for some steps."""
    best = unlike_lines()[1]
    found = {
        (lr, one): np.abs(rest(lr, one) - best).max()
        for lr in (0.02, 0.01, 1e-5)
        for one in (True, False)
    }
    assert 0.4 < found[0.01, True] / found[0.02, True] < 0.6
    assert found[1e-5, True] < 1e-4
    assert found[1e-5, False] > 0.1
    assert found[0.01, True] < 0.2 * found[0.01, False]


@pytest.mark.parametrize(
    ("epochs", "participation", "rounds"), [(1, 1.0, 300), (1, 0.5, 500), (5, 0.5, 200)]
)
@pytest.mark.slow
def test_feddyn_reaches_the_optimum_of_the_mean_loss(epochs, participation, rounds):
    """With a constant step, however few they are; FedAvg stays beside it, see test_corrected.py."""
    algorithm = algorithms.feddyn(
        0.1, alpha=1.0, batch_size=WHOLE, epochs=epochs, participation=participation
    )
    assert distances(algorithm, rounds).max() < 1e-9
