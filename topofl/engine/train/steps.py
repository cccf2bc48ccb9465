"""Local steps of all nodes: worker threads train chunks of nodes."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.terms import per_row
from topofl.engine.mixing import Mixer
from topofl.engine.population import Population
from topofl.engine.train.batches import Batch
from topofl.engine.train.divergence import DivergenceMonitor
from topofl.engine.train.diversity import GradientStatistics
from topofl.engine.train.gradient_exchange import Contain, gradient_exchange, nodes_per_update
from topofl.engine.train.learner import (
    Learner,
    Minibatches,
    Work,
    Worker,
    chunks_of,
    differentiate,
    for_each_chunk,
)
from topofl.engine.train.terms import Chunk, LocalUpdate, finite_rows
from topofl.engine.train.workers import ParallelMap

__all__ = ["all_gradients", "local_steps"]


class TrainingJob(NamedTuple):
    """Local steps of a phase, and the nodes that diverge in them.

    Attributes
    ----------
    update
        The models, which are changed in place, and the rule of their steps.
    steps
        The minibatches of each step.
    counts
        (n,) number of steps that each node takes; None: all steps.
    bad
        (n,) mask of nodes that diverged, set before their values can spread to other nodes.
    freezes
        Whether steps are undone for nodes in `bad`, and where they would produce NaN or infinity.
    statistics
        Statistics of each node's own gradient in the first step; None: not recorded.
    device_counts
        `counts` on the device.
    """

    update: LocalUpdate
    steps: Sequence[Sequence[Minibatches]]
    counts: np.ndarray | None
    bad: Tensor
    freezes: bool
    statistics: GradientStatistics | None
    device_counts: Tensor | None = None

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.update.models.flat)

    def idle(self, rows: slice, k: int) -> Tensor | None:
        """Return a mask of the nodes in `rows` that do not take step k; None if all take it."""
        if self.counts is None or self.device_counts is None or bool((self.counts[rows] > k).all()):
            return None
        return self.device_counts[rows] <= k

    def undoing(
        self, chunk: Chunk, losses: Tensor, idle: Tensor | None
    ) -> AbstractContextManager[None]:
        """Return a context that undoes its step for idle and frozen nodes; idle losses become 0."""
        if idle is None and not self.freezes:
            return nullcontext()
        return self._undoing(chunk, losses, idle)

    @contextmanager
    def _undoing(self, chunk: Chunk, losses: Tensor, idle: Tensor | None) -> Iterator[None]:
        state = [
            part[name]
            for part in chunk.parts
            for name in part
            if part[name].dim() and len(part[name]) == len(losses)
        ]
        current = [self.update.models.flat[chunk.rows], *state]
        if idle is not None and not self.freezes and idle.device.type == "cpu":
            # On other devices, nonzero would wait for the result.
            indices = idle.nonzero().view(-1)
            previous = [x[indices] for x in current]
            yield
            losses[indices] = 0
            for x, before in zip(current, previous, strict=True):
                x[indices] = before
            return
        previous = [x.clone() for x in current]
        yield
        undone = torch.zeros_like(self.bad[chunk.rows]) if idle is None else idle
        losses.masked_fill_(undone, 0)
        if self.freezes:
            finite = torch.isfinite(losses)
            # The state of a gradient point is trained, too.
            for x in current if self.update.training.at is not None else current[:1]:
                finite &= finite_rows(x) if x.dim() == 2 and x.is_floating_point() else True
            self.bad[chunk.rows] |= ~undone & ~finite
            undone = undone | self.bad[chunk.rows]
        for x, before in zip(current, previous, strict=True):
            x.copy_(torch.where(per_row(undone, x), before, x))


def local_steps(
    learner: Learner,
    parallel_map: ParallelMap,
    update: LocalUpdate,
    batches: Sequence[Batch],
    monitor: DivergenceMonitor,
    *,
    counts: np.ndarray | None = None,
    bad: Tensor | None = None,
    mix_gradients: Mixer | None = None,
    statistics: GradientStatistics | None = None,
) -> tuple[Tensor, Tensor]:
    """Take local steps on every node in place: one step per batch, or per pair of batches.

    Without gradient mixing, each chunk of nodes takes all of its steps while it is in cache, and
    only one chunk's gradients per worker exist at a time. Nodes that are `bad` from the start, by
    default those that `monitor` has frozen, do not train.

    Returns
    -------
    losses
        (n, steps); 0 for steps that were not taken.
    bad
        (n,) which nodes diverged; those that `monitor` freezes keep their last finite model.

    Raises
    ------
    ValueError
        If a term does not return finite directions for finite gradients in the first step of a run.
    """
    bad = monitor.frozen(update.models.flat.device) if bad is None else bad
    minibatches = learner.minibatches(batches)
    per_step = update.training.minibatches
    steps = [minibatches[k : k + per_step] for k in range(0, len(minibatches), per_step)]
    device_counts = None if counts is None else torch.from_numpy(counts).to(bad.device)
    freezes = monitor.policy == "freeze"
    job = TrainingJob(update, steps, counts, bad, freezes, statistics, device_counts)
    if mix_gradients is None:
        losses = _train_separately(learner, parallel_map, job)
    else:
        losses = _train_with_mixed_gradients(
            learner, parallel_map, job, mix_gradients, contained=monitor.policy != "record"
        )
    update.check(monitor.labels)
    return losses, bad


def _train_separately(learner: Learner, parallel_map: ParallelMap, job: TrainingJob) -> Tensor:
    """Take all steps of a chunk before those of the next, and return the losses (n, steps)."""
    models = job.update.models
    losses = models.flat.new_zeros(job.n, len(job.steps))
    sums = models.flat.sum(1) if job.counts is not None else models.flat.new_empty(job.n)

    def train(worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        chunk = job.update.chunk(rows, worker.buffers)
        for k in range(len(job.steps) if job.counts is None else int(job.counts[rows].max())):
            idle = job.idle(rows, k)
            with job.undoing(chunk, losses[rows, k], idle):
                losses[rows, k], gradients = _gradients_of_step(
                    learner, worker, job, chunk, k, observed, idle
                )
                job.update.take_step(chunk, k, gradients)
        if len(chunk.parts) == 1:  # trained columns may have been copied
            for name, x in chunk.own.items():
                if x.dim() == 2 and x.shape[1] == models.flat.shape[1]:
                    job.update.write_trained(x, chunk.parts[0][name])
        torch.sum(models.flat[rows], 1, out=sums[rows])  # while they are in cache

    _on_chunks_of(learner, parallel_map, job, train)
    diverged = ~(torch.isfinite(losses).all(1) & finite_rows(models.flat, sums))
    if job.update.training.at is not None:  # the state of a gradient point is trained, too
        for own in job.update.own.values():
            diverged |= ~finite_rows(own) if own.shape == models.flat.shape else False
    if job.device_counts is not None:
        diverged &= job.device_counts > 0  # others had diverged before
    job.bad.logical_or_(diverged)
    return losses


def _gradients_of_step(
    learner: Learner,
    worker: Worker,
    job: TrainingJob,
    chunk: Chunk,
    k: int,
    observed: GradientStatistics,
    idle: Tensor | None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the losses and gradients of step k, taken at the gradient point of the phase."""
    update = job.update
    at = update.training.at
    models = update.models
    minibatches = job.steps[k]
    if at is None:
        losses, found = differentiate(
            learner, worker, models, minibatches[-1], chunk.rows, update.trained
        )
        _observe_gradients(job, chunk.rows, k, found, observed, idle)
        return losses, found

    def gradient(values: Tensor) -> Tensor:
        point = update.parameters(values, chunk)
        _, found = differentiate(
            learner, worker, models, minibatches[0], chunk.rows, update.trained, point
        )
        return update.flat(found)

    step = update.step(k)
    theta = update.trained_columns(models.flat[chunk.rows])
    own = chunk.parts[0]
    point = update.parameters(at.where(theta, own, step, gradient), chunk)
    losses, found = differentiate(
        learner, worker, models, minibatches[-1], chunk.rows, update.trained, point
    )
    losses = losses.clone()  # the next losses may reuse their memory
    _observe_gradients(job, chunk.rows, k, found, observed, idle)
    g = update.flat(found)
    return losses, [at.back(g, theta, own, step, gradient)]


