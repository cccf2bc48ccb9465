"""A server that takes in updates as they arrive: times, staleness, messages, and who trains."""

import numpy as np
import pytest
import torch

from tests import problems
from tests.algorithms.harness import engine, trail
from tests.engine.train.test_divergence import too_large, with_inputs
from topofl import algorithms, attacks, clocks, data
from topofl.algorithms import fedasync, fedbuff, hinge_discount, polynomial_discount

BOTH = pytest.mark.parametrize("build", [fedasync, fedbuff], ids=["fedasync", "fedbuff"])
MODEL = 111 * 4
"""Bytes of the linear model."""


def run(algorithm, rounds, n=3, **settings):
    """Return the history of a run in float32, evaluated at its end."""
    how = {"seed": 0, "init": "common", "every": rounds, "dtype": torch.float32} | settings
    clients = settings.pop("clients", None) or problems.equal_clients(n)
    how.pop("clients", None)
    return engine(algorithm, None, clients, None, rounds=rounds, **how)[0]


@pytest.mark.parametrize(
    ("method", "staleness"),
    [
        (fedasync(0.1, steps=1, clock={"compute": [1, 1, 2]}), [1, 4, 2, 4]),
        (fedbuff(0.1, steps=1, buffer=1, clock={"compute": [1, 1, 2]}), [1, 4, 2, 4]),
        (fedbuff(0.1, steps=1, buffer=3, clock={"compute": [1, 1, 2]}), [0, 1, 1, 2]),
    ],
    ids=lambda one: str(one)[:20],
)
def test_staleness_on_a_small_example(method, staleness):
    """At 1 s nodes 0 and 1 arrive, at 2 s all three, and so on; three arrivals are a round."""
    history = run(method, 4)
    assert history["simulated_seconds"].tolist() == [2, 3, 4, 5]
    assert history["staleness"].tolist() == staleness


@BOTH
def test_a_message_each_way_and_all_steps_take_time(build):
    """0.5 s and 0.5 s by the bandwidth, twice, and three steps of 2 s."""
    clock = clocks.Clock(compute=2.0, delay=0.5, bandwidth=2 * MODEL)
    history = run(build(0.1, steps=3, clock=clock), 3)
    assert history["simulated_seconds"].tolist() == [8, 16, 24]
    assert history["messages"].tolist() == [6, 6, 6]
    assert history["bytes"].tolist() == [6 * MODEL] * 3


@BOTH
def test_a_straggler_slows_nobody_and_others_send_more(build):
    history = run(build(0.1, steps=1, clock={"compute": [1.0, 1.0, 100.0]}), 6)
    assert history["simulated_seconds"].tolist() == [2, 3, 5, 6, 8, 9]
    assert history["messages"].tolist() == [6] * 6
    counts = [history.mixing(t).weights.toarray()[0] * 3 for t in range(6)]
    np.testing.assert_allclose(counts[:2], [[2, 1, 0], [1, 2, 0]], atol=1e-12)
    assert history["busiest_messages"].tolist() == [6] * 6  # the server


@BOTH
def test_no_more_than_the_concurrency_train_at_a_time(build):
    """One at a time takes as long as all steps one after the other, and is never stale."""
    history = run(build(0.1, steps=2, concurrency=1), 4)
    assert history["simulated_seconds"].tolist() == [6, 12, 18, 24]
    assert history["staleness"].tolist() == [0] * 4
    history = run(build(0.1, steps=2, concurrency=2), 4)
    assert history["simulated_seconds"].tolist() == [4, 6, 10, 12]
    drawn = sum(history.mixing(t).weights.toarray()[0] * 3 for t in range(4))
    assert drawn.sum() == pytest.approx(12)
    assert (drawn > 0.5).all()


def test_discounts_are_those_of_the_papers():
    found = [polynomial_discount().weight(stale) for stale in range(9)]
    np.testing.assert_allclose(found, 1 / np.sqrt(1 + np.arange(9)), rtol=1e-15)
    found = [hinge_discount(10, 4).weight(stale) for stale in range(7)]
    np.testing.assert_allclose(found, [1, 1, 1, 1, 1, 1 / 11, 1 / 21], rtol=1e-15)


