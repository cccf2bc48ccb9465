"""Swaps of nodes between cliques that lower their label skew, the steps of Greedy-Swap."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from topofl._linalg.distances import DISTANCES, OF_DISTRIBUTIONS, distance, infinite_terms
from topofl._support.check import check_choice, check_shares, shown
from topofl.topologies._common import counts_and_source, distinct_pairs, label_shares

__all__ = [
    "Clique",
    "Histograms",
    "Measure",
    "cliques_of",
    "histograms",
    "improving_swaps",
    "swap_steps",
]

TOLERANCE = 1e-12
"""Rounding: a swap must lower the skew by more than this, and smaller label shares count as 0."""


class Histograms(NamedTuple):
    """Label distributions of nodes, with their weights in averages."""

    shares: np.ndarray  # (n, classes)
    weights: np.ndarray  # (n,) number of examples if pooled, else 1
    source: str  # description of the input in the name of a graph

    @property
    def overall(self) -> np.ndarray:
        """(classes,) weighted mean of the label distributions of all nodes."""
        return (self.weights @ self.shares) / self.weights.sum()


def histograms(
    label_counts: Any, n: int | None, shares: Any, classes: int, weighting: str, measure: str
) -> Histograms:
    """Return checked histograms: computed from counts or n, or the `shares` that nodes report."""
    check_choice("weighting", weighting, ["uniform", "pooled"])
    check_choice("distance", measure, DISTANCES)
    if shares is not None:
        return _reported(shares, label_counts is None and n is None, weighting, measure)
    counts, source = counts_and_source(label_counts, n, classes=classes)
    weights = counts.sum(axis=1) if weighting == "pooled" else np.ones(len(counts))
    return Histograms(label_shares(counts), weights, source)


def _reported(shares: Any, alone: bool, weighting: str, measure: str) -> Histograms:
    """Return checked histograms that nodes report; `alone` if there are no counts and no n."""
    if not alone:
        raise ValueError(
            "`label_shares` must be given alone, since it replaces `label_counts` and `n`"
        )
    if weighting != "uniform":
        raise ValueError(
            "`weighting` must be 'uniform' with `label_shares`, which have no sizes, got "
            f"{shown(weighting)}"
        )
    shares = check_shares(shares)
    if measure in OF_DISTRIBUTIONS and (
        shares.min() < 0 or np.abs(shares.sum(axis=1) - 1).max() > 1e-6
    ):
        raise ValueError(
            f"`label_shares` must be non-negative rows that sum to 1 for distance={measure!r}; "
            "use private_label_histograms(..., clip=True), or use distance='l1'"
        )
    return Histograms(
        shares, np.ones(len(shares)), f"label_shares[{shares.shape[0]}x{shares.shape[1]}]"
    )


@dataclass(frozen=True)
class Measure:
    """Skew of cliques: a distance to the global label distribution, or to an estimate of it."""

    distance: str
    reference: np.ndarray  # (classes,)

    def skew(self, deviation: np.ndarray, weight: Any) -> np.ndarray:
        """Return skews from the (classes, ...) sums of the weighted deviations of members."""
        if self.distance == "l1":
            return np.add.reduce(np.abs(deviation), axis=0) / weight
        return distance(self.distance, *self._shares(deviation, weight))

    def infinite_terms(self, deviation: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of classes with an infinite term, and the skew over the others."""
        return infinite_terms(self.distance, *self._shares(deviation, weight))

    def _shares(self, deviation: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        reference = self.reference.reshape(-1, *[1] * (deviation.ndim - 1))
        shares = reference + deviation / weight
        if self.distance in OF_DISTRIBUTIONS:
            shares = np.where(shares < TOLERANCE, 0.0, shares)
        return shares, reference


@dataclass(slots=True)
class Clique:
    """A clique and its sums over members, updated at each swap.

    A node with distribution p_i and weight w_i has the deviation w_i (p_i - p), where p is the
    reference of the measure.
    """

    nodes: np.ndarray  # (size,)
    deviations: np.ndarray  # (classes, size)
    weights: np.ndarray  # (size,)
    deviation: np.ndarray  # (classes,), sum over members
    weight: float
    skew: float
    measure: Measure

    @classmethod
    def of(
        cls, nodes: np.ndarray, deviations: np.ndarray, weights: np.ndarray, measure: Measure
    ) -> "Clique":
        """Return the clique of members with (classes, size) deviations and (size,) weights."""
        total = deviations.sum(axis=1)
        weight = float(weights.sum())
        return cls(
            nodes.copy(),
            deviations,
            weights,
            total,
            weight,
            float(measure.skew(total, weight)),
            measure,
        )

    def with_reference(self, reference: np.ndarray) -> "Clique":
        """Return the clique measured against another reference distribution."""
        deviations = self.deviations + np.multiply.outer(
            self.measure.reference - reference, self.weights
        )
        return Clique.of(
            self.nodes, deviations, self.weights, replace(self.measure, reference=reference)
        )

    def replace_member(self, k: int, node: int, deviation: np.ndarray, weight: float) -> None:
        """Replace member k by another node and update the sums."""
        self.deviation += deviation - self.deviations[:, k]
        self.weight += weight - self.weights[k]
        self.nodes[k] = node
        self.deviations[:, k] = deviation
        self.weights[k] = weight
        self.skew = float(self.measure.skew(self.deviation, self.weight))


def cliques_of(groups: Sequence[np.ndarray], labels: Histograms, distance: str) -> list[Clique]:
    """Return the cliques of these groups, measured against the distribution of all nodes."""
    overall = labels.overall
    weights = labels.weights.astype(np.float64)
    deviations = (labels.weights[:, None] * (labels.shares - overall)).T.copy()
    measure = Measure(distance, overall)
    return [Clique.of(group, deviations[:, group], weights[group], measure) for group in groups]


def improving_swaps(a: Clique, b: Clique) -> np.ndarray:
    """Return the swaps of i in `a` for j in `b` that lower the sum of skews, as i * len(b) + j.

    An infinite sum is lowered by fewer classes with infinite terms, or by as many such classes and
    a lower sum over the others.
    """
    change = b.deviations[:, None, :] - a.deviations[:, :, None]  # (classes, len(a), len(b))
    gained = b.weights[None, :] - a.weights[:, None]
    after_a = a.deviation[:, None, None] + change
    after_b = b.deviation[:, None, None] - change
    before = a.skew + b.skew
    if np.isfinite(before):
        skews = a.measure.skew(after_a, a.weight + gained)
        skews += b.measure.skew(after_b, b.weight - gained)
        return np.flatnonzero(skews < before - TOLERANCE)
    infinite, finite = _sum_of_terms(
        (a.measure, after_a, a.weight + gained), (b.measure, after_b, b.weight - gained)
    )
    infinite_before, finite_before = _sum_of_terms(
        (a.measure, a.deviation, a.weight), (b.measure, b.deviation, b.weight)
    )
    has_fewer = infinite < infinite_before
    is_lower = (infinite == infinite_before) & (finite < finite_before - TOLERANCE)
    return np.flatnonzero(has_fewer | is_lower)


def _sum_of_terms(*cliques: tuple[Measure, np.ndarray, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of infinite terms and the sum over the others, of two cliques together."""
    (count_a, skew_a), (count_b, skew_b) = (
        measure.infinite_terms(deviation, weight) for measure, deviation, weight in cliques
    )
    return count_a + count_b, skew_a + skew_b


def swap_steps(
    cliques: list[Clique],
    draws: np.ndarray,
    improving: Callable[[Clique, Clique], np.ndarray] = improving_swaps,
) -> Iterator[tuple[int, int, bool]]:
    """Take one step per row of `draws`, uniform numbers for the two cliques and the swap.

    Yields the two cliques of each step and whether they swapped. `improving` must depend only on
    the two cliques: if it finds no swap, it is not called again for them until one of them changes,
    which saves most of the work near the end.
    """
    first, second = distinct_pairs(draws[:, :2], len(cliques))
    versions = [0] * len(cliques)
    without_swaps = set()
    for a, b, choice in zip(first.tolist(), second.tolist(), draws[:, 2].tolist(), strict=True):
        state = a, versions[a], b, versions[b]
        swaps = () if state in without_swaps else improving(cliques[a], cliques[b])
        if len(swaps):
            swap = int(swaps[int(choice * len(swaps))])
            _swap(cliques[a], cliques[b], *divmod(swap, len(cliques[b].nodes)))
            versions[a] += 1
            versions[b] += 1
        else:
            without_swaps.add(state)
        yield a, b, len(swaps) > 0


def _swap(a: Clique, b: Clique, i: int, j: int) -> None:
    """Swap member i of one clique for member j of the other."""
    leaving = (int(a.nodes[i]), a.deviations[:, i].copy(), float(a.weights[i]))
    a.replace_member(i, int(b.nodes[j]), b.deviations[:, j], float(b.weights[j]))
    b.replace_member(j, *leaving)
