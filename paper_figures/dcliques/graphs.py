"""Figures of D-Cliques about graphs of nodes with one class each, made with seed 0.

Figure 5 is such a graph, figure 6 the bias of an edge between cliques, which Clique Averaging
removes. Edges, messages and spectral gaps are those of the paper's abstract and text.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from topofl import MixingMatrix, Topology, from_edges, metrics, mixing, topologies

from ..kit.claims import CHECK, Claim, exactly, judge
from ..kit.paper import Data
from ..kit.store import graph_numbers
from .arms import ALL, DECLARED, EXPONENTIAL_LABEL, INTER

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
    groups = [list(group) for group in graph.groups]
    complete = sum((counts[group].sum(axis=0) == 1).all() for group in groups)
    return [
        judge(
            "Cliques have the global class distribution",
            "highest skew of a clique",
            float(metrics.clique_skew(graph.groups, counts).max()),
            exactly(0, "up to rounding; 10 nodes can have each of 10 classes", within=1e-9),
        ),
        judge(
            "Every clique holds each class once",
            "number of such cliques",
            complete,
            exactly(10, "all 10 cliques"),
        ),
        *_claims_of_clique_edges(graph, groups),
        judge(
            "No two nodes are farther apart than 3",
            "pairs of nodes farther apart",
            (graph.distances > 3).sum() / 2,
            exactly(0, "the bound applies to all pairs"),
            paper="3",
        ),
        judge(
            "Nodes have 9.9 edges on average",
            "mean degree",
            2 * graph.n_edges / graph.n,
            exactly(9.9, "9 in the clique, and 9 to other cliques shared by 10 nodes"),
        ),
    ]


def _claims_of_clique_edges(graph: Topology, groups: Sequence[Sequence[int]]) -> list[Claim]:
    member = np.stack([np.isin(np.arange(graph.n), group) for group in groups]).astype(int)
    ends = member @ (graph.adjacency @ member.T)  # edges by pair of cliques; twice those inside
    joins = ends[np.triu_indices(len(groups), 1)]
    return [
        judge(
            "Cliques are fully connected",
            "fewest edges in a clique",
            np.diag(ends).min() // 2,
            exactly(45, "all pairs of 10 nodes"),
            paper="45",
        ),
        judge(
            "Each clique has exactly one edge with each other clique",
            "pairs of cliques with exactly one edge",
            (joins == 1).sum(),
            exactly(45, "all pairs of 10 cliques"),
        ),
        judge(
            "These edges are spread evenly over the nodes of a clique",
            "largest difference of degrees in a clique",
            max(np.ptp(graph.out_degrees[group]) for group in groups),
            exactly(1, "the minimum for 9 edges to other cliques on 10 nodes"),
        ),
    ]


FIG05 = DECLARED.figure(
    "fig05", compute=lambda setting, store: _compute_fig05(), draw=_draw_fig05, claims=_claims_fig05
)


PINK, GREEN = 1, 4
"""Classes, by their colors in pictures of graphs."""

CLASS_COLORS = (
    *("#44AA99", "#CC6677", "#332288", "#DDCC77", "#117733"),
    *("#88CCEE", "#882255", "#999933", "#AA4499", "#BBBBBB"),
)
"""Colors of the classes, as in pictures of graphs."""

A, B = PINK, CLIQUE_SIZE + PINK
"""Node A has no edge to the other clique; node B has one, to the green node of A's clique."""


def _compute_fig06() -> Data:
    cliques = [range(CLIQUE_SIZE), range(CLIQUE_SIZE, 2 * CLIQUE_SIZE)]
    edges = [pair for clique in cliques for pair in combinations(clique, 2)]
    graph = from_edges([*edges, (GREEN, B)], 2 * CLIQUE_SIZE, groups=cliques)
    rules = {"without": mixing.metropolis_hastings(graph), "with": mixing.within_groups(graph)}
    return described(graph, np.arange(graph.n) % CLASSES) | {
        name: {"A": _row(weights, A), "B": _row(weights, B)} for name, weights in rules.items()
    }


def _row(weights: MixingMatrix, node: int) -> list[float]:
    return weights.weights[[node]].toarray()[0].tolist()


