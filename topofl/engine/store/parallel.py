"""Tensors that ranks write in parallel and that each process reads alone, by torch's checkpoints.

Only what needs torch.distributed.checkpoint is here, since importing it takes most of a second.
"""

import io
import pickle
from collections.abc import Mapping
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

from topofl.engine.distributed.ranks import Ranks

__all__ = ["TensorFolder", "write_tensors"]


def write_tensors(folder: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Write tensors into an empty folder; their names differ between ranks.

    Raises
    ------
    OSError
        On all ranks, if one of them cannot write.
    """
    state: dict[str, Any] = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    writer, group = _Writer(folder), ranks.link.group
    try:
        ranks.call(lambda: save(state, storage_writer=writer, process_group=group))
    except CheckpointException as error:
        errors = {rank: failure for rank, (failure, _) in error.failures.items()}
        told = "; ".join(f"rank {rank}: {errors[rank]}" for rank in sorted(errors))
        if all(isinstance(one, OSError) for one in errors.values()):
            raise OSError(told) from error
        raise RuntimeError(f"the rows of models could not be written: {told}") from error


class _Writer(FileSystemWriter):
    """A writer that raises the ``OSError`` which torch replaces by an error of its own."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


class TensorFolder:
    """A folder that :func:`write_tensors` has written; nothing but tensors is read from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _opened(self) -> tuple["_Reader", Metadata]:
        reader = _Reader(self.folder)
        metadata = reader.read_metadata()
        if not isinstance(metadata, Metadata):
            raise TypeError(f"{reader.path} holds a {type(metadata).__name__}")
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
        if claimed > (size := sum(path.stat().st_size for path in self.folder.iterdir())):
            raise ValueError(f"a tensor claims {claimed} bytes in files of {size}")
        tensor = torch.empty(found.size, dtype=found.properties.dtype, device="cpu")
        planner = DefaultLoadPlanner()
        planner.set_up_planner({name: tensor}, metadata, is_coordinator=True)
        plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
        reader.read_data(plan, planner).wait()
        return tensor


class _Reader(FileSystemReader):
    """A reader whose description of the files cannot execute code."""

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        return _Plain(io.BytesIO((Path(self.path) / ".metadata").read_bytes())).load()


class _Plain(pickle.Unpickler):
    """An unpickler for the classes by which torch describes tensors in files, and no others."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        module = {"pathlib._local": "pathlib"}.get(module_name, module_name)  # of Python 3.13
        is_dtype = module == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
        if not is_dtype and global_name not in _CLASSES.get(module, ()):
            raise ValueError(f"it has a {module_name}.{global_name}, which is not read")
        return super().find_class(module_name, global_name)


_CLASSES = {
    "pathlib": {"PosixPath", "WindowsPath"},
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
