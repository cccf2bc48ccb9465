"""Local steps of all nodes: worker threads train chunks of nodes."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.terms import per_row
from topofl.engine.exchange import Mixer
from topofl.engine.population import Population
from topofl.engine.train.batches import Batch
from topofl.engine.train.divergence import DivergenceMonitor
from topofl.engine.train.diversity import GradientStatistics
from topofl.engine.train.gradient_exchange import gradient_exchange
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
from topofl.engine.train.workers import Each

__all__ = ["all_gradients", "local_steps"]


class TrainingJob(NamedTuple):
    """Local steps that are to be taken.

    Attributes
    ----------
    update
        The models, changed in place, and their steps.
    steps
        The minibatches of each step.
    counts
        (n,) how many steps each node takes of them, None: all.
    bad
        (n,) nodes that diverged, noted here before others can catch it from them.
    freezes
        Whether steps are undone for nodes that they would lead out of the finite numbers, and for
        bad ones.
    statistics
        Of each node's own gradient in the first step, if wanted.
    left
        `counts` on the device.
    """

    update: LocalUpdate
    steps: Sequence[Sequence[Minibatches]]
    counts: np.ndarray | None
    bad: Tensor
    freezes: bool
    statistics: GradientStatistics | None
    left: Tensor | None = None

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.update.models.n

    def idle(self, rows: slice, k: int) -> Tensor | None:
        """Return which of some nodes take no step k any more, None if all do."""
        if self.counts is None or self.left is None or bool((self.counts[rows] > k).all()):
            return None
        return self.left[rows] <= k

    def undoing(
        self, chunk: Chunk, losses: Tensor, idle: Tensor | None
    ) -> AbstractContextManager[None]:
        """Let some nodes take a step and undo it for idle or frozen ones; idle losses become 0."""
        return (
            nullcontext() if idle is None and not self.freezes else self._undo(chunk, losses, idle)
        )

    @contextmanager
    def _undo(self, chunk: Chunk, losses: Tensor, idle: Tensor | None) -> Iterator[None]:
        own = [
            part[name]
            for part in chunk.parts
            for name in part
            if part[name].dim() and len(part[name]) == len(losses)
        ]
        now = [self.update.models.flat[chunk.rows], *own]
        if (
            idle is not None and not self.freezes and idle.device.type == "cpu"
        ):  # elsewhere one would wait for places
            places = idle.nonzero().view(-1)
            before = [x[places] for x in now]
            yield
            losses[places] = 0
            for x, then in zip(now, before, strict=True):
                x[places] = then
            return
        before = [x.clone() for x in now]
        yield
        still = torch.zeros_like(self.bad[chunk.rows]) if idle is None else idle
        losses.masked_fill_(still, 0)
        if self.freezes:
            fine = torch.isfinite(losses)
            for x in (
                now if self.update.how.at is not None else now[:1]
            ):  # what a point keeps is trained, too
                fine &= finite_rows(x) if x.dim() == 2 and x.is_floating_point() else True
            self.bad[chunk.rows] |= ~still & ~fine
            still = still | self.bad[chunk.rows]
        for x, then in zip(now, before, strict=True):
            x.copy_(torch.where(per_row(still, x), then, x))


def local_steps(
    learner: Learner,
    each: Each,
    update: LocalUpdate,
    batches: Sequence[Batch],
    monitor: DivergenceMonitor,
    *,
    counts: np.ndarray | None = None,
    bad: Tensor | None = None,
    mix_gradients: Mixer | None = None,
    statistics: GradientStatistics | None = None,
) -> tuple[Tensor, Tensor]:
    """Take local steps on every node in place: one per batch, or per two of them.

    Without gradient mixing each chunk of nodes takes all its steps while it is in cache, and no
    more than one chunk's gradients exist at a time. Nodes that are `bad` from the start, by default
    those that `monitor` has frozen, do not train.

    Returns
    -------
    losses
        (n, steps); 0 for steps that were not taken.
    bad
        (n,) which nodes diverged; those that `monitor` freezes keep the last finite
        model they had.

    Raises
    ------
    ValueError
        If a term does not return finite directions for finite gradients in the first step of a run.
    """
    bad = monitor.frozen(update.models.flat.device) if bad is None else bad
    made, each_step = learner.minibatches(batches), update.how.minibatches
    steps = [made[k : k + each_step] for k in range(0, len(made), each_step)]
    left = None if counts is None else torch.from_numpy(counts).to(bad.device)
    job = TrainingJob(update, steps, counts, bad, monitor.policy == "freeze", statistics, left)
    if mix_gradients is None:
        losses = _train_separately(learner, each, job)
    else:
        losses = _train_with_mixed_gradients(
            learner, each, job, mix_gradients, contained=monitor.policy != "record"
        )
    update.check()
    return losses, bad


def _train_separately(learner: Learner, each: Each, job: TrainingJob) -> Tensor:
    """Train every chunk on its own, and return the losses."""
    models = job.update.models
    losses = models.flat.new_zeros(models.n, len(job.steps))
    sums = models.flat.sum(1) if job.counts is not None else models.flat.new_empty(models.n)

    def train(worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        chunk = job.update.chunk(rows, worker.buffers)
        for k in range(len(job.steps) if job.counts is None else int(job.counts[rows].max())):
            idle = job.idle(rows, k)
            with job.undoing(chunk, losses[rows, k], idle):
                losses[rows, k], gradients = _gradients_of_step(
                    learner, worker, job, chunk, k, observed, idle
                )
                job.update.descend(chunk, k, gradients)
        for name, x in chunk.own.items():  # what lay apart
            if (
                chunk.parts
                and len(chunk.parts) == 1
                and x.dim() == 2
                and x.shape[1] == models.flat.shape[1]
            ):
                job.update.write_trained(x, chunk.parts[0][name])
        torch.sum(models.flat[rows], 1, out=sums[rows])  # while they are in cache

    _on_chunks_of(learner, each, job, train)
    found = ~(torch.isfinite(losses).all(1) & finite_rows(models.flat, sums))
    if job.update.how.at is not None:  # what a point keeps is trained, too
        for own in job.update.own.values():
            found |= ~finite_rows(own) if own.shape == models.flat.shape else False
    if job.left is not None:
        found &= job.left > 0  # others brought it along
    job.bad.logical_or_(found)
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
    """Return the losses and gradients of step k, where the phase takes them."""
    update, at = job.update, job.update.how.at
    models, minibatches = update.models, job.steps[k]
    if at is None:
        losses, found = differentiate(
            learner, worker, models, minibatches[-1], chunk.rows, update.trained
        )
        _observe_gradients(job, chunk.rows, k, found, observed, idle)
        return losses, found

    def gradient(values: Tensor) -> Tensor:
        point = update.parameters(values, chunk)
        return update.flat(
            differentiate(
                learner, worker, models, minibatches[0], chunk.rows, update.trained, point
            )[1]
        )

    step, theta, own = (
        update.step(k),
        update.trained_columns(models.flat[chunk.rows]),
        chunk.parts[0],
    )
    point = update.parameters(at.where(theta, own, step, gradient), chunk)
    losses, found = differentiate(
        learner, worker, models, minibatches[-1], chunk.rows, update.trained, point
    )
    losses = losses.clone()  # the next ones may lie in the same memory
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
    """Look at the gradients of the first step, of nodes that take it."""
    if k == 0 and job.statistics is not None:
        observed.observe(gradients, ~job.bad[rows] if idle is None else ~(job.bad[rows] | idle))


def _train_with_mixed_gradients(
    learner: Learner, each: Each, job: TrainingJob, mixer: Mixer, contained: bool
) -> Tensor:
    """Mix all nodes' gradients in every step, and return the losses.

    Gradients of nodes that have diverged are `contained`: they count as zero for the
    others.
    """
    models = job.update.models
    n, like, exchange = models.n, models.flat, gradient_exchange(learner, models.flat, mixer)
    sums, losses = like.new_empty(n), like.new_empty(n, len(job.steps))
    chunks: dict[int, Chunk] = {}

    def contain(k: int, rows: slice, gradients: Tensor) -> None:
        job.bad[rows] |= ~(torch.isfinite(losses[rows, k]) & finite_rows(gradients, sums[rows]))
        if contained:
            gradients.masked_fill_(job.bad[rows, None], 0)  # the others do not catch it

    def differentiate_step(
        k: int, worker: Worker, rows: slice, observed: GradientStatistics
    ) -> None:
        losses[rows, k], gradients = differentiate(learner, worker, models, job.steps[k][-1], rows)
        _observe_gradients(job, rows, k, gradients, observed, None)
        own = exchange.place(worker, rows)
        for view, g in zip(models.layout.views(own), gradients, strict=True):
            view.copy_(g)
        torch.sum(own, 1, out=sums[rows])
        exchange.add(worker, rows, own, partial(contain, k))

    def descend(k: int, worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        del observed
        if rows.start not in chunks:
            chunks[rows.start] = job.update.chunk(rows, worker.buffers)
        chunk = chunks[rows.start]
        with job.undoing(chunk, losses[rows, k], None):
            job.update.descend(chunk, k, [exchange.mixed(worker, rows)])
        torch.sum(like[rows], 1, out=sums[rows])

    for k in range(len(job.steps)):
        exchange.begin()
        _on_chunks_of(learner, each, job, partial(differentiate_step, k))
        exchange.mix(partial(contain, k))
        _on_chunks_of(learner, each, job, partial(descend, k))
        job.bad.logical_or_(~finite_rows(like, sums))
    return losses


def all_gradients(
    learner: Learner, each: Each, models: Population, batch: Batch, key: str = ""
) -> tuple[Tensor, Tensor]:
    """Return all nodes' losses (n,) and gradients (n, d) on one minibatch."""
    (minibatches,), like = learner.minibatches([batch]), models.flat
    place = f"gradients of {key}" if key else "gradients"
    flat = learner.buffers.take(place, tuple(like.shape), like.dtype)
    views, losses = models.layout.views(flat), like.new_empty(models.n)

    def work(worker: Worker, rows: slice, observed: GradientStatistics) -> None:
        del observed
        losses[rows], gradients = differentiate(learner, worker, models, minibatches, rows)
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)

    for_each_chunk(learner, each, chunks_of(models.n, learner.plan.chunk), work)
    return losses, flat


def _on_chunks_of(learner: Learner, each: Each, job: TrainingJob, function: Work) -> None:
    """Call `function` for every chunk of nodes that take a step."""
    chunks = chunks_of(job.n, learner.plan.chunk)
    if job.counts is not None:
        chunks = _most_first(chunks, job.counts)
    found = for_each_chunk(learner, each, chunks, function, interleaved=job.counts is not None)
    if job.statistics is not None:
        for observed in found:
            job.statistics.add(observed)


def _most_first(chunks: Sequence[slice], counts: np.ndarray) -> list[slice]:
    """Return the chunks of nodes that take steps, those that take most first."""
    most = [int(counts[chunk].max()) for chunk in chunks]
    return [chunks[k] for k in sorted(range(len(chunks)), key=lambda k: -most[k]) if most[k]]
