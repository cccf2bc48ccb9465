"""Checkpoints: their files, which are written completely or not at all, and verified when read.

The checkpoint of round 200 is a folder ``round-00000200``. It is written as
``round-00000200.partial`` and then renamed; a process that is killed leaves at most such a partial
folder, which the next one removes. In it are

- ``rows-0.safetensors``, ``rows-1.safetensors``, ...: what has a row per node, such as the models;
  each rank writes the rows of its nodes, and one process is rank 0,
- ``shared.safetensors``: everything else, from the first rank,
- ``marker.json``: a description of the run, and the checksums of all files.

Any number of processes can continue, each of which reads the rows of its own nodes.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._support.arrays import BLOCK, flattened, nested, read_tensors, write_tensors
from topofl._support.files import sync_file, sync_folder
from topofl._support.locks import LOCK
from topofl._support.text import printable
from topofl.engine.ranks import Ranks

FORMAT = 4
"""Format of checkpoints. Formats 1 to 3 had other files, which are not read."""

KEPT = 2
"""Number of checkpoints that are kept."""

MARKER, SHARED = "marker.json", "shared.safetensors"

_OLD = r"state-\d{8,}\.(pt|json|rows)(\.partial)?"
"""Names of the files of formats 1 to 3."""

OURS = re.compile(rf"(round-\d{{8,}}(\.partial)?|{_OLD})(/[^/]+)?|{re.escape(LOCK)}")
"""Paths of all files in a folder that contains only checkpoints and their lock."""

T = TypeVar("T")

Parts = Callable[[], Mapping[str, Any]]
"""Returns nested dictionaries of tensors and JSON values."""


class ResumeError(ValueError):
    """A run cannot continue from the checkpoints in its folder."""


class OtherRunError(ResumeError):
    """A checkpoint belongs to another run; the message names what differs inside of the engine."""


def round_path(folder: Path, t: int) -> Path:
    """Return the path of the checkpoint after `t` rounds."""
    return folder / f"round-{t:08d}"


def _partial(place: Path) -> Path:
    """Return the path of a checkpoint while it is being written or removed."""
    return place.with_name(f"{place.name}.partial")


def _rows_name(rank: int) -> str:
    return f"rows-{rank}.safetensors"


def rounds_in(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints in a folder, intact or damaged, in ascending order."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (re.fullmatch(r"round-(\d{8,})", name) for name in names)
    return sorted(int(match[1]) for match in found if match)


def newest_round(folder: Path) -> int | None:
    """Return the round of the newest checkpoint, without reading it."""
    return max(rounds_in(folder), default=None)


@dataclass(frozen=True, eq=False)
class SavedRows:
    """The rows of a tensor in a checkpoint, which the ranks have written to one file each.

    Parameters
    ----------
    name
        Name of the tensor in the files.
    place
        Folder of the checkpoint.
    owner
        (n,) rank that has written the row of each node; it has written them in ascending order.
    """

    name: str
    place: Path
    owner: np.ndarray

    def copy_to(self, own: Tensor, nodes: np.ndarray) -> None:
        """Copy the rows of nodes (k,) to a tensor (k, ...), a few at a time.

        Raises
        ------
        ValueError
            If the rows have another shape or dtype.
        """
        owner = self.owner[nodes]
        for rank in np.unique(owner).tolist():
            written, places = np.flatnonzero(self.owner == rank), np.flatnonzero(owner == rank)
            saved = self._of_rank(rank)
            if (own.shape[1:], own.dtype) != (saved.shape[1:], saved.dtype):
                text = f"rows of {tuple(own.shape[1:])} numbers of {own.dtype} are needed"
                raise ValueError(f"{text}, got {tuple(saved.shape[1:])} of {saved.dtype}")
            if len(saved) != len(written):
                raise ValueError(f"{len(written)} rows of rank {rank} are needed, got {len(saved)}")
            rows = np.searchsorted(written, nodes[places])
            step = max(1, BLOCK * len(saved) // max(1, saved.nbytes))
            for some in (slice(k, k + step) for k in range(0, len(rows), step)):
                saved = self._of_rank(rank)  # mapped again, so that blocks before leave the memory
                block = saved[torch.from_numpy(rows[some])]
                own[torch.from_numpy(places[some]).to(own.device)] = block.to(own.device)

    def of(self, nodes: np.ndarray) -> Tensor:
        """Return the rows of nodes (k,) as a tensor (k, ...)."""
        like = self._of_rank(int(self.owner.min()))
        own = like.new_empty(len(nodes), *like.shape[1:])
        self.copy_to(own, nodes)
        return own

    def _of_rank(self, rank: int) -> Tensor:
        return read_tensors(self.place / _rows_name(rank))[0][self.name]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that is complete and undamaged.

    Parameters
    ----------
    path
        Its folder.
    marker
        Contents of its marker.
    """

    path: Path
    marker: Mapping[str, Any]

    @property
    def round(self) -> int:
        """Number of completed rounds."""
        return self.marker["round"]

    def state(self) -> dict[str, Any]:
        """Return the state; its tensors are memory-mapped, and read from the files on access.

        Tensors that were written by rows are :class:`SavedRows`.

        Raises
        ------
        ValueError
            If the files do not match the marker or each other.
        """
        tensors, texts = read_tensors(self.path / SHARED)
        owner = tensors.pop("owner").numpy()
        files = {_rows_name(rank) for rank in np.unique(owner).tolist()}
        if unknown := sorted(files - self.marker["files"].keys()):
            raise ValueError(f"{unknown[0]} is needed, and has no checksum")
        names = read_tensors(self.path / min(files))[0]
        rows = {name: SavedRows(name, self.path, owner) for name in names}
        return nested(json.loads(texts["values"]), tensors | rows)


