"""Nodes that choose whom they hear.

DPFL equals its listing in all executors, and no policy leaves the graph.
"""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, HOW, ROUNDS, SEED, N, check, engine, nodes_at_start
from topofl import algorithms, mixing, models, topologies
from topofl._support.seeding import stream
from topofl.topologies import averaged_reward, ggc

LOCAL = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.8}
RING = topologies.circulant(N, (1,), directed=True)
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
def test_dpfl_is_its_listing(choice, settings):
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
def test_linear_models_are_tried_together(settings):
    clients, model = problems.validated_clients(), problems.linear()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dpfl(nodes, clients.val, ROUNDS, lr=0.1, draws=draws, epochs=1, first_epochs=2, **LOCAL)
    check(nodes.flat(), engine(dpfl(), model, clients, **settings)[1].flat, start)


def test_a_choice_is_that_of_ggc_on_the_same_models():
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


def test_messages_are_of_all_who_are_tried():
    clients = problems.validated_clients()
    history, _ = engine(dpfl(budget=2, every=2), problems.linear(), clients)
    candidates, n, size = sum(map(len, received(history, 0))), N, 8 * 111
    chosen = sum(map(len, received(history, 1)))
    assert history["messages"].tolist() == [2 * n * (n - 1), chosen, candidates]
    assert history["bytes"].tolist() == [size * count for count in history["messages"]]
    once, _ = engine(dpfl(budget=2, streamed=False), problems.linear(), clients)
    assert once["messages"].tolist()[0] == n * (n - 1)
    assert received(once, 0) == received(history, 0)


def test_who_hears_nobody_between_refreshes_sends_nothing():
    history, _ = engine(
        dpfl(budget=2, every=2, keep=False), problems.linear(), problems.validated_clients()
    )
    assert history["messages"][1] == 0 < history["messages"][2]
    assert not any(received(history, 1))


@HOW
def test_infinite_losses_are_infinite_for_nodes_with_few_examples_too(settings):
    clients, found = problems.validated_clients(), {}
    assert len(set(map(len, clients.val))) > 1

    def trial(model):
        return (yield model)

    def choose(models, state, round):
        sure = models.flat.clone()  # of class 0: the loss on any other is infinite
        sure[:, -3:] = torch.tensor([1.7e308, -1.7e308, -1.7e308], dtype=torch.float64)
        found.update(round.cross_evaluate({i: trial(sure[i : i + 1]) for i in range(N)}, "val"))
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)))

    chain = algorithms.chain(
        "ask", exchange=algorithms.average_over_peers(algorithms.Policy(choose))
    )
    engine(chain, problems.convolutional(), clients, **settings)
    for i, losses in found.items():
        wrong = bool(clients.dataset.labels.numpy()[clients.val[i]].any())
        assert losses.tolist() == [np.inf if wrong else 0.0]


def test_the_graph_says_who_can_be_heard():
    clients, graph = problems.validated_clients(), topologies.circulant(N, (1, 2, 3), directed=True)
    history, _ = engine(dpfl(), problems.convolutional(), clients, graph)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graph)
    assert any(received(history, 0))
    assert history["messages"][0] == 2 * 3 * N


def test_a_policy_that_leaves_the_graph_is_refused():
    everybody = mixing.average_of_chosen(np.ones((N, N)))
    algorithm = algorithms.chain(
        "wild",
        exchange=algorithms.average_over_peers(
            algorithms.Policy(lambda *_: algorithms.Choice(everybody))
        ),
    )
    with pytest.raises(ValueError, match="off the edges of circulant"):
        engine(algorithm, problems.linear(), problems.equal_clients(), RING)
    downloads = algorithms.Policy(
        lambda *_: algorithms.Choice(mixing.average_of_chosen(np.eye(N)), [everybody])
    )
    chain = algorithms.chain("wild", exchange=algorithms.average_over_peers(downloads))
    with pytest.raises(ValueError, match="off the edges of circulant"):
        engine(chain, problems.linear(), problems.equal_clients(), RING)


@pytest.mark.parametrize(
    "returned",
    [None, torch.eye(N), mixing.average_of_chosen(np.eye(N)), algorithms.Choice(torch.eye(N))],  # pyright: ignore
)
def test_what_is_no_choice_is_refused_by_its_name(returned):
    policy = algorithms.Policy(lambda *_: returned)
    with pytest.raises(
        TypeError,
        match=r"a policy must return Choice\(weights\) with a MixingMatrix, got \w+; mixing",
    ):
        engine(
            algorithms.chain("mine", exchange=algorithms.average_over_peers(policy)),
            problems.linear(),
            problems.equal_clients(),
        )


ALONE, ALL = mixing.average_of_chosen(np.eye(N)), mixing.average_of_chosen(np.ones((N, N)))


def with_policy(choose, clients=None, **settings):
    """Run a policy, in float64."""
    policy = choose if isinstance(choose, algorithms.Policy) else algorithms.Policy(choose)
    algorithm = algorithms.chain("mine", exchange=algorithms.average_over_peers(policy))
    return engine(algorithm, problems.linear(), clients or problems.validated_clients(), **settings)


