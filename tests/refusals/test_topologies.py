"""What generators of graphs and operations on graphs refuse."""

import tempfile
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from tests.refusals import named, refused
from topofl import TopologyError, from_edges, topologies
from topofl._spec import parameters
from topofl.topologies import bggc, ggc, greedy_swap_trace

RING, PULLS = topologies.ring(5), topologies.random_in(5, 2, seed=0)
NAMED, STAR = replace(RING, nodes=tuple("abcde")), topologies.star(30)
LARGE_RING = topologies.ring(1001)
DIRECTED = topologies.exponential(8, directed=True)
LINE = from_edges([(0, 1), (1, 2)], 3, directed=True, name="line", groups=[(0, 1)])
COUNTS, SHARES = np.ones((4, 2), int), np.full((4, 2), 0.5)
THIRTY = np.eye(10, dtype=int)[np.arange(30) % 10]
CLIQUES = topologies.dcliques(n=47, inter="small_world", cliques="random", seed=0)
EMPTY = topologies.with_groups(RING, [(0, 1), ()])
POOLED = {"label_shares": SHARES, "weighting": "pooled"}
MODELS, NAN = np.zeros((3, 2)), float("nan")


def blocks(**changes):
    settings = {"n": 10, "blocks": 2, "p_in": 0.5, "p_out": 0.5, "seed": 0}
    return topologies.stochastic_block_model(**settings | changes)


def swap(*given, size=2, **settings):
    return topologies.greedy_swap(*given, clique_size=size, seed=0, **settings)


def dcliques(**settings):
    return topologies.dcliques(**{"n": 20, "seed": 0} | settings)


def ideal(*given, **settings):
    return topologies.ideal_cliques(*given, seed=0, **settings)


def leaders(**changes):
    settings = {"n": 8, "clique_size": 4, "seed": 0}
    return topologies.decentralized_greedy_swap(**settings | changes)


def failures(base=RING, fail=0.5, recover=0.5, seed=0):
    return topologies.link_failures(base, fail=fail, recover=recover, seed=seed)


def random_matchings(base=RING, budget=0.5):
    return topologies.matcha(base, budget=budget, seed=0)


def some(base=RING, fraction=0.5):
    return topologies.participation(base, fraction=fraction, seed=0)


def there(trace):
    return topologies.availability(topologies.ring(6), trace=trace)


def written(text):
    path = Path(tempfile.mkdtemp(), "trace.csv")
    path.write_text(text)
    return path


def thinned(base, removed):
    return topologies.thin_cliques(base, removed, seed=0)


def placed(**settings):
    return topologies.neighborhood_swap(**settings, seed=0)


def designed(**settings):
    return topologies.designed(THIRTY, **settings, seed=0)


def nothing(k, members):
    return 0.0


def infinite(k, model):
    return np.inf


def not_finite(k, members):
    return NAN if members == (1, 2, 3) else 0.0


def batches(loss=nothing, k=0, pool=(1, 2), budget=None, models=MODELS, weights=(1, 1, 1), **how):
    return bggc(loss, k, pool, budget, models=models, weights=weights, seed=0, **how)


def collaboration(reward=nothing, n=3, *more, **settings):
    return topologies.greedy_collaboration(reward, n, *more, seed=0, **settings)


