"""Nodes that leave the finite numbers: the first is named, and the others do not catch it unless asked for."""

import copy

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from topofl import algorithms, data, mixing, topologies
from topofl.engine.divergence import Guard
from topofl.engine.executors import _finite_rows
from topofl.engine.population import initial_population

BAD = 3
"""The node whose logits overflow in its first step."""

METHODS = {
    "dsgd": lambda **options: algorithms.dsgd(lr=0.1, batch_size=4, **options),
    "clique_averaging": lambda **options: algorithms.clique_averaging(lr=0.1, batch_size=4, **options),
}


def clients_with_extremes():
    """Return equal clients, one of which has inputs that are finite, but too large to multiply."""
    clients = problems.equal_clients()
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor(clients.train[BAD])] = 3e38
    blobs = clients.dataset
    extreme = data.Dataset(inputs, blobs.labels, 3, "extreme", blobs.train, blobs.val, blobs.test)
    return data.Partition(extreme, clients.train, clients.val, clients.test, name="extreme")


def run(method="dsgd", clients=None, rounds=4, **settings):
    clients = clients or clients_with_extremes()
    settings = {"model": problems.linear(), "topology": problems.cliques(clients), "seed": 0} | settings
    return topofl.run(METHODS[method](momentum=0.9), clients=clients, rounds=rounds, eval_every=1, **settings)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_the_first_node_is_named(method, executor, model):
    with pytest.raises(topofl.DivergenceError, match=rf"loss of node {BAD} is \S+ in round 0 .*lr=0\.1; lower"):
        run(method, model=model(), executor=executor)


@pytest.mark.parametrize("method", METHODS)
def test_freezing_keeps_all_models_finite(method):
    history = run(method, on_divergence="freeze", rounds=6)
    assert history.meta["diverged"] == [{"node": BAD, "round": 0, "lr": 0.1}]
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1].mean() < 0.7 * history["loss"][0].mean(), "the others did not go on learning"


@pytest.mark.parametrize("settings", [{"executor": "batched", "chunk": 4}, {"executor": "looped"}])
def test_a_frozen_node_exchanges_but_does_not_train(settings):
    clients, model, kept = clients_with_extremes(), problems.linear(), []
    graph = problems.cliques(clients)
    run(clients=clients, model=model, topology=graph, rounds=5, on_divergence="freeze", init="independent",
        on_round=lambda t, models: kept.append(models.flat.clone()), **settings)  # fmt: skip
    start = initial_population(model, 6, init="independent", seed=0, device=torch.device("cpu"), dtype=torch.float32)
    modules = [copy.deepcopy(model) for _ in range(6)]
    for module, row in zip(modules, start.flat, strict=True):
        torch.nn.utils.vector_to_parameters(row.clone(), module.parameters())
    blobs = clients.dataset
    nodes = naive.Nodes(modules, blobs.inputs, blobs.labels, clients.train, 4, 0)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    for t in range(5):
        for i, module in enumerate(modules):
            if i != BAD:
                naive.descend(module, nodes.velocities[i], nodes.gradient(i, t), 0.1, 0.9)
        naive.average(modules, weights)
    torch.testing.assert_close(kept[-1], nodes.flat(), rtol=0, atol=1e-5)


def test_recording_goes_on_and_the_history_stays_readable(tmp_path):
    history = run(on_divergence="record", topology=topologies.ring(6), rounds=4)
    found = history.meta["diverged"]
    assert found[0] == {"node": BAD, "round": 0, "lr": 0.1}
    assert len(found) == len({row["node"] for row in found}) > 1, "it spreads, and every node is named once"
    assert [row["round"] for row in found] == sorted(row["round"] for row in found)
    history.save(tmp_path / "run")
    again = topofl.History.load(tmp_path / "run")
    np.testing.assert_array_equal(again["loss"], history["loss"])
    np.testing.assert_array_equal(again["train_loss"], history["train_loss"])
    assert again.meta["diverged"] == found


@pytest.mark.parametrize("method", METHODS)
def test_policies_change_nothing_where_all_is_finite(method):
    clients = problems.equal_clients()
    histories = [run(method, clients, on_divergence=policy) for policy in ("raise", "freeze", "record")]
    for history in histories[1:]:
        np.testing.assert_array_equal(history["loss"], histories[0]["loss"])
    assert "diverged" not in histories[0].meta


def test_finite_numbers_whose_sum_overflows_are_finite():
    values = torch.tensor([[3e38, 3e38], [1.0, 2.0], [float("inf"), float("-inf")], [float("nan"), 0.0]])
    assert _finite_rows(values, values.sum(1)).tolist() == [True, True, False, False]


def test_what_was_found_survives_a_checkpoint():
    guard, again = Guard("freeze", 5), Guard("freeze", 5)
    bad = torch.tensor([False, True, False, True, False])
    guard.note(bad, 7, 0.5, "reason")
    guard.note(torch.ones(5, dtype=torch.bool), 9, None, "reason")
    again.restore(guard.state())
    assert [tuple(map(repr, row)) for row in again.found] == [tuple(map(repr, row)) for row in guard.found]
    assert again.frozen(torch.device("cpu")).all()
    assert [row.node for row in again.found] == [1, 3, 0, 2, 4]
