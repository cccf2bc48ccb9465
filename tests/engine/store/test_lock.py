"""One process at a time in a folder of checkpoints."""

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
from tests import problems
from tests.engine import killed
from topofl._support import locks as lock
from topofl._support.locks import locked
from topofl.engine.checkpoint import rounds_in

ROOT = Path(__file__).parents[3]
HOLD = "import sys, time; from pathlib import Path; from topofl._support.locks import locked\n"
HOLD += "with locked(Path(sys.argv[1])): print('held', flush=True); {}; time.sleep(600)"
FORK = "import os; os.fork() or (os.write(1, b'child\\n'), time.sleep(600))"


@pytest.fixture
def holder(tmp_path):
    """Start processes that hold the lock on the folder until they are killed."""
    started = []

    def hold(then="pass"):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(then), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def train(folder, resume=False):
    return killed.trained(
        killed.settings("dsgd"), saving=topofl.Saving(folder, every=2, resume=resume)
    )


@pytest.fixture(scope="module")
def whole():
    return killed.trained(killed.settings("dsgd"))


def named_in(folder):
    """Return the process that the file of a lock names."""
    return int((folder / lock.LOCK).read_text().splitlines()[0])


def kill(process):
    process.kill()
    process.wait()


def test_the_second_process_is_told_who_has_the_folder_and_a_killed_one_leaves_it_free(
    holder, whole, tmp_path
):
    process = holder()
    wanted = (
        rf"{re.escape(str(tmp_path))} is in use by process {process.pid} "
        rf"on {re.escape(socket.gethostname())}; wait"
    )
    for resume in (False, True):
        with pytest.raises(BlockingIOError, match=wanted):
            train(tmp_path, resume=resume)
    assert process.poll() is None
    kill(process)
    assert (tmp_path / lock.LOCK).exists()
    assert killed.differences(train(tmp_path, resume=True), whole) == []
    assert not (tmp_path / lock.LOCK).exists()


def test_a_child_that_outlives_its_parent_holds_nothing(holder, tmp_path):
    process = holder(FORK)
    assert process.stdout.readline() == "child\n"
    kill(process)
    with locked(tmp_path):
        assert named_in(tmp_path) == os.getpid()
    assert list(tmp_path.iterdir()) == []


OLD = json.dumps({"pid": 77, "host": "far", "started": None, "space": None})
"""What the version before wrote."""


@pytest.mark.parametrize("text", ["", "\x00" * 300, "77\nfar\n", OLD])
def test_a_file_that_a_killed_process_left_leaves_the_folder_free(tmp_path, text):
    (tmp_path / lock.LOCK).write_text(text)
    assert not lock.is_in_use(tmp_path)
    with locked(tmp_path):
        assert named_in(tmp_path) == os.getpid()
    assert list(tmp_path.iterdir()) == []


def is_refused(folder):
    """Return whether a run refuses the folder by naming the file of its lock."""
    message = (
        rf"^{re.escape(str(folder / lock.LOCK))} must be free, .* did not write it; "
        r"move it elsewhere, or use another"
    )
    with pytest.raises(FileExistsError, match=message):
        train(folder)
    return True


@pytest.mark.parametrize(
    "text", ["[" * 4000, "{}", "null", '{"pid": "1"}', "\x00" * 5000, "[]", "my notes"]
)
def test_a_file_of_somebody_else_stays_as_it_is(tmp_path, text):
    (tmp_path / lock.LOCK).write_text(text)
    assert is_refused(tmp_path)
    assert not lock.is_in_use(tmp_path)
    assert (tmp_path / lock.LOCK).read_text() == text


def test_what_is_no_file_is_refused_and_stays(tmp_path):
    for name in ("link", "dangling", "pipe", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "target").write_text("")
    (tmp_path / "link" / lock.LOCK).symlink_to("../target")
    (tmp_path / "dangling" / lock.LOCK).symlink_to("../nothing")
    os.mkfifo(tmp_path / "pipe" / lock.LOCK)
    (tmp_path / "folder" / lock.LOCK).mkdir()
    for name in ("link", "dangling", "pipe", "folder"):
        assert is_refused(tmp_path / name)
        assert os.path.lexists(tmp_path / name / lock.LOCK)
    assert (tmp_path / "target").read_text() == ""
    assert not (tmp_path / "nothing").exists()


def test_a_link_that_appears_at_the_last_moment_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "target").write_text("")
    (tmp_path / lock.LOCK).symlink_to("target")
    monkeypatch.setattr(lock, "_is_foreign", lambda path: False)
    with pytest.raises(OSError, match="symbolic links"):
        lock.Lock(tmp_path, "checkpoint").hold()
    assert (tmp_path / "target").read_text() == ""


def in_fork(function):
    """Return what a fork of this process says by its exit code."""
    child = os.fork()
    if not child:
        code = 99
        with suppress(BaseException):
            code = function()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_neither_has_nor_gives_back_what_its_parent_holds(tmp_path):
    with locked(tmp_path) as mine:

        def holds():
            mine.release()
            with pytest.raises(BlockingIOError, match=f"in use by process {os.getppid()} on"):
                mine.hold()
            return 7

        assert in_fork(holds) == 7
        assert named_in(tmp_path) == os.getpid()
        with pytest.raises(BlockingIOError):
            lock.Lock(tmp_path, "checkpoint").hold()
        mine.hold()
    assert list(tmp_path.iterdir()) == []


def test_callbacks_may_go_to_another_folder(whole, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def go(event):
        if event.round == 3:
            os.chdir(tmp_path / "elsewhere")

    assert killed.differences(traced("c", go), whole) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "elsewhere"]
    assert rounds_in(tmp_path / "c") == [6, 7]


def test_no_file_of_a_folder_of_checkpoints_is_lost(tmp_path):
    (tmp_path / ".writable").write_text("mine")
    train(tmp_path)
    assert (tmp_path / ".writable").read_text() == "mine"


def test_one_process_runs_in_a_folder_once_at_a_time(tmp_path):
    def again(event):
        if event.kind == "start":
            with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on"):
                topofl.run(
                    **problems.options(
                        saving=topofl.Saving(tmp_path, resume=True), **killed.settings("dsgd")
                    )
                )
        if event.round == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, every=2), **killed.settings("dsgd")),
            callbacks=[again],
        )
    assert not (tmp_path / lock.LOCK).exists()
    train(tmp_path, resume=True)
    assert rounds_in(tmp_path) == [6, 7]


def test_many_that_want_it_at_once_have_it_one_after_the_other(tmp_path):
    (tmp_path / lock.LOCK).write_text(OLD)
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
        **problems.options(saving=topofl.Saving(folder, every=2), **killed.settings("dsgd")),
        callbacks=[callback, lambda event: kept.update(models=event.models)],
    )
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
        wanted = (
            rf"checkpoint of round {t} could not be .* in use by process {os.getpid()} on .*; "
            r"there is none$"
        )
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
        with pytest.raises(
            topofl.Interrupted, match=r"could not be written to .*/c \(there is none\)"
        ):
            traced(folder, block)
    assert caught == []
