"""Folders of rows are written, removed and moved with the two files of their checkpoint."""

import os

import pytest
from topofl.engine.store import writing
from topofl.engine.store.rows import checksum_of_file
from topofl.engine.store.writing import move_all, save

from topofl.engine.checkpoint import newest_checkpoint, newest_round, rows_path

MARKER = {"rounds": 9, "versions": {}, "device": "cpu", "asked": ["auto", "auto"], "run": {}}


def saved(folder, t, content):
    """Write a checkpoint with a folder of rows."""
    folder.mkdir(exist_ok=True)
    rows = rows_path(folder, t)
    rows.mkdir()
    (rows / "__0_0.distcp").write_text(content)
    checksums = {"__0_0.distcp": checksum_of_file(rows / "__0_0.distcp")}
    return save(folder, t, {"content": content}, MARKER, checksums)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def files_of(*rounds):
    return [f"state-{t:08d}.{suffix}" for t in rounds for suffix in ("json", "pt", "rows")]


def failing(monkeypatch, module, name, suffix):
    """Let a function fail once its last argument is a path with a suffix."""
    function = getattr(module, name)

    def fail(*paths):
        if str(paths[-1]).endswith(suffix):
            raise OSError("no space")
        return function(*paths)

    monkeypatch.setattr(module, name, fail)


def test_the_last_two_are_kept_with_their_rows(tmp_path):
    sizes = [saved(tmp_path, t, "rows")[1] for t in (1, 2, 3)]
    assert names(tmp_path) == files_of(2, 3)
    assert sizes[-1] == (tmp_path / "state-00000003.pt").stat().st_size + len("rows")


@pytest.mark.parametrize("suffix", [".pt", ".json"])
def test_nothing_remains_of_a_checkpoint_that_cannot_be_written(tmp_path, monkeypatch, suffix):
    saved(tmp_path, 1, "before")
    failing(monkeypatch, os, "replace", suffix)
    with pytest.raises(OSError, match="no space"):
        saved(tmp_path, 2, "rows")
    assert names(tmp_path) == files_of(1)


def test_a_checkpoint_with_its_marker_remains(tmp_path, monkeypatch):
    sync, calls = writing.sync_folder, []

    def fail_later(folder):
        calls.append(folder)
        if len(calls) == 2:  # after the marker is in place
            raise OSError("no space")
        sync(folder)

    monkeypatch.setattr(writing, "sync_folder", fail_later)
    with pytest.raises(OSError, match="no space"):
        saved(tmp_path, 2, "rows")
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.round == 2


def test_damaged_rows_end_when_one_process_writes_the_round_again(tmp_path):
    saved(tmp_path, 2, "rows")
    save(tmp_path, 2, {}, MARKER)
    assert names(tmp_path) == ["state-00000002.json", "state-00000002.pt"]


@pytest.mark.parametrize("older", [True, False], ids=["over rows", "over nothing"])
@pytest.mark.parametrize("stop", range(7))
def test_a_move_that_is_killed_is_completed_by_the_next(tmp_path, monkeypatch, stop, older):
    source, target = tmp_path / "source", tmp_path / "target"
    if older:
        saved(target, 2, "of another run")
    for t in (1, 2):
        saved(source, t, f"rows {t}")
    replace, calls = os.replace, []

    def killed(*paths):
        calls.append(paths)
        if len(calls) > stop:
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(os, "replace", killed)
    if stop < 6:
        with pytest.raises(KeyboardInterrupt):
            move_all(source, target)
    monkeypatch.setattr(os, "replace", replace)
    move_all(source, target)
    assert names(source) == []
    assert names(target) in (files_of(1, 2), files_of(2))  # at least the newest
    assert newest_round(target) == 2
    assert (rows_path(target, 2) / "__0_0.distcp").read_text() == "rows 2"


def test_rows_of_another_run_do_not_remain_in_the_target(tmp_path):
    saved(tmp_path / "target", 2, "of another run")
    (tmp_path / "source").mkdir()
    save(tmp_path / "source", 2, {}, MARKER)
    move_all(tmp_path / "source", tmp_path / "target")
    assert names(tmp_path / "target") == ["state-00000002.json", "state-00000002.pt"]
