"""Edits of a partition, and labels from numbers and noisy counts of labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from topofl._support.check import (
    as_array,
    check_choice,
    check_finite,
    check_fraction,
    check_indices,
    check_int,
    check_nonempty_label_counts,
    check_positive,
    check_switch,
)
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data._labels import apportion, sample_split
from topofl.data.dataset import Augmentation, Dataset, check_augmentation
from topofl.data.partition import Partition, check_clients

__all__ = [
    "augmented",
    "binned",
    "flip_labels",
    "match_test",
    "private_label_histograms",
    "with_validation",
]


@public
def augmented(clients: Partition, augment: Augmentation) -> Partition:
    """Return a partition whose nodes train on randomly cropped and flipped images.

    Crops and flips are drawn each time a node trains on an image, from a separate stream of the
    run's seed, and do not depend on the executor. Losses and gradients in training, and hence
    ``gradient_diversity``, are those of the augmented images; evaluations use the original images.

    Parameters
    ----------
    clients
        Partition of images, (N, channels, height, width). Further edits of the result, for example
        by :func:`match_test`, retain the augmentation.
    augment
        Augmentation, for example ``crop_and_flip(padding=4)``; replaces that of `clients`, if any.

    Returns
    -------
    Partition
        The same partition with `augment`.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or `augment` not an Augmentation.
    ValueError
        If the inputs are not images, or not larger than the padding.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> augmented(clients, data.crop_and_flip(padding=1))
    Partition('iid(digits, n=10)', n=10, train=149..150 and classes=10..10 per node, \
augment=crop_and_flip(padding=1, flip=True))
    """
    check_clients(clients)
    return replace(clients, augment=check_augmentation(augment))


@public
def flip_labels(
    clients: Partition,
    nodes: int | Sequence[int],
    *,
    permutation: Sequence[int] | None = None,
    seed: Seed = 0,
) -> Partition:
    """Return a partition in which some nodes have permuted labels, as in DPFL's attack.

    Parameters
    ----------
    clients
        Partition to change. Match test examples and hold out validation examples first, since test
        examples retain their labels.
    nodes
        Number of nodes, drawn at random, or their indices.
    permutation
        Class y becomes ``permutation[y]``; None: ``n_classes - 1 - y``.
    seed
        Seed of the draw of nodes.

    Returns
    -------
    Partition
        Partition of a relabeled dataset, which usually shares the inputs of the original one. The
        examples of other nodes, all test examples and ``dataset.val`` retain their labels. If a
        flipped node shares an example with them, it gets a relabeled copy, which is appended to the
        inputs and to ``dataset.train``. `flipped` and the name list the nodes. ``label_counts``
        counts the wrong labels.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or numbers are not integers.
    ValueError
        If there are fewer nodes than `nodes`, if a node does not exist, is listed twice or is
        flipped already, if `permutation` is not a permutation, or if the dataset has targets.

    References
    ----------
    Kharrat, Canini and Horváth, "DPFL" (2025), section 4.5 and appendix G.3: 40 of 100 nodes,
    y -> 9 - y in its code.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.one_class_per_node(data.digits(), n=10, seed=0)
    >>> wrong = flip_labels(clients, [0, 1, 2, 7])
    >>> wrong.name
    'flip_labels(one_class_per_node(digits, n=10), nodes=[0-2, 7])'
    >>> right, flipped = (each.label_counts.argmax(axis=1) for each in (clients, wrong))
    >>> (right + flipped)[list(wrong.flipped)]
    array([9, 9, 9, 9])
    """
    check_clients(clients)
    if clients.dataset.targets is not None:
        raise ValueError(
            f"`clients` must be of a dataset whose labels are learned, {clients.dataset.name} has "
            f"targets of shape {tuple(clients.dataset.targets.shape)}; change its targets instead"
        )
    chosen = _chosen(clients, nodes, seed)
    classes = np.arange(clients.n_classes)[::-1]
    if permutation is not None:
        classes = check_indices("permutation", permutation, clients.n_classes)
        if not np.array_equal(np.sort(classes), np.arange(clients.n_classes)):
            every, got = f"0..{clients.n_classes - 1}", classes.tolist()
            raise ValueError(f"`permutation` must contain each of {every} once, got {got}")
    relabeled = np.unique(
        np.concatenate([part[node] for part in (clients.train, clients.val) for node in chosen])
    )
    others = np.setdiff1d(np.arange(clients.n), chosen)
    kept = [part[node] for part in (clients.train, clients.val) for node in others]
    kept += [*clients.test, clients.dataset.val, clients.dataset.test]  # these keep their labels
    shared = np.intersect1d(relabeled, np.concatenate(kept))
    dataset = _relabeled(clients.dataset, np.setdiff1d(relabeled, shared), shared, classes)
    new_index = np.arange(len(clients.dataset.inputs))
    new_index[shared] = len(new_index) + np.arange(len(shared))
    flipped = set(chosen.tolist())
    train, val = (
        [new_index[own] if node in flipped else own for node, own in enumerate(part)]
        for part in (clients.train, clients.val)
    )
    name = f"flip_labels({clients.name}, nodes={_ranges(chosen)}"
    name += ")" if permutation is None else f", permutation={classes.tolist()})"
    changed = {"dataset": dataset, "train": train, "val": val, "name": name}
    return replace(clients, **changed, flipped=(*clients.flipped, *chosen))


def _chosen(clients: Partition, nodes: int | Sequence[int], seed: Seed) -> np.ndarray:
    """Return the nodes to flip, ascending."""
    rng = stream(seed, "flip")
    if isinstance(nodes, Sequence | np.ndarray):
        chosen = np.sort(check_indices("nodes", nodes, clients.n))
    else:
        count = check_int("nodes", nodes, minimum=1, maximum=clients.n, maximum_name="n")
        chosen = np.sort(rng.choice(clients.n, count, replace=False))
    if not len(chosen) or len(np.unique(chosen)) < len(chosen):
        raise ValueError(f"`nodes` must list different nodes, got {chosen.tolist()}")
    again = np.intersect1d(chosen, clients.flipped)
    if len(again):
        raise ValueError(
            f"`nodes` must not be flipped already, node {again[0]} is; flip the original partition"
        )
    return chosen


def _relabeled(
    dataset: Dataset, own: np.ndarray, shared: np.ndarray, classes: np.ndarray
) -> Dataset:
    """Return a dataset in which `own` are relabeled and relabeled copies of `shared` appended."""
    labels = dataset.labels.cpu().numpy().copy()
    wrong = classes[labels[shared]]
    labels[own] = classes[labels[own]]
    copies = np.arange(len(labels), len(labels) + len(shared))
    inputs = dataset.inputs
    if len(shared):
        inputs = torch.cat([inputs, inputs[torch.tensor(shared, device=inputs.device)]])
    return replace(
        dataset,
        inputs=inputs,
        labels=torch.from_numpy(np.concatenate([labels, wrong])).to(dataset.labels.device),
        train=np.concatenate([dataset.train, copies]),
        owners=None
        if dataset.owners is None
        else np.concatenate([dataset.owners, dataset.owners[shared]]),
    )


def _ranges(nodes: np.ndarray) -> str:
    """Return ascending numbers as text, with consecutive ones as ranges, ``[0-2, 7]``."""
    ends = np.flatnonzero(np.diff(nodes) > 1) + 1
    runs = [(run[0], run[-1]) for run in np.split(nodes, ends)]
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"[{', '.join(texts)}]"


@public
def with_validation(clients: Partition, share: float = 0.2, *, seed: Seed = 0) -> Partition:
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
    Kharrat, Canini and Horváth, "DPFL" (2025), appendix F, and its code.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.match_test(data.shards(data.digits(), n=20, seed=0), rule="disjoint")
    >>> with_validation(clients, 0.2)
    Partition('with_validation(match_test(shards(digits, n=20, per_node=2), rule=disjoint), \
share=0.2)', n=20, train=59..61, val=15..15, test=13..16 and classes=1..4 per node)
    """
    check_clients(clients)
    if check_fraction("share", share) == 0:
        raise ValueError("`share` must be above 0, got 0; use the partition unchanged")
    if any(map(len, clients.val)):
        raise ValueError(
            "`clients` must hold out no validation examples, got some that would be replaced; "
            "partition with val_fraction=0"
        )
    if clients.sizes.min() < 2:
        raise ValueError(
            f"`clients` must have two training examples per node, node {clients.sizes.argmin()} "
            "has one; use fewer nodes, or a minimum, as in dirichlet_per_class(min_size=...)"
        )
    share = float(share)
    rng = stream(seed, "validation")
    labels = clients.dataset.labels.cpu().numpy()
    val, train = zip(*(_held_out(own, labels, share, rng) for own in clients.train), strict=True)
    name = f"with_validation({clients.name}, share={share:g})"
    return replace(clients, train=train, val=val, name=name)


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


