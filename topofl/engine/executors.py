"""Local steps of all nodes: chunks of nodes on worker threads, each with gradients and memory of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl.engine.batches import Batch, Batches
from topofl.engine.buffers import Buffers
from topofl.engine.divergence import Guard
from topofl.engine.diversity import GradientStatistics
from topofl.engine.examples import Examples
from topofl.engine.gradients import Gradients
from topofl.engine.plan import Plan
from topofl.engine.population import Population
from topofl.engine.threads import Each

__all__ = ["Learner", "Minibatches", "Worker", "differentiate", "local_sgd"]


class Minibatches(NamedTuple):
    """One step's minibatches of all nodes, on the device.

    Attributes
    ----------
    indices
        (n, width) int64.
    weights
        (n, width) of each example in its node's mean loss, None where all are 1 / width.
    """

    indices: Tensor
    weights: Tensor | None


class Worker(NamedTuple):
    """What one thread needs to train nodes."""

    gradients: Gradients
    buffers: Buffers


@dataclass(frozen=True, eq=False)
class Learner:
    """What training needs and what does not change during a run.

    Parameters
    ----------
    plan
        Executor, nodes a call and threads.
    workers
        One a thread.
    examples, labels
        The whole dataset on the device, (N, ...) and (N,).
    batches
        Who trains on what, when.
    buffers
        Memory for what concerns all nodes, used again in every step.
    """

    plan: Plan
    workers: Sequence[Worker]
    examples: Examples
    labels: Tensor
    batches: Batches
    buffers: Buffers

    def minibatches(self, batch: Batch) -> Minibatches:
        """Return a step's minibatches on the device."""
        indices = torch.from_numpy(np.ascontiguousarray(batch.indices)).to(self.labels.device)
        weights = batch.weights
        if weights is not None:
            weights = torch.from_numpy(weights).to(device=indices.device, dtype=self.examples.dtype)
        return Minibatches(indices, weights)


class Descent(NamedTuple):
    """Heavy-ball steps: ``v = momentum * v + g; theta = theta - lr * v``, without `velocity` ``theta - lr * g``."""

    models: Population
    lr: float
    momentum: float
    velocity: Tensor | None

    def __call__(self, rows: slice, losses: Tensor, gradients: Tensor | Sequence[Tensor]) -> None:
        """Take a step of some nodes, in place."""
        del losses
        whole = isinstance(gradients, Tensor)
        directions = [gradients] if whole else gradients
        if self.velocity is not None:
            speeds = [self.velocity[rows]] if whole else self.models.layout.views(self.velocity[rows])
            for v, g in zip(speeds, directions, strict=True):
                v.mul_(self.momentum).add_(g)
            directions = speeds
        for view, g in zip([self.models.flat] if whole else self.models.views, directions, strict=True):
            view[rows].add_(g, alpha=-self.lr)


Step = Callable[[slice, Tensor, Tensor | Sequence[Tensor]], None]
"""(rows, their losses, their gradients in one piece (k, d) or one a parameter): takes a step of some nodes.

In one piece it takes fewer calls, which wait for each other where several threads descend.
"""


def _freezing(descent: Descent, stopped: Tensor) -> Step:
    """Return the step that is undone for nodes that it would lead out of the finite numbers, and for `stopped` ones."""

    def step(rows: slice, losses: Tensor, gradients: Tensor | Sequence[Tensor]) -> None:
        models = descent.models.flat[rows]
        before = models.clone()
        descent(rows, losses, gradients)
        stopped[rows] |= ~(torch.isfinite(losses) & _finite_rows(models, models.sum(1)))
        models[stopped[rows]] = before[stopped[rows]]  # their velocities are of no use any more

    return step


class Job(NamedTuple):
    """Local steps that are to be taken.

    Attributes
    ----------
    models
        Whose; changed in place.
    steps
        Their minibatches.
    step
        What is done with gradients.
    bad
        (n,) nodes that left the finite numbers, noted here before others can catch it from them.
    statistics
        Of each node's own gradient in the first step, if wanted.
    """

    models: Population
    steps: Sequence[Minibatches]
    step: Step
    bad: Tensor
    statistics: GradientStatistics | None


