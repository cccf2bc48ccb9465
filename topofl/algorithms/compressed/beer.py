"""BEER: gradient tracking with compressed messages."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import doubly_stochastic, needing, static
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import tracking
from topofl.algorithms.exchanges.compressors import (
    TOP_TENTH,
    Compressor,
    check_compressor,
    check_consensus_step,
    compressed,
    compressed_exchange,
    disagreement,
    message_bytes,
)

__all__ = ["beer"]


@public
@needing(static, doubly_stochastic)
def beer(
    lr: Rate, *, gamma: float, compressor: Compressor | str = TOP_TENTH, batch_size: int = 128
) -> Algorithm:
    """Return BEER: gradient tracking with compressed messages.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one, and estimates ``h_i`` of its model and ``u_i`` of its tracked gradient, which all its
    neighbors also store; all start at 0::

        y_i     = y_i + g_i - g_i',   g_i = grad F(theta_i; S_i)
        theta_i = theta_i - lr * y_i + gamma * sum_j W[i, j] (h_j - h_i)
        h_j     = h_j + Q(theta_j - h_j), u_j = u_j + Q(y_j - u_j) (both Q are sent; also for j = i)
        y_i     = y_i + gamma * sum_j W[i, j] (u_j - u_i)

    The mean of ``y`` over nodes always equals the mean of their latest gradients. With full batches
    and small enough constant `lr` and `gamma`, all models converge to a stationary point of the
    mean loss, however different the data of nodes are and however strong the compression is.
    Without compression, with ``gamma=1`` and equal initial models, it is gradient tracking in the
    form ``theta = W theta - lr * y``, ``y = W y + g - g'`` (DIGing). The graph must be static,
    since estimates are sums of all past messages, and the weights ``W`` doubly stochastic; the
    theorem assumes undirected graphs.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    gamma
        Consensus step size, in (0, 1]; in the theorem, of the order of the contraction of Q times
        the spectral gap of W.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    Notes
    -----
    In the paper and in the authors' experiments, ``u`` is still 0 after the first round; here the
    first message updates it too, so that all messages have the same form.

    References
    ----------
    Zhao, Li, Li, Richtarik and Chi, "BEER: fast O(1/T) rate for decentralized nonconvex
    optimization with communication compression" (NeurIPS 2022), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> tracked = beer(lr=0.1, gamma=0.5, compressor=algorithms.quantized(levels=7))
    >>> compressed, plain = (topofl.run(one, **how) for one in (tracked, algorithms.dsgd(lr=0.1)))
    >>> bool(compressed.last("loss").mean() < plain.last("loss").mean())
    True
    >>> round(float(plain["bytes"][-1] / compressed["bytes"][-1]), 1)
    4.0
    """
    exchange = _exchange(check_compressor(compressor), check_consensus_step(gamma))
    return chain(
        "beer", local=train(descend(tracking(), lr=lr), batch_size=batch_size), exchange=exchange
    )


def _exchange(compressor: Compressor, gamma: float) -> Phase:
    """Return the phase that averages models and tracked gradients by compressed messages."""

    def apply(models: Models, state: State, round: Round) -> State:
        tracked = round.state("local")["tracked"]
        models.flat.add_(disagreement(round, state["models"]), alpha=gamma)
        for name, values in (("models", models.flat), ("tracked", tracked)):
            rng = round.rng(f"compression/{name}")
            state[name].add_(compressed(compressor, models, values - state[name], rng))
        tracked.add_(disagreement(round, state["tracked"]), alpha=gamma)
        round.send(round.weights, 2 * message_bytes(compressor, models.flat))
        return state

    return compressed_exchange(compressor, gamma, ("models", "tracked"), apply)
