"""Free memory of the system, and returning unused memory of the allocator to it."""

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

__all__ = [
    "called_repeatedly",
    "free_memory",
    "give_back",
    "is_in_memory",
    "resident",
    "resident_of_files",
    "returning_freed_memory",
    "watched_growth",
]


def free_memory(device: torch.device | str, root: Path = Path("/")) -> int | None:
    """Return the bytes that are free on a device; None if unknown.

    On CPU, this is the system's available memory, or less if a control group limits this process;
    `root` is the folder that contains ``proc`` and ``sys``.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    known = [size for size in (_available(root), *_cgroup_room(root)) if size is not None]
    return min(known, default=None)


def _available(root: Path) -> int | None:
    """Return ``MemAvailable``, or the free pages on systems without /proc."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # unknown on this system
        return None


def _cgroup_room(root: Path) -> list[int]:
    """Return limit minus usage of the process's control groups and their ancestors."""
    rooms = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        limit, used = _CGROUP_V1 if controllers else _CGROUP_V2
        path = base / group.strip("/")
        for folder in (path, *path.parents):
            room = [_number(folder / name) for name in (limit, used)]
            if room[0] is not None and room[1] is not None:
                rooms.append(max(room[0] - room[1] + _reclaimable(folder), 0))
            if folder == base:
                break
    return rooms


_CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_CGROUP_V2 = ("memory.max", "memory.current")


def _reclaimable(folder: Path) -> int:
    """Return the file cache in a control group's usage, which the system frees when needed."""
    return sum(
        int(line.split()[1])
        for line in _lines(folder / "memory.stat")
        if line.startswith("inactive_file ")
    )


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max": no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


@contextmanager
def returning_freed_memory(wanted: bool) -> Iterator[None]:
    """Return freed memory from glibc to the system before and after the block, if `wanted`.

    With other C libraries nothing happens.

    glibc retains up to 64 MiB of freed memory per thread, in pieces that rarely fit new tensors:
    the memory of training and evaluation would add up although they take turns. Returning 100 MiB
    takes some milliseconds. For threads other than the first, glibc returns memory between pieces
    in use, but not after the last of them.
    """
    try:
        if wanted:
            give_back()
        yield
    finally:
        if wanted:
            give_back()


def give_back() -> None:
    """Return freed memory from glibc to the system; do nothing with other C libraries."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@contextmanager
def watched_growth(wanted: bool, interval: float = 0.005) -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the largest growth of this process's memory so far, in bytes.

    Memory is measured every `interval` seconds. Garbage is collected and freed memory returned to
    the system beforehand, so that neither hides growth. The function returns None if the system
    does not report memory, or growth is not `wanted`.
    """
    if wanted:
        gc.collect()
    with returning_freed_memory(wanted):
        before = resident() if wanted else None
    if before is None:
        yield lambda: None
        return
    largest = before

    def measure() -> None:
        nonlocal largest
        largest = max(largest, resident() or 0)

    def growth() -> int:
        measure()
        return largest - before

    with called_repeatedly(measure, interval, "topofl-memory"):
        yield growth


@contextmanager
def called_repeatedly(function: Callable[[], None], interval: float, name: str) -> Iterator[None]:
    """Call a function every `interval` seconds during the block, in a thread of some name."""
    done = Event()

    def call() -> None:
        while not done.wait(interval):
            function()

    thread = Thread(target=call, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def resident(root: Path = Path("/")) -> int | None:
    """Return the resident memory of this process in bytes; None if it is unknown."""
    return _resident(1, root)


def resident_of_files(root: Path = Path("/")) -> int | None:
    """Return the resident memory of this process that files back; None if it is unknown."""
    return _resident(2, root)


def _resident(column: int, root: Path) -> int | None:
    """Return a column of ``/proc/self/statm`` in bytes."""
    lines = _lines(root / "proc/self/statm")
    return int(lines[0].split()[column]) * os.sysconf("SC_PAGE_SIZE") if lines else None


def is_in_memory(folder: Path, root: Path = Path("/")) -> bool:
    """Return whether the files of a folder are in memory, as in file systems of type tmpfs."""
    kinds = {}
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kinds[Path(before.split()[4])] = after.split()[0]
    place = folder.resolve()
    nearest = next((kinds[one] for one in (place, *place.parents) if one in kinds), "")
    return nearest in ("tmpfs", "ramfs")


@cache
def _malloc_trim() -> Any:
    return (
        getattr(ctypes.CDLL(None), "malloc_trim", None)
        if sys.platform.startswith("linux")
        else None
    )
