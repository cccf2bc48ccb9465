"""Whether a process is known to be dead, and what torchrun tells the processes that it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from topofl._support import processes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def hide(monkeypatch, *paths):
    """Let some files of /proc, or all, be invisible."""
    read, link = Path.read_text, os.readlink

    def checked(path):
        if str(path).startswith(paths):
            raise FileNotFoundError(str(path))

    monkeypatch.setattr(Path, "read_text", lambda self, *a: checked(self) or read(self, *a))
    monkeypatch.setattr(os, "readlink", lambda path: checked(path) or link(path))


def test_a_process_that_proc_hides_lives(monkeypatch, ended):
    parent = os.getppid()
    mine = processes.identity()
    other = mine | {"pid": parent, "started": processes.start_time(parent)}
    hide(monkeypatch, f"/proc/{parent}/", f"/proc/{ended}/")
    assert not processes.is_dead(other)
    assert processes.is_dead(other | {"pid": ended})

    def refuses(pid, signal):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuses)
    assert not processes.is_dead(other)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_zombie_and_another_process_of_its_number_are_dead():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = processes.identity() | {"pid": process.pid, "started": processes.start_time(process.pid)}
    assert not processes.is_dead(held)
    assert processes.is_dead(held | {"started": f"{processes._boot()} 1"})
    assert process.stdin
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert processes.is_dead(held)
    process.wait()


def test_without_proc_only_processes_of_this_machine_are_known_to_be_dead(monkeypatch, ended):
    hide(monkeypatch, "/proc/")
    monkeypatch.setattr("uuid.getnode", lambda: 0x0242AC110002)
    held = processes.identity() | {"pid": ended}
    assert held["started"] is None
    assert processes.is_dead(held)
    assert not processes.is_dead(held | {"pid": os.getpid()})
    assert not processes.is_dead(held | {"space": "machine:0242ac110003"})
    assert not processes.is_dead(held | {"space": None})
    monkeypatch.setattr("uuid.getnode", lambda: 1 << 40 | 7)  # it found no card
    assert not processes.is_dead(processes.identity() | {"pid": ended})


def test_variables_of_torchrun_are_read(monkeypatch):
    given = {"RANK": 9, "WORLD_SIZE": 12, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert (processes.process_number(), processes.process_count()) == (9, 12)
    assert (processes.local_process_number(), processes.processes_on_machine()) == (1, 4)
    assert processes.torchrun_holds_store()


def test_without_torchrun_there_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    assert processes.process_number() is None
    assert (
        processes.process_count(),
        processes.local_process_number(),
        processes.processes_on_machine(),
    ) == (1, 0, 1)
    assert not processes.torchrun_holds_store()
