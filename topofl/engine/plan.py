"""How a run computes: precision, executor, nodes a call, threads."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

__all__ = ["Compute", "Plan", "choose_plan"]

SHARED_WORK = 10_000_000
"""Parameters of all models times minibatch size from which a step is spread over threads: less is done sooner alone."""

LINEAR_BYTES = 4 * 2**20
"""Linear models: bytes of minibatches a call, so that they stay in cache from gathering to the gradient (measured: at
100 nodes x 128 and 1,000 x 13 the best of 1/50 to all nodes, 1.2 to 1.5 times faster than all at once)."""

FEW = 8
"""Nodes in the smallest batched trial."""

HEAVY = 0.25
"""Seconds of one node's step on a CPU from which nothing is gained by taking several nodes at once."""


@dataclass(frozen=True)
class Compute:
    """Arguments of :func:`topofl.run` that decide how, but up to rounding not what, is computed.

    `plan` is the one that a resumed run had; None: it is chosen.
    """

    executor: str
    chunk: int | str
    precision: str
    channels_last: bool | str
    compile: bool
    device: torch.device
    dtype: torch.dtype
    plan: "Plan | None" = None

    @property
    def low(self) -> torch.dtype | None:
        """The lower precision of products, if any."""
        return torch.bfloat16 if self.precision == "bf16" else None


class Plan(NamedTuple):
    """What was chosen.

    Attributes
    ----------
    executor
        ``"batched"`` or ``"looped"``.
    chunk
        Nodes per call.
    workers
        Threads that take chunks side by side; with several, torch uses one thread within each.
    threads
        Threads within torch.
    """

    executor: str
    chunk: int
    workers: int
    threads: int


class Sizes(NamedTuple):
    """What the choice depends on: nodes, parameters of a model, examples and bytes of a node's minibatch."""

    n: int
    d: int
    batch: int
    batch_bytes: int


Trial = Callable[[str, int, int], None]
"""(executor, nodes per call, nodes): computes gradients of some nodes on their first minibatches."""


def choose_plan(compute: Compute, linear: bool, sizes: Sizes, trial: Trial) -> Plan:
    """Return the fastest plan, by rule for linear models, else timed on a few nodes.

    Chunks are tried from few to more nodes while they gain; `trial` raises RuntimeError where torch.func cannot batch a
    model, which is then looped.
    """
    if compute.plan is not None:
        return compute.plan
    threads = torch.get_num_threads() if compute.device.type == "cpu" else 1
    threads = threads if sizes.n * sizes.d * sizes.batch >= SHARED_WORK else 1
    executor, chunk = compute.executor, compute.chunk
    if linear:
        executor = "batched" if executor == "auto" else executor
        chunk = max(1, LINEAR_BYTES // sizes.batch_bytes) if chunk == "auto" else chunk
    elif executor == "looped" or sizes.n == 1:
        executor = "looped"
    elif executor == "auto" or chunk == "auto":
        executor, chunk = _timed(compute, -(-sizes.n // threads), trial)
    size = 1 if executor == "looped" else min(int(chunk), sizes.n)
    return _spread(executor, size, sizes.n, threads, even=compute.chunk == "auto")


def _spread(executor: str, chunk: int, n: int, threads: int, even: bool) -> Plan:
    """Return the plan that gives each worker as many chunks, of nearly one size where the size is ours to choose."""
    chunks = -(-n // chunk)
    workers = min(threads, chunks)
    if even and executor == "batched":
        chunks = min(n, -(-chunks // workers) * workers)
        chunk = -(-n // chunks)
    return Plan(executor, chunk, workers, threads if workers == 1 else 1)


def _timed(compute: Compute, most: int, trial: Trial) -> tuple[str, int]:
    """Return the faster executor and its nodes per call, `most` at the most, timed with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _climb(compute, most, trial)
    finally:
        torch.set_num_threads(before)


def _climb(compute: Compute, most: int, trial: Trial) -> tuple[str, int]:
    best, best_seconds = ("looped", 1), float("inf")
    if compute.executor == "auto":
        best_seconds = _seconds(lambda: trial("looped", 1, 1), compute.device)
        if best_seconds > HEAVY and compute.device.type == "cpu":
            return best
    size = min(FEW if compute.chunk == "auto" else int(compute.chunk), most)
    while True:
        seconds = _batched_seconds(compute, size, trial, must=compute.executor == "batched")
        if seconds >= best_seconds:
            return best
        best, best_seconds = ("batched", size), seconds
        if size == most or compute.chunk != "auto":
            return best
        size = min(2 * size, most)


def _batched_seconds(compute: Compute, size: int, trial: Trial, must: bool) -> float:
    """Return seconds a node, infinite if torch cannot batch the model."""
    try:
        return _seconds(lambda: trial("batched", size, size), compute.device) / size
    except RuntimeError:
        if must:
            raise
        return float("inf")


def _seconds(function: Callable[[], None], device: torch.device) -> float:
    """Return the shorter of two times, after a first call; heavy ones are called once only."""

    def once() -> float:
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    first = once()
    return first if first > FEW * HEAVY else min(once(), once())