_IndexArrays = list[np.ndarray]
"""Index arrays, one per node or per class."""


@public
def match_test(clients: Partition, *, rule: str, seed: Seed = 0) -> Partition:
    """Return a partition whose nodes test on examples in proportion to their training classes.

    Parameters
    ----------
    clients
        Partition in which no node holds out test examples.
    rule
        ``"per_client"``, as in Dis-PFL and DFedPGP: if class y has the share f_iy of node i's
        training examples, and T is ``len(dataset.test)``, node i draws
        ``ceil(f_iy * ceil(T / n))`` of the test examples of y, or all if there are fewer. Nodes
        draw independently, so several nodes may be tested on the same example; all have about
        equally many.

        ``"disjoint"``, as in DPFL: if node i holds the share r_iy of all training examples of class
        y that nodes hold, it gets ``round(r_iy * T_y)`` of the T_y test examples of y. Nodes take
        different examples, in the order of their indices, until none is left. Examples left over by
        rounding go in turn to the nodes for which this number is not 0 (if there are none, to all
        that train on y). Nodes with more training examples have more test examples; small nodes may
        have none.
    seed
        Seed of the draw.

    Returns
    -------
    Partition
        The same partition with `test` filled in, for ``run(evaluation="own_test")``. Every node is
        tested only on classes that it trains on; classes without test examples are skipped.

    Raises
    ------
    TypeError
        If `clients` is not a Partition.
    ValueError
        If `rule` is neither, the dataset has no test examples, nodes already have some, or the
        labels of nodes are flipped.

    References
    ----------
    Dai et al. (2022), DisPFL, and its code, also used by Liu et al. (2024), DFedPGP; Kharrat,
    Canini and Horváth (2025), DPFL, and its code.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.pathological(data.digits(test=600), n=20, classes_per_node=2, seed=0)
    >>> match_test(clients, rule="per_client").name
    'match_test(pathological(digits, n=20, classes_per_node=2), rule=per_client)'
    """
    rule = check_choice("rule", rule, _RULES)
    check_clients(clients)
    if len(clients.flipped):
        raise ValueError(
            "`clients` must have true labels to match test examples to, some are flipped; match "
            "test examples first: flip_labels(match_test(clients, rule=...), ...)"
        )
    dataset = clients.dataset
    if len(dataset.test) == 0:
        raise ValueError(
            f"`clients` must be of a dataset with test examples, got none in {dataset.name}; read "
            "it with test examples, or partition with test_fraction"
        )
    if any(map(len, clients.test)):
        raise ValueError(
            "`clients` must hold out no test examples, got some that would be replaced; partition "
            "with test_fraction=0"
        )
    labels = dataset.labels.cpu().numpy()[dataset.test]
    stacks = [dataset.test[labels == label] for label in range(dataset.n_classes)]
    test = _RULES[rule](clients, stacks, stream(seed, "match_test"))
    name = f"match_test({clients.name}, rule={rule})"
    return replace(clients, test=[np.sort(own) for own in test], name=name)


