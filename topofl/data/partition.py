"""Partition: the examples of a dataset that each node holds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.axes import matrix_as_html
from topofl._drawing.figures import MEASURED, figure_of, new_axes
from topofl._support.check import check_indices, check_int, check_sequence, check_switch
from topofl._support.notebook import as_html
from topofl._support.public import public
from topofl.data.dataset import Augmentation, Dataset, check_augmentation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Partition"]


_NAMES_LIMIT = 26
"""Most classes whose names are written in a plot."""


@public
@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The examples of a dataset that each of n nodes holds.

    Parameters
    ----------
    dataset
        Dataset that the indices refer to.
    train
        For each node, the indices into ``dataset.inputs`` that it trains on; at least one. Stored
        as a tuple of n read-only int64 arrays, as are `val` and `test`.
    val, test
        For each node, the indices that it holds out; ``()`` means none, and any node may have none.
        Examples of ``dataset.test``, on which no node may train, may be in the `test` of several
        nodes.
    name
        Reproducible label, for example ``"shards(digits, n=50, per_node=2)"``.
    overlapping
        Whether several nodes may hold the same example outside of ``dataset.test``.
    flipped
        Nodes that train on wrong labels; see :func:`flip_labels`. Stored as an ascending tuple.
    augment
        Random crops and flips each time a node trains on an image; see :func:`augmented`. None: no
        augmentation.
    seed
        The seed that it was drawn with, for the record; None: unknown, as for a random generator.

    Raises
    ------
    TypeError
        If indices or `seed` are not integers.
    ValueError
        If a node has no training examples; if an index or a node is out of range; if a node holds
        an example twice; if two nodes hold the same example outside of ``dataset.test`` without
        `overlapping`; if a node trains on an example of ``dataset.test``, of ``dataset.triggered``
        or of any node's `test`; if `val` contains one of the first two; if `augment` cannot be
        applied to the inputs; if `seed` is negative.

    Examples
    --------
    Examples can be assigned to nodes in any way:

    >>> from topofl import data
    >>> digits = data.digits()
    >>> Partition(digits, [digits.train[:4], digits.train[4:10]], name="mine")
    Partition('mine', n=2, train=4..6 and classes=4..6 per node)
    """

    dataset: Dataset
    train: Sequence[np.ndarray]
    val: Sequence[np.ndarray] = ()
    test: Sequence[np.ndarray] = ()
    name: str = "partition"
    overlapping: bool = False
    flipped: Sequence[int] = ()
    augment: Augmentation | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_dataset(self.dataset)
        size = len(self.dataset.inputs)
        for key in ("train", "val", "test"):
            given = check_sequence(key, getattr(self, key), "index arrays, one for each node")
            arrays = tuple(check_indices(f"{key}[{i}]", own, size) for i, own in enumerate(given))
            if key != "train":
                arrays = arrays or (check_indices(key, [], size),) * self.n
                if len(arrays) != self.n:
                    wanted = f"one array for each of the n={self.n} nodes"
                    raise ValueError(f"`{key}` must have {wanted}, got {len(arrays)}")
            object.__setattr__(self, key, arrays)
        empty = [node for node, indices in enumerate(self.train) if len(indices) == 0]
        if empty or not self.train:
            shown = f"[{', '.join(map(str, empty[:8]))}{', ...' if len(empty) > 8 else ''}]"
            raise ValueError(
                f"`train` must hold at least one example for every node, {shown} of "
                f"{self.n} nodes have none; use fewer nodes, or a partitioner with a minimum "
                "size, such as dirichlet_per_class(min_size=...)"
            )
        flipped = np.unique(check_indices("flipped", self.flipped, self.n))
        object.__setattr__(self, "flipped", tuple(flipped.tolist()))
        check_switch("overlapping", self.overlapping, auto=False)
        _check_disjoint(self.dataset, (self.train, self.val, self.test), self.overlapping)
        tested = self.dataset.test
        if self.dataset.triggered is not None:
            tested = np.concatenate([tested, self.dataset.triggered])
        unseen = np.concatenate([tested, *self.test])
        _check_unseen(self.dataset, "train", self.train, unseen)
        _check_unseen(self.dataset, "val", self.val, tested)
        if self.augment is not None:
            check_augmentation(self.augment).check_on(self.dataset.inputs)
        if self.seed is not None:
            object.__setattr__(self, "seed", check_int("seed", self.seed, minimum=0))

    def __repr__(self) -> str:
        held = "".join(
            f", {key}={_span(len(indices) for indices in nodes)}"
            for key, nodes in (("val", self.val), ("test", self.test))
            if any(len(indices) for indices in nodes)
        )
        held += f" and classes={_span((self.label_counts > 0).sum(axis=1))} per node"
        shared = ", overlapping" if self.overlapping else ""
        shared += f", flipped={len(self.flipped)}" if self.flipped else ""
        shared += f", augment={self.augment.name}" if self.augment is not None else ""
        return f"Partition({self.name!r}, n={self.n}, train={_span(self.sizes)}{held}{shared})"

    def _repr_html_(self) -> str:
        node, label = np.nonzero(self.label_counts)
        about = f"training examples of {self.name}: classes as rows, nodes as columns"
        shape = (self.n_classes, self.n)
        counts = self.label_counts[node, label]
        return as_html(repr(self), matrix_as_html(label, node, counts, shape, about))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.train)

    @property
    def n_classes(self) -> int:
        """Number of classes of the dataset."""
        return self.dataset.n_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of the dataset, or None if they have none."""
        return self.dataset.class_names

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of training examples per node, (n,) int64."""
        return _readonly(np.array([len(indices) for indices in self.train], np.int64))

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Number of training examples per node and class, (n, n_classes) int64."""
        labels = labels_of(self.dataset)[np.concatenate(self.train)]
        cells = _nodes_of_entries(self.train) * self.n_classes + labels
        counts = np.bincount(cells, minlength=self.n * self.n_classes)
        return _readonly(counts.reshape(self.n, self.n_classes).astype(np.int64))

    def pooled(self) -> "Partition":
        """Return the partition with a single node that holds the examples of all nodes.

        If nodes overlap, each example occurs once, and `val` excludes the examples on which any
        node trains or is tested.
        """
        train, val, test = (
            np.unique(np.concatenate(nodes)) for nodes in (self.train, self.val, self.test)
        )
        val = np.setdiff1d(val, np.concatenate([train, test]))
        single = {"train": (train,), "val": (val,), "test": (test,), "overlapping": False}
        return replace(self, **single, flipped=(), name=f"pooled({self.name})")

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Plot the number of training examples per node (horizontal) and class (vertical) as disks.

        Parameters
        ----------
        ax
            Axes to draw on; None: a new figure.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, with one disk for each class that each node holds.
        """
        ax = new_axes(ax, 8, 3)
        node, label = np.nonzero(self.label_counts)
        count = self.label_counts[node, label]
        ax.scatter(node, label, s=120 * count / count.max(), color=MEASURED, linewidths=0)
        ax.set(
            xlabel="node",
            ylabel="class",
            title=f"{self.name}\nlargest disk: {count.max()} examples",
        )
        ax.set(xlim=(-1, self.n), ylim=(-1, self.n_classes))
        ax.locator_params(integer=True)
        names = self.class_names
        if names is not None and len(names) <= _NAMES_LIMIT:
            ax.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
        return figure_of(ax)


