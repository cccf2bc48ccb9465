"""Timing a case: the engine and its floors in turns, the naive loop, and reasons for omissions."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from topofl import NotApplicable, data
from topofl.toolkit import has_fast_bf16

from .cases import Case, clients_of, on_few_nodes
from .report.measured import NOT_REQUESTED, Measured
from .steps.engine import engine_steps
from .steps.floor import fastest, floors, steps_of
from .steps.floor_state import Floor
from .steps.memory import free_memory, lower_bound, peak_bytes
from .steps.naive_loop import NAIVE_NODES, naive_step
from .steps.simulator import simulator_steps
from .steps.stopwatch import in_turns

EXECUTORS = ("batched", "looped", "auto")

SIMULATOR = "simulator"
"""Name of the training steps of the D-Cliques authors' simulator."""


@dataclass(frozen=True)
class Plan:
    """What to measure, on which device, and for how long.

    Parameters
    ----------
    device
        Device of the engine and of the floors.
    rounds, repeats
        Steps per turn, and turns, of each method; fewer if these would take longer than `budget`.
    budget
        Seconds that the steps of one method may take per case. A method is omitted if three steps
        take longer.
    executors
        Executors of the engine to time.
    naive_nodes
        Nodes of the naive loop; 0: omit it, None: all.
    memory
        Whether to measure peak memory, in a separate process for each executor.
    force_bf16
        Time bfloat16 even if the processor has no instructions for it.
    simulator
        Folder with the sources of the D-Cliques authors' simulator, whose training steps are timed
        in turns with the engine's in the cases that it supports; None: omit it.
    """

    device: torch.device
    rounds: int = 12
    repeats: int = 5
    budget: float = 120.0
    executors: Sequence[str] = EXECUTORS
    naive_nodes: int | None = NAIVE_NODES
    memory: bool = True
    force_bf16: bool = False
    simulator: Path | None = None


def measure(case: Case, plan: Plan) -> Measured:
    """Return step times and memory of a case for every method that fits into time and memory."""
    ways = _methods(plan)
    if reason := refusal(case, plan):
        return Measured(case, {}, dict.fromkeys(ways, reason), NotApplicable(reason))
    node = {
        executor: _node_seconds(case, executor, plan.device) for executor in ("batched", "looped")
    }
    predicted = {
        way: case.n * node.get(way.removeprefix("floor "), min(node.values())) for way in ways
    }
    skipped = {way: _too_slow(s, plan) for way, s in predicted.items() if 3 * s > plan.budget}
    kept = [way for way in ways if way not in skipped]
    clients, chosen = clients_of(case), {}
    timers = {
        way: partial(_timer, case, clients, plan, way, predicted[way], chosen) for way in kept
    }
    affordable = max([predicted[way] for way in kept], default=0.0) * (plan.rounds + 2)
    repeats = max(1, min(plan.repeats, int(plan.budget / max(affordable, 1e-9))))
    if plan.simulator is not None and case.simulator is not None:
        brief = plan.budget / repeats
        timers[SIMULATOR] = partial(
            simulator_steps, plan.simulator, case, rounds=plan.rounds, budget=brief
        )
    seconds = in_turns(
        {way: _unless_too_large(timer, way, skipped) for way, timer in timers.items()}, repeats
    )
    seconds = {way: found for way, found in seconds.items() if way not in skipped}
    slow, nodes = _naive_of(case, clients, plan)
    memory = {
        way: _memory_of(case, way, plan, chosen)
        for way in seconds
        if plan.memory and way in EXECUTORS
    }
    if SIMULATOR in seconds:
        case = replace(case, simulator=statistics.median(seconds[SIMULATOR]))
    return Measured(case, seconds, skipped, slow, nodes, chosen, memory)


def _methods(plan: Plan) -> list[str]:
    timed = [
        executor
        for executor in ("batched", "looped")
        if executor in plan.executors or "auto" in plan.executors
    ]
    return [*plan.executors, *(f"floor {executor}" for executor in timed)]


