"""A finished run, and the checkpoints of one that failed."""

import pytest

from tests.rows.stored import stopped, trained
from topofl.engine.checkpoint import rounds_in


@pytest.fixture(scope="module")
def whole():
    return trained()


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of rounds 4 and 6 of 7: the last one is not there yet."""
    stopped(tmp_path / "checkpoints", 6)
    assert rounds_in(tmp_path / "checkpoints") == [4, 6]
    return tmp_path / "checkpoints"
