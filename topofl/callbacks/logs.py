"""Callbacks that log a run as lines of JSON in a file or as lines of text."""

import json
import sys
from datetime import UTC, datetime
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from topofl._support.check import check_int, check_path, shown
from topofl._support.files import naming
from topofl._support.public import public
from topofl._support.text import printable
from topofl.callbacks.event import Callback, Event, as_json

__all__ = ["jsonl", "text"]

_LINE_START = b'{"time": "'
"""Start of every line of a log."""


@public
def jsonl(path: str | PathLike[str]) -> Callback:
    """Return a callback that appends one JSON object per event to a file.

    Its keys are ``time`` (UTC, ISO 8601), ``kind``, ``round`` and ``values``; NaN and infinite
    numbers are null. Every line is written immediately, so that the file can be followed and
    survives a crash. A resumed run appends, starting with a ``start`` event that has
    ``resumed_at``; if a round occurs twice, the later one counts.

    Parameters
    ----------
    path
        The file; its parent folders are created. An incomplete last line, for example after the
        disk was full, is removed.

    Raises
    ------
    FileExistsError
        If there is a file that is not such a log.
    OSError
        If it cannot be written, when the callback is created, or later if the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = jsonl(f"{folder}/log.jsonl")
    ...     log(Event("round", 1, {"train_loss": 2.5}))
    ...     print(Path(folder, "log.jsonl").read_text().partition(", ")[2].strip())
    "kind": "round", "round": 1, "values": {"train_loss": 2.5}}
    """
    path = _log_file(check_path("path", path, "file"))

    def callback(event: Event) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"time": now, "kind": event.kind, "round": event.round, "values": event.values}
        line = json.dumps(as_json(record), allow_nan=False).encode() + b"\n"
        with naming(path), path.open("ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError(f"{path} could not be written completely: is the disk full?")

    return callback


def _log_file(path: Path) -> Path:
    """Return the path of a new or older log, after removing an incomplete last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), path.open("a+b") as file:
        file.seek(0)
        if not _LINE_START.startswith(file.read(len(_LINE_START))):
            raise FileExistsError(
                f"`path` must be new or an older log, got {path} with other contents; name another "
                "file"
            )
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
    return path


@public
def text(stream: TextIO | None = None, *, every: int | None = None) -> Callback:
    """Return a callback that prints one line per event, for the logs of batch jobs.

    Parameters
    ----------
    stream
        An open text file; None: standard error.
    every
        Also print every `every`-th round; None: print all events except rounds.

    Raises
    ------
    ValueError, TypeError
        If `every` is not a positive integer, or `stream` not a file.

    Examples
    --------
    >>> log = text(sys.stdout, every=10)
    >>> log(Event("round", 10, {"train_loss": 2.5}))
    round 10 round: train_loss 2.5
    """
    every = None if every is None else check_int("every", every, minimum=1)
    if stream is not None and not callable(getattr(stream, "write", None)):
        raise TypeError(
            f"`stream` must be an open file, such as sys.stdout, or None, got {shown(stream)}"
        )

    def callback(event: Event) -> None:
        if event.kind == "round" and (every is None or event.round % every):
            return
        shown_values = [
            f"{name} {_short_text(value)}"
            for name, value in event.values.items()
            if isinstance(value, Real | str)
        ]
        print(
            f"round {event.round} {event.kind}: {', '.join(shown_values)}",
            file=stream or sys.stderr,
            flush=True,
        )

    return callback


def _short_text(value: Any) -> str:
    """Return a value as text, floats with 6 significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))
