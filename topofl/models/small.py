"""Logistic regression and small convolutional networks."""

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.models.building import Conv2d, GroupNorm, Linear, built_from_seed_0, check_image_shape

__all__ = ["dpfl_cnn", "dpfl_femnist_cnn", "fedavg_cnn", "gn_lenet", "logistic_regression"]


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
        return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=Linear(in_features, n_classes)))


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
    channels, height, width = check_image_shape(in_shape, smallest=15)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    features = 64 * math.prod(_pooled(_pooled(_pooled(side))) for side in (height, width))
    with built_from_seed_0():
        return nn.Sequential(
            OrderedDict(
                conv1=Conv2d(channels, 32, 5, padding=2),
                pool1=nn.MaxPool2d(3, 2),
                norm1=GroupNorm(2, 32),
                relu1=nn.ReLU(),
                conv2=Conv2d(32, 32, 5, padding=2),
                norm2=GroupNorm(2, 32),
                pool2=nn.MaxPool2d(3, 2),
                relu2=nn.ReLU(),
                conv3=Conv2d(32, 64, 5, padding=2),
                norm3=GroupNorm(2, 64),
                pool3=nn.MaxPool2d(3, 2),
                relu3=nn.ReLU(),
                flatten=nn.Flatten(),
                head=Linear(features, n_classes),
            )
        )


def _pooled(side: int) -> int:
    """Return the side of an image after 3 x 3 max-pooling with stride 2."""
    return (side - 3) // 2 + 1


@public
def dpfl_cnn(in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10) -> nn.Sequential:
    """Return the small LeNet that DPFL trains on CIFAR-10 and CINIC-10.

    It has two convolutions with 6 and 16 kernels of 5 x 5 without padding, each followed by ReLU
    and 2 x 2 max-pooling, then three linear layers with 120, 84 and `n_classes` outputs, as in the
    paper's list of layers and the authors' code; the paper's text mentions three convolutions and
    two linear layers.

    Parameters
    ----------
    in_shape
        Channels, height, width of an image; at least 16 x 16 pixels.
    n_classes
        Number of classes.

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
    in_shape
        Channels, height, width of an image; at least 16 x 16 pixels.
    n_classes
        Number of classes.

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
    in_shape
        Channels, height, width of an image; at least 16 x 16 pixels, whatever the padding.
    n_classes
        Number of classes.
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
    channels, *sides = check_image_shape(in_shape, smallest=16)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    with built_from_seed_0():
        for i, wide in enumerate(kernels, start=1):
            layers[f"conv{i}"] = Conv2d(channels, wide, 5, padding=padding)
            layers[f"relu{i}"] = nn.ReLU()
            layers[f"pool{i}"] = nn.MaxPool2d(2)
            channels = wide
            sides = [(side + 2 * padding - 4) // 2 for side in sides]
        layers["flatten"] = nn.Flatten()
        features = channels * math.prod(sides)
        for i, units in enumerate(hidden, start=1):
            layers[f"linear{i}"] = Linear(features, units)
            layers[f"relu{len(kernels) + i}"] = nn.ReLU()
            features = units
        layers["head"] = Linear(features, n_classes)
    return nn.Sequential(layers)
