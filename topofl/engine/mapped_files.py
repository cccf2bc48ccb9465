"""Models in a file that is mapped into memory, for runs whose models do not fit there."""

import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from threading import Event, Thread

import psutil
import torch
from torch import Tensor

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


def resident_of_files() -> int:
    """Return the resident memory of this process that files back; 0 where it is unknown."""
    return getattr(psutil.Process().memory_info(), "shared", 0)


def is_in_memory(folder: Path) -> bool:
    """Return whether the files of a folder are in memory, as in file systems of type tmpfs."""
    kinds = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    place = folder.resolve()
    nearest = next((kinds[one] for one in (place, *place.parents) if one in kinds), "")
    return nearest in ("tmpfs", "ramfs")


@contextmanager
def called_repeatedly(function: Callable[[], None], interval: float, name: str) -> Iterator[None]:
    """Call a function every `interval` seconds during the block, in a thread of some name."""
    done = Event()

    def call() -> None:
        while not done.wait(interval):
            function()

    thread = Thread(target=call, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
