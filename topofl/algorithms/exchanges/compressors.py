"""Compressors of messages: sparsification, signs and quantization."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl._support.seeding import random_keys

__all__ = ["BLOCK", "Compressor", "no_compression", "quantized", "random_k", "sign", "top_k"]

BLOCK = 2**20
"""Numbers compressed at a time, 4 MB in float32, but at least one row."""

LEVELS_LIMIT = 2**23
"""Largest number of quantization levels: the number of float32 values between 1 and 2."""


@dataclass(frozen=True)
class Compressor:
    """A compressor of messages: a function Q of d numbers whose results take fewer bytes.

    Parameters
    ----------
    name
        Its name in settings and messages.
    apply
        ``apply(values, rng) -> Q(values)``: compresses each row of an (n, d) tensor on any device
        and returns a new tensor. `rng` is a numpy generator such as ``round.rng("compression")``;
        deterministic compressors ignore it.
    nbytes
        ``nbytes(d, itemsize)``: bytes of one compressed row of d numbers of `itemsize` bytes.
    contraction
        ``contraction(d)``: the largest known delta in (0, 1] with ``E ||Q(x) - x||^2 <= (1 - delta)
        ||x||^2`` for all x of d numbers.
    unbiased
        Whether ``E Q(x) = c x`` with the same c for all x.
    settings
        Its arguments, saved with results.

    Examples
    --------
    >>> [one.nbytes(100_000, 4) for one in (top_k(0.01), sign(), quantized(levels=7))]
    [6125, 12504, 50004]

    A custom compressor that rounds to 8 bits of precision:

    >>> half = Compressor("bfloat16", lambda values, rng: values.bfloat16().to(values.dtype),
    ...                   lambda d, itemsize: 2 * d, lambda d: 1 - 2**-16, unbiased=False)
    >>> print(half, top_k(0.01), quantized(levels=7))
    bfloat16() top_k(share=0.01) quantized(levels=7)

    A random compressor draws from `rng` and moves the result to the device of the values:

    >>> def halves(values, rng):
    ...     kept = torch.from_numpy(rng.random(tuple(values.shape)) < 0.5).to(values.device)
    ...     return values * kept
    >>> random = Compressor("half of all", halves, lambda d, itemsize: d * itemsize // 2 + 8,
    ...                     lambda d: 0.4, unbiased=True)
    """

    name: str
    apply: Callable[[Tensor, np.random.Generator], Tensor]
    nbytes: Callable[[int, int], int]
    contraction: Callable[[int], float]
    unbiased: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.settings.items())})"


@public
def top_k(share: float) -> Compressor:
    """Return the compressor that keeps the ``k = ceil(share * d)`` numbers of largest magnitude.

    A message holds k numbers and their positions: indices of ``ceil(log2 d)`` bits, or one bit for
    each of the d numbers, whichever is shorter. The contraction is ``k / d``, attained if all
    numbers have the same magnitude.

    Parameters
    ----------
    share
        Above 0 and below 1.

    Raises
    ------
    ValueError, TypeError
        If `share` is out of its range or not a number.

    References
    ----------
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018).

    Examples
    --------
    >>> top_k(0.5).apply(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), np.random.default_rng(0))
    tensor([[ 0., -3.,  2.,  0.]])
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


