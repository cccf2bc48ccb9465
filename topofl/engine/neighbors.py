"""Evaluation of models interpolated with the nearest of each node's own training examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topofl.algorithms.contract.parts import Part
from topofl.algorithms.contract.phase import Neighbors
from topofl.engine.evaluation import (
    CLASSIFICATION,
    EXAMPLES,
    Evaluated,
    Scorer,
    Scores,
    batch_of,
    scored_nodes,
    sharing_copy,
    sums_on,
)
from topofl.engine.gradients import Order, applied, image_order
from topofl.engine.memory import bytes_of_forward
from topofl.engine.plan import ParallelMap
from topofl.engine.population import Layout, Population, trained_parameters
from topofl.tasks import Task


class Outputs(NamedTuple):
    """Outputs of a model: features (b, dim), the input of its head, and logits (b, classes)."""

    features: Tensor
    logits: Tensor


ApplyModel = Callable[[Sequence[Tensor], Tensor], Outputs]
"""(parameters, inputs (b, ...)) -> outputs of one model."""


def neighbor_scores(
    module: nn.Module,
    models: Population,
    inputs: Callable[[Tensor], Tensor],
    labels: Tensor,
    members: Callable[[int], Tensor],
    neighbors: Neighbors,
    sets: Mapping[str, Evaluated],
    parallel_map: ParallelMap,
    workers: int = 1,
    task: Task = CLASSIFICATION,
) -> dict[str, Scores]:
    """Return the scores of models interpolated with nearest neighbors, on each set.

    Scores other than accuracy and loss are computed from the log-probabilities.

    Parameters
    ----------
    module, models, inputs, labels, parallel_map, workers, task
        As in :func:`topofl.engine.evaluation.evaluate`.
    members
        node -> (m,) indices of its training examples, the candidate neighbors.
    neighbors
        Number, kernel and weight of the neighbors.
    sets
        Evaluated nodes and examples, by the name of the set.
    """
    nodes = sorted({i for on in sets.values() for i in scored_nodes(on)})
    sample = inputs(torch.arange(min(2, len(labels)), device=labels.device))
    order = image_order(module, sample)
    layer = _head_layer(module, neighbors.head)
    scorer = Scorer.of(task, _accuracy_and_loss)

    def work(k: int) -> list[Tensor]:
        apply_model = _with_features(module, layer, order)
        share = nodes[k * len(nodes) // workers : (k + 1) * len(nodes) // workers]
        return [sums_of_node(apply_model, i) for i in share]

    @torch.no_grad()
    def sums_of_node(apply_model: ApplyModel, i: int) -> Tensor:
        """Return the sums of scores on each set, (sets, scores)."""
        parameters, own = [view[0] for view in models.views_of(slice(i, i + 1))], members(i)
        parts = own.split(EXAMPLES)
        features = torch.cat([apply_model(parameters, inputs(part)).features for part in parts])
        voting = labels[own]

        def apply(examples: Tensor) -> Tensor:
            outputs = apply_model(parameters, examples)
            return _interpolated(outputs, features, voting, neighbors)[None]

        sums = torch.zeros(len(sets), len(scorer.scores), dtype=torch.float64, device=labels.device)
        for row, chosen in enumerate(_examples_of(sets, i, labels)):
            if len(chosen):
                batches = (batch_of(inputs, labels, part) for part in chosen.split(EXAMPLES))
                sums[row] = sums_on(scorer, apply, batches)[:, 0]
        return sums

    shape = (len(models), len(sets), len(scorer.scores))
    found = torch.zeros(shape, dtype=torch.float64, device=labels.device)
    sums_of_nodes = (sums for share in parallel_map(work, range(workers)) for sums in share)
    counts = torch.zeros(len(models), len(sets), dtype=torch.int64, device="cpu")
    for i, sums in zip(nodes, sums_of_nodes, strict=True):
        found[i] = sums
        counts[i] = torch.tensor(
            [len(chosen) for chosen in _examples_of(sets, i, labels)], device="cpu"
        )
    counts = counts.to(found.device)
    return {name: scorer.finished(found[:, k].T, counts[:, k]) for k, name in enumerate(sets)}


def _examples_of(sets: Mapping[str, Evaluated], i: int, labels: Tensor) -> list[Tensor]:
    """Return the indices of the examples of each set on which a node's model is scored."""
    none = labels.new_empty(0)
    return [
        none if i not in scored else on if isinstance(on, Tensor) else on[i]
        for on, scored in sets.values()
    ]


