"""Commands that torchrun starts in several processes: rank 0 decides, and the others follow."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from topofl import config
from topofl._support.torchrun import process_count, process_number

__all__ = ["announced", "check_alone", "on_ranks", "speaks", "started"]

PATIENCE = 0.1
"""Seconds between two looks at what rank 0 decided."""

LONGEST_WAIT = 10.0
"""Seconds that rank 0 waits for ranks to read that there is nothing to do."""


def on_ranks(experiment: config.Experiment) -> config.Experiment:
    """Return an experiment whose nodes are shared by the processes that torchrun started."""
    if process_number() is None:
        return experiment
    compute = replace(experiment.options["compute"], distributed=True)
    return replace(experiment, options=dict(experiment.options) | {"compute": compute})


def check_alone(option: str) -> None:
    """Raise ``ValueError`` if several processes were started for a command that is for one."""
    if process_count() > 1:
        raise ValueError(
            f"`{option}` must be given without torchrun, which started "
            f"{process_count()} processes; use --out, or start one process"
        )


@contextmanager
def started(load: Callable[[], config.Experiment]) -> Iterator[bool]:
    """Yield whether this process executes the command; other ranks train when rank 0 does.

    Parameters
    ----------
    load
        Returns the experiment, for the ranks that follow.
    """
    from topofl.engine.joining import joined_store

    rank = process_number()
    if rank is None:
        yield True
        return
    store = joined_store()
    if rank:
        _follow(store, load)
        yield False
        return
    try:
        yield True
    finally:
        if not store.check(["topofl/command"]):
            store.set("topofl/command", json.dumps(None))
            _wait_for_readers(store)


def announced(folder: Path, resume: bool) -> None:
    """Let the other ranks begin to train, with the folder of checkpoints."""
    from topofl.engine.joining import joined_store

    if process_number() is not None:
        decided = {"folder": str(folder.absolute()), "resume": resume}
        joined_store().set("topofl/command", json.dumps(decided))


def _follow(store: Any, load: Callable[[], config.Experiment]) -> None:
    """Train together with rank 0, if it does."""
    from topofl.engine import RankError

    try:
        while not store.check(["topofl/command"]):
            time.sleep(PATIENCE)
        decided = json.loads(store.get("topofl/command"))
        store.add("topofl/readers", 1)
    except RuntimeError as error:  # torch's errors for a store that has ended
        raise RankError("rank 0 ended", missing=(0,), reporter=False) from error
    if decided is not None:
        on_ranks(load()).run(progress=False, **decided)


def _wait_for_readers(store: Any) -> None:
    """Wait until the other ranks know the decision, since the store may end with this process."""
    others, until = process_count() - 1, time.monotonic() + LONGEST_WAIT
    while store.add("topofl/readers", 0) < others and time.monotonic() < until:
        time.sleep(PATIENCE / 10)


def speaks(error: BaseException) -> bool:
    """Return whether this process prints an error: of several ranks, the first that has one."""
    from topofl.engine import RankError
    from topofl.engine.joining import joined_store

    if isinstance(error, RankError):
        return error.reporter
    if process_number() is None:
        return True
    try:
        store = joined_store()
        store.set_timeout(timedelta(seconds=3))
        return store.add("topofl/errors", 1) == 1
    except (RuntimeError, ValueError):  # there is no store, or it has ended
        return process_number() == 0
