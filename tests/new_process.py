"""Modules of tests that compute in a new process, so that they may fork and kill."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

LOCAL = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "CUDA_VISIBLE_DEVICES": "",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Variables of processes that compute on one thread and listen on the loopback interface."""


def output_of(*words, timeout):
    """Return what ``python WORDS`` prints, and fail with its errors."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=ROOT,
        env=os.environ | LOCAL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def results_of(module, timeout):
    """Return the JSON that a module prints."""
    return json.loads(output_of("-m", module, timeout=timeout))
