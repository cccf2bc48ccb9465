"""Gradients that cliques average, on one thread and on three, equal a naive loop in float64."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, EXECUTORS, ROUNDS, N, engine, nodes_at_start, on_threads
from topofl import algorithms, mixing, topologies
from topofl.algorithms.contract.local import sgd_descent
from topofl.engine import training


@pytest.fixture(params=[1, 3], ids=["alone", "3 threads"])
def workers(request):
    with on_threads(request.param):
        yield request.param


@pytest.fixture
def meetings(monkeypatch):
    """Record how gradients are mixed."""
    seen, original = [], training._MixedGradients.train

    def noted(mixed):
        seen.append("all" if mixed.means is None else "means")
        return original(mixed)

    monkeypatch.setattr(training._MixedGradients, "train", noted)
    return seen


def clique_averaging(**how):
    return algorithms.clique_averaging(0.1, batch_size=BATCH, **how)


def looped(clients, graphs, received=None, momentum=0.0):
    """Return the models of a loop over graphs; nodes average gradients of those they receive."""
    nodes = nodes_at_start(problems.linear(), clients)
    for t in range(ROUNDS):
        graph = graphs[t % len(graphs)]
        gradients = [nodes.gradient(i, t) for i in range(clients.n)]
        for i, module in enumerate(nodes.modules):
            group = received[i] if received else next(c for c in graph.groups if i in c)
            mean = [
                sum(parts) / len(group)
                for parts in zip(*(gradients[j] for j in group), strict=True)
            ]
            naive.descend(module, nodes.velocities[i], mean, 0.1, momentum)
        naive.average(nodes.modules, mixing.metropolis_or_uniform(graph).weights.toarray())
    return nodes.flat()


def close(models, wanted, atol=1e-10):
    torch.testing.assert_close(models.flat, wanted, rtol=0, atol=atol)


@problems.by_turns(
    2,
    make=[problems.equal_clients, problems.ragged_clients],
    name=["dsgd", "clique_averaging", "centralized", "local_only"],
)
def test_threads_change_nothing(name, make):
    """The largest difference of float64."""
    clients, model = make(), problems.convolutional()
    algorithm = getattr(algorithms, name)(0.1, batch_size=BATCH, momentum=0.9)
    found = []
    for threads in (1, 3):
        with on_threads(threads):
            found += [
                engine(algorithm, model, clients, problems.cliques(clients), **how)[1]
                for how in EXECUTORS
            ]
    for other in found[1:]:
        close(other, found[0].flat)


@pytest.mark.parametrize(("chunk", "way"), [(1, "means"), (3, "means"), (6, "all"), (18, "all")])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_group_means_of_gradients_on_threads_equal_naive_loop(
    momentum, chunk, way, workers, meetings
):
    clients = problems.equal_clients(18)
    graph = problems.cliques(clients, size=9)
    how = {"executor": "batched", "chunk": chunk}
    _, models = engine(clique_averaging(momentum=momentum), None, clients, graph, **how)
    close(models, looped(clients, [graph], momentum=momentum))
    assert set(meetings) == {way if workers > 1 or chunk == 18 else "means"}


@pytest.mark.parametrize("chunk", [1, 3])
def test_groups_may_change_from_round_to_round(chunk, workers, meetings):
    clients = problems.equal_clients(18)
    graphs = [problems.cliques(clients, size=size) for size in (9, 6)]
    graphs.append(topologies.random_cliques(18, 9, seed=0))
    how = {"executor": "batched", "chunk": chunk}
    _, models = engine(clique_averaging(momentum=0.9), None, clients, graphs, **how)
    close(models, looped(clients, graphs, momentum=0.9))
    assert "means" in meetings


@pytest.mark.parametrize(
    "options",
    [
        {"clip": 0.1},
        {"weight_decay": 0.3},
        {"momentum": 0.9, "reset_momentum": True},
        {"terms": [algorithms.proximal(0.5)]},
    ],
    ids=problems.without_addresses,
)
def test_group_sums_and_stored_gradients_give_the_same_steps(options, monkeypatch, meetings):
    clients, found = problems.equal_clients(12), []
    how = {"batch_size": BATCH, "steps": 3, "gradient": mixing.within_groups}
    made = algorithms.chain("made", local=algorithms.train(sgd_descent(0.1, **options), **how))
    for kept in (training.gradients_in_memory, lambda groups, workers, chunk, n: n):
        monkeypatch.setattr(training, "gradients_in_memory", kept)
        how = {"executor": "batched", "chunk": 3}
        found.append(engine(made, None, clients, problems.cliques(clients), **how)[1])
    close(found[1], found[0].flat, 1e-12)
    assert set(meetings[:ROUNDS]) == {"means"}
    assert set(meetings[ROUNDS:]) == {"all"}


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_nodes_are_updated_in_any_number_at_a_time(rows, monkeypatch):
    clients, found = problems.equal_clients(12), []
    for many in (rows, 3):
        monkeypatch.setattr(training, "UPDATED", many * 8 * 111)
        how = {"executor": "batched", "chunk": 1}
        found.append(engine(clique_averaging(), None, clients, problems.cliques(clients), **how)[1])
    assert torch.equal(*(models.flat for models in found))


def test_removed_clique_edges_average_over_remaining_in_neighbors():
    clients = problems.equal_clients()
    graph = problems.cliques(clients)
    u, v = graph.groups[0][:2]
    thinned = graph.to_scipy()
    thinned[u, v] = thinned[v, u] = 0
    thinned.eliminate_zeros()
    thinned = topofl.Topology(thinned, groups=graph.groups)
    cliques = [next(c for c in graph.groups if i in c) for i in range(N)]
    received = [
        [j for j in clique if j == i or thinned.adjacency[i, j]] for i, clique in enumerate(cliques)
    ]
    _, models = engine(clique_averaging(), None, clients, thinned)
    close(models, looped(clients, [thinned], received))


def test_minibatches_are_epochs_without_replacement():
    members = list(range(100, 111))
    seen = [naive.minibatch(members, 2, step, 4, "local", 3) for step in range(6)]
    assert [len(batch) for batch in seen] == [4, 4, 3] * 2
    first, second = [*seen[0], *seen[1], *seen[2]], [*seen[3], *seen[4], *seen[5]]
    assert sorted(first) == members == sorted(second)
    assert first != second


def test_float32_agrees_with_float64_up_to_rounding():
    clients, model = problems.equal_clients(), problems.convolutional()
    graph, dsgd = problems.cliques(clients), algorithms.dsgd(0.1, batch_size=BATCH)
    short, double = (
        engine(dsgd, model, clients, graph, init="common", dtype=dtype)[1].flat.double()
        for dtype in (torch.float32, torch.float64)
    )
    np.testing.assert_allclose(short, double, atol=1e-5)


@pytest.mark.parametrize("name", ["dsgd", "clique_averaging"])
def test_gradient_diversity_does_not_depend_on_threads(name, workers):
    clients = problems.equal_clients()
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4)
    how = {"rounds": 1, "every": 1, "chunk": 1}
    history, _ = engine(algorithm, None, clients, problems.cliques(clients), **how)
    nodes = nodes_at_start(problems.linear(), clients)
    found = [torch.cat([g.flatten() for g in nodes.gradient(i, 0)]) for i in range(N)]
    wanted = sum(float(g.square().sum()) for g in found) / float(sum(found).square().sum())
    np.testing.assert_allclose(history["gradient_diversity"][-1], wanted, rtol=1e-10)
