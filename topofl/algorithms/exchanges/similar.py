"""pFedGraph's peer selection: nodes average with nodes whose models changed similarly."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from topofl._linalg.distributions import simplex_projection
from topofl._support.check import check_positive, check_probability
from topofl._support.public import public
from topofl.algorithms.contract.round import Models, Part, Round, State, as_part, everything
from topofl.algorithms.exchanges.peers import Choice, Policy, can_receive
from topofl.mixing import from_weights

BLOCK = 2**20
"""Differences from the initial model that are in memory at a time, 4 MB in float32."""


@public
def similar_peers(
    strength: float = 0.8, *, threshold: float = 0.9, compare: Part | str = everything
) -> Policy:
    """Return pFedGraph's policy: weights by data size and by similarity of model changes.

    Changes are those since the common initial model ``theta_0``, not since the previous round::

        D_ij = -cos(theta_i - theta_0, theta_j - theta_0);      -1 where it is below -threshold
        x_i  = argmin of <D_i, x> + strength * ||x - p_i||^2  over x >= 0, sum x = 1
             = the nearest point to p_i - D_i / (2 strength) with entries >= 0 that sum to 1

    where ``p_ij`` is the share of node j in the training examples of node i and its in-neighbors.
    The cosines of a model that did not change are 0, even with itself.

    Parameters
    ----------
    strength
        Above 0. A large one brings the weights close to the shares of data, as in FedAvg; with a
        small one, a node gives more weight to itself and to nodes with the same direction.
    threshold
        Between 0 and 1: cosines above it count as 1.
    compare
        The part of the models that is compared, within the part that is sent.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or has the wrong type. Runs with ``init="independent"``
        raise, because changes from different initial models are not comparable.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023).

    Examples
    --------
    >>> similar_peers(0.5).settings
    {'weights': 'similar', 'strength': 0.5, 'threshold': 0.9}
    """
    return similar_peers_with_pull(strength, threshold, compare)


PULL_DIRECTIONS = "toward"
"""Name of the state that holds the directions toward which training pulls models, (n, d)."""


def similar_peers_with_pull(
    strength: float, threshold: float, compare: Part | str, pull: float = 0.0
) -> Policy:
    """Return the policy of :func:`similar_peers`; with `pull`, it sets the next cosine pull.

    Directions of the pull are the averages of models of length `pull`, by the chosen weights.
    """
    strength = check_positive("strength", strength)
    threshold = check_probability("threshold", threshold)
    compare = as_part("compare", compare)

    def init(models: Models) -> State:
        models.columns(compare)  # raises before any work
        return {"start": models.start}

    def choose(models: Models, state: State, round: Round) -> Choice:
        allowed = can_receive(round.peers).fill_diagonal_(True).numpy()  # each node itself, too
        cosines = _cosines(models.flat, state["start"], models.columns(compare))
        cosines[cosines > threshold] = 1
        shares = allowed * round.sizes
        wanted = shares / shares.sum(axis=1, keepdims=True) + cosines / (2 * strength)
        weights = from_weights(simplex_projection(wanted, allowed), name="similar")
        if pull:
            directions = round.state("local")[PULL_DIRECTIONS]
            _scale_to_length(round.own_rows(models.flat), pull, out=directions)
            round.mix(weights, directions, counted=False)
        return Choice(weights, server=2 if pull else 1)

    settings = {} if compare.is_everything else {"compare": str(compare)}
    settings = {"weights": "similar", "strength": strength, "threshold": threshold} | settings
    return Policy(choose, init, settings, rowwise=True)


def _cosines(flat: Tensor, start: Tensor, columns: Sequence[slice]) -> np.ndarray:
    """Return cosines between the changes of models since `start`, (n, n); 0 without a change."""
    n = len(flat)
    if flat.is_meta:
        return np.zeros((n, n))
    products = torch.zeros(n, n, dtype=torch.float64, device=flat.device)
    for part in columns:
        blocks = (values[:, part].split(max(1, BLOCK // n), dim=1) for values in (flat, start))
        for values, origin in zip(*blocks, strict=True):
            changes = values - origin
            products += changes @ changes.T
    norms = products.diagonal().sqrt()
    return (
        (products / norms / norms[:, None])
        .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        .cpu()
        .numpy()
    )


def _scale_to_length(flat: Tensor, length: float, out: Tensor) -> None:
    """Write the models (n, d), scaled to a length, into `out`; zero models stay zero."""
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    torch.mul(flat, torch.where(norms > 0, length / norms, 0), out=out)
