"""The user code that called the library: its line in warnings, and whether it is a notebook."""

import sys
import warnings

__all__ = ["in_notebook", "warn_caller"]


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


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")
