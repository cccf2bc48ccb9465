"""Rounds as stages, in which machines train and then send messages, with the seconds of both."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.cycle_mean import Arcs
from topofl.metrics.seconds.hardware import Hardware
from topofl.topology import TopologyError

__all__ = ["Sent", "Stage", "machine_seconds", "server_stages", "stages_of"]


class Sent(NamedTuple):
    """Messages of one exchange: between nodes, and between machines."""

    messages: int
    bytes: float
    network_bytes: float


class Stage(NamedTuple):
    """Local work of U machines, followed by messages between them.

    Attributes
    ----------
    arcs
        Which machine waits for which: each for itself and for those it receives from.
    latency, transfer
        (E,) seconds of the messages along the arcs; 0 from a machine to itself.
    trains
        Whether machines train before they send.
    sent
        Messages and bytes.
    """

    arcs: Arcs
    latency: np.ndarray
    transfer: np.ndarray
    trains: bool
    sent: Sent


def machine_seconds(hardware: Hardware, nodes: np.ndarray) -> np.ndarray:
    """Return the seconds (U,) in which machines train, from those of their nodes, (n,).

    Nodes may move between processors: the shortest preemptive schedule (McNaughton 1959).
    """
    if hardware.placement is None:
        return nodes
    total = np.zeros(hardware.machines or 1)
    longest = np.zeros_like(total)
    np.add.at(total, hardware.placement, nodes)
    np.maximum.at(longest, hardware.placement, nodes)
    return np.maximum(total / hardware.processors, longest)


def stages_of(
    receivers: sparse.csr_array, hardware: Hardware, nbytes: float, exchanges: int = 1
) -> list[Stage]:
    """Return the stages of a round with equal exchanges along a graph.

    Parameters
    ----------
    receivers
        (n, n) whose nonzero entries (i, j) are messages from node j to node i; the diagonal does
        not count.
    hardware
        Machines and links of n nodes.
    nbytes
        Bytes per message.
    exchanges
        Number of exchanges per round, one after the other; machines train before the first.
    """
    own = int((receivers.diagonal() != 0).sum())
    messages = receivers.nnz - own
    counts = _between_machines(receivers, hardware)
    sent = Sent(messages, messages * nbytes, float(counts.sum()) * nbytes)
    stage = _stage(counts, hardware, _busy(hardware, counts.shape[0], nbytes), nbytes, sent)
    return [stage._replace(trains=k == 0) for k in range(exchanges)]


def server_stages(
    n: int, participants: np.ndarray, hardware: Hardware, nbytes: float, exchanges: int = 1
) -> list[Stage]:
    """Return the stages of a round with a server, the last machine: to it, and back.

    Parameters
    ----------
    n
        Number of nodes.
    participants
        The nodes that send to the server and receive from it.
    hardware, nbytes, exchanges
        As in :func:`stages_of`.

    Raises
    ------
    TopologyError
        If `hardware` has tables of pairs of machines, in which a server has no row, or tables of
        bandwidths and no bandwidth of the server.
    """
    _check_server(hardware)
    places = np.arange(n) if hardware.placement is None else hardware.placement
    up = np.bincount(places[participants], minlength=hardware.machines or n)
    down = np.minimum(up, 1) if hardware.copies == "machine" else up
    size = len(up)
    busy = np.append(_busy(hardware, size, nbytes), hardware.overhead)
    server = hardware.server_bandwidth or hardware.bandwidth
    busy[-1] += 0.0 if server is None else nbytes / server
    machines, last = np.arange(size), np.full(size, size)
    stages = []
    for counts, row, column in ((up, last, machines), (down, machines, last)):
        used = counts > 0
        table = sparse.csr_array(
            (counts[used], (row[used], column[used])), shape=(size + 1, size + 1)
        )
        sent = Sent(len(participants), len(participants) * nbytes, float(counts.sum()) * nbytes)
        stages.append(_stage(table, hardware, busy, nbytes, sent))
    return [stage._replace(trains=k == 0) for k, stage in enumerate(stages * exchanges)]


def _check_server(hardware: Hardware) -> None:
    for name in ("latency", "path_bandwidth"):
        if np.ndim(getattr(hardware, name)):
            raise TopologyError(
                f"`{name}` must be one number with a server, which has no row, got a table; give "
                "one number, or a star graph whose center is a node"
            )
    if np.ndim(hardware.bandwidth) and hardware.server_bandwidth is None:
        raise TopologyError(
            "`server_bandwidth` must be given with a server and a table of bandwidths, got None; "
            "for example server_bandwidth=1e9"
        )


def _between_machines(receivers: sparse.csr_array, hardware: Hardware) -> sparse.csr_array:
    """Return the number of messages to each machine (rows) from each machine (columns)."""
    n = receivers.shape[0]
    rows, columns = receivers.nonzero()
    apart = rows != columns
    rows, columns = rows[apart], columns[apart]
    size = n
    if hardware.placement is not None:
        size = hardware.machines or 1
        into = hardware.placement[rows]
        if hardware.copies == "machine":
            columns, into = np.divmod(np.unique(columns.astype(np.int64) * size + into), size)
        rows, columns = into, hardware.placement[columns]
        apart = rows != columns
        rows, columns = rows[apart], columns[apart]
    counts = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)).tocsr()
    counts.sort_indices()
    return counts


def _busy(hardware: Hardware, machines: int, nbytes: float) -> np.ndarray:
    """Return the seconds (machines,) that one message occupies the link of each machine."""
    per_byte = 0.0 if hardware.bandwidth is None else 1 / np.asarray(hardware.bandwidth)
    return np.broadcast_to(hardware.overhead + nbytes * per_byte, machines).astype(np.float64)


def _stage(
    counts: sparse.csr_array, hardware: Hardware, busy: np.ndarray, nbytes: float, sent: Sent
) -> Stage:
    """Return the stage with these numbers of messages between machines."""
    size = counts.shape[0]
    waits = (counts + sparse.eye_array(size, format="csr")).tocsr()  # the diagonal is empty
    waits.sort_indices()
    arcs = Arcs(waits.indices.astype(np.int64), waits.indptr[:-1].astype(np.int64))
    tails, heads = arcs.tails, arcs.heads
    own = tails == heads
    sends = np.where(own, 0.0, waits.data)
    paths = hardware.path_bandwidth
    alone = 0.0 if paths is None else nbytes / (paths[tails, heads] if np.ndim(paths) else paths)
    if hardware.messages == "serial":
        sending = np.bincount(tails, sends, minlength=size) * busy
        receiving = np.bincount(heads, sends, minlength=size) * busy
        alone = alone * sends
    else:
        sending = receiving = busy
    transfer = np.maximum(np.maximum(sending[tails], receiving[heads]), alone)
    latency = hardware.latency
    seconds = latency[tails, heads] if np.ndim(latency) else latency
    return Stage(
        arcs, np.where(own, 0.0, seconds), np.where(own, 0.0, transfer), trains=True, sent=sent
    )
