"""Divergence: errors name the first node, and freezing contains NaN and infinity."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from topofl import algorithms, attacks, data, mixing, topologies
from topofl.engine import plan
from topofl.engine.divergence import DivergenceMonitor
from topofl.engine.population import initial_population
from topofl.engine.training import finite_rows

BAD = 3
"""The node whose logits overflow in its first step."""

METHODS = {
    "dsgd": lambda **options: algorithms.dsgd(lr=0.1, batch_size=4, **options),
    "clique_averaging": lambda **options: algorithms.clique_averaging(
        lr=0.1, batch_size=4, **options
    ),
}


def clients_with_extremes():
    """Return equal clients, one of which has inputs that are finite, but too large to multiply."""
    clients = problems.equal_clients()
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor(clients.train[BAD])] = 3e38
    blobs = clients.dataset
    extreme = data.Dataset(inputs, blobs.labels, 3, "extreme", blobs.train, blobs.val, blobs.test)
    return data.Partition(extreme, clients.train, clients.val, clients.test, name="extreme")


def models_at_start(model, n):
    start = initial_population(
        model, n, init="independent", seed=0, device=torch.device("cpu"), dtype=torch.float32
    )
    modules = [copy.deepcopy(model) for _ in range(n)]
    for module, row in zip(modules, start.flat, strict=True):
        torch.nn.utils.vector_to_parameters(row.clone(), module.parameters())
    return start.flat, modules


def run(method="dsgd", clients=None, rounds=4, **settings):
    clients = clients or clients_with_extremes()
    settings = {
        "model": problems.linear(),
        "topology": problems.cliques(clients),
        "seed": 0,
    } | settings
    return topofl.run(
        METHODS[method](momentum=0.9),
        clients=clients,
        rounds=rounds,
        **problems.options(every=1, **settings),
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_the_first_node_is_named(method, executor, model):
    with pytest.raises(
        topofl.DivergenceError,
        match=rf"loss of node {BAD} is \S+ in step \d of round 1 .*lr=0\.1; lower",
    ):
        run(method, model=model(), executor=executor)


@pytest.mark.parametrize("method", METHODS)
def test_freezing_keeps_all_models_finite(method):
    history = run(method, on_divergence="freeze", rounds=6)
    assert history.meta["diverged"] == [{"node": BAD, "round": 1, "lr": 0.1}]
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1].mean() < 0.7 * history["loss"][0].mean(), (
        "the others must continue to learn"
    )


@pytest.mark.parametrize("chunk", [1, 3, 18])
@pytest.mark.parametrize("policy", ["freeze", "record"])
@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_that_diverged_are_zero_for_others_in_their_clique(
    chunk, policy, threads, monkeypatch
):
    """If divergence is only recorded, it spreads within the clique, and then along edges."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    blobs = problems.equal_clients(18)
    inputs = blobs.dataset.inputs.clone()
    inputs[torch.tensor(blobs.train[BAD])] = 3e38
    dataset = replace(blobs.dataset, inputs=inputs)
    clients = replace(blobs, dataset=dataset)
    graph = topologies.random_cliques(18, 9, seed=0)
    mine = next(group for group in graph.groups if BAD in group)
    kept = []
    torch.set_num_threads(threads)
    try:
        run(
            "clique_averaging",
            clients,
            rounds=1,
            topology=graph,
            on_divergence=policy,
            on_disconnected="allow",
            mixing=mixing.from_weights(np.eye(18)),
            init="independent",
            executor="batched",
            chunk=chunk,
            callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        )
    finally:
        torch.set_num_threads(1)
    start, modules = models_at_start(problems.linear(), 18)
    nodes = naive.Nodes(modules, inputs, dataset.labels, clients.train, 4, 0)
    gradients = {j: nodes.gradient(j, 0) for j in mine if j != BAD}
    for i in (i for i in mine if i != BAD):
        mean = torch.cat(
            [sum(parts).flatten() / len(mine) for parts in zip(*gradients.values(), strict=True)]
        )
        wanted = start[i] - 0.1 * mean
        if policy == "freeze":
            torch.testing.assert_close(kept[0][i], wanted, rtol=0, atol=1e-5)
        else:
            assert kept[0][i].abs().max() > 1e30  # its gradient is finite, and its loss is not
    others = [i for i in range(18) if i not in mine]
    assert kept[0][others].abs().max() < 100


