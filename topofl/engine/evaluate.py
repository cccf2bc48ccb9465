"""Accuracy and loss of every node's model, on one set for all or on each node's own."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from topofl.engine.examples import Examples
from topofl.engine.forward import Forward, image_order, is_linear, stacked_forward
from topofl.engine.population import Population

__all__ = ["Evaluated", "Scores", "evaluate", "scored"]

ROWS = 100_000
"""Linear models: at most so many (node, example) pairs at once; their logits are the only large tensor."""

EXAMPLES = 128
"""Other models: examples per call, node after node, so that their activations stay in cache; off CPU twice as many."""


class Evaluated(NamedTuple):
    """Which models are evaluated, and on what.

    Attributes
    ----------
    on
        Indices of the examples: one vector shared by all nodes, or one vector a node.
    nodes
        Whose models, ascending.
    """

    on: Tensor | Sequence[Tensor]
    nodes: Sequence[int]


def scored(evaluated: Evaluated) -> list[int]:
    """Return the evaluated nodes that have examples, and hence a score."""
    on, nodes = evaluated
    return [i for i in nodes if isinstance(on, Tensor) or len(on[i])]


class Scores(NamedTuple):
    """What an evaluation finds, (n,) each; NaN for nodes without examples, and for those that are not evaluated."""

    accuracy: Tensor
    loss: Tensor


@torch.no_grad()
def evaluate(model: nn.Module, models: Population, inputs: Examples, labels: Tensor, evaluated: Evaluated) -> Scores:
    """Evaluate nodes' models.

    Parameters
    ----------
    model
        The network; its own parameters are not used.
    models
        All nodes' parameters.
    inputs, labels
        The whole dataset, (N, ...) and (N,).
    evaluated
        Whose models, on what.
    """
    on, nodes = evaluated
    forward = stacked_forward(
        model, image_order(model, inputs(torch.arange(min(2, len(labels)), device=labels.device)))
    )
    scores = partial(_evaluate_shared, forward, is_linear(model), models, inputs, labels)
    if isinstance(on, Tensor) and len(nodes) > 1 and _all_equal(models.flat):
        found = scores(on, nodes[:1])
        found = Scores(*(values.expand(len(nodes)) for values in found))
    elif isinstance(on, Tensor):
        found = scores(on, nodes)
    else:
        single = [scores(on[i], [i]) for i in nodes]
        found = Scores(*(torch.cat(parts) for parts in zip(*single, strict=True)))
    return found if len(nodes) == models.n else Scores(*(_spread(values, nodes, models.n) for values in found))


def _all_equal(flat: Tensor) -> bool:
    """Whether all rows are the same, bit by bit, as after exact averaging: then one stands for all."""
    bits = flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    return torch.equal(bits[0], bits[-1]) and torch.equal(bits, bits[:1].expand_as(bits))


def _spread(values: Tensor, nodes: Sequence[int], n: int) -> Tensor:
    """Return (n,) values: those given at `nodes`, NaN elsewhere."""
    spread = values.new_full((n,), torch.nan)
    spread[list(nodes)] = values
    return spread


def _evaluate_shared(
    forward: Forward,
    together: bool,
    models: Population,
    inputs: Examples,
    labels: Tensor,
    on: Tensor,
    nodes: Sequence[int],
) -> Scores:
    """Evaluate nodes on the same examples, all nodes `together` or one after the other."""
    if together:
        groups, size = [_rows(nodes)], max(1, ROWS // len(nodes))
    else:
        groups, size = [_rows([i]) for i in nodes], EXAMPLES if labels.device.type == "cpu" else 2 * EXAMPLES
    sums = [_sums(forward, [view[rows] for view in models.views], inputs, labels, on.split(size)) for rows in groups]
    correct, loss = (torch.cat(parts) for parts in zip(*sums, strict=True))
    return Scores(correct / len(on), loss / len(on))  # 0 / 0 is NaN: no examples, no score


def _rows(nodes: Sequence[int]) -> slice | list[int]:
    """Return the rows of nodes: without a copy where they follow each other."""
    consecutive = nodes[-1] - nodes[0] + 1 == len(nodes)
    return slice(nodes[0], nodes[-1] + 1) if consecutive else list(nodes)


def _sums(
    forward: Forward, views: Sequence[Tensor], inputs: Examples, labels: Tensor, parts: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the number of correct examples and the summed loss of each node, float64."""
    correct = torch.zeros(len(views[0]), dtype=torch.float64, device=labels.device)
    loss = torch.zeros_like(correct)
    for part in parts:
        if len(part):
            logits, wanted = forward.shared(views, inputs(part)), labels[part, None]  # (b, n, classes), (b, 1)
            targets = wanted.expand(logits.shape[:2]).flatten()
            losses = functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
            loss += losses.view(logits.shape[:2]).sum(0, dtype=torch.float64)
            correct += (logits.argmax(2) == wanted).sum(0)
    return correct, loss
