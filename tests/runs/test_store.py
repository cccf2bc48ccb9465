"""A store: runs are complete or not there, safe with two writers, and none is trained twice.

Private folders are adopted from ended processes of this host, and kept while they are of use.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.new_process import ROOT
from tests.runs.conftest import BASE, GRID
from topofl import History, config
from topofl._support.locks import LOCK, locked
from topofl.cli import main
from topofl.engine.checkpoint import rounds_in
from topofl.runs import Failure, RunStore, curves_of, folder, sweep, work
from topofl.runs.folder import RUNNING, claimed_in, remove_abandoned, staging_folder
from topofl.runs.plan import prepare
from topofl.runs.work import Job, perform

KEY = "0123456789abcdef"
LONG = {**BASE, "run": {"rounds": 40}}
CHECKPOINTS = {**LONG, "saving": {"every": 10}}


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def finished():
    experiment = config.build({**BASE, "run": {"rounds": 2, "seed": 0}})
    return experiment.run(progress=False), experiment.tables


@pytest.fixture
def copied(stored, tmp_path):
    """Return a store of eight runs that may be changed."""
    return RunStore(shutil.copytree(stored, tmp_path / "a copy"))


def test_a_run_comes_back_as_it_was_stored(tmp_path, finished):
    history, tables = finished
    place = RunStore(tmp_path / "new" / "store")
    run = place.add(KEY, history, tables, {"seconds": 1.5})
    again = RunStore(place.root).find(KEY)
    for one in (run, again):
        assert one.settings["topology.name"] == "ring"
        assert one.settings["algorithm.lr"] == 0.1
        assert one.note["seconds"] == 1.5
        assert one.curves == json.loads(json.dumps(curves_of(history)))
        np.testing.assert_array_equal(one.history["accuracy"], history["accuracy"])
    assert config.load(run.folder / "config.toml").tables == tables
    assert place.find("f" * 16) is None


def test_curves_are_those_of_the_history(finished):
    history, _ = finished
    curves = curves_of(history)
    assert curves["round"] == [0, 2]
    assert curves["bytes"] == [0, int(history["bytes"].sum())]
    accuracy = curves["scores"]["accuracy"]
    assert accuracy["mean"][-1] == history["accuracy"][-1].mean()
    assert accuracy["worst"][-1] == history["accuracy"][-1].min()
    assert curves["scores"]["loss"]["worst"][-1] == history["loss"][-1].max()
    assert "seconds" not in curves
    scores = np.array([[np.nan, *np.arange(20.0)], [np.nan] * 21])
    evaluations = {"round": np.array([0, 1]), "accuracy": scores}
    sent = {"messages": np.ones(1), "bytes": np.ones(1)}
    found = curves_of(History({}, sent, evaluations, np.zeros((1, 21))))["scores"]["accuracy"]
    assert found["worst_tenth"] == [0.5, None]  # without the node that has no score
    assert found["best"] == [19.0, None]
    assert found["std"][0] == pytest.approx(np.arange(20.0).std())


def test_two_writers_of_one_run_leave_one_complete_run(tmp_path, finished):
    place, barrier, errors = RunStore(tmp_path), threading.Barrier(4), []

    def write() -> None:
        barrier.wait()
        try:
            place.add(KEY, *finished)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [run.key for run in place.runs()] == [KEY]
    assert list((tmp_path / RUNNING).iterdir()) == []


@pytest.mark.parametrize(
    "broken", ["topofl.history.files.save", "topofl.config.dumps", "topofl.runs.folder.sync_folder"]
)
def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path, finished, monkeypatch, broken):
    monkeypatch.setattr(broken, full)
    with pytest.raises(OSError, match="No space left"):
        RunStore(tmp_path).add(KEY, *finished)
    monkeypatch.undo()
    assert RunStore(tmp_path).runs() == ()
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_listing_opens_no_history(stored, monkeypatch):
    monkeypatch.setattr(History, "load", lambda *_: pytest.fail("a history was opened"))
    runs = RunStore(stored).runs()
    assert len(runs) == 8
    assert {run.settings["run.seed"] for run in runs} == {0, 1}
    assert all(run.curves["scores"]["accuracy"]["mean"] for run in runs)


def test_changed_settings_do_not_change_a_run_or_a_failure(stored, tmp_path, finished):
    run = RunStore(stored).runs()[0]
    table = {"data": {"flip_labels": [1]}, "point": {"rates": [0.1]}}
    for one in (run, Failure(KEY, table, "ValueError: no")):
        before = json.dumps(one.tables)
        for name, value in one.settings.items():
            if isinstance(value, list):
                value.append(2)
            one.settings[name] = "changed"
        assert json.dumps(one.tables) == before
        assert "changed" not in one.settings.values()
    assert Failure(KEY, table, "").settings == {"data.flip_labels": [1], "rates": [0.1]}


def test_removed_runs_are_gone_at_once(copied):
    first, *rest = copied.runs()
    assert copied.remove(first.key)
    assert [run.key for run in copied.runs()] == [run.key for run in rest]
    assert not copied.remove(first.key)


def test_failures_are_kept_until_the_run_is_finished(tmp_path, finished):
    place = RunStore(tmp_path)
    place.fail(Failure(KEY, finished[1], "ValueError: no", "Traceback ..."))
    (failure,) = place.failures()
    said = failure.key, failure.error, failure.traceback
    assert said == (KEY, "ValueError: no", "Traceback ...")
    assert failure.settings["topology.name"] == "ring"
    (tmp_path / "failed" / f"{KEY}.json").write_text("{")
    with pytest.warns(UserWarning, match="is damaged"):
        assert place.failures() == ()
    assert place.keys() == [KEY]
    place.add(KEY, *finished)
    assert place.failures() == ()
    assert place.remove(KEY)


@pytest.mark.parametrize("text", ["", "[]", '{"key": "01'])
def test_damaged_records_are_left_out_and_their_remedy_works(copied, capsys, text):
    run = copied.runs()[0]
    (run.folder / "run.json").write_text(text)
    with pytest.warns(UserWarning, match=r"run.json is damaged.*; it is left out") as warned:
        assert len(copied.runs()) == 7
    with pytest.warns(UserWarning, match="is damaged"):
        assert copied.find(run.key) is None
    how = {"seeds": 2, "store": copied.root, "progress": False}
    with pytest.warns(UserWarning, match="is damaged"):
        assert len(sweep(BASE, GRID, **how).runs) == 7
    command = re.findall(r"topofl (runs .* --remove)", str(warned[0].message))[0]
    assert main(shlex.split(command)) == 0
    assert "removed 1 of 8 runs" in capsys.readouterr().err
    assert len(copied.runs()) == 7
    assert len(sweep(BASE, GRID, **how).runs) == 8


def test_runs_of_earlier_versions_are_found(copied):
    (copied.root / "store.json").unlink()
    run = copied.runs()[0]
    (run.folder / "run.json").write_text('{"seconds": 1.0, "made": {}}')
    again = copied.find(run.key)
    assert again.settings == {k: v for k, v in run.settings.items() if v is not None}
    assert again.curves["scores"] == run.curves["scores"]


CLAIMED = """
import sys, time
from pathlib import Path
from topofl.runs.folder import {0}

