"""ProxyFL: private models that learn from proxies, which alone are sent, and these from them."""

from functools import lru_cache, partial

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._support.check import check_probability, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import (
    Descend,
    Gradient,
    GradientPoint,
    Rate,
    descent_of_kept,
)
from topofl.algorithms.contract.local import (
    Apply,
    Epochs,
    Objective,
    Steps,
    epochs_or_steps,
    sgd_descent,
    train,
)
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    State,
    as_part,
    head,
    no_state,
)
from topofl.algorithms.contract.terms import Step
from topofl.mixing import MixingMatrix
from topofl.tasks import Function
from topofl.topology import Topology

__all__ = ["proxyfl"]


@public
@needing(equal_shares, when={"average": True})
def proxyfl(
    lr: Rate,
    *,
    weight: float = 0.5,
    average: bool = False,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return ProxyFL: nodes send proxies, and keep private models that learn from them.

    Node i has a private model ``theta_i`` and a proxy ``phi_i``. Both start as the initial model of
    the node, and thus stay equal until the first exchange. Each learns the predictions of the other
    on the same minibatches, which count as constants (deep mutual learning). Per round, with the
    probabilities ``p_theta(x)`` that a model predicts::

        theta_i <- theta_i - lr * grad ((1 - weight) F_i(theta_i)
                                        + weight * mean_x KL(p_phi_i(x) || p_theta_i(x)))
        phi_i   <- phi_i - lr * grad ((1 - weight) F_i(phi_i)
                                      + weight * mean_x KL(p_theta_i(x) || p_phi_i(x)))
            (`epochs` passes; both steps use the models before the step)
        phi_i   =  the mean of phi_j over the nodes j that send to i, without node i

    In the authors' code each node sends to one other in a round, as in
    :func:`topofl.topologies.one_peer_exponential`: a proxy then moves on from node to node, and no
    models are averaged. On a graph where a node receives several proxies, the mean of them is our
    choice. The private models are evaluated, and ``train_loss`` is what they minimize.

    Parameters
    ----------
    lr, batch_size, epochs, steps, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`, for both models. The authors take one pass per
        round.
    weight
        Weight of the divergence from the predictions of the other model, between 0 and 1; 0.5 in
        the authors' scripts. With 0 each node trains alone.
    average
        Whether a node averages its proxy and those that it receives by the mixing matrix of the
        round. False: it does not keep its own, as in the code.
    momentum
        In [0, 1), for both models; velocities stay at their node, and last from round to round.
    head
        The last layer, which must be a single layer. Results do not depend on which one it is.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; when a run starts, if the task is not
        classification or the model keeps running statistics, which two models cannot share.

    Notes
    -----
    A node's two models have one architecture here, while the code may give every node another
    private one. The code adds noise to the gradients of proxies for differential privacy, which
    this method does not; it trains by Adam by default, and by SGD with momentum otherwise. A step
    takes two gradients, each with a pass through the other model; the state holds the proxies and
    their velocities.

    References
    ----------
    Kalra, Wen, Cresswell, Volkovs and Tizhoosh, "Decentralized federated learning through proxy
    model sharing" (2023), in the authors' code layer6ai-labs/ProxyFL, ``trainer.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(proxyfl(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.one_peer_exponential(4),
    ...                      rounds=3, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy").mean() > 0.6), int(history["messages"][-1])
    (True, 4)

    Scores are those of private models; those of proxies have columns of their own on request:

    >>> also = {"proxy": lambda models, round: round.state("local")["proxy"]}
    >>> history = topofl.run(proxyfl(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.one_peer_exponential(4),
    ...                      rounds=3, seed=0, evaluation=topofl.Evaluation(also=also))
    >>> history["accuracy_proxy"].shape
    (2, 4)
    """
    weight = check_probability("weight", weight)
    check_switch("average", average, auto=False)
    descent = sgd_descent(lr, momentum, lr_decay, weight_decay, clip)
    local = train(
        descent,
        batch_size=batch_size,
        at=_with_proxy(descent),
        objective=Objective(
            "mutual learning", partial(_losses, weight), as_part("head", head),
            settings={"weight": weight},
        ),
        **epochs_or_steps(epochs, steps),
    )  # fmt: skip

    def init(models: Models) -> State:
        if models.statistics:
            raise ValueError(
                "`model` must not keep running statistics in proxyfl, whose nodes train two models "
                f"each, got {models.statistics[0]!r}; use models.with_group_norm(model)"
            )
        return local.init(models)

    def exchange(models: Models, state: State, round: Round) -> State:
        weights = round.weights if average else _of_others(round.topology)
        round.mix(weights, round.state("local")["proxy"])
        return state

    settings = {"weights": "round" if average else "others"}
    return chain(
        "proxyfl",
        local=local._replace(init=init),
        exchange=Phase(no_state, exchange, settings, rowwise=True),
    )


def _with_proxy(descent: Descend) -> GradientPoint:
    """Return the point at the models, whose steps also move the proxies in the state."""
    init, begin, move = descent_of_kept("proxy", descent)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        return theta.clone()

    def back(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        g = g.clone()  # the next gradient may use the same memory
        proxy = own["proxy"].clone()
        own["proxy"].copy_(theta)  # from which proxies learn
        slope = gradient(proxy)
        own["proxy"].copy_(proxy)
        move(slope, own, step)
        return g

    return GradientPoint("with proxy", where, back, init, begin)


def _losses(
    weight: float, apply: Apply, inputs: Tensor, targets: Tensor, own: State, loss: Function
) -> Tensor:
    """Return the losses of examples, (b,), for a model that learns from the one in the state."""
    if targets.dim() != 1 or targets.is_floating_point():
        raise ValueError(
            f"`task` must be classification for proxyfl, got targets of {targets.dtype} of shape "
            f"{tuple(targets.shape)}; choose another algorithm"
        )
    outputs, others = apply(inputs)[0], apply(inputs, own["proxy"])[0]
    logs, known = torch.log_softmax(outputs, 1), torch.log_softmax(others, 1)
    apart = (known.exp() * (known - logs)).sum(1)
    return (1 - weight) * loss(outputs, targets) + weight * apart


@lru_cache(maxsize=64)
def _of_others(topology: Topology) -> MixingMatrix:
    """Return equal weights over in-neighbors; nodes without any keep what they have."""
    senders, receivers = topology.edge_index
    alone = np.flatnonzero(topology.in_degrees == 0)
    shares = np.append(1.0 / topology.in_degrees[receivers], np.ones(len(alone)))
    places = np.append(receivers, alone), np.append(senders, alone)
    matrix = sparse.csr_array((shares, places), shape=(topology.n, topology.n))
    return MixingMatrix(matrix, f"others({topology.name})", topology.nodes)
