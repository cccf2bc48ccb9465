"""S-AB: gradient tracking over directed graphs with row- and column-stochastic weights."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import needing, strongly_connected
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import tracking

__all__ = ["sab"]


@public
@needing(strongly_connected)
def sab(lr: Rate, *, batch_size: int = 128) -> Algorithm:
    """Return S-AB: gradient tracking over directed graphs, without push-sum weights.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one; ``g_i'`` and ``y_i`` start at 0::

        y_i = y_i + g_i - g_i',   g_i = grad F(x_i; S_i)
        x_i = sum_j A[i, j] x_j - lr * y_i  (rows of A sum to 1: nodes average what they receive)
        y_i = sum_j B[i, j] y_j  (columns of B sum to 1: nodes push shares of what they have)

    The graph must be strongly connected, directed or not; it is static in the paper, while later
    work proves the same for changing graphs. ``A`` holds the weights with which nodes average what
    they receive, and ``B`` the shares that they push; on directed graphs, both have equal weights
    by default. (If a run is given weights, they are used for both and must be doubly stochastic.)
    The sum of ``y`` over nodes always equals the sum of their latest gradients. With full batches
    and a small enough constant `lr`, all models converge to the optimum of the mean loss, however
    different the data of nodes are. A message holds a model and a tracked gradient: two numbers per
    parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    Another form of AB, in the library disropt, also pushes the gradient differences: ``y_i = sum_j
    B[i, j] (y_j + g_j - g_j')``. Push-pull mixes models after the step instead of before it: ``x_i
    = sum_j A[i, j] (x_j - lr * y_j)``.

    References
    ----------
    Xin, Sahu, Khan and Kar, "Distributed stochastic optimization with gradient tracking over
    strongly-connected networks" (CDC 2019), S-AB; Xin and Khan, "A linear algorithm for
    optimization over directed graphs with geometric convergence" (2018), AB; Pu, Shi, Xu and Nedic,
    "Push-pull gradient methods for distributed optimization in networks" (2021), push-pull.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, mixing, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> graph = topologies.remove_edges(topologies.exponential(10), [(0, 1), (4, 8), (5, 6)])
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": graph, "rounds": 30, "seed": 0}
    >>> tracked = topofl.run(sab(lr=0.1), **how)
    >>> plain = topofl.run(algorithms.dsgd(lr=0.1), mixing=mixing.uniform, **how)  # unequal shares
    >>> bool(tracked.last("loss").mean() < plain.last("loss").mean())
    True
    """
    local = train(descend(tracking(), lr=lr), batch_size=batch_size)
    settings = {"weights": "round", "tracked": "push"}
    return chain("sab", local=local, exchange=Phase(_start, _exchange, settings, rowwise=True))


def _start(models: Models) -> State:
    """Return the initial models, which are the first messages."""
    return {"sent": models.flat.clone()}


def _exchange(models: Models, state: State, round: Round) -> State:
    """Average the models before the local step, add the step, and push the tracked gradients."""
    pushes = round.push_weights
    tracked = round.state("local")["tracked"]
    sent = state["sent"]
    models.flat.sub_(sent)
    round.mix(round.weights, sent, scalars=tracked.shape[1])
    round.mix(pushes, tracked, counted=False)
    sent.copy_(models.flat.add_(sent))
    return state
