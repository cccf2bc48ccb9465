"""Arguments of a run, resolved and checked against each other before any work is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.check import check_choice, check_int, shown
from topofl._support.text import node_name
from topofl.algorithms.contract.needs import check_needs
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.data import Partition
from topofl.engine.checks.attackers import check_attack, check_attackers
from topofl.engine.checks.evaluation import (
    check_evaluated,
    check_fine_tuning,
    evaluation_sets,
    with_fine_tuning,
)
from topofl.engine.checks.graphs import (
    check_graphs,
    check_topology,
    unequal_share,
)
from topofl.engine.checks.model import check_batched, check_model, check_output
from topofl.engine.checks.task import as_task, check_task, check_voters
from topofl.engine.distributed.start import local_device
from topofl.engine.dry_run import DRY_ROUNDS, complete_graph, trace_first_rounds
from topofl.engine.evaluation import Evaluated
from topofl.engine.gradients import Order, image_order
from topofl.engine.options import Compute, Evaluation
from topofl.engine.plan import Backend, Plan
from topofl.engine.population import Layout
from topofl.engine.requests import Inputs, Trace
from topofl.engine.shorthands import as_compute, as_evaluation
from topofl.mixing import MixingMatrix, metropolis_or_uniform, own_weights, uniform, warning_once
from topofl.tasks import Task, cross_entropy
from topofl.topology import Topology, TopologySequence

__all__ = ["Setup", "check_rounds_and_seed", "resolve"]


@dataclass(frozen=True, eq=False)
class Setup:
    """Checked arguments of a run, as returned by :func:`resolve`.

    Parameters
    ----------
    algorithm
        The algorithm, with the fine-tuning of the run.
    model, module
        The model as given, and the copy of it that is used, on the device.
    sample
        At most two examples, on the device.
    clients
        The partition, pooled if the algorithm pools clients.
    inputs, trace
        Inputs of all rounds, and what a dry run of the first ones found.
    rounds
        Number of rounds; None in an estimate of memory, which has none.
    seed, init
        As in :func:`topofl.run`.
    evaluation, compute
        Options, with shorthands expanded.
    device
        Device of `compute`, or the default one.
    sets
        Evaluated nodes and examples, by the names of the sets.
    task
        The loss and the scores.
    attack
        The attack; None: no attackers.
    share
        The node with the largest share in the average on which models agree, and its share; None:
        all shares are equal, or not known.
    """

    algorithm: Algorithm
    model: nn.Module
    module: nn.Module
    sample: Tensor
    clients: Partition
    inputs: Inputs
    trace: Trace
    rounds: int | None
    seed: int
    init: str
    evaluation: Evaluation
    compute: Compute
    device: torch.device
    sets: Mapping[str, Evaluated]
    task: Task
    attack: Attack | None
    share: tuple[int, float] | None = None

    @property
    def graphs(self) -> Topology | TopologySequence:
        """The graphs that the algorithm uses; they have no edges if it exchanges nothing."""
        return self.inputs.graphs or complete_graph(self.clients.n)

    @cached_property
    def order(self) -> Order:
        """Function that converts inputs and parameters to the memory format of the model."""
        return image_order(self.module, self.sample, self.compute.channels_last)

    def backend(self, plan: Plan | None = None) -> Backend:
        """Return the backend of the run, with the plan of a run that is resumed."""
        return _backend(self.compute, self.device, plan)

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """Settings of evaluations as JSON values, without those of fine-tuning.

        Fine-tuning is in the algorithm's settings.
        """
        names = [
            field.name
            for field in fields(self.evaluation)
            if field.name not in ("fine_tune", "also", "per_node")
        ]
        settings = {name: getattr(self.evaluation, name) for name in names}
        settings["on"] = list(self.evaluation.on)
        for argument in ("also", "per_node"):
            if functions := getattr(self.evaluation, argument):
                settings[argument] = {name: _name_of(f) for name, f in functions.items()}
        return settings


def _name_of(function: Any) -> str:
    """Return ``"module:name"`` of a function, or of the type of another callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def resolve(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    rounds: int | None,
    seed: int = 0,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    init: str = "common",
    evaluation: Any = None,
    compute: Any = None,
    task: Task | None = None,
    attackers: Attack | None = None,
) -> Setup:
    """Return the checked setup of a run from the arguments of :func:`topofl.run`.

    Raises
    ------
    ValueError, TypeError
        If the arguments do not fit each other.
    TopologyError
        If the topology does not meet the needs of the algorithm.
    """
    _check_kinds(algorithm, clients)
    evaluation, compute, task = as_evaluation(evaluation), as_compute(compute), as_task(task)
    rounds, seed = check_rounds_and_seed(rounds, seed, init)

    algorithm = with_fine_tuning(algorithm, evaluation.fine_tune)
    if not evaluation.on:
        algorithm = replace(algorithm, fine_tune=None, neighbors=None)  # which only scores need
    clients = clients.pooled() if algorithm.pooled else clients
    check_fine_tuning(algorithm, evaluation, clients.n, rounds)
    check_evaluated(clients, evaluation)
    check_voters(algorithm, task)
    given = check_topology(algorithm, topology, clients.n)
    attack = check_attackers(attackers, algorithm, clients.n)
    if attack is not None and compute.scratch is not None:
        raise ValueError(
            "`compute.scratch` must be None with attackers, who have all models in memory, got "
            f"{shown(str(compute.scratch))}; leave it out"
        )

    device = torch.device(compute.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    device = local_device(device) if compute.distributed else device
    module, sample = _checked_model(model, clients, _backend(compute, device), task)
    attacking = () if attack is None else attack.nodes
    sets = evaluation_sets(clients, evaluation, seed, device, attacking)
    inputs = Inputs(
        algorithm, Layout.of(module), compute.dtype, given, *weight_rules(mixing, given),
        np.array(list(map(len, clients.train))), seed, init == "independent", attack,
    )  # fmt: skip
    rounds_played = DRY_ROUNDS if rounds is None else min(rounds, DRY_ROUNDS)
    if given is not None:
        check_needs(algorithm.name, algorithm.needs, given, rounds_played)
    trace = trace_first_rounds(inputs, rounds_played)
    rule = partial(inputs.resolve, inputs.push if trace.pushes else inputs.pull)
    graphs = check_graphs(trace, given, clients, mixing, compute.on_disconnected, rule)
    check_attack(trace, attack, graphs, rule)
    share = unequal_share(trace, graphs, rule, warn=mixing is None)
    return Setup(
        algorithm, model, module, sample, clients, replace(inputs, graphs=graphs), trace,
        rounds, seed, init, evaluation, compute, device, sets, task, attack, share,
    )  # fmt: skip


def _check_kinds(algorithm: object, clients: object) -> None:
    """Raise ``TypeError`` unless `algorithm` and `clients` are of the right types."""
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise TypeError(
            f"`algorithm` must be an Algorithm such as algorithms.dsgd(lr=0.1), got {kind}"
        )
    if not isinstance(clients, Partition):
        kind = type(clients).__name__
        raise TypeError(
            "`clients` must be a Partition such as data.shards(data.digits(), n=10, seed=0), got "
            f"{kind}; make one from the examples of each client by data.from_clients([(x0, y0), "
            "(x1, y1), ...])"
        )


def check_rounds_and_seed(rounds: int | None, seed: int, init: str) -> tuple[int | None, int]:
    """Return `rounds` and `seed` as ints; raise if they or `init` are not valid.

    Examples
    --------
    >>> check_rounds_and_seed(10, seed=0, init="common")
    (10, 0)
    """
    check_choice("init", init, ["common", "independent", "given"])
    rounds = None if rounds is None else check_int("rounds", rounds, minimum=1)
    return rounds, check_int("seed", seed, minimum=0)


def _backend(compute: Compute, device: torch.device, plan: Plan | None = None) -> Backend:
    return Backend(
        compute.executor, compute.chunk, compute.precision, compute.channels_last,
        compute.compile, device, compute.dtype, plan,
        None if compute.scratch is None else Path(compute.scratch),
    )  # fmt: skip


def _checked_model(
    model: nn.Module, clients: Partition, backend: Backend, task: Task
) -> tuple[nn.Module, Tensor]:
    """Return a copy of the model and at most two examples, on the device; raise unless they fit."""
    dataset = clients.dataset
    module = check_model(model).to(device=backend.device, dtype=backend.dtype)
    sample = dataset.examples(range(min(2, len(dataset.labels))), backend.dtype).to(backend.device)
    known = task.loss is cross_entropy and dataset.targets is None
    check_output(module, sample, clients.n_classes if known else None)
    check_task(module, sample, dataset, task)
    if backend.executor == "batched":
        check_batched(module, sample)
    return module, sample


def weight_rules(
    mixing: Rule | MixingMatrix | None, graphs: Topology | TopologySequence | None
) -> tuple[Rule, Rule, Callable[[Rule, Topology], MixingMatrix]]:
    """Return the rules of a run for pulls and for pushes, from its argument `mixing`.

    The third result returns the checked matrix of a rule and a graph. A default rule warns of the
    first graph whose own weights it ignores.
    """
    pull = _rule_from(mixing, pushes=False)
    push = _rule_from(mixing, pushes=True)
    if mixing is None and graphs is not None and graphs.period is None:
        # periodic graphs are checked before the run
        pull = warning_once(pull, "mixing", pushes=False)
        push = warning_once(push, "mixing", pushes=True)
    known = 64 if graphs is None else max(64, graphs.period or 0)
    return pull, push, lru_cache(maxsize=known)(_weights_on)


def _weights_on(rule: Rule, graph: Topology) -> MixingMatrix:
    """Return the checked mixing matrix of a graph by a weight rule."""
    weights = rule(graph)
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`mixing` must return a MixingMatrix, got {type(weights).__name__}; use "
            "from_weights(weights, graph)"
        )
    return weights.check_on(graph)


