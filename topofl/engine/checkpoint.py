"""Read checkpoints from disk, and verify that they are complete and undamaged.

A checkpoint consists of two files: ``state-00000200.pt`` (tensors, lists, numbers and text) and its
marker ``state-00000200.json``, written afterwards, which describes it and has the checksums of
both. Without the marker, or if a checksum does not match, there is no checkpoint. If several ranks
write a checkpoint, all that has a row per node, such as the models, is in a folder
``state-00000200.rows``, and the marker has the checksums of its files, too.
"""

import hashlib
import json
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from topofl._support.text import printable
from topofl.engine.store.lock import NAME as LOCK
from topofl.engine.store.lock import Lock, locked
from topofl.engine.store.rows import SavedRows, checksum_of_file

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "OURS",
    "Checkpoint",
    "ResumeError",
    "check_archive",
    "check_tensors",
    "checkpoint_to_resume",
    "checksum_of",
    "naming_its_file",
    "newest_checkpoint",
    "newest_round",
    "reserved_folder",
    "resuming",
    "rounds_in",
    "rows_path",
    "state_path",
]

FORMAT, FORMAT_OF_RANKS = 2, 3
"""Formats of new checkpoints: of one process, and of several ranks."""

READABLE = (1, FORMAT, FORMAT_OF_RANKS)
"""Formats that can be read. In format 1, matrices were stored with all of their rows."""


FILE_NAME = re.compile(r"state-(\d{8,})\.(pt|json|rows)(\.partial)?")
"""Names of the files, and of the folder, of a checkpoint."""

OURS = re.compile(
    rf"state-\d{{8,}}\.((pt|json)(\.partial)?|rows(\.partial)?(/[^/]+)?)|{re.escape(LOCK)}"
)
"""Names of all files in a folder that contains only checkpoints and their lock."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that is complete and undamaged.

    Parameters
    ----------
    path
        File of the state.
    marker
        Contents of the JSON file next to it.
    """

    path: Path
    marker: Mapping[str, Any]

    @property
    def round(self) -> int:
        """Number of completed rounds."""
        return self.marker["round"]

    def state(self) -> dict[str, Any]:
        """Return the state; its tensors are memory-mapped, and read from the file on access.

        In a checkpoint of several ranks, tensors with a row per node are :class:`SavedRows`.

        Raises
        ------
        ValueError
            If the file contains anything but tensors, lists, numbers and text, or claims to
            be larger than it is.
        """
        try:
            check_archive(self.path, self.path.stat().st_size)
            state = torch.load(self.path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # zipfile, torch and its unpickler raise errors of many types
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"{self.path} is not the state of a run: {what}; remove it, or start in another "
                "folder"
            ) from error
        if not isinstance(state, dict):
            raise ValueError(
                f"{self.path} is not the state of a run: it contains a {type(state).__name__}; "
                "remove it"
            )
        if self.marker["format"] != FORMAT_OF_RANKS:
            return state
        with naming_its_file(self):
            return _with_rows(self, state)


def check_archive(file: Path | IO[bytes], size: int) -> None:
    """Raise unless a file of `size` bytes is an uncompressed archive, as torch writes it.

    A small compressed file can need much memory.
    """
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise ValueError(f"its member {info.filename} is compressed")


@contextmanager
def naming_its_file(found: Checkpoint) -> Iterator[None]:
    """Turn errors from a state that does not match the run into one that names its file."""
    try:
        yield
    except (
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        ValueError,
        RuntimeError,
        OverflowError,
    ) as error:
        what = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{found.path} does not match this run ({type(error).__name__}: {what}); remove it, or "
            "use another folder"
        ) from error


