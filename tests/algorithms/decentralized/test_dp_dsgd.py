"""Noised D-SGD equals its naive loop in float64; what one record or node can change is bounded."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, N, check, engine, nodes_at_start
from topofl import algorithms, data, mixing, topologies
from topofl.algorithms.decentralized.dp_dsgd import _clipped

PRIVATE = {"clip": 0.5, "noise": 0.3, "steps": 2}
LEVEL = pytest.mark.parametrize("level", ["record", "node"])


@HOW
@CLIENTS
@LEVEL
def test_equals_naive_loop(level, make, settings):
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    used = naive.dp_dsgd(nodes, weights, ROUNDS, lr=0.1, level=level, size=BATCH, **PRIVATE)
    algorithm = algorithms.dp_dsgd(0.1, level=level, batch_size=BATCH, **PRIVATE)
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)
    torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-12)
    for (i, _), times in used.items():
        assert times <= PRIVATE["steps"] * math.ceil(ROUNDS * BATCH / len(clients.train[i])), (
            "more than accounted for"
        )


@LEVEL
def test_rates_may_be_functions_of_the_round(level):
    """One that is constant gives the models of a number, and one that falls those of a decay."""
    clients = problems.equal_clients()
    model = problems.linear()
    graph = problems.cliques(clients)

    def models_of(lr, **more):
        return engine(
            algorithms.dp_dsgd(lr, level=level, batch_size=BATCH, **PRIVATE, **more),
            model,
            clients,
            graph,
        )[1]

    falling = models_of(algorithms.exponential(0.1, 0.5))
    assert torch.equal(falling.flat, models_of(0.1, lr_decay=0.5).flat)
    assert not torch.equal(falling.flat, models_of(0.1).flat)
    with pytest.raises(ValueError, match="`lr_decay` must be 1 where `lr` is a schedule"):
        models_of(algorithms.exponential(0.1, 0.5), lr_decay=0.5)


@LEVEL
def test_without_noise_and_clip_it_is_dsgd(level):
    """At the level of records with minibatches that divide a node's records."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    clients = data.Partition(
        clients.dataset, tuple(own[:8] for own in clients.train), name="eights"
    )
    graph = problems.cliques(clients)
    steps = 1 if level == "record" else 2
    private = algorithms.dp_dsgd(
        0.1, clip=1e9, noise=0.0, level=level, batch_size=BATCH, steps=steps
    )
    _, one = engine(private, model, clients, graph)
    _, other = engine(
        algorithms.dsgd(0.1, batch_size=BATCH, local_steps=steps), model, clients, graph
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-10)


def other_records(clients, indices):
    """Return the same clients of whom some records are extreme, and of another class."""
    dataset = clients.dataset
    inputs = dataset.inputs.clone()
    labels = dataset.labels.clone()
    inputs[indices] *= -1e3
    labels[indices] = (labels[indices] + 1) % dataset.n_classes
    return dataclasses.replace(
        clients, dataset=dataclasses.replace(dataset, inputs=inputs, labels=labels)
    )


@pytest.mark.parametrize(("level", "most"), [("record", 2 * 0.1 * 0.5 / BATCH), ("node", 2 * 0.5)])
def test_what_others_records_change_in_a_message_is_bounded(level, most):
    """Replacing one record, or all of a node, changes at most twice the clip.

    The rate over the minibatch scales it.
    """
    clients = problems.equal_clients()
    how = {"clip": 0.5, "noise": 0.3, "level": level, "batch_size": BATCH}
    lonely = algorithms.chain("lonely", local=algorithms.dp_dsgd(0.1, **how).phases["local"])
    changed = clients.train[2][:1] if level == "record" else clients.train[2]
    found = []
    for given in (clients, other_records(clients, torch.tensor(changed))):
        kept = []
        rounds = math.ceil(len(clients.train[2]) / BATCH) if level == "record" else 1
        topofl.run(
            lonely,
            model=problems.linear(),
            clients=given,
            rounds=rounds,
            seed=0,
            callbacks=[
                problems.each_round(lambda t, models, kept=kept: kept.append(models.flat.clone()))
            ],
            **problems.options(dtype=torch.float64),
        )
        found.append(torch.stack(kept))
    moved = (found[0] - found[1]).norm(dim=2)
    first = int((moved[:, 2] > 0).nonzero()[0])  # the round in which the record was used
    assert 0.2 * most < moved[first, 2] <= most + 1e-12
    assert not moved[:, [i for i in range(N) if i != 2]].any()


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
    inputs = clients.dataset.inputs.clone()
    inputs[records, 0, 0, 0] = 0
    return dataclasses.replace(clients, dataset=dataclasses.replace(clients.dataset, inputs=inputs))


