"""Saving histories: folders are complete, and nothing else is replaced."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.history.helpers import assert_same
from topofl import History
from topofl._support import files, processes
from topofl.history import OURS

NAMES = ["arrays.npz", "meta.json", "rounds.jsonl"]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_loading_returns_the_saved_history(history, tmp_path):
    path = history.save(tmp_path / "deep" / "run" / "history")
    assert names_in(path) == NAMES
    for place in (path, path.parent):  # a folder of topofl run
        assert_same(History.load(place), history)
    (tmp_path / "other").mkdir()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    lines = (path / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [record["round"] for record in records] == list(range(8))
    assert [record["round"] for record in records if "accuracy_mean" in record] == [0, 3, 6, 7]
    assert records[3]["accuracy_min"] == history["accuracy"][1].min()


def test_an_empty_folder_can_be_used_and_a_link_stays_a_link(history, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for _ in range(2):
        assert history.save(tmp_path / "link") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert_same(History.load(tmp_path / "empty"), history)
    assert names_in(tmp_path) == ["empty", "link"]


@pytest.mark.parametrize("own", [[], ["meta.json"], NAMES])
def test_a_folder_with_other_contents_is_replaced_only_with_overwrite(history, tmp_path, own):
    project = history.save(tmp_path / "project")
    for name in {*NAMES} - {*own}:
        (project / name).unlink()
    (project / "figures").mkdir()
    (project / "figures" / "a.pdf").write_text("years of work")
    before = sorted(path.name for path in project.rglob("*"))
    with pytest.raises(FileExistsError, match=r"project also contains figures; .*overwrite=True"):
        history.save(project)
    assert sorted(path.name for path in project.rglob("*")) == before
    history.save(project, overwrite=True)
    assert names_in(project) == NAMES


def test_an_exchange_that_fails_leaves_the_older_history(history, tmp_path, monkeypatch):
    path = history.save(tmp_path / "run")
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange_names", lambda *_: False)
    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no"):
        history.save(path)
    assert_same(History.load(path), history)
    assert names_in(tmp_path) == ["run"]


@pytest.fixture(params=["exchanged", "portable"])
def way(request, monkeypatch):
    """Replace folders at once, where the system can, or by two renames."""
    if request.param == "portable":
        monkeypatch.setattr(files, "_exchange_names", lambda *_: False)
    return request.param


@pytest.mark.parametrize(
    "name", [".run.older", ".run.topofl-older", ".run.bak", ".run.topofl-new-12345678"]
)
def test_neighboring_folders_of_others_stay(way, history, tmp_path, name):
    (tmp_path / name).mkdir()
    for other in ("thesis.tex", "meta.json"):
        (tmp_path / name / other).write_text("years of work")
    history.save(tmp_path / "run")
    if (way, name) == ("portable", ".run.topofl-older"):
        message = r"run\.topofl-older is needed .* did not write; move it elsewhere$"
        with pytest.raises(FileExistsError, match=message):
            history.save(tmp_path / "run")
    else:
        history.save(tmp_path / "run", overwrite=True)
    assert_same(History.load(tmp_path / "run"), history)
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert names_in(tmp_path) == sorted([name, "run"])
    assert {path.read_text() for path in (tmp_path / name).iterdir()} == {"years of work"}


def test_a_backup_folder_with_other_files_is_not_loaded(history, tmp_path):
    history.save(tmp_path / ".run.topofl-older")
    assert_same(History.load(tmp_path / "run"), history)
    (tmp_path / ".run.topofl-older" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileNotFoundError, match=r"meta\.json is missing"):
        History.load(tmp_path / "run")


def test_leftovers_are_removed_only_if_they_contain_nothing_else(tmp_path):
    for k, names in enumerate(([], ["meta.json"], ["meta.json", "a"])):
        folder = tmp_path / f".run.topofl-new-{k}"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("x")
    (tmp_path / ".run.topofl-new-3").symlink_to(".run.topofl-new-2")
    (tmp_path / ".run.topofl-new-4").mkdir()
    (tmp_path / ".run.topofl-new-4" / "meta.json").symlink_to("../.run.topofl-new-2/a")
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert [name[-1] for name in names_in(tmp_path)] == ["2", "3", "4"]


def test_the_current_folder_and_those_above_it_are_not_replaced(history, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for place in (".", "..", "../b", tmp_path / "a"):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match=r"`path` must not be the current folder or one a"):
                history.save(place, overwrite=overwrite)
    assert Path.cwd() == tmp_path / "a" / "b"
    assert_same(History.load(history.save("c")), history)
    shutil.rmtree(tmp_path / "a" / "b")
    for _ in range(2):  # absolute paths work without a current folder
        history.save(tmp_path / "run")
    assert_same(History.load(tmp_path / "run"), history)


def test_long_names_are_accepted(way, history, tmp_path):
    for _ in range(2):
        history.save(tmp_path / ("x" * 255))
    assert_same(History.load(tmp_path / ("x" * 255)), history)
    assert names_in(tmp_path) == ["x" * 255]


@pytest.mark.parametrize(
    "owner", [{}, {"host": "elsewhere"}, {"host": "x/+% " * 60}, {"space": "pid:[1]"}]
)
def test_folders_of_processes_that_may_live_stay(history, tmp_path, monkeypatch, owner):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = processes.identity()
    other = mine | {"pid": process.pid, "started": processes.start_time(process.pid)}
    with monkeypatch.context() as patch:
        patch.setattr(files, "identity", lambda: other | owner)
        left = files.make_staging_folder(tmp_path / "run")
    history.save(tmp_path / "run")
    History.load(tmp_path / "run")
    assert left.exists(), "its process lives"
    process.communicate(b"\n")
    History.load(tmp_path / "run")
    assert left.exists() == bool(owner), "only what is known to be dead is removed"
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert not left.exists()