@public
def random_k(share: float) -> Compressor:
    """Return the compressor that keeps ``k = ceil(share * d)`` random numbers of each row.

    A message holds k numbers and a seed of 8 bytes, from which receivers draw the same positions.
    The contraction is ``k / d``; numbers are not scaled up by ``d / k``, because Q would not
    contract then.

    Parameters
    ----------
    share
        Above 0 and below 1.

    Raises
    ------
    ValueError, TypeError
        If `share` is out of its range or not a number.

    References
    ----------
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018).

    Examples
    --------
    >>> kept = random_k(0.25).apply(torch.ones(3, 8), np.random.default_rng(0))
    >>> kept.sum(1)
    tensor([2., 2., 2.])
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
    """Return k random indices below d for each seed, (n, k)."""
    return np.argpartition(random_keys(0, seeds, np.arange(d)), k - 1, axis=1)[:, :k]


@public
def sign() -> Compressor:
    """Return the compressor of signs times the mean magnitude, ``Q(x) = ||x||_1 / d * sign(x)``.

    The sign of 0 is 1. A message holds d bits and one number. The contraction is ``||x||_1^2 / (d
    ||x||^2)``: near 1 if all numbers have similar magnitudes, and at least ``1 / d``, attained if
    all but one are 0.

    References
    ----------
    Karimireddy, Rebjock, Stich and Jaggi, "Error feedback fixes SignSGD and other gradient
    compression schemes" (2019).

    Examples
    --------
    >>> sign().apply(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), np.random.default_rng(0))
    tensor([[ 1.5000, -1.5000,  1.5000,  1.5000]])
    """

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        del rng
        scale = x.abs().mean(1, keepdim=True)
        return torch.where(x >= 0, scale, -scale)

    def nbytes(d: int, itemsize: int) -> int:
        return itemsize + _whole_bytes(d)

    return Compressor("sign", _by_rows(some), nbytes, lambda d: 1 / d, False)


@public
def quantized(levels: int) -> Compressor:
    """Return the compressor of random quantization to s levels of magnitude (QSGD).

    ::

        Q(x)_k = sign(x_k) * ||x|| / (s tau) * floor(s |x_k| / ||x|| + u_k),   u_k uniform in [0, 1)
        tau    = 1 + min(d / s^2, sqrt(d) / s)

    Without tau, ``E Q(x) = x``; with it, Q contracts with ``delta = 1 / tau``. A message holds
    ``ceil(log2(2 s + 1))`` bits per number, since ``2 s + 1`` values are possible, and the norm.
    (The variable-length code of the paper is not used.)

    Parameters
    ----------
    levels
        s, at least 1: with 1 level, numbers become -1, 0 or 1 times the scale. With b bits per
        number, s is ``2**(b - 1) - 1``.

    Raises
    ------
    ValueError, TypeError
        If `levels` is below 1, larger than float32 can distinguish, or not an integer.

    References
    ----------
    Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via gradient
    quantization and encoding" (2017); scaled by tau as in Koloskova, Stich and Jaggi (2019), see
    :func:`topofl.algorithms.choco_sgd`.

    Examples
    --------
    >>> made = quantized(levels=1).apply(torch.randn(1, 100), np.random.default_rng(0))
    >>> bool(len(made.abs().unique()) <= 2)
    True
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


@public
def no_compression() -> Compressor:
    """Return the identity, as a compressor that sends vectors uncompressed.

    Examples
    --------
    >>> no_compression().nbytes(100, 4)
    400
    """
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
    """Return how many of d numbers are sent."""
    return max(1, math.ceil(round(share * d, 9)))  # a tenth of 30 is 3


def _whole_bytes(bits: int) -> int:
    """Return the number of bytes that hold some bits."""
    return -(-bits // 8)


def _uniform(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Return uniform random numbers in [0, 1), with the shape, dtype and device of a tensor."""
    if like.is_meta:
        return torch.empty_like(like)
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    return torch.from_numpy(rng.random(tuple(like.shape), dtype=kind)).to(like.device, like.dtype)


def _by_rows(
    some: Callable[[Tensor, np.random.Generator], Tensor],
) -> Callable[[Tensor, np.random.Generator], Tensor]:
    """Return the function that compresses a block of rows at a time, to bound its memory."""

    def apply(values: Tensor, rng: np.random.Generator) -> Tensor:
        rows = max(1, BLOCK // values.shape[1])
        if rows >= len(values):
            return some(values, rng)
        made = torch.empty_like(values)
        for part, result in zip(values.split(rows), made.split(rows), strict=True):
            result.copy_(some(part, rng))
        return made

    return apply
