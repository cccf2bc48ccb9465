"""The plan of a run: batched or looped, nodes per call, and threads, by rule or by timed trials."""

import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from topofl._support.threads import torch_threads
from topofl.engine.options import Compute, device_of

SHARED_WORK = 10_000_000
"""Parameters of all models times minibatch size from which a step uses several threads."""

RULE_BYTES = 4 * 2**20
"""Linear models and perceptrons: bytes of minibatches per call, in cache until gradients are done.

Measured with linear models, 100 nodes x 128 examples and 1,000 x 13: the best of 1/50 to all nodes
per call, 1.2 to 1.5 times faster than all nodes at once.
"""

SMALLEST_TRIAL = 8
"""Nodes in the smallest trial, fewer if they would take more than `TRIAL_BYTES` bytes.

Two nodes suffice if each has much work, and a trial should not set the peak memory of a run.
"""

TRIAL_BYTES = 32 * 2**20

HEAVY_SECONDS = 0.25
"""Seconds of one node's step on CPU from which batching nodes gains nothing."""

SHORT_SECONDS, MOST_REPEATS = 0.06, 10
"""Trials are repeated until they took this many seconds in total, or this many times."""


class Plan(NamedTuple):
    """How nodes are divided into calls and threads.

    Attributes
    ----------
    executor
        ``"batched"`` or ``"looped"``.
    chunk
        Nodes per call.
    workers
        Threads that process chunks in parallel; with several, torch uses one thread in each.
    threads
        Threads inside torch.
    """

    executor: str
    chunk: int
    workers: int
    threads: int


class Sizes(NamedTuple):
    """Sizes of a run that the choice of a plan depends on.

    Attributes
    ----------
    n, d
        Number of nodes, and of parameters of one model.
    batch, batch_bytes
        A node's minibatch, in examples and bytes.
    step_bytes
        Memory of its step, as one node of several.
    steps
        For each phase that trains or computes gradients, the numbers of steps per round of the
        nodes that take steps, in descending order.
    """

    n: int
    d: int
    batch: int
    batch_bytes: int
    step_bytes: int = 0
    steps: tuple[tuple[int, ...], ...] = ()

    @property
    def together(self) -> int:
        """Most nodes that take steps in one phase, as those of a sample; n if none are known."""
        return min(max(map(len, self.steps), default=0) or self.n, self.n)

    @property
    def trial_nodes(self) -> int:
        """Nodes in the smallest trial."""
        return min(self.n, max(2, min(SMALLEST_TRIAL, TRIAL_BYTES // max(1, self.step_bytes))))

    def waiting_factor(self, chunk: int) -> float:
        """Return steps computed per step taken: a chunk waits for its node with the most steps.

        As in the engine, chunks consist of nodes sorted by their numbers of steps.
        """
        chunks = [own[k : k + chunk] for own in self.steps for k in range(0, len(own), chunk)]
        taken = sum(map(sum, chunks))
        return sum(len(steps) * steps[0] for steps in chunks) / taken if taken else 1.0


TimingTrial = Callable[[str, int, int], None]
"""(executor, nodes per call, nodes) -> None: compute gradients of the first nodes."""


Fits = Callable[[Plan], bool]
"""(plan) -> whether a run with this plan fits into free memory."""


def choose_plan(
    compute: Compute, by_rule: bool, sizes: Sizes, trial: TimingTrial | None, fits: Fits
) -> Plan:
    """Return the fastest plan that fits into memory: `by_rule`, else timed.

    Larger chunks are tried as long as the time per node decreases, including the time for which
    nodes of a chunk wait for each other. `trial` raises an error if torch.func cannot batch the
    model, which is then looped; None: the first batched trial is chosen without timing. If not even
    one node per worker fits, there are fewer workers.
    """
    n, executor, chunk = sizes.n, compute.executor, compute.chunk
    together = sizes.together
    threads = torch.get_num_threads() if device_of(compute).type == "cpu" else 1
    threads = threads if n * sizes.d * sizes.batch >= SHARED_WORK else 1
    numbers = range(threads, 0, -1)
    workers = next((k for k in numbers if any(map(fits, least_plans(compute, n, k)))), 1)
    most = most_nodes(n, workers, fits)
    if executor == "auto" and most < (1 if chunk == "auto" else min(int(chunk), n)):
        executor = "looped"
    most = max(most, 1)
    share = -(-(together if chunk == "auto" else n) // workers)
    if by_rule:
        executor = "batched" if executor == "auto" else executor
        chunk = max(1, min(RULE_BYTES // sizes.batch_bytes, most)) if chunk == "auto" else chunk
    elif executor == "looped" or n == 1:
        executor = "looped"
    elif executor == "auto" or chunk == "auto":
        executor, chunk = _fastest(compute, min(share, most), trial, sizes)
    size = 1 if executor == "looped" else min(int(chunk), n)
    chunks = -(-together // size)
    workers = min(workers, chunks)
    if compute.chunk == "auto" and executor == "batched":  # workers get the same number of chunks
        size = -(-together // min(together, -(-chunks // workers) * workers))
    return Plan(executor, size, workers, threads if workers == 1 else 1)


def least_plans(compute: Compute, n: int, workers: int = 1) -> list[Plan]:
    """Return the plan with the least memory for each executor that `compute` allows."""
    chunk = 1 if compute.chunk == "auto" else min(int(compute.chunk), n)
    plans = [Plan("looped", 1, workers, 1), Plan("batched", chunk, workers, 1)]
    return [plan for plan in plans if compute.executor in ("auto", plan.executor)]


def most_nodes(n: int, workers: int, fits: Fits) -> int:
    """Return the most nodes per call that fit into memory; 0 if none do."""
    return bisect_left(range(1, n + 1), 1, key=lambda k: not fits(Plan("batched", k, workers, 1)))


@torch_threads(1)
def _fastest(
    compute: Compute, most: int, trial: TimingTrial | None, sizes: Sizes
) -> tuple[str, int]:
    """Return the faster executor and its nodes per call, at most `most`, timed on one thread."""
    few, device = sizes.trial_nodes, device_of(compute)
    size = min(few if compute.chunk == "auto" else int(compute.chunk), most)
    if trial is None:
        return "batched", size
    seconds_per_node = partial(_seconds_per_node, trial, device)
    best, best_seconds = ("looped", 1), float("inf")
    if compute.executor == "auto":
        if seconds_per_node("looped", 1, 1) > HEAVY_SECONDS and device.type == "cpu":
            return best
        best_seconds = seconds_per_node("looped", 1, few)
    while True:
        try:
            seconds = seconds_per_node("batched", size, max(size, few))
        except (RuntimeError, ValueError):  # torch cannot batch the model, or its objective
            if compute.executor == "batched":
                raise
            return best
        seconds *= sizes.waiting_factor(size)
        if seconds >= best_seconds:
            return best
        best, best_seconds = ("batched", size), seconds
        if size == most or compute.chunk != "auto":
            return best
        size = min(2 * size, most)


def _seconds_per_node(
    trial: TimingTrial, device: torch.device, executor: str, chunk: int, nodes: int
) -> float:
    """Return the shortest time of repeated trials; long ones are timed once."""

    def timed_call() -> float:
        start = time.perf_counter()
        trial(executor, chunk, nodes)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    found = [timed_call()]
    if found[0] <= SMALLEST_TRIAL * HEAVY_SECONDS:
        found = [timed_call(), timed_call()]
        while sum(found) < SHORT_SECONDS and len(found) < MOST_REPEATS:
            found.append(timed_call())
    return min(found) / nodes
