"""Rows of models in checkpoints of several ranks.

Each rank writes the rows of its nodes, in parallel, and any number of processes can read them, each
the rows that it needs.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._support.files import sync_folder
from topofl.engine.ranks import Ranks

__all__ = [
    "METADATA",
    "SavedRows",
    "check_shared",
    "checksum_of_file",
    "name_of",
    "on_all_ranks",
    "write_rows",
]

METADATA = ".metadata"
"""File in which torch.distributed.checkpoint describes the others; rank 0 writes it."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SavedRows:
    """The rows of a tensor in a checkpoint of several ranks.

    Parameters
    ----------
    name
        Name of the tensor.
    owner
        (n,) rank that has written the row of each node.
    read
        Returns the rows that a rank has written, in ascending order of its nodes, given
        ``name_of(tensor, rank)``.
    """

    name: str
    owner: np.ndarray
    read: Callable[[str], Tensor]

    def copy_to(self, own: Tensor, nodes: np.ndarray) -> None:
        """Copy the rows of nodes (k,) to a tensor (k, ...).

        Raises
        ------
        ValueError
            If the rows have another shape or dtype.
        """
        for rows, saved in self._parts(nodes):
            if (own.shape[1:], own.dtype) != (saved.shape[1:], saved.dtype):
                raise ValueError(
                    f"rows of {tuple(own.shape[1:])} numbers of {own.dtype} are needed, got "
                    f"{tuple(saved.shape[1:])} of {saved.dtype}"
                )
            own[rows.to(own.device)] = saved.to(own.device)

    def of(self, nodes: np.ndarray) -> Tensor:
        """Return the rows of nodes (k,) as a tensor (k, ...)."""
        found = None
        for rows, saved in self._parts(nodes):
            found = saved.new_empty(len(nodes), *saved.shape[1:]) if found is None else found
            found[rows] = saved
        assert found is not None, "each rank has nodes"
        return found

    def _parts(self, nodes: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield for each rank that has written rows of nodes, their positions and the rows."""
        owner = self.owner[nodes]
        for rank in np.unique(owner).tolist():
            written, saved = np.flatnonzero(self.owner == rank), self.read(name_of(self.name, rank))
            if len(saved) != len(written):
                raise ValueError(f"{len(written)} rows of rank {rank} are needed, got {len(saved)}")
            rows = np.flatnonzero(owner == rank)
            places = np.searchsorted(written, nodes[rows])
            yield torch.from_numpy(rows), saved[torch.from_numpy(places)]


def on_all_ranks(ranks: Ranks, function: Callable[[], T]) -> T:
    """Call a function on all ranks, and return its result on this one.

    Raises
    ------
    OSError
        On all ranks, if the function raises one on some rank.
    """
    message, found = "", None
    try:
        found = function()
    except OSError as error:
        message = f"rank {ranks.rank}: {error}"
    if failed := [text for text in ranks.objects(message) if text]:
        raise OSError("; ".join(failed))
    return found  # type: ignore[return-value]


def check_shared(folder: Path, ranks: Ranks) -> None:
    """Raise unless all ranks can write to a folder, and see there what rank 0 has written.

    Raises
    ------
    OSError
        On all ranks, if one of them cannot.
    """
    mark = folder / ranks.of_first(f".topofl-{os.urandom(8).hex()}")

    def look() -> None:
        if not mark.is_file():
            raise FileNotFoundError(f"the files of rank 0 are not in its {folder}")
        own = mark.with_name(f"{mark.name}-{ranks.rank}")
        own.touch()
        own.unlink()

    try:
        on_all_ranks(ranks, lambda: mark.touch() if ranks.is_first else None)
        on_all_ranks(ranks, look)
    except OSError as error:
        raise OSError(
            "`saving` must be one folder that all processes can write to, which fails on "
            f"{error}; use a folder of a shared file system"
        ) from error
    finally:
        if ranks.is_first:
            mark.unlink(missing_ok=True)


def write_rows(place: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, str]:
    """Write the own rows of tensors into a new folder, and return the checksums of its files.

    The folder appears under its name only when it is complete and synced to disk. All ranks call
    this function.

    Parameters
    ----------
    place
        Path of the folder.
    tensors
        By name, the rows of the nodes of this rank, in ascending order of nodes.

    Raises
    ------
    OSError
        On all ranks, if one of them cannot write; the folder is removed.
    """
    from topofl.engine.store.parallel import write_tensors

    partial = place.with_name(f"{place.name}.partial")
    first = ranks.is_first
    try:
        on_all_ranks(ranks, lambda: _make_empty(partial) if first else None)
        named = {name_of(name, ranks.rank): tensor for name, tensor in tensors.items()}
        write_tensors(partial, named, ranks)
        found = ranks.objects(on_all_ranks(ranks, lambda: _own_checksums(partial, ranks.rank)))
        on_all_ranks(ranks, lambda: _rename(partial, place) if first else None)
    except OSError:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return {name: checksum for part in found for name, checksum in part.items()}


def name_of(name: str, rank: int) -> str:
    """Return the name under which a rank writes its rows of a tensor."""
    return f"{name}/{rank}"


def _make_empty(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir()


def _own_checksums(folder: Path, rank: int) -> dict[str, str]:
    """Return the checksums of the files that a rank has written, by name."""
    own = [path for path in folder.iterdir() if path.name.startswith(f"__{rank}_")]
    if not own:
        raise FileNotFoundError(f"{folder} has no file of this rank")
    own += [folder / METADATA] if rank == 0 else []
    return {path.name: checksum_of_file(path) for path in own}


def checksum_of_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _rename(partial: Path, place: Path) -> None:
    place.with_suffix(".json").unlink(missing_ok=True)  # of a damaged checkpoint of this round
    with suppress(FileNotFoundError):
        shutil.rmtree(place)
    sync_folder(partial)
    os.rename(partial, place)
    sync_folder(place.parent)
