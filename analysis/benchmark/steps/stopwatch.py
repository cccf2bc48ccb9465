"""Timing function calls: once on a device, or several functions in turns."""

import time
from collections.abc import Callable, Mapping, Sequence

import torch


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call, including the work that it queued on the device."""
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(
    functions: Mapping[str, Callable[[], Sequence[float]]], repeats: int
) -> dict[str, list[float]]:
    """Call each function once per turn, in alternating order, and return all of its times."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats):
        for name in reversed(found) if turn % 2 else found:
            found[name] += functions[name]()
    return found
