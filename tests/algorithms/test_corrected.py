"""Gradient tracking and SCAFFOLD equal naive loops in float64.

They also find the optimum of the mean loss.
"""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.convergence import RATES, WHOLE, distances, watched
from tests.algorithms.harness import (
    BATCH,
    EXECUTORS,
    MAKES,
    ROUNDS,
    N,
    check,
    engine,
    members,
    nodes_at_start,
)
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, mixing, topologies

PAIRS = problems.paired(settings=EXECUTORS, make=MAKES, lr=RATES)


@PAIRS
def test_dsgt_equals_naive_loop(lr, make, settings):
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dsgt(nodes, mixing.metropolis_hastings(graph).weights.toarray(), ROUNDS, lr=lr)
    _, models = engine(algorithms.dsgt(lr, batch_size=BATCH), model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)


@PAIRS
def test_scaffold_equals_naive_loop(lr, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.scaffold(nodes, members, ROUNDS, lr=lr, epochs=2)
    algorithm = algorithms.scaffold(lr, batch_size=BATCH, epochs=2, participation=0.5)
    _, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential"])
def test_what_is_tracked_has_the_mean_of_the_gradients(name):
    """One-peer graphs have doubly stochastic matrices that are not symmetric."""
    clients, seen = problems.ragged_clients(), []
    algorithm = watched(algorithms.dsgt(0.1, batch_size=BATCH), seen)
    engine(algorithm, problems.convolutional(), clients, getattr(topologies, name)(N))
    assert len(seen) == ROUNDS
    for state in seen:
        torch.testing.assert_close(
            state["tracked"].mean(0), state["gradient"].mean(0), rtol=0, atol=1e-12
        )
        assert not torch.allclose(state["tracked"], state["gradient"], atol=1e-4), (
            "nothing was mixed"
        )


def test_controls_have_the_mean_that_corrects():
    clients, seen = problems.ragged_clients(), []
    algorithm = watched(
        algorithms.scaffold(0.1, batch_size=BATCH, epochs=2, participation=0.5), seen
    )
    engine(algorithm, problems.convolutional(), clients)
    assert len(seen) == ROUNDS
    kept = torch.zeros_like(seen[0]["control"])
    for t, state in enumerate(seen):
        common = state["control"].mean(0)
        torch.testing.assert_close(
            common - state["control"], state["correction"], rtol=0, atol=1e-12
        )
        moved = ((state["control"] - kept).abs().sum(1) > 0).nonzero().flatten().tolist()
        assert moved == members(t), "controls of others changed, or those of members did not"
        kept = state["control"]


def test_after_one_step_a_control_is_the_gradient_at_the_start():
    clients = problems.equal_clients()
    seen = []
    found = []

    def note(models, state, round):
        gradients = round.gradients(models, WHOLE, "there").clone()
        found.extend([] if models.flat.is_meta else [gradients])
        return state

    scaffold = watched(algorithms.scaffold(0.1, batch_size=WHOLE, epochs=1), seen)
    first = algorithms.Phase(lambda models: {}, note)
    engine(
        algorithms.chain("noted", first=first, **scaffold.phases), problems.convolutional(), clients
    )
    for state, gradients in zip(seen, found, strict=True):
        torch.testing.assert_close(state["control"], gradients, rtol=0, atol=1e-10)


def test_the_control_of_a_frozen_node_stays():
    """It takes no steps, whose mean gradient the control would be."""
    seen, clients = [], clients_with_extremes()
    scaffold = watched(algorithms.scaffold(0.1, batch_size=BATCH, epochs=1), seen)
    topofl.run(
        scaffold, model=problems.linear(), clients=clients, rounds=4, seed=0,
        compute=topofl.Compute(on_divergence="freeze"),
    )  # fmt: skip
    assert len(seen) == 4
    for state in seen:
        assert not state["control"][BAD].any()
        assert state["control"].any(1).sum() == N - 1


def test_tracking_is_dsgd_on_the_complete_graph():
    """All models are then equal, and trackers average to the mean gradient, on minibatches too."""
    clients = problems.ragged_clients()
    model = problems.convolutional()
    graph = topologies.fully_connected(N)
    (_, tracked), (_, plain) = (
        engine(one(0.1, batch_size=BATCH), model, clients, graph)
        for one in (algorithms.dsgt, algorithms.dsgd)
    )
    torch.testing.assert_close(tracked.flat, plain.flat, rtol=0, atol=1e-10)


def test_with_one_step_of_all_nodes_scaffold_is_descent_on_the_mean_loss():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    _, models = engine(algorithms.scaffold(0.1, batch_size=WHOLE, epochs=1), model, clients)
    plain = algorithms.dsgd(0.1, batch_size=WHOLE)
    _, mean = engine(plain, model, clients, topologies.fully_connected(N))
    torch.testing.assert_close(models.flat, mean.flat, rtol=0, atol=1e-10)


def test_tracking_reaches_the_optimum_of_the_mean_loss_and_dsgd_does_not():
    ring = topologies.ring(6)
    assert distances(algorithms.dsgt(0.1, batch_size=WHOLE), 200, topology=ring).max() < 1e-9
    assert distances(algorithms.dsgd(0.1, batch_size=WHOLE), 200, topology=ring).min() > 1e-3


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.slow
def test_scaffold_reaches_the_optimum_of_the_mean_loss_and_fedavg_does_not(participation):
    whole = {"batch_size": WHOLE, "epochs": 5, "participation": participation}
    assert distances(algorithms.scaffold(0.05, **whole), 150).max() < 1e-9
    assert distances(algorithms.fedavg(0.05, momentum=0.0, **whole), 150).min() > 1e-3


@pytest.mark.parametrize(
    ("corrected", "plain"),
    [
        (algorithms.dsgt(0.1), algorithms.dsgd(0.1)),
        (algorithms.scaffold(0.1, participation=0.5), algorithms.fedavg(0.1, participation=0.5)),
    ],
    ids=["dsgt", "scaffold"],
)
def test_a_message_holds_two_numbers_per_parameter(corrected, plain):
    clients = problems.equal_clients()
    model = problems.linear()
    graph = problems.cliques(clients) if corrected.name == "dsgt" else None
    (one, _), (other, _) = (
        engine(algorithm, model, clients, graph) for algorithm in (corrected, plain)
    )
    np.testing.assert_array_equal(one["messages"], other["messages"])
    np.testing.assert_array_equal(one["bytes"], 2 * other["bytes"])


def test_nodes_that_take_no_step_keep_their_controls():
    """A schedule may end at 0."""
    seen = []
    rate = lambda t, k: 0.1 * (t == 0)  # noqa: E731
    algorithm = watched(algorithms.scaffold(rate, batch_size=BATCH, epochs=1), seen)
    engine(algorithm, problems.linear(), problems.equal_clients())
    assert torch.isfinite(seen[-1]["control"]).all()
    torch.testing.assert_close(seen[-1]["control"], seen[0]["control"], rtol=0, atol=0)
    assert seen[0]["control"].abs().max() > 0.01


def test_before_the_exchange_models_differ_and_after_it_they_are_the_servers():
    clients = problems.equal_clients()
    history, _ = engine(
        algorithms.scaffold(0.1, batch_size=BATCH), problems.linear(), clients, before_exchange=True
    )
    assert np.ptp(history["loss_before_exchange"][-1]) > 0
    assert np.ptp(history["loss"][-1]) < 1e-9


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: algorithms.dsgt("0.1"), TypeError, "`lr`"),
        (lambda: algorithms.dsgt(0.1, batch_size=0.5), TypeError, "`batch_size`"),
        (lambda: algorithms.scaffold(0.1, epochs=0), ValueError, "`epochs`"),
        (lambda: algorithms.scaffold(0.1, participation=0.0), ValueError, "`participation`"),
    ],
    ids=["text", "half an example", "no pass", "nobody"],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_settings_hold_the_arguments():
    assert algorithms.dsgt(0.1).settings == {
        "local": {"lr": 0.1, "tracking": True, "batch_size": 128, "steps": 1},
        "exchange": {"weights": "round"},
    }
    assert algorithms.scaffold(0.1, participation=3).settings == {
        "local": {
            "lr": 0.1,
            "correction": "correction",
            "batch_size": 128,
            "epochs": 5,
            "participation": "3 nodes",
        },
        "server": {"weights": "equal", "participation": "3 nodes"},
    }
