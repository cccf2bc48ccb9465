"""Description of the machines and links that nodes run on."""

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from topofl._support.calls import as_instance
from topofl._support.check import (
    NODES_LIMIT,
    as_array,
    as_table,
    check_amounts,
    check_choice,
    check_indices,
    check_int,
    check_nonnegative,
    check_positive,
    check_sequence,
)
from topofl._support.public import public
from topofl.clocks import DISTRIBUTIONS, Times, as_times

__all__ = ["AZURE_REGIONS", "Hardware", "azure_latency"]


AZURE_REGIONS = (
    "East US",
    "Canada Central",
    "Brazil South",
    "UK South",
    "West Europe",
    "South Africa North",
    "Central India",
    "Southeast Asia",
    "Japan East",
    "Australia East",
)
"""Ten regions of the Azure cloud on six continents, in the order of :func:`azure_latency`."""

ROUND_TRIPS = (
    (0, 20, 117, 77, 83, 232, 207, 223, 157, 202),
    (22, 0, 131, 92, 98, 246, 221, 222, 158, 199),
    (118, 132, 0, 180, 186, 334, 310, 340, 281, 310),
    (78, 92, 180, 0, 11, 160, 134, 157, 226, 258),
    (84, 97, 185, 11, 0, 161, 137, 159, 226, 258),
    (233, 246, 334, 160, 162, 0, 269, 293, 360, 379),
    (210, 222, 311, 134, 139, 270, 0, 54, 121, 140),
    (227, 221, 343, 157, 159, 292, 53, 0, 72, 90),
    (158, 157, 280, 226, 226, 359, 120, 71, 0, 103),
    (204, 199, 311, 258, 259, 379, 140, 90, 103, 0),
)
"""Round-trip times in milliseconds from each of these regions (rows) to each (columns)."""


@public
def azure_latency(
    regions: Sequence[str] = AZURE_REGIONS, *, within: float | None = None
) -> np.ndarray:
    """Return published latencies between cloud regions, (m, m) seconds one way.

    Half the median round-trip time that Microsoft measured between its regions over 30 days.

    Parameters
    ----------
    regions
        The region of each of m machines, from ``metrics.AZURE_REGIONS``; regions may repeat.
    within
        Seconds between two machines of the same region, which the source does not have; needed only
        if a region repeats.

    Raises
    ------
    ValueError
        If a region is unknown, or repeats without `within`.
    TypeError
        If `regions` is not a sequence of names.

    References
    ----------
    Microsoft, "Azure network round-trip latency statistics",
    https://learn.microsoft.com/azure/networking/azure-network-latency, version of April 10, 2024:
    monthly medians (P50) in milliseconds for the 30 days that end on April 9, 2024.

    Examples
    --------
    >>> latency = azure_latency(["West Europe", "Japan East", "Japan East"], within=0.0005)
    >>> latency.tolist()
    [[0.0, 0.113, 0.113], [0.113, 0.0, 0.0005], [0.113, 0.0005, 0.0]]
    """
    listed = check_sequence("regions", regions, "names of regions")
    names = [check_choice("regions", name, AZURE_REGIONS) for name in listed]
    places = np.array([AZURE_REGIONS.index(name) for name in names], dtype=np.int64)
    same = places[:, None] == places
    if within is None and len(set(names)) < len(names):
        raise ValueError(
            "`within` must be given if a region repeats, got None; for example within=0.0005"
        )
    seconds = np.array(ROUND_TRIPS)[places][:, places] / 2000
    seconds[same] = 0.0 if within is None else check_nonnegative("within", within)
    np.fill_diagonal(seconds, 0.0)
    return seconds


