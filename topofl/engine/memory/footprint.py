"""Memory that a run needs with a plan, and the check that it is free."""

import math
from collections.abc import Mapping
from dataclasses import replace

from topofl.engine.memory.facts import MemoryFacts
from topofl.engine.memory.mapped import LARGEST
from topofl.engine.train.diversity import NUMBERS
from topofl.engine.train.gradient_exchange import gradients_in_memory, nodes_per_update
from topofl.engine.train.plan import Backend, Fits, Plan, least_plans, most_nodes

__all__ = [
    "check_memory",
    "first_nodes",
    "fits_into",
    "in_gib",
    "largest_chunk",
    "memory",
    "needed",
    "peak",
    "remedy",
]


def memory(facts: MemoryFacts, plan: Plan) -> dict[str, int]:
    """Return the bytes of each part of a run's memory; :func:`peak` says which exist at once."""
    looped = plan.executor == "looped"
    together = min(plan.workers * plan.chunk, facts.n)
    model = facts.d * facts.itemsize
    step = facts.looped if looped else facts.batched
    return {
        "parameters": min(facts.n * model, LARGEST) if facts.on_disk else facts.n * model,
        "state": facts.state,
        "fine_tuning": facts.fine_tuning,
        "gradients": (together + _mixed_gradients(facts, plan) + facts.all_gradients) * model,
        "minibatches": together * facts.minibatch,
        "activations": together * max(step - model, 0),
        "statistics": plan.workers * 8 * facts.d,
        "float64": max(
            facts.distance,
            plan.workers * 8 * min(min(plan.chunk, facts.n) * facts.largest, NUMBERS),
        ),
        "phases": facts.phases,
        "mixing": plan.workers * facts.mixing,
        "evaluation": plan.workers * facts.evaluation,
        "matrices": facts.matrices,
        "data": facts.data,
        "torch": facts.torch,
    } | ({"history": facts.history} if facts.history else {})


def _mixed_gradients(facts: MemoryFacts, plan: Plan) -> int:
    """Return how many gradients exist at once to be mixed."""
    if not facts.groups:
        return 0
    n, workers, chunk = facts.n, plan.workers, min(plan.chunk, facts.n)
    kept = gradients_in_memory(facts.groups, workers, chunk, n)
    if kept == n:
        return n
    updated = nodes_per_update(n, workers, chunk, facts.d * facts.itemsize)
    return kept + workers * (updated - chunk)


def peak(parts: Mapping[str, int], returned: bool) -> int:
    """Return the peak memory of parts that do not all exist at once.

    Training and evaluation take turns, and so does their memory if it is `returned` in between;
    otherwise it adds up. Gradients stay allocated in buffers.
    """
    if not returned:
        return sum(parts.values())
    temporary = ("activations", "statistics", "float64", "phases", "mixing", "evaluation")
    permanent = sum(size for name, size in parts.items() if name not in temporary)
    # Statistics of gradients convert them to float64 after a step, when activations are freed.
    step = parts["statistics"] + max(parts["activations"], parts["float64"])
    return permanent + max(step, parts["phases"] + parts["mixing"], parts["evaluation"])


def needed(facts: MemoryFacts, plan: Plan) -> int:
    """Return the bytes that a run adds to the memory in use before it."""
    return peak(memory(facts, plan), facts.returned) - facts.held


def first_nodes(facts: MemoryFacts, k: int) -> MemoryFacts:
    """Return the facts of the same run with its first k nodes only, and without fine-tuning."""
    model = k * facts.d * facts.itemsize
    return replace(
        facts,
        n=k,
        state=facts.state * k // facts.n,
        fine_tuning=0,
        history=0,
        all_gradients=facts.all_gradients * k // facts.n,
        phases=facts.phases * k // facts.n,
        distance=min(facts.distance, 8 * k * facts.d),
        matrices=facts.matrices * k // facts.n,
        mixing=min(facts.mixing, 2 * model),
    )


def fits_into(facts: MemoryFacts, free: int | None) -> Fits:
    """Return a function that tells whether a run with a plan fits into free memory.

    If the free memory is unknown, every plan fits.
    """
    return lambda plan: free is None or needed(facts, plan) <= free


def largest_chunk(facts: MemoryFacts, size: int, workers: int = 1) -> int:
    """Return the largest chunk with which a run adds at most `size` bytes; 0 if there is none."""
    return most_nodes(facts.n, workers, fits_into(facts, size))


def check_memory(facts: MemoryFacts, compute: Backend, free: int | None) -> None:
    """Raise if a run does not fit into free memory even on one thread.

    Raises
    ------
    ValueError
        Naming the needed and the free memory, and the largest chunk or the executor that would fit;
        if none does, the largest part of memory.
    """
    if free is None:
        return
    need, plan = min((needed(facts, plan), plan) for plan in least_plans(compute, facts.n))
    if need <= free:
        return
    raise ValueError(
        f"the run must fit into memory, but needs {in_gib(need)} ({plan.executor}, "
        f"chunk={plan.chunk}) and {in_gib(free)} are free; {remedy(facts, free)}"
    )


def remedy(facts: MemoryFacts, free: int) -> str:
    """Return the settings that would fit into memory, or the largest part of memory."""
    chunk = largest_chunk(facts, free)
    if chunk:
        return f"chunk={chunk} would need {in_gib(needed(facts, Plan('batched', chunk, 1, 1)))}"
    alone = Plan("looped", 1, 1, 1)
    if needed(facts, alone) <= free:
        return f'executor="looped" would need {in_gib(needed(facts, alone))}'
    parts = memory(facts, alone)
    name = max(parts, key=lambda part: parts[part])
    return (
        f"{name} alone take {in_gib(parts[name])} with either executor: "
        f"{_ADVICE.get(name, _ADVICE['parameters'])}"
        + _DISK
        * (name == "parameters" and not facts.on_disk)
    )


_DISK = ", or keep the models on a disk by Compute(device='cpu', scratch=folder)"


_ADVICE = {
    "parameters": "use fewer nodes or a smaller model",
    "state": "use no momentum, or fewer nodes",
    "fine_tuning": "turn it off with fine_tune=False, or use fewer nodes",
    "gradients": "use an algorithm that does not mix gradients, or fewer nodes",
    "minibatches": "lower batch_size",
    "phases": "use fewer nodes or a smaller model",
    "activations": "lower batch_size",
    "data": "keep images as uint8, or use fewer examples",
    "matrices": "use a sparser topology or fewer nodes",
    "history": "run fewer rounds, evaluate less often, or use a sparser topology",
}
"""How to reduce each part of memory."""


def in_gib(size: float) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 1 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{math.ceil(size / 2**20)} MiB"
