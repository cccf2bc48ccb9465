"""Tensors that ranks write in parallel and that each process reads alone, by torch's checkpoints.

Only what needs torch.distributed.checkpoint is here, since importing it takes most of a second.
"""

import io
import os
import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_saver import save

from topofl._support.files import raising_os_errors
from topofl.engine.checkpoint import check_archive
from topofl.engine.ranks import Ranks
from topofl.engine.store.rows import METADATA

__all__ = ["TensorFolder", "write_tensors"]


def write_tensors(folder: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Write tensors into an empty folder; their names differ between ranks.

    Raises
    ------
    OSError
        On all ranks, if one of them cannot write.
    """
    state: dict[str, Any] = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    writer, group = _Writer(folder), ranks.joined.group
    try:
        ranks.call(lambda: save(state, storage_writer=writer, process_group=group))
    except CheckpointException as error:
        errors = {rank: failure for rank, (failure, _) in error.failures.items()}
        message = "; ".join(f"rank {rank}: {errors[rank]}" for rank in sorted(errors))
        if all(isinstance(one, OSError) for one in errors.values()):
            raise OSError(message) from error
        raise RuntimeError(f"the rows of models could not be written: {message}") from error


class _Writer(FileSystemWriter):
    """A writer that raises the ``OSError`` which torch replaces by an error of its own."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        with raising_os_errors():
            return super().write_data(plan, planner)


@dataclass(frozen=True, eq=False)
class TensorFolder:
    """A folder that :func:`write_tensors` has written; nothing but tensors is read from it.

    Parameters
    ----------
    folder
        Path of the folder.
    files
        Names of the files in it that may be read.
    """

    folder: Path
    files: Collection[str]

    @cached_property
    def _opened(self) -> tuple["_Reader", Metadata]:
        reader = _Reader(self.folder)
        metadata = reader.read_metadata()
        if not isinstance(metadata, Metadata):
            raise TypeError(f"its description is a {type(metadata).__name__}")
        for part in metadata.storage_data.values():
            if part.relative_path not in self.files or getattr(part, "transform_descriptors", None):
                raise ValueError(f"it refers to {part.relative_path!r}")
        reader.set_up_storage_reader(metadata, is_coordinator=True)
        return reader, metadata

    def read(self, name: str) -> Tensor:
        """Return a tensor, on the CPU.

        Raises
        ------
        ValueError
            If there is none of this name, it claims to be larger than the files, or they contain
            anything but tensors.
        """
        try:
            return self._read(name)
        except Exception as error:  # torch and its unpicklers raise errors of many types
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{self.folder.name} cannot be read: {what}") from error

    def _read(self, name: str) -> Tensor:
        reader, metadata = self._opened
        found = metadata.state_dict_metadata.get(name)
        if not isinstance(found, TensorStorageMetadata):
            raise KeyError(f"there is no tensor {name!r}")
        claimed = found.size.numel() * found.properties.dtype.itemsize
        if claimed > (size := sum((self.folder / file).stat().st_size for file in self.files)):
            raise ValueError(f"a tensor claims {claimed} bytes in files of {size}")
        tensor = torch.empty(found.size, dtype=found.properties.dtype, device="cpu")
        planner = DefaultLoadPlanner()
        planner.set_up_planner({name: tensor}, metadata, is_coordinator=True)
        plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
        reader.read_data(plan, planner).wait()
        return tensor


class _Reader(FileSystemReader):
    """A reader whose files cannot execute code, nor take more memory than they have bytes."""

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        return _Plain(io.BytesIO((Path(self.path) / METADATA).read_bytes())).load()

    def _slice_file(self, file: Any, sinfo: Any) -> Any:
        part = io.BufferedReader(_Window(file, sinfo.offset, sinfo.length))
        check_archive(part, sinfo.length)
        part.seek(0)
        return part


class _Window(io.RawIOBase):
    """A part of a file, as a file of its own."""

    def __init__(self, file: Any, start: int, length: int) -> None:
        super().__init__()
        self.file, self.start, self.length, self.at = file, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.length}[whence]
        return self.at

    def readinto(self, buffer: Any, /) -> int:
        self.file.seek(self.start + self.at)
        count = max(0, min(len(buffer), self.length - self.at))
        read = self.file.readinto(memoryview(buffer)[:count])
        self.at += read
        return read


class _Plain(pickle.Unpickler):
    """An unpickler for the classes by which torch describes tensors in files, and no others."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name.partition(".")[0] == "pathlib":  # of the folder in which it was written
            return _joined
        is_dtype = module_name == "torch" and isinstance(
            getattr(torch, global_name, None), torch.dtype
        )
        if not is_dtype and global_name not in _CLASSES.get(module_name, ()):
            raise ValueError(f"it has a {module_name}.{global_name}, which is not read")
        return super().find_class(module_name, global_name)


def _joined(*parts: str) -> str:
    return "/".join(parts)


_CLASSES = {
    "torch": {"Size"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.serialization": {"_get_layout"},
}
"""Classes and functions in descriptions of files, by module."""
