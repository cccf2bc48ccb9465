"""What runs refuse: arguments, options, evaluations, attacks, and calls of phases."""

from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine.test_phases import OF_A_GRAPH
from tests.models import test_of_kinds as kinds
from tests.refusals import named, refused
from tests.rows.runs import personal_clients, weighted_ring
from topofl import (
    Compute,
    Evaluation,
    Saving,
    TopologyError,
    algorithms,
    attacks,
    config,
    data,
    mixing,
    models,
    topologies,
)
from topofl.algorithms import Phase, chain, gossip, sgd
from topofl.engine.fingerprint import OtherRunError

RING, STAR = topologies.ring(6), topologies.star(6)
UNIFORM = mixing.uniform(RING)
APART = topologies.random_cliques(6, 3, seed=0)
UNTESTED = data.iid(data.from_arrays(np.eye(36), [0, 1, 2] * 12, test=0.2), 6, seed=0)
TUNED = sgd(0.1, batch_size=4, epochs=2, momentum=0.9)


def run(algorithm=None, **changes):
    """Run D-SGD on a ring, and fail in the first round: what is wrong is refused before."""
    settings = {
        "algorithm": algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        "model": problems.linear(),
        "clients": personal_clients(),
        "topology": RING,
        "rounds": 4,
        "seed": 0,
        "callbacks": [problems.each_round(lambda t, models: pytest.fail("a round was trained"))],
    }
    return topofl.run(**problems.options(**(settings | changes)))


trained = partial(run, callbacks=[])
"""Run, since what is wrong shows in some round, or nothing is wrong."""


OWN_WEIGHTS = {"topology": topofl.as_topology(weighted_ring(), own_weights=True)}
UNEVEN = nx.DiGraph()
UNEVEN.add_weighted_edges_from(weighted_ring().edges(data="weight"))
PUSHED = {
    "algorithm": algorithms.osgp(lr=0.1),
    "topology": topofl.as_topology(UNEVEN, own_weights=True),
    "on_disconnected": "allow",
}
EQUAL_PUSHES = partial(mixing.uniform, direction="push")

LETTERS = topofl.as_topology(nx.cycle_graph("abcdef"))
BACKWARDS = nx.cycle_graph("fedcba")  # the same ring
nx.set_edge_attributes(BACKWARDS, 0.3, "weight")
BACKWARDS.add_weighted_edges_from((node, node, 0.4) for node in "abcdef")


SINGLE, DOUBLE = (
    nn.Parameter(torch.zeros(3, dtype=dtype)) for dtype in (torch.float32, torch.float64)
)


def changed(change):
    """Return a call of a run of a linear model with a changed layer."""
    model = problems.linear()
    change(model[1])
    return lambda: run(model=model)


def after(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 3))


class Drawing(nn.Linear):
    """A model with dropout by a function, which no module shows."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x.flatten(1), 0.5))


class Noise(nn.Module):
    """A layer that adds noise to its inputs, also in evaluation or in training only."""

    def __init__(self, always):
        super().__init__()
        self.always = always

    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) if self.always or self.training else x


class Counting(nn.Linear):
    """A model that counts its calls in a buffer."""

    def __init__(self):
        super().__init__(36, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return super().forward(x.flatten(1))


class Own(nn.Linear):
    """A model whose initial parameters are drawn by numpy."""

    def reset_parameters(self):
        super().reset_parameters()
        self.bias.data.copy_(torch.from_numpy(np.random.standard_normal(3)))  # noqa: NPY002


def mean(models, round):
    """Return the mean of all nodes' models, for all nodes."""
    return models.flat.mean(0).expand(round.n, -1)


def first(models, round):
    return models.flat[:, 0]


def second(models, round):
    return models.flat[:, 1]


def changing(models, round):
    models.flat[0] += 1
    return models


def changing_mass(models, round):
    models.push_sum_weights.mul_(1)
    return models


