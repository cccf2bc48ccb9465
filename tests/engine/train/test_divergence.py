"""Divergence: errors name the first node, and freezing contains NaN and infinity."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.engine import runs
from topofl import algorithms, attacks, mixing, topologies
from topofl.engine import plan
from topofl.engine.divergence import DivergenceMonitor
from topofl.engine.training import finite_rows

BAD = 3
"""The node whose logits overflow in its first step."""

NAMES = ("dsgd", "clique_averaging")
METHODS = {name: partial(getattr(algorithms, name), lr=0.1, batch_size=4) for name in NAMES}


def with_inputs(clients, examples, change):
    """Return clients whose dataset has other inputs for some examples."""
    inputs = clients.dataset.inputs.clone()
    inputs[examples.tolist()] = change(inputs[examples.tolist()])
    return replace(clients, dataset=replace(clients.dataset, inputs=inputs))


def too_large(inputs):
    """Return inputs that are finite, but too large to multiply."""
    return torch.full_like(inputs, 3e38)


def clients_with_extremes(n=6):
    """Return equal clients, one of which has inputs that are too large."""
    clients = problems.equal_clients(n)
    return with_inputs(clients, clients.train[BAD], too_large)


def nodes_at_start(clients, model=None):
    """Return the nodes of a naive loop, and their models (n, d)."""
    model, dataset = model or problems.linear(), clients.dataset
    start = problems.population(model, clients.n, dtype=torch.float32).flat
    modules = [copy.deepcopy(model) for _ in start]
    for module, row in zip(modules, start, strict=True):
        torch.nn.utils.vector_to_parameters(row.clone(), module.parameters())
    return naive.Nodes(modules, dataset.inputs, dataset.labels, clients.train, 4, 0), start


def run(method="dsgd", clients=None, rounds=4, **settings):
    clients = clients or clients_with_extremes()
    how = {"model": problems.linear(), "topology": problems.cliques(clients), "seed": 0, "every": 1}
    options = problems.options(**how | settings)
    return topofl.run(METHODS[method](momentum=0.9), clients=clients, rounds=rounds, **options)


def run_in_cliques(clients, graph, chunk, policy="freeze", rounds=1):
    """Return the models of a run in which nodes share gradients with their cliques only."""
    how = {"mixing": mixing.from_weights(np.eye(clients.n)), "on_disconnected": "allow"}
    how |= {"init": "independent", "executor": "batched", "chunk": chunk, "on_divergence": policy}
    return run("clique_averaging", clients, rounds, topology=graph, **how).models.flat


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_the_first_node_is_named(method, executor, model):
    with pytest.raises(
        topofl.DivergenceError,
        match=rf"loss of node {BAD} is \S+ in step \d of round 1 .*lr=0\.1; lower",
    ):
        run(method, model=model(), executor=executor)


def test_frozen_nodes_are_not_waited_for():
    clients = clients_with_extremes()
    times = [9.0 if node == BAD else 1.0 for node in range(clients.n)]
    clock = {"compute": times, "delay": 0.25}
    history = topofl.run(
        algorithms.timed(algorithms.clique_averaging(lr=0.1, batch_size=4), clock),
        clients=clients, rounds=3,
        **problems.options(
            model=problems.linear(), topology=problems.cliques(clients), seed=0, every=1,
            on_divergence="freeze",
        ),
    )  # fmt: skip
    assert np.diff(history["simulated_seconds"]).tolist() == [1 + 2 * 0.25] * 2


@pytest.mark.parametrize("method", METHODS)
def test_freezing_keeps_all_models_finite(method):
    history = run(method, on_divergence="freeze", rounds=6)
    assert history.meta["diverged"] == [{"node": BAD, "round": 1, "lr": 0.1}]
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1].mean() < 0.7 * history["loss"][0].mean(), "the others must learn"


@pytest.mark.parametrize("chunk", [1, 3, 18])
@pytest.mark.parametrize("policy", ["freeze", "record"])
@pytest.mark.parametrize("threads", [1, 3])
def test_diverged_gradients_are_zero_to_others_of_their_clique(chunk, policy, threads, monkeypatch):
    """If divergence is only recorded, it spreads within the clique, and then along edges."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    clients, graph = clients_with_extremes(18), topologies.random_cliques(18, 9, seed=0)
    torch.set_num_threads(threads)
    try:
        found = run_in_cliques(clients, graph, chunk, policy)
    finally:
        torch.set_num_threads(1)
    nodes, start = nodes_at_start(clients)
    mine = next(group for group in graph.groups if BAD in group)
    others = [i for i in mine if i != BAD]
    gradients = [nodes.gradient(j, 0) for j in others]
    mean = torch.cat([sum(parts).flatten() / len(mine) for parts in zip(*gradients, strict=True)])
    if policy == "freeze":
        wanted = start[others] - 0.1 * mean
        torch.testing.assert_close(found[others], wanted, rtol=0, atol=1e-5)
    else:  # its gradient is finite, and its loss is not
        assert (found[others].abs().amax(1) > 1e30).all()
    assert found[[i for i in range(18) if i not in mine]].abs().max() < 100


