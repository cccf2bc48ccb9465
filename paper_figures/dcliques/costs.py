"""Edges, messages and spectral gaps from D-Cliques' abstract and text, for graphs with seed 0."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from topofl import Topology, metrics, mixing, topologies

from ..kit.claims import CHECK, PAPER, Claim
from ..kit.figure import Data, Figure
from ..kit.judging import judge_number
from ..kit.training.store import graph_numbers
from .graphs import CLIQUE_SIZE, SEED
from .labels import (
    ALL,
    EXPONENTIAL_LABEL,
    FRACTAL_CLIQUES,
    INTER_CLIQUES,
    JOINED_CLIQUES,
    SMALL_WORLD_CLIQUES,
)
from .reference_numbers import GAPS

UNIT = "one unit of the last digit that the paper prints, which may be rounded or truncated"


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
    messages = {
        f"messages_{name}": metrics.round_cost(
            weights, 1, gradient_mixing=gradients, accounting=name
        ).messages
        / graph.n
        for name in ("paper", "exact")
    }
    return (
        graph_numbers(graph, weights) | messages | {"highest_degree": int(graph.out_degrees.max())}
    )


def _draw_numbers(value: Data) -> Picture:
    picture = Picture((11, 4.5), layout="constrained")
    for ax, (n, graphs) in zip(
        np.atleast_1d(picture.subplots(1, len(value))), value.items(), strict=True
    ):
        _draw_bars(ax, graphs)
        ax.set(
            yscale="log",
            ylim=(1, 2 * int(n)),
            ylabel="per node, per round",
            title=f"{int(n):,} nodes",
        )
    return picture


def _draw_bars(ax: Axes, graphs: Mapping[str, Mapping[str, float]]) -> None:
    """Draw three bars per graph: edges, and messages in both accountings."""
    shown = {
        "degree": "edges",
        "messages_exact": "messages, exact",
        "messages_paper": "messages, as in the paper",
    }
    for k, ((key, label), color) in enumerate(
        zip(shown.items(), ("#BBBBBB", "#88CCEE", "#332288"), strict=True)
    ):
        bars = ax.bar(
            np.arange(len(graphs)) + 0.27 * (k - 1),
            [g[key] for g in graphs.values()],
            0.27,
            label=label,
        )
        for bar in bars:
            bar.set_color(color)
        ax.bar_label(bars, fmt="{:.4g}", fontsize=6)
    ax.set_xticks(range(len(graphs)), [textwrap.fill(label, 12) for label in graphs], fontsize=8)
    ax.legend(fontsize=7, loc="upper left")


def _claims_numbers(value: Data) -> list[Claim]:
    hundred, thousand = value["100"], value["1000"]
    return [
        *_claims_of_thousand(thousand),
        *_claims_of_hundred(hundred),
        *_claims_of_gaps(hundred, thousand),
    ]


def _claims_of_thousand(graphs: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    return [
        *_claims_of_edges(graphs),
        *_claims_of_messages(graphs),
        *_claims_of_sparser_cliques(graphs),
    ]


def _claims_of_edges(graphs: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    joined = graphs[JOINED_CLIQUES]
    full = graphs[ALL]
    return [
        _exactly(
            "D-Cliques have 18.9 edges per node",
            "mean degree, n = 1,000",
            joined["degree"],
            18.9,
            "9 in the clique, and 99 to other cliques shared by 10 nodes",
        ),
        _exactly(
            "Fully connected nodes have 999 edges",
            "mean degree, n = 1,000",
            full["degree"],
            999,
            "all other nodes",
        ),
        _percent(
            "D-Cliques have 98 % fewer edges",
            "edges saved in %, n = 1,000",
            joined["degree"] / full["degree"],
            98,
        ),
    ]


def _claims_of_messages(graphs: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    joined = graphs[JOINED_CLIQUES]
    full = graphs[ALL]
    return [
        _exactly(
            "D-Cliques with Clique Averaging send 37.8 messages per node and round",
            "messages if gradients go to all neighbors",
            joined["messages_paper"],
            37.8,
            "twice the edges",
        ),
        _exactly(
            "If gradients are sent within cliques only, as required, there are 27.9 messages",
            "messages if gradients go to the clique only",
            joined["messages_exact"],
            27.9,
            "18.9 models and 9 gradients",
            paper="",
            kind=CHECK,
        ),
        _percent(
            "D-Cliques send 96 % fewer messages",
            "messages saved in %, n = 1,000",
            joined["messages_paper"] / full["messages_paper"],
            96,
        ),
    ]


def _claims_of_sparser_cliques(graphs: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    joined = graphs[JOINED_CLIQUES]
    small = graphs[SMALL_WORLD_CLIQUES]
    return [
        judge_number(
            "A small world of cliques has 14.5 edges per node",
            "mean degree, n = 1,000",
            small["degree"],
            14.5,
            within=0.1,
            why=UNIT,
            paper="14.5",
        ),
        _percent(
            "A small world of cliques has 22 % fewer edges than fully connected cliques",
            "edges saved in %, n = 1,000; the paper's 14.5 and 18.9 give 23.3",
            small["degree"] / joined["degree"],
            22,
        ),
        judge_number(
            "Fractal cliques have at most M = 10 edges per node",
            "highest degree, n = 1,000",
            graphs[FRACTAL_CLIQUES]["highest_degree"],
            10,
            within=0,
            why="9 in the clique and one to another, at all nodes but one in a hundred",
            paper="10",
        ),
    ]


def _claims_of_hundred(graphs: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    joined, exponential, full = graphs[JOINED_CLIQUES], graphs[EXPONENTIAL_LABEL], graphs[ALL]
    return [
        _percent(
            "D-Cliques with Clique Averaging send about 80 % fewer messages than fully connected "
            "nodes",
            "messages saved in %, n = 100",
            joined["messages_paper"] / full["messages_paper"],
            80,
        ),
        _exactly(
            "The exponential graph has 14 edges per node",
            "mean degree, n = 100",
            exponential["degree"],
            14,
            "7 powers of 2 below 100, in both directions",
        ),
        judge_number(
            "The exponential graph has 1.4 times as many edges",
            "ratio of its edges to those of D-Cliques, n = 100",
            exponential["degree"] / joined["degree"],
            1.4,
            within=0.1,
            why=UNIT,
            paper="1.4",
        ),
    ]


def _exactly(
    statement: str,
    statistic: str,
    value: float,
    expected: float,
    why: str,
    paper: str | None = None,
    *,
    kind: str = PAPER,
) -> Claim:
    paper = f"{expected:g}" if paper is None else paper
    return judge_number(
        statement, statistic, value, expected, within=0, why=why, paper=paper, kind=kind
    )


def _percent(statement: str, statistic: str, share: float, expected: float) -> Claim:
    """Return the claim that `expected` % are saved, where `share` remains."""
    return judge_number(
        statement,
        statistic,
        100 * (1 - share),
        expected,
        within=1,
        why=UNIT,
        paper=f"{expected:g} %",
    )


def _claims_of_gaps(hundred: Mapping[str, Any], thousand: Mapping[str, Any]) -> list[Claim]:
    graphs = {"100": hundred, "1000": thousand}
    return [
        judge_number(
            f"Another implementation finds the same spectral gap: {label}, n = {int(n):,}",
            "1 - second largest modulus of an eigenvalue",
            graphs[n][label]["gap"],
            expected,
            within=within,
            why="its number of digits, and random ties between nodes",
            kind=CHECK,
        )
        for (n, label), (expected, within) in GAPS.items()
    ]


NUMBERS = Figure(
    "dcliques-numbers",
    "Edges and messages of D-Cliques with Clique Averaging, per node and round",
    compute=lambda setting, store: _compute_numbers(),
    draw=_draw_numbers,
    claims=_claims_numbers,
    differences=lambda setting: (
        "graphs of nodes with one class each, seed 0; numbers of edges do not depend on labels",
    ),
)
