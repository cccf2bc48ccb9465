"""The command that continues a stored run."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topofl.config.toml import read

__all__ = ["names_functions", "resume_command"]

_FUNCTION = re.compile(r"(?<![\w./\\])[A-Za-z_][\w.]*\s*:\s*[A-Za-z_]")
"""The beginning of ``module:function``, also within a text with arguments."""


def resume_command(folder: Path, place: Path | None = None, *, started_here: bool = False) -> str:
    """Return the command that continues the run in a folder.

    Parameters
    ----------
    folder
        The folder of the run.
    place
        The folder that holds ``config.toml``; None: `folder`.
    started_here
        Whether this process has trained the run: then the command has ``--trust`` if the
        configuration names functions of modules, which are not imported without. Other folders may
        come from somebody else, and ``topofl resume`` itself explains the option.

    Examples
    --------
    >>> resume_command(Path("runs", "a ring"))
    "topofl resume 'runs/a ring'"
    """
    try:
        trust = started_here and names_functions(read((place or folder) / "config.toml"))
    except (OSError, ValueError):  # the command says what is wrong with the file
        trust = False
    return shlex.join(["topofl", "resume", *["--trust"] * trust, str(folder)])


def names_functions(tables: Any) -> bool:
    """Return whether any text in the tables of a configuration names a ``module:function``.

    Examples
    --------
    >>> names_functions({"algorithm": {"name": "mymodule:method", "lr": 0.1}})
    True
    >>> names_functions({"compute": {"device": "cuda:0"}, "data": {"root": "/data/a:b"}})
    False
    """
    if isinstance(tables, str):
        return _FUNCTION.search(tables) is not None
    if isinstance(tables, Mapping):
        return any(names_functions(value) for value in tables.values())
    return isinstance(tables, list | tuple) and any(map(names_functions, tables))
