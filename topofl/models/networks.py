"""The networks of the papers."""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from topofl._support.check import check_int, check_sequence, check_switch, shown
from topofl._support.public import public
from topofl._support.seeding import plain_torch, seeded_torch

# parameters are float32, whatever torch's default dtype is
_Linear = partial(nn.Linear, dtype=torch.float32)
_Conv1d = partial(nn.Conv1d, dtype=torch.float32)
_Conv2d = partial(nn.Conv2d, dtype=torch.float32)
_GroupNorm = partial(nn.GroupNorm, dtype=torch.float32)


def _chain(**layers: nn.Module) -> nn.Sequential:
    """Return named layers that are applied one after the other."""
    return nn.Sequential(OrderedDict(layers))


@contextmanager
def built_from_seed_0() -> Iterator[None]:
    """Build modules in this context from seed 0, in float32 on the CPU.

    Runs initialize parameters again from their own seed.

    Raises
    ------
    ValueError
        If a module does not fit into memory.
    """
    try:
        with plain_torch(), seeded_torch(0):
            yield
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
        raise ValueError(
            "`in_features`, `in_shape`, `n_classes` and other sizes must give a model that fits "
            "into memory, but creating it failed: "
            f"{str(error).partition(chr(10))[0][:200]}; lower them"
        ) from error


def _check_image_shape(in_shape: Sequence[int], *, smallest: int) -> tuple[int, ...]:
    """Return channels, height and width, or raise if a side is below `smallest` pixels."""
    sides = check_sequence("in_shape", in_shape, "integers")
    if len(sides) != 3:
        raise ValueError(f"`in_shape` must be (channels, height, width), got {shown(in_shape)}")
    limits = enumerate((1, smallest, smallest))
    return tuple(check_int(f"in_shape[{i}]", sides[i], minimum=least) for i, least in limits)


@public
def logistic_regression(in_features: int = 784, n_classes: int = 10) -> nn.Sequential:
    """Return multinomial logistic regression: one linear layer with bias on flattened inputs.

    Parameters
    ----------
    in_features
        Numbers per example: 784 for MNIST, 64 for the embedded digits.
    n_classes
        Number of classes.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A: the MNIST model.

    Examples
    --------
    >>> sum(p.numel() for p in logistic_regression().parameters())
    7850
    """
    in_features = check_int("in_features", in_features, minimum=1)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    with built_from_seed_0():
        return _chain(flatten=nn.Flatten(), head=_Linear(in_features, n_classes))


@public
def mlp(
    in_features: int = 784, n_classes: int = 10, *, hidden: int = 64, norm: bool = False
) -> nn.Sequential:
    """Return a multilayer perceptron: two hidden layers with ReLU on flattened inputs.

    Parameters
    ----------
    in_features
        Numbers per example: 784 for MNIST, 196 for MNIST at 14 x 14 pixels.
    n_classes
        Number of classes.
    hidden
        Number of units of each hidden layer.
    norm
        Whether each hidden layer is followed by ``nn.LayerNorm``, before its ReLU.

    Raises
    ------
    ValueError, TypeError
        If a number is below its minimum or of another type, or `norm` is neither True nor False.

    Examples
    --------
    >>> sum(p.numel() for p in mlp(196).parameters())
    17418
    >>> [name for name, _ in mlp(64, hidden=32, norm=True).named_children()]
    ['flatten', 'linear1', 'norm1', 'relu1', 'linear2', 'norm2', 'relu2', 'head']
    """
    in_features = check_int("in_features", in_features, minimum=1)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    hidden = check_int("hidden", hidden, minimum=1)
    check_switch("norm", norm, auto=False)
    with built_from_seed_0():
        layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
        for place, width in ((1, in_features), (2, hidden)):
            layers[f"linear{place}"] = _Linear(width, hidden)
            if norm:
                layers[f"norm{place}"] = nn.LayerNorm(hidden, dtype=torch.float32)
            layers[f"relu{place}"] = nn.ReLU()
        return _chain(**layers, head=_Linear(hidden, n_classes))


@public
def mnist1d_cnn(
    in_shape: tuple[int, int] = (1, 40), n_classes: int = 10, *, channels: int = 25
) -> nn.Sequential:
    """Return the convolutional network of the MNIST-1D paper, for signals.

    It has three convolutions of stride 2 with 5, 3 and 3 places, padding 1 and ReLU, and one linear
    layer.

    Parameters
    ----------
    in_shape
        Channels and length of a signal; at least 3 places.
    n_classes
        Number of classes.
    channels
        Number of channels of each convolution.

    References
    ----------
    Greydanus and Kobak, "Scaling down deep learning with MNIST-1D" (ICML 2024); the authors' code.

    Examples
    --------
    >>> sum(p.numel() for p in mnist1d_cnn().parameters())
    5210
    """
    sides = check_sequence("in_shape", in_shape, "integers")
    if len(sides) != 2:
        raise ValueError(f"`in_shape` must be (channels, length), got {shown(in_shape)}")
    inputs, length = (check_int(f"in_shape[{i}]", sides[i], minimum=k) for i, k in ((0, 1), (1, 3)))
    n_classes = check_int("n_classes", n_classes, minimum=2)
    channels = check_int("channels", channels, minimum=1)
    for kernel in (5, 3, 3):
        length = (length + 2 - kernel) // 2 + 1
    with built_from_seed_0():
        return _chain(
            conv1=_Conv1d(inputs, channels, 5, 2, padding=1),
            relu1=nn.ReLU(),
            conv2=_Conv1d(channels, channels, 3, 2, padding=1),
            relu2=nn.ReLU(),
            conv3=_Conv1d(channels, channels, 3, 2, padding=1),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
            head=_Linear(channels * length, n_classes),
        )


