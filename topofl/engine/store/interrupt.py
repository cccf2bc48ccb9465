"""Let Ctrl-C and SIGTERM stop a run between two rounds instead of within one."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "StopRequest", "stop_between_rounds"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTE = b"\ntopofl: stopping after this round, which is saved; press Ctrl-C again to stop at once\n"


class Interrupted(KeyboardInterrupt):
    """A run was stopped between two rounds by Ctrl-C or SIGTERM.

    Parameters
    ----------
    done, rounds
        Number of completed rounds, and of all rounds.
    folder
        Folder of the checkpoints.
    saved
        The round of the newest checkpoint there: `done`, unless it could not be written; None if
        there is none.

    Examples
    --------
    >>> try:
    ...     raise Interrupted(30, 100, Path("runs", "ring"), saved=30)  # as topofl.run does
    ... except Interrupted as stop:
    ...     print(f"{stop.done} of {stop.rounds} rounds are in {stop.folder.name}")
    30 of 100 rounds are in ring
    """

    def __init__(self, done: int, rounds: int, folder: Path, saved: int | None) -> None:
        text = f"interrupted after round {done} of {rounds}"
        if saved != done:
            newest = "there is none" if saved is None else f"the newest is of round {saved}"
            text += f", whose checkpoint could not be written to {folder} ({newest})"
        super().__init__(
            f"{text}; continue with run(..., saving=Saving({str(folder)!r}, resume=True))"
        )
        self.done = done
        self.rounds = rounds
        self.folder = folder
        self.saved = saved

    def __reduce__(self) -> tuple[Any, ...]:  # to pickle it between processes
        return Interrupted, (self.done, self.rounds, self.folder, self.saved)


@dataclass
class StopRequest:
    """Whether the user requested a stop."""

    made: bool = False


@contextmanager
def stop_between_rounds(enabled: bool, patient: bool = False) -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; the second one interrupts at once.

    With `patient`, further ones are ignored, since torchrun sends several for one Ctrl-C.

    This works only in the main thread, as Python requires, and leaves ignored signals alone (as
    under ``nohup``).
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if request.made and not patient:
            raise KeyboardInterrupt
        request.made = True
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(2, _NOTE)  # print is not reentrant

    able = enabled and threading.current_thread() is threading.main_thread()
    found = {number: signal.getsignal(number) for number in _SIGNALS} if able else {}
    replaced = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in replaced:
            signal.signal(number, handle)
        yield request
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
    if request.made:  # after the last round's check
        raise KeyboardInterrupt
