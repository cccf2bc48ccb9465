"""Gradients in lower precision, of compiled models, and of parameters that share memory."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import problems
from topofl import algorithms
from topofl._support.seeding import seeded_torch
from topofl._support.threads import Buffers
from topofl.engine.gradients import autocast, autograd_gradients, linear_gradients
from topofl.engine.network import Network
from topofl.engine.population import initial_population

CPU = torch.device("cpu")


def problem(model, nodes=4, width=5):
    """Return the first node's parameters, inputs and labels."""
    how = {"init": "independent", "seed": 0, "device": CPU, "dtype": torch.float32}
    models = initial_population(model, nodes, **how)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(nodes, width, 1, 6, 6, generator=generator)
    labels = torch.randint(3, (nodes, width), generator=generator)
    return [v[:1] for v in models.views], inputs[:1], labels[:1]


@seeded_torch(0)
def smooth():
    """Return a convolutional model with continuous gradients: rounding flips no maximum or sign."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(144, 3),
    )


EXECUTORS = {
    "batched": lambda model, **how: autograd_gradients(Network(model), "batched", **how),
    "looped": lambda model, **how: autograd_gradients(Network(model), "looped", **how),
    "closed form": lambda model, lower=None: linear_gradients(
        Buffers(CPU), torch.bfloat16 if lower else None
    ),
}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_bf16_is_near_fp32(executor):
    model = problems.linear() if executor == "closed form" else smooth()
    arguments, make = (*problem(model), None), EXECUTORS[executor]
    wanted = make(model)(*arguments)[1]
    found = make(model, lower=autocast(CPU, torch.bfloat16))(*arguments)[1]
    for g, w in zip(found, wanted, strict=True):
        assert g.dtype == torch.float32
        assert (g - w).norm() > 2e-4 * w.norm(), "nothing was computed in lower precision"
        assert (g - w).norm() < 0.05 * w.norm()  # bfloat16 has 8 bits: 2^-8 a product


def test_convolutions_of_many_nodes_are_lowered_too():
    inputs, kernels = torch.randn(2, 3, 1, 6, 6), torch.randn(2, 4, 1, 3, 3)
    with autocast(CPU, torch.bfloat16)():
        assert torch.vmap(functional.conv2d)(inputs, kernels).dtype == torch.bfloat16
    assert torch.vmap(functional.conv2d)(inputs, kernels).dtype == torch.float32


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_models_are_compiled_where_asked(executor, monkeypatch):
    """Compiling takes a minute, so only check that torch is asked and that its answer is used."""
    compiled = []

    def compile_(function):
        compiled.append(function)
        return lambda *inputs: function(*inputs) * 2

    monkeypatch.setattr(torch, "compile", compile_)
    model = problems.convolutional()
    arguments = *problem(model), None
    plain, doubled = (
        autograd_gradients(Network(model), executor, compile=asked) for asked in (False, True)
    )
    assert len(compiled) == 1
    assert not torch.allclose(plain(*arguments)[0], doubled(*arguments)[0])


class AddedUp(nn.Module):
    """Parameters whose gradients share memory, or whose memory has one number for several."""

    def __init__(self):
        super().__init__()
        self.some, self.others = nn.Parameter(torch.zeros(3, 36)), nn.Parameter(torch.ones(3, 36))
        self.shifts = nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = x.flatten(1)
        return x @ (self.some + self.others).T + x[:, :3] * self.shifts.sum()


@pytest.mark.parametrize("executor", ["looped", "batched"])
def test_gradients_can_be_changed_one_by_one(executor):
    """As a weight decay does, which adds to each what is its own."""
    clients = problems.equal_clients(4)
    history = topofl.run(
        algorithms.local_only(0.1, batch_size=100, local_steps=3, weight_decay=0.5),
        model=AddedUp(),
        clients=clients,
        rounds=1,
        seed=0,
        init="given",
        compute=topofl.Compute(executor=executor),
    )
    inputs, labels = clients.dataset.inputs, clients.dataset.labels
    for i, own in enumerate(clients.train):
        module = AddedUp()
        optimizer = torch.optim.SGD(module.parameters(), 0.1, weight_decay=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(module(inputs[own.tolist()]), labels[own.tolist()]).backward()
            optimizer.step()
        wanted = nn.utils.parameters_to_vector(module.parameters()).detach()
        torch.testing.assert_close(history.models.flat[i], wanted, rtol=0, atol=1e-5)
