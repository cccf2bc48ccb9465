"""Weights of pFedGraph are as defined."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, ROUNDS, N, engine
from tests.rows.methods import DECAYING, forward
from topofl import algorithms, data, mixing, topologies
from topofl._linalg.distributions import simplex_projection
from topofl.algorithms import average_over_peers, similar_peers

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


@pytest.mark.parametrize("threshold", [0.9, 1.0])
def test_weights_are_the_nearest_to_fractions_and_cosines(threshold):
    went = ways()
    went[1], went[2] = went[0] + 0.1 * went[3], -went[0]
    cosines = cosines_of(went)
    assert 0.9 < cosines[0, 1] < 1
    similar = np.where(cosines > threshold, 1, cosines)
    found = moved(went, strength=0.5, threshold=threshold)
    alike(found, simplex_projection(FRACTIONS + similar / (2 * 0.5)))
    alike(found.sum(axis=1), 1)
    assert (found >= 0).all()
    assert found[0, 2] == 0, "who went the opposite way is not heard"


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


def test_gradients_of_the_cosine_pull_equal_autograd():
    draw = torch.Generator().manual_seed(0)
    theta, toward, gradients = torch.randn(3, 3, 9, generator=draw, dtype=torch.float64)
    theta[2] = 0
    pull, before = algorithms.cosine_pull("toward"), gradients.clone()
    turned = pull.update(gradients, theta, {"toward": toward}, algorithms.Step(0, 0, 0.1))
    for i in range(2):
        (wanted,) = naive.turning([theta[i].clone().requires_grad_()], toward[i])
        torch.testing.assert_close(turned[i] - before[i], wanted)
    assert torch.equal(turned[2], before[2]), "0 has no direction"


def test_models_that_diverged_do_not_stop_a_run_that_goes_on():
    went = ways()
    went[2] = np.inf
    alike(moved(went, settings={"on_divergence": "record"})[2], FRACTIONS)
