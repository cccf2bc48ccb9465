"""Graphs of all kinds to be drawn."""

import pytest

from topofl import topologies
from topofl.topology import from_edges

GRAPHS = [
    topologies.ring(1),
    topologies.ring(2),
    topologies.ring(12),
    topologies.exponential(16, directed=True),
    topologies.path(30),
    topologies.grid(12),
    topologies.torus(25),
    topologies.star(9),
    topologies.tree(31, branching=2),
    topologies.tree(80, branching=3),
    *[topologies.hypercube(2**k) for k in range(1, 8)],
    topologies.complete_bipartite(9, left=3),
    topologies.random_regular(30, 3, seed=0),
    topologies.random_regular(502, 3, seed=0),
    topologies.barabasi_albert(60, seed=0),
    topologies.erdos_renyi(40, 0.2, seed=0),
    topologies.random_cliques(24, 4, seed=0),
    topologies.dcliques(n=33, clique_size=5, inter="small_world", seed=0),
    topologies.dcliques(n=81, clique_size=3, inter="fractal", seed=0),
    topologies.dcliques(n=50, clique_size=5, inter="fractal", group_size=4, seed=0),
    from_edges([], 7),
    from_edges([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 6), (6, 3), (3, 5)], 9, name="pieces"),
    from_edges([(0, 1), (2, 3)], 300, name="crumbs"),
    from_edges([(0, 1), (1, 2)], 6, groups=[[0, 1, 2]], name="one group and strays"),
]


every_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
