"""pFedGraph: a server gives each node a mean of its own."""

from topofl._support.check import check_nonnegative, check_switch
from topofl.algorithms.contract.correction_terms import cosine_pull
from topofl.algorithms.contract.local import sgd
from topofl.algorithms.contract.parts import everything
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.peers import average_over_peers
from topofl.algorithms.exchanges.similar import PULL_DIRECTIONS, similar_peers_with_pull

__all__ = ["pfedgraph"]


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
    """Return pFedGraph: a server averages for each node the models that moved in its direction.

    Per round, with the model ``theta_0`` that all start from, and ``p_j`` the fraction of all
    training examples that node j has::

        theta_i <- theta_i - lr * grad (F_i(theta_i) - regulariser * <a_i, theta_i> / ||theta_i||)
            (`epochs` passes)
        D_ij    =  -cos(theta_i - theta_0, theta_j - theta_0);      -1 where it is below -threshold
        x_i     =  argmin of <D_i, x> + strength * ||x - p||^2  over x >= 0, sum x = 1
        a_i     =  sum_j x_ij theta_j / ||theta_j||
        theta_i <- sum_j x_ij theta_j

    In round 0 there is no ``a_i`` yet, and no second term. :func:`topofl.algorithms.similar_peers`
    makes the weights; ``history.mixings`` holds them. All nodes take part in every round. Messages
    are one up and one down a node; one down holds two models where there is a regulariser, the mean
    and ``a_i``. Evaluated are the means that nodes get; the paper also looks at models after local
    training, which ``Evaluation(before_exchange=True)`` does.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round, and gradients
        are clipped before the regulariser's is added.
    strength, threshold
        As in :func:`topofl.algorithms.similar_peers`; the paper's lambda_1.
    regulariser
        The paper's lambda_2, at least 0: how much models are drawn to the direction of those that
        they will be averaged with.
    code_sign
        Whether that is added to the loss, as in the authors' code, where models thus turn away from
        each other. False: subtracted, which is its purpose.
    epochs
        Passes over a node's data per round.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023); a baseline of DPFL. The numbers are the defaults of the authors' code.
    """
    regulariser = check_nonnegative("regulariser", regulariser)
    check_switch("code_sign", code_sign, auto=False)
    local = sgd(
        lr,
        batch_size=batch_size,
        epochs=epochs,
        momentum=momentum,
        reset_momentum=True,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        clip=clip,
        terms=[cosine_pull(PULL_DIRECTIONS)] if regulariser else [],
    )
    exchange = average_over_peers(
        similar_peers_with_pull(
            strength, threshold, everything, -regulariser if code_sign else regulariser
        )
    )
    settings = {"regulariser": regulariser} | ({"code_sign": True} if code_sign else {})
    exchange = exchange._replace(settings={**exchange.settings, **settings})
    return chain("pfedgraph", local=local, exchange=exchange)
