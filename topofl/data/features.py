"""Feature skew: edits of a partition by which nodes see the same classes differently."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from topofl._support.check import as_array, check_finite, check_nonnegative
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition, check_clients

__all__ = ["noisy", "rotated", "tinted"]

LARGEST = 1e30
"""Largest variance of noise, far below what overflows float32."""

Change = Callable[[int, Tensor], Tensor]
"""(node, (k, ...) inputs of the node) -> the inputs that it sees."""


@public
def rotated(clients: Partition, angles: Sequence[float]) -> Partition:
    """Return a partition in which nodes see rotated images, as in rotated MNIST.

    Parameters
    ----------
    clients
        Partition of images, (N, channels, height, width). Match test examples and hold out
        validation examples first: a node's own test and validation images are rotated as well, but
        those that all nodes share, ``dataset.test`` and ``dataset.val``, are not.
    angles
        Degrees, counterclockwise: node i has ``angles[i % len(angles)]``. Multiples of 90 move
        pixels of square images; all others interpolate between four pixels, with zeros outside.

    Returns
    -------
    Partition
        Partition of a dataset with rotated images, the nodes' own. If nodes share an image, each
        has a copy, which is appended to the inputs and, of training images, to ``dataset.train``.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or an angle not a number.
    ValueError
        If the inputs are not images, or no angle is given.

    References
    ----------
    Ghosh, Chung, Yin and Ramchandran, "An efficient framework for clustered federated learning"
    (NeurIPS 2020): rotated MNIST, with 0, 90, 180 and 270 degrees.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.iid(data.digits(), n=8, seed=0)
    >>> turned = rotated(clients, [0, 90, 180, 270])
    >>> turned.name
    'rotated(iid(digits, n=8), angles=[0, 90, 180, 270])'
    >>> before, after = (each.dataset.inputs[int(clients.train[2][0]), 0]
    ...                  for each in (clients, turned))
    >>> bool((after == before.flip(0, 1)).all())
    True
    """
    _check_images(clients)
    degrees = _numbers("angles", angles)

    def change(node: int, images: Tensor) -> Tensor:
        return _rotate(images, float(degrees[node % len(degrees)]))

    return _with_features(clients, change, f"rotated({clients.name}, angles={_shown(degrees)})")


@public
def noisy(clients: Partition, variance: float, *, seed: Seed = 0) -> Partition:
    """Return a partition in which nodes see Gaussian noise, the later ones more of it.

    Parameters
    ----------
    clients
        Partition to change, as in :func:`rotated`; its inputs are float32, or uint8 pixels.
    variance
        Variance of the noise of the last node, at least 0: node i of n = 0, 1, ... has
        ``variance * (i + 1) / n``. Noise is added to float32 inputs as they are. Pixels count as
        numbers from 0 to 1, and are rounded and clipped afterwards.
    seed
        Seed of the noise.

    Returns
    -------
    Partition
        As of :func:`rotated`.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or `variance` not a number.
    ValueError
        If `variance` is negative, not finite or above 1e30, or the inputs are integers other than
        pixels.

    References
    ----------
    Li, Diao, Chen and He, "Federated learning on non-IID data silos: an experimental study" (ICDE
    2022), noise-based feature imbalance. Its code differs: node i has noise of standard deviation
    ``variance * i / (n - 1)``.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> apart = (noisy(clients, 0.1).dataset.inputs - clients.dataset.inputs).numpy()
    >>> [round(float(apart[clients.train[node]].var()), 2) for node in (0, 4, 9)]
    [0.01, 0.05, 0.1]
    """
    check_clients(clients)
    variance = check_nonnegative("variance", variance)
    if variance > LARGEST:
        raise ValueError(f"`variance` must be at most {LARGEST:g}, got {variance:g}")
    if clients.dataset.inputs.dtype not in (torch.float32, torch.uint8):
        raise ValueError(
            "`clients` must have float32 inputs or uint8 pixels, to which noise can be added, got "
            f"{str(clients.dataset.inputs.dtype).removeprefix('torch.')} inputs"
        )
    rng = stream(seed, "noisy")

    def change(node: int, inputs: Tensor) -> Tensor:
        return _add_noise(inputs, math.sqrt(variance * (node + 1) / clients.n), rng)

    return _with_features(clients, change, f"noisy({clients.name}, variance={variance:g})")


@public
def tinted(clients: Partition, colors: Sequence[Sequence[float]]) -> Partition:
    """Return a partition in which nodes see gray images in a color of theirs.

    Parameters
    ----------
    clients
        Partition of gray images, (N, 1, height, width), as in :func:`rotated`.
    colors
        Red, green and blue, from 0 to 1: node i has ``colors[i % len(colors)]``.

    Returns
    -------
    Partition
        As of :func:`rotated`, of a dataset of color images, (N, 3, height, width): each channel is
        the gray image times a number. Images that all nodes share are gray.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or a color not three numbers.
    ValueError
        If the inputs are not images with one channel, if no color is given, or a number is not
        between 0 and 1.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> tinted(clients, [[1, 0, 0], [0, 1, 0.5]]).dataset.inputs.shape
    torch.Size([1797, 3, 8, 8])
    """
    _check_images(clients)
    dataset = clients.dataset
    if dataset.inputs.shape[1] != 1:
        raise ValueError(
            "`clients` must hold gray images, with one channel, got inputs of shape "
            f"{tuple(dataset.inputs.shape)}"
        )
    shades = _numbers("colors", colors, (3,))
    if shades.min() < 0 or shades.max() > 1:
        raise ValueError(f"`colors` must hold numbers from 0 to 1, got {_shown(shades)}")
    gray = replace(dataset, inputs=dataset.inputs.expand(-1, 3, -1, -1))

    def change(node: int, images: Tensor) -> Tensor:
        return _tint(images, shades[node % len(shades)])

    name = f"tinted({clients.name}, colors={_shown(shades)})"
    return _with_features(replace(clients, dataset=gray), change, name)


def _check_images(clients: Partition) -> None:
    check_clients(clients)
    if clients.dataset.inputs.ndim != 4:
        raise ValueError(
            "`clients` must hold images, (N, channels, height, width), got inputs of shape "
            f"{tuple(clients.dataset.inputs.shape)}"
        )


def _numbers(name: str, values: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Return (k, *shape) finite numbers, at least one row of them."""
    array = as_array(name, values, np.float64)
    if array.shape[1:] != shape or array.ndim != len(shape) + 1 or not len(array):
        rows = "numbers" if not shape else f"lists of {shape[0]} numbers"
        raise ValueError(
            f"`{name}` must be a list of {rows}, at least one, got shape {array.shape}"
        )
    return check_finite(name, array)