def local_sgd(
    learner: Learner,
    each: Each,
    descent: Descent,
    steps: Sequence[Batch],
    guard: Guard,
    *,
    mix_gradients: Callable[[Tensor], None] | None = None,
    statistics: GradientStatistics | None = None,
) -> tuple[Tensor, Tensor]:
    """Take one SGD step per given batch on every node, in place.

    Without gradient mixing each chunk of nodes takes all its steps while it is in cache, and no more than one chunk's
    gradients exist at a time.

    Returns
    -------
    losses
        (n, steps).
    bad
        (n,) which nodes left the finite numbers; those that `guard` freezes keep the last finite model they had.
    """
    bad = guard.frozen(descent.models.flat.device)
    step = _freezing(descent, bad) if guard.policy == "freeze" else descent
    job = Job(descent.models, [learner.minibatches(batch) for batch in steps], step, bad, statistics)
    if mix_gradients is None:
        return _apart(learner, each, job), bad
    return _together(learner, each, job, mix_gradients, contained=guard.policy != "record"), bad


def _apart(learner: Learner, each: Each, job: Job) -> Tensor:
    """Train every chunk on its own, and return the losses."""
    models = job.models
    losses = models.flat.new_empty(models.n, len(job.steps))
    sums = models.flat.new_empty(models.n)

    def train(worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        for k, minibatches in enumerate(job.steps):
            losses[rows, k], gradients = differentiate(learner, worker, models, minibatches, rows)
            if k == 0 and job.statistics is not None:
                seen.observe(_of(~job.bad[rows], gradients))
            job.step(rows, losses[rows, k], gradients)
        torch.sum(models.flat[rows], 1, out=sums[rows])  # while they are in cache

    _on_chunks(learner, each, job, train)
    job.bad.logical_or_(~(torch.isfinite(losses).all(1) & _finite_rows(models.flat, sums)))
    return losses


def _together(
    learner: Learner, each: Each, job: Job, mix_gradients: Callable[[Tensor], None], contained: bool
) -> Tensor:
    """Mix all nodes' gradients in every step, and return the losses.

    Gradients of nodes that have left the finite numbers are `contained`: they count as zero for the others.
    """
    n, like = job.models.n, job.models.flat
    flat = learner.buffers.take("gradients", tuple(like.shape), like.dtype)
    views, sums, losses = job.models.layout.views(flat), like.new_empty(n), like.new_empty(n, len(job.steps))

    def differentiate_step(k: int, worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        losses[rows, k], gradients = differentiate(learner, worker, job.models, job.steps[k], rows)
        if k == 0 and job.statistics is not None:
            seen.observe(_of(~job.bad[rows], gradients))
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)
        torch.sum(flat[rows], 1, out=sums[rows])

    def descend(k: int, worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        job.step(rows, losses[rows, k], flat[rows])
        torch.sum(like[rows], 1, out=sums[rows])

    for k in range(len(job.steps)):
        _on_chunks(learner, each, job, partial(differentiate_step, k))
        job.bad.logical_or_(~(torch.isfinite(losses[:, k]) & _finite_rows(flat, sums)))
        if contained:
            flat[job.bad] = 0  # the others do not catch it
        mix_gradients(flat)
        _on_chunks(learner, each, job, partial(descend, k))
        job.bad.logical_or_(~_finite_rows(like, sums))
    return losses


def differentiate(
    learner: Learner, worker: Worker, models: Population, minibatches: Minibatches, rows: slice
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return losses (k,) of some nodes on their minibatches, and their gradients."""
    indices = minibatches.indices[rows]
    weights = None if minibatches.weights is None else minibatches.weights[rows]
    inputs = learner.examples.gather(indices.view(-1), worker.buffers).unflatten(0, indices.shape)
    labels = torch.index_select(learner.labels, 0, indices.view(-1)).view(indices.shape)
    return worker.gradients([view[rows] for view in models.views], inputs, labels, weights)


def _on_chunks(
    learner: Learner, each: Each, job: Job, function: Callable[[Worker, slice, GradientStatistics], None]
) -> None:
    """Call `function` for every chunk of nodes; each worker has its share of consecutive ones."""
    n, size, workers = job.models.n, learner.plan.chunk, len(learner.workers)
    chunks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    seen = [GradientStatistics() for _ in learner.workers]

    def work(k: int) -> None:
        for rows in chunks[k * len(chunks) // workers : (k + 1) * len(chunks) // workers]:
            function(learner.workers[k], rows, seen[k])

    each(work, range(workers))
    if job.statistics is not None:
        for found in seen:
            job.statistics.add(found)


def _of(rows: Tensor, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of some rows, (k,) booleans."""
    return gradients if bool(rows.all()) else [g[rows] for g in gradients]


def _finite_rows(values: Tensor, sums: Tensor) -> Tensor:
    """Return which rows hold only finite numbers; `sums` are theirs. Sums of finite numbers may overflow."""
    finite = torch.isfinite(sums)
    return finite if bool(finite.all()) else torch.isfinite(values).all(1)