_MISMATCHES = (LookupError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError)
"""Errors of a state that has other parts, shapes or kinds of values than the run."""


@contextmanager
def naming_file(found: Checkpoint) -> Iterator[None]:
    """Turn errors from a state that does not match the run into one that names its folder."""
    try:
        yield
    except _MISMATCHES as error:
        what = (str(error).splitlines() or [""])[0]
        text = f"{found.path} does not match this run ({type(error).__name__}: {what})"
        raise ResumeError(f"{text}; remove it, or use another folder") from error


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint in a folder; None if there are no checkpoints.

    Warns about each newer checkpoint that is damaged, if there is an intact one.

    Raises
    ------
    ResumeError
        If all checkpoints are damaged, or one has a format that cannot be read.
    """
    damaged = list[ValueError]()
    for t in reversed(rounds_in(folder)):
        place = round_path(folder, t)
        try:
            marker = _read_marker(place, t)
        except ValueError as error:
            damaged.append(error)
            continue
        if marker["format"] == FORMAT:
            for error in damaged:
                text = f"{error}; the previous checkpoint is used"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            return Checkpoint(place, marker)
        versions = marker.get("versions")
        named = isinstance(versions, dict)
        writer = printable(str(versions.get("topofl"))) if named else "of that time"
        raise ResumeError(
            f"`saving` must have checkpoints of format {FORMAT}, {place / MARKER} has format "
            f"{marker['format']}; continue with topofl {writer}, or start again in another folder"
        )
    if damaged:
        raise ResumeError(
            f"`saving` must have an intact checkpoint to resume from, all {len(damaged)} in "
            f"{folder} are damaged ({damaged[0]}); start again in another folder"
        )
    return None


def checkpoint_to_resume(folder: Path, resume: bool) -> Checkpoint | None:
    """Return the checkpoint to resume from; None to start at round 0.

    Raises
    ------
    ResumeError
        If there are checkpoints and `resume` is False, if there are only checkpoints of older
        versions, or as :func:`newest_checkpoint`.
    """
    rounds = rounds_in(folder)
    if not rounds and (old := sorted(folder.glob("state-*.json"))):
        raise ResumeError(
            f"`saving` must have checkpoints of format {FORMAT}, {old[-1]} has an older format, "
            "which this version of topofl does not read; finish that run with the version that "
            "began it, or start again in another folder"
        )
    if not resume and rounds:
        raise ResumeError(
            f"`saving` must be a folder without checkpoints, {folder} has one of round "
            f"{rounds[-1]}; continue with resume=True, or use another folder"
        )
    return newest_checkpoint(folder) if resume else None


def _read_marker(place: Path, t: int) -> dict[str, Any]:
    """Return the marker of a checkpoint of round `t`; raise ``ValueError`` if that is damaged.

    Of other formats, only the marker itself is checked.
    """
    path = place / MARKER
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    try:
        marker = json.loads(path.read_bytes())
        fits = marker.pop("checksum") == checksum_of(marker)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    if not fits:
        raise ValueError(f"{path} is damaged: its checksum does not match")
    if not isinstance(marker.get("format"), int):
        raise ValueError(f"{path} is damaged: format is not an integer")
    if marker["format"] != FORMAT:
        return marker
    if (field := _wrong_field(marker)) or marker["round"] != t:
        raise ValueError(f"{path} is damaged: {field or 'round'} has a wrong value")
    for name, checksum in marker["files"].items():
        if not (place / name).is_file():
            raise ValueError(f"{place / name} is missing")
        with (place / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != checksum:
                raise ValueError(f"{place / name} is damaged: its checksum does not match")
    return marker


def _wrong_field(marker: Mapping[str, Any]) -> str:
    """Return the name of a field of a marker that has a wrong type; empty if there is none."""
    kinds = [("round", int), ("rounds", int), ("device", str), ("asked", list)]
    kinds += [(name, dict) for name in ("files", "versions", "run")]
    for name, kind in kinds:
        value: Any = marker.get(name)
        if type(value) is not kind:
            return name
        entries = value.values() if kind is dict else value if kind is list else ()
        if not all(isinstance(entry, str | int | float | bool | None) for entry in entries):
            return name
    files = marker["files"]
    if SHARED not in files or any(Path(name).name != name for name in files):
        return "files"
    return "" if len(marker["asked"]) == 2 else "asked"


def checksum_of(marker: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a marker."""
    return hashlib.sha256(json.dumps(marker, sort_keys=True).encode()).hexdigest()


