"""``topofl runs`` on the folder of one run, and on folders that also hold other files."""

import json
import shutil

import pytest

from tests.cli.commands import fails
from topofl.cli import main

BASE = """
topology = "ring"
algorithm = "dsgd,lr=0.1"
[data]
name = "digits"
n = 4
seed = 0
[run]
rounds = 2
seed = 0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """Return a folder with a configuration and the folder of a run, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(BASE)
    assert main(["run", "base.toml", "--out", "one"]) == 0
    capsys.readouterr()
    return tmp_path


def keys(capsys, place):
    assert main(["runs", str(place), "--json"]) == 0
    return [row["key"] for row in json.loads(capsys.readouterr().out)]


def test_the_folder_of_one_run_lists_that_run(folder, capsys, monkeypatch):
    assert keys(capsys, folder) == keys(capsys, "one") == ["one"]
    monkeypatch.chdir(folder / "one")
    assert keys(capsys, ".") == ["one"]
    shutil.rmtree("history")
    (folder / "one" / "run.json").unlink()
    assert keys(capsys, ".") == ["one"]
    main(["runs", "."])
    assert "1 not finished" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_a_damaged_record_among_other_files_is_told_with_what_trains_the_run_again(folder, capsys):
    (folder / "one" / "run.json").write_text("{")
    assert main(["runs", ".", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "move one/config.toml elsewhere, remove the folder one, and run" in captured.err
    assert "--remove" not in captured.err
    (folder / "one" / "config.toml").rename(folder / "config.toml")
    shutil.rmtree("one")
    assert main(["run", "config.toml", "--out", "one"]) == 0
    capsys.readouterr()
    assert keys(capsys, ".") == ["one"]


def test_other_settings_of_a_finished_run_are_refused_before_they_are_checked(folder, capsys):
    line = fails(capsys, 2, "resume", "one", "--set", "data.n=9")
    assert "one is finished, so only `--set run.rounds=N` is allowed, got ['data.n=9']" in line


def test_a_folder_without_runs_is_refused(folder, capsys):
    shutil.rmtree("one")
    assert "must be a store of runs or an empty folder" in fails(capsys, 2, "runs", ".")
