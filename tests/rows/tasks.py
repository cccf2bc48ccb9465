"""Tasks: datasets and models on which runs are compared with plain loops, and plain scores."""

from functools import partial

import numpy as np
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from topofl import Task, algorithms, data, topologies
from topofl._support.seeding import seeded_torch
from topofl.tasks import classification, multi_label, next_token, regression

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
NUMBERS = np.stack([X @ [1.0, -2.0, 0.5, 0.0], X[:, 0] ** 2], axis=1)
LABELS = (X[:, :3] + 0.3 * RNG.standard_normal((60, 3)) > 0).astype(np.int64)
TOKENS = RNG.integers(0, 7, (60, 6))
PREVIOUS_AND_NEXT = TOKENS[:, :-1], TOKENS[:, 1:]
BINS = data.binned(NUMBERS[:, 0], 3)


@seeded_torch(0)
def mlp(outputs):
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


@seeded_torch(0)
def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 1))


@seeded_torch(0)
def tokens_model():
    return nn.Sequential(nn.Embedding(7, 5), nn.Tanh(), nn.Linear(5, 7))


def dataset_of(inputs, targets):
    return data.from_arrays(inputs, BINS, targets=targets, test=0.25, seed=0)


def token_losses(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


def label_losses(outputs, targets):
    how = {"reduction": "none"}
    losses = functional.binary_cross_entropy_with_logits(outputs, targets.double(), **how)
    return losses.mean(1)


def huber(outputs, targets):
    return functional.huber_loss(outputs, targets, reduction="none").sum(1)


def plain_regression(outputs, targets):
    mse, mae = float((outputs - targets).square().mean()), float((outputs - targets).abs().mean())
    r2 = sklearn_metrics.r2_score(targets, outputs)
    return {"mse": mse, "mae": mae, "rmse": mse**0.5, "r2": r2, "loss": mse}


def plain_tokens(outputs, targets):
    pairs = list(zip(outputs.flatten(0, 1), targets.flatten().tolist(), strict=True))
    loss = np.mean([float(torch.logsumexp(logits, 0) - logits[token]) for logits, token in pairs])
    right = np.mean([int(logits.argmax()) == token for logits, token in pairs])
    return {"accuracy": right, "perplexity": np.exp(loss), "loss": loss}


def plain_labels(outputs, targets):
    pairs = zip(outputs.tolist(), targets.tolist(), strict=True)
    right = [all((o > 0) == bool(t) for o, t in zip(*pair, strict=True)) for pair in pairs]
    return {"subset_accuracy": np.mean(right), "loss": float(label_losses(outputs, targets).mean())}


def plain_classes(outputs, targets):
    f1 = sklearn_metrics.f1_score(targets, outputs.argmax(1), average="macro", zero_division=0.0)
    right = float((outputs.argmax(1) == targets).double().mean())
    return {"f1": f1, "accuracy": right, "loss": float(functional.cross_entropy(outputs, targets))}


CASES = {
    "regression": (
        regression(scores=("mse", "mae", "rmse", "r2")),
        partial(mlp, 2),
        dataset_of(X, NUMBERS),
        lambda outputs, targets: (outputs - targets).square().mean(1),
    ),
    "linear regression": (
        regression(),
        linear,
        dataset_of(X, NUMBERS[:, 0]),
        lambda outputs, targets: (outputs[:, 0] - targets).square(),
    ),
    "several labels": (multi_label(), partial(mlp, 3), dataset_of(X, LABELS), label_losses),
    "next token": (next_token(), tokens_model, dataset_of(*PREVIOUS_AND_NEXT), token_losses),
    "a user's own": (Task("huber", huber), partial(mlp, 2), dataset_of(X, NUMBERS), huber),
    "F1 of classes": (
        classification(scores=("f1", "accuracy")),
        partial(mlp, 3),
        dataset_of(X, None),
        lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none"),
    ),
}
"""Tasks, how to build a model for each, a dataset, and the loss of each example in plain torch."""

PLAIN = {
    "regression": plain_regression,
    "next token": plain_tokens,
    "several labels": plain_labels,
    "F1 of classes": plain_classes,
}
"""Scores of tasks in plain loops and by scikit-learn."""


def clients_of(dataset, n=4):
    return data.dirichlet_per_class(dataset, n, alpha=0.5, min_size=3, seed=0)


def run(case, rounds=4, **options):
    task, build, dataset, _ = CASES[case]
    given = {"model": build().double(), "clients": clients_of(dataset), "task": task, "seed": 0}
    given |= {"topology": topologies.ring(4), "rounds": rounds, "dtype": torch.float64}
    given |= {"every": 2, "progress": False, "init": "given"}
    return topofl.run(algorithms.dsgd(lr=0.1, batch_size=4), **problems.options(**given | options))


def by_hand(case, rounds):
    """Train one module a node in Python loops; return them."""
    _, build, dataset, losses = CASES[case]
    modules = [build().double() for _ in range(4)]
    inputs = dataset.examples(dtype=torch.float64)
    targets, members = dataset.learned(torch.float64), clients_of(dataset).train
    weights = topofl.mixing.metropolis_hastings(topologies.ring(4)).weights.toarray()
    for t in range(rounds):
        for i, module in enumerate(modules):
            batch = torch.as_tensor(naive.minibatch(members[i], i, t, 4, "local", 0))
            module.zero_grad()
            losses(module(inputs[batch]), targets[batch]).mean().backward()
            still = [torch.zeros_like(p) for p in module.parameters()]
            naive.descend(module, still, [p.grad.clone() for p in module.parameters()], 0.1, 0.0)
        naive.average(modules, weights)
    return modules