with {0}(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "file").write_text("kept")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Start processes that have claimed a folder until they are killed; give both."""
    started = []

    def hold(claim="claimed_in"):
        command = [sys.executable, "-c", CLAIMED.format(claim), str(tmp_path), KEY]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
        return started[-1], Path(started[-1].stdout.readline().rstrip("\n"))

    yield hold
    for process in started:
        end(process)
        process.stdout.close()


def end(process):
    process.kill()
    process.wait()


def test_the_folder_of_a_killed_process_is_continued_and_that_of_a_living_one_is_not(
    tmp_path, holder
):
    process, left = holder()
    with claimed_in(tmp_path, KEY) as mine:
        assert (mine != left, list(mine.iterdir())) == (True, [mine / LOCK])
    assert not mine.exists(), "it is empty"
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert (left / "file").exists()
    end(process)
    with claimed_in(tmp_path, KEY) as mine:
        assert (mine, (mine / "file").read_text()) == (left, "kept")
        with claimed_in(tmp_path, KEY) as second:
            assert second != mine
    assert (left / "file").exists(), "a later process may continue"
    with claimed_in(tmp_path, KEY) as mine:
        folder.clear(mine)
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_a_folder_that_another_finds_before_it_is_locked_is_left_to_it(tmp_path, monkeypatch):
    begun, others = folder.Lock.hold, []

    def hold(self):
        if not others:  # between the creation of the folder and its lock
            others.append(folder.Lock(self.folder))
            begun(others[0])
        begun(self)

    monkeypatch.setattr(folder.Lock, "hold", hold)
    with claimed_in(tmp_path, KEY) as mine:
        assert mine != others[0].folder
    others[0].release()


def test_a_run_that_was_stored_while_its_folder_was_claimed_is_not_repeated(tmp_path, monkeypatch):
    (point,) = prepare(CHECKPOINTS, None, seeds=None)
    answers = iter([False, True])
    monkeypatch.setattr(RunStore, "has", lambda *_: next(answers))
    monkeypatch.setattr(work, "_train", lambda *_: pytest.fail("trained"))
    assert perform(point.job, str(tmp_path)).state == "found"


def test_folders_of_other_hosts_are_left_alone(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "a+b/c-d %[")
        with claimed_in(tmp_path, KEY) as old:
            (old / "file").write_text("kept")
        with claimed_in(tmp_path, KEY) as again:
            assert again == old
    with claimed_in(tmp_path, KEY) as mine:
        assert mine != old
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert (old / "file").exists()
    assert [(key, alive) for key, _, _, alive in folder.begun_in(tmp_path)] == [(KEY, True)]


@pytest.mark.slow
def test_of_threads_that_want_one_folder_only_one_has_it(tmp_path, holder):
    process, left = holder()
    end(process)
    both, had = threading.Barrier(2), []

    def claim():
        both.wait()
        with claimed_in(tmp_path, KEY) as mine:
            had.append(mine)
            both.wait()

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(had)) == 2
    assert left in had
    assert list((tmp_path / RUNNING).iterdir()) == [left]


@pytest.mark.slow
def test_folders_are_removed_when_nobody_will_use_them_again(tmp_path, holder):
    process, left = holder()
    end(process)
    remove_abandoned(tmp_path, [KEY], [])  # its run is not stored
    remove_abandoned(tmp_path, [], [KEY])  # it is of another sweep
    assert (left / "file").exists()
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert list((tmp_path / RUNNING).iterdir()) == []
    old = tmp_path / RUNNING / f"{KEY}+12+elsewhere++pid%3A%5B1%5D"  # as earlier versions named it
    old.mkdir()
    (old / "file").write_text("kept")
    day_ago = time.time() - folder.FORGOTTEN - 1
    os.utime(old, (day_ago, day_ago))
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert old.exists()  # its file is new
    os.utime(old / "file", (day_ago, day_ago))
    with locked(old):
        remove_abandoned(tmp_path, [KEY], [KEY])
        assert (old / "file").exists()
    os.utime(old, (day_ago, day_ago))
    remove_abandoned(tmp_path, [KEY], [KEY])
    assert list((tmp_path / RUNNING).iterdir()) == []


@pytest.mark.slow
def test_incomplete_files_are_removed_only_if_their_process_has_ended(tmp_path, holder):
    process, other = holder("staging_folder")
    with staging_folder(tmp_path, KEY) as mine:
        (mine / "file").write_text("of this process")
        remove_abandoned(tmp_path, [KEY], [])
        assert (other / "file").exists()
        end(process)
        remove_abandoned(tmp_path, [KEY], [])
        assert (mine / "file").exists()
        assert not other.exists()
    process, other = holder("staging_folder")
    end(process)
    with staging_folder(tmp_path, KEY) as mine:
        assert (mine, list(mine.iterdir())) == (other, [other / LOCK])
    assert list((tmp_path / RUNNING).iterdir()) == []


@pytest.fixture
def rounds(monkeypatch) -> list[int]:
    """Return a list that gets the rounds that are trained from now on."""
    found: list[int] = []

    def note(event):
        if event.kind == "round":
            found.append(event.round)

    monkeypatch.setattr(work, "reporter", lambda *_: note)
    return found


def test_a_full_disk_stops_the_sweep_and_costs_neither_runs_nor_checkpoints(
    tmp_path, monkeypatch, rounds
):
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "add", full)
        said = r"cannot be written to: .*No space left.*start the sweep"
        with pytest.raises(OSError, match=said):
            sweep(CHECKPOINTS, store=tmp_path, progress=False)
    assert max(rounds) == 40
    assert RunStore(tmp_path).failures() == ()
    rounds.clear()
    assert len(sweep(CHECKPOINTS, store=tmp_path, progress=False).runs) == 1
    assert min(rounds) == 31
    assert list((tmp_path / RUNNING).iterdir()) == []


KILLED = """
import os, sys
from topofl.runs import sweep, work

