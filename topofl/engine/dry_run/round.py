"""The round and the models of a dry run: they record what phases ask for and compute nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl._support.check import check_choice, shown
from topofl._support.generators import answered
from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import NO_BRANCHES, WHY_PLAYED, explaining_meta_errors
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import need_error, static
from topofl.algorithms.contract.round import Models, Rule, State, Trial, check_key
from topofl.algorithms.contract.schedules import rate_at
from topofl.attacks import Attack
from topofl.engine.dry_run.checked import (
    AggregationRule,
    aggregated,
    check_matrix,
    check_noted,
    check_participants,
    check_rule,
    state_of_phase,
)
from topofl.engine.population import Population
from topofl.engine.recorder import OWN_COLUMNS, Ledger
from topofl.mixing import MixingMatrix, check_pulls, check_pushes
from topofl.topology import Topology, TopologySequence

__all__ = ["EXCHANGES", "DryModels", "DryRound", "PhaseRequests", "RecordedSteps", "WeightRules"]


T = TypeVar("T")


EXCHANGES = frozenset(("mix", "send", "server"))
"""Calls that exchange models. A phase may switch between them, but not between some and none."""


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """Local steps that a phase asked for.

    Parameters
    ----------
    how
        The steps.
    counts
        (n,) of each node.
    """

    how: Training
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class WeightRules:
    """What gives graphs their weights.

    Parameters
    ----------
    pull, push
        The rules of the run, where nodes average what they hear, and where they push.
    resolve
        (rule, graph) -> the matrix, checked.
    """

    pull: Rule
    push: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]


@dataclass(frozen=True, eq=False)
class DryModels(Population):
    """Models without numbers, which notice whether they are taken to start as one."""

    method: str = ""
    independent_start: bool = False
    given: Topology | TopologySequence | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def start(self) -> Tensor:
        """See the protocol."""
        if "apply" in self.calls:
            raise ValueError(
                "`models.start` must be asked for in `init`, models move later; keep a copy in the "
                "state"
            )
        self.calls.append("start")
        if self.independent_start:
            raise ValueError(
                f"`init` must be 'common' or 'given' for {self.method}, which compares where "
                "models moved from one start, got 'independent'"
            )
        return self.flat[:1].clone()

    @property
    def topology(self) -> Topology:
        """See the protocol."""
        if self.given is None:
            raise _topology_missing(self.method, self.n)
        if self.graph is None:
            raise need_error(
                self.method, "topology", static, self.given.name, static.graphs(self.given)
            )
        return self.graph


def _topology_missing(method: str, n: int) -> TypeError:
    return TypeError(
        f"`topology` must be given, since {method} exchanges models: e.g. topologies.ring({n})"
    )


@dataclass(eq=False)
class PhaseRequests:
    """What phases have asked for, over all rounds.

    Attributes
    ----------
    doors
        By phase: the doors that it used.
    trained
        By phase: its local steps.
    columns
        By phase: the columns of the models that it mixed.
    rules
        By which gradients were mixed, with the first of their matrices.
    gradients
        Tensors of all nodes' gradients, by key.
    batch_sizes
        Of gradients.
    trial_sets
        On which examples nodes tried models.
    noted
        Names of numbers that rounds record.
    drawn
        What phases drew random numbers for.
    """

    doors: dict[str, set[str]] = field(default_factory=dict)
    trained: dict[str, list[RecordedSteps]] = field(default_factory=dict)
    columns: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    rules: list[MixingMatrix] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    trial_sets: set[str] = field(default_factory=set)
    noted: dict[str, None] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)


@dataclass(eq=False)
class DryRound:
    """A :class:`topofl.algorithms.Round` that records what phases ask for and computes nothing.

    Parameters
    ----------
    t
        The round, from 0.
    graph, given
        Its graph, that of everybody if none was given.
    algorithm
        Name of the method.
    rules, sizes, seed
        Of the run.
    models
        The models that predict.
    ledger, requests
        What is noted, of the round and of all rounds.
    states
        Of all phases.
    attack
        What some nodes send in place of what they hold.
    phase
        Which one is played.
    """

    t: int
    graph: Topology
    given: bool
    algorithm: str
    rules: WeightRules
    models: Population
    sizes: np.ndarray
    seed: int
    ledger: Ledger
    requests: PhaseRequests
    states: dict[str, State]
    attack: Attack | None = None
    phase: str = ""
    used: MixingMatrix | None = field(default=None, init=False)
    mixed: dict[MixingMatrix, int] = field(default_factory=dict, init=False)
    """Columns that each matrix multiplies, counted as messages or not."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def topology(self) -> Topology:
        """See the protocol."""
        self._note_door("topology")
        if not self.given:
            raise _topology_missing(self.algorithm, self.n)
        return self.graph

    @property
    def peers(self) -> Topology:
        """See the protocol."""
        self._note_door("peers")
        return self.graph

    @property
    def weights(self) -> MixingMatrix:
        """See the protocol."""
        self.used = check_pulls(self.rules.resolve(self.rules.pull, self.topology))
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """See the protocol."""
        self._note_door("push")
        if len([phase for phase, doors in self.requests.doors.items() if "push" in doors]) > 1:
            raise ValueError(
                "`phases` must push models once a round, a node has one push-sum weight; share "
                "both parts in one"
            )
        self.used = check_pushes(self.rules.resolve(self.rules.push, self.topology))
        return self.used

    def state(self, owner: str) -> State:
        """See the protocol."""
        return state_of_phase(self.states, owner, self.phase)

    def rng(self, purpose: str) -> np.random.Generator:
        """See the protocol."""
        self.requests.drawn.add(purpose)
        return stream(self.seed, purpose, self.t)

    def train(
        self, models: Models, how: Training, own: State, *, participants: np.ndarray | None = None
    ) -> np.ndarray:
        """See the protocol."""
        with _disable_current_modes():  # what is made here is none of the phase's
            needed = how.init(models).keys()
        if missing := sorted(needed - own.keys()):
            raise ValueError(
                f"`own` must hold what the steps of the phase {self.phase!r} keep, {missing[0]!r} "
                "is missing; let its `init` return how.init(models)"
            )
        counts = how.counts(self.sizes)
        counts = (
            counts
            if participants is None
            else np.where(check_participants(participants, counts), counts, 0)
        )
        if self.t == 0:  # later ones may be beyond the run's last
            rate_at(how.descend.lr, 0, 0, models.flat.dtype, self.phase)
        self.requests.trained.setdefault(self.phase, []).append(RecordedSteps(how, counts))
        if how.gradient is not None and isinstance(how.steps, int):
            self._note_door("mixed gradients")
            weights = check_pulls(self.rules.resolve(how.gradient, self.topology))
            self.requests.rules.append(weights)
            self._count_product(weights, how.steps * models.flat.shape[1])
            for _ in range(how.steps):
                self.ledger.add(weights, models.flat.shape[1], gradients=True)
        return counts

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See the protocol; all losses are 0."""
        self.requests.trial_sets.add(check_choice("on", on, ["train", "val"]))
        return {i: answered(trial, _zero_losses) for i, trial in trials.items()}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See the protocol."""
        self._note_door("gradients")
        self.requests.batch_sizes.append(batch_size)
        if check_key(key) not in self.requests.gradients:
            with _disable_current_modes():  # memory that stays, and is counted apart
                self.requests.gradients[key] = torch.empty_like(models.flat)
        return self.requests.gradients[key]

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See the protocol."""
        self._note_door("server" if server else "mix")
        check_matrix("mix", weights)
        self._allocate_forged(values)
        found = [range(values.shape[1])[part] for part in columns]
        if values.shape == self.models.flat.shape:
            self.requests.columns.setdefault(self.phase, set()).update(
                (part.start, part.stop) for part in found
            )
        self.used, width = self.used or weights, sum(map(len, found))
        if not server:
            self._count_product(weights, width)
        if counted:
            self.ledger.add(weights, width + scalars, server=server)

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: AggregationRule,
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """See the protocol; the rule is played for the node that hears most."""
        self._note_door("mix")
        check_matrix("aggregate", weights)
        check_rule(self.phase, rule)
        self.used = self.used or weights
        self._allocate_forged(values)
        rows = torch.empty_like(values)
        largest = int(weights.in_messages.max(initial=0))
        received, shares = values.new_empty(largest, values.shape[1]), values.new_empty(largest)
        must = f"`rule` of the phase {self.phase!r} must work on rows without numbers, {WHY_PLAYED}"
        with explaining_meta_errors(must, NO_BRANCHES):
            aggregated(self.phase, rule, rows[0], received, shares)
        if counted:
            self.ledger.add(weights, values.shape[1] + scalars)

    def shown(self, values: Tensor) -> Tensor:
        """See the protocol."""
        self._note_door("shown")
        return values if self.attack is None or self.attack.to_each else torch.empty_like(values)

    def _allocate_forged(self, values: Tensor) -> None:
        """Make, for a moment, what forging what is sent takes."""
        if self.attack is not None:
            rows = len(values) if self.attack.to_each else 2 * len(self.attack.nodes)
            values.new_empty(rows, values.shape[1])

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See the protocol."""
        self._note_door("server" if server else "send")
        check_matrix("send", weights)
        self.used = self.used or weights
        self.ledger.send(weights, nbytes, server=server)

    def note(self, name: str, value: float | Tensor) -> None:
        """See the protocol; the number does not count."""
        if not isinstance(name, str) or not name.isidentifier() or name in OWN_COLUMNS:
            raise ValueError(
                "`name` must be an identifier that no column of a history has, such as 'moved', "
                f"got {shown(name)} in the phase {self.phase!r}"
            )
        check_noted(self.phase, name, value)
        self.requests.noted[name] = None

    def _note_door(self, door: str) -> None:
        self.requests.doors.setdefault(self.phase, set()).add(door)

    def _count_product(self, weights: MixingMatrix, columns: int) -> None:
        self.mixed[weights] = self.mixed.get(weights, 0) + columns


def _zero_losses(models: Tensor) -> Tensor:
    return torch.zeros(len(models), dtype=torch.float64, device="cpu")
