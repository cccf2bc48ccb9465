"""Descriptions of machines, what is free by made-up files of the kernel, and what is given back."""

import gc
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from topofl._support import machine
from topofl._support.machine import free_memory, returning_freed_memory, watched_growth

NEW = "processor\t: 0\nmodel name\t: A Processor @ 3 GHz\nflags\t\t: fpu amx_bf16 sse2\n"
OLD = "processor\t: 0\nmodel name\t: Another: one\nflags\t\t: fpu bf16x sse2\n"


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "CPUINFO", path)
    return path


@pytest.mark.parametrize(
    ("text", "name", "fast"), [(NEW, "A Processor @ 3 GHz", True), (OLD, "Another: one", False)]
)
def test_processor_and_its_instructions(cpuinfo, text, name, fast):
    cpuinfo.write_text(text * 2)
    assert machine.processor() == name
    assert machine.machine().endswith(f", {name}, {os.cpu_count()} CPU cores")
    assert machine.has_fast_bf16() is fast
    assert machine.emulates_bf16() is not fast
    assert machine.has_fast_bf16("meta") is False


def test_systems_without_cpuinfo(cpuinfo):
    assert not cpuinfo.exists()
    assert machine.has_fast_bf16("cpu") is machine.emulates_bf16("cpu") is False
    assert isinstance(machine.processor(), str)
    assert machine.total_memory() > 1 << 28


@pytest.mark.parametrize(("threads", "text"), [(1, "1 thread, torch "), (2, "2 threads, torch ")])
def test_software_is_described(threads, text, monkeypatch):
    monkeypatch.setattr(machine.torch, "get_num_threads", lambda: threads)
    assert machine.describe_software().startswith(text)


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert machine.available_cores() == 1
    finally:
        os.sched_setaffinity(0, cores)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.available_cores() == os.cpu_count()


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    """Make 800 KiB available."""
    known = SimpleNamespace(available=800 * 1024, total=psutil.virtual_memory().total)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: known)


ALL, USED = 800 * 1024, {"memory.max": "9000\n", "memory.current": "5000\n"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, ALL),
        ({"memory.max": "max\n", "memory.current": "5\n"}, ALL),
        (USED, 4000),
        (USED | {"memory.stat": "anon 7\ninactive_file 600\n"}, 4600),
        (USED | {"memory.current": "9500\n"}, 0),
        (USED | {"memory.max": f"{2**50}\n"}, ALL),
    ],
)
@pytest.mark.parametrize("folder", ["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"])
def test_control_groups_limit_what_is_free(tmp_path, files, free, folder):
    write(tmp_path, {"proc/self/cgroup": "0::/a/b\n"})
    write(tmp_path, {f"{folder}/{name}": text for name, text in files.items()})
    assert free_memory("cpu", tmp_path) == free


def test_older_control_groups_limit_too(tmp_path):
    write(tmp_path, {"proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n0::/\n"})
    folder = tmp_path / "sys/fs/cgroup/memory/a"
    write(folder, {"memory.limit_in_bytes": "9000\n", "memory.usage_in_bytes": "1000\n"})
    assert free_memory("cpu", tmp_path) == 8000


def test_elsewhere_it_is_what_the_system_says_or_unknown(tmp_path):
    assert free_memory("cpu", tmp_path) == ALL
    assert free_memory("meta") is None


def test_memory_is_given_back_before_and_after_whatever_happens(monkeypatch):
    calls = []
    monkeypatch.setattr(machine, "return_freed_memory", lambda: calls.append(0))
    with pytest.raises(ZeroDivisionError), returning_freed_memory(True):
        calls.append(1 / (len(calls) - 1))
    with returning_freed_memory(False):
        pass
    assert calls == [0, 0]


def test_other_c_libraries_keep_their_memory(monkeypatch):
    monkeypatch.delattr(psutil, "heap_trim", raising=False)
    machine.return_freed_memory()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_freed_memory_leaves_the_process():
    """In a process of its own: another's heap grows and shrinks with what ran before."""
    program = """
import torch
from topofl._support.machine import returning_freed_memory, resident

with returning_freed_memory(True):
    blocks = [torch.ones(25_000) for _ in range(400)]  # 100 kB each, which glibc keeps
    top = [torch.ones(25_000) for _ in range(20)]  # while these lie above them
    held = resident()
    del blocks
print(held - resident())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 30_000_000


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_growth_is_noticed_although_it_passes_and_garbage_from_before_does_not_hide_it():
    rings = [[torch.ones(10_000_000)] for _ in range(3)]
    for ring in rings:
        ring.append(ring)  # pyright: ignore
    del rings, ring
    with watched_growth(True, interval=0.001) as growth:
        gc.collect()
        assert growth() < 30_000_000
        block = torch.ones(50_000_000)  # much more than other tests' memory that is freed meanwhile
        time.sleep(0.5)
        del block
    assert 150_000_000 <= growth() < 260_000_000
    assert all(thread.name != "topofl-memory" for thread in threading.enumerate())


def test_growth_is_unknown_where_it_is_not_wanted():
    with watched_growth(False) as growth:
        assert growth() is None
