"""Seconds of rounds: exact, expected, or simulated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.spectral import NoConvergence
from topofl._support.check import check_int
from topofl.clocks import Times, drawn_factors
from topofl.metrics._rounds import ROUNDS
from topofl.metrics.seconds.hardware import Hardware
from topofl.metrics.seconds.recorded import check_synchronous, recorded_messages, recorded_steps
from topofl.metrics.seconds.stages import Stage, machine_seconds, server_stages, stages_of
from topofl.metrics.seconds.stragglers import expected_slowest, has_closed_form
from topofl.metrics.seconds.waiting import Parts, advance, cycle_time, start
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

__all__ = ["Rounds", "Timing", "timing_of"]


class Timing(NamedTuple):
    """Seconds of rounds, means of their parts, and means of messages and bytes."""

    per_round: np.ndarray
    parts: tuple[float, float, float]
    sent: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds to time.

    Parameters
    ----------
    stages
        ``stages(t)``: the stages of round t.
    steps
        ``steps(t)``: (n,) local steps of each node in round t.
    n
        Number of nodes.
    period, length
        Number of rounds after which they repeat, or that there are; None: no period, or no end.
    """

    stages: Callable[[int], list[Stage]]
    steps: Callable[[int], np.ndarray]
    n: int
    period: int | None = None
    length: int | None = None

    @classmethod
    def of_graph(
        cls,
        graph: Any,
        hardware: Hardware,
        *,
        nbytes: float,
        steps: float,
        exchanges: int,
        server: bool,
    ) -> "Rounds":
        """Return the rounds of a graph, a matrix, or a sequence of either."""
        hardware.check(graph.n)
        is_matrix = isinstance(graph, MixingMatrix)
        period = 1 if is_matrix or server else graph.period

        def stages(t: int) -> list[Stage]:
            if server:
                return server_stages(graph.n, np.arange(graph.n), hardware, nbytes, exchanges)
            return stages_of(
                _receivers(graph if is_matrix else graph.at(t)), hardware, nbytes, exchanges
            )

        one_period = cache(stages)
        length = None if is_matrix else getattr(graph, "length", None)
        per_node = np.full(graph.n, steps)
        of_round = (lambda t: one_period(t % period)) if period else stages
        return cls(of_round, lambda t: per_node, graph.n, period, length)

    @classmethod
    def of_history(cls, history: Any, hardware: Hardware) -> "Rounds":
        """Return the rounds that a History has recorded."""
        check_synchronous(history)
        n = history.node_loss.shape[1]
        hardware.check(n)
        counted = ("messages", "bytes", "busiest_messages")
        known: dict[tuple[Any, ...], list[Stage]] = {}

        def stages(t: int) -> list[Stage]:
            index = int(history.matrix_of_round[t]) if len(history.matrix_of_round) else 0
            key = (index, *(history.rounds[name][t] for name in counted))
            if key not in known:
                known.clear()  # graphs that change are not all kept
                known[key] = _recorded_stages(history, t, hardware)
            return known[key]

        return cls(stages, lambda t: recorded_steps(history, t), n, None, history.n_rounds)


def _recorded_stages(history: Any, t: int, hardware: Hardware) -> list[Stage]:
    found = recorded_messages(history, t)
    n = found.receivers.shape[0]
    if found.server:
        return server_stages(n, found.participants, hardware, found.nbytes, found.exchanges)
    return stages_of(found.receivers, hardware, found.nbytes, found.exchanges)


def _receivers(graph: Any) -> sparse.csr_array:
    """Return (n, n) whose nonzero entries (i, j) are messages from node j to node i."""
    if isinstance(graph, MixingMatrix):
        return graph.weights
    return sparse.csr_array(graph.adjacency.T)


def timing_of(
    source: Rounds, hardware: Hardware, waiting: str, rounds: int | None, seed: int | None
) -> Timing:
    """Return the seconds of rounds by the most exact way there is."""
    barrier = waiting == "all"
    if source.period and not hardware.is_random:
        _refuse_rounds(rounds, "its rounds repeat and take fixed times")
        return _periodic(source, hardware, barrier)
    if source.period and barrier and _has_expectation(hardware):
        _refuse_rounds(rounds, "the expected time has a formula")
        return _expected(source, hardware)
    rng = None
    if hardware.is_random:
        if seed is None:
            raise ValueError("`seed` must be given if times are drawn at random, got None")
        rng = np.random.default_rng(check_int("seed", seed, minimum=0))
    return _simulated(source, hardware, barrier, _count(source, rounds), rng)


def _count(source: Rounds, rounds: int | None) -> int:
    """Return the number of rounds to simulate: by default all, if there is an end."""
    if rounds is None:
        return ROUNDS if source.length is None else source.length
    return check_int("rounds", rounds, minimum=1, maximum=source.length, maximum_name="the length")


