"""Minibatches as a pure function of (seed, phase, step, node)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topofl._seeding import random_keys, torch_seed

__all__ = ["Batch", "Batches"]


class Batch(NamedTuple):
    """One step's minibatches of all nodes.

    Attributes
    ----------
    indices
        (n, width) int64 into the dataset; where a node has fewer than `width` examples the rest repeat its last one.
    counts
        (n,) how many are real.
    """

    indices: np.ndarray
    counts: np.ndarray

    @property
    def weights(self) -> np.ndarray | None:
        """(n, width) weight of each example in its node's mean loss, None where all are 1 / width."""
        width = self.indices.shape[1]
        if (self.counts == width).all():
            return None
        return (np.arange(width) < self.counts[:, None]) / self.counts[:, None]


class Batches:
    """Every node's endless sequence of minibatches: epoch after epoch, each in a fresh order without replacement.

    The order of node i in epoch e sorts its examples by :func:`topofl._seeding.random_keys` of (seed and phase, node,
    epoch, place); it depends on nothing else, in particular not on other nodes, chunks, executors or earlier calls.

    Parameters
    ----------
    members
        One non-empty vector of dataset indices a node.
    seed
        The run's seed.
    """

    def __init__(self, members: Sequence[np.ndarray], seed: int) -> None:
        self.sizes = np.array([len(m) for m in members])
        self._members = np.zeros((len(members), self.sizes.max()), dtype=np.int64)
        for row, m in zip(self._members, members, strict=True):
            row[: len(m)] = m
        self._seed = seed
        self._orders: dict[str, tuple[bytes, np.ndarray]] = {}  # the latest epoch's order of each phase

    def at(self, step: int | np.ndarray, batch_size: int, phase: str) -> Batch:
        """Return the minibatches of local step `step` (from 0; one for all, or (n,)) of `phase`.

        A small node's epochs are shorter.
        """
        steps_per_epoch = -(-self.sizes // batch_size)
        epochs, places = np.divmod(step, steps_per_epoch)
        start = places * batch_size
        counts = np.minimum(batch_size, self.sizes - start)
        columns = start[:, None] + np.arange(counts.max())
        columns = np.minimum(columns, (start + counts - 1)[:, None])
        return Batch(np.take_along_axis(self._order(phase, epochs), columns, axis=1), counts)

    def _order(self, phase: str, epochs: np.ndarray) -> np.ndarray:
        key = epochs.tobytes()
        if self._orders.get(phase, (None,))[0] != key:
            nodes = np.arange(len(self.sizes), dtype=np.uint64)
            rows = (epochs.astype(np.uint64) << np.uint64(32)) | nodes
            keys = random_keys(torch_seed(self._seed, f"batches/{phase}"), rows, np.arange(self._members.shape[1]))
            keys[np.arange(keys.shape[1]) >= self.sizes[:, None]] = np.iinfo(np.uint64).max
            order = np.argsort(keys, axis=1, kind="stable")
            self._orders[phase] = (key, np.take_along_axis(self._members, order, axis=1))
        return self._orders[phase][1]
