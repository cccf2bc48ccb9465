"""Processes: which have ended, what torchrun tells those it starts, how those of a sweep start.

It imports neither torch nor numpy, so that the process from which those of a sweep are forked can
import them meanwhile.
"""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

_LAST_PID = 2**31 - 1  # of any system
_RANDOM = 1 << 40
"""Bit that ``uuid.getnode`` sets in a random number, which it returns where it finds no card."""


def identity() -> dict[str, Any]:
    """Return values that distinguish this process from all others."""
    pid, host = os.getpid(), socket.gethostname()
    return {"pid": pid, "host": host, "started": start_time(pid), "space": pid_namespace()}


def name_of(holder: dict[str, Any]) -> str:
    """Return an identity as part of the name of a file or folder.

    Examples
    --------
    >>> name_of({"pid": 12, "host": "a/b", "started": None, "space": "pid:[1]"})
    '12+a%2Fb++pid%3A%5B1%5D'
    """
    parts = (holder["pid"], holder["host"], holder["started"], holder["space"])
    return "+".join(quote("" if part is None else str(part), "") for part in parts)


def from_name(text: str) -> dict[str, Any]:
    """Return the identity at the start of text, as :func:`name_of` writes it; empty if none is.

    Examples
    --------
    >>> from_name("12+a%2Fb++pid%3A%5B1%5D+x")
    {'pid': 12, 'host': 'a/b', 'started': None, 'space': 'pid:[1]'}
    >>> from_name("ab12")
    {}
    """
    pid, *parts = text.split("+")
    if len(parts) < 3 or not pid.isdigit():
        return {}
    host, started, space = (unquote(part) or None for part in parts[:3])
    return {"pid": int(pid), "host": host, "started": started, "space": space}


def is_dead(holder: dict[str, Any]) -> bool:
    """Return whether a holder is known to be dead; False for processes invisible from here.

    Invisible are those of other hosts, PID namespaces and boots: another machine may have the same
    host name. A process of another user may be hidden in ``/proc``.
    """
    here = socket.gethostname(), pid_namespace()
    if not holder or here[1] is None or (holder["host"], holder["space"]) != here:
        return False
    if holder["started"] is not None and holder["started"].partition(" ")[0] != _boot():
        return False
    if holder["started"] is None or (fields := _fields(holder["pid"])) is None:
        import psutil  # help, which loads this file, does without it

        pid = holder["pid"]
        return pid > 0 and (pid > _LAST_PID or not psutil.pid_exists(pid))
    return _start(fields) != holder["started"]


def start_time(pid: int) -> str | None:
    """Return the start time of a process (Linux: boot id and clock ticks); None: unknown."""
    fields = _fields(pid)
    return None if fields is None else _start(fields)


def _fields(pid: int) -> list[str] | None:
    """Return what ``/proc`` says of a process, from its state on; None: it is hidden, or gone."""
    try:
        # The program's name, which may contain any characters, ends at the last parenthesis.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() or None
    except (OSError, ValueError):
        return None


def _start(fields: list[str]) -> str | None:
    """Return the start time in the fields of a process; None for zombies, which hold no locks."""
    boot = _boot()
    return None if boot is None or fields[0] in "ZX" else f"{boot} {fields[19]}"


def _boot() -> str | None:
    """Return the identifier of the current boot of this machine (Linux); None elsewhere."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def pid_namespace() -> str | None:
    """Return the PID namespace of this process (Linux), elsewhere the machine; None: unknown.

    Elsewhere nothing but the address of its network card tells a machine from others of its name.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        import uuid

        address = uuid.getnode()
        return None if address & _RANDOM else f"machine:{address:012x}"


def process_number() -> int | None:
    """Return the number of this process if it was started by torchrun, and otherwise None.

    Examples
    --------
    >>> process_number() is None
    True
    """
    rank = os.environ.get("RANK")
    return int(rank) if rank is not None and "WORLD_SIZE" in os.environ else None


def process_count() -> int:
    """Return the number of processes that were started together.

    Examples
    --------
    >>> process_count()
    1
    """
    return 1 if process_number() is None else int(os.environ["WORLD_SIZE"])


def local_process_number() -> int:
    """Return the number of this process among those of its machine.

    Examples
    --------
    >>> local_process_number()
    0
    """
    return int(os.environ.get("LOCAL_RANK", "0"))


def processes_on_machine() -> int:
    """Return the number of processes on this machine that were started together.

    Examples
    --------
    >>> processes_on_machine()
    1
    """
    return 1 if process_number() is None else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def torchrun_holds_store() -> bool:
    """Return whether torchrun holds the key-value store, and not the process of rank 0.

    Examples
    --------
    >>> torchrun_holds_store()
    False
    """
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


METHOD = "forkserver" if sys.platform.startswith("linux") else "spawn"
"""The start method of :mod:`multiprocessing`: the first one where the system has it."""


def prepare_fork() -> None:
    """Start to import the library in the process from which others are forked."""
    if METHOD == "forkserver":
        from multiprocessing import forkserver, get_context, resource_tracker

        get_context(METHOD).set_forkserver_preload(["topofl.runs.execute"])
        resource_tracker.ensure_running()  # otherwise the next line starts it, and lifts the block
        # Ctrl-C is blocked also in the process that starts, which would end with a traceback by it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
