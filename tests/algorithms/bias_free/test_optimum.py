"""Bias-free methods converge to the optimum of the mean loss, where D-SGD and push-sum do not."""

import pytest
import torch

from tests import problems
from tests.algorithms.bias_free.test_bias_free import LR, irregular
from tests.algorithms.convergence import WHOLE, distances
from tests.algorithms.harness import BATCH, ROUNDS, N, engine
from topofl import algorithms, topologies

RANDOM = topologies.random_out(N, 2, seed=0)


EXACT = {
    "local_gt": (algorithms.local_gt(0.05, local_steps=3, batch_size=WHOLE), topologies.ring(N)),
    "local_gt with a global rate": (
        algorithms.local_gt(0.05, local_steps=3, global_lr=0.7, batch_size=WHOLE),
        topologies.ring(N),
    ),
    "local_gt over one-peer graphs": (
        algorithms.local_gt(0.05, local_steps=2, batch_size=WHOLE),
        topologies.one_peer_exponential(N),
    ),
    "extra": (algorithms.extra(LR, batch_size=WHOLE), topologies.ring(N)),
    "d2": (algorithms.d2(LR, batch_size=WHOLE), topologies.ring(N)),
    "d2 by all weights": (algorithms.d2(LR, batch_size=WHOLE, lazy=False), topologies.path(N)),
    "push_diging": (algorithms.push_diging(LR, batch_size=WHOLE), irregular()),
    "push_diging over random graphs": (algorithms.push_diging(LR, batch_size=WHOLE), RANDOM),
    "sab": (algorithms.sab(LR, batch_size=WHOLE), irregular()),
    "sab over random graphs": (algorithms.sab(LR, batch_size=WHOLE), RANDOM),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.slow
def test_all_nodes_reach_the_optimum_of_the_mean_loss(name):
    algorithm, graph = EXACT[name]
    assert distances(algorithm, 200, topology=graph).max() < 1e-9


@pytest.mark.parametrize("name", ["extra", "d2", "dsgt"])
@pytest.mark.parametrize("later", [0.01, 0.0])
@pytest.mark.slow
def test_at_the_optimum_models_stay_where_the_rate_changes(later, name):
    rate = lambda t, k: LR if t < 150 else later  # noqa: E731
    algorithm = getattr(algorithms, name)(rate, batch_size=WHOLE)
    for rounds in (150, 151, 152, 200):
        assert distances(algorithm, rounds, topology=topologies.ring(N)).max() < 1e-9


@pytest.mark.parametrize("name", ["extra", "d2"])
def test_where_the_rate_is_0_corrections_stay(name):
    rate = lambda t, k: LR * (t == 0)  # noqa: E731
    seen = kept_after_rounds(
        getattr(algorithms, name)(rate, batch_size=BATCH), topologies.ring(N), "exchange"
    )
    assert seen[0]["correction"].abs().max() > 0.01
    torch.testing.assert_close(seen[-1]["correction"], seen[0]["correction"], rtol=0, atol=0)


@pytest.mark.parametrize("steps", [1, 3])
def test_dsgd_with_a_constant_step_does_not(steps):
    plain = algorithms.dsgd(0.05, local_steps=steps, batch_size=WHOLE)
    assert distances(plain, 200, topology=topologies.ring(N)).min() > 1e-3


@pytest.mark.parametrize("graph", [irregular(), RANDOM], ids=["static", "random"])
def test_push_sum_without_tracking_does_not(graph):
    plain = algorithms.chain(
        "sgp", local=algorithms.sgd(LR, batch_size=WHOLE), exchange=algorithms.push_sum()
    )
    assert distances(plain, 200, topology=graph).min() > 1e-3


def kept_after_rounds(algorithm, graph, phase):
    """Return what a phase keeps after every round, on ragged data and from unlike starts."""
    seen = []

    def note(models, state, round):
        seen.extend(
            [] if models.flat.is_meta else [{k: x.clone() for k, x in round.state(phase).items()}]
        )
        return state

    noting = algorithms.chain(
        "noted", **algorithm.phases, note=algorithms.Phase(lambda models: {}, note)
    )
    engine(noting, problems.convolutional(), problems.ragged_clients(), graph)
    assert len(seen) == ROUNDS
    return seen


TRACKING = {
    "push_diging": (algorithms.push_diging, topologies.random_out(N, 2, seed=2)),
    "push_diging over other graphs": (algorithms.push_diging, topologies.random_out(N, 1, seed=5)),
    "sab": (algorithms.sab, irregular()),
    "sab over random graphs": (algorithms.sab, topologies.random_in(N, 2, seed=3)),
}


@pytest.mark.parametrize("name", TRACKING)
def test_what_is_tracked_has_the_sum_of_the_gradients(name):
    method, graph = TRACKING[name]
    for state in kept_after_rounds(method(LR, batch_size=BATCH), graph, "local"):
        torch.testing.assert_close(
            state["tracked"].sum(0), state["gradient"].sum(0), rtol=0, atol=1e-12
        )
        assert not torch.allclose(state["tracked"], state["gradient"], atol=1e-4), (
            "nothing was mixed"
        )


CORRECTED = {
    "local_gt": (
        algorithms.local_gt(LR, local_steps=3, batch_size=BATCH),
        topologies.ring(N),
        "local",
    ),
    "local_gt over one-peer graphs": (
        algorithms.local_gt(LR, global_lr=0.5, batch_size=BATCH),
        topologies.one_peer_exponential(N),
        "local",
    ),
    "extra": (algorithms.extra(LR, batch_size=BATCH), topologies.ring(N), "exchange"),
    "d2": (algorithms.d2(LR, batch_size=BATCH), topologies.ring(N), "exchange"),
    "d2 by all weights": (
        algorithms.d2(LR, batch_size=BATCH, lazy=False),
        topologies.path(N),
        "exchange",
    ),
}


@pytest.mark.parametrize("name", CORRECTED)
def test_corrections_sum_to_zero(name):
    for state in kept_after_rounds(*CORRECTED[name]):
        assert state["correction"].abs().max() > 1e-3
        torch.testing.assert_close(
            state["correction"].sum(0), torch.zeros_like(state["correction"][0]), atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("name", ["extra", "d2", "local_gt"])
def test_at_the_fixed_point_corrections_are_the_nodes_own_gradients(name):
    """Or their negative in K-GT, so that each node's local step and they cancel."""
    phase, scale = ("local", -1) if name == "local_gt" else ("exchange", 1)
    found = {}

    def note(models, state, round):
        gradients = round.gradients(models, WHOLE, "there").clone()
        found.update(
            models=models.flat.clone(),
            gradients=gradients,
            kept=round.state(phase)["correction"].clone(),
        )
        return state

    algorithm = getattr(algorithms, name)(
        LR, batch_size=WHOLE, **({"local_steps": 2} if name == "local_gt" else {})
    )
    noting = algorithms.chain(
        "noted", **algorithm.phases, note=algorithms.Phase(lambda models: {}, note)
    )
    assert distances(noting, 200, topology=topologies.ring(N)).max() < 1e-9
    assert found["gradients"].abs().max() > 0.1
    torch.testing.assert_close(found["kept"], scale * found["gradients"], rtol=0, atol=1e-9)
