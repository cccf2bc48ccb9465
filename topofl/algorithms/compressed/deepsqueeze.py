"""DeepSqueeze: D-SGD with compressed models and error feedback."""

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
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

__all__ = ["deepsqueeze"]


@public
@needing(doubly_stochastic)
def deepsqueeze(
    lr: Rate,
    *,
    gamma: float,
    compressor: Compressor | str = TOP_TENTH,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int = 1,
) -> Algorithm:
    """Return DeepSqueeze: D-SGD whose messages are compressed models, with error feedback.

    Per round, for every node i, with the accumulated compression error ``e_i``, starting at 0::

        theta_i = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        c_i     = Q(theta_i + e_i)  (this is sent)
        e_i     = theta_i + e_i - c_i
        theta_i = theta_i + gamma * sum_j W[i, j] (c_j - c_i)

    Only the local steps move the mean of the models over nodes; without compression and with
    ``gamma=1``, the method is D-SGD. Nodes store nothing about their neighbors, so the graph may
    change from round to round. Since models are compressed instead of differences, messages do not
    become more accurate as models converge: models keep a distance from each other, which is
    smaller for a smaller `gamma`. Strong compression needs a small `gamma`. The weights ``W`` must
    be doubly stochastic; the theorem assumes static, symmetric ones.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    gamma
        Consensus step size, in (0, 1]; eta in the paper.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum, local_steps
        As in :func:`topofl.algorithms.dsgd`; 0 and 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    References
    ----------
    Tang, Lian, Qiu, Yuan, Zhang, Zhang and Liu, "DeepSqueeze: decentralization meets
    error-compensated compression" (2019).

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> signs = deepsqueeze(lr=0.5, gamma=0.1, compressor=algorithms.sign())
    >>> compressed, plain = (topofl.run(one, **how) for one in (signs, algorithms.dsgd(lr=0.5)))
    >>> bool(compressed.last("accuracy").mean() > plain.last("accuracy").mean() - 0.05)
    True
    >>> round(float(plain["bytes"][-1] / compressed["bytes"][-1]), 1)
    30.2
    """
    compressor = check_compressor(compressor)
    gamma = check_consensus_step(gamma)
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("deepsqueeze", local=local, exchange=_exchange(compressor, gamma))


def _exchange(compressor: Compressor, gamma: float) -> Phase:
    """Return the phase that sends compressed models with error feedback and averages them."""

    def apply(models: Models, state: State, round: Round) -> State:
        error = state["error"].add_(models.flat)
        sent = compressed(compressor, models, error, round.rng("compression"))
        error.sub_(sent)
        models.flat.add_(disagreement(round, sent), alpha=gamma)
        round.send(round.weights, message_bytes(compressor, models.flat))
        return state

    return compressed_exchange(compressor, gamma, ("error",), apply)
