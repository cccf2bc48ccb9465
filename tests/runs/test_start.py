"""Processes that end while they start, and interruptions before the library is there."""

import subprocess
import sys

import pytest

from tests.runs.conftest import BASE
from topofl.runs import RunStore, sweep

UNGUARDED = f"""
import topofl
topofl.sweep({BASE!r}, {{"algorithm.lr": [0.1, 0.2]}}, store="store", jobs=2, progress=False)
"""


def test_a_script_without_a_guard_is_told_so_and_stores_no_failures(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert 'put the call below `if __name__ == "__main__":`' in last
    store = RunStore(tmp_path / "store")
    assert (store.runs(), store.failures()) == ((), ())


def test_seeds_in_the_grid_are_not_replaced(tmp_path):
    with pytest.raises(ValueError, match=r"`grid` must be without 'run\.seed' where `seeds`"):
        sweep(BASE, {"run.seed": [1, 2]}, seeds=2, store=tmp_path)
    found = sweep(BASE, {"run.seed": [1, 2]}, seeds=1, vary=["data"], store=tmp_path)
    assert [run.settings["run.seed"] for run in found.runs] == [1, 2]
