"""What a run is asked for: its setup, the trace of a dry run, checks of requests of phases."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor, nn

from topofl._columns import OWN_COLUMNS, SECONDS, ScoreColumn, columns_of
from topofl._support.check import check_takes, shown
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import Algorithm, check_same_shape
from topofl.algorithms.contract.round import Rule, State
from topofl.attacks import Attack
from topofl.data import Partition
from topofl.engine.evaluation import Evaluated, EvaluationPlan, evaluation_plan
from topofl.engine.gradients import Bound, Order, image_order, in_closed_form, is_linear
from topofl.engine.mixing import Aggregate
from topofl.engine.network import Network
from topofl.engine.options import Compute, Evaluation
from topofl.engine.population import Layout
from topofl.mixing import MixingMatrix, check_pulls, check_pushes
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence

EXCHANGES = frozenset(("mix", "send", "server"))
"""Calls that exchange models. A phase may use different ones in different rounds, but not none."""

Steps = tuple[Training, np.ndarray]
"""Local steps that a phase requests: their settings, and how many each node takes, (n,)."""


class NotTogether(ValueError):
    """Runs cannot be trained together; the message says why.

    Examples
    --------
    >>> raise NotTogether("they have different models")
    Traceback (most recent call last):
        ...
    topofl.engine.requests.NotTogether: they have different models
    """


@dataclass(eq=False)
class Trace:
    """What phases request in the rounds of a dry run; a run may request nothing else.

    Parameters
    ----------
    algorithm, layout, n
        Algorithm of the run, layout of its models, and number of nodes.

    Attributes
    ----------
    graphs, mixed
        For each round that was played, its graph, and the number of columns that each matrix
        multiplies.
    exchanged
        Matrices of the exchanges in the first round that send messages.
    calls
        Calls and properties of the round that each phase used, by phase.
    steps
        Local steps, by phase.
    bounds
        Objectives of local steps with the first rows of the state that they read, by their
        identity; None: the loss of the task.
    columns
        Columns of the models that were mixed, by phase.
    rules
        Matrices by which gradients were mixed.
    gradients
        Tensors of all nodes' gradients, by key.
    gradient_sizes
        Batch sizes of gradients.
    trial_sets
        Sets of examples on which nodes cross-evaluated models.
    noted
        Names of numbers that phases note, and whether they note a value per node.
    drawn
        Purposes for which phases drew random numbers.
    state
        Largest number of bytes of the phases' states.
    scratch
        Largest number of bytes that a phase allocates for a while, without training.
    fine_tuning
        Bytes of the copies of models that are fine-tuned, and of the phase's state.
    stored
        Largest number of models that are stored at once.
    common_start
        Whether all nodes must start from the same model.
    reads_all
        Whether phases read the number of nodes, those of their examples, or the run's graph.
    """

    algorithm: Algorithm
    layout: Layout
    n: int
    graphs: list[Topology] = field(default_factory=list, init=False)
    mixed: list[Mapping[MixingMatrix, int]] = field(default_factory=list, init=False)
    exchanged: list[MixingMatrix] = field(default_factory=list, init=False)
    calls: dict[str, set[str]] = field(default_factory=dict, init=False)
    steps: dict[str, list[Steps]] = field(default_factory=dict, init=False)
    bounds: dict[int, Bound | None] = field(default_factory=dict, init=False)
    columns: dict[str, set[tuple[int, int]]] = field(default_factory=dict, init=False)
    rules: list[MixingMatrix] = field(default_factory=list, init=False)
    gradients: dict[str, Tensor] = field(default_factory=dict, init=False)
    gradient_sizes: list[int] = field(default_factory=list, init=False)
    trial_sets: set[str] = field(default_factory=set, init=False)
    noted: dict[str, bool] = field(default_factory=dict, init=False)
    drawn: set[str] = field(default_factory=set, init=False)
    state: int = field(default=0, init=False)
    scratch: int = field(default=0, init=False)
    fine_tuning: int = field(default=0, init=False)
    stored: int = field(default=0, init=False)
    common_start: bool = field(default=False, init=False)
    reads_all: bool = field(default=False, init=False)

    def anew(self) -> "Trace":
        """Return an empty trace of the same run."""
        return Trace(self.algorithm, self.layout, self.n)

    def note_call(self, phase: str, call: str) -> None:
        """Note a call; raise ``ValueError`` if several phases push models."""
        self.calls.setdefault(phase, set()).add(call)
        if sum("push" in calls for calls in self.calls.values()) > 1:
            must = "`phases` must push models once per round, since a node has one push-sum weight"
            raise ValueError(f"{must}; share both parts in one")

    def check_call(self, phase: str, call: str, t: int) -> None:
        """Raise ``ValueError`` if a phase makes a call in round t that it did not make before."""
        interchangeable = EXCHANGES if call in EXCHANGES else {call}
        if not interchangeable & self.calls.get(phase, set()):
            raise ValueError(
                f"the phase {phase!r} must use round.{call} in the first rounds too, which show a "
                f"run what it needs; it does so in round {t + 1} only: where "
                "`models.flat.is_meta`, let it make every call that it may make in any round"
            )

    def check_name(self, phase: str, name: object, known: bool) -> None:
        """Raise ``ValueError`` unless a phase can note a number by this name."""
        if known and name not in self.noted:
            raise ValueError(
                f"the phase {phase!r} must note {shown(name)} in the first rounds too, which show "
                f"a run the columns of its history ({', '.join(self.noted) or 'none'}); note nan "
                "there"
            )
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                f"`name` of round.note must be an identifier, such as 'moved', got {shown(name)} "
                f"in the phase {phase!r}; use letters, digits and underscores"
            )
        if name in OWN_COLUMNS - {SECONDS}:
            must = "`name` of round.note must differ from all columns of the history"
            raise ValueError(f"{must}, got {name!r} in the phase {phase!r}; rename it")

    def check_noted(self, phase: str, name: str, value: object) -> None:
        """Note whether a phase notes a value per node, (n,), or one number.

        Raises ``ValueError`` for anything else, or if it noted the other. With a single node, one
        value is one number.
        """
        per_node = _is_per_node(phase, name, value, self.n)
        if self.noted.setdefault(name, per_node) != per_node:
            raise ValueError(
                f"`value` of round.note must be of one shape in all rounds, got {name!r} both as "
                f"one number and as one per node in the phase {phase!r}; note them by two names"
            )

    def _uses(self, *calls: str) -> bool:
        return any(set(calls) & used for used in self.calls.values())

    @property
    def exchanges(self) -> bool:
        """Whether nodes exchange anything, directly or through a server."""
        return self._uses(*EXCHANGES, "mixed gradients")

    @property
    def needs_topology(self) -> bool:
        """Whether nodes exchange with neighbors, so that a topology must be given."""
        return self._uses("topology")

    @property
    def chooses(self) -> bool:
        """Whether nodes choose their peers; a topology may limit the choice."""
        return self._uses("peers")

    @property
    def uses_server(self) -> bool:
        """Whether nodes send anything to a server."""
        return self._uses("server")

    @property
    def is_served(self) -> bool:
        """Whether nodes communicate through a server only."""
        return self.uses_server and not self.needs_topology and not self.chooses

    @cached_property
    def pushes(self) -> bool:
        """Whether models are pushed and have push-sum weights."""
        return self._uses("push")

    @cached_property
    def exchange(self) -> str | None:
        """The first phase that exchanges models; None if no phase does."""
        found = (name for name in self.algorithm.phases if self.calls.get(name, set()) & EXCHANGES)
        return next(found, None)

    @cached_property
    def share(self) -> list[slice]:
        """Columns of the models that the first phase that mixes sends; all nodes' if none mixes."""
        mixed = (self.columns[name] for name in self.algorithm.phases if name in self.columns)
        found = next(mixed, set())
        return _merged_ranges(found) if found else self.layout.common

    @cached_property
    def pushed(self) -> tuple[int, ...]:
        """Indices of the parameters that are pushed; push-sum weights divide their steps."""
        phases = [name for name, calls in self.calls.items() if "push" in calls]
        columns = _merged_ranges(set().union(*(self.columns.get(name, set()) for name in phases)))
        bounds = np.cumsum([0, *self.layout.sizes]).tolist()
        inside = [any(s.start <= a and b <= s.stop for s in columns) for a, b in pairwise(bounds)]
        return tuple(k for k, pushed in enumerate(inside) if pushed)

    def bounds_on(self, device: torch.device) -> list[Bound | None]:
        """Return what steps differentiate, with zeros as the state that objectives read."""
        found = [
            bound
            and (bound[0], {k: torch.zeros_like(x, device=device) for k, x in bound[1].items()})
            for bound in self.bounds.values()
        ]
        return found or [None]

    def batch_sizes(self) -> np.ndarray:
        """Return the size of the largest minibatch that each node draws, (n,)."""
        trained = [training.sizes for some in self.steps.values() for training, _ in some]
        sizes = [np.broadcast_to(size, self.n) for size in trained + self.gradient_sizes]
        return np.max(sizes, axis=0) if sizes else np.ones(self.n, dtype=np.int64)


