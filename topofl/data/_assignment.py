"""Checks of an assignment of examples to nodes: indices, disjoint sets, unseen test examples."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from topofl._support.check import check_indices, check_sequence
from topofl.data.dataset import Dataset

__all__ = ["check_disjoint", "check_index_arrays", "check_unseen", "nodes_of_entries"]


def check_index_arrays(key: str, nodes: Any, size: int) -> tuple[np.ndarray, ...]:
    """Return one read-only array of indices below `size` per node, or raise."""
    if not isinstance(nodes, Iterable):
        raise TypeError(
            f"`{key}` must be a sequence of index arrays, one for each node, got "
            f"{type(nodes).__name__}"
        )
    return tuple(
        check_indices(f"{key}[{node}]", indices, size)
        for node, indices in enumerate(check_sequence(key, nodes, "index arrays"))
    )


def nodes_of_entries(nodes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the node of each entry in the concatenation of the nodes' arrays."""
    return np.repeat(np.arange(len(nodes)), [len(indices) for indices in nodes])


def check_disjoint(
    dataset: Dataset, parts: Sequence[Sequence[np.ndarray]], overlapping: bool
) -> None:
    """Raise ValueError if an example is held twice, unless nodes may share it.

    Parameters
    ----------
    parts
        Index arrays per node of the training, validation and test examples.
    """
    held = [np.concatenate(own) for own in zip(*parts, strict=True)]
    nodes = nodes_of_entries(held)
    indices = np.concatenate(held)
    may_be_shared = overlapping | _is_in(dataset, dataset.test)[indices]
    keys = np.where(may_be_shared, nodes * len(dataset.inputs) + indices, indices)
    order = np.argsort(keys, kind="stable")
    repeated = order[1:][keys[order[1:]] == keys[order[:-1]]]
    if not len(repeated):
        return
    index = int(indices[repeated[0]])
    first, second = nodes[order[np.searchsorted(keys[order], keys[repeated[0]]) :][:2]]
    if first == second:
        holders, remedy = f"twice by node {first}", "remove it"
    else:
        holders = f"by nodes {first} and {second}"
        remedy = "pass overlapping=True if nodes may share examples"
    raise ValueError(
        f"`train`, `val` and `test` must be disjoint, example {index} is held {holders}; {remedy}"
    )


def check_unseen(
    dataset: Dataset, key: str, nodes: Sequence[np.ndarray], unseen: np.ndarray
) -> None:
    """Raise ValueError if nodes hold examples under `key` that are reserved for tests."""
    indices = np.concatenate(nodes)
    bad = np.flatnonzero(_is_in(dataset, unseen)[indices])
    if len(bad):
        raise ValueError(
            f"`{key}` must not hold test examples, node {nodes_of_entries(nodes)[bad[0]]} holds "
            f"example {indices[bad[0]]} ({len(bad)} such examples); take them from dataset.train"
        )


def _is_in(dataset: Dataset, indices: np.ndarray) -> np.ndarray:
    """Return a mask over all examples of the dataset that is True at `indices`."""
    mask = np.zeros(len(dataset.inputs), bool)
    mask[indices] = True
    return mask
