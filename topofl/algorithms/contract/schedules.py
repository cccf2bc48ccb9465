"""Learning rates over rounds and steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import torch

from topofl._support.calls import evaluate_call
from topofl._support.check import check_int, check_nonnegative, check_positive, check_takes, shown
from topofl._support.public import ELSEWHERE, public
from topofl._support.text import is_number

__all__ = [
    "Rate",
    "Schedule",
    "as_schedule",
    "constant",
    "cosine",
    "described",
    "exponential",
    "rate_at",
]

Schedule = Callable[[int, int], float]
"""``lr(round, step)`` -> learning rate, at least 0; both count from 0."""

Rate = float | str | Schedule
"""A learning rate: a number, a schedule, or text such as ``"cosine(0.5, rounds=300)"``."""


@dataclass(frozen=True)
class _Constant:
    lr: float

    def __call__(self, round: int, step: int) -> float:
        return self.lr

    def __str__(self) -> str:
        return f"{self.lr:g}"


@dataclass(frozen=True)
class _Exponential:
    lr: float
    decay: float

    def __call__(self, round: int, step: int) -> float:
        return self.lr * self.decay**round

    def __str__(self) -> str:
        return f"exponential({self.lr!r}, {self.decay!r})"


@dataclass(frozen=True)
class _Cosine:
    lr: float
    rounds: int
    warmup: int
    end: float

    def __call__(self, round: int, step: int) -> float:
        if round < self.warmup:
            return self.lr * (round + 1) / (self.warmup + 1)
        done = min(1.0, (round - self.warmup) / max(1, self.rounds - self.warmup))
        return self.end + (self.lr - self.end) * (1 + math.cos(math.pi * done)) / 2

    def __str__(self) -> str:
        rest = "".join(
            f", {name}={getattr(self, name)!r}" for name in ("warmup", "end") if getattr(self, name)
        )
        return f"cosine({self.lr!r}, rounds={self.rounds}{rest})"


@public
def constant(lr: float) -> Schedule:
    """Return the schedule with the same learning rate in all rounds, equivalent to a number.

    Examples
    --------
    >>> constant(0.1)(5, 0)
    0.1
    """
    return _Constant(check_positive("lr", lr))


@public
def exponential(lr: float, decay: float) -> Schedule:
    """Return the schedule with exponential decay, ``lr * decay**round``.

    Parameters
    ----------
    lr
        Above 0.
    decay
        Above 0 and at most 1.

    Examples
    --------
    >>> [round(exponential(0.1, 0.5)(t, 0), 4) for t in range(3)]
    [0.1, 0.05, 0.025]
    """
    lr, decay = check_positive("lr", lr), check_positive("lr_decay", decay)
    if decay > 1:
        raise ValueError(
            f"`lr_decay` must be at most 1, got {decay:g}; it is the factor from round to round, "
            "e.g. 0.99"
        )
    return _Constant(lr) if decay == 1 else _Exponential(lr, decay)


@public
def cosine(lr: float, *, rounds: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Return the schedule with cosine decay after a linear warmup.

    In the ``w`` rounds of `warmup` it is ``lr * (round + 1) / (w + 1)``, then
    ``end + (lr - end) * (1 + cos(pi * (round - w) / (rounds - w))) / 2``, and `end` after `rounds`.

    Parameters
    ----------
    lr
        The highest learning rate, above 0.
    rounds
        The number of rounds after which it is `end`, usually that of the run.
    warmup
        The number of rounds in which it rises, fewer than `rounds`.
    end
        The last learning rate, at least 0.

    References
    ----------
    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), equation
    5.

    Examples
    --------
    >>> schedule = cosine(0.1, rounds=10, warmup=2)
    >>> [round(schedule(t, 0), 3) for t in (0, 1, 2, 6, 10)]
    [0.033, 0.067, 0.1, 0.05, 0.0]
    """
    lr, end = check_positive("lr", lr), check_nonnegative("end", end)
    rounds = check_int("rounds", rounds, minimum=1)
    warmup = check_int("warmup", warmup, minimum=0, maximum=rounds - 1, maximum_name="rounds - 1")
    return _Cosine(lr, rounds, warmup, end)


