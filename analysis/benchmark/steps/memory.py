"""Peak memory of a run, measured in a separate process, and its lower bound."""

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from topofl import toolkit

from ..cases import Case, clients_of, on_few_nodes
from .engine import engine_steps

STATUS = Path("/proc/self/status")


def lower_bound(case: Case, nodes: int, stored: int = 1) -> int:
    """Return the bytes of parameters, optimizer state, data, and activations of `nodes` nodes.

    Data take `stored` bytes per number: 1 for pixels, as from :func:`clients_of`, 4 for float32.
    Activations are what autograd saves for the backward pass: the gathered minibatch and the
    outputs that it needs.
    """
    parameters = 4 * sum(p.numel() for p in case.network.build().parameters())
    held = 2 if case.momentum else 1
    data = case.network.examples * (stored * math.prod(case.network.shape) + 8)  # int64 labels
    return case.n * parameters * held + nodes * saved_bytes(case) + data


def saved_bytes(case: Case) -> int:
    """Return the bytes that a node's forward pass saves for backward, without the parameters."""
    module = case.network.build()
    known = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, Tensor] = {}  # by address; held, so that no address is reused

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    x, y = (
        torch.zeros(case.batch_size, *case.network.shape),
        torch.zeros(case.batch_size, dtype=torch.int64),
    )
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x),
        torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"),
    ):
        functional.cross_entropy(module(x), y)
    return sum(x.untyped_storage().nbytes() for place, x in kept.items() if place not in known)


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device, or all of its memory if free bytes are unknown."""
    free = toolkit.free_memory(device)
    return toolkit.total_memory() or 1 << 62 if free is None else free


def peak_bytes(case: Case, executor: str, device: torch.device) -> int:
    """Return the peak bytes of a short run with its data, without those of torch itself.

    Raises
    ------
    OSError
        If the system does not report it.
    """
    with ProcessPoolExecutor(
        1, get_context("spawn"), torch.set_num_threads, (torch.get_num_threads(),)
    ) as pool:
        return pool.submit(_peak_here, case, executor, device).result()


def _peak_here(case: Case, executor: str, device: torch.device) -> int:
    small = on_few_nodes(case, 20, same_graph=True)
    engine_steps(small, clients_of(small), 1, device, executor)  # libraries load and initialize
    toolkit.return_freed_memory()  # memory that the run could reuse would not be counted
    before = 0 if device.type == "cuda" else process_bytes("VmRSS")
    clients = clients_of(case)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        engine_steps(case, clients, 1, device, executor)
        return torch.cuda.max_memory_allocated(device)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak: data were made before the run
    engine_steps(case, clients, 1, device, executor)
    return process_bytes("VmHWM") - before


def process_bytes(name: str) -> int:
    """Return the bytes that Linux reports for this process, for example ``VmRSS``."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
