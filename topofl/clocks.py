"""Simulated clocks: fixed or random durations of local steps and messages."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from topofl._support.calls import as_instance, evaluate_call
from topofl._support.check import (
    as_array,
    as_table,
    check_amounts,
    check_nonnegative,
    check_positive,
    check_takes,
    shown,
)
from topofl._support.public import public

__all__ = ["AnyClock", "Clock", "Seconds", "Times", "as_clock", "exponential", "lognormal"]


def _constant_factor(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return `count` ones, for times that are not random."""
    del rng
    return np.ones(count)


@dataclass(frozen=True, eq=False, repr=False)
class Times:
    """Random durations in seconds, drawn independently per step or message: ``mean * factor``.

    Parameters
    ----------
    mean
        A number, a table (n,) with one number per node, or a table (n, n) with one per link, whose
        entry ``mean[i, j]`` is for messages from node i to node j.
    factor
        ``factor(rng, count)`` returns `count` finite numbers, usually of mean 1, which must be at
        least 0, and above 0 for steps. A new :class:`Clock` checks it by drawing 17 numbers with
        ``numpy.random.default_rng(0)``; later draws are checked as well.
    name
        Name of the distribution, as it appears in settings.
    settings
        Other arguments of the distribution, stored with results.

    Raises
    ------
    ValueError, TypeError
        If `mean` has another shape, is negative or not finite, or is 0 for a node; or if `factor`
        is not a function of two arguments.

    Examples
    --------
    One step in ten takes ten times as long:

    >>> def factor(rng, count):
    ...     return np.where(rng.random(count) < 0.1, 10.0, 1.0)
    >>> interrupted = Times(2.0, factor, "interrupted")
    >>> Clock(compute=interrupted)
    Clock(compute=interrupted(2), delay=0)
    """

    mean: float | np.ndarray
    factor: Callable[[np.random.Generator, int], np.ndarray] = _constant_factor
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mean = as_table("mean", self.mean)
        if mean.ndim > 2 or len(set(mean.shape)) > 1:
            raise ValueError(
                "`mean` must be one number, or a table with one number per node, shape (n,), or "
                f"per link, shape (n, n), got shape {mean.shape}"
            )
        _check_seconds("mean", mean, of_steps=mean.ndim == 1)
        object.__setattr__(self, "mean", mean)
        check_takes("`factor`", self.factor, "rng", "count")

    def __repr__(self) -> str:
        return self.description

    @property
    def is_random(self) -> bool:
        """Whether durations are drawn."""
        return self.factor is not _constant_factor

    @property
    def description(self) -> str:
        """The distribution as text for settings, such as ``"exponential(2)"``."""
        mean = np.asarray(self.mean)
        text = f"{float(mean):.12g}" if mean.ndim == 0 else repr(mean.tolist())
        if not self.name:
            return text
        others = "".join(f", {key}={value}" for key, value in self.settings.items())
        return f"{self.name}({text}{others})"


Seconds: TypeAlias = "float | np.ndarray | list[Any] | str | Times"
"""A number, a table, :class:`Times`, or text such as ``"1.0"`` or ``"exponential(1.0)"``."""


@public
def exponential(mean: float | np.ndarray | list[Any]) -> Times:
    """Return exponentially distributed (memoryless) times with one mean or a table of means.

    Examples
    --------
    Three nodes, one of which is slow:

    >>> Clock(compute=exponential([1.0, 1.0, 5.0]), delay=0.1)
    Clock(compute=exponential([1.0, 1.0, 5.0]), delay=0.1)
    """
    return Times(mean, lambda rng, count: rng.exponential(size=count), "exponential")  # pyright: ignore[reportArgumentType]


@public
def lognormal(mean: float | np.ndarray | list[Any], sigma: float) -> Times:
    """Return lognormally distributed times with one mean or a table of means.

    ``mean * exp(sigma * Z - sigma^2 / 2)`` with ``Z ~ N(0, 1)``.

    Examples
    --------
    >>> Clock(delay=lognormal(0.1, sigma=0.5)).settings["delay"]
    'lognormal(0.1, sigma=0.5)'
    """
    sigma = check_nonnegative("sigma", sigma)

    def factor(rng: np.random.Generator, count: int) -> np.ndarray:
        return np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)

    drawn = factor if sigma else _constant_factor
    return Times(mean, drawn, "lognormal", {"sigma": sigma})  # pyright: ignore[reportArgumentType]


