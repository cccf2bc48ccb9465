"""Processes of a distributed run on this machine, which end with the test."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent


def environment(rank, size, port):
    """Return the variables that torchrun sets, on the loopback interface."""
    own = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": 1, "PYTHONPATH": ROOT,
    }  # fmt: skip
    return dict(os.environ) | {name: str(value) for name, value in own.items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(size, *arguments, **pipes):
    """Yield running processes of `size` ranks, and kill what is left of them at the end."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)], env=environment(rank, size, port), cwd=ROOT,
            **pipes,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(condition, seconds, what):
    """Wait until a condition holds, and fail after some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} takes longer than {seconds} seconds"
        time.sleep(0.05)
