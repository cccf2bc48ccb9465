"""Methods with local passes, parts, masses and servers equal their naive loops over nodes in float64."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.engine.test_equivalence import modules_at_start
from topofl import algorithms, mixing, topologies
from topofl._seeding import stream

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6
HEAD = "5"
LOCAL = [
    {"momentum": 0.9},
    {"momentum": 0.5, "weight_decay": 0.01, "clip": 0.5, "lr_decay": 0.8},
]


def is_head(name):
    return name.startswith("5.")


def is_body(name):
    return not is_head(name)


def members(t):
    """Who takes part: half of the nodes, drawn by the seed."""
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


def nodes_at_start(model, clients):
    blobs = clients.dataset
    modules = modules_at_start(model, clients.n)
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)


def engine(algorithm, model, clients, graph=None, **settings):
    kept = []
    history = topofl.run(
        algorithm, model=model, clients=clients, topology=graph, rounds=ROUNDS, seed=SEED, init="independent",
        dtype=torch.float64, on_disconnected="allow", on_round=lambda t, models: kept.append(models), **settings,
    )  # fmt: skip
    return history, kept[-1]


def check(wanted, got, start):
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
    assert not torch.allclose(got, start, atol=1e-4), "nothing was trained"


HOW = pytest.mark.parametrize(
    "settings", [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}]
)
CLIENTS = pytest.mark.parametrize("make", [problems.equal_clients, problems.ragged_clients])


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("mode", ["push", "pull"])
def test_dfedpgp(mode, local, make, settings):
    clients, model = make(), problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1) if mode == "push" else topologies.random_in(N, 2, seed=1)
    matrices = [mixing.uniform(graphs.at(t), direction=mode).weights.toarray() for t in range(ROUNDS)]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    masses = naive.dfedpgp(nodes, matrices, ROUNDS, mode=mode, is_head=is_head, **how)
    algorithm = algorithms.dfedpgp(mode=mode, batch_size=BATCH, head=HEAD, **how)
    history, models = engine(algorithm, model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.mass.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses), N, rtol=1e-12)
    if mode == "push":
        assert history["smallest_push_weight"][-1] == pytest.approx(min(masses))


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
def test_dfedavgm_and_its_personal_kin(local, make, settings):
    clients, model = make(), problems.convolutional()
    graph = problems.cliques(clients)
    matrices = [mixing.metropolis_hastings(graph).weights.toarray()] * ROUNDS
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dfedavgm(nodes, matrices, ROUNDS, lr=0.1, epochs=2, **local)
    _, models = engine(algorithms.dfedavgm(0.1, batch_size=BATCH, epochs=2, **local), model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)

    nodes = nodes_at_start(model, clients)
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    naive.dfedpgp(nodes, matrices, ROUNDS, mode="pull", is_head=is_head, **how)
    algorithm = algorithms.dfedavgm_p(batch_size=BATCH, head=HEAD, **how)
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)


@HOW
@CLIENTS
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_osgp(delay, make, settings):
    clients, model = make(), problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    matrices = [mixing.uniform(graphs.at(t), direction="push").weights.toarray() for t in range(ROUNDS)]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "epochs": 2, "momentum": 0.9, "delay": delay}
    masses, under_way = naive.osgp(nodes, matrices, ROUNDS, **how)
    _, models = engine(algorithms.osgp(batch_size=BATCH, **how), model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.mass.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses) + under_way, N, rtol=1e-12)


SERVED = {
    "fedavg": ({}, {}),
    "fedper": ({"head": HEAD}, {"travels": is_body}),
    "fedrep": ({"head": HEAD, "head_lr": 0.05}, {"travels": is_body, "trains": is_body, "head": (is_head, 0.05, 1)}),
    "fedbabu": ({"head": HEAD}, {"travels": is_body, "trains": is_body}),
}


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("name", SERVED)
def test_methods_with_a_server(name, local, make, settings):
    clients, model = make(), problems.convolutional()
    nodes, (options, reference) = nodes_at_start(model, clients), SERVED[name]
    start = nodes.flat()
    naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=2, **reference, **local)
    algorithm = getattr(algorithms, name)(0.1, batch_size=BATCH, epochs=2, participation=0.5, **options, **local)
    history, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)
    assert (history["messages"] == N).all(), "3 up and 3 down"
    active = members(ROUNDS - 1)
    assert np.isfinite(history.node_loss[-1][active]).all()
    assert np.isnan(np.delete(history.node_loss[-1], active)).all()


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
def test_ditto(local, make, settings):
    clients, model = make(), problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "personal_lr": 0.05, "strength": 0.5, **local}
    naive.ditto(nodes, members, ROUNDS, **how)
    _, models = engine(algorithms.ditto(batch_size=BATCH, participation=0.5, **how), model, clients, **settings)
    check(nodes.flat(), models.flat, start)


def test_nodes_may_do_different_numbers_of_passes():
    clients, model, epochs = problems.ragged_clients(), problems.convolutional(), [1, 2, 3, 0, 2, 1]
    nodes = nodes_at_start(model, clients)
    for t in range(ROUNDS):
        for i in range(N):
            naive.passes(nodes, i, t, "local", epochs=epochs[i], lr=0.1, momentum=0.9)
    for settings in ({"executor": "batched"}, {"executor": "batched", "chunk": 4}, {"executor": "looped"}):
        phase = algorithms.sgd(0.1, batch_size=BATCH, epochs=epochs, momentum=0.9, reset_momentum=True)
        _, models = engine(algorithms.chain("uneven", local=phase), model, clients, **settings)
        torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-9)
