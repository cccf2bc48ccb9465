"""A disk on which no file can grow beyond some bytes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Let writes fail beyond this many bytes of a file, with an error of the system."""
    resource = pytest.importorskip("resource", reason="only POSIX systems can limit files")
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
