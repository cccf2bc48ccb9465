"""Evaluation of models interpolated with the nearest of each node's own training examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from topofl.algorithms.contract.phase import Neighbors, named_errors
from topofl.algorithms.contract.round import Part
from topofl.engine.evaluation import (
    EXAMPLES,
    Apply,
    Evaluated,
    EvaluationPlan,
    Scores,
    batches_of,
    finished,
    scored,
    sums_on,
    uploaded,
)
from topofl.engine.executor import Executor
from topofl.engine.gradients import Order, rows_of, sharing_copy, with_features
from topofl.engine.memory import bytes_of_forward
from topofl.engine.population import Population, trained_parameters
from topofl.engine.requests import Setup

Outputs = Callable[..., tuple[Tensor, Tensor]]
"""(parameters, inputs (b, ...)) -> features (b, dim) and logits (b, classes) of one model.

Features are the input of its head.
"""


def neighbor_scores(
    plan: EvaluationPlan,
    models: Population,
    executor: Executor,
    neighbors: Neighbors,
    sets: Mapping[str, Evaluated],
) -> dict[str, Scores]:
    """Return the scores of models interpolated with nearest neighbors, on each set.

    Scores other than accuracy and loss are computed from the log-probabilities.

    Parameters
    ----------
    plan, models, executor
        As in :func:`topofl.engine.evaluation.evaluate`. Each node's candidate neighbors are its own
        training examples.
    neighbors
        Number, kernel and weight of the neighbors.
    sets
        Evaluated nodes and examples, by the name of the set.
    """
    n, device = len(models), executor.targets.device
    members = uploaded([executor.batches.members(i) for i in range(n)], device)
    nodes = sorted({i for on in sets.values() for i in scored(on)})
    scores = plan.task.reported
    shape = (len(scores), n)
    sums = {name: torch.zeros(shape, dtype=torch.float64, device=device) for name in sets}

    build = partial(_featuring, plan.model, neighbors.head, plan.order, tuple(models.buffers))
    outputs_of = [build() for _ in range(executor.plan.workers)]

    @torch.no_grad()
    def work(worker: int, rows: slice) -> None:
        i = rows.start
        own = partial(outputs_of[worker], [view[0] for view in models.views_of(rows)])
        apply = _interpolated(own, executor, members[i], neighbors)
        for name, on in sets.items():
            if i in on and len(on[i]):
                batches = batches_of(executor, on[i].split(EXAMPLES))
                sums[name][:, i] = sums_on(scores, apply, batches, _accuracy_and_loss)[:, 0]

    executor.over_chunks(work, [slice(i, i + 1) for i in nodes])
    return {name: finished(scores, sums[name], on) for name, on in sets.items()}


def _accuracy_and_loss(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are correct, and losses, from log-probabilities."""
    return logs.argmax(1) == labels, -logs.gather(1, labels.unsqueeze(1)).squeeze(1)


def _interpolated(
    outputs_of: Outputs, executor: Executor, members: Tensor, neighbors: Neighbors
) -> Apply:
    """Return the function that interpolates one model with the votes of nearest neighbors.

    It returns log-probabilities (1, b, classes). The candidate neighbors are the examples at
    `members` (m,). Kernels are normalized by a softmax, so that distant neighbors count if all are
    distant.
    """
    parts = (executor.examples(part) for part in members.split(EXAMPLES))
    features = torch.cat([outputs_of(part)[0] for part in parts])
    labels, k = executor.targets[members], min(neighbors.k, len(features))

    def apply(inputs: Tensor) -> Tensor:
        own, logits = outputs_of(inputs)
        squares, nearest = torch.cdist(own, features).square().topk(k, dim=1, largest=False)
        kernels = torch.softmax(squares / (-neighbors.scale * features.shape[1]), 1)
        logs = torch.log_softmax(logits.to(kernels.dtype), 1)
        votes = torch.zeros_like(logs).scatter_add_(1, labels[nearest], kernels).log()
        weight = neighbors.weight
        return torch.logaddexp(logs + _log(1 - weight), votes + _log(weight))[None]

    return apply


def _log(share: float) -> float:
    return math.log(share) if share else -math.inf


def _featuring(module: nn.Module, head: Part, order: Order, buffers: Sequence[str] = ()) -> Outputs:
    """Return a function that applies one model and returns the input of its head, too."""
    apply = with_features(sharing_copy(module), head, buffers)
    return lambda parameters, inputs: apply([order(p) for p in parameters], order(inputs))


def bytes_of_neighbors(setup: Setup, neighbors: Neighbors, gathered: int) -> int:
    """Return the most bytes that one worker needs to evaluate with neighbors.

    Gathering an example takes `gathered` bytes. Raises ``ValueError`` if the head is not one layer
    that the model calls once.
    """
    with torch.no_grad():
        outputs_of = _featuring(setup.module, neighbors.head, setup.order)
        features, _ = outputs_of(trained_parameters(setup.module), setup.sample)
    size, dim = features.element_size(), features.shape[1]
    largest = max(map(len, setup.clients.train))
    forward = bytes_of_forward(setup.module, setup.order, setup.sample)(EXAMPLES)
    compared = 2 * largest * dim * size + EXAMPLES * (2 * largest + dim) * size
    return compared + forward + EXAMPLES * gathered


ClassSums = Callable[[Tensor, Tensor], Tensor]
"""(features (b, m), targets (b,)) -> sums over the examples, a tensor of one shape."""


def feature_sums(
    plan: EvaluationPlan, models: Population, executor: Executor, layer: Part, function: ClassSums
) -> Tensor:
    """Return the sums of a function of features over each node's own training examples, (k, ...).

    Features are the inputs of a layer, of models in evaluation mode.
    """
    k = len(models)
    members = uploaded([executor.batches.members(i) for i in range(k)], executor.targets.device)
    outputs_of = [
        _featuring(plan.model, layer, plan.order, tuple(models.buffers))
        for _ in range(executor.plan.workers)
    ]
    found: list[Any] = [None] * k

    @torch.no_grad()
    def work(worker: int, rows: slice) -> None:
        parameters = [view[0] for view in models.views_of(rows)]
        for part in members[rows.start].split(EXAMPLES):
            features, _ = outputs_of[worker](parameters, executor.examples(part))
            sums = function(features, executor.targets[part])
            before = found[rows.start]
            found[rows.start] = sums if before is None else before + sums

    executor.over_chunks(work, [slice(i, i + 1) for i in range(k)])
    return torch.stack(found)


def feature_sums_like(setup: Setup, layer: Part, function: ClassSums, k: int) -> Tensor:
    """Return zeros of the shape of `feature_sums` for k nodes, on the meta device."""
    with torch.no_grad():
        outputs_of = _featuring(setup.module, layer, setup.order, setup.network.buffers)
        features, _ = outputs_of([row[0] for row in rows_of(setup.network, 1)], setup.sample)
        targets = setup.clients.dataset.learned(setup.compute.dtype)[: len(setup.sample)]
        with named_errors("`function` of round.feature_sums", features):
            sums = function(features, targets.to(features.device))
    return torch.zeros(k, *sums.shape, dtype=sums.dtype, device="meta")
