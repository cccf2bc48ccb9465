"""What mixing matrices and the rules of weights refuse."""

import dataclasses
from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch

from tests.mixing.samples import RULES, TAKEN, directed_path, shares
from tests.refusals import named, refused
from topofl import mixing, topologies
from topofl.mixing import average_of, average_of_chosen, from_weights
from topofl.topology import Topology, TopologyError, as_topology, from_edges

RING, LINE = topologies.ring(3), directed_path()
MATRIX, W = mixing.metropolis_hastings(topologies.ring(4)), mixing.uniform(LINE)
LOW = torch.softmax(torch.arange(64.0).reshape(8, 8), 1).half()
PUSHED = nx.to_numpy_array(shares(), nodelist=range(3))  # (source, target): columns sum to 1
HEAVY = Topology(2 * LINE.adjacency)
LABELED = from_weights(nx.relabel_nodes(shares(), dict(enumerate("cba"))))
TURNED = as_topology(nx.relabel_nodes(nx.complete_graph(3), dict(enumerate("abc"))))
BACK = from_edges([(1, 0), (2, 1)], 3, directed=True, name="reverse")
OFF = (r"node 1 gives 0.5 to node 0", "but there is no edge 0 -> 1 (2 such")


def without_loops(weight=0.1):
    graph = shares()
    graph.remove_edges_from([(i, i) for i in range(3)])
    graph[1][0]["weight"] = weight
    return graph


def written(array):
    array[0] = 1


ROWS = [
    (ValueError, "read-only", lambda: written(MATRIX.weights.data)),
    (ValueError, ("`weights` must be a square matrix", "(2, 3)"), lambda: from_weights(PUSHED[:2])),
    (ValueError, "an array of numbers, got list", lambda: from_weights([[1, 2], [3]])),
    (TypeError, "real numbers, got dtype complex128", lambda: from_weights(np.eye(2) * 1j)),
    (TypeError, "`weights` must hold real numbers", lambda: from_weights("ring")),
    (ValueError, "finite, got nan at (1, 0)", lambda: from_weights([[1, 0], [np.nan, 1]])),
    (ValueError, "negative entry, got -1 at (0, 1)", lambda: from_weights([[2, -1], [-1, 2]])),
    (ValueError, "rows or columns that sum to 1", lambda: from_weights(1.01 * LOW)),
    (ValueError, "sum to 1", lambda: from_weights(LOW.double()), lambda: from_weights(LOW)),
    (ValueError, "sum to 1; row 0 sums", lambda: from_weights([[0.5, 0.4], [0.5, 0.5]])),
    (
        ValueError,
        "`weights` must have rows or columns that sum to 1",
        lambda: from_weights([[0.5, 0.5 + 1e-7], [0.5, 0.5 + 1e-6]]),
        lambda: from_weights([[0.5, 0.5 + 1e-10], [0.5, 0.5]]),
    ),
    (ValueError, OFF, lambda: W.check_on(BACK), lambda: W.check_on(LINE)),
    (ValueError, "(1 such", lambda: from_weights([[1, 0], [0.5, 0.5]]).check_on(from_edges([], 2))),
    (ValueError, "got n=3, ring(n=4) has n=4", lambda: W.check_on(topologies.ring(4))),
    (ValueError, "'u->v', 'u<-v', got 'v->u'", lambda: from_weights(TAKEN, edges="v->u")),
    (ValueError, "own_weights=True", lambda: from_weights(without_loops())),
    (TypeError, "numbers as edge weights", lambda: from_weights(without_loops("heavy"))),
    (ValueError, "node 'a' is missing; use", lambda: from_weights(shares(), TURNED)),
    (
        ValueError,
        ("order: node 'a' is row 2 of from_weights(n=3) and node 0", "from_weights(graph, topo"),
        lambda: LABELED.check_on(TURNED),
        lambda: from_weights(LABELED.weights).check_on(TURNED),
    ),
    (
        ValueError,
        ("node 0 is missing; use the same labels in both, or take rows", "nodes=()"),
        lambda: LABELED.check_on(RING),
        lambda: dataclasses.replace(LABELED, nodes=()).check_on(RING),
    ),
    (ValueError, "n=3 nodes", lambda: dataclasses.replace(LABELED, nodes=("a", "b"))),
    (
        ValueError,
        "or the transpose, from_weights(weights, edges='u->v')",
        lambda: mixing.check_pulls(from_weights(PUSHED, edges="u<-v")),
        lambda: mixing.check_pulls(from_weights(PUSHED, edges="u->v")),
    ),
    (
        ValueError,
        "those of its transpose are on edges: from_weights(weights, topology, edges=",
        lambda: from_weights(PUSHED, as_topology(shares(), drop_self_loops=True), edges="u<-v"),
    ),
    *(
        (
            TypeError,
            f"`topology` must be a Topology, got {type(x).__name__}",
            partial(lambda rule, x: rule(x), rule, x),
        )
        for rule in RULES
        for x in (nx.path_graph(3), topologies.one_peer_exponential(4), None)
    ),
    (ValueError, "'pull', 'push', got 'both'", lambda: mixing.uniform(RING, direction="both")),
    (TopologyError, "path is directed; use uniform", lambda: mixing.metropolis_hastings(LINE)),
    (TopologyError, "ring(n=3) has none", lambda: mixing.within_groups(RING)),
    (ValueError, "`share` must be in [0, 1)", lambda: mixing.lazy(W, share=1)),
    (ValueError, "`share`", lambda: mixing.lazy(W, share=-0.1), lambda: mixing.lazy(W, share=0)),
    (TypeError, "`mixing` must be a MixingMatrix, got Topology", lambda: mixing.lazy(RING)),
    (
        ValueError,
        "with `own_weights` must have weights that sum to at most 1 into each",
        lambda: Topology(2 * LINE.adjacency, own_weights=True),
        lambda: Topology(LINE.adjacency, own_weights=True),
    ),
    (ValueError, "sum to 2; use another rule", lambda: mixing.own_weights(HEAVY)),
    (
        ValueError,
        "all weights are 1, as of edges without weights: networkx",
        lambda: as_topology(nx.Graph([("a", "b"), ("b", "c")], w=0.3), own_weights=True),
    ),
    (ValueError, "one number per node, got shape (1, 2)", lambda: average_of([[1, 2]])),
    (ValueError, "shape (2,), got (1,)", lambda: average_of([1, 2], [True])),
    (ValueError, "finite and at least 0, got -1", lambda: average_of([1, -1])),
    (ValueError, "finite and at least 0, got inf", lambda: average_of([1, np.inf])),
    (
        ValueError,
        "`members` must include a node with examples",
        lambda: average_of([1, 0], [False, True]),
        lambda: average_of([1, 0], [True, False]),
    ),
    (ValueError, "`chosen`", lambda: average_of_chosen(np.ones((2, 3)), None)),
    (ValueError, "`chosen`", lambda: average_of_chosen(np.full((2, 2), np.nan), None)),
    (ValueError, "`sizes`", lambda: average_of_chosen(np.eye(2), [1, 0])),
    (ValueError, "`sizes`", lambda: average_of_chosen(np.eye(2), [1])),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)
