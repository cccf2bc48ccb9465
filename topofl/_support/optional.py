"""Packages of the extras of topofl, imported by the functions that need them."""

from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(module: str, extra: str, who: str, *, name: str = "", instead: str = "") -> Any:
    """Return a module, or raise with the extra of topofl that installs it.

    Parameters
    ----------
    module
        Name of the module.
    extra
        The extra that installs its package.
    who
        What needs it, for the message.
    name
        What the message calls the package; empty: the name of the module.
    instead
        What else can be done, as the end of the message.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed.

    Examples
    --------
    >>> imported("nowhere", "slurm", "`executor`")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: `executor` needs nowhere, which is not installed; install it with pip \
install 'topofl[slurm]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{who} needs {name or module}, which is not installed; install it with pip install "
            f"'topofl[{extra}]'{instead}"
        ) from error
