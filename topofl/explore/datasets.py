"""The datasets of the explorer: the digits, and those whose files are on this machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from topofl import data
from topofl._support.datasets import dataset_folders, dataset_places
from topofl.data import Dataset

__all__ = ["DIGITS", "READERS", "TEST", "TRAIN", "Source", "sources"]

TRAIN, TEST = 6_000, 2_000
"""Most training and test examples, so that training in the page takes seconds."""


@dataclass(frozen=True, eq=False)
class Source:
    """A dataset that can be chosen, read when it is first used.

    Of a large one, every k-th example is used, in the order of classes and, within a class, of
    owners. However the examples are stored, each class keeps its share of a part to within one
    example, and so does each owner within each class.

    Parameters
    ----------
    title
        What the list of datasets calls it.
    reader
        Of :mod:`topofl.data`.
    root
        Folder with its files; None: it needs none.
    options
        Keyword arguments of the reader.
    """

    title: str
    reader: Callable[..., Dataset]
    root: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _whole(self) -> Dataset:
        return self.reader(*([] if self.root is None else [self.root]), **self.options)

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset, with at most :data:`TRAIN` and :data:`TEST` examples.

        Raises
        ------
        ValueError, OSError
            As the reader.
        """
        whole = self._whole
        order = np.lexsort([getattr(whole, key) for key in self._keys])
        kept = {
            name: order[np.isin(order, getattr(whole, name))][::step]
            for name, step in self._steps.items()
        }
        return replace(whole, **kept)

    @property
    def _keys(self) -> list[str]:
        """What examples are sorted by before every k-th is used; the last key is the first."""
        return ["labels"] if self._whole.owners is None else ["owners", "labels"]

    @property
    def _steps(self) -> dict[str, int]:
        """The k of every k-th example that is used, by part, of parts that are too large."""
        parts = {"train": (self._whole.train, TRAIN), "test": (self._whole.test, TEST)}
        steps = {name: -(-len(part) // most) for name, (part, most) in parts.items()}
        return {name: step for name, step in steps.items() if step > 1}

    @property
    def code(self) -> str:
        """The statements that make ``dataset``."""
        words = [] if self.root is None else [repr(str(self.root))]
        words += [f"{key}={value!r}" for key, value in self.options.items()]
        lines = [f"dataset = data.{self.reader.__name__}({', '.join(words)})"]
        if self._steps:
            keys = ", ".join(f"dataset.{key}" for key in self._keys)
            lines += [f"order = np.lexsort([{keys}])  # so that classes keep their shares"]
            lines += ["dataset = replace(  # every k-th example, to train fast", "    dataset,"]
            lines += [
                f"    {name}=order[np.isin(order, dataset.{name})][::{step}],"
                for name, step in self._steps.items()
            ]
            lines += [")"]
        return "\n".join(lines)

    @property
    def note(self) -> str:
        """How many examples are used, in words."""
        counts = " and ".join(
            f"{len(getattr(self.dataset, name)):,} {words}"
            for name, words in (("train", "training examples"), ("test", "test examples"))
        )
        if not self._steps:
            return f"{counts}."
        whole = f"{len(self._whole.train):,} and {len(self._whole.test):,}"
        return (
            f"{counts} of {whole}, with the same shares of classes, so that training takes seconds."
        )


DIGITS = Source("handwritten digits", data.digits)

READERS: dict[str, tuple[str, Callable[..., Dataset], dict[str, Any]]] = {
    "mnist": ("MNIST", data.mnist, {"val": 0}),
    # Subsets are accepted; smaller images make smaller models.
    "cifar10": ("CIFAR-10, 16 x 16 pixels", data.cifar10, {"verify": False, "downscale": 2}),
    "cifar100": ("CIFAR-100, 16 x 16 pixels", data.cifar100, {"verify": False, "downscale": 2}),
    "cinic10": ("CINIC-10, 16 x 16 pixels", data.cinic10, {"size": 16}),
    "femnist": ("FEMNIST", data.femnist, {}),
}
"""Title, reader and its options, by the names of datasets that are found."""


def sources(folder: Path | None = None) -> dict[str, Source]:
    """Return the digits and the datasets on this machine, by their titles.

    Parameters
    ----------
    folder
        Where to look for them; None: in $TOPOFL_DATA, or else in data/ and ../shared/data.

    Raises
    ------
    ValueError
        If `folder`, or $TOPOFL_DATA, is not a folder.
    """
    found: dict[str, Path] = {}
    for place in dataset_places(folder):
        found = dataset_folders(place) | found
    chosen = [
        Source(title, reader, found[name].absolute(), options)
        for name, (title, reader, options) in READERS.items()
        if name in found
    ]
    return {one.title: one for one in (DIGITS, *chosen)}
