"""Cost and environment of a run: peak memory, versions, machine."""

import contextlib
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import topofl
from topofl._support.machine import machine
from topofl.history import History

__all__ = ["environment", "peak_memory_megabytes", "reset_peak_memory", "versions"]


def environment(history: History) -> dict[str, Any]:
    """Return the environment of a run: versions, device, executor, machine, threads and time."""
    return {
        "versions": versions(),
        "device": history.meta["device"],
        "executor": history.meta["executor"],
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def versions() -> dict[str, str]:
    """Return the versions of topofl, torch, numpy and Python."""
    python = platform.python_version()
    return {
        "topofl": topofl.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": python,
    }


def reset_peak_memory() -> None:
    """Reset the peak memory of this process where the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_megabytes() -> float:
    """Return the peak memory in MiB since :func:`reset_peak_memory` or the process's start."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
