"""Checks of the results and errors of user-defined functions."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = [
    "NO_BRANCHES",
    "WHY_PLAYED",
    "check_same_shape",
    "explaining_meta_errors",
    "named_errors",
]


def check_same_shape(what: str, noun: str, made: object, like: Tensor, remedy: str = "") -> Tensor:
    """Return the result of a user-defined function, or raise ``ValueError`` for a wrong shape.

    Parameters
    ----------
    what
        The function, as in "`forge` of the attack 'mine'".
    noun
        What it returns, as in "a row".
    made, like
        The result, and a tensor of the required shape.
    remedy
        How to fix it.

    Examples
    --------
    >>> check_same_shape("`rule`", "a row", torch.ones(2), torch.zeros(3))
    Traceback (most recent call last):
    ValueError: `rule` must return a row of shape (3,), got shape (2,)
    """
    if isinstance(made, Tensor) and made.shape == like.shape:
        return made
    got = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
    raise ValueError(
        f"{what} must return {noun} of shape {tuple(like.shape)}, got "
        f"{got}{f'; {remedy}' * bool(remedy)}"
    )


@contextmanager
def explaining_meta_errors(what: str, remedy: str) -> Iterator[None]:
    """Replace torch's errors for meta tensors, which have no values, by a readable ``ValueError``.

    Parameters
    ----------
    what
        The requirement, as in "the term 'mine' must work on tensors without values, on which ...".
    remedy
        How to fix it.
    """
    try:
        yield
    except (RuntimeError, TypeError) as error:  # NotImplementedError is a RuntimeError
        if "meta" not in str(error).lower():
            raise
        raise ValueError(f"{what}: {_first_line(error)}; {remedy}") from error


@contextmanager
def named_errors(what: str, given: Tensor) -> Iterator[None]:
    """Raise the errors of a user-defined function as a ``ValueError`` that names the function.

    Out-of-memory errors, and errors for meta tensors, pass unchanged.

    Parameters
    ----------
    what
        The function, as in "`apply` of the compressor 'mine'".
    given
        The tensor that it was called with.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if "meta" in str(error).lower():
            raise
        shape = tuple(given.shape)
        raise ValueError(
            f"{what} must work on a tensor of shape {shape}, but it raised "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error message, at most 120 characters."""
    return str(error).strip().partition(chr(10))[0][:120].rstrip(".")


WHY_PLAYED = "on which a run plays its first rounds to see what it needs"
"""The reason in error messages why a function is called with tensors without values."""

NO_BRANCHES = (
    "use torch's functions on the device of the arguments, and torch.where in place of branches"
)
"""The remedy in error messages if a computation depends on values of a tensor."""
