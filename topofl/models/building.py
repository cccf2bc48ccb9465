"""Layers, checks and initialization that all networks share."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from topofl._support.check import check_int, check_sequence, shown
from topofl._support.seeding import plain_torch, seeded_torch

__all__ = ["Conv2d", "GroupNorm", "Linear", "built_from_seed_0", "check_image_shape"]

# parameters are float32, whatever torch's default dtype is
Linear = partial(nn.Linear, dtype=torch.float32)
Conv2d = partial(nn.Conv2d, dtype=torch.float32)
GroupNorm = partial(nn.GroupNorm, dtype=torch.float32)


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


def check_image_shape(in_shape: tuple[int, int, int], *, smallest: int) -> tuple[int, int, int]:
    """Return channels, height and width, or raise if a side is below `smallest` pixels."""
    sides = check_sequence("in_shape", in_shape, "integers")
    if len(sides) != 3:
        raise ValueError(f"`in_shape` must be (channels, height, width), got {shown(in_shape)}")
    channels, height, width = sides
    return (
        check_int("in_shape[0]", channels, minimum=1),
        check_int("in_shape[1]", height, minimum=smallest),
        check_int("in_shape[2]", width, minimum=smallest),
    )
