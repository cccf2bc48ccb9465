"""Seconds per round of a graph, or of a run, on given hardware."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sparse

from topofl._linalg.spectral import NoConvergence
from topofl._support.check import check_choice, check_int, check_nonnegative, check_switch, shown
from topofl._support.public import public
from topofl._support.table import Table
from topofl.clocks import Times, drawn_factors
from topofl.metrics._columns import HARDWARE, Entry, MetricColumn
from topofl.metrics._rounds import ROUNDS, as_rounds, is_list_of_matrices
from topofl.metrics.cost import message_size
from topofl.metrics.hardware import AnyHardware, Hardware, as_hardware
from topofl.metrics.waiting import (
    Stage,
    advance,
    cycle_time,
    expected_slowest,
    grouped_stages,
    has_closed_form,
    machine_seconds,
    parts_of,
    server_stages,
)
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.mixing.matrix import complete_components, component_means
from topofl.topology import TopologyError, graph_of

__all__ = ["RoundTime", "round_time"]


Timing: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Seconds of rounds; means of computation, latency and transfer; of messages and bytes, (4,)."""


OfRound: TypeAlias = Callable[[int], tuple[list[Stage], np.ndarray]]
"""Function of a round that returns its stages and the local steps of each node, (n,)."""

Source: TypeAlias = tuple[OfRound, int | None, int | None]
"""Rounds, the number after which they repeat, and their number; None: no period, or no end."""


def _rounds_of_graph(
    graph: Any, hardware: Hardware, nbytes: float, steps: float, exchanges: int, server: bool
) -> Source:
    """Return the rounds of a graph, a matrix, or a sequence of either."""
    hardware.check(graph.n)
    is_matrix = isinstance(graph, MixingMatrix)
    period = 1 if is_matrix or server else graph.period
    per_node = np.full(graph.n, steps)

    def of_round(t: int) -> tuple[list[Stage], np.ndarray]:
        if server:
            nodes = np.arange(graph.n)
            return server_stages(graph.n, nodes, hardware, nbytes, exchanges), per_node
        one = graph if is_matrix else graph.at(t)
        is_weighted = isinstance(one, MixingMatrix)
        receivers = one.weights if is_weighted else sparse.csr_array(one.adjacency.T)
        if is_weighted:
            labels = component_means(one)
        else:
            labels = complete_components((receivers != 0) + sparse.eye_array(one.n, format="csr"))
        return grouped_stages(labels, receivers, hardware, nbytes, exchanges), per_node

    one_period = cache(of_round)
    length = None if is_matrix else getattr(graph, "length", None)
    return (lambda t: one_period(t % period)) if period else of_round, period, length


def _rounds_of_history(history: Any, hardware: Hardware) -> Source:
    """Return the rounds that a History has recorded."""
    _check_synchronous(history)
    n = history.node_loss.shape[1]
    hardware.check(n)
    counted = ("messages", "bytes", "busiest_messages")
    known: dict[tuple[Any, ...], list[Stage]] = {}

    def of_round(t: int) -> tuple[list[Stage], np.ndarray]:
        index = int(history.matrix_of_round[t]) if len(history.matrix_of_round) else 0
        key = (index, *(history.rounds[name][t] for name in counted))
        if key not in known:
            known.clear()  # graphs that change are not all kept
            receivers, server, exchanges, nbytes = _recorded_messages(history, t)
            if server:
                nodes = np.unique(receivers.indices)
                known[key] = server_stages(n, nodes, hardware, nbytes, exchanges)
            else:
                labels = component_means(history.mixing(t)) if receivers.nnz else None
                known[key] = grouped_stages(labels, receivers, hardware, nbytes, exchanges)
        return known[key], _recorded_steps(history, t)

    return of_round, None, history.n_rounds


