"""Checks of amounts of training: steps, epochs and batch sizes, one number or one per node."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from topofl._support.check import check_int, check_sequence, shown

__all__ = ["Amount", "check_amount", "check_epochs", "check_work"]

Amount = int | tuple[int, ...]
"""One number for all nodes, or one per node."""


def check_amount(name: str, value: Any, *, least: int = 0) -> Amount:
    """Return one number, at least 1, or one per node, each at least `least`, or raise.

    Examples
    --------
    >>> check_amount("steps", 3), check_amount("steps", [3, 0])
    (3, (3, 0))
    """
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        numbers = check_sequence(name, value, "one number per node")
        if not len(numbers):
            raise ValueError(f"`{name}` must be one number or one per node, got none")
        return tuple(
            check_int(f"{name}[{i}]", number, minimum=least) for i, number in enumerate(numbers)
        )
    return check_int(name, value, minimum=1)


def check_epochs(name: str, epochs: int | Sequence[int] | None) -> Amount | None:
    """Return passes over the local data, one number or one per node, or raise."""
    return None if epochs is None else check_amount(name, epochs)


def check_work(
    steps: Any, epochs: Any, *, least: int = 0, name: str = "steps"
) -> tuple[Amount, Amount | None]:
    """Return steps (1 by default) and epochs, or raise if both are given.

    Examples
    --------
    >>> check_work(None, 5)
    (1, 5)
    """
    if steps is not None and epochs is not None:
        raise ValueError(
            f"one of `{name}` and `epochs` must be None, as each sets how long nodes train, got "
            f"{name}={shown(steps)} and epochs={shown(epochs)}; give {name}=None for passes over "
            "the data, or epochs=None for steps"
        )
    passes = None if epochs is None else check_amount("epochs", epochs, least=least)
    return check_amount(name, 1 if steps is None else steps, least=least), passes
