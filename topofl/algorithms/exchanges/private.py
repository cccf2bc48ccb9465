"""Parts of differentially private methods: clipped updates, finite steps, and noise."""

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.round import Models, State
from topofl.algorithms.contract.terms import Step


def clipped_rows(values: Tensor, limit: float) -> Tensor:
    """Clip the norms of rows (k, m) in place, without overflow; non-finite rows become 0."""
    largest = torch.linalg.vector_norm(values, float("inf"), dim=1, keepdim=True)
    finite = largest.isfinite()
    scale = torch.where(finite & (largest > 0), largest, 1)
    norms = torch.linalg.vector_norm(values.div_(scale), dim=1, keepdim=True)
    return values.mul_(torch.minimum(scale, limit / norms)).masked_fill_(~finite, 0)


def stays_finite(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
    """Return gradients, or 0 at nodes where a step would make the model infinite or NaN."""
    there = torch.linalg.vector_norm(
        torch.sub(theta, g, alpha=step.lr), float("inf"), dim=1, keepdim=True
    )
    return g.masked_fill_(~there.isfinite(), 0)


def add_noise(values: Tensor, models: Models, rng: np.random.Generator, scale: float) -> None:
    """Add Gaussian noise to (k, m) values, drawn on the CPU for all nodes of the run in order."""
    drawn = torch.empty_like(values, device="meta" if values.is_meta else "cpu")
    row_of = {node: row for row, node in enumerate(models.nodes.tolist())}
    for node in range(0 if values.is_meta else models.n):
        numbers = torch.from_numpy(rng.standard_normal(values.shape[1]))
        if node in row_of:
            drawn[row_of[node]] = numbers
    values.add_(drawn.to(values.device), alpha=scale)


def add_common_noise(values: Tensor, rng: np.random.Generator, scale: float) -> None:
    """Add one Gaussian vector, drawn on the CPU, to (1, m) values, the same on all ranks."""
    if not values.is_meta:
        drawn = torch.from_numpy(rng.standard_normal(values.shape[1]))
        values.add_(drawn.to(values)[None], alpha=scale)
