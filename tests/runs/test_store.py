"""A store: runs are complete or not there, found by what determines them, safe with two writers."""

import json
import re
import shlex
import shutil
import threading

import numpy as np
import pytest

from tests.runs.conftest import BASE, GRID
from topofl import History, config
from topofl.cli import main
from topofl.runs import Failure, RunStore, curves_of, sweep
from topofl.runs.identity import key_of
from topofl.runs.work import RUNNING

KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def finished():
    experiment = config.build({**BASE, "run": {"rounds": 2, "seed": 0}})
    return experiment.run(progress=False), experiment.tables


def test_a_run_comes_back_as_it_was_stored(tmp_path, finished):
    history, tables = finished
    store = RunStore(tmp_path / "new" / "store")
    run = store.add(KEY, history, tables, {"seconds": 1.5})
    again = RunStore(store.root).find(KEY)
    assert again is not None
    for one in (run, again):
        assert one.settings["topology.name"] == "ring"
        assert one.settings["algorithm.lr"] == 0.1
        assert one.note["seconds"] == 1.5
        assert one.curves == json.loads(json.dumps(curves_of(history)))
        np.testing.assert_array_equal(one.history["accuracy"], history["accuracy"])
    assert config.load(run.folder / "config.toml").tables == tables
    assert store.find("f" * 16) is None


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


def test_worst_tenth_leaves_out_nodes_without_a_score_and_nan_is_none():
    scores = np.array([[np.nan, *np.arange(20.0)], [np.nan] * 21])
    evaluations = {"round": np.array([0, 1]), "accuracy": scores}
    sent = {"messages": np.ones(1), "bytes": np.ones(1)}
    found = curves_of(History({}, sent, evaluations, np.zeros((1, 21))))["scores"]["accuracy"]
    assert found["worst_tenth"] == [0.5, None]
    assert found["best"] == [19.0, None]
    assert found["std"][0] == pytest.approx(np.arange(20.0).std())


def test_the_key_depends_on_settings_and_contents_but_not_on_place_or_device():
    tables = {"data": {"name": "mnist", "root": "a"}, "run": {"rounds": 1, "seed": 0}}
    key = key_of(tables, "digest")
    same = {**tables, "data": {"name": "mnist", "root": "b", "cache": "c"}}
    same |= {"compute": {"device": "cuda"}, "saving": {"every": 3}}
    same["run"] = {**tables["run"], "progress": False}
    assert key_of(same, "digest") == key
    assert key_of(tables, "other") != key
    assert key_of({**tables, "run": {"rounds": 2, "seed": 0}}, "digest") != key
    assert key_of({**tables, "compute": {"dtype": "float64"}}, "digest") != key


def test_two_writers_of_one_run_leave_one_complete_run(tmp_path, finished):
    history, tables = finished
    store, barrier, errors = RunStore(tmp_path), threading.Barrier(4), []

    def write() -> None:
        barrier.wait()
        try:
            store.add(KEY, history, tables)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [run.key for run in store.runs()] == [KEY]
    assert list((tmp_path / RUNNING).iterdir()) == []


@pytest.mark.parametrize("broken", ["history", "config", "record"])
def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path, finished, monkeypatch, broken):
    history, tables = finished

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    places = {
        "history": "topofl.history.files.save",
        "config": "topofl.config.dumps",
        "record": "topofl.runs.store.sync_folder",
    }
    monkeypatch.setattr(places[broken], full)
    with pytest.raises(OSError, match="No space left"):
        RunStore(tmp_path).add(KEY, history, tables)
    monkeypatch.undo()
    assert RunStore(tmp_path).runs() == ()
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_listing_opens_no_history(stored, monkeypatch):
    monkeypatch.setattr(History, "load", lambda *_: pytest.fail("a history was opened"))
    runs = RunStore(stored).runs()
    assert len(runs) == 8
    assert {run.settings["run.seed"] for run in runs} == {0, 1}
    assert all(run.curves["scores"]["accuracy"]["mean"] for run in runs)


