"""Push-sum with personal heads: conservation, proven bounds and exact averages."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import BATCH, HEAD, SEED, N, engine
from tests.engine.test_equivalence import modules_at_start
from topofl import algorithms, metrics, topologies


def exchanged(phase, graph, rounds=1, model=None, **settings):
    """Return history and models of rounds without training."""
    clients, kept = problems.equal_clients(), []
    history = topofl.run(
        algorithms.chain("exchange", exchange=phase),
        model=model or problems.convolutional(),
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=SEED,
        init="independent",
        callbacks=[
            problems.each_round(
                lambda t, models: kept.append(
                    (models.flat.clone(), models.push_sum_weights.clone())
                )
            )
        ],
        **problems.options(dtype=torch.float64, on_disconnected="allow", **settings),
    )
    return history, kept


def start_of(model):
    return torch.stack(
        [
            torch.nn.utils.parameters_to_vector(m.parameters()).detach()
            for m in modules_at_start(model, N)
        ]
    )


def test_push_conserves_mass_and_what_is_pushed_and_weights_stay_positive():
    history, kept = exchanged(algorithms.push_sum(), topologies.random_out(N, 2, seed=4), rounds=40)
    start = start_of(problems.convolutional())
    for flat, push_sum_weights in kept:
        assert float(push_sum_weights.sum()) == pytest.approx(N, rel=1e-14)
        assert bool((push_sum_weights > 0).all())
        torch.testing.assert_close((push_sum_weights[:, None] * flat).sum(0), start.sum(0))
    assert len({round(float(push_sum_weights.min()), 9) for _, push_sum_weights in kept}) > 5, (
        "weights did not move"
    )
    torch.testing.assert_close(kept[-1][0], start.mean(0).expand(N, -1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(
        history["smallest_push_weight"],
        [float(push_sum_weights.min()) for _, push_sum_weights in kept],
    )


def test_smallest_push_weight_is_delta_and_distances_stay_below_the_proven_bound():
    """Without gradients, the measured rate, the proven bound and SGP's form hold in every round."""
    history, kept = exchanged(algorithms.push_sum(), topologies.random_out(N, 2, seed=4), rounds=60)
    constants = metrics.push_sum_constants(
        history, dimension=start_of(problems.convolutional()).shape[1]
    )
    assert constants.delta == pytest.approx(history["smallest_push_weight"].min(), rel=1e-12)
    start = start_of(problems.convolutional())
    mean = start.mean(0)
    size = float(start.abs().max())
    for t, (flat, _) in enumerate(kept, start=1):
        farthest = float((flat - mean).abs().max())
        # Weights of z_i on x_j / n differ from 1 / n by tau / delta at most, summed over j by twice
        # as much.
        assert (
            farthest
            <= 2 * constants.c_hat * constants.q_hat**t / constants.delta * size * N + 1e-12
        )
        assert (
            farthest
            <= 2 * 10**constants.proven.log10_c * constants.proven.q**t / constants.delta * size * N
        )
        norms = start.norm(dim=1).max()
        distances = (flat - mean).norm(dim=1).max()
        assert distances <= 10**constants.sgp.log10_c * constants.sgp.q**t * norms, (
            "the published form"
        )


def test_pull_keeps_weights_and_constants_but_no_sum():
    _, kept = exchanged(algorithms.gossip(), topologies.random_in(N, 2, seed=4), rounds=3)
    start = start_of(problems.convolutional())
    flat, push_sum_weights = kept[-1]
    assert bool((push_sum_weights == 1).all())
    assert not torch.allclose(flat.mean(0), start.mean(0), atol=1e-3)
    phase = algorithms.chain("exchange", exchange=algorithms.gossip())
    same = []
    topofl.run(
        phase,
        model=problems.convolutional(),
        clients=problems.equal_clients(),
        seed=SEED,
        rounds=3,
        topology=topologies.random_in(N, 2, seed=4),
        compute=topofl.Compute(dtype=torch.float64),
        callbacks=[problems.each_round(lambda t, models: same.append(models.flat.clone()))],
    )
    torch.testing.assert_close(same[-1], same[-1][:1].expand(N, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_with_all_others_as_neighbors_bodies_are_averaged_exactly(mode):
    graphs = topologies.random_out(N, N - 1, seed=0)
    phase = algorithms.push_sum if mode == "push" else algorithms.gossip
    _, ((flat, push_sum_weights),) = exchanged(phase(algorithms.part(HEAD).rest), graphs)
    start = start_of(problems.convolutional())
    torch.testing.assert_close(flat[:, :-111], start[:, :-111].mean(0).expand(N, -1))
    torch.testing.assert_close(flat[:, -111:], start[:, -111:], rtol=0, atol=0)
    torch.testing.assert_close(push_sum_weights, torch.ones(N, dtype=torch.float64))


def test_without_a_head_dfedpgp_is_sgp_with_local_passes():
    clients = problems.equal_clients()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    chained = algorithms.chain(
        "no head",
        local=algorithms.sgd(0.1, batch_size=BATCH, epochs=2, momentum=0.9, reset_momentum=True),
        exchange=algorithms.push_sum(),
    )
    _, mine = engine(chained, model, clients, graphs)
    _, sgp = engine(algorithms.osgp(0.1, batch_size=BATCH, epochs=2), model, clients, graphs)
    torch.testing.assert_close(mine.flat, sgp.flat, rtol=0, atol=1e-12)


def test_only_what_is_pushed_has_its_steps_divided():
    """Averaged heads and pushed bodies touch different columns, so their order is the same."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    local = algorithms.sgd(0.1, batch_size=BATCH)
    push = algorithms.push_sum(algorithms.part(HEAD).rest)
    serve = algorithms.server_average(algorithms.part(HEAD))
    _, one = engine(algorithms.chain("one", local=local, a=push, b=serve), model, clients, graphs)
    _, other = engine(
        algorithms.chain("other", local=local, a=serve, b=push), model, clients, graphs
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-12)
