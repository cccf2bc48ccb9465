"""How processes of a sweep start: from a process that has the library in memory already."""

import sys
from multiprocessing import get_context

__all__ = ["METHOD", "prepare_fork"]

METHOD = "forkserver" if sys.platform.startswith("linux") else "spawn"
"""The start method of :mod:`multiprocessing`: the first one where the system has it."""


def prepare_fork() -> None:
    """Start to import the library in the process from which others are forked.

    This module imports neither torch nor numpy, so that this process can import them meanwhile.
    """
    if METHOD == "forkserver":
        from multiprocessing import forkserver

        get_context(METHOD).set_forkserver_preload(["topofl.runs.execute"])
        forkserver.ensure_running()
