"""Runs that were begun and not finished, in folders of ``topofl run`` and in stores."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topofl import config
from topofl._support.locks import is_in_use
from topofl.cli.folders import NEXT, is_finished
from topofl.config.resuming import names_functions, resume_command
from topofl.engine.checkpoint import newest_round
from topofl.runs import RunStore
from topofl.runs.record import flat_settings
from topofl.runs.work import noted_settings, private_folders

__all__ = ["Unfinished", "unfinished_in", "unfinished_in_folders", "unfinished_in_store"]

RUNNING = "nothing: it is running"
REPEAT = "the command that started it"


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run that was begun and not finished.

    Parameters
    ----------
    key
        Its key in a store, or the name of its folder.
    tables
        Its configuration; empty if it is not known.
    round
        The round of its newest checkpoint; 0 if there is none.
    remedy
        What finishes it.
    """

    key: str
    tables: Mapping[str, Any]
    round: int
    remedy: str

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as one flat dictionary, with keys such as ``"data.alpha"``."""
        return flat_settings(self.tables)


def unfinished_in_folders(root: Path) -> list[Unfinished]:
    """Return the unfinished runs in subfolders that ``topofl run`` wrote, by name."""
    if not root.is_dir():
        return []
    folders = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    return [found for folder in folders for found in unfinished_in(folder)]


def unfinished_in(folder: Path) -> Iterator[Unfinished]:
    """Yield the run in a folder if it is not finished."""
    saved = newest_round(folder / NEXT / "checkpoints")
    place = folder if saved is None else folder / NEXT
    if is_finished(folder) or not (place / "checkpoints").is_dir():
        return
    with suppress(OSError, ValueError):  # without a configuration it cannot be continued
        tables = config.read(place / "config.toml")
        done = newest_round(place / "checkpoints") or 0
        command = resume_command(folder, place)
        way = RUNNING if is_in_use(folder) else command
        yield Unfinished(folder.absolute().name, tables, done, way)


def unfinished_in_store(store: RunStore) -> list[Unfinished]:
    """Return the runs of a store that have checkpoints and no end, in the order of their keys."""
    return [
        Unfinished(
            key,
            noted_settings(folder),
            newest_round(folder / "checkpoints") or 0,
            RUNNING if is_alive else _command_in_store(store, folder),
        )
        for key, folder, is_alive in private_folders(store.root)
        if not store.has(key)
    ]


def _command_in_store(store: RunStore, folder: Path) -> str:
    """Return what finishes a run of a store.

    A configuration that names functions of modules is not suggested, since ``topofl run`` imports
    them.
    """
    tables = noted_settings(folder)
    if not (folder / "config.toml").is_file() or names_functions(tables):
        return REPEAT
    return shlex.join(["topofl", "run", str(folder / "config.toml"), "--store", str(store.root)])
