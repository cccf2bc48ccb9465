"""Damaged files of every kind are read or refused by name: no crash, no hang, no lack of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz_files import KINDS

COUNT = int(os.environ.get("TOPOFL_FUZZ_FILES", "420"))


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the memory of a process is not limited here"
)
@pytest.mark.slow
def test_damaged_files_are_read_or_refused_by_name_within_little_memory(tmp_path):
    command = [sys.executable, "-m", "tests.fuzz_files", str(tmp_path), str(COUNT), "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == COUNT
    for one in said:
        assert one.get("read") or one["folder"] in one["message"], one
    for kind in KINDS:
        own = [one for one in said if one["kind"] == kind]
        assert any("message" in one for one in own)
    assert any("read" in one for one in said)