def _shares(value: Data, averaging: str, node: str) -> np.ndarray:
    """Return the share of each class in a node's averaged gradient."""
    return np.bincount(value["labels"], weights=value[averaging][node], minlength=CLASSES)


def _draw_fig06(value: Data) -> Picture:
    picture = Picture((10, 7), layout="constrained")
    for (left, right), node in zip(picture.subplots(2, 2), ("A", "B"), strict=True):
        _draw_weights(value, node, left)
        _draw_shares(value, node, right)
    return picture


def _draw_weights(value: Data, node: str, ax: Axes) -> None:
    """Draw the two cliques, joined by an edge, with the weights of a node."""
    turns = np.arange(CLIQUE_SIZE) / CLIQUE_SIZE
    first, second = turns - turns[GREEN], turns - turns[PINK] + 0.5
    angles = 2 * np.pi * np.concatenate([first, second])
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    centers = np.repeat([[0.0, 0.0], [3.2, 0.0]], CLIQUE_SIZE, axis=0)
    texts = [f"{110 * weight:.0f}" if weight else "" for weight in value["without"][node]]
    graph_of(value).plot(
        ax, label_counts=label_counts_of(value), labels=texts, positions=centers + places
    )
    for name, k in (("A", A), ("B", B)):
        place = centers[k] + 0.66 * places[k]
        ax.annotate(name, place, fontsize=12, weight="bold", ha="center", va="center")
    ax.set_title(f"weights of node {node}, in 110ths")


def _draw_shares(value: Data, node: str, ax: Axes) -> None:
    shares = 100 * _shares(value, "without", node)
    ax.bar(range(CLASSES), shares, color=CLASS_COLORS, label="by all weights")
    fair = 100 * _shares(value, "with", node)
    ends, steps = np.arange(-1, CLASSES + 1), [fair[0], *fair, fair[-1]]
    ax.step(ends, steps, where="mid", color="black", label="Clique Averaging")
    ax.set(xlim=(-0.6, CLASSES - 0.4), xticks=range(CLASSES), ylim=(0, 1.25 * shares.max()))
    ax.set(xlabel="class", ylabel="share of the gradient, %", title=f"gradient of node {node}")
    ax.legend(loc="upper right", ncols=2)


def _farthest(values: np.ndarray, expected: float) -> float:
    """Return the value with the largest distance from the expected one."""
    return float(values[np.abs(values - expected).argmax()])


def _claims_fig06(value: Data) -> list[Claim]:
    a, b = (np.array(value["without"][node]) for node in ("A", "B"))
    shares = _shares(value, "without", "B")
    others = _farthest(np.delete(a[:CLIQUE_SIZE], [PINK, GREEN]), 11 / 110)
    own, green = "A's own weight", "A's weight of the green node, which has an edge to B"
    eight = "of 8 weights, the one farthest from the expected value"
    weights = {
        "Node A is biased towards its own class": (own, a[A], 12),
        "Node A is biased against the green class": (green, a[GREEN], 10),
        "Node A gives its other neighbors equal weights": (eight, others, 11),
    }
    return [
        *(
            judge(statement, what, weight, exactly(k / 110, "by equation 2"), paper=f"{k}/110")
            for statement, (what, weight, k) in weights.items()
        ),
        judge(
            "All weights of node B, its own included, are equal",
            "the weight farthest from the expected value",
            _farthest(b[b > 0], 1 / 11),
            exactly(1 / 11, "by equation 2: itself and 10 neighbors"),
            paper="1/11",
        ),
        judge(
            "The green class counts twice at node B",
            "ratio of its share to that of another class, the one farthest from 2",
            _farthest(shares[GREEN] / np.delete(shares, GREEN), 2),
            exactly(2, "one neighbor in the clique and one in the other clique"),
            paper="2",
        ),
        *(
            judge(
                f"Clique Averaging removes the bias at node {node}",
                "largest difference between class shares in its gradient",
                float(np.ptp(_shares(value, "with", node))),
                exactly(0, "the clique has every class once"),
            )
            for node in ("A", "B")
        ),
    ]


