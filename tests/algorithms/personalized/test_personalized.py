"""Methods with local passes, parts, masses and servers equal their naive loops in float64."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    CLIENTS,
    EXECUTORS,
    HEAD,
    HOW,
    LOCAL,
    MAKES,
    PAIRS,
    ROUNDS,
    SEED,
    N,
    check,
    engine,
    is_body,
    is_head,
    members,
    nodes_at_start,
)
from topofl import algorithms, metrics, mixing, topologies


@PAIRS
@pytest.mark.parametrize("mode", ["push", "pull"])
def test_dfedpgp(mode, local, make, settings):
    clients = make()
    model = problems.convolutional()
    graphs = (
        topologies.random_out(N, 2, seed=1)
        if mode == "push"
        else topologies.random_in(N, 2, seed=1)
    )
    matrices = [
        mixing.uniform(graphs.at(t), direction=mode).weights.toarray() for t in range(ROUNDS)
    ]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    masses = naive.dfedpgp(nodes, matrices, ROUNDS, mode=mode, is_head=is_head, **how)
    algorithm = algorithms.dfedpgp(mode=mode, batch_size=BATCH, head=HEAD, **how)
    history, models = engine(algorithm, model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses), N, rtol=1e-12)
    if mode == "push":
        assert history["smallest_push_weight"][-1] == pytest.approx(min(masses))
        np.testing.assert_allclose(history["push_weight"][-1], masses, rtol=1e-12)


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.slow
def test_dfedavgm_and_dfedavgm_p(local, make, settings):
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    matrices = [mixing.metropolis_hastings(graph).weights.toarray()] * ROUNDS
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dfedavgm(nodes, matrices, ROUNDS, lr=0.1, epochs=2, **local)
    _, models = engine(
        algorithms.dfedavgm(0.1, batch_size=BATCH, epochs=2, **local),
        model,
        clients,
        graph,
        **settings,
    )
    check(nodes.flat(), models.flat, start)

    nodes = nodes_at_start(model, clients)
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    naive.dfedpgp(nodes, matrices, ROUNDS, mode="pull", is_head=is_head, **how)
    algorithm = algorithms.dfedavgm_p(batch_size=BATCH, head=HEAD, **how)
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)


@problems.paired(settings=EXECUTORS, make=MAKES, delay=[0, 1, 2])
def test_osgp(delay, make, settings):
    clients = make()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    matrices = [
        mixing.uniform(graphs.at(t), direction="push").weights.toarray() for t in range(ROUNDS)
    ]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "epochs": 2, "momentum": 0.9, "delay": delay}
    masses, under_way = naive.osgp(nodes, matrices, ROUNDS, **how)
    _, models = engine(algorithms.osgp(batch_size=BATCH, **how), model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses) + under_way, N, rtol=1e-12)


SERVED = {
    "fedavg": ({}, {}),
    "fedper": ({"head": HEAD}, {"travels": is_body}),
    "fedrep": (
        {"head": HEAD, "head_lr": 0.05},
        {"travels": is_body, "trains": is_body, "head": (is_head, 0.05, 1)},
    ),
    "fedbabu": ({"head": HEAD}, {"travels": is_body, "trains": is_body}),
}


@PAIRS
@pytest.mark.parametrize("name", SERVED)
def test_methods_with_a_server(name, local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes, (options, reference) = nodes_at_start(model, clients), SERVED[name]
    start = nodes.flat()
    naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=2, **reference, **local)
    algorithm = getattr(algorithms, name)(
        0.1, batch_size=BATCH, epochs=2, participation=0.5, **options, **local
    )
    history, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)
    assert (history["messages"] == N).all(), "3 up and 3 down"
    active = members(ROUNDS - 1)
    assert np.isfinite(history.node_loss[-1][active]).all()
    assert np.isnan(np.delete(history.node_loss[-1], active)).all()


@PAIRS
def test_ditto(local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "personal_lr": 0.05, "strength": 0.5, **local}
    naive.ditto(nodes, members, ROUNDS, **how)
    _, models = engine(
        algorithms.ditto(batch_size=BATCH, participation=0.5, **how), model, clients, **settings
    )
    check(nodes.flat(), models.flat, start)


def test_nodes_can_take_different_epochs():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    epochs = [1, 2, 3, 0, 2, 1]
    nodes = nodes_at_start(model, clients)
    for t in range(ROUNDS):
        for i in range(N):
            naive.passes(nodes, i, t, "local", epochs=epochs[i], lr=0.1, momentum=0.9)
    for settings in (
        {"executor": "batched"},
        {"executor": "batched", "chunk": 4},
        {"executor": "looped"},
    ):
        phase = algorithms.sgd(
            0.1, batch_size=BATCH, epochs=epochs, momentum=0.9, reset_momentum=True
        )
        _, models = engine(algorithms.chain("uneven", local=phase), model, clients, **settings)
        torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-10)


def test_dfedavgm_p_among_all_is_fedrep_with_all():
    clients = problems.equal_clients()
    model = problems.convolutional()
    how = {"head_lr": 0.05, "batch_size": BATCH, "epochs": 1, "head": HEAD}
    size = int(clients.sizes.min())
    clients = topofl.data.Partition(
        clients.dataset, tuple(m[:size] for m in clients.train), name="equal"
    )
    _, gossiped = engine(
        algorithms.dfedavgm_p(0.1, **how), model, clients, topologies.fully_connected(N)
    )
    _, served = engine(algorithms.fedrep(0.1, **how), model, clients)
    torch.testing.assert_close(gossiped.flat, served.flat, rtol=0, atol=1e-10)


def test_parts_can_be_anywhere_in_a_model():
    names = ["a.weight", "a.bias", "norm.weight", "b.weight", "b.bias"]
    part = algorithms.part("norm", "b.bias")
    assert part.places(names) == [2, 4]
    assert part.rest.places(names) == [0, 1, 3]
    assert part.rest.rest == part
    assert str(part.rest) == "all but norm, b.bias"
    with pytest.raises(TypeError, match="`patterns`"):
        algorithms.part()


def test_messages_are_counted_and_compared():
    """Hand-counted: 6 nodes, each sending to 2 a body of 48 numbers of 8 bytes, and a weight."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    body = sum(p.numel() for name, p in model.named_parameters() if is_body(name))
    algorithm = algorithms.dfedpgp(0.1, mode="push", batch_size=BATCH, epochs=1, head=HEAD)
    history, models = engine(algorithm, model, clients, topologies.random_out(N, 2, seed=1))
    np.testing.assert_array_equal(history["bytes"], [2 * N * (body + 1) * 8] * ROUNDS)
    distance = metrics.consensus_distance(models.flat[:, :body])
    assert history["consensus_distance"][-1] == pytest.approx(distance, rel=1e-12)
    history, _ = engine(
        algorithms.fedper(0.1, participation=2, batch_size=BATCH, epochs=1, head=HEAD),
        model,
        clients,
    )
    np.testing.assert_array_equal(
        history["busiest_messages"], [4] * ROUNDS
    )  # the server: 2 in, 2 out
    np.testing.assert_array_equal(history["busiest_bytes"], [4 * body * 8] * ROUNDS)


