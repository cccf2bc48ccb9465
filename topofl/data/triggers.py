"""Backdoors: images with a trigger and the label that an attacker wants for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_choice,
    check_indices,
    check_int,
    check_number,
    check_share,
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_clients, labels_of

__all__ = ["backdoor", "pixel_patch"]

CORNERS = ("bottom right", "bottom left", "top right", "top left")


@dataclass(frozen=True)
class Patch:
    """A trigger: a square in a corner of each image; see :func:`pixel_patch`."""

    size: int
    value: float | None
    corner: str

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return copies of images (N, channels, height, width) with the square."""
        if inputs.ndim != 4 or self.size >= min(inputs.shape[2:]):
            raise ValueError(
                f"`trigger` must be smaller than the images, (N, channels, height, width), got "
                f"{self} for inputs of shape {tuple(inputs.shape)}; choose a smaller size, or "
                "write a function for data other than images"
            )
        is_pixels = inputs.dtype == torch.uint8
        if self.value is not None and is_pixels and self.value not in range(256):
            raise ValueError(
                f"`value` must be a whole number from 0 to 255 for uint8 pixels, got "
                f"{self.value:g}; 255 is white"
            )
        bright = 255.0 if is_pixels else 1.0
        down, right = (self.corner.split()[axis] in ("bottom", "right") for axis in (0, 1))
        rows = slice(-self.size, None) if down else slice(self.size)
        columns = slice(-self.size, None) if right else slice(self.size)
        marked = inputs.clone()
        marked[:, :, rows, columns] = bright if self.value is None else self.value
        return marked

    def __str__(self) -> str:
        value = "" if self.value is None else f", value={self.value:g}"
        corner = "" if self.corner == CORNERS[0] else f", corner={self.corner}"
        return f"pixel_patch(size={self.size}{value}{corner})"