def training(models, round):
    TUNED.apply(models, TUNED.init(models), round)
    return models


def dividing(models, round):
    return 1 / (models.flat[0, 0].item() * 0)


def also(function, name="a", **how):
    return lambda: run(also={name: function}, **how)


def per_node(function, name="a"):
    drifting = playing(lambda models, round: round.note("drift", 1.0))
    return lambda: run(drifting, per_node={name: function})


def task_of(score):
    """Return a task with a score of some name."""
    losses = partial(nn.functional.cross_entropy, reduction="none")
    return topofl.Task("two", losses, {score: lambda outputs, targets: targets.float()})


PLAIN = problems.equal_clients()
BAD = (1, 4)
FLIP = attacks.Attack("flip", BAD, lambda sent, bad, weights, rng: -2 * sent)
TO_EACH = attacks.Attack("each", BAD, lambda sent, bad, weights, rng: sent, to_each=True)


def attacked(nodes=BAD, forge=FLIP.forge, run=run):
    return lambda: run(attackers=attacks.Attack("mine", nodes, forge))


def playing(use, init=lambda models: {}):
    """Return a method with a phase that calls ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return chain("own", local=sgd(0.1, batch_size=4), tried=Phase(init, apply))


def plays(use, **changes):
    return lambda: run(playing(use), **changes)


def later(use):
    """Return a call of a run in which a phase does something in round 5 only."""
    method = playing(lambda models, round: use(models, round) if round.t == 4 else None)
    return lambda: trained(method, rounds=6)


WITHOUT_NUMBERS = ("the phase 'tried' must work on models without numbers", "flat.is_meta")


def looks_at_numbers(models, round):
    if float(models.flat.sum()) != 0:
        round.mix(UNIFORM, models.flat)


def through_numpy(models, round):
    models.flat.copy_(torch.from_numpy(models.flat.numpy() * 0.5))


def late(use):
    """Return a call of a run with a phase that does something where models have numbers."""

    def act(models, round):
        round.mix(UNIFORM, models.flat) if models.flat.is_meta else use(models, round)

    return lambda: trained(playing(act))


def estimating(use):
    return lambda: topofl.estimate(playing(use), model=problems.linear(), clients=PLAIN)


def replacing(models, round):
    models.flat = models.flat * 0.5


def aggregating(rule, run=run):
    method = playing(lambda models, round: round.aggregate(round.weights, models.flat, rule))
    return lambda: run(method)


def in_place(own, received, weights):
    return own.add_((weights[:, None] * received).sum(0))


def mean_of_two(own, received, weights):
    return (own + received[0]) / 2


def late_in_place(own, *received):
    return own + 1 if own.is_meta else in_place(own, *received)


def stated(init=lambda models: {}, apply=lambda models, state, round: state):
    return lambda: run(chain("own", tried=Phase(init, apply)))


def notes(name="a", value=1.0):
    return plays(lambda models, round: round.note(name, value))


def notes_later(value, first):
    """Return a call of a run in which a phase notes another value in the dry run."""

    def note(models, round):
        round.note("a", first if models.flat.is_meta else value)

    return lambda: trained(playing(note))


def resumed(change, **start):
    """Return a call that continues a run with other settings."""

    def call(path):
        trained(rounds=1, saving=path, **start)
        run(saving=Saving(path, resume=True), **start | change)

    return call


TABLES = {
    "data": {"name": "digits", "n": 6, "seed": 1},
    "algorithm": {"name": "dsgd", "lr": 0.5, "batch_size": 8},
    "topology": "ring",
    "run": {"rounds": 2, "seed": 3, "progress": False},
}


def built(**tables):
    return lambda: config.build(TABLES | tables)


TYPE_ERRORS = {
    # arguments
    "`algorithm` must be an Algorithm": lambda: run("dsgd"),
    "`clients` must be a Partition": lambda: run(clients=[1, 2]),
    "`rounds` must be an integer": lambda: run(rounds=1.5),
    "`topology` must be given, since dsgd exchanges": lambda: run(topology=None),
    "`mixing` must be a weight rule": lambda: run(mixing="metropolis_hastings"),
    "`mixing` must return a MixingMatrix": lambda: run(mixing=lambda g: np.eye(6)),
    "'device'; write compute=Compute(device=...)": lambda: topofl.run(device=1),
    "run() has no argument 'every'; write evaluation=Ev": lambda: topofl.run(every=1),
    "Evaluation(every=...) or saving=Saving(every=...)": lambda: topofl.run(every=1),
    "'eval_every'; write evaluation=Evaluation(every=...); it": lambda: topofl.run(eval_every=1),
    "'topolgy'; did you mean 'topology'? It has algorithm": lambda: topofl.run(topolgy=1),
    "'zzz'; it has algorithm, model, clients, ": lambda: topofl.run(zzz=1),
    "estimate() has no argument 'resume'; it has algorithm, ": lambda: topofl.estimate(resume=True),
    # models
    "`model` must be an nn.Module": lambda: run(model="logistic"),
    "got type; make one, Linear(...)": lambda: run(model=nn.Linear),
    "got function; give what it returns": lambda: run(model=lambda: problems.linear()),
    "got list; give nodes different networks by models.of_kinds(": lambda: run(
        model=[problems.linear()] * 6
    ),
    "got Dataset; divide it among the nodes, as by data.iid(": lambda: run(clients=PLAIN.dataset),
    # options
    "`every` must be an integer, got None": lambda: Evaluation(every=None),
    "`nodes` must be an integer, got 1.5": lambda: Evaluation(nodes=1.5),
    "`fine_tune` must be a Phase such as sgd": lambda: Evaluation(fine_tune="sgd"),
    "`fine_tune` must be a Phase": lambda: Evaluation(fine_tune=True),
    ("`fine_tune` must be a Phase",): lambda: chain("mine", local=sgd(0.1), fine_tune=3),
    "`also` must be a dictionary such as": lambda: Evaluation(also=[mean]),
    "`also['a']` must be a function of (models, round), got 3": lambda: Evaluation(also={"a": 3}),
    "`per_node['a']` must be a function of (models, round), got one": per_node(lambda models: 0),
    "`dtype` must be a torch dtype such as torch.f": lambda: Compute(dtype="float32"),
    "`chunk` must be an integer or \"auto\", got 'all'": lambda: Compute(chunk="all"),
    "`folder` must be the path of a folder, as text or a pathlib.Path, got 3": lambda: Saving(3),
    "`evaluation` must be a topofl.Evaluation, a number of rou": lambda: run(evaluation=True),
    ("a topofl.Evaluation, ", "'own_test', got 2.5"): lambda: run(evaluation=2.5),
    "`compute` must be a topofl.Compute or a device such as 'cuda', got 0": lambda: run(compute=0),
    ("`saving` must be a topofl.Saving or", "'runs/a', got True"): lambda: run(saving=True),
    # evaluations
    ("must return models or", "got None; return models.like(flat)"): also(
        lambda models, round: None
    ),
    # attacks
    "`attackers` must be an Attack": lambda: run(attackers="flip"),
    ("`forge` of the attack 'mine'", "got one of (sent)"): attacked(forge=lambda sent: sent),
    ("`nodes`", "'a'"): attacked(["a"]),
    ("`nodes`", "got 3"): attacked(3),
    # phases
    ("'tried' must change models in place: ", "'flat'; ", "models.flat.copy_"): plays(replacing),
    ("`init` of the phase 'tried' must return its state", " got NoneType"): stated(
        lambda models: None
    ),
    "`apply` of the phase 'tried' must return its state": stated(apply=lambda *_: None),
    "must return tensors by name, got int as 'a'": stated(lambda models: {"a": 3}),
    "`init` of the phase 'tried' must be a function, got None": stated(init=None),
    "`apply` of the phase 'tried' must be a function, got 3": stated(apply=3),
    "`settings` of the phase 'a' must be a dictionary, got None": lambda: chain(
        "own", a=gossip()._replace(settings=None)
    ),
    ("`weights` of round.mix must be a MixingMatrix", ", got ndarray; ", "from_we"): plays(
        lambda models, round: round.mix(np.eye(6), models.flat)
    ),
    "`weights` of round.send": plays(lambda models, round: round.send(np.eye(6), 8)),
    "`key` must be text": plays(lambda models, round: round.gradients(models, 4, None)),
    ("`rule` of round.aggregate must be", "got 'median'", "; give"): aggregating("median"),
    "(own, received, weights), got one of (own, r": aggregating(lambda own, received: own),
    "`rule` must be a function of (own, received, w": lambda: algorithms.aggregate("median"),
    # configured
    "[evaluation] `every` must be an integer, got True": built(evaluation=True),
    "[evaluation] `fine_tune` must be a Phase": built(evaluation={"fine_tune": "sgd"}),
}

VALUE_ERRORS = {
    # arguments
    "`rounds` must be at least 1": (lambda: run(rounds=0), lambda: trained(rounds=1)),
    ("give records that fit into memory, got ", "; take fewer rounds"): lambda: run(rounds=10**15),
    "`seed` must be at least 0": lambda: run(seed=-1),
    "`init` must be one of 'common'": lambda: run(init="zero"),
    "`progress`": lambda: run(progress="yes"),
    "has n=7, `clients` has n=6": lambda: run(topology=topologies.ring(7)),
    "must be 0 off the edges": (
        lambda: run(mixing=mixing.uniform(STAR)),
        lambda: trained(mixing=UNIFORM),
    ),
    "`mixing` must have rows that sum": lambda: run(topology=STAR, mixing=EQUAL_PUSHES),
    ("`topology` must, with `own_weights`, have columns", " of networkx", "; push"): (
        lambda: run(**PUSHED),
        lambda: trained(**PUSHED, mixing=EQUAL_PUSHES),
    ),
    "nodes of networkx in the same order: node 'a' is row 5": (
        lambda: run(topology=LETTERS, mixing=mixing.from_weights(BACKWARDS)),
        lambda: trained(topology=LETTERS, mixing=mixing.from_weights(BACKWARDS, LETTERS)),
    ),
    "`distributed` must be False unless torchrun starts": lambda: run(distributed=True),
    # models
    "runs call it with one tensor, not with input1, input2; give": lambda: run(
        model=nn.Bilinear(36, 36, 3)
    ),
    "cannot take examples of shape (1, 6, 6)": lambda: run(model=models.logistic_regression(50)),
    "`compile` must be False for a model with running": lambda: run(
        model=after(nn.Dropout()), compile=True
    ),
    "at least n_classes=3 logits": lambda: run(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 2))),
    "must have parameters to train": lambda: run(model=nn.Flatten()),
    "BatchNorm2d (layer '0')": (
        lambda: run(model=after(nn.BatchNorm2d(1, track_running_stats=False))),
        lambda: trained(model=after(nn.BatchNorm2d(1))),
    ),
    "parameters of one dtype": changed(lambda layer: setattr(layer, "bias", DOUBLE)),
    "must not contain OptimizedModule (layer ''): it is compiled; pass the model before": (
        lambda: run(model=torch.compile(problems.linear()))
    ),
    "'1.spare' does not change its output; remove it, or freeze": changed(
        lambda layer: setattr(layer, "spare", SINGLE)
    ),
    "must not change its buffers in evaluation, 'seen' changed": lambda: run(model=Counting()),
    "the same input in evaluation, but it draws": lambda: run(model=Drawing(36, 3)),
    ("the same input in evaluation, but it", "only if self.training, as nn.Dropout does"): (
        lambda: run(model=after(Noise(always=True))),
        lambda: trained(model=after(Noise(always=False))),
    ),
    ("must draw its initial parameters by torch", "'1.bias' got other"): (
        lambda: run(model=nn.Sequential(nn.Flatten(), Own(36, 3))),
        lambda: trained(model=nn.Sequential(nn.Flatten(), Own(36, 3)), init="given"),
    ),
    # options
    "`every` must be at least 1, got 0": (lambda: Evaluation(every=0), lambda: Evaluation(every=1)),
    ("`on` must be one of", "did you mean 'test'"): lambda: Evaluation(on="tset"),
    "`on` must have each name once, got val, val": lambda: Evaluation(on=("val", "val")),
    ("`without` must be one of", "got 'consensus'; did you mean 'consensus_distance'"): (
        lambda: Evaluation(without="consensus"),
        lambda: Evaluation(without="consensus_distance"),
    ),
    "`before_exchange` must be True or False": lambda: Evaluation(before_exchange="both"),
    "`fine_tune_every` must be at least 1, got 0": lambda: Evaluation(fine_tune_every=0),
    "`before_exchange` must be False with on=(), which scores no models, got True; leave": (
        lambda: Evaluation(on=(), before_exchange=True),
        lambda: Evaluation(on=(), before_exchange=False),
    ),
    "`fine_tune` must be None with on=()": (
        lambda: Evaluation(on=(), fine_tune=TUNED),
        lambda: Evaluation(on=(), fine_tune=False),
    ),
    "`also` must be None with on=()": lambda: Evaluation(on=(), also={"mean": mean}),
    "`examples` must be None with on=()": lambda: Evaluation(on=[], examples=3),
    ("names in `also` must be identifiers other", "'the mean'; rename"): also(mean, "the mean"),
    ("names in `also`", "got 'fine_tuned'; rename it"): also(mean, "fine_tuned"),
    "must be identifiers other than": also(mean, "own_val"),
    "names in `per_node` must differ from all columns of the h": per_node(mean, "node"),
    "`device` must be such as 'cpu' or 'cuda:0', got 'tpu'": lambda: Compute("tpu"),
    "`device` must be": lambda: Compute(1.5),
    "`dtype` must be a floating-point type among": lambda: Compute(dtype=torch.int64),
    "`dtype` must be torch.float32 with pre": lambda: Compute(dtype=DOUBLE.dtype, precision="bf16"),
    "`precision` must be one of 'fp32', 'bf16'": lambda: Compute(precision="fp16"),
    ("`executor` must be one of ", "did you mean 'batched'"): lambda: Compute(executor="batch"),
    "`chunk` must be at least 1, got 0": (lambda: Compute(chunk=0), lambda: Compute(chunk=1)),
    '`chunk` must be "auto" or 1 with executor="looped"': (
        lambda: Compute(executor="looped", chunk=2),
        lambda: Compute(executor="looped", chunk=1),
    ),
    "`channels_last` must be True, False or 'auto', got 1": lambda: Compute(channels_last=1),
    "`compile` must be True or False, got 'auto'": lambda: Compute(compile="auto"),
    "`on_disconnected` must be one of 'raise', 'allow'": lambda: Compute(on_disconnected="ignore"),
    "`on_divergence` must be one of 'raise', 'freeze', 're": lambda: Compute(on_divergence="stop"),
    "`placement` must be None unless the run is distributed": lambda: Compute(placement=[0, 1]),
    "`placement` must be at least 0": (
        lambda: Compute(distributed=True, placement=[0, -1]),
        lambda: Compute(distributed=True, placement=[0, 0]),
    ),
    "`rank_timeout` must be": lambda: Compute(rank_timeout=0),
    "`folder` must be the path of a folder, got an empty text": lambda: Saving(""),
    ("`every` must be at least 1",): (lambda: Saving(every=0), lambda: Saving(every=1)),
    "`resume` must be True or False, got 'yes'": lambda: Saving("a", resume="yes"),
    "`resume` must be False without a folder to resume from; give": lambda: Saving(resume=True),
    # evaluations
    "`fine_tune` must be a phase of each node alone": lambda: run(fine_tune=gossip()),
    "got one that uses mixed gradients": lambda: run(
        fine_tune=algorithms.train(algorithms.descend(lr=0.1), gradient=mixing.uniform)
    ),
    "got one that uses the state of another phase": lambda: run(
        fine_tune=algorithms.on_kept_models("local", sgd(0.1))
    ),
    "'fc' matches none": lambda: run(fine_tune=sgd(0.1, part=algorithms.part("fc"))),
    ("`epochs` must", " one per node, n=6, got 2"): lambda: run(fine_tune=sgd(1, epochs=[1, 2])),
    ("`lr` must be at most ", " in the phase 'fine_tune'"): lambda: run(fine_tune=sgd(1e300)),
    "`evaluation.fine_tune_every` must be None without": lambda: run(fine_tune_every=2),
    ("must be a multiple of every=2, ", " got 3"): (
        lambda: run(fine_tune=TUNED, every=2, fine_tune_every=3),
        lambda: trained(fine_tune=TUNED, every=2, fine_tune_every=4),
    ),
    "'own_test' is empty; partition with test_fraction": lambda: run(clients=PLAIN, on="own_test"),
    "'own_val' is empty; partition with val_fraction": lambda: run(clients=PLAIN, on="own_val"),
    "'val' is empty; load the data with val=": lambda: run(clients=UNTESTED, on=("test", "val")),
    ("`evaluation.examples` must be ", "=18, got 19; None takes all"): (
        lambda: run(examples=19),
        lambda: trained(examples=18),
    ),
    "must name a set with examples": lambda: run(clients=UNTESTED, on="val", examples=2),
    "`evaluation.examples` must be None with on='own_t": lambda: run(on="own_test", examples=3),
    "`evaluation.nodes` must be between 1 and n=6, got 7; None takes all": (
        lambda: run(nodes=7),
        lambda: trained(nodes=6),
    ),
    "must be between 1 and n=1": lambda: run(algorithms.centralized(0.1), nodes=2),
    ("=(6, 111), got shape (1, 111); for one", ", return flat.expand(n, -1)"): also(
        lambda models, round: models.flat[:1]
    ),
    "torch.float32 on cpu, got torch.float64 on cpu; return flat.to(models.flat)": also(
        lambda models, round: models.flat.double()
    ),
    ("`evaluation.also['a']` must not change the models", "work on a copy"): also(changing),
    ("also['a']", "must not change the models"): also(changing_mass),
    ("must not change the models",): also(training),
    ("(6, 111) after round 0, got ZeroDivisionError: ", "; correct the function"): also(dividing),
    "must give every column a unique name, got 'loss_a'": also(mean, task=task_of("loss_a")),
    "not give a column the name 'train_loss', which": also(mean, "loss", task=task_of("train")),
    "(n,)=(6,), got shape (6, 111); reduce": per_node(lambda models, round: models.flat),
    ("must return one number per node", "got 3.0"): per_node(lambda models, round: 3.0),
    "must return real numbers, got <U1": per_node(lambda models, round: np.array(list("abcdef"))),
    "must not change the models": per_node(lambda models, round: models.flat.mul_(2)[:, 0]),
    "per_node['a']` must return a result for models of shape (6, 111)": per_node(dividing),
    ("`evaluation.per_node` must differ from ", "'accuracy'; rename"): per_node(mean, "accuracy"),
    ("`evaluation.per_node` must differ from ", "'drift'; rename it"): per_node(mean, "drift"),
    # attacks
    "some of the nodes 0 to 5": (attacked([6]), attacked([5], run=trained)),
    "at least one honest node": (attacked(range(6)), attacked(range(5), run=trained)),
    "must not change": attacked(forge=lambda sent, *_: sent.mul_(2), run=trained),
    ("`forge` of the attack 'mine' must return a tensor of shape", "got shape"): attacked(
        forge=lambda sent, *_: sent[:1], run=trained
    ),
    "cannot be forged": lambda: run(
        algorithms.clique_averaging(0.1), topology=problems.cliques(PLAIN), attackers=FLIP
    ),
    "no attack can forge": lambda: run(algorithms.relay_sgd(0.1), topology=STAR, attackers=FLIP),
    "must send the same to all": (
        lambda: run(algorithms.ad_psgd(0.1), attackers=TO_EACH),
        lambda: trained(algorithms.ad_psgd(0.1), attackers=FLIP),
    ),
    "which has a server": lambda: run(algorithms.fedavg(0.1), attackers=TO_EACH),
    "nodes exchange nothing": lambda: run(algorithms.centralized(0.1), attackers=FLIP),
    "`compute.scratch` must be None with attackers": lambda path: run(
        attackers=FLIP, scratch=path, device="cpu"
    ),
    "`nodes`": attacked(()),
    ("`nodes`", "1"): attacked([1, 1]),
    ("`nodes`", "-1"): attacked([-1]),
    # phases
    ("without numbers, ", "; to multiply", "use round.mix("): plays(
        lambda models, round: models.flat.copy_(torch.as_tensor(round.weights @ models.flat))
    ),
    "`models.start` must be read in `init`": plays(
        lambda models, round: models.flat.copy_(models.start.expand_as(models.flat))
    ),
    ("but only nodes of some kinds use 'networks.0.1.weight'", "'tried' sends", "part(.."): (
        plays(lambda models, round: round.mix(UNIFORM, models.flat[:, :16]), model=kinds.model()),
        lambda: trained(
            playing(lambda models, round: round.mix(UNIFORM, models.flat[:, :15])),
            model=kinds.model(),
        ),
    ),
    ("kinds use 'networks.1.0.weight', which its phase 'tried' sends",): plays(
        lambda models, round: round.aggregate(UNIFORM, models.flat[:, 350:], mean_of_two),
        model=kinds.model(),
    ),
    ("`columns` of round.mix must be some of the 0 of", "slice(None, None"): plays(
        lambda models, round: round.mix(UNIFORM, models.flat[:, 111:])
    ),
    ("`columns` of round.mix must be some of the 111 of", "slice(90, 120, None)", "frozen"): (
        plays(lambda models, round: round.mix(UNIFORM, models, [slice(90, 120)])),
        lambda: trained(
            playing(lambda models, round: round.mix(UNIFORM, models, [slice(90, 111)]))
        ),
    ),
    ("`nbytes` of round.send must be one number", "shape"): plays(
        lambda models, round: round.send(UNIFORM, np.full(6, 8), server=True)
    ),
    ("`rule` of ", "rows without numbers, ", "where"): aggregating(
        lambda own, received, weights: own if own.sum() > 0 else -own
    ),
    ("`rule` of ", "rows without numbers, "): aggregating(
        lambda own, received, weights: torch.from_numpy(own.numpy())
    ),
    "must return a row of shape": aggregating(lambda own, received, weights: own[:2]),
    "'tried' must not change `own` in place": aggregating(in_place),
    "must not change `own` in place": aggregating(late_in_place, run=trained),
    ("of round.note must differ from all columns", "got 'bytes' in the phase"): notes("bytes"),
    "of the history, got 'node' in the phase 'tried'": notes("node"),
    "got 'accuracy'; rename it": notes("accuracy"),
    "`name` of round.note must be an identifier, such as 'moved', got 'a b'": notes("a b"),
    "be an identifier, such as 'moved', got 3 in the phase 'tried'": notes(3),
    "must note 'b' in the first rounds too": later(lambda models, round: round.note("b", 1.0)),
    "of one shape in all rounds, got 'a' both as": notes_later(1.0, np.zeros(6)),
    "got 'a' both as one number and as one per": notes_later(np.zeros(6), 1.0),
    # configured
    ("[evaluation] `Evaluation` takes every, ", "not 'evry'; did you mean 'every'"): built(
        evaluation={"evry": 3}
    ),
    "`evaluation.nodes` must be between 1 and n=6, got 7": built(evaluation={"nodes": 7}),
    "[compute] `compile` must be true or false, got 1": built(compute={"compile": 1}),
    "[compute] `device` must be such as 'cpu' or 'cuda:0', got 'tpu'": built(compute="tpu"),
    "[saving] `Saving` takes every, models, not 'folder'": built(saving={"folder": "x"}),
    ("[run] takes rounds, ", "not 'evaluation'; write it in a table of its own"): built(
        run={"rounds": 1, "evaluation": 3}
    ),
}

TOPOLOGY_ERRORS = {
    # arguments
    "must be connected for nodes to agree": (
        lambda: run(topology=APART),
        lambda: trained(topology=APART, on_disconnected="allow"),
    ),
    ("must be connected",): (
        lambda: run(topology=[APART] * 2),
        lambda: trained(topology=[APART, RING]),
    ),
    "`topology` must have groups": lambda: run(algorithms.clique_averaging(0.1)),
}

OTHER_RUN_ERRORS = {
    ("`resume` must continue the same run: ", "fine_tune.lr was 0.1, is 0.2"): resumed(
        {"fine_tune": sgd(0.2, batch_size=4)}, fine_tune=sgd(0.1, batch_size=4)
    ),
    "fine_tune.lr was 0.1, is None": resumed({"fine_tune": False}, fine_tune=TUNED),
    "fine_tune_every was None, is 20": resumed({"fine_tune_every": 20}, fine_tune=TUNED),
    "evaluation.on was ['test'], is ['test', 'val']": resumed({"on": ["test", "val"]}),
    ("evaluation.also was ", "mean", ", is "): resumed({"also": {"a": training}}, also={"a": mean}),
    ("evaluation.per_node was ", "first", ", is ", "second"): resumed(
        {"per_node": {"a": second}}, per_node={"a": first}
    ),
    "attackers": resumed({"attackers": TO_EACH}, attackers=FLIP),
    "topology": resumed({"topology": weighted_ring()}, **OWN_WEIGHTS),
}

TOPOLOGY_MISSING = "`topology` must be given, since own exchanges models"
NOTED = "`value` of round.note must be one real number, or one per node, (6,), got {} as 'a' in the"


def several():
    """Yield rows of the same kind of call."""
    for use in OF_A_GRAPH.values():
        yield TypeError, TOPOLOGY_MISSING, plays(use, topology=None)
        yield TypeError, TOPOLOGY_MISSING, estimating(use)
    for use in (looks_at_numbers, through_numpy):
        yield ValueError, WITHOUT_NUMBERS, plays(use), late(use)
    for value, shown in (
        (torch.zeros(4), "a tensor of shape (4,)"),
        (np.zeros(3), "an array of shape (3,)"),
        ("far", "'far'"),
        (None, "None"),
    ):
        for call in (notes(value=value), notes_later(value, 0.0)):
            yield ValueError, NOTED.format(shown), call


def rows():
    """Yield the error, its message, the call and the nearest one that is accepted."""
    for error, calls in (
        (TypeError, TYPE_ERRORS),
        (ValueError, VALUE_ERRORS),
        (TopologyError, TOPOLOGY_ERRORS),
        (OtherRunError, OTHER_RUN_ERRORS),
    ):
        for message, call in calls.items():
            yield error, message, *(call if isinstance(call, tuple) else (call,))


@pytest.mark.parametrize("row", [*rows(), *several()], ids=named)
@pytest.mark.filterwarnings("ignore")
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
