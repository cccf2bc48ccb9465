"""Model inputs: the examples of a dataset, gathered, augmented and normalized."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from topofl.data import Augmentation, Dataset
from topofl.engine.buffers import Buffers

__all__ = ["Examples"]


@dataclass(frozen=True, eq=False)
class Examples:
    """A dataset's inputs on a device.

    Parameters
    ----------
    stored
        (N, ...) uint8 pixels, or values that are used unchanged: numbers of type `dtype`, or
        integers such as token ids.
    affine
        Scale and shift of pixels: models receive ``pixels * scale + shift``; None for other inputs.
    dtype
        Dtype of model inputs, except for integers that are used unchanged.
    augment
        Augmentation of gathered images; None: none.
    """

    stored: Tensor
    affine: tuple[Tensor, Tensor] | None
    dtype: torch.dtype
    augment: Augmentation | None = None

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        device: torch.device,
        dtype: torch.dtype,
        augment: Augmentation | None = None,
    ) -> "Examples":
        """Return a dataset's inputs on a device: pixels stay uint8, and token ids integers."""
        affine = dataset.affine(dtype)
        if affine is None:
            own = dtype if dataset.inputs.is_floating_point() else dataset.inputs.dtype
            return cls(dataset.inputs.to(device=device, dtype=own), None, dtype, augment)
        scale, shift = (part.to(device) for part in affine)
        return cls(dataset.inputs.to(device), (scale, shift), dtype, augment)

    def __call__(self, indices: Tensor) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in new memory."""
        return self._normalized(self.stored[indices], None)

    def gather(self, indices: Tensor, buffers: Buffers, choices: Tensor | None = None) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in memory that the next call reuses.

        With (k,) `choices` the examples are images, which are augmented accordingly.
        """
        shape = (len(indices), *self.stored.shape[1:])
        stored = torch.index_select(
            self.stored, 0, indices, out=buffers.take("stored", shape, self.stored.dtype)
        )
        if self.augment is not None and choices is not None:
            self._augment(stored, self.augment, choices, buffers)
        return self._normalized(stored, buffers)

    def _augment(
        self, images: Tensor, augment: Augmentation, choices: Tensor, buffers: Buffers
    ) -> None:
        """Crop and flip (k, channels, height, width) images in place."""
        k, channels, height, width = images.shape
        p = augment.padding
        wide = width + 2 * p
        padded = buffers.take("padded", (k, channels, height + 2 * p, wide), images.dtype).zero_()
        padded[:, :, p : p + height, p : p + width] = images
        tops, lefts, flipped = augment.moves(choices)
        positions = buffers.take("places", (k, height * width), torch.int64)
        corners = (tops * wide + lefts)[:, None]
        torch.index_select(self._grids, 0, flipped, out=positions).add_(corners)
        in_channels = positions[:, None].expand(-1, channels, -1)
        torch.gather(padded.flatten(2), 2, in_channels, out=images.view(k, channels, -1))

    @cached_property
    def _grids(self) -> Tensor:
        """(2, height * width) positions of the top left crop in a padded image: plain, mirrored."""
        height, width = self.stored.shape[2:]
        wide = width + 2 * (self.augment.padding if self.augment else 0)
        y, x = (torch.arange(side, device=self.stored.device) for side in (height, width))
        grid = wide * y[:, None] + x
        return torch.stack([grid.flatten(), grid.flip(1).flatten()])

    def _normalized(self, stored: Tensor, buffers: Buffers | None) -> Tensor:
        if self.affine is None:
            return stored
        shape = tuple(stored.shape)
        out = (
            stored.new_empty(shape, dtype=self.dtype)
            if buffers is None
            else buffers.take("inputs", shape, self.dtype)
        )
        scale, shift = self.affine
        return out.copy_(stored).mul_(scale).add_(shift)