def kill(event):
    if event.kind == "round" and event.round == 25:
        os._exit(9)

work.reporter = lambda *_: kill
sweep({base!r}, store={store!r}, progress=False)
"""


@pytest.mark.slow
def test_a_killed_process_costs_no_checkpoints(tmp_path, rounds):
    script = KILLED.format(base=CHECKPOINTS, store=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    (point,) = prepare(CHECKPOINTS, None, seeds=None)
    RunStore(tmp_path).fail(Failure(point.key, {}, "the process of the run was killed"))
    assert sweep(CHECKPOINTS, store=tmp_path, progress=False).runs == ()
    assert rounds == []
    sweep(CHECKPOINTS, store=tmp_path, retry_failed=True, progress=False)
    assert min(rounds) == 21


def test_errors_of_the_run_train_nothing_again_and_those_of_resuming_do(
    tmp_path, monkeypatch, rounds
):
    (point,) = prepare(CHECKPOINTS, None, seeds=None)
    count = work.reporter()

    def fail(event):
        count(event)
        if event.kind == "round" and event.round == 15:
            raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(work, "reporter", lambda *_: fail)
        outcome = perform(point.job, str(tmp_path))
    assert (outcome.state, outcome.error, rounds) == ("failed", "ValueError: no", [*range(1, 16)])
    with claimed_in(tmp_path, point.key) as place:
        checkpoints = place / "checkpoints"
        (checkpoints / "round-00000010").mkdir(parents=True)
        (checkpoints / "round-00000010" / "marker.json").write_text("damaged")
    assert rounds_in(checkpoints) == [10]
    rounds.clear()
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


@pytest.mark.parametrize(
    ("place", "when", "state"), [(work, "_built", "interrupted"), (RunStore, "add", "done")]
)
def test_a_worker_ends_at_sigterm_before_training_and_after_storing(
    tmp_path, monkeypatch, rounds, place, when, state
):
    (point,) = prepare(LONG, None, seeds=None)
    original = getattr(place, when)

    def stopped(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(place, when, stopped)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a worker
    try:
        assert perform(point.job, str(tmp_path)).state == state
        assert (rounds == []) == (state == "interrupted")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_scores_before_the_first_exchange_have_sent_nothing():
    sent = {"messages": np.full(3, 2.0), "bytes": np.array([10.0, 20.0, 40.0])}
    scores = np.full((4, 2), 0.5)
    early = "accuracy_before_exchange"
    meta = {
        "task": {"name": "t", "scores": {"accuracy": "high"}},
        "columns": {early: {"score": "accuracy", "stage": "before_exchange", "set": "test"}},
    }
    history = History(meta, sent, {"round": np.arange(4), early: scores}, np.zeros((1, 2)))
    assert curves_of(history)["before_exchange"] == {
        "scores": [early],
        "bytes": [0, 0, 10, 30],
        "messages": [0, 0, 2, 4],
    }
