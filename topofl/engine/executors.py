"""Gradients and local steps of all nodes: batched (many nodes in one call) or looped (node after node)."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from topofl.engine.batches import Batch, Batches
from topofl.engine.forward import Order, image_order, is_linear, stacked_forward
from topofl.engine.population import Population

__all__ = ["DivergenceError", "Learner", "choose_executor", "local_sgd", "new_learner"]

Gradients = Callable[[Sequence[Tensor], Tensor, Tensor, Tensor | None], tuple[Tensor, Sequence[Tensor]]]
"""(parameters (k, *shape) each, inputs (k, b, ...), labels (k, b), weights) -> losses (k,), gradients alike."""

Use = Callable[[slice, Sequence[Tensor]], None]
"""What is done with the gradients of some rows of the population."""


class DivergenceError(ArithmeticError):
    """Training left the finite numbers."""


@dataclass(frozen=True, eq=False)
class Learner:
    """What computing gradients needs and what does not change during a run.

    Parameters
    ----------
    gradients
        The executor.
    executor
        Its name, ``"batched"`` or ``"looped"``.
    inputs, labels
        The whole dataset on the device, (N, ...) and (N,).
    batches
        Who trains on what, when.
    chunk
        Nodes per call of `gradients`.
    buffers
        Memory for gathered minibatches, used again in every step.
    """

    gradients: Gradients
    executor: str
    inputs: Tensor
    labels: Tensor
    batches: Batches
    chunk: int
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def gather(self, batch: Batch, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return inputs (k, width, ...), labels (k, width) and weights of the examples of some nodes."""
        indices = torch.from_numpy(np.ascontiguousarray(batch.indices[rows])).to(self.labels.device)
        flat = indices.view(-1)
        buffer = self.buffers.get("inputs")
        if buffer is None or len(buffer) < len(flat):
            buffer = self.buffers["inputs"] = self.inputs.new_empty(len(flat), *self.inputs.shape[1:])
        inputs = torch.index_select(self.inputs, 0, flat, out=buffer[: len(flat)])
        weights = batch.weights
        if weights is not None:
            weights = torch.from_numpy(weights[rows]).to(device=inputs.device, dtype=inputs.dtype)
        return inputs.view(*indices.shape, *inputs.shape[1:]), self.labels[indices], weights


def new_learner(
    model: nn.Module, executor: str, inputs: Tensor, labels: Tensor, batches: Batches, chunk: int | None
) -> Learner:
    """Return the learner of a run; `executor` is ``"batched"`` or ``"looped"``, `chunk` None takes all nodes."""
    n = len(batches.sizes)
    if executor == "looped":
        return Learner(looped_gradients(model, image_order(model, inputs)), executor, inputs, labels, batches, 1)
    return Learner(batched_gradients(model), executor, inputs, labels, batches, min(chunk or n, n))


