"""The ranks of a run: the nodes of each process, collective operations, and failures of processes.

A run in one process has one rank, which holds all nodes and communicates with nobody.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from topofl._columns import RANK_COLUMNS
from topofl._linalg.bisection import cut_edges
from topofl._support.processes import torchrun_holds_store
from topofl.metrics import consensus_distance
from topofl.mixing import MixingMatrix

BLOCK = 2**23
"""Numbers that a rank gathers at a time."""

NUMBERS = 2**20
"""Numbers that are converted to float64 at a time."""

ANSWERING = 0.5
"""Seconds between two looks at whether a failure is reported."""

REPORTING = 3.0
"""Seconds for which the first rank that notices a failure waits for the others to notice it."""

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The function that stacks the tensors of all ranks, by its name in newer versions of torch."""

T = TypeVar("T")
Rows = TypeVar("Rows", Tensor, np.ndarray)


class RankError(RuntimeError):
    """Another process of a distributed run ended, or did not respond in time.

    Attributes
    ----------
    missing
        The ranks that failed, as far as known.
    reporter
        Whether this process is the one that should show the error: of several ranks that notice a
        failure, the first.
    saved
        The folder of checkpoints, and the round of the newest one there (None: there is none); None
        if there is no such folder.

    Examples
    --------
    >>> RankError("rank 1 of 2 does not respond", missing=(1,)).missing
    (1,)
    """

    def __init__(self, message: str, missing: tuple[int, ...] = (), reporter: bool = True) -> None:
        super().__init__(message)
        self.missing = missing
        self.reporter = reporter
        self.saved: tuple[Path, int | None] | None = None


