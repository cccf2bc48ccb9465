"""What is stored survives: killed at any moment, on a full disk, with a second writer, found again.

The stores are folders of histories and of checkpoints.
"""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress

import pytest

import topofl
from tests.full_disk import full_at
from tests.history.helpers import assert_same
from tests.new_process import ROOT, results_of
from tests.rows.stored import ran, stopped, trained
from topofl import History
from topofl._support import arrays, locks
from topofl._support.locks import LOCK, Lock, is_in_use, locked
from topofl.engine import saving
from topofl.engine.checkpoint import rounds_in
from topofl.engine.round import Round


@pytest.fixture(scope="module")
def whole():
    return trained()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Killed at any moment

WAYS = ["exchanged", "portable"]


@pytest.fixture(scope="module")
def verdicts():
    """Return what one process found, in both ways, since it takes seconds to start."""
    return results_of("tests.contracts.killed_saves", *WAYS, timeout=None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_one_of_both_histories_survives_a_kill_at_any_moment(verdicts, way):
    assert verdicts[way]["wrong"] == {}
    assert verdicts[way]["killed"] >= 15, "or nothing was looked at"


KILLED = """
import os, sys
import numpy as np
from tests.contracts.killed_saves import history
np.savez_compressed = lambda *args, **arrays: os._exit(9)
history("new").save(sys.argv[1])
"""


@pytest.mark.slow
def test_the_next_save_or_load_removes_what_a_killed_save_left(tmp_path):
    def leave(path):
        command = [sys.executable, "-c", KILLED, str(path)]
        assert subprocess.run(command, check=False, cwd=ROOT).returncode == 9

    path, long = tmp_path / "run", tmp_path / ("y" * 255)
    leave(path)
    (left,) = names_in(tmp_path)
    assert left.startswith(".run.topofl-new-")
    with pytest.raises(FileNotFoundError, match=r"meta\.json is missing"):
        History.load(path)
    assert names_in(tmp_path) == [], "nothing was saved yet, and what was begun is of no use"
    for place in (path, long):
        leave(place)
        ran().save(place)
    leave(path)
    assert len(names_in(tmp_path)) == 3
    assert_same(History.load(path), ran())
    assert names_in(tmp_path) == ["run", long.name]


# On a full disk


@pytest.mark.parametrize("size", [10, 600, 1500])
def test_a_history_on_a_full_disk_is_an_error_that_names_the_path(tmp_path, size):
    path = ran().save(tmp_path / "run")
    whole = sorted(one.stat().st_size for one in ran().save(path, models=True).iterdir())
    assert whole[-1] > 1500, "or nothing is cut off"
    with full_at(size), pytest.raises(OSError, match=r"File too large: '.*/run'$") as caught:
        ran().save(path, models=True)
    assert caught.value.errno == errno.EFBIG
    assert names_in(tmp_path) == ["run"]
    assert History.load(path).models is not None, "the older one is whole"
    with full_at(1000), pytest.raises(OSError, match="File too large"):
        ran().models.save(tmp_path / "models.safetensors")


def full(*args, **words):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("broken", ["topofl._support.arrays._bytes_of", "os.fsync"])
def test_training_continues_on_a_full_disk(whole, tmp_path, monkeypatch, broken):
    good = {"os.fsync": os.fsync}.get(broken, arrays._bytes_of)

    def disk(event):
        if event.kind == "round":
            monkeypatch.setattr(broken, full if event.round in (4, 7) else good)

    with pytest.warns(RuntimeWarning) as caught:
        trained(tmp_path, callbacks=[disk])
    first, second = (str(warning.message) for warning in caught)
    said = f"the checkpoint of round 4 could not be written to {tmp_path}: [Errno 28] No space left"
    assert first.startswith(said)
    assert first.endswith("the newest is that of round 2")
    assert second.endswith("the newest is that of round 6")
    assert names_in(tmp_path) == ["round-00000002", "round-00000006"], "tried when the next was due"
    monkeypatch.setattr(broken, good)
    assert_same(trained(tmp_path, resume=True), whole)


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

    message = "checkpoint of round 4 could not be written .*No space left on device"
    with pytest.warns(RuntimeWarning, match=message):
        trained(tiny_disk, callbacks=[fill])
    assert rounds_in(tiny_disk) == [6, 7]
    assert_same(trained(tiny_disk, resume=True), whole)


def never(event):
    pytest.fail("trained")


def test_too_little_space_is_an_error_before_training(tiny_disk):
    (tiny_disk / "other").write_bytes(b"x" * 70_000)
    message = r"space for 3 checkpoints, \d+ bytes, .* has \d+ bytes free; free some space"
    with pytest.raises(OSError, match=message):
        trained(tiny_disk, callbacks=[never])


def test_a_folder_that_is_not_writable_is_an_error_before_training(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "below"):
        with pytest.raises(OSError, match=r"`saving` must be a writable folder, .* is not"):
            trained(place, callbacks=[never])
    monkeypatch.setattr(saving.tempfile, "TemporaryFile", full)
    with pytest.raises(OSError, match="is not: No space left on device"):
        trained(tmp_path / "new", callbacks=[never])


def test_an_interrupt_that_cannot_be_saved_says_so(tmp_path, monkeypatch):
    def stop(event):
        if (event.kind, event.round) == ("round", 3):
            monkeypatch.setattr(arrays, "_bytes_of", full)
            signal.raise_signal(signal.SIGINT)

    message = r"round 3 of 7, whose checkpoint could not .* newest is of round 2\); continue"
    with (
        pytest.warns(RuntimeWarning, match="checkpoint of round 3 could not be written"),
        pytest.raises(topofl.Interrupted, match=message),
    ):
        trained(tmp_path, callbacks=[stop])


# With a second writer

HOLD = "import sys, time; from pathlib import Path; from topofl._support.locks import locked\n"
HOLD += "with locked(Path(sys.argv[1])): print('held', flush=True); {}; time.sleep(600)"
FORK = "import os; os.fork() or (os.write(1, b'child\\n'), time.sleep(600))"


@pytest.fixture
def holder(tmp_path):
    """Start processes that hold the lock on the folder until they are killed."""
    started = []

    def hold(then="pass"):
        command = [sys.executable, "-c", HOLD.format(then), str(tmp_path)]
        how = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT, "start_new_session": True}
        started.append(subprocess.Popen(command, **how))
        assert started[-1].stdout.readline() == "held\n"
        return started[-1]

    yield hold
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def named_in(folder):
    """Return the process that the file of a lock names."""
    return int((folder / LOCK).read_text().splitlines()[0])


