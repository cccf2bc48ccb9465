"""Checkpoints: damaged ones are skipped; they are written, removed, moved and read by rows."""

import json
import os
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.history.helpers import assert_same
from tests.rows.stored import sign_checkpoint, trained, write_rows
from topofl._support import arrays, machine
from topofl._version import RESULTS
from topofl.engine import checkpoint
from topofl.engine.checkpoint import move_all, newest_checkpoint, rounds_in, write_checkpoint
from topofl.engine.fingerprint import RESULTS_ENTRY
from topofl.engine.ranks import one_process

FILES = ["marker.json", "rows-0.safetensors", "shared.safetensors"]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "flipped": flip,
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, folder, damage, name):
    DAMAGES[damage](folder / "round-00000006" / name)
    with pytest.warns(RuntimeWarning) as caught:
        assert_same(trained(folder, resume=True), whole)
    (told,) = (str(warning.message) for warning in caught)
    assert f"round-00000006/{name} is " in told
    assert "the previous checkpoint is used" in told
    assert rounds_in(folder) == [6, 7]


def test_two_checkpoints_stay_and_leftovers_are_removed_but_not_other_files(folder):
    for name in ("round-00000002", "round-00000003.partial", "round-00000009.partial"):
        (folder / name).mkdir()
        (folder / name / "rows-0.safetensors").write_text("x")
    for name in ("notes.txt", "state-00000004.pt"):
        (folder / name).write_text("x")
    trained(folder, resume=True)
    assert names(folder) == ["notes.txt", *rounds(6, 7)]


def test_the_state_is_loaded_without_pickle_and_the_marker_is_readable(folder):
    place = folder / "round-00000006"
    assert set(load_file(place / "rows-0.safetensors")) >= {"models", "mass"}
    parts = {name.partition("/")[0] for name in load_file(place / "shared.safetensors")}
    assert parts >= {"recorder", "guard", "owner"}
    marker = json.loads((place / "marker.json").read_text())
    assert (marker["format"], marker["round"], marker["rounds"]) == (4, 6, 7)
    assert marker["versions"]["torch"] == torch.__version__
    assert marker["run"]["topology"].startswith("one_peer_exponential(")
    assert marker["run"]["seed"] == 0


def test_other_versions_warn(whole, folder):
    versions = machine.versions()
    sign_checkpoint(folder, versions=versions | {"torch": "1.0", RESULTS_ENTRY: RESULTS})
    message = rf"may round differently: torch was 1.0, is {versions['torch'][:4]}"
    with pytest.warns(RuntimeWarning, match=message):
        assert_same(trained(folder, resume=True), whole)


def test_a_version_of_topofl_warns_only_if_its_results_are_others(whole, folder):
    sign_checkpoint(
        folder, versions=machine.versions() | {"topofl": "0.0.1", RESULTS_ENTRY: RESULTS}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(trained(folder, resume=True), whole)


def test_a_checkpoint_without_the_entry_has_the_results_of_0_1_0(whole, folder, monkeypatch):
    monkeypatch.setattr("topofl.engine.state.RESULTS", "0.1.0")  # those of this process, too
    sign_checkpoint(folder, versions=machine.versions())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(trained(folder, resume=True), whole)


def test_other_results_of_topofl_warn(whole, folder):
    sign_checkpoint(folder, versions=machine.versions() | {RESULTS_ENTRY: "0.0.9"})
    message = f"{RESULTS_ENTRY} was 0.0.9, is {RESULTS}"
    with pytest.warns(RuntimeWarning, match=message):
        assert_same(trained(folder, resume=True), whole)


MARKER = {"rounds": 9, "versions": {}, "device": "cpu", "asked": ["auto", "auto"], "run": {}}


def saved(folder, t, content=0.0):
    """Write a checkpoint of one rank."""
    folder.mkdir(exist_ok=True)
    rows, ranks = {"models": torch.full((6, 3), content)}, one_process(6, torch.device("cpu"))
    return write_checkpoint(folder, t, lambda: {"phases": {}}, lambda: rows, MARKER, ranks)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rounds(*ts):
    return [f"round-{t:08d}" for t in ts]


@pytest.mark.parametrize("block", [1, 24, 2**26])
@pytest.mark.parametrize("nodes", [[0, 1, 2, 3, 4, 5], [1, 4], [2], [3, 5]])
def test_any_nodes_are_read_in_blocks(tmp_path, monkeypatch, block, nodes):
    monkeypatch.setattr(checkpoint, "BLOCK", block)
    found, models = write_rows(tmp_path)
    rows, own = found.state()["models"], torch.zeros(len(nodes), 5)
    rows.copy_to(own, np.array(nodes))
    assert torch.equal(own, models[nodes])
    assert torch.equal(rows.of(np.array(nodes)), models[nodes])


def test_rows_that_a_rank_lacks_are_an_error(tmp_path):
    found, _ = write_rows(tmp_path)
    arrays.write_tensors(found.path / "rows-1.safetensors", {"models": torch.zeros(2, 5)}, {})
    with pytest.raises(ValueError, match="3 rows of rank 1 are needed, got 2"):
        found.state()["models"].of(np.arange(6))


def test_the_last_two_are_kept(tmp_path):
    sizes = [saved(tmp_path, t)[1] for t in (1, 2, 3)]
    assert names(tmp_path) == rounds(2, 3)
    assert names(tmp_path / "round-00000003") == FILES
    files = (tmp_path / "round-00000003").iterdir()
    assert sizes[-1] == sum(path.stat().st_size for path in files)


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
    assert newest_checkpoint(tmp_path).round == 2


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
    assert checkpoint.newest_round(target) == 2
    models = newest_checkpoint(target).state()["models"].of(np.arange(6))
    assert models.unique().tolist() == [2.0]


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
    assert (names(source), names(target)) == (rounds(1, 2), rounds(2))
