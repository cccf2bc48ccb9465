"""Files of checkpoints: what is refused, what is fallen back from, what happens on a full disk."""

import errno
import hashlib
import json
import os
import subprocess
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine import killed
from topofl.engine.store import checkpoint, fingerprint
from topofl.engine.store.checkpoint import rounds_in


def arguments(**changes):
    return killed.settings("clique_averaging") | changes


def train(folder, resume=False):
    return killed.trained(arguments(), saving=topofl.Saving(folder, every=2, resume=resume))


@pytest.fixture(scope="module")
def whole():
    return killed.trained(arguments())


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of rounds 4 and 6 of 7: the last one is not there yet."""
    folder = tmp_path / "checkpoints"
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(folder, every=2), **arguments()),
            callbacks=[lambda e: 1 / (e.round - 6)],
        )
    assert rounds_in(folder) == [4, 6]
    return folder


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


@pytest.mark.parametrize("suffix", ["pt", "json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, folder, damage, suffix):
    DAMAGES[damage](folder / f"state-00000006.{suffix}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resumed = train(folder, resume=True)
    assert killed.differences(resumed, whole) == []
    told = [str(warning.message) for warning in caught]
    if (damage, suffix) == ("missing", "json"):
        assert told == [], "as after a write that was cut off: it never was a checkpoint"
    else:
        assert len(told) == 1
        assert f"state-00000006.{suffix} is " in told[0]
        assert "the previous checkpoint is used" in told[0]
    assert rounds_in(folder) == [6, 7]


def test_if_none_is_good_it_is_an_error(folder):
    for path in folder.glob("*.pt"):
        flip(path)
    with (
        pytest.warns(RuntimeWarning, match="is damaged: its checksum"),
        pytest.raises(
            ValueError, match=r"`saving` must have an intact checkpoint .* all 2 in .* are damaged"
        ),
    ):
        train(folder, resume=True)


def test_checkpoints_are_not_overwritten_unasked(folder):
    with pytest.raises(
        ValueError, match=r"has one of round 6; continue with resume=True, or use another folder"
    ):
        train(folder)


def test_nothing_there_starts_and_needs_a_folder(whole, tmp_path):
    assert killed.differences(train(tmp_path / "a" / "b", resume=True), whole) == []
    with pytest.raises(ValueError, match="`resume` must be False without a folder"):
        topofl.run(**problems.options(saving=topofl.Saving(resume=True), **arguments()))


def test_two_are_kept_and_leftovers_removed_but_not_files_of_others(folder):
    for name in (
        "state-00000002.pt",
        "state-00000003.pt.partial",
        "state-00000009.json.partial",
        "notes.txt",
    ):
        (folder / name).write_text("x")
    train(folder, resume=True)
    names = [f"state-0000000{t}.{suffix}" for t in (6, 7) for suffix in ("json", "pt")]
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", *names]


def test_the_state_is_loaded_without_pickle_and_described_in_words(folder):
    state = torch.load(folder / "state-00000006.pt", weights_only=True)
    assert set(state) == {"models", "mass", "phases", "recorder", "guard"}
    marker = json.loads((folder / "state-00000006.json").read_text())
    assert (marker["format"], marker["round"], marker["rounds"]) == (2, 6, 7)
    assert marker["versions"]["torch"] == torch.__version__
    assert marker["run"]["topology"].startswith("dcliques(")
    assert marker["run"]["seed"] == 0


def rewrite(folder, **changes):
    for path in folder.glob("*.json"):
        marker = json.loads(path.read_text()) | changes
        del marker["checksum"]
        path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))


def test_other_versions_warn_and_another_format_is_refused(whole, folder, monkeypatch):
    versions = fingerprint.versions()
    rewrite(folder, versions=versions | {"torch": "1.0"})
    with pytest.warns(
        RuntimeWarning, match=rf"may round differently: torch was 1.0, is {versions['torch'][:4]}"
    ):
        assert killed.differences(train(folder, resume=True), whole) == []
    rewrite(folder, format=3)
    with pytest.raises(
        ValueError,
        match=r"checkpoints of format 2 or older, .* has format 3; continue with topofl 0",
    ):
        train(folder, resume=True)


DEEP = "[" * 50_000 + "]" * 50_000
MARKERS = {
    "nested": lambda marker: json.dumps(marker).replace("{", f'{{"x": {DEEP}, ', 1),
    "nested within": lambda marker: signed(
        marker | {"run": marker["run"] | {"seed": json.loads("[" * 90 + "]" * 90)}}
    ),
    "no object": lambda marker: "[]",
    "a list of formats": lambda marker: signed(marker | {"format": [2]}),
    "no versions": lambda marker: signed(marker | {"versions": None}),
    "asked for one thing": lambda marker: signed(marker | {"asked": ["auto"]}),
    "another round": lambda marker: signed(marker | {"round": 5}),
    "true rounds": lambda marker: signed(marker | {"rounds": True}),
    "long numbers": lambda marker: json.dumps(marker).replace("{", f'{{"x": {"9" * 10_000}, ', 1),
}


def signed(marker):
    return json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)})


@pytest.mark.parametrize("forged", MARKERS)
def test_forged_markers_are_damaged_ones(whole, folder, forged):
    path = folder / "state-00000006.json"
    marker = json.loads(path.read_text())
    del marker["checksum"]
    path.write_text(MARKERS[forged](marker))
    with pytest.warns(
        RuntimeWarning,
        match=r"state-00000006.json is damaged: .*; the previous checkpoint is used",
    ):
        assert killed.differences(train(folder, resume=True), whole) == []


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def doubled(depth):
    """Return lists that are few, but endless to whoever follows all of them."""
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


def changed(**parts):
    return lambda state: state | parts


def in_recorder(table, **changes):
    return lambda state: (
        state | {"recorder": state["recorder"] | {table: state["recorder"][table] | changes}}
    )


def recorder(**changes):
    return lambda state: state | {"recorder": state["recorder"] | changes}


STATES = {
    "code": changed(models=Evil()),
    "nested": changed(models=nested(100)),
    "doubled": changed(phases=doubled(60)),
    "a list": lambda state: [state],
    "nothing": lambda state: {},
    "other models": changed(models=torch.zeros(3, 3)),
    "models of other numbers": lambda state: state | {"models": state["models"].double()},
    "models that claim": lambda state: state | {"models": torch.zeros(1).expand(10**7, 10**4)},
    "sparse models": lambda state: state | {"models": state["models"].to_sparse()},
    "no phases": changed(phases={}),
    "other phases": changed(phases={"other": {"x": torch.zeros(3)}}),
    "a guard of text": changed(guard="x"),
    "a guard of nobody": changed(guard={}),
    "rounds that claim": in_recorder("rounds", train_loss=torch.zeros(1).expand(10**12)),
    "fewer rounds": in_recorder("rounds", train_loss=torch.zeros(2)),
    "more evaluations": in_recorder("evaluations", accuracy=torch.zeros(50, 6)),
    "no matrix there": in_recorder("used", matrix=torch.full((6,), 9)),
    "indices beyond": lambda s: in_recorder(
        "matrices", indices=s["recorder"]["matrices"]["indices"] + 10**6
    )(s),
    "indices before": lambda s: in_recorder(
        "matrices", indices=s["recorder"]["matrices"]["indices"] - 10**6
    )(s),
    "names of nothing": recorder(names=[]),
    "names that are none": lambda s: recorder(names=[nested(50)] * len(s["recorder"]["names"]))(s),
    "entries without end": lambda s: recorder(entries=[10**15] * len(s["recorder"]["names"]))(s),
    "entries below 0": lambda s: recorder(entries=[-1] * len(s["recorder"]["names"]))(s),
    "rows without end": lambda s: recorder(rows=[10**15] * len(s["recorder"]["names"]))(s),
}


def resign(folder):
    for path in folder.glob("*.pt"):
        marker = json.loads(path.with_suffix(".json").read_text())
        del marker["checksum"]
        marker["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_suffix(".json").write_text(signed(marker))


@pytest.mark.parametrize("forged", STATES)
def test_forged_states_are_refused_in_one_sentence(folder, tmp_path, monkeypatch, forged):
    monkeypatch.chdir(tmp_path)
    path = folder / "state-00000006.pt"
    torch.save(STATES[forged](torch.load(path, weights_only=True)), path)
    resign(folder)
    with pytest.raises(
        ValueError, match=r"state-00000006\.pt (is not the state of a run|does not match this run)"
    ) as refused:
        train(folder, resume=True)
    assert len(str(refused.value)) < 800
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "unpickled").exists()


def test_checkpoints_without_the_column_steps_are_resumed(folder, whole):
    """They are older than the column, so rounds whose steps are unknown have NaN."""
    path = folder / "state-00000006.pt"
    state = torch.load(path, weights_only=True)
    del state["recorder"]["rounds"]["steps"]
    torch.save(state, path)
    resign(folder)
    history = train(folder, resume=True)[0]
    assert np.isnan(history["steps"][:6]).all()
    assert history["steps"][6] == whole[0]["steps"][6]
    np.testing.assert_array_equal(history["train_loss"], whole[0]["train_loss"])


def rewritten(path, compression, pickled):
    """Write an archive of torch anew, with another pickle in it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, pickled(content) if name.endswith("data.pkl") else content)


