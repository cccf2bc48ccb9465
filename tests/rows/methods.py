"""One table of all algorithms, with the arguments for the tests that hold for every algorithm.

An algorithm without a row fails ``test_every_algorithm_has_a_row``. Its row gives it the tests of
conformance, of runs that are killed and resumed, of estimated messages, and of random calls. Its
twins compare it with its naive loop over nodes, `SAME` with other methods in special cases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms import harness
from tests.algorithms.harness import BATCH, HEAD, ROUNDS, SEED, WHOLE, N, falling, is_body, is_head
from topofl import algorithms, clocks, data, mixing, topologies
from topofl._support.seeding import seeded_torch, stream


@dataclass(frozen=True)
class Row:
    """Arguments and properties of an algorithm, for tests.

    Parameters
    ----------
    lr
        Learning rate with which the loss falls by half in 25 rounds.
    required
        Required arguments of a call in addition to `lr`.
    options
        Further arguments of the run in which the loss falls by half.
    killed
        Arguments of the run that is killed and resumed, where they differ from `required`.
    batch_size
        Batch size of the run in which the loss falls by half.
    validated
        Whether nodes choose peers by validation examples.
    common_start
        Whether all nodes must start from one model.
    mixes
        Whether its rounds end in ``round.mix``; otherwise it is killed after training.
    random_messages
        Whether the number of messages is drawn at random or learned.
    """

    lr: float
    required: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    killed: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 8
    validated: bool = False
    common_start: bool = False
    mixes: bool = True
    random_messages: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the run in which the loss falls by half."""
        return {"lr": self.lr, "batch_size": self.batch_size, **self.required, **self.options}


EPOCH = {"epochs": 1}
NORMS = {"local": "*Norm*()"}
WITH_HEAD = {"epochs": 1, "head": HEAD}
TWO_RATES = WITH_HEAD | {"head_lr": 0.05}
SOME = {"epochs": 1, "participation": 0.5}
FEW = {"local_steps": 2}
MOMENTUM = {"momentum": 0.9}
SERVED = {"options": EPOCH, "killed": SOME}
GROUPS = [[0, 3, 4], [1], [2, 5]]
CLOCK = {"compute": [1, 2.5, 1, 0.7, 3, 1], "delay": 0.3}
STRENGTHS = {"strength": [0.0, 0.1, 0.2, 0.5, 1.0, 2.0]}
UNEVEN = {"steps": [1, 2, 3, 1, 2, 3], "momentum": 0.5, "participation": 0.5}

ALGORITHMS: dict[str, Row] = {
    # references
    "centralized": Row(0.1, killed=MOMENTUM, batch_size=48, mixes=False),
    "local_only": Row(0.1, killed={"local_steps": 2}, mixes=False),
    # decentralized
    "clique_averaging": Row(0.1, killed=MOMENTUM),
    "dadam": Row(0.02, killed={"track": True, "decay": 0.01, "local_steps": 2}),
    "dfedavgm": Row(0.05, options=EPOCH, killed=EPOCH),
    "dfedavgm_p": Row(0.05, options=TWO_RATES, killed=WITH_HEAD),
    "dfedsam": Row(0.05, options=EPOCH, killed=EPOCH | MOMENTUM | {"gossip_steps": 2}),
    "divshare": Row(0.1, killed={"fragments": 3, "degree": 2}),
    "dinno": Row(0.1, options=FEW, killed=FEW),
    "dp_dsgd": Row(0.1, options={"clip": 10.0, "noise": 0.01}, killed={"steps": 2, "noise": 0.1}),
    "dsgd": Row(0.1, killed={"momentum": 0.9, "local_steps": 2}),
    "dsgd_ceca": Row(0.1, killed={"one_port": True}),
    "noloco": Row(0.01, required={"local_steps": 2}),
    "osgp": Row(0.05, options=EPOCH, killed={"epochs": 1, "delay": 2}),
    "qg_dsgdm": Row(0.05, killed={"nesterov": True}),
    "relay_sgd": Row(0.2, killed=MOMENTUM),
    "teleportation": Row(
        0.1, required={"active": 3}, killed={"active": 3, "local_steps": 2}, random_messages=True
    ),
    # bias-free
    "d2": Row(0.1),
    "demuon": Row(0.1),
    "dsgt": Row(0.1),
    "edm": Row(0.1),
    "extra": Row(0.1),
    "gt_hsgd": Row(0.1),
    "led": Row(0.1, options=FEW, killed=FEW),
    "local_gt": Row(0.05, options={"local_steps": 2}, killed={"local_steps": 2, "global_lr": 0.8}),
    "momentum_tracking": Row(0.03),
    "proxskip": Row(0.1, options={"probability": 0.5}, random_messages=True),
    "push_diging": Row(0.1),
    "sab": Row(0.1),
    # compressed
    "beer": Row(0.1, required={"gamma": 0.3}, killed={"compressor": "random_k(0.3)"}),
    "choco_sgd": Row(
        0.1, options={"gamma": 0.3}, killed=MOMENTUM | {"compressor": "random_k(0.3)"}
    ),
    "deepsqueeze": Row(
        0.1, required={"gamma": 0.1}, killed={"gamma": 0.3, "compressor": "quantized(3)"}
    ),
    "motef": Row(0.1, required={"gamma": 0.3}, killed={"compressor": "random_k(0.3)"}),
    # Byzantine-robust
    "bulyan": Row(0.1, required={"attackers": 0}, killed=MOMENTUM),
    "clipped_gossip": Row(0.1, required={"delta": 0.3}, killed=MOMENTUM),
    "coordinate_median": Row(0.1, killed=MOMENTUM),
    "fltrust": Row(0.1, killed=MOMENTUM),
    "geometric_median": Row(0.1, killed=MOMENTUM | {"bucket": 2}),
    "krum": Row(0.1, required={"attackers": 0}, killed=MOMENTUM | {"select": 2}),
    "self_centered_clipping": Row(0.5, required={"tau": 1.0}),
    "trimmed_mean": Row(0.1, required={"trim": 0}, killed=MOMENTUM),
    # for the worst nodes
    "ad_gda": Row(0.6, required={"gamma": 0.7}, killed={"compressor": "random_k(0.3)"}),
    "dr_dsgd": Row(0.5, killed={"local_steps": 2}),
    "drfa": Row(
        0.1,
        options={"local_steps": 2, "dual_lr": 0.001, "participation": 0.8},
        killed={"participation": 2},
    ),
    # asynchronous
    "ad_psgd": Row(0.1, killed={"clock": CLOCK | {"bandwidth": 1e4}}, mixes=False),
    "fedasync": Row(
        0.05,
        options=EPOCH | {"alpha": 0.3},
        killed=EPOCH | {"clock": CLOCK, "discount": "hinge_discount(1, 2)", "concurrency": 3},
        mixes=False,
        common_start=True,
    ),
    "fedbuff": Row(
        0.05,
        options=EPOCH | {"buffer": 3},
        killed=EPOCH | {"clock": CLOCK, "buffer": 4, "concurrency": 5},
        mixes=False,
        common_start=True,
    ),
    "random_walks": Row(
        0.1, killed={"walks": 3, "merge": True, "clock": CLOCK}, mixes=False, random_messages=True
    ),
    # with a server
    "diloco": Row(
        0.01, required={"local_steps": 2}, killed={"participation": 0.5}, common_start=True
    ),
    "dp_fedavg": Row(
        0.05,
        options=EPOCH | {"clip": 10.0, "noise": 0.01},
        killed=SOME | {"noise": 0.1},
        common_start=True,
        random_messages=True,
    ),
    "fedadam": Row(0.05, **SERVED, common_start=True),
    "fedavg": Row(0.05, **SERVED),
    "fedavgm": Row(0.05, **SERVED, common_start=True),
    "feddecorr": Row(
        0.05,
        options=WITH_HEAD | {"strength": 0.01},
        killed=WITH_HEAD | {"participation": 3, "clip": 0.5},
    ),
    "feddyn": Row(0.05, **SERVED, common_start=True),
    "fednova": Row(0.05, options=EPOCH, killed=UNEVEN, common_start=True),
    "fedprox": Row(0.05, options=EPOCH, killed=SOME | STRENGTHS),
    "fedyogi": Row(0.05, **SERVED, common_start=True),
    "moon": Row(
        0.05,
        options=WITH_HEAD | {"strength": 0.1},
        killed=WITH_HEAD | {"participation": 3},
    ),
    "hierfavg": Row(
        0.05, required={"groups": GROUPS}, options=EPOCH, killed=SOME | {"cloud_every": 3}
    ),
    "scaffold": Row(0.05, **SERVED),
    # personalized
    "apfl": Row(0.05, **SERVED),
    "dfedpgp": Row(0.05, options=TWO_RATES, killed=WITH_HEAD | {"mode": "push"}),
    "dispfl": Row(
        0.1,
        required={"rounds": 25},
        options=EPOCH,
        killed={"epochs": 1, "rounds": 7, "different_initial": True},
    ),
    "ditto": Row(
        0.05, options=EPOCH | {"personal_epochs": 1}, killed=SOME | {"personal_epochs": 1}
    ),
    "facade": Row(
        0.1, required={"k": 2}, options=FEW | {"head": HEAD}, killed=FEW | {"k": 2, "head": HEAD}
    ),
    "fedala": Row(
        0.05, options=WITH_HEAD, killed=WITH_HEAD | {"participation": 3, "weight_epochs": 0.6}
    ),
    "fedbabu": Row(0.2, options=WITH_HEAD, killed=WITH_HEAD),
    "fedbn": Row(0.05, options=EPOCH | NORMS, killed=SOME | NORMS),
    "fedper": Row(0.05, options=WITH_HEAD, killed=WITH_HEAD | {"participation": 3}),
    "fedproto": Row(0.05, options=WITH_HEAD, killed=WITH_HEAD | {"participation": 3}),
    "fedrep": Row(0.05, options=WITH_HEAD, killed=WITH_HEAD),
    "ifca": Row(0.1, required={"k": 2}, options=FEW, killed=FEW | {"k": 2, "participation": 0.5}),
    "knn_per": Row(0.05, options=WITH_HEAD, killed=WITH_HEAD | {"k": 3}),
    "per_fedavg": Row(0.05, options={"epochs": 2}, killed=EPOCH),
    "pfedme": Row(0.05, options=EPOCH, killed=EPOCH | {"server": False, "beta": 1.5}),
    "proxyfl": Row(0.05, options=WITH_HEAD, killed=WITH_HEAD | MOMENTUM | {"average": True}),
    # learned graphs
    "dpfl": Row(
        0.05,
        options=EPOCH,
        killed={"epochs": 1, "budget": 2, "every": 2},
        validated=True,
        random_messages=True,
    ),
    "pfeddst": Row(0.05, options=WITH_HEAD | {"k": 2}, killed=WITH_HEAD | {"k": 1}, validated=True),
    "pfedgraph": Row(
        0.05, options=EPOCH, killed={"epochs": 1, "regulariser": 0.1}, common_start=True
    ),
    "random_collaboration": Row(0.05, required={"budget": 2}, options=EPOCH, killed=EPOCH),
}

