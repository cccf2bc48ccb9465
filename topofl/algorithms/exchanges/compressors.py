"""Compressors of messages: sparsification, signs and quantization."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.calls import evaluate_call
from topofl._support.check import check_int, check_positive, check_takes, shown
from topofl._support.seeding import random_keys
from topofl.algorithms.contract.checked import (
    NO_BRANCHES,
    PLAYED,
    named_errors,
    shaped_as,
    without_numbers,
)
from topofl.algorithms.contract.round import Round

__all__ = [
    "TOP_TENTH",
    "Compressor",
    "check_compressor",
    "check_consensus_step",
    "check_messages",
    "disagreement",
    "message_bytes",
    "no_compression",
    "quantized",
    "random_k",
    "sign",
    "top_k",
]

BLOCK = 2**20
"""Numbers compressed at a time, 4 MB in float32, and at least one row."""

LEVELS_LIMIT = 2**23
"""Most levels of quantization: numbers of float32 have no more between 1 and 2."""


@dataclass(frozen=True)
class Compressor:
    """A compressor: a function Q of d numbers whose results take fewer bytes.

    Parameters
    ----------
    name
        Its name in settings and messages.
    apply
        ``apply(values, rng) -> Q(values)``, row by row of (n, d) tensors on any device, into new
        memory. `rng` is a generator of numpy such as ``round.rng("compression")``; compressors that
        draw nothing leave it alone.
    nbytes
        ``nbytes(d, itemsize)``: bytes of one compressed row of d numbers of so many bytes.
    contraction
        ``contraction(d)``: the largest known delta in (0, 1] with ``E ||Q(x) - x||^2 <= (1 - delta)
        ||x||^2`` for all x of d numbers.
    unbiased
        Whether ``E Q(x) = c x``, with one number c for all x.
    settings
        Its arguments, kept with results.

    Examples
    --------
    >>> [one.nbytes(100_000, 4) for one in (top_k(0.01), sign(), quantized(levels=7))]
    [6125, 12504, 50004]

    Rounding to 8 bits of precision, as a compressor of one's own:

    >>> half = Compressor("bfloat16", lambda values, rng: values.bfloat16().to(values.dtype),
    ...                   lambda d, itemsize: 2 * d, lambda d: 1 - 2**-16, unbiased=False)
    >>> print(half, top_k(0.01), quantized(levels=7))
    bfloat16() top_k(share=0.01) quantized(levels=7)

    A compressor that draws: its numbers come from `rng` and move to the device of the values:

    >>> def halves(values, rng):
    ...     kept = torch.from_numpy(rng.random(tuple(values.shape)) < 0.5).to(values.device)
    ...     return values * kept
    >>> drawn = Compressor("half of all", halves, lambda d, itemsize: d * itemsize // 2 + 8,
    ...                    lambda d: 0.4, unbiased=True)
    """

    name: str
    apply: Callable[[Tensor, np.random.Generator], Tensor]
    nbytes: Callable[[int, int], int]
    contraction: Callable[[int], float]
    unbiased: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.settings.items())})"


def top_k(share: float) -> Compressor:
    """Return the compressor that keeps the ``k = ceil(share * d)`` numbers of largest magnitude.

    Sent are k numbers and which they are: their indices, of ``ceil(log2 d)`` bits, or a bit for
    each of the d numbers, whichever is shorter. The contraction is ``k / d``, reached where all
    numbers are equally large.

    Parameters
    ----------
    share
        Above 0 and below 1.

    Raises
    ------
    ValueError, TypeError
        If `share` is out of its range or no number.

    References
    ----------
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018).
    """
    share = _check_share(share)

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        del rng
        places = x.abs().topk(_count(share, x.shape[1]), dim=1, sorted=False).indices
        return torch.zeros_like(x).scatter_(1, places, x.gather(1, places))

    def nbytes(d: int, itemsize: int) -> int:
        k = _count(share, d)
        return k * itemsize + _whole(min(k * (d - 1).bit_length(), d))

    return Compressor(
        "top_k", _by_rows(some), nbytes, lambda d: _count(share, d) / d, False, {"share": share}
    )


def random_k(share: float) -> Compressor:
    """Return the compressor that keeps ``k = ceil(share * d)`` random numbers of each row.

    Sent are k numbers and a seed of 8 bytes, from which whoever receives them draws the same
    places. The contraction is ``k / d``; numbers are not scaled up by ``d / k``, with which Q would
    not contract.

    Parameters
    ----------
    share
        Above 0 and below 1.

    Raises
    ------
    ValueError, TypeError
        If `share` is out of its range or no number.

    References
    ----------
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018).
    """
    share = _check_share(share)

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        k = _count(share, x.shape[1])
        if x.is_meta:
            places = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
        else:
            places = torch.from_numpy(_places(rng.integers(2**63, size=len(x)), x.shape[1], k)).to(
                x.device
            )
        return torch.zeros_like(x).scatter_(1, places, x.gather(1, places))

    def nbytes(d: int, itemsize: int) -> int:
        return _count(share, d) * itemsize + 8

    return Compressor(
        "random_k", _by_rows(some), nbytes, lambda d: _count(share, d) / d, True, {"share": share}
    )


def _places(seeds: np.ndarray, d: int, k: int) -> np.ndarray:
    """Return which k of d places each seed draws, (n, k)."""
    return np.argpartition(random_keys(0, seeds, np.arange(d)), k - 1, axis=1)[:, :k]


def sign() -> Compressor:
    """Return the compressor of signs times the mean magnitude, ``Q(x) = ||x||_1 / d * sign(x)``.

    The sign of 0 is 1. Sent are d bits and one number. The contraction is ``||x||_1^2 / (d
    ||x||^2)``, near 1 where all numbers are equally large, and never below ``1 / d``, reached where
    all but one are 0.

    References
    ----------
    Karimireddy, Rebjock, Stich and Jaggi, "Error feedback fixes SignSGD and other gradient
    compression schemes" (2019).
    """

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        del rng
        scale = x.abs().mean(1, keepdim=True)
        return torch.where(x >= 0, scale, -scale)

    def nbytes(d: int, itemsize: int) -> int:
        return itemsize + _whole(d)

    return Compressor("sign", _by_rows(some), nbytes, lambda d: 1 / d, False)


def quantized(levels: int) -> Compressor:
    """Return the compressor of random quantization to s levels of magnitude (QSGD).

    ::

        Q(x)_k = sign(x_k) * ||x|| / (s tau) * floor(s |x_k| / ||x|| + u_k),   u_k uniform in [0, 1)
        tau    = 1 + min(d / s^2, sqrt(d) / s)

    Without tau it would be unbiased; with it, it contracts, by ``1 / tau``. Sent are ``ceil(log2(2
    s + 1))`` bits for each number, as ``2 s + 1`` values are possible, and the norm. (The variable
    lengths of the paper are not used.)

    Parameters
    ----------
    levels
        s, at least 1: with 1 numbers become -1, 0 or 1 times the scale. Of b bits per number,
        ``2**(b
        - 1) - 1``.

    Raises
    ------
    ValueError, TypeError
        If `levels` is below 1, more than float32 can tell apart, or no integer.

    References
    ----------
    Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via gradient
    quantization and encoding" (2017); scaled by tau as in Koloskova, Stich and Jaggi (2019), see
    :func:`topofl.algorithms.choco_sgd`.
    """
    levels = check_int("levels", levels, minimum=1, maximum=LEVELS_LIMIT)

    def tau(d: int) -> float:
        return 1 + min(d / levels**2, math.sqrt(d) / levels)

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64).to(x.dtype)
        shares = x.abs().div_(torch.where(norm == 0, 1, norm))
        rounded = shares.mul_(levels).add_(_uniform(x, rng)).floor_().clamp_(max=levels)
        return rounded.mul_(norm / (levels * tau(x.shape[1]))).copysign_(x)

    def nbytes(d: int, itemsize: int) -> int:
        return itemsize + _whole(d * (2 * levels).bit_length())

    return Compressor(
        "quantized", _by_rows(some), nbytes, lambda d: 1 / tau(d), True, {"levels": levels}
    )


def no_compression() -> Compressor:
    """Return the compressor that sends vectors as they are."""
    return Compressor(
        "no_compression",
        lambda x, rng: x.clone(),
        lambda d, itemsize: d * itemsize,
        lambda d: 1.0,
        True,
    )


def _check_share(share: object) -> float:
    share = check_positive("share", share)
    if share >= 1:
        raise ValueError(
            f"`share` must be above 0 and below 1, got {share:g}; to send everything use "
            "no_compression()"
        )
    return share


def _count(share: float, d: int) -> int:
    """Return how many of d numbers are kept."""
    return max(1, math.ceil(round(share * d, 9)))  # a tenth of 30 is 3


def _whole(bits: int) -> int:
    """Return how many bytes hold so many bits."""
    return -(-bits // 8)


def _uniform(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Return uniform random numbers in [0, 1), of one shape, type and device with a tensor."""
    if like.is_meta:
        return torch.empty_like(like)
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    return torch.from_numpy(rng.random(tuple(like.shape), dtype=kind)).to(like.device, like.dtype)


