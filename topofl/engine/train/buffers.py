"""Memory that every step reuses."""

import math

import torch
from torch import Tensor

__all__ = ["Buffers"]


class Buffers:
    """Reused tensors by name, on one device, which grow to the largest requested shape.

    Not thread-safe.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialized contiguous tensor, valid until the name is taken again."""
        size = math.prod(shape)
        buffer = self._tensors.get(name)
        if buffer is None or buffer.dtype != dtype or buffer.numel() < size:
            buffer = self._tensors[name] = torch.empty(size, dtype=dtype, device=self._device)
        return buffer[:size].view(shape)
