"""Every algorithm, executor and chunk size gives the result of the naive loop in float64."""

import copy
import functools

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, mixing, topologies
from topofl.algorithms.contract.local import sgd_descent
from topofl.engine import plan, training
from topofl.engine.population import initial_population

ROUNDS, SEED, BATCH = 5, 3, 4

CASES = {
    "dsgd": [{}, {"momentum": 0.9}, {"local_steps": 3, "momentum": 0.5}],
    "clique_averaging": [{}, {"momentum": 0.9}],
    "centralized": [{}, {"momentum": 0.9}],
    "local_only": [{}, {"local_steps": 2, "momentum": 0.9}],
}


def test_every_algorithm_has_a_naive_loop():
    """In this module, or in the one that its row of the table names."""
    here = {name for name, row in ALGORITHMS.items() if row.compared == "engine/test_equivalence"}
    assert here == set(CASES)


def modules_at_start(model, n):
    start = initial_population(
        model, n, init="independent", seed=SEED, device=torch.device("cpu"), dtype=torch.float64
    )
    modules = [copy.deepcopy(model).double() for _ in range(n)]
    for module, row in zip(modules, start.flat, strict=True):
        torch.nn.utils.vector_to_parameters(row.clone(), module.parameters())
    return modules


def naive_models(name, model, clients, graph, options):
    clients = clients.pooled() if name == "centralized" else clients
    blobs = clients.dataset
    modules = modules_at_start(model, clients.n)
    nodes = naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    match name:
        case "dsgd":
            naive.dsgd(nodes, weights, ROUNDS, lr=0.1, **options)
        case "clique_averaging":
            naive.clique_averaging(nodes, weights, ROUNDS, lr=0.1, cliques=graph.groups, **options)
        case "local_only":
            naive.local_only(nodes, ROUNDS, lr=0.1, **options)
        case "centralized":
            naive.centralized(nodes, ROUNDS, lr=0.1, **options)
    return nodes.flat()


def engine_models(name, model, clients, graph, options, **settings):
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=BATCH, **options)
    kept = []
    topofl.run(
        algorithm,
        model=model,
        clients=clients,
        topology=graph,
        rounds=ROUNDS,
        seed=SEED,
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=torch.float64, **settings),
    )
    return kept[-1]


