"""What computes the requests of one round: local training, mixing and cross-evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import State, Trial
from topofl.algorithms.contract.schedules import rate_at
from topofl.engine.divergence import Diverged, GradientStatistics
from topofl.engine.evaluation import check_trials, cross_evaluate
from topofl.engine.minibatches import Minibatches
from topofl.engine.mixing import Mixer
from topofl.engine.population import Population
from topofl.engine.shards import own_part
from topofl.engine.state import Run
from topofl.engine.training import LocalSteps, all_gradients, local_steps
from topofl.mixing import MixingMatrix

T = TypeVar("T")


@dataclass(eq=False)
class RoundWork:
    """Computes what phases request in one round, and keeps losses and diverged nodes.

    Parameters
    ----------
    run
        The run.
    statistics
        Measures gradient diversity in the first phase that trains; None: not measured.
    only
        (n,) nodes that may train; None: all.
    """

    run: Run
    statistics: GradientStatistics | None = None
    only: np.ndarray | None = None
    losses: Tensor | None = field(default=None, init=False)
    lr: float | None = field(default=None, init=False)
    gradient_losses: dict[str, list[Tensor]] = field(default_factory=dict, init=False)
    diverged: list[Diverged] = field(default_factory=list, init=False)
    steps: int = field(default=0, init=False)
    calls: dict[str, int] = field(default_factory=dict, init=False)
    """Number of calls of :meth:`train` so far, by phase."""

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """Return the results of trials by node."""
        run, ranks = self.run, self.run.ranks
        indices = run.examples_of_nodes[on]
        check_trials(trials, indices)
        own = {i: trial for i, trial in trials.items() if ranks.owner[i] == ranks.rank}
        plan, layout = run.setup.evaluation_plan, run.models.layout
        found = cross_evaluate(plan, layout, run.executor, own, indices) if own else {}
        merged = {i: result for part in ranks.objects(found) for i, result in part.items()}
        return {i: merged[i] for i in trials}

    def train(
        self,
        phase: str,
        models: Population,
        training: Training,
        state: State,
        all_counts: np.ndarray,
        counts: np.ndarray,
        weights: MixingMatrix | None,
    ) -> np.ndarray:
        """Take local steps in place, and return how many each node took, (n,).

        `all_counts` are the steps of nodes if they take part, `counts` those that they take. With
        `weights`, gradients are mixed in each step.
        """
        self.calls[phase] = self.calls.get(phase, 0) + 1
        ranks, mixing = self.run.ranks, self.run.mixing
        mixer = None if weights is None else mixing.mixer(weights, len(ranks.nodes))
        all_own, own = ranks.own_rows(all_counts), ranks.own_rows(counts)
        with own_part(models, state) as (own_models, own_state):
            self._train_rows(phase, own_models, training, own_state, all_own, own, mixer)
        if self.run.monitor.policy == "freeze":  # frozen models are unchanged
            counts = counts.copy()
            counts[[found.node for found in self.run.monitor.found]] = 0
        self.steps += int(counts.sum()) // training.per_step
        return counts

    def _train_rows(
        self,
        phase: str,
        models: Population,
        training: Training,
        state: State,
        all_counts: np.ndarray,
        counts: np.ndarray,
        mixer: Mixer | None,
    ) -> None:
        """Take local steps with the models in the rows that this process holds."""
        if not counts.any():  # the nodes of other ranks take steps
            losses = torch.zeros(len(models), 1, dtype=models.dtype, device=models.device)
            lr = rate_at(training.descend.lr, self.run.t, 0, models.dtype)
            self._record_losses(models, losses, self._frozen(losses.device), counts, lr)
            return
        steps = int(counts.max())
        batches = self._minibatches(phase, training, all_counts, steps)
        job = self._local_steps(models, training, state)
        executor, unequal = self.run.executor, bool((counts < steps).any())
        if unequal and (executor.plan.chunk > 1 or models.distinct < len(models)):
            losses = self._train_compactly(job, batches, counts, mixer)
        else:
            job = replace(job, counts=counts) if unequal else job
            losses = local_steps(executor, job, batches, mixer)
        self._record_losses(models, losses, job.bad, counts, job.step(0).lr)

    def _frozen(self, device: torch.device) -> Tensor:
        """Return a mask of the rows whose nodes no longer train."""
        return self.run.ranks.own_rows(self.run.monitor.frozen(device))

    def _minibatches(
        self, phase: str, training: Training, all_counts: np.ndarray, steps: int
    ) -> list[Minibatches]:
        """Return the minibatches of a call of :meth:`train`; further calls draw other ones."""
        call = self.calls[phase]
        key = phase if call == 1 else f"{phase}/{call}"
        first = self.run.t * all_counts * training.minibatches
        draw, sizes = self.run.executor.batches.at, training.sizes
        if isinstance(sizes, np.ndarray):
            sizes = self.run.ranks.own_rows(sizes)
        return [draw(first + k, sizes, key) for k in range(steps * training.minibatches)]

    def _local_steps(self, models: Population, training: Training, state: State) -> LocalSteps:
        pushed = self.run.setup.trace.pushed
        weighted = () if not pushed or bool((models.push_sum_weights == 1).all()) else pushed
        own = {  # without the models themselves, which a phase may store in its state
            name: x for name, x in state.items() if x.data_ptr() != models.held.stored.data_ptr()
        }
        return LocalSteps(
            models, training, own, self.run.t, self._frozen(models.device),
            self.run.monitor.policy,
            statistics=self.statistics if self.losses is None else None,
            push_sum_weights=models.push_sum_weights if weighted else None, weighted=weighted,
            nodes=self.run.ranks.nodes, labels=self.run.monitor.labels,
        )  # fmt: skip

    def _train_compactly(
        self,
        job: LocalSteps,
        batches: Sequence[Minibatches],
        counts: np.ndarray,
        mixer: Mixer | None,
    ) -> Tensor:
        """Train the nodes that take steps in one block, most steps first; return all losses."""
        n = len(counts)
        nodes = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        rows = torch.from_numpy(nodes).to(job.bad.device)
        push_sum_weights = job.push_sum_weights
        small = replace(
            job,
            models=job.models.some(nodes),
            own={
                name: x[rows.to(x.device)] if x.dim() and len(x) == n else x
                for name, x in job.own.items()
            },
            bad=job.bad[rows],
            counts=counts[nodes],
            push_sum_weights=None if push_sum_weights is None else push_sum_weights[rows],
            nodes=nodes if job.nodes is None else job.nodes[nodes],
        )
        small_batches = [batch.of(nodes) for batch in batches]
        small_losses = local_steps(self.run.executor, small, small_batches, mixer)
        job.models.write(nodes, small.models.flat)
        for name, buffer in small.models.buffers.items():
            job.models.buffers[name].write(nodes, buffer.stored)
        job.bad[rows] = small.bad
        for name, x in job.own.items():
            if x.dim() and len(x) == n:
                x[rows.to(x.device)] = small.own[name]
        losses = small_losses.new_zeros(n, small_losses.shape[1])
        losses[rows] = small_losses
        return losses

    def _predicts(self, models: Population) -> bool:
        """Whether these are the models that predict, or a copy of them for all nodes."""
        return self.run.models in (models, models.copy_of)

    def _record_losses(
        self, models: Population, losses: Tensor, bad: Tensor, counts: np.ndarray, lr: float
    ) -> None:
        """Record diverged nodes, and the losses of the last phase that trains predicting models."""
        taken = torch.from_numpy(counts).to(losses.device)
        idle = self._frozen(losses.device) | (taken == 0)  # their losses do not count
        if self.losses is None or self._predicts(models):
            means = losses.sum(1) / taken.clamp(min=1)
            self.losses = means.masked_fill(idle, torch.nan)
            self.lr = lr
        self._note_diverged(losses, bad, lr)

    def _note_diverged(self, losses: Tensor, bad: Tensor, lr: float) -> None:
        """Record diverged nodes of all ranks."""
        ranks = self.run.ranks
        if not ranks.any(bool(bad.any())):
            return
        steps = int(ranks.numbers([losses.shape[1]]).max())  # of which this rank took some
        losses = torch.nn.functional.pad(losses, (0, steps - losses.shape[1]))
        losses, bad = ranks.all_rows(losses), ranks.all_rows(bad)
        self.diverged += self.run.monitor.note(losses, bad, self.run.t, lr)

    def gradients(self, phase: str, models: Population, batch_size: int, key: str) -> Tensor:
        """Return all nodes' gradients (n, d) on a minibatch each, without a step."""
        executor, ranks = self.run.executor, self.run.ranks
        name = f"{phase}/{key}" if key else phase
        batch = executor.batches.at(self.run.t, batch_size, name)
        rows = models.of_own_nodes()
        losses, gradients = all_gradients(executor, rows, batch, key)
        self.steps += models.n
        if self._predicts(models):  # these losses count without local steps
            self.gradient_losses.setdefault(phase, []).append(losses)
            if self.losses is None:
                self._note_diverged(losses[:, None], ~torch.isfinite(losses), float("nan"))
        return ranks.all_rows(gradients) if len(models) == models.n else gradients

    @property
    def node_losses(self) -> Tensor | None:
        """(n,) mean losses of local steps, or without any, of gradient evaluations.

        Of several phases that evaluated gradients the last counts.
        """
        losses = self.losses
        if losses is None and self.gradient_losses:
            losses = torch.stack(list(self.gradient_losses.values())[-1]).mean(0)
        return None if losses is None else self.run.ranks.all_rows(losses)