@pytest.mark.parametrize("chunk", [1, 2, 6])
def test_gradients_of_frozen_nodes_count_as_zero_even_if_finite(chunk):
    """A node diverges on its first minibatch, and has finite gradients on the second."""
    clients = problems.equal_clients(6)
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor(naive.minibatch(clients.train[BAD], BAD, 0, 4, "local", 0))] = 3e38
    clients = replace(clients, dataset=replace(clients.dataset, inputs=inputs))
    graph, kept = topologies.random_cliques(6, 3, seed=0), []
    run(
        "clique_averaging", clients, rounds=2, topology=graph, on_divergence="freeze",
        on_disconnected="allow", mixing=mixing.from_weights(np.eye(6)), init="independent",
        executor="batched", chunk=chunk,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    )  # fmt: skip
    start, modules = models_at_start(problems.linear(), 6)
    nodes = naive.Nodes(modules, inputs, clients.dataset.labels, clients.train, 4, 0)
    mine = next(list(group) for group in graph.groups if BAD in group)
    for t in range(2):
        gradients = [nodes.gradient(j, t) for j in mine if j != BAD]
        mean = [sum(parts) / len(mine) for parts in zip(*gradients, strict=True)]
        for i in (i for i in mine if i != BAD):
            naive.descend(modules[i], nodes.velocities[i], mean, 0.1, 0.9)
    torch.testing.assert_close(kept[-1][mine], nodes.flat()[mine], rtol=0, atol=1e-5)
    assert torch.cat([g.flatten() for g in nodes.gradient(BAD, 1)]).abs().max() < 100
    assert torch.equal(kept[-1][BAD], start[BAD])


@pytest.mark.parametrize("settings", [{"executor": "batched", "chunk": 4}, {"executor": "looped"}])
def test_a_frozen_node_exchanges_but_does_not_train(settings):
    clients, model, kept = clients_with_extremes(), problems.linear(), []
    graph = problems.cliques(clients)
    run(
        clients=clients,
        model=model,
        topology=graph,
        rounds=5,
        on_divergence="freeze",
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **settings,
    )
    _, modules = models_at_start(model, 6)
    blobs = clients.dataset
    nodes = naive.Nodes(modules, blobs.inputs, blobs.labels, clients.train, 4, 0)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    for t in range(5):
        for i, module in enumerate(modules):
            if i != BAD:
                naive.descend(module, nodes.velocities[i], nodes.gradient(i, t), 0.1, 0.9)
        naive.average(modules, weights)
    torch.testing.assert_close(kept[-1], nodes.flat(), rtol=0, atol=1e-5)


def test_recorded_divergence_does_not_stop_the_run_or_damage_its_history(tmp_path):
    history = run(on_divergence="record", topology=topologies.ring(6), rounds=4)
    found = history.meta["diverged"]
    assert found[0] == {"node": BAD, "round": 1, "lr": 0.1}
    assert len(found) == len({row["node"] for row in found}) > 1, (
        "divergence spreads, and every node is recorded once"
    )
    assert [row["round"] for row in found] == sorted(row["round"] for row in found)
    history.save(tmp_path / "run")
    restored = topofl.History.load(tmp_path / "run")
    np.testing.assert_array_equal(restored["loss"], history["loss"])
    wanted = np.where(
        np.isfinite(history["train_loss"]), history["train_loss"], np.nan
    )  # JSON has no infinity
    np.testing.assert_array_equal(restored["train_loss"], wanted)
    assert restored.meta["diverged"] == found


@pytest.mark.parametrize("method", METHODS)
def test_policies_change_nothing_where_all_is_finite(method):
    clients = problems.equal_clients()
    histories = [
        run(method, clients, on_divergence=policy) for policy in ("raise", "freeze", "record")
    ]
    for history in histories[1:]:
        np.testing.assert_array_equal(history["loss"], histories[0]["loss"])
    assert histories[0].meta["diverged"] == []


def test_finite_numbers_whose_sum_overflows_are_finite():
    values = torch.tensor(
        [[3e38, 3e38], [1.0, 2.0], [float("inf"), float("-inf")], [float("nan"), 0.0]]
    )
    assert finite_rows(values, values.sum(1)).tolist() == [True, True, False, False]


def test_the_record_survives_a_checkpoint():
    monitor, restored = DivergenceMonitor("freeze", 5), DivergenceMonitor("freeze", 5)
    monitor.note(torch.zeros(5, 1), torch.tensor([False, True, False, True, False]), 7, 0.5)
    monitor.note(torch.zeros(5, 1), torch.ones(5, dtype=torch.bool), 9, 0.25)
    restored.restore(monitor.state())
    assert restored.found == monitor.found
    assert restored.frozen(torch.device("cpu")).all()
    assert [row.node for row in restored.found] == [1, 3, 0, 2, 4]


def test_the_earliest_step_is_first_then_the_lowest_number():
    losses = torch.zeros(4, 8)
    losses[0, 6:] = losses[3, 1:] = losses[1, 1:] = torch.nan
    bad, monitor = torch.tensor([True, True, True, True]), DivergenceMonitor("record", 4)
    assert [row.node for row in monitor.note(losses, bad, 2, 0.1)] == [1, 3, 0, 2]
    with pytest.raises(
        topofl.DivergenceError,
        match=r"loss of node 1 is nan in step 1 of round 3 .*3 more nodes",
    ):
        DivergenceMonitor("raise", 4).note(losses, bad, 2, 0.1)
    only = torch.tensor([False, False, True, False])
    with pytest.raises(
        topofl.DivergenceError,
        match=r"model of node 2 is no longer finite after step 7 of round 3",
    ):
        DivergenceMonitor("raise", 4).note(losses, only, 2, 0.1)


