"""Folders of saved histories: where they are, and which a new history may replace."""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from topofl._support.check import shown
from topofl._support.files import backup_path, holds_only

__all__ = [
    "FILES",
    "FORMAT",
    "MODELS",
    "OLD_MODELS",
    "OURS",
    "check_replaceable",
    "meta_sum",
    "resolved",
    "saved_in",
]

FILES = ("meta.json", "rounds.jsonl", "arrays.npz")
"""The files of a saved history."""

FORMAT = 2
"""Format of histories with checksums; without ``format`` in meta.json they have none."""

MODELS = "models.safetensors"
"""The file of models, if they were also saved."""

OLD_MODELS = "models.pt"
"""The file of models of earlier versions, which is not read."""

OURS = re.compile("|".join(map(re.escape, (*FILES, MODELS, OLD_MODELS))))
"""Names of all files in a folder that contains only a history, complete or not."""


def meta_sum(meta: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the entries of a meta.json, without the checksum itself."""
    sums = {name: one for name, one in meta["sha256"].items() if name != "meta.json"}
    return hashlib.sha256(json.dumps({**meta, "sha256": sums}, sort_keys=True).encode()).hexdigest()


def saved_in(folder: Path) -> Path | None:
    """Return the folder with the files of the history saved as `folder`; None if there is none.

    The two differ only if a process was killed while it replaced one history by another.

    Examples
    --------
    >>> saved_in(Path("no-such-history")) is None
    True
    """
    if (folder / "meta.json").is_file():
        return folder
    older = backup_path(resolved(folder))
    return older if (older / "meta.json").is_file() and holds_only(older, OURS) else None


def resolved(path: Path) -> Path:
    """Return a path with links resolved; raise ``ValueError`` for links that form a loop."""
    with suppress(RuntimeError):  # before Python 3.13; later versions return such a link
        place = path.resolve()
        if not place.is_symlink():
            return place
    raise ValueError(
        f"`path` must be a folder, got {shown(str(path))}, a link that leads back to itself; "
        "remove it"
    )


def check_replaceable(folder: Path, *, overwrite: bool = False) -> None:
    """Raise unless a history may replace `folder` without the loss of anything else.

    Raises
    ------
    FileExistsError
        If it is a file, or contains anything else and `overwrite` is False.
    ValueError
        If it is the current folder or one above it, since the process would be left in a removed
        folder.

    Examples
    --------
    >>> check_replaceable(Path("no-such-history"))
    >>> check_replaceable(Path.cwd())
    Traceback (most recent call last):
    ValueError: `path` must not be the current folder or one above it, ...
    """
    if not folder.exists():
        return
    if folder.resolve() in _current_folders():
        raise ValueError(
            "`path` must not be the current folder or one above it, since the whole folder is "
            f"replaced, got {folder}; name a folder in it, or change to another folder first"
        )
    if not folder.is_dir():
        raise FileExistsError(f"`path` must be a folder, got the file {folder}; name another path")
    found = sorted(folder.iterdir())
    others = [path.name for path in found if not OURS.fullmatch(path.name) or not path.is_file()]
    missing = [name for name in FILES if not (folder / name).is_file()]
    if overwrite or not found or not (others or missing):
        return
    what = f"also contains {others[0]}" if others else f"has no {missing[0]}"
    what += f" ({len(others) - 1} more)" if len(others) > 1 else ""
    raise FileExistsError(
        f"`path` must be new or contain only an older history, {folder} {what}; name another "
        "folder, or give overwrite=True, which removes everything in it"
    )


def _current_folders() -> tuple[Path, ...]:
    """Return the current folder and all folders above it; nothing if it was removed."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return ()
    return here, *here.parents