def test_the_second_is_told_who_has_the_folder_that_a_killed_one_frees(holder, whole, tmp_path):
    process = holder()
    wanted = (
        rf"`saving` must be a folder that no other run is using, {re.escape(str(tmp_path))} is in "
        rf"use by process {process.pid} on {re.escape(socket.gethostname())}; wait"
    )
    for resume in (False, True):
        with pytest.raises(BlockingIOError, match=wanted):
            trained(tmp_path, resume=resume)
    assert is_in_use(tmp_path)
    assert process.poll() is None
    process.kill()
    process.wait()
    assert (tmp_path / LOCK).exists()
    assert_same(trained(tmp_path, resume=True), whole)
    assert not (tmp_path / LOCK).exists()


def test_a_child_that_outlives_its_parent_holds_nothing(holder, tmp_path):
    process = holder(FORK)
    assert process.stdout.readline() == "child\n"
    process.kill()
    process.wait()
    with locked(tmp_path):
        assert named_in(tmp_path) == os.getpid()
    assert names_in(tmp_path) == []


def test_a_forked_process_neither_has_nor_gives_back_what_its_parent_holds(tmp_path):
    with locked(tmp_path) as mine:
        child = os.fork()
        if not child:
            code = 99
            with suppress(BaseException):
                mine.release()
                with pytest.raises(BlockingIOError, match=f"in use by process {os.getppid()} on"):
                    mine.hold()
                code = 7
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert named_in(tmp_path) == os.getpid()
        with pytest.raises(BlockingIOError):
            Lock(tmp_path, "checkpoint").hold()
        mine.hold()
    assert names_in(tmp_path) == []


OLD = json.dumps({"pid": 77, "host": "far", "started": None, "space": None})
"""What the version before wrote."""


@pytest.mark.parametrize("text", ["", "\x00" * 4096, "77\nfar\n", OLD])
def test_a_file_that_a_killed_process_left_leaves_the_folder_free(tmp_path, text):
    (tmp_path / LOCK).write_text(text)
    assert not is_in_use(tmp_path)
    with locked(tmp_path):
        assert named_in(tmp_path) == os.getpid()
    assert names_in(tmp_path) == []


FOREIGN = ["[" * 4000, "{}", '{"pid": "1"}', "\x00" * 4097, "my notes"]
MADE = {
    "link": lambda path: path.symlink_to("../target"),
    "dangling": lambda path: path.symlink_to("../nothing"),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
} | {text[:9]: lambda path, text=text: path.write_text(text) for text in FOREIGN}


