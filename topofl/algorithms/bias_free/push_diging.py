"""Push-DIGing: gradient tracking by push-sum over directed graphs, which may change."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import needing, strongly_connected
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.algorithms.contract.terms import tracking
from topofl.algorithms.exchanges.average import pushed_weights

__all__ = ["push_diging"]


@public
@needing(strongly_connected)
def push_diging(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return Push-DIGing: gradient tracking by push-sum over directed graphs.

    Per round, for every node i with push-sum weight ``v_i``, which starts at 1, and model ``x_i =
    u_i / v_i``, with gradients ``g_i`` of this round and ``g_i'`` of the previous one; ``g_i'`` and
    ``y_i`` start at 0::

        y_i = y_i + g_i - g_i',   g_i = grad F(x_i; S_i)
        u_i = sum_j P[i, j] (u_j - lr * y_j)  (P[i, j]: the share that node j sends to i)
        v_i = sum_j P[i, j] v_j,   y_i = sum_j P[i, j] y_j
        x_i = u_i / v_i

    The columns of ``P`` must sum to 1, as in the push form of :func:`topofl.mixing.uniform`, on any
    graph, directed or not. The graph may change from round to round if there is a number of rounds
    within which every node always reaches every other. The sum of ``y`` over nodes always equals
    the sum of their latest gradients. With full batches and a small enough constant `lr`, all
    models converge to the optimum of the mean loss, however different the data of nodes are. With a
    doubly stochastic ``P``, the method is :func:`topofl.algorithms.dsgt`. A message holds a model,
    a tracked gradient and a push-sum weight.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`. Nodes
        that receive small shares have small push-sum weights and take large steps: a graph with
        unequal degrees needs a smaller `lr`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    References
    ----------
    Nedic, Olshevsky and Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs" (SIAM Journal on Optimization, 2017), Algorithm 2.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.random_out(10, 2, seed=0), "rounds": 30, "seed": 0}
    >>> tracked = topofl.run(push_diging(lr=0.05), **how)
    >>> steps = algorithms.sgd(0.05, batch_size=128)
    >>> sgp = algorithms.chain("sgp", local=steps, exchange=algorithms.push_sum())
    >>> plain = topofl.run(sgp, **how)
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    exchange = Phase(no_state, _exchange, {"weights": "push"}, rowwise=True)
    return chain("push_diging", local=local, exchange=exchange)


def _exchange(models: Models, state: State, round: Round) -> State:
    """Push weighted models, push-sum weights and tracked gradients in one message."""
    weights = round.push_weights
    tracked = round.state("local")["tracked"]
    flat = models.flat
    flat.mul_(models.push_sum_weights[:, None].to(flat.dtype))
    round.mix(weights, flat, scalars=tracked.shape[1] + 1)
    round.mix(weights, tracked, counted=False)
    models.push_sum_weights.copy_(pushed_weights(weights, models.push_sum_weights, round))
    flat.div_(models.push_sum_weights[:, None].to(flat.dtype))
    return state
