"""Runs that two versions of topofl must agree on, described by public names only.

Every algorithm of ``topofl.algorithms.__all__`` is a case: its arguments are taken from its
signature, so that a new one is included by itself. Each case runs batched and looped.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import topofl
from topofl import algorithms, attacks, clocks, data, mixing, topologies

N = 8
"""Number of nodes."""

ROUNDS = 5
"""Number of rounds per run."""

Case = Callable[[], dict[str, Any]]
"""A function that returns arguments of ``topofl.run``."""

CLOCK = {"compute": [1, 2.5, 1, 0.7, 3, 1, 1.5, 2], "delay": 0.3, "bandwidth": 1e4}

LEAST = {
    "lr": 0.05, "batch_size": 16, "epochs": 1, "gamma": 0.3, "delta": 0.3, "trim": 1, "budget": 2,
    "rounds": ROUNDS, "k": 2, "groups": [[0, 1, 2], [3, 4, 5, 6, 7]],
}  # fmt: skip
"""Arguments of all algorithms that take them."""

FURTHER = {
    "momentum": 0.9, "local_steps": 2, "steps": 2, "weight_decay": 0.01, "clip": 1.0,
    "lr_decay": 0.9, "participation": 0.5, "compressor": "random_k(0.3)", "clock": CLOCK,
    "delay": 2, "walks": 3, "merge": True, "nesterov": True, "every": 2, "mode": "push",
    "track": True, "decay": 0.01, "head_lr": 0.02, "head_epochs": 2, "fine_tune_epochs": 1,
    "gossip_steps": 2, "different_initial": True, "global_lr": 0.8, "lazy": False, "keep": False,
    "loss_refresh": "all",
}  # fmt: skip
"""Further arguments of the second case of an algorithm."""


def arguments_of(function: Callable[..., Any], **changes: Any) -> dict[str, Any]:
    """Return the arguments of an algorithm that it takes: steps, or epochs where it has both.

    FedNova, which took steps before the others did, takes steps.
    """
    known = inspect.signature(function).parameters
    given = {name: value for name, value in (LEAST | changes).items() if name in known}
    if "epochs" in given and function.__name__ != "fednova":
        given.pop("steps", None)
    if {"steps", "local_steps"} & {*given}:
        given.pop("epochs", None)
    return given


def made(name: str, **changes: Any) -> algorithms.Algorithm:
    """Return an algorithm with the least arguments, and changes of those that it takes."""
    function = getattr(algorithms, name)
    return function(**arguments_of(function, **changes))


@cache
def clients() -> data.Partition:
    """Return digits of 8 nodes with unlike labels and numbers of examples, and own test sets."""
    return data.dirichlet_per_class(
        data.digits(), N, alpha=1.0, min_size=10, seed=0, val_fraction=0.2, test_fraction=0.2
    )


@cache
def cliques() -> topofl.Topology:
    """Return D-Cliques of 4 nodes in a ring."""
    return topologies.dcliques(clients().label_counts, clique_size=4, inter="ring", seed=0)


def model() -> nn.Module:
    """Return a small network whose last layer is its head."""
    torch.manual_seed(0)
    layers = {"flat": nn.Flatten(), "body": nn.Linear(64, 8), "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict(layers | {"head": nn.Linear(8, 10)}))


def plain(algorithm: algorithms.Algorithm, **changes: Any) -> dict[str, Any]:
    """Return the arguments of a run of an algorithm."""
    return {
        "algorithm": algorithm,
        "model": model(),
        "clients": clients(),
        "topology": cliques(),
        "rounds": ROUNDS,
        "seed": 0,
        "evaluation": topofl.Evaluation(every=2, on=("test", "own_val")),
        "compute": {"on_disconnected": "allow"},
        **changes,
    }


def of_name(name: str, changes: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """Return the arguments of a run of an algorithm of the library."""
    return plain(made(name, **changes), **how)


def of_algorithms() -> Iterator[tuple[str, Case]]:
    """Yield every algorithm with the least arguments, with further ones, and on other graphs."""
    peers = topofl.as_topology(lambda t: topologies.random_regular(N, 3, seed=t))
    for name in algorithms.__all__:
        yield name, partial(of_name, name, {})
        yield f"{name} with all options", partial(of_name, name, FURTHER)
        yield f"{name} from different models", partial(of_name, name, {}, init="independent")
    for name in ("dsgd", "osgp", "push_diging", "dfedpgp", "sab"):
        directed = topologies.one_peer_exponential(N)
        yield f"{name} on directed graphs", partial(of_name, name, {}, topology=directed)
    for name in ("dsgd", "dsgt", "local_gt", "coordinate_median", "fedper", "dfedavgm_p"):
        yield f"{name} on new graphs", partial(of_name, name, {}, topology=peers)
    apart = topofl.as_topology([(0, 4), (4, 2), (1, 5), (2, 3), (6, 7)])
    yield "dsgd on two components", partial(of_name, "dsgd", {}, topology=apart)


def of_options() -> Iterator[tuple[str, Case]]:
    """Yield runs with attackers, compressors, clocks, cohorts, and parts of models."""
    attackers = {
        "sign_flip": attacks.sign_flip(nodes=[1, 4], scale=2.0),
        "noise": attacks.noise(nodes=[1, 4], std=0.1),
        "alie": attacks.alie(nodes=[1, 4]),
        "dissensus": attacks.dissensus(nodes=[1, 4], strength=1.0),
    }
    for kind, attack in attackers.items():
        against = ["dsgd", "coordinate_median", "clipped_gossip", "trimmed_mean"]
        against += [] if kind == "dissensus" else ["fedavg", "dpfl", "ad_psgd", "push_diging"]
        for name in against:
            yield f"{name} attacked by {kind}", partial(of_name, name, {}, attackers=attack)
    for name in ("beer", "choco_sgd", "deepsqueeze"):
        for compressor in ("top_k(0.2)", "random_k(0.3)", "quantized(3)", "sign", "no_compression"):
            words = {"compressor": compressor}
            yield f"{name} by {compressor}", partial(of_name, name, words)
    times = {
        "constant": CLOCK,
        "exponential": clocks.Clock(clocks.exponential(1.0), clocks.exponential(0.2)),
        "lognormal": clocks.Clock(clocks.lognormal(1.0, 0.5), 0.1),
    }
    for kind, clock in times.items():
        for name in ("ad_psgd", "random_walks"):
            yield f"{name}, clock {kind}", partial(of_name, name, {"clock": clock})
        timed = algorithms.timed(made("dsgd"), clock)
        yield f"timed dsgd, clock {kind}", partial(plain, timed)
    for name in ("fedavg", "fedadam", "feddyn", "scaffold", "ditto", "apfl"):
        cohort = {"participation": 2, "weight_decay": 0.0}
        yield f"{name} with cohorts of 2", partial(of_name, name, cohort)
    for share, kept in (("body", algorithms.body), ("head", algorithms.head)):
        chain = algorithms.chain(
            "shared", local=algorithms.sgd(0.05, batch_size=16), exchange=algorithms.gossip(kept)
        )
        yield f"gossip of the {share}", partial(plain, chain)


def evaluated(name: str, **how: Any) -> dict[str, Any]:
    """Return the arguments of a run with an evaluation of its own."""
    return of_name(name, {}, evaluation=topofl.Evaluation(**how))


def of_evaluations() -> Iterator[tuple[str, Case]]:
    """Yield runs with all that is evaluated, in other chunks, and resumed from a checkpoint."""

    def mean(models: algorithms.Models, round: algorithms.Round) -> algorithms.Models:
        copy = models.like(models.flat.mean(0).expand(round.n, -1).clone())
        round.mix(round.weights, copy.flat)
        return copy

    def length(models: algorithms.Models, round: algorithms.Round) -> torch.Tensor:
        return models.flat.norm(dim=1)

    tuned = algorithms.sgd(0.05, batch_size=16, epochs=1)
    whole = {
        "every": 2, "on": ("own_test", "test"), "before_exchange": True, "fine_tune": tuned,
        "fine_tune_every": 2, "also": {"mean": mean},
    }  # fmt: skip
    for name in ("dsgd", "fedrep", "clique_averaging", "ditto", "push_diging"):
        yield f"{name}, all evaluations", partial(evaluated, name, **whole)
    yield "dsgd, values per node", partial(evaluated, "dsgd", every=1, per_node={"length": length})
    few = topofl.Evaluation(every=1, nodes=3, examples=50)
    for name in ("dsgd", "knn_per", "dpfl"):
        yield f"{name}, few evaluated", partial(of_name, name, {}, evaluation=few)
    chunked = {"chunk": 3, "on_disconnected": "allow"}
    for name in ("dsgd", "clique_averaging", "dsgt", "fedavg", "scaffold"):
        yield f"{name} in chunks", partial(of_name, name, {}, compute=chunked)
    for name in ("dsgd", "osgp", "choco_sgd", "scaffold", "random_walks", "fedper"):
        yield f"{name}, resumed", partial(of_name, name, FURTHER, resumed=3)


State = dict[str, torch.Tensor]


def stateless(models: algorithms.Models) -> State:
    """Return no state."""
    return {}


def accelerated(lr: float) -> algorithms.Algorithm:
    """Return gossip with memory: the change by the last exchange is repeated in part."""

    def init(models: algorithms.Models) -> State:
        return {"before": models.flat.clone(), "times": torch.zeros(1, dtype=torch.int64)}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        current = models.flat.clone()
        round.mix(round.weights, models.flat)
        models.flat.add_(current - state["before"], alpha=0.2)
        return {"before": current, "times": state["times"] + 1}

    return algorithms.chain(
        "accelerated",
        local=algorithms.sgd(lr, batch_size=16),
        exchange=algorithms.Phase(init, apply, {"memory": 0.2}),
    )


def two_phases(lr: float) -> algorithms.Algorithm:
    """Return a method whose second phase reads the state of the first: steps along mixed sums."""

    def collect(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        state["sum"].mul_(0.5).add_(round.gradients(models, 16, "collected"))
        round.mix(round.weights, state["sum"])
        return state

    def move(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        noise = torch.from_numpy(round.rng("noise").standard_normal(tuple(models.flat.shape)))
        models.flat.sub_(round.state("collect")["sum"], alpha=lr)
        models.flat.add_(noise.to(models.flat), alpha=1e-3)
        round.mix(round.weights, models.flat)
        return state

    first = algorithms.Phase(lambda models: {"sum": torch.zeros_like(models.flat)}, collect)
    return algorithms.chain("two phases", collect=first, move=algorithms.Phase(stateless, move))


def seldom_head(lr: float) -> algorithms.Algorithm:
    """Return a method that mixes the body in every round, and the head in every other one."""

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        round.mix(round.weights, models.flat, models.columns(algorithms.body))
        if models.flat.is_meta or round.t % 2:
            round.mix(round.weights, models.flat, models.columns(algorithms.head))
        return state

    return algorithms.chain(
        "seldom head",
        local=algorithms.train(
            algorithms.descend(algorithms.momentum(0.9), lr=lr), batch_size=16, steps=2
        ),
        exchange=algorithms.Phase(stateless, apply, rowwise=True),
    )


def cohort(lr: float) -> algorithms.Algorithm:
    """Return a server's average of 3 participants, extrapolated from the average before."""
    participants = algorithms.sampled(3)

    def init(models: algorithms.Models) -> State:
        return {"server": models.start.clone()}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        members = participants(round)
        round.mix(mixing.average_of(round.sizes, members), models.flat, server=True)
        mean = models.flat.mean(0, keepdim=True)
        models.flat.add_(mean - state["server"], alpha=0.1)
        return {"server": mean}

    local = algorithms.train(
        algorithms.descend(lr=lr), batch_size=16, epochs=1, participants=participants
    )
    return algorithms.chain("cohort", local=local, server=algorithms.Phase(init, apply))


