"""Claims of DPFL (Kharrat, Canini and Horvath 2025) about learned graphs, judged over seeds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..kit.claims import Claim
from ..kit.judging import judge_seeds, rank_correlation
from .claims import NEAR, RARE, SPARSER, STATIC, SYMMETRY, WHY_ANY, WHY_RARE
from .graphs import common_edges, crossing, malicious_share, reciprocity, sparsity

Graphs = Sequence[Mapping[str, Any]]
"""One entry per seed: in-neighbors of each node by round (``heard``), and ``malicious`` nodes."""


def sparser(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that the last graph has fewer edges than the first."""
    return [
        judge_seeds(
            f"{label}: the last round's graph is sparser than the first round's.",
            "edges of the last round over those of the first",
            [_edges(seed, -1) / _edges(seed, 0) if _edges(seed, 0) else 1.0 for seed in seeds],
            at_most=SPARSER,
            why="the paper's go from 5 to 4 % of the pairs and from 20 to 12 %: ratios 0.8 and 0.6",
            paper=_sparsities(seeds),
        )
        for label, seeds in graphs.items()
    ]


def _edges(seed: Mapping[str, Any], k: int) -> int:
    return sum(map(len, list(seed["heard"].values())[k]))


def _sparsities(seeds: Graphs) -> str:
    """Return our sparsities as text; the paper's definition is uncertain."""
    first, last = (
        np.mean([sparsity(list(seed["heard"].values())[k]) for seed in seeds]) for k in (0, -1)
    )
    return f"(our sparsity: {first:.1%} in the first round, {last:.1%} in the last)"


def evolution(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that graphs are almost static after 60 % of the rounds."""
    return [
        judge_seeds(
            f"{label}: the graph is almost static after {0.6:.0%} of the rounds.",
            "share of edges that consecutive graphs shown have in common, mean",
            [_steadiness(list(seed["heard"].values())) for seed in seeds],
            at_least=STATIC,
            why="“almost”: if one in ten edges is replaced, two graphs share 9 of 11 edges",
        )
        for label, seeds in graphs.items()
    ]


def _steadiness(shown: Sequence[Any]) -> float:
    late = shown[int(0.6 * (len(shown) - 1)) :]
    return float(np.mean([common_edges(one, other) for one, other in pairwise(late)]))


def asymmetry(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that asymmetry is highest at first; symmetry is high and falls with budgets."""
    claims = [
        judge_seeds(
            f"{label}: later graphs are on average more symmetric than the first.",
            "reciprocity: mean of the later graphs shown minus that of the first",
            [_reciprocities(seed)[1:].mean() - _reciprocities(seed)[0] for seed in seeds],
            at_least=0,
            why=WHY_ANY,
        )
        for label, seeds in graphs.items()
    ]
    last = np.array([[_reciprocities(seed)[-1] for seed in seeds] for seeds in graphs.values()])
    return [
        *claims,
        judge_seeds(
            "Symmetry is around 80 to 88 %.",
            f"distance of reciprocity in the last round, mean over budgets, from {SYMMETRY}",
            np.abs(last.mean(axis=0) - SYMMETRY),
            at_most=NEAR,
            why=(
                "the paper does not define symmetry; a reciprocity of 0.7 is closer to its numbers "
                "than to a half"
            ),
            paper="80 to 88 %",
        ),
        judge_seeds(
            "Symmetry decreases as budgets shrink.",
            "rank correlation of budgets with reciprocity in the last round",
            [rank_correlation(range(len(last), 0, -1), column) for column in last.T],
            at_least=0.5,
            why="a positive trend: correlations of 0.5 and more are called large",
        ),
    ]


def _reciprocities(seed: Mapping[str, Any]) -> np.ndarray:
    return np.array([reciprocity(neighbors) for neighbors in seed["heard"].values()])


def ceased(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that benign clients choose fewer malicious ones over time, and none in the end."""
    shares = _shares(graphs)
    none = judge_seeds(
        "Benign clients stop choosing malicious ones.",
        f"{SHARE}: last round",
        shares[:, -1],
        at_most=0.05,
        why="“altogether”: at most one in twenty remains",
        paper="0",
    )
    return [_fewer(shares), none]


def segregated(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that benign clients choose fewer malicious ones, and few edges join both in the end."""
    (seeds,) = graphs.values()
    apart = judge_seeds(
        "Clients are almost segregated into two groups.",
        "share of edges between benign and malicious clients, in either direction: last round",
        [crossing(list(seed["heard"].values())[-1], seed["malicious"]) for seed in seeds],
        at_most=RARE,
        why="“very few links”: one in ten",
    )
    return [_fewer(_shares(graphs)), apart]


def rare(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that less than 10 % of benign clients' peers are malicious, averaged over rounds."""
    return [
        judge_seeds(
            "Less than 10 % of benign clients' connections are with malicious clients.",
            f"{SHARE}: mean over the rounds shown",
            _shares(graphs).mean(axis=1),
            at_most=RARE,
            why=WHY_RARE,
            paper="< 10 %",
        )
    ]


SHARE = "share of malicious clients among the peers of benign clients"


def _shares(graphs: Mapping[str, Graphs]) -> np.ndarray:
    """Return the shares of malicious clients among benign clients' peers, (S, rounds)."""
    (seeds,) = graphs.values()
    return np.array(
        [
            [malicious_share(neighbors, seed["malicious"]) for neighbors in seed["heard"].values()]
            for seed in seeds
        ]
    )


def _fewer(shares: np.ndarray) -> Claim:
    return judge_seeds(
        "Benign clients choose a smaller share of malicious peers in the end than at first.",
        f"{SHARE}: first minus last round",
        shares[:, 0] - shares[:, -1],
        at_least=0,
        why=WHY_ANY,
    )
