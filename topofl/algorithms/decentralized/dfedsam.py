"""DFedSAM: sharpness-aware local training, then one or several gossip steps."""

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, ascent
from topofl.algorithms.contract.local import sgd_descent, train
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state

__all__ = ["dfedsam"]


@public
@needing(equal_shares)
def dfedsam(
    lr: Rate,
    *,
    radius: float = 0.01,
    gossip_steps: int = 1,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return DFedSAM: sharpness-aware local training, then one or several gossip steps.

    Per round, for every node i, from ``y = x_i``::

        g   = grad F(y; S_i)
        y   = y - lr * grad F(y + radius * g / (||g|| + 1e-12); S_i)         (`epochs` passes)
        z_i = y
        z_i = sum_j W[i, j] z_j                                              (`gossip_steps` times)
        x_i = z_i

    A step computes two gradients on the same minibatch. Each of the `gossip_steps` exchanges sends
    a model along every edge. The theory assumes symmetric, doubly stochastic weights.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares. :func:`topofl.algorithms.sab`, :func:`topofl.algorithms.osgp` and
    :func:`topofl.algorithms.push_diging` weight all nodes equally.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum, which Algorithm 1 of the paper does not have,
        starts from zero in every round.
    radius
        Distance to the point uphill at which gradients are taken, above 0.
    gossip_steps
        Exchanges per round (the paper's Q): 1 is DFedSAM, more are DFedSAM-MGS.
    epochs
        Passes over a node's data per round.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    Some public code averages at the beginning of a round instead of its end; from equal initial
    models, nodes then train from the same models.

    References
    ----------
    Shi, Shen, Wei, Sun, Yuan, Wang and Tao, "Improving the model consistency of decentralized
    federated learning" (2023), Algorithm 1; Foret et al., "Sharpness-aware minimization for
    efficiently improving generalization" (2021).

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 10, "seed": 0}
    >>> once, often = (
    ...     topofl.run(dfedsam(lr=0.1, epochs=1, gossip_steps=q), **how) for q in (1, 4)
    ... )
    >>> bool(often["consensus_distance"][-1] < once["consensus_distance"][-1])
    True
    >>> int(often["bytes"][-1] // once["bytes"][-1])
    4
    """
    descent = sgd_descent(lr, momentum, lr_decay, weight_decay, clip, reset_momentum=True)
    local = train(descent, batch_size=batch_size, epochs=epochs, at=ascent(radius))
    exchange = _gossips(check_int("gossip_steps", gossip_steps, minimum=1))
    return chain("dfedsam", local=local, exchange=exchange)


def _gossips(times: int) -> Phase:
    """Return the phase of several consecutive gossip steps."""

    def apply(models: Models, state: State, round: Round) -> State:
        for _ in range(times):
            round.mix(round.weights, models.flat)
        return state

    settings = {"weights": "round", "gossip_steps": times}
    return Phase(no_state, apply, settings, rowwise=True)
