"""Random crops and flips of training images."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from topofl._support.check import check_int, check_switch, shown
from topofl._support.public import public

__all__ = ["Augmentation", "Moves", "check_augmentation", "crop_and_flip"]

BITS = 32
"""Number of random bits per choice."""

MAX_PADDING = 2**10
"""Largest padding in pixels; it keeps the number of choices far below 2**BITS."""


class Moves(NamedTuple):
    """Crop positions and flips of a batch of images.

    Attributes
    ----------
    tops, lefts
        (k,) int64 in 0..2 * padding: top left corner of the crop in the padded image.
    flipped
        (k,) int64: 1 if the crop is then mirrored left to right, else 0.
    """

    tops: Tensor
    lefts: Tensor
    flipped: Tensor


@dataclass(frozen=True)
class Augmentation:
    """Random crops and flips of training images; see :func:`crop_and_flip`.

    Raises
    ------
    ValueError, TypeError
        As :func:`crop_and_flip`.

    Examples
    --------
    >>> augment = crop_and_flip(padding=4)
    >>> augment
    Augmentation(padding=4, flip=True)
    >>> augment.n_choices  # 9 x 9 crops, each with and without a flip
    162
    """

    padding: int
    flip: bool

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "padding", check_int("padding", self.padding, minimum=0, maximum=MAX_PADDING)
        )
        check_switch("flip", self.flip, auto=False)
        if self.n_choices == 1:
            raise ValueError(
                "`flip` must be True with padding=0, got False, which changes nothing; leave out "
                "`augment`"
            )

    @property
    def name(self) -> str:
        """Call that makes this augmentation."""
        return f"crop_and_flip(padding={self.padding}, flip={self.flip})"

    @property
    def n_choices(self) -> int:
        """Number of different results for one image."""
        return (2 * self.padding + 1) ** 2 * (1 + self.flip)

    def check_on(self, inputs: Tensor) -> None:
        """Raise ``ValueError`` if inputs are not images, (N, ...), or too small for the padding."""
        if inputs.ndim != 4:
            raise ValueError(
                "`augment` must be None for data other than images, (N, channels, height, width), "
                f"got inputs of {tuple(inputs.shape)}; leave it out, or reshape the inputs"
            )
        side = min(inputs.shape[2:])
        if self.padding >= side:
            raise ValueError(
                f"`augment` must have a padding below the shorter side of the images, {side}, got "
                f"{self.name}; lower the padding"
            )

    def choose(self, keys: np.ndarray) -> np.ndarray:
        """Return uniform choices, int64 in 0..n_choices - 1, from 64 random bits each."""
        return ((keys >> np.uint64(BITS)) * np.uint64(self.n_choices) >> np.uint64(BITS)).astype(
            np.int64
        )

    def moves(self, choices: Tensor) -> Moves:
        """Return the crops and flips that (k,) choices stand for."""
        side = 2 * self.padding + 1
        crops = choices // (1 + self.flip)
        return Moves(crops // side, crops % side, choices % (1 + self.flip))


def check_augmentation(augment: Any) -> Augmentation:
    """Return `augment` unchanged, or raise ``TypeError`` if it is not an Augmentation."""
    if not isinstance(augment, Augmentation):
        raise TypeError(
            "`augment` must be an Augmentation, for example data.crop_and_flip(padding=4), got "
            f"{shown(augment)}"
        )
    return augment


@public
def crop_and_flip(padding: int = 4, flip: bool = True) -> Augmentation:
    """Return random crops and horizontal flips, for :func:`topofl.data.augmented`.

    Each time a node trains on an image, the image is padded on all four sides, cropped to its
    original size at one of (2 * padding + 1)^2 equally likely positions, and then mirrored left to
    right with probability 1/2. Uint8 images are padded with 0 before they are normalized, so the
    padding is black; float32 images are padded with 0 as stored, which is black only if they were
    not normalized before.

    Parameters
    ----------
    padding
        Pixels on each side, below the height and the width of the images; 0: no crops.
    flip
        Whether images are mirrored.

    Raises
    ------
    ValueError, TypeError
        If `padding` is not a non-negative integer, `flip` is not True or False, or both together
        change nothing.

    References
    ----------
    He et al., *Deep residual learning for image recognition* (2016), section 4.2, with padding 4.

    Examples
    --------
    >>> crop_and_flip(padding=4).n_choices  # 9 x 9 positions, mirrored or not
    162
    """
    return Augmentation(padding, flip)
