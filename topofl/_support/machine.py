"""Descriptions of this machine and its software, which are stored with results."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import topofl

__all__ = [
    "available_cores",
    "describe_software",
    "emulates_bf16",
    "has_fast_bf16",
    "machine",
    "processor",
    "total_memory",
    "versions",
]

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
    threads = torch.get_num_threads()
    plural = "" if threads == 1 else "s"
    return (
        f"{threads} thread{plural}, torch {torch.__version__}, Python {platform.python_version()}"
    )


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the results of a run.

    Examples
    --------
    >>> list(versions())
    ['topofl', 'python', 'torch', 'numpy']
    """
    return {
        "topofl": topofl.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


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
    """Return the total memory of a device in bytes, or 0 if the system does not report it.

    Examples
    --------
    >>> f"{total_memory() / 2**30:.1f} GiB"  # doctest: +ELLIPSIS
    '... GiB'
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return 0


def _flags() -> set[str]:
    """Return the processor's instruction sets as named by Linux; empty on other systems."""
    return set(" ".join([*_cpuinfo("flags"), *_cpuinfo("Features")]).split())


def _cpuinfo(name: str) -> Iterator[str]:
    """Return the values of the field `name` in :data:`CPUINFO`, one per processor."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    parts = (line.partition(":") for line in lines)
    return (value.strip() for key, _, value in parts if key.strip() == name)
