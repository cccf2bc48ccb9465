"""Overlay networks: graphs that nodes build among themselves, without a central server."""

import numpy as np

from topofl._support.check import check_edges, check_int
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import cycle_edges, generator
from topofl.topology import Topology, from_edges

__all__ = ["fedlay"]


@generator(family="random", examples=["fedlay:24,spaces=2,seed=0"])
def fedlay(n: int, spaces: int, *, seed: Seed) -> Topology:
    """Return the overlay of FedLay, the union of several rings in random orders.

    Every node draws a coordinate on a circle for each of the virtual ring spaces, uniformly and
    independently. In each space it is joined to the next nodes in both directions. The graph is
    connected and nearly a random regular graph: all degrees are at most ``2 * spaces``, and smaller
    only at nodes that are adjacent in several spaces. For n of at least 3 the expected number of
    edges is ``n (n - 1) / 2 * (1 - (1 - 2 / (n - 1))^spaces)``.

    A node can find its neighbors from coordinates alone, so the graph needs no server to be built
    or repaired; :func:`topofl.topologies.random_regular` draws the whole graph at once.

    Parameters
    ----------
    n
        Number of nodes, at least 1.
    spaces
        Number of rings, at least 1; with 1 the graph is a ring in random order.
    seed
        Integer or generator.

    Raises
    ------
    ValueError, TypeError
        If a number is out of range or not an integer.

    Notes
    -----
    The paper's protocols for joining and leaving nodes are not simulated: the graph is the one they
    lead to. Its weights, which depend on the data and the speed of neighbors, are not part of the
    graph either.

    References
    ----------
    Hua, Pang, Zhang, Liu, Shi, Wang, Liu and Qian, "Towards practical overlay networks for
    decentralized federated learning" (2024).

    Examples
    --------
    >>> graph = fedlay(100, 3, seed=0)
    >>> graph.is_connected, graph.out_degrees.max().item(), graph.n_edges <= 300
    (True, 6, True)
    """
    spaces = check_int("spaces", spaces, minimum=1)
    check_edges(n * spaces, "n", "spaces")
    rng = stream(seed, "graph")
    rings = [cycle_edges(np.argsort(rng.random(n))) for _ in range(spaces)]
    return from_edges(np.concatenate(rings), n)
