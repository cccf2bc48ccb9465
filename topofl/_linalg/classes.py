"""Strongly connected classes of a period of matrices, for the spectrum of their product.

A matrix whose graph has several strongly connected classes is block triangular after a permutation,
so its eigenvalues are those of its diagonal blocks. Eigenvalues computed from the whole matrix can
be far off, since it may be defective although no block is: in a chain of k equal blocks their error
is the k-th root of the rounding error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

__all__ = ["Classes", "blocks_of", "classes_of", "stacks"]

CELLS = 2**21
"""Entries of one stack of dense blocks, which are decomposed in one call: 16 MiB."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Strongly connected classes of pairs (round, node).

    An edge joins a node to each node that receives from it in a round. A single matrix is a period
    of one round. If there are more rounds, a node may belong to different classes in different
    rounds. The nonzero eigenvalues of the product are those of the products of the blocks of each
    class.

    Parameters
    ----------
    labels
        (p, n) class of each node before each of the p rounds.
    sizes
        (k, p) number of nodes of each of the k classes before each round.
    is_closed
        (k,) whether the nodes of the class receive only from each other.
    is_cyclic
        (k,) whether the class contains a cycle; a class without one is a single node with
        eigenvalue 0.
    """

    labels: np.ndarray
    sizes: np.ndarray
    is_closed: np.ndarray
    is_cyclic: np.ndarray

    @property
    def orders(self) -> np.ndarray:
        """(k,) largest size of each class over the rounds, the order of its square blocks."""
        return self.sizes.max(axis=1)


def classes_of(factors: Sequence[sparse.csr_array]) -> Classes:
    """Return the strongly connected classes of (n, n) matrices, in order of application."""
    p, n = len(factors), factors[0].shape[0]
    receivers, senders = [], []
    for t, factor in enumerate(factors):
        i, j = factor.nonzero()
        receivers.append((t + 1) % p * n + i)
        senders.append(t * n + j)
    i, j = np.concatenate(receivers), np.concatenate(senders)
    graph = sparse.csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(p * n, p * n))
    k, labels = connected_components(graph, directed=True, connection="strong")
    labels = labels.astype(np.int64)
    is_inner = labels[i] == labels[j]
    is_closed, is_cyclic = np.ones(k, dtype=bool), np.zeros(k, dtype=bool)
    is_closed[labels[i[~is_inner]]] = False
    is_cyclic[labels[i[is_inner]]] = True
    sizes = np.bincount(labels * p + np.repeat(np.arange(p), n), minlength=k * p).reshape(k, p)
    return Classes(labels.reshape(p, n), sizes, is_closed, is_cyclic)


def blocks_of(
    factors: Sequence[sparse.csr_array], classes: Classes, label: int
) -> list[sparse.csr_array]:
    """Return the blocks of one class, starting in the round in which the class is smallest.

    The rows of one block are the columns of the next, so their product has the smallest possible
    order. The choice of the first round affects no eigenvalue but 0.
    """
    p = len(factors)
    members = [np.flatnonzero(labels == label) for labels in classes.labels]
    first = int(classes.sizes[label].argmin())
    rounds = [(first + t) % p for t in range(p)]
    return [sparse.csr_array(factors[t][members[(t + 1) % p]][:, members[t]]) for t in rounds]


def stacks(
    factors: Sequence[sparse.csr_array], classes: Classes, chosen: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the block products of the `chosen` classes, with those of equal order stacked.

    Yields
    ------
    labels
        (k,) classes of the stack.
    products
        (k, m, m) product of each class's blocks over the period, divided by its scale; padded with
        zeros where a class has fewer than m nodes before the first round.
    logs
        (k,) natural logarithms of the scales.
    """
    orders = classes.orders
    ranks = _ranks(classes)
    for m in np.unique(orders[chosen]):
        alike = chosen[orders[chosen] == m]
        for start in range(0, len(alike), max(1, CELLS // m**2)):
            labels = alike[start : start + max(1, CELLS // m**2)]
            yield labels, *_products(factors, classes, ranks, labels, int(m))


def _ranks(classes: Classes) -> np.ndarray:
    """Return the (p, n) rank of each node within its class before each round."""
    p, n = classes.labels.shape
    key = classes.labels.reshape(-1) * p + np.repeat(np.arange(p), n)
    order = np.argsort(key, kind="stable")
    sizes = classes.sizes.reshape(-1)
    ranks = np.empty(p * n, dtype=np.int64)
    ranks[order] = np.arange(p * n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks.reshape(p, n)


def _products(
    factors: Sequence[sparse.csr_array],
    classes: Classes,
    ranks: np.ndarray,
    labels: np.ndarray,
    m: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the (k, m, m) scaled products of the classes' blocks and the logs of the scales."""
    p = len(factors)
    slot = np.full(len(classes.sizes), -1)
    slot[labels] = np.arange(len(labels))
    products = np.broadcast_to(np.eye(m), (len(labels), m, m))
    logs = np.zeros(len(labels))
    for t, factor in enumerate(factors):
        after = (t + 1) % p
        entries = factor.tocoo()
        i, j = entries.coords
        label = classes.labels[t, j]
        is_inside = (classes.labels[after, i] == label) & (slot[label] >= 0)
        i, j, label = i[is_inside], j[is_inside], label[is_inside]
        blocks = np.zeros((len(labels), m, m))
        blocks[slot[label], ranks[after, i], ranks[t, j]] = entries.data[is_inside]
        products = blocks @ products if p > 1 else blocks
        scales = products.max(axis=(1, 2))
        products = products / scales[:, None, None]
        logs += np.log(scales)
    return products, logs
