"""Contexts that reset torch's modes and default device, which the caller may have changed."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

__all__ = ["in_plain_torch", "plain_torch"]

P = ParamSpec("P")
R = TypeVar("R")


def plain_torch(device: Any = None) -> ExitStack:
    """Return a context with torch's default modes in the calling thread, and `device` as default.

    Inference mode, ``torch.no_grad`` and autocast are off, and tensors created without a device are
    created on `device`. Only modes that differ from their defaults are reset, so that the context
    is free if none does. The default dtype is shared by all threads and is not changed.

    Parameters
    ----------
    device
        A device, such as ``"cuda:0"``; the CPU if it is None or not a valid device.

    Examples
    --------
    >>> with torch.device("meta"), torch.inference_mode(), plain_torch():
    ...     torch.zeros(2).device, torch.is_inference_mode_enabled()
    (device(type='cpu'), False)
    """
    stack = ExitStack()
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    if not torch.is_grad_enabled():
        stack.enter_context(torch.enable_grad())
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            stack.enter_context(torch.autocast(kind, enabled=False))
    if _default_device() != torch.device("cpu"):
        stack.enter_context(_device_or_cpu(device))
    return stack


def in_plain_torch(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to run in :func:`plain_torch` on the device of its keyword `compute`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        compute: Any = kwargs.get("compute")
        with plain_torch(getattr(compute, "device", compute)):
            return function(*args, **kwargs)

    return call


def _default_device() -> torch.device | None:
    """Return torch's default device, or None if it does not exist on this machine."""
    try:
        return torch.get_default_device()
    except (AssertionError, RuntimeError):
        return None


def _device_or_cpu(device: Any) -> torch.device:
    try:
        return torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):  # the wrapped function raises its own error
        return torch.device("cpu")