@public
@dataclass(frozen=True, eq=False, repr=False)
class Hardware:
    """Machines and their links: seconds per local step, latency and bandwidth.

    A message of b bytes from machine u to machine v arrives ``latency[u, v]`` seconds, plus the
    seconds of its transfer, after it was sent. Every machine has one link, which sends and receives
    at the same time. On a link, each message takes ``overhead + b / bandwidth`` seconds.

    Parameters
    ----------
    compute
        Seconds per local step (one gradient on a minibatch) of a node, as
        :func:`topofl.metrics.step_seconds` measures them: a number, a table (n,), random times such
        as ``topofl.clocks.lognormal(0.1, sigma=0.5)``, or such text. Random times are drawn per
        node and round: all steps of a node in a round are slow together. None: steps take no time.
    latency
        Seconds until a message of no bytes arrives, at least 0: a number, or a table (m, m) whose
        entry ``latency[u, v]`` is from machine u to machine v.
    bandwidth
        Bytes per second of a machine's link, in each direction: a number, or a table (m,); None or
        infinity, also in the table: unlimited.
    path_bandwidth
        Bytes per second of the path between two machines, beyond their links: a number, or a table
        (m, m); None or infinity, also in the table: unlimited, so that the path costs latency only.
        Different pairs of machines do not share it.
    overhead
        Seconds per message that the link of a machine is busy, whatever the size.
    messages
        ``"serial"``: the messages of a link share it, so each takes as long as all of them.
        ``"parallel"``: each message takes as long as if it were alone on the links.
    placement
        (n,) the machine of each node, from 0; None: every node is a machine of its own. Nodes of a
        machine share its link and its processors, and exchange models with each other in no time.
    processors
        Number of processors of each machine, at least 1. Each trains one node at a time, and nodes
        may move between them, so that a machine trains for as long as all its nodes would on
        average over its processors, or as its slowest node, if that is longer.
    copies
        ``"node"``: a model crosses the link once for every node that receives it. ``"machine"``:
        once for every other machine on which a node receives it.
    groups
        How nodes average in rounds whose graph consists of complete groups without edges between
        them, and with equal weights, such as :func:`topofl.topologies.rotating_cliques`.
        ``"messages"``: each of k members sends its model to all others, k - 1 models.
        ``"all-reduce"``: each averages one part of k, in two exchanges of such parts, together
        2 (k - 1) / k models. ``"cheapest"``: per round, the one whose exchanges take fewer seconds.
        Nodes of a machine add up their models before. Other rounds use messages. All-reduces
        compute means only: of a history, they are an assumption that does not hold if nodes need
        each model, as for a median, or send compressed differences.
    server_bandwidth
        Bytes per second of the link of a server, which is a machine without nodes; infinity:
        unlimited; None: that of the machines, which must then be a number.

    Raises
    ------
    ValueError, TypeError
        If a number is negative or not finite (except for bandwidths, which may be infinite), a
        bandwidth is 0, a table has another shape than machines or nodes, or a choice is unknown.

    References
    ----------
    Latency, overhead and gap per byte are those of LogGP (Alexandrov, Ionescu, Schauser and
    Scheiman, 1995). That concurrent messages share a machine's link, up and down, is equation 3 of
    Marfoq, Xu, Neglia and Vidal, "Throughput-optimal topology design for cross-silo federated
    learning" (2020). Training on several processors takes as long as the preemptive schedule of
    McNaughton, "Scheduling with deadlines and loss functions" (1959). An all-reduce whose members
    each reduce a part is that of Rabenseifner, "Optimization of collective reduction operations"
    (2004), with direct exchanges of the parts.

    Examples
    --------
    Home connections of 10 Mbit/s, and two servers that host ten nodes each:

    >>> home = Hardware(compute=0.05, latency=0.02, bandwidth=1.25e6)
    >>> ranks = Hardware(compute=0.05, latency=1e-4, bandwidth=1e9, placement=[0] * 10 + [1] * 10)
    >>> home
    Hardware(compute=0.05, latency=0.02, bandwidth=1250000)
    >>> ranks.machines
    2
    """

    compute: Any
    latency: Any = 0.0
    bandwidth: Any = None
    path_bandwidth: Any = None
    overhead: float = 0.0
    messages: str = "serial"
    placement: Any = None
    processors: int = 1
    copies: str = "node"
    groups: str = "messages"
    server_bandwidth: float | None = None

    def __post_init__(self) -> None:
        compute = None if self.compute is None else as_times("compute", self.compute, of_steps=True)
        found: dict[str, Any] = {
            "compute": compute,
            "latency": _table("latency", self.latency, ndim=2, positive=False),
            "bandwidth": _table("bandwidth", self.bandwidth, ndim=1, positive=True),
            "path_bandwidth": _table("path_bandwidth", self.path_bandwidth, ndim=2, positive=True),
            "overhead": check_nonnegative("overhead", self.overhead),
            "messages": check_choice("messages", self.messages, ["serial", "parallel"]),
            "processors": check_int("processors", self.processors, minimum=1),
            "copies": check_choice("copies", self.copies, ["node", "machine"]),
            "groups": check_choice("groups", self.groups, ["messages", "all-reduce", "cheapest"]),
        }
        if self.placement is not None:
            found["placement"] = _placement(self.placement)
        if self.server_bandwidth is not None:
            found["server_bandwidth"] = _check_bandwidth("server_bandwidth", self.server_bandwidth)
        for name, value in found.items():
            object.__setattr__(self, name, value)
        for name in ("latency", "bandwidth", "path_bandwidth"):
            table = getattr(self, name)
            if isinstance(table, np.ndarray) and len(table) != self.machines:
                raise ValueError(
                    f"`{name}` must be one number or a table for all {self.machines} machines, got "
                    f"shape {table.shape}"
                )

    def __repr__(self) -> str:
        return f"Hardware({', '.join(f'{name}={value}' for name, value in self.settings.items())})"

    @property
    def settings(self) -> dict[str, str]:
        """The arguments that differ from their defaults, as text."""
        found = {"compute": getattr(self.compute, "description", "None")}
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if isinstance(value, np.ndarray) and value.ndim:
                found[one.name] = f"table{value.shape}".replace(",)", ")")
            elif value is not None and value != one.default:
                found[one.name] = repr(value) if isinstance(value, str) else f"{value:.12g}"
        return found

    @property
    def machines(self) -> int | None:
        """Number of machines: that of `placement` or of a table; None: one per node."""
        sizes = [] if self.placement is None else [int(self.placement.max()) + 1]
        for table in (self.latency, self.bandwidth, self.path_bandwidth):
            if isinstance(table, np.ndarray) and table.ndim:
                sizes.append(len(table))
        return max(sizes, default=None)

    @property
    def is_random(self) -> bool:
        """Whether steps take random times."""
        return isinstance(self.compute, Times) and self.compute.is_random

    def check(self, n: int) -> None:
        """Raise ``ValueError`` if a table or the placement does not have n nodes."""
        mean = np.zeros(()) if self.compute is None else np.asarray(self.compute.mean)  # pyright: ignore[reportAttributeAccessIssue]
        sizes = {"compute": mean.shape, "placement": np.shape(self.placement)}
        if self.placement is None and self.machines is not None:
            for name in ("latency", "bandwidth", "path_bandwidth"):
                sizes[name] = np.shape(getattr(self, name))
        for name, shape in sizes.items():
            if shape and shape[0] != n:
                raise ValueError(
                    f"`{name}` must be for all nodes, n={n}, got shape {shape}; or give `placement`"
                    ", the machine of each node"
                )


