"""D-SGD over CECA: two averages per node, so that any number of nodes averages exactly."""

from functools import lru_cache

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_int, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

__all__ = ["dsgd_ceca"]


@public
def dsgd_ceca(lr: Rate, *, batch_size: int = 128, one_port: bool = False) -> Algorithm:
    """Return DSGD-CECA: D-SGD whose exchanges average exactly in ceil(log2 n) rounds for any n.

    A node has its model ``x_i`` and a second average ``y_i``, which starts as ``x_i``. A period has
    a round for each binary digit b of n - 1, the most significant first. Before a round, ``y_i``
    averages the models of h other nodes, and ``x_i`` those and that of node i; h is 0 at the start
    of a period and ``2 h + b`` after a round. Per round, for every node i and the node ``j = i - h
    - b`` (mod n) from which it receives::

        z_i = x_i if b = 1 else y_i,   g_i = grad F(z_i; S_i)
        x_i = x_i - lr * g_i,   y_i = y_i - lr * g_i         (and z_i with them)
        x_i = (x_i + z_j) / 2,                     y_i = (h y_i + (h + 1) z_j) / (2 h + 1)  if b = 1
        x_i = ((h + 1) x_i + h z_j) / (2 h + 1),   y_i = (y_i + z_j) / 2                    if b = 0

    Without gradients all ``x_i`` are the mean after a period, whatever n is; one-peer exponential
    graphs average exactly for powers of two only. Per round, a node sends one model and receives
    one. With `one_port` it sends to the node from which it receives: i exchanges with ``i + 2 h +
    1`` if i is odd, and with ``i - 2 h - 1`` if it is even; n must be even.

    The graph of the run is not used and can be left out: any two nodes may have to exchange, and
    `mixing` is not used either. The mixing matrix of a round in the history says from which node
    each receives. Running statistics, if a model has any, stay at their node.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.
    one_port
        Whether nodes exchange in pairs (DSGD-CECA-1P), in place of sending to one node and
        receiving from another (2P).

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    TopologyError
        In a run, if n is 1, or odd with `one_port`.

    Notes
    -----
    The authors' code multiplies `lr` by n.

    References
    ----------
    Ding, Jin, Ying, Yuan and Yin, "DSGD-CECA: decentralized SGD with communication-optimal exact
    consensus algorithm" (2023), as in the authors' code.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=11, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> history = topofl.run(dsgd_ceca(lr=0.5), rounds=40, seed=0, **how)
    >>> bool(history.last("accuracy").mean() > 0.8), int(history["messages"][-1])
    (True, 11)
    """
    training = Training(descend(lr=lr), check_int("batch_size", batch_size, minimum=1))
    one_port = bool(check_switch("one_port", one_port, auto=False))

    def init(models: Models) -> State:
        return training.init(models) | {"others": models.flat.clone()}

    def step(models: Models, state: State, round: Round) -> State:
        averages = [models, models.like(state["others"])]
        digit = _round(round.t, round.n, one_port)[1]
        moves, follows = averages if digit else averages[::-1]
        before = moves.flat.clone()
        round.train(moves, training, state)
        follows.flat.sub_(before.sub_(moves.flat))
        return state

    def exchange(models: Models, state: State, round: Round) -> State:
        held, digit, peers = _round(round.t, round.n, one_port)
        x, others = models.flat, round.state("local")["others"]
        received = (x if digit else others).clone()
        round.mix(peers, received)
        shares = (0.5, (held + 1) / (2 * held + 1)) if digit else (held / (2 * held + 1), 0.5)
        x.lerp_(received, shares[0])
        others.lerp_(received, shares[1])
        return state

    return chain(
        "dsgd_ceca",
        local=Phase(init, step, training.settings, rowwise=True),
        exchange=Phase(no_state, exchange, {"one_port": one_port}, rowwise=True),
    )


@lru_cache(maxsize=64)
def _round(t: int, n: int, one_port: bool) -> tuple[int, int, MixingMatrix]:
    """Return how many others a node has averaged, the digit, and who receives from whom."""
    if n == 1 or (one_port and n % 2):
        needed = "an even number of" if one_port else "at least 2"
        raise TopologyError(f"`clients` must have {needed} nodes for dsgd_ceca, got {n}")
    digits = [int(digit) for digit in f"{n - 1:b}"]
    held = 0
    for digit in digits[: t % len(digits)]:
        held = 2 * held + digit
    digit = digits[t % len(digits)]
    nodes = np.arange(n)
    if one_port:
        senders = nodes + np.where(nodes % 2, 1, -1) * (2 * held + 1)
    else:
        senders = nodes - held - digit
    matrix = sparse.csr_array((np.ones(n), (nodes, senders % n)), shape=(n, n))
    return held, digit, MixingMatrix(matrix, name="ceca")