def check_tensors(path: Path, state: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless a state's tensors are plain and not larger than its file."""
    size = path.stat().st_size
    # "guard" and "mass" are names of the stored format: divergence monitor, push-sum weights.
    tables = [
        state["phases"],
        {name: state["recorder"][name] for name in _TABLES},
        {"guard": state["guard"]},
    ]
    tensors = [state["models"], state["mass"]]
    tensors += [tensor for table in tables for own in table.values() for tensor in own.values()]
    for tensor in tensors:
        if isinstance(tensor, SavedRows):  # it is checked when it is read
            continue
        if (
            type(tensor) is not torch.Tensor
            or tensor.layout != torch.strided
            or tensor.device.type != "cpu"
        ):
            raise ValueError(f"a {type(tensor).__name__} is not a plain tensor on the CPU")
        if (claimed := tensor.numel() * tensor.element_size()) > size:
            raise ValueError(f"a tensor claims {claimed} bytes in a file of {size}")


_TABLES = ("rounds", "evaluations", "used", "matrices")
"""Parts of the recorder's state that contain tensors."""


class ResumeError(ValueError):
    """A run cannot continue from the checkpoints in its folder."""


@contextmanager
def resuming() -> Iterator[None]:
    """Turn every ``ValueError`` about checkpoints into a :class:`ResumeError`."""
    try:
        yield
    except ValueError as error:
        raise ResumeError(*error.args) from error


class _DamagedError(ValueError):
    """A file differs from what was written."""


def rounds_in(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints in a folder, intact or damaged, in ascending order."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = map(FILE_NAME.fullmatch, names)
    return sorted(int(match[1]) for match in found if match and match[2] == "json" and not match[3])


def newest_round(folder: Path) -> int | None:
    """Return the round of the newest checkpoint with both files, without reading them."""
    return next((t for t in reversed(rounds_in(folder)) if state_path(folder, t).is_file()), None)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint in a folder; None if there are no checkpoints.

    Warns about each newer checkpoint that is damaged.

    Raises
    ------
    ValueError
        If all checkpoints are damaged, or one has a format that cannot be read.
    """
    rounds = rounds_in(folder)
    for t in reversed(rounds):
        try:
            return _read(state_path(folder, t))
        except _DamagedError as error:
            warnings.warn(f"{error}; the previous checkpoint is used", RuntimeWarning, stacklevel=3)
    if rounds:
        raise ValueError(
            f"`saving` must have an intact checkpoint to resume from, all {len(rounds)} in "
            f"{folder} are damaged; start again in another folder"
        )
    return None


def _read(path: Path) -> Checkpoint:
    marker = _marker(path.with_suffix(".json"))
    checksums = {path: marker["sha256"]}
    for name, checksum in _row_files(marker).items():
        checksums[path.with_suffix(".rows") / name] = checksum
    for file, checksum in checksums.items():
        if not file.is_file():
            raise _DamagedError(f"{file} is missing")
        if checksum_of_file(file) != checksum:
            raise _DamagedError(f"{file} is damaged: its checksum does not match")
    return Checkpoint(path, marker)


def _row_files(marker: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums of the files in a folder of rows; empty if there is none."""
    return marker["rows"] if marker["format"] == FORMAT_OF_RANKS else {}


def _with_rows(found: Checkpoint, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint of several ranks with the tensors in its folder of rows."""
    from topofl.engine.store.parallel import TensorFolder

    folder = TensorFolder(found.path.with_suffix(".rows"), frozenset(_row_files(found.marker)))
    owner = state["owner"].numpy()

    def rows(name: str) -> SavedRows:
        return SavedRows(name, owner, folder.read)

    phases = {
        name: saved | {key: rows(f"phases/{name}/{key}") for key in state["rows_of_phases"][name]}
        for name, saved in state["phases"].items()
    }
    return state | {"models": rows("models"), "mass": rows("mass"), "phases": phases}


def _marker(path: Path) -> dict[str, Any]:
    try:
        marker = json.loads(path.read_bytes())
        fits = marker.pop("checksum") == checksum_of(marker)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise _DamagedError(f"{path} is damaged: {error!r}") from error
    if not fits:
        raise _DamagedError(f"{path} is damaged: its checksum does not match")
    if not isinstance(marker.get("format"), int):
        raise _DamagedError(f"{path} is damaged: format is not an integer")
    if marker["format"] not in READABLE:
        raise ValueError(
            f"`saving` must have checkpoints of format {max(READABLE)} or older, {path} has format "
            f"{marker['format']}; continue with topofl {_writer(marker)}, or start again in "
            "another folder"
        )
    if (field := _wrong_field(marker)) or marker["round"] != int(path.stem.partition("-")[2]):
        raise _DamagedError(f"{path} is damaged: {field or 'round'} has a wrong value")
    return marker


def _writer(marker: Mapping[str, Any]) -> str:
    """Return the version of topofl that wrote a marker."""
    versions = marker.get("versions")
    return printable(str(versions.get("topofl"))) if isinstance(versions, dict) else "of that time"


def _wrong_field(marker: Mapping[str, Any]) -> str:
    """Return the name of a field of a marker that has a wrong type; empty if there is none."""
    plain = str | int | float | bool | None
    kinds = {
        "round": int,
        "rounds": int,
        "sha256": str,
        "versions": dict,
        "device": str,
        "asked": list,
        "run": dict,
    }
    if marker["format"] == FORMAT_OF_RANKS:
        kinds["rows"] = dict
    for name, kind in kinds.items():
        value = marker.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return name
        entries: Any = value if isinstance(value, list) else ()
        if isinstance(value, dict):
            entries = value.values()
        if not all(isinstance(entry, plain) for entry in entries):
            return name
    if any(Path(name).name != name for name in _row_files(marker)):
        return "rows"
    return "" if len(marker["asked"]) == 2 else "asked"


def checksum_of(marker: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a marker."""
    return hashlib.sha256(json.dumps(marker, sort_keys=True).encode()).hexdigest()


def state_path(folder: Path, t: int) -> Path:
    """Return the path of the state after `t` rounds."""
    return folder / f"state-{t:08d}.pt"


def rows_path(folder: Path, t: int) -> Path:
    """Return the path of the folder of rows after `t` rounds, in a checkpoint of several ranks."""
    return state_path(folder, t).with_suffix(".rows")


@contextmanager
def reserved_folder(folder: Path | None) -> Iterator[Lock | None]:
    """Create a folder for checkpoints and lock it against other processes; None: do nothing.

    The folder is first checked to be writable.

    Raises
    ------
    OSError
        If it is not writable; BlockingIOError if another process uses it.
    """
    if folder is None:
        yield None
        return
    _check_writable(folder)
    with locked(folder) as lock:
        yield lock


def checkpoint_to_resume(folder: Path, resume: bool) -> Checkpoint | None:
    """Return the checkpoint to resume from; None to start at round 0.

    Raises
    ------
    ValueError
        If there are checkpoints and `resume` is False, or as :func:`newest_checkpoint`.
    """
    if not resume and rounds_in(folder):
        raise ValueError(
            f"`saving` must be a folder without checkpoints, {folder} has one of round "
            f"{rounds_in(folder)[-1]}; continue with resume=True, or use another folder"
        )
    return newest_checkpoint(folder) if resume else None


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix=".topofl-") as probe:
            probe.write(b"x")
    except OSError as error:
        named = type(error)(
            f"`saving` must be a writable folder, {folder} is not: {error.strerror or error}"
        )
        named.errno = error.errno  # sweeps stop at a full disk
        raise named from error
    except ValueError as error:  # invalid names
        raise ValueError(
            f"`saving` must be a writable folder, got {str(folder)!r}: {error}"
        ) from error