def _recorded_messages(history: Any, t: int) -> tuple[sparse.csr_array, bool, int, float]:
    """Return the messages of round t of a History.

    Returns
    -------
    receivers
        (n, n) whose nonzero entries (i, j) are messages from node j to node i, in each exchange.
    server
        Whether the nodes that send do so to a server, which sends to all of these.
    exchanges
        Number of exchanges.
    nbytes
        Mean size of a message.

    Raises
    ------
    TopologyError
        If messages went along other links than those of the round's mixing matrix, which a History
        does not record.
    """
    n = history.node_loss.shape[1]
    messages, nbytes = int(history.rounds["messages"][t]), float(history.rounds["bytes"][t])
    if messages == 0:
        return sparse.csr_array((n, n)), False, 1, 0.0
    matrix: MixingMatrix = history.mixing(t)
    # Older runs have recorded a server in the name of the graph.
    server = bool(history.meta.get("server", history.meta.get("topology") == "a server"))
    if server:  # it sends and receives every message
        per_exchange = busiest = 2 * len(np.unique(matrix.weights.indices))
    else:
        per_exchange = matrix.n_messages
        busiest = int((matrix.in_messages + matrix.out_messages).max())
    exchanges = messages // max(per_exchange, 1)
    expected = (exchanges * per_exchange, exchanges * busiest)
    if expected != (messages, int(history.rounds["busiest_messages"][t])):
        raise TopologyError(
            f"`x` must have recorded the links of its messages, got {messages} messages in round "
            f"{t} over {per_exchange} links of its {'server' if server else 'mixing matrix'}, so "
            "some went along other links; run algorithms.timed(algorithm, clock) for its seconds"
        )
    return matrix.weights, server, exchanges, nbytes / messages


def _check_synchronous(history: Any) -> None:
    """Raise ``TopologyError`` if a run has a clock of its own."""
    of_this_function = "hardware" in history.meta
    of_timed = "clock" in history.meta.get("settings", {})
    if "simulated_seconds" in history.rounds and not (of_this_function or of_timed):
        raise TopologyError(
            f"`x` must be a synchronous run, got one of {history.meta.get('algorithm')}, which has "
            "simulated seconds of its own; set its `clock` instead"
        )


def _recorded_steps(history: Any, t: int) -> np.ndarray:
    """Return the steps (n,) of each node in round t, equal for all nodes that trained."""
    trained = ~np.isnan(history.node_loss[t])
    if not trained.any():
        trained[:] = True
    return trained * (float(history.rounds["steps"][t]) / trained.sum())


def _timing_of(
    source: Source, hardware: Hardware, waiting: str, rounds: int | None, seed: int | None
) -> Timing:
    """Return the seconds of rounds by the most exact way there is."""
    of_round, period, length = source
    barrier, times = waiting == "all", hardware.compute
    is_closed = hardware.placement is None and isinstance(times, Times) and has_closed_form(times)
    if period and (not hardware.is_random or (barrier and is_closed)):
        if rounds is not None:
            reason = "its rounds repeat and take fixed times"
            reason = "the expected time has a formula" if hardware.is_random else reason
            raise ValueError(f"`rounds` must be left out, since {reason}, got {rounds}")
        stages = [of_round(t)[0] for t in range(period)]
        compute = _compute(hardware, *of_round(0), None)
        if isinstance(times, Times) and hardware.is_random:
            return _expected(stages, compute, times)
        return _periodic(stages, compute, barrier)
    rng = None
    if hardware.is_random:
        if seed is None:
            raise ValueError("`seed` must be given if times are drawn at random, got None")
        rng = np.random.default_rng(check_int("seed", seed, minimum=0))
    if rounds is None:  # all, if there is an end
        rounds = ROUNDS if length is None else length
    else:
        check_int("rounds", rounds, minimum=1, maximum=length, maximum_name="the length")
    return _simulated(of_round, hardware, barrier, rounds, rng)


