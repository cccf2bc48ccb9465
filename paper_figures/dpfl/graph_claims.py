"""What DPFL (Kharrat, Canini and Horvath 2025) says of learned graphs, judged over seeds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..kit.claims import Claim
from ..kit.judging import judge_seeds, rank_correlation
from .claims import NEAR, RARE, SPARSER, STATIC, SYMMETRY, WHY_ANY, WHY_RARE
from .graphs import crossing, kept, malicious_share, reciprocity, sparsity

__all__ = ["asymmetry", "ceased", "evolution", "rare", "segregated", "sparser"]


Graphs = Sequence[Mapping[str, Any]]
"""One a seed: ``heard`` by round, and ``malicious`` nodes."""


def sparser(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that fewer nodes are heard in the end than at the start."""
    return [
        judge_seeds(
            f"{label}: the graph of the last round is sparser than the first one.",
            "edges of the last round over those of the first",
            [_edges(seed, -1) / _edges(seed, 0) if _edges(seed, 0) else 1.0 for seed in seeds],
            at_most=SPARSER,
            why="the paper's go from 5 to 4 % of the pairs, and from 20 to 12 %: 0.8 and 0.6",
            paper=_sparsities(seeds),
        )
        for label, seeds in graphs.items()
    ]


def _edges(seed: Mapping[str, Any], k: int) -> int:
    return sum(map(len, list(seed["heard"].values())[k]))


def _sparsities(seeds: Graphs) -> str:
    """Return our own sparsities in words; the paper's definition is not known for sure."""
    first, last = (
        np.mean([sparsity(list(seed["heard"].values())[k]) for seed in seeds]) for k in (0, -1)
    )
    return f"(our sparsity: {first:.1%} at first, {last:.1%} at last)"


def evolution(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that graphs are almost static after six tenths of the rounds."""
    return [
        judge_seeds(
            f"{label}: the graph is almost static after {0.6:.0%} of the rounds.",
            "share of edges that graphs shown one after the other have in common, mean",
            [_steadiness(list(seed["heard"].values())) for seed in seeds],
            at_least=STATIC,
            why="“almost”: where one of ten edges is replaced, graphs have 9 of 11 in common",
        )
        for label, seeds in graphs.items()
    ]


def _steadiness(shown: Sequence[Any]) -> float:
    late = shown[int(0.6 * (len(shown) - 1)) :]
    return float(np.mean([kept(one, other) for one, other in pairwise(late)]))


def asymmetry(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that asymmetry is highest at first, that symmetry is high and falls with the budget."""
    claims = [
        judge_seeds(
            f"{label}: later graphs are more symmetric than the first, on average.",
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
                "what the paper calls symmetry is not said; at 0.7 it is nearer to its "
                "numbers than to a half"
            ),
            paper="80 to 88 %",
        ),
        judge_seeds(
            "Symmetry decreases as budgets shrink.",
            "rank correlation of budgets with reciprocity in the last round",
            [rank_correlation(range(len(last), 0, -1), column) for column in last.T],
            at_least=0.5,
            why="ranks agree more than not: a correlation of 0.5 and more is called large",
        ),
    ]


def _reciprocities(seed: Mapping[str, Any]) -> np.ndarray:
    return np.array([reciprocity(received) for received in seed["heard"].values()])


def ceased(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that benign clients choose fewer malicious ones in time, and none at last."""
    shares = _shares(graphs)
    none = judge_seeds(
        "Benign clients cease to choose malicious ones.",
        f"{SHARE}: last round",
        shares[:, -1],
        at_most=0.05,
        why="“altogether”: one of twenty may remain",
        paper="0",
    )
    return [_fewer(shares), none]


def segregated(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that benign clients choose fewer malicious ones; few edges join both at last."""
    (seeds,) = graphs.values()
    apart = judge_seeds(
        "Clients are almost segregated into two groups.",
        "share of edges that join benign and malicious clients, either way: last round",
        [crossing(list(seed["heard"].values())[-1], seed["malicious"]) for seed in seeds],
        at_most=RARE,
        why="“very few links”: one of ten",
    )
    return [_fewer(_shares(graphs)), apart]


def rare(graphs: Mapping[str, Graphs]) -> list[Claim]:
    """Judge that less than 10 % of benign clients' peers are malicious, mean over rounds."""
    return [
        judge_seeds(
            "Benign clients have less than 10 % of their connections with malicious ones.",
            f"{SHARE}: mean over the rounds shown",
            _shares(graphs).mean(axis=1),
            at_most=RARE,
            why=WHY_RARE,
            paper="< 10 %",
        )
    ]


SHARE = "share of malicious clients among those that benign ones hear"


def _shares(graphs: Mapping[str, Graphs]) -> np.ndarray:
    """Return (S, rounds) shares."""
    (seeds,) = graphs.values()
    return np.array(
        [
            [malicious_share(received, seed["malicious"]) for received in seed["heard"].values()]
            for seed in seeds
        ]
    )


def _fewer(shares: np.ndarray) -> Claim:
    return judge_seeds(
        "Of those that benign clients choose fewer are malicious at the end than at first.",
        f"{SHARE}: first minus last round",
        shares[:, 0] - shares[:, -1],
        at_least=0,
        why=WHY_ANY,
    )
