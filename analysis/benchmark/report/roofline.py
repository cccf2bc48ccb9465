"""Roofline: attainable step times from arithmetic, memory traffic and measured rates."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from topofl import NotApplicable, Table
from topofl.toolkit import has_fast_bf16

from ..cases import Case
from ..steps.memory import saved_bytes
from ..steps.stopwatch import seconds_of
from .measured import Measured, first_reason

COLUMNS = (
    "step",
    "GFLOP",
    "MB moved",
    "limited by",
    "attainable ms",
    "floor ms",
    "ours ms",
    "share reached",
)


@dataclass(frozen=True)
class Rates:
    """Measured rates of a machine.

    Parameters
    ----------
    fp32, bf16
        FLOP/s of a large square matrix product.
    copy
        Bytes per second that a large copy reads and writes.
    """

    fp32: float
    bf16: float
    copy: float

    def __str__(self) -> str:
        products = f"{self.fp32 / 1e9:,.3g} GFLOP/s in fp32 and {self.bf16 / 1e9:,.3g} in bf16"
        return f"matrix products {products}, copies {self.copy / 1e9:,.3g} GB/s"


def measured_rates(device: torch.device, size: int = 2048, megabytes: int = 256) -> Rates:
    """Return the rates of this machine, medians of five calls.

    Emulated bfloat16 is measured with matrices a quarter as wide.
    """

    def product(dtype: torch.dtype, size: int = size) -> float:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        return 2 * size**3 / _median(lambda: torch.mm(a, b, out=out), device)

    source = torch.ones(megabytes << 18, device=device)
    target = torch.zeros_like(source)
    copied = 2 * source.nbytes / _median(lambda: target.copy_(source), device)
    low = product(torch.bfloat16, size if has_fast_bf16(device) else size // 4)
    return Rates(product(torch.float32), low, copied)


def _median(function: Callable[[], object], device: torch.device) -> float:
    function()
    return statistics.median(seconds_of(function, device) for _ in range(5))


def flops(case: Case) -> int:
    """Return the FLOPs of all nodes' forward and backward passes: products and convolutions."""
    module = case.network.build()
    x, y = (
        torch.zeros(case.batch_size, *case.network.shape),
        torch.zeros(case.batch_size, dtype=torch.int64),
    )
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(module(x), y).backward()
    return case.n * counter.get_total_flops()


def moved_bytes(case: Case) -> int:
    """Return the minimum memory traffic of a step, in bytes, if its parts share no cache.

    Per node: the minibatch is read and written by the gather, activations are written and read,
    parameters are read in the forward and backward pass, gradients are written and read, parameters
    (and momentum) are read and written by the update, and parameters by the mixing.
    """
    parameters = 4 * sum(p.numel() for p in case.network.build().parameters())
    gathered = 4 * case.batch_size * math.prod(case.network.shape)
    passes = 2 + 2 + 2 + 2 + (2 if case.momentum else 0)
    return case.n * (2 * gathered + 2 * saved_bytes(case) + passes * parameters)


def roofline(found: Sequence[Measured], rates: Rates) -> Table:
    """Return the attainable step time of each case, and the share that the engine reaches."""
    return Table(
        COLUMNS, tuple(_row(measured, rates) for measured in found), title=f"Measured here: {rates}"
    )


def _row(measured: Measured, rates: Rates) -> tuple:
    case = measured.case
    arithmetic = flops(case) / (rates.bf16 if case.precision == "bf16" else rates.fp32)
    traffic = moved_bytes(case) / rates.copy
    limit, bound = max((arithmetic, "arithmetic"), (traffic, "bytes"))
    steps = [measured.step(way) for way in ("auto", "batched", "looped")]
    best = min((step for step in steps if isinstance(step, float)), default=None)
    ours = first_reason(*steps) or NotApplicable("not requested") if best is None else best
    shown = [
        cell if isinstance(cell, NotApplicable) else 1e3 * cell
        for cell in (measured.floor("auto"), ours)
    ]
    share = ours if isinstance(ours, NotApplicable) else limit / ours
    return (
        case.label,
        flops(case) / 1e9,
        moved_bytes(case) / 1e6,
        bound,
        1e3 * limit,
        *shown,
        share,
    )
