"""pFedGraph's way to choose: nodes average with those whose models moved where their own did."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from topofl._linalg.simplex import simplex_projection
from topofl._support.check import check_positive, check_probability
from topofl.algorithms.contract.parts import Part, as_part, everything
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import from_weights

__all__ = ["PULL_DIRECTIONS", "similar_peers", "similar_peers_with_pull"]


BLOCK = 2**20
"""Numbers whose differences from the start exist at a time, 4 MB in float32."""


def similar_peers(
    strength: float = 0.8, *, threshold: float = 0.9, compare: Part | str = everything
) -> Policy:
    """Return pFedGraph's policy: weights by data size and by similarity of model changes.

    From the one model ``theta_0`` from which all nodes start, and not from that of the round
    before::

        D_ij = -cos(theta_i - theta_0, theta_j - theta_0);      -1 where it is below -threshold
        x_i  = argmin of <D_i, x> + strength * ||x - p_i||^2  over x >= 0, sum x = 1
             = the nearest point to p_i - D_i / (2 strength) with entries >= 0 that sum to 1

    where ``p_ij`` is the fraction that node j has of the training examples of all whom node i can
    hear, itself too. A model that did not move is like no other, nor itself: its cosines are 0.

    Parameters
    ----------
    strength
        Above 0: the larger, the nearer weights are to the fractions of data, as in FedAvg; the
        smaller, the more of its model a node takes from itself and from nodes with the same
        direction.
    threshold
        Between 0 and 1: cosines above it count as 1.
    compare
        What of the models is compared, among what travels.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type. Runs with ``init="independent"`` are
        refused: distances from different starts do not say who learns the same.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023).
    """
    return similar_peers_with_pull(strength, threshold, compare)


PULL_DIRECTIONS = "toward"
"""Name of the state that holds where models turn while they train, (n, d)."""


def similar_peers_with_pull(
    strength: float, threshold: float, compare: Part | str, turn: float = 0.0
) -> Policy:
    """Return the policy; with `turn` it also sets the next round's directions of cosine pull."""
    strength, threshold = (
        check_positive("strength", strength),
        check_probability("threshold", threshold),
    )
    compare = as_part("compare", compare)

    def init(models: Models) -> State:
        models.columns(compare)  # raises before any work
        return {"start": models.start}

    def choose(models: Models, state: State, round: Round) -> Choice:
        allowed = can_receive(round.peers).fill_diagonal_(True).numpy()
        cosines = _cosines(models.flat, state["start"], models.columns(compare))
        cosines[cosines > threshold] = 1
        shares = allowed * round.sizes
        wanted = shares / shares.sum(axis=1, keepdims=True) + cosines / (2 * strength)
        weights = from_weights(simplex_projection(wanted, allowed), name="similar")
        if turn:
            cosine_directions = round.state("local")[PULL_DIRECTIONS]
            _normalized(models.flat, turn, out=cosine_directions)
            round.mix(weights, cosine_directions, counted=False)
        return Choice(weights, server=2 if turn else 1)

    settings = {} if compare.is_everything else {"compare": str(compare)}
    settings = {"weights": "similar", "strength": strength, "threshold": threshold} | settings
    return Policy(choose, init, settings)


def _cosines(flat: Tensor, start: Tensor, columns: Sequence[slice]) -> np.ndarray:
    """Return cosines (n, n) between model changes since `start`, (1, d); 0 for no change."""
    n = len(flat)
    if flat.is_meta:
        return np.zeros((n, n))
    products = torch.zeros(n, n, dtype=torch.float64, device=flat.device)
    for part in columns:
        blocks = (values[:, part].split(max(1, BLOCK // n), dim=1) for values in (flat, start))
        for values, origin in zip(*blocks, strict=True):
            moved = values - origin
            products += moved @ moved.T
    norms = products.diagonal().sqrt()
    return (
        (products / norms / norms[:, None])
        .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        .cpu()
        .numpy()
    )


def _normalized(flat: Tensor, length: float, out: Tensor) -> None:
    """Put the models (n, d) into `out`, each made that long; 0 stays 0."""
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    torch.mul(flat, torch.where(norms > 0, length / norms, 0), out=out)
