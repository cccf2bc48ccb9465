"""Models that cannot be trained are refused by name, unusual ones that can are trained."""

import re
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import naive, problems
from tests.degenerate.inputs import Applied, models_of, naive_nodes, run
from topofl import mixing, topologies
from topofl.engine.model_checks import check_output


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, dropout=0.0):
        super().__init__()
        self.recurrent, self.head = (
            kind(6, 5, num_layers=2, dropout=dropout, batch_first=True),
            nn.Linear(5, 3),
        )

    def forward(self, x):
        return self.head(self.recurrent(x.flatten(1, 2))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.attention, self.head = (
            nn.MultiheadAttention(6, 2, dropout=dropout, batch_first=True),
            nn.Linear(36, 3),
        )

    def forward(self, x):
        x = x.flatten(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].flatten(1))


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x.flatten(1)).tanh()))


class Buffered(nn.Module):
    """A linear layer after the subtraction of a buffer, which may change."""

    def __init__(self, share):
        super().__init__()
        self.layer, self.share = nn.Linear(36, 3), share
        self.register_buffer("mean", torch.full((36,), 0.5))

    def forward(self, x):
        x = x.flatten(1)
        if self.share:
            self.mean.mul_(1 - self.share).add_(x.detach().mean(0), alpha=self.share)
        return self.layer(x - self.mean)


class WithEmptyParameter(Applied):
    """A linear layer and a parameter without elements."""

    def __init__(self):
        super().__init__(own=nn.Parameter(torch.zeros(0)))

    def forward(self, x):
        return super().forward(x) + self.own.sum()


def dense(*layers):
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(36, 3))


class Computed(nn.Module):
    """Keeps a tensor that was computed from its parameter, as torch.nn.utils.weight_norm does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.twice = 2 * self.weight


GENERATOR = np.random.default_rng(0)
PARAMETRIZATIONS = nn.utils.parametrizations
REFUSED = {
    "dropout": (
        lambda: dense(nn.Dropout(0.5)),
        "`model` must not contain Dropout (layer '1'): it draws random numbers",
    ),
    "dropout when evaluating": (
        lambda: dense(nn.Dropout(0.5)).eval(),
        "must not contain Dropout (layer '1')",
    ),
    "dropout of channels": (
        lambda: nn.Sequential(nn.Dropout2d(0.1), *dense()),
        "must not contain Dropout2d (layer '0')",
    ),
    "alpha dropout": (lambda: dense(nn.AlphaDropout(0.1)), "must not contain AlphaDropout"),
    "random slopes": (lambda: dense(nn.RReLU()), "must not contain RReLU"),
    "dropout between layers": (
        lambda: Recurrent(dropout=0.5),
        "must not contain LSTM (layer 'recurrent'): it draws",
    ),
    "dropout of gated units": (
        lambda: Recurrent(nn.GRU, dropout=0.5),
        "must not contain GRU (layer 'recurrent'): it draws",
    ),
    "dropout of attention": (
        lambda: Attentive(0.5),
        "must not contain MultiheadAttention (layer 'attention')",
    ),
    "hidden dropout": (
        lambda: Applied(before=functional.dropout),
        "`model` must return the same output for the same input",
    ),
    "noise": (
        lambda: Applied(after=lambda x: x + torch.randn(3)),
        "`model` must return the same output for the same input",
    ),
    "noise without effect": (
        lambda: Applied(after=lambda x: x + 0 * torch.rand(3)),
        "`model` must return the same output for the same input",
    ),
    "NumPy noise": (
        lambda: Applied(after=lambda x: x * GENERATOR.random()),
        "`model` must return the same output for the same input",
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.BatchNorm2d(1), *dense()),
        "must not contain BatchNorm2d (layer '0')",
    ),
    "batch norm without statistics": (
        lambda: dense(nn.BatchNorm1d(36, track_running_stats=False)),
        "must not contain BatchNorm1d (layer '1')",
    ),
    "batch norm of processes": (
        lambda: nn.Sequential(nn.SyncBatchNorm(1), *dense()),
        "must not contain SyncBatchNorm",
    ),
    "instance norm with statistics": (
        lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), *dense()),
        "must not contain InstanceNorm2d (layer '0'): it keeps running statistics",
    ),
    "hidden batch norm": (
        lambda: Applied(
            before=lambda x: (
                functional.batch_norm(x, None, None, training=True) if len(x) > 1 else x
            )
        ),
        "`model` must treat the examples of a minibatch independently",
    ),
    "batch means": (
        lambda: Applied(before=lambda x: x - x.mean(0)),
        "`model` must treat the examples of a minibatch",
    ),
    "a changing buffer": (
        lambda: Buffered(0.1),
        "`model` must not change its buffers, 'mean' changed",
    ),
    "spectral norm": (
        lambda: dense(PARAMETRIZATIONS.spectral_norm(nn.Linear(36, 36))),
        "`model` must not change its buffers",
    ),
    "deprecated weight norm": (
        lambda: Applied(part=Computed()),
        "it holds a computed tensor ('twice')",
    ),
    "lazy layers": (
        lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
        "'1.weight' has none yet; apply a lazy",
    ),
    "meta device": (
        lambda: dense().to("meta"),
        "`model` must have values in all its parameters, '1.weight' has none",
    ),
    "complex numbers": (
        lambda: Applied(own=nn.Parameter(torch.zeros(1, dtype=torch.complex64))),
        "`model` must have real parameters, 'own' is of torch.complex64",
    ),
    "several outputs": (
        lambda: Applied(lambda x: (x, x)),
        "`model` must return a tensor of logits, got tuple",
    ),
    "no output": (
        lambda: Applied(lambda x: None),
        "`model` must return a tensor of logits, got NoneType",
    ),
    "named outputs": (
        lambda: Applied(lambda x: {"logits": x}),
        "`model` must return a tensor of logits, got dict",
    ),
    "a scalar": (lambda: Applied(lambda x: x.sum()), "logits per example, got shape ()"),
    "no batch dimension": (
        lambda: Applied(lambda x: x.squeeze()),
        "logits per example, got shape (3,)",
    ),
    "class indices": (
        lambda: Applied(lambda x: x.argmax(1, keepdim=True).expand(-1, 3)),
        "real logits that can be",
    ),
    "detached": (
        lambda: Applied(lambda x: x.detach()),
        "logits that can be differentiated, got torch.float32 with req",
    ),
    "IndexError": (
        lambda: Applied(lambda x: x["logits"]),
        "`model` cannot take examples of shape (1, 6, 6): IndexError",
    ),
    "ValueError": (
        lambda: Applied(int),
        "`model` cannot take examples of shape (1, 6, 6): ValueError",
    ),
    "another size": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 3)),
        "build it for that shape, e.g. models.logistic_regression(36, 3)",
    ),
    "no forward": (
        lambda: nn.ModuleList([nn.Linear(36, 3)]),
        "`model` cannot take examples of shape",
    ),
    "data parallel": (
        lambda: nn.DataParallel(dense()),
        "must not contain DataParallel (layer ''): it wraps",
    ),
    "cannot be copied": (
        lambda: Applied(own=threading.Lock()),
        "`model` must be a module that copy.deepcopy can copy",
    ),
}


@pytest.mark.parametrize("executor", ["auto", "looped"])
@pytest.mark.parametrize("case", REFUSED)
def test_models_are_refused_by_name(case, executor):
    build, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        run(model=build(), executor=executor)


def test_advice_for_outputs_without_classes_is_no_classifier():
    with pytest.raises(
        ValueError, match=r"e\.g\. nn\.Sequential\(nn\.Flatten\(\), nn\.Linear\(36, 1"
    ):
        check_output(nn.Linear(10, 1), torch.ones(3, 1, 6, 6), None)


def test_checks_of_random_models_do_not_change_the_global_generator():
    model, before = Applied(before=functional.dropout), torch.get_rng_state()
    with pytest.raises(ValueError, match="random numbers"):
        check_output(model, torch.ones(3, 36), 3)
    assert torch.equal(before, torch.get_rng_state())


def reproducible(build):
    """Return a model with the same values in every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


