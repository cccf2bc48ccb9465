"""How processes of a sweep start: from a process that has the library in memory already."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

__all__ = ["METHOD", "prepare_fork"]

METHOD = "forkserver" if sys.platform.startswith("linux") else "spawn"
"""The start method of :mod:`multiprocessing`: the first one where the system has it."""


def prepare_fork() -> None:
    """Start to import the library in the process from which others are forked.

    This module imports neither torch nor numpy, so that this process can import them meanwhile.
    """
    if METHOD == "forkserver":
        from multiprocessing import forkserver, resource_tracker

        get_context(METHOD).set_forkserver_preload(["topofl.runs.execute"])
        resource_tracker.ensure_running()  # otherwise the next line starts it, and lifts the block
        with _interrupts_blocked():
            forkserver.ensure_running()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, also in processes that are started, which would end with a traceback by it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
