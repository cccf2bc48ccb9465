"""Checkpoints: damaged ones are skipped, and existing ones are not overwritten."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.store.helpers import arguments, rewrite, train
from topofl._support import machine
from topofl.engine.checkpoint import rounds_in


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "half": half,
    "flipped": flip,
    "missing": lambda path: path.unlink(),
    "empty": lambda p: p.write_bytes(b""),
}


@pytest.mark.parametrize("name", ["shared.safetensors", "rows-0.safetensors", "marker.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, folder, damage, name):
    DAMAGES[damage](folder / "round-00000006" / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resumed = train(folder, resume=True)
    assert killed.differences(resumed, whole) == []
    told = [str(warning.message) for warning in caught]
    assert len(told) == 1
    assert f"round-00000006/{name} is " in told[0]
    assert "the previous checkpoint is used" in told[0]
    assert rounds_in(folder) == [6, 7]


def test_without_an_intact_checkpoint_resuming_is_an_error(folder):
    for path in folder.glob("*/rows-0.safetensors"):
        flip(path)
    with (
        pytest.warns(RuntimeWarning, match="is damaged: its checksum"),
        pytest.raises(
            ValueError, match=r"`saving` must have an intact checkpoint .* all 2 in .* are damaged"
        ),
    ):
        train(folder, resume=True)


def test_checkpoints_are_not_overwritten_without_resume(folder):
    with pytest.raises(
        ValueError, match=r"has one of round 6; continue with resume=True, or use another folder"
    ):
        train(folder)


def test_resuming_without_checkpoints_starts_and_needs_a_folder(whole, tmp_path):
    assert killed.differences(train(tmp_path / "a" / "b", resume=True), whole) == []
    with pytest.raises(ValueError, match="`resume` must be False without a folder"):
        topofl.run(**problems.options(saving=topofl.Saving(resume=True), **arguments()))


def test_two_checkpoints_stay_and_leftovers_are_removed_but_not_other_files(folder):
    for name in ("round-00000002", "round-00000003.partial", "round-00000009.partial"):
        (folder / name).mkdir()
        (folder / name / "rows-0.safetensors").write_text("x")
    for name in ("notes.txt", "state-00000004.pt"):
        (folder / name).write_text("x")
    train(folder, resume=True)
    names = ["notes.txt", "round-00000006", "round-00000007"]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_the_state_is_loaded_without_pickle_and_the_marker_is_readable(folder):
    place = folder / "round-00000006"
    assert set(load_file(place / "rows-0.safetensors")) == {"models", "mass"}
    names = {name.partition("/")[0] for name in load_file(place / "shared.safetensors")}
    assert names == {"recorder", "guard", "owner", "phases"}
    marker = json.loads((place / "marker.json").read_text())
    assert (marker["format"], marker["round"], marker["rounds"]) == (4, 6, 7)
    assert marker["versions"]["torch"] == torch.__version__
    assert marker["run"]["topology"].startswith("dcliques(")
    assert marker["run"]["seed"] == 0


def test_other_versions_warn_and_another_format_is_refused(whole, folder, monkeypatch):
    versions = machine.versions()
    rewrite(folder, versions=versions | {"torch": "1.0"})
    with pytest.warns(
        RuntimeWarning, match=rf"may round differently: torch was 1.0, is {versions['torch'][:4]}"
    ):
        assert killed.differences(train(folder, resume=True), whole) == []
    rewrite(folder, format=5)
    with pytest.raises(
        ValueError,
        match=r"checkpoints of format 4, .* has format 5; continue with topofl 0",
    ):
        train(folder, resume=True)


@pytest.mark.parametrize("resume", [True, False])
def test_checkpoints_of_older_versions_are_refused(tmp_path, resume):
    for name in ("state-00000006.pt", "state-00000006.json"):
        (tmp_path / name).write_text("x")
    with pytest.raises(
        ValueError,
        match=r"state-00000006\.json has an older format, .*; finish that run with the version",
    ):
        train(tmp_path, resume=resume)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_empty_name_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match="`folder` must be the path of a folder, got an empty text"
    ):
        topofl.run(**problems.options(saving="", **arguments()))
    with pytest.raises(
        ValueError, match=r"`folder` must be the path of a folder, got 'a\\x00b' with a null"
    ):
        topofl.run(**problems.options(saving="a\0b", **arguments()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"callbacks": ["print"]},
            TypeError,
            "`callbacks` must be a list of functions that take an Event",
        ),
        (
            {"callbacks": print},
            TypeError,
            "`callbacks` must be a list of functions that take an Event",
        ),
    ],
)
def test_bad_arguments(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        topofl.run(**problems.options(saving=tmp_path / "new", **arguments()), **change)
    assert not (tmp_path / "new").exists()