FIG06 = DECLARED.figure(
    "fig06", compute=lambda setting, store: _compute_fig06(), draw=_draw_fig06, claims=_claims_fig06
)


JOINED_CLIQUES, SMALL_WORLD_CLIQUES = "fully connected cliques", "small world of cliques"
FRACTAL_CLIQUES, RING_OF_CLIQUES = "fractal of cliques", "ring of cliques"
_NAMES = (JOINED_CLIQUES, SMALL_WORLD_CLIQUES, FRACTAL_CLIQUES, RING_OF_CLIQUES)
INTER_CLIQUES = dict(zip(_NAMES, INTER.values(), strict=True))
"""Ways to join cliques, by label in figures with other kinds of graphs."""


def _compute_numbers() -> Data:
    """Return the numbers of each graph, by number of nodes (a string, as in JSON) and label."""
    small = {EXPONENTIAL_LABEL: topologies.exponential(100), ALL: topologies.fully_connected(100)}
    graphs = {
        "100": _cliques(100) | small,
        "1000": _cliques(1000) | {ALL: topologies.fully_connected(1000)},
    }
    return {
        n: {label: _numbers(graph) for label, graph in some.items()} for n, some in graphs.items()
    }


def _cliques(n: int) -> dict[str, Topology]:
    return {
        label: topologies.dcliques(
            n=n, clique_size=CLIQUE_SIZE, inter=inter, steps=10 * n, seed=SEED
        )
        for label, inter in INTER_CLIQUES.items()
    }


def _numbers(graph: Topology) -> dict[str, float]:
    """Return edges and messages per node (with Clique Averaging on cliques), and spectral gap."""
    weights = mixing.metropolis_hastings(graph)
    gradients = mixing.within_groups(graph) if graph.groups else None
    numbers: dict[str, float] = graph_numbers(graph, weights)
    for name in ("paper", "exact"):
        cost = metrics.round_cost(weights, 1, gradient_mixing=gradients, accounting=name)
        numbers[f"messages_{name}"] = cost.messages / graph.n
    return numbers | {"highest_degree": int(graph.out_degrees.max())}


def _draw_numbers(value: Data) -> Picture:
    picture = Picture((11, 4.5), layout="constrained")
    for ax, (n, graphs) in zip(
        np.atleast_1d(picture.subplots(1, len(value))), value.items(), strict=True
    ):
        _draw_bars(ax, graphs)
        ax.set(yscale="log", ylim=(1, 2 * int(n)), ylabel="per node, per round")
        ax.set_title(f"{int(n):,} nodes")
    return picture


def _draw_bars(ax: Axes, graphs: Mapping[str, Mapping[str, float]]) -> None:
    """Draw three bars per graph: edges, and messages in both accountings."""
    shown = {
        "degree": ("edges", "#BBBBBB"),
        "messages_exact": ("messages, exact", "#88CCEE"),
        "messages_paper": ("messages, as in the paper", "#332288"),
    }
    for k, (key, (label, color)) in enumerate(shown.items()):
        places, heights = np.arange(len(graphs)) + 0.27 * (k - 1), [g[key] for g in graphs.values()]
        bars = ax.bar(places, heights, 0.27, label=label, color=color, edgecolor=color)
        ax.bar_label(bars, fmt="{:.4g}", fontsize=6)
    ax.set_xticks(range(len(graphs)), [textwrap.fill(label, 12) for label in graphs], fontsize=8)
    ax.legend(fontsize=7, loc="upper left")


UNIT = "one unit of the last digit that the paper prints, which may be rounded or truncated"

Numbers = Mapping[str, Mapping[str, float]]
"""Numbers of the graphs of one size, by label."""


def _claims_numbers(value: Data) -> list[Claim]:
    hundred, thousand = value["100"], value["1000"]
    return [
        *_claims_of_edges(thousand),
        *_claims_of_messages(thousand),
        *_claims_of_joins(thousand),
        *_claims_of_hundred(hundred),
        *(
            judge(
                f"Another implementation finds the same spectral gap: {label}, n = {int(n):,}",
                "1 - second largest modulus of an eigenvalue",
                value[n][label]["gap"],
                exactly(gap, "its number of digits, and random ties between nodes", within=within),
                kind=CHECK,
            )
            for n, gaps in DECLARED["gaps"].items()
            for label, (gap, within) in gaps.items()
        ),
    ]


