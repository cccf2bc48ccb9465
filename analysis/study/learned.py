"""What is learned in the studies: datasets that are read when needed, and networks by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from topofl import data, models


def _folder(root: Path | None, name: str) -> Path:
    if root is None:
        raise ValueError(f"`--data` must name a folder with the folder {name}, got none")
    return root / name


def _mnist(root: Path | None, tested: int = 1) -> data.Dataset:
    """Return MNIST with every `tested`-th of its test images."""
    whole = data.mnist(_folder(root, "mnist").parent)
    return replace(whole, test=whole.test[::tested])


def _small_mnist(root: Path | None, margin: int, tested: int) -> data.Dataset:
    """Return MNIST averaged to 14 x 14 pixels, with a margin, and some of its test images."""
    whole = _mnist(root, tested)
    pixels = functional.avg_pool2d(whole.inputs / 255, 2)
    images = (functional.pad(pixels, [margin] * 4) - 0.1307) / 0.3081
    train, test = (torch.tensor(part) for part in (whole.train, whole.test))
    return data.from_arrays(
        images[train], whole.labels[train], test=(images[test], whole.labels[test]), name="mnist"
    )


DATASETS: Mapping[str, Callable[[Path | None], data.Dataset]] = {
    "digits": lambda root: data.digits(),
    "digits 16 x 16": lambda root: data.digits(enlarge=2),
    "MNIST": _mnist,
    "MNIST, a fifth of the test images": lambda root: _mnist(root, 5),
    "MNIST 14 x 14": lambda root: _small_mnist(root, 0, 5),
    "MNIST 16 x 16": lambda root: _small_mnist(root, 1, 20),
    # The subset has other checksums than the whole dataset. Averaging saves three quarters of time.
    "CIFAR-10 subset": lambda root: data.cifar10(
        _folder(root, "cifar10-subset"), verify=False, downscale=2
    ),
}
"""Functions from the folder of the data to a dataset."""


@cache
def dataset_of(name: str, root: Path | None) -> data.Dataset:
    """Return a dataset, which is read when it is first needed."""
    return DATASETS[name](root)


def model_of(declared: Sequence[Any]) -> nn.Module:
    """Return the model of a name in ``topofl.models``, or of one of this study, and its size."""
    name, size = declared
    build = NETWORKS.get(name) or getattr(models, name)
    return build(tuple(size) if isinstance(size, list) else size)


def _mlp(inputs: int, norm: Callable[[], nn.Module] = nn.Identity) -> nn.Module:
    """Return two hidden layers of 64 units."""
    layers = [nn.Linear(inputs, 64), norm(), nn.ReLU(), nn.Linear(64, 64), norm(), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10))


class _GrayChannelsLast(nn.Module):
    """View images of one channel, whose two memory formats are the same, as channels last.

    By strides alone torch takes them for channels first, which it then uses in all layers; pooling
    takes several times as long in it.
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the same images, (b, 1, height, width)."""
        return images.flatten(1, 2).unsqueeze(-1).permute(0, 3, 1, 2)


def _gray_lenet(size: tuple[int, int], *, normalized: bool) -> nn.Module:
    """Return GN-LeNet for images of one channel, or the same without GroupNorm."""
    layers = models.gn_lenet((1, *size)).children()
    kept = [layer for layer in layers if normalized or not isinstance(layer, nn.GroupNorm)]
    return nn.Sequential(_GrayChannelsLast(), *kept)


NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    "mlp": _mlp,
    "gn_mlp": partial(_mlp, norm=partial(nn.GroupNorm, 2, 64)),
    "gray_gn_lenet": partial(_gray_lenet, normalized=True),
    "gray_lenet": partial(_gray_lenet, normalized=False),
}
"""Networks that are not in ``topofl.models``: functions of the size of the input."""
