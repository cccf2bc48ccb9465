"""Normalization of pixels that are stored as bytes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import as_array, check_number, check_positive

__all__ = ["Channels", "check_channels", "check_range", "scale_and_shift"]

Channels = float | tuple[float, ...]
"""One number for all channels, or one per channel."""


def check_channels(
    name: str, value: object, shape: Sequence[int], *, positive: bool = False
) -> Channels:
    """Return `value` as one finite number, or one per channel (``shape[1]`` of them), or raise."""
    check = check_positive if positive else check_number
    if not isinstance(value, Sequence) and hasattr(value, "tolist"):
        value = as_array(name, value).tolist()
    if not isinstance(value, list | tuple):
        return check(name, value)
    if len(value) != shape[1]:
        raise ValueError(
            f"`{name}` must be one number, or one for each of the {shape[1]} channels of `inputs` "
            f"{tuple(shape)}, got {len(value)}; images are (N, channels, height, width)"
        )
    return tuple(check(f"{name}[{channel}]", number) for channel, number in enumerate(value))


def scale_and_shift(
    mean: Channels, std: Channels, ndim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the scale and shift that normalize pixels, (channels or 1, 1, ...) of `dtype`."""
    center, spread = np.atleast_1d(mean), np.atleast_1d(std)
    with np.errstate(over="ignore", under="ignore"):
        both = 1 / (255 * spread), (0.0 - center) / spread
    scale, shift = (
        torch.from_numpy(values).to(dtype).reshape(-1, *[1] * (ndim - 2)) for values in both
    )
    return scale, shift


def check_range(mean: Channels, std: Channels) -> None:
    """Raise ValueError if float32 cannot hold the normalized darkest or brightest pixel."""
    scale, shift = scale_and_shift(mean, std, 2, torch.float32)
    if not bool(torch.isfinite(torch.cat([shift, 255 * scale + shift])).all()):
        raise ValueError(
            f"`std` must keep (pixel / 255 - mean) / std finite in float32, got {std} with "
            f"mean={mean}"
        )