def models_alone(
    clients,
    rounds,
    *,
    model=None,
    lr=0.1,
    on_divergence="raise",
    executor="batched",
    dtype=torch.float64,
    **how,
):
    """Return models (rounds, n, d) of nodes that do not hear each other, and the history."""
    kept = []
    lonely = algorithms.chain("lonely", local=algorithms.dp_dsgd(lr, **how).phases["local"])
    history = topofl.run(
        lonely, model=model or Rooted(), clients=clients, rounds=rounds, seed=0,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=dtype, on_divergence=on_divergence, executor=executor),
    )  # fmt: skip
    return torch.stack(kept), history


@LEVEL
@pytest.mark.parametrize("policy", ["raise", "freeze", "record"])
@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_gradients_that_are_not_finite_count_as_0_and_noise_is_added_all_the_same(
    executor, policy, level
):
    clients = problems.equal_clients()
    bad = rooted_out(clients, torch.tensor(clients.train[2]))
    how = {
        "on_divergence": policy,
        "executor": executor,
        "level": level,
        "batch_size": BATCH,
        "clip": 0.5,
    }
    still, history = models_alone(bad, 3, noise=0.0, **how)
    noised, _ = models_alone(bad, 3, noise=0.3, **how)
    assert not history.meta.get("diverged")
    assert still.isfinite().all()
    assert noised.isfinite().all()
    moved = (still[1:] - still[:-1]).norm(dim=2)
    assert not moved[:, 2].any()
    assert (moved[:, [i for i in range(N) if i != 2]] > 0).all()
    noise = noised[1:, 2] - noised[:-1, 2]
    assert (noise != 0).all(), "a node added no noise"


def test_a_record_counts_once_in_a_pass_and_by_its_clip():
    """Zero-out adjacency, for the sums of clipped gradients of all minibatches of a pass.

    The models hardly move.
    """
    clients = problems.equal_clients()
    clients = data.Partition(
        clients.dataset, tuple(own[:11] for own in clients.train), name="elevens"
    )
    size, rate, clip, rounds = 4, 1e-6, 0.1, 3  # minibatches of 4, 4 and 3 records
    lengths = torch.tensor([1.0, 4, 4, 3])[1:, None, None]

    def sums(given):
        models, _ = models_alone(given, rounds, lr=rate, clip=clip, noise=0.0, batch_size=size)
        start, _ = models_alone(given, 1, lr=1e-300, clip=clip, noise=0.0, batch_size=size)
        return torch.cat([start, models]).diff(dim=0) / -rate * lengths

    plain = sums(clients)
    for record in clients.train[2]:
        changed = ((sums(rooted_out(clients, torch.tensor([record]))) - plain) ** 2).sum(2)
        assert 0.99 * clip**2 < changed[:, 2].sum() <= clip**2 * (1 + 1e-4)
        assert not changed[:, [i for i in range(N) if i != 2]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipped_rows_are_no_longer_than_the_clip_and_finite(dtype):
    most = torch.finfo(dtype).max
    rows = torch.tensor(
        [
            [3, 4],
            [0.3, 0.4],
            [0, 0],
            [most, most],
            [most, 0],
            [1e-30, 0],
            [math.inf, 1],
            [math.nan, 1],
            [-math.inf, 0],
        ]
    ).to(dtype)
    rows[3], rows[4, 0] = most, most
    wanted = torch.tensor(
        [[0.6, 0.8], [0.3, 0.4], [0, 0], [0.5**0.5, 0.5**0.5], [1, 0], [1e-30, 0]] + [[0, 0]] * 3
    )
    torch.testing.assert_close(_clipped(rows.clone(), 1.0), wanted.to(dtype), rtol=1e-6, atol=0)


def test_a_loss_that_is_not_finite_still_shows():
    """As the docstring says; where it is only recorded, noise is added all the same."""
    clients = problems.equal_clients()
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor(clients.train[2])] = 3e38
    bad = dataclasses.replace(clients, dataset=dataclasses.replace(clients.dataset, inputs=inputs))
    how = {"model": problems.linear(), "batch_size": BATCH, "dtype": torch.float32}
    with pytest.raises(topofl.DivergenceError, match="node 2"):
        models_alone(bad, 2, **how)
    models, _ = models_alone(bad, 3, on_divergence="record", **how)
    assert models.isfinite().all()
    assert ((models[1:] - models[:-1])[:, 2] != 0).all()