def test_a_discount_of_0_drops_stale_updates():
    """Of two nodes that arrive at once, the second has missed the version of the first."""
    fresh = algorithms.Discount("fresh", lambda staleness: float(staleness == 0))
    both = {"clients": problems.equal_clients(2), "seed": 0, "init": "common", "rounds": 1}
    mixed = trail(fedasync(0.1, alpha=1.0, steps=2, discount=fresh), **both)[-1]
    local = algorithms.chain("local", events=algorithms.sgd(0.1, steps=2))
    first = trail(local, **both)[-1][0]
    torch.testing.assert_close(mixed, first.expand_as(mixed), rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("weight", "error", "said"),
    [
        (float("nan"), ValueError, "a finite number of at least 0, got nan"),
        (-1.0, ValueError, "a finite number of at least 0, got -1"),
        (None, TypeError, "a number, got None"),
    ],
)
def test_a_weight_that_is_no_weight_is_refused(build, weight, error, said):
    """The server's model would be NaN, or go back, in the name of the learning rate."""
    wrong = algorithms.Discount("mine", lambda staleness: weight)
    with pytest.raises(error, match=rf"`weight\(0\)` of the discount 'mine' must return {said}"):
        run(build(0.1, steps=1, discount=wrong), 2)


def test_the_server_does_not_go_beyond_the_model_that_arrives():
    """With a part above 1, models that differ would be pushed apart."""
    large = algorithms.Discount("large", lambda staleness: 1.5)
    late = algorithms.Discount("late", lambda staleness: 1.0 + 0.5 * staleness)
    said = r"`alpha` times `weight\({}\)` of the discount '{}' must be at most 1, got 1.{}"
    with pytest.raises(ValueError, match=said.format(0, "large", "35: the server")):
        fedasync(0.1, discount=large)
    with pytest.raises(ValueError, match=said.format(1, "late", "2:")):
        run(fedasync(0.1, alpha=0.8, steps=1, discount=late), 2)
    run(fedasync(0.1, alpha=0.6, steps=1, discount=large), 2)
    run(fedbuff(0.1, buffer=1, steps=1, discount=large), 2)


@BOTH
def test_attackers_send_forged_models(build):
    plain, forged = (
        run(build(0.1, steps=2, **how), 6, 6, attackers=attack, every=1)
        for how, attack in (({}, None), ({}, attacks.sign_flip([1])))
    )
    honest = np.arange(6) != 1
    assert np.isfinite(forged["loss"][:, honest]).all()
    assert np.isnan(forged["loss"][:, 1]).all()
    assert not np.allclose(forged["loss"][:, honest], plain["loss"][:, honest]), "it reaches nobody"
    np.testing.assert_array_equal(forged["simulated_seconds"], plain["simulated_seconds"])


@pytest.mark.parametrize(
    "build",
    [
        lambda **how: fedasync(0.1, alpha=0.5, **how),
        lambda **how: fedbuff(0.1, buffer=1, server_lr=0.5, discount=None, **how),
    ],
    ids=["fedasync", "fedbuff"],
)
def test_arrivals_from_a_frozen_node_change_nothing(build):
    """Of two nodes one diverges; the server's model is as if there were only the other."""
    clients = problems.equal_clients(2)
    bad = with_inputs(clients, clients.train[1], too_large)
    alone = data.Partition(clients.dataset, clients.train[:1], name="alone")
    how = {"seed": 0, "init": "common", "dtype": torch.float32, "on_divergence": "freeze"}
    method = build(steps=2, batch_size=4, clock={"compute": [1.0, 0.9]})
    history, models = engine(method, None, bad, None, rounds=4, **how)
    assert [found["node"] for found in history.meta["diverged"]] == [1]
    _, wanted = engine(build(steps=2, batch_size=4), None, alone, None, rounds=4, **how)
    torch.testing.assert_close(models.flat, wanted.flat.expand_as(models.flat), rtol=0, atol=1e-7)
