"""Models in a file that is mapped into memory, for runs whose models do not fit there."""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from threading import Event, Thread

import torch
from torch import Tensor

from topofl.engine.memory.system import resident_of_files

__all__ = ["LARGEST", "MappedFiles", "by_copies", "mapped_files"]

KEPT = 2**30
"""Bytes of files that the process holds in memory before it releases them."""

COPIED = 2**24
"""Numbers that are copied from a file at a time, to be mixed."""

LARGEST = KEPT + 2**29
"""Bytes of memory that models in a file take: what is kept and what comes until it is released."""

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
    """

    folder: Path
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
            raise OSError(
                error.errno,
                f"`compute.scratch` must have space for the models, {nbytes} bytes: "
                f"{error.strerror}; free some, or use a folder on another disk",
                str(self.folder),
            ) from error
        self.maps.append(mapped)
        return torch.frombuffer(mapped, dtype=dtype).view(*shape)

    def release(self) -> None:
        """Remove the files from the memory of this process; the system may keep them cached."""
        for mapped in self.maps:
            mapped.madvise(mmap.MADV_DONTNEED)


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
    files, over = MappedFiles(folder), Event()
    most = (resident_of_files() or 0) + KEPT

    def watch() -> None:
        while not over.wait(LOOK):
            if (resident_of_files() or 0) > most:
                files.release()

    thread = Thread(target=watch, name="topofl-scratch", daemon=True)
    thread.start()
    try:
        yield files
    finally:
        over.set()
        thread.join()
        files.release()


def by_copies(mix: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    """Return a function that mixes copies of blocks of columns, and writes them back.

    Rows of a file are far apart in memory: a block of few columns would read all its pages, and the
    next block again.
    """

    def mix_copies(values: Tensor) -> None:
        for block in values.split(max(1, COPIED // max(1, len(values))), dim=1):
            copied = block.contiguous()
            mix(copied)
            block.copy_(copied)

    return mix_copies