def _shown(numbers: np.ndarray) -> str:
    """Return numbers as text that is the same for 0, 0.0 and -0.0."""
    if numbers.ndim:
        return f"[{', '.join(map(_shown, numbers))}]"
    return f"{numbers + 0.0:g}"


def _with_features(clients: Partition, change: Change, name: str) -> Partition:
    """Return a partition whose nodes see their inputs as `change` returns them."""
    dataset, parts = clients.dataset, (clients.train, clients.val, clients.test)
    held = [np.unique(np.concatenate(own)) for own in zip(*parts, strict=True)]
    size = len(dataset.inputs)
    shared = np.bincount(np.concatenate(held), minlength=size) > 1
    shared[dataset.val] = shared[dataset.test] = True
    copies = [own[shared[own]] for own in held]
    sources = np.concatenate([np.arange(size), *copies])
    starts = size + np.cumsum([0, *map(len, copies)])
    trained = np.zeros(len(sources), bool)
    moved: list[list[np.ndarray]] = [[], [], []]
    chosen = torch.from_numpy(sources).to(dataset.inputs.device)
    inputs = dataset.inputs[chosen]
    for node, own in enumerate(held):
        place = np.arange(size)
        place[copies[node]] = np.arange(starts[node], starts[node + 1])
        rows = torch.from_numpy(place[own]).to(inputs.device)
        inputs[rows] = change(node, inputs[rows])
        for part, found in zip(parts, moved, strict=True):
            found.append(place[part[node]])
        trained[moved[0][-1]] = trained[moved[1][-1]] = True
    added = np.flatnonzero(trained[size:]) + size
    whole = _repeated(dataset, inputs, chosen, np.concatenate([dataset.train, added]))
    train, val, test = moved
    return replace(clients, dataset=whole, train=train, val=val, test=test, name=name)


def _repeated(dataset: Dataset, inputs: Tensor, chosen: Tensor, train: np.ndarray) -> Dataset:
    """Return a dataset with other inputs, whose labels and owners are those of `chosen`."""
    targets, owners = dataset.targets, dataset.owners
    return replace(
        dataset,
        inputs=inputs,
        labels=dataset.labels[chosen.to(dataset.labels.device)],
        targets=None if targets is None else targets[chosen.to(targets.device)],
        owners=None if owners is None else owners[chosen.cpu().numpy()],
        train=train,
    )


def _rotate(images: Tensor, degrees: float) -> Tensor:
    """Return images (k, c, h, w), rotated counterclockwise."""
    quarters = degrees / 90
    square = images.shape[-1] == images.shape[-2]
    if quarters.is_integer() and (square or quarters % 2 == 0):
        return torch.rot90(images, int(quarters) % 4, (-2, -1))
    height, width = images.shape[-2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrix = [[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]]
    theta = torch.tensor([matrix], dtype=torch.float32, device=images.device)
    grid = functional.affine_grid(theta, [1, 1, height, width], align_corners=False)
    turned = functional.grid_sample(
        images.float(), grid.expand(len(images), -1, -1, -1), align_corners=False
    )
    return turned.round().to(images.dtype) if images.dtype == torch.uint8 else turned


def _add_noise(inputs: Tensor, deviation: float, rng: np.random.Generator) -> Tensor:
    """Return inputs with Gaussian noise; pixels are rounded and clipped."""
    noise = torch.from_numpy(rng.normal(0.0, deviation, tuple(inputs.shape)).astype(np.float32))
    noise = noise.to(inputs.device)
    if inputs.dtype != torch.uint8:
        return inputs + noise
    return (inputs + 255 * noise).round().clamp(0, 255).to(torch.uint8)


def _tint(images: Tensor, color: np.ndarray) -> Tensor:
    """Return images (k, 3, h, w) whose channels are multiplied by the numbers of a color."""
    shade = torch.tensor(color, dtype=torch.float32, device=images.device)[:, None, None]
    colored = images * shade
    return colored.round().to(torch.uint8) if images.dtype == torch.uint8 else colored
