"""Simulated clocks of machines that wait for messages, and their cycle time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topofl._linalg.cycle_mean import Arcs, heaviest, maximum_cycle_mean
from topofl.metrics.seconds.stages import Stage

__all__ = ["Parts", "advance", "cycle_time", "start"]


class Parts(NamedTuple):
    """Seconds of U machines since the start, and what they consist of along the critical path.

    Attributes
    ----------
    seconds
        (U,) time of each machine.
    latency, transfer
        (U,) its parts; the rest is computation.
    """

    seconds: np.ndarray
    latency: np.ndarray
    transfer: np.ndarray

    @property
    def last(self) -> tuple[float, float, float]:
        """Seconds of the slowest machine: computation, latency and transfer."""
        slowest = int(np.argmax(self.seconds))
        latency, transfer = float(self.latency[slowest]), float(self.transfer[slowest])
        return float(self.seconds[slowest]) - latency - transfer, latency, transfer


def start(machines: int) -> Parts:
    """Return clocks that are all at 0."""
    return Parts(np.zeros(machines), np.zeros(machines), np.zeros(machines))


def advance(clocks: Parts, stage: Stage, compute: np.ndarray, *, barrier: bool) -> Parts:
    """Return the clocks after a stage, the max-plus product with the matrix of the stage.

    ``t[v] = max over u (t[u] + compute[u] + latency[u, v] + transfer[u, v])``, with the machines u
    from which v receives, and v itself.

    Parameters
    ----------
    clocks
        The clocks before.
    stage
        The stage.
    compute
        (U,) seconds of local training, which do not count if the stage has none.
    barrier
        Whether all machines then wait for the slowest.
    """
    arcs = stage.arcs
    ready = clocks.seconds + compute if stage.trains else clocks.seconds
    arrivals = ready[arcs.tails] + (stage.latency + stage.transfer)
    chosen = heaviest(arcs, arcs.heads, arrivals)
    sender = arcs.tails[chosen]
    done = Parts(
        arrivals[chosen],
        clocks.latency[sender] + stage.latency[chosen],
        clocks.transfer[sender] + stage.transfer[chosen],
    )
    if not barrier:
        return done
    slowest = int(np.argmax(done.seconds))
    return Parts(*(np.full_like(part, part[slowest]) for part in done))


def cycle_time(stages: Sequence[Stage], compute: np.ndarray) -> tuple[float, float, float]:
    """Return the seconds per repetition of stages: computation, latency and transfer.

    In the long run the clocks of :func:`advance` without barriers grow by the maximum cycle mean of
    the graph whose nodes are the machines in each stage.
    """
    arcs, weights, latency, transfer = _unrolled(stages, compute)
    critical = maximum_cycle_mean(arcs, weights).arcs
    n = len(stages)
    total, waited, moved = (float(x[critical].mean()) * n for x in (weights, latency, transfer))
    return total - waited - moved, waited, moved


def _unrolled(
    stages: Sequence[Stage], compute: np.ndarray
) -> tuple[Arcs, np.ndarray, np.ndarray, np.ndarray]:
    """Return the graph of all stages: machine u before stage s is node ``s U + u``."""
    n, machines = len(stages), len(compute)
    order = [(s - 1) % n for s in range(n)]  # the arcs into stage s are those of the stage before
    tails = np.concatenate([stages[s].arcs.tails + s * machines for s in order])
    counts = [len(stages[s].arcs.tails) for s in order]
    shifts = np.cumsum([0, *counts[:-1]])
    starts = np.concatenate([stages[s].arcs.starts + shifts[k] for k, s in enumerate(order)])
    latency = np.concatenate([stages[s].latency for s in order])
    transfer = np.concatenate([stages[s].transfer for s in order])
    trains = np.repeat([stages[s].trains for s in order], counts)
    weights = latency + transfer + np.where(trains, compute[tails % machines], 0.0)
    return Arcs(tails, starts), weights, latency, transfer
