"""Figure 5 of D-Cliques: a graph whose nodes have one class each, made with seed 0."""

import numpy as np
from matplotlib.figure import Figure as Picture

from topofl import Topology, from_edges, metrics, topologies

from ..kit.claims import Claim
from ..kit.figure import Data, Figure
from ..kit.judging import judge_number

SEED = 0


CLASSES, CLIQUE_SIZE, STEPS = 10, 10, 1000


def described(graph: Topology, labels: np.ndarray) -> Data:
    """Return a graph and the class of each node as JSON values."""
    u, v = graph.edge_index
    edges = np.stack([u, v], axis=1)[u < v].tolist()
    return {
        "edges": edges,
        "groups": [list(group) for group in graph.groups],
        "labels": labels.tolist(),
    }


def graph_of(value: Data) -> Topology:
    """Return the graph from the output of :func:`described`."""
    return from_edges(value["edges"], len(value["labels"]), groups=value["groups"])


def label_counts_of(value: Data) -> np.ndarray:
    """Return the (n, 10) label counts, with one example per node."""
    return np.eye(CLASSES, dtype=np.int64)[value["labels"]]


def _compute_fig05() -> Data:
    graph = topologies.dcliques(
        n=100, clique_size=CLIQUE_SIZE, inter="fully_connected", steps=STEPS, seed=SEED
    )
    return described(graph, np.arange(100) % CLASSES)


def _draw_fig05(value: Data) -> Picture:
    picture = Picture((7, 7), layout="constrained")
    ax = picture.subplots()
    graph_of(value).plot(ax, label_counts=label_counts_of(value))
    ax.set_title("D-Cliques, n = 100, M = 10, colors: classes")
    return picture


def _claims_fig05(value: Data) -> list[Claim]:
    graph, counts = graph_of(value), label_counts_of(value)
    u, v = np.array(value["edges"]).T
    clique = np.empty(graph.n, np.int64)
    for k, group in enumerate(graph.groups):
        clique[list(group)] = k
    return [*_claims_of_cliques(graph, counts), *_claims_of_bridges(graph, clique[u], clique[v])]


def _claims_of_cliques(graph: Topology, counts: np.ndarray) -> list[Claim]:
    complete = sum((counts[list(group)].sum(axis=0) == 1).all() for group in graph.groups)
    skew = float(metrics.clique_skew(graph.groups, counts).max())
    inside = [graph.adjacency[list(group)][:, list(group)].nnz // 2 for group in graph.groups]
    return [
        judge_number(
            "Cliques have the global class distribution",
            "highest skew of a clique",
            skew,
            0,
            within=1e-9,
            why="up to rounding; 10 nodes can have each of 10 classes",
        ),
        judge_number(
            "Every clique holds each class once",
            "number of such cliques",
            complete,
            10,
            within=0,
            why="all 10 cliques",
        ),
        judge_number(
            "Cliques are fully connected",
            "fewest edges in a clique",
            min(inside),
            45,
            within=0,
            why="all pairs of 10 nodes",
            paper="45",
        ),
    ]


def _claims_of_bridges(graph: Topology, clique_u: np.ndarray, clique_v: np.ndarray) -> list[Claim]:
    """Return the claims on edges between cliques, given the cliques of all edges' ends."""
    q = len(graph.groups)
    joins = np.zeros((q, q), np.int64)
    np.add.at(joins, (clique_u, clique_v), 1)
    joins = (joins + joins.T)[np.triu_indices(q, 1)]
    spread = max(np.ptp(graph.out_degrees[list(group)]) for group in graph.groups)
    return [
        judge_number(
            "Each clique has exactly one edge with each other clique",
            "pairs of cliques with exactly one edge",
            (joins == 1).sum(),
            45,
            within=0,
            why="all pairs of 10 cliques",
        ),
        judge_number(
            "These edges are spread evenly over the nodes of a clique",
            "largest difference of degrees in a clique",
            spread,
            1,
            within=0,
            why="the minimum for 9 edges to other cliques on 10 nodes",
        ),
        judge_number(
            "No two nodes are farther apart than 3",
            "pairs of nodes farther apart",
            (graph.distances > 3).sum() / 2,
            0,
            within=0,
            why="the bound applies to all pairs",
            paper="3",
        ),
        judge_number(
            "Nodes have 9.9 edges on average",
            "mean degree",
            2 * graph.n_edges / graph.n,
            9.9,
            within=0,
            why="9 in the clique, and 9 to other cliques shared by 10 nodes",
        ),
    ]


FIG05 = Figure(
    "dcliques-fig05",
    "D-Cliques with 100 nodes of one class each, cliques of 10, fully connected cliques",
    compute=lambda setting, store: _compute_fig05(),
    draw=_draw_fig05,
    claims=_claims_fig05,
    differences=lambda setting: (
        "one graph, made by 1,000 steps of Greedy-Swap with seed 0; the paper does not say how its "
        "graph was made",
    ),
)
