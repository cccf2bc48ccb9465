"""Nodes try models on their own examples."""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from topofl._generators import answered
from topofl.algorithms.round import Trial
from topofl.engine.evaluate import EXAMPLES, copied, loss_of
from topofl.engine.forward import Shared, is_linear, one_forward, stacked_forward
from topofl.engine.population import Layout
from topofl.engine.threads import Each

if TYPE_CHECKING:
    from topofl.engine.world import World

__all__ = ["ask"]

T = TypeVar("T")


class _Examples(NamedTuple):
    """Examples of some nodes, (k, b, ...) each, and the weight (k, b) of each in its node's mean, 0 where none is."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor


def ask(world: "World", each: Each, trials: Mapping[int, Trial[T]], held: Sequence[np.ndarray]) -> dict[int, T]:
    """Return what nodes find out by trying models.

    Looped, a node after the other tries one model at a time (linear ones together); batched, the nodes of a chunk try
    theirs in one call, on 128 examples at a time.

    Parameters
    ----------
    world, each
        The run, and its threads.
    trials
        By node.
    held
        Indices of each node's examples.
    """
    _check_trials(trials, held)
    plan, nodes, linear = world.learner.plan, list(trials), is_linear(world.module)
    size = 1 if plan.executor == "looped" or linear else plan.chunk
    pending = iter([nodes[start : start + size] for start in range(0, len(nodes), size)])  # who is ready takes the next

    def work(k: int) -> dict[int, T]:
        del k
        module = copied(world.module)  # torch puts parameters into it, one after the other
        shared = stacked_forward(module).shared if linear else one_forward(module, world.evaluated.order)
        found: dict[int, T] = {}
        try:
            for group in pending:
                if size == 1:
                    found[group[0]] = _alone(world, shared, trials[group[0]], held[group[0]])
                else:
                    found |= _together(world, module, {i: trials[i] for i in group}, held)
        finally:
            list(pending)  # after an error nobody begins another
        return found

    results = each(work, range(plan.workers))
    return {i: found[i] for i in nodes for found in results if i in found}


def _check_trials(trials: Mapping[int, Any], held: Sequence[np.ndarray]) -> None:
    """Raise if there is no such node, it has no examples, or nothing that asks."""
    for i, trial in trials.items():
        if i not in range(len(held)):
            raise ValueError(f"`trials` must be of nodes from 0 to n-1={len(held) - 1}, got {i!r}")
        if not isinstance(trial, Generator):
            kind = type(trial).__name__
            raise TypeError(f"`trials` must be generators, which yield models (k, d), got a {kind} for node {i}")
        if not len(held[i]):
            raise ValueError(f"`trials` must be of nodes with such examples, node {i} has none; ask others")


def _asked(models: Any, d: int) -> Tensor:
    """Return the models that a trial yields, or raise."""
    if not isinstance(models, Tensor) or models.dim() != 2 or models.shape[1] != d:
        got = f"shape {tuple(models.shape)}" if isinstance(models, Tensor) else type(models).__name__
        raise TypeError(f"`trials` must yield models as a tensor (k, d={d:,}), got {got}")
    return models


@torch.no_grad()
def _alone(world: "World", shared: Shared, trial: Trial[T], held: np.ndarray) -> T:
    """Let one node try its models, one after the other."""
    learner, layout, linear = world.learner, world.models.layout, is_linear(world.module)
    indices = torch.tensor(held, device=learner.targets.device)
    order = world.evaluated.order
    size = len(indices) if linear else world.evaluated.examples
    parts = [(order(learner.examples(part)), learner.targets[part]) for part in indices.split(size)]

    def losses(models: Tensor) -> Tensor:
        models = _asked(models, layout.d)
        total = torch.zeros(len(models), dtype=torch.float64, device=models.device)
        for rows in [slice(0, len(models))] if linear else [slice(k, k + 1) for k in range(len(models))]:
            apply = shared(layout.views(models[rows]))
            for inputs, targets in parts:
                wanted = targets.expand(len(total[rows]), *targets.shape)
                total[rows] += loss_of(world.task, apply(inputs).transpose(0, 1), wanted).sum(1)
        return (total / len(indices)).cpu()

    return answered(trial, losses)


@torch.no_grad()
def _together(
    world: "World", module: nn.Module, trials: Mapping[int, Trial[T]], held: Sequence[np.ndarray]
) -> dict[int, T]:
    """Let some nodes try their models in one call, as long as they ask."""
    examples = _padded(world, [held[i] for i in trials])
    place = {i: k for k, i in enumerate(trials)}
    each, layout = stacked_forward(module).each, Layout.of(module)
    found: dict[int, T] = {}
    asked = _next(trials, dict.fromkeys(trials), found, layout.d)
    while asked:
        counts = [len(models) for models in asked.values()]
        owners = torch.tensor(np.repeat([place[i] for i in asked], counts), device=examples.targets.device)
        parameters = layout.views(torch.cat(list(asked.values())))
        means = torch.zeros(len(owners), dtype=torch.float64, device="cpu")
        for some in zip(*(part.split(EXAMPLES, dim=1) for part in examples), strict=True):
            inputs, targets, weights = (part[owners] for part in some)
            losses = loss_of(world.task, each(parameters, inputs), targets) * weights
            means += losses.masked_fill_(weights == 0, 0).sum(1).cpu()  # an infinite loss, too, of what fills up
        asked = _next(trials, dict(zip(asked, means.split(counts), strict=True)), found, layout.d)
    return found


def _next(
    trials: Mapping[int, Trial[T]], answers: Mapping[int, Tensor | None], found: dict[int, T], d: int
) -> dict[int, Tensor]:
    """Send nodes their answers, and return what they ask next; who is done goes into `found`."""
    asked = {}
    for i, answer in answers.items():
        try:
            asked[i] = _asked(next(trials[i]) if answer is None else trials[i].send(answer), d)
        except StopIteration as end:
            found[i] = end.value
    return asked


def _padded(world: "World", held: Sequence[np.ndarray]) -> _Examples:
    """Return some nodes' examples, as many of each as of the one with most: others have some twice, of no weight."""
    learner, most = world.learner, max(map(len, held))
    indices = torch.from_numpy(np.stack([np.resize(own, most) for own in held])).to(learner.targets.device)
    sizes = torch.tensor([len(own) for own in held], device=indices.device)[:, None]
    weights = (torch.arange(most, device=indices.device) < sizes) / sizes.double()
    inputs = learner.examples(indices.flatten()).unflatten(0, indices.shape)
    return _Examples(inputs, learner.targets[indices], weights)