ACCEPTED = {
    "no dropout": (lambda: dense(nn.Dropout(0.0)), "batched"),
    "instance norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 1, 3, padding=1), nn.InstanceNorm2d(1, affine=True), *dense()
        ),
        "batched",
    ),
    "layers without dropout": (Recurrent, "looped"),
    "attention without dropout": (Attentive, "looped"),
    "tied weights": (Tied, "batched"),
    "a constant buffer": (lambda: Buffered(0), "batched"),
    "evaluation mode": (lambda: problems.convolutional().eval(), "batched"),
    "an empty parameter": (lambda: WithEmptyParameter(), "batched"),
    "half precision": (lambda: problems.linear().half(), "batched"),
    "a lazy layer that was applied": (
        lambda: applied(nn.Sequential(nn.Flatten(), nn.LazyLinear(3))),
        "batched",
    ),
}


def applied(model):
    model(problems.dataset().inputs[:1])
    return model


@pytest.mark.parametrize("case", ACCEPTED)
def test_unusual_models_train_as_the_naive_loop(case):
    build, executor = ACCEPTED[case]
    model, clients = reproducible(build), problems.equal_clients()
    nodes = naive_nodes(clients, model)
    naive.dsgd(nodes, mixing.metropolis_hastings(topologies.ring(6)).weights.toarray(), 3, lr=0.1)
    for one in {executor, "looped"}:
        torch.testing.assert_close(
            models_of(model=model, executor=one), nodes.flat(), rtol=0, atol=1e-10
        )


def test_models_may_have_more_outputs_than_classes():
    history = run(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 7)), rounds=30, every=30)
    assert history["accuracy"][-1].min() > 0.9
