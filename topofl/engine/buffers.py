"""Memory that every step reuses."""

import math
from collections.abc import Mapping

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

    def apart(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with those copied that are in a buffer, and would change with it.

        Examples
        --------
        >>> buffers = Buffers(torch.device("cpu"))
        >>> kept = buffers.apart({"last": buffers.take("gradients", (2,), torch.float32).fill_(1)})
        >>> buffers.take("gradients", (2,), torch.float32).fill_(0).sum(), kept["last"].sum()
        (tensor(0.), tensor(2.))
        """
        own = {tensor.untyped_storage().data_ptr() for tensor in self._tensors.values()}
        return {
            name: x.clone() if not x.is_meta and x.untyped_storage().data_ptr() in own else x
            for name, x in tensors.items()
        }
