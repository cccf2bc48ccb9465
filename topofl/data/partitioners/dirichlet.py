"""Partitions with label shares from a Dirichlet distribution, per client or per class."""

import numpy as np

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition
from topofl.data.partitioners._allocation import (
    best_division,
    fill,
    log_dirichlet,
    repaired,
)
from topofl.data.partitioners._deal import check_labeled_n, deal, partition_of, stock_of

__all__ = ["dirichlet_per_class", "dirichlet_per_client"]


@public
def dirichlet_per_client(
    dataset: Dataset,
    n: int,
    *,
    alpha: float,
    seed: int | np.random.Generator,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
    """Return a partition with Dirichlet class proportions per *node* and equal sizes.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    alpha
        Concentration, above 0. Near 0 each node holds one class; large values give all nodes the
        same proportions.

    Raises
    ------
    ValueError
        If `alpha` is not above 0, if there are fewer examples than nodes, or a node has too few to
        hold any out.

    See Also
    --------
    dirichlet_per_class : the other distribution that papers call Dir(alpha), with unequal sizes.

    Notes
    -----
    Node i draws a prior p_i ~ Dir(alpha, ..., alpha) over classes. Until all nodes hold
    ``len(dataset.train) // n`` examples, a random node that is not full draws a class from its
    prior and takes an unused example of this class. The published code redraws if the class is
    used up, possibly forever; here the prior is renormalized over the classes that are left (the
    same distribution in one draw), so sampling always ends. As classes run out, late examples can
    deviate from a node's prior. Up to n - 1 examples remain unused.

    References
    ----------
    Dai et al. (2022), DisPFL, and its code; used by Liu et al. (2024), DFedPGP, section 5.1.

    Examples
    --------
    >>> from topofl import data
    >>> dirichlet_per_client(data.digits(), n=50, alpha=0.1, seed=0)
    Partition('dirichlet_per_client(digits, n=50, alpha=0.1)', n=50, train=29..29 and \
classes=1..6 per node)
    """
    n = check_labeled_n(dataset, n)
    alpha = check_positive("alpha", alpha)
    rng = stream(seed, "partition")
    log_priors = log_dirichlet(alpha, (n, dataset.n_classes), rng)
    counts = fill(log_priors, stock_of(dataset), len(dataset.train) // n, rng)
    shares = deal(dataset, counts, rng)
    return partition_of(
        "dirichlet_per_client", dataset, shares, rng, val_fraction, test_fraction, alpha=alpha
    )


@public
def dirichlet_per_class(
    dataset: Dataset,
    n: int,
    *,
    alpha: float,
    seed: int | np.random.Generator,
    min_size: int = 10,
    val_fraction: float = 0.0,
    test_fraction: float = 0.0,
) -> Partition:
    """Return a partition that divides each *class* by Dirichlet shares; sizes are unequal.

    Parameters
    ----------
    dataset, n, seed, val_fraction, test_fraction
        As in :func:`shards`.
    alpha
        Concentration, above 0. Near 0 a class goes to few nodes; large values divide it evenly.
    min_size
        Minimum number of examples per node, held-out ones included; 20 in the code of DPFL.

    Raises
    ------
    ValueError
        If `alpha` is not above 0, if there are fewer than ``n * min_size`` examples (the message
        names feasible settings), or a node has too few to hold any out.

    See Also
    --------
    dirichlet_per_client : the other distribution that papers call Dir(alpha), with equal sizes.

    Notes
    -----
    For each class in turn, the nodes draw shares q ~ Dir(alpha, ..., alpha). Shares of nodes that
    already hold at least ``len(dataset.train) / n`` examples become 0, the others are renormalized,
    and the shuffled class is cut at their cumulative sums. The published code repeats this until
    every node has `min_size` examples, which may never happen. Here the whole draw is repeated at
    most 100 times. If none suffices, the draw that lacks the fewest examples is repaired: in the
    order of their indices, nodes that lack examples take one at a time from the largest node (ties
    to the lowest index), out of its most frequent class. All of ``dataset.train`` is dealt out.

    References
    ----------
    Yurochkin et al. (2019), Bayesian Nonparametric Federated Learning of Neural Networks; with the
    cap on sizes, Kharrat, Canini and Horváth (2025), DPFL, appendix F and its code.

    Examples
    --------
    >>> from topofl import data
    >>> dirichlet_per_class(data.digits(), n=50, alpha=0.1, seed=0)
    Partition('dirichlet_per_class(digits, n=50, alpha=0.1, min_size=10)', n=50, \
train=10..73 and classes=1..9 per node)
    """
    n = check_labeled_n(dataset, n)
    alpha = check_positive("alpha", alpha)
    min_size = _check_min_size(min_size, n, len(dataset.train))
    rng = stream(seed, "partition")
    counts = repaired(best_division(n, stock_of(dataset), alpha, min_size, rng), min_size)
    shares = deal(dataset, counts, rng)
    settings = {"alpha": alpha, "min_size": min_size}
    return partition_of(
        "dirichlet_per_class", dataset, shares, rng, val_fraction, test_fraction, **settings
    )


def _check_min_size(min_size: int, n: int, total: int) -> int:
    min_size = check_int("min_size", min_size, minimum=1)
    if n * min_size > total:
        fewer = f" or n={total // min_size}" if min_size <= total else ""
        raise ValueError(
            f"`min_size` must be at most {total // n} for n={n} nodes and {total} training "
            f"examples, got {min_size}; use min_size={total // n}{fewer}"
        )
    return min_size
