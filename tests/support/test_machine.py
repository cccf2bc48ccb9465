"""Descriptions of machines from the information of the system."""

import os

import pytest

from topofl._support import machine

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


def test_systems_without_cpuinfo(cpuinfo):
    assert not cpuinfo.exists()
    assert machine.has_fast_bf16("cpu") is False
    assert machine.emulates_bf16("cpu") is False
    assert isinstance(machine.processor(), str)


def test_unknown_devices_have_no_fast_bf16(cpuinfo):
    cpuinfo.write_text(NEW)
    assert machine.has_fast_bf16("meta") is False


@pytest.mark.parametrize(("threads", "text"), [(1, "1 thread, torch "), (2, "2 threads, torch ")])
def test_software_is_described(threads, text, monkeypatch):
    monkeypatch.setattr(machine.torch, "get_num_threads", lambda: threads)
    assert machine.describe_software().startswith(text)


def test_total_memory_is_plausible():
    assert machine.total_memory() > 1 << 28