def _observe_gradients(
    job: TrainingJob,
    rows: slice,
    k: int,
    gradients: Sequence[Tensor],
    observed: GradientStatistics,
    idle: Tensor | None,
) -> None:
    """Add the gradients of the first step to the statistics, for nodes that take it."""
    if k == 0 and job.statistics is not None:
        observed.observe(gradients, ~job.bad[rows] if idle is None else ~(job.bad[rows] | idle))


class _MixedGradients(NamedTuple):
    """Losses and gradients of a phase whose gradients are mixed, and the nodes that diverge.

    Attributes
    ----------
    job
        The local steps.
    losses, sums
        (n, steps) losses, and (n,) sums of the gradients or models of each node.
    contained
        Whether gradients of nodes that have diverged count as zero for other nodes.
    """

    job: TrainingJob
    losses: Tensor
    sums: Tensor
    contained: bool

    def contain(self, k: int, any_bad: bool, rows: slice, gradients: Tensor) -> None:
        """Record diverged nodes, and zero their gradients; skipped on CPU if there are none."""
        sums, losses, bad = self.sums[rows], self.losses[rows, k], self.job.bad[rows]
        on_cpu = sums.device.type == "cpu"
        if on_cpu and not any_bad and bool(torch.isfinite(sums + losses).all()):
            return  # as nearly always; each further operation would hold up the other workers
        bad |= ~(torch.isfinite(losses) & finite_rows(gradients, sums))
        if self.contained:
            gradients.masked_fill_(bad[:, None], 0)


