"""Tensors of consecutive numbers."""

import numpy as np
import torch


def numbers(*shape, device="cpu"):
    """Return 0, 1, 2, ... in float64, in a tensor of the given shape."""
    return torch.arange(np.prod(shape), dtype=torch.float64, device="cpu").view(shape).to(device)
