"""The learner of a run: data, memory and worker threads, and gradients of chunks of nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl.engine.population import Population
from topofl.engine.train.batches import Batch, Batches
from topofl.engine.train.buffers import Buffers
from topofl.engine.train.diversity import GradientStatistics
from topofl.engine.train.examples import Examples
from topofl.engine.train.gradients import Gradients
from topofl.engine.train.plan import Plan
from topofl.engine.train.workers import ParallelMap

__all__ = [
    "Learner",
    "Minibatches",
    "Work",
    "Worker",
    "chunks_of",
    "differentiate",
    "for_each_chunk",
]


class Minibatches(NamedTuple):
    """One step's minibatches of all nodes, on the device.

    Attributes
    ----------
    indices
        (n, width) int64.
    weights
        (n, width) weight of each example in its node's mean loss; None: 1 / width each.
    choices
        (n, width) int64 random choice for each image; None: no augmentation.
    """

    indices: Tensor
    weights: Tensor | None
    choices: Tensor | None


class Worker(NamedTuple):
    """Gradient function and buffers of one thread."""

    gradients: Gradients
    buffers: Buffers


@dataclass(frozen=True, eq=False)
class Learner:
    """Plan, workers and data of training, which stay the same during a run.

    Parameters
    ----------
    plan
        Executor, nodes per call, and threads.
    workers
        One per thread.
    examples, targets
        The whole dataset on the device, (N, ...) each.
    batches
        Minibatches of all nodes, by step and phase.
    buffers
        Memory for tensors of all nodes, which every step reuses.
    """

    plan: Plan
    workers: Sequence[Worker]
    examples: Examples
    targets: Tensor
    batches: Batches
    buffers: Buffers

    def minibatches(self, batches: Sequence[Batch]) -> list[Minibatches]:
        """Return the minibatches of some steps on the device, to which they are copied together."""
        device = self.targets.device
        if device.type == "cpu":
            return [
                self._on_cpu(batch, np.ascontiguousarray(batch.indices), batch.weights)
                for batch in batches
            ]
        return self._on_device(batches, device)

    def _on_cpu(self, batch: Batch, indices: np.ndarray, weights: np.ndarray | None) -> Minibatches:
        shares = None if weights is None else torch.from_numpy(weights).to(self.examples.dtype)
        choices = None if batch.choices is None else torch.from_numpy(batch.choices)
        return Minibatches(torch.from_numpy(indices), shares, choices)

    def _on_device(self, batches: Sequence[Batch], device: torch.device) -> list[Minibatches]:
        sizes = [batch.indices.size for batch in batches]
        weights = [batch.weights for batch in batches]
        dense = [w if w is not None else np.zeros(0) for w in weights]
        parts = (
            torch.from_numpy(np.concatenate([b.indices.ravel() for b in batches]))
            .to(device)
            .split(sizes)
        )
        shares = torch.from_numpy(np.concatenate([w.ravel() for w in dense])).to(
            device, self.examples.dtype
        )
        shares = shares.split([w.size for w in dense])
        moved = [b.choices.ravel() for b in batches if b.choices is not None]
        choices = (
            torch.from_numpy(np.concatenate(moved)).to(device).split(sizes)
            if moved
            else [None] * len(sizes)
        )
        return [
            Minibatches(
                indices.view(batch.indices.shape),
                None if own is None else share.view(batch.indices.shape),
                None if choice is None else choice.view(batch.indices.shape),
            )
            for batch, indices, own, share, choice in zip(
                batches, parts, weights, shares, choices, strict=True
            )
        ]


def differentiate(
    learner: Learner,
    worker: Worker,
    models: Population,
    minibatches: Minibatches,
    rows: slice,
    trained: Sequence[int] | None = None,
    point: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return losses (k,) and gradients of some nodes on their minibatches.

    They are taken at the models, or at parameters (k, *shape) of another `point`.
    """
    indices = minibatches.indices[rows]
    weights = None if minibatches.weights is None else minibatches.weights[rows]
    choices = None if minibatches.choices is None else minibatches.choices[rows].view(-1)
    inputs = learner.examples.gather(indices.view(-1), worker.buffers, choices).unflatten(
        0, indices.shape
    )
    targets = torch.index_select(learner.targets, 0, indices.view(-1)).unflatten(0, indices.shape)
    parameters = models.views_of(rows) if point is None else point
    return worker.gradients(parameters, inputs, targets, weights, trained)


Work = Callable[[Worker, slice, GradientStatistics], None]
"""(worker, rows, statistics of the worker) -> None: work on a chunk of nodes."""


def for_each_chunk(
    learner: Learner,
    parallel_map: ParallelMap,
    chunks: Sequence[slice],
    function: Work,
    *,
    interleaved: bool = False,
) -> list[GradientStatistics]:
    """Call `function` for every chunk, with the chunks divided among the workers."""
    workers = len(learner.workers)
    observed = [GradientStatistics() for _ in learner.workers]

    def work(k: int) -> None:
        own = slice(k * len(chunks) // workers, (k + 1) * len(chunks) // workers)
        for rows in chunks[slice(k, None, workers) if interleaved else own]:
            function(learner.workers[k], rows, observed[k])

    parallel_map(work, range(workers))
    return observed


def chunks_of(n: int, size: int) -> list[slice]:
    """Return n nodes as slices of at most `size` nodes."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
