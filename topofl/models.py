"""The networks of the papers, as plain ``torch.nn`` modules.

The last layer of each is called ``head``: what personalized methods keep to themselves are the parameters whose names
start with ``head.``; all others are the body. GroupNorm, never BatchNorm: running statistics are neither averaged nor
personal. Building a model neither reads nor moves torch's global generator.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from topofl._check import check_int
from topofl._seeding import seeded_torch

__all__ = ["gn_lenet", "logistic_regression"]


@contextmanager
def _fixed_start() -> Iterator[None]:
    """Build modules from seed 0; :func:`topofl.run` draws its own initial parameters from its own seed."""
    with seeded_torch(0):
        yield


def logistic_regression(in_features: int = 784, n_classes: int = 10) -> nn.Sequential:
    """Return multinomial logistic regression: flatten, then one linear layer with bias.

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
    with _fixed_start():
        return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(in_features, n_classes)))


def gn_lenet(in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10) -> nn.Sequential:
    """Return the LeNet variant with GroupNorm that D-Cliques trains on CIFAR-10.

    The first block pools before it normalizes, the other two normalize before they pool, as in the authors' code.

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
    channels, height, width = in_shape
    check_int("in_shape[0]", channels, minimum=1)
    check_int("in_shape[1]", height, minimum=15)
    check_int("in_shape[2]", width, minimum=15)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    features = 64 * math.prod(_pooled(_pooled(_pooled(side))) for side in (height, width))
    with _fixed_start():
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 32, 5, padding=2),
                pool1=nn.MaxPool2d(3, 2),
                norm1=nn.GroupNorm(2, 32),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(32, 32, 5, padding=2),
                norm2=nn.GroupNorm(2, 32),
                pool2=nn.MaxPool2d(3, 2),
                relu2=nn.ReLU(),
                conv3=nn.Conv2d(32, 64, 5, padding=2),
                norm3=nn.GroupNorm(2, 64),
                pool3=nn.MaxPool2d(3, 2),
                relu3=nn.ReLU(),
                flatten=nn.Flatten(),
                head=nn.Linear(features, n_classes),
            )
        )


def _pooled(side: int) -> int:
    """Side of an image after 3 x 3 max-pooling with stride 2."""
    return (side - 3) // 2 + 1
