"""Validation examples per node, held out from its training examples."""

from dataclasses import replace

import numpy as np

from topofl._support.check import check_fraction
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data._split import apportion, sample_split
from topofl.data.partition import Partition, check_clients

__all__ = ["with_validation"]


@public
def with_validation(
    clients: Partition, share: float = 0.2, *, seed: int | np.random.Generator = 0
) -> Partition:
    """Return a partition in which every node holds out training examples for validation.

    Parameters
    ----------
    clients
        Partition in which no node holds out validation examples. Match test examples first
        (:func:`match_test`), so that they follow all classes of a node.
    share
        Share of examples to hold out, between 0 and 1. A node with m examples holds out
        ``round(share * m)``, at least one and at most m - 1, and fewer where one example of each
        class must remain for training.
    seed
        Seed of the choice. A node with at least two examples of each of its classes holds them out
        in its class proportions, as far as whole numbers allow, any other node at random.

    Returns
    -------
    Partition
        The same partition with the held-out examples moved from `train` to `val`, for
        ``run(evaluation="own_val")``. A node with at least two examples of each of its classes
        still trains on all of its classes.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or `share` not a number.
    ValueError
        If `share` is not between 0 and 1, if nodes already have validation examples, or if a node
        has a single example.

    References
    ----------
    Kharrat, Canini and Horváth (2025), DPFL, appendix F, and its code.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.match_test(data.shards(data.digits(), n=20, seed=0), rule="disjoint")
    >>> with_validation(clients, 0.2)
    Partition('with_validation(match_test(shards(digits, n=20, per_node=2), rule=disjoint), \
share=0.2)', n=20, train=59..61, val=15..15, test=13..16 and classes=1..4 per node)
    """
    check_clients(clients)
    share = _check_share(share)
    _check_can_hold_out(clients)
    rng = stream(seed, "validation")
    labels = clients.dataset.labels.cpu().numpy()
    held = [_held_out(own, labels, share, rng) for own in clients.train]
    val, train = zip(*held, strict=True)
    return replace(
        clients, train=train, val=val, name=f"with_validation({clients.name}, share={share:g})"
    )


def _check_share(share: float) -> float:
    if check_fraction("share", share) == 0:
        raise ValueError("`share` must be above 0, got 0; use the partition unchanged")
    return float(share)


def _check_can_hold_out(clients: Partition) -> None:
    if any(map(len, clients.val)):
        raise ValueError(
            "`clients` must hold out no validation examples, got some that would be replaced; "
            "partition with val_fraction=0"
        )
    if clients.sizes.min() < 2:
        raise ValueError(
            f"`clients` must have two training examples per node, node {clients.sizes.argmin()} "
            "has one; use fewer nodes, or a partitioner with a minimum size, such as "
            "dirichlet_per_class(min_size=...)"
        )


def _held_out(
    own: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the examples that a node holds out, and the other ones; both ascending."""
    size = min(max(1, round(share * len(own))), len(own) - 1)
    counts = np.bincount(labels[own])
    if counts[counts > 0].min() < 2:
        order = rng.permutation(own)
        return np.sort(order[:size]), np.sort(order[size:])
    wanted = apportion(counts, size)
    if (wanted >= counts)[counts > 0].any():  # one of each class must remain
        spare = np.maximum(counts - 1, 0)
        wanted = apportion(spare, min(size, int(spare.sum())))
    return sample_split(own, labels, wanted, rng)
