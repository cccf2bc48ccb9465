"""The ranks of a run: which nodes each process holds, and collective operations.

A run in one process has one rank, which holds all nodes and communicates with nobody.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from topofl.engine.rank_failure import Link, failed_rank

__all__ = ["Ranks", "Traffic", "one_process"]

BLOCK = 2**23
"""Numbers that a rank gathers at a time."""

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The function that stacks the tensors of all ranks, by its name in newer versions of torch."""

T = TypeVar("T")
Rows = TypeVar("Rows", Tensor, np.ndarray)


@dataclass(eq=False)
class Traffic:
    """What one rank sent in the current round, and how long it waited for it.

    Parameters
    ----------
    bytes
        Bytes sent to other ranks.
    seconds
        Seconds in exchanges with other ranks, without local work that overlaps them.
    round
        Number of completed rounds, for error messages.
    alone
        Whether other ranks do not communicate now, as during callbacks.
    """

    bytes: int = 0
    seconds: float = 0.0
    round: int = 0
    alone: bool = False


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of a run, as seen by one of them.

    Parameters
    ----------
    rank, size
        Number of this rank and of all ranks.
    owner
        (n,) rank that holds each node.
    device
        Device of the models.
    link
        The process group of the ranks, and how failures are reported; None in a run of one process
        that was not started by torchrun.
    """

    rank: int
    size: int
    owner: np.ndarray
    device: torch.device
    link: Link | None
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def n(self) -> int:
        """Number of nodes of the run."""
        return len(self.owner)

    @property
    def is_first(self) -> bool:
        """Whether this rank decides for all, writes what is not divided, and calls callbacks."""
        return self.rank == 0

    @property
    def nodes(self) -> np.ndarray:
        """(k,) nodes of this rank, ascending."""
        return self._nodes

    @cached_property
    def _nodes(self) -> np.ndarray:
        return np.flatnonzero(self.owner == self.rank)

    @cached_property
    def counts(self) -> np.ndarray:
        """(size,) number of nodes of each rank."""
        return np.bincount(self.owner, minlength=self.size)

    @cached_property
    def row_of(self) -> np.ndarray:
        """(n,) row of each node on its rank."""
        order = np.argsort(self.owner, kind="stable")
        rows = np.empty(self.n, dtype=np.int64)
        starts = np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        rows[order] = np.arange(self.n) - starts
        return rows

    @cached_property
    def _index(self) -> Tensor:
        """(k,) nodes of this rank, as an index on the device."""
        return torch.from_numpy(self.nodes).to(self.device)

    @cached_property
    def _place(self) -> Tensor:
        """(n,) row of each node where all ranks' rows are stacked, padded to the largest rank."""
        return torch.from_numpy(self.owner * int(self.counts.max()) + self.row_of)

    @property
    def joined(self) -> Link:
        """The link to other ranks, for operations that are called with several ranks only."""
        if self.link is None:
            raise RuntimeError("a run in one process has no other ranks")
        return self.link

    def holds_all(self, values: Tensor | np.ndarray) -> bool:
        """Whether values have a row for each node of the run."""
        return len(values) == self.n

    def own_rows(self, values: Rows) -> Rows:
        """Return the rows of the own nodes of values (n, ...); own rows are returned unchanged."""
        if len(values) != self.n or self.size == 1:
            return values
        if isinstance(values, np.ndarray):
            return values[self.nodes]
        return values[self._index.to(values.device)]

    def all_rows(self, values: Tensor) -> Tensor:
        """Return the rows of all nodes (n, ...), given the own ones (k, ...)."""
        if len(values) == self.n:
            return values
        shape = values.shape[1:]
        wide = values.detach().reshape(len(values), -1)
        found = wide.new_empty(self.n, wide.shape[1])
        width = max(1, BLOCK // (self.size * int(self.counts.max())))
        for start in range(0, wide.shape[1], width):
            part = slice(start, start + width)
            found[:, part] = self._gathered(wide[:, part])
        return found.view(self.n, *shape)

    def _gathered(self, values: Tensor) -> Tensor:
        """Return (n, w) values of all nodes from (k, w) own ones; w is at least 1."""
        most, width = int(self.counts.max()), values.shape[1]
        sent = values.new_zeros(most, width)
        sent[: len(values)] = values
        sent = sent.view(torch.uint8)  # backends do not know all dtypes
        received = sent.new_empty(self.size * most, sent.shape[1])
        self.call(lambda: _all_gather(received, sent, group=self.joined.group))
        self.traffic.bytes += sent.numel() * (self.size - 1)
        return received.view(values.dtype)[self._place.to(values.device)]

    def sum_(self, values: Tensor) -> Tensor:
        """Add the values of all ranks, in place and the same on each."""
        if self.size > 1:
            self.call(lambda: dist.all_reduce(values, group=self.joined.group))
            share = 2 * (self.size - 1) / self.size  # of a ring reduction, per rank
            self.traffic.bytes += int(share * values.numel() * values.element_size())
        return values

    def any(self, flag: bool) -> bool:
        """Return whether the flag is True on some rank."""
        if self.size == 1:
            return flag
        return bool(self.numbers([float(flag)]).any())

    def numbers(self, own: Sequence[float]) -> np.ndarray:
        """Return (size, m) numbers of all ranks, m of each."""
        sent = torch.tensor([list(own)], dtype=torch.float64, device="cpu")
        if self.size == 1:
            return sent.numpy()
        received = sent.new_empty(self.size, len(own))
        self.call(lambda: _all_gather(received, sent, group=self.joined.group))
        return received.numpy()

    def objects(self, own: T) -> list[T]:
        """Return the objects of all ranks, in order of ranks."""
        if self.size == 1:
            return [own]
        found: list[Any] = [None] * self.size
        self.call(lambda: dist.all_gather_object(found, own, self.joined.group))
        return found

    def of_first(self, own: T) -> T:
        """Return the object of rank 0."""
        if self.size == 1:
            return own
        box = [own]
        self.call(lambda: dist.broadcast_object_list(box, src=0, group=self.joined.group))
        return box[0]

    def post(
        self, outgoing: Sequence[tuple[int, Tensor]], incoming: Sequence[tuple[int, Tensor]]
    ) -> Sequence[Any]:
        """Begin to send tensors to ranks and to receive tensors from them; see :meth:`finish`."""
        operations = [
            dist.P2POp(function, tensor, peer, self.joined.group)
            for function, pairs in ((dist.isend, outgoing), (dist.irecv, incoming))
            for peer, tensor in pairs
        ]
        self.traffic.bytes += sum(part.numel() * part.element_size() for _, part in outgoing)
        return self.call(lambda: dist.batch_isend_irecv(operations)) if operations else []

    def finish(self, requests: Sequence[Any]) -> None:
        """Wait for what :meth:`post` began."""
        if not requests:
            return

        def wait() -> None:
            for request in requests:
                request.wait()

        self.call(wait)

    def to_first(self, values: Tensor) -> Tensor | None:
        """Return values (n, ...) of all nodes on the CPU of rank 0, given own ones; else None."""
        own = values.detach().cpu().contiguous()
        if self.size == 1:
            return own
        if not self.is_first:
            self.finish(self.post([(0, own)], []))
            return None
        found = own.new_empty(self.n, *own.shape[1:])
        found[torch.from_numpy(self.nodes)] = own
        for peer in range(1, self.size):
            rows = np.flatnonzero(self.owner == peer)
            part = own.new_empty(len(rows), *own.shape[1:])
            self.finish(self.post([], [(peer, part)]))
            found[torch.from_numpy(rows)] = part
        return found

    def begin_round(self, t: int) -> None:
        """Count what is sent from round t on."""
        self.traffic.bytes, self.traffic.seconds, self.traffic.round = 0, 0.0, t

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let communication raise ``RuntimeError``, since rank 0 alone executes the block."""
        self.traffic.alone = True
        try:
            yield
        finally:
            self.traffic.alone = False

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that communicates; raise ``RankError`` if another rank fails."""
        if self.traffic.alone:
            raise RuntimeError(
                "the models of all nodes must not be gathered in a callback, which rank 0 alone "
                "calls; use its own rows, those of `event.models.nodes`, or a stage of the "
                "evaluation, Evaluation(also=...)"
            )
        began = time.perf_counter()
        try:
            return function()
        except RuntimeError as error:
            if self.link is None:
                raise
            raise failed_rank(self.link, self.rank, self.traffic.round, error) from error
        finally:
            self.traffic.seconds += time.perf_counter() - began


def one_process(n: int, device: torch.device) -> Ranks:
    """Return the one rank of a run in one process, which holds all n nodes."""
    return Ranks(0, 1, np.zeros(n, dtype=np.int64), device, None)
