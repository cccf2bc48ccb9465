"""Small problems that many tests share."""

import copy
import re
from dataclasses import fields
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import nn

from topofl import Compute, Evaluation, data, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine.evaluation import evaluate, evaluation_plan
from topofl.engine.executor import Executor
from topofl.engine.plan import Plan
from topofl.engine.population import initial_population
from topofl.engine.setup import resolve
from topofl.tasks import classification


def dataset(seed=0, n_examples=90, shape=(1, 6, 6), n_classes=3):
    """Gaussian blobs, one a class, as little images."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_examples) % n_classes
    centers = rng.standard_normal((n_classes, *shape))
    inputs = (centers[labels] + 0.5 * rng.standard_normal((n_examples, *shape))).astype(np.float32)
    return data.from_arrays(inputs, labels, test=0.2, val=0.1, seed=seed, name="blobs")


def ragged_clients(n=6, seed=0):
    """Clients of sizes 1, 2, 4, 8, ...: some smaller than a minibatch, one of a single example."""
    blobs = dataset()
    sizes = [1, 2, 4, 7, 11, 16][:n]
    cuts = np.split(np.random.default_rng(seed).permutation(blobs.train), np.cumsum(sizes)[:-1])
    train = tuple(cut[:size] for cut, size in zip(cuts, sizes, strict=True))
    none = tuple(np.zeros(0, dtype=np.int64) for _ in train)
    return data.Partition(blobs, train, none, none, name="ragged")


def equal_clients(n=6, seed=0):
    return data.iid(dataset(), n, seed=seed)


def five_clients():
    return equal_clients(5)


def validated_clients(n=6, seed=0):
    """Clients of unlike classes who keep some examples for validation."""
    return data.dirichlet_per_class(
        dataset(), n, alpha=1.0, min_size=4, seed=seed, val_fraction=0.3
    )


def cliques(clients, size=3):
    return topologies.dcliques(
        clients.label_counts, clique_size=size, inter="ring", steps=10, seed=0
    )


@seeded_torch(0)
def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 3))


@seeded_torch(0)
def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


@seeded_torch(0)
def perceptron():
    """Return a small network that has its head where the convolutional one has it."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(36, 4),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Identity(),
        nn.Linear(4, 3),
    )


def population(model, n=4, init="independent", seed=0, dtype=torch.float64):
    """Return the models of n nodes at the start of a run."""
    how = {"init": init, "seed": seed, "dtype": dtype}
    return initial_population(model, n, device=torch.device("cpu"), **how)


def modules_at_start(model, n, init="independent"):
    """Return the models of n nodes at the start of a run with seed 3, as modules in float64."""
    start = population(model, n, init, seed=3)
    modules = [copy.deepcopy(model).double() for _ in range(n)]
    for module, row in zip(modules, start.flat.expand(n, -1), strict=True):
        torch.nn.utils.vector_to_parameters(row.clone(), module.parameters())
    return modules


def resolved(algorithm, model, clients, graphs=None, dtype=torch.float32):
    """Return the checked setup of one round."""
    return resolve(
        algorithm, model=model, clients=clients, topology=graphs, rounds=1,
        compute=Compute(dtype=dtype, device="cpu"),
    )  # fmt: skip


def evaluated(model, models, inputs, targets, on, nodes=None, task=None, workers=1, plan=None):
    """Return the scores of models on examples, as a run computes them."""
    executor = Executor(
        Plan("looped", 1, workers, 1), inputs.__getitem__, targets, None, lambda memory: None
    )
    plan = plan or evaluation_plan(model, inputs[:2], task or classification(), targets[:2])
    on = evaluated_on(on, range(len(models)) if nodes is None else nodes)
    with executor.threads():
        return evaluate(plan, models, executor, on)


def evaluated_on(on, nodes):
    """Return the examples of each node: those of one tensor, or its own of a list of tensors."""
    return {i: on if isinstance(on, torch.Tensor) else on[i] for i in nodes}


def options(**settings):
    """Return arguments of topofl.run; those of an Evaluation or a Compute are given by name.

    So that tests can merge settings: ``options(**{"every": 2, "executor": "looped"} | changes)``.
    """
    for name, kind in (("evaluation", Evaluation), ("compute", Compute)):
        own = {
            field.name: settings.pop(field.name) for field in fields(kind) if field.name in settings
        }
        if own:
            assert name not in settings, f"{name} is given as a whole and by {', '.join(own)}"
            settings[name] = kind(**own)
    return settings


def without_addresses(value):
    """Return text of any value that is the same in every process: a name of a test."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:70]


def each_round(function):
    """Return a callback that calls function(rounds done, models) after every round."""
    return lambda event: function(event.round, event.models) if event.kind == "round" else None


def by_turns(of, turn=0, **axes):
    """Return a mark with all combinations, of which `make test` takes one in `of`, by turns.

    It takes all values of an axis if another one has at least `of` values. Marks with other turns
    take the others.
    """
    rows = [
        pytest.param(
            *(axis[k] for axis, k in zip(map(list, axes.values()), places, strict=True)),
            marks=() if sum(places) % of == turn else pytest.mark.slow,
        )
        for places in product(*(range(len(values)) for values in axes.values()))
    ]
    return pytest.mark.parametrize(tuple(axes), rows)


def paired(**axes):
    """Return a mark with few combinations, in which every two values of two parameters meet."""

    def pairs(row):
        return set(combinations(enumerate(row), 2))

    rows = list(product(*(range(len(values)) for values in axes.values())))
    open_pairs, chosen = set().union(*map(pairs, rows)), []
    while open_pairs:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & open_pairs)))
        open_pairs -= pairs(chosen[-1])
    values = [
        [axis[k] for axis, k in zip(axes.values(), row, strict=True)] for row in sorted(chosen)
    ]
    return pytest.mark.parametrize(tuple(axes), values)
