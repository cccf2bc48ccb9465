"""Failures of ranks: processes that ended, or do not respond."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

__all__ = ["Link", "RankError", "failed_rank", "naming_checkpoints", "report_own_error"]

REPORTING = 3.0
"""Seconds for which the first rank that notices a failure waits for the others to notice it."""


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
        The store of the processes; None if the process group was initialized by the user.
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
    first, present, reason = _reported(link, rank)
    missing = tuple(sorted(set(range(link.size)) - present)) if present else ()
    who = _named(missing) if first and missing else "another rank"
    what = (error.args and str(error.args[0]) or "").partition("\n")[0][:200]
    if reason:
        text = f"{reason} (the others of {link.size} ranks stop)"
    else:
        slow = "timed out" in what.lower() or "timeout" in what.lower()
        how = f"did not respond within {link.timeout:g} seconds" if slow else "ended or closed"
        text = f"{who} of {link.size} {how} in round {done + 1}"
    return RankError(text, missing, reporter=first and not reason)


@contextmanager
def naming_checkpoints(folder: Path | None) -> Iterator[None]:
    """Add to the message of a ``RankError`` how the run is continued."""
    try:
        yield
    except RankError as error:
        how = "give a folder for checkpoints, so that a run can be continued"
        if folder is not None:
            how = f"start all ranks again with Saving({str(folder)!r}, resume=True)"
        raise RankError(f"{error}; {how}", error.missing, error.reporter) from error


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _reported(link: Link, rank: int) -> tuple[bool, set[int], str]:
    """Enter a rank as alive; return whether it is the first, all known ranks, and an own error."""
    if link.store is None:
        return True, set(), ""
    try:
        link.store.set_timeout(timedelta(seconds=REPORTING))
        first = link.store.add("reports", 1) == 1
        link.store.set(f"alive/{rank}", "1")
        if link.store.check(["error"]):
            return False, set(), link.store.get("error").decode()
        until = time.monotonic() + REPORTING
        others = [k for k in range(link.size) if k != rank]
        while first and time.monotonic() < until:
            if all(link.store.check([f"alive/{k}"]) for k in others):
                break
            time.sleep(0.05)
        if link.store.check(["error"]):
            return False, set(), link.store.get("error").decode()
        return first, {k for k in range(link.size) if link.store.check([f"alive/{k}"])}, ""
    except Exception:  # the process that holds the store has failed, too
        return True, set(), ""


def report_own_error(link: Link, rank: int, error: BaseException) -> None:
    """Tell the other ranks that this one stops because of an own error."""
    if link.store is None or isinstance(error, RankError):
        return
    try:
        link.store.set_timeout(timedelta(seconds=REPORTING))
        what = " ".join(str(error).split())[:300]
        link.store.set("error", f"rank {rank} stopped: {type(error).__name__}: {what}")
    except Exception:  # there is no store any more; the other ranks see that this one ended
        return
