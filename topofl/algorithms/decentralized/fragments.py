"""Exchanges of fragments of models, each over a random graph of its own: DivShare."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.peers import can_receive
from topofl.mixing import average_of_chosen

__all__ = ["divshare"]


@public
def divshare(
    lr: Rate,
    *,
    fragments: int = 10,
    degree: int = 6,
    batch_size: int = 128,
    local_steps: int = 1,
) -> Algorithm:
    """Return DivShare: nodes send each fragment of their models to other random nodes.

    Parameters are divided into fragments at random, in the first round and equally at all nodes. Of
    a tensor with s entries, each of F fragments gets ``floor(s / F)``; those that remain, all of
    them if s is below F, belong to the last fragment. Per round, for every node i and every
    fragment f with the coordinates ``P_f``::

        theta_i = theta_i - lr * grad F(theta_i; S_i)        (`local_steps` steps)
        send theta_i[P_f] to `degree` random nodes           (drawn for each node and fragment)
        theta_i[p] = (theta_i[p] + sum_{j: i received f from j} theta_j[p])
                     / (1 + number of these j)               (p in P_f)

    A node thus receives parts of the models of up to ``fragments * degree`` nodes for the bytes of
    `degree` models. With one fragment, it is D-SGD over graphs that are redrawn in every round. An
    optional topology restricts to which nodes each can send; with fewer than `degree` of these, a
    node sends to all.

    The method was made for nodes that do not wait for each other: there, fragments that arrive
    during a node's local steps are averaged after them, and those that a slow link has not sent are
    dropped when newer ones are ready. Here, rounds are synchronous and all fragments arrive, so
    that the exchange alone is studied. Running statistics, if a model has any, stay at their node.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    fragments
        Number of fragments F, at least 1 and at most the entries of the largest parameter tensor.
    degree
        Number of nodes to which each fragment is sent; 6 in the code, for 60 nodes.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Steps between two exchanges; 128 in an example of the code, of 8 examples each.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run, if there are too many
        fragments.

    References
    ----------
    Biswas, Kermarrec, Marouani, Pires, Sharma and de Vos, "Boosting asynchronous decentralized
    learning with model fragmentation" (WWW 2025), in the authors' code sacs-epfl/divshare,
    async-dp/src/asyncNodes/sharing/DivShareSharing.py and node/DivShare.py.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients, "rounds": 20, "seed": 0}
    >>> parts, whole = (topofl.run(divshare(lr=0.1, degree=1, fragments=k), **how) for k in (8, 1))
    >>> bool(parts["consensus_distance"][-1] < whole["consensus_distance"][-1])
    True
    >>> bool(parts["bytes"][-1] == whole["bytes"][-1])
    True
    """
    count = check_int("fragments", fragments, minimum=1)
    most = check_int("degree", degree, minimum=1)
    steps = check_int("local_steps", local_steps, minimum=1)
    settings = {"fragments": count, "degree": most}
    return chain(
        "divshare",
        local=train(descend(lr=lr), batch_size=batch_size, steps=steps),
        exchange=Phase(
            partial(_undivided, count),
            partial(_exchange_fragments, count, most),
            settings,
            rowwise=True,
        ),
    )


def _undivided(count: int, models: Models) -> State:
    """Return room for the fragment of each parameter, (1, d)."""
    largest = max(shape.numel() for shape in models.shapes.values())
    if count > largest:
        raise ValueError(
            f"`fragments` must be at most the entries of the largest parameter, {largest}, got "
            f"{count}; lower it"
        )
    return {"fragment": models.flat.new_zeros(1, models.d, dtype=torch.int64)}


def _fragments(count: int, models: Models, rng: np.random.Generator) -> np.ndarray:
    """Return the fragment of each parameter, (d,): of every tensor, equally many in random order.

    What remains belongs to the last fragment.
    """
    found = []
    for shape in models.shapes.values():
        size = shape.numel()
        places = rng.permutation(size)
        found.append(np.minimum(places // max(1, size // count), count - 1))
        if size < count:
            found[-1][:] = count - 1
    return np.concatenate(found)


def _places(count: int, models: Models, state: State, round: Round) -> list[Tensor]:
    """Return the coordinates of each fragment, which the first round draws."""
    own = state["fragment"][0]
    if round.t == 0 or own.is_meta:
        drawn = torch.from_numpy(_fragments(count, models, round.rng("fragments")))
        if own.is_meta:  # how many each fragment has does not depend on the draw
            sizes = torch.bincount(drawn, minlength=count).tolist()
            return [own.new_empty(size) for size in sizes]
        own.copy_(drawn)
    return [(own == f).nonzero()[:, 0] for f in range(count)]


def _exchange_fragments(count: int, most: int, models: Models, state: State, round: Round) -> State:
    """Send each fragment along a random graph, and average it with those that arrive."""
    allowed = can_receive(round.peers).fill_diagonal_(False).numpy()
    rng = round.rng("recipients")
    for places in _places(count, models, state, round):
        weights = average_of_chosen(_recipients(allowed.T, most, rng).T)
        if models.flat.is_meta:  # shows the run that whole models are exchanged
            round.mix(weights, models.flat, counted=False)
        if len(places):
            values = models.flat.index_select(1, places)
            round.mix(weights, values, counted=False)
            round.send(weights, values.shape[1] * values.element_size())
            models.flat.index_copy_(1, places, values)
    return state


def _recipients(allowed: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return to which nodes each sends, (n, n) booleans: `most` of those allowed, at random."""
    order = np.where(allowed, rng.random(allowed.shape), 2.0).argsort(axis=1)[:, :most]
    chosen = np.zeros_like(allowed)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen & allowed
