"""The configuration of a small run, and two runs of it."""

import pytest

from tests.cli.commands import TEXT
from topofl.cli import main


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def runs(toml):
    assert main(["run", toml, "--out", "a"]) == 0
    assert main(["run", toml, "--out", "b", "--set", "algorithm=local_only,lr=0.5"]) == 0
    return ["a", "b"]
