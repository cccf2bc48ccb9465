"""Accuracy and loss of every node's model, on one set for all or on each node's own."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from topofl.engine.forward import Forward, is_linear, stacked_forward
from topofl.engine.population import Population

__all__ = ["Scores", "evaluate"]

ROWS = 100_000
"""Linear models: at most so many (node, example) pairs at once; their logits are the only large tensor."""

EXAMPLES = 256
"""Other models: examples per call, node after node; bounds the activations."""


class Scores(NamedTuple):
    """What an evaluation finds, (n,) each; NaN for nodes without examples."""

    accuracy: Tensor
    loss: Tensor


@torch.no_grad()
def evaluate(
    model: nn.Module, models: Population, inputs: Tensor, labels: Tensor, on: Tensor | Sequence[Tensor]
) -> Scores:
    """Evaluate every node's model.

    Parameters
    ----------
    model
        The network; its own parameters are not used.
    models
        All nodes' parameters.
    inputs, labels
        The whole dataset, (N, ...) and (N,).
    on
        Indices of the examples: one vector shared by all nodes, or one vector a node.
    """
    if not isinstance(on, Tensor):
        single = [_evaluate_shared(model, models, inputs, labels, own, [i]) for i, own in enumerate(on)]
        return Scores(*(torch.cat(parts) for parts in zip(*single, strict=True)))
    return _evaluate_shared(model, models, inputs, labels, on, range(models.n))


def _evaluate_shared(
    model: nn.Module, models: Population, inputs: Tensor, labels: Tensor, on: Tensor, nodes: Sequence[int]
) -> Scores:
    forward = stacked_forward(model)
    if is_linear(model):
        groups, size = [slice(nodes[0], nodes[-1] + 1)], max(1, ROWS // len(nodes))
    else:
        groups, size = [slice(i, i + 1) for i in nodes], EXAMPLES
    sums = [_sums(forward, [view[rows] for view in models.views], inputs, labels, on.split(size)) for rows in groups]
    correct, loss = (torch.cat(parts) for parts in zip(*sums, strict=True))
    return Scores(correct / len(on), loss / len(on))  # 0 / 0 is NaN: no examples, no score


def _sums(
    forward: Forward, views: Sequence[Tensor], inputs: Tensor, labels: Tensor, parts: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the number of correct examples and the summed loss of each node, float64."""
    correct = torch.zeros(len(views[0]), dtype=torch.float64, device=labels.device)
    loss = torch.zeros_like(correct)
    for part in parts:
        if len(part):
            logits, wanted = forward.shared(views, inputs[part]), labels[part, None]  # (b, n, classes), (b, 1)
            targets = wanted.expand(logits.shape[:2]).flatten()
            losses = functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
            loss += losses.view(logits.shape[:2]).sum(0, dtype=torch.float64)
            correct += (logits.argmax(2) == wanted).sum(0)
    return correct, loss