def on_all_ranks(ranks: Ranks, function: Callable[[], T]) -> T:
    """Call a function on all ranks, and return its result on this one.

    Raises
    ------
    OSError
        On all ranks, if the function raises one on some rank.
    """
    if ranks.size == 1:
        return function()
    message, found = "", None
    try:
        found = function()
    except OSError as error:
        message = f"rank {ranks.rank}: {error}"
    if failed := [text for text in ranks.objects(message) if text]:
        raise OSError("; ".join(failed))
    return found  # type: ignore[return-value]


def write_checkpoint(
    folder: Path, t: int, state: Parts, rows: Parts, marker: Mapping[str, Any], ranks: Ranks
) -> tuple[Path, int]:
    """Write the checkpoint after `t` rounds; return its path and, on the first rank, its bytes.

    All ranks call this function, and each writes its rows; the first writes all else and removes
    old checkpoints. If writing fails, earlier checkpoints stay unchanged.

    Parameters
    ----------
    folder
        The folder of checkpoints.
    t
        Number of completed rounds.
    state, rows
        What each rank has, called by the first rank, and the rows of this rank's nodes, in
        ascending order.
    marker
        Description of the run.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full; on all ranks, unless the
        first cannot write what it writes alone.
    """
    place, first = round_path(folder, t), ranks.is_first
    partial, own = _partial(place), _rows_name(ranks.rank)

    def begin() -> None:
        if first:
            _remove(place)  # a damaged one of this round
            partial.mkdir()

    try:
        on_all_ranks(ranks, begin)
        digest = on_all_ranks(ranks, lambda: write_tensors(partial / own, flattened(rows())[0], {}))
        files = dict(ranks.objects((own, digest)))
        if first:
            tensors, values = flattened({**state(), "owner": torch.from_numpy(ranks.owner)})
            texts = {"values": json.dumps(values)}
            files[SHARED] = write_tensors(partial / SHARED, tensors, texts)
            _write_marker(partial, {"format": FORMAT, "round": t, "files": files, **marker})
            sync_folder(partial)
            os.replace(partial, place)
            sync_folder(folder)
    except BaseException:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    if first:
        prune(folder, KEPT, until=t)
    return place, _size(place) if first else 0


def _write_marker(folder: Path, marker: Mapping[str, Any]) -> None:
    written = json.loads(json.dumps(marker))  # the checksum is of values as they will be read
    text = json.dumps(written | {"checksum": checksum_of(written)}, indent=2)
    (folder / MARKER).write_bytes(text.encode() + b"\n")
    sync_file(folder / MARKER)


def _size(place: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(path.stat().st_size for path in place.iterdir())


def _remove(place: Path) -> None:
    """Remove a checkpoint, if it exists, which ends with the change of its name."""
    shutil.rmtree(_partial(place), ignore_errors=True)
    if place.exists():
        os.replace(place, _partial(place))
        shutil.rmtree(_partial(place))


def prune(folder: Path, kept: int, until: int | None = None) -> None:
    """Remove all but the last `kept` checkpoints up to round `until`, and leftovers."""
    rounds = [t for t in rounds_in(folder) if until is None or t <= until]
    for t in set(rounds_in(folder)) - set(rounds[max(0, len(rounds) - kept) :]):
        _remove(round_path(folder, t))
    _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    """Remove partial checkpoints of interrupted processes, and checkpoints of older formats."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if re.fullmatch(rf"round-\d{{8,}}\.partial|{_OLD}", path.name):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def move_all(source: Path, target: Path) -> None:
    """Move the checkpoints of one folder into another, replacing those there.

    If the process is killed in between, the next call completes the move: the newest checkpoint is
    moved last, after those of `target` were set aside. If something cannot be moved, both folders
    stay unchanged.
    """
    target.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    aside = [round_path(target, t) for t in rounds_in(target)]
    moves = [(place, _partial(place)) for place in aside]
    moves += [(round_path(source, t), round_path(target, t)) for t in rounds_in(source)]
    for k, (path, other) in enumerate(moves):
        try:
            os.replace(path, other)
        except OSError:
            for before, after in reversed(moves[:k]):
                os.replace(after, before)
            raise
    _remove_leftovers(target)
    sync_folder(target)


def check_space(folder: Path, size: int) -> None:
    """Raise unless the disk has space for all kept checkpoints and the one being written.

    Raises
    ------
    OSError
        If it does not, with the number ``ENOSPC``; the space of existing checkpoints counts as
        free.
    """
    used = sum(_size(round_path(folder, t)) for t in rounds_in(folder))
    needed = (KEPT + 1) * size
    free = shutil.disk_usage(folder).free + used
    if needed > free:
        error = OSError(
            f"`saving` must have space for {KEPT + 1} checkpoints, {needed} bytes, {folder} has "
            f"{free} bytes free; free some space, or use a folder on another disk"
        )
        error.errno = errno.ENOSPC  # sweeps stop at a full disk
        raise error
