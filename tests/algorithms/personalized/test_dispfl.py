"""Dis-PFL equals its naive loop over nodes in float64, and its masks are what they should be."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    EXECUTORS,
    MAKES,
    ROUNDS,
    SEED,
    N,
    check,
    engine,
    nodes_at_start,
)
from topofl import algorithms, mixing, topologies
from topofl._support.seeding import seeded_torch
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.exchanges.masks import erk_densities
from topofl.engine.population import Layout
from topofl.engine.recorder import Exchange, totals_of

RECEIVED = topologies.random_in(N, 2, seed=1)
LENET = [(32, 3, 5, 5), (32,), (32,), (32,), (64, 32, 5, 5), (64,), (10, 576), (10,)]


@seeded_torch(0)
def convolutional():
    """One group: biases of two channels that are a group have opposite gradients.

    Rounding takes the larger.
    """
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(1, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def spied(algorithm):
    """Return the same algorithm with a last phase that keeps all masks, and the list of them."""
    seen = []

    def keep(models, state, round):
        if not models.flat.is_meta:
            seen.append(round.state("local")["mask"].clone())
        return state

    return algorithms.chain("spied", **algorithm.phases, spy=Phase(lambda m: {}, keep, {})), seen


def built(**changes):
    settings = {
        "lr": 0.1,
        "rounds": ROUNDS,
        "dense_ratio": 0.3,
        "batch_size": BATCH,
        "epochs": 2,
    } | changes
    return algorithms.dispfl(**settings)


def run(algorithm, rounds=ROUNDS, graph=RECEIVED, clients=None, model=convolutional, **settings):
    kept = []
    history = topofl.run(
        algorithm,
        model=model(),
        clients=clients or problems.equal_clients(),
        topology=graph,
        rounds=rounds,
        seed=SEED,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(**settings),
    )
    return history, kept


def parts(flat):
    """Split (n, d) by the parameters of the convolutional problem."""
    return flat.split(Layout.of(convolutional()).sizes, dim=1)


def flat_mask(mask):
    return torch.cat([m.flatten() for m in mask.values()]).bool()


LOCAL = [
    {},
    {
        "different_initial": True,
        "momentum": 0.5,
        "weight_decay": 0.01,
        "clip": 0.5,
        "lr_decay": 0.8,
    },
    {"different_initial": True, "regrow": "random", "momentum": 0.9, "prune": 0.8},
]


@problems.paired(settings=EXECUTORS, make=MAKES, local=LOCAL)
def test_equals_naive_loop(local, make, settings):
    clients = make()
    model = convolutional()
    received = [[RECEIVED.at(t).in_neighbors(i).tolist() for i in range(N)] for t in range(ROUNDS)]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    masks = naive.dispfl(
        nodes, received, ROUNDS, lr=0.1, until=ROUNDS, dense_ratio=0.3, epochs=2, **local
    )
    algorithm, seen = spied(built(**local))
    _, models = engine(algorithm, model, clients, RECEIVED, **settings)
    check(nodes.flat(), models.flat, start)
    for got, wanted in zip(seen, masks, strict=True):
        assert torch.equal(got, torch.stack([flat_mask(mask) for mask in wanted]))
    assert not torch.equal(seen[0], seen[-1]), "no mask has changed"


@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("regrow", ["gradient", "random"])
def test_masks_keep_their_sizes_and_nothing_lives_outside(regrow, different):
    algorithm, seen = spied(
        built(regrow=regrow, different_initial=different, rounds=6, momentum=0.9, weight_decay=0.01)
    )
    _, models = run(algorithm, rounds=6, init="independent")
    shapes = [p.shape for p in convolutional().parameters()]
    wanted = torch.tensor(naive.erk_ones(shapes, 0.3))
    for mask, flat in zip(seen, models, strict=True):
        assert mask.dtype == torch.bool
        ones = torch.stack([part.sum(1) for part in parts(mask)], 1)
        assert (ones == wanted).all()
        assert (flat[~mask] == 0).all()
        assert (flat[mask] != 0).float().mean() > 0.5
    assert not torch.equal(seen[-1][0], seen[-1][1]), "masks are personal"


def test_training_leaves_what_is_outside_at_zero():
    algorithm = built(momentum=0.9, weight_decay=0.1, clip=1.0)
    alone, seen = spied(algorithms.chain("part", local=algorithm.phases["local"]))
    _, models = run(alone)
    assert (models[-1][~seen[-1]] == 0).all()
    assert torch.equal(seen[0], seen[-1])


def test_initial_masks_are_shared_or_differ_per_node():
    for different in (False, True):
        alone, seen = spied(
            algorithms.chain("part", local=built(different_initial=different).phases["local"])
        )
        run(alone, rounds=1)
        same = [torch.equal(seen[0][0], row) for row in seen[0][1:]]
        assert same == [not different] * (N - 1)


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 0.9, 1.0])
def test_densities_are_their_closed_form(ratio):
    sizes = [math.prod(s) for s in LENET]
    sums = [sum(s) for s in LENET]
    densities = erk_densities(LENET, ratio)
    total = sum(density * size for density, size in zip(densities, sizes, strict=True))
    assert total == pytest.approx(ratio * sum(sizes), rel=1e-12)
    scales = [
        density * size / s
        for density, size, s in zip(densities, sizes, sums, strict=True)
        if density < 1
    ]
    assert max(scales, default=0) == pytest.approx(min(scales, default=0), rel=1e-12)
    eps = max(scales, default=math.inf)
    assert all(
        eps * s >= size * (1 - 1e-12)
        for d, size, s in zip(densities, sizes, sums, strict=True)
        if d == 1
    )
    ones = [round(d * size) for d, size in zip(densities, sizes, strict=True)]
    assert ones == naive.erk_ones(LENET, ratio)


def test_a_layer_that_would_be_more_than_dense_is_dense():
    assert erk_densities([(4,), (10, 10)], 0.5) == [
        1.0,
        0.48,
    ]  # eps 52 / 24 is above 1 for the first
    assert erk_densities([(), (1,)], 0.5) == [0.5, 0.5]
    assert erk_densities([(3, 3), (2,)], 1.0) == pytest.approx([1, 1])


@pytest.mark.parametrize("regrow", ["gradient", "random"])
@pytest.mark.parametrize("graph", [RECEIVED, topologies.ring(N)])
def test_without_masks_it_is_dfedavgm_with_equal_weights(graph, regrow):
    local = {"batch_size": BATCH, "epochs": 2, "momentum": 0.9, "weight_decay": 0.01}
    dense = algorithms.dispfl(0.1, rounds=ROUNDS, dense_ratio=1.0, regrow=regrow, **local)
    settings = {"graph": graph, "dtype": torch.float64, "init": "independent"}
    _, got = run(dense, **settings)
    _, wanted = run(algorithms.dfedavgm(0.1, **local), mixing=mixing.uniform, **settings)
    torch.testing.assert_close(got[-1], wanted[-1], rtol=0, atol=1e-12)


def test_rho_falls_to_nothing_and_stays_there():
    changed, rounds = [], 6
    algorithm, seen = spied(built(regrow="random", rounds=rounds, prune=1.0))
    run(algorithm, rounds=rounds + 2)
    for before, after in itertools.pairwise(seen):
        changed.append(int((before ^ after).sum()))
    assert changed == sorted(changed, reverse=True)
    assert changed[0] > 0
    assert changed[rounds - 1 :] == [0, 0]


def test_nothing_is_pruned_without_a_share():
    algorithm, seen = spied(built(prune=0.0))
    run(algorithm)
    assert torch.equal(seen[0], seen[-1])


def test_evaluations_are_after_local_training_and_after_averaging():
    whole = built(rounds=1)
    part = algorithms.chain("part", local=built().phases["local"])
    settings = {"rounds": 1, "init": "independent", "every": 1, "executor": "looped"}
    both, _ = run(whole, before_exchange=True, **settings)
    trained, _ = run(part, **settings)
    np.testing.assert_array_equal(both["loss_before_exchange"][-1], trained["loss"][-1])
    assert not np.allclose(both["loss"][-1], trained["loss"][-1])
    np.testing.assert_array_equal(both["loss"], run(whole, **settings)[0]["loss"])


@pytest.mark.parametrize("regrow", ["gradient", "random"])
def test_messages_hold_the_weights_of_the_mask_and_one_bit_per_parameter(regrow):
    algorithm, seen = spied(built(regrow=regrow))
    history, _ = run(algorithm)
    d, ones = seen[0].shape[1], int(seen[0][0].sum())
    one = 4 * ones + math.ceil(d / 8)
    assert (history["messages"] == 2 * N).all()
    assert (history["bytes"] == 2 * N * one).all()
    busiest = [max(2 + RECEIVED.at(t).out_degrees) for t in range(ROUNDS)]
    np.testing.assert_array_equal(history["busiest_messages"], busiest)
    np.testing.assert_array_equal(history["busiest_bytes"], np.multiply(busiest, one))
    for t in range(ROUNDS):
        used = history.mixing(t).weights.toarray()
        np.testing.assert_array_equal(used, mixing.uniform(RECEIVED.at(t)).weights.toarray())


def test_senders_may_send_different_amounts():
    weights = mixing.uniform(topologies.star(4))
    nbytes = np.array([1, 10, 100, 1000])
    exchanges = [Exchange(weights, nbytes)]
    totals = totals_of(exchanges, weights)
    assert (totals["messages"], totals["bytes"]) == (6, 3 * 1 + 1110)
    assert (totals["busiest_messages"], totals["busiest_bytes"]) == (6, 1113)
    totals = totals_of([*exchanges, Exchange(weights, 2 * 4)], weights)
    assert (totals["messages"], totals["bytes"], totals["busiest_bytes"]) == (
        12,
        1113 + 6 * 8,
        1113 + 6 * 8,
    )


@problems.paired(settings=EXECUTORS, make=MAKES, model=[problems.linear, convolutional])
def test_gradients_of_all_nodes(model, make, settings):
    clients, found = make(), []

    def look(models, state, round):
        gradients = round.gradients(models, BATCH, key="")
        if not models.flat.is_meta:
            found.append(gradients.clone())
        return state

    looking = algorithms.chain("looking", look=Phase(lambda m: {}, look))
    engine(looking, model(), clients, **settings)
    nodes = nodes_at_start(model(), clients)
    for t, got in enumerate(found):
        for i, module in enumerate(nodes.modules):
            batch = torch.as_tensor(naive.minibatch(clients.train[i], i, t, BATCH, "look", SEED))
            wanted = naive.gradient(module, nodes.inputs[batch], nodes.labels[batch])
            torch.testing.assert_close(
                got[i], torch.cat([g.flatten() for g in wanted]), rtol=0, atol=1e-12
            )
    assert not torch.equal(found[0], found[1]), "every round has another minibatch"


def test_memory_counts_masks_and_gradients():
    settings = {"model": convolutional(), "clients": problems.equal_clients(), "topology": RECEIVED}
    with_gradients = topofl.estimate(built(), **problems.options(executor="looped", **settings))
    without = topofl.estimate(
        built(regrow="random"), **problems.options(executor="looped", **settings)
    )
    d = with_gradients.d
    assert with_gradients.state == without.state == N * d  # one byte a parameter
    assert with_gradients.gradients - without.gradients == N * d * 4


def test_blocks_change_nothing(monkeypatch):
    wanted = run(built(different_initial=True), dtype=torch.float64)[1][-1]
    monkeypatch.setattr(sys.modules[erk_densities.__module__], "BLOCK", 50)
    got = run(built(different_initial=True), dtype=torch.float64)[1][-1]
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_masks_keep_their_sizes_where_nodes_diverge(policy):
    clients = problems.equal_clients()
    clients.dataset.inputs[clients.train[0].tolist()] = 1e30
    algorithm, seen = spied(built(lr=1e10))
    history, _ = run(algorithm, clients=clients, on_divergence=policy, model=problems.linear)
    assert history.meta["diverged"]
    assert (torch.stack([mask.sum(1) for mask in seen]) == seen[0][0].sum()).all()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("dense_ratio", 0.0),
        ("dense_ratio", 1.5),
        ("rounds", 0),
        ("prune", -0.1),
        ("prune", 2.0),
        ("regrow", "magic"),
    ],
)
def test_bad_arguments_are_named(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}`"):
        built(**{argument: value})