@pytest.mark.parametrize("chunk", [1, 2, 6])
def test_gradients_of_frozen_nodes_count_as_zero_even_if_finite(chunk):
    """A node diverges on its first minibatch, and has finite gradients on the second."""
    clients = problems.equal_clients()
    first = naive.minibatch(clients.train[BAD], BAD, 0, 4, "local", 0)
    clients = with_inputs(clients, np.array(first), too_large)
    graph = topologies.random_cliques(6, 3, seed=0)
    found = run_in_cliques(clients, graph, chunk, rounds=2)
    nodes, start = nodes_at_start(clients)
    mine = next(list(group) for group in graph.groups if BAD in group)
    for t in range(2):
        gradients = [nodes.gradient(j, t) for j in mine if j != BAD]
        mean = [sum(parts) / len(mine) for parts in zip(*gradients, strict=True)]
        for i in (i for i in mine if i != BAD):
            naive.descend(nodes.modules[i], nodes.velocities[i], mean, 0.1, 0.9)
    torch.testing.assert_close(found[mine], nodes.flat()[mine], rtol=0, atol=1e-5)
    assert torch.cat([g.flatten() for g in nodes.gradient(BAD, 1)]).abs().max() < 100
    assert torch.equal(found[BAD], start[BAD])


@pytest.mark.parametrize("settings", [{"executor": "batched", "chunk": 4}, {"executor": "looped"}])
def test_a_frozen_node_exchanges_but_does_not_train(settings):
    clients = clients_with_extremes()
    graph = problems.cliques(clients)
    how = {"topology": graph, "rounds": 5, "on_divergence": "freeze", "init": "independent"}
    history = run(clients=clients, **how, **settings)
    nodes, _ = nodes_at_start(clients)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    for t in range(5):
        for i, module in enumerate(nodes.modules):
            if i != BAD:
                naive.descend(module, nodes.velocities[i], nodes.gradient(i, t), 0.1, 0.9)
        naive.average(nodes.modules, weights)
    torch.testing.assert_close(history.models.flat, nodes.flat(), rtol=0, atol=1e-5)


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
    # JSON has no infinity
    wanted = np.where(np.isfinite(history["train_loss"]), history["train_loss"], np.nan)
    np.testing.assert_array_equal(restored["train_loss"], wanted)
    assert restored.meta["diverged"] == found


@pytest.mark.parametrize("method", METHODS)
def test_policies_change_nothing_where_all_is_finite(method):
    clients = problems.equal_clients()
    policies = ("raise", "freeze", "record")
    histories = [run(method, clients, on_divergence=policy) for policy in policies]
    for history in histories[1:]:
        np.testing.assert_array_equal(history["loss"], histories[0]["loss"])
    assert histories[0].meta["diverged"] == []


def test_finite_numbers_whose_sum_overflows_are_finite():
    nan, inf = float("nan"), float("inf")
    values = torch.tensor([[3e38, 3e38], [1.0, 2.0], [inf, -inf], [nan, 0.0]])
    assert finite_rows(values, values.sum(1)).tolist() == [True, True, False, False]


def test_the_earliest_step_is_first_then_the_lowest_number():
    losses = torch.zeros(4, 8)
    losses[0, 6:] = losses[3, 1:] = losses[1, 1:] = torch.nan
    bad, monitor = torch.tensor([True, True, True, True]), DivergenceMonitor("record", 4)
    assert [row.node for row in monitor.note(losses, bad, 2, 0.1)] == [1, 3, 0, 2]
    with pytest.raises(
        topofl.DivergenceError, match=r"loss of node 1 is nan in step 1 of round 3 .*3 more nodes"
    ):
        DivergenceMonitor("raise", 4).note(losses, bad, 2, 0.1)
    only = torch.tensor([False, False, True, False])
    with pytest.raises(
        topofl.DivergenceError, match=r"model of node 2 is no longer finite after step 7 of round 3"
    ):
        DivergenceMonitor("raise", 4).note(losses, only, 2, 0.1)


def gradients_of_their_own(topology):
    """Return weights under which no node receives gradients from another."""
    return mixing.from_weights(np.eye(topology.n), topology)


@pytest.mark.parametrize("gradient", [None, gradients_of_their_own])
def test_a_step_that_overflows_is_noticed_before_the_exchange(gradient):
    clients = problems.equal_clients()  # its gradient is finite, lr times it is not
    clients = with_inputs(clients, clients.train[5], lambda inputs: 1e5 * inputs)
    steps = algorithms.train(algorithms.descend(lr=1e35), batch_size=4, gradient=gradient)
    method = algorithms.chain("mine", local=steps, exchange=algorithms.gossip())
    how = {"model": problems.linear(), "topology": topologies.ring(6), "rounds": 3, "seed": 0}
    message = r"model of node 5 is no longer finite after step 0 of round 1"
    with pytest.raises(topofl.DivergenceError, match=message):
        topofl.run(method, clients=clients, **how)


def test_the_frequency_of_evaluations_does_not_affect_freezing():
    method = algorithms.dsgd(lr=1e37, batch_size=4)  # finite models whose logits overflow
    one, other = (runs.run(method, every=every, on_divergence="freeze") for every in (1, 100))
    assert torch.equal(one.models.flat, other.models.flat)
    np.testing.assert_array_equal(one["train_loss"], other["train_loss"])


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
    infinite = attacks.Attack("infinite", (1, 2), lambda sent, *rest: sent * float("inf"))
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
