"""What a run will need, against hand-counted numbers and against what runs record."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, data, mixing, models, topologies
from topofl.estimate import Estimate
from topofl.topology import TopologySequence


def need(algorithm, clients=None, graph=None, model=None, **options):
    clients = problems.equal_clients() if clients is None else clients
    graph = problems.cliques(clients) if graph is None else graph
    return topofl.estimate(algorithm, model=model or problems.linear(), clients=clients, topology=graph, **options)


def test_logistic_regression_by_hand():
    clients = data.iid(data.digits(), 10, seed=0)
    result = topofl.estimate(
        algorithms.dsgd(lr=0.1, batch_size=32),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.ring(10),
    )
    d = 64 * 10 + 10
    assert (result.n, result.d) == (10, d)
    assert result.parameters == 10 * d * 4
    assert result.state == 0
    assert result.gradients == 10 * d * 4
    assert result.minibatches == 10 * 32 * (64 * 4 + 8)
    assert result.activations == 2 * 10 * 32 * 10 * 4  # ten logits; the flattened input is a view
    assert result.data == 1797 * (64 * 4 + 8)
    parts = (result.parameters, result.gradients, result.minibatches, result.activations, result.data)
    assert result.total == sum(parts)
    assert (result.messages, result.bytes) == (20, 20 * d * 4)
    assert (result.messages_paper, result.bytes_paper) == (20, 20 * d * 4)
    assert (result.busiest_messages, result.busiest_bytes) == (4, 4 * d * 4)


def test_momentum_is_one_more_copy():
    plain, heavy = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1, momentum=0.9))
    assert plain.state == 0
    assert heavy.state == heavy.parameters
    assert heavy.total - plain.total == plain.parameters


def test_float64_doubles_all_numbers_but_labels():
    single, double = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1), dtype=torch.float64)
    assert double.parameters == 2 * single.parameters
    assert double.activations == 2 * single.activations
    assert double.bytes == 2 * single.bytes
    assert double.data == 2 * single.data - 90 * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_stay_bytes(dtype):
    pixels = np.zeros((90, 1, 6, 6), np.uint8)
    clients = data.iid(data.from_arrays(pixels, np.arange(90) % 3), 6, seed=0)
    result = need(algorithms.dsgd(0.1, batch_size=10), clients, dtype=dtype)
    assert result.data == 90 * (36 + 8)
    assert result.minibatches == 6 * 10 * (36 * dtype.itemsize + 8)  # what models see is of the run's dtype


def test_chunks_and_executors():
    whole, chunked, looped = (
        need(algorithms.dsgd(0.1), **options)
        for options in ({}, {"chunk": 2, "executor": "batched"}, {"executor": "looped"})
    )
    for part in ("gradients", "minibatches", "activations"):
        assert getattr(whole, part) == 3 * getattr(chunked, part) == 6 * getattr(looped, part)
    assert need(algorithms.dsgd(0.1), chunk=100) == whole == need(algorithms.dsgd(0.1), executor="auto")


def test_mixed_gradients_exist_at_once():
    whole, chunked = (need(algorithms.clique_averaging(0.1), chunk=chunk) for chunk in (None, 1))
    assert whole.gradients == 2 * whole.parameters
    assert chunked.gradients == whole.parameters + whole.d * 4


def test_minibatches_are_no_larger_than_the_data():
    clients = problems.equal_clients()
    largest = max(clients.sizes)
    assert need(algorithms.dsgd(0.1, batch_size=10_000)).minibatches == 6 * largest * (36 * 4 + 8)


def test_convolutions_by_hand():
    result = need(algorithms.dsgd(0.1, batch_size=2), model=problems.convolutional(), executor="looped")
    outputs = 4 * 6 * 6 * 3 + 4 * 3 * 3 + 3  # convolution, norm, ReLU; pooling; logits (flattening is a view)
    assert result.activations == 2 * 2 * outputs * 4


def test_layers_that_return_tuples():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cell(x[:, 0])[0][:, -1])

    result = need(algorithms.dsgd(0.1, batch_size=1), model=Recurrent(), executor="looped")
    assert result.activations == 2 * (6 * 5 + 3) * 4


@pytest.mark.parametrize("name", algorithms.__all__)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}])
def test_messages_equal_what_a_run_records(name, options):
    clients = problems.equal_clients()
    graph = problems.cliques(clients)
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4, **options)
    history = topofl.run(algorithm, model=problems.linear(), clients=clients, topology=graph, rounds=2, seed=0)
    check_against(need(algorithm, clients, graph), history)


def check_against(result, history):
    for column in ("messages", "bytes", "messages_paper", "bytes_paper"):
        assert getattr(result, column) == history[column].mean(), column
    for column in ("busiest_messages", "busiest_bytes"):
        assert getattr(result, column) == history[column].max(), column


def test_changing_graphs_are_averaged_over_their_period():
    clients = problems.equal_clients()
    ring, star = topologies.ring(6), topologies.star(6)
    algorithm = algorithms.dsgd(0.1)
    history = topofl.run(
        algorithm, model=problems.linear(), clients=clients, topology=[ring, star], rounds=4, seed=0, executor="looped"
    )
    result = need(algorithm, clients, [ring, star])
    assert result.messages == 11
    check_against(result, history)
    endless = TopologySequence(6, lambda t: ring if t % 2 else star)
    assert need(algorithm, clients, endless).messages == 11


def test_fixed_weights_and_own_rules():
    ring = topologies.ring(6)
    assert need(algorithms.dsgd(0.1), graph=ring, mixing=mixing.metropolis_hastings(ring)).messages == 12
    assert need(algorithms.dsgd(0.1), graph=ring, mixing=mixing.max_degree).messages == 12
    with pytest.raises(ValueError, match="must be 0 off the edges"):
        need(algorithms.dsgd(0.1), graph=ring, mixing=mixing.metropolis_hastings(topologies.star(6)))


def test_pooled_and_silent_algorithms():
    clients = problems.equal_clients()
    pooled = topofl.estimate(algorithms.centralized(0.1), model=problems.linear(), clients=clients)
    assert (pooled.n, pooled.messages, pooled.busiest_bytes) == (1, 0, 0)
    silent = topofl.estimate(algorithms.local_only(0.1), model=problems.linear(), clients=clients)
    assert (silent.n, silent.messages) == (6, 0)


def test_nothing_is_changed_or_kept():
    model = problems.linear()
    before = [p.clone() for p in model.parameters()]
    torch_state = torch.get_rng_state()
    need(algorithms.dsgd(0.1), model=model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any(layer._forward_hooks for layer in model.modules())
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_a_million_models_need_no_memory_here():
    clients = data.iid(data.digits(), 1497, seed=0)
    huge = nn.Sequential(nn.Flatten(), nn.Linear(64, 5_000), nn.Linear(5_000, 10))
    result = topofl.estimate(
        algorithms.dsgd(0.1, momentum=0.9), model=huge, clients=clients, topology=topologies.ring(1497)
    )
    assert result.total > 4 * 1497 * 370_000 * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "fast"}, "`executor` must be one of"),
        ({"chunk": 0}, "`chunk` must be at least 1"),
        ({"graph": topologies.ring(7)}, "`topology` must have one node a client"),
        ({"model": nn.Linear(5, 3)}, "`model` cannot take examples"),
        ({"model": nn.BatchNorm1d(3)}, "`model` must not contain BatchNorm1d"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        need(algorithms.dsgd(0.1), **options)


def test_exchanging_algorithms_need_a_topology():
    with pytest.raises(TypeError, match="`topology` must be given"):
        topofl.estimate(algorithms.dsgd(0.1), model=problems.linear(), clients=problems.equal_clients())


def test_text():
    values = {field.name: 2**20 for field in fields(Estimate)}
    text = str(Estimate(**values | {"name": "dsgd on ring", "n": 100, "d": 7850, "messages": 200, "bytes": 3 * 2**20}))
    assert text.splitlines() == [
        "dsgd on ring: n=100 models of d=7,850 parameters",
        "memory       MiB",
        "-----------  ---",
        "parameters     1",
        "state          1",
        "gradients      1",
        "minibatches    1",
        "activations    1",
        "data           1",
        "total          6",
        "",
        "a round                                    messages  MiB",
        "----------------------------------------  ---------  ---",
        "all nodes                                       200    3",
        "all nodes, as the D-Cliques paper counts  1,048,576    1",
        "busiest node, in and out                  1,048,576    1",
    ]


def test_numbers_are_plain():
    result = need(algorithms.clique_averaging(0.1))
    for field in fields(Estimate):
        assert type(getattr(result, field.name)) in (int, str), field.name
    assert not isinstance(result.total, np.generic)
