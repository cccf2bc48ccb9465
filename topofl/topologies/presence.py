"""Graphs of the nodes that are there: drawn in every round, or by a trace."""

from functools import partial
from typing import Any

import numpy as np

from topofl._support.check import as_trace, check_probability
from topofl._support.seeding import stream
from topofl.topologies._generator import generator, with_some_edges
from topofl.topology import Topology, TopologySequence, graph_of

__all__ = ["availability", "participation"]


@generator(family="derived", examples=["participation,base=(torus:16),fraction=0.5,seed=0"])
def participation(base: Any, *, fraction: float, seed: int) -> TopologySequence:
    """Return `base` with partial participation: per round, a random share of nodes has edges.

    ``round(fraction * n)`` nodes, at least 1, keep the edges of `base` between them. Rounds are
    independent, and each is a pure function of (`seed`, t): graphs with the same number of nodes
    have the same participants for the same seed, which makes them comparable. Applying this
    function twice needs two different seeds to have an effect.

    Parameters
    ----------
    base
        A Topology, a TopologySequence (round t of which is used), or anything else
        :func:`topofl.as_topology` accepts. Edge weights, groups and node labels are preserved.
    fraction
        Fraction of nodes that participate, in (0, 1].
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If `base` is not a graph; if another argument is out of range or not an integer.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = participation(topologies.fully_connected(100), fraction=0.1, seed=0)
    >>> graphs.at(0).n_edges
    45
    """
    base = graph_of("base", base)
    fraction = check_probability("fraction", fraction)
    if fraction == 0:
        raise ValueError("`fraction` must be above 0, got 0")
    k = max(1, round(fraction * base.n))
    return TopologySequence(base.n, partial(_among_participants, base, k, seed), base.name)


def _among_participants(base: Topology | TopologySequence, k: int, seed: int, t: int) -> Topology:
    """Return round t of `base` with only the edges between k random nodes."""
    graph = base.at(t)
    takes_part = np.zeros(base.n, bool)
    takes_part[stream(seed, "participation", t).choice(base.n, k, replace=False)] = True
    senders, receivers = graph.edge_index
    return with_some_edges(graph, takes_part[senders] & takes_part[receivers])


@generator(family="derived", examples=["availability,base=(ring:4),trace=[[1,1,1,0],[0,1,1,1]]"])
def availability(base: Any, *, trace: Any) -> TopologySequence:
    """Return `base` with the nodes that a trace says are there: only they have edges in a round.

    Parameters
    ----------
    base
        As in :func:`participation`.
    trace
        Who is there when: (rounds, n) of 0 and 1, or the path of a CSV file with one line per round
        and 0 or 1 per node. After its last round it begins again.

    Returns
    -------
    TopologySequence
        Its period is that of the trace, if `base` is static or has a period that divides it.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If `base` is not a graph, or `trace` has other numbers than 0 and 1, no rounds, or another
        number of nodes than `base`.

    See Also
    --------
    participation : nodes that are there are drawn at random.
    topofl.algorithms.available : the same for methods with a server.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = availability(topologies.fully_connected(4), trace=[[1, 1, 1, 0], [0, 1, 1, 0]])
    >>> graphs.period, [graphs.at(t).n_edges for t in range(4)]
    (2, [3, 1, 3, 1])
    """
    base = graph_of("base", base)
    there = as_trace("trace", trace, base.n)
    period = base.period if isinstance(base, TopologySequence) else 1
    repeats = period is not None and len(there) % period == 0
    return TopologySequence(
        base.n, partial(_among_available, base, there), base.name, len(there) if repeats else None
    )


def _among_available(base: Topology | TopologySequence, there: np.ndarray, t: int) -> Topology:
    """Return round t of `base` with only the edges between nodes that are there."""
    graph, now = base.at(t), there[t % len(there)]
    senders, receivers = graph.edge_index
    return with_some_edges(graph, now[senders] & now[receivers])
