"""Minibatches, drawn as a pure function of (seed, phase, step, node)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topofl._support.seeding import random_keys, torch_seed
from topofl.data import Augmentation

__all__ = ["Batch", "Batches"]


class Batch(NamedTuple):
    """One step's minibatches of all nodes.

    Attributes
    ----------
    indices
        (n, width) int64 indices into the dataset; rows of nodes with fewer than `width` examples
        are padded with their last one.
    counts
        (n,) number of examples in each row, without padding.
    choices
        (n, width) int64 random choice for each image, see :class:`topofl.data.Augmentation`; None:
        no augmentation.
    """

    indices: np.ndarray
    counts: np.ndarray
    choices: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray | None:
        """(n, width) weight of each example in its node's mean loss; None: 1 / width each."""
        width = self.indices.shape[1]
        if (self.counts == width).all():
            return None
        return (np.arange(width) < self.counts[:, None]) / self.counts[:, None]

    def of(self, nodes: np.ndarray) -> "Batch":
        """Return the minibatches of some nodes."""
        return Batch(
            self.indices[nodes],
            self.counts[nodes],
            None if self.choices is None else self.choices[nodes],
        )


class Batches:
    """Endless minibatches of every node: epochs in new random orders, without replacement.

    In epoch e, node i sorts its examples by :func:`topofl._support.seeding.random_keys` of (seed
    and phase, node, epoch, position). The order depends on nothing else, in particular not on other
    nodes, chunks, executors or earlier calls. Augmentation draws its choices in the same way, by
    step and position in the minibatch.

    Parameters
    ----------
    members
        One non-empty vector of dataset indices per node.
    seed
        The run's seed.
    augment
        Augmentation of images; None: none.
    nodes
        The node of each vector in `members`; None: 0, 1, and so on.
    """

    def __init__(
        self,
        members: Sequence[np.ndarray],
        seed: int,
        augment: Augmentation | None = None,
        nodes: np.ndarray | None = None,
    ) -> None:
        self.sizes = np.array([len(own) for own in members])
        self._nodes = (np.arange(len(members)) if nodes is None else nodes).astype(np.uint64)
        self._members = np.zeros((len(members), self.sizes.max()), dtype=np.int64)
        for row, own in zip(self._members, members, strict=True):
            row[: len(own)] = own
        self._seed = seed
        self._augment = augment
        # By phase: the epochs and the order of the latest call.
        self._orders: dict[str, tuple[bytes, np.ndarray]] = {}

    def members(self, node: int) -> np.ndarray:
        """Return the dataset indices of a node's examples, in the order given."""
        return self._members[node, : self.sizes[node]]

    def at(self, step: int | np.ndarray, batch_size: int | np.ndarray, phase: str) -> Batch:
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
        return Batch(indices, counts, self._choices(phase, step, indices.shape[1]))

    def _choices(self, phase: str, step: int | np.ndarray, width: int) -> np.ndarray | None:
        if self._augment is None:
            return None
        steps = np.broadcast_to(np.asarray(step), self.sizes.shape)
        return self._augment.choose(self._keys(f"augment/{phase}", steps, width))

    def _keys(self, purpose: str, times: np.ndarray, width: int) -> np.ndarray:
        """Return random keys (n, width) of all nodes, each at its epoch or step."""
        rows = (times.astype(np.uint64) << np.uint64(32)) | self._nodes
        return random_keys(torch_seed(self._seed, purpose), rows, np.arange(width))

    def _order(self, phase: str, epochs: np.ndarray) -> np.ndarray:
        key = epochs.tobytes()
        if self._orders.get(phase, (None,))[0] != key:
            keys = self._keys(f"batches/{phase}", epochs, self._members.shape[1])
            keys[np.arange(keys.shape[1]) >= self.sizes[:, None]] = np.iinfo(np.uint64).max
            order = np.argsort(keys, axis=1, kind="stable")
            self._orders[phase] = (key, np.take_along_axis(self._members, order, axis=1))
        return self._orders[phase][1]
