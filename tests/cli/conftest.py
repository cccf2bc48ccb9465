"""The configuration of a small run, two runs of it, and functions that run command lines."""

from functools import partial

import pytest

from tests.rows.commands import TEXT, refusal, rows_of
from tests.rows.commands import shell as run_in_shell


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def shell(capsys):
    """Return a function that runs a command line, checks its exit code, and gives its output."""
    return partial(run_in_shell, capsys)


@pytest.fixture
def fails(capsys):
    """Return a function that runs a command line that must fail, and gives its error."""
    return partial(refusal, capsys)


@pytest.fixture
def rows(shell):
    """Return a function that gives the rows in JSON that a command line prints."""
    return lambda line: rows_of(shell(f"{line} --json").out)


@pytest.fixture
def runs(toml, shell):
    shell("run small.toml --out a")
    shell("run small.toml --out b --set algorithm=local_only,lr=0.5")
    return ["a", "b"]
