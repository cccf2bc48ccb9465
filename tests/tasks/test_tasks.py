"""Losses and scores equal plain loops and scikit-learn; both executors equal the reference."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import problems
from tests.tasks.cases import (
    BINS,
    CASES,
    LABELS,
    NUMBERS,
    TOKENS,
    X,
    by_hand,
    clients_of,
    dataset_of,
    mlp,
    run,
)
from topofl import Task, algorithms, data, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine.gradients import in_closed_form
from topofl.tasks import (
    accuracy,
    classification,
    cross_entropy,
    multi_label,
    next_token,
    regression,
    squared_error,
)

BIG = 2**24 + 1
"""The first whole number that float32 does not have."""


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("case", CASES)
def test_training_equals_the_reference(case, executor):
    seen = {}
    seeing = problems.each_round(lambda t, models: seen.update({t: models.flat.clone()}))
    run(case, executor=executor, callbacks=[seeing])
    wanted = [
        nn.utils.parameters_to_vector(module.parameters()).detach() for module in by_hand(case, 4)
    ]
    torch.testing.assert_close(seen[4], torch.stack(wanted), rtol=1e-10, atol=1e-12)


class Transformer(nn.Module):
    """One layer of attention over tokens before, and normalized layers."""

    def __init__(self, width=8):
        super().__init__()
        self.token, self.place = nn.Embedding(7, width), nn.Embedding(6, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.GroupNorm(2, 6), nn.LayerNorm(width)])
        self.attend, self.further = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, 7)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        q, k, v = self.attend(self.norms[0](x)).chunk(3, dim=-1)
        later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=x.device).triu(1)
        x = x + (q @ k.transpose(-1, -2)).masked_fill(later, -torch.inf).softmax(-1) @ v
        return self.out(self.norms[2](x + self.further(self.norms[1](x)).relu()))


MODERN = {
    "a transformer": (
        next_token(),
        TOKENS,
        np.roll(TOKENS, -1, axis=1),
        seeded_torch(0)(Transformer),
    ),
    "a regression": (regression(), X, NUMBERS, lambda: mlp(2)),
    "several labels": (multi_label(), X, LABELS, lambda: mlp(3)),
}


@pytest.mark.parametrize("case", MODERN)
def test_executors_agree_on_adamw_with_a_schedule(case):
    task, inputs, targets, model = MODERN[case]
    clients = data.dirichlet_per_class(
        dataset_of(inputs, targets), 4, alpha=1.0, min_size=2, seed=0
    )
    kept = []
    steps = algorithms.descend(
        algorithms.clip(1.0),
        algorithms.adamw(decay=0.1),
        lr=algorithms.cosine(0.05, rounds=4, warmup=1),
    )
    local = algorithms.train(steps, batch_size=4, epochs=1)
    for how in (
        {"executor": "batched", "chunk": 3},
        {"executor": "batched"},
        {"executor": "looped"},
    ):
        topofl.run(
            algorithms.chain("adamw", local=local, exchange=algorithms.gossip()),
            model=model(),
            clients=clients,
            topology=topologies.ring(4),
            rounds=4,
            seed=0,
            task=task,
            callbacks=[
                lambda event: (
                    kept.append(event.models.flat.clone()) if event.kind == "end" else None
                )
            ],
            **problems.options(dtype=torch.float64, **how),
        )
    for models in kept[:-1]:
        torch.testing.assert_close(models, kept[-1], rtol=0, atol=1e-9)
    assert len(kept) == 3
    assert torch.linalg.vector_norm(kept[0][0] - kept[0][1]) > 1e-3, "nodes are alike"


def test_padding_does_not_count():
    outputs = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    task = next_token(ignored=-1)
    targets = torch.tensor([[1, 2, -1], [-1, -1, -1]])
    wanted = functional.cross_entropy(outputs[0, :2], targets[0, :2])
    torch.testing.assert_close(
        task.loss(outputs, targets), torch.stack([wanted, torch.zeros_like(wanted)])
    )
    right = (outputs[0, :2].argmax(1) == targets[0, :2]).double().mean()
    assert task.reported["accuracy"].function(outputs, targets).tolist() == [float(right), 0.0]
    assert task.misfit(outputs, targets) == ""


# The default


def test_the_default_is_classification_bit_for_bit():
    clients, options = (
        problems.ragged_clients(),
        {"rounds": 3, "seed": 0, "every": 1, "progress": False},
    )
    options |= {"model": problems.linear(), "clients": clients, "topology": topologies.ring(6)}
    same = Task(
        "mine",
        lambda outputs, targets: cross_entropy(outputs, targets),
        {"accuracy": accuracy},
    )
    plain, named, autograd = (
        topofl.run(algorithms.dsgd(lr=0.1), **problems.options(**options), task=task)
        for task in (None, classification(), same)
    )
    assert np.array_equal(plain["loss"], named["loss"])
    assert np.array_equal(plain["accuracy"], named["accuracy"])
    np.testing.assert_allclose(autograd["loss"], plain["loss"], rtol=1e-5)
    np.testing.assert_array_equal(autograd["accuracy"], plain["accuracy"])


def test_the_closed_form_is_known_by_the_loss():
    linear = problems.linear()
    assert in_closed_form(linear, classification(scores=("f1",)))
    assert in_closed_form(linear, Task("another name", cross_entropy))
    assert not in_closed_form(
        linear, Task("classification", lambda outputs, targets: outputs[:, 0])
    )
    assert not in_closed_form(problems.convolutional(), classification())


# Dtypes and shapes


def test_token_ids_keep_their_value_on_the_way_to_the_model():
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            seen.append(x.clone())
            return (x % 7).to(self.weight.dtype) * self.weight

    ids = np.array([[BIG, 5], [BIG + 2, 6]] * 4)
    targets = np.array([BIG, BIG + 2] * 4)
    dataset = data.from_arrays(ids, targets=targets, test=(ids[:2], None, targets[:2]))
    assert dataset.inputs.dtype == dataset.learned().dtype == torch.int64
    given = []

    def loss(outputs, wanted):
        given.append(wanted)
        return outputs.sum(1) * (wanted % 5)

    clients = data.iid(dataset, 2, seed=0)
    topofl.run(
        algorithms.local_only(lr=1e-9, batch_size=2),
        model=Spy(),
        clients=clients,
        rounds=1,
        seed=0,
        task=Task("spy", loss),
        compute=topofl.Compute(executor="looped"),
        progress=False,
    )
    assert {x.dtype for x in seen} == {x.dtype for x in given} == {torch.int64}
    assert set(torch.cat([x.flatten() for x in seen]).tolist()) == {BIG, BIG + 2, 5, 6}
    assert set(torch.cat(given).tolist()) == {BIG, BIG + 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float_targets_have_the_dtype_of_the_run(dtype):
    seen = set()

    def loss(outputs, targets):
        seen.add((outputs.dtype, targets.dtype))
        return squared_error(outputs, targets)

    run("linear regression", rounds=1, task=Task("seen", loss), dtype=dtype)
    assert seen == {(dtype, dtype)}


def test_several_nodes_try_models_by_the_loss_of_the_task():
    """Peers are chosen by losses: DPFL asks for them in both executors."""
    found = []
    for executor in ("batched", "looped"):
        clients = data.with_validation(clients_of(CASES["regression"][2]), 0.4, seed=0)
        algorithm = algorithms.dpfl(lr=0.05, budget=2, batch_size=4)
        history = topofl.run(
            algorithm,
            model=mlp(2).double(),
            clients=clients,
            rounds=2,
            seed=0,
            task=regression(),
            compute=topofl.Compute(executor=executor, dtype=torch.float64),
            init="given",
            progress=False,
        )
        found.append(history)
    np.testing.assert_allclose(found[0]["mse"], found[1]["mse"], rtol=1e-9)
    for t in range(2):
        assert (found[0].mixing(t).weights != found[1].mixing(t).weights).nnz == 0


# Histories


def test_tasks_of_the_library_can_be_sent_to_other_processes():
    for task in (
        classification(("f1", "auc")),
        regression(("r2", "rmse")),
        multi_label(("f1",)),
        next_token(),
    ):
        assert repr(pickle.loads(pickle.dumps(task))) == repr(task)


# Bad input


# Data


def test_targets_beside_labels():
    dataset = data.from_arrays(X, BINS, targets=NUMBERS, test=0.25, seed=0)
    assert dataset.targets.dtype == torch.float64
    assert dataset.learned().dtype == torch.float32
    assert np.array_equal(dataset.targets, NUMBERS)
    assert np.array_equal(dataset.labels, BINS)
    assert data.from_arrays(X, BINS).learned() is not None
    assert data.from_arrays(X, BINS).targets is None
    assert data.from_arrays(X, targets=LABELS).n_classes == 1


def test_held_out_triples_are_appended():
    dataset = data.from_arrays(
        X[:40], BINS[:40], targets=LABELS[:40], val=(X[40:], BINS[40:], LABELS[40:])
    )
    assert np.array_equal(dataset.targets[dataset.val.tolist()], LABELS[40:])


def test_from_torch_reads_targets():
    x = torch.from_numpy(X).float()
    y = torch.from_numpy(NUMBERS)
    pairs = data.from_torch(torch.utils.data.TensorDataset(x, y), targets=True)
    triples = data.from_torch(
        torch.utils.data.TensorDataset(x, torch.from_numpy(BINS), y),
        targets=True,
        test=torch.utils.data.TensorDataset(x[:5], torch.from_numpy(BINS[:5]), y[:5]),
    )
    assert torch.equal(pairs.targets, y)
    assert not pairs.labels.any()
    assert torch.equal(triples.targets, torch.cat([y, y[:5]]))
    assert triples.labels.tolist() == [*BINS, *BINS[:5]]
    floats = data.from_torch([(torch.ones(2), 0.5), (torch.zeros(2), 1.5)], targets=True)
    assert floats.targets.tolist() == [0.5, 1.5]


def test_bins_hold_as_many_and_keep_the_order():
    values = np.random.default_rng(0).permutation(100) / 7
    bins = data.binned(values, 4)
    assert np.bincount(bins).tolist() == [25] * 4
    assert (np.diff(bins[np.argsort(values)]) >= 0).all()
    assert len(set(data.binned([1, 1, 1, 2], 2)[:3])) == 1
