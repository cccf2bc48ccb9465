"""A finished run, and the checkpoints of one that failed."""

import pytest

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.store.helpers import arguments
from topofl.engine.checkpoint import rounds_in


@pytest.fixture(scope="module")
def whole():
    return killed.trained(arguments())


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of rounds 4 and 6 of 7: the last one is not there yet."""
    folder = tmp_path / "checkpoints"
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(folder, every=2), **arguments()),
            callbacks=[lambda e: 1 / (e.round - 6)],
        )
    assert rounds_in(folder) == [4, 6]
    return folder
