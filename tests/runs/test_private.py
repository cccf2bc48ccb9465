"""Private folders: adopted from ended processes of this host, kept while they are of use."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.runs.conftest import BASE
from topofl._support import processes
from topofl.engine.checkpoint import rounds_in
from topofl.runs import RunStore, store, sweep, work
from topofl.runs.plan import prepare
from topofl.runs.work import RUNNING, Job, claimed_folder, perform, remove_abandoned, staging_folder

KEY = "0123456789abcdef"
LONG = {**BASE, "run": {"rounds": 40}}


@pytest.fixture
def ended() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left_by(monkeypatch: pytest.MonkeyPatch, root: Path, key: str = KEY, **owner: object) -> Path:
    """Return a folder with a file, as claimed by a process with this identity."""
    with monkeypatch.context() as patch:
        patch.setattr(store, "identity", lambda: processes.identity() | owner)
        folder = claimed_folder(root, key)
    (folder / "file").write_text("kept")
    return folder


def test_the_folder_of_an_ended_process_is_adopted(tmp_path, monkeypatch, ended):
    old = left_by(monkeypatch, tmp_path, pid=ended)
    mine = claimed_folder(tmp_path, KEY)
    assert (mine / "file").read_text() == "kept"
    assert not old.exists()
    assert work._owner(mine) == processes.identity()
    assert claimed_folder(tmp_path, KEY) == mine


def test_the_name_of_a_folder_identifies_its_process(tmp_path, monkeypatch):
    strange = {"host": "a+b/c-d %", "space": None, "started": None}
    folder = left_by(monkeypatch, tmp_path, **strange)
    assert work._owner(folder) == processes.identity() | strange
    assert work._owner(tmp_path / f"{KEY}-host-12") == {}


@pytest.mark.parametrize(
    "owner",
    [
        {"host": "elsewhere"},
        {"space": "pid:[1]"},
        {"started": "0aa1b2c3-another-boot 12"},
        {"pid": os.getppid(), "started": processes.start_time(os.getppid())},
    ],
)
def test_folders_of_processes_that_may_be_alive_are_left_alone(tmp_path, monkeypatch, ended, owner):
    old = left_by(monkeypatch, tmp_path, **({"pid": ended} | owner))
    mine = claimed_folder(tmp_path, KEY)
    assert list(mine.iterdir()) == []
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert (old / "file").exists()


@pytest.mark.slow
def test_only_one_of_several_processes_adopts_a_folder(tmp_path, monkeypatch, ended):
    left_by(monkeypatch, tmp_path, pid=ended)
    script = (
        "import sys; from pathlib import Path; from topofl.runs.work import claimed_folder; "
        "sys.stdin.read(1); "
        "print((claimed_folder(Path(sys.argv[1]), sys.argv[2]) / 'file').exists()); "
        "sys.stdout.flush(); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", script, str(tmp_path), KEY]
    started = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in started:
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
    found = [process.stdout.readline().strip() for process in started if process.stdout]
    for process in started:
        process.communicate()
    assert sorted(found) == ["False", "True"]


def test_of_threads_that_rename_one_folder_only_one_succeeds(tmp_path, monkeypatch, ended):
    """The moment between finding and renaming, which real processes rarely share."""
    old = left_by(monkeypatch, tmp_path, pid=ended)
    both, rename, adopted = threading.Barrier(2), os.rename, []
    names = iter(["one", "two"])

    def together(source, target):
        both.wait()
        rename(source, target)
        adopted.append(target)

    monkeypatch.setattr(work.os, "rename", together)
    monkeypatch.setattr(work, "folder_name", lambda key: f"{key}+{next(names)}")
    threads = [threading.Thread(target=claimed_folder, args=(tmp_path, KEY)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(adopted) == 1
    assert not old.exists()
    assert len(list((tmp_path / RUNNING).glob("*/file"))) == 1


def test_checkpoints_of_runs_that_are_not_stored_are_kept(tmp_path, monkeypatch, ended):
    old = left_by(monkeypatch, tmp_path, pid=ended)
    remove_abandoned(tmp_path, [KEY], [])
    assert (old / "file").exists()
    remove_abandoned(tmp_path, [], [KEY])  # a run of another sweep
    assert (old / "file").exists()
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_a_folder_that_was_not_written_for_a_day_is_removed(tmp_path, monkeypatch):
    old = left_by(monkeypatch, tmp_path, host="elsewhere")
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert old.exists()
    day_ago = time.time() - work.FORGOTTEN - 1
    os.utime(old, (day_ago, day_ago))
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert old.exists()  # its file is new
    os.utime(old / "file", (day_ago, day_ago))
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_incomplete_files_are_removed_only_if_their_process_has_ended(tmp_path, monkeypatch, ended):
    with staging_folder(tmp_path, KEY) as mine:
        with monkeypatch.context() as patch:
            patch.setattr(store, "identity", lambda: processes.identity() | {"pid": ended})
            patch.setattr(work.shutil, "rmtree", lambda *_, **__: None)  # it was killed
            with staging_folder(tmp_path, KEY) as other:
                pass
        assert other.exists()
        remove_abandoned(tmp_path, [KEY], [])
        assert mine.exists()
        assert not other.exists()


def rounds_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the rounds that are trained from now on."""
    rounds: list[int] = []
    monkeypatch.setattr(
        "topofl.runs.work.Reporter.__call__",
        lambda self, event: rounds.append(event.round) if event.kind == "round" else None,
    )
    return rounds


