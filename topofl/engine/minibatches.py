"""Minibatches: which examples, in which order, gathered, augmented and normalized on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.seeding import random_keys, torch_seed
from topofl._support.threads import Buffers
from topofl.data import Augmentation, Dataset


class Minibatches(NamedTuple):
    """One step's minibatches of all nodes.

    Attributes
    ----------
    indices
        (n, width) int64 indices into the dataset; rows of nodes with fewer than `width` examples
        are padded with their last one.
    weights
        (n, width) weight of each example in its node's mean loss, 0 for padding; None: 1 / width
        each.
    choices
        (n, width) int64 random choice for each image, see :class:`topofl.data.Augmentation`; None:
        no augmentation.
    keys
        (n,) int64, from which each model draws in its forward in this step; None: it draws nothing.
    """

    indices: Tensor
    weights: Tensor | None
    choices: Tensor | None = None
    keys: Tensor | None = None

    def of(self, nodes: np.ndarray) -> "Minibatches":
        """Return the minibatches of some nodes."""
        some = self._make(None if x is None else x[nodes] for x in self)
        needed = some.weights is not None and not bool((some.weights[:, -1] > 0).all())
        return some if needed else some._replace(weights=None)


def on_device(
    steps: Sequence[Minibatches], device: torch.device, dtype: torch.dtype
) -> list[Minibatches]:
    """Return the minibatches of some steps on a device, to which they are copied together.

    Weights get a `dtype`.
    """
    if device.type == "cpu":
        return [b if b.weights is None else b._replace(weights=b.weights.to(dtype)) for b in steps]
    moved = []
    for name, values in zip(Minibatches._fields, zip(*steps, strict=True), strict=True):
        parts = [x for x in values if x is not None]
        kind = dtype if name == "weights" else None
        together = torch.cat([x.reshape(-1) for x in parts]).to(device, kind) if parts else None
        split = iter(() if together is None else together.split([x.numel() for x in parts]))
        moved.append([None if x is None else next(split).view(x.shape) for x in values])
    return [Minibatches._make(one) for one in zip(*moved, strict=True)]


class Batches:
    """Endless minibatches of every node: epochs in new random orders, without replacement.

    In epoch e, node i sorts its examples by :func:`topofl._support.seeding.random_keys` of (seed
    and phase, node, epoch, position). The order depends on nothing else, in particular not on other
    nodes, chunks, executors or earlier calls. Augmentation draws its choices in the same way, by
    step and position in the minibatch, and so are the keys of models that draw, by step.

    Parameters
    ----------
    members
        One non-empty vector of dataset indices per node.
    seed
        The run's seed; or (n,), that of each node's run, if several are trained together.
    augment
        Augmentation of images; None: none.
    nodes
        The node of each vector in `members`; None: 0, 1, and so on.
    draws
        Whether models draw random numbers, and need keys.
    """

    def __init__(
        self,
        members: Sequence[np.ndarray],
        seed: int | Sequence[int],
        augment: Augmentation | None = None,
        nodes: np.ndarray | None = None,
        draws: bool = False,
    ) -> None:
        self.sizes = np.array([len(own) for own in members])
        self._nodes = (np.arange(len(members)) if nodes is None else nodes).astype(np.uint64)
        self._members = np.zeros((len(members), self.sizes.max()), dtype=np.int64)
        for row, own in zip(self._members, members, strict=True):
            row[: len(own)] = own
        of_nodes = np.broadcast_to(np.asarray(seed, object), len(members))
        self._seeds, self._seed_of = np.unique(of_nodes, return_inverse=True)
        self._augment = augment
        self._draws = draws
        # By phase: the epochs and the order of the latest call.
        self._orders: dict[str, tuple[bytes, np.ndarray]] = {}

    def members(self, node: int) -> np.ndarray:
        """Return the dataset indices of a node's examples, in the order given."""
        return self._members[node, : self.sizes[node]]

    def at(self, step: int | np.ndarray, batch_size: int | np.ndarray, phase: str) -> Minibatches:
        """Return the minibatches of local step `step` of `phase`.

        `step` and `batch_size` are ints or (n,). Nodes with fewer examples have shorter epochs.
        """
        steps_per_epoch = -(-self.sizes // batch_size)
        epochs, steps_in_epoch = np.divmod(step, steps_per_epoch)
        start = steps_in_epoch * batch_size
        counts = np.minimum(batch_size, self.sizes - start)
        columns = start[:, None] + np.arange(counts.max())
        columns = np.minimum(columns, (start + counts - 1)[:, None])
        indices = np.take_along_axis(self._order(phase, epochs), columns, axis=1)
        width, weights, choices, keys = indices.shape[1], None, None, None
        if (counts < width).any():
            weights = torch.from_numpy((np.arange(width) < counts[:, None]) / counts[:, None])
        if self._augment is not None:
            chosen = self._augment.choose(self._keys(f"augment/{phase}", step, width))
            choices = torch.from_numpy(chosen)
        if self._draws:
            drawn = self._keys(f"forward/{phase}", step, 1)[:, 0]
            keys = torch.from_numpy(drawn.view(np.int64))
        return Minibatches(torch.from_numpy(indices), weights, choices, keys)

    def _keys(self, purpose: str, times: int | np.ndarray, width: int) -> np.ndarray:
        """Return random keys (n, width) of all nodes, each at its epoch or step."""
        times = np.broadcast_to(np.asarray(times), self.sizes.shape)
        rows = (times.astype(np.uint64) << np.uint64(32)) | self._nodes
        seeds = np.array([torch_seed(seed, purpose) for seed in self._seeds], np.uint64)
        return random_keys(seeds[self._seed_of], rows, np.arange(width))

    def _order(self, phase: str, epochs: np.ndarray) -> np.ndarray:
        key = epochs.tobytes()
        if self._orders.get(phase, (None,))[0] != key:
            keys = self._keys(f"batches/{phase}", epochs, self._members.shape[1])
            keys[np.arange(keys.shape[1]) >= self.sizes[:, None]] = np.iinfo(np.uint64).max
            order = np.argsort(keys, axis=1, kind="stable")
            self._orders[phase] = (key, np.take_along_axis(self._members, order, axis=1))
        return self._orders[phase][1]


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
        return self.gather(indices, Buffers(self.stored.device))

    def gather(self, indices: Tensor, buffers: Buffers, choices: Tensor | None = None) -> Tensor:
        """Return the examples at (k,) indices, (k, ...), in memory that the next call reuses.

        With (k,) `choices` the examples are images, which are augmented accordingly.
        """
        shape = (len(indices), *self.stored.shape[1:])
        memory = buffers.take("stored", shape, self.stored.dtype)
        found = torch.index_select(self.stored, 0, indices, out=memory)
        if self.augment is not None and choices is not None:
            self._augment(found, self.augment, choices, buffers)
        if self.affine is None:
            return found
        scale, shift = self.affine
        return buffers.take("inputs", shape, self.dtype).copy_(found).mul_(scale).add_(shift)

    def _augment(self, images: Tensor, by: Augmentation, choices: Tensor, buffers: Buffers) -> None:
        """Crop and flip (k, channels, height, width) images in place."""
        k, channels, height, width = images.shape
        p = by.padding
        wide = width + 2 * p
        padded = buffers.take("padded", (k, channels, height + 2 * p, wide), images.dtype).zero_()
        padded[:, :, p : p + height, p : p + width] = images
        tops, lefts, flipped = by.moves(choices)
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