def check_dataset(dataset: object) -> None:
    """Raise TypeError if `dataset` is not a Dataset."""
    if not isinstance(dataset, Dataset):
        own = isinstance(getattr(dataset, "dataset", None), Dataset)  # as of graphs
        remedy = "give its `.dataset`" if own else "make one with data.from_arrays(x, y)"
        raise TypeError(f"`dataset` must be a data.Dataset, got {type(dataset).__name__}; {remedy}")


def check_clients(clients: object) -> None:
    """Raise TypeError if `clients` is not a Partition."""
    if not isinstance(clients, Partition):
        raise TypeError(
            f"`clients` must be a data.Partition, got {type(clients).__name__}; make one with "
            "data.shards, for example, or from the examples of each client by data.from_clients"
        )


def labels_of(dataset: Dataset) -> np.ndarray:
    """Return the labels of all examples as a numpy array, (N,)."""
    return dataset.labels.cpu().numpy()


def _span(numbers: Iterable[int]) -> str:
    """Return ``smallest..largest``."""
    values = [int(number) for number in numbers]
    return f"{min(values)}..{max(values)}"


def _readonly(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _nodes_of_entries(nodes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the node of each entry in the concatenation of the nodes' arrays."""
    return np.repeat(np.arange(len(nodes)), [len(indices) for indices in nodes])


def _check_disjoint(
    dataset: Dataset, parts: Sequence[Sequence[np.ndarray]], overlapping: bool
) -> None:
    """Raise ValueError if an example is held twice, unless nodes may share it.

    Parameters
    ----------
    parts
        Index arrays per node of the training, validation and test examples.
    """
    held = [np.concatenate(own) for own in zip(*parts, strict=True)]
    nodes = _nodes_of_entries(held)
    indices = np.concatenate(held)
    may_be_shared = overlapping | _is_in(dataset, dataset.test)[indices]
    keys = np.where(may_be_shared, nodes * len(dataset.inputs) + indices, indices)
    found, counts = np.unique(keys, return_counts=True)
    if not len(repeated := found[counts > 1]):
        return
    places = np.flatnonzero(keys == repeated[0])
    first, second = nodes[places[:2]]
    holders, remedy = f"by nodes {first} and {second}", "pass overlapping=True to share examples"
    if first == second:
        holders, remedy = f"twice by node {first}", "remove it"
    raise ValueError(
        f"`train`, `val` and `test` must be disjoint, example {indices[places[0]]} is held "
        f"{holders}; {remedy}"
    )


def _check_unseen(
    dataset: Dataset, key: str, nodes: Sequence[np.ndarray], unseen: np.ndarray
) -> None:
    """Raise ValueError if nodes hold examples under `key` that are reserved for tests."""
    indices = np.concatenate(nodes)
    bad = np.flatnonzero(_is_in(dataset, unseen)[indices])
    if len(bad):
        raise ValueError(
            f"`{key}` must not hold test examples, node {_nodes_of_entries(nodes)[bad[0]]} holds "
            f"example {indices[bad[0]]} ({len(bad)} such examples); take them from dataset.train"
        )


def _is_in(dataset: Dataset, indices: np.ndarray) -> np.ndarray:
    """Return a mask over all examples of the dataset that is True at `indices`."""
    mask = np.zeros(len(dataset.inputs), bool)
    mask[indices] = True
    return mask
