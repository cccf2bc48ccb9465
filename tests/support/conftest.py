"""A user's modules and an installed package with entry points."""

import sys

import pytest

from tests.support.user_code import MINE, install


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Create modules on the path: a valid one, and some that cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("mine_", "raises_", "needs_", "stops_", "wrong_")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine_.py").write_text(MINE)
    (tmp_path / "raises_.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "needs_.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "stops_.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "wrong_.py").write_text("def f(:\n")
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def package(mine):
    """Create a package with entry points in all groups, some of them broken."""
    install(
        mine,
        "mypackage",
        """
        [topofl.topologies]
        spokes = mine_:wheel [extra]
        ring = mine_:wheel
        broken = raises_:f
        absent = mine_:whee
        [topofl.algorithms]
        slow = mine_:slow_sgd
        [topofl.data]
        my_digits = mine_:digits
        my_split = mine_:split
        [topofl.metrics]
        heavy = mine_:heaviest
        slem = mine_:heaviest
        """,
    )
    return mine
