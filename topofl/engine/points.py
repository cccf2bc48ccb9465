"""Where gradients are taken, if not at the models: a step ahead, or between two models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from topofl.algorithms.phase import Mixture
from topofl.engine.buffers import Buffers
from topofl.engine.population import Population

__all__ = ["adapt", "mixed", "stepped"]


def stepped(
    models: Population, rows: slice, gradients: Sequence[Tensor], trained: Sequence[int] | None, lr: float,
    buffers: Buffers,
) -> list[Tensor]:  # fmt: skip
    """Return the parameters of some nodes after a step along their gradients; the models stay as they are."""
    flat = models.flat[rows]
    views = models.layout.views(buffers.take("point", tuple(flat.shape), flat.dtype).copy_(flat))
    for k, g in zip(range(len(views)) if trained is None else trained, gradients, strict=True):
        views[k].add_(g, alpha=-lr)
    return views


def mixed(models: Population, mixture: Mixture, rows: slice, buffers: Buffers) -> list[Tensor]:
    """Return the parameters of some nodes' mixtures, ``share * theta + (1 - share) * common``."""
    flat, common = models.flat[rows], mixture.common.flat[rows]
    point = buffers.take("point", tuple(flat.shape), flat.dtype)
    torch.lerp(common, flat, mixture.share[rows, None], out=point)
    return models.layout.views(point)


def adapt(
    models: Population, mixture: Mixture, rows: slice, gradients: Sequence[Tensor], trained: Sequence[int] | None,
    lr: float, still: Tensor,
) -> None:  # fmt: skip
    """Take a step of some nodes' shares along their gradient, ``<gradient of the mixture, theta - common>``, in place.

    Those that are `still`, (k,), keep theirs, and so do those whose gradient is not finite.
    """
    share, slopes = mixture.share[rows], torch.zeros_like(mixture.share[rows])
    parts = [models.layout.views(flat[rows]) for flat in (models.flat, mixture.common.flat)]
    for k, g in zip(range(len(parts[0])) if trained is None else trained, gradients, strict=True):
        slopes += (g * (parts[0][k] - parts[1][k])).flatten(1).sum(1)
    share.copy_(torch.where(still | ~torch.isfinite(slopes), share, (share - lr * slopes).clamp(0, 1)))