def _by_rows(
    some: Callable[[Tensor, np.random.Generator], Tensor],
) -> Callable[[Tensor, np.random.Generator], Tensor]:
    """Return the function that compresses some rows at a time, to bound its memory."""

    def apply(values: Tensor, rng: np.random.Generator) -> Tensor:
        rows = max(1, BLOCK // values.shape[1])
        if rows >= len(values):
            return some(values, rng)
        made = torch.empty_like(values)
        for part, result in zip(values.split(rows), made.split(rows), strict=True):
            result.copy_(some(part, rng))
        return made

    return apply


TOP_TENTH = "top_k(share=0.1)"
"""The default compressor of methods."""

_OURS = {
    function.__name__: function for function in (top_k, random_k, sign, quantized, no_compression)
}


_TAKES = {"apply": ("values", "rng"), "nbytes": ("d", "itemsize"), "contraction": ("d",)}
"""The functions of a compressor, and what each is called with."""


def check_compressor(compressor: object) -> Compressor:
    """Return what compresses, which text such as ``"top_k(share=0.1)"`` may stand for, or raise.

    Raises
    ------
    TypeError
        If it is neither a Compressor nor text.
    ValueError
        If the text names none of ours, or what it is given is wrong.
    """
    made = (
        evaluate_call("compressor", compressor, _OURS, "top_k(0.1)")
        if isinstance(compressor, str)
        else compressor
    )
    if not isinstance(made, Compressor):
        raise TypeError(
            '`compressor` must be a Compressor such as top_k(0.1), or "top_k(0.1)", got '
            f"{shown(compressor)}"
        )
    for part in _TAKES:
        if not callable(value := getattr(made, part)):
            raise TypeError(
                f"`{part}` of the compressor {made.name!r} must be a function, got {shown(value)}"
            )
        check_takes(f"`{part}` of the compressor {made.name!r}", value, *_TAKES[part])

    def apply(values: Tensor, rng: np.random.Generator) -> Tensor:
        return _applied(made, values, rng)

    return replace(made, apply=apply)


def _applied(compressor: Compressor, values: Tensor, rng: np.random.Generator) -> Tensor:
    """Return compressed values, or raise ``ValueError`` if a compressor does what it may not."""
    version = values._version
    name = f"the compressor {compressor.name!r}"
    must = f"{name} must work on tensors without values (device 'meta'), {PLAYED}"
    with without_numbers(must, NO_BRANCHES), named_errors(f"`apply` of {name}", values):
        made: Any = compressor.apply(values, rng)
    shaped_as(f"`apply` of {name}", "values", made, values)
    if values._version != version:
        raise ValueError(
            f"`apply` of the compressor {compressor.name!r} must not change its values; work on a "
            "copy"
        )
    return made


def check_consensus_step(gamma: object) -> float:
    """Return the consensus step size, in (0, 1], or raise."""
    gamma = check_positive("gamma", gamma)
    if gamma > 1:
        raise ValueError(
            f"`gamma` must be above 0 and at most 1, where nodes take the average, got {gamma:g}"
        )
    return gamma


def message_bytes(compressor: Compressor, values: Tensor) -> int:
    """Return the bytes of one compressed row of (n, d) values.

    Raises
    ------
    ValueError
        If the message would be larger than the row itself.
    """
    d, itemsize = values.shape[1], values.element_size()
    nbytes, delta = compressor.nbytes(d, itemsize), compressor.contraction(d)
    if not isinstance(nbytes, Integral) or nbytes < 0:
        raise ValueError(
            f"`nbytes` of {compressor} must return a whole number of bytes, got {shown(nbytes)}"
        )
    if not isinstance(delta, Real) or not 0 < float(delta) <= 1:
        raise ValueError(
            f"`contraction` of {compressor} must return a number above 0 and at most 1, got "
            f"{shown(delta)}"
        )
    if nbytes > d * itemsize:
        raise ValueError(
            f"`compressor` must make messages smaller, {compressor} makes of {d} numbers, "
            f"{d * itemsize} bytes, a message of {nbytes} bytes; keep a smaller share, take fewer "
            "levels, or use no_compression()"
        )
    return int(nbytes)


def check_messages(compressor: Compressor, values: Tensor) -> None:
    """Raise ``ValueError`` unless messages get smaller and the declared contraction holds.

    The contraction is measured on rows of random numbers and on a row of zeros.
    """
    message_bytes(compressor, values)
    if values.is_meta:
        return
    d = values.shape[1]
    rng = np.random.default_rng(0)
    rows = min(64, max(2, BLOCK // d))
    tried = torch.from_numpy(rng.standard_normal((rows, d))).to(values.device, values.dtype)
    tried[-1] = 0
    made = compressor.apply(tried, rng)
    if not bool(made.isfinite().all()):
        which = "zeros" if bool(made[:-1].isfinite().all()) else "finite numbers"
        raise ValueError(
            f"`apply` of {compressor} must return finite numbers for finite ones, it returns NaN "
            f"or infinity for a row of {which}"
        )
    errors = (made - tried)[:-1].double().square().sum(1) / tried[:-1].double().square().sum(1)
    slack = 0.01 + 4 * float(errors.std(correction=0)) / math.sqrt(rows - 1)
    delta = float(compressor.contraction(d))
    if float(errors.mean()) > 1 - delta + slack:
        raise ValueError(
            f"`contraction` of {compressor} must be a delta with E ||Q(x) - x||^2 <= (1 - delta) "
            f"||x||^2, got {delta:.6g}, but for random x the mean of ||Q(x) - x||^2 / ||x||^2 is "
            f"{float(errors.mean()):.3g}; declare a smaller delta, or scale Q(x) down"
        )


def disagreement(round: Round, values: Tensor) -> Tensor:
    """Return ``sum_j W[i, j] (values_j - values_i)``, (n, d), without a count of messages."""
    mixed = values.clone()
    round.mix(round.weights, mixed, counted=False)
    return mixed.sub_(values)