ARGUMENTS = {name: row.arguments for name, row in ALGORITHMS.items()}


def known(nodes, graph, clients, direction, rounds):
    """Return functions of what a naive loop may ask for, by the names of its parameters."""

    def matrices(way=direction):
        graphs = [graph.at(t) for t in range(rounds)]
        if way is None:
            return [harness.weights_of(each) for each in graphs]
        return [mixing.uniform(each, direction=way).weights.toarray() for each in graphs]

    def received():
        graphs = [graph.at(t) for t in range(rounds)]
        return [[each.in_neighbors(i).tolist() for i in range(N)] for each in graphs]

    return {
        "nodes": lambda: nodes,
        "rounds": lambda: rounds,
        "members": lambda: harness.members,
        "weights": lambda: matrices()[0],
        "matrices": matrices,
        "pulls": lambda: matrices("pull"),
        "pushes": lambda: matrices("push"),
        "hops": lambda: graph.distances,
        "cliques": lambda: graph.groups,
        "neighbors": lambda: [graph.out_neighbors(i) for i in range(N)],
        "received": received,
        "can_receive": lambda: received()[0],
        "val": lambda: clients.val,
    }


def nothing(told, history, models, state):
    """Check nothing in addition to the models."""


@dataclass(frozen=True)
class Twin:
    """Arguments with which a method ends with the models of a naive loop over nodes.

    Parameters
    ----------
    method
        Its name.
    both
        Arguments that both take, beside a learning rate of 0.1.
    mine, loop
        Arguments of the method only, beside the size of minibatches, and of the loop only.
    function
        The loop; None: the function of :mod:`tests.naive` of the method's name.
    graph
        A function of the clients; None: the method has a server.
    direction
        In which of all rows and columns the loop's equal weights sum to 1; None: Metropolis.
    model, clients, init, rounds
        Models and clients, how models start, and for how long they are trained.
    also
        Checks what the loop returns: ``also(told, history, models, state)``, with the last state
        of the phase `local`.
    within
        The largest difference of two parameters.
    """

    method: str
    both: Mapping[str, Any] = field(default_factory=dict)
    mine: Mapping[str, Any] = field(default_factory=dict)
    loop: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    graph: Callable[[Any], Any] | None = problems.cliques
    direction: str | None = None
    model: Callable[[], nn.Module] = problems.convolutional
    clients: Sequence[Callable[[], Any]] = (problems.equal_clients, problems.ragged_clients)
    init: str = "independent"
    rounds: int = ROUNDS
    also: Callable[..., None] = nothing
    within: float = 1e-12

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in (self.both | self.mine).items())
        return problems.without_addresses(f"{self.method}({given})")

    def graph_of(self, clients: Any) -> Any:
        """Return the graph, or the sequence of graphs, of a run."""
        return None if self.graph is None else self.graph(clients)

    def naively(self, clients: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Return the models at the start and the end of the loop, and what it returns."""
        clients = clients.pooled() if self.method == "centralized" else clients
        nodes = harness.nodes_at_start(self.model(), clients, self.init)
        start, function = nodes.flat(), self.function or getattr(naive, self.method)
        given = known(nodes, self.graph_of(clients), clients, self.direction, self.rounds)
        how = {"lr": 0.1} | self.both | self.loop
        asked = set(signature(function).parameters) & set(given) - set(how)
        told = function(**{name: given[name]() for name in asked}, **how)
        return start, nodes.flat(), told

    def built(self) -> algorithms.Algorithm:
        """Return the method with its arguments."""
        how = {"lr": 0.1, "batch_size": BATCH} | self.both | self.mine
        return getattr(algorithms, self.method)(**how)


def pushed(told, history, models, state):
    """Check push-sum weights, and that they sum to n with those under way."""
    masses, under_way = told if isinstance(told, tuple) else (told, 0)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses) + under_way, N, rtol=1e-12)
    assert np.ptp(masses) > 0.1
    assert history["smallest_push_weight"][-1] == pytest.approx(min(masses))
    np.testing.assert_allclose(history["push_weight"][-1], masses, rtol=1e-12)


def timed(name, told, history, models, state):
    """Check the seconds of each round, and what else a loop over events counts."""
    seconds, counted = zip(*told, strict=True)
    np.testing.assert_allclose(history["simulated_seconds"], seconds, rtol=1e-12)
    np.testing.assert_array_equal(history[name], counted)
    if name == "messages":
        size = models.flat.shape[1] * 8
        np.testing.assert_array_equal(history["bytes"], np.array(counted) * size)


def worst_shares(told, history, models, state):
    """Check the distributions of nodes that are worst for the models, which are not uniform."""
    np.testing.assert_allclose(state["shares"].numpy(), np.atleast_2d(told), rtol=0, atol=1e-12)
    assert np.ptp(told) > 0.01


def peers(told, history, models, state):
    """Check from which nodes each received in each round."""
    assert [harness.received(history, t) for t in range(len(told))] == told


def participants(told, history, models, state):
    """Check the messages of as many participants as drawn, which may be none."""
    assert history["messages"].tolist() == [2 * count for count in told]


def averaged(told, history, models, state):
    """Check the weights of each round, which must not stay the same."""
    found = [history.mixing(t).weights.toarray() for t in range(len(told))]
    np.testing.assert_allclose(found, told, rtol=0, atol=1e-10)
    assert np.ptp(told, axis=0).max() > 1e-3


def masks(told, history, models, state):
    """Check the masks of the last round, and that they changed."""
    first, last = (
        torch.stack([torch.cat([m.flatten() for m in mask.values()]).bool() for mask in told[t]])
        for t in (0, -1)
    )
    assert torch.equal(state["mask"], last)
    assert not torch.equal(first, last)


def prototypes(told, history, models, state):
    """Check the prototypes of each node, and that there is one of every class that is known."""
    for node, known in enumerate(told):
        assert state["known"][node].nonzero().flatten().tolist() == sorted(known)
        for label, prototype in known.items():
            torch.testing.assert_close(
                state["prototypes"][node, label], prototype, rtol=0, atol=1e-12
            )


def proxies(told, history, models, state):
    """Check the proxies, which differ from the private models."""
    vectors = torch.stack([naive.vector_of(module) for module in told])
    torch.testing.assert_close(state["proxy"], vectors, rtol=0, atol=1e-12)
    assert (state["proxy"] - models.flat).abs().amax(1).min() > 1e-3


def cut(told, history, models, state):
    """Check that some learned weights are 0, some are 1, and some lie between."""
    flat = torch.cat([w.flatten() for own in told for w in own])
    assert (flat == 0).any()
    assert (flat == 1).any()
    assert ((flat > 0) & (flat < 1)).any()


def clusters(told, history, models, state):
    """Check which cluster each node chose in the last round, and that several were chosen."""
    assert history["cluster"][-1].tolist() == told[-1]
    assert np.ptp(told) > 0


def personal_shares(adaptive, told, history, models, state):
    """Check the shares of personal models in the mixtures."""
    np.testing.assert_allclose(state["share"].numpy(), told[1], rtol=0, atol=1e-12)
    assert (len(set(told[1])) > 1) == adaptive


@seeded_torch(0)
def one_group():
    """Return a convolutional model with one group.

    Biases of two channels that are a group have opposite gradients, and rounding takes the larger.
    """
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(1, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def irregular(clients=None):
    """Return a strongly connected digraph; neither kind of equal weights is doubly stochastic."""
    return topologies.random_out(N, 2, seed=1).at(0)


RATES = [{"lr": algorithms.constant(0.1)}, {"lr": falling}]
COSINE = {"lr": algorithms.cosine(0.2, rounds=ROUNDS)}
PASSES = [
    {"epochs": 2, "momentum": 0.9},
    {"epochs": 2, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.5, "lr_decay": 0.8},
]
STEPS = [1, 5, 2, 3, 1, 4]
STEPPED = [{"local_steps": 3}, {"local_steps": 2, "momentum": 0.8}]
HALF = {"participation": 0.5}
LINEAR = {"model": problems.linear}
RAGGED = {"clients": [problems.ragged_clients]}
VALIDATED = {"clients": [problems.validated_clients]}

FEDAVG = {"function": naive.fedavg}
ADAPTIVE = {"server_lr": 0.05, "beta1": 0.8, "beta2": 0.7, "tau": 0.01, "epochs": 2}
SERVER_MOMENTUM = {"server_lr": 0.7, "epochs": 2}
EXPONENTIAL = {"lr": algorithms.exponential(0.1, 0.5)}
NEAR = {"strength": 2.0}
ADAM = [
    {"lr": algorithms.constant(0.1), "beta1": 0.8, "beta2": 0.95, "eps": 1e-3},
    {"lr": falling, "local_steps": 3, "decay": 0.1, "eps": 1e-2},
]
OUTER = {"local_steps": 2, "outer_lr": 0.6, "outer_momentum": 0.8}
SERVER = {"weights": None}
WEIGHTS = {"weight_lr": 300.0, "weight_epochs": 0.8, "first_epochs": 3}
APART = {"strength": 0.1, "clip": 0.5}  # steep where features hardly vary: rounding would grow
CONTRAST = {"strength": 0.7, "temperature": 0.3}
ENVELOPE = {"strength": 5.0, "personal_lr": 0.05, "personal_steps": 3}
DECAYED = {"beta": 1.5, "lr_decay": 0.8, "weight_decay": 0.01}
PROXIES = {"weight": 0.3, "average": False}
AVERAGED_PROXIES = {"weight": 0.8, "average": True}
DITTO = {"personal_lr": 0.05, "strength": 0.5, "personal_epochs": 3}


def central(method, both, mine=None, loop=None, **more):
    """Return a twin with a server, and a half of the nodes in each round."""
    return Twin(method, both, HALF | (mine or {}), loop or {}, graph=None, **more)


def personal(method, mine, loop):
    """Return twins with personal heads, which do not travel to the server."""
    heads = loop | {"travels": is_body}
    return [central(method, how, {"head": HEAD} | mine, heads, **FEDAVG) for how in PASSES]


def optimized(method, both, mine=None, loop=None):
    """Return a twin whose server takes steps of its own."""
    rule = partial(naive.fedopt, rule=method)
    return central(method, EXPONENTIAL | both, mine, loop, function=rule, init="common")


def shared(adaptive, how):
    """Return a twin of APFL, whose shares are compared too."""
    both = how | {"alpha": 0.3, "adaptive": adaptive}
    return central("apfl", both, also=partial(personal_shares, adaptive))


def half_of(group, t):
    """Return a random half of a group of nodes, rounded half up, that participates in round t."""
    order = stream(SEED, "participation", t).permutation(N).tolist()
    return sorted([i for i in order if i in group][: (len(group) + 1) // 2])


def on_edges(mine, loop, **more):
    """Return a twin with edge servers, and a half of the nodes of each in each round."""
    loop = {"members_of": half_of, "groups": GROUPS} | loop
    return central("hierfavg", {"cloud_every": 2}, {"groups": GROUPS} | mine, loop, **more)


LARGE_DUAL = RATES[0] | {"dual_lr": 5.0, "local_steps": 2}
"""Arguments with which most shares in the distribution of nodes that is worst are 0."""

TRACE = [[1, 0, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0]]
"""Who is there in even and in odd rounds."""

WITH_A_SERVER = [
    *(central("fedavg", how) for how in PASSES),
    *personal("fedper", {}, {}),
    *(central("fedbn", how, {"local": HEAD}, {"travels": is_body}, **FEDAVG) for how in PASSES),
    *personal("fedbabu", {}, {"trains": is_body}),
    *personal("fedrep", {"head_lr": 0.05}, {"trains": is_body, "head": (is_head, 0.05, 1)}),
    central("knn_per", PASSES[0], {"head": HEAD, "k": 5}, **FEDAVG),
    *(central("ditto", how | DITTO) for how in PASSES),
    *(central("moon", how | CONTRAST, {"head": HEAD}, SERVER) for how in PASSES),
    central("moon", PASSES[0] | CONTRAST, {"head": HEAD}, SERVER, init="common", **RAGGED),
    *(central("feddecorr", how | APART, {"head": HEAD}, SERVER) for how in PASSES),
    central("feddecorr", PASSES[0] | APART | {"epochs": 1.5}, {"head": HEAD}, SERVER, rounds=5),
    *(
        central("fedala", how | WEIGHTS, {"head": HEAD}, {"mixed": is_head} | SERVER, also=cut)
        for how in PASSES
    ),
    central(
        "fedala",
        PASSES[0] | WEIGHTS,
        {"head": algorithms.everything},
        {"mixed": lambda name: True} | SERVER,
        also=cut,
        **LINEAR,
        **RAGGED,
    ),
    central("pfedme", ENVELOPE | {"epochs": 2}, {}, SERVER),
    central("pfedme", ENVELOPE | DECAYED | {"epochs": 2}, {}, SERVER, init="common"),
    central("pfedme", ENVELOPE | {"epochs": 1, "personal_steps": 1}, {}, SERVER, **LINEAR),
    central("fedprox", PASSES[0] | {"strength": 0.5}),
    central("fedprox", PASSES[1] | STRENGTHS),
    central("fedprox", PASSES[0] | {"strength": 2.0}, **LINEAR, **RAGGED),
    *(
        central("fedproto", how | NEAR, {"head": HEAD}, {"weights": None}, also=prototypes)
        for how in PASSES
    ),
    central("fedproto", PASSES[0] | NEAR, {"head": HEAD}, {"weights": None}, **RAGGED),
    central("per_fedavg", PASSES[0] | {"inner_lr": 0.3}),
    central("per_fedavg", PASSES[1] | {"inner_lr": 0.3, "epochs": 1}),
    central("per_fedavg", PASSES[0] | {"inner_lr": 0.2}, **LINEAR, **RAGGED),
    *(shared(adaptive, how) for adaptive in (True, False) for how in PASSES),
    central("apfl", PASSES[0] | {"alpha": 0.7}, **LINEAR, **RAGGED),
    *(central("ifca", how | {"k": 3}, also=clusters, rounds=5) for how in STEPPED),
    central(
        "ifca", STEPPED[0] | {"k": 2}, {}, {"common": True}, init="common", also=clusters, **RAGGED
    ),
    *(
        central(
            "drfa",
            rate | {"dual_lr": 0.02, "local_steps": 3},
            also=worst_shares,
            rounds=4,
        )
        for rate in RATES
    ),
    central("drfa", LARGE_DUAL, also=worst_shares, rounds=6),
    central(
        "drfa",
        LARGE_DUAL,
        {"participation": algorithms.available(TRACE)},
        {"members": lambda t: np.flatnonzero(TRACE[t % 2]), "drawn": False},
        also=worst_shares,
    ),
    *(central("scaffold", rate | {"epochs": 2}) for rate in RATES),
    on_edges({"epochs": 2}, {"epochs": 2}),
    on_edges({"epochs": 1.5, "momentum": 0.5}, {"epochs": 1.5, "momentum": 0.5}, rounds=5),
    *(central("fedavg", PASSES[0] | {"epochs": share}) for share in (0.5, 1.3)),
    *(central("feddyn", rate | {"alpha": 0.3, "epochs": 2}, init="common") for rate in RATES),
    *(
        central("fednova", how, {"epochs": None, "steps": STEPS}, {"counts": STEPS}, init="common")
        for how in ({}, MOMENTUM)
    ),
    optimized("fedadam", ADAPTIVE),
    optimized("fedyogi", ADAPTIVE),
    optimized("fedavgm", SERVER_MOMENTUM, {"beta": 0.8}, {"beta1": 0.8}),
    *(
        central("diloco", how | OUTER | {"clip": clip}, init="common")
        for how, clip in zip(ADAM, (0.5, None), strict=True)
    ),
]

COMPRESSORS = [
    algorithms.top_k(0.3),
    algorithms.random_k(0.3),
    algorithms.sign(),
    algorithms.quantized(3),
    algorithms.no_compression(),
]
TREE = topofl.from_edges([(3, 0), (0, 5), (5, 1), (5, 4), (1, 2)], n=N)


def random_in(clients):
    return topologies.random_in(N, 2, seed=1)


def random_out(clients):
    return topologies.random_out(N, 2, seed=1)


def pairs(clients):
    return topologies.one_peer_exponential(N)


def three(clients=None):
    return topologies.circulant(N, (1, 2, 3), directed=True)


HEADS = {"is_head": is_head}
BODIES = HEADS | {"mode": "pull"}
PULLED = {"graph": random_in, "direction": "pull"}
PUSHED = {"graph": random_out, "direction": "push", "also": pushed}
PIECES = {"degree": 2, "local_steps": 2}
PRIVATE = {"clip": 0.5, "noise": 0.3, "steps": 2}
SPEEDS = [
    {"momentum": 0.9, "global_momentum": 0.9},
    {"momentum": 0.8, "global_momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
]
SHARP = {"gossip_steps": 3, "weight_decay": 0.01, "clip": 0.5, "lr_decay": 0.8}
LOCAL_STEPS = {"momentum": 0.9, "local_steps": 2}


def compressed(method, compressor, also=nothing, **how):
    """Return a twin whose messages are compressed."""
    both = COSINE | {"compressor": compressor, "gamma": 0.4} | how
    return Twin(method, both, model=one_group, also=also, **RAGGED)


def as_many_models(told, history, models, state):
    """Check the number of messages per round, each of which holds a model."""
    assert history["messages"].tolist() == told
    np.testing.assert_array_equal(history["bytes"], history["messages"] * models.flat.shape[1] * 8)


DUAL = {"dual_lr": 0.05, "mu": 0.1}

ON_GRAPHS = [
    *(Twin("dr_dsgd", rate | {"mu": 2.0, "local_steps": 2}) for rate in RATES),
    Twin("dr_dsgd", RATES[1] | {"mu": 1.0}, **LINEAR, **RAGGED),
    *(compressed("ad_gda", one, also=worst_shares, **DUAL) for one in COMPRESSORS),
    *(Twin("dsgd", how) for how in ({}, MOMENTUM, {"local_steps": 3, "momentum": 0.5})),
    Twin("dsgd", LOCAL_STEPS, **LINEAR),
    *(Twin("clique_averaging", how) for how in ({}, MOMENTUM)),
    Twin("clique_averaging", MOMENTUM, **LINEAR),
    *(Twin("centralized", how, graph=None) for how in ({}, MOMENTUM)),
    *(Twin("local_only", how, graph=None) for how in ({}, LOCAL_STEPS)),
    *(
        Twin(
            "local_only",
            how,
            {"reset_momentum": True},
            {"matrices": [np.eye(N)] * ROUNDS},
            naive.dfedavgm,
            graph=None,
        )
        for how in PASSES
    ),
    *(Twin("dfedavgm", how) for how in PASSES),
    Twin("dfedavgm", PASSES[0], graph=pairs, direction="pull"),
    *(
        Twin("dfedavgm_p", how | {"head_lr": 0.05}, {"head": HEAD}, BODIES, naive.dfedpgp)
        for how in PASSES
    ),
    *(
        Twin("dfedpgp", how | {"mode": "push", "head_lr": 0.05}, {"head": HEAD}, HEADS, **PUSHED)
        for how in PASSES
    ),
    *(
        Twin("dfedpgp", how | {"mode": "pull", "head_lr": 0.05}, {"head": HEAD}, HEADS, **PULLED)
        for how in PASSES
    ),
    *(Twin("osgp", PASSES[0] | {"delay": delay}, **PUSHED) for delay in (0, 1, 2)),
    *(Twin("qg_dsgdm", rate | how) for rate, how in zip(RATES, SPEEDS, strict=True)),
    Twin("dfedsam", PASSES[0] | {"radius": 0.05}),
    Twin("dfedsam", SHARP | {"radius": 0.5, "epochs": 2}),
    *(Twin("dadam", how) for how in ADAM),
    *(
        Twin("divshare", PIECES | {"fragments": 7}, {}, loop, graph=graph)
        for graph, loop in ((three, {}), (None, {"can_receive": [range(N)] * N}))
    ),
    Twin("divshare", PIECES | {"fragments": 2}, graph=three, **LINEAR),
    *(
        Twin(
            "teleportation",
            rate | {"active": k, "degree": degree, "local_steps": steps},
            graph=None,
            rounds=5,
            also=as_many_models,
        )
        for rate, k, degree, steps in zip(
            [*RATES, COSINE], (4, 5, N), (None, 1, 2), (1, 2, 1), strict=True
        )
    ),
    Twin(
        "teleportation",
        COSINE | {"active": 1, "degree": None, "local_steps": 1},
        graph=None,
        rounds=4,
    ),
    *(
        Twin("dsgd_ceca", rate | {"one_port": paired}, graph=None, rounds=7)
        for rate, paired in zip(RATES, (False, True), strict=True)
    ),
    Twin(
        "dsgd_ceca",
        COSINE | {"one_port": False},
        graph=None,
        rounds=9,
        clients=[problems.five_clients],
    ),
    Twin("noloco", ADAM[0] | OUTER),
    Twin("noloco", {"lr": falling, "eps": 1e-2} | OUTER, graph=pairs, direction="pull"),
    *(Twin("dadam", how, {"track": True}, {}, naive.damsgrad) for how in ADAM),
    Twin(
        "fedproto",
        PASSES[0] | NEAR,
        {"head": HEAD, "server": False},
        {"members": lambda t: range(N)},
        also=prototypes,
    ),
    Twin(
        "fedala",
        PASSES[0] | WEIGHTS,
        {"head": HEAD, "server": False},
        {"mixed": is_head, "members": None},
        also=cut,
    ),
    *(
        Twin("proxyfl", how | PROXIES, {"head": HEAD}, graph=graph, direction="pull", also=proxies)
        for how in PASSES
        for graph in (pairs, random_out)
    ),
    *(Twin("proxyfl", how | AVERAGED_PROXIES, {"head": HEAD}, also=proxies) for how in PASSES),
    Twin("proxyfl", PASSES[0] | AVERAGED_PROXIES, {"head": "1"}, **LINEAR, **RAGGED),
    Twin("feddecorr", PASSES[0] | APART, {"head": HEAD, "server": False}, {"members": None}),
    Twin("moon", PASSES[0] | CONTRAST, {"head": HEAD, "server": False}, {"members": None}),
    *(
        Twin("pfedme", ENVELOPE | how, {"server": False}, {"members": None})
        for how in (EPOCH, EPOCH | DECAYED)
    ),
    *(Twin("relay_sgd", how, graph=lambda clients: TREE, rounds=7) for how in ({}, LOCAL_STEPS)),
    *(
        Twin("dp_dsgd", PRIVATE | {"level": level}, {}, {"size": BATCH})
        for level in ("record", "node")
    ),
    *(
        Twin(
            "dp_fedavg",
            {"clip": 0.3, "noise": 0.4, "participation": share, "epochs": 1},
            graph=None,
            init="common",
            rounds=8,
            also=participants,
        )
        for share in (0.15, 0.5, 1.0)
    ),
    *(Twin(name, rate) for name in ("dsgt", "extra", "d2") for rate in RATES),
    *(Twin("d2", rate | {"lazy": False}) for rate in RATES),
    *(
        Twin("edm", rate | {"momentum": 0.8, "lazy": lazy}, function=naive.d2)
        for rate, lazy in zip(RATES, (True, False), strict=True)
    ),
    *(Twin("momentum_tracking", rate | {"momentum": 0.8}) for rate in RATES),
    *(Twin("local_gt", rate | {"local_steps": 3, "global_lr": 0.7}) for rate in RATES),
    *(
        Twin("led", rate | {"local_steps": steps, "dual_lr": share, "lazy": lazy})
        for rate, steps, share, lazy in zip(RATES, (3, 1), (0.7, 1.0), (True, False), strict=True)
    ),
    *(
        Twin("proxskip", rate | {"probability": share, "dual_lr": 0.8}, also=as_many_models)
        for rate, share in zip(RATES, (0.5, 0.9), strict=True)
    ),
    *(
        Twin("dinno", rate | {"penalty": weight, "local_steps": steps})
        for rate, weight, steps in zip(RATES, (0.5, 2.0), (3, 1), strict=True)
    ),
    *(Twin("demuon", rate | {"momentum": 0.6, "iterations": 4}) for rate in RATES),
    *(Twin("gt_hsgd", rate | {"beta": 0.3}) for rate in RATES),
    *(Twin("push_diging", rate, **PUSHED) for rate in RATES),
    *(Twin("sab", rate, graph=irregular) for rate in RATES),
    *(
        compressed(name, compressor)
        for compressor in COMPRESSORS
        for name in ("choco_sgd", "deepsqueeze", "beer")
    ),
    *(compressed(name, COMPRESSORS[0], **LOCAL_STEPS) for name in ("choco_sgd", "deepsqueeze")),
    *(compressed("motef", compressor, momentum=0.7) for compressor in COMPRESSORS[:2]),
]

SPARSE = {"graph": lambda clients: topologies.random_regular(N, 3, seed=1), **RAGGED}


def robust(method, rule, mine, both=None):
    """Return a twin whose nodes aggregate by a rule on lists of numbers."""
    both = {"momentum": 0.5, "local_steps": 2} if both is None else both
    return Twin(method, both, mine, {"rule": rule}, naive.robust, **SPARSE)


ROBUST = [
    robust("clipped_gossip", naive.clipping(tau=0.05), {"tau": 0.05}),
    robust("clipped_gossip", naive.clipping(delta=0.25), {"delta": 0.25}),
    robust("clipped_gossip", naive.clipping(delta=0.3), {"delta": 0.3}),
    robust("coordinate_median", naive.medians, {}),
    robust("trimmed_mean", naive.trimming(1), {"trim": 1}),
    robust("krum", naive.choosing(0), {"attackers": 0}),
    robust("geometric_median", naive.weiszfeld(3), {"iterations": 3}),
    *(
        robust("self_centered_clipping", naive.clipping(tau=0.05), {"tau": 0.05}, how)
        for how in ({"lr": 0.5, "alpha": 0.2}, {"lr": 0.5, "alpha": 1.0})
    ),
]

COMPLETE_OF_SEVEN = {
    "graph": lambda clients: topologies.fully_connected(7),
    "clients": [lambda: data.shards(problems.dataset(), 7, 2, seed=0)],
}

ROBUST += [Twin("fltrust", LOCAL_STEPS, init=init, **SPARSE) for init in ("common", "independent")]

ROBUST += [
    replace(one, **COMPLETE_OF_SEVEN)
    for one in (
        robust("krum", naive.choosing(2), {"attackers": 2}),
        robust("krum", naive.choosing(1, select=3), {"attackers": 1, "select": 3}),
        robust("bulyan", naive.bulyan(1), {"attackers": 1}),
    )
]

MEANS = [1.0, 2.5, 1.0, 0.7, 3.0, 1.0]
LINKS = np.random.default_rng(0).uniform(0.1, 4.0, size=(N, N))
SPREAD = 0.5

COMPUTE = {
    "equal": (1.0, lambda rng, i: 1.0),
    "table": (MEANS, lambda rng, i: MEANS[i]),
    "exponential": (clocks.exponential(MEANS), lambda rng, i: MEANS[i] * rng.exponential()),
    "lognormal": (
        clocks.lognormal(2.0, SPREAD),
        lambda rng, i: 2.0 * np.exp(SPREAD * rng.standard_normal() - SPREAD**2 / 2),
    ),
}

DELAYS = {
    "none": (0.0, lambda rng, i, j: 0.0),
    "table": (LINKS, lambda rng, i, j: LINKS[i, j]),
    "exponential": (clocks.exponential(0.3), lambda rng, i, j: 0.3 * rng.exponential()),
}


def asynchronous(method, counted, compute, delay, **both):
    """Return a twin whose nodes act one after the other, by a clock."""
    (given, step), (links, message) = COMPUTE[compute], DELAYS[delay]
    mine = {"clock": clocks.Clock(given, links)}
    loop = {"compute": step, "delay": message}
    return Twin(method, both, mine, loop, also=partial(timed, counted))


DISCOUNTS = {
    None: lambda stale: 1.0,
    "polynomial_discount(0.7)": lambda stale: 1 / (1 + stale) ** 0.7,
    "hinge_discount(a=2, b=3)": lambda stale: 1.0 if stale <= 3 else 1 / (2 * (stale - 3) + 1),
}


def served(method, compute, delay, discount, *, concurrency=None, **both):
    """Return a twin whose server receives models one after the other, by a clock."""
    (given, step), (links, message) = COMPUTE[compute], DELAYS[delay]
    mine = {"clock": clocks.Clock(given, links), "discount": discount, "concurrency": concurrency}
    loop = {"compute": step, "delay": message, "weigh": DISCOUNTS[discount], "active": concurrency}
    how = {"graph": None, "init": "common", "rounds": 6, "also": partial(timed, "staleness")}
    return Twin(method, {"epochs": 1} | both, mine, loop, **how)


SERVED_ON_A_CLOCK = [
    served("fedasync", "equal", "none", None, alpha=1.0),
    served("fedasync", "table", "exponential", "polynomial_discount(0.7)", alpha=0.6),
    served(
        "fedasync",
        "exponential",
        "none",
        "hinge_discount(a=2, b=3)",
        alpha=0.6,
        concurrency=3,
        strength=0.5,
    ),
    served("fedbuff", "equal", "none", None, buffer=1, server_lr=1.0),
    served("fedbuff", "table", "exponential", "polynomial_discount(0.7)", buffer=4, server_lr=0.7),
    served(
        "fedbuff",
        "lognormal",
        "exponential",
        "hinge_discount(a=2, b=3)",
        buffer=2,
        server_lr=1.3,
        concurrency=2,
    ),
]

ASYNCHRONOUS = [
    asynchronous("ad_psgd", "staleness", "equal", "none"),
    asynchronous("ad_psgd", "staleness", "table", "table"),
    asynchronous("ad_psgd", "staleness", "exponential", "exponential"),
    asynchronous("random_walks", "messages", "exponential", "table", walks=1, merge=False),
    asynchronous("random_walks", "messages", "lognormal", "exponential", walks=3, merge=True),
    asynchronous("random_walks", "messages", "table", "table", walks=6, merge=False),
    asynchronous("random_walks", "messages", "equal", "none", walks=6, merge=True),
]

GREEDY = [
    {},
    {"budget": 2},
    {"every": 2},
    {"every": 2, "keep": False},
    {"passive": (1, 4), "budget": 3},
    {"budget": 0},
]

SCORED = [
    {"k": 3},
    {"k": 3, "loss_refresh": "all"},
    {"k": 2, "loss_refresh": "none"},
    {"k": 2, "standardize": False, "alpha": 1.0, "cost": 2.0},
    {"k": 3, "header_sign": "literal", "alpha": 0.1},
    {"k": 3, "standardize": False, "header_sign": "literal", "alpha": 0.1},
    {"k": None, "threshold": 0.4},
    {"k": 2, "threshold": 0.2, "loss_refresh": "none"},
    {"k": 2, "alpha": 0.0, "cost": 0.0, "recency_rate": 50.0},
    {"k": 2, "alpha": 0.0, "standardize": False},
]

SCORING = {"standardize", "alpha", "cost", "recency_rate", "header_sign"}

DECAYING = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.8}


def collaborations(t, k, pool):
    rng = stream(SEED, f"collaboration of {k}", t)
    return rng.permutation(pool).tolist(), rng.random(len(pool)).tolist()


def greedy(choice, **more):
    """Return a twin of DPFL."""
    both, loop = DECAYING | EPOCH | choice, {"draws": collaborations, "first_epochs": 2}
    return Twin("dpfl", both, {}, loop, graph=None, also=peers, **more)


def ties(t):
    return stream(SEED, "peers", t).random((N, N))


def scored(choice, graph=None, head=HEAD, heads=is_head, **more):
    """Return a twin of PFedDST."""
    scoring = {name: choice[name] for name in SCORING & set(choice)}
    both = DECAYING | EPOCH | {"head_lr": 0.05}
    both |= {name: value for name, value in choice.items() if name not in SCORING}
    loop = {"draws": ties, "is_head": heads, "scoring": scoring}
    if graph is None:
        loop["can_receive"] = [[j for j in range(N) if j != i] for i in range(N)]
    mine = scoring | {"head": head}
    return Twin("pfeddst", both, mine, loop, graph=graph, rounds=4, also=peers, **more)


RING = {"receives": [[(i - 1) % N, i] for i in range(N)]}


def similar(sign, regulariser, loop=None, **more):
    """Return a twin of PFedGraph; with the sign of the authors' code, below 0."""
    mine = {"regulariser": regulariser, "code_sign": sign < 0}
    loop = {"regulariser": sign * regulariser} | (loop or {})
    both = DECAYING | EPOCH | {"clip": 0.5, "threshold": 0.6}
    return Twin("pfedgraph", both, mine, loop, init="common", also=averaged, **more)


def forward(clients=None):
    return topologies.circulant(N, (1,), directed=True)


def sparse(**how):
    """Return a twin of Dis-PFL."""
    both = how | {"dense_ratio": 0.3, "epochs": 2}
    world = {"graph": random_in, "model": one_group, "also": masks}
    return Twin("dispfl", both, {"rounds": ROUNDS}, {"until": ROUNDS}, **world)


def heads(both, head=HEAD, is_head=is_head, loop=None, **more):
    """Return a twin of Facade."""
    loop = {"is_head": is_head} | (loop or {})
    return Twin("facade", both, {"head": head}, loop, also=clusters, **more)


LEARNED = [
    *(greedy(choice, **VALIDATED) for choice in GREEDY),
    greedy({}, **VALIDATED, **LINEAR),
    *(scored(choice, **RAGGED) for choice in SCORED),
    scored({"k": 1}, three, clients=[problems.equal_clients]),
    scored({"k": 3}, None, "1.bias", lambda name: name == "1.bias", **LINEAR, **RAGGED),
    similar(1, 0.5, graph=None),
    similar(-1, 0.5, graph=None),
    similar(1, 0.01, RING, graph=forward, **LINEAR, **RAGGED),
    *(heads(how | {"k": 3}) for how in STEPPED),
    heads(STEPPED[0] | {"k": 2}, loop={"common": True}, init="common", **RAGGED),
    heads(STEPPED[1] | {"k": 2}, algorithms.everything, lambda name: True, **LINEAR, **RAGGED),
    sparse(),
    sparse(different_initial=True, **PASSES[1] | {"epochs": 2}),
    sparse(different_initial=True, regrow="random", momentum=0.9, prune=0.8),
]

TWINS = [*ON_GRAPHS, *ROBUST, *ASYNCHRONOUS, *SERVED_ON_A_CLOCK, *WITH_A_SERVER, *LEARNED]


@dataclass(frozen=True)
class Same:
    """Two algorithms that end with the same models, and the settings of their runs.

    Parameters
    ----------
    one, how
        The name of a method, and its arguments beside a learning rate of 0.1 and minibatches of 4.
    other, theirs
        Likewise, or an algorithm.
    graph, others
        The graphs of the one and of the other; `others` is `graph` unless it is given.
    model, clients, settings
        Further settings of both.
    within
        The largest difference of two parameters.
    bytes
        Whether they send as much.
    """

    one: str
    how: Mapping[str, Any]
    other: str | algorithms.Algorithm
    theirs: Mapping[str, Any] = field(default_factory=dict)
    graph: Any = None
    others: Any = None
    model: Callable[[], nn.Module] = problems.convolutional
    clients: Callable[[], Any] = problems.ragged_clients
    settings: Mapping[str, Any] = field(default_factory=dict)
    within: float = 1e-12
    bytes: bool = False

    def __str__(self) -> str:
        return problems.without_addresses(f"{self.one}({self.how}) is {self.other}")

    @property
    def sides(self) -> list[tuple[algorithms.Algorithm, Any]]:
        """The two algorithms, each with its graph."""
        usual = {"lr": 0.1, "batch_size": BATCH}
        graphs = self.graph, self.graph if self.others is None else self.others
        return [
            (getattr(algorithms, name)(**usual | how) if isinstance(name, str) else name, graph)
            for name, how, graph in zip(
                (self.one, self.other), (self.how, self.theirs), graphs, strict=True
            )
        ]


TWO = {"batch_size": BATCH, "epochs": 2}
INNER = {"local_steps": 2, "eps": 1e-3}
SAMPLED = {"epochs": 2, "participation": 0.5}
ALL_DATA = {"batch_size": WHOLE, "epochs": 1}
COMMON = {"settings": {"init": "common"}}
UNIFORM = {"settings": {"mixing": mixing.uniform}}
METROPOLIS = {"settings": {"mixing": mixing.metropolis_hastings}}
EXACT = {"settings": {"executor": "looped"}, "within": 0.0}
STAYING = {"mixing": mixing.from_weights(np.eye(N)), "executor": "looped"}
COMPLETE, CIRCLE = topologies.fully_connected(N), topologies.ring(N)
ALONE = topofl.Topology(topologies.fully_connected(1).adjacency, groups=((0,),))
CLIQUES = problems.cliques(problems.equal_clients())
GRID = topologies.grid(6)
HALVES = topologies.random_cliques(N, N // 2, seed=1)
PLAIN = {"epochs": 2, "momentum": 0.0}
FEDAVG_OF_STEPS = SAMPLED | {"momentum": 0.0}
UNCOMPRESSED = LOCAL_STEPS | {"compressor": "no_compression", "gamma": 1.0}
BEER = {"gamma": 0.3, "compressor": "top_k(0.3)"}
LARGE_TAU = SAMPLED | {"beta1": 0.0, "tau": 1e12}
ALL_PEERS = [
    {"k": N - 1, "header_sign": "literal"},
    {"k": None, "loss_refresh": "none", "alpha": 3.0},
]
WITH_DECAY = {"momentum": 0.9, "weight_decay": 0.01, "epochs": 2}
DENSE = WITH_DECAY | {"rounds": ROUNDS, "dense_ratio": 1.0}
EIGHT = {"batch_size": 8}, {"batch_size": 8 * N}
TO_DATA = {"strength": 1e12, "regulariser": 0.0, "epochs": 2}
ONE_PASS = {"epochs": 1, "momentum": 0.9}, {"local_steps": 3, "momentum": 0.9}


def equal(size, n=N):
    """Return clients with a number of examples each."""
    clients = problems.equal_clients(n)
    own = tuple(indices[:size] for indices in clients.train)
    return topofl.data.Partition(clients.dataset, own, name="equal")


EIGHTS = {"clients": partial(equal, 8)}
ONE_NODE = {"clients": partial(equal, 11, 1), "graph": ALONE}


def steps(phase="local", **how):
    """Return local training alone, as a phase of some name."""
    how = {"batch_size": BATCH} | how
    return algorithms.chain("steps", **{phase: algorithms.sgd(0.1, **how)})


def exchanged(exchange, **more):
    """Return local passes from a velocity of zero, and exchanges."""
    local = algorithms.sgd(0.1, **TWO, momentum=0.9, reset_momentum=True)
    return algorithms.chain("passes", local=local, exchange=exchange, **more)


def personal_heads():
    """Return an exchange of bodies, and passes over bodies, then heads."""
    body = algorithms.part(HEAD).rest
    how = {"batch_size": BATCH, "epochs": 1, "momentum": 0.9, "reset_momentum": True}
    training = algorithms.sgd(0.1, part=body, **how)
    head = algorithms.sgd(0.05, part=body.rest, **how)
    return algorithms.chain("heads", exchange=algorithms.gossip(body), body=training, head=head)


AHEAD = "per_fedavg"
"""The method whose steps take two minibatches."""


def amounts_of(name):
    """Return the arguments of a row other than how long nodes train."""
    both = ALGORITHMS[name].required | ALGORITHMS[name].options
    return {one: value for one, value in both.items() if one not in ("epochs", "steps")}


GOSSIPS = {"again": algorithms.gossip(), "once_more": algorithms.gossip()}

BOTH_AMOUNTS = [
    name
    for name in ALGORITHMS
    if {"epochs", "steps"} <= set(signature(getattr(algorithms, name)).parameters)
]
SAME = [
    Same("dsgt", {}, "dsgd", graph=COMPLETE),
    Same("d2", {"lazy": False}, "dsgd", graph=COMPLETE),
    Same(
        "dr_dsgd", {"lr": 1e8, "mu": 1e9}, "dsgd", graph=CIRCLE, within=1e-8, bytes=True, **EIGHTS
    ),
    Same(
        "drfa",
        {"participation": 1.0, "local_steps": 4},
        "fedavg",
        {"steps": 4, "momentum": 0.0},
        **EIGHTS,
    ),
    *(Same("edm", rate | {"momentum": 0.0}, "d2", rate, CIRCLE, bytes=True) for rate in RATES),
    *(
        Same("momentum_tracking", rate | {"momentum": 0.0}, "sab", rate, CIRCLE, **METROPOLIS)
        for rate in RATES
    ),
    *(Same("led", rate | {"local_steps": 1}, "d2", rate, CIRCLE, bytes=True) for rate in RATES),
    *(
        Same("proxskip", rate | {"probability": 1.0}, "d2", rate, CIRCLE, bytes=True)
        for rate in RATES
    ),
    Same("motef", {"momentum": 0.0} | BEER, "beer", BEER, CIRCLE, bytes=True),
    Same("scaffold", ALL_DATA, "dsgd", {"batch_size": WHOLE}, others=COMPLETE),
    *(
        Same("local_gt", rate | {"local_steps": 1}, "dsgt", rate, CIRCLE, within=1e-10)
        for rate in RATES
    ),
    *(Same("push_diging", rate, "dsgt", rate, pairs(None), **UNIFORM) for rate in RATES),
    *(
        Same(name, UNCOMPRESSED, "dsgd", LOCAL_STEPS, CIRCLE, within=1e-14, bytes=True)
        for name in ("choco_sgd", "deepsqueeze")
    ),
    *(
        Same("clipped_gossip", {"tau": tau}, "dsgd", graph=GRID, bytes=True)
        for tau in (float("inf"), 1e6)
    ),
    Same("trimmed_mean", {"trim": 0}, "dsgd", graph=GRID, bytes=True, **UNIFORM),
    Same("krum", {"attackers": 0, "select": N}, "dsgd", graph=GRID, bytes=True, **UNIFORM),
    Same("geometric_median", {"bucket": N}, "dsgd", graph=COMPLETE, bytes=True, **UNIFORM),
    Same("geometric_median", {"smoothing": 1e9}, "dsgd", graph=GRID, bytes=True, **UNIFORM),
    Same("bulyan", {"attackers": 0}, "dsgd", graph=GRID, bytes=True, **UNIFORM),
    Same(
        "self_centered_clipping",
        {"delta": 0.3, "alpha": 1.0},
        "clipped_gossip",
        {"delta": 0.3},
        GRID,
        bytes=True,
    ),
    Same("qg_dsgdm", {"momentum": 0.0}, "dsgd", graph=CLIQUES),
    Same(
        "dfedsam",
        PASSES[0] | {"gossip_steps": 3, "radius": 1e-30},
        exchanged(algorithms.gossip(), **GOSSIPS),
        graph=CLIQUES,
        bytes=True,
    ),
    *(
        Same(
            "dp_dsgd",
            {"clip": 1e9, "noise": 0.0, "level": level, "steps": count},
            "dsgd",
            {"local_steps": count},
            CLIQUES,
            within=1e-10,
            **EIGHTS,
        )
        for level, count in (("record", 1), ("node", 2))
    ),
    Same(
        "dp_fedavg",
        {"clip": 1e9, "noise": 0.0, "epochs": 2},
        "fedavg",
        {"epochs": 2, "momentum": 0.0},
        within=1e-10,
        **EIGHTS,
        **COMMON,
    ),
    Same(
        "relay_sgd", {}, "dsgd", graph=topologies.fully_connected(2), clients=partial(equal, 8, 2)
    ),
    Same("noloco", INNER | {"outer_lr": 1.0, "outer_momentum": 0.0}, "dadam", INNER, CLIQUES),
    Same("osgp", PASSES[0], exchanged(algorithms.push_sum()), graph=random_out(None)),
    Same("dfedavgm_p", TWO_RATES, "fedrep", TWO_RATES, COMPLETE, **EIGHTS),
    *(
        Same("dispfl", DENSE | {"regrow": regrow}, "dfedavgm", WITH_DECAY, graph, **UNIFORM)
        for regrow, graph in (("gradient", random_in(None)), ("random", CIRCLE))
    ),
    Same("fedprox", SAMPLED | {"strength": 0.0}, "fedavg", SAMPLED, **EXACT),
    Same("moon", SAMPLED | {"strength": 0.0, "head": HEAD}, "fedavg", SAMPLED, within=1e-14),
    Same(
        "moon",
        {"strength": 0.0, "head": HEAD, "server": False, "epochs": 2},
        exchanged(algorithms.gossip()),
        graph=CIRCLE,
        bytes=True,
    ),
    Same("fedala", {"epochs": 2, "weight_lr": 1e-300, "head": HEAD}, "fedavg", {"epochs": 2}),
    Same("feddecorr", SAMPLED | {"strength": 0.0, "head": HEAD}, "fedavg", SAMPLED),
    Same("fedprox", ALL_DATA | {"strength": 5.0}, "fedavg", ALL_DATA),
    Same("fedprox", SAMPLED | {"strength": [0.5] * N}, "fedprox", SAMPLED | {"strength": 0.5}),
    Same("apfl", PASSES[0] | {"alpha": 0.0, "adaptive": False}, "fedavg", PASSES[0]),
    Same(
        "apfl",
        PASSES[0] | {"alpha": 1.0, "adaptive": False},
        steps(reset_momentum=True, **PASSES[0]),
    ),
    Same("fedavgm", SAMPLED | {"beta": 0.0}, "fedavg", FEDAVG_OF_STEPS, within=1e-10, **COMMON),
    *(
        Same(name, LARGE_TAU | how, "fedavg", FEDAVG_OF_STEPS, within=1e-10, **COMMON)
        for name, how in (
            ("fedadam", {"server_lr": 1e12, "beta2": 0.0}),
            # its squares stay, so it divides by 2 tau
            ("fedyogi", {"server_lr": 2e12, "beta2": 0.999999}),
        )
    ),
    Same("fednova", SAMPLED, "fedavg", FEDAVG_OF_STEPS, within=1e-10, **EIGHTS, **COMMON),
    Same("divshare", {"degree": N}, "dsgd", others=COMPLETE, **UNIFORM),
    Same("facade", FEW | {"k": 1, "head": HEAD}, "dsgd", FEW, CLIQUES, **COMMON),
    Same(
        "ifca",
        FEW | HALF | {"k": 1},
        "fedavg",
        {"epochs": 1, "momentum": 0.0} | HALF,
        **EIGHTS,
        **COMMON,
    ),
    Same("hierfavg", {"groups": GROUPS, "cloud_every": 1, "epochs": 2}, "fedavg", PLAIN),
    Same("hierfavg", {"groups": [range(N)], "epochs": 2}, "fedavg", PLAIN, bytes=True),
    Same(
        "hierfavg",
        {"groups": HALVES.groups, "cloud_every": 3, "epochs": 2},
        "dfedavgm",
        {"momentum": 0.0, "epochs": 2},
        others=topofl.topology.TopologySequence(
            N, (HALVES, HALVES, COMPLETE).__getitem__, "halves", period=3
        ),
        **EIGHTS,
        **UNIFORM,
    ),
    Same("pfedgraph", TO_DATA, "fedavg", {"epochs": 2}, within=1e-10, **COMMON),
    *(
        Same("pfeddst", TWO_RATES | how, personal_heads(), others=COMPLETE, **UNIFORM)
        for how in ALL_PEERS
    ),
    Same(
        "pfeddst",
        WITH_HEAD | {"k": 0},
        algorithms.pfeddst(0.1, batch_size=BATCH, k=3, **WITH_HEAD),
        others=topofl.from_edges([], N),
    ),
    Same("dsgd", EIGHT[0], "centralized", EIGHT[1], COMPLETE, **EIGHTS, **COMMON),
    Same(
        "clique_averaging",
        {},
        "dsgd",
        graph=topologies.random_cliques(N, N, seed=0),
        others=COMPLETE,
        **COMMON,
    ),
    Same("dsgd", {}, "local_only", graph=CIRCLE, within=0.0, settings=STAYING),
    Same("random_walks", {"walks": N}, steps("events"), graph=CIRCLE, settings=STAYING),
    Same("local_only", ONE_PASS[0], "local_only", ONE_PASS[1], clients=partial(equal, 11), **EXACT),
    *(
        Same(name, {}, steps(phase), **ONE_NODE)
        for name, phase in {
            **dict.fromkeys(("dsgd", "clique_averaging", "centralized", "relay_sgd"), "local"),
            **dict.fromkeys(("ad_psgd", "random_walks"), "events"),
        }.items()
    ),
    *(
        Same(name, how, steps("events", epochs=2), settings=COMMON["settings"], **ONE_NODE)
        for name, how in (
            ("fedasync", {"alpha": 1.0, "epochs": 2}),
            ("fedbuff", {"buffer": 1, "epochs": 2}),
        )
    ),
    Same(
        "fedbuff",
        {"buffer": N, "epochs": 2, "server_lr": 1.0},
        algorithms.chain(
            "fedavg of events",
            events=algorithms.sgd(0.1, batch_size=BATCH, epochs=2),
            server=algorithms.server_average(),
        ),
        settings={"init": "common", "rounds": 1},
        bytes=True,
        **EIGHTS,
    ),
    *(
        Same(name, PASSES[0], steps(reset_momentum=True, **PASSES[0]), **ONE_NODE)
        for name in ("dfedavgm", "fedavg", "osgp")
    ),
    *(
        Same(
            name,
            amounts_of(name) | {"steps": 2 if name == AHEAD else 4},
            name,
            amounts_of(name) | {"epochs": 2},
            CIRCLE,
            **EIGHTS,
            **COMMON,
        )
        for name in BOTH_AMOUNTS
    ),
]
"""Special cases: methods that are another one by their arguments, their graph or their weights."""
