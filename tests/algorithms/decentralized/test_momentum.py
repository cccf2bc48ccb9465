"""Methods of momentum, sharpness and adaptive steps equal naive loops in float64.

They also keep what they promise.
"""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.convergence import WHOLE, distances, watched
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, N, check, engine, nodes_at_start
from topofl import algorithms, mixing, topologies

CONSTANT = algorithms.constant(0.1)
FALLING = lambda t, k: 0.1 / (1 + t + k)  # noqa: E731


def weights_of(graph):
    return mixing.metropolis_hastings(graph).weights.toarray()


def compare(algorithm, twin, make, settings):
    """Raise unless an algorithm ends where its twin does, called with nodes and weights."""
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    twin(nodes, weights_of(graph))
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)


@HOW
@CLIENTS
@pytest.mark.parametrize(
    ("lr", "how"),
    [
        (CONSTANT, {"momentum": 0.9, "global_momentum": 0.9}),
        (
            FALLING,
            {"momentum": 0.8, "global_momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
        ),
    ],
    ids=["heavy ball", "nesterov"],
)
def test_qg_dsgdm_equals_naive_loop(lr, how, make, settings):
    algorithm = algorithms.qg_dsgdm(lr, batch_size=BATCH, **how)
    compare(
        algorithm, lambda nodes, w: naive.qg_dsgdm(nodes, w, ROUNDS, lr=lr, **how), make, settings
    )


@HOW
@CLIENTS
@pytest.mark.parametrize(
    "how",
    [
        {"radius": 0.05, "momentum": 0.9},
        {"radius": 0.5, "gossip_steps": 3, "weight_decay": 0.01, "clip": 0.5, "lr_decay": 0.8},
    ],
    ids=["once", "three times"],
)
def test_dfedsam_equals_naive_loop(how, make, settings):
    algorithm = algorithms.dfedsam(0.1, batch_size=BATCH, epochs=2, **how)
    compare(
        algorithm,
        lambda nodes, w: naive.dfedsam(nodes, w, ROUNDS, lr=0.1, epochs=2, **how),
        make,
        settings,
    )


@HOW
@CLIENTS
@pytest.mark.parametrize("track", [False, True])
@pytest.mark.parametrize(
    ("lr", "how"),
    [
        (CONSTANT, {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}),
        (FALLING, {"local_steps": 3, "decay": 0.1, "eps": 1e-2}),
    ],
    ids=["one step", "three steps"],
)
def test_dadam_equals_naive_loop(lr, how, track, make, settings):
    twin = naive.damsgrad if track else naive.dadam
    algorithm = algorithms.dadam(lr, batch_size=BATCH, track=track, **how)
    compare(algorithm, lambda nodes, w: twin(nodes, w, ROUNDS, lr=lr, **how), make, settings)


def test_qg_dsgdm_without_momentum_is_dsgd():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    quasi = algorithms.qg_dsgdm(0.1, batch_size=BATCH, momentum=0.0)
    plain = algorithms.dsgd(0.1, batch_size=BATCH)
    (_, one), (_, other) = (
        engine(algorithm, model, clients, graph) for algorithm in (quasi, plain)
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential"])
def test_the_mean_of_the_momenta_is_that_of_the_mean_gradients(name):
    """Averaging keeps the mean of models: the means obey d <- mu d + (1 - mu) (beta d + g)."""
    seen, gradients, beta, mu = [], [], 0.8, 0.6

    def note(models, state, round):
        gradients.extend(
            [] if models.flat.is_meta else [round.gradients(models, WHOLE, "there").mean(0)]
        )
        if models.flat.is_meta:
            round.gradients(models, WHOLE, "there")
        return state

    quasi = watched(
        algorithms.qg_dsgdm(0.1, batch_size=WHOLE, momentum=beta, global_momentum=mu), seen
    )
    first = algorithms.Phase(lambda models: {}, note)
    algorithm = algorithms.chain("noted", first=first, **quasi.phases)
    engine(
        algorithm, problems.convolutional(), problems.ragged_clients(), getattr(topologies, name)(N)
    )
    wanted = torch.zeros_like(gradients[0])
    for state, gradient in zip(seen, gradients, strict=True):
        wanted = mu * wanted + (1 - mu) * (beta * wanted + gradient)
        torch.testing.assert_close(state["momentum"].mean(0), wanted, rtol=0, atol=1e-12)
        assert not torch.allclose(state["momentum"], wanted.expand_as(state["momentum"]), atol=1e-4)


def test_a_rate_of_zero_leaves_the_momentum_as_it_is():
    seen = []
    algorithm = watched(algorithms.qg_dsgdm(lambda t, k: 0.1 * (t == 0), batch_size=BATCH), seen)
    clients = problems.equal_clients()
    engine(algorithm, problems.linear(), clients, problems.cliques(clients))
    torch.testing.assert_close(seen[-1]["momentum"], seen[0]["momentum"], rtol=0, atol=0)
    assert seen[0]["momentum"].abs().max() > 0.01


def test_a_short_ascent_is_almost_none():
    """DFedSAM tends to DFedAvgM where its radius tends to 0, linearly."""
    clients, model = problems.ragged_clients(), problems.linear()  # which has no kinks
    graph, how = problems.cliques(clients), {"batch_size": BATCH, "epochs": 2, "momentum": 0.5}
    _, plain = engine(algorithms.dfedavgm(0.1, **how), model, clients, graph)
    gaps = []
    for radius in (1e-4, 1e-6):
        _, sharp = engine(algorithms.dfedsam(0.1, radius=radius, **how), model, clients, graph)
        gaps.append(float((sharp.flat - plain.flat).abs().max()))
    assert gaps[1] == pytest.approx(gaps[0] / 100, rel=0.1)


def test_several_exchanges_are_one_by_the_power_of_the_matrix():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    graph, how = problems.cliques(clients), {"batch_size": BATCH, "epochs": 1}
    power = mixing.from_weights(np.linalg.matrix_power(weights_of(graph), 3))
    several, _ = engine(algorithms.dfedsam(0.1, gossip_steps=3, **how), model, clients, graph)
    _, models = engine(algorithms.dfedsam(0.1, gossip_steps=3, **how), model, clients, graph)
    once, _ = engine(algorithms.dfedsam(0.1, **how), model, clients, graph)
    complete = topologies.fully_connected(N)
    rule = lambda graph: power  # noqa: E731
    _, others = engine(algorithms.dfedsam(0.1, **how), model, clients, complete, mixing=rule)
    torch.testing.assert_close(models.flat, others.flat, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(several["messages"], 3 * once["messages"])
    np.testing.assert_array_equal(several["bytes"], 3 * once["bytes"])


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential"])
def test_scales_keep_the_mean_of_what_they_track(name):
    seen = []
    algorithm = watched(algorithms.dadam(0.01, batch_size=BATCH, local_steps=2, track=True), seen)
    engine(
        algorithm, problems.convolutional(), problems.ragged_clients(), getattr(topologies, name)(N)
    )
    assert len(seen) == ROUNDS
    for state in seen:
        torch.testing.assert_close(
            state["scale"].mean(0), state["largest"].mean(0), rtol=0, atol=1e-12
        )
        assert not torch.allclose(state["scale"], state["largest"], atol=1e-6), "nothing was mixed"


@pytest.mark.parametrize("lr", [0.05, 0.01])
def test_nodes_that_agree_on_scales_reach_the_optimum_and_others_do_not(lr):
    """Otherwise each node weighs gradients by their inverse size, however small the steps."""

    def run(**how):
        falling = algorithms.cosine(lr, rounds=600)
        return distances(
            algorithms.dadam(falling, batch_size=WHOLE, **how), 600, topology=topologies.ring(6)
        )

    assert run(track=True).max() < 0.01
    assert run().min() > 0.5


def test_nodes_agree_on_scales_by_doubly_stochastic_weights_only():
    clients = problems.equal_clients()
    model = problems.linear()
    star = topologies.star(N)
    engine(algorithms.dadam(0.01), model, clients, star, mixing=mixing.uniform)
    with pytest.raises(topofl.TopologyError, match="doubly stochastic"):
        engine(algorithms.dadam(0.01, track=True), model, clients, star, mixing=mixing.uniform)


@pytest.mark.parametrize(
    ("algorithm", "models"),
    [
        (algorithms.qg_dsgdm(0.1), 1),
        (algorithms.dfedsam(0.1, epochs=1), 1),
        (algorithms.dfedsam(0.1, epochs=1, gossip_steps=4), 4),
        (algorithms.dadam(0.1, decay=0.1), 1),
        (algorithms.dadam(0.1, track=True), 2),
    ],
    ids=["qg_dsgdm", "dfedsam", "dfedsam-mgs", "dadam", "tracked"],
)
def test_models_sent_per_edge(algorithm, models):
    clients = problems.equal_clients()
    model = problems.linear()
    graph = problems.cliques(clients)
    parameters = sum(p.numel() for p in model.parameters())
    history, _ = engine(algorithm, model, clients, graph)
    assert (history["bytes"] == 2 * graph.n_edges * models * parameters * 8).all()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: algorithms.qg_dsgdm("0.1"), TypeError, "`lr`"),
        (lambda: algorithms.qg_dsgdm(0.1, global_momentum=1.0), ValueError, "`global_momentum`"),
        (lambda: algorithms.qg_dsgdm(0.1, nesterov=1), ValueError, "`nesterov`"),
        (lambda: algorithms.qg_dsgdm(0.1, weight_decay=-1), ValueError, "`weight_decay`"),
        (lambda: algorithms.dfedsam(0.1, radius=0.0), ValueError, "`radius`"),
        (lambda: algorithms.dfedsam(0.1, gossip_steps=0), ValueError, "`gossip_steps`"),
        (lambda: algorithms.dadam(0.1, beta1=1.0), ValueError, "`beta1`"),
        (lambda: algorithms.dadam(0.1, beta2=-0.1, track=True), ValueError, "`beta2`"),
        (lambda: algorithms.dadam(0.1, eps=0.0), ValueError, "`eps`"),
        (lambda: algorithms.dadam(0.1, decay=-0.1), ValueError, "`decay`"),
        (lambda: algorithms.dadam(0.1, track="auto"), ValueError, "`track`"),
        (lambda: algorithms.dadam(0.1, local_steps=0), ValueError, "`local_steps`"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_settings_hold_the_arguments():
    assert algorithms.qg_dsgdm(0.1, momentum=0.8, nesterov=True).settings == {
        "local": {"lr": 0.1, "momentum": 0.8, "nesterov": True, "batch_size": 128, "steps": 1},
        "exchange": {"weights": "round"},
        "follow": {"global_momentum": 0.8},
    }
    assert algorithms.dfedsam(0.1, gossip_steps=2).settings == {
        "local": {"lr": 0.1, "batch_size": 128, "epochs": 5, "radius": 0.01},
        "exchange": {"weights": "round", "gossip_steps": 2},
    }
    assert algorithms.dadam(0.1, track=True, decay=0.01).settings["local"] == {
        "lr": 0.1, "amsgrad": [0.9, 0.999, 1e-6], "decay": 0.01, "batch_size": 128, "steps": 1,
    }  # fmt: skip
