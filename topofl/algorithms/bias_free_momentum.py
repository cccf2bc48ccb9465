"""Gradient tracking with momentum, without the bias of D-SGD."""

from torch import Tensor

from topofl._support.check import check_fraction
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import doubly_stochastic, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step, Term, zeros

__all__ = ["momentum_tracking"]


@public
@needing(doubly_stochastic)
def momentum_tracking(lr: Rate, *, momentum: float = 0.9, batch_size: int = 128) -> Algorithm:
    """Return Momentum Tracking: gradient tracking in which nodes track each other's momentum.

    Per round, for every node i with model ``x_i``, momentum ``m_i`` and a tracked momentum ``y_i``,
    where ``m_i`` and ``y_i`` start at 0::

        m_i' = momentum * m_i + grad F(x_i; S_i)
        y_i  = y_i + m_i' - m_i,   m_i = m_i'
        x_i  = sum_j W[i, j] x_j - lr * y_i,   y_i = sum_j W[i, j] y_j

    The momentum of :func:`topofl.algorithms.dsgd` follows the gradients of node i alone, which
    drives nodes with different data apart. Here, the mean of ``y`` over nodes always equals the
    mean of their momenta: with full batches and a small enough constant `lr`, all models converge
    to the optimum of the mean loss, however different the data of nodes are. ``W`` must be doubly
    stochastic. With a momentum of 0, the method is :func:`topofl.algorithms.sab` with ``A = B =
    W``. A message holds two numbers per parameter.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    momentum
        In [0, 1). As in ``torch.optim.SGD``, steps become longer by ``1 / (1 - momentum)``.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The authors' code stores ``c_i = m_i - y_i``, and starts it such that all ``y_i`` are the mean
    of the first gradients of all nodes, which needs an exchange with all nodes. It also adds a
    weight decay of 0.001 to gradients.

    References
    ----------
    Takezawa, Bao, Niwa, Sato and Yamada, "Momentum Tracking: momentum acceleration for
    decentralized deep learning on heterogeneous data" (2023), as in the authors' repository
    yukiTakezawa/MomentumTracking, ``optimizer/momentum_tracking_optimizer.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> tracked = topofl.run(momentum_tracking(lr=0.03), **how)
    >>> local = topofl.run(topofl.algorithms.dsgd(lr=0.03, momentum=0.9), **how)
    >>> bool(tracked.last("loss").mean() < local.last("loss").mean())
    True
    """
    term = _tracked_momentum(check_fraction("momentum", momentum))
    local = train(descend(term, lr=lr), batch_size=batch_size)

    def start(models: Models) -> State:
        return {"sent": models.flat.clone()}

    def mix_before_step(models: Models, state: State, round: Round) -> State:
        tracked = round.state("local")["tracked"]
        sent = state["sent"]
        models.flat.sub_(sent)
        round.mix(round.weights, sent, scalars=tracked.shape[1])
        round.mix(round.weights, tracked, counted=False)
        sent.copy_(models.flat.add_(sent))
        return state

    exchange = Phase(start, mix_before_step, {"weights": "round"}, rowwise=True)
    return chain("momentum_tracking", local=local, exchange=exchange)


def _tracked_momentum(momentum: float) -> Term:
    """Return the term of heavy-ball momentum whose mean over nodes is tracked."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        tracked = own["tracked"].sub_(own["momentum"])
        return tracked.add_(own["momentum"].mul_(momentum).add_(g))

    init = zeros("tracked", "momentum")
    settings = {"momentum": momentum}
    return Term("tracked_momentum", update, init, elementwise=True, settings=settings)
