"""What methods, phases, terms, schedules, compressors, policies and clocks refuse."""

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.algorithms.harness import N, engine
from tests.refusals import named, refused, rows
from tests.rows.methods import ALGORITHMS, forward
from topofl import algorithms, attacks, clocks, mixing, topologies
from topofl.algorithms import (
    Choice,
    GradientPoint,
    Need,
    Policy,
    Term,
    available,
    average_over_peers,
    chain,
    descend,
    momentum,
    on_kept_models,
    refresh_losses,
    scored_peers,
    train,
)
from topofl.algorithms.exchanges import compressors
from topofl.models import of_kinds
from topofl.topology import TopologyError, TopologySequence

INF, NAN = float("inf"), float("nan")
RING, STAR = topologies.ring(N), topologies.star(N)
PAIRS = topologies.one_peer_exponential(N)
CYCLE = forward()
CHANGING = TopologySequence(N, lambda t: RING, name="rings")
APART = topofl.as_topology(np.kron(np.eye(2), 1 - np.eye(3)))
LOOSE = topologies.random_out(N, 2, seed=0).at(0)
EDGES = [(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
UNLIKE = topofl.from_edges(EDGES, N, directed=True)
WEIGHED = topofl.as_topology(np.array([[0, 1.0], [0.5, 0]])[np.ix_([0, 1] * 3, [0, 1] * 3)])
ONE_EDGE = topofl.from_edges(
    [*((i, j) for a in range(5) for i, j in ((a, a + 1), (a + 1, a))), (0, 3)], N, directed=True
)
OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
OF = Need("of", "", "", of=("trim",))
WHEN = Need("when", "", "", when=(("track", True),))
META = (
    "the compressor 'mine' must work on tensors without values ",
    "meta",
    ", on which a run plays its first rounds to see what it needs: ",
    "; use torch's functions",
)
DELTA = "must return a number above 0 and at most 1"
FREE = algorithms.sgd(0.1)
ANCHOR = algorithms.proximal(0.1, kept="common")
FIRST = algorithms.aggregate(lambda own, received, weights: received[0])
UNTRIED = average_over_peers(scored_peers(2, loss_refresh="none", head="1.bias"))
NOBODY = mixing.average_of_chosen(np.eye(N))
EVERYBODY = mixing.average_of_chosen(np.ones((N, N)))


def started(algorithm, graph=None, model=None, clients=None, **settings):
    """Run one round, of linear models of six nodes unless others are given."""
    return engine(algorithm, model, clients, graph, **{"rounds": 1} | settings)


def local(phase, graph=None, **settings):
    return started(chain("own", local=phase), graph, **settings)


def descending(*terms, lr=0.1, **how):
    """Run a round of local steps by terms."""
    settings = {name: how.pop(name) for name in ("rounds", "dtype", "clients") if name in how}
    return local(train(descend(*terms, lr=lr), batch_size=4, **how), **settings)


def needing(need, graph, **settings):
    own = chain("mine", local=algorithms.sgd(0.1), exchange=algorithms.gossip(), needs=[need])
    return started(own, graph, **settings)


def coin(rng, count):
    return rng.choice(2, count)


def halves(graph):
    """Return weights by which nodes give all to their neighbors."""
    return mixing.from_weights(graph.adjacency.toarray() / 2)


def lazy(graph):
    return mixing.lazy(halves(graph), share=0.1)


def peers(policy, graph=None, clients=None, **settings):
    """Run a round in which nodes choose their peers, by a policy or a function of its kind."""
    policy = policy if isinstance(policy, Policy) else Policy(policy)
    clients = clients or problems.validated_clients()
    own = chain("mine", exchange=average_over_peers(policy))
    return started(own, graph, None, clients, **settings)


def tried(trials, clients=None):
    """Run a round in which nodes evaluate each other's models."""

    def choose(models, state, round):
        round.cross_evaluate(trials(models), "val")
        return Choice(NOBODY)

    return peers(choose, clients=clients)


def yielding(models):
    yield models


def counting(models, state, round):
    state["k"] = round.t
    return Choice(NOBODY)


def zeroing(models, state, round):
    models.flat[2].zero_()
    return Choice(NOBODY)


def declared(need):
    @algorithms.needing(need)
    def mine(lr):
        return chain("mine", local=algorithms.sgd(lr))

    return mine


def pushed(algorithm, direction):
    rule = lambda graph: mixing.uniform(graph, direction=direction)  # noqa: E731
    return started(algorithm, topologies.random_in(N, 2, seed=0), mixing=rule)


class Twice(torch.nn.Module):
    """A model that calls its head twice."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(36, 36), torch.nn.Linear(36, 36)

    def forward(self, x):
        return self.head(self.head(self.body(x.flatten(1))))


ABOVE_0, AT_LEAST_0 = [(0.0, 1e-9), (NAN, 1e9)], [(-0.1, 0.0)]
COUNT, INDEX = [(0, 1)], [(-1, 0)]
FRACTION, SHARE = [(1.0, 0.99), (-0.1, 0.0)], [(1.1, 1.0), (-0.1, 0.0)]

RANGES = {
    **dict.fromkeys(
        ("lr", "head_lr", "personal_lr", "weight_lr", "inner_lr", "fine_tune_lr"), ABOVE_0
    ),
    **dict.fromkeys(("server_lr", "global_lr", "outer_lr", "radius", "clip", "penalty"), ABOVE_0),
    **dict.fromkeys(
        ("tau", "eps", "recency_rate", "norm", "scale", "smoothing", "temperature"), ABOVE_0
    ),
    **dict.fromkeys(("weight_decay", "rate", "noise", "strength", "regulariser"), AT_LEAST_0),
    **dict.fromkeys(("cost", "end", "dual_lr", "mu"), AT_LEAST_0),
    **dict.fromkeys(("batch_size", "local_steps", "epochs", "first_epochs", "head_epochs"), COUNT),
    **dict.fromkeys(("personal_epochs", "fine_tune_epochs", "gossip_steps", "rounds"), COUNT),
    **dict.fromkeys(
        (
            "every",
            "walks",
            "k",
            "steps",
            "fragments",
            "degree",
            "cloud_every",
            "iterations",
            "bucket",
            "select",
            "active",
            "personal_steps",
            "weight_epochs",
            "buffer",
            "concurrency",
        ),
        COUNT,
    ),
    **dict.fromkeys(("delay", "trim", "budget", "attackers"), INDEX),
    **dict.fromkeys(("momentum", "global_momentum", "outer_momentum"), FRACTION),
    **dict.fromkeys(("beta", "beta1", "beta2"), FRACTION),
    **dict.fromkeys(("weight", "alpha", "prune", "threshold"), SHARE),
    "lr_decay": [(0.0, 0.1), (1.1, 1.0)],
    "gamma": [(0.0, 0.1), (1.1, 1.0)],
    "probability": [(0.0, 0.1), (1.1, 1.0)],
    "delta": [(0.0, 0.01), (1.0, 0.99)],
    "dense_ratio": [(0.0, 0.01), (1.1, 1.0)],
    "participation": [(0.0, 0.01), (1.1, 1.0), (0, 1)],
    "passive": [([-1], [0])],
    "level": [("nodes", "node")],
    "mode": [("both", "push")],
    "regrow": [("magic", "random")],
    "header_sign": [("both", "literal")],
    "loss_refresh": [("never", "all")],
    "share": [(0.0, 0.1), (1.0, 0.9)],
    "levels": [(0, 1), (2**31, compressors.LEVELS_LIMIT)],
}
"""Values of arguments, by their names, that are refused, each with one nearby that is accepted."""

OF_METHODS = {
    ("momentum", "rate"): FRACTION,
    ("dadam", "decay"): AT_LEAST_0,
    ("diloco", "decay"): AT_LEAST_0,
    ("adamw", "decay"): AT_LEAST_0,
    ("exponential", "decay"): RANGES["lr_decay"],
    ("cosine", "warmup"): [(5, 4), (-1, 0)],
    ("feddyn", "alpha"): ABOVE_0,
    ("fedasync", "alpha"): RANGES["lr_decay"],
    ("dp_fedavg", "participation"): [(0.0, 0.01), (1.1, 1.0), (1, 1.0), (2, 0.5)],
    ("dr_dsgd", "mu"): ABOVE_0,
    **dict.fromkeys(
        (("led", "dual_lr"), ("proxskip", "dual_lr"), ("gt_hsgd", "beta")), RANGES["gamma"]
    ),
    **dict.fromkeys((("pfedme", "strength"), ("pfedme", "beta")), ABOVE_0),
    ("pfeddst", "alpha"): AT_LEAST_0,
    ("hierfavg", "groups"): [([[0, 1], [1]], [[0, 2], [1]]), ([[0], []], [[0]]), ([], [[0]])],
    ("self_centered_clipping", "alpha"): RANGES["gamma"],
    ("self_centered_clipping", "tau"): [*ABOVE_0, (-INF, INF)],
    ("pfedgraph", "strength"): ABOVE_0,
    ("pfeddst", "k"): INDEX,
    ("pfeddst", "threshold"): [(NAN, -1.0)],
    ("sgd", "reset_momentum"): [],
    ("dispfl", "different_initial"): [],
}
"""Those of single functions; what is true counts as True for the last two."""

UNBOUNDED = {"clock", "compressor", "discount", "head", "local", "part"}
UNBOUNDED |= {"participants", "terms", "name", "kept", "groups"}
"""Arguments that are no numbers, choices or switches."""

GIVEN = {
    "cosine": {"rounds": 5},
    "exponential": {"decay": 0.5},
    "momentum": {"rate": 0.5},
    "proximal": {"strength": 0.1},
    **{name: row.required for name, row in ALGORITHMS.items()},
}
OTHERS = {
    ("clipped_gossip", "tau"): {"delta": None},
    ("self_centered_clipping", "delta"): {"tau": None},
}
CALLED = {
    "momentum.rate": "momentum",
    "clip.norm": "clip",
    "weight_decay.rate": "weight_decay",
    "exponential.decay": "lr_decay",
    "relay_sgd.local_steps": "steps",
}
"""Names in messages of arguments that a term passes on."""

BUILDERS = ["constant", "cosine", "exponential", "sgd", "momentum", "adam", "adamw", "proximal"]
BUILDERS += ["clip", "weight_decay", "lookahead", "ascent", "top_k", "random_k", "quantized"]


@pytest.mark.parametrize("name", [*ALGORITHMS, *BUILDERS])
def test_ranges(name):
    function = getattr(algorithms, name)
    parameters = signature(function).parameters
    for argument, parameter in parameters.items():
        cases = RANGES.get(argument)
        if isinstance(parameter.default, bool):
            cases = [("maybe", not parameter.default)]
        cases = OF_METHODS.get((name, argument), cases)
        assert cases is not None or argument in UNBOUNDED, argument
        given = ({"lr": 0.1} if "lr" in parameters else {}) | GIVEN.get(name, {})
        given |= OTHERS.get((name, argument), {})
        said = f"`{CALLED.get(f'{name}.{argument}', argument)}"
        for wrong, fine in cases or ():
            with pytest.raises(ValueError, match=said):
                function(**given | {argument: wrong})
            function(**given | {argument: fine})
            with pytest.raises(
                ValueError if isinstance(fine, bool | str) else TypeError, match=said
            ):
                function(**given | {argument: object()})


def each(error, call, *cases):
    """Return rows that call one function with one argument each: (argument, part, ...)."""
    return [(error, tuple(parts), partial(call, given)) for given, *parts in cases]


values, types = partial(each, ValueError), partial(each, TypeError)
graphs = partial(each, TopologyError)


TYPES = rows(
    {
        TypeError: {
            "`participation` must be a number of nodes, a sh": lambda: algorithms.fedavg(
                0.1, participation="half"
            ),
            "`participation`": lambda: algorithms.fedavg(0.1, participation=True),
            "`patterns`": lambda: algorithms.part(),
            "`compare` must be a part of the": lambda: algorithms.similar_peers(compare=3),
            "`algorithm` must be an Algorithm": lambda: algorithms.timed(0.1),
            "`noise` must be one number for all rounds, got a function": lambda: algorithms.dp_dsgd(
                0.1, noise=algorithms.cosine(1.0, rounds=3)
            ),
            "`noise` must be one number for all rounds, got a func": lambda: algorithms.dp_fedavg(
                0.1, noise=algorithms.cosine(1.0, rounds=3)
            ),
            "`participants` must be a function of the round": lambda: algorithms.sgd(
                0.1, participants=0.3
            ),
            "`discount` must be a Discount such as polynomial_discount(0.5), got 0.5": lambda: (
                algorithms.fedbuff(0.1, discount=0.5)
            ),
            "`weight` of the discount 'mine' must be a function": lambda: algorithms.Discount(
                "mine", 0.5
            ),
            "`clock` must be a Clock such as": lambda: algorithms.random_walks(0.1, clock=3.0),
        }
    },
    *types(
        lambda needs: chain("mine", local=algorithms.sgd(0.1), needs=needs),
        (["static"], "`needs` must be a list of needs"),
        (3, "`needs` must be a list of needs"),
    ),
    *types(
        average_over_peers,
        (counting, "`policy` must be a Policy of functions"),
        (Policy(3), "`policy` must be a Policy of functions"),  # pyright: ignore
        (Policy(counting, 3), "`policy` must be a Policy of functions"),  # pyright: ignore
    ),
)

PER_NODE = "must be one number or one per node, n=6, got"

AMOUNTS = rows(
    {
        ValueError: {
            (
                "one of `local_steps` and `epochs` must be None",
                "local_steps=3 and epochs=2; give",
            ): (
                lambda: algorithms.local_only(0.1, local_steps=3, epochs=2),
                lambda: algorithms.local_only(0.1, local_steps=3),
            ),
            "`trace` must have n=6 nodes in each round, got 2": (
                lambda: started(algorithms.fedavg(0.1, participation=available([[1, 1]]))),
                lambda: started(algorithms.fedavg(0.1, participation=available([[1] * 6]))),
            ),
            "`trace` must have a node in each round, got none in round 1": (
                lambda: available([[1, 0], [0, 0]])
            ),
            "`trace` must hold 0 and 1 only, got 2": lambda: available([[1, 2]]),
            "`trace` must have shape (rounds, n), got (2,)": lambda: available([1, 0]),
            "`trace` must be the path of a CSV file, got trace.txt": lambda: available("trace.txt"),
            "`participation` must be at most n=6 nodes, got 7": (
                lambda: started(algorithms.fedavg(0.1, participation=7)),
                lambda: started(algorithms.fedavg(0.1, participation=6)),
            ),
            "`groups` must hold the n=6 nodes of the run, got 3 nodes; make": (
                lambda: started(algorithms.hierfavg(0.1, groups=[[0, 1], [2]])),
                lambda: started(algorithms.hierfavg(0.1, groups=[[0, 1], [2, 3, 4, 5]])),
            ),
            "`epochs` must be a finite number above 0, got 0; 0.5 takes half": (
                lambda: algorithms.dfedavgm(0.1, epochs=0),
                lambda: algorithms.dfedavgm(0.1, epochs=0.1),
            ),
            "`concurrency` must be between 1 and n=6, got 7": (
                lambda: started(algorithms.fedasync(0.1, concurrency=7), init="common"),
                lambda: started(algorithms.fedasync(0.1, concurrency=6), init="common"),
            ),
            "`clock.delay` must be one number with a server": (
                lambda: started(
                    algorithms.fedbuff(0.1, clock={"delay": np.zeros((6, 6))}), init="common"
                ),
                lambda: started(
                    algorithms.fedbuff(0.1, clock={"compute": np.ones(6)}), init="common"
                ),
            ),
            "`walks` must be between 1 and n=6, got 7": (
                lambda: started(algorithms.random_walks(0.1, walks=7), RING),
                lambda: started(algorithms.random_walks(0.1, walks=6), RING),
            ),
            "`active` must be between 1 and n=6, got 7": (
                lambda: started(algorithms.teleportation(0.1, active=7)),
                lambda: started(algorithms.teleportation(0.1, active=6)),
            ),
        },
        TypeError: {
            "`strength` must be a number": lambda: algorithms.fedprox(0.1, strength="0.1"),
        },
    },
    *values(
        lambda how: local(train(descend(lr=0.1), **how)),
        ({"steps": (2, 2, 2)}, f"`steps` {PER_NODE} 3 numbers"),
        ({"epochs": (2, 2)}, f"`epochs` {PER_NODE} 2 numbers"),
        ({"batch_size": (2, 2, 2)}, f"`batch_size` {PER_NODE} 3 numbers"),
    ),
    *values(
        lambda strength: started(algorithms.fedprox(0.1, strength=strength)),
        ([0.5, 0.1], f"`strength` {PER_NODE} 2 numbers"),
        ([], "`strength` must be one number or one per node, got none"),
        ([0.1, -1], "`strength[1]` must be"),
    ),
    *values(
        lambda how: algorithms.fednova(0.1, **how),
        ({"steps": [1, 0, 1]}, "`steps[1]` must be at least 1, got 0"),
        ({"steps": 3, "epochs": 5}, "one of `steps` and `epochs` must be None", "steps=3 and epoc"),
    ),
    *values(
        lambda made: local(algorithms.sgd(0.1, participants=lambda round: made)),
        (np.arange(N), "`participants` must return one boolean per node"),
        (np.ones(3, bool), "`participants` must return one boolean per node"),
    ),
)


def returning(bad):
    """Run rounds in which a schedule returns a bad rate in a round and step."""
    rate, t, k = bad
    descending(lr=lambda round, step: rate if (round, step) == (t, k) else 0.1, rounds=5, steps=3)


def short(t):
    rate = lambda round, step: 1e6 if round == t else 1e-3  # noqa: E731
    descending(lr=rate, rounds=5, dtype=torch.float16)


BAD_RATE = "`lr` must return a finite learning rate of at least 0, got"
NO_RATE = "`lr` must be a number or a schedule, got"

SCHEDULES = [
    *values(
        returning,
        ((-0.1, 0, 0), f"{BAD_RATE} -0.1", "the phase 'local', round 1 (step 0 of it)"),
        ((NAN, 0, 1), f"{BAD_RATE} nan", "round 1 (step 1 of it)"),
        ((INF, 1, 0), f"{BAD_RATE} inf", "round 2 (step 0 of it)"),
        (("fast", 4, 2), f"{BAD_RATE} 'fast'", "round 5 (step 2 of it)"),
        ((torch.zeros(2), 0, 0), f"{BAD_RATE} tensor"),
        ((10**400, 0, 0), f"{BAD_RATE} about"),
    ),
    *values(
        short,
        (0, "`lr` must be at most 65504 for torch.float16, got 1e+06", "round 1 "),
        (4, "`lr` must be at most 65504 for torch.float16, got 1e+06", "round 5 "),
    ),
    *values(
        lambda lr: algorithms.sgd(lr, lr_decay=0.9),
        ("exponential(0.1, 0.5)", "`lr_decay` must be 1 where `lr` is a schedule"),
    ),
    *values(
        algorithms.dsgd,
        (
            "linear(0.5)",
            "`lr` must be such as 0.1 or cosine(0.5, rounds=300), by one of constant, "
            "exponential, cosine",
        ),
        ("cosine(0.5)", "rounds"),
        ("cosine(-1, rounds=3)", "`lr` must be a finite number above 0"),
    ),
    *types(
        algorithms.dsgd,
        ("0.5", f"{NO_RATE} '0.5'; remove the quotes"),
        (torch.optim.SGD, f"{NO_RATE} the class torch.optim.sgd.SGD; ", " use dadam"),
        (OPTIMIZER, f"{NO_RATE} an object of torch.optim.sgd.SGD; ", " use dadam"),
        (torch.optim.lr_scheduler.StepLR, f"{NO_RATE} the class ", "LR; write it as a function"),
        (torch.optim.lr_scheduler.StepLR(OPTIMIZER, 3), f"{NO_RATE} an object ", "LR; write it as"),
        (dict, f"{NO_RATE} the class builtins.dict; pass 0.1, ", "function of (round, step)"),
        (print, f"{NO_RATE} the built-in function print; pass 0.1, "),
        (torch.nn.Linear(1, 1), "got an object of torch.nn.modules.linear.Linear; pass 0.1, "),
    ),
]

SAME_NAME = "`terms` must keep tensors of different names, two of them keep '"

FUNCTIONS = [
    *types(
        lambda term: descend(term, lr=0.1),
        (
            Term("mine", lambda g, theta: g),
            "`update` of the term 'mine' must be a function of (g, theta, own, step), got one of "
            "(g, theta)",
        ),
        (
            Term("mine", lambda g, theta, own, step: g, lambda: {}),
            "`init` of the term 'mine' must be a function of (models), got one of ()",
        ),
    ),
    *types(
        algorithms.dsgd,
        (lambda t: 0.1, "`lr` must be a function of (round, step), got one of (t)"),
    ),
    *types(
        lambda at: train(descend(lr=0.1), at=at),
        (
            GradientPoint("mine", lambda theta: theta),
            "`where` of the point 'mine' must be a function of (theta, own, step, gradient), got "
            "one of (theta)",
        ),
        (
            GradientPoint("mine", lambda *all_of_them: 0, lambda g: g),
            "`back` of the point 'mine' must be a function of (g, theta, own, step, gradient), "
            "got one of (g)",
        ),
    ),
    *values(
        lambda at: descending(at=at),
        (
            GradientPoint("mine", lambda theta, own, step, gradient: theta[:, :-1]),
            "`where` of the point 'mine' must return a point of shape (2, 111), got shape (2, 110)",
        ),
        (
            GradientPoint("mine", lambda theta, own, step, gradient: None),
            "`where` of the point 'mine' must return a point of shape (2, 111), got NoneType",
        ),
        (
            GradientPoint("mine", lambda theta, *_: theta + 0, lambda g, *_: g.sum(1)),
            "`back` of the point 'mine' must return gradients of shape (2, 111), got shape (2,)",
        ),
    ),
    *values(
        lambda given: descending(*given[0], **given[1]),
        (
            ([], {"at": algorithms.lookahead(0.1), "gradient": mixing.within_groups}),
            "`gradient` must be None with at=lookahead",
        ),
        (([momentum(0.9), momentum(0.5)], {}), SAME_NAME),
        (([momentum(0.9, reset=True)] * 2, {}), SAME_NAME),
        (([momentum(0.9), momentum(0.5, reset=True)], {}), SAME_NAME),
        (([ANCHOR], {"at": algorithms.mixture(descend(lr=0.1))}), SAME_NAME),
    ),
    *values(
        lambda rule: started(chain("mine", exchange=rule), topofl.Topology(np.zeros((N, N)))),
        (FIRST, "`rule` of aggregate, ", "shape (0, 111), but it raised IndexError: index 0"),
    ),
]


def changes(theta, g):
    theta.mul_(0.9)
    return g


def replaces(own, g):
    own["velocity"] = own["velocity"] * 0.9 + g
    return own["velocity"]


def adds(own, g):
    own["mine"] = g.clone()
    return g


def breaking(update, elementwise, executor):
    """Run a term that breaks the contract, by parameter and of whole models, in both executors."""
    velocity = lambda models: {"velocity": torch.zeros_like(models.flat)}  # noqa: E731
    term = Term("mine", update, velocity, elementwise=elementwise)
    local(train(descend(term, lr=0.1), batch_size=4), executor=executor)


DIRECTIONS = "the term 'mine' must return directions of shape"
STATE = "the term 'mine' must change its state in place, "

TERMS = [
    row
    for elementwise in (True, False)
    for executor in ("looped", "batched")
    for row in values(
        partial(breaking, elementwise=elementwise, executor=executor),
        (lambda g, theta, own, step: g[:, :1], DIRECTIONS, ", got shape"),
        (lambda g, theta, own, step: None, DIRECTIONS, ", got NoneType"),
        (lambda g, theta, own, step: 0.0, DIRECTIONS, ", got float"),
        (
            lambda g, theta, own, step: changes(theta, g),
            "the term 'mine' must not change `theta`; return a direction",
        ),
        (lambda g, theta, own, step: replaces(own, g), STATE, " as 'velocity'"),
        (lambda g, theta, own, step: adds(own, g), STATE, " as 'mine' into"),
        (
            lambda g, theta, own, step: g if g.sum() > 0 else -g,
            "the term 'mine' must work on tensors without values",
        ),
    )
]


def stateless(init):
    """Run a phase that trains with momentum, which `init` must make."""
    training = algorithms.Training(descend(momentum(0.9), lr=0.1), 4)

    def apply(models, state, round):
        round.train(models, training, state)
        return state

    return local(algorithms.Phase(init or training.init, apply))


def headed(name, width):
    layers = {"flat": nn.Flatten(), "body": nn.Linear(36, width), name: nn.Linear(width, 3)}
    return nn.Sequential(OrderedDict(layers))


def of_two_kinds(heads):
    return of_kinds([headed(*head) for head in heads], [0, 1] * (N // 2))


PHASES = rows(
    {
        ValueError: {
            "`state` must hold the state of the local steps of the phase 'local', 'velocity' is "
            "missing; let its `init` return training.init(models)": (
                lambda: stateless(lambda models: {}),
                lambda: stateless(None),
            ),
            "at least one phase": lambda: chain("empty"),
            "'hed' matches none": lambda: peers(scored_peers(head="hed")),
            "'body' matches none": lambda: peers(algorithms.similar_peers(compare="body")),
            ("must not be timed already ", "phases local, exchange, clock; call timed once"): (
                lambda: algorithms.timed(algorithms.timed(algorithms.dsgd(0.1)))
            ),
            ("`algorithm` must be synchronous, ", " itself; run it without timed"): lambda: started(
                algorithms.timed(algorithms.ad_psgd(0.1)), RING
            ),
            "with a server": lambda: started(
                algorithms.timed(algorithms.fedavg(0.1), {"delay": np.ones((N, N))}), RING
            ),
            ("same to all neighbors for ad_psgd", "use sign_flip, noise or alie"): lambda: started(
                algorithms.ad_psgd(0.1), RING, attackers=attacks.dissensus([1], 1.0)
            ),
            ("`init` must be 'common' or 'given' for pfedgraph", "got 'independent'"): (
                lambda: started(algorithms.pfedgraph(0.1)),
                lambda: started(algorithms.pfedgraph(0.1), init="given"),
            ),
            ("`k` must be at most the number of nodes, n=6", "got 7; lower it"): (
                lambda: started(algorithms.ifca(0.1, 7)),
                lambda: started(algorithms.ifca(0.1, 6)),
            ),
            ("`fragments` must be at most the entries of the largest", "108, got 109; lower it"): (
                lambda: started(algorithms.divshare(0.1, fragments=109)),
                lambda: started(algorithms.divshare(0.1, fragments=108)),
            ),
            "one of `tau` and `delta`": lambda: algorithms.clipped_gossip(0.1),
            "got tau=1.0 and delta=0.1; give": lambda: algorithms.clipped_gossip(
                0.1, tau=1.0, delta=0.1
            ),
        },
        TypeError: {
            "`local` must be a Phase": lambda: chain("wrong", local=lambda models: models),
            "must have a name, got one without; write chain('wrong', local=sgd(lr=0.1": (
                lambda: chain("wrong", algorithms.sgd(0.1))
            ),
        },
    },
    *values(
        lambda phases: started(chain("own", **phases), LOOSE),
        ({"a": FREE, "b": on_kept_models("a", FREE)}, "`owner`", "'anchor' in its state, but 'a'"),
        ({"a": FREE, "b": on_kept_models("c", FREE)}, "`owner`", "got 'c' in", "; the other phas"),
        ({"a": algorithms.push_sum(), "b": algorithms.push_sum()}, "must push models once per rou"),
        ({"mix": UNTRIED, "losses": refresh_losses("mix")}, "`owner` must be a phase that scores"),
    ),
    *values(
        lambda head: started(algorithms.fedper(0.1, head=head), None, problems.convolutional()),
        ("hed", "`head` must name parameters", "'hed' matches none", "with parameters are"),
        ("*", "`head` must leave some parameters, '*' matches all"),
    ),
    *values(
        lambda method: started(method),  # of a linear model
        (algorithms.moon(0.1, head="1"), "`head` must leave some parameters, '1' matches all"),
        (algorithms.feddecorr(0.1, head="1"), "`head` must leave some parameters, '1' matches"),
    ),
    *values(
        lambda given: started(algorithms.fedbn(0.1, **given), None, headed("head", 8)),
        (
            {},
            "`local` must name parameters of the model, '*Norm*()' matches none",
            "parameters are Linear(); name some of these, or use a method for whole models",
        ),
        ({"local": "*"}, "`local` must leave some parameters"),
    ),
    *values(
        lambda heads: started(algorithms.fedproto(0.1), None, of_two_kinds(heads)),
        (
            [("out", 8), ("head", 8)],
            "`head` must name parameters of the model, 'head' matches none",
            "give the layer one name, and the same arguments and shapes in all networks",
        ),
        ([("head", 8), ("head", 4)], "give the layer one name, and the same arguments and shapes"),
    ),
    *values(
        lambda given: started(algorithms.knn_per(0.1, head=given[0]), None, given[1]),
        (("[05]", problems.convolutional()), "`head` must be one layer", "got 0, 5"),
        (("head", Twice()), "`head` must be a layer that the model calls once"),
    ),
    *values(
        lambda clock: algorithms.timed(algorithms.centralized(0.1), clock),
        ({"compute": [1, 2]}, "`compute` must be one number for centralized, ", "shape (2,); give"),
        ({"delay": np.ones((4, 4))}, "`delay` must be one number for centralized, ", "(4, 4)"),
    ),
)


def on_graph(given):
    """Run a method by its name on a graph, with further arguments."""
    name, graph, how = given
    started(getattr(algorithms, name)(0.1, **ALGORITHMS[name].required | how), graph)


STATIC, DOUBLY = "`topology` must be static for", "`mixing` must be doubly stochastic for"
UNDIRECTED, SYMMETRIC = "`topology` must be undirected for", "`mixing` must be symmetric for"
GAMMA = {"gamma": 0.1}

GRAPHS = [
    *graphs(
        on_graph,
        (("local_gt", UNLIKE, {}), f"{DOUBLY} local_gt"),
        (("extra", PAIRS, {}), f"{STATIC} extra"),
        (("extra", UNLIKE, {}), f"{SYMMETRIC} extra"),
        (("d2", PAIRS, {}), f"{STATIC} d2"),
        (("d2", UNLIKE, {}), f"{SYMMETRIC} d2"),
        (("d2", RING, {"lazy": False}), "have eigenvalues above -1/3 for d2", "-0.333333; use"),
        (("edm", RING, {"lazy": False}), "have eigenvalues above -1/3 for edm", "-0.333333; use"),
        (
            ("led", RING, {"lazy": False}),
            "have eigenvalues above (dual_lr - 2) / (dual_lr + 2) for led",
            "is -0.333333, which must be above -0.333333; use lazy=True, a smaller dual_lr",
        ),
        (("led", PAIRS, {}), f"{STATIC} led"),
        (("proxskip", PAIRS, {}), f"{STATIC} proxskip"),
        (("proxskip", UNLIKE, {}), f"{SYMMETRIC} proxskip"),
        (("dinno", PAIRS, {}), f"{STATIC} dinno"),
        (("dinno", UNLIKE, {}), f"{SYMMETRIC} dinno"),
        (("demuon", UNLIKE, {}), f"{DOUBLY} demuon"),
        (("gt_hsgd", UNLIKE, {}), f"{DOUBLY} gt_hsgd"),
        (("momentum_tracking", UNLIKE, {}), f"{DOUBLY} momentum_tracking"),
        (("motef", PAIRS, {}), f"{STATIC} motef"),
        (("push_diging", LOOSE, {}), "`topology` must be strongly connected for push"),
        (("sab", LOOSE, {}), "`topology` must be strongly connected for sab"),
        (("choco_sgd", PAIRS, GAMMA), f"{STATIC} choco_sgd"),
        (("choco_sgd", UNLIKE, GAMMA), f"{SYMMETRIC} choco_sgd"),
        (("choco_sgd", APART, {}), "gap is 0, since the graph of W has 2 components; give a `gam"),
        (("beer", PAIRS, {}), f"{STATIC} beer"),
        (("deepsqueeze", UNLIKE, {}), f"{DOUBLY} deepsqueeze"),
        (("dadam", UNLIKE, {"track": True}), f"{DOUBLY} dadam", "column of node 1"),
        (("relay_sgd", CHANGING, {}), f"{STATIC} relay_sgd (the same graph in all rounds), got"),
        (("relay_sgd", CYCLE, {}), f"{UNDIRECTED} relay_sgd"),
        (("relay_sgd", APART, {}), "connected"),
        (("ad_psgd", CYCLE, {}), f"{UNDIRECTED} ad_psgd", "give undirected graphs"),
        (("random_walks", CYCLE, {}), f"{UNDIRECTED} random_walks"),
        (("clique_averaging", STAR, {}), "must have groups for clique_averaging", "has none; use"),
        (
            ("trimmed_mean", RING, {"trim": 1}),
            "`mixing` must give more than 2 * trim neighbors at each",
            "trim=1, node 0 receives from 2 ",
        ),
        (
            ("krum", RING, {"attackers": 1}),
            "`mixing` must give at least 2 * attackers + 3 models at each node",
            "attackers=1, node 0 must receive from 4 others and receives from 2;",
        ),
        (
            ("bulyan", RING, {"attackers": 0, "bucket": 2}),
            "`mixing` must give at least 4 * attackers + 3 models at each node",
            "attackers=0, node 0 must receive from 4 others and receives from 2;",
        ),
    ),
    *types(
        on_graph,
        (("ad_psgd", None, {}), "`topology` must be given"),
        (("relay_sgd", None, {}), "`topology` must be given, since relay_sgd exchanges models"),
    ),
    *graphs(
        lambda build: started(build(0.1), APART, on_disconnected="raise"),
        (algorithms.random_walks, "`topology` must be connected"),
    ),
    *graphs(
        lambda given: needing(*given),
        *(
            ((need, wrong), f"`{argument}` must be {need.name} for mine", need.meaning, need.remedy)
            for need, argument, wrong in (
                (algorithms.static, "topology", CHANGING),
                (algorithms.undirected, "topology", CYCLE),
                (algorithms.strongly_connected, "topology", APART),
                (algorithms.symmetric, "mixing", UNLIKE),
                (algorithms.doubly_stochastic, "mixing", [*[RING] * 5, UNLIKE]),
            )
        ),
        ((algorithms.static, CHANGING), "got rings: a sequence without a period"),
        ((algorithms.static, [RING, STAR, RING]), "of period 3 with 2 distinct graphs; give one"),
        ((algorithms.undirected, CYCLE), "6 edges have none back, such as the one from node 0 to"),
        ((algorithms.undirected, [STAR, CYCLE]), ", round 1 of "),
        ((algorithms.undirected, WEIGHED), "from node 0 to node 1 weighs 1, the one back 0.5"),
        ((algorithms.undirected, ONE_EDGE), "the edge from node 0 to node 3 has none back"),
        (
            (algorithms.strongly_connected, APART),
            "2 strongly connected components, the smallest of 3 nodes, with node 0; add edges",
        ),
        (
            (algorithms.symmetric, UNLIKE),
            "W[0, 1] = 0 and W[1, 0] = 0.5, the largest difference, 0.5",
        ),
        (
            (algorithms.doubly_stochastic, UNLIKE),
            "the column of node 1 sums to 0.833333, the furthest from 1",
        ),
    ),
    *rows(
        {
            TopologyError: {
                "symmetric": (
                    lambda: needing(algorithms.symmetric, STAR, mixing=mixing.uniform),
                    lambda: needing(algorithms.symmetric, STAR, mixing=mixing.metropolis_hastings),
                ),
                ("must have eigenvalues above -1 for extra", "is -1; use", "mixing.lazy"): (
                    lambda: started(algorithms.extra(0.1), RING, mixing=halves),
                    lambda: started(algorithms.extra(0.1), RING, mixing=lazy),
                ),
                ("must have a spectral gap above 0", "has the eigenvalue -1; mixing.lazy"): (
                    lambda: started(algorithms.choco_sgd(0.1), RING, mixing=halves),
                    lambda: started(algorithms.choco_sgd(0.1), RING, mixing=lazy),
                ),
            }
        }
    ),
    *values(
        lambda given: pushed(algorithms.dfedpgp(0.1, mode=given[0], head="1.bias"), given[1]),
        (("pull", "push"), "`mixing` must have rows that sum to 1"),
        (("push", "pull"), "`mixing` must have columns that sum to 1"),
    ),
    *types(
        declared,
        (OF, "`when` and `of` of a need must name arguments of mine(lr), got 'trim'"),
        (WHEN, "`when` and `of` of a need must name arguments of mine(lr), got 'track'"),
    ),
    *values(
        lambda need: chain("mine", local=algorithms.sgd(0.1), needs=[need]),
        (OF, "`needs` must not depend on arguments"),
        (WHEN, "`needs` must not depend on arguments"),
    ),
    (
        TypeError,
        ("`graph` of the need 'regular' must return a description", ", or '' ", "got True"),
        lambda: needing(Need("regular", "", "", graph=lambda graph: True), STAR),
    ),
]


def sent_by(given):
    name, compressor = given
    return started(getattr(algorithms, name)(0.1, gamma=0.3, compressor=compressor), RING)


def compressing(parts):
    """Run a round with a compressor of which some parts differ."""
    own = replace(algorithms.no_compression(), name="mine", **parts)
    return started(algorithms.choco_sgd(0.1, compressor=own, gamma=0.5, batch_size=4), RING)


def measured(apply, delta):
    """Run a round with a compressor that declares a contraction."""
    own = algorithms.Compressor("mine", apply, lambda d, size: 2 * d, lambda d: delta, False)
    return sent_by(("choco_sgd", own))


TAKES = "of the compressor 'mine' must be a function of"
SMALLER = "`compressor` must make messages smaller"

COMPRESSORS = [
    *types(
        lambda compressor: algorithms.beer(0.1, gamma=0.3, compressor=compressor),
        (algorithms.top_k, "`compressor` must be a Compressor"),
    ),
    *values(
        lambda text: algorithms.choco_sgd(0.1, compressor=text),
        (
            "topk(0.1)",
            "by one of top_k, random_k, sign, quantized, no_compression, got 'topk(0.1)'",
        ),
        ("top_k", "missing 1 required positional argument"),
        ("top_k(1.0)", "`share` must be above 0 and below 1", "no_compression()"),
        ("os.remove('x')", "by one of"),
        ("top_k(0.1", "by one of"),
    ),
    *values(
        sent_by,
        (("choco_sgd", algorithms.top_k(0.999)), f"{SMALLER}, got top_k", "no_compression()"),
    ),
    *types(
        compressing,
        ({"apply": lambda values: values}, f"`apply` {TAKES} (values, rng), got one of (values)"),
        ({"nbytes": lambda d: d}, f"`nbytes` {TAKES} (d, itemsize), got one of (d)"),
        ({"contraction": lambda d, itemsize: 1.0}, f"`contraction` {TAKES} (d), got one of (d, "),
    ),
    *values(
        compressing,
        ({"apply": lambda values, rng: values.mul_(0.5)}, "must not change its values"),
        ({"apply": lambda values, rng: values[:, :1]}, "must return values of shape ", "got shape"),
        ({"apply": lambda values, rng: values if values.sum() > 0 else -values}, *META),
        ({"apply": lambda values, rng: torch.from_numpy(values.numpy())}, *META),
        (
            {"apply": lambda values, rng: {}["k"]},
            "`apply` of the compressor 'mine' ",
            "but it raised KeyError: 'k'",
        ),
        ({"nbytes": lambda d, itemsize: -5}, "must return a whole number of bytes, got -5"),
        ({"nbytes": lambda d, itemsize: d / 3}, "must return a whole number of bytes"),
        ({"contraction": lambda d: "half"}, f"{DELTA}, got 'half'"),
        ({"contraction": lambda d: 2.0}, f"{DELTA}, got 2.0"),
    ),
    *values(
        lambda given: measured(*given),
        ((lambda x, rng: 2 * x, 0.9), "of mine() must be a delta ", " got 0.9, but ", " is 1; "),
        ((lambda x, rng: 0.5 * x, 0.9), "||x||^2 is 0.25"),
        ((lambda x, rng: x / 0, 0.9), "NaN or infinity for a row of finite numbers"),
        ((lambda x, rng: x / x.norm(dim=1, keepdim=True), 0.1), "infinity for a row of zeros"),
    ),
]


def directed(choice):
    return peers(lambda *_: choice, CYCLE)


def returned(choice):
    return peers(lambda *_: choice)


def policy_of(policy):
    return peers(policy, rounds=2)


NO_CHOICE = "a policy must return Choice(weights) with a MixingMatrix, got "
OFF = "off the edges of circulant"

POLICIES = [
    *values(
        directed,
        (Choice(EVERYBODY), OFF),
        (Choice(NOBODY, [EVERYBODY]), OFF),
        (Choice(NOBODY, extra_messages=[(EVERYBODY, 1)]), OFF),
    ),
    *types(
        returned,
        (None, NO_CHOICE, "; mixing"),
        (Choice(torch.eye(N)), NO_CHOICE),  # pyright: ignore
        (Choice(NOBODY, downloads=[np.eye(N)]), "must hold MixingMatrix, got ndarray"),
        (Choice(NOBODY, downloads=NOBODY), "must be lists"),
        (Choice(NOBODY, extra_messages=[(EVERYBODY, 2.5)]), "`extra_messages` must be an integer"),
    ),
    *values(
        returned,
        (Choice(EVERYBODY, [NOBODY]), "round 1, ", "`downloads`", "node 0 averages with node 1"),
        (Choice(EVERYBODY, []), "`downloads`"),
        (Choice(NOBODY, extra_messages=[(EVERYBODY, -4)]), "`extra_messages` must be at least 0, "),
        (Choice(NOBODY, server=-1), "`server`"),
    ),
    *types(
        policy_of,
        (counting, "round 1, ", "got int as state['k']; ", "torch.tensor"),
        (Policy(counting, lambda models: [1]), "must be a dict of tensors, got list"),  # pyright: ignore
    ),
    *values(
        policy_of,
        (zeroing, "round 1, where nodes choose their peers: a policy must not change models"),
        (scored_peers(2, head="1.bias"), "`loss_refresh` must be 'none' where no later phase ref"),
        (algorithms.greedy_peers(passive=[6]), "`passive` must name nodes from 0 to n-1=5, got 6"),
    ),
    *types(
        tried,
        (lambda models: {0: iter([])}, "must be generators, ", "got a list_iterator for node 0"),
        (lambda models: {0: yielding(models.flat[0])}, "as a tensor (k, d=111), got sh"),
        (lambda models: {0: yielding(models.flat[:, :7])}, "got shape (6, 7)"),
        (lambda models: {0: yielding("text")}, "got str"),
    ),
    *rows(
        {
            ValueError: {
                "nodes from 0 to n-1=5, got 6": lambda: tried(
                    lambda models: {N: yielding(models.flat)}
                ),
                "`clients` must give every node val examples, on which": lambda: tried(
                    lambda models: {0: yielding(models.flat[:1])}, problems.equal_clients()
                ),
                ("`clients` must give every node val examples", "val_fraction"): (
                    lambda: started(algorithms.dpfl(0.1)),
                    lambda: started(algorithms.dpfl(0.1), clients=problems.validated_clients()),
                ),
                "`budget`": (
                    lambda: algorithms.dpfl(0.1, budget=0, count_self=True),
                    lambda: algorithms.dpfl(0.1, budget=1, count_self=True),
                ),
                "`loss_refresh`": lambda: refresh_losses("mix", "none"),
            }
        }
    ),
]


def clocked(arguments):
    return algorithms.ad_psgd(0.1, clock=arguments)


def drawing(factor):
    for name in ("compute", "delay"):
        with pytest.raises(ValueError, match=f"`factor` of `clock.{name}`"):
            clocked({name: clocks.Times(1.0, factor)})
    clocked({"compute": clocks.Times(1.0, factor)})


SUCH = "must be such as"

CLOCKS = [
    *values(
        clocked,
        ({"compute": 0}, "`clock.compute` must be finite seconds above 0, got 0; remove nodes"),
        ({"compute": [1, -1]}, "seconds above 0, got -1 for node 1"),
        ({"compute": [1, INF]}, "`clock.compute`", "got inf for node 1"),
        ({"compute": [[1]]}, "`clock.compute` must be one number or one per node, shape (n,), g"),
        ({"compute": "fast"}, f"`clock.compute` {SUCH} 1.0 or expo", "lognormal, got 'fast'"),
        ({"compute": "exponential(0)"}, "`clock.compute` must be finite seconds above 0"),
        ({"compute": "exponential(1"}, f"`clock.compute` {SUCH} "),
        ({"compute": "exponential([1, 0])"}, "`mean` must be", "got 0 for node 1"),
        ({"compute": "nan"}, f"`clock.compute` {SUCH} ", " got 'nan'"),
        ({"delay": "lognormal(0.1)"}, f"`clock.delay` {SUCH}", "missing 1 required", "sigma"),
        ({"delay": "lognormal(0.1, sigma=-1)"}, "`sigma` must be a finite number of at least 0"),
        ({"delay": "eval(0.1)"}, f"`clock.delay` {SUCH} ", " by one of exponential, lognormal"),
        ({"delay": -0.1}, "`clock.delay` must be finite seconds of at least 0, got -0.1"),
        ({"delay": [[0, 1], [-2, 0]]}, "`clock.delay`", "got -2 at (1, 0)"),
        ({"delay": [1, 2]}, "`clock.delay` must be one number or one per link"),
        ({"bandwidth": 0}, "`clock.bandwidth` must be a finite number above 0"),
        ({"speed": 1}, "must only have the keys compute, delay, bandwidth, got 'speed'"),
        ("sundial", f"`clock` {SUCH} Clock", "by one of exponential, lognormal, Clock"),
        ({"compute": clocks.lognormal(1.0, 100.0)}, "`factor` of `clock.compute`", "lower `sigma`"),
        ({"compute": clocks.Times(1.0, coin)}, "finite numbers above 0, ", " got 0; bound"),
    ),
    *values(
        drawing,
        (lambda rng, count: 1.0, "an array of `count` numbers, shape (1,), got 1.0; draw"),
        (lambda rng, count: np.ones(1), "shape (16,), got shape (1,)"),
        (lambda rng, count: np.ones((count, 2)), "shape (1,), got shape (1, 2)"),
        (lambda rng, count: np.full(count, "1"), "shape (1,), got shape (1,) of <U1"),
        (lambda rng, count: rng.standard_normal(count), "finite numbers ", ", got -", "; bound"),
        (lambda rng, count: np.full(count, INF), "finite numbers ", ", got inf; bound"),
    ),
    *types(
        lambda factor: clocks.Times(1.0, factor),
        (3.0, "`factor` must be a function", "(rng, count)"),
        (lambda rng: np.ones(1), "`factor` must be a function", "(rng, count)"),
    ),
    *values(
        clocks.exponential,
        ([1, 0], "`mean` must be finite seconds above 0, got 0 for node 1"),
        (-1, "`mean` must be finite seconds of at least 0, got -1"),
        ([[0, 1], [-1, 0]], "`mean` ", " got -1 at (1, 0)"),
        (np.ones((2, 3)), "`mean` must be ", " got shape (2, 3)"),
    ),
    *values(
        lambda clock: started(algorithms.ad_psgd(0.1, clock=clock), RING),
        ({"compute": [1, 2]}, "`clock.compute`", "n=6, got shape"),
        ({"delay": np.ones((3, 3))}, "`clock.delay`", "n=6, got shape"),
    ),
]

ROWS = TYPES + AMOUNTS + SCHEDULES + FUNCTIONS + TERMS + PHASES
ROWS += GRAPHS + COMPRESSORS + POLICIES + CLOCKS


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)