def _per_client(clients: Partition, stacks: _IndexArrays, rng: np.random.Generator) -> _IndexArrays:
    """Return the test examples of each node, which draws independently of the others."""
    each = -(-len(clients.dataset.test) // clients.n)
    wanted = -(-clients.label_counts * each // clients.sizes[:, None])
    wanted = np.minimum(wanted, [len(stack) for stack in stacks])
    return [
        np.concatenate(
            [rng.choice(stacks[y], own[y], replace=False) for y in np.flatnonzero(own)]
            or [stacks[0][:0]]
        )
        for own in wanted
    ]


def _disjoint(clients: Partition, stacks: _IndexArrays, rng: np.random.Generator) -> _IndexArrays:
    """Return different test examples for different nodes."""
    owners = list(map(_owners, map(len, stacks), clients.label_counts.T))
    shuffled = [rng.permutation(stack)[: len(owners[y])] for y, stack in enumerate(stacks)]
    owner, dealt = np.concatenate(owners), np.concatenate(shuffled)
    return [dealt[owner == node] for node in range(clients.n)]


def _owners(size: int, held: np.ndarray) -> np.ndarray:
    """Return the nodes that get the `size` test examples of a class; nodes train on `held`."""
    if not held.any():
        return np.zeros(0, np.int64)
    wanted = np.rint(held * size / held.sum()).astype(np.int64)  # half to even, as in Python
    given = np.diff(np.minimum(np.cumsum(wanted), size), prepend=0)
    takers = np.flatnonzero(wanted if wanted.any() else held)
    rest = np.resize(takers, size - given.sum())
    return np.concatenate([np.repeat(np.arange(len(held)), given), rest])


_RULES = {"per_client": _per_client, "disjoint": _disjoint}


_MIN_EPSILON = 1e-300
"""Smallest epsilon: Laplace samples from 53 random bits are below 37, so sums stay finite."""


@public
def private_label_histograms(
    label_counts: Any, *, epsilon: float, seed: Seed, noise: str = "scale", clip: bool = False
) -> np.ndarray:
    """Return the label shares of each node with independent, centered Laplace noise.

    A node with m examples adds noise of size ``1 / (m * epsilon)`` to each of its shares. They stay
    unbiased, but may be negative, and sum to 1 only on average. With ``epsilon=1`` and 500 examples
    the size is 0.002. The paper calls this size a standard deviation, but privacy depends on the
    scale b of the Laplace distribution (density proportional to ``exp(-|x| / b)``, standard
    deviation ``sqrt(2) * b``): if one change of the data moves the shares by at most s in L1 norm,
    noise of scale ``s / epsilon`` makes them epsilon-differentially private. `noise` selects the
    interpretation:

    ================== ================== =====================================================
    `noise`            scale b            epsilon-private with respect to
    ================== ================== =====================================================
    scale              1 / (m epsilon)    one example more or less in a class, where counts are
                                          divided by a public m
    sd                 1 / (m epsilon)    the same with sqrt(2) epsilon; this is the standard
                       / sqrt(2)          deviation, in the paper's words
    replace_one        2 / (m epsilon)    one example replaced by another
    ================== ================== =====================================================

    Parameters
    ----------
    label_counts
        (n, classes) array of non-negative integers, or an object with such an attribute
        ``label_counts``, for example a Partition.
    epsilon
        Privacy budget, at least 1e-300; smaller values mean more privacy and more noise.
    seed
        Seed of the noise.
    noise
        ``"scale"``, ``"sd"`` or ``"replace_one"``.
    clip
        Whether to set negative shares to 0 and divide each row by its sum (a row without positive
        shares becomes uniform). The rows are then distributions, but biased. Privacy is the same,
        since the data are not used again.

    Returns
    -------
    numpy.ndarray
        (n, classes) float64, for ``greedy_swap(label_shares=...)``. For simulations only: without
        rounding to a grid, floating-point noise does not guarantee privacy exactly (Mironov 2012).

    Raises
    ------
    TypeError
        If the counts are not integers, or `epsilon` is not a number.
    ValueError
        If the counts have another shape or are negative, if a node has no examples, or if `epsilon`
        or `noise` is out of range.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), Remark 2; Dwork and Roth, "The algorithmic
    foundations of differential privacy" (2014), section 3.3, the Laplace mechanism.

    Examples
    --------
    >>> private_label_histograms([[300, 200], [0, 500]], epsilon=1e9, seed=0).round(3) + 0.0
    array([[0.6, 0.4],
           [0. , 1. ]])
    """
    counts = check_nonempty_label_counts(label_counts)
    clip = bool(check_switch("clip", clip, auto=False))
    if (epsilon := check_positive("epsilon", epsilon)) < _MIN_EPSILON:
        raise ValueError(
            f"`epsilon` must be at least {_MIN_EPSILON:g}, got {epsilon}, whose noise is too large"
        )
    factors = {"scale": 1.0, "sd": np.sqrt(0.5), "replace_one": 2.0}
    factor = factors[check_choice("noise", noise, factors)]
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / totals + stream(seed, "privacy").laplace(size=counts.shape) * (
        factor / epsilon / totals
    )
    if not clip:
        return shares
    shares = np.maximum(shares, 0.0)
    shares[shares.sum(axis=1) == 0] = 1.0
    return shares / shares.sum(axis=1, keepdims=True)


@public
def binned(values: Any, n: int) -> np.ndarray:
    """Return the quantile bin of each number, with `n` bins of about equal size.

    Use the bins as labels of a dataset whose targets are numbers; partitioners can then make nodes
    heterogeneous.

    Parameters
    ----------
    values
        (N,) finite numbers.
    n
        Number of bins, at most N. Equal numbers are in one bin, so some bins may be empty.

    Returns
    -------
    numpy.ndarray
        (N,) int64 in 0..n - 1; larger numbers have higher or equal bins.

    Raises
    ------
    ValueError
        If `values` is not a vector of finite numbers, or `n` is not between 1 and N.

    Examples
    --------
    >>> binned([0.1, 5.0, 0.3, 7.0, 100.0, 0.2], 3)
    array([0, 1, 1, 2, 2, 0])
    """
    numbers = as_array("values", values, np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(
            f"`values` must be a vector of numbers, got shape {numbers.shape}; pass one column"
        )
    check_finite("values", numbers)
    n = check_int("n", n, minimum=1, maximum=len(numbers), maximum_name="the number of values")
    order = np.sort(numbers)
    bounds = order[(np.arange(1, n) * len(order)) // n]  # first number of each bin but the lowest
    return np.searchsorted(bounds, numbers, side="right").astype(np.int64)