def _merged_ranges(columns: set[tuple[int, int]]) -> list[slice]:
    """Return sorted slices that cover the ranges of columns, with overlapping ranges merged."""
    found: list[slice] = []
    for start, stop in sorted(columns):
        if found and start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(stop, found[-1].stop))
        elif stop > start:
            found.append(slice(start, stop))
    return found


def _is_per_node(phase: str, name: str, value: object, n: int) -> bool:
    """Return whether a value is (n,), one per node; ``ValueError`` unless that or one number."""
    if isinstance(value, Tensor | np.ndarray):
        real = not value.is_complex() if isinstance(value, Tensor) else value.dtype.kind in "biuf"
        shape = tuple(value.shape)
        if real and (math.prod(shape) == 1 or shape == (n,)):
            return n > 1 and shape == (n,)
        got = f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {shape}"
    elif isinstance(value, Real | np.bool_):
        return False
    else:
        got = shown(value)
    raise ValueError(
        f"`value` of round.note must be one real number, or one per node, ({n},), got {got} as "
        f"{name!r} in the phase {phase!r}; note its mean, or give each number its own name"
    )


@lru_cache(maxsize=1)
def complete_graph(n: int) -> Topology:
    """Return the complete graph of n nodes, for runs without a topology.

    Examples
    --------
    >>> complete_graph(4).n_edges
    6
    """
    return Topology(sparse.csr_array(~np.eye(n, dtype=bool)), name="everybody")