AnyHardware: TypeAlias = Hardware | Mapping[str, Any] | str
"""Hardware, a dictionary of its arguments, or text such as "Hardware(compute=0.1)"."""


def as_hardware(hardware: AnyHardware) -> Hardware:
    """Return hardware from a Hardware, a dictionary of its arguments, or text.

    Raises
    ------
    TypeError, ValueError
        If `hardware` is none of these, or has unknown arguments.

    Examples
    --------
    >>> as_hardware("Hardware(compute=lognormal(0.1, sigma=0.5), latency=azure_latency())")
    Hardware(compute=lognormal(0.1, sigma=0.5), latency=table(10, 10))
    """
    functions = DISTRIBUTIONS | {"Hardware": Hardware, "azure_latency": azure_latency}
    example = "Hardware(compute=0.1, latency=0.01, bandwidth=1e6)"
    return as_instance("hardware", hardware, Hardware, functions, example)


def _table(name: str, value: Any, *, ndim: int, positive: bool) -> Any:
    """Return a number, a read-only table of `ndim` dimensions, or None, after checks."""
    if value is None and positive:
        return None
    table = as_table(name, value)
    if table.ndim == 0:
        number = (_check_bandwidth if positive else check_nonnegative)(name, float(table))
        return None if number == np.inf else number
    if table.ndim != ndim or len(set(table.shape)) > 1 or not table.size:
        shape = "one per machine, shape (m,)" if ndim == 1 else "one per pair, shape (m, m)"
        remedy = ""
        if name == "bandwidth" and table.ndim == 2:
            remedy = "; a table of pairs is path_bandwidth"
        raise ValueError(f"`{name}` must be one number or {shape}, got shape {table.shape}{remedy}")
    unlimited = "give infinity where nothing limits messages"
    check_amounts(
        name,
        table,
        positive=positive,
        what="numbers",
        place="machine",
        has_diagonal=False,
        finite=not positive,
        remedy=unlimited if positive else "give 0 where no messages travel",
    )
    return table


def _check_bandwidth(name: str, value: Any) -> float:
    """Return a number above 0, which may be infinite, or raise the errors of check_positive."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and np.isposinf(float(value)):
        return np.inf
    if is_number and not float(value) > 0:
        raise ValueError(f"`{name}` must be a number above 0, or infinity, got {float(value):g}")
    return check_positive(name, value)


def _placement(value: Any) -> np.ndarray:
    """Return the machine of each node as a read-only array, after checks."""
    array = as_array("placement", value)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"`placement` must have one machine per node, shape (n,), got shape {array.shape}"
        )
    return check_indices("placement", array, NODES_LIMIT)
