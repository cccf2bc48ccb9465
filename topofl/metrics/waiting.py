"""Clocks of machines that train, send and wait for messages, and their cycle time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from topofl._linalg.spectral import NoConvergence
from topofl.clocks import Times
from topofl.metrics.hardware import Hardware
from topofl.topology import TopologyError

MOST_ITERATIONS = 1000
"""Policy iterations before giving up; a few dozen suffice in practice."""


def heaviest(heads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the position of the heaviest arc into each node, the first one of equals.

    Arcs are sorted by their heads, and at least one leads to each node.
    """
    best = np.maximum.reduceat(weights, np.flatnonzero(np.diff(heads, prepend=-1)))
    hits = np.flatnonzero(weights == best[heads])
    return hits[np.diff(heads[hits], prepend=-1) > 0]


def maximum_cycle_mean(
    tails: np.ndarray, heads: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the maximum mean weight over the cycles of a graph, by Howard's policy iteration.

    Parameters
    ----------
    tails, heads
        (E,) the nodes that each arc comes from and leads to, sorted by heads, with at least one arc
        into each node; there need not be a path between any two nodes.
    weights
        (E,) weights.

    Returns
    -------
    tuple
        The maximum mean weight, and the positions of the arcs of such a cycle.

    Raises
    ------
    NoConvergence
        If the policy still changes after 1,000 iterations.

    References
    ----------
    Cochet-Terrasson, Cohen, Gaubert, McGettrick and Quadrat, "Numerical computation of spectral
    elements in max-plus algebra" (1998).

    Examples
    --------
    >>> tails, heads = np.array([[0, 1, 0], [0, 0, 1]])
    >>> maximum_cycle_mean(tails, heads, np.array([1.0, 3.0, 2.0]))
    (2.5, array([1, 2]))
    """
    inside, tails, heads, component = _within_components(tails, heads)
    weights = weights[inside]
    eps = float(np.abs(weights).max()) * max(1e-12, 1e-15 * len(component))
    policy = heaviest(heads, weights)
    for _ in range(MOST_ITERATIONS):
        rate, value, cycle = _evaluated(tails[policy], weights[policy])
        best = np.lexsort((-rate, component))
        best = best[np.diff(component[best], prepend=-1) > 0]  # the first node of each component
        slower = rate < rate[best][component] - eps
        if slower.any():
            found = _trees(tails, heads, best, slower)
            policy[heads[found]] = found
            continue
        gains = weights - rate[heads] + value[tails]
        improved = heaviest(heads, gains)
        better = gains[improved] > gains[policy] + eps
        if not better.any():
            top = int(np.argmax(np.where(cycle >= 0, rate, -np.inf)))
            critical = cycle == cycle[top]
            return float(rate[top]), inside[policy[critical]]
        policy = np.where(better, improved, policy)
    raise NoConvergence(f"the policy still changes after {MOST_ITERATIONS:,} iterations")


def _within_components(
    tails: np.ndarray, heads: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the arcs within strongly connected components, which all cycles consist of.

    Values of nodes with different rates cannot be compared. Within a strongly connected component
    all nodes can have the same rate.

    Returns
    -------
    tuple
        Positions of these arcs; their tails and heads, numbered anew; and the component of each
        node on a cycle.
    """
    n = int(heads[-1]) + 1
    graph = sparse.csr_array((np.ones(len(heads), np.int8), (tails, heads)), shape=(n, n))
    labels = connected_components(graph, directed=True, connection="strong")[1]
    inside = np.flatnonzero(labels[tails] == labels[heads])
    nodes, heads = np.unique(heads[inside], return_inverse=True)
    component = np.unique(labels[nodes], return_inverse=True)[1]
    return inside, np.searchsorted(nodes, tails[inside]), heads, component


def _trees(
    tails: np.ndarray, heads: np.ndarray, roots: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Return the arcs of breadth-first trees from `roots` into the `wanted` nodes."""
    n = len(wanted)
    sources = np.concatenate([tails, np.full(len(roots), n)])  # node n comes before all roots
    to = np.concatenate([heads, roots])
    graph = sparse.csr_array((np.ones(len(to), np.int8), (sources, to)), shape=(n + 1, n + 1))
    before = breadth_first_order(graph, n, directed=True, return_predecessors=True)[1]
    hits = np.flatnonzero(wanted[heads] & (tails == before[heads]))
    return hits[np.diff(heads[hits], prepend=-1) > 0]  # parallel arcs count once


def _evaluated(
    before: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rates and values of a policy, and the cycle of each node, -1 for nodes on none.

    Parameters
    ----------
    before
        (n,) the node before each node.
    weights
        (n,) weight of the arc between them.
    """
    n = len(before)
    links = sparse.csr_array((np.ones(n), before, np.arange(n + 1)), shape=(n, n))
    parts, labels = connected_components(links, directed=True, connection="strong")
    on_cycle = (np.bincount(labels, minlength=parts)[labels] > 1) | (before == np.arange(n))
    sizes = np.bincount(labels[on_cycle], minlength=parts)
    sums = np.bincount(labels[on_cycle], weights[on_cycle], minlength=parts)
    means = np.divide(sums, sizes, out=np.zeros(parts), where=sizes > 0)
    roots = np.full(parts, -1)
    members = np.flatnonzero(on_cycle)[::-1]
    roots[labels[members]] = members  # the first node of each cycle
    root = on_cycle & (roots[labels] == np.arange(n))
    jump = np.where(root, np.arange(n), before)
    for _ in range(max(1, n.bit_length())):
        jump = jump[jump]
    rate = means[labels[jump]]
    value = np.where(root, 0.0, weights - rate)
    jump = np.where(root, np.arange(n), before)
    for _ in range(max(1, n.bit_length())):
        value = value + value[jump]
        jump = jump[jump]
    return rate, value, np.where(on_cycle, labels, -1)


class Stage(NamedTuple):
    """Local work of U machines, followed by messages between them.

    Attributes
    ----------
    tails, heads
        (E,) arcs from machines to those that wait for them, sorted by heads: each waits for itself
        and for those it receives from.
    latency, transfer
        (E,) seconds of the messages along the arcs; 0 from a machine to itself.
    trains
        Whether machines train before they send.
    sent
        Messages and bytes between nodes, bytes between machines, and bytes of all-reduces.
    """

    tails: np.ndarray
    heads: np.ndarray
    latency: np.ndarray
    transfer: np.ndarray
    trains: bool
    sent: tuple[int, float, float, float]


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
    sent = (messages, messages * nbytes, float(counts.sum()) * nbytes, 0.0)
    per_byte = _per_byte(hardware, counts.shape[0])
    stage = _stage(counts, _bytes_of(counts, hardware, nbytes), hardware, per_byte, sent)
    return [stage._replace(trains=k == 0) for k in range(exchanges)]


def grouped_stages(
    labels: np.ndarray | None,
    receivers: sparse.csr_array,
    hardware: Hardware,
    nbytes: float,
    exchanges: int = 1,
) -> list[Stage]:
    """Return the stages of a round, in which groups may average by all-reduce.

    Parameters
    ----------
    labels
        (n,) group of each node if every node averages over its whole group; None: messages are
        sent.
    receivers, hardware, nbytes, exchanges
        As in :func:`stages_of`.
    """
    sending = stages_of(receivers, hardware, nbytes, exchanges)
    if labels is None or hardware.groups == "messages":
        return sending
    reducing = _reducing_stages(labels, hardware, nbytes, exchanges)
    if hardware.groups == "all-reduce":
        return reducing
    return min(sending, reducing, key=lambda all_: sum(_longest(stage) for stage in all_))


def _longest(stage: Stage) -> float:
    return float((stage.latency + stage.transfer).max())


def _reducing_stages(
    labels: np.ndarray, hardware: Hardware, nbytes: float, exchanges: int
) -> list[Stage]:
    """Return the stages of all-reduces in groups: parts are sent to who adds them up, and back.

    Of a group on r machines, each reduces one part of r, and exchanges parts with the r - 1 others.
    """
    places = np.arange(len(labels)) if hardware.placement is None else hardware.placement
    size = (hardware.machines or 1) if hardware.placement is not None else len(labels)
    group, machine = np.unique(np.stack([labels, places]), axis=1)
    held = np.bincount(group)
    first = np.repeat(np.cumsum(held) - held, held)  # of each holder's group
    heads = np.repeat(np.arange(len(group)), held[group])
    tails = np.arange(len(heads)) - np.repeat(np.cumsum(held[group]) - held[group], held[group])
    tails = tails + first[heads]
    apart = heads != tails
    part = nbytes / held[group[heads[apart]]]
    arcs = machine[heads[apart]] * size + machine[tails[apart]]
    arcs, at, counts = np.unique(arcs, return_inverse=True, return_counts=True)
    moved = np.zeros(len(arcs))
    (np.add if hardware.messages == "serial" else np.maximum).at(moved, at, part)
    table = sparse.csr_array((counts.astype(float), np.divmod(arcs, size)), shape=(size, size))
    members = np.bincount(labels)
    everything = float((members - 1).sum()) * nbytes
    sent = (int((members * (members - 1)).sum()), everything, float(part.sum()), everything)
    stage = _stage(table, moved, hardware, _per_byte(hardware, size), sent)
    return [stage._replace(trains=k == 0) for k in range(2 * exchanges)]


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
    server = hardware.server_bandwidth or hardware.bandwidth
    per_byte = np.append(_per_byte(hardware, size), 0.0 if server is None else 1 / server)
    machines, last = np.arange(size), np.full(size, size)
    stages = []
    for counts, row, column in ((up, last, machines), (down, machines, last)):
        used = counts > 0
        table = sparse.csr_array(
            (counts[used], (row[used], column[used])), shape=(size + 1, size + 1)
        )
        sent = (len(participants), len(participants) * nbytes, float(counts.sum()) * nbytes, 0.0)
        moved = _bytes_of(table, hardware, nbytes)
        stages.append(_stage(table, moved, hardware, per_byte, sent))
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


def _per_byte(hardware: Hardware, machines: int) -> np.ndarray:
    """Return the seconds (machines,) that a byte occupies the link of each machine."""
    per_byte = 0.0 if hardware.bandwidth is None else 1 / np.asarray(hardware.bandwidth)
    return np.broadcast_to(per_byte, machines).astype(np.float64)


def _bytes_of(counts: sparse.csr_array, hardware: Hardware, nbytes: float) -> np.ndarray:
    """Return the bytes of the messages of each arc, or of one if they do not share links."""
    return nbytes * (counts.data if hardware.messages == "serial" else np.ones(counts.nnz))


def _stage(
    counts: sparse.csr_array,
    moved: np.ndarray,
    hardware: Hardware,
    per_byte: np.ndarray,
    sent: tuple[int, float, float, float],
) -> Stage:
    """Return the stage with these numbers of messages between machines.

    Parameters
    ----------
    counts
        (U, U) messages to each machine (rows) from each machine (columns), with sorted indices.
    moved
        Bytes of each entry of `counts`: of all its messages, or of the longest one if messages do
        not share links.
    hardware
        Machines and links.
    per_byte
        (U,) seconds that a byte occupies the link of each machine.
    sent
        As in :class:`Stage`.
    """
    size = counts.shape[0]
    waits = (counts + sparse.eye_array(size, format="csr")).tocsr()  # the diagonal is empty
    waits.sort_indices()
    tails = waits.indices.astype(np.int64)
    heads = np.repeat(np.arange(size), np.diff(waits.indptr))
    own = tails == heads
    sends, nbytes = np.where(own, 0.0, waits.data), np.zeros(len(own))
    nbytes[~own] = moved
    paths = hardware.path_bandwidth
    alone = 0.0 if paths is None else nbytes / (paths[tails, heads] if np.ndim(paths) else paths)
    serial = hardware.messages == "serial"
    overhead = hardware.overhead * (sends if serial else 1.0)
    sending, receiving = (overhead + nbytes * per_byte[ends] for ends in (tails, heads))
    if serial:
        sending = np.bincount(tails, sending, minlength=size)[tails]
        receiving = np.bincount(heads, receiving, minlength=size)[heads]
    transfer = np.maximum(np.maximum(sending, receiving), alone)
    latency = hardware.latency
    seconds = latency[tails, heads] if np.ndim(latency) else latency
    seconds, transfer = np.where(own, 0.0, [np.broadcast_to(seconds, own.shape), transfer])
    return Stage(tails, heads, seconds, transfer, trains=True, sent=sent)


def advance(clocks: np.ndarray, stage: Stage, compute: np.ndarray, *, barrier: bool) -> np.ndarray:
    """Return the clocks after a stage, the max-plus product with the matrix of the stage.

    ``t[v] = max over u (t[u] + compute[u] + latency[u, v] + transfer[u, v])``, with the machines u
    from which v receives, and v itself.

    Parameters
    ----------
    clocks
        (3, U) seconds of each machine since the start, and latency and transfer in them, along the
        critical path; the rest is computation.
    stage
        The stage.
    compute
        (U,) seconds of local training, which do not count if the stage has none.
    barrier
        Whether all machines then wait for the slowest.
    """
    ready = clocks[0] + compute if stage.trains else clocks[0]
    arrivals = ready[stage.tails] + (stage.latency + stage.transfer)
    chosen = heaviest(stage.heads, arrivals)
    done = clocks[:, stage.tails[chosen]]
    done[0] = arrivals[chosen]
    done[1:] += stage.latency[chosen], stage.transfer[chosen]
    return np.repeat(done[:, [done[0].argmax()]], len(compute), axis=1) if barrier else done


def parts_of(clocks: np.ndarray) -> tuple[float, float, float]:
    """Return the seconds of the slowest machine: computation, latency and transfer."""
    seconds, latency, transfer = clocks[:, clocks[0].argmax()].tolist()
    return seconds - latency - transfer, latency, transfer


def cycle_time(stages: Sequence[Stage], compute: np.ndarray) -> tuple[float, float, float]:
    """Return the seconds per repetition of stages: computation, latency and transfer.

    In the long run the clocks of :func:`advance` without barriers grow by the maximum cycle mean of
    the graph whose nodes are the machines in each stage.
    """
    # In the graph of all stages, machine u before stage s is node s U + u. Arcs into a stage are
    # those of the stage before it.
    n, machines = len(stages), len(compute)
    before = [stages[s - 1] for s in range(n)]
    tails = np.concatenate([one.tails + (s - 1) % n * machines for s, one in enumerate(before)])
    heads = np.concatenate([one.heads + s * machines for s, one in enumerate(before)])
    latency = np.concatenate([one.latency for one in before])
    transfer = np.concatenate([one.transfer for one in before])
    trains = np.concatenate([np.full(len(one.tails), one.trains) for one in before])
    weights = latency + transfer + np.where(trains, compute[tails % machines], 0.0)
    _, critical = maximum_cycle_mean(tails, heads, weights)
    total, waited, moved = (float(x[critical].mean()) * n for x in (weights, latency, transfer))
    return total - waited - moved, waited, moved


LEAST = -700.0
"""Logarithm of the smallest probability, in place of that of 0."""

POINTS = 20_000
"""Number of points at which the distribution of the maximum is evaluated."""

GROUPS = 100
"""Most groups of equal machines whose quantiles are points of evaluation."""


def has_closed_form(times: Times) -> bool:
    """Return whether the distribution function of these times is known."""
    return times.name in ("exponential", "lognormal")


def expected_slowest(
    times: Times, means: np.ndarray, delays: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the expected maximum of ``means * factor + delays`` with independent factors.

    The second result is the probability of each machine to be the slowest, (U,). The maximum is the
    integral of ``1 - prod_u P(means[u] factor + delays[u] <= x)`` over x, by the trapezoidal rule
    on quantiles of the terms.

    Parameters
    ----------
    times
        The distribution of the factors, of mean 1: exponential or lognormal.
    means, delays
        (U,) seconds, at least 0.

    Examples
    --------
    The expected maximum of two exponential times of mean 1 is 1 + 1/2:

    >>> from topofl.clocks import exponential
    >>> seconds, shares = expected_slowest(exponential(1.0), np.ones(2), np.full(2, 10.0))
    >>> round(seconds, 6), shares.tolist()
    (11.5, [0.5, 0.5])
    """
    both = np.stack([means, delays], axis=1)
    pairs, group, counts = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    mean, delay = pairs.T
    x = _points(times, mean, delay, len(means))
    log_g = np.zeros(len(x))
    for one, count in enumerate(counts):
        log_g += count * _log_cdf(times, x, mean[one], delay[one])
    g = np.exp(log_g)
    fixed = (mean == 0) & (delay == x[0])  # these are done at the first point
    shares = np.where(fixed, g[0] / max(1, counts[fixed].sum()), 0.0)
    for one in range(len(mean)):
        shares[one] += _share(_log_cdf(times, x, mean[one], delay[one]), log_g)
    return float(x[0] + np.trapezoid(1 - g, x)), shares[group.reshape(-1)]


def _share(log_f: np.ndarray, log_g: np.ndarray) -> float:
    """Return the probability that one machine is the slowest, and done after the first point.

    Between two points, ``g = prod_u F_u`` grows by ``g sum_u d log F_u``, and the term of a machine
    is the probability that it is the slowest. We divide the growth in these proportions, which
    therefore sum to 1.

    Parameters
    ----------
    log_f, log_g
        (P,) logarithms of the distribution functions of its time and of the maximum.
    """
    steps, of_all = np.diff(log_f), np.diff(log_g)
    parts = np.divide(steps, of_all, out=np.zeros_like(steps), where=of_all > 0)
    return float((np.diff(np.exp(log_g)) * parts).sum())


def _points(times: Times, mean: np.ndarray, delay: np.ndarray, n: int) -> np.ndarray:
    """Return points at which the distribution of the maximum changes, from its lower end."""
    upper = mean * _quantile(times, np.array(1e-18)) + delay
    chosen = np.argsort(upper)[::-1][:GROUPS]
    k = max(200, POINTS // len(chosen))
    tails = np.concatenate([np.geomspace(1e-18 / n, 0.5, k), 1 - np.geomspace(0.5, 1e-9, k // 4)])
    points = mean[chosen, None] * _quantile(times, tails) + delay[chosen, None]
    least = max(float(delay.max()), 0.0)  # the maximum is never less
    return np.unique(np.concatenate([[least], points[points > least]]))


def _quantile(times: Times, tail: np.ndarray) -> np.ndarray:
    """Return what a factor exceeds with probability `tail`."""
    if times.name == "exponential":
        return -np.log(tail)
    from scipy.special import ndtri  # takes long to import

    sigma = float(times.settings["sigma"])
    return np.exp(-sigma * ndtri(tail) - sigma**2 / 2)


def _log_cdf(times: Times, x: np.ndarray, mean: float, delay: float) -> np.ndarray:
    """Return the logarithm of the probability that ``mean * factor + delay`` is at most x."""
    if mean == 0:
        return np.where(x >= delay, 0.0, LEAST)
    factor = (x - delay) / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        if times.name == "exponential":
            logs = np.log(-np.expm1(-np.maximum(factor, 0)))
        else:
            from scipy.special import log_ndtr

            sigma = float(times.settings["sigma"])
            logs = log_ndtr((np.log(np.maximum(factor, 0)) + sigma**2 / 2) / sigma)
    return np.maximum(logs, LEAST)