def test_states_that_swell_are_not_read(folder):
    rewritten(
        folder / "state-00000006.pt", zipfile.ZIP_DEFLATED, lambda content: content + bytes(10**7)
    )
    resign(folder)
    with pytest.raises(
        ValueError, match=r"is not the state of a run: its member .*data\.pkl is compressed"
    ):
        train(folder, resume=True)


def test_states_that_are_nested_without_end_do_not_crash(folder):
    deep = 200_000
    pickled = b"\x80\x02" + b"]" * deep + b"a" * (deep - 1) + b"."
    rewritten(folder / "state-00000006.pt", zipfile.ZIP_STORED, lambda content: pickled)
    resign(folder)
    with pytest.raises(ValueError, match="is not the state of a run"):
        train(folder, resume=True)


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


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("broken", ["torch.save", "os.fsync"])
def test_a_full_disk_costs_no_work(whole, tmp_path, monkeypatch, broken):
    good = {"torch.save": torch.save, "os.fsync": os.fsync}[broken]

    def disk(event):
        if event.kind == "round":
            monkeypatch.setattr(broken, full if event.round in (4, 7) else good)

    with pytest.warns(RuntimeWarning) as caught:
        result = run_with(disk, tmp_path)
    assert result["round"][-1] == 7
    told = [str(warning.message) for warning in caught]
    assert told[0].startswith(
        f"the checkpoint of round 4 could not be written to {tmp_path}: [Errno 28] No space left"
    )
    assert told[0].endswith("the newest is that of round 2")
    assert told[1].endswith("the newest is that of round 6")
    assert len(told) == 2
    assert rounds_in(tmp_path) == [2, 6], "it was tried again when the next one was due"
    assert not list(tmp_path.glob("*.partial"))
    monkeypatch.setattr(broken, good)
    assert killed.differences(train(tmp_path, resume=True), whole) == []


