"""The round and the models of a dry run, which record calls of phases and compute nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl._columns import OWN_COLUMNS, SECONDS
from topofl._support.check import check_choice, shown
from topofl._support.generators import answer_queries
from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import NO_BRANCHES, WHY_PLAYED, explaining_meta_errors
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import need_error, static
from topofl.algorithms.contract.round import Models, Rows, Rule, State, Trial, check_key
from topofl.algorithms.contract.schedules import rate_at
from topofl.attacks import Attack
from topofl.engine.dry_run.checked import (
    AggregationRule,
    aggregated,
    check_matrix,
    check_noted,
    check_participants,
    check_rule,
    check_same_kind,
    state_of_phase,
)
from topofl.engine.dry_run.requests import PhaseRequests, RecordedSteps
from topofl.engine.ledger import Ledger
from topofl.engine.population import Population
from topofl.mixing import MixingMatrix, check_pulls, check_pushes
from topofl.topology import Topology, TopologySequence

__all__ = ["EXCHANGES", "DryModels", "DryRound", "WeightRules"]


T = TypeVar("T")


EXCHANGES = frozenset(("mix", "send", "server"))
"""Calls that exchange models. A phase may use different ones in different rounds, but not none."""


@dataclass(frozen=True, eq=False)
class WeightRules:
    """Weight rules of a run, which turn graphs into mixing matrices.

    Parameters
    ----------
    pull, push
        Rules for nodes that average what they receive, and for nodes that push.
    resolve
        (rule, graph) -> the checked matrix.
    """

    pull: Rule
    push: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]


@dataclass(frozen=True, eq=False)
class DryModels(Population):
    """Models on the meta device, which record whether a phase relies on a common start.

    Parameters
    ----------
    method
        Name of the algorithm.
    independent_start
        Whether each node starts from its own model.
    given
        The topology of the run; None: not given.
    calls
        ``"start"`` for each access to `start`, ``"apply"`` once rounds began.
    """

    method: str = ""
    independent_start: bool = False
    given: Topology | TopologySequence | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def start(self) -> Tensor:
        """See :attr:`topofl.algorithms.Models.start`."""
        if "apply" in self.calls:
            raise ValueError(
                "`models.start` must be read in `init`, since models change later; store a copy in "
                "the state"
            )
        self.calls.append("start")
        if self.independent_start:
            raise ValueError(
                f"`init` must be 'common' or 'given' for {self.method}, which compares how far "
                "models moved from a common start, got 'independent'"
            )
        return self.flat[:1].clone()

    @property
    def topology(self) -> Topology:
        """See :attr:`topofl.algorithms.Models.topology`."""
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
class DryRound:
    """A :class:`topofl.algorithms.Round` that records the requests of phases.

    Parameters
    ----------
    t, graph
        The round, from 0, and its graph.
    given
        Whether a topology was given; otherwise the graph is complete.
    algorithm, rules, sizes, seed
        Name of the algorithm, weight rules, node data sizes and seed of the run.
    models
        The models that predict.
    ledger, requests
        Messages of the round, and requests of all rounds.
    states
        States of all phases.
    attack
        The attack of the run; None: no attackers.
    phase
        Name of the phase that is played.
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
    """Number of columns that each matrix multiplies, counted as messages or not."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def topology(self) -> Topology:
        """See :attr:`topofl.algorithms.Round.topology`."""
        self._note_call("topology")
        if not self.given:
            raise _topology_missing(self.algorithm, self.n)
        return self.graph

    @property
    def peers(self) -> Topology:
        """See :attr:`topofl.algorithms.Round.peers`."""
        self._note_call("peers")
        return self.graph

    @property
    def weights(self) -> MixingMatrix:
        """See :attr:`topofl.algorithms.Round.weights`."""
        self.used = check_pulls(self.rules.resolve(self.rules.pull, self.topology))
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """See :attr:`topofl.algorithms.Round.push_weights`."""
        self._note_call("push")
        self.requests.check_one_push()
        self.used = check_pushes(self.rules.resolve(self.rules.push, self.topology))
        return self.used

    def state(self, owner: str) -> State:
        """See :meth:`topofl.algorithms.Round.state`."""
        return state_of_phase(self.states, owner, self.phase)

    def rng(self, purpose: str) -> np.random.Generator:
        """See :meth:`topofl.algorithms.Round.rng`."""
        self.requests.drawn.add(purpose)
        return stream(self.seed, purpose, self.t)

    def train(
        self,
        models: Models,
        training: Training,
        state: State,
        *,
        participants: np.ndarray | None = None,
    ) -> np.ndarray:
        """See :meth:`topofl.algorithms.Round.train`."""
        with _disable_current_modes():  # these tensors do not belong to the phase
            needed = training.init(models).keys()
        if missing := sorted(needed - state.keys()):
            raise ValueError(
                f"`state` must hold the state of the local steps of the phase {self.phase!r}, "
                f"{missing[0]!r} is missing; let its `init` return training.init(models)"
            )
        counts = training.counts(self.sizes)
        if participants is not None:
            counts = np.where(check_participants(participants, counts), counts, 0)
        if self.t == 0:  # later rounds may be beyond the last of the run
            rate_at(training.descend.lr, 0, 0, models.flat.dtype, self.phase)
        self.requests.trained.setdefault(self.phase, []).append(RecordedSteps(training, counts))
        if training.gradient is not None and isinstance(training.steps, int):
            self._note_call("mixed gradients")
            weights = check_pulls(self.rules.resolve(training.gradient, self.topology))
            self.requests.rules.append(weights)
            self._count_product(weights, training.steps * models.flat.shape[1])
            for _ in range(training.steps):
                self.ledger.add(weights, models.flat.shape[1], gradients=True)
        return counts

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See :meth:`topofl.algorithms.Round.cross_evaluate`; all losses are 0."""
        self.requests.trial_sets.add(check_choice("on", on, ["train", "val"]))
        return {i: answer_queries(trial, _zero_losses) for i, trial in trials.items()}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See :meth:`topofl.algorithms.Round.gradients`."""
        self._note_call("gradients")
        self.requests.batch_sizes.append(batch_size)
        if check_key(key) not in self.requests.gradients:
            with _disable_current_modes():  # memory that lasts is counted separately
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
        """See :meth:`topofl.algorithms.Round.mix`."""
        self._note_call("server" if server else "mix")
        check_matrix("mix", weights)
        _allocate_forged(self.attack, values)
        found = [range(values.shape[1])[part] for part in columns]
        if values.shape == self.models.flat.shape:
            self.requests.columns.setdefault(self.phase, set()).update(
                (part.start, part.stop) for part in found
            )
        self.used = self.used or weights
        width = sum(map(len, found))
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
        """See :meth:`topofl.algorithms.Round.aggregate`.

        The rule is called once, for the node that receives most rows.
        """
        self._note_call("mix")
        check_matrix("aggregate", weights)
        check_rule(self.phase, rule)
        self.used = self.used or weights
        _allocate_forged(self.attack, values)
        rows = torch.empty_like(values)
        largest = int(weights.in_messages.max(initial=0))
        received = values.new_empty(largest, values.shape[1])
        received_weights = values.new_empty(largest)
        must = f"`rule` of the phase {self.phase!r} must work on rows without numbers, {WHY_PLAYED}"
        with explaining_meta_errors(must, NO_BRANCHES):
            aggregated(self.phase, rule, rows[0], received, received_weights)
        if counted:
            self.ledger.add(weights, values.shape[1] + scalars)

    def published(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.published`."""
        self._note_call("published")
        return values if self.attack is None or self.attack.to_each else torch.empty_like(values)

    def all_rows(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.all_rows`."""
        return values

    def own_rows(self, values: Rows) -> Rows:
        """See :meth:`topofl.algorithms.Round.own_rows`."""
        return values

    def on_all_models(
        self, function: Callable[[Models, State], State], models: Models, state: State
    ) -> State:
        """See :meth:`topofl.algorithms.Round.on_all_models`."""
        return function(models, state)

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See :meth:`topofl.algorithms.Round.send`."""
        self._note_call("server" if server else "send")
        check_matrix("send", weights)
        self.used = self.used or weights
        self.ledger.send(weights, nbytes, server=server)

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """See :meth:`topofl.algorithms.Round.note`; the value is ignored."""
        _check_name(self.phase, name)
        per_node = check_noted(self.phase, name, value, self.n)
        check_same_kind(self.phase, name, per_node, self.requests.noted.setdefault(name, per_node))

    def _note_call(self, call: str) -> None:
        self.requests.calls.setdefault(self.phase, set()).add(call)

    def _count_product(self, weights: MixingMatrix, columns: int) -> None:
        self.mixed[weights] = self.mixed.get(weights, 0) + columns


def _allocate_forged(attack: Attack | None, values: Tensor) -> None:
    """Allocate and drop as much memory as forging the sent rows takes."""
    if attack is not None:
        rows = len(values) if attack.to_each else 2 * len(attack.nodes)
        values.new_empty(rows, values.shape[1])


def _check_name(phase: str, name: object) -> None:
    """Raise ``ValueError`` unless a phase can note a number by this name."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"`name` of round.note must be an identifier, such as 'moved', got {shown(name)} in "
            f"the phase {phase!r}; use letters, digits and underscores"
        )
    if name in OWN_COLUMNS - {SECONDS}:
        raise ValueError(
            f"`name` of round.note must differ from all columns of the history, got {name!r} in "
            f"the phase {phase!r}; rename it"
        )


def _zero_losses(models: Tensor) -> Tensor:
    return torch.zeros(len(models), dtype=torch.float64, device="cpu")
