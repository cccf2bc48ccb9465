"""The live table of a sweep on a terminal."""

import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from topofl._support.text import approximate, printable
from topofl.runs.private import in_progress
from topofl.runs.work import Job, Outcome

__all__ = ["Live"]

SHOWN = 8
"""Largest number of runs in progress that are listed."""


@dataclass(eq=False)
class Live:
    """How many runs are done, which are running, which failed, and the time left.

    A thread draws it once a second; nothing is drawn off terminals.

    Parameters
    ----------
    root
        The store, which has the progress of the runs.
    total
        Number of runs to do.
    shown
        Whether to draw; ``"auto"``: on terminals only.
    stream
        Where to draw.
    labels
        Names of the runs by key.
    title
        Name of the sweep.
    """

    root: Path
    total: int
    shown: bool | str = "auto"
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    labels: dict[str, str] = field(default_factory=dict)
    title: str = ""
    done: int = 0
    failed: int = 0
    _running: dict[str, Job] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _lines: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Live":
        if self.stream.isatty() if self.shown == "auto" else self.shown:
            self._thread = threading.Thread(target=self._draw_on, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._erase()
            self.stream.flush()

    def started(self, job: Job) -> None:
        """Note that a run was submitted."""
        self._running[job.key] = job

    def ended(self, outcome: Outcome) -> None:
        """Note how a run ended."""
        self._running.pop(outcome.key, None)
        self.failed += outcome.state == "failed"
        self.done += outcome.state != "failed"

    def text(self) -> list[str]:
        """Return the lines of the table."""
        left = self.total - self.done - self.failed
        head = f"{self.title}: " if self.title else ""
        head += f"{self.done} of {self.total} runs done"
        head += f", {self.failed} failed" if self.failed else ""
        ended = self.done + self.failed
        if ended and left:
            seconds = (time.monotonic() - self._began) / ended * left
            head += f", {approximate(seconds)} left"
        keys = list(self._running)[:SHOWN]
        reports = in_progress(self.root, keys)
        lines = [head]
        for key in keys:
            report = reports.get(key, {})
            line = f"  {self.labels.get(key, key)}"
            if report:
                line += f": round {report.get('round')} of {report.get('rounds')}"
            if isinstance(score := report.get("score"), float):
                line += f", score {score:.3f}"
            lines.append(printable(line))
        more = len(self._running) - len(keys)
        return [*lines, f"  and {more} more"] if more > 0 else lines

    def _draw_on(self) -> None:
        while not self._over.wait(1.0):
            lines = self.text()
            width = shutil.get_terminal_size().columns - 1
            self._erase()
            self.stream.write("".join(f"{line[:width]}\n" for line in lines))
            self.stream.flush()
            self._lines = len(lines)

    def _erase(self) -> None:
        if self._lines:
            self.stream.write(f"\x1b[{self._lines}F\x1b[J")
            self._lines = 0
