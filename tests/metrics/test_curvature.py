"""Curvatures of losses, by explicit Hessians and differences of gradients."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tests import problems
from topofl import data, models, tasks, topologies
from topofl.metrics import curvature, gradient_statistics, gradients, predicted_deviation

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
MODEL = models.logistic_regression(64).double()
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 650))
HALF = tasks.Task("quadratic", lambda outputs, targets: (outputs - targets).square().sum(1) / 2)


def along(hessian, rows):
    """Return the curvature along rows, by an explicit Hessian."""
    return np.trace(rows @ hessian @ rows.T) / np.square(rows).sum()


def logistic_hessian(clients, weight, bias):
    """Return the mean over nodes of the Hessians of logistic regression, (650, 650)."""
    inputs = clients.dataset.examples().flatten(1).double().numpy()
    found = []
    for examples in clients.train:
        x = np.insert(inputs[examples], 64, 1.0, axis=1)
        powers = np.exp(x @ np.vstack([weight.T, bias]))
        p = powers / powers.sum(axis=1, keepdims=True)
        of_classes = p[:, :, None] * (np.eye(10) - p[:, None, :])
        found.append(np.einsum("kab,ki,kj->aibj", of_classes, x, x, optimize=True) / len(x))
    hessian = np.mean(found, axis=0)  # by class and input, of which the last one is the bias
    order = np.concatenate([np.delete(np.arange(650), np.s_[64::65]), np.arange(64, 650, 65)])
    return hessian.reshape(650, 650)[np.ix_(order, order)]


def test_curvature_of_logistic_regression_is_that_of_its_hessian():
    hessian = logistic_hessian(CLIENTS, *(p.detach().numpy() for p in MODEL.parameters()))
    for rows in (ROWS, ROWS[:1], np.eye(650)[[7, 649]]):
        found = curvature(CLIENTS, rows, model=MODEL)
        assert found == pytest.approx(along(hessian, rows), rel=1e-10)
    measured = gradient_statistics(CLIENTS, model=MODEL, batch_size=32)
    apart = measured.means - measured.means.mean(axis=0)
    found = curvature(CLIENTS, measured, model=MODEL)
    assert found == pytest.approx(along(hessian, apart), rel=1e-10)


@pytest.mark.parametrize("length", [1e-200, 1e-30, 1e30, 1e200])
@pytest.mark.parametrize("model", [MODEL, copy.deepcopy(MODEL).float()], ids=["double", "float"])
def test_lengths_of_directions_do_not_count(model, length):
    wanted = curvature(CLIENTS, ROWS, model=model)
    found = curvature(CLIENTS, length * ROWS, model=model)
    assert found == pytest.approx(wanted, rel=1e-5 if model is not MODEL else 1e-12)


def quadratic(sizes, d=3):
    """Return nodes of unequal sizes, and the inputs (k, d) of each."""
    inputs, owners = RNG.standard_normal((sum(sizes), d)), np.repeat(np.arange(len(sizes)), sizes)
    dataset = data.from_arrays(inputs, owners % 2, targets=inputs[:, :1])
    train = [np.flatnonzero(owners == node) for node in range(len(sizes))]
    inputs = dataset.examples(dtype=torch.float64).numpy()
    return data.Partition(dataset, train, (), (), "unequal"), [inputs[own] for own in train]


def hessian_of(inputs):
    """Return the Hessian of half the squared error, mean over nodes of their means."""
    return np.mean([x.T @ x / len(x) for x in inputs], axis=0)


@pytest.mark.parametrize("some", [1, 4, 512])
def test_every_node_counts_equally_in_parts_of_any_size(monkeypatch, some):
    monkeypatch.setattr(gradients, "EXAMPLES", some)
    clients, inputs = quadratic([3, 7, 2])
    model, rows = nn.Linear(3, 1, bias=False).double(), RNG.standard_normal((2, 3))
    found = curvature(clients, rows, model=model, task=HALF)
    assert found == pytest.approx(along(hessian_of(inputs), rows), rel=1e-12)
    assert found == pytest.approx(curvature(clients, -5 * rows, model=model, task=HALF), rel=1e-12)


def test_frozen_parameters_have_no_directions():
    clients, inputs = quadratic([4, 4])
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1)).double()
    model[0].requires_grad_(False)
    hidden = [np.insert(x @ model[0].weight.numpy().T, 3, 1.0, axis=1) for x in inputs]
    rows = RNG.standard_normal((2, 4))
    found = curvature(clients, rows, model=model, task=HALF)
    assert found == pytest.approx(along(hessian_of(hidden), rows), rel=1e-12)


def test_curvature_of_a_network_is_the_second_difference_of_its_loss():
    clients, network = problems.ragged_clients(), problems.convolutional().double()
    network[2], network[3] = nn.Tanh(), nn.AvgPool2d(2)  # without kinks
    parameters = list(network.parameters())
    row = RNG.standard_normal((1, sum(p.numel() for p in parameters)))

    def loss(step):
        moved = copy.deepcopy(network)
        start = nn.utils.parameters_to_vector(moved.parameters())
        nn.utils.vector_to_parameters(start + step * torch.from_numpy(row[0]), moved.parameters())
        with torch.no_grad():
            each = [
                nn.functional.cross_entropy(
                    moved(clients.dataset.examples(own, torch.float64)),
                    clients.dataset.labels[torch.tensor(own)],
                )
                for own in clients.train
            ]
        return float(np.mean(each))

    step = 1e-3
    wanted = (loss(step) - 2 * loss(0) + loss(-step)) / step**2 / np.square(row).sum()
    found = curvature(clients, row, model=network)
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-7)


def test_a_linear_loss_has_no_curvature():
    clients = quadratic([4, 4])[0]
    task = tasks.Task("linear", lambda outputs, targets: outputs[:, 0] * targets[:, 0])
    assert curvature(clients, np.ones((1, 4)), model=nn.Linear(3, 1), task=task) == 0


def test_measuring_leaves_the_model_and_works_without_gradients():
    before = [p.detach().clone() for p in MODEL.parameters()]
    with torch.no_grad():
        found = curvature(CLIENTS, ROWS, model=MODEL)
    assert found == curvature(CLIENTS, torch.from_numpy(ROWS), model=MODEL)
    assert all(torch.equal(a, b) for a, b in zip(before, MODEL.parameters(), strict=True))
    assert all(p.grad is None for p in MODEL.parameters())


def test_what_was_measured_is_what_predictions_take():
    measured = gradient_statistics(CLIENTS, model=MODEL, batch_size=32)
    bend = curvature(CLIENTS, measured, model=MODEL)
    found = predicted_deviation(
        topologies.ring(12), CLIENTS, statistics=measured, lr=0.1, curvature=bend
    )
    assert found.discount == 1 - 0.1 * bend