@public
def gn_lenet(in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10) -> nn.Sequential:
    """Return the LeNet variant with GroupNorm that D-Cliques trains on CIFAR-10.

    The first block pools before it normalizes, the other two normalize before they pool, as in the
    authors' code.

    Parameters
    ----------
    in_shape
        Channels, height, width of an image; at least 15 x 15 pixels.
    n_classes
        Number of classes.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section IV-A.

    Examples
    --------
    >>> sum(p.numel() for p in gn_lenet().parameters())
    85354
    >>> sum(p.numel() for p in gn_lenet((1, 28, 28)).parameters())
    80554
    """
    channels, height, width = _check_image_shape(in_shape, smallest=15)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    height, width = ((side + 1) // 8 - 1 for side in (height, width))  # pooled three times
    features = 64 * height * width
    with built_from_seed_0():
        return _chain(
            conv1=_Conv2d(channels, 32, 5, padding=2),
            pool1=nn.MaxPool2d(3, 2),
            norm1=_GroupNorm(2, 32),
            relu1=nn.ReLU(),
            conv2=_Conv2d(32, 32, 5, padding=2),
            norm2=_GroupNorm(2, 32),
            pool2=nn.MaxPool2d(3, 2),
            relu2=nn.ReLU(),
            conv3=_Conv2d(32, 64, 5, padding=2),
            norm3=_GroupNorm(2, 64),
            pool3=nn.MaxPool2d(3, 2),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
            head=_Linear(features, n_classes),
        )


@public
def dpfl_cnn(in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10) -> nn.Sequential:
    """Return the small LeNet that DPFL trains on CIFAR-10 and CINIC-10.

    It has two convolutions with 6 and 16 kernels of 5 x 5 without padding, each followed by ReLU
    and 2 x 2 max-pooling, then three linear layers with 120, 84 and `n_classes` outputs, as in the
    paper's list of layers and the authors' code; the paper's text mentions three convolutions and
    two linear layers.

    Parameters
    ----------
    in_shape, n_classes
        As in :func:`gn_lenet`; at least 16 x 16 pixels.

    References
    ----------
    Kharrat, Canini and Horvath, "Decentralized personalized federated learning" (2025), appendix;
    the authors' code.

    Examples
    --------
    >>> sum(p.numel() for p in dpfl_cnn().parameters())
    62006
    """
    return _lenet(in_shape, n_classes, kernels=(6, 16), hidden=(120, 84))


@public
def dpfl_femnist_cnn(
    in_shape: tuple[int, int, int] = (1, 28, 28), n_classes: int = 10
) -> nn.Sequential:
    """Return the network that DPFL trains on FEMNIST.

    It is :func:`dpfl_cnn` with 4 and 12 kernels and 120 and 100 hidden units. The paper uses 10 of
    the 62 classes of FEMNIST. The authors' code applies the cross-entropy to log-probabilities,
    which is equivalent to the logits returned here.

    Parameters
    ----------
    in_shape, n_classes
        As in :func:`gn_lenet`; at least 16 x 16 pixels.

    References
    ----------
    Kharrat, Canini and Horvath, "Decentralized personalized federated learning" (2025), appendix;
    the authors' code.

    Examples
    --------
    >>> sum(p.numel() for p in dpfl_femnist_cnn().parameters())
    37586
    >>> sum(p.numel() for p in dpfl_femnist_cnn(n_classes=62).parameters())
    42838
    """
    return _lenet(in_shape, n_classes, kernels=(4, 12), hidden=(120, 100))


@public
def fedavg_cnn(
    in_shape: tuple[int, int, int] = (3, 32, 32),
    n_classes: int = 10,
    *,
    hidden: int = 512,
    padding: int = 0,
) -> nn.Sequential:
    """Return the convolutional network of the FedAvg paper.

    It has two convolutions with 32 and 64 kernels of 5 x 5, each followed by pooling, and one
    hidden linear layer. The default is the variant without padding of personalized federated
    learning benchmarks, a light substitute for :func:`topofl.models.resnet18_gn`; ``hidden=2048,
    padding=2`` is LEAF's network for FEMNIST.

    Parameters
    ----------
    in_shape, n_classes
        As in :func:`gn_lenet`; at least 16 x 16 pixels, whatever the padding.
    hidden
        Number of units of the hidden layer.
    padding
        Padding of both convolutions; 2 keeps the size of the image.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), section 3; Caldas et al., "LEAF" (2018), for FEMNIST.

    Examples
    --------
    >>> sum(p.numel() for p in fedavg_cnn().parameters())
    878538
    >>> sum(p.numel() for p in fedavg_cnn((1, 28, 28)).parameters())
    582026
    >>> sum(p.numel() for p in fedavg_cnn((1, 28, 28), 62, hidden=2048, padding=2).parameters())
    6603710
    """
    hidden = check_int("hidden", hidden, minimum=1)
    padding = check_int("padding", padding, minimum=0)
    return _lenet(in_shape, n_classes, kernels=(32, 64), hidden=(hidden,), padding=padding)


def _lenet(
    in_shape: tuple[int, int, int],
    n_classes: int,
    *,
    kernels: Sequence[int],
    hidden: Sequence[int],
    padding: int = 0,
) -> nn.Sequential:
    """Return 5 x 5 convolutions, each with ReLU and 2 x 2 max-pooling, then linear layers."""
    channels, *sides = _check_image_shape(in_shape, smallest=16)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    layers: dict[str, nn.Module] = {}
    with built_from_seed_0():
        for i, wide in enumerate(kernels, start=1):
            layers[f"conv{i}"] = _Conv2d(channels, wide, 5, padding=padding)
            layers[f"relu{i}"] = nn.ReLU()
            layers[f"pool{i}"] = nn.MaxPool2d(2)
            channels = wide
            sides = [(side + 2 * padding - 4) // 2 for side in sides]
        layers["flatten"] = nn.Flatten()
        features = channels * math.prod(sides)
        for i, units in enumerate(hidden, start=1):
            layers[f"linear{i}"] = _Linear(features, units)
            layers[f"relu{len(kernels) + i}"] = nn.ReLU()
            features = units
        layers["head"] = _Linear(features, n_classes)
    return _chain(**layers)


@public
def resnet18_gn(
    in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, *, groups: int = 32
) -> nn.Sequential:
    """Return ResNet-18 with GroupNorm for small images such as CIFAR-10 and CIFAR-100.

    This is the network of the DFedPGP and PFedDST papers: a 3 x 3 convolution of stride 1 without
    pooling, four stages of two residual blocks (64, 128, 256 and 512 channels; strides 1, 2, 2, 2),
    1 x 1 convolutions where the shape changes, the mean over the image, and one linear layer.

    Parameters
    ----------
    in_shape, n_classes
        As in :func:`gn_lenet`; at least 8 x 8 pixels.
    groups
        Number of groups of every GroupNorm, a divisor of 64. The papers do not specify it; the
        authors' code uses 32.

    References
    ----------
    Liu et al., "DFedPGP" (2024), section 5.1; "PFedDST" (2025), section III-A; He et al., "Deep
    residual learning for image recognition" (2016), for the network; Wu and He, "Group
    normalization" (2018).

    Examples
    --------
    >>> [sum(p.numel() for p in resnet18_gn(n_classes=c).parameters()) for c in (10, 100, 200)]
    [11173962, 11220132, 11271432]
    """
    channels, _, _ = _check_image_shape(in_shape, smallest=8)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    groups = check_int("groups", groups, minimum=1)
    if 64 % groups:
        raise ValueError(
            f"`groups` must divide 64, the channels of the first stage, got {groups}; 32 is usual"
        )
    with built_from_seed_0():
        return _chain(
            conv=_Conv2d(channels, 64, 3, padding=1, bias=False),
            norm=_GroupNorm(groups, 64),
            relu=nn.ReLU(),
            stage1=_stage(64, 64, 1, groups),
            stage2=_stage(64, 128, 2, groups),
            stage3=_stage(128, 256, 2, groups),
            stage4=_stage(256, 512, 2, groups),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=_Linear(512, n_classes),
        )


def _stage(channels: int, wide: int, stride: int, groups: int) -> nn.Sequential:
    """Return two residual blocks; the first changes the shape."""
    first = _Residual(channels, wide, stride, groups)
    return nn.Sequential(first, _Residual(wide, wide, 1, groups))


class _Residual(nn.Module):
    """Residual block: two convolutions and a shortcut."""

    def __init__(self, channels: int, wide: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = _Conv2d(channels, wide, 3, stride, padding=1, bias=False)
        self.norm1 = _GroupNorm(groups, wide)
        self.conv2 = _Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norm2 = _GroupNorm(groups, wide)
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != wide:
            projection = _Conv2d(channels, wide, 1, stride, bias=False)
            self.shortcut = _chain(conv=projection, norm=_GroupNorm(groups, wide))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(inside)) + self.shortcut(x))
