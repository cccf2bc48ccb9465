"""Gradient diversity: how much the nodes' gradients differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from topofl.engine.ranks import Ranks

NUMBERS = 2**18
"""Numbers that are converted to float64 at a time on CPU."""


class GradientStatistics:
    """Gradient diversity ``sum_i |g_i|^2 / |sum_i g_i|^2`` of one step.

    This is definition 1 of Yin et al. (2018): 1/n if all gradients are equal, 1 if they are
    orthogonal, more if they oppose each other.
    """

    def __init__(self) -> None:
        self._squares: Tensor | None = None
        self._sums: list[Tensor] = []

    def observe(self, gradients: Sequence[Tensor], rows: Tensor | None = None) -> None:
        """Add the gradients (k, *shape) of some nodes, or of those where `rows` (k,) is True."""
        gradients = gradients if rows is None else _selected(rows, gradients)
        gradients = [g if g.dim() > 1 else g.unsqueeze(1) for g in gradients]
        if self._squares is None:
            # Allocated here: later, they would take the place of a freed copy that the next reuses.
            self._sums = [g.new_zeros(g.shape[1:], dtype=torch.float64) for g in gradients]
        norms = []
        for total, g in zip(self._sums, gradients, strict=True):
            size = _block_size(g)
            for block, part in zip(total.split(size), g.split(size, dim=1), strict=True):
                norms.append(torch.linalg.vector_norm(part, dtype=torch.float64))
                block.add_(part.sum(0, dtype=torch.float64))
        squares = torch.stack(norms).square().sum()
        self._squares = squares if self._squares is None else self._squares + squares

    def add(self, other: "GradientStatistics") -> None:
        """Add the observations of another object, whose tensors may be taken over."""
        if self._squares is None or other._squares is None:
            if self._squares is None:
                self._squares, self._sums = other._squares, other._sums
            return
        self._squares = self._squares + other._squares
        for total, more in zip(self._sums, other._sums, strict=True):
            total.add_(more)

    def add_ranks(self, ranks: Ranks) -> None:
        """Add the observations of the other ranks of a distributed run."""
        shapes = next(filter(None, ranks.objects([s.shape for s in self._sums])), None)
        if shapes is None:
            return
        if self._squares is None:
            self._squares = torch.zeros((), dtype=torch.float64, device=ranks.device)
            self._sums = [self._squares.new_zeros(shape) for shape in shapes]
        self._squares = ranks.sum_(self._squares.clone())
        self._sums = [ranks.sum_(total.contiguous()) for total in self._sums]

    @property
    def diversity(self) -> float:
        """Gradient diversity; NaN without gradients, infinite if they cancel exactly."""
        if self._squares is None:
            return float("nan")
        total = torch.stack([s.square().sum() for s in self._sums]).sum()
        squares, total = torch.stack([self._squares, total]).tolist()  # a single synchronization
        return squares / total if total else float("inf")


def _selected(rows: Tensor, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients at `rows`; other devices get zeros elsewhere, to avoid a sync."""
    if rows.device.type != "cpu":
        return [torch.where(rows.view(-1, *[1] * (g.dim() - 1)), g, 0) for g in gradients]
    return gradients if bool(rows.all()) else [g[rows] for g in gradients]


def _block_size(g: Tensor) -> int:
    """Return how many rows of gradients (k, rows, ...) are summed over nodes at a time."""
    copied = g.device.type == "cpu" and g.dtype != torch.float64
    return max(1, NUMBERS // max(1, g[:, :1].numel()) if copied else g.shape[1])
