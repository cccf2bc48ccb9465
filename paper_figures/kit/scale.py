"""Settings that all experiments of a paper share at one scale, and the splits of its tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from .setting import Split

SUBSET = (
    "made for a subset of 5,085 of the 50,000 training images and 1,017 of the 10,000 test images"
)
"""The data of CIFAR-10 at scale ``"quick"``."""


@dataclass(frozen=True, kw_only=True)
class BaseScale:
    """Settings shared by all arms of a paper at one scale.

    Parameters
    ----------
    data
        Name and arguments of each dataset's reader; ``root`` is added where files are read.
    splits
        Titles of the splits in the main table.
    model
        Name of the model, or its table.
    clients
        Number of clients.
    rounds
        Number of rounds.
    tuned_every
        Rounds between evaluations of methods that fine-tune their models for evaluation.
    lr, batch_size, momentum, epochs
        Optimizer settings of every method; epochs per round.
    options
        Additional keys of the runs' tables, by table.
    differences
        Differences from the paper's setting, one sentence each.
    others
        Values of other fields for the splits of a dataset, by dataset.
    """

    data: Mapping[str, Mapping[str, Any]]
    splits: tuple[str, ...]
    model: Mapping[str, Any]
    clients: int
    rounds: int
    tuned_every: int
    lr: float
    batch_size: int
    momentum: float = 0.9
    epochs: int = 5
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, dataset: str) -> Self:
        """Return the settings for the splits of a dataset."""
        return replace(self, **self.others.get(dataset, {}))


def available_splits(
    titles: Sequence[str],
    splits: Mapping[str, Split],
    datasets: Collection[str],
    wanted: Sequence[str] = (),
) -> list[str]:
    """Return the titles whose datasets are available, restricted to `wanted` unless it is empty.

    Examples
    --------
    >>> splits = {"MNIST, IID": Split("mnist", {"partition": "iid"})}
    >>> available_splits(["MNIST, IID"], splits, ["mnist"])
    ['MNIST, IID']
    """
    return [
        title
        for title in titles
        if title in (wanted or titles) and splits[title].dataset in datasets
    ]
