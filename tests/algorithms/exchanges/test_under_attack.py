"""Robust methods under attack: hulls, accuracy, and numbers of tolerated attackers."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.algorithms.exchanges.attacked_runs import attacked, blobs
from topofl import algorithms, attacks, topologies
from topofl._support.seeding import seeded_torch


@seeded_torch(0)
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


BAD = (2, 9)


ATTACKS = {
    "sign_flip": attacks.sign_flip(BAD, scale=10.0),
    "noise": attacks.noise(BAD, std=5.0),
    "alie": attacks.alie(BAD, z=3.0),
    "dissensus": attacks.dissensus(BAD, strength=3.0),
}


UNDER = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


ROBUST = {
    "clipped_gossip": algorithms.clipped_gossip(0.2, delta=0.4, batch_size=8),
    "clipped_gossip by tau": algorithms.clipped_gossip(0.2, tau=0.2, batch_size=8),
    "self_centered_clipping": algorithms.self_centered_clipping(0.4, tau=0.2, batch_size=8),
    "coordinate_median": algorithms.coordinate_median(0.2, batch_size=8),
    "trimmed_mean": algorithms.trimmed_mean(0.2, 2, batch_size=8),
}


@UNDER
@pytest.mark.parametrize("name", ["trimmed_mean", "coordinate_median"])
def test_without_training_honest_models_stay_within_their_hull(name, attack):
    """Of any start, in every round; those of plain gossip leave it."""

    def ranges(exchange):
        algorithm = algorithms.chain("exchange", exchange=exchange)
        _, kept = attacked(algorithm, attack, rounds=6, init="independent")
        lows, highs = (
            torch.stack([getattr(models, end)(0).values for models in kept])
            for end in ("min", "max")
        )
        return (lows.diff(dim=0) >= -1e-12).all() and (
            highs.diff(dim=0) <= 1e-12
        ).all(), highs - lows

    inside, width = ranges(ROBUST[name].phases["exchange"])
    assert inside
    assert width[-1].mean() < 0.9 * width[0].mean(), "nothing was exchanged"
    assert not ranges(algorithms.gossip())[0]


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_one_attacker_moves_dsgd_as_far_as_it_likes_and_no_robust_method(scale):
    attack = attacks.sign_flip([0], scale=scale)
    for algorithm in ROBUST.values():
        (_, (made,)), (_, (calm,)) = (attacked(algorithm, one, rounds=1) for one in (attack, None))
        assert (made - calm[1:]).abs().max() < 0.5
    _, (made,) = attacked(algorithms.dsgd(0.2, batch_size=8), attack, rounds=1)
    assert made.abs().max() > 0.005 * scale


@UNDER
@pytest.mark.parametrize("name", ROBUST)
def test_robust_methods_learn_under_attack(name, attack):
    """Mean accuracy of the honest nodes on the common test set, of three like classes."""
    calm, _ = attacked(ROBUST[name], None)
    history, _ = attacked(ROBUST[name], attack)
    found = history.last("accuracy")
    assert np.isnan(found[list(BAD)]).all()
    assert np.nanmean(found) > np.mean(calm.last("accuracy")) - 0.05


@pytest.mark.parametrize("name", ["sign_flip", "noise", "dissensus"])
def test_dsgd_does_not_learn_under_attack(name):
    """ALIE, which stays among the honest models, slows it down at most."""
    history, _ = attacked(algorithms.dsgd(0.2, batch_size=8), ATTACKS[name], on_divergence="record")
    assert np.nanmean(history.last("accuracy")) < 0.7


@UNDER
@pytest.mark.parametrize(
    ("algorithm", "model"),
    [
        (algorithms.dpfl(0.1, batch_size=8, epochs=1), problems.linear),
        (algorithms.pfeddst(0.1, batch_size=8, epochs=1, k=3, head="3"), layered),
    ],
    ids=["dpfl", "pfeddst"],
)
@pytest.mark.slow
def test_methods_that_choose_their_peers_do_better_than_chance_under_attack(
    algorithm, model, attack
):
    """Mean accuracy of the honest nodes on the common test set.

    It has three like classes, so chance is a third.
    """
    history, _ = attacked(algorithm, attack, model=model(), on_divergence="record")
    assert np.nanmean(history.last("accuracy")) > 0.5


def test_dpfl_leaves_attackers_out():
    history, _ = attacked(algorithms.dpfl(0.1, batch_size=8, epochs=1), ATTACKS["sign_flip"])
    received = history.mixing(-1).weights.toarray()[np.setdiff1d(range(12), BAD)][:, BAD]
    assert not received.any()


@UNDER
@pytest.mark.parametrize("name", ROBUST)
def test_chunks_and_executors_do_not_matter_under_attack(name, attack):
    runs = [{"executor": "looped"}, {"executor": "batched"}, {"executor": "batched", "chunk": 5}]
    looped, *others = (attacked(ROBUST[name], attack, rounds=3, **how)[1][-1] for how in runs)
    for other in others:
        torch.testing.assert_close(other, looped, rtol=0, atol=1e-12)


def warned(algorithm, nodes, graph):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        topofl.run(
            algorithm,
            model=problems.linear(),
            clients=blobs(graph.n),
            topology=graph,
            rounds=1,
            seed=0,
            attackers=attacks.sign_flip(nodes),
            progress=False,
        )
    return [str(one.message) for one in caught if "`attackers`" in str(one.message)]


COMPLETE = topologies.fully_connected(9)


@pytest.mark.parametrize(
    ("algorithm", "fine", "many", "text"),
    [
        (
            algorithms.trimmed_mean(0.1, 3),
            3,
            4,
            "node 4 receives from 4 attackers, more than trim=3; "
            "let at most 3 of the 9 nodes attack",
        ),
        (
            algorithms.coordinate_median(0.1),
            4,
            5,
            "node 5 receives from 5 attackers, half or more of its 9 values, its own included; "
            "let at most 4",
        ),
        (
            algorithms.clipped_gossip(0.1, delta=1 / 3),
            3,
            4,
            "attackers weigh 0.444 at node 4, more than delta=0.333",
        ),
        (
            algorithms.clipped_gossip(0.1, tau=1.0),
            3,
            4,
            "attackers weigh 0.444 at node 4, half of the weight of its neighbors, or more",
        ),
        (
            algorithms.self_centered_clipping(0.1, tau=1.0),
            3,
            4,
            "attackers weigh 0.444 at node 4, half of the weight of its neighbors, or more",
        ),
    ],
    ids=["trimmed", "median", "own radius", "fixed radius", "self-centered"],
)
def test_too_many_attackers_cause_a_warning_before_the_run(algorithm, fine, many, text):
    assert warned(algorithm, range(fine), COMPLETE) == []
    (told,) = warned(algorithm, range(many), COMPLETE)
    assert told.startswith(f"`attackers` are more than {algorithm.name} tolerates: {text}")


def test_attackers_are_counted_per_receiver():
    """On a ring, one honest node receives from each of two adjacent attackers."""
    ring = topologies.ring(9)
    assert warned(algorithms.coordinate_median(0.1), [3, 4], ring) == []
    (told,) = warned(algorithms.coordinate_median(0.1), [3, 5], ring)
    assert "node 4 receives from 2 attackers" in told


@pytest.mark.parametrize(
    ("build", "options", "remedy", "better", "graph"),
    [
        (algorithms.coordinate_median, {}, "use topologies.fully_connected(9)", {}, COMPLETE),
        (
            algorithms.trimmed_mean,
            {"trim": 0},
            "use topologies.fully_connected(9) and trim=2",
            {"trim": 2},
            COMPLETE,
        ),
        (
            algorithms.clipped_gossip,
            {"tau": 1.0},
            "use topologies.fully_connected(9)",
            {"tau": 1.0},
            COMPLETE,
        ),
        (
            algorithms.clipped_gossip,
            {"delta": 0.4},
            "use topologies.fully_connected(9) and delta=0.223",
            {"delta": 0.223},
            COMPLETE,
        ),
    ],
    ids=["median", "trimmed", "fixed radius", "own radius"],
)
def test_remedies_against_attackers_work(build, options, remedy, better, graph):
    (told,) = warned(build(0.1, **options), [3, 5], topologies.ring(9))
    assert told.endswith(f"; {remedy}")
    assert warned(build(0.1, **better), [3, 5], graph) == []


def test_remedies_name_arguments_only_where_they_help():
    for build, name, few, enough in [
        (algorithms.trimmed_mean, "trim", 1, 2),
        (algorithms.clipped_gossip, "delta", 0.1, 0.223),
    ]:
        (told,) = warned(build(0.1, **{name: few}), [3, 5], COMPLETE)
        assert told.endswith(f"; give {name}={enough}")
        assert warned(build(0.1, **{name: enough}), [3, 5], COMPLETE) == []