def gradients_of_their_own(topology):
    """Return weights under which no node receives gradients from another."""
    return mixing.from_weights(np.eye(topology.n), topology)


def gradients_of_all(topology):
    return mixing.from_weights(
        np.full((topology.n, topology.n), 1 / topology.n), topologies.fully_connected(topology.n)
    )


@pytest.mark.parametrize("gradient", [None, gradients_of_their_own])
def test_a_step_that_overflows_is_noticed_before_the_exchange(gradient):
    clients = problems.equal_clients()
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor(clients.train[5])] *= 1e5  # its gradient is finite, lr times it is not
    blobs = clients.dataset
    large = data.Dataset(inputs, blobs.labels, 3, "large", blobs.train, blobs.val, blobs.test)
    clients = data.Partition(large, clients.train, clients.val, clients.test, name="large")
    method = algorithms.chain(
        "mine",
        local=algorithms.train(algorithms.descend(lr=1e35), batch_size=4, gradient=gradient),
        exchange=algorithms.gossip(),
    )
    with pytest.raises(
        topofl.DivergenceError,
        match=r"model of node 5 is no longer finite after step 0 of round 1",
    ):
        topofl.run(
            method,
            model=problems.linear(),
            clients=clients,
            topology=topologies.ring(6),
            rounds=3,
            seed=0,
        )


def test_gradients_that_are_not_finite_spread_if_that_is_recorded():
    clients = clients_with_extremes()
    method = algorithms.chain(
        "mine",
        local=algorithms.train(algorithms.descend(lr=0.1), batch_size=4, gradient=gradients_of_all),
    )
    settings = {
        "model": problems.linear(),
        "clients": clients,
        "topology": topologies.fully_connected(6),
        "seed": 0,
    }
    history = topofl.run(method, rounds=2, **problems.options(on_divergence="record", **settings))
    assert len(history.meta["diverged"]) == 6
    history = topofl.run(method, rounds=2, **problems.options(on_divergence="freeze", **settings))
    assert len(history.meta["diverged"]) == 1


def test_the_frequency_of_evaluations_does_not_affect_freezing():
    clients, kept = problems.equal_clients(), []
    for every in (1, 100):
        method = algorithms.dsgd(lr=1e37, batch_size=4)  # finite models whose logits overflow
        settings = {
            "model": problems.linear(),
            "clients": clients,
            "topology": topologies.ring(6),
            "rounds": 3,
        }
        topofl.run(
            method, seed=0, **problems.options(every=every, on_divergence="freeze", **settings),
            callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        )  # fmt: skip
    for one, other in zip(kept[:3], kept[3:], strict=True):
        assert torch.equal(one, other)


def test_frozen_nodes_are_left_out_of_loss_and_diversity():
    history = run(on_divergence="freeze", rounds=4)
    assert np.isfinite(history["train_loss"][1:]).all(), "all but the round in which it diverged"
    assert np.isnan(history.node_loss[1:, BAD]).all()
    assert np.isfinite(history["gradient_diversity"][2:]).all()


@pytest.mark.parametrize("policy", ["raise", "freeze"])
def test_divergence_is_an_event(policy):
    events = []
    raised = pytest.raises(topofl.DivergenceError) if policy == "raise" else nullcontext()
    with raised as error:
        run(on_divergence=policy, callbacks=[events.append], rounds=2)
    if policy == "raise":
        assert [diverged.node for diverged in error.value.found] == [BAD]
    found = [event for event in events if event.kind == "divergence"]
    assert [(event.round, event.values["node"], event.values["policy"]) for event in found] == [
        (1, BAD, policy)
    ]


def test_attackers_are_named_as_a_cause():
    """Infinite messages make the losses of all receivers infinite, whatever the learning rate."""
    clients = problems.equal_clients()
    infinite = attacks.Attack(
        "infinite", (1, 2), lambda sent, bad, weights, rng: sent * float("inf")
    )
    message = (
        r"with lr=0\.1; messages from 2 attackers \(infinite\) may be the cause: "
        r"use fewer attackers or a more robust aggregation rule; or lower the learning rate"
    )
    with pytest.raises(topofl.DivergenceError, match=message):
        run(clients=clients, attackers=infinite)
    with pytest.raises(
        topofl.DivergenceError, match=r"after round 1 with lr=0\.1; messages from 2 attackers"
    ):
        run(clients=clients, attackers=infinite, rounds=1)
    with pytest.raises(topofl.DivergenceError, match=r"with lr=0\.1; lower the learning rate"):
        run()
