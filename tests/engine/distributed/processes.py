"""Ranks of distributed runs on this machine, forked from a process that has imported torch."""

import os
import signal
import sys
import time

from analysis.program import free_port
from tests.new_process import LOCAL


def forked(size, function, limit, *, output=None, without=()):
    """Return the exit codes of ranks that call ``function(rank)``; those killed have None.

    Parameters
    ----------
    size
        Number of ranks.
    function
        Returns an exit code, or None for 0, or raises ``SystemExit``.
    limit
        Seconds after which the ranks are killed.
    output
        File for what the ranks print; None: that of this process.
    without
        Ranks for which this process does not wait.
    """
    port, children = free_port(), {}
    sys.stdout.flush()
    for rank in range(size):
        child = os.fork()
        if child == 0:
            _call(function, rank, size, port, output)
        children[child] = rank
    codes, until = dict.fromkeys(range(size)), time.monotonic() + limit
    while time.monotonic() < until and any(codes[k] is None for k in {*codes} - {*without}):
        for child in [child for child, rank in children.items() if codes[rank] is None]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[children[child]] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for child, rank in children.items():
        if codes[rank] is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return list(codes.values())


def _call(function, rank, size, port, output):
    """Call a function with the variables of torchrun, and end this process."""
    code = 1
    try:
        os.environ.update(
            LOCAL, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        )  # fmt: skip
        if output is not None:
            place = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(place, 1)
            os.dup2(place, 2)
        code = function(rank) or 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
