"""Checks of compressors, sizes of compressed messages, and the consensus step."""

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.calls import evaluate_call
from topofl._support.check import check_positive, check_takes, shown
from topofl.algorithms.contract.checked import (
    NO_BRANCHES,
    WHY_PLAYED,
    check_same_shape,
    explaining_meta_errors,
    named_errors,
)
from topofl.algorithms.contract.round import Models, Round
from topofl.algorithms.exchanges.compressors import (
    BLOCK,
    Compressor,
    no_compression,
    quantized,
    random_k,
    sign,
    top_k,
)

__all__ = [
    "TOP_TENTH",
    "check_compressor",
    "check_consensus_step",
    "check_messages",
    "compressed",
    "disagreement",
    "message_bytes",
]


TOP_TENTH = "top_k(share=0.1)"
"""The default compressor of the methods with compressed messages."""


_BY_NAME = {
    function.__name__: function for function in (top_k, random_k, sign, quantized, no_compression)
}


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
    made = (
        evaluate_call("compressor", compressor, _BY_NAME, "top_k(0.1)")
        if isinstance(compressor, str)
        else compressor
    )
    if not isinstance(made, Compressor):
        raise TypeError(
            '`compressor` must be a Compressor such as top_k(0.1), or "top_k(0.1)", got '
            f"{shown(compressor)}"
        )
    for part, names in _ARGUMENTS.items():
        check_takes(f"`{part}` of the compressor {made.name!r}", getattr(made, part), *names)

    def apply(values: Tensor, rng: np.random.Generator) -> Tensor:
        return _applied(made, values, rng)

    return replace(made, apply=apply)


def _applied(compressor: Compressor, values: Tensor, rng: np.random.Generator) -> Tensor:
    """Return compressed values, or raise ``ValueError`` if the compressor violates its contract."""
    version = values._version
    name = f"the compressor {compressor.name!r}"
    must = f"{name} must work on tensors without values (device 'meta'), {WHY_PLAYED}"
    with explaining_meta_errors(must, NO_BRANCHES), named_errors(f"`apply` of {name}", values):
        made: Any = compressor.apply(values, rng)
    check_same_shape(f"`apply` of {name}", "values", made, values)
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
        raise ValueError(f"`gamma` must be above 0 and at most 1 (full averaging), got {gamma:g}")
    return gamma


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


def disagreement(round: Round, values: Tensor) -> Tensor:
    """Return ``sum_j W[i, j] (values_j - values_i)``, (n, d), without counting messages."""
    mixed = values.clone()
    round.mix(round.weights, mixed, counted=False)
    return mixed.sub_(values)
