"""Test examples per node, from the classes that the node trains on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from topofl._support.check import check_choice
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.partition import Partition, check_clients

__all__ = ["match_test"]

IndexArrays = list[np.ndarray]
"""Index arrays, one per node or per class."""


@public
def match_test(clients: Partition, *, rule: str, seed: int | np.random.Generator = 0) -> Partition:
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
    _check_tests(clients)
    dataset = clients.dataset
    labels = dataset.labels.cpu().numpy()[dataset.test]
    stacks = [dataset.test[labels == label] for label in range(dataset.n_classes)]
    test = _RULES[rule](clients, stacks, stream(seed, "match_test"))
    return replace(
        clients,
        test=[np.sort(own) for own in test],
        name=f"match_test({clients.name}, rule={rule})",
    )


def _check_tests(clients: Partition) -> None:
    """Raise unless nodes have true labels and no test examples, and the dataset has some."""
    check_clients(clients)
    if len(clients.flipped):
        raise ValueError(
            "`clients` must have true labels to match test examples to, some are flipped; match "
            "test examples first: flip_labels(match_test(clients, rule=...), ...)"
        )
    if len(clients.dataset.test) == 0:
        raise ValueError(
            "`clients` must be of a dataset with test examples, got none in "
            f"{clients.dataset.name}; read it with test examples, or partition with test_fraction"
        )
    if any(map(len, clients.test)):
        raise ValueError(
            "`clients` must hold out no test examples, got some that would be replaced; partition "
            "with test_fraction=0"
        )


def _per_client(clients: Partition, stacks: IndexArrays, rng: np.random.Generator) -> IndexArrays:
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


def _disjoint(clients: Partition, stacks: IndexArrays, rng: np.random.Generator) -> IndexArrays:
    """Return different test examples for different nodes."""
    owners = [
        _owners(len(stack), held)
        for stack, held in zip(stacks, clients.label_counts.T, strict=True)
    ]
    shuffled = [
        rng.permutation(stack)[: len(own)] for stack, own in zip(stacks, owners, strict=True)
    ]
    owner = np.concatenate(owners)
    dealt = np.concatenate(shuffled)
    ends = np.cumsum(np.bincount(owner, minlength=clients.n))[:-1]
    return np.split(dealt[np.argsort(owner, kind="stable")], ends)


def _owners(size: int, held: np.ndarray) -> np.ndarray:
    """Return the nodes that get the `size` test examples of a class; nodes train on `held`."""
    if not held.any():
        return np.zeros(0, np.int64)
    wanted = np.rint(held * size / held.sum()).astype(
        np.int64
    )  # rounds half to even, as Python does
    given = np.diff(np.minimum(np.cumsum(wanted), size), prepend=0)
    takers = np.flatnonzero(wanted if wanted.any() else held)
    return np.concatenate(
        [np.repeat(np.arange(len(held)), given), np.resize(takers, size - given.sum())]
    )


_RULES: dict[str, Callable[[Partition, IndexArrays, np.random.Generator], IndexArrays]] = {
    "per_client": _per_client,
    "disjoint": _disjoint,
}