@pytest.mark.parametrize(
    ("level", "scale"), [("record", 0.1 * 3.0 * 0.5 / BATCH), ("node", 3.0 * 0.5)]
)
def test_noise_has_the_requested_deviation(level, scale):
    """Of every node and round another one."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    kept = []
    for noise in (0.0, 3.0):
        private = algorithms.dp_dsgd(0.1, clip=0.5, noise=noise, level=level, batch_size=BATCH)
        history = []
        topofl.run(
            algorithms.chain("lonely", local=private.phases["local"]),
            model=model,
            clients=clients,
            rounds=1,
            seed=0,
            callbacks=[
                problems.each_round(lambda t, models, to=history: to.append(models.flat.clone()))
            ],
            **problems.options(dtype=torch.float64),
        )
        kept.append(history[0])
    noise = (kept[1] - kept[0]) / scale
    count = noise.numel()
    assert abs(noise.mean()) < 4 / math.sqrt(count)
    assert abs(noise.square().mean() - 1) < 4 * math.sqrt(2 / count)
    correlations = np.corrcoef(noise.numpy())[np.triu_indices(N, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(noise.shape[1])


def test_a_message_is_a_model():
    clients = problems.equal_clients()
    model = problems.linear()
    ring = topologies.ring(N)
    history = topofl.run(
        algorithms.dp_dsgd(0.1, batch_size=2),
        model=model,
        clients=clients,
        topology=ring,
        rounds=2,
        seed=0,
    )
    assert set(history["messages"]) == {12}
    assert set(history["bytes"]) == {12 * 111 * 4}


BAD = [
    ({"clip": 0.0}, ValueError, "`clip`"),
    ({"noise": -0.1}, ValueError, "`noise`"),
    ({"level": "nodes"}, ValueError, "`level` must be"),
    ({"batch_size": 0.5}, TypeError, "`batch_size`"),
    ({"steps": 0}, ValueError, "`steps`"),
    ({"lr_decay": 2.0}, ValueError, "`lr_decay`"),
]


@pytest.mark.parametrize(
    ("change", "error", "message"), BAD, ids=[next(iter(one[0])) for one in BAD]
)
def test_bad_arguments_are_named(change, error, message):
    with pytest.raises(error, match=message):
        algorithms.dp_dsgd(0.1, **change)


def test_settings_hold_the_arguments():
    assert algorithms.dp_dsgd(0.1, level="node").settings == {
        "local": {
            "lr": 0.1,
            "clip": 1.0,
            "noise": 1.0,
            "level": "node",
            "batch_size": 32,
            "steps": 1,
        },
        "exchange": {"weights": "round"},
    }


@pytest.mark.parametrize("lr", [0.1, np.float32(0.5), np.int64(1), 1])
def test_rates_of_any_number_type_are_recorded_as_numbers(lr):
    told = algorithms.dp_dsgd(lr).settings["local"]["lr"]
    assert type(told) is float
    assert told == float(lr)
    assert algorithms.dp_dsgd(lr, lr_decay=0.5).settings["local"]["lr"] == float(lr)


def test_noise_is_one_number():
    with pytest.raises(
        TypeError, match="`noise` must be one number for all rounds, got a function"
    ):
        algorithms.dp_dsgd(0.1, noise=algorithms.cosine(1.0, rounds=3))


@pytest.mark.parametrize("level", ["record", "node"])
def test_local_steps_are_counted_not_records(level):
    clients = problems.equal_clients()
    private = algorithms.dp_dsgd(0.1, level=level, batch_size=4, steps=2)
    how = {"model": problems.linear(), "clients": clients, "topology": topologies.ring(6)}
    history = topofl.run(private, rounds=3, seed=0, **how)
    np.testing.assert_array_equal(history["steps"], 2 * 6)
