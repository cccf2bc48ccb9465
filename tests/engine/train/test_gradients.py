"""Every executor computes the gradients that autograd gives of one node's model."""

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
from topofl.engine.population import initial_population

CPU = torch.device("cpu")


def problem(model, nodes=4, width=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    models = initial_population(model, nodes, init="independent", seed=0, device=CPU, dtype=dtype)
    inputs = torch.randn(nodes, width, 1, 6, 6, generator=generator, dtype=dtype)
    labels = torch.randint(3, (nodes, width), generator=generator)
    weights = torch.rand(nodes, width, generator=generator, dtype=dtype)
    weights[0, 3:] = 0  # a node with fewer examples
    return models, inputs, labels, weights / weights.sum(1, keepdim=True)


def reference(model, models, inputs, labels, weights):
    """Return losses and gradients node after node, by functional calls of the model."""
    losses, gradients = [], []
    for i in range(models.n):
        named = {
            n: v[i].clone().requires_grad_()
            for n, v in zip(models.layout.names, models.views, strict=True)
        }
        logits = torch.func.functional_call(model, named, (inputs[i],))
        each = functional.cross_entropy(logits, labels[i], reduction="none")
        loss = each.mean() if weights is None else (each * weights[i]).sum()
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, list(named.values())))
    return torch.stack(losses), [torch.stack(parts) for parts in zip(*gradients, strict=True)]


EXECUTORS = {
    "batched": lambda model: autograd_gradients(model, "batched"),
    "looped": lambda model: autograd_gradients(model, "looped"),
    "closed form": lambda model: linear_gradients(Buffers(CPU)),
}


@pytest.mark.parametrize("width", [5, 40])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("executor", "model"),
    [
        ("batched", problems.convolutional),
        ("looped", problems.convolutional),
        ("closed form", problems.linear),
    ],
)
@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad])
def test_equals_autograd_of_one_model(executor, model, weighted, context, width):
    module = model().double()
    models, inputs, labels, weights = problem(module, width=width)
    weights = weights if weighted else None
    losses, wanted = reference(module, models, inputs, labels, weights)
    gradients = EXECUTORS[executor](module)
    for i in range(models.n) if executor == "looped" else (0, 2):
        r = slice(i, i + (1 if executor == "looped" else 2))
        own = None if weights is None else weights[r]
        with context():
            found = gradients([v[r] for v in models.views], inputs[r], labels[r], own)
        torch.testing.assert_close(found[0], losses[r], rtol=0, atol=1e-12)
        for g, w in zip(found[1], wanted, strict=True):
            torch.testing.assert_close(g, w[r], rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("executor", EXECUTORS)
def test_bf16_is_near_fp32(executor):
    model = problems.linear() if executor == "closed form" else smooth()
    models, inputs, labels, _ = problem(model, dtype=torch.float32)
    _, wanted = reference(model, models, inputs, labels, None)

    lower = autocast(CPU, torch.bfloat16)
    gradients = {
        "batched": lambda: autograd_gradients(model, "batched", lower=lower),
        "looped": lambda: autograd_gradients(model, "looped", lower=lower),
        "closed form": lambda: linear_gradients(Buffers(CPU), torch.bfloat16),
    }[executor]()
    found = gradients([v[:1] for v in models.views], inputs[:1], labels[:1], None)[1]
    for g, w in zip(found, wanted, strict=True):
        assert g.dtype == torch.float32
        assert (g - w[:1]).norm() > 2e-4 * w[:1].norm(), "nothing was computed in lower precision"
        assert (g - w[:1]).norm() < 0.05 * w[:1].norm()  # bfloat16 has 8 bits: 2^-8 a product


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
    models, inputs, labels, _ = problem(model, dtype=torch.float32)
    plain, doubled = (autograd_gradients(model, executor, compile=asked) for asked in (False, True))
    arguments = [v[:1] for v in models.views], inputs[:1], labels[:1], None
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
