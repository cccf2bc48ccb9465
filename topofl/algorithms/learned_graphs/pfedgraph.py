"""pFedGraph: a server computes a personal weighted mean for each node."""

from topofl._support.check import check_nonnegative, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import everything
from topofl.algorithms.contract.terms import cosine_pull
from topofl.algorithms.exchanges.peers import average_over_peers
from topofl.algorithms.exchanges.similar import PULL_DIRECTIONS, similar_peers_with_pull

__all__ = ["pfedgraph"]


@public
def pfedgraph(
    lr: Rate,
    *,
    strength: float = 0.8,
    regulariser: float = 0.01,
    code_sign: bool = False,
    threshold: float = 0.9,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return pFedGraph: a server averages, for each node, models that moved in similar directions.

    Per round, with the initial model ``theta_0`` of all nodes, and ``p_j`` the fraction of all
    training examples at node j::

        theta_i <- theta_i - lr * grad (F_i(theta_i) - regulariser * <a_i, theta_i> / ||theta_i||)
            (`epochs` passes)
        D_ij    =  -cos(theta_i - theta_0, theta_j - theta_0);      -1 if it is below -threshold
        x_i     =  argmin of <D_i, x> + strength * ||x - p||^2  over x >= 0, sum x = 1
        a_i     =  sum_j x_ij theta_j / ||theta_j||
        theta_i <- sum_j x_ij theta_j

    In round 0 there is no ``a_i``, and thus no second term. :func:`topofl.algorithms.similar_peers`
    computes the weights, and ``history.mixings`` holds them. All nodes participate in every round.
    Each node sends and receives one message per round; with a regulariser, the message from the
    server holds two models, the mean and ``a_i``. The means ``theta_i`` are evaluated; the paper
    also evaluates models after local training, as ``Evaluation(before_exchange=True)`` does.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round, and gradients
        are clipped before the regulariser's is added.
    strength, threshold
        As in :func:`topofl.algorithms.similar_peers`; the paper's lambda_1.
    regulariser
        The paper's lambda_2, at least 0: how strongly models are pulled in the direction of those
        with which they are averaged.
    code_sign
        Whether the second term is added to the loss, as in the authors' code, which turns models
        away from each other. False: it is subtracted, as intended.
    epochs
        Passes over a node's data per round.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023); a baseline of DPFL. Defaults are those of the authors' code.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> history = topofl.run(pfedgraph(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0)
    >>> history.mixings.at(1).weights.toarray().sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    regulariser = check_nonnegative("regulariser", regulariser)
    check_switch("code_sign", code_sign, auto=False)
    terms = [cosine_pull(PULL_DIRECTIONS)] if regulariser else []
    local = sgd_of_rounds(
        lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip, terms=terms
    )
    exchange = average_over_peers(
        similar_peers_with_pull(
            strength, threshold, everything, -regulariser if code_sign else regulariser
        )
    )
    settings = {"regulariser": regulariser} | ({"code_sign": True} if code_sign else {})
    exchange = exchange._replace(settings={**exchange.settings, **settings})
    return chain("pfedgraph", local=local, exchange=exchange)