def pushed(lr: float) -> algorithms.Algorithm:
    """Return push-sum with weights of its own, over graphs that may be directed."""

    def init(models: algorithms.Models) -> State:
        return {"weight": torch.ones_like(models.flat[:, :1])}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        sums, weight = models.flat * state["weight"], state["weight"].clone()
        round.mix(round.push_weights, sums, scalars=1)
        round.mix(round.push_weights, weight, counted=False)
        models.flat.copy_(sums / weight)
        return {"weight": weight}

    return algorithms.chain(
        "pushed", local=algorithms.sgd(lr, batch_size=16), push=algorithms.Phase(init, apply)
    )


def noted(lr: float) -> algorithms.Algorithm:
    """Return D-SGD along signs of running means, which notes distances and lengths."""

    def update(
        g: torch.Tensor, theta: torch.Tensor, own: State, step: algorithms.Step
    ) -> torch.Tensor:
        mean = own["mean"].mul_(0.7).add_(g, alpha=0.3)
        return mean + 0.1 * g.sign() + 0.01 * theta

    term = algorithms.Term(
        "sign", update, lambda models: {"mean": torch.zeros_like(models.flat)}, elementwise=True,
        settings={"sign": 0.1},
    )  # fmt: skip

    def note(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        round.note("moved", (models.flat - state["last"]).norm())
        round.note("length", models.flat.norm(dim=1))
        return {"last": models.flat.clone()}

    return algorithms.chain(
        "noted",
        local=algorithms.train(algorithms.descend(term, lr=lr), batch_size=16, steps=2),
        exchange=algorithms.gossip(),
        note=algorithms.Phase(lambda models: {"last": models.flat.clone()}, note),
    )


STRANGERS: dict[str, Callable[[float], algorithms.Algorithm]] = {
    "gossip with a state": accelerated,
    "two phases": two_phases,
    "columns": seldom_head,
    "server and participants": cohort,
    "push weights": pushed,
    "own term and notes": noted,
}
"""Functions of a learning rate, by what they use of the interface.

They are by someone who has read only the page "Write your own method", and use what its tables
list: models, the round, phases, terms and parts. All names are public, and none of the methods may
need a change when the engine changes.
"""


def of_strangers() -> Iterator[tuple[str, Case]]:
    """Yield the methods that are written against the public interface."""
    for name, method in STRANGERS.items():
        yield name, lambda method=method: plain(method(0.1))
        yield (
            f"{name} over directed graphs",
            lambda method=method: plain(method(0.1), topology=topologies.one_peer_exponential(N)),
        )


def cases(about: str) -> dict[str, Case]:
    """Return cases by name: of ``"histories"``, or of ``"methods"`` of strangers."""
    kinds = [of_strangers] if about == "methods" else [of_algorithms, of_options, of_evaluations]
    return {name: case for kind in kinds for name, case in kind()}


def history_of(case: Case, executor: str, distributed: bool, folder: Path) -> topofl.History:
    """Return the history of a case in float64; a resumed case first trains for fewer rounds.

    Parameters
    ----------
    case
        The run.
    executor
        ``"batched"`` or ``"looped"``.
    distributed
        Whether this process is one of several ranks.
    folder
        Folder of the checkpoints of a resumed case, the same on all ranks.
    """
    how = case()
    settings = how.pop("compute") | {"executor": executor, "distributed": distributed}
    if executor == "looped":
        settings.pop("chunk", None)
    how["compute"] = topofl.Compute(device="cpu", dtype=torch.float64, **settings)
    rounds = how.pop("resumed", None)
    if rounds is None:
        return topofl.run(**how, progress=False)
    saving = topofl.Saving(folder, every=1)
    topofl.run(**how | {"rounds": rounds}, saving=saving, progress=False)
    return topofl.run(**how, saving=topofl.Saving(folder, resume=True), progress=False)
