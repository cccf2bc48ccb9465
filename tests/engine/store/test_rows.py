"""Checkpoints whose rows several ranks have written are written, removed, moved and read."""

import os

import numpy as np
import pytest
import torch

from topofl._support import arrays
from topofl.engine import checkpoint
from topofl.engine.checkpoint import (
    move_all,
    newest_checkpoint,
    newest_round,
    write_checkpoint,
)
from topofl.engine.ranks import one_process

MARKER = {"rounds": 9, "versions": {}, "device": "cpu", "asked": ["auto", "auto"], "run": {}}
OWNER = np.array([0, 1, 2, 1, 0, 1])
FILES = ["marker.json", "rows-0.safetensors", "shared.safetensors"]


def one_rank(n):
    return one_process(n, torch.device("cpu"))


def saved(folder, t, content=0.0):
    """Write a checkpoint of one rank."""
    folder.mkdir(exist_ok=True)
    rows = {"models": torch.full((6, 3), content)}
    return write_checkpoint(folder, t, lambda: {"phases": {}}, lambda: rows, MARKER, one_rank(6))


def saved_by_three(folder):
    """Write a checkpoint as three ranks do, and return its models (6, 5)."""
    models = torch.arange(30.0).view(6, 5)
    place = checkpoint.round_path(folder, 2)
    place.mkdir(parents=True)
    for rank in range(3):
        own = {"models": models[rank == OWNER], "mass": torch.ones(int((rank == OWNER).sum()))}
        arrays.write_tensors(place / f"rows-{rank}.safetensors", own, {})
    shared = {"owner": torch.from_numpy(OWNER)}
    arrays.write_tensors(place / "shared.safetensors", shared, {"values": "{}"})
    files = {f"rows-{rank}.safetensors": "" for rank in range(3)}
    return models, checkpoint.Checkpoint(place, {"files": files})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rounds(*ts):
    return [f"round-{t:08d}" for t in ts]


@pytest.mark.parametrize("block", [1, 24, 2**26])
@pytest.mark.parametrize("nodes", [[0, 1, 2, 3, 4, 5], [1, 4], [2], [3, 5]])
def test_any_nodes_are_read_in_blocks(tmp_path, monkeypatch, block, nodes):
    monkeypatch.setattr(checkpoint, "BLOCK", block)
    models, found = saved_by_three(tmp_path)
    rows = found.state()["models"]
    own = torch.zeros(len(nodes), 5)
    rows.copy_to(own, np.array(nodes))
    torch.testing.assert_close(own, models[nodes], rtol=0, atol=0)
    torch.testing.assert_close(rows.of(np.array(nodes)), models[nodes], rtol=0, atol=0)


def test_rows_that_a_rank_lacks_are_an_error(tmp_path):
    _, found = saved_by_three(tmp_path)
    arrays.write_tensors(found.path / "rows-1.safetensors", {"models": torch.zeros(2, 5)}, {})
    with pytest.raises(ValueError, match="3 rows of rank 1 are needed, got 2"):
        found.state()["models"].of(np.arange(6))


def test_the_last_two_are_kept(tmp_path):
    sizes = [saved(tmp_path, t)[1] for t in (1, 2, 3)]
    assert names(tmp_path) == rounds(2, 3)
    assert names(tmp_path / "round-00000003") == FILES
    files = (tmp_path / "round-00000003").iterdir()
    assert sizes[-1] == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("name", ["write_tensors", "_write_marker"])
def test_nothing_remains_of_a_checkpoint_that_cannot_be_written(tmp_path, monkeypatch, name):
    def fail(*_):
        raise OSError("no space")

    saved(tmp_path, 1)
    monkeypatch.setattr(checkpoint, name, fail)
    with pytest.raises(OSError, match="no space"):
        saved(tmp_path, 2)
    assert names(tmp_path) == rounds(1)


def test_a_checkpoint_with_its_name_remains(tmp_path, monkeypatch):
    sync, calls = checkpoint.sync_folder, []

    def fail_later(folder):
        calls.append(folder)
        if len(calls) == 2:  # after it has its name
            raise OSError("no space")
        sync(folder)

    monkeypatch.setattr(checkpoint, "sync_folder", fail_later)
    with pytest.raises(OSError, match="no space"):
        saved(tmp_path, 2)
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.round == 2


def test_a_damaged_one_is_written_again(tmp_path):
    saved(tmp_path, 2)
    place = tmp_path / "round-00000002"
    (place / "rows-1.safetensors").write_bytes(b"of another rank")
    (place / "marker.json").unlink()
    saved(tmp_path, 2)
    assert names(place) == FILES
    assert newest_checkpoint(tmp_path) is not None


@pytest.mark.parametrize("older", [True, False], ids=["over one", "over nothing"])
@pytest.mark.parametrize("stop", range(4))
def test_a_move_that_is_killed_is_completed_by_the_next(tmp_path, monkeypatch, stop, older):
    source, target = tmp_path / "source", tmp_path / "target"
    if older:
        saved(target, 2, content=9.0)
    for t in (1, 2):
        saved(source, t, content=float(t))
    replace, calls = os.replace, []

    def killed(*paths):
        calls.append(paths)
        if len(calls) > stop:
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(os, "replace", killed)
    if stop < 2 + older:
        with pytest.raises(KeyboardInterrupt):
            move_all(source, target)
    monkeypatch.setattr(os, "replace", replace)
    move_all(source, target)
    assert names(source) == []
    assert names(target) in (rounds(1, 2), rounds(2))  # at least the newest
    assert newest_round(target) == 2
    found = newest_checkpoint(target)
    assert found is not None
    assert found.state()["models"].of(np.arange(6)).unique().tolist() == [2.0]


def test_a_move_that_fails_leaves_both_folders_as_they_were(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    saved(target, 2, content=9.0)
    for t in (1, 2):
        saved(source, t)
    replace = os.replace

    def fail(path, other):
        if path == source / "round-00000002":
            raise OSError("no space")
        replace(path, other)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        move_all(source, target)
    assert names(source) == rounds(1, 2)
    assert names(target) == rounds(2)
