"""Shorthands for options of a run: numbers of rounds, names of sets, devices and paths."""

import os
from numbers import Integral
from pathlib import Path
from typing import Any

import torch

from topofl._support.check import shown
from topofl.engine.options import Compute, Evaluation, Saving

__all__ = ["as_compute", "as_evaluation", "as_saving"]


def as_evaluation(value: Any) -> Evaluation:
    """Return the Evaluation for the argument `evaluation` of :func:`topofl.run`.

    `value` is an Evaluation, a number of rounds, one or more names of sets, or None.

    Raises
    ------
    ValueError, TypeError
        If `value` is none of these, or as :class:`Evaluation`.

    Examples
    --------
    >>> as_evaluation(4) == Evaluation(every=4), as_evaluation(["test", "val"]).on
    (True, ('test', 'val'))
    """
    if value is None or isinstance(value, Evaluation):
        return value or Evaluation()
    if isinstance(value, Integral) and not isinstance(value, bool):
        return Evaluation(every=int(value))
    if isinstance(value, str | tuple | list):
        return Evaluation(on=value)
    raise TypeError(
        "`evaluation` must be a topofl.Evaluation, a number of rounds such as 4, or sets such as "
        f"'own_test', got {shown(value)}"
    )


def as_compute(value: Any) -> Compute:
    """Return the Compute for the argument `compute` of :func:`topofl.run`.

    `value` is a Compute, a device, or None.

    Raises
    ------
    ValueError, TypeError
        If `value` is none of these, or as :class:`Compute`.

    Examples
    --------
    >>> as_compute("cpu") == Compute(device="cpu")
    True
    """
    if value is None or isinstance(value, Compute):
        return value or Compute()
    if isinstance(value, str | torch.device):
        return Compute(device=value)
    raise TypeError(
        f"`compute` must be a topofl.Compute or a device such as 'cuda', got {shown(value)}"
    )


def as_saving(value: Any) -> Saving:
    """Return the Saving for the argument `saving` of :func:`topofl.run`.

    `value` is a Saving, the path of a folder, or None.

    Raises
    ------
    ValueError, TypeError
        If `value` is none of these, or as :class:`Saving`.

    Examples
    --------
    >>> as_saving("runs/a") == Saving("runs/a")
    True
    """
    if value is None or isinstance(value, Saving):
        return value or Saving()
    if isinstance(value, str | Path | os.PathLike):
        return Saving(value)
    raise TypeError(
        "`saving` must be a topofl.Saving or the path of a folder such as 'runs/a', got "
        f"{shown(value)}"
    )