def refusal(case: Case, plan: Plan) -> str:
    """Return the reason why a case cannot be timed on this machine, or an empty string."""
    if case.precision == "bf16" and not plan.force_bf16 and not has_fast_bf16(plan.device):
        return (
            "bf16 on a processor without AMX or AVX-512 BF16 is emulated; --force-bf16 times it "
            "all the same"
        )
    needed, free = lower_bound(case, nodes=1), free_memory(plan.device)
    if needed > 0.7 * free:
        return (
            f"needs at least {needed / 2**30:.1f} GiB, and 0.7 of the {free / 2**30:.1f} GiB that "
            "are free are less"
        )
    return ""


def _node_seconds(case: Case, executor: str, device: torch.device) -> float:
    """Return the estimated seconds per node and step, from a floor step of two nodes."""
    sample = on_few_nodes(case, 2)
    clients = clients_of(sample)
    # the first is a loop on one Python thread, or all nodes in one call
    first = next(iter(floors(sample, executor, device).values()))
    return min(steps_of(first, Floor.build(sample, clients, device), 2)) / 2


def _too_slow(predicted: float, plan: Plan) -> str:
    return (
        f"a step takes about {_rounded(predicted)} s, 3 of them more than the {plan.budget:g} s of "
        "--budget"
    )


def _rounded(seconds: float) -> str:
    """Return seconds with one significant digit, so that equal reasons share one footnote."""
    return f"{float(f'{seconds:.0e}'):g}"


def _timer(
    case: Case,
    clients: data.Partition,
    plan: Plan,
    way: str,
    predicted: float,
    chosen: dict[str, str],
) -> list[float]:
    """Return the seconds of one turn of a method, and record in `chosen` what ran."""
    rounds = max(1, min(plan.rounds, math.ceil(plan.budget / predicted) - 2))
    if not way.startswith("floor "):
        seconds, history = engine_steps(case, clients, rounds, plan.device, way)
        ran = _described(history.meta)
        known = chosen[way].split(" or ") if way in chosen else []
        chosen[way] = " or ".join(
            dict.fromkeys([*known, ran])
        )  # the choice may be another in the next turn
        return seconds
    executor = way.removeprefix("floor ")
    if way not in chosen:
        chosen[way] = fastest(case, executor, clients, plan.device)
    return steps_of(
        floors(case, executor, plan.device)[chosen[way]],
        Floor.build(case, clients, plan.device),
        rounds,
    )


def _described(meta: Mapping[str, Any]) -> str:
    """Return the executor, the number of workers and the chunk size that the engine chose."""
    workers = f", {meta['workers']} workers" if meta["workers"] > 1 else ""
    return f"{meta['executor']}{workers}, chunk {meta['chunk']}"


def _unless_too_large(
    timer: Callable[[], list[float]], way: str, skipped: dict[str, str]
) -> Callable[[], Sequence[float]]:
    """Return a timer that records the reason and returns no times after it ran out of memory."""

    def attempt() -> Sequence[float]:
        if way in skipped:
            return []
        try:
            return timer()
        except (MemoryError, torch.OutOfMemoryError) as error:
            skipped[way] = (
                "out of memory: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
            return []

    return attempt


def _naive_of(case: Case, clients: data.Partition, plan: Plan) -> tuple[float | NotApplicable, int]:
    nodes = case.n if plan.naive_nodes is None else min(case.n, plan.naive_nodes)
    if not nodes:
        return NOT_REQUESTED, 0
    if case.precision != "fp32":
        return NotApplicable("the naive loop has no bf16"), 0
    try:
        return naive_step(case, clients, nodes), nodes
    except ImportError:
        return NotApplicable("tests/naive.py is in the source tree only"), 0


def _memory_of(
    case: Case, executor: str, plan: Plan, chosen: Mapping[str, str]
) -> dict[str, Any] | NotApplicable:
    """Return peak memory and its lower bound, in bytes, of an executor's run."""
    nodes = int(chosen[executor].rsplit(" ", 1)[1])
    try:
        return {"peak": peak_bytes(case, executor, plan.device), "bound": lower_bound(case, nodes)}
    except OSError as error:
        return NotApplicable(f"peak memory is not available here: {error}")