ROWS = [
    # Textbook graphs
    (TypeError, "`n` must be an integer, got 4.0", lambda: topologies.ring(4.0)),
    (TopologyError, "are n=4 and n=6, or pass rows=1 for a path", lambda: topologies.grid(5)),
    (TopologyError, "or pass rows=1 for a ring", lambda: topologies.torus(97)),
    (ValueError, "=12, got 5; the most square is rows=3", lambda: topologies.torus(12, rows=5)),
    (ValueError, "between 1 and n=12, got 13", lambda: topologies.grid(12, rows=13)),
    (ValueError, "between 1 and n=12, got 0", lambda: topologies.grid(12, rows=0)),
    (ValueError, "`left` must be between 1 and 3", lambda: topologies.complete_bipartite(4, 4)),
    (TopologyError, "two, got 12; the nearest are 8 and 16", lambda: topologies.hypercube(12)),
    (ValueError, "`branching` must be at least 1, got 0", lambda: topologies.tree(4, 0)),
    (ValueError, "not multiples of n=4, got [1, 8]", lambda: topologies.circulant(4, [1, 8])),
    (ValueError, "are not multiples of n=4, got []", lambda: topologies.circulant(4, [])),
    (TypeError, "`offsets` must be an integer", lambda: topologies.circulant(4, [0.5])),
    (TopologyError, "`degree`=2, got 12; the nearest are 8 and", lambda: topologies.de_bruijn(12)),
    (TopologyError, "got 12; the nearest are 9 and 27", lambda: topologies.de_bruijn(12, 3)),
    (TopologyError, "`degree`=2, got 8; the nearest are 6 and 12", lambda: topologies.kautz(8)),
    (TopologyError, "got 3; the smallest is 4", lambda: topologies.kautz(3, 3)),
    (ValueError, "`degree` must be at least 2, got 1", lambda: topologies.kautz(6, 1)),
    (ValueError, "`degree` must be at least 2, got 1", lambda: topologies.de_bruijn(8, 1)),
    (ValueError, "`p` must be between 1 and 7, got 8", lambda: topologies.p_peer_exponential(8, 8)),
    (ValueError, "`p` must be between 1 and 7", lambda: topologies.p_peer_exponential(8, 0)),
    (TopologyError, "got 7; the nearest are 6 and 8, or", lambda: topologies.hyper_hypercube(7, 2)),
    (TopologyError, "the nearest are 16 and 32, or use", lambda: topologies.hyper_hypercube(25, 1)),
    (ValueError, "`k` must be between 1 and 4, got 5", lambda: topologies.hyper_hypercube(5, 5)),
    (ValueError, "`k` must be between 1 and 4, got 5", lambda: topologies.base_graph(5, 5)),
    (ValueError, "`k` must be between 1", lambda: topologies.base_graph(5, 0)),
    # Random graphs
    (TopologyError, "even, got n=5 and k=3", lambda: topologies.random_regular(5, 3, seed=0)),
    (
        TopologyError,
        "`k` must be at least 2 to connect n=4 nodes",
        lambda: topologies.random_regular(4, 1, seed=0),
        lambda: topologies.random_regular(2, 1, seed=0),
    ),
    (ValueError, "between 1 and n-1=3, got 4", lambda: topologies.random_regular(4, 4, seed=0)),
    (ValueError, "n-1=3, got 0", lambda: topologies.random_regular(4, 0, seed=0)),
    (TypeError, "`seed` must be an int", lambda: topologies.random_regular(9, 4, seed=None)),
    (ValueError, "`seed` must be at least 0", lambda: topologies.random_regular(9, 4, seed=-1)),
    (
        TopologyError,
        ("none of 100 draws of erdos_renyi", "was connected; take `p` above log(n) / n = 0.0782"),
        lambda: topologies.erdos_renyi(50, 0.001, seed=0),
    ),
    (TopologyError, "none of 100 draws", lambda: topologies.erdos_renyi(30, 5e-324, seed=0)),
    (TopologyError, "none of 100 draws", lambda: topologies.erdos_renyi(30, 1e-9, seed=0)),
    (
        ValueError,
        "`p` must be above 0, got 0",
        lambda: topologies.erdos_renyi(5, 0.0, seed=0),
        lambda: topologies.erdos_renyi(1, 0.0, seed=0),
    ),
    (ValueError, "`p` must be between 0 and 1", lambda: topologies.erdos_renyi(5, 1.5, seed=0)),
    (ValueError, "and 1, got inf", lambda: topologies.erdos_renyi(10, 10**400, seed=0)),
    (TypeError, "`p` must be a number", lambda: topologies.small_world(10, p="half", seed=0)),
    (ValueError, "`k` must be even, got 3", lambda: topologies.small_world(10, k=3, seed=0)),
    (ValueError, "`m` must be between 1 and 3", lambda: topologies.barabasi_albert(4, 4, seed=0)),
    (ValueError, "`blocks` must be between 1 and n=10, got 11", lambda: blocks(blocks=11)),
    (ValueError, "`blocks` must be between 1 and n=10, got 0", lambda: blocks(blocks=0)),
    (ValueError, "`p_in` must be between 0 and 1, got 1.5", lambda: blocks(p_in=1.5)),
    (
        ValueError,
        "`p_out` must be above 0 to connect blocks, got 0; or pass connected=False",
        lambda: blocks(p_out=0),
        lambda: blocks(p_out=0, connected=False),
    ),
    (
        TopologyError,
        ("none of 100 draws of stochastic_block_model", "was connected; take a larger `p_in`"),
        lambda: blocks(n=50, blocks=5, p_in=1.0, p_out=1e-5),
    ),
    (ValueError, "`k` must be between 1 and 4, got 5", lambda: topologies.random_in(5, 5, seed=0)),
    (ValueError, "`k` must be between 1 and 4", lambda: topologies.random_out(5, 0, seed=0)),
    (TypeError, "`seed` must be an integer", lambda: topologies.random_matching(4, seed=0.5)),
    (ValueError, "`seed` must be at least 0", lambda: topologies.random_matching(4, seed=-1)),
    (ValueError, "and 1, got 1.5", lambda: topologies.erdos_renyi_sequence(4, 1.5, seed=0)),
    (ValueError, "`m` must be at least 1", lambda: topologies.d_equistatic(8, 0, seed=0)),
    (ValueError, "`m` must be at least 1", lambda: topologies.od_equidyn(8, m=0, seed=0)),
    (
        ValueError,
        "`eta` must be above 0 and at most 1, got 1.5",
        lambda: topologies.ou_equidyn(8, seed=0, eta=1.5),
        lambda: topologies.ou_equidyn(8, seed=0, eta=1),
    ),
    (
        ValueError,
        "`eta` must be above 0 and at most 1",
        lambda: topologies.od_equidyn(8, seed=0, eta=0),
    ),
    # Label counts and shares, cliques
    (ValueError, "`label_counts` must have shape (n, classes), got (3,)", lambda: swap([1, 2, 3])),
    (ValueError, "`label_counts` must have shape", lambda: swap(np.zeros((0, 3), int))),
    (ValueError, "`label_counts` must be an", lambda: swap([[1, 2], [3]])),
    (TypeError, "must be integers, got dtype float64", lambda: swap([[1.0, 2.0], [0.5, 1.0]])),
    (ValueError, "must be finite, got nan at (0, 1)", lambda: swap([[1.0, NAN], [0.5, 1.0]])),
    (TypeError, "`label_counts` must be integers", lambda: swap([["a", "b"], ["c", "d"]])),
    (ValueError, "non-negative, got -4 for node 1, class 1", lambda: swap([[1, 2], [3, -4]])),
    (ValueError, "one example per node, nodes 1 have none", lambda: swap([[1, 2], [0, 0], [1, 1]])),
    (ValueError, "nodes 1 have none", lambda: dcliques(n=None, label_counts=[[1], [0]])),
    (ValueError, "got 50; for one class per node pass n=50", lambda: swap(50)),
    (ValueError, "one of `label_counts` and `n`", lambda: topologies.dissimilar_ring(seed=0)),
    (ValueError, "must be given, got both", lambda: swap(COUNTS, n=4)),
    (
        ValueError,
        "`ties` must be one of 'stable', 'random', got 'stabel'; did you mean 'stable'",
        lambda: topologies.dissimilar_ring(n=20, ties="stabel", seed=4),
    ),
    (ValueError, "`label_shares` must be given alone", lambda: swap(COUNTS, label_shares=SHARES)),
    (ValueError, "`label_shares` must be given alone", lambda: dcliques(label_shares=SHARES)),
    (ValueError, "must be finite, got nan at (0, 1)", lambda: swap(label_shares=[[0.5, NAN]] * 4)),
    (ValueError, "`label_shares` must have shape (n,", lambda: swap(label_shares=[0.5, 0.5])),
    (TypeError, "`label_shares` must be real numbers", lambda: swap(label_shares=[["a"]])),
    (ValueError, "'uniform' with `label_shares`", lambda: swap(**POOLED)),
    (
        ValueError,
        ("sum to 1 for distance='kl'", "clip=True"),
        lambda: swap(label_shares=[[1.5, -0.5]] * 4, distance="kl"),
        lambda: swap(label_shares=[[1.5, -0.5]] * 4, distance="euclidean"),
    ),
    (
        ValueError,
        "sum to 1 for distance='kl'",
        lambda: swap(label_shares=[[0.5, 0.4]] * 4, distance="kl"),
        lambda: swap(label_shares=[[0.5, 0.4]] * 4, distance="euclidean"),
    ),
    (ValueError, ("`distance` must be one of", "got 'l2'"), lambda: swap(COUNTS, distance="l2")),
    (ValueError, "between 2 and n=100, got 1", lambda: topologies.random_cliques(100, 1, seed=0)),
    (ValueError, "2 and n=100, got 101", lambda: topologies.random_cliques(100, 101, seed=0)),
    (ValueError, "between 2 and n=4, got 5", lambda: swap(COUNTS, size=5)),
    (ValueError, "between 2 and n=4, got 5", lambda: swap(label_shares=SHARES, size=5)),
    (ValueError, "between 2 and n=4, got 5", lambda: swap(n=4, size=5)),
    (ValueError, "between 2 and n=20, got 1", lambda: dcliques(clique_size=1)),
    (ValueError, "`steps` must be at least 0, got -1", lambda: swap(COUNTS, steps=-1)),
    (ValueError, "0, got -1", lambda: greedy_swap_trace(COUNTS, 2, steps=-1, seed=0)),
    (ValueError, "and 9223372036854775807, got 1000000", lambda: swap(n=20, steps=10**30)),
    (ValueError, "got 'pool'; did you mean 'pooled'", lambda: swap(COUNTS, weighting="pool")),
    (
        ValueError,
        "`partitions` must be at least 1, got 0",
        lambda: topologies.rotating_cliques(n=20, partitions=0, seed=0),
    ),
    (ValueError, "n=4, got 5", lambda: topologies.rotating_cliques(COUNTS, 5, seed=0)),
    (
        TopologyError,
        "`sequence` must be periodic, random_matching(n=8, seed=0) is not; give rotating_cliques",
        lambda: topologies.repeated_pairs(topologies.random_matching(8, seed=0)),
    ),
    # D-Cliques
    (ValueError, "'smallworld'; did you mean 'small_world'", lambda: dcliques(inter="smallworld")),
    (ValueError, "got 'rings'; did you mean 'ring'", lambda: ideal(n=40, inter="rings")),
    (ValueError, "one of 'greedy_swap', 'random', got 'best'", lambda: dcliques(cliques="best")),
    (ValueError, "unless inter='fractal', got 5 and inter='ful", lambda: dcliques(group_size=5)),
    (ValueError, "`group_size` must be at least", lambda: dcliques(inter="fractal", group_size=1)),
    (ValueError, "limit of 20,000,000; use 'ring', 'fractal'", lambda: dcliques(n=100_000)),
    (ValueError, "for 10,000 cliques", lambda: ideal(n=100_000, inter="fully_connected")),
    (ValueError, "must give each node one class, node 1 has 2", lambda: ideal([[3, 0], [1, 1]])),
    (ValueError, "`label_counts` must have at least 2 nodes, got 1", lambda: ideal([[3, 0]])),
    (ValueError, "between 2 and n=8, got 9", lambda: ideal(n=8, clique_size=9)),
    (ValueError, "between 2 and n=2, got 3", lambda: ideal([[1], [1]], clique_size=3)),
    (ValueError, "`gossip_rounds` must be at least 0", lambda: leaders(gossip_rounds=-1)),
    (ValueError, "out unless the number of `gossip_rounds`", lambda: leaders(gossip_graph=RING)),
    (ValueError, "n=8 nodes, ring(n=5) has 5", lambda: leaders(gossip_rounds=1, gossip_graph=RING)),
    (
        TypeError,
        "list; use topofl.as_topology(graph)",
        lambda: leaders(gossip_rounds=1, gossip_graph=[]),
    ),
    # Derived graphs
    (TopologyError, "(n=8, directed=True) is directed", lambda: topologies.matchings(DIRECTED)),
    (TypeError, "one graph, got TopologySequence('random_in", lambda: topologies.matchings(PULLS)),
    (TypeError, "`base` must be", lambda: topologies.matchings(3)),
    (
        ValueError,
        ("`base` must not have its own mixing weights", "dataclasses.replace(graph, adj"),
        lambda: topologies.matchings(topologies.u_equistatic(7, 2, seed=0)),
    ),
    (TopologyError, "(n=8, directed=True) is directed", lambda: random_matchings(DIRECTED)),
    (
        TopologyError,
        "`base` must be connected and have at least 2 nodes, ring(n=1) has a single node",
        lambda: random_matchings(topologies.ring(1)),
    ),
    (
        TopologyError,
        "has several components",
        lambda: random_matchings(topologies.random_cliques(6, 3, seed=0)),
    ),
    (ValueError, "`base` must have at most 1,000 nodes", lambda: random_matchings(LARGE_RING)),
    (
        ValueError,
        "`budget` must be above 0 and at most 1, got 0",
        lambda: random_matchings(budget=0),
    ),
    (TypeError, "`base` must be", lambda: random_matchings(3)),
    (ValueError, "`fail` must be between 0 and 1, got 1.5", lambda: failures(fail=1.5)),
    (ValueError, "`recover` must be between 0 and 1, got -1", lambda: failures(recover=-1)),
    (TypeError, "`base` must be", lambda: some("ring")),
    (ValueError, "`fraction` must be above 0, got 0", lambda: some(fraction=0)),
    (ValueError, "`trace` must have shape (rounds, 6), got (1, 2)", lambda: there([[1, 0]])),
    (ValueError, "`trace` must have shape (rounds, 6), got (0,)", lambda: there([])),
    (ValueError, "`trace` must hold 0 and 1 only, got 0.5", lambda: there([[0.5] * 6])),
    (
        OSError,
        "`trace` must be a file that can be read, got none.csv (No such file or directory)",
        lambda: there("none.csv"),
    ),
    (
        ValueError,
        "`trace` must have a line per round with 0 or 1 for each node, separated by commas, line 2",
        lambda: there(written("1,1,1,1,1,1\n1,1\n")),
        lambda: there(written("1,1,1,1,1,1\n")),
    ),
    (ValueError, "separated by commas, line 1", lambda: there(written("2"))),
    (ValueError, "`fraction` must be between 0 and 1, got 1.1", lambda: some(fraction=1.1)),
    (
        ValueError,
        (
            "`removed` must be at most 21, the fewest edges in a clique of dcliques(",
            "got 22: clique 4 of 7 nodes has 21 edges (1 such cliques)",
        ),
        lambda: thinned(CLIQUES, 22),
        lambda: thinned(CLIQUES, 21),
    ),
    (ValueError, "clique 1 of 0 nodes has 0 edges", lambda: thinned(EMPTY, 1)),
    (ValueError, "`removed` must be at least 0, got -1", lambda: thinned(CLIQUES, -1)),
    (TopologyError, "ring(n=5) has none; use topologies.dcliques", lambda: thinned(RING, 1)),
    (TopologyError, "`base` must be undirected, line is directed", lambda: thinned(LINE, 1)),
    (TypeError, "`base` must be a Topology, got TopologySequence", lambda: thinned(PULLS, 1)),
    # Operations
    (ValueError, "`graphs` must be at least one graph", lambda: topologies.union()),
    (ValueError, "ring(n=5) has n=5, ", lambda: topologies.union(RING, topologies.ring(6))),
    (ValueError, "the same labels in the same order", lambda: topologies.union(RING, NAMED)),
    (TypeError, "`graph` must be one graph", lambda: topologies.relabel(PULLS, range(5))),
    (ValueError, "of the n=5 nodes once, got 4", lambda: topologies.relabel(RING, [0, 1, 2, 3])),
    (ValueError, "at most once, got node 3", lambda: topologies.relabel(RING, [0, 1, 2, 3, 3])),
    (ValueError, "`order` must be in 0..4", lambda: topologies.relabel(RING, [0, 1, 2, 3, 5])),
    (ValueError, "must contain at least one node", lambda: topologies.induced_subgraph(RING, [])),
    (ValueError, "`nodes` must be in 0..4", lambda: topologies.induced_subgraph(RING, [-1])),
    (TypeError, "np.flatnonzero", lambda: topologies.induced_subgraph(RING, [True, False])),
    (ValueError, "ring(n=5), got (0, 2)", lambda: topologies.remove_edges(RING, [(0, 1), (0, 2)])),
    (ValueError, "got (0, 0)", lambda: topologies.remove_edges(RING, [(0, 0)])),
    (ValueError, "`edges` must be in 0..4", lambda: topologies.remove_edges(RING, [(0, 5)])),
    (ValueError, "`edges` must be pairs", lambda: topologies.remove_edges(RING, [0, 1])),
    (ValueError, "must be disjoint", lambda: topologies.with_groups(RING, [(0, 1), (1, 2)])),
    (ValueError, "`groups[1]` must be in 0..4", lambda: topologies.with_groups(RING, [(0,), (7,)])),
    # Graphs for the data
    (TopologyError, "directed=True) is directed", lambda: placed(n=8, base=DIRECTED)),
    (ValueError, "`base` must have n=4 nodes, ring(n=5) has 5", lambda: placed(n=4, base=RING)),
    (ValueError, "between 1 and n-1=4, got 10; pass a smaller degree", lambda: placed(n=5)),
    (ValueError, "for n=1, which has no neighbors, got the degree 10", lambda: placed(n=1)),
    (TypeError, "or a degree, got Graph; use as_topology", lambda: placed(n=5, base=nx.Graph())),
    (ValueError, "`steps` must be at least 0, got -1", lambda: placed(n=5, base=2, steps=-1)),
    (ValueError, "exactly one of `label_counts` and `n`", lambda: placed()),
    (ValueError, "one of `degree` and `edges` must be given, got neither", lambda: designed()),
    (ValueError, "must be given, got both", lambda: designed(degree=3, edges=45)),
    (ValueError, "between 2 and n-1=29, got 1; a connected", lambda: designed(degree=1)),
    (ValueError, "`degree` must be between 2 and n-1=29", lambda: designed(degree=30)),
    (ValueError, "between 29 and 435, got 28; a connected", lambda: designed(edges=28)),
    (ValueError, "3 times 9; use edges=14", lambda: topologies.designed(n=9, degree=3, seed=0)),
    (ValueError, "`hops` must be at least 1, got 0", lambda: designed(degree=3, hops=0)),
    (ValueError, "`max_diameter` must be at least 1", lambda: designed(degree=3, max_diameter=0)),
    (TopologyError, "of at most 2 was found; raise", lambda: designed(degree=3, max_diameter=2)),
    (TypeError, "`allowed` must be a Topology", lambda: designed(degree=3, allowed="ring")),
    (ValueError, "must have n=30 nodes, ring(n=5) has 5", lambda: designed(degree=3, allowed=RING)),
    (ValueError, "at most 3 edges at node 0", lambda: designed(degree=3, required=STAR)),
    (
        TopologyError,
        "edges of ring(n=30) only was found",
        lambda: designed(degree=3, allowed=topologies.ring(30), required=topologies.path(30)),
    ),
    (
        ValueError,
        "`label_shares` must be finite, got nan at (0, 0)",
        lambda: topologies.designed(degree=2, label_shares=np.full((4, 2), NAN), seed=0),
    ),
    (ValueError, "must be at least 1, got 0", lambda: topologies.designed_directed(n=4, hops=0)),
    (ValueError, "`degree` must be at least 0", lambda: topologies.stl_fw(n=4, degree=-1)),
    (ValueError, "a finite number of at least 0", lambda: topologies.stl_fw(n=4, lam=-0.1)),
    (
        ValueError,
        ("at most 5000 nodes, ", "dense assignment problems, got 5001; use dcliques"),
        lambda: topologies.stl_fw(n=5001),
        lambda: topologies.stl_fw(n=5000, degree=0),
    ),
    (ValueError, "got 5001; use designed", lambda: topologies.designed_directed(n=5001)),
    # Graphs for rewards
    (TypeError, "a function (node, members) -> number, got 3", lambda: ggc(3, 0, [1], seed=0)),
    (
        TypeError,
        "`reward` must return a number, got None for node 0 with the group (0,)",
        lambda: ggc(lambda k, members: None, 0, [1], seed=0),
    ),
    (
        ValueError,
        "`reward` must return a finite number, got nan for node 2 with the group (1, 2, 3)",
        lambda: ggc(not_finite, 2, [1, 3], seed=0),
    ),
    (ValueError, "must not contain the node itself, k=1", lambda: ggc(nothing, 1, [0, 1], seed=0)),
    (ValueError, "must be distinct, got [0, 2, 2]", lambda: ggc(nothing, 1, [2, 0, 2], seed=0)),
    (ValueError, "`candidates` must be at least 0", lambda: ggc(nothing, 1, [-1], seed=0)),
    (ValueError, "`budget` must be at least 0, got -1", lambda: ggc(nothing, 0, [1], -1, seed=0)),
    (ValueError, "at least 1, got 0", lambda: ggc(nothing, 0, [1], 0, count_self=True, seed=0)),
    (TypeError, "a function (node, model) -> number, got None", lambda: batches(None)),
    (ValueError, "number, got inf for node 0 with the group (0,)", lambda: batches(infinite)),
    (ValueError, "finite and above 0, got 0 for node 1", lambda: batches(weights=[1, 0, 1])),
    (ValueError, "for at least 3 nodes, got shape (2,)", lambda: batches(weights=[1, 1])),
    (ValueError, "`weights` must be one number per node", lambda: batches(weights=1.0)),
    (ValueError, "must have shape (n, d), here with n=", lambda: batches(models=np.zeros(3))),
    (ValueError, "here with n=3, got shape (2, 2)", lambda: batches(models=np.zeros((2, 2)))),
    (ValueError, "got shape (7, 2)", lambda: batches(models=lambda nodes: np.zeros((7, 2)))),
    (ValueError, "`models` must be finite", lambda: batches(models=np.full((3, 2), NAN))),
    (ValueError, "`batch` must be at least 1, got 0", lambda: batches(batch=0)),
    (
        ValueError,
        "for node 1 with the group (1, 2, 3)",
        lambda: collaboration(not_finite, 4, candidates=from_edges([(2, 1), (3, 1)], 4)),
    ),
    (ValueError, "one per node (n=3), got shape (2,)", lambda: collaboration(nothing, 3, [1, 2])),
    (TypeError, "`budget` must be an integer, got 1.5", lambda: collaboration(nothing, 3, 1.5)),
    (ValueError, "must have n=3 nodes, ring(n=5) has 5", lambda: collaboration(candidates=RING)),
    (TypeError, "got list; use topofl.as_topology", lambda: collaboration(candidates=[(0, 1)])),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


MANY = [
    ("`n` must", lambda: topologies.fully_connected(10**6)),
    ("`n` and `left`", lambda: topologies.complete_bipartite(10**6)),
    ("`n` must", lambda: topologies.hypercube(2**23)),
    ("`n` and `offsets`", lambda: topologies.circulant(10**6, range(1, 1000))),
    ("`n` must", lambda: topologies.exponential(10**7)),
    ("per period", lambda: topologies.one_peer_exponential(10**7)),
    ("`n` and `p`", lambda: topologies.p_peer_exponential(10**6, 1000)),
    ("`n` and `k`", lambda: topologies.random_regular(10**6, 1000, seed=0)),
    ("`n` and `k`", lambda: topologies.random_regular(20_000, 19_999, seed=0)),
    ("`n` and `p`", lambda: topologies.erdos_renyi(10**6, p=0.5, seed=0)),
    ("`n` and `k`", lambda: topologies.small_world(10**6, 1000, seed=0)),
    ("`n` and `m`", lambda: topologies.barabasi_albert(10**6, 1000, seed=0)),
    ("`n` and `p_in` and `p_out`", lambda: blocks(n=10**6)),
    ("`n` and `k`", lambda: topologies.random_out(10**6, 1000, seed=0)),
    ("per round", lambda: topologies.random_in(10**6, 1000, seed=0)),
    ("`n` and `k`", lambda: topologies.random_regular_sequence(10**6, 1000, seed=0)),
    ("per round", lambda: topologies.erdos_renyi_sequence(10**6, p=0.5, seed=0)),
    ("`n` and `m`", lambda: topologies.d_equistatic(10**6, 1000, seed=0)),
    ("`n` and `m`", lambda: topologies.u_equistatic(10**6, 1000, seed=0)),
    ("`n` and `clique_size`", lambda: topologies.random_cliques(10**6, 10**6, seed=0)),
    ("per round", lambda: topologies.base_graph(10**6, 1000)),
    ("per round", lambda: topologies.hyper_hypercube(10**6, 1000)),
]


@pytest.mark.parametrize(("arguments", "call"), MANY)
def test_too_many_edges_are_refused(arguments, call):
    refused(ValueError, (arguments, "at most 50,000,000 edges"), call)


LEAST = {"small_world": 3} | dict.fromkeys(
    [
        *("barabasi_albert", "complete_bipartite", "d_equistatic", "dcliques", "greedy_swap"),
        *("decentralized_greedy_swap", "ideal_cliques", "od_equidyn", "one_peer_exponential"),
        *("ou_equidyn", "p_peer_exponential", "random_cliques", "random_in", "random_out"),
        *("random_regular", "random_regular_sequence", "rotating_cliques", "u_equistatic"),
    ],
    2,
)
VALUES = {"reward": nothing, "seed": 1, "p": 0.5, "p_in": 0.5, "p_out": 0.5}
SIZED = {
    name: {
        key: VALUES.get(key, 2)
        for key, parameter in parameters(getattr(topologies, name)).items()
        if parameter.default is parameter.empty and key != "n"
    }
    for name in topologies.__all__
    if "n" in parameters(getattr(topologies, name))
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_out_of_range_are_refused(name):
    least, generator = LEAST.get(name, 1), getattr(topologies, name)
    message = f"`n` must be at least {least}, got {least - 1}"
    refused(ValueError, message, lambda: generator(**SIZED[name], n=least - 1))
    for n, shown in ((10**8, "100000000"), (10**30, "1000000"), (10**5000, "about 10")):
        with pytest.raises(ValueError, match=f"`n` must be at most 10,000,000, .*got {shown}"):
            generator(**SIZED[name], n=n)
