"""What one record or node can change under noised D-SGD is bounded."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.algorithms.harness import BATCH, N, engine, trail
from tests.engine.train.test_divergence import too_large, with_inputs
from tests.rows.methods import equal
from topofl import algorithms, topologies
from topofl.algorithms.exchanges.private import clipped_rows

LEVEL = pytest.mark.parametrize("level", ["record", "node"])
RING = topologies.ring(N)
OTHERS = [i for i in range(N) if i != 2]


def alone(clients, rounds, *, model=None, lr=0.1, door=trail, settings=None, **how):
    """Return models (rounds, n, d) of nodes that do not hear each other."""
    how = {"batch_size": BATCH} | how
    lonely = algorithms.chain("lonely", local=algorithms.dp_dsgd(lr, **how).phases["local"])
    usual = {"rounds": rounds, "seed": 0, "init": "common"}
    return door(lonely, model, clients, **usual | (settings or {}))


def other_records(clients, indices):
    """Return the same clients of whom some records are extreme, and of another class."""
    changed = with_inputs(clients, indices, lambda inputs: -1e3 * inputs)
    labels = clients.dataset.labels.clone()
    labels[indices.tolist()] = (labels[indices.tolist()] + 1) % clients.dataset.n_classes
    return replace(changed, dataset=replace(changed.dataset, labels=labels))


@pytest.mark.parametrize(("level", "most"), [("record", 2 * 0.1 * 0.5 / BATCH), ("node", 2 * 0.5)])
def test_what_others_records_change_in_a_message_is_bounded(level, most):
    """Replacing one record, or all of a node, changes at most twice the clip.

    The rate over the minibatch scales it.
    """
    clients = problems.equal_clients()
    changed = clients.train[2][:1] if level == "record" else clients.train[2]
    rounds = math.ceil(len(clients.train[2]) / BATCH) if level == "record" else 1
    one, other = (
        alone(given, rounds, clip=0.5, noise=0.3, level=level)
        for given in (clients, other_records(clients, changed))
    )
    moved = (one - other).norm(dim=2)
    first = int((moved[:, 2] > 0).nonzero()[0])  # the round in which the record was used
    assert 0.2 * most < moved[first, 2] <= most + 1e-12
    assert not moved[:, OTHERS].any()


class Rooted(nn.Module):
    """A linear model and a root, whose gradient is not finite where a record's first number is 0.

    The loss of such a record is finite.
    """

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(36, 3)
        self.rate = nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        flat = inputs.flatten(1)
        return self.linear(flat) + (self.rate * flat[:, :1]).abs().sqrt() * torch.arange(3)


def rooted_out(clients, records):
    """Return the same clients of whom some records have gradients that are not finite."""

    def zero_first(inputs):
        inputs[:, 0, 0, 0] = 0
        return inputs

    return with_inputs(clients, records, zero_first)


@pytest.mark.slow
@LEVEL
@pytest.mark.parametrize("policy", ["raise", "freeze", "record"])
@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_gradients_that_are_not_finite_count_as_0_and_noise_is_added_all_the_same(
    executor, policy, level
):
    clients = problems.equal_clients()
    bad = rooted_out(clients, clients.train[2])
    how = {"settings": {"on_divergence": policy, "executor": executor}, "level": level, "clip": 0.5}
    history, _ = alone(bad, 3, model=Rooted(), door=engine, noise=0.0, **how)
    assert not history.meta.get("diverged")
    still, noised = (alone(bad, 3, model=Rooted(), noise=noise, **how) for noise in (0.0, 0.3))
    assert still.isfinite().all()
    assert noised.isfinite().all()
    moved = (still[1:] - still[:-1]).norm(dim=2)
    assert not moved[:, 2].any()
    assert (moved[:, OTHERS] > 0).all()
    assert (noised[1:, 2] != noised[:-1, 2]).all(), "a node added no noise"


@pytest.mark.slow
def test_a_record_counts_once_in_a_pass_and_by_its_clip():
    """Zero-out adjacency, for the sums of clipped gradients of all minibatches of a pass.

    The models hardly move.
    """
    clients, rate, clip = equal(11), 1e-6, 0.1
    lengths = torch.tensor([1.0, 4, 4, 3])[1:, None, None]  # minibatches of 4, 4 and 3 records

    def sums(given):
        how = {"model": Rooted(), "clip": clip, "noise": 0.0, "batch_size": 4}
        models, start = alone(given, 3, lr=rate, **how), alone(given, 1, lr=1e-300, **how)
        return torch.cat([start, models]).diff(dim=0) / -rate * lengths

    plain = sums(clients)
    for record in clients.train[2]:
        changed = ((sums(rooted_out(clients, record[None])) - plain) ** 2).sum(2)
        assert 0.99 * clip**2 < changed[:, 2].sum() <= clip**2 * (1 + 1e-4)
        assert not changed[:, OTHERS].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipped_rows_are_no_longer_than_the_clip_and_finite(dtype):
    most, root, inf = torch.finfo(dtype).max, 0.5**0.5, math.inf
    rows = {
        (3, 4): (0.6, 0.8),
        (0.3, 0.4): (0.3, 0.4),
        (0, 0): (0, 0),
        (most, most): (root, root),
        (most, 0): (1, 0),
        (1e-30, 0): (1e-30, 0),
        (inf, 1): (0, 0),
        (math.nan, 1): (0, 0),
        (-inf, 0): (0, 0),
    }
    given, wanted = (torch.tensor(list(part), dtype=dtype) for part in (rows, rows.values()))
    torch.testing.assert_close(clipped_rows(given, 1.0), wanted, rtol=1e-6, atol=0)


def test_a_loss_that_is_not_finite_still_shows():
    """As the docstring says; where it is only recorded, noise is added all the same."""
    clients, short = problems.equal_clients(), {"dtype": torch.float32}
    bad = with_inputs(clients, clients.train[2], too_large)
    with pytest.raises(topofl.DivergenceError, match="node 2"):
        alone(bad, 2, settings=short)
    models = alone(bad, 3, settings=short | {"on_divergence": "record"})
    assert models.isfinite().all()
    assert (models[1:] != models[:-1])[:, 2].all()


@pytest.mark.parametrize(
    ("level", "scale"), [("record", 0.1 * 3.0 * 0.5 / BATCH), ("node", 3.0 * 0.5)]
)
def test_noise_has_the_requested_deviation(level, scale):
    """Of every node and round another one."""
    clients, model = problems.equal_clients(), problems.convolutional()
    still, noised = (
        alone(clients, 1, model=model, clip=0.5, noise=noise, level=level)[0]
        for noise in (0.0, 3.0)
    )
    noise = (noised - still) / scale
    count = noise.numel()
    assert abs(noise.mean()) < 4 / math.sqrt(count)
    assert abs(noise.square().mean() - 1) < 4 * math.sqrt(2 / count)
    correlations = np.corrcoef(noise.numpy())[np.triu_indices(N, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(noise.shape[1])


@pytest.mark.parametrize("lr", [0.1, np.float32(0.5), np.int64(1), 1])
def test_rates_of_any_number_type_are_recorded_as_numbers(lr):
    for how in ({}, {"lr_decay": 0.5}):
        told = algorithms.dp_dsgd(lr, **how).settings["local"]["lr"]
        assert type(told) is float
        assert told == float(lr)


@LEVEL
def test_local_steps_are_counted_not_records(level):
    history, _ = engine(algorithms.dp_dsgd(0.1, level=level, batch_size=4, steps=2), graph=RING)
    np.testing.assert_array_equal(history["steps"], 2 * 6)
