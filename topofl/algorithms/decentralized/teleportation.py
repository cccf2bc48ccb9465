"""Teleportation: few nodes are active at a time, and hand their models on to the next."""

import numpy as np
import scipy.sparse as sparse
import torch

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import Training, sgd_descent
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.mixing import MixingMatrix

__all__ = ["teleportation"]


@public
def teleportation(
    lr: Rate,
    *,
    active: int,
    degree: int | None = None,
    batch_size: int = 128,
    local_steps: int = 1,
) -> Algorithm:
    """Return Teleportation: in each round few nodes are active, with the models of the previous.

    Per round, `active` nodes ``s_1, ..., s_k`` are drawn, in random order. Node ``s_p`` replaces
    its model by the one that the p-th node of the previous round sends it, trains, and averages
    with active nodes at other places, where ``P_p`` contains p and the places ``p + 1, p + 2, p +
    4, ...`` (mod k)::

        theta_{s_p} = theta_{r_p}                  (r: the active nodes of the previous round)
        theta_{s_p} = theta_{s_p} - lr * grad F(theta_{s_p}; S_{s_p})     (`local_steps` steps)
        theta_{s_p} = sum_{q in P_p} theta_{s_q} / |P_p|

    So there are only k models, however many nodes there are, and they average as fast as on a graph
    of k nodes: with many nodes and sparse graphs D-SGD averages slowly, and here k can be chosen
    such that this does not matter. In the first round the nodes have their own models. Nodes that
    are not active keep the last model that they had, which is old: the mixing matrix of a round in
    the history is the identity in their rows.

    Any two nodes may have to exchange: the graph of the run is not used and can be left out, and
    `mixing` is not used either. In a round, each active node sends a model to each of the others
    whose ``P`` contains it, and those of the previous round each send one, except if a node follows
    itself. The number of messages is thus random, and estimates are means.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    active
        Number k of active nodes, from 1 to n.
    degree
        Number of places from which an active node receives, the nearest of those above; None: all,
        which is the static exponential graph. With 1 the graph is a directed ring.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Minibatch steps between two exchanges.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run, if `active` is above n.

    Notes
    -----
    A history has one matrix per round, that of the averages, so that
    :func:`topofl.metrics.round_time` refuses it, but for a `degree` of 1, where it takes the
    hand-overs for exchanges along the ring; :func:`topofl.algorithms.timed` has the seconds. The
    graph of the active nodes is our choice, since only the abstract of the paper was read; the
    simulator draws a random regular graph of degree log2 k.

    References
    ----------
    Takezawa and Stich, "Scalable decentralized learning with Teleportation" (ICLR 2025), with
    the steps in the order of sacs-epfl/decentralized-learning-simulator,
    ``dasklearn/simulation/teleportation/client.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=40, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> history = topofl.run(teleportation(lr=0.5, active=4), rounds=20, seed=0, **how)
    >>> int(history["messages"][0]), int(history["messages"][1:].max())  # 4 models to 2 each, + 4
    (8, 12)
    """
    active = check_int("active", active, minimum=1)
    places = (active - 1).bit_length()
    if degree is not None:
        places = min(places, check_int("degree", degree, minimum=1))
    steps = check_int("local_steps", local_steps, minimum=1)
    batch_size = check_int("batch_size", batch_size, minimum=1)
    training = Training(sgd_descent(lr), batch_size, steps=steps)

    def init(models: Models) -> State:
        check_int("active", active, minimum=1, maximum=models.n, maximum_name="n")
        return {"at": torch.zeros(1, active, dtype=torch.int64, device="cpu")}

    def move(models: Models, state: State, round: Round) -> State:
        at = state["at"][0]
        chosen = round.rng("active").permutation(round.n)[:active]
        if round.t > 0:
            round.mix(_averages(round.n, chosen, at.numpy()[:, None]), models.flat)
        at.copy_(torch.from_numpy(chosen))
        return state

    def step(models: Models, state: State, round: Round) -> State:
        here = np.isin(np.arange(round.n), round.state("move")["at"][0].numpy())
        round.train(models, training, state, participants=here)
        return state

    def exchange(models: Models, state: State, round: Round) -> State:
        at = round.state("move")["at"][0].numpy()
        distances = np.append(0, 2 ** np.arange(places))
        senders = at[(np.arange(active)[:, None] + distances) % active]
        round.mix(_averages(round.n, at, senders), models.flat)
        return state

    return chain(
        "teleportation",
        move=Phase(init, move, {"active": active, "degree": places}),
        local=Phase(training.init, step, training.settings),
        exchange=Phase(no_state, exchange, {"weights": "equal"}),
    )


def _averages(n: int, receivers: np.ndarray, senders: np.ndarray) -> MixingMatrix:
    """Return the matrix by which (m,) nodes average what (m, c) nodes send, and others keep."""
    count, size = senders.shape
    others = np.setdiff1d(np.arange(n), receivers)
    rows = np.concatenate([np.repeat(receivers, size), others])
    columns = np.concatenate([senders.reshape(-1), others])
    shares = np.concatenate([np.full(count * size, 1 / size), np.ones(len(others))])
    matrix = sparse.csr_array((shares, (rows, columns)), shape=(n, n))
    return MixingMatrix(matrix, name="teleportation")