@pytest.fixture(params=[1, 3], ids=["alone", "3 threads"])
def workers(request, monkeypatch):
    """Run even these small problems on several threads."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param, "the setting was not put back"
    torch.set_num_threads(before)


@functools.cache
def naive_once(name, model, clients, k):
    """Return the result of naive loops for the k-th options of an algorithm."""
    clients = clients()
    return naive_models(name, model(), clients, problems.cliques(clients), CASES[name][k])


@pytest.mark.parametrize(
    "settings",
    [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}],
)
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
@pytest.mark.parametrize("clients", [problems.equal_clients, problems.ragged_clients])
@pytest.mark.parametrize(
    ("name", "k", "workers"),
    [(name, k, 1) for name, rows in CASES.items() for k in range(len(rows))]
    + [(name, len(rows) - 1, 3) for name, rows in CASES.items()],
    indirect=["workers"],
)
def test_equals_naive_loop(name, k, clients, model, settings, workers):
    """Several threads are tested with the last options of an algorithm, which are the most."""
    wanted, options = naive_once(name, model, clients, k), CASES[name][k]
    clients, model = clients(), model()
    got = engine_models(name, model, clients, problems.cliques(clients), options, **settings)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    assert not torch.allclose(got, modules_to_flat(model, clients, name), atol=1e-4), (
        "nothing was trained"
    )


def modules_to_flat(model, clients, name):
    modules = modules_at_start(model, 1 if name == "centralized" else clients.n)
    return torch.stack(
        [torch.nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules]
    )


@pytest.fixture
def meetings(monkeypatch):
    """Record how gradients are mixed."""
    seen, original = [], training._MixedGradients.train

    def noted(mixed):
        seen.append("all" if mixed.means is None else "means")
        return original(mixed)

    monkeypatch.setattr(training._MixedGradients, "train", noted)
    return seen


@pytest.mark.parametrize(
    ("chunk", "way"),
    [
        (1, "means"),
        (3, "means"),
        (6, "all"),
        (18, "all"),
    ],
)
@pytest.mark.parametrize("options", CASES["clique_averaging"])
def test_group_means_of_gradients_on_threads_equal_naive_loop(
    options, chunk, way, workers, meetings
):
    clients, model = problems.equal_clients(18), problems.linear()
    graph = problems.cliques(clients, size=9)
    wanted = naive_models("clique_averaging", model, clients, graph, options)
    got = engine_models(
        "clique_averaging", model, clients, graph, options, executor="batched", chunk=chunk
    )
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    assert set(meetings) == {way if workers > 1 or chunk == 18 else "means"}


@pytest.mark.parametrize("chunk", [1, 3])
def test_groups_may_change_from_round_to_round(chunk, workers, meetings):
    clients, model = problems.equal_clients(18), problems.linear()
    graphs = [
        problems.cliques(clients, size=9),
        problems.cliques(clients, size=6),
        topologies.random_cliques(18, 9, seed=0),
    ]
    nodes = naive.Nodes(
        modules_at_start(model, 18),
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    for t in range(ROUNDS):
        gradients = [nodes.gradient(i, t) for i in range(18)]
        for i, module in enumerate(nodes.modules):
            clique = next(c for c in graphs[t % 3].groups if i in c)
            mean = [
                sum(gradients[j][k] for j in clique) / len(clique) for k in range(len(gradients[i]))
            ]
            naive.descend(module, nodes.velocities[i], mean, 0.1, 0.9)
        naive.average(nodes.modules, mixing.metropolis_or_uniform(graphs[t % 3]).weights.toarray())
    how = {"executor": "batched", "chunk": chunk, "on_disconnected": "allow"}
    got = engine_models("clique_averaging", model, clients, graphs, {"momentum": 0.9}, **how)
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)
    assert "means" in meetings


FURTHER = [
    {"clip": 0.1},
    {"weight_decay": 0.3},
    {"momentum": 0.9, "reset_momentum": True},
    {"terms": [algorithms.proximal(0.5)]},
]


@pytest.mark.parametrize("options", FURTHER)
def test_group_sums_and_stored_gradients_give_the_same_steps(options, monkeypatch, meetings):
    clients, found = problems.equal_clients(12), []
    local = algorithms.train(
        sgd_descent(0.1, **options), batch_size=BATCH, steps=3, gradient=mixing.within_groups
    )
    monkeypatch.setattr(
        algorithms, "made", lambda **_: algorithms.chain("made", local=local), raising=False
    )
    for kept in (training.gradients_in_memory, lambda groups, workers, chunk, n: n):
        monkeypatch.setattr(training, "gradients_in_memory", kept)
        how = {"executor": "batched", "chunk": 3}
        found.append(
            engine_models("made", problems.linear(), clients, problems.cliques(clients), {}, **how)
        )
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    assert set(meetings[:ROUNDS]) == {"means"}
    assert set(meetings[ROUNDS:]) == {"all"}


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_nodes_are_updated_in_any_number_at_a_time(rows, monkeypatch):
    clients, model = problems.equal_clients(12), problems.linear()
    graph, found = problems.cliques(clients), []
    for many in (rows, 3):
        monkeypatch.setattr(
            training, "UPDATED", many * 8 * sum(p.numel() for p in model.parameters())
        )
        how = {"executor": "batched", "chunk": 1}
        found.append(engine_models("clique_averaging", model, clients, graph, {}, **how))
    assert torch.equal(*found)


def test_directed_time_varying_graph_equals_naive_loop():
    clients, model = problems.equal_clients(), problems.linear()
    graphs = topologies.one_peer_exponential(6)
    nodes = naive.Nodes(
        modules_at_start(model, 6),
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    for t in range(ROUNDS):
        for i, module in enumerate(nodes.modules):
            naive.descend(module, nodes.velocities[i], nodes.gradient(i, t), 0.1, 0.0)
        naive.average(nodes.modules, mixing.uniform(graphs.at(t)).weights.toarray())
    got = engine_models("dsgd", model, clients, graphs, {}, executor="batched")
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)


def test_removed_clique_edges_average_over_remaining_in_neighbors():
    clients, model = problems.equal_clients(), problems.linear()
    graph = problems.cliques(clients)
    u, v = graph.groups[0][:2]
    thinned = graph.to_scipy()
    thinned[u, v] = thinned[v, u] = 0
    thinned.eliminate_zeros()
    thinned = topofl.Topology(thinned, groups=graph.groups)
    received = {
        i: [j for j in next(c for c in graph.groups if i in c) if j == i or thinned.adjacency[i, j]]
        for i in range(6)
    }
    nodes = naive.Nodes(
        modules_at_start(model, 6),
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    weights = mixing.metropolis_hastings(thinned).weights.toarray()
    for t in range(ROUNDS):
        gradients = [nodes.gradient(i, t) for i in range(6)]
        for i, module in enumerate(nodes.modules):
            mean = [
                sum(gradients[j][k] for j in received[i]) / len(received[i])
                for k in range(len(gradients[i]))
            ]
            naive.descend(module, nodes.velocities[i], mean, 0.1, 0.0)
        naive.average(nodes.modules, weights)
    got = engine_models("clique_averaging", model, clients, thinned, {})
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)


def test_minibatches_are_epochs_without_replacement():
    members = list(range(100, 111))
    seen = [naive.minibatch(members, 2, step, 4, "local", SEED) for step in range(6)]
    assert [len(batch) for batch in seen] == [4, 4, 3] * 2
    first, second = [*seen[0], *seen[1], *seen[2]], [*seen[3], *seen[4], *seen[5]]
    assert sorted(first) == members == sorted(second)
    assert first != second


def test_float32_agrees_with_float64_up_to_rounding():
    clients, model = problems.equal_clients(), problems.convolutional()
    graph = problems.cliques(clients)
    kept = {}
    for dtype in (torch.float32, torch.float64):
        topofl.run(
            algorithms.dsgd(lr=0.1, batch_size=BATCH),
            model=model,
            clients=clients,
            topology=graph,
            rounds=3,
            seed=0,
            compute=topofl.Compute(dtype=dtype),
            callbacks=[
                problems.each_round(
                    lambda t, models, dtype=dtype: kept.__setitem__(dtype, models.flat.double())
                )
            ],
        )
    np.testing.assert_allclose(kept[torch.float32], kept[torch.float64], atol=1e-5)


@pytest.mark.parametrize("name", ["dsgd", "clique_averaging"])
def test_gradient_diversity_does_not_depend_on_threads(name, workers):
    clients = problems.equal_clients()
    history = topofl.run(
        getattr(algorithms, name)(lr=0.1, batch_size=4),
        model=problems.linear(),
        clients=clients,
        topology=problems.cliques(clients),
        rounds=1,
        evaluation=1,
        compute=topofl.Compute(chunk=1, dtype=torch.float64),
        seed=SEED,
        init="independent",
    )
    nodes = naive.Nodes(
        modules_at_start(problems.linear(), 6),
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    flat = torch.stack([torch.cat([g.flatten() for g in nodes.gradient(i, 0)]) for i in range(6)])
    wanted = flat.square().sum() / flat.sum(0).square().sum()
    np.testing.assert_allclose(history["gradient_diversity"][-1], float(wanted), rtol=1e-10)