def _compute(
    hardware: Hardware, stages: list[Stage], steps: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Return the seconds (U,) in which machines train, drawn if there is a generator."""
    times = hardware.compute
    nodes = steps * (0.0 if times is None else np.asarray(times.mean))  # pyright: ignore[reportAttributeAccessIssue]
    if rng is not None:
        nodes = nodes * drawn_factors("compute", times, rng, len(nodes), of_steps=True)
    machines = machine_seconds(hardware, nodes)
    server = int(stages[0].heads[-1]) + 1 - len(machines)  # a server trains for no time
    return np.pad(machines, (0, server))


def _sent(rounds: list[list[Stage]]) -> np.ndarray:
    """Return mean messages, bytes, bytes between machines and bytes of all-reduces, per round."""
    totals = np.array([np.sum([stage.sent for stage in stages], axis=0) for stages in rounds])
    return totals.mean(axis=0)


def _periodic(rounds: list[list[Stage]], compute: np.ndarray, barrier: bool) -> Timing:
    """Return exact times of one period."""
    if barrier:
        parts = np.array([_alone(stages, compute) for stages in rounds])
        return parts.sum(axis=1), parts.mean(axis=0), _sent(rounds)
    try:
        found = cycle_time([stage for stages in rounds for stage in stages], compute)
    except NoConvergence as error:
        raise TopologyError(f"the cycle time was not found: {error}; use waiting='all'") from error
    parts = np.array(found) / len(rounds)
    return np.array([parts.sum()]), parts, _sent(rounds)


def _alone(stages: list[Stage], compute: np.ndarray) -> tuple[float, float, float]:
    """Return the parts of a round that all machines begin together."""
    clocks = np.zeros((3, len(compute)))
    for stage in stages:
        clocks = advance(clocks, stage, compute, barrier=True)
    return parts_of(clocks)


def _expected(rounds: list[list[Stage]], compute: np.ndarray, times: Times) -> Timing:
    """Return expected times of one period, in which all machines begin each round together."""
    parts = []
    for first, *later in rounds:
        by_sender = _slowest_messages(first)
        delay = by_sender.sum(axis=0)
        total, shares = expected_slowest(times, compute, delay)
        latency, transfer = by_sender @ shares
        rest = _alone(later, compute) if later else (0.0, 0.0, 0.0)
        parts.append((total - latency - transfer, latency + rest[1], transfer + rest[2]))
    found = np.array(parts)
    return found.sum(axis=1), found.mean(axis=0), _sent(rounds)


def _slowest_messages(stage: Stage) -> np.ndarray:
    """Return latency and transfer, (2, U), of the slowest message that each machine sends."""
    seconds = stage.latency + stage.transfer
    order = np.lexsort((seconds, stage.tails))
    last = order[np.diff(stage.tails[order], append=-1) != 0]  # every machine has an arc to itself
    return np.stack([stage.latency[last], stage.transfer[last]])


def _simulated(
    of_round: OfRound,
    hardware: Hardware,
    barrier: bool,
    count: int,
    rng: np.random.Generator | None,
) -> Timing:
    """Return the times of `count` simulated rounds."""
    clocks, ends, sent = np.zeros((3, 1)), [0.0], np.zeros(4)
    for t in range(count):
        stages, steps = of_round(t)
        compute = _compute(hardware, stages, steps, rng)
        if t == 0:
            clocks = np.zeros((3, len(compute)))
        for stage in stages:
            clocks = advance(clocks, stage, compute, barrier=barrier)
        ends.append(float(clocks[0].max()))
        sent += _sent([stages])
    each = max(1, count)
    return np.diff(ends), np.array(parts_of(clocks)) / each, sent / each


def _of_entry(entry: Entry) -> "RoundTime":
    """Return the times of a row of the table, of its run or else of its matrices."""
    if entry.history is not None:
        return round_time(entry.history, hardware=entry.hardware, seed=entry.seed)
    return round_time(
        entry.rounds,
        hardware=entry.hardware,
        n_parameters=entry.n_parameters,
        rounds=None if entry.rounds.period else entry.horizon,
        seed=entry.seed,
    )


@dataclass(frozen=True, eq=False)
class RoundTime:
    """Seconds per round on some hardware, as returned by :func:`round_time`.

    Parameters
    ----------
    name
        The graph, or algorithm and graph.
    hardware
        Machines and links.
    waiting
        ``"all"`` or ``"neighbors"``, see :func:`round_time`.
    compute, latency, transfer
        What a round consists of along its critical path, in seconds, mean over rounds: local
        training, latency of messages, and their transfer over links.
    messages, bytes
        Messages and bytes that all nodes send per round, mean over rounds, as in :func:`round_cost`
        and :class:`topofl.History`.
    network_bytes
        Bytes that travel between machines.
    reduced_bytes
        The part of `bytes` that groups of nodes sent by all-reduce; 0 unless the `groups` of the
        hardware allow it.
    per_round
        (R,) seconds of each round: of one period, of the recorded or simulated rounds, or, if nodes
        wait for neighbors only, one number, the mean in the long run.

    Examples
    --------
    >>> from topofl import metrics, topologies
    >>> hardware = metrics.Hardware(compute=0.25, latency=0.5, bandwidth=800)
    >>> found = metrics.round_time(topologies.ring(8), hardware=hardware, n_parameters=25)
    >>> print(found)
    ring(n=8): a round takes 1 s, most of it latency
    part      seconds
    --------  -------
    compute      0.25
    latency       0.5
    transfer     0.25
    >>> float(found), found.bound, found.bytes
    (1.0, 'latency', 1600.0)
    """

    name: str
    hardware: Hardware
    waiting: str
    compute: float
    latency: float
    transfer: float
    messages: float
    bytes: float
    network_bytes: float
    reduced_bytes: float
    per_round: np.ndarray = field(repr=False)

    def __float__(self) -> float:
        return self.seconds

    def __str__(self) -> str:
        return str(self._table)

    def _repr_html_(self) -> str:
        return self._table._repr_html_()

    @property
    def seconds(self) -> float:
        """Seconds per round, mean over rounds."""
        return float(self.per_round.mean())

    @property
    def bound(self) -> str:
        """The largest part: ``"compute"``, ``"latency"`` or ``"transfer"``, the first of equals."""
        parts = self._parts
        return max(parts, key=lambda name: float(f"{parts[name]:.9e}"))  # ties up to rounding

    @property
    def elapsed(self) -> np.ndarray:
        """(R,) seconds from the start to the end of each round."""
        return np.cumsum(self.per_round)

    @property
    def _table(self) -> Table:
        how = ", groups average by all-reduce" if self.reduced_bytes else ""
        title = f"{self.name}: a round takes {self.seconds:.4g} s, most of it {self.bound}{how}"
        return Table(("part", "seconds"), tuple(self._parts.items()), title)

    @property
    def _parts(self) -> dict[str, float]:
        return {"compute": self.compute, "latency": self.latency, "transfer": self.transfer}


@public
def round_time(
    x: Any,
    *,
    hardware: AnyHardware,
    model: Any = None,
    n_parameters: int | None = None,
    steps: float | None = None,
    exchanges: int | None = None,
    waiting: str = "all",
    server: bool = False,
    rounds: int | None = None,
    seed: int | None = None,
) -> RoundTime:
    """Return the seconds that a round takes: local steps, then messages along the graph.

    A message from machine u to machine v arrives at ``t + c[u] + latency[u, v] + transfer[u, v]``
    if u starts its round at t and trains for c[u] seconds. Messages that share links have longer
    transfers, see :class:`topofl.metrics.Hardware`.

    Parameters
    ----------
    x
        Anything that :func:`topofl.as_topology` accepts, a MixingMatrix, a MixingSequence, a list
        of MixingMatrix (one period), or a History, whose recorded steps and messages are timed.
    hardware
        A :class:`topofl.metrics.Hardware`, a dictionary of its arguments, or such text.
    model, n_parameters
        What a message is, for a graph one of the two: the trainable parameters of a model, or a
        number of parameters; 4 bytes each. A History has its bytes.
    steps
        Local steps per node and round (default 1). A History has its steps.
    exchanges
        Exchanges per round, one after the other, at most 1,000 (default 1). A History has its
        messages.
    waiting
        ``"all"``: after each exchange, all nodes wait until the slowest node has its messages, so
        rounds end for all nodes at once. ``"neighbors"``: a node begins its next exchange or round
        as soon as it has the messages of its own in-neighbors, so delays travel along the graph;
        the seconds per round are the cycle time of this max-plus linear system.
    server
        Whether all nodes send to a server and receive from it, whatever the edges. A History knows.
    rounds
        Number of rounds to simulate of sequences without a period and of random times (default:
        all of a sequence with an end, else 100).
    seed
        Seed of random times, if the expectation has no formula: needed if nodes wait for neighbors,
        with a placement, with a History, and for distributions of your own.

    Returns
    -------
    RoundTime
        Its ``seconds`` are exact for fixed times and graphs with a period, and expected values for
        exponential or lognormal times; otherwise means over simulated rounds.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or of another kind, missing, or recorded by the History; if
        a table of the hardware does not fit the number of nodes.
    TopologyError
        If a History does not tell along which links its messages went, or is not synchronous; or if
        the hardware has tables in which a server has no row.

    References
    ----------
    The cycle time is that of Marfoq, Xu, Neglia and Vidal, "Throughput-optimal topology design for
    cross-silo federated learning" (2020), section 2, with their equation 3 for transfers; the
    theory is that of Baccelli, Cohen, Olsder and Quadrat, "Synchronization and linearity" (1992).

    Examples
    --------
    On slow links, the center of a star is the bottleneck:

    >>> from topofl import topologies
    >>> home = {"compute": 0.05, "latency": 0.02, "bandwidth": 1.25e6}
    >>> for graph in (topologies.ring(100), topologies.star(100)):
    ...     found = round_time(graph, hardware=home, n_parameters=250_000)
    ...     print(graph.name, round(found.seconds, 2), found.bound)
    ring(n=100) 1.67 transfer
    star(n=100) 79.27 transfer

    Groups may average by all-reduce, which sends less and waits twice:

    >>> groups = topologies.rotating_cliques(n=100, clique_size=10, partitions=2, seed=0)
    >>> for how in ("messages", "all-reduce"):
    ...     found = round_time(groups, hardware=home | {"groups": how}, n_parameters=250_000)
    ...     print(how, round(found.seconds, 2), found.bytes / 1e8)
    messages 7.27 9.0
    all-reduce 1.53 1.8

    One slow node delays all others, but not at once:

    >>> slow = {"compute": [1.0, 1.0, 1.0, 9.0], "latency": 1.0}
    >>> chain = topologies.path(4)
    >>> for waiting in ("all", "neighbors"):
    ...     print(round_time(chain, hardware=slow, n_parameters=1, waiting=waiting).seconds)
    10.0
    9.0
    """
    check_choice("waiting", waiting, ["all", "neighbors"])
    check_switch("server", server, auto=False)
    machines = as_hardware(hardware)
    options = {"model": model, "n_parameters": n_parameters, "steps": steps, "exchanges": exchanges}
    if isinstance(getattr(x, "node_loss", None), np.ndarray):  # a History
        _refuse_recorded(options | {"rounds": rounds, "server": server or None})
        source, about = _rounds_of_history(x, machines), x.meta
        name = f"{about.get('algorithm', 'run')} over {about.get('topology', 'graphs')}"
    else:
        is_mixing = isinstance(x, MixingMatrix | MixingSequence)
        graph = x if is_mixing else as_rounds(x) if is_list_of_matrices(x) else graph_of("x", x)
        size = message_size(model, n_parameters)
        if size is None:
            raise ValueError(
                "`model` or `n_parameters` must be given, one of the two, got none; it says how "
                "many bytes a message has"
            )
        steps = check_nonnegative("steps", 1.0 if steps is None else steps)
        exchanges = 1 if exchanges is None else exchanges
        exchanges = check_int("exchanges", exchanges, minimum=1, maximum=1000)
        source = _rounds_of_graph(graph, machines, 4.0 * size, steps, exchanges, server)
        name = graph.name
    per_round, parts, sent = _timing_of(source, machines, waiting, rounds, seed)
    return RoundTime(name, machines, waiting, *parts.tolist(), *sent.tolist(), per_round=per_round)


def _refuse_recorded(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be left out for a History, which has recorded its steps and "
                f"messages, got {shown(value)}"
            )


_cost = partial(MetricColumn, "cost")

COLUMNS = (
    _cost(
        "seconds per round",
        "seconds of a round on this hardware if all nodes wait for the slowest",
        lambda entry: entry.shared(_of_entry).seconds,
        needs=(HARDWARE,),
    ),
    _cost(
        "bound by",
        "the largest part of these seconds: compute, latency or transfer",
        lambda entry: entry.shared(_of_entry).bound,
        needs=(HARDWARE,),
    ),
)
