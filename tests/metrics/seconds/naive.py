"""The seconds of rounds by a plain loop over nodes and messages, to compare with."""

from collections import Counter
from typing import Any

import numpy as np

__all__ = ["links", "naive_seconds", "table"]


def table(value: Any, size: int, ndim: int) -> np.ndarray:
    """Return a number or table as a table; None as infinity."""
    return np.broadcast_to(np.inf if value is None else value, (size,) * ndim)


def links(matrix: Any) -> list[tuple[int, int]]:
    """Return (sender, receiver) of the off-diagonal weights of a mixing matrix."""
    return [(j, i) for i, j in zip(*matrix.weights.nonzero(), strict=True) if i != j]


def transfers(wires, hardware, machines, nbytes, server):
    """Return the seconds of the transfer along each pair of machines, given one per message."""
    bandwidth = table(hardware.bandwidth, machines, 1)
    if server:
        bandwidth = np.append(bandwidth, hardware.server_bandwidth or hardware.bandwidth or np.inf)
    each = [hardware.overhead + nbytes / b for b in bandwidth]
    found = {}
    for (u, v), count in Counter(wires).items():
        alone = nbytes / table(hardware.path_bandwidth, len(bandwidth), 2)[u, v]
        if hardware.messages == "parallel":
            found[u, v] = max(each[u], each[v], alone)
        else:
            sent, received = (sum(wire[end] == m for wire in wires) for end, m in ((0, u), (1, v)))
            found[u, v] = max(sent * each[u], received * each[v], count * alone)
    return found


def stages(messages, hardware, places, machines, server):
    """Return (sender, receiver) of the machines between which messages travel, in each stage."""
    if server:
        up = [(places[i], machines) for i in messages]
        down = [(machines, places[i]) for i in messages]
        return [up, list(set(down)) if hardware.copies == "machine" else down]
    wires = [(i, places[i], places[j]) for i, j in messages if places[i] != places[j]]
    if hardware.copies == "machine":
        wires = list(set(wires))
    return [[(u, v) for _, u, v in wires]]


def naive_seconds(rounds, seconds, hardware, *, nbytes, exchanges=1, waiting="all", server=False):
    """Return the ends of rounds, and compute, latency and transfer in all of them.

    Parameters
    ----------
    rounds
        For each round its messages (sender, receiver), or with a server the nodes that take part.
    seconds
        (R, n) seconds in which nodes train.
    """
    n = len(seconds[0])
    places = list(range(n)) if hardware.placement is None else hardware.placement.tolist()
    machines = n if hardware.placement is None else hardware.machines
    parts = [np.zeros(3)] * (machines + server)  # a machine's time is the sum of its parts
    ends = []
    for messages, training in zip(rounds, seconds, strict=True):
        for m in range(machines):
            own = [training[i] for i in range(n) if places[i] == m]
            busy = max(sum(own) / hardware.processors, *own) if own else 0.0
            parts[m] = parts[m] + np.array([busy, 0.0, 0.0])
        for wires in stages(messages, hardware, places, machines, server) * exchanges:
            before, parts = parts, list(parts)
            for (u, v), seconds_of in transfers(wires, hardware, machines, nbytes, server).items():
                latency = float(table(hardware.latency, machines + server, 2)[u, v])
                arrival = before[u] + np.array([0.0, latency, seconds_of])
                parts[v] = max(parts[v], arrival, key=sum)
            if waiting == "all":
                parts = [max(parts, key=sum)] * len(parts)
        ends.append(max(map(sum, parts)))
    return ends, max(parts, key=sum)
