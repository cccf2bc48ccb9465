"""Evaluation of models interpolated with the nearest of each node's own training examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from topofl.algorithms.contract.phase import Neighbors
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
from topofl.engine.gradients import Order, applied, sharing_copy
from topofl.engine.memory import bytes_of_forward
from topofl.engine.population import Layout, Population, trained_parameters
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
    """Return a function that applies one model and captures the input of its head.

    Raises ``ValueError`` if the head is not one layer, which the model calls once.
    """
    layout = Layout.of(module)
    layer, *others = dict.fromkeys(layout.names[k].rpartition(".")[0] for k in layout.places(head))
    if others:
        must = "`head` must be one layer, whose inputs are compared"
        raise ValueError(f"{must}, got {', '.join([layer, *others])}; name the last of them")
    own, taken = sharing_copy(module), []
    own.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: taken.append(inputs))
    apply = applied(own, buffers)

    def outputs_of(parameters: Sequence[Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
        taken.clear()
        logits = apply([order(p) for p in parameters], order(inputs))
        if len(taken) != 1 or not taken[0] or len(taken[0][0]) != len(inputs):
            raise ValueError(
                "`head` must be a layer that the model calls once, on features of each example, "
                f"{layer!r} is not; name its last layer"
            )
        features = taken[0][0].flatten(1)
        low = features.dtype in (torch.float16, torch.bfloat16)
        return features.float() if low else features, logits

    return outputs_of


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
