"""Random augmentation of the images that nodes train on."""

from dataclasses import replace

from topofl._support.public import public
from topofl.data.augment import Augmentation, check_augmentation
from topofl.data.partition import Partition, check_clients

__all__ = ["augmented"]


@public
def augmented(clients: Partition, augment: Augmentation) -> Partition:
    """Return a partition whose nodes train on randomly cropped and flipped images.

    Crops and flips are drawn each time a node trains on an image, from a separate stream of the
    run's seed, and do not depend on the executor. Losses and gradients in training, and hence
    ``gradient_diversity``, are those of the augmented images; evaluations use the original images.

    Parameters
    ----------
    clients
        Partition of images, (N, channels, height, width). Further edits of the result, for example
        by :func:`match_test`, retain the augmentation.
    augment
        Augmentation, for example ``crop_and_flip(padding=4)``; replaces that of `clients`, if any.

    Returns
    -------
    Partition
        The same partition with `augment`.

    Raises
    ------
    TypeError
        If `clients` is not a Partition, or `augment` not an Augmentation.
    ValueError
        If the inputs are not images, or not larger than the padding.

    Examples
    --------
    >>> from topofl import data
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> augmented(clients, data.crop_and_flip(padding=1))
    Partition('iid(digits, n=10)', n=10, train=149..150 and classes=10..10 per node, \
augment=crop_and_flip(padding=1, flip=True))
    """
    check_clients(clients)
    return replace(clients, augment=check_augmentation(augment))