def _refuse_rounds(rounds: int | None, reason: str) -> None:
    if rounds is not None:
        raise ValueError(f"`rounds` must be left out, since {reason}, got {rounds}")


def _has_expectation(hardware: Hardware) -> bool:
    times = hardware.compute
    return hardware.placement is None and isinstance(times, Times) and has_closed_form(times)


def _means(hardware: Hardware, steps: np.ndarray) -> np.ndarray:
    """Return the mean seconds (n,) in which nodes train."""
    times = hardware.compute
    return steps * (0.0 if times is None else np.asarray(times.mean))  # pyright: ignore[reportAttributeAccessIssue]


def _compute(
    hardware: Hardware, stages: list[Stage], steps: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Return the seconds (U,) in which machines train, drawn if there is a generator."""
    nodes = _means(hardware, steps)
    if rng is not None:
        nodes = nodes * drawn_factors("compute", hardware.compute, rng, len(nodes), of_steps=True)
    machines = machine_seconds(hardware, nodes)
    server = len(stages[0].arcs.starts) - len(machines)  # a server trains for no time
    return np.pad(machines, (0, server))


def _sent(rounds: list[list[Stage]]) -> tuple[float, float, float]:
    """Return mean messages, bytes, and bytes between machines, per round."""
    totals = np.array([np.sum([stage.sent for stage in stages], axis=0) for stages in rounds])
    messages, nbytes, network = totals.mean(axis=0)
    return float(messages), float(nbytes), float(network)


def _periodic(source: Rounds, hardware: Hardware, barrier: bool) -> Timing:
    """Return exact times of one period."""
    assert source.period is not None
    rounds = [source.stages(t) for t in range(source.period)]
    compute = _compute(hardware, rounds[0], source.steps(0), None)
    if barrier:
        parts = np.array([_alone(stages, compute) for stages in rounds])
        return Timing(parts.sum(axis=1), _triple(parts.mean(axis=0)), _sent(rounds))
    try:
        found = cycle_time([stage for stages in rounds for stage in stages], compute)
    except NoConvergence as error:
        raise TopologyError(f"the cycle time was not found: {error}; use waiting='all'") from error
    parts = np.array(found) / source.period
    return Timing(np.array([parts.sum()]), _triple(parts), _sent(rounds))


def _alone(stages: list[Stage], compute: np.ndarray) -> tuple[float, float, float]:
    """Return the parts of a round that all machines begin together."""
    clocks = start(len(compute))
    for stage in stages:
        clocks = advance(clocks, stage, compute, barrier=True)
    return clocks.last


def _expected(source: Rounds, hardware: Hardware) -> Timing:
    """Return expected times of one period, in which all machines begin each round together."""
    assert source.period is not None
    assert isinstance(hardware.compute, Times)
    rounds = [source.stages(t) for t in range(source.period)]
    compute = _compute(hardware, rounds[0], source.steps(0), None)
    parts = []
    for first, *later in rounds:
        by_sender = _slowest_messages(first)
        delay = by_sender.sum(axis=0)
        slowest = expected_slowest(hardware.compute, compute, delay)
        latency, transfer = by_sender @ slowest.probabilities
        rest = _alone(later, compute) if later else (0.0, 0.0, 0.0)
        parts.append((slowest.seconds - latency - transfer, latency + rest[1], transfer + rest[2]))
    found = np.array(parts)
    return Timing(found.sum(axis=1), _triple(found.mean(axis=0)), _sent(rounds))


def _slowest_messages(stage: Stage) -> np.ndarray:
    """Return latency and transfer, (2, U), of the slowest message that each machine sends."""
    seconds = stage.latency + stage.transfer
    order = np.lexsort((seconds, stage.arcs.tails))
    tails = stage.arcs.tails[order]
    last = order[np.append(tails[1:] != tails[:-1], True)]  # every machine has an arc to itself
    return np.stack([stage.latency[last], stage.transfer[last]])


def _simulated(
    source: Rounds,
    hardware: Hardware,
    barrier: bool,
    count: int,
    rng: np.random.Generator | None,
) -> Timing:
    """Return the times of `count` simulated rounds."""
    clocks: Parts | None = None
    ends, sent = [0.0], np.zeros(3)
    for t in range(count):
        stages = source.stages(t)
        compute = _compute(hardware, stages, source.steps(t), rng)
        if clocks is None:
            clocks = start(len(compute))
        for stage in stages:
            clocks = advance(clocks, stage, compute, barrier=barrier)
        ends.append(float(clocks.seconds.max()))
        sent += _sent([stages])
    if clocks is None:
        return Timing(np.zeros(0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    parts = np.array(clocks.last) / count
    return Timing(np.diff(ends), _triple(parts), _triple(sent / count))


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    first, second, third = values.tolist()
    return first, second, third
