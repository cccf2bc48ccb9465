"""Probes: train some nodes for a few rounds to predict the run time."""

import time
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from topofl.callbacks import Event
from topofl.data import Partition
from topofl.engine.mixing import mixer
from topofl.engine.options import Evaluation
from topofl.engine.plan import SHARED_WORK, Plan, Sizes
from topofl.engine.ranks import one_process
from topofl.engine.requests import Setup, Trace
from topofl.engine.round import Round
from topofl.engine.run import run
from topofl.topology import Topology

__all__ = ["Probe", "fewest_nodes", "probe_run"]

PROBE_SECONDS = 0.1
"""A probe trains more nodes until a round takes this long, so that fixed costs are negligible."""


class Probe(NamedTuple):
    """Result of a probe: its number of nodes, their plan, and predicted seconds for all nodes."""

    nodes: int
    plan: Plan
    seconds: dict[str, float]


def fewest_nodes(plan: Plan, sizes: Sizes) -> int:
    """Return the fewest nodes of a probe: those that a plan trains at once, on all its threads."""
    spread = -(-SHARED_WORK // (sizes.d * sizes.batch)) if plan.workers > 1 else 1
    return max(4, plan.workers * plan.chunk, spread)


def probe_run(setup: Setup, rounds: Sequence[Round], least: int) -> Probe:
    """Return the result of a probe of `least` nodes, or more if a round is too short to time.

    `rounds` are a dry run of the first rounds.
    """
    n = setup.clients.n
    graph = setup.graphs.at(0)
    k = min(least, n) if _is_proportional(setup.trace, setup.sizes) else n
    while True:
        clients = _first_clients(setup.clients, k)
        plan, step, evaluation = _trial(setup, clients, _first_nodes(graph, k))
        if k == n or step >= PROBE_SECONDS:
            break
        k = min(4 * k, n)
    mixing = _seconds_of_mixing(rounds[0], k, setup.device, setup.compute.dtype)
    evaluated = max(map(len, setup.sets.values()), default=n)
    seconds = {
        "seconds_per_round": step * n / k + mixing,
        "seconds_per_evaluation": evaluation * (evaluated / k),
    }
    return Probe(k, plan, seconds)


def _is_proportional(trace: Trace, sizes: np.ndarray) -> bool:
    """Return whether time is proportional to nodes: all train, with the same number of steps."""
    for training, counts in chain.from_iterable(trace.steps.values()):
        amounts = (training.batch_size, training.steps, training.epochs)
        if any(isinstance(amount, tuple) for amount in amounts):
            return False
        if not (counts == training.counts(sizes)).all():
            return False
    return True


def _trial(setup: Setup, clients: Partition, graph: Topology) -> tuple[Plan, float, float]:
    """Train for 4 rounds; return the plan, and the seconds of a round and of an evaluation."""
    seconds: dict[str, list[float]] = {"round": [], "evaluation": []}

    def record(event: Event) -> None:
        if event.kind in seconds:
            seconds[event.kind].append(event.values["seconds"])

    history = run(
        setup.algorithm,
        model=setup.model,
        task=setup.task,
        clients=clients,
        topology=graph,
        rounds=4,
        seed=0,
        # identical models would be evaluated once for all nodes
        init="common" if setup.trace.common_start else "independent",
        evaluation=Evaluation(
            every=4, on=setup.evaluation.on, examples=setup.evaluation.examples, fine_tune=False
        ),
        compute=setup.compute,
        callbacks=[record],
        progress=False,
    )
    plan = Plan(*(history.meta[name] for name in Plan._fields))
    step = min(seconds["round"][1:3])  # round 0 warms up, the last one has statistics of gradients
    return plan, step, seconds["evaluation"][-1]


def _first_clients(clients: Partition, k: int) -> Partition:
    """Return the data of the first k nodes."""
    return Partition(
        clients.dataset,
        clients.train[:k],
        clients.val[:k],
        clients.test[:k],
        name=f"{k} of {clients.name}",
        overlapping=clients.overlapping,
        augment=clients.augment,
    )


def _first_nodes(graph: Topology, k: int) -> Topology:
    """Return the unweighted graph among the first k nodes, with their groups."""
    groups = (tuple(i for i in group if i < k) for group in graph.groups)
    edges = graph.adjacency[:k, :k] != 0
    return Topology(edges, name=graph.name, groups=tuple(group for group in groups if group))


def _seconds_of_mixing(played: Round, k: int, device: torch.device, dtype: torch.dtype) -> float:
    """Return the seconds of a round's exchanges among all nodes, timed on some columns.

    Exchanges among k nodes are not counted, since the probe includes them.
    """
    total = 0.0
    for weights, columns in played.mixed.items():
        if k == weights.n:
            continue
        values = torch.zeros(weights.n, min(columns, 4096), dtype=dtype, device=device)
        mix = mixer(weights, one_process(weights.n, device), dtype)
        mix(values)
        start = time.perf_counter()
        mix(values)
        total += (time.perf_counter() - start) * columns / values.shape[1]
    return total
