"""One process at a time in a folder of checkpoints."""

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
from pathlib import Path

import pytest

import topofl
from tests.engine import killed
from topofl.engine import lock
from topofl.engine.checkpoint import rounds_in
from topofl.engine.lock import locked

ROOT = Path(__file__).parents[2]
HOLD = "import sys, time; from pathlib import Path; from topofl.engine.lock import locked\n"
HOLD += "with locked(Path(sys.argv[1])): print('held', flush=True); {}; time.sleep(600)"
FORK = "import os; os.fork() or (os.write(1, b'child\\n'), time.sleep(600))"


@pytest.fixture
def holder(tmp_path):
    """Start processes that hold the lock on the folder until they are killed."""
    started = []

    def hold(then="pass"):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(then), str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def train(folder, **more):
    return killed.trained(killed.settings("dsgd"), checkpoint=folder, checkpoint_every=2, **more)


@pytest.fixture(scope="module")
def whole():
    return killed.trained(killed.settings("dsgd"))


def kill(process):
    process.kill()
    process.wait()


def test_the_second_process_is_told_who_has_the_folder_and_a_killed_one_leaves_it_free(holder, whole, tmp_path):
    process = holder()
    wanted = (
        rf"{re.escape(str(tmp_path))} is in use by process {process.pid} on {re.escape(socket.gethostname())}; wait"
    )
    for resume in (False, True):
        with pytest.raises(BlockingIOError, match=wanted):
            train(tmp_path, resume=resume)
    assert process.poll() is None
    kill(process)
    assert (tmp_path / ".lock").exists()
    assert killed.differences(train(tmp_path, resume=True), whole) == []
    assert not (tmp_path / ".lock").exists()


def test_a_child_that_outlives_its_parent_holds_nothing(holder, tmp_path):
    process = holder(FORK)
    assert process.stdout.readline() == "child\n"
    kill(process)
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def said(**changes):
    return json.dumps(lock._identity() | changes)


@pytest.mark.parametrize("locks", [True, False])
def test_what_another_host_took_must_be_removed_by_hand(tmp_path, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    (tmp_path / ".lock").write_text(said(host="far\x1b[2Jaway", pid=77))
    with pytest.raises(
        BlockingIOError, match=rf"taken by process 77 on far\\x1b\[2Jaway, .* remove {re.escape(str(tmp_path))}/\.lock$"
    ):
        train(tmp_path)
    (tmp_path / ".lock").unlink()
    train(tmp_path)


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_without_locks_the_file_decides_and_numbers_that_are_used_again_do_not_deceive(holder, tmp_path, monkeypatch):
    process = holder()
    kill(process)
    dead = (tmp_path / ".lock").read_text()
    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    for text in (dead, "", said(started="another boot 1")):
        (tmp_path / ".lock").write_text(text)
        with locked(tmp_path), pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on"):
            lock.Lock(tmp_path, "checkpoint").hold()
    (tmp_path / ".lock").write_text(said(space="pid:[1]"))
    with pytest.raises(BlockingIOError, match="in use by process"):
        lock.Lock(tmp_path, "checkpoint").hold()


@pytest.mark.parametrize("started", [None, "x"])
def test_where_the_system_does_not_tell_when_processes_start(tmp_path, monkeypatch, started):
    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    monkeypatch.setattr(lock, "_started", lambda pid: None)
    (tmp_path / ".lock").write_text(said(started=started, pid=2**22 + 1))  # beyond the largest number of a process
    with locked(tmp_path):
        pass
    if started is None:
        (tmp_path / ".lock").write_text(said(started=None, pid=os.getpid()))
        with pytest.raises(BlockingIOError):
            lock.Lock(tmp_path, "checkpoint").hold()


@pytest.mark.parametrize("text", ["[" * 4000, "{}", "null", '{"pid": "1"}', "\x00" * 5000, "[]"])
def test_whatever_is_in_the_file_a_free_folder_can_be_taken(tmp_path, text):
    (tmp_path / ".lock").write_text(text)
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_one_process_runs_in_a_folder_once_at_a_time(tmp_path):
    def again(event):
        if event.kind == "start":
            with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on"):
                topofl.run(**killed.settings("dsgd"), checkpoint=tmp_path, resume=True)
        if event.round == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        topofl.run(**killed.settings("dsgd"), checkpoint=tmp_path, checkpoint_every=2, callbacks=[again])
    assert not (tmp_path / ".lock").exists()
    train(tmp_path, resume=True)
    assert rounds_in(tmp_path) == [6, 7]


def test_many_that_want_it_at_once_have_it_one_after_the_other(tmp_path):
    (tmp_path / ".lock").write_text(said(started="dead 1"))
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
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_vanishes_is_made_again(whole, tmp_path):
    def remove(event):
        if (event.kind, event.round) in (("checkpoint", 2), ("round", 5), ("round", 7)):
            shutil.rmtree(tmp_path / "c")

    (result, models) = traced(tmp_path / "c", remove)
    assert killed.differences((result, models), whole) == []
    assert rounds_in(tmp_path / "c") == [7]
    assert killed.differences(train(tmp_path / "c", resume=True), whole) == []


def traced(folder, callback):
    kept = {}
    result = topofl.run(
        **killed.settings("dsgd"), checkpoint=folder, checkpoint_every=2,
        callbacks=[callback, lambda event: kept.update(models=event.models)],
    )  # fmt: skip
    return result, kept["models"].flat.clone()


def test_a_folder_that_vanished_and_is_another_s_now_is_left_to_it(tmp_path):
    taken = lock.Lock(tmp_path / "c", "checkpoint")

    def remove(event):
        if (event.kind, event.round) == ("checkpoint", 2):
            shutil.rmtree(tmp_path / "c")
            taken.hold()

    with pytest.warns(RuntimeWarning) as caught:
        traced(tmp_path / "c", remove)
    for t, warning in zip((4, 6, 7), caught, strict=True):
        wanted = rf"checkpoint of round {t} could not be .* in use by process {os.getpid()} on .*; there is none$"
        assert re.search(wanted, str(warning.message))
    assert rounds_in(tmp_path / "c") == []
    taken.release()


def test_no_message_names_a_checkpoint_that_is_gone(tmp_path):
    folder = tmp_path / "c"

    def block(event):
        if (event.kind, event.round) == ("checkpoint", 4):
            shutil.rmtree(folder)
            folder.write_text("a file")
            signal.raise_signal(signal.SIGINT)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(topofl.Interrupted, match=r"could not be written to .*/c \(there is none\)"):
            traced(folder, block)
    assert caught == []
