"""Warnings that point to the line of user code that called the library."""

import sys
import warnings

__all__ = ["warn_caller"]


def warn_caller(message: str) -> None:
    """Issue a ``UserWarning`` that points to the innermost line outside of this library."""
    level = 1
    frame = sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "topofl"
    ):
        level += 1
        frame = frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
