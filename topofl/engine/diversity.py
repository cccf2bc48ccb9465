"""How much the nodes' gradients differ."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

__all__ = ["GradientStatistics"]


class GradientStatistics:
    """Gradient diversity ``sum_i |g_i|^2 / |sum_i g_i|^2`` of one step (Yin et al. 2018, definition 1).

    1/n if all gradients are equal, 1 if they are orthogonal, more if they oppose each other.
    """

    def __init__(self) -> None:
        self._squares: Tensor | None = None
        self._sums: list[Tensor] = []

    def observe(self, gradients: Sequence[Tensor]) -> None:
        """Add the gradients of some nodes, each (k, *shape)."""
        norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients])
        self._add(norms.square().sum(), (g.sum(0, dtype=torch.float64) for g in gradients))

    def add(self, other: "GradientStatistics") -> None:
        """Add what another has observed, whose memory is used from now on."""
        if other._squares is not None:
            self._add(other._squares, other._sums)

    def _add(self, squares: Tensor, sums: Iterable[Tensor]) -> None:
        if self._squares is None:
            self._squares, self._sums = squares, list(sums)
            return
        self._squares = self._squares + squares
        for total, more in zip(self._sums, sums, strict=True):  # one at a time: they are of float64
            total.add_(more)

    @property
    def diversity(self) -> float:
        """The ratio; NaN before any gradient was seen, infinite if they cancel exactly."""
        if self._squares is None:
            return float("nan")
        total = float(torch.stack([s.square().sum() for s in self._sums]).sum())
        return float(self._squares) / total if total else float("inf")
