"""A user's modules, and an installed package with entry points."""

import pytest

from tests.rows.user_code import installed_modules


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Make modules on the path: a valid one, and some that cannot be imported."""
    with installed_modules(tmp_path, monkeypatch, package=False) as folder:
        yield folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make these modules, and a package with entry points in all groups, some of them broken."""
    with installed_modules(tmp_path, monkeypatch) as folder:
        yield folder
