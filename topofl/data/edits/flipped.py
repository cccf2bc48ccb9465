"""Label flipping: nodes that train on wrong labels."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from topofl._support.check import check_indices, check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_clients

__all__ = ["flip_labels"]


@public
def flip_labels(
    clients: Partition,
    nodes: int | Sequence[int],
    *,
    permutation: Sequence[int] | None = None,
    seed: int | np.random.Generator = 0,
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
    Kharrat, Canini and Horváth (2025), DPFL, section 4.5 and appendix G.3: 40 of 100 nodes, y -> 9
    - y in its code.

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
    classes = _classes(permutation, clients.n_classes)
    relabeled = np.unique(
        np.concatenate([part[node] for part in (clients.train, clients.val) for node in chosen])
    )
    shared = np.intersect1d(relabeled, _seen_by_others(clients, chosen))
    dataset = _relabeled(clients.dataset, np.setdiff1d(relabeled, shared), shared, classes)
    new_index = np.arange(len(clients.dataset.inputs))
    new_index[shared] = len(new_index) + np.arange(len(shared))
    flipped = set(chosen.tolist())
    moved = {
        key: [
            new_index[own] if node in flipped else own
            for node, own in enumerate(getattr(clients, key))
        ]
        for key in ("train", "val")
    }
    name = f"flip_labels({clients.name}, nodes={_ranges(chosen)}"
    name += ")" if permutation is None else f", permutation={classes.tolist()})"
    return replace(
        clients, dataset=dataset, **moved, name=name, flipped=(*clients.flipped, *chosen)
    )


def _chosen(
    clients: Partition, nodes: int | Sequence[int], seed: int | np.random.Generator
) -> np.ndarray:
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


def _classes(permutation: Sequence[int] | None, n_classes: int) -> np.ndarray:
    """Return the new label of each class."""
    if permutation is None:
        return np.arange(n_classes)[::-1]
    classes = check_indices("permutation", permutation, n_classes)
    if not np.array_equal(np.sort(classes), np.arange(n_classes)):
        raise ValueError(
            f"`permutation` must contain each of 0..{n_classes - 1} once, got {classes.tolist()}"
        )
    return classes


def _seen_by_others(clients: Partition, chosen: np.ndarray) -> np.ndarray:
    """Return the examples that retain their labels: those of other nodes, and all test examples."""
    others = np.setdiff1d(np.arange(clients.n), chosen)
    seen = [part[node] for part in (clients.train, clients.val) for node in others]
    return np.concatenate([*seen, *clients.test, clients.dataset.val, clients.dataset.test])


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
    runs = [(int(run[0]), int(run[-1])) for run in np.split(nodes, ends)]
    return (
        f"[{', '.join(str(first) if first == last else f'{first}-{last}' for first, last in runs)}]"
    )
