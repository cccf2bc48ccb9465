"""Masks of Dis-PFL are what they should be."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, EXECUTORS, ROUNDS, N, engine, nodes_at_start, watched
from tests.rows.methods import one_group, random_in
from topofl import algorithms, mixing, topologies
from topofl.algorithms.exchanges.masks import erk_densities
from topofl.engine.population import Layout
from topofl.engine.recorder import Exchange, totals_of

RECEIVED = random_in(None)
LENET = [(32, 3, 5, 5), (32,), (32,), (32,), (64, 32, 5, 5), (64,), (10, 576), (10,)]


def built(**changes):
    usual = {"lr": 0.1, "rounds": ROUNDS, "dense_ratio": 0.3, "batch_size": BATCH, "epochs": 2}
    return algorithms.dispfl(**usual | changes)


def trained(**changes):
    """Return a chain of the local steps alone."""
    return algorithms.chain("part", local=built(**changes).phases["local"])


def run(algorithm, model=None, **settings):
    """Return the history, and masks and models after every round."""
    seen, kept = [], []
    noting = problems.each_round(lambda t, models: kept.append(models.flat.clone()))
    how = {"graph": RECEIVED, "init": "common", "callbacks": [noting]} | settings
    history, _ = engine(watched(algorithm, seen), model or one_group(), **how)
    return history, [state["mask"] for state in seen], kept


@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("regrow", ["gradient", "random"])
def test_masks_keep_their_sizes_and_nothing_lives_outside(regrow, different):
    how = {"regrow": regrow, "different_initial": different, "momentum": 0.9, "weight_decay": 0.01}
    _, masks, models = run(built(rounds=6, **how), rounds=6, init="independent")
    wanted = torch.tensor(naive.erk_ones([p.shape for p in one_group().parameters()], 0.3))
    sizes = Layout.of(one_group()).sizes
    for mask, flat in zip(masks, models, strict=True):
        assert mask.dtype == torch.bool
        ones = torch.stack([part.sum(1) for part in mask.split(sizes, dim=1)], 1)
        assert (ones == wanted).all()
        assert (flat[~mask] == 0).all()
        assert (flat[mask] != 0).float().mean() > 0.5
    assert not torch.equal(masks[-1][0], masks[-1][1]), "masks are personal"


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 0.9, 1.0])
def test_densities_are_their_closed_form(ratio):
    sizes, sums = [math.prod(s) for s in LENET], [sum(s) for s in LENET]
    densities = erk_densities(LENET, ratio)
    kept = [density * size for density, size in zip(densities, sizes, strict=True)]
    assert sum(kept) == pytest.approx(ratio * sum(sizes), rel=1e-12)
    scales = [k / s for k, s, d in zip(kept, sums, densities, strict=True) if d < 1]
    eps = max(scales, default=math.inf)
    assert min(scales, default=math.inf) == pytest.approx(eps, rel=1e-12)
    full = [eps * s / size for s, size, d in zip(sums, sizes, densities, strict=True) if d == 1]
    assert min(full, default=1) >= 1 - 1e-12
    assert [round(k) for k in kept] == naive.erk_ones(LENET, ratio)


def test_a_layer_that_would_be_more_than_dense_is_dense():
    # eps 52 / 24 is above 1 for the first
    assert erk_densities([(4,), (10, 10)], 0.5) == [1.0, 0.48]
    assert erk_densities([(), (1,)], 0.5) == [0.5, 0.5]
    assert erk_densities([(3, 3), (2,)], 1.0) == pytest.approx([1, 1])


def test_rho_falls_to_nothing_and_stays_there():
    _, masks, _ = run(built(regrow="random", rounds=6, prune=1.0), rounds=8)
    changed = [int((before ^ after).sum()) for before, after in itertools.pairwise(masks)]
    assert changed == sorted(changed, reverse=True)
    assert changed[0] > 0
    assert changed[5:] == [0, 0]
    _, masks, _ = run(built(prune=0.0))
    assert torch.equal(masks[0], masks[-1])


def test_evaluations_are_after_local_training_and_after_averaging():
    how = {"rounds": 1, "init": "independent", "every": 1, "executor": "looped"}
    both, *_ = run(built(rounds=1), before_exchange=True, **how)
    alone, *_ = run(trained(), **how)
    np.testing.assert_array_equal(both["loss_before_exchange"][-1], alone["loss"][-1])
    assert not np.allclose(both["loss"][-1], alone["loss"][-1])
    np.testing.assert_array_equal(both["loss"], run(built(rounds=1), **how)[0]["loss"])


@pytest.mark.parametrize("regrow", ["gradient", "random"])
def test_messages_hold_the_weights_of_the_mask_and_one_bit_per_parameter(regrow):
    history, masks, _ = run(built(regrow=regrow))
    one = 8 * int(masks[0][0].sum()) + math.ceil(masks[0].shape[1] / 8)
    assert (history["messages"] == 2 * N).all()
    assert (history["bytes"] == 2 * N * one).all()
    busiest = [max(2 + RECEIVED.at(t).out_degrees) for t in range(ROUNDS)]
    np.testing.assert_array_equal(history["busiest_messages"], busiest)
    np.testing.assert_array_equal(history["busiest_bytes"], np.multiply(busiest, one))
    for t in range(ROUNDS):
        wanted = mixing.uniform(RECEIVED.at(t)).weights.toarray()
        np.testing.assert_array_equal(history.mixing(t).weights.toarray(), wanted)


def test_senders_may_send_different_amounts():
    weights = mixing.uniform(topologies.star(4))
    exchanges = [Exchange(weights, np.array([1, 10, 100, 1000])), Exchange(weights, 2 * 4)]
    for count, messages, size, busiest in ((1, 6, 3 * 1 + 1110, 1113), (2, 12, 1161, 1161)):
        totals = totals_of(exchanges[:count], weights)
        assert (totals["messages"], totals["busiest_messages"]) == (messages, messages)
        assert (totals["bytes"], totals["busiest_bytes"]) == (size, busiest)


@pytest.mark.parametrize("settings", EXECUTORS, ids=str)
@pytest.mark.parametrize("make", [problems.equal_clients, problems.ragged_clients])
@pytest.mark.parametrize("model", [problems.linear, one_group])
def test_gradients_of_all_nodes(model, make, settings):
    clients, found = make(), []

    def look(models, state, round):
        gradients = round.gradients(models, BATCH, key="")
        found.extend([] if models.flat.is_meta else [gradients.clone()])
        return state

    looking = algorithms.chain("looking", look=algorithms.Phase(lambda m: {}, look))
    engine(looking, model(), clients, **settings)
    nodes = nodes_at_start(model(), clients)
    for t, got in enumerate(found):
        for i, module in enumerate(nodes.modules):
            wanted = naive.flat_gradient(module, *naive.batch_of(nodes, i, t, "look"))
            torch.testing.assert_close(got[i], wanted, rtol=0, atol=1e-12)
    assert not torch.equal(found[0], found[1]), "every round has another minibatch"


def test_memory_counts_masks_and_gradients():
    world = {"model": one_group(), "clients": problems.equal_clients(), "topology": RECEIVED}
    compute = topofl.Compute(executor="looped")
    gradients, without = (
        topofl.estimate(built(regrow=regrow), compute=compute, **world)
        for regrow in ("gradient", "random")
    )
    assert gradients.state == without.state == N * gradients.d  # one byte a parameter
    assert gradients.gradients - without.gradients == N * gradients.d * 4


def test_blocks_change_nothing(monkeypatch):
    *_, wanted = run(built(different_initial=True))
    monkeypatch.setattr(sys.modules[erk_densities.__module__], "BLOCK", 50)
    *_, got = run(built(different_initial=True))
    torch.testing.assert_close(got[-1], wanted[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_masks_keep_their_sizes_where_nodes_diverge(policy):
    clients = problems.equal_clients()
    clients.dataset.inputs[clients.train[0].tolist()] = 1e30
    how = {"clients": clients, "on_divergence": policy, "dtype": torch.float32}
    history, masks, _ = run(built(lr=1e10), problems.linear(), **how)
    assert history.meta["diverged"]
    assert (torch.stack([mask.sum(1) for mask in masks]) == masks[0][0].sum()).all()
