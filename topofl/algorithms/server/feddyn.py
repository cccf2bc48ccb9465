"""FedDyn: federated learning with dynamic regularization."""

from topofl._support.check import check_positive
from topofl.algorithms.contract.correction_terms import correction, proximal
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.participation import Participation, sampled
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.contract.terms import descend
from topofl.algorithms.exchanges.average import server_average

__all__ = ["feddyn"]


def feddyn(
    lr: Rate, *, alpha: float = 0.1, participation: float | int = 1.0, batch_size: int = 128,
    epochs: int = 5,
) -> Algorithm:  # fmt: skip
    """Return FedDyn: federated learning with dynamic regularization.

    Per round, for nodes A drawn at random of n, with all ``h_i``, and the server's ``h``, zero at
    first::

        y_i <- y_i - lr * (grad F_i(y_i) - h_i + alpha * (y_i - x))
            (`epochs` passes from y_i = x, i in A)
        h_i <- h_i - alpha * (y_i - x)  (i in A; grad F_i(y_i) if y_i is optimal)
        h   =  h - alpha / n * sum_{i in A} (y_i - x)
        x   =  (1 / |A|) sum_{i in A} y_i - h / alpha

    The local steps descend on ``F_i(y) - <h_i, y> + alpha / 2 * |y - x|^2``. At all times ``h`` is
    the mean of the ``h_i`` over all nodes; where the method comes to rest all ``y_i`` are ``x``,
    thus ``h = 0`` and x is a stationary point of the plain mean of the losses, however few steps
    nodes take. All nodes then hold ``x``, so the server's model is evaluated. All nodes must start
    from one model. A message, up or down, is a model. Needs no topology.

    Parameters
    ----------
    lr
        Step size at the nodes: a number, or ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.
    alpha
        Above 0: strength of the proximal term to the server's model.
    participation
        Number or share of the nodes that take part in a round, as in
        :func:`topofl.algorithms.sampled`.
    batch_size, epochs
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if the nodes of a run start from
        different models.

    Notes
    -----
    The authors' published code divides `alpha` by a node's number of examples over the mean number,
    and clips gradients to a norm of 10; the paper's algorithm has neither.

    References
    ----------
    Acar et al., "Federated learning based on dynamic regularization" (2021), Algorithm 1, whose
    local optimum is approached by some passes of SGD.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(feddyn(lr=0.1, batch_size=32), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.9)
    True
    """
    participants, alpha = sampled(participation), check_positive("alpha", alpha)
    steps = descend(correction(), proximal(alpha), lr=lr)
    local = train(steps, batch_size=batch_size, epochs=epochs, participants=participants)
    return chain("feddyn", local=local, server=_server(alpha, participants))


def _server(alpha: float, participants: Participation) -> Phase:
    """Return the phase that updates the corrections ``-h_i``, and in which a server averages."""
    average = server_average(participants=participants, weighted=False)

    def init(models: Models) -> State:
        start = models.start
        return {"server": start, "h": start.new_zeros(start.shape)}

    def apply(models: Models, state: State, round: Round) -> State:
        x, h = state["server"], state["h"]
        round.state("local")["correction"].add_(
            models.flat - x, alpha=alpha
        )  # those of others are x
        average.apply(models, {}, round)
        h.sub_(models.flat[:1] - x, alpha=alpha * float(participants(round).mean()))
        models.flat.copy_(x.copy_(models.flat[:1] - h / alpha).expand_as(models.flat))
        return state

    return Phase(init, apply, {"alpha": alpha, **average.settings})
