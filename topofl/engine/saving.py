"""When a run saves checkpoints, and how it is stopped."""

import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from topofl._support.locks import Lock, locked
from topofl._support.text import printable
from topofl.callbacks import Event
from topofl.engine.checkpoint import newest_round, on_all_ranks, write_checkpoint
from topofl.engine.options import Saving
from topofl.engine.ranks import RankError, Ranks
from topofl.engine.state import Run

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTE = b"\ntopofl: stopping after this round, which is saved; press Ctrl-C again to stop at once\n"


class Interrupted(KeyboardInterrupt):
    """A run was stopped between two rounds by Ctrl-C or SIGTERM.

    Parameters
    ----------
    done, rounds
        Number of completed rounds, and of all rounds.
    folder
        Folder of the checkpoints.
    saved
        The round of the newest checkpoint there: `done`, unless it could not be written; None if
        there is none.

    Examples
    --------
    >>> try:
    ...     raise Interrupted(30, 100, Path("runs", "ring"), saved=30)  # as topofl.run does
    ... except Interrupted as stop:
    ...     print(f"{stop.done} of {stop.rounds} rounds are in {stop.folder.name}")
    30 of 100 rounds are in ring
    """

    def __init__(self, done: int, rounds: int, folder: Path, saved: int | None) -> None:
        text = f"interrupted after round {done} of {rounds}"
        if saved != done:
            newest = "there is none" if saved is None else f"the newest is of round {saved}"
            text += f", whose checkpoint could not be written to {folder} ({newest})"
        text += f"; continue with run(..., saving=Saving({str(folder)!r}, resume=True))"
        super().__init__(text)
        self.done, self.rounds, self.folder, self.saved = done, rounds, folder, saved

    def __reduce__(self) -> tuple[Any, ...]:  # to pickle it between processes
        return Interrupted, (self.done, self.rounds, self.folder, self.saved)


@contextmanager
def naming_checkpoints(folder: Path | None) -> Iterator[None]:
    """Add to the message of a ``RankError`` how the run is continued from a folder, if any."""
    try:
        yield
    except RankError as error:
        saved = None if folder is None else (folder, newest_round(folder))
        how = "give a folder for checkpoints, so that a run can be continued"
        if saved is not None:
            found = "no checkpoint" if saved[1] is None else f"one of round {saved[1]}"
            how = f"continue on any number of ranks with Saving({str(folder)!r}, resume=True)"
            how = f"{folder} has {found}, {how}"
        continued = RankError(f"{error}; {how}", error.missing, error.reporter)
        continued.saved = saved
        raise continued from error


