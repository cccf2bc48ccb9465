"""What is predicted from: a horizon of hops, the ratio of noise to heterogeneity, H_K and N_K."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components
from torch import nn

from topofl import metrics
from topofl.data import Partition
from topofl.mixing import MixingMatrix, metropolis_or_uniform
from topofl.topology import Topology, TopologySequence

__all__ = [
    "CURVATURE",
    "EXAMINED",
    "Traffic",
    "accumulated",
    "horizon",
    "noise_of",
    "traffic",
]

CURVATURE = 0.1
"""Curvature of the loss that turns a learning rate into a horizon, 1 / (2 lr CURVATURE) hops;
chosen so that a rate of 0.5 gives 10 hops."""

EXAMINED = 60
"""Rounds of sequences without a period that are examined, or twice the hops if those are more."""

Graph = Topology | TopologySequence


@dataclass(frozen=True)
class Traffic:
    """Messages of a graph: of the busiest rounds for limits, on average for tables.

    Parameters
    ----------
    degree
        Most messages that a node sends, or receives, in a round.
    most
        Messages of the round with the most.
    messages, busiest
        Messages per round, and those of the node that sends and receives the most in a round.
    averages
        Whether the weights of every round are doubly stochastic and the rounds connect all nodes.
    """

    degree: int
    most: int
    messages: float
    busiest: int
    averages: bool


def horizon(lr: float | None, rounds: int | None, calibrated: tuple[int, ...]) -> int:
    """Return the number of hops that count: that of the learning rate, but no more than rounds."""
    if lr is None:
        hops = min(calibrated)
    else:
        wanted = 1 / (2 * lr * CURVATURE)
        hops = min(calibrated, key=lambda known: abs(np.log(known / wanted)))
    return hops if rounds is None else min(hops, rounds)


def noise_of(
    clients: Any, spread: float, model: nn.Module | None, batch_size: int | None, seed: int
) -> float | None:
    """Return the ratio (sigma^2 / batch) / zeta^2 that is measured on minibatches.

    None if there is nothing to measure it on: no model, batch size or examples, or equal label
    shares. Infinite if the gradients of nodes differ no more than their noise lets expect.
    """
    if model is None or batch_size is None or not isinstance(clients, Partition) or spread == 0:
        return None
    found = metrics.gradient_statistics(clients, model=model, batch_size=batch_size, seed=seed)
    if found.heterogeneity == 0:
        return np.inf if found.noise > 0 else None
    return found.noise * spread / found.heterogeneity


def _examined(graph: Graph, hops: int) -> int:
    """Return the rounds after which a graph repeats, or those that are examined."""
    return graph.period or max(EXAMINED, 2 * hops)


def accumulated(graph: Graph, counts: np.ndarray, hops: int) -> tuple[float, float]:
    """Return H_K and N_K with the default weights of D-SGD."""
    rounds = _examined(graph, hops) if graph.period is None else None
    heterogeneity = metrics.neighborhood_heterogeneity(graph, counts, hops=hops, rounds=rounds)
    return heterogeneity, metrics.accumulated_noise(graph, hops, rounds=rounds)


def traffic(graph: Graph, hops: int) -> Traffic:
    """Return the messages of a graph over one period, or over the rounds that are examined."""
    rounds = range(_examined(graph, hops))
    matrices = [metropolis_or_uniform(graph.at(t)) for t in rounds]
    messages = [matrix.n_messages for matrix in matrices]
    both = [np.maximum(m.in_messages, m.out_messages).max() for m in matrices]
    busiest = [(m.in_messages + m.out_messages).max() for m in matrices]
    averages = all(m.is_doubly_stochastic for m in matrices) and _connects(matrices)
    return Traffic(
        int(max(both)), max(messages), float(np.mean(messages)), int(max(busiest)), averages
    )


def _connects(matrices: list[MixingMatrix]) -> bool:
    """Return whether the rounds together connect all nodes; for these weights, both ways."""
    union = sum((sparse.csr_array(abs(m.weights)) for m in matrices[1:]), abs(matrices[0].weights))
    return connected_components(sparse.csr_array(union), directed=False)[0] == 1
