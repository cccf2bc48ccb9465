"""Compressors of messages, their checks, sizes of messages, and the consensus step."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.calls import evaluate_call
from topofl._support.check import check_int, check_kind, check_positive, check_takes, shown
from topofl._support.public import public
from topofl._support.seeding import random_keys
from topofl.algorithms.contract.phase import (
    NO_BRANCHES,
    WHY_PLAYED,
    Phase,
    check_same_shape,
    explaining_meta_errors,
    named_errors,
)
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import zeros

__all__ = ["Compressor", "no_compression", "quantized", "random_k", "sign", "top_k"]

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

    def places(x: Tensor, k: int, rng: np.random.Generator) -> Tensor:
        return x.abs().topk(k, dim=1, sorted=False).indices

    def nbytes(k: int, d: int) -> int:
        return _whole_bytes(min(k * (d - 1).bit_length(), d))

    return _sparse("top_k", share, places, nbytes, unbiased=False)


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

    def places(x: Tensor, k: int, rng: np.random.Generator) -> Tensor:
        if x.is_meta:
            return torch.empty(len(x), k, dtype=torch.int64, device=x.device)
        keys = random_keys(0, rng.integers(2**63, size=len(x)), np.arange(x.shape[1]))
        return torch.from_numpy(np.argpartition(keys, k - 1, axis=1)[:, :k]).to(x.device)

    return _sparse("random_k", share, places, lambda k, d: 8, unbiased=True)


def _sparse(
    name: str,
    share: float,
    places: Callable[[Tensor, int, np.random.Generator], Tensor],
    nbytes_of_places: Callable[[int, int], int],
    unbiased: bool,
) -> Compressor:
    """Return the compressor that keeps the numbers at ``places(x, k, rng)``, (n, k)."""
    share = check_positive("share", share)
    if share >= 1:
        raise ValueError(
            f"`share` must be above 0 and below 1, got {share:g}; to send everything use "
            "no_compression()"
        )

    def kept(d: int) -> int:
        return max(1, math.ceil(round(share * d, 9)))  # a tenth of 30 is 3

    def some(x: Tensor, rng: np.random.Generator) -> Tensor:
        found = places(x, kept(x.shape[1]), rng)
        return torch.zeros_like(x).scatter_(1, found, x.gather(1, found))

    def nbytes(d: int, itemsize: int) -> int:
        return kept(d) * itemsize + nbytes_of_places(kept(d), d)

    settings = {"share": share}
    return Compressor(name, _by_rows(some), nbytes, lambda d: kept(d) / d, unbiased, settings)


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
        drawn = torch.empty_like(x)
        if not x.is_meta:
            kind = np.float64 if x.dtype == torch.float64 else np.float32
            drawn.copy_(torch.from_numpy(rng.random(tuple(x.shape), dtype=kind)))
        rounded = shares.mul_(levels).add_(drawn).floor_().clamp_(max=levels)
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


def _whole_bytes(bits: int) -> int:
    """Return the number of bytes that hold some bits."""
    return -(-bits // 8)


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


TOP_TENTH = "top_k(share=0.1)"
"""The default compressor of the methods with compressed messages."""


_ARGUMENTS = {"apply": ("values", "rng"), "nbytes": ("d", "itemsize"), "contraction": ("d",)}
"""The functions of a compressor, and their arguments."""


def check_compressor(compressor: object) -> Compressor:
    """Return a compressor, given as a Compressor or text like ``"top_k(share=0.1)"``, or raise.

    Raises
    ------
    TypeError
        If it is neither a Compressor nor text.
    ValueError
        If the text does not name a compressor of the library, or an argument is wrong.

    Examples
    --------
    >>> print(check_compressor("top_k(share=0.1)"))
    top_k(share=0.1)
    """
    made = compressor
    if isinstance(compressor, str):
        functions = (top_k, random_k, sign, quantized, no_compression)
        by_name = {function.__name__: function for function in functions}
        made = evaluate_call("compressor", compressor, by_name, "top_k(0.1)")
    made = check_kind(
        "compressor", made, Compressor, 'a Compressor such as top_k(0.1), or "top_k(0.1)"'
    )
    own, name = made.apply, f"the compressor {made.name!r}"
    for part, names in _ARGUMENTS.items():
        check_takes(f"`{part}` of {name}", getattr(made, part), *names)
    must = f"{name} must work on tensors without values (device 'meta'), {WHY_PLAYED}"

    def checked(values: Tensor, rng: np.random.Generator) -> Tensor:
        version = values._version
        with explaining_meta_errors(must, NO_BRANCHES), named_errors(f"`apply` of {name}", values):
            result = own(values, rng)
        check_same_shape(f"`apply` of {name}", "values", result, values)
        if values._version != version:
            raise ValueError(f"`apply` of {name} must not change its values; work on a copy")
        return result

    return replace(made, apply=checked)


def message_bytes(compressor: Compressor, values: Tensor) -> int:
    """Return the size of a compressed row of (n, d) values, in bytes.

    Raises
    ------
    ValueError
        If a compressed row would be larger than the row itself, or if the compressor returns a
        size or a contraction that is not a number in its range.

    Examples
    --------
    >>> message_bytes(check_compressor("top_k(share=0.1)"), torch.zeros(1, 100))
    49
    """
    d = values.shape[1]
    itemsize = values.element_size()
    nbytes = compressor.nbytes(d, itemsize)
    delta = compressor.contraction(d)
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
            f"`compressor` must make messages smaller, got {compressor}, which compresses {d} "
            f"numbers of {d * itemsize} bytes to {nbytes} bytes; use a smaller share, fewer "
            "levels, or no_compression()"
        )
    return int(nbytes)


def check_messages(compressor: Compressor, values: Tensor) -> None:
    """Raise ``ValueError`` unless messages get smaller and the declared contraction holds.

    The contraction is measured on rows of random numbers; a row of zeros must give finite numbers.
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
            f"`apply` of {compressor} must return finite numbers for finite ones, but it returns "
            f"NaN or infinity for a row of {which}"
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


def compressed(
    compressor: Compressor, models: Models, values: Tensor, rng: np.random.Generator
) -> Tensor:
    """Return compressed values (k, d) of ``models.nodes``, with the draws of a run of all nodes.

    A compressor draws for all rows at once. Where a process holds some of them, it draws for the
    others too, whose rows are 0 here; compressors that draw nothing get the own rows only.
    """
    if len(values) == models.n:
        return compressor.apply(values, rng)
    before = rng.bit_generator.state
    made = compressor.apply(values, rng)
    if repr(rng.bit_generator.state) == repr(before):
        return made
    rng.bit_generator.state = before
    rows = torch.from_numpy(models.nodes).to(values.device)
    everyone = values.new_zeros(models.n, values.shape[1]).index_copy_(0, rows, values)
    return compressor.apply(everyone, rng)[rows]


def compressed_exchange(
    compressor: Compressor,
    gamma: float | str,
    names: Sequence[str],
    apply: Callable[[Models, State, Round], State],
) -> Phase:
    """Return the exchange of compressed messages, with tensors `names`, (n, d), initially 0."""

    def init(models: Models) -> State:
        check_messages(compressor, models.flat)
        return zeros(*names)(models)

    return Phase(init, apply, {"compressor": str(compressor), "gamma": gamma}, rowwise=True)


def disagreement(round: Round, values: Tensor) -> Tensor:
    """Return ``sum_j W[i, j] (values_j - values_i)``, (n, d), without counting messages."""
    mixed = values.clone()
    round.mix(round.weights, mixed, counted=False)
    return mixed.sub_(values)
