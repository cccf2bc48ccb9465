"""What one node can change under DP-FedAvg is bounded, and its noise is that of the accountant."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import problems
from tests.algorithms.harness import BATCH, N, engine, trail
from tests.engine.train.test_divergence import too_large, with_inputs
from topofl import algorithms, attacks
from topofl._support.seeding import stream

CLIP, SHARE = 0.3, 0.5
USUAL = {"lr": 0.1, "clip": CLIP, "participation": SHARE, "batch_size": BATCH, "epochs": 1}


def models_of(clients, rounds=1, *, noise=0.0, settings=None, **how):
    """Return the server's models after each round, (rounds, d)."""
    usual = {"rounds": rounds, "seed": 0, "init": "common"} | (settings or {})
    models = trail(algorithms.dp_fedavg(**USUAL | {"noise": noise} | how), None, clients, **usual)
    assert torch.equal(models, models[:, :1].expand_as(models))
    return models[:, 0]


def drawn(t=0, seed=0):
    """Return which nodes participate in a round."""
    return stream(seed, "participation", t).random(N) < SHARE


def test_a_node_changes_the_average_by_its_clip_over_the_expected_number_at_most():
    """Replacing all data of a participant; of another node, nothing changes."""
    clients = problems.equal_clients()
    before, moved = models_of(clients), []
    for node in range(N):
        changed = with_inputs(clients, clients.train[node], lambda inputs: -1e3 * inputs)
        labels = clients.dataset.labels.clone()
        labels[clients.train[node].tolist()] = 0
        changed = replace(changed, dataset=replace(changed.dataset, labels=labels))
        moved.append(float((models_of(changed) - before).norm()))
    most = 2 * CLIP / (SHARE * N)
    there = drawn()
    assert 0 < there.sum() < N
    assert not any(moved[i] for i in np.flatnonzero(~there))
    assert all(0.2 * most < moved[i] <= most * (1 + 1e-12) for i in np.flatnonzero(there))


def test_the_server_clips_what_attackers_send():
    """A forged update changes the average no more than any other, and an absent node's not."""
    clients, there = problems.equal_clients(), drawn()
    for node in (np.flatnonzero(there)[0], np.flatnonzero(~there)[0]):
        forge = {"attackers": attacks.noise([int(node)], std=1e3)}
        moved = float((models_of(clients, settings=forge) - models_of(clients)).norm())
        assert (0.2 if there[node] else 0) * CLIP <= SHARE * N * moved <= 2 * CLIP * there[node]


def test_noise_in_units_of_what_a_node_can_change_is_that_of_the_accountant():
    """The sum's noise has `noise` times the clip as its deviation, in every round another one."""
    clients, rounds = problems.equal_clients(), 4
    how = {"lr": 1e-12, "clip": 1e-9}  # so that updates are far below the noise
    model = problems.convolutional()

    def run(noise):
        usual = {"rounds": rounds, "seed": 0, "init": "common"}
        method = algorithms.dp_fedavg(**USUAL | how | {"noise": noise})
        return trail(method, model, clients, **usual)[:, 0]

    noise = (run(1e9) - run(0.0)).diff(dim=0) * SHARE * N
    count = noise.numel()
    assert abs(noise.mean()) < 4 / math.sqrt(count)
    assert abs(noise.square().mean() - 1) < 4 * math.sqrt(2 / count)
    correlations = np.corrcoef(noise.numpy())[np.triu_indices(rounds - 1, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(noise.shape[1])


def test_nodes_participate_independently():
    """The number of participants is binomial, none and all included."""
    method = algorithms.dp_fedavg(**USUAL | {"noise": 0.0, "steps": 1, "epochs": None})
    history, _ = engine(method, rounds=300, init="common", every=300)
    counts = history["messages"] / 2
    assert {counts.min(), counts.max()} == {0, N}
    assert abs(counts.mean() - SHARE * N) < 4 * math.sqrt(N * SHARE * (1 - SHARE) / 300)
    assert abs(counts.var() / (N * SHARE * (1 - SHARE)) - 1) < 4 * math.sqrt(2 / 300)


def test_without_participants_there_is_noise_only():
    clients, rounds = problems.equal_clients(), 60
    there = [np.count_nonzero(drawn(t)) for t in range(rounds)]
    assert 0 in there
    for noise in (0.0, 0.5):
        steps = models_of(clients, rounds, noise=noise).diff(dim=0).norm(dim=1)
        assert (steps > 0).tolist() == [count > 0 or noise > 0 for count in there[1:]]


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_a_node_whose_loss_is_not_finite_does_not_stop_the_noise(policy):
    clients = problems.equal_clients()
    bad = with_inputs(clients, clients.train[int(np.flatnonzero(drawn())[0])], too_large)
    settings = {"on_divergence": policy, "dtype": torch.float32}
    models = models_of(bad, 4, noise=0.5, settings=settings)
    assert models.isfinite().all()
    assert (models.diff(dim=0) != 0).all()
