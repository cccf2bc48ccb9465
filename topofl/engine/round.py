"""The round that phases see: it checks, notes and counts their requests, and has them computed.

On models without memory nothing is computed: a dry run plays rounds on these to find out what a run
needs. See :class:`topofl.algorithms.Round` for what phases may ask for.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl._support.check import check_choice, shown
from topofl._support.generators import answer_queries
from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import NO_BRANCHES, WHY_PLAYED, explaining_meta_errors
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import Models, Rows, State, Trial, check_key
from topofl.algorithms.contract.schedules import rate_at
from topofl.engine.mixing import Aggregate
from topofl.engine.population import Population
from topofl.engine.recorder import Exchange
from topofl.engine.requests import (
    Setup,
    Trace,
    aggregated,
    check_matrix,
    check_name,
    check_noted,
    check_participants,
    check_rule,
    check_same_kind,
    state_of_phase,
    topology_missing,
)
from topofl.engine.round_work import RoundWork
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

T = TypeVar("T")


@dataclass(eq=False)
class Round:
    """One round, as phases see it; see :class:`topofl.algorithms.Round`.

    Parameters
    ----------
    setup
        What all rounds have in common.
    t, graph
        The round, from 0, and its graph; the complete graph if no topology was given.
    models
        The models that predict.
    trace
        What phases request in all rounds, noted in a dry run.
    work
        Computes what phases request; None: nothing is computed, and requests are noted.
    states
        States of all phases.
    phase
        Name of the phase that is applied.
    sharded
        For each phase, the names of the tensors in its state that have the rows of this rank.

    Attributes
    ----------
    used
        The mixing matrix that is recorded.
    mixed
        Number of columns that each matrix multiplies, counted as messages or not.
    noted
        The numbers that phases noted.
    gathered
        States of all nodes, while a phase works on the models of all; None: it does not.
    exchanges
        The exchanges so far, which send messages.
    calls
        Number of exchanges so far, counted as messages or not, by phase.
    """

    setup: Setup
    t: int
    graph: Topology
    models: Population
    trace: Trace
    work: RoundWork | None = None
    states: Mapping[str, State] = field(default_factory=dict)
    phase: str = ""
    sharded: Mapping[str, Collection[str]] = field(default_factory=dict)
    used: MixingMatrix | None = field(default=None, init=False)
    mixed: dict[MixingMatrix, int] = field(default_factory=dict, init=False)
    noted: dict[str, float | Tensor] = field(default_factory=dict, init=False)
    gathered: dict[str, State] | None = field(default=None, init=False)
    exchanges: list[Exchange] = field(default_factory=list, init=False)
    calls: dict[str, int] = field(default_factory=dict, init=False)

    def _enter(self, call: str) -> None:
        """Note a call in a dry run; in a run, raise unless the phase made it in the dry run."""
        if self.work is None:
            self.trace.note_call(self.phase, call)
        elif self.phase in self.setup.algorithm.phases:
            self.trace.check_call(self.phase, call, self.t)

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
        self._enter("topology")
        if self.setup.topology is None:
            raise topology_missing(self.setup.algorithm.name, self.n)
        return self.graph

    @property
    def peers(self) -> Topology:
        """The graph whose in-neighbors nodes may choose to receive from."""
        self._enter("peers")
        return self.graph

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.setup.clients.n

    @property
    def sizes(self) -> np.ndarray:
        """See :attr:`topofl.algorithms.Round.sizes`."""
        return self.setup.sizes

    def state(self, owner: str) -> State:
        """See :meth:`topofl.algorithms.Round.state`."""
        found = state_of_phase(self.states, owner, self.phase)
        self._check_rows(owner)
        if self.gathered is None:
            return found
        if owner not in self.gathered:
            names = self.sharded.get(owner, ())
            self.gathered[owner] = {
                key: self.all_rows(x) if key in names else x for key, x in found.items()
            }
        return self.gathered[owner]

    def _check_rows(self, owner: str) -> None:
        """Raise ``ValueError`` if a phase with the rows of a rank reads a state of all nodes."""
        if len(self.models) == self.n or self.gathered is not None:
            return
        if not self.setup.algorithm.phases[owner].rowwise:
            raise ValueError(
                f"the phase {self.phase!r} with rowwise=True must not read the state of the phase "
                f"{owner!r} without it, which has the rows of all nodes; declare it for both, or "
                "for neither"
            )

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; access records it as used."""
        self.used = self.setup.pulled(self.topology)
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column-stochastic matrix of the round; access records it as used."""
        self._enter("push")
        self.used = self.setup.pushed(self.topology)
        return self.used

    def rng(self, purpose: str) -> np.random.Generator:
        """See :meth:`topofl.algorithms.Round.rng`."""
        self.trace.drawn.add(purpose)
        return stream(self.setup.seed, purpose, self.t)

    def train(
        self,
        models: Models,
        training: Training,
        state: State,
        *,
        participants: np.ndarray | None = None,
    ) -> np.ndarray:
        """See :meth:`topofl.algorithms.Round.train`."""
        all_counts = counts = training.counts(self.sizes)
        if participants is not None:
            counts = np.where(check_participants(participants, counts), counts, 0)
        if self.work is None:
            self._note_training(cast(Population, models), training, state, counts)
        elif self.work.only is not None:
            counts = np.where(self.work.only, counts, 0)
        weights = self._gradient_weights(training, int(counts.max(initial=0)))
        if self.work is None or not counts.any():
            return counts
        population = cast(Population, models)
        return self.work.train(self.phase, population, training, state, all_counts, counts, weights)

    def _note_training(
        self, models: Population, training: Training, state: State, counts: np.ndarray
    ) -> None:
        with _disable_current_modes():  # these tensors do not belong to the phase
            needed = training.init(models).keys()
            trained = np.flatnonzero(counts)
            if models.distinct < len(models):  # trained models are stored apart
                models.write(trained, models.rows(trained))
        if missing := sorted(needed - state.keys()):
            raise ValueError(
                f"`state` must hold the state of the local steps of the phase {self.phase!r}, "
                f"{missing[0]!r} is missing; let its `init` return training.init(models)"
            )
        if self.t == 0:  # later rounds may be beyond the last of the run
            rate_at(training.descend.lr, 0, 0, self.models.dtype, self.phase)
        self.trace.steps.setdefault(self.phase, []).append((training, counts))

    def _gradient_weights(self, training: Training, steps: int) -> MixingMatrix | None:
        """Return the matrix by which gradients are mixed, and count its messages; None: none."""
        if training.gradient is None or not steps:
            return None
        self._enter("mixed gradients")
        weights = self.setup.pulled(self.topology, training.gradient)
        if self.work is None:
            self.trace.rules.append(weights)
        d = self.trace.layout.d
        self.mixed[weights] = self.mixed.get(weights, 0) + steps * d
        self.exchanges += [
            Exchange(weights, d * self.models.dtype.itemsize, gradients=True)
        ] * steps
        return weights

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See :meth:`topofl.algorithms.Round.cross_evaluate`; all losses of a dry run are 0."""
        if self.work is not None:
            return self.work.cross_evaluate(trials, on)
        self.trace.trial_sets.add(check_choice("on", on, ["train", "val"]))
        return {i: answer_queries(trial, _zero_losses) for i, trial in trials.items()}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See :meth:`topofl.algorithms.Round.gradients`."""
        self._enter("gradients")
        check_key(key)
        if self.work is not None:
            return self.work.gradients(self.phase, cast(Population, models), batch_size, key)
        self.trace.gradient_sizes.append(batch_size)
        if key not in self.trace.gradients:
            with _disable_current_modes():  # memory that lasts is counted separately
                self.trace.gradients[key] = models.flat.new_empty(models.flat.shape)
        return self.trace.gradients[key]

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor | Models,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.mix`."""
        d = values.shape[1] if isinstance(values, Tensor) else values.d
        ranges = [range(d)[part] for part in columns]
        width = sum(map(len, ranges))
        buffers = self.models.traveling_with(values) if width == d else []
        sent = width + scalars + sum(buffer.shape[1] for buffer in buffers)
        exchange = self._begin_exchange("mix", weights, sent if counted else None, server=server)
        if not server:
            self.mixed[weights] = self.mixed.get(weights, 0) + width
        if self.work is not None:
            for k, buffer in enumerate(buffers):
                name = f"{exchange}/buffers/{k}"
                self.work.run.mixing.mix(weights, buffer, self.t, name, server)
        rows = len(values if isinstance(values, Tensor) else cast(Population, values))
        if self.work is None and (rows, d) == (len(self.models), self.models.d):
            noted = self.trace.columns.setdefault(self.phase, set())
            noted.update((part.start, part.stop) for part in ranges)
        if not isinstance(values, Tensor):
            models = cast(Population, values)
            if server and width == d and self.setup.attack is None:  # the average is stored once
                if self.work is not None:
                    self.work.run.mixing.average(weights, models.held)
                    return
                with _disable_current_modes():  # the models do not belong to the phase
                    models.fill(models.rows(slice(0, 1)))
                return
            values = models.flat
        if self.work is None:
            self._allocate_forged(values)
            return
        for k, part in enumerate(columns):
            self.work.run.mixing.mix(weights, values[:, part], self.t, f"{exchange}/{k}", server)

    def _begin_exchange(
        self, method: str, weights: MixingMatrix, sent: int | None, server: bool = False
    ) -> str:
        """Check and count an exchange; return its name, which seeds attackers' random numbers.

        Messages have `sent` numbers each; None: they are not counted.
        """
        self._enter("server" if server else "mix")
        check_matrix(method, weights)
        self.used = self.used or weights
        if sent is not None:
            nbytes = sent * self.models.dtype.itemsize
            self.exchanges.append(Exchange(weights, nbytes, server=server))
        self.calls[self.phase] = call = self.calls.get(self.phase, 0) + 1
        return f"{self.phase}/{call}{' by a server' * server}"

    def _allocate_forged(self, values: Tensor) -> None:
        """Allocate and drop as much memory as forging the sent rows takes."""
        attack = self.setup.attack
        if attack is not None:
            rows = len(values) if attack.to_each else 2 * len(attack.nodes)
            values.new_empty(rows, values.shape[1])

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: Aggregate,
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.aggregate`.

        In a dry run the rule is called once, for the node that receives most rows.
        """
        sent = values.shape[1] + scalars if counted else None
        exchange, phase = self._begin_exchange("aggregate", weights, sent), self.phase

        def checked(own: Tensor, received: Tensor, shares: Tensor) -> Tensor:
            return aggregated(phase, rule, own, received, shares)

        if self.work is not None:
            self.work.run.mixing.aggregate(weights, values, checked, self.t, f"{exchange}/0")
            return
        check_rule(phase, rule)
        self._allocate_forged(values)
        rows = torch.empty_like(values)
        largest = int(weights.in_messages.max(initial=0))
        received, shares = values.new_empty(largest, values.shape[1]), values.new_empty(largest)
        must = f"`rule` of the phase {phase!r} must work on rows without numbers, {WHY_PLAYED}"
        with explaining_meta_errors(must, NO_BRANCHES):
            checked(rows[0], received, shares)

    def published(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.published`: the values of the next exchange."""
        if self.work is not None:
            call = self.calls.get(self.phase, 0) + 1
            return self.work.run.mixing.published(values, self.t, f"{self.phase}/{call}/0")
        self._enter("published")
        attack = self.setup.attack
        return values if attack is None or attack.to_each else torch.empty_like(values)

    def all_rows(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.all_rows`."""
        return self.models.ranks.all_rows(values)

    def own_rows(self, values: Rows) -> Rows:
        """See :meth:`topofl.algorithms.Round.own_rows`."""
        return values if self.gathered is not None else self.models.ranks.own_rows(values)

    def on_all_models(
        self, function: Callable[[Models, State], State], models: Models, state: State
    ) -> State:
        """See :meth:`topofl.algorithms.Round.on_all_models`."""
        ranks, everyone = self.models.ranks, models.of_all_nodes()
        if everyone is models:
            return function(models, state)
        self.gathered = {}
        try:
            state = function(everyone, state)
            for owner, whole in self.gathered.items():
                for key in self.sharded.get(owner, ()):
                    self.states[owner][key].copy_(ranks.own_rows(whole[key]))
        finally:
            self.gathered = None
        cast(Population, models).take(cast(Population, everyone), ranks.own_rows)
        models.push_sum_weights.copy_(ranks.own_rows(everyone.push_sum_weights))
        return state

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See :meth:`topofl.algorithms.Round.send`."""
        self._enter("server" if server else "send")
        check_matrix("send", weights)
        self.used = self.used or weights
        self.exchanges.append(Exchange(weights, nbytes, server=server))

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """See :meth:`topofl.algorithms.Round.note`; a dry run ignores the value."""
        if self.work is None:
            check_name(self.phase, name)
            per_node = check_noted(self.phase, name, value, self.n)
            before = self.trace.noted.setdefault(name, per_node)
            check_same_kind(self.phase, name, per_node, before)
            return
        if name not in self.trace.noted:
            known = ", ".join(self.trace.noted) or "none"
            raise ValueError(
                f"the phase {self.phase!r} must note {shown(name)} in the first rounds too, which "
                f"show a run the columns of its history ({known}); note nan there"
            )
        per_node = self.trace.noted[name]
        if per_node and np.ndim(value) == 1:
            value = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
            own = len(value) == len(self.models)
            value = self.all_rows(value) if own else value
        check_same_kind(self.phase, name, check_noted(self.phase, name, value, self.n), per_node)
        if isinstance(value, Tensor):
            self.noted[name] = value.detach().clone()  # without waiting for the device
        else:
            self.noted[name] = np.asarray(value).item()

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that phases noted in the round; NaN for those not noted in it."""
        return {
            name: float(self.noted.get(name, np.nan))
            for name, per_node in self.trace.noted.items()
            if not per_node
        }

    @property
    def node_values(self) -> dict[str, Tensor]:
        """The values per node, (n,), that phases noted; NaN for those not noted in the round."""
        nothing = torch.full((self.n,), torch.nan, dtype=torch.float64, device="cpu")
        return {
            name: cast(Tensor, self.noted.get(name, nothing))
            for name, per_node in self.trace.noted.items()
            if per_node
        }


def _zero_losses(models: Tensor) -> Tensor:
    return torch.zeros(len(models), dtype=torch.float64, device="cpu")


def computed_round(
    work: RoundWork, phase: str = "", states: Mapping[str, State] | None = None
) -> Round:
    """Return the round that phases see, whose requests `work` computes."""
    run = work.run
    graph = run.setup.graphs.at(run.t) if run.graph is None else run.graph
    return Round(
        run.setup, run.t, graph, run.models, run.setup.trace, work, states or {},
        phase, run.sharded,
    )  # fmt: skip
