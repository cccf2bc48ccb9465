"""Figure 6 of D-Cliques: the bias of an edge between cliques, which Clique Averaging removes."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from topofl import MixingMatrix, from_edges, mixing

from ..kit.claims import Claim
from ..kit.figure import Data, Figure
from ..kit.judging import judge_number
from .graphs import CLASSES, CLIQUE_SIZE, described, graph_of, label_counts_of

PINK, GREEN = 1, 4
"""Classes, by their colors in pictures of graphs."""


CLASS_COLORS = (
    "#44AA99",
    "#CC6677",
    "#332288",
    "#DDCC77",
    "#117733",
    "#88CCEE",
    "#882255",
    "#999933",
    "#AA4499",
    "#BBBBBB",
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
        ax.annotate(
            name,
            centers[k] + 0.66 * places[k],
            ha="center",
            va="center",
            fontsize=12,
            weight="bold",
        )
    ax.set_title(f"weights of node {node}, in 110ths")


def _draw_shares(value: Data, node: str, ax: Axes) -> None:
    shares = 100 * _shares(value, "without", node)
    ax.bar(range(CLASSES), shares, color=CLASS_COLORS, label="by all weights")
    fair = 100 * _shares(value, "with", node)
    ax.step(
        np.arange(-1, CLASSES + 1),
        [fair[0], *fair, fair[-1]],
        where="mid",
        color="black",
        label="Clique Averaging",
    )
    ax.set(xlim=(-0.6, CLASSES - 0.4), xticks=range(CLASSES), ylim=(0, 1.25 * shares.max()))
    ax.set(xlabel="class", ylabel="share of the gradient, %", title=f"gradient of node {node}")
    ax.legend(loc="upper right", ncols=2)


def _claims_fig06(value: Data) -> list[Claim]:
    return [*_claims_of_a(value), *_claims_of_b(value), *_claims_of_averaging(value)]


def _farthest(values: np.ndarray, expected: float) -> float:
    """Return the value with the largest distance from the expected one."""
    return float(values[np.abs(values - expected).argmax()])


def _claims_of_a(value: Data) -> list[Claim]:
    weights = np.array(value["without"]["A"])
    others = np.delete(weights[:CLIQUE_SIZE], [PINK, GREEN])
    exact: Mapping[str, Any] = {"within": 0, "why": "by equation 2"}
    return [
        judge_number(
            "Node A is biased towards its own class",
            "A's own weight",
            weights[A],
            12 / 110,
            paper="12/110",
            **exact,
        ),
        judge_number(
            "Node A is biased against the green class",
            "A's weight of the green node, which has an edge to B",
            weights[GREEN],
            10 / 110,
            paper="10/110",
            **exact,
        ),
        judge_number(
            "Node A gives its other neighbors equal weights",
            "of 8 weights, the one farthest from the expected value",
            _farthest(others, 11 / 110),
            11 / 110,
            paper="11/110",
            **exact,
        ),
    ]


def _claims_of_b(value: Data) -> list[Claim]:
    weights = np.array(value["without"]["B"])
    used, shares = weights[weights > 0], _shares(value, "without", "B")
    ratios = shares[GREEN] / np.delete(shares, GREEN)
    return [
        judge_number(
            "All weights of node B, its own included, are equal",
            "the weight farthest from the expected value",
            _farthest(used, 1 / 11),
            1 / 11,
            within=0,
            why="by equation 2: itself and 10 neighbors",
            paper="1/11",
        ),
        judge_number(
            "The green class counts twice at node B",
            "ratio of its share to that of another class, the one farthest from 2",
            _farthest(ratios, 2),
            2,
            within=0,
            why="one neighbor in the clique and one in the other clique",
            paper="2",
        ),
    ]


def _claims_of_averaging(value: Data) -> list[Claim]:
    return [
        judge_number(
            f"Clique Averaging removes the bias at node {node}",
            "largest difference between class shares in its gradient",
            float(np.ptp(_shares(value, "with", node))),
            0,
            within=0,
            why="the clique has every class once",
        )
        for node in ("A", "B")
    ]


FIG06 = Figure(
    "dcliques-fig06",
    "The bias caused by an edge between two cliques, and its removal by Clique Averaging",
    compute=lambda setting, store: _compute_fig06(),
    draw=_draw_fig06,
    claims=_claims_fig06,
    differences=lambda setting: (
        "in addition to the weights, the share of each class in the averaged gradients is shown",
    ),
)