CHECKPOINTS = {**LONG, "saving": {"every": 10}}


def test_a_full_disk_costs_no_checkpoints(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    rounds = rounds_of(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "add", full)
        with pytest.raises(OSError, match="cannot be written to"):
            sweep(CHECKPOINTS, store=tmp_path, progress=False)
    assert max(rounds) == 40
    rounds.clear()
    assert len(sweep(CHECKPOINTS, store=tmp_path, progress=False).runs) == 1
    assert min(rounds) == 31
    assert list((tmp_path / RUNNING).iterdir()) == []


KILLED = """
import os, sys
from topofl.runs import sweep, work

def kill(self, event):
    if event.kind == "round" and event.round == 25:
        os._exit(9)

work.Reporter.__call__ = kill
sweep({base!r}, store={store!r}, progress=False)
"""


def test_a_killed_process_costs_no_checkpoints(tmp_path, monkeypatch):
    script = KILLED.format(base=CHECKPOINTS, store=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    (point,) = prepare(CHECKPOINTS, None, seeds=None)
    RunStore(tmp_path).fail(work.Failure(point.key, {}, "the process of the run was killed"))
    rounds = rounds_of(monkeypatch)
    assert sweep(CHECKPOINTS, store=tmp_path, progress=False).runs == ()
    assert rounds == []
    sweep(CHECKPOINTS, store=tmp_path, retry_failed=True, progress=False)
    assert min(rounds) == 21


def test_errors_of_the_run_train_nothing_again_and_those_of_resuming_do(tmp_path, monkeypatch):
    (point,) = prepare(CHECKPOINTS, None, seeds=None)
    rounds = rounds_of(monkeypatch)
    count = work.Reporter.__call__

    def fail(reporter, event):
        count(reporter, event)
        if event.kind == "round" and event.round == 15:
            raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(work.Reporter, "__call__", fail)
        outcome = perform(point.job, str(tmp_path))
    assert (outcome.state, outcome.error, rounds) == ("failed", "ValueError: no", [*range(1, 16)])
    checkpoints = claimed_folder(tmp_path, point.key) / "checkpoints"
    (checkpoints / "round-00000010").mkdir(parents=True)
    (checkpoints / "round-00000010" / "marker.json").write_text("damaged")
    assert rounds_in(checkpoints) == [10]
    rounds.clear()
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert perform(point.job, str(tmp_path)).state == "done"
    assert rounds == [*range(1, 41)]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (PermissionError(13, "Permission denied", "/data/mnist"), "failed"),
        (OSError(5, "Input/output error", "/data/mnist"), "failed"),
        (OSError(5, "Input/output error"), "failed"),
        (OSError(28, "No space left on device"), "unwritable"),
        (OSError(28, "No space left on device", "/data/cache"), "unwritable"),
        (PermissionError(13, "Permission denied", "{store}/x"), "unwritable"),
        (OSError(5, "Input/output error", "{store}/x"), "unwritable"),
        (FileNotFoundError(2, "No such file", "{store}/x"), "failed"),
    ],
)
def test_only_full_disks_and_errors_below_the_store_stop_the_sweep(
    tmp_path, monkeypatch, error, state
):
    if error.filename:
        error.filename = error.filename.format(store=tmp_path)

    def fail(*_):
        raise error

    monkeypatch.setattr(work, "_train", fail)
    assert perform(Job(KEY, {}), str(tmp_path)).state == state


@pytest.mark.parametrize("when", ["_built", "add"])
def test_a_worker_ends_at_sigterm_before_training_and_after_storing(tmp_path, monkeypatch, when):
    (point,) = prepare(LONG, None, seeds=None)
    place = work if when == "_built" else RunStore
    original = getattr(place, when)

    def stopped(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    rounds = rounds_of(monkeypatch)
    monkeypatch.setattr(place, when, stopped)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a worker
    try:
        if when == "_built":
            assert perform(point.job, str(tmp_path)).state == "interrupted"
            assert rounds == []
        else:
            assert perform(point.job, str(tmp_path)).state == "done"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
