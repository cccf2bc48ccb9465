"""Identities of processes, by which others find out whether they have ended."""

import os
import socket
from pathlib import Path
from typing import Any

__all__ = ["identity", "is_dead", "is_of_this_boot", "pid_namespace", "start_time"]


def identity() -> dict[str, Any]:
    """Return values that distinguish this process from all others."""
    pid = os.getpid()
    return {
        "pid": pid,
        "host": socket.gethostname(),
        "started": start_time(pid),
        "space": pid_namespace(),
    }


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
