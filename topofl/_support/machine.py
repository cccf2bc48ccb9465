"""Machine, software and memory: what results say of them, what is free, and how much grows."""

import gc
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil
import torch

from topofl._version import __version__

CPUINFO = Path("/proc/cpuinfo")
"""File in which Linux describes the processors."""

_BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # the last is what Linux calls it on 64-bit ARM


def machine() -> str:
    """Return one line about this machine: system, processor and number of CPU cores.

    Examples
    --------
    >>> machine()  # doctest: +SKIP
    'Linux x86_64, AMD EPYC, 2 CPU cores'
    """
    return f"{platform.system()} {platform.machine()}, {processor()}, {os.cpu_count()} CPU cores"


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only on Linux
        return os.cpu_count() or 1


def describe_software() -> str:
    """Return one line about the software: number of torch threads, versions of torch and Python.

    Examples
    --------
    >>> describe_software()  # doctest: +ELLIPSIS
    '... thread..., torch ..., Python 3...'
    """
    threads, python = torch.get_num_threads(), platform.python_version()
    return f"{threads} thread{'s' * (threads != 1)}, torch {torch.__version__}, Python {python}"


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the results of a run.

    Examples
    --------
    >>> list(versions())
    ['topofl', 'python', 'torch', 'numpy']
    """
    python, torch_, numpy = platform.python_version(), torch.__version__, np.__version__
    return {"topofl": __version__, "python": python, "torch": torch_, "numpy": numpy}


def processor() -> str:
    """Return the model name of the processor if Linux reports it, else its architecture."""
    return next(_cpuinfo("model name"), platform.processor())


def has_fast_bf16(device: torch.device | str = "cpu") -> bool:
    """Return whether a device has instructions for bfloat16 products.

    On CPUs these are AMX or AVX-512 BF16 (64-bit ARM: BF16), as listed by Linux; False on other
    systems.

    Examples
    --------
    >>> has_fast_bf16("meta")  # neither a CPU nor a GPU
    False
    >>> precision = "bf16" if has_fast_bf16() else "float32"
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(_flags() & _BF16_FLAGS)


def emulates_bf16(device: torch.device | str = "cpu") -> bool:
    """Return whether a device is known to lack instructions for bfloat16 products."""
    device = torch.device(device)
    is_known = device.type == "cuda" or (device.type == "cpu" and bool(_flags()))
    return is_known and not has_fast_bf16(device)


def total_memory(device: torch.device | str = "cpu") -> int:
    """Return the total memory of a device in bytes.

    Examples
    --------
    >>> f"{total_memory() / 2**30:.1f} GiB"  # doctest: +ELLIPSIS
    '... GiB'
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total


def _flags() -> set[str]:
    """Return the processor's instruction sets as named by Linux; empty on other systems."""
    return set(" ".join([*_cpuinfo("flags"), *_cpuinfo("Features")]).split())


def _cpuinfo(name: str) -> Iterator[str]:
    """Return the values of the field `name` in :data:`CPUINFO`, one per processor."""
    parts = (line.partition(":") for line in _lines(CPUINFO))
    return (value.strip() for key, _, value in parts if key.strip() == name)


def free_memory(device: torch.device | str, root: Path = Path("/")) -> int | None:
    """Return the bytes that are free on a device; None if unknown.

    On CPU, this is the system's available memory, or less if a control group limits this process;
    `root` is the folder that contains ``proc`` and ``sys``.

    Examples
    --------
    >>> free_memory("cpu")  # doctest: +SKIP
    8213913600
    """
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    return min([psutil.virtual_memory().available, *_cgroup_room(root)])


def _cgroup_room(root: Path) -> Iterator[int]:
    """Yield limit minus usage of the process's control groups and their ancestors.

    psutil reports the memory of the machine, whatever the limits of a container. The file cache of
    a group is not counted, since the system frees it when needed.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        if controllers:  # of version 1
            base, names = base / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        path = base / group.strip("/")
        for folder in (path, *path.parents):
            most, used = (_lines(folder / name) for name in names)
            if most and used and most[0].isdigit():  # "max": no limit
                found = _lines(folder / "memory.stat")
                cached = (x.split()[1] for x in found if x.startswith("inactive_file "))
                yield max(int(most[0]) - int(used[0]) + sum(map(int, cached)), 0)
            if folder == base:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


@contextmanager
def returning_freed_memory(wanted: bool) -> Iterator[None]:
    """Return freed memory from glibc to the system before and after the block, if `wanted`.

    glibc retains up to 64 MiB of freed memory per thread, in pieces that rarely fit new tensors:
    the memory of training and evaluation would add up although they take turns. Returning 100 MiB
    takes some milliseconds. For threads other than the first, glibc returns memory between pieces
    in use, but not after the last of them.
    """
    try:
        if wanted:
            return_freed_memory()
        yield
    finally:
        if wanted:
            return_freed_memory()


def return_freed_memory() -> None:
    """Return freed memory from the C library to the system, if it is one that can.

    Examples
    --------
    >>> return_freed_memory()
    """
    getattr(psutil, "heap_trim", lambda: None)()


@contextmanager
def watched_growth(wanted: bool, interval: float = 0.005) -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the largest growth of this process's memory so far, in bytes.

    Memory is measured every `interval` seconds. Garbage is collected and freed memory returned to
    the system beforehand, so that neither hides growth. The function returns None if growth is not
    `wanted`.
    """
    if not wanted:
        yield lambda: None
        return
    gc.collect()
    return_freed_memory()
    before = largest = resident()

    def measure() -> None:
        nonlocal largest
        largest = max(largest, resident())

    def growth() -> int:
        measure()
        return largest - before

    with called_repeatedly(measure, interval, "topofl-memory"):
        yield growth


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return psutil.Process().memory_info().rss


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


def resident_of_files() -> int:
    """Return the resident memory of this process that files back; 0 where it is unknown."""
    return getattr(psutil.Process().memory_info(), "shared", 0)


def is_in_memory(folder: Path) -> bool:
    """Return whether the files of a folder are in memory, as in file systems of type tmpfs."""
    kinds = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    place = folder.resolve()
    nearest = next((kinds[one] for one in (place, *place.parents) if one in kinds), "")
    return nearest in ("tmpfs", "ramfs")