@dataclass(frozen=True, eq=False)
class Setup:
    """Checked arguments of a run, as returned by :func:`topofl.engine.setup.resolve`.

    Parameters
    ----------
    algorithm
        The algorithm, with the fine-tuning of the run.
    model, network
        The model as given, and the copy of it that is used, on the device.
    sample
        At most two examples, on the device.
    clients
        The partition, pooled if the algorithm pools clients.
    topology
        The graphs that the algorithm uses, without edges if it exchanges nothing; in a dry run None
        if none were given.
    pull, push
        Weight rules for nodes that average what they receive, and for nodes that push.
    weights_of
        (rule, graph) -> the checked matrix.
    trace
        What a dry run of the first rounds found; empty before it.
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
    parts
        The setups of several runs whose nodes this one trains, one run after another; see
        :func:`topofl.engine.together.joined`. Empty: it is one run.
    matrices_of
        (mixing matrix of this run) -> those of the parts.
    """

    algorithm: Algorithm
    model: nn.Module
    network: Network
    sample: Tensor
    clients: Partition
    topology: Topology | TopologySequence | None
    pull: Rule
    push: Rule
    weights_of: Callable[[Rule, Topology], MixingMatrix]
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
    parts: tuple["Setup", ...] = ()
    matrices_of: Callable[[MixingMatrix], Sequence[MixingMatrix]] = lambda whole: (whole,)

    @property
    def module(self) -> nn.Module:
        """The network, in evaluation mode."""
        return self.network.module

    @property
    def is_planned_by_rule(self) -> bool:
        """Whether nodes per call follow from a rule: linear models, and gradients in closed form.

        Not if a phase trains by an objective of its own.
        """
        known = is_linear(self.module) or in_closed_form(self.module, self.task)
        return known and not any(self.trace.bounds.values())

    @property
    def travels(self) -> bool:
        """Whether buffers of which each node has its own are averaged with the models."""
        return self.compute.buffers == "average"

    @property
    def graphs(self) -> Topology | TopologySequence:
        """The graphs that rounds have: the complete graph if no topology was given."""
        return self.topology or complete_graph(self.clients.n)

    @cached_property
    def rows(self) -> Sequence[slice]:
        """The nodes of each part; all nodes if this is one run."""
        ends = accumulate((part.clients.n for part in self.parts), initial=0)
        return [slice(*pair) for pair in pairwise(ends)] or [slice(0, self.clients.n)]

    @cached_property
    def sizes(self) -> np.ndarray:
        """(n,) numbers of training examples."""
        return np.array(list(map(len, self.clients.train)))

    def pulled(self, graph: Topology, rule: Rule | None = None) -> MixingMatrix:
        """Return the row-stochastic matrix of a graph, by `rule` or by default the run's rule."""
        return check_pulls(self.weights_of(rule or self.pull, graph))

    def pushed(self, graph: Topology) -> MixingMatrix:
        """Return the column-stochastic matrix of a graph by which nodes push."""
        return check_pushes(self.weights_of(self.push, graph))

    @cached_property
    def order(self) -> Order:
        """Function that converts inputs and parameters to the memory format of the model."""
        return image_order(self.module, self.sample, self.compute.channels_last)

    @cached_property
    def evaluation_plan(self) -> EvaluationPlan:
        """How models are applied to many examples, by the memory that a few examples take."""
        targets = self.clients.dataset.learned(self.compute.dtype)[:2].to(self.device)
        return evaluation_plan(self.module, self.sample, self.task, targets)

    @property
    def stages(self) -> list[str]:
        """Names of the stages of evaluations; without evaluated sets there are none."""
        evaluation, algorithm = self.evaluation, self.algorithm
        names = "before_exchange", "knn", "fine_tuned"
        wanted = evaluation.before_exchange, algorithm.neighbors, algorithm.fine_tune
        own = (name for name, one in zip(names, wanted, strict=True) if one)
        return ["", *own, *evaluation.custom] if evaluation.on else []

    @cached_property
    def columns(self) -> dict[str, ScoreColumn]:
        """Columns of scores, by name."""
        return columns_of(self.task.reported, self.stages, self.sets)

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """Settings of evaluations as JSON values, without those of fine-tuning.

        Fine-tuning is in the algorithm's settings.
        """
        names = (one.name for one in fields(self.evaluation) if one.name != "fine_tune")
        settings = {name: getattr(self.evaluation, name) for name in names}
        settings["on"] = list(self.evaluation.on)
        if without := settings.pop("without"):
            settings["without"] = list(without)
        for argument in ("also", "per_node"):
            if functions := settings.pop(argument):
                settings[argument] = {name: _name_of(f) for name, f in functions.items()}
        return settings


