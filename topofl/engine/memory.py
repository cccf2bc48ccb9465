"""Memory that a call allocates, tensor by tensor, and models in files instead of memory."""

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from topofl._support.machine import called_repeatedly, resident_of_files
from topofl.engine.gradients import Order, stacked_forward
from topofl.engine.population import trained_parameters
from topofl.tasks import Function, cross_entropy

_READING = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)


class AllocationTrace(TorchDispatchMode):
    """Context that records the bytes of live tensors allocated within it.

    With `shapes_only`, it refuses to read numbers, which meta tensors do not have.

    Attributes
    ----------
    timeline
        Live bytes after each new tensor.
    """

    def __init__(self, shapes_only: bool = False) -> None:
        super().__init__()
        self.shapes_only = shapes_only
        self.alive = 0
        self.timeline: list[int] = []
        self._sizes: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler, which takes two seconds

    @property
    def peak(self) -> int:
        """The largest number of live bytes."""
        return max(self.timeline, default=0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record the storages that it allocates."""
        del types
        if self.shapes_only and func in _READING:
            raise RuntimeError("meta tensors have no numbers to read")
        kwargs = kwargs or {}
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **kwargs)
        for storage in _storages(result):
            if storage._cdata not in given | self._sizes.keys():
                self._sizes[storage._cdata] = storage.nbytes()
                self.alive += storage.nbytes()
                self.timeline.append(self.alive)
                weakref.finalize(storage, self._forget, storage._cdata).atexit = False
        return result

    def _forget(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Yield the memory of the tensors in nested values."""
    return (x.untyped_storage() for x in tree_leaves(values) if isinstance(x, Tensor))


def bytes_of_forward(
    model: nn.Module,
    order: Order,
    sample: Tensor,
    loss: Function = cross_entropy,
    targets: Tensor | None = None,
) -> Callable[[int], int]:
    """Return the peak bytes of evaluating one model as a function of the number of examples.

    The examples themselves are not counted. Targets are like `targets`; None: class labels.
    """
    forward = stacked_forward(model, order)
    parameters = [p.detach()[None] for p in trained_parameters(model)]

    def prepare(inputs: Tensor, expected: Tensor) -> Callable[[], object]:
        return torch.no_grad()(lambda: loss(forward(parameters, True)(inputs)[0], expected))

    return extrapolated(prepare, sample, targets)


def extrapolated(
    prepare: Callable[[Tensor, Tensor], Callable[[], object]],
    sample: Tensor,
    targets: Tensor | None,
) -> Callable[[int], int]:
    """Return the peak bytes of a call as a function of the number of examples.

    They are extrapolated from 2 and 3 examples. `prepare` gets inputs (b, ...) like `sample` and
    targets (b, ...) like `targets`, or class labels, and returns the call.
    """
    if targets is None:
        targets = torch.zeros(1, dtype=torch.long, device=sample.device)

    def timeline(examples: int) -> Sequence[int]:
        inputs, expected = (
            like[:1].expand(examples, *like.shape[1:]).contiguous() for like in (sample, targets)
        )
        call = prepare(inputs, expected)
        with AllocationTrace() as allocations:
            call()
        return allocations.timeline

    two, three = timeline(2), timeline(3)

    def peak_bytes(width: int) -> int:
        if width == 1:  # kernels may treat a single example differently
            return max(timeline(1))
        if len(two) != len(three):
            return -(-max(three) * width // 3)
        return max(a + (b - a) * (width - 2) for a, b in zip(two, three, strict=True))

    return peak_bytes


KEPT = 2**29
"""Bytes of files that the process holds in memory before it releases them."""

COPIED = 2**27
"""Bytes that are copied from a file at a time."""

ROWS = 2**11
"""Rows of which parts are read before the file may be released: 256 MiB of the file at most.

Linux maps 64 KiB around a page that is read.
"""

LARGEST = 2**31
"""Bytes of memory that models in a file take at most: parts of the file, and copies of them.

Measured with 10,000 GN-LeNets by analysis/larger_than_memory.py.
"""

LOOK = 0.02
"""Seconds between two looks at how much of the files is in memory."""


@dataclass(frozen=True, eq=False)
class MappedFiles:
    """Files in a folder that are mapped into memory.

    The system reads parts of them when they are used, writes changed parts, and removes them from
    memory when it needs space. The files have no name, and end with their tensors or the process.

    Parameters
    ----------
    folder
        Folder on the disk that holds the files.
    most
        Bytes of files, also of other ones such as libraries, that the process keeps in memory.
    """

    folder: Path
    most: int
    maps: list[mmap.mmap] = field(default_factory=list, init=False)

    def new(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor of zeros in a new file.

        Raises
        ------
        OSError
            If the folder cannot be written to, or its disk has too little space.
        """
        nbytes = prod(shape) * dtype.itemsize
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                os.posix_fallocate(file.fileno(), 0, nbytes)  # a full disk would end the process
                mapped = mmap.mmap(file.fileno(), nbytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                need = f"have space for the models, {nbytes} bytes"
            else:
                need = "be a folder in which files can be created"
            text = f"`compute.scratch` must {need}: {error.strerror}; use a folder on another disk"
            raise OSError(error.errno, text, str(self.folder)) from error
        self.maps.append(mapped)
        return torch.frombuffer(mapped, dtype=dtype).view(*shape)

    def release(self) -> None:
        """Remove the files from the memory of this process; the system may keep them cached."""
        for mapped in self.maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def release_much(self) -> None:
        """Release the files if much of them is in memory."""
        if resident_of_files() > self.most:
            self.release()

    def blocks(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield blocks of columns of values (n, k) in a file, and copies of them in memory.

        Rows are far apart in a file: each block of few columns would read pages of all rows again.
        """
        row = max(1, len(values) * values.element_size())
        for block in values.split(max(1, COPIED // row), dim=1):
            copied = block.new_empty(block.shape)
            for some, part in zip(copied.split(ROWS), block.split(ROWS), strict=True):
                self.release_much()
                some.copy_(part)
            yield block, copied

    def by_copies(self, mix: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
        """Return a function that mixes copies of blocks of columns, and writes them back.

        Several threads would need a copy each, and read several parts of all rows at once.
        """

        def mix_copies(values: Tensor) -> None:
            for block, copied in self.blocks(values):
                mix(copied)
                block.copy_(copied)

        return mix_copies


@contextmanager
def mapped_files(folder: Path | None) -> Iterator[MappedFiles | None]:
    """Yield files in a folder, and release them whenever much of them is in memory.

    Parameters
    ----------
    folder
        The folder; None: yield None.
    """
    if folder is None:
        yield None
        return
    files = MappedFiles(folder, resident_of_files() + KEPT)
    try:
        with called_repeatedly(files.release_much, LOOK, "topofl-scratch"):
            yield files
    finally:
        files.release()
