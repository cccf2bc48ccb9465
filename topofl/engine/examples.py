"""The examples of a dataset as models see them: gathered by index, pixels normalized on the way."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from topofl.data import Dataset
from topofl.engine.buffers import Buffers

__all__ = ["Examples"]


@dataclass(frozen=True, eq=False)
class Examples:
    """A dataset's inputs on a device.

    Parameters
    ----------
    stored
        (N, ...) numbers of type `dtype`, used as they are, or uint8 pixels.
    affine
        Of pixels: scale and shift, a model sees ``pixels * scale + shift``; None for numbers.
    dtype
        Of what models see.
    """

    stored: Tensor
    affine: tuple[Tensor, Tensor] | None
    dtype: torch.dtype

    @classmethod
    def of(cls, dataset: Dataset, device: torch.device, dtype: torch.dtype) -> "Examples":
        """Put a dataset's inputs on a device; pixels stay uint8, numbers become `dtype`."""
        affine = dataset.affine(dtype)
        if affine is None:
            return cls(dataset.inputs.to(device=device, dtype=dtype), None, dtype)
        scale, shift = (part.to(device) for part in affine)
        return cls(dataset.inputs.to(device), (scale, shift), dtype)

    @property
    def bytes_each(self) -> int:
        """Bytes of one example as models see it."""
        return math.prod(self.stored.shape[1:]) * self.dtype.itemsize

    def __call__(self, indices: Tensor) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in new memory."""
        return self._normalized(self.stored[indices], None)

    def gather(self, indices: Tensor, buffers: Buffers) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in memory that the next call uses again."""
        shape = (len(indices), *self.stored.shape[1:])
        stored = torch.index_select(self.stored, 0, indices, out=buffers.take("stored", shape, self.stored.dtype))
        return self._normalized(stored, buffers)

    def _normalized(self, stored: Tensor, buffers: Buffers | None) -> Tensor:
        if self.affine is None:
            return stored
        shape = tuple(stored.shape)
        out = (
            stored.new_empty(shape, dtype=self.dtype) if buffers is None else buffers.take("inputs", shape, self.dtype)
        )
        scale, shift = self.affine
        return out.copy_(stored).mul_(scale).add_(shift)