def decayed(lr: Rate, decay: float) -> Schedule:
    """Return the schedule ``lr * decay**round``; if `lr` is a schedule, `decay` must be 1."""
    _check_no_other_kind("lr", lr)
    if not callable(lr) and not isinstance(lr, str):
        return exponential(lr, decay)
    if check_positive("lr_decay", decay) != 1:
        raise ValueError(
            f"`lr_decay` must be 1 where `lr` is a schedule, got {decay:g}; leave it out"
        )
    return as_schedule("lr", lr)


def as_schedule(name: str, lr: Rate) -> Schedule:
    """Return the schedule given by a number, a function or text.

    Text must be a call of :func:`constant`, :func:`exponential` or :func:`cosine`; no other code is
    executed.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, such as an optimizer of torch or one of its schedulers, or if a
        number or an argument is out of its range.

    Examples
    --------
    >>> schedule = as_schedule("lr", "cosine(0.5, rounds=300)")
    >>> str(schedule), schedule(0, 0), round(schedule(150, 0), 4)
    ('cosine(0.5, rounds=300)', 0.5, 0.25)
    """
    if isinstance(lr, str):
        if is_number(lr):
            raise TypeError(
                f"`{name}` must be a number or a schedule, got {shown(lr)}; remove the quotes"
            )
        functions = {"constant": constant, "exponential": exponential, "cosine": cosine}
        return as_schedule(
            name, evaluate_call(name, lr, functions, "0.1 or cosine(0.5, rounds=300)")
        )
    _check_no_other_kind(name, lr)
    if not callable(lr):
        return _Constant(check_positive(name, lr))
    check_takes(f"`{name}`", lr, "round", "step")
    return lr


def _check_no_other_kind(name: str, lr: object) -> None:
    """Raise ``TypeError`` for classes, optimizers, schedulers, layers, and such as print."""
    kind = lr if isinstance(lr, type) else type(lr)
    module = kind.__module__
    of_torch = module.startswith("torch.optim") or isinstance(lr, torch.nn.Module)
    built_in = (
        lr.__name__ if isinstance(lr, BuiltinFunctionType) and lr.__module__ == "builtins" else ""
    )
    if not (isinstance(lr, type) or of_torch or built_in):
        return
    remedy = "pass 0.1, cosine(0.1, rounds=300), or a function of (round, step)"
    if module.startswith("torch.optim.lr_scheduler"):
        remedy = "write it as a function of (round, step), or use cosine or exponential"
    elif module.startswith("torch.optim"):
        remedy = f"{remedy}; {ELSEWHERE['optimizer']}"
    got = f"{'the class' if isinstance(lr, type) else 'an object of'} {module}.{kind.__qualname__}"
    if built_in:
        got = f"the built-in function {built_in}"
    raise TypeError(f"`{name}` must be a number or a schedule, got {got}; {remedy}")


def rate_at(lr: Schedule, round: int, step: int, dtype: torch.dtype, phase: str = "") -> float:
    """Return the learning rate of a step, or raise ``ValueError`` unless the dtype can hold it."""
    rate = lr(round, step)
    place = f"{f'the phase {phase!r}, ' if phase else ''}round {round + 1} (step {step} of it)"
    # raised by text, by vectors, and by integers that are too large for a float
    no_number = (TypeError, ValueError, RuntimeError, OverflowError)
    try:
        usable = math.isfinite(rate) and rate >= 0
    except no_number:
        usable = False
    if not usable:
        raise ValueError(
            f"`lr` must return a finite learning rate of at least 0, got {shown(rate)} in {place}"
        )
    rate = float(rate)
    most = torch.finfo(dtype).max
    if rate > most:
        raise ValueError(
            f"`lr` must be at most {most:g} for {dtype}, got {rate:g} in {place}; lower it"
        )
    return rate


def described(lr: Schedule) -> Any:
    """Return a schedule as a number or text, as it is saved with results."""
    if isinstance(lr, _Constant):
        return lr.lr
    return (
        str(lr)
        if isinstance(lr, _Exponential | _Cosine)
        else getattr(lr, "__name__", type(lr).__name__)
    )