def _train_with_mixed_gradients(
    learner: Learner, parallel_map: ParallelMap, job: TrainingJob, mixer: Mixer, contained: bool
) -> Tensor:
    """Mix all nodes' gradients in every step, and return the losses (n, steps)."""
    models = job.update.models
    flat = models.flat
    exchange = gradient_exchange(learner, flat, mixer)
    sums, losses = flat.new_empty(job.n), flat.new_empty(job.n, len(job.steps))
    mixed = _MixedGradients(job, losses, sums, contained)
    chunks: dict[int, Chunk] = {}

    def differentiate_step(
        k: int, contain: Contain, worker: Worker, rows: slice, observed: GradientStatistics
    ) -> None:
        losses[rows, k], gradients = differentiate(learner, worker, models, job.steps[k][-1], rows)
        _observe_gradients(job, rows, k, gradients, observed, None)
        own = exchange.place(worker, rows)
        for view, g in zip(models.layout.views(own), gradients, strict=True):
            view.copy_(g)
        torch.sum(own, 1, out=sums[rows])
        exchange.add(worker, rows, own, contain)

    def take_step(k: int, worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        del observed
        if rows.start not in chunks:
            chunks[rows.start] = job.update.chunk(rows, worker.buffers)
        chunk = chunks[rows.start]
        with job.undoing(chunk, losses[rows, k], None):
            job.update.take_step(chunk, k, [exchange.mixed(worker, rows)])
        torch.sum(flat[rows], 1, out=sums[rows])

    together = nodes_per_update(job.n, learner.plan.workers, learner.plan.chunk, flat[0].nbytes)
    for k in range(len(job.steps)):
        any_bad = flat.device.type == "cpu" and bool(job.bad.any())
        contain = partial(mixed.contain, k, any_bad)
        exchange.begin()
        _on_chunks_of(learner, parallel_map, job, partial(differentiate_step, k, contain))
        exchange.mix(contain)
        _on_chunks_of(learner, parallel_map, job, partial(take_step, k), size=together)
        job.bad.logical_or_(~finite_rows(flat, sums))
    return losses


def all_gradients(
    learner: Learner, parallel_map: ParallelMap, models: Population, batch: Batch, key: str = ""
) -> tuple[Tensor, Tensor]:
    """Return all nodes' losses (n,) and gradients (n, d) on one minibatch.

    The gradients are in a buffer that the next call with the same `key` reuses.
    """
    (minibatches,) = learner.minibatches([batch])
    buffer = f"gradients of {key}" if key else "gradients"
    flat = learner.buffers.take(buffer, tuple(models.flat.shape), models.flat.dtype)
    views = models.layout.views(flat)
    losses = models.flat.new_empty(len(models.flat))

    def work(worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        del observed
        losses[rows], gradients = differentiate(learner, worker, models, minibatches, rows)
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)

    for_each_chunk(learner, parallel_map, chunks_of(len(models.flat), learner.plan.chunk), work)
    return losses, flat


def _on_chunks_of(
    learner: Learner,
    parallel_map: ParallelMap,
    job: TrainingJob,
    function: Work,
    size: int | None = None,
) -> None:
    """Call `function` for every chunk with a node that takes a step, and collect statistics.

    `size` is the number of nodes of a chunk; None: as many as are differentiated together.
    """
    chunks = chunks_of(job.n, learner.plan.chunk if size is None else size)
    if job.counts is not None:
        chunks = _most_steps_first(chunks, job.counts)
    found = for_each_chunk(
        learner, parallel_map, chunks, function, interleaved=job.counts is not None
    )
    if job.statistics is not None:
        for observed in found:
            job.statistics.add(observed)


def _most_steps_first(chunks: Sequence[slice], counts: np.ndarray) -> list[slice]:
    """Return the chunks of nodes that take steps, those with the most steps first."""
    most = [int(counts[chunk].max()) for chunk in chunks]
    return [chunks[k] for k in sorted(range(len(chunks)), key=lambda k: -most[k]) if most[k]]
