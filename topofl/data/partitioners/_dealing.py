"""What partitioners share: numbers of examples per node and class, and dealing them out.

In this module, `stock` is the number of examples of each class to deal out, (n_classes,).
"""

import functools
import heapq
import inspect
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from topofl._support.check import check_fraction, check_int
from topofl._support.public import public, warn_caller
from topofl._support.seeding import seed_of, stream
from topofl.data._labels import apportion, by_class, stratified
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_dataset, labels_of

Given = ParamSpec("Given")

Shares = Sequence[np.ndarray]
"""Indices of the examples of each node."""


def partitioner(
    *, by_label: bool = True, overlapping: bool = False
) -> Callable[[Callable[Given, Shares]], Callable[Given, Partition]]:
    """Return a decorator that makes a public partitioner of a function that divides examples.

    The function receives a checked `n` and, as `seed`, a generator, and returns the examples of
    each node. Some are then held out for validation and test, and the name of the partition is the
    call that makes it, with the numbers that the function took.

    Parameters
    ----------
    by_label
        Whether to warn if several nodes are to divide examples with targets that have one class.
    overlapping
        Whether nodes may share examples.
    """

    def declare(function: Callable[Given, Shares]) -> Callable[Given, Partition]:
        takes = inspect.signature(function).replace(return_annotation=Partition)

        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> Partition:
            try:
                call = takes.bind(*args, **kwargs)
            except TypeError:
                function(*args, **kwargs)  # raises the error of Python
                raise
            call.apply_defaults()
            given = call.arguments
            dataset, n, seed = (given[key] for key in ("dataset", "n", "seed"))
            given["n"] = _check_n(dataset, n, by_label)
            given["seed"] = rng = stream(seed, "partition")
            shares = [np.sort(share) for share in function(*call.args, **call.kwargs)]
            fractions = {
                key: check_fraction(key, given.get(key, 0.0))
                for key in ("val_fraction", "test_fraction")
            }
            if (held := sum(fractions.values())) >= 1:
                raise ValueError(
                    f"`val_fraction` and `test_fraction` must sum to less than 1, got {held:g}"
                )
            words = [
                f"{key}={float(value):g}"
                for key, value in given.items()
                if key not in ("dataset", "n", "seed") and (value or key not in fractions)
            ]
            name = f"{function.__name__}({', '.join([dataset.name, f'n={len(shares)}', *words])})"
            origin = seed_of(rng, "partition")
            parts = _parts(shares, labels_of(dataset), rng, list(fractions.values()))
            return Partition(dataset, *parts, name=name, overlapping=overlapping, seed=origin)

        make.__signature__ = takes  # pyright: ignore[reportAttributeAccessIssue]
        return public(make)

    return declare


def _check_n(dataset: Dataset, n: int, by_label: bool) -> int:
    """Return the number of nodes, or raise unless it is in 1..len(dataset.train)."""
    check_dataset(dataset)
    remedy = "every node needs one of the training examples"
    n = check_int("n", n, minimum=1, maximum=len(dataset.train), remedy=remedy)
    is_learned = by_label and n > 1 and dataset.targets is not None
    if is_learned and np.count_nonzero(stock_of(dataset)) == 1:
        warn_caller(
            f"`dataset`: all training examples of {dataset.name} have the same class, so all nodes "
            "have the same distribution; pass the classes to divide by as `y`, for numbers as in "
            "data.from_arrays(x, data.binned(targets, 10), targets=targets)"
        )
    return n


def _parts(
    shares: Shares, labels: np.ndarray, rng: np.random.Generator, fractions: Sequence[float]
) -> tuple[Shares, Shares, Shares]:
    """Return the examples of each node for training, validation and test."""
    if not any(fractions):
        return shares, (), ()
    train, val, test = [], [], []
    for node, share in enumerate(shares):
        val_size, test_size = _held_out_sizes(node, len(share), *fractions)
        for_test, rest = stratified(share, labels, test_size, rng)
        for_val, rest = stratified(rest, labels, val_size, rng)
        train.append(rest)
        val.append(for_val)
        test.append(for_test)
    return train, val, test


