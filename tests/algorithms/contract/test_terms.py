"""What local steps are made of.

Each term equals torch's optimizers, or a loop over nodes, in every executor.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.engine import killed
from tests.engine.test_equivalence import modules_at_start
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, topologies
from topofl._support.seeding import seeded_torch
from topofl.algorithms import (
    Phase,
    Term,
    adam,
    adamw,
    ascent,
    chain,
    clip,
    constant,
    correction,
    cosine,
    cosine_pull,
    descend,
    exponential,
    lookahead,
    masked,
    mixture,
    momentum,
    proximal,
    push_sum,
    train,
    weight_decay,
)
from topofl.algorithms.contract.schedules import as_schedule
from topofl.engine.population import Layout
from topofl.engine.train import plan
from topofl.engine.train.terms import bytes_of_terms

N, BATCH, SEED, ROUNDS, LR = 6, 4, 3, 3, 0.1

SETTINGS = {
    "looped": {"executor": "looped"},
    "batched-1": {"executor": "batched", "chunk": 1},
    "batched-4": {"executor": "batched", "chunk": 4},
    "batched-n": {"executor": "batched", "chunk": N},
}
EVERY_WAY = pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
BOTH_WAYS = pytest.mark.parametrize(
    "settings", [SETTINGS["looped"], SETTINGS["batched-4"]], ids=["looped", "batched"]
)


@seeded_torch(0)
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Softplus(), nn.Linear(4, 3))


APART = algorithms.part("1.weight", "3.bias")
TRAINED = {
    "linear": (problems.linear, algorithms.everything),
    "everything": (layered, algorithms.everything),
    "side by side": (layered, algorithms.part("3")),
    "apart": (layered, APART),
}


# The naive loop: a module and an optimizer of torch a node


def loss_at(module, names, values, examples):
    """Return the loss where the named parameters are others, and the values that were put there."""
    values = values.detach().requires_grad_()
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    parts = values.split([parameters[name].numel() for name in names])
    parameters |= {
        name: part.view(parameters[name].shape) for name, part in zip(names, parts, strict=True)
    }
    inputs, labels = examples
    return functional.cross_entropy(
        torch.func.functional_call(module, parameters, (inputs,)), labels
    ), values


class Node:
    """One node: a module, the names of what it trains, its data, and what it remembers."""

    def __init__(self, i, module, clients, part, batch_size):
        named = list(module.named_parameters())
        self.i, self.module, self.clients, self.batch_size = i, module, clients, batch_size
        self.names = [named[k][0] for k in part.places([name for name, _ in named])]
        self.parameters = [p for name, p in named if name in self.names]
        self.memory = {}

    @property
    def theta(self):
        return nn.utils.parameters_to_vector(self.parameters).detach().clone()

    def gradient(self, values, number, phase="local"):
        """Return the gradient where parameters are others, on the minibatch of a number."""
        blobs = self.clients.dataset
        places = naive.minibatch(
            self.clients.train[self.i], self.i, number, self.batch_size, phase, SEED
        )
        loss, values = loss_at(
            self.module, self.names, values, (blobs.inputs[places].double(), blobs.labels[places])
        )
        return torch.autograd.grad(loss, values)[0]


def plain(node, step, t, k):
    return node.gradient(node.theta, step)


def naive_models(
    model,
    clients,
    make,
    *,
    part=algorithms.everything,
    turned=plain,
    clipped=None,
    lr=None,
    rounds=ROUNDS,
    counts=None,
    batch_sizes=None,
    participants=None,
):
    """Train each node by an optimizer of torch, on gradients that are `turned`.

    Return all models and all nodes.
    """
    nodes = []
    for i, module in enumerate(modules_at_start(model, clients.n)):
        node = Node(i, module, clients, part, BATCH if batch_sizes is None else batch_sizes[i])
        steps = (
            2 * math.ceil(len(clients.train[i]) / node.batch_size) if counts is None else counts[i]
        )
        optimizer = make(node.parameters)
        for t in range(rounds):
            node.memory["start"] = node.theta
            for k in range(steps if participants is None or participants(t)[i] else 0):
                g = turned(node, t * steps + k, t, k)
                for p, own in zip(
                    node.parameters, g.split([p.numel() for p in node.parameters]), strict=True
                ):
                    p.grad = own.view(p.shape).clone()
                if clipped is not None:
                    nn.utils.clip_grad_norm_(node.parameters, clipped)
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] if lr is None else lr(t, k)
                optimizer.step()
        nodes.append(node)
    return torch.stack(
        [nn.utils.parameters_to_vector(node.module.parameters()).detach() for node in nodes]
    ), nodes


def run(algorithm, **settings):
    """Run with settings by their own names."""
    return topofl.run(algorithm, **problems.options(**settings))


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, LR)


def ran(phase, model, clients, rounds=ROUNDS, *, after=None, **settings):
    """Return all models after a run of one phase, and another one."""
    kept = []
    more = {} if after is None else {"after": after}
    run(
        chain("own", local=phase, **more),
        model=model,
        clients=clients,
        rounds=rounds,
        seed=SEED,
        init="independent",
        dtype=torch.float64,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **settings,
    )
    return kept[-1]


def watched(owner="local"):
    """Return a phase that looks at what another keeps, and where it puts the latest of it."""
    seen = {}

    def apply(models, state, round):
        if not models.flat.is_meta:
            seen.update({name: x.clone() for name, x in round.state(owner).items()})
        return state

    return Phase(lambda models: {}, apply), seen


def close(got, wanted, start=None):
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    assert start is None or not torch.allclose(got, start, atol=1e-4), "nothing was trained"


# Terms that torch has too

OPTIMIZERS = {
    "plain": ([], {}, lambda p: torch.optim.SGD(p, LR)),
    "weight_decay": ([weight_decay(0.3)], {}, lambda p: torch.optim.SGD(p, LR, weight_decay=0.3)),
    "momentum": ([momentum(0.9)], {}, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "nesterov": (
        [momentum(0.9, nesterov=True)],
        {},
        lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True),
    ),
    "clip": ([clip(0.2)], {"clipped": 0.2}, lambda p: torch.optim.SGD(p, LR)),
    "all of SGD": (
        [clip(0.5), weight_decay(0.1), momentum(0.8)],
        {"clipped": 0.5},
        lambda p: torch.optim.SGD(p, LR, weight_decay=0.1, momentum=0.8),
    ),
    "adam": ([adam(0.8, 0.95)], {}, lambda p: torch.optim.Adam(p, LR, betas=(0.8, 0.95))),
    "adam after decay": (
        [weight_decay(0.3), adam(eps=1e-3)],
        {},
        lambda p: torch.optim.Adam(p, LR, weight_decay=0.3, eps=1e-3),
    ),
    "adamw": ([adamw(decay=0.2)], {}, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.2)),
}
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
    """On clients of 1 to 16 examples, a node done with its steps waits, and what it keeps stays."""
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
def test_who_does_not_take_part_keeps_its_state(name, trained, settings):
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
def test_what_is_trained_together_and_one_by_one_is_the_same_with_push_sum_weights(trained):
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
    """Half of all nodes have a weight of 2: their steps of what travels are half as long."""
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


# Terms that torch does not have


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
def test_proximal_to_models_that_the_phase_keeps(trained, settings):
    """They stay as they were at the start: nobody changes them."""
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


def given(model, part, values, i):
    """Return those that belong to what node i trains."""
    layout = Layout.of(model)
    return torch.cat([values[i, columns] for columns in layout.columns(part)])


def setting(name, values):
    """Return a phase that puts numbers where the training after it finds what it keeps."""

    def apply(models, state, round):
        if not models.flat.is_meta:
            round.state("local")[name].copy_(values)
        return state

    return Phase(lambda models: {}, apply)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["mask", "correction", "toward"])
def test_terms_by_what_other_phases_set(name, trained, settings):
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
def test_what_comes_after_the_heavy_ball_does_not_reach_its_velocity(last, settings):
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
def test_what_is_reset_begins_from_zero_in_every_round(make, settings):
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


# Where gradients are taken


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_sharpness_aware_minimization(trained, settings):
    model, part = TRAINED[trained]

    def turned(node, step, t, k):
        up = node.gradient(node.theta, step)
        return node.gradient(node.theta + 0.5 * up / (up.norm() + 1e-12), step)

    phase = train(
        descend(momentum(0.9), lr=LR), batch_size=BATCH, epochs=2, part=part, at=ascent(0.5)
    )
    wanted, _ = naive_models(
        model(),
        problems.ragged_clients(N),
        lambda p: torch.optim.SGD(p, LR, momentum=0.9),
        part=part,
        turned=turned,
    )
    close(ran(phase, model(), problems.ragged_clients(N), **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_a_step_ahead_of_a_part(trained, settings):
    """Two minibatches a step; with Adam, and numbers of steps that differ."""
    (model, part), counts = TRAINED[trained], [1, 3, 2, 2, 4, 1]

    def turned(node, step, t, k):
        ahead = node.theta - 0.3 * node.gradient(node.theta, 2 * step)
        return node.gradient(ahead, 2 * step + 1)

    phase = train(
        descend(adam(), lr=LR), batch_size=BATCH, steps=counts, part=part, at=lookahead(0.3)
    )
    clients = problems.ragged_clients(N)
    wanted, _ = naive_models(
        model(), clients, lambda p: torch.optim.Adam(p, LR), part=part, turned=turned, counts=counts
    )
    close(ran(phase, model(), clients, **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_mixtures_of_a_part_with_steps_of_two_kinds(trained, settings):
    """Personal models go by a heavy ball, common ones by Adam at half the rate.

    Shares move in a round's first step.
    """
    model, part = TRAINED[trained]

    def turned(node, step, t, k):
        if not node.memory.get("common"):
            common = nn.Parameter(node.theta)
            node.memory |= {
                "common": [common],
                "adam": torch.optim.Adam([common], LR / 2),
                "share": 0.7,
            }
        (common,), share, theta = node.memory["common"], node.memory["share"], node.theta
        g = node.gradient(share * theta + (1 - share) * common.detach(), step)
        if k == 0:
            slope = float(g @ (theta - common.detach()))
            node.memory["share"] = min(1, max(0, share - LR * slope))
        common.grad = node.gradient(common.detach(), step)
        node.memory["adam"].step()
        return share * g

    at = mixture(descend(adam(), lr=LR / 2), share=0.7, adaptive=True)
    phase = train(descend(momentum(0.9), lr=LR), batch_size=BATCH, epochs=2, part=part, at=at)
    looking, seen = watched()
    clients = problems.ragged_clients(N)
    wanted, nodes = naive_models(
        model(), clients, lambda p: torch.optim.SGD(p, LR, momentum=0.9), part=part, turned=turned
    )
    close(ran(phase, model(), clients, after=looking, **settings), wanted)
    shares = torch.tensor([node.memory["share"] for node in nodes], dtype=torch.float64)
    close(seen["share"], shares)
    assert (shares - 0.7).abs().max() > 1e-3, "no share has moved"
    for i, node in enumerate(nodes):
        close(given(model(), part, seen["common"], i), node.memory["common"][0].detach())


# Learning rates


def test_schedules_in_closed_form():
    assert [constant(0.2)(t, k) for t, k in [(0, 0), (9, 3)]] == [0.2, 0.2]
    np.testing.assert_allclose(
        [exponential(0.2, 0.9)(t, 5) for t in range(4)], [0.2 * 0.9**t for t in range(4)]
    )
    rates = [cosine(0.4, rounds=12, warmup=3, end=0.1)(t, 0) for t in range(15)]
    rising = [0.4 * (t + 1) / 4 for t in range(3)]
    falling = [0.1 + 0.3 * (1 + math.cos(math.pi * (t - 3) / 9)) / 2 for t in range(3, 12)]
    np.testing.assert_allclose(rates, [*rising, *falling, 0.1, 0.1, 0.1])
    assert cosine(0.4, rounds=4)(0, 0) == 0.4
    assert cosine(0.4, rounds=1)(0, 0) == 0.4


def by_round_and_step(round, step):
    return [0.3, 0.1, 0.2][round] / (1 + step)


RATES = {
    "constant": constant(0.3),
    "exponential": exponential(0.3, 0.5),
    "cosine": cosine(0.3, rounds=3, warmup=1),
    "own": by_round_and_step,
    "zero at first": lambda round, step: 0.1 * round,
    "numpy": lambda round, step: np.float32(0.25),
    "tensor": lambda round, step: torch.tensor(0.25),
}


@BOTH_WAYS
@pytest.mark.parametrize("name", RATES)
def test_rates_of_rounds_and_steps(name, settings):
    """A function of one's own is asked for rounds and steps of the run alone."""
    lr, asked = RATES[name], set()

    def noted(round, step):
        asked.add((round, step))
        return lr(round, step)

    phase = train(
        descend(momentum(0.9), lr=noted if name == "own" else lr), batch_size=BATCH, steps=2
    )
    clients = problems.equal_clients(N)
    wanted, _ = naive_models(
        problems.linear(), clients, lambda p: torch.optim.SGD(p, LR, momentum=0.9), counts=[2] * N,
        lr=lambda t, k: float(lr(t, k)),
    )  # fmt: skip
    close(ran(phase, problems.linear(), clients, **settings), wanted)
    assert name != "own" or asked == {(t, k) for t in range(ROUNDS) for k in range(2)}


