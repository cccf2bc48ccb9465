"""Terms, points, amounts and rates of local steps equal torch, or a loop over nodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, ROUNDS, SEED, N, engine, falling, on_threads, watched
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, topologies
from topofl._support.seeding import seeded_torch
from topofl.algorithms import (
    Term,
    adam,
    chain,
    clip,
    descend,
    momentum,
    proximal,
    train,
    weight_decay,
)
from topofl.algorithms.contract.descent import as_schedule
from topofl.engine.footprint import bytes_of_terms
from topofl.engine.population import Layout

LR = 0.1

WAYS = [
    {"executor": "looped"},
    {"executor": "batched", "chunk": 4},
    {"executor": "batched", "chunk": 1},
    {"executor": "batched", "chunk": N},
]
BOTH_WAYS = pytest.mark.parametrize("settings", WAYS[:2], ids=["looped", "batched"])


@seeded_torch(0)
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Softplus(), nn.Linear(4, 3))


APART = algorithms.part("1.weight", "3.bias")

TRAINED = {
    "linear": (problems.linear, algorithms.everything, WAYS),
    "apart": (layered, APART, WAYS),
    "everything": (layered, algorithms.everything, WAYS[:2]),
    "side by side": (layered, algorithms.part("3"), WAYS[1:2]),
}
"""Models, the parts of them that are trained, and the executors."""


class Node:
    """One node: a module, the names of its trained parameters, its data, and its state."""

    def __init__(self, i, module, clients, part, batch_size):
        named = list(module.named_parameters())
        self.i, self.module, self.clients, self.batch_size = i, module, clients, batch_size
        self.names = [named[k][0] for k in part.places([name for name, _ in named])]
        self.parameters = [p for name, p in named if name in self.names]
        self.memory = {}

    @property
    def theta(self):
        return nn.utils.parameters_to_vector(self.parameters).detach().clone()

    def parts(self, values):
        """Return the trained parameters that a vector holds."""
        pieces = values.split([p.numel() for p in self.parameters])
        return [piece.view(p.shape) for piece, p in zip(pieces, self.parameters, strict=True)]

    def gradient(self, values, number):
        """Return the gradient at replaced parameters, on the minibatch with some index."""
        blobs, own = self.clients.dataset, self.clients.train[self.i]
        places = naive.minibatch(own, self.i, number, self.batch_size, "local", SEED)
        values = values.detach().requires_grad_()
        parameters = {name: p.detach() for name, p in self.module.named_parameters()}
        parameters |= dict(zip(self.names, self.parts(values), strict=True))
        inputs = (blobs.inputs[places].double(),)
        outputs = torch.func.functional_call(self.module, parameters, inputs)
        return torch.autograd.grad(functional.cross_entropy(outputs, blobs.labels[places]), values)[
            0
        ]


def plain(node, step, t, k):
    return node.gradient(node.theta, step)


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, LR)


def heavy_ball(parameters):
    return torch.optim.SGD(parameters, LR, momentum=0.9)


@dataclass(frozen=True)
class Steps:
    """Terms of local steps, and the loop over nodes that must end with the same models.

    Parameters
    ----------
    terms
        The terms.
    make
        Makes an optimizer of torch of parameters.
    turned
        ``turned(node, step, t, k)`` returns the gradient that it follows.
    clip
        The longest gradient that the loop takes.
    lr
        Learning rates, ``lr(t, k)``.
    how
        Further arguments of :func:`topofl.algorithms.train`.
    counts, sizes
        Steps and batch sizes of each node in the loop; None: two passes, minibatches of 4.
    participants
        ``participants(t)`` are the nodes that train.
    sets
        The state that a phase sets after the first round.
    kept
        Checks the state after the run: ``kept(state, nodes, part)``.
    """

    terms: Sequence[Term] = ()
    make: Callable[..., torch.optim.Optimizer] = plain_sgd
    turned: Callable[..., torch.Tensor] = plain
    clip: float | None = None
    lr: Callable[[int, int], float] | None = None
    how: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 2})
    counts: Sequence[int] | None = None
    sizes: Sequence[int] | None = None
    participants: Callable[[int], Sequence[bool]] = lambda t: [True] * N
    sets: str = ""
    kept: Callable[..., None] = lambda state, nodes, part: None

    def naively(self, model, clients, part, rounds=ROUNDS):
        """Return all models at the start and after the loop, and all nodes."""
        nodes, modules = [], problems.modules_at_start(model, clients.n)
        start = flat(modules)
        for i, module in enumerate(modules):
            node = Node(i, module, clients, part, self.sizes[i] if self.sizes else BATCH)
            passes = 2 * math.ceil(len(clients.train[i]) / node.batch_size)
            steps = self.counts[i] if self.counts else passes
            optimizer = self.make(node.parameters)
            for t in range(rounds):
                node.memory["start"] = node.theta
                for k in range(steps if self.participants(t)[i] else 0):
                    g = self.turned(node, t * steps + k, t, k)
                    for p, own in zip(node.parameters, node.parts(g), strict=True):
                        p.grad = own.clone()
                    if self.clip is not None:
                        nn.utils.clip_grad_norm_(node.parameters, self.clip)
                    for group in optimizer.param_groups:
                        group["lr"] = group["lr"] if self.lr is None else float(self.lr(t, k))
                    optimizer.step()
            nodes.append(node)
        return start, flat(modules), nodes

    def phase(self, part):
        who = lambda round: np.array(self.participants(round.t))  # noqa: E731
        how = {"batch_size": self.sizes or BATCH, "participants": who} | self.how
        return train(descend(*self.terms, lr=self.lr or LR), part=part, **how)


def flat(modules):
    vectors = [nn.utils.parameters_to_vector(module.parameters()).detach() for module in modules]
    return torch.stack(vectors)


def given(node, values):
    """Return the values (n, d) of the parameters that a node trains."""
    places = Layout.of(node.module).columns(algorithms.part(*node.names))
    return torch.cat([values[node.i, columns] for columns in places])


def numbers():
    """Return some numbers for each parameter of each node of the largest model, (n, d)."""
    return torch.from_numpy(np.random.default_rng(1).standard_normal((N, 200)))


def setting(name):
    """Return a phase that writes numbers into the state of the training phase before it."""

    def apply(models, state, round):
        if not models.flat.is_meta:
            values = numbers()[:, : models.flat.shape[1]]
            round.state("local")[name].copy_(values > 0 if name == "mask" else values)
        return state

    return algorithms.Phase(lambda models: {}, apply)


def drawn_to(name, node, step, t, k):
    node.memory.setdefault("first", node.theta)
    return node.gradient(node.theta, step) + 2.0 * (node.theta - node.memory[name])


def by_state(name, node, step, t, k):
    """Return a gradient changed by what another phase sets, after the first round."""
    g, theta = node.gradient(node.theta, step), node.theta.requires_grad_()
    own = given(node, numbers())
    if t == 0:
        return g
    if name == "toward":
        return g + torch.autograd.grad(-(own @ theta) / theta.norm(), theta)[0]
    return g * (own > 0) if name == "mask" else g + own


def after_momentum(decay, node, step, t, k):
    node.memory["v"] = 0.9 * node.memory.get("v", 0) + node.gradient(node.theta, step)
    return node.memory["v"] + decay * node.theta


def anew(node, step, t, k):
    """Return a velocity that starts from zero in every round."""
    node.memory["v"] = node.gradient(node.theta, step) + (0.9 * node.memory["v"] if k else 0)
    return node.memory["v"]


def adam_anew(node, step, t, k):
    m, s = node.memory["moments"] if k else (0, 0)
    g = node.gradient(node.theta, step)
    m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
    node.memory["moments"] = m, s
    return m / (1 - 0.9 ** (k + 1)) / ((s / (1 - 0.999 ** (k + 1))).sqrt() + 1e-8)


def uphill(node, step, t, k):
    up = node.gradient(node.theta, step)
    return node.gradient(node.theta + 0.5 * up / (up.norm() + 1e-12), step)


def ahead(node, step, t, k):
    """Return the gradient on a second minibatch, after a step on the first."""
    return node.gradient(node.theta - 0.3 * node.gradient(node.theta, 2 * step), 2 * step + 1)


def mixed(node, step, t, k):
    """Return the gradient of personal models; common ones go by Adam at half the rate.

    Shares move in a round's first step.
    """
    if "common" not in node.memory:
        common = nn.Parameter(node.theta)
        node.memory |= {"common": common, "share": 0.7}
        node.memory["adam"] = torch.optim.Adam([common], LR / 2)
    common, share, theta = node.memory["common"], node.memory["share"], node.theta
    g = node.gradient(share * theta + (1 - share) * common.detach(), step)
    if k == 0:
        slope = float(g @ (theta - common.detach()))
        node.memory["share"] = min(1, max(0, share - LR * slope))
    common.grad = node.gradient(common.detach(), step)
    node.memory["adam"].step()
    return share * g


def mixtures(state, nodes, part):
    shares = torch.tensor([node.memory["share"] for node in nodes], dtype=torch.float64)
    close(state["share"], shares)
    assert (shares - 0.7).abs().max() > 1e-3, "no share has moved"
    for node in nodes:
        close(given(node, state["common"]), node.memory["common"].detach())


def nothing_lasts(state, nodes, part):
    assert state == {}


def took(counts):
    return lambda state, nodes, part: state["taken"].tolist() == counts or pytest.fail(str(state))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


def counted(g, theta, own, step):
    """Return gradients over the root of the sum of their squares (AdaGrad)."""
    return g / own["sums"].add_(g.square()).sqrt().add_(1e-10)


def zeros(name):
    return lambda models: {name: torch.zeros_like(models.flat)}


def every_third(t):
    return np.arange(N) % 3 == t % 3


SIGN = Term("sign", lambda g, theta, own, step: g.sign_(), elementwise=True)
UNIT = Term("unit", lambda g, theta, own, step: g / g.norm(dim=1, keepdim=True))
ADAGRAD = Term("sums", counted, zeros("sums"), elementwise=True)

SGD, ADAM = torch.optim.SGD, torch.optim.Adam
COUNTS, SIZES, PASSES = [3, 0, 1, 2, 5, 4], [1, 3, 2, 16, 5, 4], [1, 2, 1, 3, 1, 2]
BY_PASSES = [
    e * math.ceil(size / b)
    for e, size, b in zip(PASSES, problems.ragged_clients(N).sizes, SIZES, strict=True)
]
EARLY = {"batch_size": BATCH, "steps": 3}
MIXED = {
    "epochs": 2,
    "at": algorithms.mixture(descend(adam(), lr=LR / 2), share=0.7, adaptive=True),
}

STEPS = {
    "plain": Steps(),
    "weight_decay": Steps([weight_decay(0.3)], lambda p: SGD(p, LR, weight_decay=0.3)),
    "momentum": Steps([momentum(0.9)], heavy_ball),
    "nesterov": Steps(
        [momentum(0.9, nesterov=True)], lambda p: SGD(p, LR, momentum=0.9, nesterov=True)
    ),
    "clip": Steps([clip(0.2)], clip=0.2),
    "all of SGD": Steps(
        [clip(0.5), weight_decay(0.1), momentum(0.8)],
        lambda p: SGD(p, LR, weight_decay=0.1, momentum=0.8),
        clip=0.5,
    ),
    "adam": Steps([adam(0.8, 0.95)], lambda p: ADAM(p, LR, betas=(0.8, 0.95))),
    "adam after decay": Steps(
        [weight_decay(0.3), adam(eps=1e-3)], lambda p: ADAM(p, LR, weight_decay=0.3, eps=1e-3)
    ),
    "adamw": Steps(
        [algorithms.adamw(decay=0.2)], lambda p: torch.optim.AdamW(p, LR, weight_decay=0.2)
    ),
    "falling": Steps([momentum(0.9)], heavy_ball, lr=falling),
    "own, elementwise": Steps([SIGN], turned=lambda *at: plain(*at).sign()),
    "own, of whole models": Steps(
        [UNIT], turned=lambda *at: functional.normalize(plain(*at), dim=0)
    ),
    "own, that keeps": Steps([ADAGRAD], lambda p: torch.optim.Adagrad(p, LR)),
    "adam of some": Steps(
        [adam()],
        lambda p: ADAM(p, LR),
        participants=every_third,
        kept=took([2, 2, 2, 4, 6, 8]),  # each took part once
    ),
    "SGD of some": Steps(
        [clip(0.5), momentum(0.9)], heavy_ball, clip=0.5, participants=every_third
    ),
    "to the start of the round": Steps(
        [proximal(2.0), adam()], lambda p: ADAM(p, LR), partial(drawn_to, "start")
    ),
    "to what is kept": Steps(
        [proximal(2.0, kept="anchor"), clip(0.5)], turned=partial(drawn_to, "first"), clip=0.5
    ),
    "mask": Steps(
        [algorithms.masked(), momentum(0.9)], heavy_ball, partial(by_state, "mask"), sets="mask"
    ),
    "correction": Steps(
        [algorithms.correction()], turned=partial(by_state, "c"), sets="correction"
    ),
    "toward": Steps([algorithms.cosine_pull()], turned=partial(by_state, "toward"), sets="toward"),
    "decay after momentum": Steps(
        [momentum(0.9), weight_decay(0.5)], turned=partial(after_momentum, 0.5)
    ),
    "correction after momentum": Steps(
        [momentum(0.9), algorithms.correction()], turned=partial(after_momentum, 0)
    ),
    "momentum of a round": Steps([momentum(0.9, reset=True)], turned=anew, kept=nothing_lasts),
    "adam of a round": Steps([adam(0.9, reset=True)], turned=adam_anew, kept=nothing_lasts),
    "steps by node": Steps(
        [adam()],
        lambda p: ADAM(p, LR),
        how={"steps": COUNTS},
        counts=COUNTS,
        sizes=SIZES,
        kept=took([ROUNDS * count for count in COUNTS]),
    ),
    "epochs by node": Steps(
        [adam()],
        lambda p: ADAM(p, LR),
        how={"epochs": PASSES},
        counts=BY_PASSES,
        sizes=SIZES,
        kept=took([ROUNDS * count for count in BY_PASSES]),
    ),
    "sharpness": Steps(
        [momentum(0.9)], heavy_ball, uphill, how={"epochs": 2, "at": algorithms.ascent(0.5)}
    ),
    "lookahead": Steps(
        [adam()],
        lambda p: ADAM(p, LR),
        ahead,
        how={"steps": [1, 3, 2, 2, 4, 1], "at": algorithms.lookahead(0.3)},
        counts=[1, 3, 2, 2, 4, 1],
    ),
    "mixture": Steps([momentum(0.9)], heavy_ball, mixed, how=MIXED, kept=mixtures),
}


@problems.by_turns(8, name=STEPS, trained=TRAINED)
def test_steps_equal_torch_or_a_loop_over_nodes(name, trained):
    """With 1 to 16 examples per client, the state of nodes that have finished does not change."""
    steps, (model, part, ways) = STEPS[name], TRAINED[trained]
    clients = problems.ragged_clients(N)
    start, wanted, nodes = steps.naively(model(), clients, part)
    for settings in ways:
        phases, seen = {"local": steps.phase(part)}, []
        phases |= {"after": setting(steps.sets)} if steps.sets else {}
        algorithm = watched(chain("own", **phases), seen)
        _, models = engine(algorithm, model(), clients, **settings)
        close(models.flat, wanted)
        assert not torch.allclose(wanted, start, atol=1e-4), "nothing was trained"
        steps.kept(seen[-1], nodes, part)


def ran(phase, model=None, clients=None, graph=None, door=engine, **settings):
    """Return what a run of one phase, or a dictionary of phases, returns."""
    phases = phase if isinstance(phase, dict) else {"local": phase}
    return door(chain("own", **phases), model, clients, graph, **settings)


@pytest.mark.parametrize("trained", ["everything", "apart"])
def test_flat_and_per_parameter_updates_agree_with_push_sum_weights(trained):
    """The same terms, given parameter by parameter and all at once."""
    model, part, _ = TRAINED[trained]
    terms = [weight_decay(0.1), proximal(0.5), momentum(0.9)]
    push = algorithms.push_sum(algorithms.part("1"))
    world = (model(), problems.ragged_clients(N), topologies.random_out(N, 2, seed=0))
    found = []
    for chosen in (terms, [term._replace(elementwise=False) for term in terms]):
        local = train(descend(*chosen, lr=LR), batch_size=BATCH, steps=2, part=part)
        for settings in WAYS:
            _, models = ran({"local": local, "exchange": push}, *world, **settings)
            found.append(models.flat)
            assert (models.push_sum_weights - 1).abs().max() > 0.1
    for other in found[1:]:
        close(other, found[0])


def numbered(update, **more):
    """Return a term that keeps the number of each node."""

    def init(models):
        number = torch.arange(N, device=models.flat.device)[:, None].expand_as(models.flat)
        return {"sums": torch.zeros_like(models.flat), "number": number.contiguous()}

    return Term("mine", update, init, **more)


@pytest.mark.parametrize("settings", WAYS, ids=str)
@pytest.mark.parametrize("make", [problems.equal_clients, problems.ragged_clients])
@pytest.mark.parametrize("bad", [0, 3])
def test_the_node_is_named_whose_direction_is_not_finite(bad, make, settings):
    """Even if nodes with equal numbers of steps are grouped."""
    update = lambda g, theta, own, step: torch.where(own["number"] == bad, torch.nan, g)  # noqa: E731
    phase = train(descend(numbered(update), lr=LR), batch_size=BATCH, epochs=1)
    said = rf"the term 'mine' must return finite .* for node {bad} in round 1"
    with pytest.raises(ValueError, match=said):
        ran(phase, clients=make(N), **settings)


def test_two_momentum_terms_with_different_names():
    terms, seen = [momentum(0.9), momentum(0.5, name="second")], []
    phase = train(descend(*terms, lr=LR), batch_size=BATCH)
    engine(watched(chain("own", local=phase), seen))
    assert set(seen[-1]) == {"velocity", "second"}
    assert not torch.equal(seen[-1]["velocity"], seen[-1]["second"])


def test_checks_of_changes_are_thread_safe():
    """Two threads run the same term at once while others change rows of the same memory."""
    busy = Term("busy", lambda g, theta, own, step: [g.mul_(1.0) for _ in range(2000)][-1])
    with on_threads(3):
        _, got = ran(train(descend(busy, lr=LR), batch_size=BATCH), executor="looped")
    _, wanted, _ = Steps(counts=[1] * N).naively(
        problems.linear(), problems.equal_clients(), algorithms.everything
    )
    close(got.flat, wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_the_state_of_a_frozen_node_is_unchanged(name, trained, settings):
    """Its first step overflows and changes nothing."""
    (model, part, _), seen = TRAINED[trained], []
    local = replace(STEPS[name], how={"steps": 2}).phase(part)
    how = {"rounds": 2, "seed": 0, "on_divergence": "freeze", "dtype": torch.float32}
    algorithm, clients = watched(chain("own", local=local), seen), clients_with_extremes()
    engine(algorithm, model(), clients, init="common", **how, **settings)
    for key, kept in seen[-1].items():
        assert not kept[BAD].any(), key
        assert all(bool(kept[i].any()) for i in range(N) if i != BAD), key
        assert torch.isfinite(kept).all(), key


@BOTH_WAYS
@pytest.mark.parametrize("elementwise", [True, False], ids=["by parameter", "whole"])
def test_the_state_of_a_node_that_is_frozen_later_is_unchanged_from_then_on(elementwise, settings):
    def update(g, theta, own, step):
        own["sums"].add_(1)
        far = (own["sums"] == 5) & (own["number"] == 2)  # its second step of the second round
        return torch.where(far, torch.inf, g)

    term, seen = numbered(update, elementwise=elementwise), []
    phase = train(descend(term, lr=LR), batch_size=BATCH, steps=3, part=APART)
    algorithm = watched(chain("own", local=phase), seen)
    engine(algorithm, layered(), on_divergence="freeze", **settings)
    columns = torch.cat([torch.arange(199)[c] for c in Layout.of(layered()).columns(APART)])
    sums = seen[-1]["sums"][:, columns]
    assert (sums[[0, 1, 3, 4, 5]] == 9).all()
    assert (sums[2] == 4).all()


D = 36 * 3 + 3

MEMORY = {
    "plain": ([], 0, 0),
    "weight decay": ([weight_decay(0.1)], 0, 0),
    "momentum": ([momentum(0.9)], N * D * 4, 0),
    "nesterov": ([momentum(0.9, nesterov=True)], N * D * 4, 0),
    "heavy ball and decay": ([weight_decay(0.1), momentum(0.9)], N * D * 4, 0),
    "decay after the heavy ball": ([momentum(0.9), weight_decay(0.1)], N * D * 4, 0),
    "adam": ([adam()], 2 * N * D * 4 + N * 8, None),
    "adamw": ([algorithms.adamw()], 2 * N * D * 4 + N * 8, None),
    "both": ([momentum(0.9), adam()], 3 * N * D * 4 + N * 8, None),
    "reset momentum": ([momentum(0.9, reset=True)], 0, 4 * D),
    "reset adam": ([adam(reset=True)], 0, None),
    "mask": ([algorithms.masked()], N * D, None),
    "anchor": ([proximal(0.1, kept="anchor")], N * D * 4, 4 * D),
    "to the start": ([proximal(0.1)], 0, 2 * 4 * D),  # a copy, and the difference from it
}
"""Terms, the bytes that last from round to round, and those of a step beside the gradients."""


def beside(*terms):
    training = algorithms.Training(descend(*terms, lr=LR), BATCH)
    return bytes_of_terms(training, Layout.of(problems.linear()), torch.float32, N)


@pytest.mark.parametrize("name", MEMORY)
def test_memory_of_terms(name):
    terms, lasting, step = MEMORY[name]
    phase = train(descend(*terms, lr=LR), batch_size=BATCH)
    compute = topofl.Compute(executor="looped")
    world = {"model": problems.linear(), "clients": problems.equal_clients()}
    assert topofl.estimate(chain("own", local=phase), compute=compute, **world).state == lasting
    assert step is None or beside(*terms) == step


def test_a_clip_takes_a_flat_copy_of_gradients():
    """And a few numbers per node: the norm and the factor computed from it."""
    for terms, copies in [([clip(1.0)], 1), ([clip(1.0), proximal(0.1)], 3)]:
        assert 4 * D * copies <= beside(*terms) <= 4 * D * copies + 16


def test_schedules_in_closed_form():
    assert [algorithms.constant(0.2)(t, k) for t, k in [(0, 0), (9, 3)]] == [0.2, 0.2]
    found = [algorithms.exponential(0.2, 0.9)(t, 5) for t in range(4)]
    np.testing.assert_allclose(found, [0.2 * 0.9**t for t in range(4)])
    rates = [algorithms.cosine(0.4, rounds=12, warmup=3, end=0.1)(t, 0) for t in range(15)]
    rising = [0.4 * (t + 1) / 4 for t in range(3)]
    falling = [0.1 + 0.3 * (1 + math.cos(math.pi * (t - 3) / 9)) / 2 for t in range(3, 12)]
    np.testing.assert_allclose(rates, [*rising, *falling, 0.1, 0.1, 0.1])
    assert algorithms.cosine(0.4, rounds=4)(0, 0) == algorithms.cosine(0.4, rounds=1)(0, 0) == 0.4


RATES = {
    "constant": algorithms.constant(0.3),
    "exponential": algorithms.exponential(0.3, 0.5),
    "cosine": algorithms.cosine(0.3, rounds=3, warmup=1),
    "own": lambda round, step: [0.3, 0.1, 0.2][round] / (1 + step),
    "zero at first": lambda round, step: 0.1 * round,
    "numpy": lambda round, step: np.float32(0.25),
    "tensor": lambda round, step: torch.tensor(0.25),
}


@BOTH_WAYS
@pytest.mark.parametrize("name", RATES)
def test_rates_of_rounds_and_steps(name, settings):
    """A schedule is called only for rounds and steps of the run."""
    asked, clients = set(), problems.equal_clients(N)

    def noted(round, step):
        asked.add((round, step))
        return RATES[name](round, step)

    phase = train(descend(momentum(0.9), lr=noted), batch_size=BATCH, steps=2)
    steps = Steps(make=heavy_ball, counts=[2] * N, lr=RATES[name])
    _, wanted, _ = steps.naively(problems.linear(), clients, algorithms.everything)
    _, models = engine(algorithms.chain("own", local=phase), clients=clients, **settings)
    close(models.flat, wanted)
    assert asked == {(t, k) for t in range(3) for k in range(2)}


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
