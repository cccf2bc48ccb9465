"""kNN-Per: a common model interpolated with nearest neighbors."""

from topofl._support.check import check_int, check_positive, check_probability
from topofl.algorithms.contract.local import sgd, sgd_arguments
from topofl.algorithms.contract.participation import sampled
from topofl.algorithms.contract.parts import Part, as_part, head
from topofl.algorithms.contract.phase import Algorithm, Neighbors, chain
from topofl.algorithms.contract.schedules import Rate
from topofl.algorithms.exchanges.average import server_average

__all__ = ["knn_per"]


def knn_per(
    lr: Rate,
    *,
    k: int = 10,
    weight: float = 0.5,
    scale: float = 1.0,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
) -> Algorithm:
    """Return kNN-Per: FedAvg, whose model predicts together with each node's nearest own examples.

    Training is that of :func:`topofl.algorithms.fedavg`. The method evaluates the server's model a
    further time, as ``accuracy_knn`` and ``loss_knn``, with features ``phi``, the input of its
    head, of the node's own training data::

        p(c | x) = weight * sum_{j in N(x), y_j = c} K(x, x_j) / sum_{j in N(x)} K(x, x_j)
                   + (1 - weight) * softmax(model(x))_c
        K(x, x_j) = exp(-|phi(x) - phi(x_j)|^2 / (dim(phi) * scale))
        N(x) = the `k` nearest of them, or all if there are fewer

    Of equally near ones any is taken. This happens at every evaluation and takes, at each node, one
    pass of its model over its training data and one over what is evaluated: own test sets,
    ``evaluation="own_test"``, are small.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    k, weight
        How many neighbors vote, and their weight, the paper's lambda, between 0 and 1. DPFL has 10
        and 0.5, one of each for all; the paper chooses the weight of each client by validation.
    scale
        The larger, the less nearness counts; the authors' code has 1.
    head
        One layer of the model, whose inputs are compared, or its name.

    References
    ----------
    Marfoq et al., "Personalized federated learning through local memorization" (2022), with the
    kernel of the authors' code; a baseline of Kharrat, Canini and Horváth (2025), DPFL.
    """
    neighbors = Neighbors(
        check_int("k", k, minimum=1),
        check_probability("weight", weight),
        check_positive("scale", scale),
        as_part("head", head),
    )
    participants = sampled(participation)
    local = sgd(
        lr,
        epochs=epochs,
        lr_decay=lr_decay,
        participants=participants,
        **sgd_arguments(batch_size, momentum, weight_decay, clip),
    )
    return chain(
        "knn_per",
        local=local,
        server=server_average(participants=participants),
        neighbors=neighbors,
    )
