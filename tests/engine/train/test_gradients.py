"""Gradients in lower precision, of compiled models, of shared memory, and with channels last."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import problems
from tests.engine import runs
from topofl import Compute, algorithms, data, models, tasks
from topofl._support.seeding import seeded_torch
from topofl._support.threads import Buffers
from topofl.engine import gradients
from topofl.engine.gradients import (
    autocast,
    autograd_gradients,
    hidden_widths,
    image_order,
    is_linear,
)
from topofl.engine.network import Network

CPU = torch.device("cpu")


def problem(model, nodes=4, width=5):
    """Return the first node's parameters and its examples."""
    models = problems.population(model, nodes, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(nodes, width, 1, 6, 6, generator=generator)
    labels = torch.randint(3, (nodes, width), generator=generator)
    return [v[:1] for v in models.views], (inputs[:1], labels[:1], None)


@seeded_torch(0)
def smooth():
    """Return a convolutional model with continuous gradients: rounding flips no maximum or sign."""
    convolution = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4))
    return nn.Sequential(*convolution, nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))


EXECUTORS = {
    "batched": lambda model, **how: autograd_gradients(Network(model), "batched", **how),
    "looped": lambda model, **how: autograd_gradients(Network(model), "looped", **how),
    "closed form": lambda model, lower=None: gradients.dense_gradients(
        Buffers(CPU), torch.bfloat16 if lower else None
    ),
}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_bf16_is_near_fp32(executor):
    model = problems.linear() if executor == "closed form" else smooth()
    arguments, make = problem(model), EXECUTORS[executor]
    wanted = make(model)(*arguments)[1]
    found = make(model, lower=autocast(CPU, torch.bfloat16))(*arguments)[1]
    for g, w in zip(found, wanted, strict=True):
        assert g.dtype == torch.float32
        assert (g - w).norm() > 2e-4 * w.norm(), "nothing was computed in lower precision"
        assert (g - w).norm() < 0.05 * w.norm()  # bfloat16 has 8 bits: 2^-8 a product


def perceptron(*widths):
    """Return a perceptron on images of 6 x 6 pixels."""
    sizes = [36, *widths, 3]
    layers = [
        layer
        for inputs, outputs in pairwise(sizes)
        for layer in (nn.ReLU(), nn.Linear(inputs, outputs))
    ]
    return nn.Sequential(nn.Flatten(), *layers[1:]).double()


@pytest.mark.parametrize("widths", [(), (8,), (8, 5)])
@pytest.mark.parametrize("trained", [None, (0,), (1, 0)])
@pytest.mark.parametrize("padded", [False, True])
def test_closed_forms_are_the_gradients_of_autograd(widths, trained, padded):
    model, rng = perceptron(*widths), torch.Generator().manual_seed(0)
    rows = [torch.randn(4, *p.shape, generator=rng, dtype=p.dtype) for p in model.parameters()]
    inputs = torch.randn(4, 7, 1, 6, 6, generator=rng, dtype=torch.float64)
    targets = torch.randint(3, (4, 7), generator=rng)
    weights = None
    if padded:
        weights = torch.rand(4, 7, generator=rng, dtype=torch.float64)
    batch = inputs, targets, weights
    wanted = autograd_gradients(Network(model), "batched")(rows, batch, trained)
    found = gradients.dense_gradients(Buffers(CPU))(rows, batch, trained)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-12, atol=1e-12)
    order = range(len(rows)) if trained is None else trained
    by_place = dict(zip(sorted(order), wanted[1], strict=True))
    assert len(found[1]) == len(order)
    for place, g in zip(order, found[1], strict=True):
        torch.testing.assert_close(g, by_place[place], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "widths"),
    [
        (perceptron(), []),
        (perceptron(8, 5), [8, 5]),
        (nn.Linear(4, 3), []),
        (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(4, 3)), None),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), None),
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), None),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)), None),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 2)), None),
        (nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 3)), None),
        (nn.Sequential(nn.Flatten()), None),
    ],
)
def test_perceptrons_are_recognized(model, widths):
    assert hidden_widths(model) == widths


def test_perceptrons_that_use_a_layer_twice_are_not():
    layer = nn.Linear(4, 4)
    assert hidden_widths(nn.Sequential(layer, nn.ReLU(), layer)) is None


