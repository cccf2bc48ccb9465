"""Torch's defaults and modes that a caller may have set."""

from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


AMBIENT = {
    "default device": lambda: default_device("meta"),
    "a missing device": lambda: default_device("xla"),
    "device context": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "default dtype": lambda: default_dtype(torch.float64),
}

TOGETHER = (
    ("a missing device", "default dtype", "autocast", "inference mode"),
    ("device context", "no_grad"),
)
"""Two sets of settings that do not hide each other.

A default device that exists acts as one that does not.
"""


@contextmanager
def entered(*names):
    """Enter several settings."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(AMBIENT[name]())
        yield
