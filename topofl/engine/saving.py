"""The checkpoint schedule of a run."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from topofl._support.text import printable
from topofl.callbacks import Event
from topofl.engine.checkpoint import newest_round, rows_path
from topofl.engine.rank_failure import RankError
from topofl.engine.ranks import Ranks
from topofl.engine.store.interrupt import Interrupted, StopRequest
from topofl.engine.store.lock import Lock
from topofl.engine.store.rows import on_all_ranks, write_rows
from topofl.engine.store.writing import save

__all__ = ["CheckpointSchedule"]

WRITING_SHARE = 0.05
"""Share of run time that checkpoints may take with ``every="auto"``."""

LONGEST_PAUSE, SHORTEST_PAUSE = 600.0, 5.0
"""Longest and shortest seconds between two checkpoints with ``every="auto"``."""

ASSUMED_SPEED = 2e8
"""Assumed bytes per second of writing, until the first checkpoint is timed."""

clock = time.perf_counter


@dataclass(eq=False)
class CheckpointSchedule:
    """When a run writes checkpoints: at intervals, after the last round, and when interrupted.

    If a checkpoint cannot be written, for example because the disk is full, a warning is issued and
    the run continues; the next checkpoint is written when it is due.

    Parameters
    ----------
    folder
        The folder of checkpoints; None: no checkpoints.
    rounds, every
        Number of rounds of the run, and between checkpoints, or ``"auto"``.
    size
        Expected bytes of a checkpoint.
    state
        Returns the state to be written.
    marker
        Description of the run, written next to the state.
    emit
        Called with events.
    request
        The user's request to stop after the round.
    saved
        Round of the newest checkpoint that was written or resumed from; None if there is none.
    lock
        Lock on the folder. If the folder vanishes during the run, it is created and locked again
        when a checkpoint is due.
    final
        Whether one is written after the last round.
    ranks
        The ranks: rank 0 decides, each of several ranks writes its rows, and rank 0 writes all
        else.
    rows
        Returns the rows of this rank's nodes that several ranks write, by name.
    """

    folder: Path | None
    rounds: int
    every: int | str
    size: int
    state: Callable[[], Mapping[str, Any]]
    marker: Mapping[str, Any]
    emit: Callable[[Event], None]
    request: StopRequest
    ranks: Ranks
    saved: int | None = None
    lock: Lock | None = None
    final: bool = True
    rows: Callable[[], Mapping[str, Tensor]] = dict
    _agreed: bool = field(default=False, init=False)
    _since: float = field(init=False)
    _cost: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = clock()
        self._cost = self.size / ASSUMED_SPEED

    @contextmanager
    def after_round(self, done: int) -> Iterator[None]:
        """Write the checkpoint that is due after `done` rounds, also if the block raises an error.

        Raises
        ------
        Interrupted
            If a stop was requested.
        """
        try:
            yield
        except Exception:
            self._agree(failed=True)
            self._write_if_due(done)
            raise
        if self._agree(failed=False):
            self._write_if_due(done)
            raise RankError("a callback of rank 0 raised an error", reporter=False)
        written = self._write_if_due(done)
        if written is not None:
            self.emit(written)
        if self._stops and self.folder is not None:
            stopped = Interrupted(done, self.rounds, self.folder, self._newest_round())
            self.emit(Event("interrupt", done, {"message": str(stopped)}))
            raise stopped

    @property
    def _stops(self) -> bool:
        """Whether the run stops after this round; of several ranks, all or none.

        A signal that reaches one of several ranks after they have agreed counts in the next round.
        """
        return self.request.made if self.ranks.size == 1 else self._agreed

    def _agree(self, failed: bool) -> bool:
        """Return whether a rank failed in this round; all stop if one is requested to stop."""
        if self.folder is None:
            return False
        flags = self.ranks.numbers([float(self.request.made), float(failed)])
        self._agreed = bool(flags[:, 0].any())
        return bool(flags[:, 1].any())

    def _newest_round(self) -> int | None:
        """Return the round of the newest checkpoint, which rank 0 has written."""
        newest = newest_round(self.folder) if self.folder and self.ranks.is_first else None
        return self.ranks.of_first(newest)

    def _is_due(self, done: int) -> bool:
        if self.folder is None:
            return False
        if done == self.rounds and not (self.final or self._stops):
            return False
        if self._stops or done == self.rounds:
            return self.saved != done or newest_round(self.folder) != done
        if self.saved == done:
            return False
        if isinstance(self.every, int):
            return done > 0 and done % self.every == 0
        return done > 0 and clock() - self._since >= min(
            LONGEST_PAUSE, max(SHORTEST_PAUSE, self._cost * (1 / WRITING_SHARE - 1))
        )

    def _write_if_due(self, done: int) -> Event | None:
        if self.folder is None:
            return None
        writes = self.ranks.is_first
        due = self._is_due(done) if writes else False
        if not self.ranks.of_first(due):
            return None
        start = clock()
        try:
            rows = self._write_rows(self.folder, done)
            if not writes:
                return None
            path, size = save(self.folder, done, self.state(), self.marker, rows)
        except OSError as error:
            if not writes:
                return None
            self._since = clock()
            saved = newest_round(self.folder)
            newest = "there is none" if saved is None else f"the newest is that of round {saved}"
            text = (
                f"the checkpoint of round {done} could not be written to {self.folder}: "
                f"{error}; {newest}"
            )
            warnings.warn(printable(text), RuntimeWarning, stacklevel=2)
            return None
        self._since = clock()
        self._cost = self._since - start
        self.saved = done
        return Event("checkpoint", done, {"path": str(path), "bytes": size, "seconds": self._cost})

    def _hold_lock(self) -> None:
        if self.lock is not None:
            self.lock.hold()

    def _write_rows(self, folder: Path, done: int) -> dict[str, str] | None:
        """Lock the folder and write the rows of this rank; return the checksums of all ranks.

        There are none if a single process writes all rows.
        """
        if self.ranks.size == 1:
            self._hold_lock()
            return None
        on_all_ranks(self.ranks, self._hold_lock)
        return write_rows(rows_path(folder, done), self.rows(), self.ranks)
