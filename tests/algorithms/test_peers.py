"""Peers chosen greedily, at random, or by a policy of one's own."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    HOW,
    ROUNDS,
    SEED,
    N,
    engine,
    nodes_at_start,
    received,
)
from tests.rows.methods import DECAYING, forward, three
from topofl import algorithms, mixing, models, topologies
from topofl._support.seeding import stream
from topofl.algorithms import Choice, Policy, average_over_peers
from topofl.topologies import averaged_reward, ggc

SMALL = {"batch_size": BATCH, "epochs": 1}


def dpfl(model=None, graph=None, **changes):
    """Return the history of a run of DPFL."""
    algorithm = algorithms.dpfl(0.1, **SMALL | DECAYING | changes)
    return engine(algorithm, model, problems.validated_clients(), graph)[0]


def idle(policy):
    """Return an algorithm that only averages over the peers of a policy."""
    return algorithms.chain("idle", exchange=average_over_peers(policy))


def test_choices_equal_those_of_ggc_on_the_same_models():
    clients, model, seen = problems.validated_clients(), problems.convolutional(), []
    policy = algorithms.greedy_peers(3)

    def spied(flat, state, round):
        seen.append(flat.flat.clone().numpy())
        return policy.choose(flat, state, round)

    history, _ = engine(idle(policy._replace(choose=spied)), model, clients)
    module = problems.convolutional().double()
    inputs, labels = clients.dataset.inputs.double(), clients.dataset.labels

    def loss(k, vector):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(vector), module.parameters())
        own = list(clients.val[k])
        outputs = module(inputs[own]).detach()
        return float(torch.nn.functional.cross_entropy(outputs, labels[own]))

    reward = averaged_reward(loss, seen[0], clients.sizes)
    others = [[i for i in range(N) if i != k] for k in range(N)]
    rngs = [stream(SEED, f"collaboration of {k}", 0) for k in range(N)]
    wanted = [list(ggc(reward, k, others[k], 3, seed=rngs[k])) for k in range(N)]
    assert received(history, 0) == wanted


def test_equal_models_are_all_chosen_up_to_the_budget():
    clients, model = problems.validated_clients(), problems.convolutional()
    algorithm = idle(algorithms.greedy_peers(4))
    history, _ = engine(algorithm, model, clients, rounds=1, init="common", dtype=torch.float32)
    assert set(history.mixing(0).support().in_degrees) == {4}


def test_collaborators_are_candidates_and_budgets_hold():
    history = dpfl(problems.convolutional(), budget=3)
    first, later = received(history, 0), [received(history, t) for t in range(1, ROUNDS)]
    assert max(map(len, first)) == 3
    for chosen in later:
        assert all(set(now) <= set(then) for now, then in zip(chosen, first, strict=True))
    counted = dpfl(problems.convolutional(), budget=3, count_self=True)
    assert max(map(len, received(counted, 0))) == 2


def test_weights_are_numbers_of_examples():
    sizes, history = problems.validated_clients().sizes, dpfl(budget=2)
    for t in range(ROUNDS):
        weights = history.mixing(t).weights.toarray()
        counted = (weights > 0) * sizes
        np.testing.assert_allclose(weights, counted / counted.sum(1, keepdims=True))
    assert (sizes != sizes[0]).any()


def test_messages_count_all_evaluated_models():
    history, size = dpfl(budget=2, every=2), 8 * 111
    chosen, candidates = (sum(map(len, received(history, t))) for t in (1, 0))
    assert history["messages"].tolist() == [2 * N * (N - 1), chosen, candidates]
    assert history["bytes"].tolist() == [size * count for count in history["messages"]]
    once = dpfl(budget=2, streamed=False)
    assert once["messages"].tolist()[0] == N * (N - 1)
    assert received(once, 0) == received(history, 0)
    rarely = dpfl(budget=2, every=2, keep=False)
    assert rarely["messages"][1] == 0 < rarely["messages"][2]
    assert not any(received(rarely, 1))
    need = topofl.estimate(
        algorithms.dpfl(0.1, budget=2, **SMALL),
        model=problems.linear(),
        clients=problems.validated_clients(),
    )
    assert need.messages == pytest.approx((2 * N * (N - 1) + 9 * N * 2) / 10)
    assert dpfl(budget=2)["messages"].mean() <= (2 * N * (N - 1) + 2 * N * 2) / 3


@pytest.mark.parametrize("executor", ["looped", "batched"])
@pytest.mark.parametrize("value", [torch.inf, 1e30])
def test_models_that_diverged_are_not_chosen(value, executor):
    """Neither models with NaN or infinity nor models with such losses are chosen."""

    def broken(models):
        models.flat[2] = value
        return {}

    phase = algorithms.Phase(broken, lambda models, state, round: state, {})
    exchange = average_over_peers(algorithms.greedy_peers())
    algorithm = algorithms.chain("broken", broken=phase, exchange=exchange)
    how = {"rounds": 1, "seed": 0, "init": "common", "dtype": torch.float32}
    how |= {"executor": executor, "on_divergence": "record"}
    clients = problems.validated_clients()
    chosen = received(engine(algorithm, problems.convolutional(), clients, **how)[0], 0)
    assert chosen[2] == []
    assert not any(2 in own for own in chosen)
    if value == torch.inf:  # else what is left of sums with 1e30 in them is nothing
        others = [[i for i in range(N) if i not in (2, k)] for k in range(N)]
        assert chosen == [*others[:2], [], *others[3:]]


@pytest.mark.parametrize(
    "algorithm",
    [algorithms.dpfl(0.1, **SMALL), algorithms.random_collaboration(0.1, 3, **SMALL)],
    ids=["dpfl", "random"],
)
@pytest.mark.parametrize(
    "graphs",
    [[three()], [three(), topologies.circulant(N, (3, 4), directed=True)]],
    ids=["one graph", "changing"],
)
def test_peers_are_in_neighbors_of_the_round_and_were_so_in_the_first(graphs, algorithm):
    clients = problems.validated_clients()
    history, _ = engine(algorithm, problems.convolutional(), clients, graphs)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graphs[t % len(graphs)])
        then = zip(received(history, t), received(history, 0), strict=True)
        assert all(set(now) <= set(first) for now, first in then)
    assert any(received(history, 0))
    assert algorithm.name != "dpfl" or history["messages"][0] == 2 * 3 * N


def test_random_collaboration_has_the_same_peers_in_all_rounds():
    clients, model = problems.equal_clients(), problems.linear()
    algorithm = algorithms.random_collaboration(0.1, 2, **SMALL | DECAYING)
    history, got = engine(algorithm, model, clients)
    assert [received(history, t) for t in range(ROUNDS)] == [received(history, 0)] * ROUNDS
    assert set(map(len, received(history, 0))) == {2}
    nodes, weights = nodes_at_start(model, clients), history.mixing(0).weights.toarray()
    start, how = nodes.flat(), {"momentum": 0.9, "weight_decay": 0.01}
    for t in range(ROUNDS):
        for i in range(N):
            phase, epochs = ("local", 1) if t else ("first", 2)
            naive.passes(nodes, i, t, phase, epochs=epochs, lr=0.1 * 0.8**t, **how)
        naive.average(nodes.modules, weights)
    torch.testing.assert_close(got.flat, nodes.flat(), rtol=0, atol=1e-10)
    assert not torch.allclose(got.flat, start, atol=1e-4)
    assert received(engine(algorithm, model, clients)[0], 0) == received(history, 0)
    few = algorithms.random_collaboration(0.1, 3, **SMALL)
    history, _ = engine(few, model, clients, forward())
    assert history.mixing(0).support().adjacency.nnz == N


def test_the_models_of_the_dpfl_paper_can_be_tried():
    digits = topofl.data.digits(enlarge=2)
    clients = topofl.data.dirichlet_per_class(digits, 4, alpha=0.5, seed=0, val_fraction=0.2)
    algorithm = algorithms.dpfl(0.05, epochs=1, budget=2)
    how = {"rounds": 2, "init": "common", "dtype": torch.float32}
    history, _ = engine(algorithm, models.dpfl_cnn((1, 16, 16)), clients, **how)
    assert 0 < max(map(len, received(history, 0))) <= 2


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
        return Choice(mixing.average_of_chosen(np.eye(N)))

    engine(idle(Policy(choose)), problems.convolutional(), clients, **settings)
    for i, losses in found.items():
        wrong = bool(clients.dataset.labels.numpy()[clients.val[i]].any())
        assert losses.tolist() == [np.inf if wrong else 0.0]


def test_downloads_may_be_several_matrices_that_hold_all_edges_together():
    one, other = np.eye(N, k=1), np.eye(N, k=-1)
    several = [mixing.average_of_chosen(one), mixing.average_of_chosen(other)]
    choice = Choice(mixing.average_of_chosen(one + other), downloads=several)
    history, _ = engine(idle(Policy(lambda *_: choice)), clients=problems.validated_clients())
    assert history["messages"].tolist() == [2 * (N - 1)] * ROUNDS


def test_any_policy_can_be_saved_resumed_and_estimated(tmp_path):
    """Even one that needs values, which do not exist in the dry run."""

    def choose(models, state, round):
        state["seen"] += float(models.flat.mean())
        nearest = np.argsort(models.flat.numpy()[:, 0])
        return Choice(mixing.average_of_chosen(np.eye(N)[nearest]))

    start = lambda models: {"seen": models.flat.numpy().sum() + torch.zeros(1)}  # noqa: E731
    algorithm, clients = idle(Policy(choose, start)), problems.validated_clients()
    world = {"clients": clients, "every": 1, "dtype": torch.float32}
    whole, _ = engine(algorithm, rounds=4, **world)
    engine(algorithm, rounds=2, saving=tmp_path, **world)
    saving = topofl.Saving(tmp_path, resume=True)
    resumed, _ = engine(algorithm, rounds=4, saving=saving, **world)
    np.testing.assert_array_equal(whole["loss"], resumed["loss"])
    need = topofl.estimate(algorithm, model=problems.linear(), clients=clients)
    assert need.messages == N * (N - 1)  # the dry run assumes all peers