@public
@dataclass(frozen=True, eq=False, repr=False)
class Clock:
    """A simulated clock: durations of local steps and messages in seconds.

    A step of node i takes ``compute[i]``; a message of b bytes from i to j takes ``delay[i, j] + b
    / bandwidth``.

    See the page :doc:`Attackers, clocks and compressors </docs/attackers-clocks-compressors>`.

    Parameters
    ----------
    compute
        Seconds per local step (one gradient on a minibatch), above 0: a number, a table (n,) with
        one number per node, or random times such as :func:`exponential` or :func:`lognormal` with
        one mean or (n,) means. Text, as in a TOML file, is a number or a call of one of these two
        functions: ``"exponential(1.0)"``, ``"lognormal(mean=[1, 1, 5], sigma=0.5)"``.
    delay
        Seconds until a message arrives, at least 0: a number, a table (n, n), random times, or such
        text.
    bandwidth
        Bytes per second of every link; None: messages of all sizes take the same time.

    Raises
    ------
    ValueError, TypeError
        If a time is negative, not finite, 0 for a step, or a table of another shape; if `factor` of
        random times is not a function, or draws such a number; or if text is neither a number nor a
        call of a distribution.

    Examples
    --------
    >>> clock = Clock(compute=[1.0, 1.0, 4.0], delay=0.5, bandwidth=1000)
    >>> rng = np.random.default_rng(0)
    >>> clock.steps(rng, [0, 2]).tolist(), clock.messages(rng, [0], [1], 2000).tolist()
    ([1.0, 4.0], [2.5])
    """

    compute: Seconds = 1.0
    delay: Seconds = 0.0
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("compute", "delay"):
            times = as_times(f"clock.{name}", getattr(self, name), of_steps=name == "compute")
            object.__setattr__(self, name, times)
        if self.bandwidth is not None:
            bandwidth = check_positive("clock.bandwidth", self.bandwidth)
            object.__setattr__(self, "bandwidth", bandwidth)

    def __repr__(self) -> str:
        return f"Clock({', '.join(f'{name}={value}' for name, value in self.settings.items())})"

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments as JSON values, stored with results."""
        settings = {name: getattr(self, name).description for name in ("compute", "delay")}
        return settings if self.bandwidth is None else settings | {"bandwidth": self.bandwidth}

    def check(self, n: int) -> None:
        """Raise ``ValueError`` if a table does not have n nodes."""
        for name in ("compute", "delay"):
            mean = getattr(self, name).mean
            if mean.ndim and len(mean) != n:
                each = "number" if name == "compute" else "row"
                raise ValueError(
                    f"`clock.{name}` must be one number or a table for all nodes, n={n}, got shape "
                    f"{mean.shape}; give one {each} per node"
                )

    def steps(self, rng: np.random.Generator, nodes: Any) -> np.ndarray:
        """Return the seconds that one local step takes at each of `nodes`."""
        return self._drawn("compute", rng, np.asarray(nodes))

    def messages(
        self, rng: np.random.Generator, senders: Any, receivers: Any, nbytes: Any
    ) -> np.ndarray:
        """Return the seconds that each message takes; `nbytes` is one number or one per message."""
        seconds = self._drawn("delay", rng, np.asarray(senders), np.asarray(receivers))
        return seconds if self.bandwidth is None else seconds + np.asarray(nbytes) / self.bandwidth

    def _drawn(self, key: str, rng: np.random.Generator, *places: np.ndarray) -> np.ndarray:
        """Return drawn seconds of steps or messages at these nodes or links."""
        times, of_steps = getattr(self, key), key == "compute"
        factors = drawn_factors(f"clock.{key}", times, rng, len(places[0]), of_steps=of_steps)
        return factors * (times.mean[places] if times.mean.ndim else float(times.mean))


AnyClock: TypeAlias = Clock | Mapping[str, Any] | str | None
"""A clock, a dictionary of its arguments, text such as "Clock(delay=0.1)", or None."""


@public
def as_clock(clock: AnyClock) -> Clock:
    """Return a clock from a Clock, a dictionary of its arguments, or text.

    None gives steps of one second and no delays.

    Raises
    ------
    TypeError, ValueError
        If `clock` is none of these, or has unknown arguments.

    Examples
    --------
    >>> as_clock("Clock(compute=exponential(2.0), delay=0.1)").settings
    {'compute': 'exponential(2)', 'delay': '0.1'}
    """
    functions = DISTRIBUTIONS | {"Clock": Clock}
    example = "Clock(compute=exponential(1.0), delay=0.1)"
    return as_instance("clock", {} if clock is None else clock, Clock, functions, example)


DISTRIBUTIONS = {"exponential": exponential, "lognormal": lognormal}
"""Functions that text can call."""


def drawn_factors(
    argument: str, times: Any, rng: np.random.Generator, count: int, *, of_steps: bool
) -> np.ndarray:
    """Return `count` drawn and checked factors of times of the named argument, of steps or not."""
    argument = f"`factor` of `{argument}`"
    try:
        made = times.factor(rng, count)
    except StopIteration as error:
        raise ValueError(
            f"{argument} must return {count} numbers in every call, but has none left; start again "
            "at the first, as itertools.cycle does"
        ) from error
    except Exception as error:
        error.add_note(f"raised by {argument}, called with count={count}")
        raise
    factors = made if isinstance(made, np.ndarray) else as_array("factor", made)
    if factors.shape != (count,) or factors.dtype.kind not in "iuf":
        got = shown(made) if factors.ndim == 0 else f"shape {factors.shape} of {factors.dtype}"
        raise ValueError(
            f"{argument} must return an array of `count` numbers, shape ({count},), got {got}; "
            "draw them as in rng.exponential(size=count)"
        )
    bad = ~np.isfinite(factors) | (factors <= 0 if of_steps else factors < 0)
    if bad.any():
        bound = "above 0, since a step takes time" if of_steps else "of at least 0"
        is_lognormal = times.name == "lognormal"
        remedy = "lower `sigma`" if is_lognormal else "bound the draws, for example with np.maximum"
        raise ValueError(
            f"{argument} must return finite numbers {bound}, got {factors[bad][0]:g}; {remedy}"
        )
    return factors


def as_times(argument: str, value: Any, *, of_steps: bool) -> Times:
    """Return an argument as :class:`Times`, of steps or of messages, checked with trial draws."""
    if isinstance(value, str):
        value = _from_text(argument, value)
    mean = as_table(argument, value.mean if isinstance(value, Times) else value)
    ndim = 1 if of_steps else 2
    if mean.ndim not in (0, ndim) or len(set(mean.shape)) > 1:
        table = "one per node, shape (n,)" if ndim == 1 else "one per link, shape (n, n)"
        raise ValueError(f"`{argument}` must be one number or {table}, got shape {mean.shape}")
    _check_seconds(argument, mean, of_steps=of_steps)
    times = replace(value, mean=mean) if isinstance(value, Times) else Times(mean)  # pyright: ignore[reportArgumentType]
    for count in (1, 16):  # so that errors are found before a run begins
        drawn_factors(argument, times, np.random.default_rng(0), count, of_steps=of_steps)
    return times


def _from_text(argument: str, text: str) -> Any:
    """Return the value of text: a number, a list, or the result of calling a distribution."""
    try:
        literal = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        literal = None
    if isinstance(literal, int | float | list):
        return literal
    return evaluate_call(argument, text, DISTRIBUTIONS, "1.0 or exponential(1.0)")


def _check_seconds(argument: str, seconds: np.ndarray, *, of_steps: bool) -> None:
    """Raise ``ValueError`` unless seconds are finite, and above 0 or, of messages, at least 0."""
    remedy = "remove nodes that never compute" if of_steps else ""
    check_amounts(argument, seconds, positive=of_steps, remedy=remedy)