@pytest.mark.parametrize("kind", MADE)
def test_what_topofl_did_not_write_is_refused_and_stays(tmp_path, kind):
    (tmp_path / "target").write_text("")
    folder = tmp_path / "c"
    folder.mkdir()
    MADE[kind](folder / LOCK)

    def facts():  # but for the time of access, since it may be read
        found = (folder / LOCK).lstat()
        return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns

    before = facts()
    message = rf"{re.escape(str(folder / LOCK))} must be free, .* did not write it; move it elsewhe"
    with pytest.raises(FileExistsError, match=message):
        trained(folder)
    assert not is_in_use(folder)
    assert facts() == before
    assert ((tmp_path / "target").read_text(), names_in(tmp_path)) == ("", ["c", "target"])


def test_a_link_that_appears_at_the_last_moment_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "target").write_text("")
    (tmp_path / LOCK).symlink_to("target")
    monkeypatch.setattr(locks, "_is_foreign", lambda path: False)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(tmp_path, "checkpoint").hold()
    assert (tmp_path / "target").read_text() == ""


def test_one_process_runs_in_a_folder_once_at_a_time(tmp_path):
    def again(event):
        if event.kind == "start":
            with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on"):
                trained(tmp_path, resume=True)
        return 1 / (event.round - 3)

    (tmp_path / ".writable").write_text("mine")
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, callbacks=[again])
    assert not (tmp_path / LOCK).exists()
    trained(tmp_path, resume=True)
    assert rounds_in(tmp_path) == [6, 7]
    assert (tmp_path / ".writable").read_text() == "mine"


def test_many_that_want_it_at_once_have_it_one_after_the_other(tmp_path):
    (tmp_path / LOCK).write_text(OLD)
    had, errors = [], []

    def want():
        for _ in range(50):
            try:
                with locked(tmp_path):
                    (tmp_path / "inside").touch(exist_ok=False)
                    had.append(1)
                    time.sleep(0)
                    (tmp_path / "inside").unlink()
            except BlockingIOError:
                time.sleep(0.0005)
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=want) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(had) > 10
    assert names_in(tmp_path) == []


def test_a_folder_that_vanishes_is_made_again(whole, tmp_path):
    def remove(event):
        if (event.kind, event.round) in (("checkpoint", 2), ("round", 5), ("round", 7)):
            shutil.rmtree(tmp_path / "c")

    assert_same(trained(tmp_path / "c", callbacks=[remove]), whole)
    assert rounds_in(tmp_path / "c") == [7]
    assert_same(trained(tmp_path / "c", resume=True), whole)


def test_a_folder_that_vanished_and_is_another_s_now_is_left_to_it(tmp_path):
    taken = Lock(tmp_path / "c", "checkpoint")

    def remove(event):
        if (event.kind, event.round) == ("checkpoint", 2):
            shutil.rmtree(tmp_path / "c")
            taken.hold()

    with pytest.warns(RuntimeWarning) as caught:
        trained(tmp_path / "c", callbacks=[remove])
    for t, warning in zip((4, 6, 7), caught, strict=True):
        wanted = rf"checkpoint of round {t} could not be .* in use by process {os.getpid()} on .*; "
        assert re.search(wanted + "there is none$", str(warning.message))
    assert rounds_in(tmp_path / "c") == []
    taken.release()


def test_no_message_names_a_checkpoint_that_is_gone(tmp_path):
    def block(event):
        if (event.kind, event.round) == ("checkpoint", 4):
            shutil.rmtree(tmp_path / "c")
            (tmp_path / "c").write_text("a file")
            signal.raise_signal(signal.SIGINT)

    message = r"could not be written to .*/c \(there is none\)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(topofl.Interrupted, match=message):
            trained(tmp_path / "c", callbacks=[block])


def test_callbacks_may_go_to_another_folder(whole, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def go(event):
        if event.round == 3:
            os.chdir(tmp_path / "elsewhere")

    assert_same(trained("c", callbacks=[go]), whole)
    assert names_in(tmp_path) == ["c", "elsewhere"]
    assert names_in(tmp_path / "elsewhere") == []
    assert rounds_in(tmp_path / "c") == [6, 7]


# Found again


def test_a_finished_run_is_returned_at_once(whole, tmp_path, monkeypatch):
    trained(tmp_path)
    monkeypatch.setattr(Round, "_train", lambda *given, **more: pytest.fail("trained"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert_same(trained(tmp_path, resume=True), whole)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_an_unfinished_run_is_continued_only_on_request(whole, tmp_path):
    stopped(tmp_path, 6)
    message = r"has one of round 6; continue with resume=True, or use another folder"
    with pytest.raises(ValueError, match=message):
        trained(tmp_path)
    assert_same(trained(tmp_path, resume=True), whole)
    assert_same(trained(tmp_path / "a" / "b", resume=True), whole)
