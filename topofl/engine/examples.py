"""The examples of a dataset as models see them: gathered by index, cropped and normalized on the way."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from topofl.data import Augmentation, Dataset
from topofl.data.augment import Sources
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
    augment
        What may become of images that are gathered; None: they stay.
    """

    stored: Tensor
    affine: tuple[Tensor, Tensor] | None
    dtype: torch.dtype
    augment: Augmentation | None = None

    @classmethod
    def of(
        cls, dataset: Dataset, device: torch.device, dtype: torch.dtype, augment: Augmentation | None = None
    ) -> "Examples":
        """Put a dataset's inputs on a device; pixels stay uint8, numbers become `dtype`."""
        affine = dataset.affine(dtype)
        if affine is None:
            return cls(dataset.inputs.to(device=device, dtype=dtype), None, dtype, augment)
        scale, shift = (part.to(device) for part in affine)
        return cls(dataset.inputs.to(device), (scale, shift), dtype, augment)

    @property
    def bytes_each(self) -> int:
        """Bytes of one example as models see it."""
        return math.prod(self.stored.shape[1:]) * self.dtype.itemsize

    def __call__(self, indices: Tensor) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in new memory."""
        return self._normalized(self.stored[indices], None)

    def gather(self, indices: Tensor, buffers: Buffers, choices: Tensor | None = None) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in memory that the next call uses again.

        With (k,) choices they are images, of which becomes what was chosen.
        """
        shape = (len(indices), *self.stored.shape[1:])
        stored = torch.index_select(self.stored, 0, indices, out=buffers.take("stored", shape, self.stored.dtype))
        if self.augment is not None and choices is not None:
            stored = _moved(stored, self.augment.sources(choices, *shape[2:]), buffers)
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


def _moved(images: Tensor, sources: Sources, buffers: Buffers) -> Tensor:
    """Return (k, channels, height, width) images with their pixels moved; those from beyond the edges are 0."""
    k, channels, height, width = images.shape
    rows, columns = sources.rows[:, :, None], sources.columns[:, None, :]
    beyond = torch.logical_or(
        (rows < 0) | (rows >= height), (columns < 0) | (columns >= width),
        out=buffers.take("beyond", (k, height, width), torch.bool),
    )  # fmt: skip
    places = torch.add(
        columns.clamp(0, width - 1), rows.clamp(0, height - 1), alpha=width,
        out=buffers.take("places", (k, height, width), torch.int64),
    )  # fmt: skip
    moved = torch.gather(
        images.view(k, channels, -1), 2, places.view(k, 1, -1).expand(-1, channels, -1),
        out=buffers.take("moved", (k, channels, height * width), images.dtype),
    )  # fmt: skip
    return moved.view(images.shape).masked_fill_(beyond[:, None], 0)