def check_classes_per_node(classes_per_node: int, stock: np.ndarray) -> int:
    """Return the number of classes per node, or raise unless so many have examples."""
    return check_int(
        "classes_per_node", classes_per_node, minimum=1, maximum=int((stock > 0).sum())
    )


def stock_of(dataset: Dataset) -> np.ndarray:
    """Return the number of training examples of each class, (n_classes,)."""
    return np.bincount(labels_of(dataset)[dataset.train], minlength=dataset.n_classes)


def deal(dataset: Dataset, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the examples of each node: ``counts[i, c]`` random ones of class c, all different."""
    order = by_class(dataset.train, labels_of(dataset), rng)
    owners = np.full(len(order), len(counts))  # len(counts) stands for no node
    starts = np.concatenate([[0], np.cumsum(stock_of(dataset))])
    for label, start in enumerate(starts[:-1]):
        dealt = np.repeat(np.arange(len(counts)), counts[:, label])
        owners[start : start + len(dealt)] = dealt
    ends = np.cumsum(np.bincount(owners, minlength=len(counts))[: len(counts)])
    return np.split(order[np.argsort(owners, kind="stable")], ends)[:-1]


def deal_again(dataset: Dataset, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the examples of each node, ``counts[i, c]`` of class c; nodes may share examples."""
    order = by_class(dataset.train, labels_of(dataset), rng)
    stacks = np.split(order, np.cumsum(stock_of(dataset))[:-1])
    takers = [rng.permutation(np.repeat(np.arange(len(counts)), wanted)) for wanted in counts.T]
    dealt = np.concatenate([dealt_again(*pair, rng) for pair in zip(stacks, takers, strict=True)])
    owners = np.concatenate(takers)
    return np.split(dealt[np.argsort(owners, kind="stable")], np.cumsum(counts.sum(axis=1))[:-1])


def _held_out_sizes(
    node: int, size: int, val_fraction: float, test_fraction: float
) -> tuple[int, int]:
    """Return how many examples a node holds out for validation and test, not all of them."""
    least_val, least_test = int(val_fraction > 0), int(test_fraction > 0)
    if size < 1 + least_val + least_test:
        key = "val_fraction" if least_val else "test_fraction"
        raise ValueError(
            f"`{key}` must leave every node an example for training, got "
            f"{val_fraction or test_fraction:g} where node {node} has {size} examples and needs "
            f"{1 + least_val + least_test}; use fewer nodes, or hold nothing out"
        )
    test = min(max(least_test, round(test_fraction * size)), size - 1 - least_val)
    val = min(max(least_val, round(val_fraction * size)), size - 1 - test)
    return val, test


REDRAWS = 100
"""Largest number of draws by :func:`best_division`."""

BLOCKS, BLOCK, ENTRIES = 40, 250, 10**6
"""Limits of :func:`best_cut`: number of blocks, draws per block, and entries per block."""


def log_dirichlet(alpha: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return logarithms of Dirichlet shares over the last axis, up to a constant.

    Drawn by Gamma(alpha) = Gamma(alpha + 1) * U ** (1 / alpha), they stay finite and distinct even
    if all shares but one round to 0.
    """
    alpha = max(alpha, 1e-100)
    return np.log(rng.standard_gamma(alpha + 1, shape)) + np.log1p(-rng.random(shape)) / alpha


def _cumulative(log_weights: np.ndarray, is_open: np.ndarray) -> np.ndarray:
    """Return cumulative shares that end at exactly 1; entries not `is_open` have share 0."""
    weights = np.zeros(len(log_weights))
    weights[is_open] = np.exp(log_weights[is_open] - log_weights[is_open].max())
    sums = np.cumsum(weights)
    return sums / sums[-1]


def fill(
    log_priors: np.ndarray, stock: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Return (n, n_classes) counts: nodes in random order draw classes until each has `size`."""
    counts = np.zeros(log_priors.shape, np.int64)
    left = stock.copy()
    room = [size] * len(log_priors)
    waiting = list(range(len(log_priors)))
    thresholds: dict[int, list[float]] = {}
    for node_draw, class_draw in rng.random((size * len(log_priors), 2)).tolist():
        place = int(node_draw * len(waiting))
        node = waiting[place]
        if node not in thresholds:
            thresholds[node] = _cumulative(log_priors[node], left > 0).tolist()
        label = bisect_right(thresholds[node], class_draw)
        counts[node, label] += 1
        left[label] -= 1
        if left[label] == 0:
            thresholds.clear()
        room[node] -= 1
        if room[node] == 0:
            waiting[place] = waiting[-1]
            waiting.pop()
    return counts


def best_division(
    n: int,
    stock: np.ndarray,
    alpha: float,
    min_size: int,
    rng: np.random.Generator,
    holders: np.ndarray | None = None,
) -> np.ndarray:
    """Return the first division with `min_size` examples per node, or else the nearest one.

    `holders` is an (n, n_classes) mask of the nodes that may hold a class; None: all of them.
    """
    holders = np.ones((n, len(stock)), bool) if holders is None else holders

    def lacking(counts: np.ndarray) -> int:
        return int(np.maximum(min_size - counts.sum(axis=1), 0).sum())

    best = _division(holders, stock, alpha, rng)
    for _ in range(REDRAWS - 1):
        if lacking(best) == 0:
            break
        best = min(best, _division(holders, stock, alpha, rng), key=lacking)
    return best


def best_cut(n: int, size: int, alpha: float, least: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n,) counts that sum to `size`, in proportion to Dirichlet shares and rounded.

    This is the first draw in which all counts are at least `least`, or else the draw that lacks the
    fewest examples.
    """
    best = np.zeros(n, np.int64)
    fewest = n * least + 1
    for _ in range(BLOCKS):
        logs = log_dirichlet(alpha, (max(1, min(BLOCK, ENTRIES // n)), n), rng)
        sums = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
        counts = np.diff(np.floor(size * (sums / sums[:, -1:])), axis=1, prepend=0).astype(np.int64)
        lacking = np.maximum(least - counts, 0).sum(axis=1)
        place = int(lacking.argmin())
        if lacking[place] < fewest:
            best, fewest = counts[place], int(lacking[place])
        if fewest == 0:
            break
    return best


def _division(
    holders: np.ndarray, stock: np.ndarray, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return (n, n_classes) counts: each class is divided by Dirichlet shares of nodes not full.

    If all nodes that may hold a class are full, all of them get some.
    """
    counts, n = np.zeros(holders.shape, np.int64), len(holders)
    for label in np.flatnonzero(stock):
        is_open = holders[:, label] & (n * counts.sum(axis=1) < stock.sum())
        is_open = is_open if is_open.any() else holders[:, label]
        cuts = np.floor(stock[label] * _cumulative(log_dirichlet(alpha, (n,), rng), is_open))
        counts[:, label] = np.diff(cuts, prepend=0)
    return counts


def repaired(counts: np.ndarray, min_size: int) -> np.ndarray:
    """Return `counts` after moving examples from the largest nodes to those below `min_size`.

    Since ``n * min_size`` is at most the number of examples, the largest node has more than
    `min_size` whenever another node has fewer. Hence no giver becomes a taker, and takers are never
    on top of the heap.
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    largest = [(-int(size), node) for node, size in enumerate(sizes)]
    heapq.heapify(largest)
    for taker in np.flatnonzero(sizes < min_size):
        for _ in range(min_size - sizes[taker]):
            size, giver = largest[0]
            label = counts[giver].argmax()
            counts[giver, label] -= 1
            counts[taker, label] += 1
            heapq.heapreplace(largest, (size + 1, giver))
    return counts


def is_feasible(stock: np.ndarray, n: int, classes_per_node: int) -> bool:
    """Return whether each class has an example for every node that is to hold it.

    Nodes are spread evenly over the classes that have examples.
    """
    present = stock[stock > 0]
    fewest, more = divmod(n * classes_per_node, len(present))
    return bool(present.min() >= fewest and (present > fewest).sum() >= more)


def nearest_feasible(stock: np.ndarray, n: int, classes_per_node: int) -> tuple[int, int | None]:
    """Return the largest feasible number of nodes, and of classes per node (None if none is).

    A single node can hold any number of classes, so the first always exists.
    """
    nodes = next(m for m in range(n, 0, -1) if is_feasible(stock, m, classes_per_node))
    return nodes, next(
        (c for c in range(classes_per_node, 0, -1) if is_feasible(stock, n, c)), None
    )


def holders(
    stock: np.ndarray, n: int, classes_per_node: int, rng: np.random.Generator
) -> np.ndarray:
    """Return an (n, n_classes) mask, `classes_per_node` per row, with column sums nearly equal.

    Taking the classes with the most places left, with ties broken at random, never gets stuck,
    because the numbers of places keep differing by at most one. It makes neighboring rows
    complement each other, so nodes are visited in random order.
    """
    present = np.flatnonzero(stock)
    fewest, more = divmod(n * classes_per_node, len(present))
    places = np.where(stock > 0, fewest, 0)
    places[rng.permutation(present[stock[present] > fewest])[:more]] += 1
    mask = np.zeros((n, len(stock)), bool)
    for node in rng.permutation(n):
        chosen = np.lexsort((rng.random(len(stock)), -places))[:classes_per_node]
        mask[node, chosen] = True
        places[chosen] -= 1
    return mask


def shared_out(total: int, capacity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return integers up to `capacity` that sum to `total` and are as equal as possible.

    Entries below their capacity differ by at most one; which are larger is random.
    """
    taken = np.zeros(len(capacity), np.int64)
    while total > 0:
        has_room = np.flatnonzero(taken < capacity)
        each, more = divmod(total, len(has_room))
        if each == 0:
            has_room, each = rng.permutation(has_room)[:more], 1
        given = np.minimum(each, (capacity - taken)[has_room])
        taken[has_room] += given
        total -= int(given.sum())
    return taken


def even_counts(mask: np.ndarray, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (n, n_classes) counts: each class is divided evenly among the nodes in its mask."""
    counts = np.zeros(mask.shape, np.int64)
    for label in np.flatnonzero(mask.any(axis=0)):
        nodes = rng.permutation(np.flatnonzero(mask[:, label]))
        counts[nodes, label] = apportion(np.ones(len(nodes)), int(stock[label]))
    return counts


def drawn_classes(
    stock: np.ndarray, n: int, classes_per_node: int, rng: np.random.Generator
) -> np.ndarray:
    """Return an (n, n_classes) mask with `classes_per_node` random nonempty classes per row."""
    keys = np.where(stock > 0, rng.random((n, len(stock))), 2.0)
    mask = np.zeros(keys.shape, bool)
    np.put_along_axis(mask, np.argsort(keys, axis=1)[:, :classes_per_node], True, axis=1)
    return mask


def drawn_counts(capacity: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return counts per class of `size` uniform draws among the classes with capacity left."""
    counts = np.zeros(len(capacity), np.int64)
    while missing := size - int(counts.sum()):
        is_open = counts < capacity
        counts = np.minimum(counts + rng.multinomial(missing, is_open / is_open.sum()), capacity)
    return counts


def dealt_again(stack: np.ndarray, takers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one example of `stack` per entry of `takers`; no taker gets an example twice.

    Examples are dealt in the order of the stack, which continues at a random place when it ends. A
    taker that already has the next example gets the first one after it, cyclically, that it lacks.
    """
    dealt = np.empty(len(takers), np.int64)
    place = 0
    had: defaultdict[int, set[int]] = defaultdict(set)
    for turn, taker in enumerate(takers.tolist()):
        place = int(rng.integers(len(stack))) if place == len(stack) else place
        while place in had[taker]:
            place = (place + 1) % len(stack)
        had[taker].add(place)
        dealt[turn] = stack[place]
        place += 1
    return dealt
