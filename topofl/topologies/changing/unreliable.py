"""Graphs with link failures or partial participation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from topofl._support.check import check_int, check_probability
from topofl._support.seeding import random_keys, stream, torch_seed
from topofl.topologies._common import call_name, static_graph, with_some_edges
from topofl.topologies._generator import generator
from topofl.topology import Topology, TopologySequence, graph_of

__all__ = ["link_failures", "participation"]


@generator(family="derived", examples=["link_failures,base=(torus:16),fail=0.3,recover=0.5,seed=0"])
def link_failures(base: Any, *, fail: float, recover: float, seed: int) -> TopologySequence:
    """Return `base` with unreliable links that fail and recover independently, in bursts.

    Each link is a two-state Markov chain (Gilbert-Elliott): from one round to the next, a link that
    is up fails with probability `fail`, and a link that is down recovers with probability
    `recover`. Chains are independent and stationary: a link is up in a fraction ``recover / (fail +
    recover)`` of all rounds, and an outage lasts ``1 / recover`` rounds on average. With ``fail +
    recover = 1`` rounds are independent; with ``fail = 0`` links never fail.

    A link is an undirected edge, with both of its directions, or a directed edge; opposite directed
    edges fail independently. Round t is a pure function of (`seed`, t), without simulating all
    rounds before it: each link is traced back to the last round whose outcome did not depend on the
    previous state. This takes about ``1 / min(fail + recover, 2 - fail - recover)`` draws per link,
    at most t.

    Parameters
    ----------
    base
        A graph: a Topology or anything else :func:`topofl.as_topology` accepts. Edge weights,
        groups and node labels are preserved; if the graph has ``own_weights``, receivers add the
        weight of a failed link to their self-weight.
    fail, recover
        Probabilities in [0, 1].
    seed
        Non-negative integer; not a generator, since round t must not depend on the rounds drawn
        before it.

    Raises
    ------
    ValueError, TypeError
        If `base` is not a graph, or changes over time; if another argument is out of range or not
        an integer.

    References
    ----------
    Gilbert, "Capacity of a burst-noise channel" (1960); Elliott, "Estimates of error rates for
    codes on burst-noise channels" (1963).

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = link_failures(topologies.ring(1000), fail=0.1, recover=0.3, seed=0)  # 3 of 4 up
    >>> graphs.at(0).n_edges, graphs.at(1).n_edges
    (753, 745)
    """
    base = static_graph("base", base)
    fail = check_probability("fail", fail)
    recover = check_probability("recover", recover)
    seed = check_int("seed", seed, minimum=0)
    name = call_name("link_failures", base.name, fail=fail, recover=recover, seed=seed)
    key = torch_seed(seed, "links")
    links, link_of_edge = np.unique(_links(base), return_inverse=True)
    up = partial(_links_up, links, fail=fail, recover=recover, key=key)
    return TopologySequence(
        base.n, partial(_with_links_up, base, link_of_edge, up, name), name=name
    )


def _with_links_up(
    base: Topology, link_of_edge: np.ndarray, up: Callable[[int], np.ndarray], name: str, t: int
) -> Topology:
    return with_some_edges(base, up(t)[link_of_edge], f"{name}.at({t})")


def _links(graph: Topology) -> np.ndarray:
    """Return the (E,) link number of each stored edge; both directions of a link have the same."""
    u, v = graph.edge_index
    return u * graph.n + v if graph.is_directed else np.minimum(u, v) * graph.n + np.maximum(u, v)


def _uniforms(links: np.ndarray, t: int, key: int) -> np.ndarray:
    """Return a number in [0, 1) for each link, a function of (link, t, key) only."""
    return (random_keys(key, np.array([t]), links)[0] >> np.uint64(11)) * 2.0**-53


def _links_up(links: np.ndarray, t: int, *, fail: float, recover: float, key: int) -> np.ndarray:
    """Return which links are up in round t, tracing each link back in time.

    In round s a link that was up stays up if ``u_s >= fail``, and a link that was down recovers if
    ``u_s >= 1 - recover``. If u_s is below or above both thresholds, the previous state does not
    matter; in between, the state stays the same or flips.
    """
    if fail == 0 or recover == 0:
        return np.full(len(links), fail == 0)
    if fail == recover == 1:  # no round is decisive: states alternate from round 0 on
        return (_uniforms(links, 0, key) >= 0.5) ^ bool(t % 2)
    low, high = sorted((fail, 1 - recover))
    up = np.zeros(len(links), bool)
    flipped = np.zeros(len(links), bool)
    unknown = np.arange(len(links))
    for s in range(t, 0, -1):
        u = _uniforms(links[unknown], s, key)
        up[unknown] = u >= high
        unknown = unknown[(low <= u) & (u < high)]
        flipped[unknown] ^= fail > 1 - recover
        if len(unknown) == 0:
            return up ^ flipped
    up[unknown] = _uniforms(links[unknown], 0, key) >= fail / (fail + recover)
    return up ^ flipped


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
    seed = check_int("seed", seed, minimum=0)
    if fraction == 0:
        raise ValueError("`fraction` must be above 0, got 0")
    name = call_name("participation", base.name, fraction=fraction, seed=seed)
    k = max(1, round(fraction * base.n))
    return TopologySequence(base.n, partial(_among_participants, base, k, seed, name), name=name)


def _among_participants(
    base: Topology | TopologySequence, k: int, seed: int, name: str, t: int
) -> Topology:
    """Return round t of `base` with only the edges between k random nodes."""
    graph = base.at(t)
    takes_part = np.zeros(base.n, bool)
    takes_part[stream(seed, "participation", t).choice(base.n, k, replace=False)] = True
    senders, receivers = graph.edge_index
    return with_some_edges(graph, takes_part[senders] & takes_part[receivers], f"{name}.at({t})")
