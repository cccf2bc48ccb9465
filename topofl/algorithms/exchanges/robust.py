"""Exchange by a robust aggregation rule in place of the weighted mean."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from topofl._support.check import check_takes
from topofl._support.public import public
from topofl.algorithms.contract.phase import Phase, named_errors
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.mixing import MixingMatrix

Aggregation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``rule(own, received, weights) -> model``: from a node's model (d,), received ones (k, d), and
their weights (k,); see the example of :func:`aggregate`.
"""


@public
def aggregate(rule: Aggregation, /, **settings: object) -> Phase:
    """Return the exchange in which nodes aggregate their own and received models by a rule.

    Node i receives from all nodes j with ``W[i, j] != 0`` in the round's mixing matrix ``W``. All
    models are read before any is replaced.

    Parameters
    ----------
    rule
        ``rule(own, received, weights) -> model`` (d,): from a node's own model (d,), the models
        (k, d) that it receives, in ascending order of nodes, and their weights ``W[i, j]``, (k,).
        It must not branch on values, since a run plays it on tensors without values (device
        'meta'). For a node without neighbors `received` has k = 0 rows, and the rule should return
        `own`.
    settings
        Arguments of the rule, saved with results.

    Raises
    ------
    TypeError
        If `rule` is not a function of three arguments.

    Examples
    --------
    The coordinate-wise maximum:

    >>> import torch
    >>> def largest(own, received, weights):
    ...     return torch.cat([own[None], received]).amax(0)
    >>> aggregate(largest, rule="largest").settings
    {'weights': 'round', 'rule': 'largest'}
    """
    check_takes("`rule`", rule, "own", "received", "weights")

    def named(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
        with named_errors("`rule` of aggregate, for the models that a node receives,", received):
            return rule(own, received, weights)

    def apply(models: Models, state: State, round: Round) -> State:
        round.aggregate(round.weights, models.flat, named)
        return state

    return Phase(no_state, apply, {"weights": "round"} | settings, rowwise=True)


def denser_graph_remedy(n: int, attackers: int, most: int, arguments: str = "") -> str:
    """Return the remedy for too many attackers: a denser graph, or fewer attackers.

    Parameters
    ----------
    n, attackers
        Numbers of nodes and of attackers.
    most
        Largest number of attackers that the method tolerates on the fully connected graph.
    arguments
        Arguments that this graph requires, as in " and trim=2".

    Examples
    --------
    >>> denser_graph_remedy(10, 2, 4)
    'use topologies.fully_connected(10)'
    """
    if attackers <= most:
        return f"use topologies.fully_connected({n}){arguments}"
    return f"let at most {most} of the {n} nodes attack, since no graph tolerates more"


def exposure_to_attackers(
    weights: MixingMatrix, bad: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many models each node receives, how many from attackers, and their weight.

    Parameters
    ----------
    weights
        Mixing matrix of n nodes.
    bad
        (n,) booleans: the attackers.

    Returns
    -------
    tuple of numpy.ndarray
        Integers, integers and floats, (n,) each; 0 for attackers.
    """
    matrix = weights.weights.tocoo()
    counted = (matrix.row != matrix.col) & (matrix.data != 0) & ~bad[matrix.row]
    receivers = matrix.row[counted]
    attacks = bad[matrix.col[counted]]
    received = np.bincount(receivers, minlength=len(bad))
    attackers = np.bincount(receivers[attacks], minlength=len(bad))
    shares = np.bincount(receivers, weights=matrix.data[counted] * attacks, minlength=len(bad))
    return received, attackers, shares
