"""A tiny sweep, and its store."""

from pathlib import Path

import pytest

from topofl.runs import sweep

BASE = {
    "data": {"name": "digits", "n": 4},
    "topology": "ring",
    "algorithm": "dsgd,lr=0.1",
    "run": {"rounds": 2},
}
GRID = {"topology": ["ring", "star"], "algorithm.lr": [0.1, 0.5]}


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the eight runs of a sweep, which tests must not change."""
    folder = tmp_path_factory.mktemp("stored") / "runs"
    sweep(BASE, GRID, seeds=2, store=folder, progress=False)
    return folder