def run_with(callback, folder):
    return topofl.run(
        **problems.options(saving=topofl.Saving(folder, every=2), **arguments()),
        callbacks=[callback],
    )


@pytest.fixture
def tiny_disk(tmp_path):
    """Return a file system of 96 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(whole, tiny_disk):
    def fill(event):
        if (event.kind, event.round) == ("checkpoint", 2):
            with (tiny_disk / "other").open("wb", buffering=0) as other, suppress(OSError):
                while True:
                    other.write(b"x" * 512)
        if (event.kind, event.round) == ("round", 5):
            (tiny_disk / "other").unlink()

    with pytest.warns(
        RuntimeWarning, match="checkpoint of round 4 could not be written .*No space left on device"
    ):
        run_with(fill, tiny_disk)
    assert rounds_in(tiny_disk) == [6, 7]
    assert killed.differences(train(tiny_disk, resume=True), whole) == []


def test_too_little_space_is_told_before_training(tiny_disk):
    (tiny_disk / "other").write_bytes(b"x" * 60_000)
    with pytest.raises(
        OSError, match=r"space for 3 checkpoints, \d+ bytes, .* has \d+ bytes free; free some space"
    ):
        run_with(lambda event: pytest.fail("trained"), tiny_disk)


def test_a_folder_that_cannot_be_written_to_is_told_before_training(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "below"):
        with pytest.raises(OSError, match=r"`saving` must be a writable folder, .* is not"):
            run_with(lambda event: pytest.fail("trained"), place)
    monkeypatch.setattr(checkpoint.tempfile, "TemporaryFile", lambda **words: full())
    with pytest.raises(OSError, match="is not: No space left on device"):
        run_with(lambda event: pytest.fail("trained"), tmp_path / "new")


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


def test_an_interrupt_that_cannot_be_saved_says_so(tmp_path, monkeypatch):
    def stop(event):
        if (event.kind, event.round) == ("round", 3):
            monkeypatch.setattr(torch, "save", full)
            killed.signal.raise_signal(killed.signal.SIGINT)

    with (
        pytest.warns(RuntimeWarning, match="checkpoint of round 3 could not be written"),
        pytest.raises(
            topofl.Interrupted,
            match=r"round 3 of 7, whose checkpoint could not .* newest is of round 2\); continue",
        ),
    ):
        run_with(stop, tmp_path)
