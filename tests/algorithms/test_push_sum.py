"""Push-sum: conservation, proven bounds and exact averages."""

import numpy as np
import pytest
import torch

from tests import problems
from tests.algorithms.harness import BATCH, HEAD, N, engine, nodes_at_start
from topofl import algorithms, metrics, topologies

RANDOM = topologies.random_out(N, 2, seed=4)


def exchanged(phase, graph, rounds=1, **settings):
    """Return history, and models and weights after every round without training."""
    kept = []
    noting = problems.each_round(
        lambda t, models: kept.append((models.flat.clone(), models.push_sum_weights.clone()))
    )
    algorithm = algorithms.chain("exchange", exchange=phase)
    how = {"rounds": rounds, "callbacks": [noting]} | settings
    history, _ = engine(algorithm, problems.convolutional(), None, graph, **how)
    return history, kept


@pytest.fixture(scope="module")
def start():
    return nodes_at_start(problems.convolutional(), problems.equal_clients()).flat()


def test_push_conserves_mass_and_what_is_pushed_and_weights_stay_positive(start):
    history, kept = exchanged(algorithms.push_sum(), RANDOM, rounds=40)
    for flat, weights in kept:
        assert float(weights.sum()) == pytest.approx(N, rel=1e-14)
        assert bool((weights > 0).all())
        torch.testing.assert_close((weights[:, None] * flat).sum(0), start.sum(0))
    least = [float(weights.min()) for _, weights in kept]
    assert len({round(one, 9) for one in least}) > 5, "weights did not move"
    torch.testing.assert_close(kept[-1][0], start.mean(0).expand(N, -1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(history["smallest_push_weight"], least)


def test_smallest_push_weight_is_delta_and_distances_stay_below_the_proven_bound(start):
    """Without gradients, the measured rate, the proven bound and SGP's form hold in every round."""
    history, kept = exchanged(algorithms.push_sum(), RANDOM, rounds=60)
    constants = metrics.push_sum_constants(history, dimension=start.shape[1])
    assert constants.delta == pytest.approx(history["smallest_push_weight"].min(), rel=1e-12)
    mean, proven, sgp = start.mean(0), constants.proven, constants.sgp
    # Weights of z_i on x_j / n differ from 1 / n by tau / delta at most, summed over j by twice
    # as much.
    size = 2 / constants.delta * float(start.abs().max()) * N
    for t, (flat, _) in enumerate(kept, start=1):
        farthest = float((flat - mean).abs().max())
        assert farthest <= constants.c_hat * constants.q_hat**t * size + 1e-12
        assert farthest <= 10**proven.log10_c * proven.q**t * size
        bound = 10**sgp.log10_c * sgp.q**t * start.norm(dim=1).max()
        assert (flat - mean).norm(dim=1).max() <= bound, "the published form"


def test_pull_keeps_weights_and_constants_but_no_sum(start):
    graphs = topologies.random_in(N, 2, seed=4)
    _, kept = exchanged(algorithms.gossip(), graphs, rounds=3)
    flat, weights = kept[-1]
    assert bool((weights == 1).all())
    assert not torch.allclose(flat.mean(0), start.mean(0), atol=1e-3)
    _, kept = exchanged(algorithms.gossip(), graphs, rounds=3, init="common")
    same, _ = kept[-1]
    torch.testing.assert_close(same, same[:1].expand(N, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("phase", [algorithms.push_sum, algorithms.gossip])
def test_with_all_others_as_neighbors_bodies_are_averaged_exactly(phase, start):
    graphs = topologies.random_out(N, N - 1, seed=0)
    _, ((flat, weights),) = exchanged(phase(algorithms.part(HEAD).rest), graphs)
    torch.testing.assert_close(flat[:, :-111], start[:, :-111].mean(0).expand(N, -1))
    torch.testing.assert_close(flat[:, -111:], start[:, -111:], rtol=0, atol=0)
    torch.testing.assert_close(weights, torch.ones(N, dtype=torch.float64))


def test_only_what_is_pushed_has_its_steps_divided():
    """Averaged heads and pushed bodies touch different columns, so their order is the same."""
    local = algorithms.sgd(0.1, batch_size=BATCH)
    push = algorithms.push_sum(algorithms.part(HEAD).rest)
    serve = algorithms.server_average(algorithms.part(HEAD))
    chains = [{"local": local, "a": push, "b": serve}, {"local": local, "a": serve, "b": push}]
    (_, one), (_, other) = (
        engine(algorithms.chain("both", **phases), problems.convolutional(), None, RANDOM)
        for phases in chains
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-12)