def test_removed_runs_are_gone_at_once(stored, tmp_path):
    root = shutil.copytree(stored, tmp_path / "copy")
    store = RunStore(root)
    first, *rest = store.runs()
    assert store.remove(first.key)
    assert [run.key for run in store.runs()] == [run.key for run in rest]
    assert not store.remove(first.key)


def test_failures_are_kept_until_the_run_is_finished(tmp_path, finished):
    history, tables = finished
    store = RunStore(tmp_path)
    store.fail(Failure(KEY, tables, "ValueError: no", "Traceback ..."))
    (failure,) = store.failures()
    assert (failure.key, failure.error, failure.traceback) == (
        KEY,
        "ValueError: no",
        "Traceback ...",
    )
    assert failure.settings["topology.name"] == "ring"
    store.add(KEY, history, tables)
    assert store.failures() == ()
    assert store.remove(KEY)


def test_a_store_of_another_version_is_refused(tmp_path, finished):
    (tmp_path / "store.json").write_text('{"format": 99}')
    store = RunStore(tmp_path)
    for use in (store.runs, store.failures, lambda: store.find(KEY), lambda: store.remove(KEY)):
        with pytest.raises(ValueError, match="must be a store of format 1, got format 99; use the"):
            use()
    with pytest.raises(ValueError, match="format 99"):
        store.add(KEY, *finished)


def test_folders_with_other_files_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"it holds thesis.tex; name another folder"):
        RunStore(tmp_path).create()
    with pytest.raises(ValueError, match="must be a folder, got a file"):
        RunStore(tmp_path / "thesis.tex").create()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        RunStore(tmp_path / "missing").runs()


@pytest.mark.parametrize("key", ["../elsewhere", "", "XYZ", 3])
def test_keys_are_hexadecimal(tmp_path, key):
    with pytest.raises(ValueError, match="`key` must be hexadecimal digits"):
        RunStore(tmp_path).find(key)


@pytest.mark.parametrize("text", ["", "[]", '{"key": "01'])
def test_damaged_records_are_left_out_and_their_remedy_works(stored, tmp_path, capsys, text):
    root = shutil.copytree(stored, tmp_path / "a copy")
    run = RunStore(root).runs()[0]
    (run.folder / "run.json").write_text(text)
    with pytest.warns(UserWarning, match=r"run.json is damaged.*; it is left out") as warned:
        assert len(RunStore(root).runs()) == 7
    with pytest.warns(UserWarning, match="is damaged"):
        assert RunStore(root).find(run.key) is None
    with pytest.warns(UserWarning, match="is damaged"):
        swept = sweep(BASE, GRID, seeds=2, store=root, progress=False)
    assert len(swept.runs) == 7
    command = re.findall(r"topofl (runs .* --remove)", str(warned[0].message))[0]
    assert main(shlex.split(command)) == 0
    assert "removed 1 of 8 runs" in capsys.readouterr().err
    assert len(RunStore(root).runs()) == 7
    assert len(sweep(BASE, GRID, seeds=2, store=root, progress=False).runs) == 8


def test_a_damaged_record_of_a_failure_is_left_out(tmp_path):
    store = RunStore(tmp_path)
    store.fail(Failure(KEY, {}, "ValueError: no"))
    (tmp_path / "failed" / f"{KEY}.json").write_text("{")
    with pytest.warns(UserWarning, match="is damaged"):
        assert store.failures() == ()
    assert store.keys() == [KEY]


def test_runs_of_earlier_versions_are_found(stored, tmp_path):
    root = shutil.copytree(stored, tmp_path / "copy")
    (root / "store.json").unlink()
    run = RunStore(root).runs()[0]
    (run.folder / "run.json").write_text('{"seconds": 1.0, "made": {}}')
    again = RunStore(root).find(run.key)
    assert again is not None
    assert again.settings == {k: v for k, v in run.settings.items() if v is not None}
    assert again.curves["scores"] == run.curves["scores"]


def test_the_version_of_topofl_is_in_the_key(monkeypatch):
    tables = {"data": {"name": "digits"}, "run": {"rounds": 1}}
    before = key_of(tables, "")
    monkeypatch.setattr("topofl.runs.identity.__version__", "99")
    assert key_of(tables, "") != before