def _name_of(function: Any) -> str:
    """Return ``"module:name"`` of a function, or of the type of another callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def topology_missing(method: str, n: int) -> TypeError:
    """Return the error of a method that exchanges models without a topology."""
    return TypeError(
        f"`topology` must be given, since {method} exchanges models: e.g. topologies.ring({n})"
    )


def aggregated(phase: str, rule: Aggregate, own: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Return the row that `rule` computes from a node's own row and those of others.

    Raises
    ------
    ValueError
        If the row does not have the shape of the node's own, or `rule` changed `own` in place.
    """
    what, version = f"`rule` of the phase {phase!r}", own._version
    row = rule(own, others, weights)
    if own._version != version:
        must = f"{what} must not change `own` in place, which other nodes still receive"
        raise ValueError(f"{must}; return a new row, e.g. own + step instead of own.add_(step)")
    remedy = "combine the received rows over their first axis"
    return check_same_shape(what, "a row", row, own, remedy)


def check_rule(phase: str, rule: object) -> None:
    """Raise ``TypeError`` unless `rule` can be called to aggregate models."""
    if not callable(rule):
        raise TypeError(
            "`rule` of round.aggregate must be a function of (own, received, weights), got "
            f"{shown(rule)} in the phase {phase!r}; give one such as lambda own, received, "
            "weights: received.median(0).values"
        )
    check_takes(f"`rule` of the phase {phase!r}", rule, "own", "received", "weights")


def check_matrix(call: str, weights: object) -> None:
    """Raise ``TypeError`` unless the weights of an exchange are a MixingMatrix."""
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`weights` of round.{call} must be a MixingMatrix such as round.weights, got "
            f"{type(weights).__name__}; convert an array by topofl.mixing.from_weights(array)"
        )


def checked_state(name: str, function: str, state: object) -> State:
    """Return the state of a phase, or raise ``TypeError`` unless it is a dict of tensors."""
    if not isinstance(state, dict):
        raise TypeError(
            f"`{function}` of the phase {name!r} must return its state, a dict of tensors such as "
            f"{{}}, got {type(state).__name__}"
        )
    for key, value in state.items():
        if not isinstance(value, Tensor):
            must = f"`{function}` of the phase {name!r} must return tensors by name"
            raise TypeError(f"{must}, got {type(value).__name__} as {key!r}; use torch.tensor(...)")
    return state
