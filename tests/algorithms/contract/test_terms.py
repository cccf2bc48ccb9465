"""Terms of local steps equal torch's optimizers, or a loop over nodes, in every executor."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests import problems
from tests.algorithms.contract.local_steps import (
    APART,
    BATCH,
    BOTH_WAYS,
    EVERY_WAY,
    LR,
    OPTIMIZERS,
    ROUNDS,
    SEED,
    SETTINGS,
    TRAINED,
    N,
    close,
    given,
    layered,
    naive_models,
    plain_sgd,
    ran,
    run,
    watched,
)
from tests.engine.test_equivalence import modules_at_start
from topofl import algorithms, topologies
from topofl.algorithms import (
    Phase,
    adam,
    chain,
    clip,
    correction,
    cosine_pull,
    descend,
    masked,
    momentum,
    proximal,
    push_sum,
    train,
    weight_decay,
)
from topofl.engine.population import Layout

WANTED = {}


def wanted_of(name, trained, participants=None):
    """Return the models of the naive loop over ragged clients, once for all ways."""
    key = name, trained, participants
    if key not in WANTED:
        (model, part), (_, more, make) = TRAINED[trained], OPTIMIZERS[name]
        WANTED[key] = naive_models(
            model(), problems.ragged_clients(N), make, part=part, participants=participants, **more
        )[0]
    return WANTED[key]


WAYS = [(trained, way) for trained in ("linear", "apart") for way in SETTINGS]
WAYS += [("everything", "looped"), ("everything", "batched-4"), ("side by side", "batched-4")]


@pytest.mark.parametrize(("trained", "way"), WAYS, ids=[", ".join(pair) for pair in WAYS])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_terms_equal_the_optimizers_of_torch(name, trained, way):
    """With 1 to 16 examples per client, the state of nodes that have finished does not change."""
    model, part = TRAINED[trained]
    phase = train(descend(*OPTIMIZERS[name][0], lr=LR), batch_size=BATCH, epochs=2, part=part)
    got = ran(phase, model(), problems.ragged_clients(N), **SETTINGS[way])
    start = [
        nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules_at_start(model(), N)
    ]
    close(got, wanted_of(name, trained), torch.stack(start))


def every_third(t):
    return np.arange(N) % 3 == t % 3


@EVERY_WAY
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "all of SGD"])
def test_state_of_other_nodes_is_unchanged_under_partial_participation(name, trained, settings):
    model, part = TRAINED[trained]
    phase = train(
        descend(*OPTIMIZERS[name][0], lr=LR), batch_size=BATCH, epochs=2, part=part,
        participants=lambda round: every_third(round.t),
    )  # fmt: skip
    looking, seen = watched()
    got = ran(phase, model(), problems.ragged_clients(N), after=looking, **settings)
    close(got, wanted_of(name, trained, every_third))
    if name == "adam":
        assert seen["taken"].tolist() == [2, 2, 2, 4, 6, 8], "each took part once"


@pytest.mark.parametrize("trained", ["everything", "apart"])
def test_flat_and_per_parameter_updates_agree_with_push_sum_weights(trained):
    """The same terms, given parameter by parameter and all at once."""
    model, part = TRAINED[trained]
    terms = [weight_decay(0.1), proximal(0.5), momentum(0.9)]
    graph, found = topologies.random_out(N, 2, seed=0), []
    for chosen in (terms, [term._replace(elementwise=False) for term in terms]):
        phase = train(descend(*chosen, lr=LR), batch_size=BATCH, steps=2, part=part)
        masses = []
        looking = Phase(
            lambda models: {},
            lambda models, state, round, masses=masses: (
                masses.append(models.push_sum_weights) or state
            ),
        )
        for settings in SETTINGS.values():
            method = chain(
                "pushed", local=phase, exchange=push_sum(algorithms.part("1")), looking=looking
            )
            kept = []
            run(
                method,
                model=model(),
                clients=problems.ragged_clients(N),
                topology=graph,
                rounds=ROUNDS,
                seed=SEED,
                init="independent",
                dtype=torch.float64,
                on_disconnected="allow",
                callbacks=[
                    problems.each_round(
                        lambda t, models, kept=kept: kept.append(models.flat.clone())
                    )
                ],
                **settings,
            )
            found.append(kept[-1])
            assert (masses[-1] - 1).abs().max() > 0.1
    for other in found[1:]:
        close(other, found[0])


@BOTH_WAYS
def test_push_sum_weights_divide_steps_by_adam(settings):
    """Half of all nodes have a push-sum weight of 2: their steps are half as long."""
    model, part, push_sum_weights = (
        layered(),
        APART,
        torch.tensor([2.0, 1, 1, 2, 2, 1], dtype=torch.float64),
    )

    def weigh(models, state, round):
        if round.t == 0:
            models.push_sum_weights.copy_(push_sum_weights)
        round.mix(
            round.push_weights, torch.zeros_like(models.flat), models.columns(algorithms.part("1"))
        )
        return state

    phase = train(descend(adam(), lr=LR), batch_size=BATCH, epochs=1, part=part)
    method = chain("weighed", weigh=Phase(lambda models: {}, weigh), local=phase)
    kept, clients = [], problems.ragged_clients(N)
    run(
        method,
        model=model,
        clients=clients,
        topology=topologies.random_out(N, 2, seed=0),
        rounds=1,
        seed=SEED,
        init="independent",
        dtype=torch.float64,
        on_disconnected="allow",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **settings,
    )

    def halved(i):
        def make(parameters):
            weight, bias = parameters
            return torch.optim.Adam(
                [{"params": [weight], "lr": LR / float(push_sum_weights[i])}, {"params": [bias]}],
                LR,
            )

        return make

    counts = [math.ceil(len(own) / BATCH) for own in clients.train]
    for i in range(N):
        wanted, _ = naive_models(model, clients, halved(i), part=part, rounds=1, counts=counts)
        close(kept[-1][i], wanted[i])


def drawn_to(strength, name):
    return lambda node, step, t, k: (
        node.gradient(node.theta, step) + strength * (node.theta - node.memory[name])
    )


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["everything", "apart"])
def test_proximal_to_the_start_of_the_round(trained, settings):
    model, part = TRAINED[trained]
    phase = train(descend(proximal(2.0), adam(), lr=LR), batch_size=BATCH, epochs=2, part=part)
    wanted, _ = naive_models(
        model(),
        problems.ragged_clients(N),
        lambda p: torch.optim.Adam(p, LR),
        part=part,
        turned=drawn_to(2.0, "start"),
    )
    close(ran(phase, model(), problems.ragged_clients(N), **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["everything", "apart"])
def test_proximal_to_anchors_in_the_state(trained, settings):
    """They equal the initial models, because no phase changes them."""
    model, part = TRAINED[trained]
    phase = train(
        descend(proximal(2.0, kept="anchor"), clip(0.5), lr=LR),
        batch_size=BATCH,
        epochs=2,
        part=part,
    )
    looking, seen = watched()

    def turned(node, step, t, k):
        node.memory.setdefault("first", node.theta)
        return drawn_to(2.0, "first")(node, step, t, k)

    wanted, _ = naive_models(
        model(), problems.ragged_clients(N), plain_sgd, part=part, turned=turned, clipped=0.5
    )  # fmt: skip
    close(ran(phase, model(), problems.ragged_clients(N), after=looking, **settings), wanted)
    start = [
        nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules_at_start(model(), N)
    ]
    assert torch.equal(seen["anchor"], torch.stack(start))


def numbers(model, seed):
    """Return some numbers for each parameter of each node, (n, d)."""
    d = Layout.of(model).d
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((N, d)))


def setting(name, values):
    """Return a phase that writes numbers into the state of the training phase after it."""

    def apply(models, state, round):
        if not models.flat.is_meta:
            round.state("local")[name].copy_(values)
        return state

    return Phase(lambda models: {}, apply)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["mask", "correction", "toward"])
def test_terms_use_state_that_other_phases_set(name, trained, settings):
    """In the first round a mask is True, and corrections and directions are 0.

    The phase that sets them comes after.
    """
    model, part = TRAINED[trained]
    values = numbers(model(), 1) > 0 if name == "mask" else numbers(model(), 1)
    term = {"mask": masked(), "correction": correction(), "toward": cosine_pull()}[name]

    def turned(node, step, t, k):
        g, theta, own = (
            node.gradient(node.theta, step),
            node.theta,
            given(model(), part, values, node.i),
        )
        if t == 0:
            return g
        if name == "mask":
            return g * own
        if name == "correction":
            return g + own
        point = theta.clone().requires_grad_()
        return g + torch.autograd.grad(-(own @ point) / point.norm(), point)[0]

    phase = train(descend(term, momentum(0.5), lr=LR), batch_size=BATCH, epochs=2, part=part)
    wanted, _ = naive_models(
        model(),
        problems.ragged_clients(N),
        lambda p: torch.optim.SGD(p, LR, momentum=0.5),
        part=part,
        turned=turned,
    )
    got = ran(phase, model(), problems.ragged_clients(N), after=setting(name, values), **settings)
    close(got, wanted)


@BOTH_WAYS
@pytest.mark.parametrize("last", ["weight_decay", "masked"])
def test_terms_after_momentum_do_not_change_the_velocity(last, settings):
    """The direction is a copy of the velocity where another term changes it."""
    term = {"weight_decay": weight_decay(0.5), "masked": correction()}[last]

    def turned(node, step, t, k):
        node.memory["v"] = 0.9 * node.memory.get("v", 0) + node.gradient(node.theta, step)
        return node.memory["v"] + (0.5 * node.theta if last == "weight_decay" else 0)

    phase = train(descend(momentum(0.9), term, lr=LR), batch_size=BATCH, steps=3)
    clients = problems.equal_clients(N)
    wanted, _ = naive_models(layered(), clients, plain_sgd, turned=turned, counts=[3] * N)
    close(ran(phase, layered(), clients, **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("make", [momentum, adam], ids=["momentum", "adam"])
def test_reset_state_starts_from_zero_in_every_round(make, settings):
    term = make(0.9, reset=True)
    counts = [2, 3, 1, 2, 5, 1]
    phase = train(descend(term, lr=LR), batch_size=BATCH, steps=counts)
    looking, seen = watched()

    def turned(node, step, t, k):
        if k == 0:
            node.memory |= {"v": 0, "m": 0, "s": 0}
        g = node.gradient(node.theta, step)
        if make is momentum:
            node.memory["v"] = 0.9 * node.memory["v"] + g
            return node.memory["v"]
        node.memory["m"] = 0.9 * node.memory["m"] + 0.1 * g
        node.memory["s"] = 0.999 * node.memory["s"] + 0.001 * g**2
        mean, square = (
            node.memory["m"] / (1 - 0.9 ** (k + 1)),
            node.memory["s"] / (1 - 0.999 ** (k + 1)),
        )
        return mean / (square.sqrt() + 1e-8)

    clients = problems.equal_clients(N)
    wanted, _ = naive_models(layered(), clients, plain_sgd, turned=turned, counts=counts)
    close(ran(phase, layered(), clients, after=looking, **settings), wanted)
    assert seen == {}, "nothing lasts"