def batched_gradients(model: nn.Module) -> Gradients:
    """Return the executor that differentiates all given nodes in one call."""
    forward = stacked_forward(model)

    def gradients(
        parameters: Sequence[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        leaves = [p.detach().requires_grad_() for p in parameters]
        losses = _mean_loss(forward.each(leaves, inputs), labels, weights)
        return losses.detach(), torch.autograd.grad(losses.sum(), leaves)

    return gradients


def looped_gradients(model: nn.Module, order: Order) -> Gradients:
    """Return the executor that takes one node, its parameters being views into the population.

    `order` is of its images only: torch then reorders the kernels itself where that pays.
    """
    parameters_of_model = list(model.parameters())

    def gradients(
        parameters: Sequence[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        for own, view in zip(parameters_of_model, parameters, strict=True):
            own.data = view[0]
        losses = _mean_loss(model(order(inputs[0]))[None], labels, weights)
        return losses.detach(), [g[None] for g in torch.autograd.grad(losses.sum(), parameters_of_model)]

    return gradients


def _mean_loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the cross-entropy of each node's minibatch, (k,)."""
    losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses.mean(1) if weights is None else (losses * weights).sum(1)


def local_sgd(
    learner: Learner,
    models: Population,
    steps: Sequence[Batch],
    *,
    lr: float,
    momentum: float,
    velocity: Tensor | None,
    mix_gradients: Callable[[Tensor], None] | None = None,
    observe: Use | None = None,
) -> Tensor:
    """Take one SGD step per given batch on every node, in place, and return the losses, (n, steps).

    Without gradient mixing each chunk of nodes takes all its steps while it is in cache, and no more than one chunk's
    gradients exist at a time. `observe` sees each node's own gradient of the first step.
    """
    losses = models.flat.new_empty(models.n, len(steps))
    descend = _descend(models, lr, momentum, velocity)
    if mix_gradients is None:
        for rows, k in ((rows, k) for rows in _chunks(models.n, learner.chunk) for k in range(len(steps))):
            losses[rows, k], gradients = _differentiate(learner, models, steps[k], rows)
            if observe is not None and k == 0:
                observe(rows, gradients)
            descend(rows, gradients)
        return losses
    for k, batch in enumerate(steps):
        losses[:, k], gradients = _all_gradients(learner, models, batch)
        if observe is not None and k == 0:
            observe(slice(None), gradients)
        for g in gradients:
            mix_gradients(g.view(models.n, -1))
        descend(slice(None), gradients)
    return losses


def _differentiate(learner: Learner, models: Population, batch: Batch, rows: slice) -> tuple[Tensor, Sequence[Tensor]]:
    return learner.gradients([view[rows] for view in models.views], *learner.gather(batch, rows))


def _all_gradients(learner: Learner, models: Population, batch: Batch) -> tuple[Tensor, Sequence[Tensor]]:
    """Return losses (n,) and all nodes' gradients at once, each (n, *shape)."""
    if learner.chunk >= models.n:
        losses, gradients = _differentiate(learner, models, batch, slice(None))
        return losses, _apart(gradients)
    views = models.layout.views(_buffer(learner, models.flat))
    losses = models.flat.new_empty(models.n)
    for rows in _chunks(models.n, learner.chunk):
        losses[rows], gradients = _differentiate(learner, models, batch, rows)
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)
    return losses, views


def _apart(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return contiguous gradients that share no memory; autograd gives parameters that are only added up the same."""
    apart: dict[int, Tensor] = {}
    for g in gradients:
        g = g.contiguous()
        g = g.clone() if g.data_ptr() in apart else g
        apart[g.data_ptr()] = g
    return list(apart.values())


def _descend(models: Population, lr: float, momentum: float, velocity: Tensor | None) -> Use:
    """Return ``v = momentum * v + g; theta = theta - lr * v`` on some rows."""
    speeds = models.layout.views(velocity) if velocity is not None else None

    def use(rows: slice, gradients: Sequence[Tensor]) -> None:
        if speeds is not None:
            for v, g in zip(speeds, gradients, strict=True):
                v[rows].mul_(momentum).add_(g)
            gradients = [v[rows] for v in speeds]
        for view, g in zip(models.views, gradients, strict=True):
            view[rows].add_(g, alpha=-lr)

    return use


def _buffer(learner: Learner, like: Tensor) -> Tensor:
    if "gradients" not in learner.buffers:
        learner.buffers["gradients"] = torch.empty_like(like)
    return learner.buffers["gradients"]


def _chunks(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def choose_executor(
    model: nn.Module,
    models: Population,
    inputs: Tensor,
    labels: Tensor,
    batches: Batches,
    batch_size: int,
    chunk: int | None,
) -> str:
    """Return the faster executor, timed on the first minibatches; linear models are batched without a trial.

    Up to 8 nodes are tried (both executors' cost grows in proportion to nodes from there on); nothing is changed.
    """
    if models.n == 1:
        return "looped"
    if is_linear(model):
        return "batched"
    batch = batches.at(0, batch_size, "probe")
    few = min(models.n, 8)
    chunked = new_learner(model, "batched", inputs, labels, batches, min(chunk or few, few))
    looped = new_learner(model, "looped", inputs, labels, batches, None)
    try:
        batched = _seconds(chunked, models, batch, few)
    except RuntimeError:  # torch.func cannot batch every module, for example not an `if` on values
        return "looped"
    return "batched" if batched <= _seconds(looped, models, batch, few) else "looped"


def _seconds(learner: Learner, models: Population, batch: Batch, nodes: int) -> float:
    def trial() -> float:
        start = time.perf_counter()
        for rows in _chunks(nodes, learner.chunk):
            _differentiate(learner, models, batch, rows)
        if models.flat.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    trial()
    return min(trial() for _ in range(3))