@public
def pixel_patch(
    size: int = 3, *, value: float | None = None, corner: str = "bottom right"
) -> Patch:
    """Return a trigger for :func:`backdoor`: a square of equal pixels in a corner of each image.

    Parameters
    ----------
    size
        Side in pixels, smaller than the images; 1 is a single pixel.
    value
        Value of the pixels in all channels, as in ``dataset.inputs``: a whole number from 0 to 255
        for uint8 pixels. None: 255 for these, and 1 for other inputs.
    corner
        ``"bottom right"``, ``"bottom left"``, ``"top right"`` or ``"top left"``.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or the corner is unknown; in
        :func:`backdoor`, if the inputs are not images, or not larger than the patch, or if uint8
        pixels cannot have the `value`.

    References
    ----------
    Gu, Dolan-Gavitt and Garg, "BadNets: identifying vulnerabilities in the machine learning model
    supply chain" (2017), whose triggers are bright pixels in the bottom right corner.

    Examples
    --------
    >>> pixel_patch(2, corner="top left")(torch.zeros(1, 1, 3, 3)).squeeze().tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    size = check_int("size", size, minimum=1)
    value = None if value is None else check_number("value", value)
    return Patch(size, value, check_choice("corner", corner, CORNERS))


@public
def backdoor(
    clients: Partition,
    target: int,
    *,
    nodes: Sequence[int] = (),
    trigger: Callable[[Tensor], Tensor] | None = None,
    share: float = 0.5,
    seed: Seed = 0,
) -> Partition:
    """Return a partition with triggered test images, and attackers that train on triggered images.

    The success rate of the backdoor is then a score: ``run(evaluation=("test", "triggered"))``
    records it in the column ``accuracy_triggered``, as the share of triggered test images that a
    model assigns to the `target`. Images that have this label without the trigger are not among
    them, since a model without a backdoor would count there as well.

    Parameters
    ----------
    clients
        Partition of a dataset with test examples, whose labels are learned. Make other edits first:
        they do not change triggered test images.
    target
        The attacker's label.
    nodes
        The attackers, which usually are also those of :func:`topofl.attacks.model_replacement`.
        ``()``: nobody trains on triggered images, and the success rate is that by chance.
    trigger
        Function that returns copies of inputs (N, ...) with the trigger, in the same shape and
        dtype; it gets those of ``dataset.inputs``, before normalization. None:
        :func:`pixel_patch` of 3 pixels.
    share
        Share of each attacker's training examples, above 0 and at most 1, that are replaced by
        copies with the trigger and the label `target`; all examples of other labels, if there are
        fewer of them.
    seed
        Seed of the draw of these examples.

    Returns
    -------
    Partition
        Partition of a dataset to which the triggered images are appended: those of test images with
        another label as ``dataset.triggered``, and the attackers' to ``dataset.train``. All of them
        have the label `target`. Attackers have as many examples as before, and are among `flipped`.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, `trigger` not a function, or numbers are not integers.
    ValueError
        If the dataset has targets, no test examples of another label, or triggered images already;
        if `target` is no class, or a node does not exist or is listed twice; if `share` is out of
        its range; if `trigger` returns another shape or dtype.

    References
    ----------
    Gu, Dolan-Gavitt and Garg, "BadNets: identifying vulnerabilities in the machine learning model
    supply chain" (2017), for triggers; Bagdasaryan, Veit, Hua, Estrin and Shmatikov, "How to
    backdoor federated learning" (2020), for attackers among the nodes.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, attacks, data, models
    >>> attacked = backdoor(data.iid(data.digits(), n=10, seed=0), target=0, nodes=[3])
    >>> history = topofl.run(algorithms.fedavg(lr=0.1, epochs=1, batch_size=16),
    ...                      model=models.logistic_regression(64), clients=attacked, rounds=20,
    ...                      seed=0, attackers=attacks.model_replacement([3]),
    ...                      evaluation=("test", "triggered"))
    >>> bool(np.nanmean(history.last("accuracy_triggered")) > 0.9)
    True
    """
    check_clients(clients)
    dataset = clients.dataset
    target = check_int("target", target, minimum=0, maximum=clients.n_classes - 1)
    share = check_share("share", share)
    attackers = np.sort(check_indices("nodes", nodes, clients.n))
    if len(np.unique(attackers)) < len(attackers):
        raise ValueError(f"`nodes` must list different nodes, got {attackers.tolist()}")
    trigger = pixel_patch() if trigger is None else trigger
    check_takes("`trigger`", trigger, "inputs")
    labels = labels_of(dataset)
    victims = dataset.test[labels[dataset.test] != target]
    _check_dataset(dataset, victims, target)
    rng = stream(seed, "backdoor")
    train, copied, size = list(clients.train), list[np.ndarray](), len(labels)
    for i in attackers:
        drawn = _drawn(train[i], labels, target, share, rng)
        first = size + sum(map(len, copied))
        train[i] = np.concatenate([np.setdiff1d(train[i], drawn), first + np.arange(len(drawn))])
        copied.append(drawn)
    changed = _with_triggered(dataset, np.concatenate([*copied, victims]), target, trigger)
    first, last = size + sum(map(len, copied)), size + sum(map(len, copied)) + len(victims)
    changed |= {"train": np.concatenate([dataset.train, np.arange(size, first)])}
    changed |= {"triggered": np.arange(first, last)}
    told = getattr(trigger, "__name__", str(trigger))
    name = f"backdoor({clients.name}, target={target}, nodes={attackers.tolist()}, trigger={told}"
    return replace(
        clients,
        dataset=replace(dataset, **changed),
        train=train,
        flipped=(*clients.flipped, *attackers),
        name=f"{name}, share={share:g})",
    )


def _check_dataset(dataset: Dataset, victims: np.ndarray, target: int) -> None:
    """Raise ``ValueError`` unless images with a trigger can be scored on a dataset's labels."""
    if dataset.targets is not None:
        raise ValueError(
            f"`clients` must be of a dataset whose labels are learned, {dataset.name} has targets "
            f"of shape {tuple(dataset.targets.shape)}; make triggered targets yourself"
        )
    if dataset.triggered is not None:
        raise ValueError(
            "`clients` must have no triggered images yet, got some that would be replaced; call "
            "backdoor once, with all attackers"
        )
    if not len(victims):
        raise ValueError(
            f"`clients` must be of a dataset with test examples of other labels than "
            f"target={target}, {dataset.name} has none; load it with test=, or choose another "
            "target"
        )


def _drawn(
    own: np.ndarray, labels: np.ndarray, target: int, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the examples of a node, none with the target label, that get the trigger."""
    others = own[labels[own] != target]
    size = min(int(np.floor(share * len(own) + 0.5)), len(others))
    return np.sort(rng.choice(others, size, replace=False))


def _with_triggered(
    dataset: Dataset, indices: np.ndarray, target: int, trigger: Callable[[Tensor], Tensor]
) -> dict[str, object]:
    """Return the fields of a dataset to which triggered copies of examples are appended."""
    inputs, labels = dataset.inputs, dataset.labels
    plain = inputs[torch.tensor(indices, device=inputs.device)]
    marked = trigger(plain)
    if not isinstance(marked, Tensor) or (marked.shape, marked.dtype) != (plain.shape, plain.dtype):
        got = f"{marked.dtype} of {tuple(marked.shape)}" if isinstance(marked, Tensor) else None
        raise ValueError(
            f"`trigger` must return {plain.dtype} of shape {tuple(plain.shape)}, as it got, but "
            f"returned {got or shown(marked)}; change copies, such as inputs.clone()"
        )
    owners = dataset.owners
    return {
        "inputs": torch.cat([inputs, marked]),
        "labels": torch.cat([labels, labels.new_full((len(indices),), target)]),
        "owners": None if owners is None else np.concatenate([owners, owners[indices]]),
    }