def tied():
    """Return a perceptron whose layers share weights and biases."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight, model[2].bias = model[0].weight, model[0].bias
    return model


def reordered():
    """Return a linear model with its bias first, as removing a reparametrization leaves it."""
    model = nn.Linear(4, 3)
    weight = model.weight
    del model.weight
    model.weight = weight
    return model


@pytest.mark.parametrize("model", [tied(), reordered()])
def test_models_with_other_parameters_than_a_weight_and_a_bias_per_layer_are_not(model):
    assert hidden_widths(model) is None
    rows = [torch.randn(1, *p.shape) for p in model.parameters()]
    batch = torch.randn(1, 5, 4), torch.randint(3, (1, 5)), None
    order = image_order(model, batch[0][0])
    how = order, Compute(), tasks.classification(), Buffers(CPU)
    found = gradients.new_gradients(Network(model), "batched", *how)(rows, batch)
    wanted = autograd_gradients(Network(model), "looped")(rows, batch)
    torch.testing.assert_close(found[1], wanted[1])


def test_infinite_errors_of_units_that_are_zero_are_not_propagated():
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    rows = [
        torch.zeros(1, 2, 1), torch.tensor([[-1.0, 1.0]]),
        torch.tensor([[[3e38, 0.1], [3e38, 0.2], [-3e38, 0.3]]]), torch.tensor([[20.0, 20.0, 0.0]]),
    ]  # fmt: skip
    batch = torch.ones(1, 1, 1), torch.tensor([[2]]), None
    wanted = autograd_gradients(Network(model), "batched")(rows, batch)
    found = gradients.dense_gradients(Buffers(CPU))(rows, batch)
    assert all(g.isfinite().all() for g in wanted[1])
    torch.testing.assert_close(found[1], wanted[1])


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
    arguments = problem(model)
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
    method = algorithms.local_only(0.1, batch_size=100, local_steps=3, weight_decay=0.5)
    how = {"clients": clients, "topology": None, "rounds": 1, "init": "given"}
    history = runs.run(method, model=AddedUp(), executor=executor, **how)
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


class Viewing(nn.Module):
    """A model that cannot take channels last: its `view` needs channels first."""

    def __init__(self, flatten):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(64, 3)
        self.flatten = flatten

    def forward(self, x):
        x = self.conv(x)
        return self.head(x.flatten(1) if self.flatten else x.view(len(x), -1))


def is_channels_last(x):
    return x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("model", "shape", "reordered"),
    [
        (models.gn_lenet((3, 16, 16)), (3, 16, 16), True),
        (Viewing(flatten=True), (3, 6, 6), True),
        (Viewing(flatten=False), (3, 6, 6), False),
        (models.logistic_regression(3 * 36), (3, 6, 6), False),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3)), (3, 6), False),
    ],
)
def test_images_are_reordered_where_the_model_convolves_and_can_take_it(model, shape, reordered):
    inputs = torch.randn(5, *shape)
    ordered = image_order(model, inputs)(inputs)
    assert torch.equal(ordered, inputs)
    assert (ordered.dim() == 4 and is_channels_last(ordered)) == reordered


def run(model, executor):
    clients = data.iid(problems.dataset(shape=(3, 6, 6)), 6, seed=0)
    how = {"rounds": 5, "every": 1, "init": "given", "dtype": torch.float64, "executor": executor}
    method = algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9)
    history = runs.run(method, model=model, clients=clients, **how)
    return history, history.models.flat


def test_results_are_those_of_channels_first():
    viewing, flattening = Viewing(flatten=False), Viewing(flatten=True)
    flattening.load_state_dict(viewing.state_dict())
    wanted, flat = run(viewing, "looped")
    for executor in ("looped", "batched"):
        history, got = run(flattening, executor)
        torch.testing.assert_close(got, flat, rtol=0, atol=1e-10)
        np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-10)
        np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])


def test_the_looped_executor_and_evaluation_convolve_channels_last(monkeypatch):
    seen = []
    convolve = nn.Conv2d.forward
    monkeypatch.setattr(
        nn.Conv2d, "forward", lambda self, x: seen.append(is_channels_last(x)) or convolve(self, x)
    )
    run(Viewing(flatten=True), "looped")
    assert seen.count(False) == 7, "the checks that the model and the task take these examples"
    seen.clear()
    run(Viewing(flatten=False), "looped")
    assert seen.count(True) == 2, "one trial for the executor, one for all evaluations"


class Doubled(nn.Sequential):
    """It looks like its parts, but does something else."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    model = models.logistic_regression(4)
    model.register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def tied():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, layer)


@pytest.mark.parametrize(
    ("model", "linear"),
    [
        (models.logistic_regression(4), True),
        (nn.Linear(4, 3), True),
        (nn.Sequential(nn.Sequential(nn.Flatten()), nn.Linear(4, 3)), True),
        (nn.Linear(4, 3, bias=False), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()), False),
        (Doubled(nn.Flatten(), nn.Linear(4, 3)), False),
        (hooked(), False),
        (tied(), False),
    ],
)
def test_only_one_linear_layer_is_taken_for_one(model, linear):
    assert is_linear(model) == linear
