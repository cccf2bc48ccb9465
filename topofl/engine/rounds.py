"""The round that phases see: training, mixing, aggregation and messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import shown
from topofl._support.seeding import stream
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import Models, Rule, State, Trial, check_key
from topofl.engine.attackers import ReceivedRows
from topofl.engine.dry_run.checked import (
    AggregationRule,
    aggregated,
    check_noted,
    check_participants,
    state_of_phase,
)
from topofl.engine.dry_run.round import EXCHANGES
from topofl.engine.evaluate.cross_evaluation import cross_evaluate
from topofl.engine.exchange import Mixer
from topofl.engine.population import Population
from topofl.engine.recorder import Ledger
from topofl.engine.state import RunState
from topofl.engine.train.batches import Batch
from topofl.engine.train.divergence import Diverged
from topofl.engine.train.diversity import GradientStatistics
from topofl.engine.train.steps import all_gradients, local_steps
from topofl.engine.train.terms import LocalUpdate
from topofl.engine.train.workers import Each
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = ["EngineRound"]

T = TypeVar("T")


@dataclass(eq=False)
class EngineRound:
    """The round that phases see; see :class:`topofl.algorithms.Round`."""

    run: RunState
    each: Each
    t: int
    statistics: GradientStatistics | None
    phase: str = ""
    states: Mapping[str, State] = field(default_factory=dict)
    only: np.ndarray | None = None
    losses: Tensor | None = None
    lr: float | None = None
    used: MixingMatrix | None = None
    gradient_losses: dict[str, list[Tensor]] = field(default_factory=dict)
    diverged: list[Diverged] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    noted: dict[str, float | Tensor] = field(default_factory=dict)
    steps: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.run.models.flat.element_size())
        self.graph = self.run.graphs.at(self.t)

    def _check_door(self, door: str) -> None:
        """Raise ``ValueError`` if a phase uses a door that it did not use in the first rounds."""
        trace = self.run.trace
        alike = EXCHANGES if door in EXCHANGES else {door}
        if self.phase in trace.algorithm.phases and not alike & trace.requests.doors.get(
            self.phase, set()
        ):
            raise ValueError(
                f"the phase {self.phase!r} must use round.{door} in the first rounds too, as which "
                f"a run sees what it needs; it does so in round {self.t + 1} only: where "
                "`models.flat.is_meta`, let it do the most that it may do in any round"
            )

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
        self._check_door("topology")
        return self.graph

    @property
    def peers(self) -> Topology:
        """The graph of whom nodes may choose to hear."""
        self._check_door("peers")
        return self.graph

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.run.models.n

    def state(self, owner: str) -> State:
        """See the protocol."""
        return state_of_phase(self.states, owner, self.phase)

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; asking for it records it as used."""
        self.used = self.run.weights(self.topology)
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column stochastic matrix of the round; asking for it records it as used."""
        self._check_door("push")
        self.used = self.run.push_weights(self.topology)
        return self.used

    @property
    def sizes(self) -> np.ndarray:
        """See the protocol."""
        return self.run.learner.batches.sizes

    def rng(self, purpose: str) -> np.random.Generator:
        """See the protocol."""
        return stream(self.run.seed, purpose, self.t)

    def train(
        self, models: Models, how: Training, own: State, *, participants: np.ndarray | None = None
    ) -> np.ndarray:
        """See the protocol."""
        all_counts = how.counts(self.sizes)
        counts = self._participating(all_counts, participants)
        if not counts.any():
            return counts
        learner, steps = self.run.learner, int(counts.max())
        first_minibatch, n_minibatches = (
            self.t * all_counts * how.minibatches,
            steps * how.minibatches,
        )
        self.calls[self.phase] = call = self.calls.get(self.phase, 0) + 1
        key = (
            self.phase if call == 1 else f"{self.phase}/{call}"
        )  # another call draws other minibatches
        batches = [
            learner.batches.at(first_minibatch + k, how.sizes, key) for k in range(n_minibatches)
        ]
        update, bad = (
            self._local_update(cast(Population, models), how, own),
            self.run.monitor.frozen(models.flat.device),
        )
        mix_gradients = None if how.gradient is None else self._gradient_mixer(how.gradient, steps)
        statistics = (
            None if self.losses is not None else self.statistics
        )  # of the first phase that trains
        options: dict[str, Any] = {"mix_gradients": mix_gradients, "statistics": statistics}
        if (counts == steps).all() or learner.plan.chunk == 1:
            options["counts"] = None if (counts == steps).all() else counts
            losses, bad = local_steps(
                learner, self.each, update, batches, self.run.monitor, bad=bad, **options
            )
        else:
            losses = self._train_compactly(update, batches, counts, bad, options)
        self._record_losses(
            losses, bad, counts, update.step(0).lr, predicts=models is self.run.models
        )
        taken = self._steps_taken(counts)
        self.steps += int(taken.sum()) // how.per_step
        return taken

    def _steps_taken(self, counts: np.ndarray) -> np.ndarray:
        """Return how many steps nodes took: none where they are frozen and stay the same."""
        if self.run.monitor.policy == "freeze":
            counts = counts.copy()
            counts[[found.node for found in self.run.monitor.found]] = 0
        return counts

    def _participating(self, counts: np.ndarray, participants: np.ndarray | None) -> np.ndarray:
        """Return how many steps each node takes.

        It takes none if it does not take part, or if the round is not about it.
        """
        for taking_part in (
            None if participants is None else check_participants(participants, counts),
            self.only,
        ):
            counts = counts if taking_part is None else np.where(taking_part, counts, 0)
        return counts

    def _local_update(self, models: Population, how: Training, own: State) -> LocalUpdate:
        pushed = self.run.trace.pushed
        weighted = () if not pushed or bool((models.push_sum_weights == 1).all()) else pushed
        kept = {
            name: x for name, x in own.items() if x.data_ptr() != models.flat.data_ptr()
        }  # it may keep the models
        return LocalUpdate(
            models, how, kept, self.t, models.push_sum_weights if weighted else None, weighted
        )

    def _train_compactly(
        self,
        update: LocalUpdate,
        batches: Sequence[Batch],
        counts: np.ndarray,
        bad: Tensor,
        options: dict[str, Any],
    ) -> Tensor:
        """Train at once the nodes that take steps, those with most first; return all losses."""
        n, nodes = len(counts), np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        rows = torch.from_numpy(nodes).to(bad.device)
        small = replace(
            update,
            models=update.models.like(update.models.flat[rows]),
            own={
                name: x[rows.to(x.device)] if x.dim() and len(x) == n else x
                for name, x in update.own.items()
            },
            push_sum_weights=None
            if update.push_sum_weights is None
            else update.push_sum_weights[rows],
            nodes=nodes.tolist(),
        )
        small_batches = [batch.of(nodes) for batch in batches]
        small_losses, found = local_steps(
            self.run.learner,
            self.each,
            small,
            small_batches,
            self.run.monitor,
            counts=counts[nodes],
            bad=bad[rows],
            **options,
        )
        update.models.flat[rows], bad[rows] = small.models.flat, found
        for name, x in update.own.items():
            if x.dim() and len(x) == n:
                x[rows.to(x.device)] = small.own[name]
        losses = small_losses.new_zeros(n, small_losses.shape[1])
        losses[rows] = small_losses
        return losses

    def _record_losses(
        self, losses: Tensor, bad: Tensor, counts: np.ndarray, lr: float, predicts: bool
    ) -> None:
        """Keep the losses of the last phase that trains predicting models, and who diverged."""
        taken = torch.from_numpy(counts).to(losses.device)
        idle = self.run.monitor.frozen(losses.device) | (
            taken == 0
        )  # what they computed is not theirs
        if predicts or self.losses is None:
            self.losses, self.lr = (
                (losses.sum(1) / taken.clamp(min=1)).masked_fill(idle, torch.nan),
                lr,
            )
        self.diverged += self.run.monitor.note(losses, bad, self.t, lr)

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See the protocol."""
        return cross_evaluate(self.run, self.each, trials, self.run.examples_of_nodes[on])

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See the protocol."""
        self._check_door("gradients")
        learner = self.run.learner
        batch = learner.batches.at(
            self.t, batch_size, f"{self.phase}/{key}" if check_key(key) else self.phase
        )
        losses, gradients = all_gradients(learner, self.each, cast(Population, models), batch, key)
        self.steps += self.n
        if models is self.run.models:
            self._record_gradient_losses(losses)
        return gradients

    def _record_gradient_losses(self, losses: Tensor) -> None:
        """Keep by phase the losses where gradients are taken; they count without local steps."""
        self.gradient_losses.setdefault(self.phase, []).append(losses)
        if self.losses is None:
            bad = ~torch.isfinite(losses)
            self.diverged += self.run.monitor.note(losses[:, None], bad, self.t, float("nan"))

    @property
    def node_losses(self) -> Tensor | None:
        """(n,) the losses of the round, of local steps if there were any.

        Otherwise they are those where gradients were taken, by the last phase that took some.
        """
        if self.losses is not None or not self.gradient_losses:
            return self.losses
        return torch.stack(list(self.gradient_losses.values())[-1]).mean(0)

    def _gradient_mixer(self, rule: Rule, steps: int) -> Mixer:
        """Return what mixes all nodes' gradients, on all threads."""
        weights = self.run.weights(self.topology, rule)
        for _ in range(steps):
            self.ledger.add(weights, self.run.models.layout.d, gradients=True)
        return self.run.mixer(weights)._replace(apply=partial(self._mix, weights))

    def _mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """Mix without counting; each worker takes a share of the columns."""
        mix = self.run.mixer(weights)
        self.each(
            mix,
            values.tensor_split(self.run.learner.plan.workers if mix.by_columns else 1, dim=1),
        )

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
        self._check_door("server" if server else "mix")
        parts = [values[:, part] for part in columns]
        if counted:
            self.ledger.add(weights, sum(part.shape[1] for part in parts) + scalars, server=server)
        self.used = self.used or weights
        active_attack, exchange = self.run.active_attack, self._exchange_name(server=server)
        apply = _average_by_server if server else self._mix
        for k, part in enumerate(parts):
            if active_attack is None:
                apply(weights, part)
            elif server:
                active_attack.serve(apply, weights, part, self.t, f"{exchange}/{k}")
            else:
                active_attack.mix(apply, weights, part, self.t, f"{exchange}/{k}")

    def _exchange_name(self, *, server: bool = False) -> str:
        """Return a name of the exchange, of which attackers draw their random numbers."""
        key = f"{self.phase}/exchanges"
        self.calls[key] = call = self.calls.get(key, 0) + 1
        return f"{self.phase}/{call}{' by a server' * server}"

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: AggregationRule,
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """See the protocol."""
        self._check_door("mix")
        if counted:
            self.ledger.add(weights, values.shape[1] + scalars)
        self.used = self.used or weights
        active_attack, exchange = self.run.active_attack, self._exchange_name()
        forged = (
            None
            if active_attack is None
            else active_attack.forged(values, weights, self.t, f"{exchange}/0")
        )
        made = torch.empty_like(values)
        for i, received, shares in ReceivedRows(weights, values, active_attack, forged):
            made[i] = aggregated(self.phase, rule, values[i], received, shares)
        values.copy_(made)

    def shown(self, values: Tensor) -> Tensor:
        """See the protocol."""
        active_attack = self.run.active_attack
        if active_attack is None:
            return values
        call = (
            self.calls.get(f"{self.phase}/exchanges", 0) + 1
        )  # what is shown is what is sent next
        return active_attack.shown(values, self.t, f"{self.phase}/{call}/0")

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See the protocol."""
        self._check_door("server" if server else "send")
        self.ledger.send(weights, nbytes, server=server)
        self.used = self.used or weights

    def note(self, name: str, value: float | Tensor) -> None:
        """See the protocol."""
        if name not in self.run.trace.requests.noted:
            known = ", ".join(self.run.trace.requests.noted) or "none"
            raise ValueError(
                f"the phase {self.phase!r} must note {shown(name)} in the first rounds too, in "
                f"which a run sees what columns its history has ({known}); note nan there"
            )
        check_noted(self.phase, name, value)
        if isinstance(value, Tensor):
            self.noted[name] = value.detach().clone()  # the host does not wait for it here
        else:
            self.noted[name] = np.asarray(value).item()

    @property
    def numbers(self) -> dict[str, float]:
        """What the round noted, NaN for what it did not."""
        return {name: float(self.noted.get(name, np.nan)) for name in self.run.trace.requests.noted}


def _average_by_server(weights: MixingMatrix, values: Tensor) -> None:
    """Replace all rows by the mean that each row of `weights` is."""
    row = slice(*weights.weights.indptr[:2])
    nodes = torch.from_numpy(weights.weights.indices[row].astype(np.int64)).to(values.device)
    shares = torch.from_numpy(weights.weights.data[row].copy()).to(values)
    values.copy_((shares @ values[nodes]).expand_as(values))
