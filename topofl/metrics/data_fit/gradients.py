"""Checks of the nodes' gradients that metrics take."""

from typing import Any

import numpy as np
import torch

from topofl._support.check import check_finite

__all__ = ["as_float64", "check_gradients", "check_shape"]


def check_gradients(gradients: Any, n: int, name: str) -> np.ndarray:
    """Return gradients (n, d) as float64, or raise; `name` is the graph's."""
    check_shape(gradients, n, name)
    return as_float64(gradients)


def check_shape(gradients: Any, n: int, name: str) -> None:
    """Raise unless gradients are an array or a tensor (n, d) of real numbers."""
    if not isinstance(gradients, np.ndarray | torch.Tensor):
        raise TypeError(
            f"`gradients` must be a numpy array or a torch tensor, got {type(gradients).__name__}"
        )
    is_real = (
        not gradients.is_complex()
        if isinstance(gradients, torch.Tensor)
        else gradients.dtype.kind in "buif"
    )
    if not is_real:
        raise TypeError(f"`gradients` must hold real numbers, got dtype {gradients.dtype}")
    if gradients.ndim != 2 or gradients.shape[0] != n or gradients.shape[1] == 0:
        raise ValueError(
            "`gradients` must have shape (n, d), one gradient per row: got "
            f"{tuple(gradients.shape)}, {name} has n={n}"
        )


def as_float64(chunk: np.ndarray | torch.Tensor) -> np.ndarray:
    """Return gradients as a float64 array on the CPU; raise ``ValueError`` for NaN or infinity."""
    if isinstance(chunk, torch.Tensor):
        chunk = chunk.detach().to(device="cpu", dtype=torch.float64).numpy()
    return check_finite("gradients", chunk.astype(np.float64))