def test_a_function_of_one_round_and_one_step_is_asked_for_no_other():
    phase = train(descend(lr=lambda round, step: {(0, 0): 0.1}[round, step]), batch_size=BATCH)
    ran(phase, problems.linear(), problems.equal_clients(N), rounds=1)


@pytest.mark.parametrize(
    ("bad", "told"),
    [(-0.1, "-0.1"), (math.nan, "nan"), (math.inf, "inf"), ("fast", "'fast'"), (None, "None"),
     (torch.zeros(2), "tensor"), (10**400, "about")],
    ids=["negative", "nan", "infinite", "text", "none", "vector", "huge"],
)  # fmt: skip
def test_rates_that_cannot_be_used_are_refused(bad, told):
    phase = train(descend(lr=lambda round, step: bad), batch_size=BATCH)
    place = r"the phase 'local', round 1 \(step 0 of it\)"
    with pytest.raises(
        ValueError,
        match=rf"`lr` must return a finite learning rate of at least 0, got {told}.*{place}",
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


@pytest.mark.parametrize(("bad", "told"), [(-0.1, "-0.1"), (math.nan, "nan"), ("fast", "'fast'")])
@pytest.mark.parametrize(("t", "k"), [(0, 1), (1, 0), (4, 2)])
def test_rates_that_cannot_be_used_are_refused_where_they_come(bad, told, t, k):
    phase = train(
        descend(lr=lambda round, step: bad if (round, step) == (t, k) else 0.1),
        batch_size=BATCH,
        steps=3,
    )
    place = rf"round {t + 1} \(step {k} of it\)"
    with pytest.raises(
        ValueError,
        match=rf"`lr` must return a finite learning rate of at least 0, got {told}.*{place}",
    ):
        ran(phase, problems.linear(), problems.equal_clients(N), rounds=5)


@pytest.mark.parametrize("t", [0, 1, 4])
def test_rates_beyond_a_short_dtype_are_refused_where_they_come(t):
    phase = train(descend(lr=lambda round, step: 1e6 if round == t else 1e-3), batch_size=BATCH)
    with pytest.raises(
        ValueError,
        match=rf"`lr` must be at most 65504 for torch\.float16, got 1e\+06 .*round {t + 1} ",
    ):
        run(
            chain("own", local=phase),
            model=problems.linear(),
            clients=problems.equal_clients(N),
            rounds=5,
            seed=SEED,
            dtype=torch.float16,
        )


# Amounts of one's own a node


@EVERY_WAY
@pytest.mark.parametrize("amount", ["steps", "epochs"])
def test_sizes_and_amounts_a_node(amount, settings):
    """Tuples, one number a node; with no steps a node stays where it is."""
    clients, sizes, steps = problems.ragged_clients(N), [1, 3, 2, 16, 5, 4], [3, 0, 1, 2, 5, 4]
    passes = [1, 2, 1, 3, 1, 2]
    more = {"steps": steps} if amount == "steps" else {"epochs": passes}
    phase = train(descend(adam(), lr=LR), batch_size=sizes, **more)
    if amount == "epochs":
        steps = [
            e * math.ceil(len(own) / b)
            for e, own, b in zip(passes, clients.train, sizes, strict=True)
        ]
    looking, seen = watched()
    wanted, _ = naive_models(
        layered(), clients, lambda p: torch.optim.Adam(p, LR), counts=steps, batch_sizes=sizes
    )  # fmt: skip
    close(ran(phase, layered(), clients, after=looking, **settings), wanted)
    assert seen["taken"].tolist() == [ROUNDS * own for own in steps]


@pytest.mark.parametrize("name", ["batch_size", "steps", "epochs"])
def test_amounts_are_of_all_nodes(name):
    phase = train(descend(lr=LR), **{name: (2, 2, 2)})
    with pytest.raises(
        ValueError, match=rf"`{name}` must be one number or one per node, n=6, got 3 numbers"
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


# Terms of one's own


def sign(g, theta, own, step):
    return g.sign_()


def unit(g, theta, own, step):
    return g / g.norm(dim=1, keepdim=True)


def counted(g, theta, own, step):
    """Go by gradients over the root of the sum of their squares (AdaGrad)."""
    return g / own["sums"].add_(g.square()).sqrt().add_(1e-10)


OWN = {
    "elementwise": (Term("sign", sign, elementwise=True), plain_sgd, lambda g: g.sign()),
    "of whole models": (Term("unit", unit), plain_sgd, lambda g: g / g.norm()),
    "that keeps": (
        Term(
            "sums",
            counted,
            lambda models: {"sums": torch.zeros_like(models.flat)},
            elementwise=True,
        ),
        lambda p: torch.optim.Adagrad(p, LR),
        lambda g: g,
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", OWN)
def test_terms_of_ones_own(name, trained, settings):
    (model, part), (term, make, change) = TRAINED[trained], OWN[name]
    phase = train(descend(term, lr=LR), batch_size=BATCH, epochs=2, part=part)
    wanted, _ = naive_models(
        model(), problems.ragged_clients(N), make, part=part,
        turned=lambda node, step, t, k: change(node.gradient(node.theta, step)),
    )  # fmt: skip
    close(ran(phase, model(), problems.ragged_clients(N), **settings), wanted)


def changes(theta, g):
    theta.mul_(0.9)
    return g


def replaces(own, g):
    own["velocity"] = own["velocity"] * 0.9 + g
    return own["velocity"]


def adds(own, g):
    own["mine"] = g.clone()
    return g


def flat_velocity(models):
    return {"velocity": torch.zeros_like(models.flat)}


SHAPE = "must return directions of shape"
REFUSED = {
    "shape": (lambda g, theta, own, step: g[:, :1], f"{SHAPE} .*, got shape"),
    "None": (lambda g, theta, own, step: None, f"{SHAPE} .*, got NoneType"),
    "number": (lambda g, theta, own, step: 0.0, f"{SHAPE} .*, got float"),
    "theta": (
        lambda g, theta, own, step: changes(theta, g),
        "must not change `theta`; return a direction",
    ),
    "replaced": (
        lambda g, theta, own, step: replaces(own, g),
        "must change its state in place, .* as 'velocity'",
    ),
    "added": (
        lambda g, theta, own, step: adds(own, g),
        "must change its state in place, .* as 'mine' into",
    ),
    "branch": (
        lambda g, theta, own, step: g if g.sum() > 0 else -g,
        "must work on tensors without values",
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("elementwise", [True, False], ids=["by parameter", "whole"])
@pytest.mark.parametrize("name", REFUSED)
def test_terms_that_do_not_keep_to_the_contract_are_named(name, elementwise, settings):
    update, message = REFUSED[name]
    term = Term("mine", update, flat_velocity, elementwise=elementwise)
    with pytest.raises(ValueError, match=f"the term 'mine' {message}"):
        ran(
            train(descend(term, lr=LR), batch_size=BATCH),
            layered(),
            problems.equal_clients(N),
            **settings,
        )


def with_numbers_of_nodes(models):
    flat = models.flat
    return {"number": torch.arange(len(flat), dtype=flat.dtype, device=flat.device)}


@EVERY_WAY
@pytest.mark.parametrize("make", [problems.equal_clients, problems.ragged_clients])
@pytest.mark.parametrize("bad", [0, 3])
def test_the_node_is_named_whose_direction_is_not_finite(bad, make, settings):
    """Also where nodes that take as many steps are put together."""

    def update(g, theta, own, step):
        return torch.where((own["number"] == bad)[:, None], torch.nan, g)

    phase = train(
        descend(Term("mine", update, with_numbers_of_nodes), lr=LR), batch_size=BATCH, epochs=1
    )
    with pytest.raises(
        ValueError, match=rf"the term 'mine' must return finite .* for node {bad} in round 1"
    ):
        ran(phase, problems.linear(), make(N), **settings)


NAMES = {
    "both last": lambda: [momentum(0.9), momentum(0.5)],
    "both begin anew": lambda: [momentum(0.9, reset=True), momentum(0.5, reset=True)],
    "one of each": lambda: [momentum(0.9), momentum(0.5, reset=True)],
    "point": lambda: [proximal(0.1, kept="common")],
}


@pytest.mark.parametrize("name", NAMES)
def test_two_tensors_of_one_name_are_refused(name):
    at = mixture(descend(lr=LR)) if name == "point" else None
    phase = train(descend(*NAMES[name](), lr=LR), batch_size=BATCH, at=at)
    with pytest.raises(
        ValueError, match=r"`terms` must keep tensors of different names, two of them keep '[a-z]*'"
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


def test_two_of_a_kind_under_names_of_their_own():
    phase = train(descend(momentum(0.9), momentum(0.5, name="second"), lr=LR), batch_size=BATCH)
    looking, seen = watched()
    ran(phase, problems.linear(), problems.equal_clients(N), after=looking)
    assert set(seen) == {"velocity", "second"}
    assert not torch.equal(seen["velocity"], seen["second"])


def test_what_terms_keep_must_be_at_hand():
    how = algorithms.Training(descend(momentum(0.9), lr=LR), BATCH)

    def apply(models, state, round):
        round.train(models, how, state)
        return state

    with pytest.raises(
        ValueError,
        match=r"`own` must hold .* the phase 'local' keep, 'velocity' is missing; let its",
    ):
        ran(Phase(lambda models: {}, apply), problems.linear(), problems.equal_clients(N))
    ran(Phase(how.init, apply), problems.linear(), problems.equal_clients(N))


def test_threads_do_not_take_each_others_steps_for_changes_by_a_term(monkeypatch):
    """Two threads are within the same term at once, while others change rows of the same memory."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        busy = Term("busy", lambda g, theta, own, step: [g.mul_(1.0) for _ in range(2000)][-1])
        phase = train(descend(busy, lr=LR), batch_size=BATCH)
        got = ran(phase, problems.linear(), problems.equal_clients(N), rounds=4, executor="looped")
    finally:
        torch.set_num_threads(before)
    wanted, _ = naive_models(
        problems.linear(), problems.equal_clients(N), plain_sgd, rounds=4, counts=[1] * N
    )
    close(got, wanted)


# What lasts


@pytest.mark.parametrize(
    "settings", [SETTINGS["looped"], SETTINGS["batched-4"]], ids=["looped", "batched"]
)
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_resumed_is_as_if_never_stopped(tmp_path, name, trained, settings):
    model, part = TRAINED[trained]
    phase = train(
        descend(*OPTIMIZERS[name][0], lr=cosine(LR, rounds=6)),
        batch_size=BATCH,
        epochs=1,
        part=part,
    )
    arguments = {
        "algorithm": chain("own", local=phase),
        "model": model(),
        "clients": problems.ragged_clients(N),
        "rounds": 6,
        "seed": SEED,
        "init": "independent",
        "device": "cpu",
    } | settings
    whole = killed.trained(arguments)
    saving = topofl.Saving(tmp_path, every=2)
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(**arguments, saving=saving), callbacks=[lambda e: 1 / (e.round - 4)]
        )
    again = killed.trained(arguments, saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(again, whole) == []


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_a_frozen_node_keeps_what_it_had(name, trained, settings):
    """Its first step overflows: nothing of it stays."""
    (model, part), (looking, seen) = TRAINED[trained], watched()
    phase = train(descend(*OPTIMIZERS[name][0], lr=LR), batch_size=BATCH, steps=2, part=part)
    run(
        chain("own", local=phase, looking=looking),
        model=model(),
        clients=clients_with_extremes(),
        rounds=2,
        seed=0,
        on_divergence="freeze",
        **settings,
    )
    for key, kept in seen.items():
        others = [i for i in range(N) if i != BAD]
        assert not kept[BAD].any(), key
        assert all(bool(kept[i].any()) for i in others), key
        assert torch.isfinite(kept).all(), key


@BOTH_WAYS
@pytest.mark.parametrize("elementwise", [True, False], ids=["by parameter", "whole"])
def test_a_node_that_is_frozen_later_keeps_what_it_had_then(elementwise, settings):
    def update(g, theta, own, step):
        own["sums"].add_(1)
        far = (own["sums"] == 5) & (own["number"] == 2)  # its second step of the second round
        return torch.where(far, torch.inf, g)

    def init(models):
        number = (
            torch.arange(N, device=models.flat.device)[:, None].expand_as(models.flat).contiguous()
        )
        return {"sums": torch.zeros_like(models.flat), "number": number}

    looking, seen = watched()
    phase = train(
        descend(Term("mine", update, init, elementwise=elementwise), lr=LR),
        batch_size=BATCH,
        steps=3,
        part=APART,
    )
    ran(
        phase,
        layered(),
        problems.equal_clients(N),
        after=looking,
        on_divergence="freeze",
        **settings,
    )
    sums = torch.stack([given(layered(), APART, seen["sums"], i) for i in range(N)])
    assert (sums[[0, 1, 3, 4, 5]] == 9).all()
    assert (sums[2] == 4).all()


# Memory

D = 36 * 3 + 3
STATES = {
    "plain": ([], 0),
    "momentum": ([momentum(0.9)], N * D * 4),
    "nesterov": ([momentum(0.9, nesterov=True)], N * D * 4),
    "adam": ([adam()], 2 * N * D * 4 + N * 8),
    "adamw": ([adamw()], 2 * N * D * 4 + N * 8),
    "both": ([momentum(0.9), adam()], 3 * N * D * 4 + N * 8),
    "reset momentum": ([momentum(0.9, reset=True)], 0),
    "reset adam": ([adam(reset=True)], 0),
    "mask": ([masked()], N * D),
    "anchor": ([proximal(0.1, kept="anchor")], N * D * 4),
}


def need(terms, **settings):
    phase = train(descend(*terms, lr=LR), batch_size=BATCH)
    return topofl.estimate(
        chain("own", local=phase), model=problems.linear(), clients=problems.equal_clients(N),
        compute=topofl.Compute(executor="looped"), **problems.options(**settings),
    )  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_bytes_that_last(name):
    terms, wanted = STATES[name]
    assert need(terms).state == wanted


def test_what_begins_anew_takes_memory_while_nodes_train():
    assert need([momentum(0.9, reset=True)]).activations == need([]).activations + 4 * D
    assert need([momentum(0.9)]).activations == need([]).activations


BESIDE = {
    "plain": ([], 0),
    "weight decay": ([weight_decay(0.1)], 0),
    "heavy ball": ([momentum(0.9)], 0),
    "heavy ball and decay": ([weight_decay(0.1), momentum(0.9)], 0),
    "decay after the heavy ball": ([momentum(0.9), weight_decay(0.1)], 0),
    "reset": ([momentum(0.9, reset=True)], 4 * D),
    "to the start": ([proximal(0.1)], 2 * 4 * D),  # a copy, and the difference from it
    "to models kept": ([proximal(0.1, kept="anchor")], 4 * D),
}


@pytest.mark.parametrize("name", BESIDE)
def test_bytes_of_a_step_beside_the_gradient(name):
    terms, wanted = BESIDE[name]
    how = algorithms.Training(descend(*terms, lr=LR), BATCH)
    assert bytes_of_terms(how, Layout.of(problems.linear()), torch.float32, N) == wanted


def test_a_clip_takes_a_flat_copy_of_gradients():
    """And a few numbers a node: the norm, and what is made of it."""
    layout = Layout.of(problems.linear())
    for terms, copies in [([clip(1.0)], 1), ([clip(1.0), proximal(0.1)], 3)]:
        found = bytes_of_terms(
            algorithms.Training(descend(*terms, lr=LR), BATCH), layout, torch.float32, N
        )
        assert 4 * D * copies <= found <= 4 * D * copies + 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: descend(lr=lambda t: 0.1),
            r"`lr` must be a function of \(round, step\), got one of \(t\)",
        ),
        (
            lambda: descend(Term("mine", lambda g, theta: g), lr=0.1),
            r"`update` of the term 'mine' must be a function of \(g, theta, own, step\), "
            r"got one of \(g, theta\)",
        ),
        (
            lambda: descend(Term("mine", lambda g, theta, own, step: g, lambda: {}), lr=0.1),
            r"`init` of the term 'mine' must be a function of \(models\), got one of \(\)",
        ),
        (
            lambda: train(descend(lr=0.1), at=algorithms.At("mine", lambda theta: theta)),
            r"`where` of the point 'mine' must be a function of \(theta, own, step, gradient\), "
            r"got one of \(theta\)",
        ),
        (
            lambda: train(
                descend(lr=0.1),
                at=algorithms.At("mine", lambda *all_of_them: all_of_them[0], lambda g: g),
            ),
            r"`back` of the point 'mine' must be a function of \(g, theta, own, step, gradient\), "
            r"got one of \(g\)",
        ),
    ],
    ids=["schedule", "update", "init", "where", "back"],
)
def test_functions_of_other_arguments_are_named(make, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        make()


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (
            algorithms.At("mine", lambda theta, own, step, gradient: theta[:, :-1]),
            r"`where` of the point 'mine' must return a point of shape \(2, 111\), "
            r"got shape \(2, 110\)",
        ),
        (
            algorithms.At("mine", lambda theta, own, step, gradient: None),
            r"`where` of the point 'mine' must return a point of shape \(2, 111\), got NoneType",
        ),
        (
            algorithms.At(
                "mine", lambda theta, *_: theta + 0, lambda g, theta, own, step, gradient: g.sum(1)
            ),
            r"`back` of the point 'mine' must return gradients of shape \(2, 111\), "
            r"got shape \(2,\)",
        ),
    ],
    ids=["fewer", "nothing", "sums"],
)
def test_what_points_return_is_named(at, message):
    with pytest.raises(ValueError, match=message):
        ran(train(descend(lr=0.1), at=at), problems.linear(), problems.equal_clients(N))


@pytest.mark.parametrize("name", ["dsgd", "fedavg", "dfedavgm", "ditto", "relay_sgd"])
def test_methods_take_schedules(name):
    build, clients = getattr(algorithms, name), problems.equal_clients()
    given = {
        "model": problems.linear(),
        "clients": clients,
        "topology": topologies.ring(6),
        "rounds": 4,
        "seed": 0,
    }
    falling, constant = algorithms.exponential(0.2, 0.5), lambda round, step: 0.2
    for schedule, number in ((constant, build(0.2, batch_size=4)), (falling, None)):
        history = topofl.run(build(schedule, batch_size=4), **given)
        if number is not None:
            np.testing.assert_array_equal(
                history["train_loss"], topofl.run(number, **given)["train_loss"]
            )
        else:
            other = topofl.run(build(0.2, batch_size=4), **given)
            assert not np.array_equal(history["train_loss"], other["train_loss"])


def test_a_schedule_has_no_decay_beside_it():
    with pytest.raises(ValueError, match=r"`lr_decay` must be 1 where `lr` is a schedule"):
        algorithms.sgd(algorithms.cosine(0.1, rounds=3), lr_decay=0.9)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("cosine(0.5, rounds=30)", algorithms.cosine(0.5, rounds=30)),
        ("exponential(0.5, 0.9)", algorithms.exponential(0.5, 0.9)),
        ("constant(lr=0.5)", algorithms.constant(0.5)),
    ],
)
def test_text_stands_for_schedules(text, schedule):
    assert as_schedule("lr", text) == schedule
    assert repr(algorithms.dsgd(text)) == repr(algorithms.dsgd(schedule))
    assert repr(algorithms.fedavg(text)) == repr(algorithms.fedavg(schedule))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "linear(0.5)",
            r"`lr` must be such as 0.1 or cosine\(0.5, rounds=300\), "
            r"by one of constant, exponential, cosine",
        ),
        ("cosine(0.5)", "rounds"),
        ("cosine(-1, rounds=3)", "`lr` must be a finite number above 0"),
    ],
)
def test_text_that_stands_for_no_schedule(text, match):
    with pytest.raises(ValueError, match=match):
        algorithms.dsgd(text)


@pytest.mark.parametrize("text", ["0.5", "1e-3", "-1"])
def test_numbers_in_quotes_are_refused(text):
    with pytest.raises(
        TypeError, match=f"`lr` must be a number or a schedule, got {text!r}; remove the quotes"
    ):
        algorithms.dsgd(text)


def test_a_decay_and_a_schedule_exclude_each_other():
    with pytest.raises(ValueError, match="`lr_decay` must be 1 where `lr` is a schedule"):
        algorithms.fedavg("cosine(0.5, rounds=30)", lr_decay=0.9)