def _saved(statement: str, statistic: str, share: float, expected: int) -> Claim:
    """Return the claim that `expected` % are saved, where `share` remains."""
    saved, bound = 100 * (1 - share), exactly(expected, UNIT, within=1)
    return judge(statement, statistic, saved, bound, paper=f"{expected} %")


DEGREE, EDGES = "mean degree, n = 1,000", "edges saved in %, n = 1,000"


def _claims_of_edges(graphs: Numbers) -> list[Claim]:
    joined, full = graphs[JOINED_CLIQUES], graphs[ALL]
    return [
        judge(
            "D-Cliques have 18.9 edges per node",
            DEGREE,
            joined["degree"],
            exactly(18.9, "9 in the clique, and 99 to other cliques shared by 10 nodes"),
            paper="18.9",
        ),
        judge(
            "Fully connected nodes have 999 edges",
            DEGREE,
            full["degree"],
            exactly(999, "all other nodes"),
            paper="999",
        ),
        _saved("D-Cliques have 98 % fewer edges", EDGES, joined["degree"] / full["degree"], 98),
    ]


def _claims_of_messages(graphs: Numbers) -> list[Claim]:
    joined, full = graphs[JOINED_CLIQUES], graphs[ALL]
    return [
        judge(
            "D-Cliques with Clique Averaging send 37.8 messages per node and round",
            "messages if gradients go to all neighbors",
            joined["messages_paper"],
            exactly(37.8, "twice the edges"),
            paper="37.8",
        ),
        judge(
            "If gradients are sent within cliques only, as required, there are 27.9 messages",
            "messages if gradients go to the clique only",
            joined["messages_exact"],
            exactly(27.9, "18.9 models and 9 gradients"),
            kind=CHECK,
        ),
        _saved(
            "D-Cliques send 96 % fewer messages",
            "messages saved in %, n = 1,000",
            joined["messages_paper"] / full["messages_paper"],
            96,
        ),
    ]


def _claims_of_joins(graphs: Numbers) -> list[Claim]:
    joined, small = graphs[JOINED_CLIQUES], graphs[SMALL_WORLD_CLIQUES]
    return [
        judge(
            "A small world of cliques has 14.5 edges per node",
            DEGREE,
            small["degree"],
            exactly(14.5, UNIT, within=0.1),
            paper="14.5",
        ),
        _saved(
            "A small world of cliques has 22 % fewer edges than fully connected cliques",
            f"{EDGES}; the paper's 14.5 and 18.9 give 23.3",
            small["degree"] / joined["degree"],
            22,
        ),
        judge(
            "Fractal cliques have at most M = 10 edges per node",
            "highest degree, n = 1,000",
            graphs[FRACTAL_CLIQUES]["highest_degree"],
            exactly(10, "9 in the clique and one to another, at all nodes but one in a hundred"),
            paper="10",
        ),
    ]


def _claims_of_hundred(graphs: Numbers) -> list[Claim]:
    joined, exponential = graphs[JOINED_CLIQUES], graphs[EXPONENTIAL_LABEL]["degree"]
    return [
        _saved(
            "D-Cliques with Clique Averaging send about 80 % fewer messages than fully connected "
            "nodes",
            "messages saved in %, n = 100",
            joined["messages_paper"] / graphs[ALL]["messages_paper"],
            80,
        ),
        judge(
            "The exponential graph has 14 edges per node",
            "mean degree, n = 100",
            exponential,
            exactly(14, "7 powers of 2 below 100, in both directions"),
            paper="14",
        ),
        judge(
            "The exponential graph has 1.4 times as many edges",
            "ratio of its edges to those of D-Cliques, n = 100",
            exponential / joined["degree"],
            exactly(1.4, UNIT, within=0.1),
            paper="1.4",
        ),
    ]


NUMBERS = DECLARED.figure(
    "numbers",
    compute=lambda setting, store: _compute_numbers(),
    draw=_draw_numbers,
    claims=_claims_numbers,
)
