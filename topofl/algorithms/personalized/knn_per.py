"""kNN-Per: FedAvg's model interpolated with nearest neighbors."""

from topofl._support.check import check_int, check_positive, check_probability
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, Neighbors, chain, sampled
from topofl.algorithms.contract.round import Part, as_part, head
from topofl.algorithms.exchanges.average import server_average

__all__ = ["knn_per"]


@public
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
    """Return kNN-Per: FedAvg's model interpolated with k-nearest neighbors among a node's examples.

    Training is that of :func:`topofl.algorithms.fedavg`. A second evaluation, reported as
    ``accuracy_knn`` and ``loss_knn``, combines the server's model with the node's own training
    examples, compared by their features ``phi``, the inputs of the head::

        p(c | x) = weight * sum_{j in N(x), y_j = c} K(x, x_j) / sum_{j in N(x)} K(x, x_j)
                   + (1 - weight) * softmax(model(x))_c
        K(x, x_j) = exp(-|phi(x) - phi(x_j)|^2 / (dim(phi) * scale))
        N(x) = the `k` nearest training examples, or all if there are fewer

    Ties are broken arbitrarily. Each evaluation takes, per node, one forward pass over its training
    data and one over the evaluated data: ``evaluation="own_test"`` keeps the latter small.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    k, weight
        Number of neighbors that vote, and their weight between 0 and 1, the paper's lambda. DPFL
        uses 10 and 0.5 at all nodes; the paper chooses each client's weight by validation.
    scale
        Scale of the kernel: larger values weight the neighbors more evenly. 1 in the authors' code.
    head
        The layer of the model whose inputs are compared, or its name.

    References
    ----------
    Marfoq et al., "Personalized federated learning through local memorization" (2022), with the
    kernel of the authors' code; a baseline of Kharrat, Canini and Horváth (2025), DPFL.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(knn_per(lr=0.1, epochs=1), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_knn").mean() > history.last("accuracy").mean())
    True
    """
    neighbors = Neighbors(
        check_int("k", k, minimum=1),
        check_probability("weight", weight),
        check_positive("scale", scale),
        as_part("head", head),
    )
    participants = sampled(participation)
    local = sgd_of_rounds(
        lr, batch_size, epochs, momentum, lr_decay, weight_decay, clip, participants=participants
    )
    return chain(
        "knn_per",
        local=local,
        server=server_average(participants=participants),
        neighbors=neighbors,
    )
