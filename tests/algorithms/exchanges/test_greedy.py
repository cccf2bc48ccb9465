"""Greedy and random peers: DPFL equals its listing in all executors."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, HOW, ROUNDS, SEED, N, check, engine, nodes_at_start
from topofl import algorithms, models, topologies
from topofl._support.seeding import stream
from topofl.topologies import averaged_reward, ggc

RING = topologies.circulant(N, (1,), directed=True)


LOCAL = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.8}


CHOICES = [
    {},
    {"budget": 2},
    {"every": 2},
    {"every": 2, "keep": False},
    {"passive": (1, 4), "budget": 3},
    {"budget": 0},
]


def draws(t, k, pool):
    rng = stream(SEED, f"collaboration of {k}", t)
    return rng.permutation(pool).tolist(), rng.random(len(pool)).tolist()


def dpfl(**changes):
    return algorithms.dpfl(0.1, **{"batch_size": BATCH, "epochs": 1, **LOCAL} | changes)


def received(history, t):
    rows = history.mixing(t).weights.tolil().rows
    return [[i for i in row if i != k] for k, row in enumerate(rows)]


@HOW
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.slow
def test_dpfl_equals_its_listing(choice, settings):
    clients, model = problems.validated_clients(), problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    wanted = naive.dpfl(
        nodes, clients.val, ROUNDS, lr=0.1, draws=draws, epochs=1, first_epochs=2, **LOCAL, **choice
    )
    history, got = engine(dpfl(**choice), model, clients, **settings)
    assert [received(history, t) for t in range(ROUNDS)] == wanted
    check(nodes.flat(), got.flat, start)


@HOW
def test_linear_models_are_evaluated_together(settings):
    clients, model = problems.validated_clients(), problems.linear()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dpfl(nodes, clients.val, ROUNDS, lr=0.1, draws=draws, epochs=1, first_epochs=2, **LOCAL)
    check(nodes.flat(), engine(dpfl(), model, clients, **settings)[1].flat, start)


def test_choices_equal_those_of_ggc_on_the_same_models():
    clients, model, seen = problems.validated_clients(), problems.convolutional(), []
    policy = algorithms.greedy_peers(3)

    def spied(flat, state, round):
        seen.append(flat.flat.clone().numpy())
        return policy.choose(flat, state, round)

    algorithm = algorithms.chain(
        "spied", exchange=algorithms.average_over_peers(policy._replace(choose=spied))
    )
    history, _ = engine(algorithm, model, clients)
    module = problems.convolutional().double()

    def loss(k, vector):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(vector), module.parameters())
        images, labels = (
            part[list(clients.val[k])]
            for part in (clients.dataset.inputs.double(), clients.dataset.labels)
        )
        return float(torch.nn.functional.cross_entropy(module(images).detach(), labels))

    reward = averaged_reward(loss, seen[0], clients.sizes)
    others = [[i for i in range(N) if i != k] for k in range(N)]
    rngs = [stream(SEED, f"collaboration of {k}", 0) for k in range(N)]
    assert received(history, 0) == [
        list(ggc(reward, k, others[k], 3, seed=rngs[k])) for k in range(N)
    ]


def test_equal_models_are_all_chosen_up_to_the_budget():
    clients = problems.validated_clients()
    algorithm = algorithms.chain(
        "idle", exchange=algorithms.average_over_peers(algorithms.greedy_peers(4))
    )
    history = topofl.run(
        algorithm, model=problems.convolutional(), clients=clients, rounds=1, seed=0
    )
    assert set(history.mixing(0).support().in_degrees) == {4}


def test_collaborators_are_candidates_and_budgets_hold():
    clients = problems.validated_clients()
    history, _ = engine(dpfl(budget=3), problems.convolutional(), clients)
    first, later = received(history, 0), [received(history, t) for t in range(1, ROUNDS)]
    assert max(map(len, first)) == 3
    for chosen in later:
        assert all(set(now) <= set(then) for now, then in zip(chosen, first, strict=True))
    counted, _ = engine(dpfl(budget=3, count_self=True), problems.convolutional(), clients)
    assert max(map(len, received(counted, 0))) == 2


def test_weights_are_numbers_of_examples():
    clients = problems.validated_clients()
    history, _ = engine(dpfl(budget=2), problems.linear(), clients)
    for t in range(ROUNDS):
        weights = history.mixing(t).weights.toarray()
        sizes = (weights > 0) * clients.sizes
        np.testing.assert_allclose(weights, sizes / sizes.sum(1, keepdims=True))
    assert (clients.sizes != clients.sizes[0]).any()


def test_messages_count_all_evaluated_models():
    clients = problems.validated_clients()
    history, _ = engine(dpfl(budget=2, every=2), problems.linear(), clients)
    candidates, n, size = sum(map(len, received(history, 0))), N, 8 * 111
    chosen = sum(map(len, received(history, 1)))
    assert history["messages"].tolist() == [2 * n * (n - 1), chosen, candidates]
    assert history["bytes"].tolist() == [size * count for count in history["messages"]]
    once, _ = engine(dpfl(budget=2, streamed=False), problems.linear(), clients)
    assert once["messages"].tolist()[0] == n * (n - 1)
    assert received(once, 0) == received(history, 0)


def test_no_messages_between_choices_without_keep():
    history, _ = engine(
        dpfl(budget=2, every=2, keep=False), problems.linear(), problems.validated_clients()
    )
    assert history["messages"][1] == 0 < history["messages"][2]
    assert not any(received(history, 1))


def test_peers_are_in_neighbors():
    clients, graph = problems.validated_clients(), topologies.circulant(N, (1, 2, 3), directed=True)
    history, _ = engine(dpfl(), problems.convolutional(), clients, graph)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graph)
    assert any(received(history, 0))
    assert history["messages"][0] == 2 * 3 * N


@pytest.mark.parametrize("executor", ["looped", "batched"])
@pytest.mark.parametrize("value", [torch.inf, 1e30])
def test_models_that_diverged_are_not_chosen(value, executor):
    """Neither models with NaN or infinity nor models with such losses are chosen."""

    def broken(models):
        models.flat[2] = value
        return {}

    phase = algorithms.Phase(broken, lambda models, state, round: state, {})
    algorithm = algorithms.chain(
        "broken", broken=phase, exchange=algorithms.average_over_peers(algorithms.greedy_peers())
    )
    history = topofl.run(
        algorithm,
        model=problems.convolutional(),
        clients=problems.validated_clients(),
        rounds=1,
        seed=0,
        compute=topofl.Compute(executor=executor, on_divergence="record"),
    )
    chosen = received(history, 0)
    assert chosen[2] == []
    assert not any(2 in own for own in chosen)
    if value == torch.inf:  # else what is left of sums with 1e30 in them is nothing
        assert chosen == [
            [i for i in range(N) if i not in (2, k)] if k != 2 else [] for k in range(N)
        ]


@pytest.mark.parametrize(
    "make", [dpfl, lambda: algorithms.random_collaboration(0.1, 3, batch_size=4, epochs=1)]
)
def test_graphs_may_change(make):
    graphs = [
        topologies.circulant(N, (1, 2, 3), directed=True),
        topologies.circulant(N, (3, 4), directed=True),
    ]
    history, _ = engine(make(), problems.convolutional(), problems.validated_clients(), graphs)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graphs[t % 2])
    later = [received(history, t) for t in range(1, ROUNDS)]
    assert all(
        set(now) <= set(then)
        for one in later
        for now, then in zip(one, received(history, 0), strict=True)
    )


def test_random_collaboration_has_the_same_peers_in_all_rounds():
    clients, model = problems.equal_clients(), problems.linear()
    algorithm = algorithms.random_collaboration(0.1, 2, batch_size=BATCH, epochs=1, **LOCAL)
    history, got = engine(algorithm, model, clients)
    assert [received(history, t) for t in range(ROUNDS)] == [received(history, 0)] * ROUNDS
    assert set(map(len, received(history, 0))) == {2}
    nodes = nodes_at_start(model, clients)
    start, weights = nodes.flat(), history.mixing(0).weights.toarray()
    for t in range(ROUNDS):
        for i in range(N):
            phase, epochs = ("local", 1) if t else ("first", 2)
            naive.passes(
                nodes, i, t, phase, epochs=epochs, lr=0.1 * 0.8**t, momentum=0.9, weight_decay=0.01
            )
        naive.average(nodes.modules, weights)
    check(nodes.flat(), got.flat, start)
    assert received(engine(algorithm, model, clients)[0], 0) == received(history, 0)


def test_random_peers_are_in_neighbors_even_if_there_are_too_few():
    algorithm = algorithms.random_collaboration(0.1, 3, batch_size=BATCH, epochs=1)
    history, _ = engine(algorithm, problems.linear(), problems.equal_clients(), RING)
    assert history.mixing(0).support().adjacency.nnz == N


def test_clients_without_validation_examples_are_refused_before_anything_is_done():
    with pytest.raises(
        ValueError, match=r"`clients` must give every node val examples.*val_fraction"
    ):
        engine(dpfl(), problems.linear(), problems.equal_clients())
    with pytest.raises(ValueError, match=r"`clients` must give every node val examples"):
        topofl.estimate(dpfl(), model=problems.linear(), clients=problems.equal_clients())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", -1),
        ("every", 0),
        ("passive", [-1]),
        ("epochs", 0),
        ("first_epochs", 0),
        ("lr", 0),
        ("clip", -1),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}"):
        dpfl(**{name: value}) if name != "lr" else algorithms.dpfl(value)


def test_bad_switches_and_nodes_are_named():
    with pytest.raises(ValueError, match="`keep`"):
        dpfl(keep="yes")
    with pytest.raises(ValueError, match="`passive` must name nodes from 0 to n-1=5, got 6"):
        engine(dpfl(passive=[6]), problems.linear(), problems.validated_clients())
    with pytest.raises(ValueError, match="`budget`"):
        dpfl(budget=0, count_self=True)


def test_an_estimate_counts_most_of_what_can_be_sent():
    clients = problems.validated_clients()
    need = topofl.estimate(dpfl(budget=2), model=problems.linear(), clients=clients)
    assert need.messages == pytest.approx((2 * N * (N - 1) + 9 * N * 2) / 10)
    history, _ = engine(dpfl(budget=2), problems.linear(), clients)
    assert history["messages"].mean() <= (2 * N * (N - 1) + 2 * N * 2) / 3


def test_learned_graphs_have_the_report_of_all_graphs():
    clients = problems.validated_clients()
    history, _ = engine(dpfl(budget=2), problems.linear(), clients)
    for t in (0, 2):
        moduli = np.sort(np.abs(np.linalg.eigvals(history.mixing(t).weights.toarray())))
        gap = topofl.metrics.compare([history.mixing(t)]).column("spectral gap")[0]
        assert gap == pytest.approx(1 - moduli[-2], abs=1e-9)


def test_the_models_of_the_dpfl_paper_can_be_tried():
    clients = topofl.data.dirichlet_per_class(
        topofl.data.digits(enlarge=2), 4, alpha=0.5, seed=0, val_fraction=0.2
    )
    history = topofl.run(
        algorithms.dpfl(0.05, epochs=1, budget=2),
        model=models.dpfl_cnn((1, 16, 16)),
        clients=clients,
        rounds=2,
        seed=0,
    )
    assert 0 < max(map(len, received(history, 0))) <= 2
