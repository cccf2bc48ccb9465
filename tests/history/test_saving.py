"""Saving histories: folders are complete, and nothing else is replaced."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import topofl
from tests.history.helpers import assert_same
from topofl._support import files, processes
from topofl.history import OURS


def test_loading_returns_the_saved_history(history, tmp_path):
    path = history.save(tmp_path / "deep" / "run")
    assert sorted(p.name for p in path.iterdir()) == ["arrays.npz", "meta.json", "rounds.jsonl"]
    assert_same(topofl.History.load(path), history)


def test_saving_replaces_an_older_history_and_nothing_else(history, tmp_path):
    path = tmp_path / "run"
    history.save(path)
    history.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run"], "no partial folders are left"


@pytest.mark.parametrize("own", [[], ["meta.json"], ["meta.json", "rounds.jsonl", "arrays.npz"]])
@pytest.mark.parametrize("other", ["chapter1.tex", "figures/accuracy.pdf"])
def test_a_folder_with_other_contents_is_replaced_only_with_overwrite(
    history, tmp_path, own, other
):
    project = history.save(tmp_path / "project")
    for name in {"meta.json", "rounds.jsonl", "arrays.npz"} - set(own):
        (project / name).unlink()
    (project / other).parent.mkdir(exist_ok=True)
    (project / other).write_text("years of work")
    before = sorted(path.name for path in project.rglob("*"))
    with pytest.raises(
        FileExistsError, match=rf"project also contains {other.partition('/')[0]}; .*overwrite=True"
    ):
        history.save(project)
    assert sorted(path.name for path in project.rglob("*")) == before
    history.save(project, overwrite=True)
    assert sorted(path.name for path in project.iterdir()) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
    ]


def test_a_folder_with_only_a_meta_json_is_not_replaced(history, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "meta.json").write_text("{}")
    with pytest.raises(
        FileExistsError, match=r"`path` must be new or contain .*package has no rounds\.jsonl"
    ):
        history.save(tmp_path / "package")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match=r"got the file .*file; name another path"):
        history.save(tmp_path / "file", overwrite=True)
    with pytest.raises(ValueError, match=r"`path` must be the path of a folder, got an empty text"):
        history.save("")
    with pytest.raises(ValueError, match=r"`path` must be the path of a folder, got an empty text"):
        topofl.History.load("")


def test_an_empty_folder_can_be_used_and_a_link_stays_a_link(history, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for _ in range(2):
        assert history.save(tmp_path / "link") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert_same(topofl.History.load(tmp_path / "empty"), history)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link"]


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
    assert_same(topofl.History.load(path), history)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


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
        with pytest.raises(
            FileExistsError,
            match=r"run\.topofl-older is needed .* did not write; move it elsewhere$",
        ):
            history.save(tmp_path / "run")
    else:
        history.save(tmp_path / "run")
    assert_same(topofl.History.load(tmp_path / "run"), history)
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "run"])
    assert {path.read_text() for path in (tmp_path / name).iterdir()} == {"years of work"}


def test_overwriting_removes_all_earlier_contents(way, history, tmp_path):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "a.pdf").write_text("x")
    history.save(tmp_path / "run", overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
        "run",
    ]


def test_a_backup_folder_with_other_files_is_not_loaded(history, tmp_path):
    history.save(tmp_path / ".run.topofl-older")
    assert_same(topofl.History.load(tmp_path / "run"), history)
    (tmp_path / ".run.topofl-older" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileNotFoundError, match=r"meta\.json is missing"):
        topofl.History.load(tmp_path / "run")


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
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["2", "3", "4"]


def test_the_current_folder_and_those_above_it_are_not_replaced(history, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for place in (".", "..", "../b", tmp_path / "a"):
        for overwrite in (False, True):
            with pytest.raises(
                ValueError, match=r"`path` must not be the current folder or one above it, .*name a"
            ):
                history.save(place, overwrite=overwrite)
    assert Path.cwd() == tmp_path / "a" / "b"
    assert_same(topofl.History.load(history.save("c")), history)


def test_absolute_paths_work_without_a_current_folder(history, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for _ in range(2):
        history.save(tmp_path / "run")
    assert_same(topofl.History.load(tmp_path / "run"), history)


def test_circular_links_are_refused_and_long_names_accepted(way, history, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for call in (history.save, topofl.History.load):
        with pytest.raises(
            ValueError,
            match=r"`path` must be a folder, got .*/a', a link that leads back to itself; rem",
        ):
            call(tmp_path / "a")
    for _ in range(2):
        history.save(tmp_path / ("x" * 255))
    assert_same(topofl.History.load(tmp_path / ("x" * 255)), history)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "x" * 255]


WAYS = ["exchanged", "portable"]


@pytest.fixture(scope="module")
def verdicts():
    """Return what one process found, in both ways, since it takes seconds to start."""
    command = [sys.executable, "-m", "tests.history.killed_saves", *WAYS]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_one_of_both_histories_survives_a_kill_at_any_moment(verdicts, way):
    assert verdicts[way]["wrong"] == {}
    assert verdicts[way]["killed"] >= 15, "or nothing was looked at"


KILLED = """
import os, sys
import numpy as np
from tests.history.killed_saves import history
np.savez_compressed = lambda *args, **arrays: os._exit(9)
history("new").save(sys.argv[1])
"""


@pytest.mark.slow
def test_the_next_save_or_load_removes_what_a_killed_save_left(history, tmp_path):
    def leave(path):
        command = [sys.executable, "-c", KILLED, str(path)]
        done = subprocess.run(command, check=False, cwd=Path(__file__).parents[2])
        assert done.returncode == 9

    def names():
        return sorted(path.name for path in tmp_path.iterdir())

    path = tmp_path / "run"
    leave(path)
    (left,) = names()
    assert left.startswith(".run.topofl-new-")
    with pytest.raises(FileNotFoundError, match=r"meta\.json is missing"):
        topofl.History.load(path)
    assert names() == [], "nothing was saved yet, and what was begun is of no use"
    leave(path)
    history.save(path)
    assert names() == ["run"]
    leave(path)
    assert len(names()) == 2
    assert_same(topofl.History.load(path), history)
    assert names() == ["run"]
    long = tmp_path / ("y" * 255)
    leave(long)
    history.save(long)
    assert names() == ["run", long.name]


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
    topofl.History.load(tmp_path / "run")
    assert left.exists(), "its process lives"
    process.communicate(b"\n")
    topofl.History.load(tmp_path / "run")
    assert left.exists() == bool(owner), "only what is known to be dead is removed"
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert not left.exists()


@pytest.mark.parametrize(
    "name", ["arrays", "format", "matrices", "n_rounds", "round_columns", "sha256"]
)
def test_entries_of_users_are_not_replaced_by_others(history, tmp_path, name):
    noted = replace(history, meta={**history.meta, name: "mine"})
    with pytest.raises(ValueError, match=f"`meta` must not have .*'{name}'; name them otherwise"):
        noted.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    noted = replace(history, meta={**history.meta, f"my_{name}": "mine"})
    assert_same(topofl.History.load(noted.save(tmp_path / "run")), noted)


def test_jsonl_has_one_object_per_round(history, tmp_path):
    lines = (history.save(tmp_path / "run") / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["round"] for record in records] == list(range(8))
    assert [record["round"] for record in records if "accuracy_mean" in record] == [0, 3, 6, 7]
    assert records[3]["accuracy_min"] == history["accuracy"][1].min()


def test_lines_are_strict_json_and_the_folder_has_default_permissions(history, tmp_path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    (tmp_path / "other").mkdir()
    path = history.save(tmp_path / "run")
    for line in (path / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_run_folder_is_loaded_by_its_own_name(history, tmp_path):
    history.save(tmp_path / "run" / "history")
    assert_same(topofl.History.load(tmp_path / "run"), history)