@pytest.mark.parametrize(
    ("choice", "error", "match"),
    [
        (
            algorithms.Choice(ALL, downloads=[ALONE]),
            ValueError,
            r"round 1, .*`downloads`.*node 0 takes of node 1",
        ),
        (algorithms.Choice(ALL, downloads=[]), ValueError, "`downloads`"),
        (
            algorithms.Choice(ALONE, downloads=[np.eye(N)]),
            TypeError,
            "must hold MixingMatrix, got ndarray",
        ),
        (algorithms.Choice(ALONE, downloads=ALONE), TypeError, "must be lists"),
        (
            algorithms.Choice(ALONE, besides=[(ALL, -4)]),
            ValueError,
            "`besides` must be at least 0, got -4",
        ),
        (algorithms.Choice(ALONE, besides=[(ALL, 2.5)]), TypeError, "`besides` must be an integer"),
        (algorithms.Choice(ALONE, server=-1), ValueError, "`server`"),
    ],
)
def test_costs_that_cannot_be_are_refused(choice, error, match):
    with pytest.raises(error, match=match):
        with_policy(lambda *_: choice)


def test_downloads_may_be_several_matrices_that_hold_all_edges_together():
    one, other = np.eye(N, k=1), np.eye(N, k=-1)
    several = [mixing.average_of_chosen(one), mixing.average_of_chosen(other)]
    choice = algorithms.Choice(mixing.average_of_chosen(one + other), downloads=several)
    history, _ = with_policy(lambda *_: choice)
    assert history["messages"].tolist() == [2 * (N - 1)] * ROUNDS


def test_a_policy_that_changes_models_is_refused():
    def zero(models, state, round):
        if round.t == 1:
            models.flat[2].zero_()
        return algorithms.Choice(ALONE)

    with pytest.raises(
        ValueError,
        match=r"round 2, where nodes choose their peers: a policy must not change models",
    ):
        with_policy(zero)


def test_state_that_no_checkpoint_could_keep_is_refused():
    def count(models, state, round):
        state["k"] = round.t
        return algorithms.Choice(ALONE)

    with pytest.raises(TypeError, match=r"round 1, .*got int as state\['k'\]; torch.tensor"):
        with_policy(count)
    with pytest.raises(TypeError, match="must be a dict of tensors, got list"):
        with_policy(algorithms.Policy(count, lambda models: [1]))  # pyright: ignore


def test_any_policy_can_be_saved_resumed_and_estimated(tmp_path):
    """Also one that works with numbers, of which there are none before a run."""

    def choose(models, state, round):
        state["seen"] += float(models.flat.mean())
        nearest = np.argsort(models.flat.numpy()[:, 0])
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)[nearest]))

    policy = algorithms.Policy(
        choose, lambda models: {"seen": models.flat.numpy().sum() + torch.zeros(1)}
    )
    algorithm = algorithms.chain("mine", exchange=algorithms.average_over_peers(policy))
    how = {"model": problems.linear(), "clients": problems.validated_clients()}
    settings = {**how, "seed": 0, "init": "independent", "every": 1}
    whole = topofl.run(algorithm, **problems.options(**settings), rounds=4)
    topofl.run(algorithm, **problems.options(saving=tmp_path, **settings), rounds=2)
    resumed = topofl.run(
        algorithm,
        **problems.options(saving=topofl.Saving(tmp_path, resume=True), **settings),
        rounds=4,
    )
    np.testing.assert_array_equal(whole["loss"], resumed["loss"])
    assert topofl.estimate(algorithm, **problems.options(**how)).messages == N * (
        N - 1
    )  # as if everybody heard all


@HOW
@pytest.mark.parametrize(
    ("cross_evaluate", "error", "match"),
    [
        (
            lambda models: {0: iter([])},
            TypeError,
            "must be generators, .* got a list_iterator for node 0",
        ),
        (lambda models: {N: yielding(models.flat)}, ValueError, "nodes from 0 to n-1=5, got 6"),
        (
            lambda models: {0: yielding(models.flat[0])},
            TypeError,
            r"must yield models as a tensor \(k, d=\d+\), got sh",
        ),
        (lambda models: {0: yielding(models.flat[:, :7])}, TypeError, r"got shape \(6, 7\)"),
        (lambda models: {0: yielding("text")}, TypeError, "got str"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(cross_evaluate, error, match, settings):
    def choose(models, state, round):
        round.cross_evaluate(cross_evaluate(models), "val")
        return algorithms.Choice(ALONE)

    algorithm = algorithms.chain(
        "mine", exchange=algorithms.average_over_peers(algorithms.Policy(choose))
    )
    with pytest.raises(error, match=match):
        engine(algorithm, problems.convolutional(), problems.validated_clients(), **settings)


def yielding(models):
    yield models


def test_nodes_without_examples_cannot_be_asked_unsaid():
    def choose(models, state, round):
        round.cross_evaluate({0: yielding(models.flat[:1])}, "val")
        return algorithms.Choice(ALONE)

    with pytest.raises(ValueError, match="`clients` must give every node val examples, on which"):
        with_policy(choose, problems.equal_clients())


def test_what_is_no_policy_is_refused():
    def nobody(models, state, round):
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)))

    for policy in (nobody, algorithms.Policy(3), algorithms.Policy(nobody, 3), None):  # pyright: ignore
        with pytest.raises(TypeError, match="`policy` must be a Policy of functions"):
            algorithms.average_over_peers(policy)  # pyright: ignore


@pytest.mark.parametrize("executor", ["looped", "batched"])
@pytest.mark.parametrize("value", [torch.inf, 1e30])
def test_models_that_diverged_are_not_chosen(value, executor):
    """Neither those that are not finite nor those whose losses are not."""

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


def test_random_collaboration_hears_the_same_nodes_for_ever():
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


def test_a_random_graph_stays_on_the_graph_and_takes_what_there_is():
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
