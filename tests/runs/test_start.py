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


def test_the_best_point_and_the_number_of_trained_runs(tmp_path):
    grid = {"algorithm.lr": [1e-6, 0.1, 1e38]}
    base = {**BASE, "run": {"rounds": 4}}
    found = sweep(base, grid, seeds=2, store=tmp_path)
    assert (len(found.runs), found.trained) == (4, 6)
    best = found.best()
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in found.runs]
    assert best.values == {"algorithm.lr": 0.1}
    assert (best.value, best.seeds) == (pytest.approx(sum(finals[2:]) / 2), 2)
    assert found.best("loss").values == {"algorithm.lr": 0.1}
    assert found.best("loss", low_is_good=False).values == {"algorithm.lr": 1e-6}
    assert sweep(base, grid, seeds=2, store=tmp_path).trained == 0
    with pytest.raises(ValueError, match="`column` must be"):
        found.best("acuracy")
