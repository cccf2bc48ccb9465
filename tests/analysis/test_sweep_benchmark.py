"""The measurement of sweeps notices what it must rule out."""

import subprocess
import sys

import pytest

from analysis.sweep_benchmark import Repeats, _finish, kills
from topofl.runs.work import RUNNING, claimed_folder

KEYS = ["0" * 16, "1" * 16]


def test_beginning_a_finished_run_is_noticed(tmp_path):
    (tmp_path / KEYS[0]).mkdir()
    (tmp_path / KEYS[0] / "run.json").write_text("{}")
    left = tmp_path / RUNNING / f"{KEYS[0]}+1+a+b+c"  # of a process that was killed after storing
    left.mkdir(parents=True)
    again = Repeats(tmp_path)
    claimed_folder(tmp_path, KEYS[1])
    again.look()
    assert again.found == set()
    left.rmdir()
    mine = claimed_folder(tmp_path, KEYS[0])
    sleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    again.watch(sleep, None)
    assert again.found == {mine.name}


def test_a_sweep_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="the sweep ended with 3"):
        _finish(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))


@pytest.mark.slow
def test_a_killed_sweep_repeats_nothing():
    assert kills(2, 20, 1) | {"killed": 0} == {"killed": 0, "repeated": 0, "equal": True}
