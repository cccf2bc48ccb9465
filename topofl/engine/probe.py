"""Probes: some rounds of a run, timed to predict the others."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch

from topofl.callbacks import Callback, Event
from topofl.data import Partition
from topofl.engine.mixing import mixer
from topofl.engine.options import OPTIONAL_COLUMNS, Evaluation
from topofl.engine.plan import SHARED_WORK, Plan, Sizes
from topofl.engine.population import Population
from topofl.engine.ranks import one_process
from topofl.engine.requests import Setup
from topofl.engine.round import Round
from topofl.engine.run import run
from topofl.metrics import consensus_distance
from topofl.topology import Topology

PROBED_SECONDS = 0.5
"""A probe goes on until its rounds took this long, so that fluctuations average out."""

PROBED_ROUNDS = 20
"""Largest number of rounds that a probe times."""

EVERY = 3
"""Rounds between evaluations of a probe; rounds without one are timed."""

_ROUND_SECONDS = 0.1
"""A probe trains more nodes until a round takes this long, so that fixed costs are negligible."""


class _Enough(Exception):
    """Ends the rounds of a probe, which is no error."""


class Timing(NamedTuple):
    """The plan of a probe, and its seconds.

    Attributes
    ----------
    plan
        The plan.
    once, round, evaluation
        Seconds of what happens once, of a round, and of an evaluation.
    columns
        Seconds of each of the optional columns at an evaluation, by name.
    """

    plan: Plan
    once: float
    round: float
    evaluation: float
    columns: Mapping[str, float] = MappingProxyType({})


def timed(train: Callable[[int, Callback], object], rounds: int | None) -> Timing:
    """Return the seconds of a run, from some of its rounds.

    The first round warms up and counts once. The others are timed apart from evaluations, and
    their median counts.

    Parameters
    ----------
    train
        Trains for a number of rounds, with an evaluation every :data:`EVERY` of them, and with a
        callback, whose exceptions it raises.
    rounds
        The rounds of the run, of which at least two evaluations are probed; None: unknown.
    """
    began = time.perf_counter()
    started: list[tuple[float, Plan]] = []
    plain: list[float] = []
    evaluations: list[float] = []
    measured: list[float] = []  # rounds that measure gradients, without their evaluation
    distances: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "start":
            plan = Plan(*(event.values[name] for name in Plan._fields))
            started.append((time.perf_counter() - began, plan))
        elif event.kind == "evaluation" and event.round > 0:  # equal models are evaluated once
            evaluations.append(event.values["seconds"])
            measured[-1] -= evaluations[-1]
            distances.append(_seconds_of_distance(cast(Population, event.models)))
        elif event.kind == "round":  # evaluated rounds measure gradients
            (plain if event.round % EVERY else measured).append(event.values["seconds"])
        enough = sum(plain[1:]) >= PROBED_SECONDS or len(plain) > PROBED_ROUNDS
        if enough and evaluations:
            raise _Enough

    longest = EVERY * PROBED_ROUNDS
    length = max(2 * EVERY, longest if rounds is None else min(rounds, longest))
    with suppress(_Enough):
        train(length - length % EVERY, note)  # others would evaluate after a plain round
    per_round, ((prepared, plan),) = median(plain[1:]), started
    once = prepared + max(plain[0] - per_round, 0.0)
    found = median(distances), max(median(measured) - per_round, 0.0)
    columns: dict[str, float] = dict(zip(OPTIONAL_COLUMNS, found, strict=True))
    return Timing(plan, once, per_round, median(evaluations), columns)


def _seconds_of_distance(models: Population) -> float:
    """Return the seconds of a consensus distance; equal models that are stored once need none."""
    start = time.perf_counter()
    if models.distinct > 1:
        consensus_distance(models.rows(slice(None)))
    return time.perf_counter() - start


def fewest_nodes(plan: Plan, sizes: Sizes) -> int:
    """Return the fewest nodes of a probe: those that a plan trains at once, on all its threads."""
    spread = -(-SHARED_WORK // (sizes.d * sizes.batch)) if plan.workers > 1 else 1
    return max(4, plan.workers * plan.chunk, spread)


def probe_setup(setup: Setup, first: Round, least: int) -> tuple[int, Plan, dict[str, Any]]:
    """Train `least` nodes, or more if a round is too short to time.

    Return the number of nodes, their plan, and the seconds that are predicted for all nodes, given
    the first round of a dry run.
    """
    n = setup.clients.n
    k = min(least, n) if _is_proportional(setup) else n
    while True:
        found = _trial(setup, k)
        if k == n or found.round >= _ROUND_SECONDS:
            break
        k = min(4 * k, n)
    # the probe includes exchanges among all nodes
    mixing = 0.0 if k == n else _seconds_of_mixing(first, setup)
    evaluated = max(map(len, setup.sets.values()), default=n)
    seconds = {
        "seconds_per_round": found.round * n / k + mixing,
        "seconds_per_evaluation": found.evaluation * (evaluated / k),
        "seconds_of_columns": {
            name: own * n / k
            for name, own in found.columns.items()
            if name not in setup.evaluation.without
        },
    }
    return k, found.plan, seconds


def _is_proportional(setup: Setup) -> bool:
    """Return whether time is proportional to nodes: all train, with the same number of steps."""
    for training, counts in chain.from_iterable(setup.trace.steps.values()):
        amounts = (training.batch_size, training.steps, training.epochs)
        if any(isinstance(amount, tuple) for amount in amounts):
            return False
        if not (counts == training.counts(setup.sizes)).all():
            return False
    return True


def _trial(setup: Setup, k: int) -> Timing:
    """Train the first k nodes, as a graph without weights, with their own groups and data."""
    graph, every = setup.graphs.at(0), setup.clients
    groups = (tuple(i for i in group if i < k) for group in graph.groups)
    edges = graph.adjacency[:k, :k] != 0
    clients = Partition(
        every.dataset,
        every.train[:k],
        every.val[:k],
        every.test[:k],
        name=f"{k} of {every.name}",
        overlapping=every.overlapping,
        augment=every.augment,
    )

    def train(rounds: int, note: Callback) -> None:
        run(
            setup.algorithm,
            model=setup.model,
            task=setup.task,
            clients=clients,
            topology=Topology(edges, name=graph.name, groups=tuple(filter(None, groups))),
            rounds=rounds,
            seed=0,
            # identical models would be evaluated once for all nodes
            init="common" if setup.trace.common_start else "independent",
            evaluation=Evaluation(
                every=EVERY,
                on=setup.evaluation.on,
                examples=setup.evaluation.examples,
                fine_tune=False,
                without=setup.evaluation.without,
            ),
            compute=setup.compute,
            callbacks=[note],
            progress=False,
        )

    return timed(train, setup.rounds)


def _seconds_of_mixing(played: Round, setup: Setup) -> float:
    """Return the seconds of a round's exchanges among all nodes, timed on some columns."""
    total = 0.0
    for weights, columns in played.mixed.items():
        values = torch.zeros(
            weights.n, min(columns, 4096), dtype=setup.compute.dtype, device=setup.device
        )
        mix = mixer(weights, one_process(weights.n, setup.device), setup.compute.dtype)
        mix(values)
        start = time.perf_counter()
        mix(values)
        total += (time.perf_counter() - start) * columns / values.shape[1]
    return total
