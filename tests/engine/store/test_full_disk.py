"""Checkpoints that cannot be written, for example on a full disk."""

import errno
import os
import subprocess
from contextlib import suppress

import pytest

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.store.helpers import arguments, train
from topofl._support import arrays, locks
from topofl.engine import saving
from topofl.engine.checkpoint import rounds_in


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("broken", ["topofl._support.arrays._bytes_of", "os.fsync"])
def test_training_continues_on_a_full_disk(whole, tmp_path, monkeypatch, broken):
    good = {"os.fsync": os.fsync}.get(broken, arrays._bytes_of)

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


def test_too_little_space_is_an_error_before_training(tiny_disk):
    (tiny_disk / "other").write_bytes(b"x" * 60_000)
    with pytest.raises(
        OSError, match=r"space for 3 checkpoints, \d+ bytes, .* has \d+ bytes free; free some space"
    ):
        run_with(lambda event: pytest.fail("trained"), tiny_disk)


def test_a_folder_that_is_not_writable_is_an_error_before_training(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "below"):
        with pytest.raises(OSError, match=r"`saving` must be a writable folder, .* is not"):
            run_with(lambda event: pytest.fail("trained"), place)
    monkeypatch.setattr(saving.tempfile, "TemporaryFile", lambda **words: full())
    with pytest.raises(OSError, match="is not: No space left on device"):
        run_with(lambda event: pytest.fail("trained"), tmp_path / "new")


def test_an_interrupt_that_cannot_be_saved_says_so(tmp_path, monkeypatch):
    def stop(event):
        if (event.kind, event.round) == ("round", 3):
            monkeypatch.setattr(arrays, "_bytes_of", full)
            killed.signal.raise_signal(killed.signal.SIGINT)

    with (
        pytest.warns(RuntimeWarning, match="checkpoint of round 3 could not be written"),
        pytest.raises(
            topofl.Interrupted,
            match=r"round 3 of 7, whose checkpoint could not .* newest is of round 2\); continue",
        ),
    ):
        run_with(stop, tmp_path)


def test_a_folder_in_use_is_an_error_that_names_the_argument(tmp_path):
    message = "`saving` must be a folder that no other run"
    with locks.locked(tmp_path), pytest.raises(BlockingIOError, match=message):
        locks.Lock(tmp_path).hold()
