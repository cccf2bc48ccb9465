"""Estimated memory equals numbers that were computed manually."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.estimate.helpers import ESTIMATE, need
from topofl import algorithms, data, models, topologies
from topofl.engine.footprint import TRAINED, in_gib
from topofl.estimate import Estimate


def test_logistic_regression_equals_manual_numbers():
    clients, d = data.iid(data.digits(), 10, seed=0), 64 * 10 + 10
    result = topofl.estimate(
        algorithms.dsgd(lr=0.1, batch_size=32),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.ring(10),
    )
    logits = 300 * 10 * 10 * 4  # and as much for their exponentials
    numbers = 300 * 10 * (3 * 4 + 8)  # the largest logit, that of the label, the sum, the class
    lasting = result.parameters + result.minibatches + result.matrices + result.data + result.torch
    training = result.gradients + result.activations + result.statistics + result.float64
    wanted = {
        **{"n": 10, "d": d, "parameters": 10 * d * 4, "state": 0, "gradients": 10 * d * 4},
        "minibatches": 10 * 32 * (64 * 4 + 8),
        "activations": 10 * 32 * (2 * 10 + 3) * 4,
        "statistics": 8 * d,
        "float64": 8 * 10 * d,  # of the consensus distance: more than those of the gradients
        "mixing": 10 * d * 4,
        "evaluation": 10 * d * 4 + 2 * logits + numbers,
        "matrices": 30 * 12 + 10 * 10 * 4,  # neighbors and the own model; dense
        "data": 1797 * (64 * 4 + 8),
        "held": 1797 * (64 * 4 + 8),
        "total": lasting + result.evaluation + training + result.mixing,  # buffers that are kept
        "added": result.total - result.held,
        **{"executor": "batched", "chunk": 10, "workers": 1},
        **{"messages": 20, "bytes": 20 * d * 4, "messages_paper": 20, "bytes_paper": 20 * d * 4},
        **{"busiest_messages": 4, "busiest_bytes": 4 * d * 4},
    }
    assert {name: getattr(result, name) for name in wanted} == wanted


def test_momentum_is_one_more_copy():
    plain, heavy = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1, momentum=0.9))
    assert plain.state == 0
    assert heavy.state == heavy.parameters
    assert heavy.total - plain.total == plain.parameters


def test_float64_doubles_all_numbers_but_labels():
    single, double = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1), dtype=torch.float64)
    assert double.parameters == 2 * single.parameters
    assert double.gradients == 2 * single.gradients
    assert double.evaluation == 2 * single.evaluation - 18 * 6 * 8  # predicted labels
    assert double.bytes == 2 * single.bytes
    assert double.data == 2 * single.data - 90 * 8
    assert double.held == 90 * 8  # the examples are copied


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_stay_bytes(dtype):
    pixels = np.zeros((90, 1, 6, 6), np.uint8)
    clients = data.iid(data.from_arrays(pixels, np.arange(90) % 3, test=0.2), 6, seed=0)
    result = need(algorithms.dsgd(0.1, batch_size=10), clients, dtype=dtype)
    assert result.data == 90 * (36 + 8)
    seen = 36 * (1 + dtype.itemsize) + 8  # gathered, and as models see them
    assert result.minibatches == 6 * 10 * seen


def test_chunks_and_executors():
    dsgd = algorithms.dsgd(0.1)
    whole, looped = need(dsgd), need(dsgd, executor="looped")
    chunked = need(dsgd, chunk=2, executor="batched")
    assert whole.activations == 3 * chunked.activations
    for part in ("gradients", "minibatches"):
        assert getattr(whole, part) == 3 * getattr(chunked, part) == 6 * getattr(looped, part)
    chosen = [(one.executor, one.chunk) for one in (whole, chunked, looped)]
    assert chosen == [("batched", 6), ("batched", 2), ("looped", 1)]
    assert need(dsgd, chunk=100) == whole == need(dsgd, executor="auto")


def test_mixed_gradients_exist_at_once_or_in_means():
    whole, chunked = (need(algorithms.clique_averaging(0.1), chunk=chunk) for chunk in (6, 1))
    assert whole.gradients == 2 * whole.parameters  # those of a chunk, and those that are mixed
    # one, the means of two cliques, and those of all six nodes, which take their steps together
    assert chunked.gradients == (1 + 2 + 6) * whole.d * 4


def test_minibatches_are_no_larger_than_the_data():
    clients = problems.equal_clients()
    largest = max(clients.sizes)
    assert need(algorithms.dsgd(0.1, batch_size=10_000)).minibatches == 6 * largest * (36 * 4 + 8)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_convolutions_keep_what_backward_needs(executor):
    how = {"model": problems.convolutional(), "executor": executor, "chunk": 1}
    result = need(algorithms.dsgd(0.1, batch_size=2), **how)
    # convolution and ReLU; pooling and its indices (int64); logits
    kept = 4 * 6 * 6 * 2 + 4 * 3 * 3 * 3 + 3
    assert 2 * kept * 4 < result.activations / TRAINED < 2 * 2 * kept * 4


def test_layers_that_return_tuples():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cell(x[:, 0])[0][:, -1])

    result = need(algorithms.dsgd(0.1, batch_size=1), model=Recurrent(), executor="looped")
    assert result.activations > 6 * 5 * 4


def test_chunks_follow_free_memory(monkeypatch):
    algorithm = algorithms.dsgd(0.1, batch_size=4)
    free = need(algorithm).added - 1
    monkeypatch.setattr(ESTIMATE, "free_memory", lambda device: free)
    whole, auto = need(algorithm, chunk=6, executor="batched"), need(algorithm)
    # 5 would fit, but 3 and 3 are equal shares
    assert (whole.fits, auto.fits, auto.chunk) == (False, True, 3)
    assert f"DOES NOT FIT; chunk=5 would need {in_gib(free)}" in str(whole)
    assert "DOES NOT FIT" not in str(auto)


@pytest.mark.parametrize("executor", ["auto", "batched", "looped"])
def test_plans_are_those_of_the_run(executor):
    clients = problems.equal_clients()
    how = {"model": problems.linear(), "clients": clients, "topology": problems.cliques(clients)}
    options = problems.options(executor=executor, **how)
    result = topofl.estimate(algorithms.dsgd(0.1), **options)
    meta = topofl.run(algorithms.dsgd(0.1), **options, rounds=1, seed=0).meta
    assert all(getattr(result, name) == meta[name] for name in ("executor", "chunk", "workers"))


def test_nothing_is_changed_or_kept():
    model = problems.linear()
    before = [p.clone() for p in model.parameters()]
    torch_state = torch.get_rng_state()
    need(algorithms.dsgd(0.1), model=model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any(layer._forward_hooks for layer in model.modules())
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_estimates_of_large_runs_need_no_memory():
    clients = data.iid(data.digits(), 1497, seed=0)
    huge = nn.Sequential(nn.Flatten(), nn.Linear(64, 5_000), nn.Linear(5_000, 10))
    graph = topologies.ring(1497)
    result = need(algorithms.dsgd(0.1, momentum=0.9), clients, graph, huge)
    assert result.total > 4 * 1497 * 370_000 * 2


PARTS = ("parameters", "state", "fine_tuning", "gradients", "minibatches", "activations")
PARTS += ("statistics", "float64", "phases", "mixing", "evaluation", "matrices", "data", "torch")
PARTS += ("history",)


def test_text():
    names = (field.name for field in fields(Estimate) if not field.name.startswith("seconds"))
    values = dict.fromkeys(names, 2**20)
    known = {"name": "dsgd on ring", "n": 100, "d": 7850, "executor": "batched", "chunk": 8}
    known |= {"workers": 2, "remedy": "", "returned": False, "beyond": -(2**20)}
    known |= {"drawn": None, "disk": None}
    text = str(Estimate(**values | known | {"messages": 200, "bytes": 3 * 2**20, "free": 2**34}))
    assert text.splitlines() == [
        "dsgd on ring: n=100 models of d=7,850 parameters, batched, chunk=8, workers=2",
        "memory             MiB",
        "-----------------  ---",
        *(f"{part:<17}    1" for part in PARTS),
        "a probe took less   -1",
        "at once, at most    14",
        "",
        "adds 13 MiB of 16.0 GiB free",
        "",
        "per round                                  messages  MiB",
        "----------------------------------------  ---------  ---",
        "all nodes                                       200    3",
        "all nodes, as the D-Cliques paper counts  1,048,576    1",
        "busiest node, in and out                  1,048,576    1",
    ]


def test_numbers_are_plain():
    result = need(algorithms.clique_averaging(0.1))
    for field in fields(Estimate):
        if field.name != "seconds_of_columns":
            assert type(getattr(result, field.name)) in (bool, int, str, type(None)), field.name
    assert not isinstance(result.total, np.generic)
