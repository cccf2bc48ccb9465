"""Peers chosen greedily, at random, by similarity, or by a policy of one's own."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, HOW, ROUNDS, N, engine, nodes_at_start, received
from tests.rows.methods import DECAYING, forward, three
from topofl import algorithms, data, mixing, models, topologies
from topofl._linalg.distributions import simplex_projection
from topofl.algorithms import Choice, Policy, average_over_peers, similar_peers

SMALL = {"batch_size": BATCH, "epochs": 1}


def dpfl(model=None, graph=None, **changes):
    """Return the history of a run of DPFL."""
    algorithm = algorithms.dpfl(0.1, **SMALL | DECAYING | changes)
    return engine(algorithm, model, problems.validated_clients(), graph)[0]


def idle(policy):
    """Return an algorithm that only averages over the peers of a policy."""
    return algorithms.chain("idle", exchange=average_over_peers(policy))


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


NUMBERS = 111


def moved(ways, clients=None, settings=None, **options):
    """Return the weights after models moved by given vectors (n, d), without training."""

    def apply(models, state, round):
        models.flat.add_(torch.as_tensor(ways).to(models.flat))
        return state

    move = algorithms.Phase(lambda models: {}, apply, {})
    exchange = average_over_peers(similar_peers(**options))
    algorithm = algorithms.chain("moved", move=move, exchange=exchange)
    how = {"rounds": 1, "init": "common"} | (settings or {})
    history, _ = engine(algorithm, None, clients or problems.ragged_clients(), **how)
    return history.mixing(0).weights.toarray()


def ways(seed=0):
    return np.random.default_rng(seed).standard_normal((N, NUMBERS)) + 0.5


FRACTIONS = problems.ragged_clients().sizes / problems.ragged_clients().sizes.sum()


def alike(found, wanted, atol=1e-12):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


def cosines_of(went):
    lengths = np.linalg.norm(went, axis=1)
    return went @ went.T / np.outer(lengths, lengths)


def test_graphs_may_change():
    graphs = topologies.random_in(N, 2, seed=4)
    algorithm = algorithms.pfedgraph(0.1, batch_size=BATCH, epochs=1, **DECAYING)
    history, _ = engine(algorithm, None, problems.ragged_clients(), graphs, init="common")
    for t in range(ROUNDS):
        history.mixing(t).check_on(graphs.at(t))


@pytest.mark.parametrize("strength", [0.01, 0.8, 100.0])
def test_equal_directions_give_shares_of_data(strength):
    scales = np.arange(1, N + 1)[:, None]
    for went in (scales * ways()[:1], np.zeros((N, NUMBERS))):
        alike(moved(went, strength=strength), np.tile(FRACTIONS, (N, 1)))


def test_lengths_of_changes_do_not_matter_and_unchanged_models_have_cosine_zero():
    lengths = np.array([1e-6, 1.0, 3.0, 10.0, 1e3, 1e6])[:, None]
    alike(moved(lengths * ways()), moved(ways()), atol=1e-7)
    alike(moved(7.0 * ways()), moved(ways()))
    went = ways()
    went[4] = 0
    alike(moved(went)[4], FRACTIONS)


def test_weights_are_equivariant_under_permutations():
    clients, order = problems.ragged_clients(), np.array([3, 0, 5, 1, 4, 2])
    own = tuple(clients.train[k] for k in order)
    renamed = data.Partition(clients.dataset, own, name="renamed")
    alike(moved(ways()[order], renamed), moved(ways(), clients)[np.ix_(order, order)])


def test_a_weak_pull_to_data_leaves_nodes_alone():
    alike(moved(ways(), strength=1e-3), np.eye(N))


def test_a_part_of_the_models_may_be_compared_and_travel():
    went, bias = ways(), algorithms.part("1.bias")
    cosines = cosines_of(went[:, 108:])
    similar = np.where(cosines > 0.9, 1, cosines)
    alike(moved(went, compare="1.bias"), simplex_projection(FRACTIONS + similar / 1.6))
    exchange = average_over_peers(similar_peers(compare=bias), bias)
    history, _ = engine(algorithms.chain("part", exchange=exchange), rounds=1, init="common")
    assert history["bytes"].tolist() == [2 * N * 3 * 8]


@pytest.mark.parametrize(("regulariser", "models"), [(0.0, 2), (0.1, 3)])
@pytest.mark.parametrize("graph", [None, forward()])
def test_every_node_sends_one_message_and_gets_one(graph, regulariser, models):
    clients, size = problems.ragged_clients(), models * N * NUMBERS * 8
    algorithm = algorithms.pfedgraph(0.1, regulariser=regulariser, epochs=1)
    history, _ = engine(algorithm, None, clients, graph, init="common")
    for column, wanted in (("messages", 2 * N), ("bytes", size)):
        assert (history[column] == wanted).all()
        assert (history[f"busiest_{column}"] == wanted).all(), "the server"
    how = {"topology": graph, "compute": topofl.Compute(dtype=torch.float64)}
    need = topofl.estimate(algorithm, model=problems.linear(), clients=clients, **how)
    assert (need.messages, need.bytes) == (2 * N, size)
    # one start, and where each turns
    assert need.state == NUMBERS * 8 * (1 + N * bool(regulariser))


def test_a_server_receives_from_nodes_without_out_neighbors():
    first = mixing.from_weights(np.eye(N)[[0] * N])
    policy = algorithms.Policy(lambda *_: algorithms.Choice(first, server=1))
    history, _ = engine(algorithms.chain("copies", exchange=average_over_peers(policy)), rounds=1)
    assert history["messages"].tolist() == [2 * N]
    assert history["bytes"].tolist() == [2 * N * NUMBERS * 8]
    np.testing.assert_array_equal(history.mixing(0).weights.toarray(), first.weights.toarray())


def test_a_model_of_zeros_has_no_direction_to_be_pulled():
    g, theta, toward = torch.randn(2, 9), torch.zeros(2, 9), torch.ones(2, 9)
    pull, step = algorithms.cosine_pull("toward"), algorithms.Step(0, 0, 0.1)
    assert torch.equal(pull.update(g.clone(), theta, {"toward": toward}, step), g)


def test_models_that_diverged_do_not_stop_a_run_that_goes_on():
    went = ways()
    went[2] = np.inf
    alike(moved(went, settings={"on_divergence": "record"})[2], FRACTIONS)