def test_a_server_and_neighbors_do_not_add_up_to_one_busiest_node():
    clients = problems.equal_clients()
    model = problems.linear()
    both = algorithms.chain(
        "both", server=algorithms.server_average(), exchange=algorithms.gossip()
    )
    history, _ = engine(both, model, clients, topologies.ring(N))
    np.testing.assert_array_equal(
        history["busiest_messages"], [12] * ROUNDS
    )  # the server; a node has 2 + 4


@pytest.mark.parametrize("settings", [{"executor": "batched"}, {"executor": "batched", "chunk": 4}])
def test_nodes_trained_in_one_piece_keep_their_velocities_and_stay_frozen(settings):
    clients = problems.ragged_clients()
    model = problems.convolutional()
    epochs = [1, 2, 0, 1, 2, 1]
    lasting = algorithms.chain(
        "lasting", local=algorithms.sgd(0.1, batch_size=BATCH, epochs=epochs, momentum=0.9)
    )
    _, looped = engine(lasting, model, clients, executor="looped")
    history, together = engine(lasting, model, clients, **settings)
    torch.testing.assert_close(together.flat, looped.flat, rtol=0, atol=1e-10)
    assert np.isnan(history.node_loss[:, 2]).all()

    wild = algorithms.chain(
        "wild", local=algorithms.sgd(1e30, batch_size=BATCH, epochs=epochs, momentum=0.9)
    )
    for policy in ("freeze", "record"):
        one, apart = engine(wild, model, clients, executor="looped", on_divergence=policy)
        two, joined = engine(wild, model, clients, on_divergence=policy, **settings)
        assert one.meta["diverged"] == two.meta["diverged"] != []
        assert 2 not in [found["node"] for found in two.meta["diverged"]], "it never trained"
        if policy == "freeze":
            torch.testing.assert_close(joined.flat, apart.flat)


def test_node_losses_are_means_over_the_steps_that_a_node_took():
    clients = problems.ragged_clients()
    model = problems.linear()
    epochs = [1, 2, 3, 0, 2, 1]
    phase = algorithms.sgd(1e-9, batch_size=BATCH, epochs=epochs)
    history, _ = engine(algorithms.chain("still", local=phase), model, clients)
    nodes, wanted = nodes_at_start(model, clients), []
    for i, own in enumerate(nodes.members):
        steps = epochs[i] * -(-len(own) // BATCH)
        losses = []
        for k in range(steps):
            batch = torch.as_tensor(naive.minibatch(own, i, k, BATCH, "local", SEED))
            outputs = nodes.modules[i](nodes.inputs[batch])
            losses.append(
                float(torch.nn.functional.cross_entropy(outputs, nodes.labels[batch]).detach())
            )
        wanted.append(np.mean(losses) if losses else np.nan)
    np.testing.assert_allclose(history.node_loss[0], wanted, rtol=1e-6)


def test_a_probe_takes_all_nodes_where_each_has_its_own_number_of_passes():
    clients = problems.equal_clients()
    for algorithm in (
        algorithms.fedavg(0.1, participation=5),
        algorithms.dfedavgm(0.1, epochs=[1, 2, 1, 2, 1, 2]),
    ):
        result = topofl.estimate(
            algorithm,
            model=problems.linear(),
            clients=clients,
            topology=topologies.ring(N),
            probe=True,
        )
        assert result.seconds_per_round > 0


def test_an_estimate_refuses_the_matrices_that_a_run_refuses():
    with pytest.raises(ValueError, match="`mixing` must have columns that sum to 1"):
        topofl.estimate(
            algorithms.osgp(0.1), model=problems.linear(), clients=problems.equal_clients(),
            topology=topologies.random_in(N, 2, seed=0), mixing=mixing.uniform,
        )  # fmt: skip
