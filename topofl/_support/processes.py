"""Identities of processes, by which others find out whether they have ended."""

import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

__all__ = [
    "from_name",
    "identity",
    "is_dead",
    "is_of_this_boot",
    "name_of",
    "pid_namespace",
    "start_time",
]


def identity() -> dict[str, Any]:
    """Return values that distinguish this process from all others."""
    pid = os.getpid()
    return {
        "pid": pid,
        "host": socket.gethostname(),
        "started": start_time(pid),
        "space": pid_namespace(),
    }


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
    host name.
    """
    if not holder or (holder["host"], holder["space"]) != (socket.gethostname(), pid_namespace()):
        return False
    if holder["started"] is not None:
        return is_of_this_boot(holder) and start_time(holder["pid"]) != holder["started"]
    if os.name != "posix" or holder["pid"] <= 0:
        return False
    try:
        os.kill(holder["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it runs as another user
    return False


def is_of_this_boot(holder: dict[str, Any]) -> bool:
    """Return whether a holder was started since this machine was; True if that is unknown."""
    return holder["started"] is None or holder["started"].partition(" ")[0] == _boot()


def start_time(pid: int) -> str | None:
    """Return the start time of a process (Linux: boot id and clock ticks); None: unknown."""
    boot = _boot()
    if boot is None:
        return None
    try:
        # The program's name, which may contain any characters, ends at the last parenthesis; ticks
        # are the 22nd field.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else f"{boot} {fields[18]}"  # zombies hold no locks


def _boot() -> str | None:
    """Return the identifier of the current boot of this machine (Linux); None elsewhere."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def pid_namespace() -> str | None:
    """Return the PID namespace of this process (Linux); None elsewhere."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