@dataclass(eq=False)
class Ranks:
    """The ranks of a run, as seen by one of them, and what it has sent in the current round.

    Parameters
    ----------
    rank, size
        Number of this rank and of all ranks. Processes from `size` on hold no nodes.
    owner
        (n,) rank that holds each node.
    device
        Device of the models.
    placement
        The method by which nodes were placed on ranks; empty in a run of one process.
    group
        The process group of the ranks; None: there is one process.
    store
        The key-value store of all processes, by which failures are reported.
    timeout
        Seconds after which a rank that does not respond has failed.
    idle
        Number of processes without nodes.

    Attributes
    ----------
    sent
        Bytes sent to other ranks.
    seconds
        Seconds in exchanges with other ranks, without local work that overlaps them.
    round
        Number of completed rounds, for error messages.
    is_alone
        Whether other ranks do not communicate now, as during callbacks.
    failure_known
        Set once this process knows that a rank reports a failure.
    error
        The error that another rank has reported; "" if none.
    """

    rank: int
    size: int
    owner: np.ndarray
    device: torch.device
    placement: str = ""
    group: Any = None
    store: Any = None
    timeout: float = 0.0
    idle: int = 0
    sent: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)
    round: int = field(default=0, init=False)
    is_alone: bool = field(default=False, init=False)
    failure_known: Event = field(default_factory=Event, init=False)
    error: str = field(default="", init=False)

    @property
    def n(self) -> int:
        """Number of nodes of the run."""
        return len(self.owner)

    @property
    def is_first(self) -> bool:
        """Whether this rank decides for all, writes what is not divided, and calls callbacks."""
        return self.rank == 0

    @cached_property
    def nodes(self) -> np.ndarray:
        """(k,) nodes of this rank, ascending."""
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

    def own_rows(self, values: Rows) -> Rows:
        """Return the rows of the own nodes of values (n, ...); own rows are returned unchanged."""
        n = len(self.owner)
        if len(self.nodes) == n or len(values) != n:
            return values
        if isinstance(values, np.ndarray):
            return values[self.nodes]
        return values[self._index.to(values.device)]

    def all_rows(self, values: Tensor) -> Tensor:
        """Return the rows of all nodes (n, ...), given the own ones (k, ...)."""
        if len(values) == self.n:
            return values
        shape, most = values.shape[1:], int(self.counts.max())
        if values.is_meta:  # without values, which would travel
            return values.new_empty(self.n, *shape)
        own = values.detach().reshape(len(values), -1)
        found = own.new_empty(self.n, own.shape[1])
        place = torch.from_numpy(self.owner * most + self.row_of).to(values.device)
        width = max(1, BLOCK // (self.size * most))
        for some, block in zip(found.split(width, 1), own.split(width, 1), strict=True):
            padded = block.new_zeros(most, block.shape[1])
            padded[: len(block)] = block
            sent = padded.view(torch.uint8)  # backends do not know all dtypes
            received = sent.new_empty(self.size * most, sent.shape[1])
            self._together(partial(_all_gather, received, sent, group=self.group))
            self.sent += sent.numel() * (self.size - 1)
            some.copy_(received.view(values.dtype)[place])
        return found.view(self.n, *shape)

    def sum_(self, values: Tensor) -> Tensor:
        """Add the values of all ranks, in place and the same on each."""
        self._together(lambda: dist.all_reduce(values, group=self.group))
        share = 2 * (self.size - 1) / self.size  # of a ring reduction, per rank
        self.sent += int(share * values.numel() * values.element_size())
        return values

    def any(self, flag: bool) -> bool:
        """Return whether the flag is True on some rank."""
        return flag if self.size == 1 else bool(self.numbers([float(flag)]).any())

    def numbers(self, own: Sequence[float]) -> np.ndarray:
        """Return (size, m) numbers of all ranks, m of each."""
        found = np.array([own] * self.size, dtype=np.float64)
        sent, received = torch.from_numpy(found[:1].copy()), torch.from_numpy(found)
        self._together(lambda: _all_gather(received, sent, group=self.group))
        return found

    def objects(self, own: T) -> list[T]:
        """Return the objects of all ranks, in order of ranks."""
        found = [own] * self.size
        self._together(lambda: dist.all_gather_object(found, own, self.group))
        return found

    def of_first(self, own: T) -> T:
        """Return the object of rank 0."""
        box = [own]
        self._together(lambda: dist.broadcast_object_list(box, src=0, group=self.group))
        return box[0]

    def to_first(self, values: Tensor) -> Tensor | None:
        """Return values (n, ...) of all nodes on the CPU of rank 0, given own ones; else None."""
        own = values.detach().cpu().contiguous()
        if len(own) == self.n:
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

    def post(
        self, outgoing: Sequence[tuple[int, Tensor]], incoming: Sequence[tuple[int, Tensor]]
    ) -> Sequence[Any]:
        """Begin to send tensors to ranks and to receive tensors from them; see :meth:`finish`."""
        calls = [(dist.isend, *one) for one in outgoing] + [(dist.irecv, *one) for one in incoming]
        operations = [dist.P2POp(call, part, peer, self.group) for call, peer, part in calls]
        self.sent += sum(part.numel() * part.element_size() for _, part in outgoing)
        return self._call(lambda: dist.batch_isend_irecv(operations)) if operations else []

    def finish(self, requests: Sequence[Any]) -> None:
        """Wait for what :meth:`post` began."""
        if requests:
            self._call(lambda: [request.wait() for request in requests])

    def _together(self, operation: Callable[[], object]) -> None:
        """Call an operation of all ranks; a rank alone has its result already."""
        if self.size > 1:
            self._call(operation)

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function that communicates; raise ``RankError`` if another rank fails."""
        if self.is_alone:
            raise RuntimeError(
                "the models of all nodes must not be gathered in a callback, which rank 0 alone "
                "calls; use its own rows, those of `event.models.nodes`, or a stage of the "
                "evaluation, Evaluation(also=...)"
            )
        began = time.perf_counter()
        try:
            return function()
        except RuntimeError as error:
            raise _failed_rank(self, error) from error
        finally:
            self.seconds += time.perf_counter() - began

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let communication raise ``RuntimeError``, since rank 0 alone executes the block."""
        self.is_alone = True
        try:
            yield
        finally:
            self.is_alone = False

    @property
    def description(self) -> dict[str, Any]:
        """The ranks and their nodes as JSON values."""
        return {"size": self.size, "nodes": self.counts.tolist(), "placement": self.placement}

    def begin_round(self, t: int) -> None:
        """Count what is sent from round t on."""
        self.sent, self.seconds, self.round = 0, 0.0, t

    def traffic(self, used: MixingMatrix | None) -> dict[str, float]:
        """Return the edges between ranks, the bytes that ranks sent, and their longest exchanges.

        They are those of the current round, in which nodes averaged by `used`.
        """
        sent = self.numbers([float(self.sent), self.seconds])
        cut = 0 if used is None else cut_edges(used.weights, self.owner)
        values = (float(cut), float(sent[:, 0].sum()), float(sent[:, 1].max()))
        return dict(zip(RANK_COLUMNS, values, strict=True))

    def consensus_distance(self, models: Tensor) -> float:
        """Return the consensus distance of the models (k, d) of all ranks."""
        if self.size == 1:
            return consensus_distance(models)
        counts = self.numbers([len(models)])
        n, most = int(counts.sum()), int(counts.max())
        first = models[:1] if len(models) else models.new_zeros(1, models.shape[1])
        origin = self.of_first(first.double().cpu()).to(models.device)
        squares = torch.zeros((), dtype=torch.float64, device=models.device)
        width = max(1, NUMBERS // max(1, most))  # the same on all ranks, which sum each block
        for start in range(0, models.shape[1], width):
            part = slice(start, start + width)
            apart = models[:, part].double() - origin[:, part]
            mean = self.sum_(apart.sum(0)) / n
            squares += (apart - mean).square().sum()
        return float((self.sum_(squares) / n).sqrt())


def one_process(n: int, device: torch.device) -> Ranks:
    """Return the one rank of a run in one process, which holds all n nodes."""
    return Ranks(0, 1, np.zeros(n, dtype=np.int64), device)


def _failed_rank(ranks: Ranks, error: Exception) -> RankError:
    """Return the error for a failed exchange, which names the failed ranks if they are known.

    All ranks that are alive enter their numbers into the store; the first one that notices the
    failure waits a few seconds for the others, and reports those that are missing.
    """
    what = str(error).partition("\n")[0]
    slow = "timed out" in what.lower() or "timeout" in what.lower()
    how = f"did not respond within {ranks.timeout:g} seconds" if slow else "ended"
    how = f"of {ranks.size} {how} in round {ranks.round + 1}"
    reported = _within(3 * REPORTING, lambda: _report(ranks, how))
    if ranks.error:  # the store may have ended since it was read
        return RankError(ranks.error, reporter=False)
    if reported is None:
        # the process that holds the store has failed, and ranks cannot agree on the first
        if ranks.failure_known.is_set():
            return RankError(f"another rank {how}", reporter=False)
        if ranks.rank and not torchrun_holds_store():
            return RankError(f"rank 0 {how}", (0,))
        reported = RankError(f"another rank {how}")
    if reported.reporter and not reported.missing:  # no rank is missing, or it is unknown which
        return RankError(f"{reported}: {what}")
    return reported


def _report(ranks: Ranks, how: str) -> RankError:
    """Report which ranks failed, or return what another rank reports."""
    store = ranks.store
    first = store.add("reports", 1) == 1 and not store.check(["error"])
    store.set(f"alive/{ranks.rank}", "1")
    missing = set(range(ranks.size)) - {ranks.rank}
    until = time.monotonic() + REPORTING * (1 if first else 2)
    while time.monotonic() < until and not (first and not missing):
        if store.check(["error"]):
            found = store.get("error").decode()
            _let_others_read(ranks)
            return RankError(found, reporter=False)
        if not first and store.check(["report"]):
            missing = set(json.loads(store.get("report")))
            break
        missing = {k for k in range(ranks.size) if not store.check([f"alive/{k}"])}
        time.sleep(ANSWERING / 10)
    numbers = tuple(sorted(missing))
    if first:
        store.set("report", json.dumps(numbers))
        _let_others_read(ranks)
    which = f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
    return RankError(f"{which if numbers else 'another rank'} {how}", numbers, reporter=first)


def _let_others_read(ranks: Ranks) -> None:
    """Wait until other ranks have read the store, if it ends with this process."""
    if ranks.is_first and not torchrun_holds_store():
        time.sleep(2 * ANSWERING)


def _within(seconds: float, function: Callable[[], T]) -> T | None:
    """Return the result of a function; None if it fails or takes longer than some seconds.

    A store whose process is stopped answers neither with a result nor with an error.
    """
    found: list[T] = []

    def call() -> None:
        with suppress(Exception):  # of the many kinds that stores raise
            found.append(function())

    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


@contextmanager
def answering(ranks: Ranks) -> Iterator[None]:
    """Let this rank answer that it is alive, also while it waits for a rank that is not.

    A thread looks into the store, reads errors of other ranks, and answers once one has reported a
    failure. If the block raises an error, it is reported to the other ranks.
    """
    over = Event()

    def answer() -> None:
        with suppress(Exception):  # of a store that has ended
            while not over.wait(ANSWERING):
                if not ranks.error and ranks.store.check(["error"]):
                    ranks.error = ranks.store.get("error").decode()
                if ranks.store.check(["reports"]):
                    ranks.store.set(f"alive/{ranks.rank}", "1")
                    ranks.failure_known.set()
                    return

    thread = Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        if not isinstance(error, RankError):
            what = " ".join(str(error).split())[:300]
            text = f"rank {ranks.rank} stopped: {type(error).__name__}: {what}"
            _within(REPORTING, lambda: ranks.store.set("error", text))
            _let_others_read(ranks)
        raise
    finally:
        over.set()
        # Python ends the process by std::terminate if it exits while a thread returns from a store
        thread.join(REPORTING)