def _rule_from(mixing: Rule | MixingMatrix | None, pushes: bool) -> Rule:
    """Return the weight rule of a run; the rule of a fixed matrix checks it on each graph."""
    if mixing is None:
        return _default_push_weights if pushes else metropolis_or_uniform
    if not isinstance(mixing, MixingMatrix) and not callable(mixing):
        raise TypeError(
            "`mixing` must be a weight rule such as mixing.metropolis_hastings or a MixingMatrix, "
            f"got {shown(mixing)}"
        )
    return mixing.check_on if isinstance(mixing, MixingMatrix) else mixing


def _default_push_weights(graph: Topology) -> MixingMatrix:
    """Return the default weights of an algorithm that pushes.

    Raises ``ValueError`` if the graph's own weights cannot be pushed.
    """
    if not graph.own_weights:
        return uniform(graph, direction="push")
    weights = own_weights(graph)
    if not weights.is_column_stochastic:
        sums = weights.weights.sum(axis=0)
        node = int(np.abs(sums - 1).argmax())
        raise ValueError(
            "`topology` must, with `own_weights`, have columns that sum to 1 to push models, but "
            f"column {node_name(graph.nodes, node)} of {graph.name} sums to {sums[node]:.6g}; push "
            "in equal shares by mixing=functools.partial(mixing.uniform, direction='push'), or "
            "average by an algorithm such as dsgd"
        )
    return weights
