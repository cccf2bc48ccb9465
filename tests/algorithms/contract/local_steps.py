"""Naive local steps, runs and models that the tests of terms share."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.engine.test_equivalence import modules_at_start
from topofl import algorithms
from topofl._support.seeding import seeded_torch
from topofl.algorithms import Phase, adam, adamw, chain, clip, momentum, weight_decay
from topofl.engine.population import Layout

N, BATCH, SEED, ROUNDS, LR = 6, 4, 3, 3, 0.1


SETTINGS = {
    "looped": {"executor": "looped"},
    "batched-1": {"executor": "batched", "chunk": 1},
    "batched-4": {"executor": "batched", "chunk": 4},
    "batched-n": {"executor": "batched", "chunk": N},
}


EVERY_WAY = pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))


BOTH_WAYS = pytest.mark.parametrize(
    "settings", [SETTINGS["looped"], SETTINGS["batched-4"]], ids=["looped", "batched"]
)


@seeded_torch(0)
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Softplus(), nn.Linear(4, 3))


APART = algorithms.part("1.weight", "3.bias")


TRAINED = {
    "linear": (problems.linear, algorithms.everything),
    "everything": (layered, algorithms.everything),
    "side by side": (layered, algorithms.part("3")),
    "apart": (layered, APART),
}


def loss_at(module, names, values, examples):
    """Return the loss with some parameters replaced, and the replaced values."""
    values = values.detach().requires_grad_()
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    parts = values.split([parameters[name].numel() for name in names])
    parameters |= {
        name: part.view(parameters[name].shape) for name, part in zip(names, parts, strict=True)
    }
    inputs, labels = examples
    return functional.cross_entropy(
        torch.func.functional_call(module, parameters, (inputs,)), labels
    ), values


class Node:
    """One node: a module, the names of its trained parameters, its data, and its state."""

    def __init__(self, i, module, clients, part, batch_size):
        named = list(module.named_parameters())
        self.i, self.module, self.clients, self.batch_size = i, module, clients, batch_size
        self.names = [named[k][0] for k in part.places([name for name, _ in named])]
        self.parameters = [p for name, p in named if name in self.names]
        self.memory = {}

    @property
    def theta(self):
        return nn.utils.parameters_to_vector(self.parameters).detach().clone()

    def gradient(self, values, number, phase="local"):
        """Return the gradient at replaced parameters, on the minibatch with some index."""
        blobs = self.clients.dataset
        places = naive.minibatch(
            self.clients.train[self.i], self.i, number, self.batch_size, phase, SEED
        )
        loss, values = loss_at(
            self.module, self.names, values, (blobs.inputs[places].double(), blobs.labels[places])
        )
        return torch.autograd.grad(loss, values)[0]


def plain(node, step, t, k):
    return node.gradient(node.theta, step)


def naive_models(
    model,
    clients,
    make,
    *,
    part=algorithms.everything,
    turned=plain,
    clipped=None,
    lr=None,
    rounds=ROUNDS,
    counts=None,
    batch_sizes=None,
    participants=None,
):
    """Train each node by an optimizer of torch, on gradients that are `turned`.

    Return all models and all nodes.
    """
    nodes = []
    for i, module in enumerate(modules_at_start(model, clients.n)):
        node = Node(i, module, clients, part, BATCH if batch_sizes is None else batch_sizes[i])
        steps = (
            2 * math.ceil(len(clients.train[i]) / node.batch_size) if counts is None else counts[i]
        )
        optimizer = make(node.parameters)
        for t in range(rounds):
            node.memory["start"] = node.theta
            for k in range(steps if participants is None or participants(t)[i] else 0):
                g = turned(node, t * steps + k, t, k)
                for p, own in zip(
                    node.parameters, g.split([p.numel() for p in node.parameters]), strict=True
                ):
                    p.grad = own.view(p.shape).clone()
                if clipped is not None:
                    nn.utils.clip_grad_norm_(node.parameters, clipped)
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] if lr is None else lr(t, k)
                optimizer.step()
        nodes.append(node)
    return torch.stack(
        [nn.utils.parameters_to_vector(node.module.parameters()).detach() for node in nodes]
    ), nodes


def run(algorithm, **settings):
    """Run with settings by their own names."""
    return topofl.run(algorithm, **problems.options(**settings))


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, LR)


def ran(phase, model, clients, rounds=ROUNDS, *, after=None, **settings):
    """Return all models after a run of one phase, and another one."""
    kept = []
    more = {} if after is None else {"after": after}
    run(
        chain("own", local=phase, **more),
        model=model,
        clients=clients,
        rounds=rounds,
        seed=SEED,
        init="independent",
        dtype=torch.float64,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **settings,
    )
    return kept[-1]


def watched(owner="local"):
    """Return a phase that copies the state of another phase, and the dictionary of copies."""
    seen = {}

    def apply(models, state, round):
        if not models.flat.is_meta:
            seen.update({name: x.clone() for name, x in round.state(owner).items()})
        return state

    return Phase(lambda models: {}, apply), seen


def close(got, wanted, start=None):
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    assert start is None or not torch.allclose(got, start, atol=1e-4), "nothing was trained"


OPTIMIZERS = {
    "plain": ([], {}, lambda p: torch.optim.SGD(p, LR)),
    "weight_decay": ([weight_decay(0.3)], {}, lambda p: torch.optim.SGD(p, LR, weight_decay=0.3)),
    "momentum": ([momentum(0.9)], {}, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "nesterov": (
        [momentum(0.9, nesterov=True)],
        {},
        lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True),
    ),
    "clip": ([clip(0.2)], {"clipped": 0.2}, lambda p: torch.optim.SGD(p, LR)),
    "all of SGD": (
        [clip(0.5), weight_decay(0.1), momentum(0.8)],
        {"clipped": 0.5},
        lambda p: torch.optim.SGD(p, LR, weight_decay=0.1, momentum=0.8),
    ),
    "adam": ([adam(0.8, 0.95)], {}, lambda p: torch.optim.Adam(p, LR, betas=(0.8, 0.95))),
    "adam after decay": (
        [weight_decay(0.3), adam(eps=1e-3)],
        {},
        lambda p: torch.optim.Adam(p, LR, weight_decay=0.3, eps=1e-3),
    ),
    "adamw": ([adamw(decay=0.2)], {}, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.2)),
}


def given(model, part, values, i):
    """Return the values of the parameters that node i trains."""
    layout = Layout.of(model)
    return torch.cat([values[i, columns] for columns in layout.columns(part)])