def _accuracy_and_loss(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are correct, and losses, from log-probabilities."""
    return logs.argmax(1) == labels, -logs.gather(1, labels.unsqueeze(1)).squeeze(1)


def _interpolated(
    outputs: Outputs, features: Tensor, labels: Tensor, neighbors: Neighbors
) -> Tensor:
    """Return log-probabilities (b, classes) interpolated with the votes of nearest neighbors.

    `features` (m, dim) and `labels` (m,) are those of the candidate neighbors. Kernels are
    normalized by a softmax, so that distant neighbors count if all are distant.
    """
    k = min(neighbors.k, len(features))
    distances = torch.cdist(outputs.features, features)
    squares, nearest = distances.square().topk(k, dim=1, largest=False)
    kernels = torch.softmax(squares / (-neighbors.scale * features.shape[1]), 1)
    logs = torch.log_softmax(outputs.logits.to(kernels.dtype), 1)
    votes = torch.zeros_like(logs).scatter_add_(1, labels[nearest], kernels)
    return torch.logaddexp(logs + _log(1 - neighbors.weight), votes.log() + _log(neighbors.weight))


def _log(share: float) -> float:
    return math.log(share) if share else -math.inf


def _with_features(module: nn.Module, layer: str, order: Order) -> ApplyModel:
    """Return a function that applies one model and captures the input of its head."""
    own, taken = sharing_copy(module), []
    own.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: taken.append(inputs))
    apply = applied(own)

    def apply_model(parameters: Sequence[Tensor], inputs: Tensor) -> Outputs:
        taken.clear()
        logits = apply([order(p) for p in parameters], order(inputs))
        if len(taken) != 1 or not taken[0] or len(taken[0][0]) != len(inputs):
            raise ValueError(
                "`head` must be a layer that the model calls once, on features of each example, "
                f"{layer!r} is not; name its last layer"
            )
        features = taken[0][0].flatten(1)
        return Outputs(
            features.float() if features.dtype in (torch.float16, torch.bfloat16) else features,
            logits,
        )

    return apply_model


def _head_layer(module: nn.Module, head: Part) -> str:
    """Return the name of the head layer, whose input has the compared features.

    Raises ``ValueError`` if the head is not one layer.
    """
    names = Layout.of(module).names
    layers = dict.fromkeys(names[k].rpartition(".")[0] for k in head.places(names))
    if len(layers) > 1:
        raise ValueError(
            f"`head` must be one layer, whose inputs are compared, got {', '.join(layers)}; name "
            "the last of them"
        )
    return next(iter(layers))


def bytes_of_neighbors(
    module: nn.Module,
    sample: Tensor,
    order: Order,
    neighbors: Neighbors,
    largest: int,
    gathered: int,
) -> int:
    """Return the most bytes that one worker needs to evaluate with neighbors.

    Parameters
    ----------
    module, sample, order
        The network, some examples, and the memory format of images.
    neighbors
        Number, kernel and weight of the neighbors.
    largest
        Largest number of training examples of a node.
    gathered
        Bytes of gathering one example.

    Raises
    ------
    ValueError
        If the head is not one layer that the model calls once.
    """
    with torch.no_grad():
        apply_model = _with_features(module, _head_layer(module, neighbors.head), order)
        features = apply_model(trained_parameters(module), sample).features
    size, dim = features.element_size(), features.shape[1]
    forward = bytes_of_forward(module, order, sample)(EXAMPLES) + EXAMPLES * gathered
    return 2 * largest * dim * size + EXAMPLES * (2 * largest + dim) * size + forward
