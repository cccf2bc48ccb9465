"""Failures of ranks: processes that ended, or do not respond."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

__all__ = ["Link", "RankError", "failed_rank", "naming_checkpoints", "report_own_error"]

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

    Examples
    --------
    >>> RankError("rank 1 of 2 does not respond", missing=(1,)).missing
    (1,)
    """

    def __init__(self, message: str, missing: tuple[int, ...] = (), reporter: bool = True) -> None:
        super().__init__(message)
        self.missing = missing
        self.reporter = reporter


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
    """

    group: Any
    store: Any
    size: int
    timeout: float


def failed_rank(link: Link, rank: int, done: int, error: Exception) -> RankError:
    """Return the error for a failed exchange, which names the failed ranks if they are known.

    All ranks that notice the failure enter their numbers into the store; the first one waits a few
    seconds for the others, and reports those that are missing.
    """
    what = str(error).partition("\n")[0].lower()
    slow = "timed out" in what or "timeout" in what
    how = f"did not respond within {link.timeout:g} seconds" if slow else "ended"
    answers = _within(2 * REPORTING, lambda: _reported(link, rank))
    if answers is None:  # the process that holds the store has failed, and no rank is the first
        missing = (0,) if rank and link.store is not None and not _held_by_torchrun() else ()
        who = _named(missing) if missing else "another rank"
        return RankError(f"{who} of {link.size} {how} in round {done + 1}", missing)
    first, present, reason = answers
    if reason:
        return RankError(f"{reason} in round {done + 1}", reporter=False)
    missing = tuple(sorted(set(range(link.size)) - present))
    who = _named(missing) if first and missing else "another rank"
    return RankError(f"{who} of {link.size} {how} in round {done + 1}", missing, reporter=first)


def _held_by_torchrun() -> bool:
    """Whether the store is in the process of torchrun, and not in that of rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


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
        how = "give a folder for checkpoints, so that a run can be continued"
        if folder is not None:
            saved = newest(folder)
            how = (
                f"{folder} has {'no checkpoint' if saved is None else f'one of round {saved}'}, "
                f"start all ranks again with Saving({str(folder)!r}, resume=True)"
            )
        raise RankError(f"{error}; {how}", error.missing, error.reporter) from error


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _reported(link: Link, rank: int) -> tuple[bool, set[int], str]:
    """Enter a rank as alive; return whether it is the first, all known ranks, and an own error."""
    first = link.store.add("reports", 1) == 1
    link.store.set(f"alive/{rank}", "1")
    until = time.monotonic() + REPORTING
    while not link.store.check(["error"]):
        present = {k for k in range(link.size) if link.store.check([f"alive/{k}"])}
        if not first or len(present) == link.size or time.monotonic() > until:
            return first, present, ""
        time.sleep(0.05)
    return False, set(), link.store.get("error").decode()


def report_own_error(link: Link, rank: int, error: BaseException) -> None:
    """Tell the other ranks that this one stops because of an own error."""
    if isinstance(error, RankError):
        return
    what = " ".join(str(error).split())[:300]
    text = f"rank {rank} stopped: {type(error).__name__}: {what}"
    _within(REPORTING, lambda: link.store.set("error", text))