@contextmanager
def stop_between_rounds(enabled: bool, patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Yield whether SIGINT or SIGTERM requested a stop; the second signal interrupts at once.

    With `patient`, further ones are ignored, since torchrun sends several for one Ctrl-C.

    This works only in the main thread, as Python requires, and leaves ignored signals alone (as
    under ``nohup``).
    """
    requests = list[int]()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if requests and not patient:
            raise KeyboardInterrupt
        requests.append(number)
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(2, _NOTE)  # print is not reentrant

    able = enabled and threading.current_thread() is threading.main_thread()
    found = {number: signal.getsignal(number) for number in _SIGNALS} if able else {}
    replaced = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in replaced:
            signal.signal(number, handle)
        yield lambda: bool(requests)
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
    if requests:  # after the last round's check
        raise KeyboardInterrupt


@contextmanager
def reserved_folder(folder: Path | None, ranks: Ranks) -> Iterator[Lock | None]:
    """Create a folder for checkpoints, and let rank 0 lock it; None: do nothing.

    Raises
    ------
    OSError
        If it is not writable, or not the same folder for all ranks; BlockingIOError if another
        process uses it.
    """
    if folder is None:
        yield None
        return
    if ranks.is_first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, prefix=".topofl-") as probe:
                probe.write(b"x")
        except OSError as error:
            why = error.strerror or error
            named = type(error)(f"`saving` must be a writable folder, {folder} is not: {why}")
            named.errno = error.errno  # sweeps stop at a full disk
            raise named from error
    with locked(folder) if ranks.is_first else nullcontext() as lock:
        if ranks.size > 1:
            _check_shared(folder, ranks)
        yield lock


def _check_shared(folder: Path, ranks: Ranks) -> None:
    """Raise ``OSError`` on all ranks unless all can write to a folder and see files of rank 0."""
    mark = folder / ranks.of_first(f".topofl-{os.urandom(8).hex()}")

    def look() -> None:
        if not mark.is_file():
            raise FileNotFoundError(f"the files of rank 0 are not in its {folder}")
        own = mark.with_name(f"{mark.name}-{ranks.rank}")
        own.touch()
        own.unlink()

    try:
        on_all_ranks(ranks, lambda: mark.touch() if ranks.is_first else None)
        on_all_ranks(ranks, look)
    except OSError as error:
        raise OSError(
            "`saving` must be one folder that all processes can write to, which fails on "
            f"{error}; use a folder of a shared file system"
        ) from error
    finally:
        if ranks.is_first:
            mark.unlink(missing_ok=True)


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

    Rank 0 decides and writes what is not divided; each rank writes its rows. If a checkpoint cannot
    be written, for example because the disk is full, a warning is issued and the run continues; the
    next checkpoint is written when it is due.

    Parameters
    ----------
    run
        The run.
    saving
        Number of rounds between checkpoints, and whether one is written after the last round.
    folder
        The folder of checkpoints; None: no checkpoints.
    marker
        Description of the run, written next to the state.
    request
        Whether the user requests a stop after the round.
    saved
        Round of the newest checkpoint that was written or resumed from; None if there is none.
    lock
        Lock on the folder. If the folder vanishes during the run, it is created and locked again
        when a checkpoint is due. None on ranks other than the first.
    """

    run: Run
    saving: Saving
    folder: Path | None
    marker: Mapping[str, Any]
    request: Callable[[], bool]
    saved: int | None
    lock: Lock | None
    _agreed: bool = field(default=False, init=False)
    _since: float = field(init=False)
    _cost: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = clock()
        self._cost = self.run.size / ASSUMED_SPEED

    @contextmanager
    def after_round(self, done: int) -> Iterator[None]:
        """Write the checkpoint that is due after `done` rounds, also if the block raises an error.

        Raises
        ------
        Interrupted
            If a stop was requested.
        """
        folder, ranks = self.folder, self.run.ranks
        if folder is None:
            yield
            return
        try:
            yield
        except Exception:
            self._agree(failed=True)
            self._write_if_due(folder, done)
            raise
        failed = self._agree(failed=False)
        written = self._write_if_due(folder, done)
        if failed:
            raise RankError("a callback of rank 0 raised an error", reporter=False)
        if written is not None:
            self.run.emit(written)
        if self._stops:
            saved = ranks.of_first(newest_round(folder) if ranks.is_first else None)
            stopped = Interrupted(done, self.run.rounds, folder, saved)
            self.run.emit(Event("interrupt", done, {"message": str(stopped)}))
            raise stopped

    @property
    def _stops(self) -> bool:
        """Whether the run stops after this round; of several ranks, all or none.

        A signal that reaches one of several ranks after they have agreed counts in the next round.
        """
        return self.request() if self.run.ranks.size == 1 else self._agreed

    def _agree(self, failed: bool) -> bool:
        """Return whether a rank failed in this round; all stop if one is requested to stop."""
        flags = self.run.ranks.numbers([float(self.request()), float(failed)])
        self._agreed = bool(flags[:, 0].any())
        return bool(flags[:, 1].any())

    def _is_due(self, folder: Path, done: int) -> bool:
        if self._stops or done == self.run.rounds:
            wanted = self._stops or self.saving.final
            return wanted and (self.saved != done or newest_round(folder) != done)
        if done in (0, self.saved):
            return False
        if isinstance(self.saving.every, int):
            return done % self.saving.every == 0
        pause = max(SHORTEST_PAUSE, self._cost * (1 / WRITING_SHARE - 1))
        return clock() - self._since >= min(LONGEST_PAUSE, pause)

    def _write_if_due(self, folder: Path, done: int) -> Event | None:
        run, ranks = self.run, self.run.ranks
        if not ranks.of_first(ranks.is_first and self._is_due(folder, done)):
            return None
        start = clock()
        try:
            on_all_ranks(ranks, lambda: self.lock.hold() if self.lock else None)
            path, size = write_checkpoint(folder, done, run.state, run.own_rows, self.marker, ranks)
        except OSError as error:
            self._since = clock()
            if ranks.is_first:
                saved = newest_round(folder)
                newest = (
                    "there is none" if saved is None else f"the newest is that of round {saved}"
                )
                text = f"the checkpoint of round {done} could not be written to {folder}"
                text = f"{text}: {error}; {newest}"
                warnings.warn(printable(text), RuntimeWarning, stacklevel=2)
            return None
        self._since = clock()
        self._cost = self._since - start
        self.saved = done
        return Event("checkpoint", done, {"path": str(path), "bytes": size, "seconds": self._cost})
