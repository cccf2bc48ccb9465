"""Failures of ranks: processes that ended, or do not respond."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

from topofl._support.torchrun import torchrun_holds_store

__all__ = [
    "Link",
    "RankError",
    "answering",
    "failed_rank",
    "naming_checkpoints",
    "report_own_error",
]

ANSWERING = 0.5
"""Seconds between two looks at whether a failure is reported."""

REPORTING = 3.0
"""Seconds for which the first rank that notices a failure waits for the others to notice it."""

T = TypeVar("T")


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


@dataclass(frozen=True, eq=False)
class Link:
    """The process group of a run, and the key-value store by which failures are reported.

    Parameters
    ----------
    group
        The process group; None with one rank.
    store
        The store of the processes.
    size
        Number of ranks.
    timeout
        Seconds after which a rank that does not respond has failed.
    knows
        Set once this rank knows that another one reports a failure.
    """

    group: Any
    store: Any
    size: int
    timeout: float
    knows: Event = field(default_factory=Event)


def failed_rank(link: Link, rank: int, done: int, error: Exception) -> RankError:
    """Return the error for a failed exchange, which names the failed ranks if they are known.

    All ranks that are alive enter their numbers into the store; the first one that notices the
    failure waits a few seconds for the others, and reports those that are missing.
    """
    what = str(error).partition("\n")[0]
    slow = "timed out" in what.lower() or "timeout" in what.lower()
    how = f"did not respond within {link.timeout:g} seconds" if slow else "ended"
    how = f"of {link.size} {how} in round {done + 1}"
    reported = _within(3 * REPORTING, lambda: _report(link, rank, how))
    if reported is None:
        # the process that holds the store has failed, and ranks cannot agree on the first
        if link.knows.is_set():
            return RankError(f"another rank {how}", reporter=False)
        if rank and not torchrun_holds_store():
            return RankError(f"rank 0 {how}", (0,))
        reported = RankError(f"another rank {how}")
    if reported.reporter and not reported.missing:  # no rank is missing, or it is unknown which
        return RankError(f"{reported}: {what}")
    return reported


def _report(link: Link, rank: int, how: str) -> RankError:
    """Report which ranks failed, or return what another rank reports."""
    store = link.store
    first = store.add("reports", 1) == 1 and not store.check(["error"])
    store.set(f"alive/{rank}", "1")
    present = {rank}
    until = time.monotonic() + REPORTING * (1 if first else 2)
    while time.monotonic() < until:
        if store.check(["error"]):
            found = store.get("error").decode()
            _let_others_read(rank)
            return RankError(found, reporter=False)
        if not first and store.check(["report"]):
            missing = tuple(json.loads(store.get("report")))
            return RankError(f"{_named(missing)} {how}", missing, reporter=False)
        present = {k for k in range(link.size) if store.check([f"alive/{k}"])}
        if first and len(present) == link.size:
            break
        time.sleep(ANSWERING / 10)
    missing = tuple(sorted(set(range(link.size)) - present))
    if first:
        store.set("report", json.dumps(missing))
        _let_others_read(rank)
    return RankError(f"{_named(missing)} {how}", missing, reporter=first)


def _let_others_read(rank: int) -> None:
    """Wait until other ranks have read the store, if it ends with this process."""
    if rank == 0 and not torchrun_holds_store():
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
def answering(link: Link, rank: int) -> Iterator[None]:
    """Let this rank answer that it is alive, also while it waits for a rank that is not.

    A thread looks into the store, and answers once a rank has reported a failure.
    """
    over = Event()

    def answer() -> None:
        with suppress(Exception):  # of a store that has ended
            while not over.wait(ANSWERING):
                if link.store.check(["reports"]):
                    link.store.set(f"alive/{rank}", "1")
                    link.knows.set()
                    return

    thread = Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # Python ends the process by std::terminate if it exits while a thread returns from a store
        thread.join(REPORTING)


@contextmanager
def naming_checkpoints(folder: Path | None, newest: Callable[[Path], int | None]) -> Iterator[None]:
    """Add to the message of a ``RankError`` how the run is continued.

    Parameters
    ----------
    folder
        The folder of checkpoints; None: none.
    newest
        Folder -> round of its newest checkpoint; None if there is none.
    """
    try:
        yield
    except RankError as error:
        saved = None if folder is None else (folder, newest(folder))
        how = _how_to_continue(saved)
        continued = RankError(f"{error}; {how}", error.missing, error.reporter)
        continued.saved = saved
        raise continued from error


def _how_to_continue(saved: tuple[Path, int | None] | None) -> str:
    """Return how a run is continued from its folder of checkpoints and the round of the newest."""
    if saved is None:
        return "give a folder for checkpoints, so that a run can be continued"
    folder, done = saved
    return (
        f"{folder} has {'no checkpoint' if done is None else f'one of round {done}'}, continue on "
        f"any number of ranks with Saving({str(folder)!r}, resume=True)"
    )


def _named(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "another rank"
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def report_own_error(link: Link, rank: int, error: BaseException) -> None:
    """Tell the other ranks that this one stops because of an own error."""
    if isinstance(error, RankError):
        return
    what = " ".join(str(error).split())[:300]
    text = f"rank {rank} stopped: {type(error).__name__}: {what}"
    _within(REPORTING, lambda: link.store.set("error", text))
