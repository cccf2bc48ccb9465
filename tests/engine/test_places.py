"""Places for networks that runs refuse: own buffers, draws in `forward`, frozen parameters.

They get in here since `door` replaces the checks of models.
"""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import topofl
from tests import problems
from topofl import algorithms, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine import state
from topofl.engine.gradients import is_linear
from topofl.engine.minibatches import Batches
from topofl.engine.population import initial_population
from topofl.mixing import metropolis_hastings
from topofl.mixing.matrix import as_tensor

N, CPU = 6, torch.device("cpu")
FACTORS = (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85)
STATISTICS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


@seeded_torch(0)
def normalized():
    """Return a network with running statistics."""
    layers = [nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


@seeded_torch(0)
def dropping():
    """Return a network that draws in `forward`."""
    layers = [nn.Flatten(), nn.Linear(36, 8), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(8, 3)).double()


@seeded_torch(0)
def half_frozen():
    """Return a network of which only the last layer is trained."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    model[1].requires_grad_(False)
    return model


class Masks(TorchFunctionMode):
    """Answers dropout by a hash of key, number of the call, and position."""

    def __init__(self, key):
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not functional.dropout:
            return func(*args, **kwargs)
        x, p = args[0], kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        self.calls += 1
        bits = (self.key ^ (self.calls << 40)) + torch.arange(x.numel())
        for factor in FACTORS:
            bits = (bits ^ ((bits >> 31) & 0x1FFFFFFFF)) * factor
        kept = ((bits >> 20) & 0xFFFFF) >= round(p * 2**20)
        return x * kept.view(x.shape) / (1 - p)


def evaluating(model):
    """Return a copy of a model in evaluation mode; training copies it again."""
    return copy.deepcopy(model).eval()


@pytest.fixture
def door(monkeypatch):
    """Return a function that opens the door: it lets any model in, with what it needs."""

    def open_door(buffers=(), travels=False, drawing=None):
        monkeypatch.setattr("topofl.engine.model_checks.check_model", evaluating)
        for name in ("check_output", "check_task", "_check_batched"):
            monkeypatch.setattr(f"topofl.engine.model_checks.{name}", lambda *a: None)
        monkeypatch.setattr(
            state, "initial_population",
            partial(initial_population, buffers=buffers, travels=travels),
        )  # fmt: skip
        monkeypatch.setattr(state, "Batches", partial(Batches, draws=drawing is not None))
        monkeypatch.setattr(state, "new_executor", partial(state.new_executor, drawing=drawing))

    return open_door


def trained(model, executor="batched", chunk=2, algorithm=None, saving=None, **changes):
    """Return the history of a run, and its models."""
    kept = {}
    settings = {"clients": problems.equal_clients(N), "rounds": 3, "seed": 0, "init": "given"}
    settings |= {"executor": executor, "chunk": chunk, "dtype": torch.float64, "device": "cpu"}
    history = topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9), model=model,
        topology=topologies.ring(N), saving=saving, **problems.options(**settings | changes),
        callbacks=[lambda event: kept.update(models=event.models)],
    )  # fmt: skip
    return history, kept["models"]


def buffers_of(models):
    """Return the rows of each buffer."""
    return [models.buffers[name].rows(slice(None)) for name in STATISTICS]


def loops_of_modules(model, rounds):
    """Train one network per node by torch alone, without exchange; return the networks.

    Each node has at least two whole minibatches, one per round.
    """
    clients = problems.equal_clients(N)
    batches, networks = Batches(clients.train, 0), []
    inputs = clients.dataset.examples(range(len(clients.dataset.labels)), torch.float64)
    labels = clients.dataset.labels
    for node in range(N):
        network = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for t in range(rounds):
            chosen = batches.at(t, 4, "local").indices[node]
            optimizer.zero_grad()
            functional.cross_entropy(network(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
        networks.append(network)
    return networks


def assert_equal_models(population, networks):
    for node, network in enumerate(networks):
        for name, parameter in zip(population.layout.names, population.views, strict=True):
            wanted = network.get_parameter(name).detach()
            torch.testing.assert_close(parameter[node], wanted, rtol=1e-12, atol=1e-12)
        for name, buffer in population.buffers.items():
            wanted = network.get_buffer(name)
            torch.testing.assert_close(buffer.stored[node], wanted, rtol=1e-12, atol=1e-12)


EXECUTORS = pytest.mark.parametrize(
    ("executor", "chunk"), [("looped", 1), ("batched", 1), ("batched", 4), ("batched", 6)]
)
ALONE = algorithms.local_only(lr=0.1, batch_size=4)


@EXECUTORS
def test_each_node_has_its_own_buffers(door, executor, chunk):
    door(STATISTICS)
    model = normalized()
    history, population = trained(model, executor, chunk, ALONE, rounds=2)
    networks = loops_of_modules(model, rounds=2)
    assert_equal_models(population, networks)
    clients = problems.equal_clients(N)
    inputs = clients.dataset.examples(clients.dataset.test, torch.float64)
    labels = clients.dataset.labels[torch.tensor(clients.dataset.test)]
    for node, network in enumerate(networks):
        loss = functional.cross_entropy(network.eval()(inputs), labels).item()
        assert history["loss"][-1, node] == pytest.approx(loss, rel=1e-12)
    given = normalized()
    assert all(torch.equal(model.get_buffer(name), given.get_buffer(name)) for name in STATISTICS)


def test_buffers_travel_with_whole_models_or_stay(door):
    kept = {}
    for travels in (False, True):
        door(STATISTICS, travels)
        plain = algorithms.dsgd(lr=0.1, batch_size=4)
        kept[travels] = buffers_of(trained(normalized(), rounds=1, algorithm=plain)[1])
    weights = as_tensor(metropolis_hastings(topologies.ring(N)).weights, CPU, torch.float64)
    for stayed, traveled in zip(kept[False][:2], kept[True][:2], strict=True):
        torch.testing.assert_close(traveled, weights @ stayed, rtol=1e-12, atol=1e-12)
        assert not torch.equal(traveled, stayed)
    assert torch.equal(kept[True][2], kept[False][2]), "counts are not averaged"


def test_buffers_travel_through_a_server(door):
    door(STATISTICS, travels=True)
    fedavg = algorithms.fedavg(lr=0.1, batch_size=4, epochs=1, participation=0.5)
    mean = buffers_of(trained(normalized(), rounds=2, algorithm=fedavg)[1])[0]
    assert torch.equal(mean, mean[:1].expand_as(mean))


@pytest.mark.parametrize("policy", ["raise", "freeze"])
def test_nodes_that_take_no_step_keep_their_buffers(door, policy):
    door(STATISTICS)
    found = []
    for executor, chunk in (("looped", 1), ("batched", 4)):
        algorithm = algorithms.local_only(lr=0.1, batch_size=4, epochs=1)
        how = {"clients": problems.ragged_clients(N), "on_divergence": policy}
        found.append(buffers_of(trained(normalized(), executor, chunk, algorithm, **how)[1]))
    assert found[0][2].tolist() == [3, 3, 3, 6, 9, 12]
    for looped, batched in zip(*found, strict=True):
        torch.testing.assert_close(batched, looped, rtol=1e-12, atol=1e-12)


def test_checkpoints_keep_buffers(door, tmp_path):
    door(STATISTICS)
    _, whole = trained(normalized(), rounds=4)
    trained(normalized(), rounds=2, saving=tmp_path)
    _, resumed = trained(normalized(), rounds=4, saving=topofl.Saving(tmp_path, resume=True))
    assert torch.equal(resumed.flat, whole.flat)
    assert all(map(torch.equal, buffers_of(resumed), buffers_of(whole)))


def test_buffers_are_stored_once_until_they_are_trained():
    models = initial_population(
        normalized(), 1000, init="common", seed=0, device=CPU, dtype=torch.float64,
        buffers=STATISTICS,
    )  # fmt: skip
    assert all(len(held.stored) == 1 for held in models.buffers.values())
    small = models.some(np.array([3, 900]))
    small.buffers[STATISTICS[0]].stored.add_(1)
    models.buffers[STATISTICS[0]].write(np.array([3, 900]), small.buffers[STATISTICS[0]].stored)
    held = models.buffers[STATISTICS[0]]
    assert len(held.stored) == 3
    assert held.rows(slice(900, 901)).tolist() == [[1.0] * 36]
    models.flat  # noqa: B018
    assert all(len(held.stored) == 1000 for held in models.buffers.values())


@EXECUTORS
def test_runs_with_draws_are_the_same_in_every_executor(door, executor, chunk):
    door(drawing=Masks)
    _, looped = trained(dropping(), "looped", 1)
    _, found = trained(dropping(), executor, chunk)
    torch.testing.assert_close(found.flat, looped.flat, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(trained(dropping(), executor, chunk, seed=1)[1].flat, found.flat)


def test_ranks_draw_as_one_process():
    members = problems.equal_clients(N).train
    whole = Batches(members, 0, draws=True)
    part = Batches(members[3:], 0, nodes=np.arange(3, N), draws=True)
    for phase, step in (("sgd", 0), ("sgd", 5), ("other", 5)):
        keys = whole.at(step, 4, phase).keys
        assert torch.equal(part.at(step, 4, phase).keys, keys[3:])
        assert torch.equal(whole.at(step, 4, phase).of(np.array([4, 1])).keys, keys[[4, 1]])
    assert len(torch.cat([whole.at(k, 4, p).keys for k in range(3) for p in "ab"]).unique()) == 36


@EXECUTORS
def test_frozen_parameters_are_shared_and_stay(door, executor, chunk):
    door()
    model = half_frozen()
    _, population = trained(model, executor, chunk, ALONE, rounds=2)
    assert population.layout.names == ("3.weight", "3.bias")
    assert population.d == 8 * 3 + 3
    assert_equal_models(population, loops_of_modules(model, rounds=2))
    assert torch.equal(model[1].weight, half_frozen()[1].weight)


def test_frozen_linear_layers_have_no_closed_form():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    assert is_linear(model)
    model[1].weight.requires_grad_(False)
    assert not is_linear(model)


def test_models_with_nothing_of_this_have_none_of_it():
    models = initial_population(
        problems.perceptron(), N, init="common", seed=0, device=CPU, dtype=torch.float32
    )
    assert not models.buffers
    assert len(models.views_of(slice(0, 2))) == len(models.layout.names)
    assert Batches(problems.equal_clients(N).train, 0).at(0, 4, "sgd").keys is None


def test_equal_models_with_different_buffers_are_scored_apart(door):
    """As after an exact average of parameters, without their buffers."""
    door(STATISTICS)
    clients = problems.ragged_clients(N)
    algorithm = algorithms.fedavg(lr=0.1, batch_size=4, epochs=1)
    history, models = trained(normalized(), algorithm=algorithm, clients=clients)
    assert torch.equal(models.flat, models.flat[:1].expand_as(models.flat))
    assert len(np.unique(history["loss"][-1])) == N
