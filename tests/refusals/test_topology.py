"""What graphs, sequences and their conversion refuse: malformed and oversized input, too."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests.refusals import named, refused
from tests.topology.samples import directed, pyg
from topofl import TopologyError, data, history, metrics, mixing, topologies
from topofl._support.check import NODES_LIMIT
from topofl.topology import Topology, TopologySequence, as_topology, from_edges

RING, PATH = topologies.ring(3), nx.path_graph(3)
SHARES = nx.DiGraph([(1, 0, {"weight": 0.3})])
HEAVY = nx.DiGraph([(1, 0, {"weight": 0.8}), (2, 0, {"weight": 0.9})])
LOOPED = nx.DiGraph([(0, 0, {"weight": 0.3}), *SHARES.edges(data=True)])
LOOP = nx.Graph([(0, 1), (1, 1), (1, 2)])
LONG = from_edges(np.stack([np.arange(99_999), np.arange(1, 100_000)], axis=1), 100_000)
PAIRS = torch.tensor([[0, 1], [1, 2]])
BARE = pyg(edge_index=PAIRS, num_nodes=3)
LABELED = pyg(edge_index=PAIRS, num_nodes=3, n_id=torch.tensor([2, 0, 1]))
NAMED = nx.Graph([("f", "e"), ("d", "c")])
FAR = sparse.coo_array(([1.0], ([0], [1])), shape=(2**40, 2**40))
OTHERS = nx.Graph([("e", "d"), ("c", "z")])


def with_entry(value, place=(0, 1)):
    matrix = np.zeros((2, 2), dtype=type(value))
    matrix[place] = value
    return matrix


def grouped(*groups):
    return Topology(RING.adjacency, groups=groups)


def sampled(own_weights=False, **changes):
    graph = pyg(**{"edge_index": PAIRS, "num_nodes": 3} | changes)
    return as_topology(graph, own_weights=own_weights)


def plot(**arguments):
    return topologies.ring(6).plot(**arguments)


def growing(t):
    return nx.path_graph(3 + t)


def rounds(*graphs):
    """Return round 1 of a sequence of these graphs, of which round 0 was asked for first."""
    sequence = TopologySequence(graphs[0].n, graphs.__getitem__, name="both")
    sequence.at(0)
    return sequence.at(1)


def crowded():
    """Return a list of lists with more places than values."""
    matrix = sparse.lil_array(topologies.ring(6).to_scipy())
    matrix.rows[0] = [0, 1] * 10_000
    return matrix


ROWS = [
    # Topology
    (ValueError, "at least one node, got shape (2, 3)", lambda: Topology(np.zeros((2, 3)))),
    (ValueError, "with at least one node", lambda: Topology(np.zeros((0, 0)))),
    (ValueError, "finite, got nan at (0, 1)", lambda: Topology(with_entry(math.nan))),
    (ValueError, "finite, got inf at (1, 0)", lambda: Topology(with_entry(math.inf, (1, 0)))),
    (ValueError, "no negative entry, got -2 at (0, 1)", lambda: Topology(with_entry(-2))),
    (ValueError, "self-loops, got one at node 1", lambda: Topology(with_entry(3, (1, 1)))),
    (TypeError, "real numbers, got dtype complex128", lambda: Topology(with_entry(1j))),
    (TypeError, "`adjacency` must hold real numbers", lambda: Topology(with_entry("1"))),
    (ValueError, "`groups` must be disjoint", lambda: grouped((0, 1), (1, 2))),
    (ValueError, "`groups` must hold nodes 0..2, got -1", lambda: grouped((-1, 1))),
    (ValueError, "`groups` must hold nodes 0..2, got 3", lambda: grouped((0, 3))),
    (TypeError, "sequences of nodes, which are integers, got", lambda: grouped((0.7, 1))),
    (
        ValueError,
        "`nodes` must have one distinct label for each of the n=3 nodes",
        lambda: Topology(RING.adjacency, nodes=("a", "b")),
    ),
    (ValueError, "one distinct label", lambda: Topology(RING.adjacency, nodes=("a", "b", "a"))),
    (ValueError, "`node` must be between 0 and 2, got -1", lambda: RING.in_neighbors(-1)),
    (ValueError, "`node` must be between 0 and 2, got 3", lambda: RING.in_neighbors(3)),
    (TopologyError, "graph, directed is directed", lambda: directed().algebraic_connectivity),
    (TopologyError, "of 4,294,967,296; use diameter or mean_distance", lambda: LONG.distances),
    # from_edges
    (ValueError, "`edges` must join nodes 0..2, got node 3", lambda: from_edges([(0, 3)], 3)),
    (ValueError, "`edges` must join nodes 0..2, got node -1", lambda: from_edges([(-1, 1)], 3)),
    (ValueError, "self-loops, got one at node 1", lambda: from_edges([(1, 1)], 3)),
    (TypeError, "integers, got dtype float64", lambda: from_edges([(0.0, 1.0)], 3)),
    (ValueError, "got shape (2, 3)", lambda: from_edges([(0, 1, 2), (1, 2, 0)], 3)),
    (ValueError, "(source, target), got shape (2,)", lambda: from_edges([0, 1], 3)),
    (ValueError, "must be pairs (source, target)", lambda: from_edges([(0, 1), (2,)], 3)),
    (ValueError, "`n` must be at least 1, got 0", lambda: from_edges([], 0)),
    (TypeError, "`n` must be an integer", lambda: from_edges([], 2.0)),
    (ValueError, "`n` must be at most 10,000,000", lambda: from_edges([(0, 1)], 10**7 + 1)),
    # Sequences
    (ValueError, "Topology of both must have n=3 nodes, round 1", lambda: rounds(RING, LONG)),
    (ValueError, "`t` must be at least 0, got -1", lambda: as_topology([RING, RING]).at(-1)),
    (TypeError, "`t` must be an integer", lambda: as_topology([RING, RING]).at(0.5)),
    (ValueError, "must be at most 10,000,000", lambda: TopologySequence(10**7 + 1, lambda t: RING)),
    (
        ValueError,
        "same labels in the same order, those of round 1 differ from those of",
        lambda: rounds(as_topology(NAMED), as_topology(OTHERS)),
    ),
    (
        ValueError,
        ("same labels in the same order, those of round 1", "or drop labels"),
        lambda: rounds(as_topology(NAMED), topologies.ring(4)),
    ),
    (ValueError, "n=3 nodes, round 1 has 4", lambda: as_topology(growing).at(1)),
    (ValueError, "graph 1 has no node 'f', which the first", lambda: as_topology([NAMED, OTHERS])),
    (
        ValueError,
        "same nodes, round 1 has no node 'f', which the first one has",
        lambda: as_topology([NAMED, OTHERS].__getitem__, name="both").at(1),
    ),
    (ValueError, "graphs of the same nodes", lambda: as_topology([NAMED, topologies.ring(4)])),
    (
        ValueError,
        "[3, 4]; give each graph all nodes",
        lambda: as_topology([PATH, nx.path_graph(4)]),
    ),
    (TypeError, "of a sequence must be a single graph", lambda: as_topology([PATH, [PATH]])),
    (TypeError, "`graph` must be", lambda: as_topology(lambda t: "ring")),
    (
        TypeError,
        ("`graph` must return a graph for round 0", "raised KeyError"),
        lambda: as_topology({}.__getitem__, name="lookup"),
    ),
    # Conversion
    (ValueError, "parallel edges", lambda: as_topology(nx.MultiGraph([(0, 1), (0, 1)]))),
    (ValueError, "`graph` must have at least one node", lambda: as_topology(nx.Graph())),
    (ValueError, "(0, 1)", lambda: as_topology(nx.Graph([(0, 1, {"weight": math.nan})]))),
    (ValueError, "must have no negative entry", lambda: as_topology(with_entry(-1.0))),
    (ValueError, "got shape (3, 4)", lambda: as_topology(np.zeros((3, 4)))),
    (ValueError, "at least one node", lambda: as_topology(np.zeros((0, 0)))),
    (ValueError, "got none; for nodes without edges pass `n`", lambda: as_topology([])),
    (TypeError, "got dtype float64", lambda: as_topology([(0, 1.5), (1, 2.5)])),
    (ValueError, "`edges` must join nodes 0..0, got node -1", lambda: as_topology([(0, -1)])),
    (ValueError, "`edges` must join nodes 0..2, got node 5", lambda: as_topology([(0, 5)], n=3)),
    (TypeError, "graph, a matrix or a list of pairs", lambda: as_topology([(0, 1), (1, 2, 3)])),
    (TypeError, "Sparse", lambda: as_topology(torch.eye(2).to_sparse())),
    (TypeError, "detach", lambda: as_topology(torch.eye(2, requires_grad=True))),
    (TypeError, "a networkx or PyG graph", lambda: as_topology(np.eye(2) * 1j)),
    (TypeError, ("a networkx or PyG graph", "got str"), lambda: as_topology("ring")),
    (TypeError, "`graph` must be", lambda: as_topology(np.zeros((2, 3, 3)))),
    (ValueError, "got one at node 1", lambda: as_topology(LOOP)),
    (ValueError, "got one at node 1", lambda: as_topology([(0, 1), (1, 1), (1, 2)])),
    (ValueError, "self-loop", lambda: as_topology([("a", "a"), ("a", "b")])),
    (ValueError, "be 3, the number of nodes of `graph`, got 5", lambda: as_topology(PATH, n=5)),
    (ValueError, "`n` must be left out or be 2", lambda: as_topology([("a", "b")], n=3)),
    (TypeError, "pairs of texts or of integers, got", lambda: as_topology([("a", 0.5)])),
    (
        ValueError,
        "0; if nodes have no edges, pass n=4",
        lambda: as_topology([(1, 2), (2, 3), (3, 1)]),
    ),
    (
        ValueError,
        "got none with 2, 3, 4 and 4 more; ",
        lambda: as_topology([(0, 1), (1, 9), (9, 0)]),
    ),
    (
        ValueError,
        ("node 0 has a self-loop of 0.3 and 0.3 from others", "drop_self_loops"),
        lambda: as_topology(LOOPED, own_weights=True),
        lambda: as_topology(LOOPED, own_weights=True, drop_self_loops=True),
    ),
    (
        ValueError,
        ("node 0 sum to 1.7; ", "(u, v) is the weight that u gives to v, reverse it"),
        lambda: as_topology(HEAVY, own_weights=True),
        lambda: as_topology(HEAVY.reverse(), own_weights=True),
    ),
    (ValueError, "True or False, got 'yes'", lambda: as_topology(SHARES, own_weights="yes")),
    # Sizes
    (ValueError, "got 10000000; number them 0..n-1", lambda: as_topology([(0, 10**7)])),
    (ValueError, "`graph` must have nodes below", lambda: as_topology([(0, 2**63)])),
    (ValueError, "`graph` must have nodes below", lambda: as_topology([(0, 10**5000)])),
    (ValueError, "must be at most 10,000,000", lambda: Topology(FAR)),
    (ValueError, "must be at most 10,000,000", lambda: mixing.from_weights(FAR)),
    (
        ValueError,
        ("`y` must be below 1,000,000", "got 1000000 at index 1; number the classes"),
        lambda: data.from_arrays(np.zeros((3, 2)), [0, 10**6, 1]),
    ),
    (
        ValueError,
        "`n_classes` must be between 1 and 1000000",
        lambda: data.from_arrays(np.zeros((3, 2)), [0, 1, 1], n_classes=10**6 + 1),
    ),
    (ValueError, "`rows` that do not fit its `data`", lambda: Topology(crowded())),
    # Pictures
    (ValueError, "shape (n, 2) with n=6, got (5, 2)", lambda: plot(positions=np.zeros((5, 2)))),
    (ValueError, "finite", lambda: plot(positions=np.full((6, 2), np.nan))),
    (TypeError, "`positions` must be an", lambda: plot(positions="circle")),
    (ValueError, "with n=6, got (5, 3)", lambda: plot(label_counts=np.ones((5, 3)))),
    (ValueError, "must have shape (n, classes)", lambda: plot(label_counts=np.ones(6))),
    (ValueError, "got -1 for node 0, class 0", lambda: plot(label_counts=-np.ones((6, 2)))),
    (TypeError, "`label_counts` must be an", lambda: plot(label_counts="digits")),
    (ValueError, "one label for each of the n=6 nodes, got 1", lambda: plot(labels=["a"])),
    (ValueError, "`rounds` must be at least 1", lambda: as_topology([RING, RING]).plot(0)),
    (ValueError, "shape", lambda: as_topology([RING, RING]).plot(positions=np.zeros((4, 2)))),
    (
        ValueError,
        "at most 1500 nodes, got n=1501",
        lambda: mixing.metropolis_hastings(topologies.ring(1_501)).plot_spectrum(),
    ),
    # PyG
    (ValueError, "must have an `edge_index`", lambda: as_topology(pyg(x=torch.zeros(3, 1)))),
    (ValueError, "must join nodes 0..1, got 0 to 2", lambda: sampled(num_nodes=2)),
    (ValueError, "must join nodes 0..2, got -2 to 0", lambda: sampled(edge_index=-PAIRS)),
    (TypeError, "`edge_index` must be integers", lambda: sampled(edge_index=PAIRS.float())),
    (ValueError, "parallel edges", lambda: sampled(edge_index=PAIRS[:, [0, 0]])),
    (ValueError, "self-loops, got one at node 0", lambda: sampled(edge_index=PAIRS[[0, 0]])),
    (ValueError, "`num_nodes` must be at most 10,000,000", lambda: sampled(num_nodes=2**40)),
    (
        ValueError,
        ("`edge_index` must have shape (2, E), ", "got (3, 2)"),
        lambda: sampled(edge_index=torch.zeros((3, 2), dtype=torch.long)),
    ),
    (
        ValueError,
        "`edge_attr` must have one number per edge, here 2 edges, got shape (3, 2)",
        lambda: sampled(edge_attr=torch.ones(3, 2)),
    ),
    (
        ValueError,
        (
            "`edge_weight` must have one number per edge, here 2 edges, got shape (2, 2); ",
            "choose one, as in graph.edge_weight[:, 0], or remove edge_weight",
        ),
        lambda: sampled(edge_weight=torch.ones(2, 2)),
    ),
    (
        ValueError,
        "`edge_attr` must have one number per edge to be mixing weights, got features of shape "
        "(2, 3); choose a column: graph.edge_weight = graph.edge_attr[:, 0]",
        lambda: sampled(own_weights=True, edge_attr=-torch.ones(2, 3)),
    ),
    (ValueError, "graph 0 has one, graph 1 has none", lambda: as_topology([LABELED, BARE])),
    (ValueError, "graph 1 has one, graph 0 has none", lambda: as_topology([BARE, LABELED])),
    (
        ValueError,
        "round 0 has one, round 1 has none",
        lambda: as_topology(lambda t: LABELED if t == 0 else BARE).at(1),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


def crafted(form, bad):
    """Return a sparse matrix whose entries lie elsewhere than its shape allows."""
    matrix = sparse.coo_array(topologies.ring(6).to_scipy()).asformat(form)
    if form == "coo":
        matrix.coords[0][0] = bad
    elif form == "lil":
        matrix.rows[0][0] = bad
    else:
        matrix.indices[0] = bad
    return matrix


def with_pointers(*pointers):
    matrix = sparse.csr_array(RING.to_scipy())
    matrix.indptr = np.array(pointers, dtype=np.int32)
    return matrix


FAR_AWAY = 10**8
CRAFTED = [
    *(crafted(form, FAR_AWAY) for form in ("csr", "csc", "coo", "lil", "bsr")),
    *(crafted(form, -FAR_AWAY) for form in ("csr", "csc", "coo", "lil", "bsr")),
    with_pointers(0, 2, FAR_AWAY, 6),
    with_pointers(0, FAR_AWAY, 0, 0),
    with_pointers(0, 2, 4, FAR_AWAY),
    with_pointers(-FAR_AWAY, 2, 4, 6),
    with_pointers(0, -1, -1, -1),
    with_pointers(0, 6),
]
DOORS = [
    Topology,
    as_topology,
    lambda matrix: as_topology(matrix, drop_self_loops=True),
    lambda matrix: as_topology([matrix], own_weights=True),
    mixing.MixingMatrix,
    mixing.from_weights,
    lambda matrix: mixing.from_weights(matrix, edges="u->v"),
]


@pytest.mark.parametrize("matrix", CRAFTED, ids=lambda matrix: matrix.format)
@pytest.mark.parametrize("door", DOORS)
def test_indices_outside_of_sparse_matrices_are_refused(matrix, door):
    message = "must be a well-formed sparse matrix, got ", "; build it again"
    refused(ValueError, message, lambda: door(matrix))


MASKED = np.ma.masked_array([[0.0, 1.0], [1.0, 0.0]], mask=[[False, True], [False, False]])


@pytest.mark.parametrize(
    "door",
    [
        Topology,
        as_topology,
        lambda array: as_topology([array, array]),
        lambda array: as_topology(list(array)),
        lambda array: from_edges(array.astype(int), 3),
        mixing.MixingMatrix,
        mixing.from_weights,
        mixing.average_of_chosen,
        lambda array: mixing.average_of(array[0]),
        lambda array: topologies.greedy_swap(array.astype(int) + 1, clique_size=2, seed=0),
        lambda array: topologies.remove_edges(RING, array.astype(int)),
        lambda array: topologies.ring(2).plot(positions=array),
        lambda array: topologies.ring(2).plot(label_counts=array),
        lambda array: data.from_arrays(array, [0, 1]),
        lambda array: data.from_arrays(np.zeros((2, 1)), array[0].astype(int)),
        metrics.consensus_distance,
        lambda array: metrics.clique_skew([array[0].astype(int)], np.ones((2, 2), int)),
        lambda array: history.Personal.of(array[0]),
    ],
)
def test_masked_entries_are_refused(door):
    message = "must have no masked entries, got ", "; replace them first, as in array.fil"
    refused(ValueError, message, lambda: door(MASKED))


def test_what_is_near_a_refusal_is_taken():
    assert as_topology(np.ma.masked_array([[0, 1], [1, 0]])).n_edges == 1
    assert from_edges([(0, NODES_LIMIT - 1)], NODES_LIMIT).n_edges == 1
    assert as_topology(nx.Graph([(0, 10**5000)])).nodes == (0, 10**5000)
    assert topologies.erdos_renyi(10, 0.5, seed=10**30).n == 10  # seeds are no sizes
    assert Topology(RING.adjacency, groups=((np.int8(0), torch.tensor(2)),)).groups == ((0, 2),)
    assert as_topology([(1, 2), (2, 3), (3, 1)], n=4).out_degrees.tolist() == [0, 2, 2, 2]
