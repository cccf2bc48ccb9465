"""Compressors of messages: sparsification, signs and quantization."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_positive
from topofl._support.seeding import random_keys

__all__ = ["BLOCK", "Compressor", "no_compression", "quantized", "random_k", "sign", "top_k"]

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
        places = x.abs().topk(_n_kept(share, x.shape[1]), dim=1, sorted=False).indices
        return torch.zeros_like(x).scatter_(1, places, x.gather(1, places))

    def nbytes(d: int, itemsize: int) -> int:
        k = _n_kept(share, d)
        return k * itemsize + _whole_bytes(min(k * (d - 1).bit_length(), d))

    return Compressor(
        "top_k", _by_rows(some), nbytes, lambda d: _n_kept(share, d) / d, False, {"share": share}
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
        k = _n_kept(share, x.shape[1])
        if x.is_meta:
            places = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
        else:
            places = torch.from_numpy(
                _random_indices(rng.integers(2**63, size=len(x)), x.shape[1], k)
            ).to(x.device)
        return torch.zeros_like(x).scatter_(1, places, x.gather(1, places))

    def nbytes(d: int, itemsize: int) -> int:
        return _n_kept(share, d) * itemsize + 8

    return Compressor(
        "random_k", _by_rows(some), nbytes, lambda d: _n_kept(share, d) / d, True, {"share": share}
    )


def _random_indices(seeds: np.ndarray, d: int, k: int) -> np.ndarray:
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
        return itemsize + _whole_bytes(d)

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
        return itemsize + _whole_bytes(d * (2 * levels).bit_length())

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


def _n_kept(share: float, d: int) -> int:
    """Return how many of d numbers are kept."""
    return max(1, math.ceil(round(share * d, 9)))  # a tenth of 30 is 3


def _whole_bytes(bits: int) -> int:
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
