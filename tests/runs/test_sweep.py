"""Sweeps: nothing is repeated, a killed process costs its own run, interrupted ones go on."""

import functools
import importlib
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import topofl
from tests.runs.conftest import BASE, GRID
from tests.runs.functions import arguments
from topofl import algorithms, config
from topofl._support.locks import LOCK
from topofl.callbacks import Event
from topofl.runs import RunStore, SweepInterrupted, planned, probe, sweep, work
from topofl.runs import sweep as sweep_function
from topofl.runs.execute import SHOWN, Live, Processes, execute
from topofl.runs.folder import PROGRESS, RUNNING, claimed_in
from topofl.runs.plan import prepare
from topofl.runs.work import Outcome

DIVERGING = {"algorithm.lr": [0.1, 1e38]}
LONG = {**BASE, "run": {"rounds": 40}}


def test_runs_are_what_run_returns_and_are_not_repeated(stored, monkeypatch):
    monkeypatch.setattr(work, "_train", lambda *_: pytest.fail("a run was repeated"))
    found = sweep(BASE, GRID, seeds=2, store=stored, progress=False)
    assert (len(found.runs), found.failures) == (8, ())
    tables = prepare(BASE, GRID, seeds=2)[3].job.tables
    history = topofl.config.build(tables).run(progress=False)
    np.testing.assert_array_equal(found.runs[3].history["accuracy"], history["accuracy"])
    assert found.table.column("accuracy")[3] == history["accuracy"][-1].mean()
    assert found.table.columns[:3] == ("topology", "algorithm.lr", "seed")


def test_runs_that_are_trained_together_report_no_score_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "PAUSE", 0.0)
    for scored in (True, False):
        report = work.reporter(tmp_path, 5, scored)
        report(Event("evaluation", 1, {"accuracy_mean": 0.5}))
        report(Event("round", 2, {}))
        wanted = {"round": 2, "rounds": 5, "score": 0.5 if scored else None}
        assert json.loads((tmp_path / PROGRESS).read_text()) == wanted


EQUAL = {**BASE, "data": {"name": "digits", "partition": "iid", "n": 5}}
"""Runs whose nodes have equally many examples, whatever the seed."""


@pytest.fixture
def groups(monkeypatch):
    """Numbers of runs that were trained together."""
    found, original = [], config.trained_together

    def counted(experiments, callbacks=()):
        found.append(len(experiments))
        return original(experiments, callbacks)

    monkeypatch.setattr(config, "trained_together", counted)
    return found


def test_runs_of_one_kind_are_trained_together_and_have_their_own_bits(tmp_path, groups):
    found = sweep(EQUAL, GRID, seeds=3, store=tmp_path, progress=False)
    assert groups == [6, 6]  # two rates, each with two graphs and three seeds
    for run, point in zip(found.runs, found.points, strict=True):
        alone = config.build(point.job.tables).run(progress=False)
        assert run.history.meta == alone.meta
        for column in ("accuracy", "loss", "train_loss", "consensus_distance", "bytes"):
            np.testing.assert_array_equal(run.history[column], alone[column])


def test_large_runs_and_those_that_train_alone_are_not_given_to_a_process_in_groups(monkeypatch):
    server = {**EQUAL, "algorithm": "fedavg,lr=0.1"}
    assert [point.job.is_light for point in prepare(EQUAL, None, seeds=2)] == [True, True]
    assert [point.job.is_light for point in prepare(server, None, seeds=2)] == [False, False]
    monkeypatch.setattr(work, "PRODUCTS", work.LEAST_PRODUCTS)
    assert not prepare(EQUAL, None, seeds=1)[0].job.is_light


def test_runs_that_differ_in_more_than_seeds_and_graphs_are_trained_alone(tmp_path, groups):
    grid = {"algorithm.lr": [0.1, 0.5], "run.rounds": [1, 2]}
    assert len(sweep(EQUAL, grid, store=tmp_path, progress=False).runs) == 4
    assert groups == []


def shrinking_by_number(lr):
    """Return D-SGD after which node i shrinks its model by i %."""

    def shrink(models, state, round):
        if not models.flat.is_meta:
            models.flat.mul_(1 - torch.from_numpy(models.nodes)[:, None] / 100)
        return state

    phases = dict(algorithms.dsgd(lr=lr).phases)
    own = algorithms.Phase(lambda models: {}, shrink, rowwise=True)
    return algorithms.chain("shrinking_by_number", **phases, shrink=own)


def test_methods_of_users_are_trained_alone(tmp_path, groups):
    base = {**EQUAL, "algorithm": f"{__name__}:shrinking_by_number,lr=0.1"}
    found = sweep(base, None, seeds=2, store=tmp_path, progress=False)
    assert groups == []
    for run, point in zip(found.runs, found.points, strict=True):
        alone = config.build(point.job.tables).run(progress=False)
        np.testing.assert_array_equal(run.history["loss"], alone["loss"])


def test_runs_that_cannot_be_trained_together_or_fail_are_performed_alone(tmp_path, groups):
    base = {**EQUAL, "algorithm": "osgp,lr=0.1"}
    grid = {"topology": ["ring", "star"]}
    assert len(sweep(base, grid, store=tmp_path / "pushes", progress=False).runs) == 2
    base = {**EQUAL, "algorithm": "dsgd,lr=1e38"}
    found = sweep(base, None, seeds=2, store=tmp_path / "diverging", progress=False)
    assert groups == [2, 2]
    assert [failure.error[:17] for failure in found.failures] == ["DivergenceError: "[:17]] * 2


def test_runs_with_checkpoints_go_on_alone(tmp_path, groups):
    jobs = [point.job for point in prepare(EQUAL, None, seeds=3)]
    with claimed_in(tmp_path, jobs[1].key) as folder:
        (folder / "checkpoints").mkdir()
    execute(jobs, tmp_path, None, limit=1)
    assert groups == [2]
    assert len(RunStore(tmp_path).runs()) == 3


def test_runs_that_together_are_large_are_trained_in_smaller_groups(tmp_path, groups, monkeypatch):
    parameters = 5 * (64 * 10 + 10)
    monkeypatch.setattr(work, "NUMBERS", 2 * parameters)
    sweep(EQUAL, None, seeds=5, store=tmp_path, progress=False)
    assert groups == [2, 2]


@pytest.mark.parametrize(
    ("n", "changes", "rounds"),
    [
        (5, {}, 30_000),  # whatever their models, rounds take time
        (5, {"algorithm": "dsgd,lr=0.1,local_steps=500"}, 600),
        (100, {"evaluation": {"every": 1000}}, 12_000),
        (100, {"evaluation": {"every": 1}}, 8_000),
    ],
)
def test_runs_that_together_take_long_are_trained_alone(n, changes, rounds):
    base = {**EQUAL, **changes, "data": {**EQUAL["data"], "n": n}}

    def groups_of(rounds):
        jobs = [point.job for point in prepare({**base, "run": {"rounds": rounds}}, None, seeds=2)]
        return list(work._groups([(job, Path(), config.build(job.tables)) for job in jobs]))

    assert [len(group) for group in groups_of(rounds)] == [2]
    assert groups_of(2 * rounds) == []


def test_interrupted_groups_are_trained_again(tmp_path, groups, monkeypatch):
    def interrupt(event):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "reporter", lambda *_: interrupt)
    said = "with 0 of 2 runs finished in .*; 2 that were trained together begin again; start the"
    with pytest.raises(SweepInterrupted, match=said) as raised:
        sweep(EQUAL, None, seeds=2, store=tmp_path, progress=False)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.lost) == (str(raised.value), 2)
    monkeypatch.undo()
    assert len(sweep(EQUAL, None, seeds=2, store=tmp_path, progress=False).runs) == 2


def test_a_plan_says_how_many_runs_will_be_trained_together(tmp_path):
    base = {**EQUAL, "run": {"rounds": 2}}
    title = planned(base, None, seeds=3, store=tmp_path).title
    assert "; up to 3 runs will be trained together" in title
    assert "together" not in planned(base, None, seeds=1, store=tmp_path).title
    assert sweep(base, None, seeds=3, store=tmp_path, progress=False).together == 3
    assert "together" not in planned(base, None, seeds=3, store=tmp_path).title


@pytest.mark.slow
def test_groups_in_processes_that_are_interrupted_are_counted(tmp_path):
    """Ctrl-C reaches the parent, which asks its processes to end."""
    base = {**EQUAL, "run": {"rounds": 20_000}}
    main, seen = threading.main_thread(), list[Path]()

    def interrupt():
        for _ in range(600):
            seen[:] = tmp_path.rglob(PROGRESS)
            if seen:
                break
            time.sleep(0.1)
        signal.pthread_kill(main.ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SweepInterrupted) as raised:
        sweep(base, None, seeds=4, store=tmp_path, jobs=2, progress=False)
    thread.join()
    assert seen, "a run was in progress"
    assert raised.value.done == 0
    assert raised.value.lost in (2, 4), "one or both of two groups of two had begun"


def test_runs_of_an_interrupted_group_that_are_done_are_reported(tmp_path, monkeypatch):
    jobs = [point.job for point in prepare(EQUAL, None, seeds=3)]
    states = ["interrupted", "done", "done"]
    found = [Outcome(job.key, state) for job, state in zip(jobs, states, strict=True)]
    monkeypatch.setattr("topofl.runs.execute.perform_all", lambda *_: found)
    ended = []
    with pytest.raises(KeyboardInterrupt):
        execute(jobs, tmp_path, None, limit=1, ended=ended.append)
    assert ended == found[1:]


def test_runs_of_a_killed_group_are_performed_alone(tmp_path):
    jobs = [point.job for point in prepare(EQUAL, None, seeds=2)]
    tried = []

    def submit(function, *arguments):
        tried.append(arguments[0])
        future = Future()
        if isinstance(arguments[0], list):
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(function(*arguments))
        return future

    processes = Processes(1)
    processes.submit = submit
    execute(jobs, tmp_path, processes, limit=1)
    assert tried == [jobs, *jobs]
    assert len(RunStore(tmp_path).runs()) == 2


@pytest.mark.slow
def test_processes_give_the_same_table_and_read_data_once(stored, tmp_path):
    alone = sweep(BASE, GRID, seeds=2, store=stored, progress=False)
    both = sweep(BASE, GRID, seeds=2, store=tmp_path, jobs=2, progress=False)
    assert str(both.table) == str(alone.table)
    assert list((tmp_path / RUNNING).iterdir()) == []


def test_arguments_are_checked_once_per_run_and_runs_are_those_of_new_arguments(monkeypatch):
    experiment = config.build({**BASE, "compute": {"dtype": "float64"}})
    assert experiment.checked is not None
    alone = replace(experiment, checked=None).run(progress=False)
    module = importlib.import_module("topofl.engine.run")
    monkeypatch.setattr(module, "resolve", lambda *_: pytest.fail("checked again"))
    for _ in range(2):  # a run leaves what was checked as it is
        again = experiment.run(progress=False)
        for column in ("accuracy", "loss", "train_loss"):
            np.testing.assert_array_equal(again[column], alone[column])
    monkeypatch.undo()
    longer = replace(experiment, options={**experiment.options, "rounds": 3})
    assert longer.run(progress=False).n_rounds == 3
    with pytest.raises(TypeError, match="`callbacks` must be"):
        experiment.run(callbacks=cast(Any, [3]))


def test_runs_of_one_experiment_apply_networks_of_their_own():
    """Runs in other threads put parameters into theirs meanwhile."""
    experiment, used = config.build(BASE), []
    assert experiment.checked is not None
    checked = experiment.checked[1].module
    checked.register_forward_hook(lambda module, *_: used.append(module))
    experiment.run(progress=False)
    first = [*used]
    experiment.run(progress=False)
    second = used[len(first) :]
    assert first
    assert second
    assert checked not in used
    assert not {*map(id, first)} & {*map(id, second)}


def test_given_weights_that_change_after_the_check_are_used():
    run = {"rounds": 2, "init": "given"}
    experiment = config.build({**BASE, "run": run, "compute": {"dtype": "float64"}})
    with torch.no_grad():
        for parameter in experiment.model.parameters():
            parameter.fill_(0.25)
    fresh = replace(experiment, checked=None).run(progress=False)
    np.testing.assert_array_equal(experiment.run(progress=False)["loss"], fresh["loss"])
    untouched = config.build({**BASE, "run": run, "compute": {"dtype": "float64"}})
    assert not np.array_equal(untouched.run(progress=False)["loss"], fresh["loss"])


@pytest.mark.parametrize("first", ["frozen", "no reset"])
def test_values_that_are_not_drawn_and_change_after_the_check_are_used(first):
    tables = {
        **BASE,
        "model": {"name": "tests.runs.functions:network", "first": first},
        "run": {"rounds": 1},
        "compute": {"dtype": "float64"},
    }
    experiment = config.build(tables)
    for values in cast(Any, experiment.model)[1].state_dict().values():
        values.fill_(2)
    fresh = replace(experiment, checked=None).run(progress=False)
    np.testing.assert_array_equal(experiment.run(progress=False)["loss"], fresh["loss"])
    untouched = config.build(tables).run(progress=False)
    assert not np.array_equal(untouched["loss"], fresh["loss"])


def test_data_are_read_once_per_process(tmp_path, monkeypatch):
    read, digits = [], topofl.data.READERS["digits"]

    def counted(*args, **how):
        read.append(1)
        return digits(*args, **how)

    monkeypatch.setitem(topofl.data.READERS, "digits", functools.wraps(digits)(counted))
    sweep(BASE, GRID, seeds=2, store=tmp_path, progress=False)
    assert len(read) == 2  # once to plan the sweep, and once to perform it


def test_failures_are_kept_with_their_traceback_and_tried_again_only_when_asked(tmp_path):
    found = sweep(BASE, DIVERGING, store=tmp_path, progress=False)
    assert (len(found.runs), len(found.failures)) == (1, 1)
    assert found.failures[0].error.startswith("DivergenceError: ")
    assert "Traceback" in found.failures[0].traceback
    assert "failed: DivergenceError" in str(found.table)
    tried = []
    original = work._train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "_train", lambda *a: tried.append(a) or original(*a))
        sweep(BASE, DIVERGING, store=tmp_path, progress=False)
        assert tried == []
        sweep(BASE, DIVERGING, store=tmp_path, retry_failed=True, progress=False)
        assert len(tried) == 1


@pytest.mark.parametrize("when", ["too little", "nothing"])
def test_too_little_space_for_checkpoints_is_no_failure_of_the_run(tmp_path, monkeypatch, when):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    if when == "too little":
        left = shutil.disk_usage(tmp_path)._replace(free=100)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
    alone = {"algorithm.lr": [0.1, 0.5]}  # those that are trained together have no checkpoints
    with pytest.raises(OSError, match=r"a disk cannot be written to: .*`saving` must.*again"):
        sweep(BASE, alone, store=tmp_path, progress=False)
    assert RunStore(tmp_path).failures() == ()
    monkeypatch.undo()
    assert len(sweep(BASE, alone, store=tmp_path, progress=False).runs) == 2


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    rounds = []

    def interrupt(event):
        if event.kind == "round":
            rounds.append(event.round)
            if event.round == 7:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(work, "reporter", lambda *_: interrupt)
    with pytest.raises(SweepInterrupted, match=r"interrupted with 0 of 1 runs finished .*go on"):
        sweep(LONG, store=tmp_path, progress=False)
    assert max(rounds) <= 8  # the round in progress was ended
    stopped = max(rounds)
    rounds.clear()
    found = sweep(LONG, store=tmp_path, progress=False)
    assert min(rounds) == stopped + 1
    monkeypatch.undo()
    whole = sweep(LONG, store=tmp_path / "whole", progress=False)
    assert str(found.table) == str(whole.table)


STOPPED = {"base": {**BASE, "run": {"rounds": 300}}, "grid": {"algorithm.lr": [0.1, 0.2, 0.3]}}
SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
from topofl.runs import sweep, work

work.reporter = lambda *_: lambda event: time.sleep(0.02)  # runs of six seconds or more
if __name__ == "__main__":
    sweep(**{stopped!r}, store={store!r}, jobs=2, progress=False)
"""


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    return sweep(**STOPPED, store=tmp_path_factory.mktemp("never-stopped"), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_sweep_goes_on_and_leaves_no_processes(tmp_path, never_stopped, how):
    store = tmp_path / "store"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=os.getcwd(), stopped=STOPPED, store=str(store)))
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len(_owners(store)) < 2:
        time.sleep(0.05)
    workers = _owners(store)
    assert len(workers) == 2
    process.send_signal(how)
    _, text = process.communicate(timeout=200)
    assert process.returncode != 0
    if how != signal.SIGKILL:
        assert "start the same sweep again to go on" in text
    while time.monotonic() < deadline and any(map(_lives, workers)):
        time.sleep(0.05)
    assert not any(map(_lives, workers))
    assert len(RunStore(store).runs()) < 3
    found = sweep(**STOPPED, store=store, progress=False)
    assert str(found.table) == str(never_stopped.table)
    assert list((store / RUNNING).iterdir()) == []


def _owners(store: Path) -> list[int]:
    texts = [lock.read_text() for lock in store.glob(f"{RUNNING}/[0-9a-f]*+*/{LOCK}")]
    return [int(text.splitlines()[0]) for text in texts if text]


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.slow
def test_a_killed_process_costs_its_own_run_only(tmp_path):
    from tests.runs.test_clusters import killing_one

    base = {**BASE, "run": {"rounds": 2000}}
    grid = {"algorithm.lr": [0.1, 0.2, 0.3, 0.4]}
    with killing_one(tmp_path) as killed:
        found = sweep(base, grid, store=tmp_path, jobs=2, progress=False)
    assert killed
    assert (len(found.runs), len(found.failures)) == (3, 1)
    assert "the process of the run was killed" in found.failures[0].error
    again = sweep(base, grid, store=tmp_path, retry_failed=True, progress=False)
    assert len(again.runs) == 4


def test_no_further_run_starts_when_the_caller_says_so(tmp_path):
    left = iter([True, True])
    grid = {"algorithm.lr": [0.1, 0.2, 0.3]}
    jobs = [point.job for point in prepare(BASE, grid, seeds=1)]
    execute(jobs, tmp_path, None, limit=1, more=lambda: next(left, False))
    assert {run.key for run in RunStore(tmp_path).runs()} == {job.key for job in jobs[:2]}


def test_functions_of_the_point(tmp_path):
    found = sweep(arguments, {"lr": [0.1, 0.2]}, seeds=2, store=tmp_path, progress=False)
    assert [run.settings["lr"] for run in found.runs] == [0.1, 0.1, 0.2, 0.2]
    assert [run.settings["run.seed"] for run in found.runs] == [0, 1, 0, 1]
    history = topofl.run(**arguments({"lr": 0.2, "seed": 1}), progress=False)
    np.testing.assert_array_equal(found.runs[3].history["loss"], history["loss"])


def test_runs_that_do_not_fit_into_memory_are_throttled_or_refused(monkeypatch):
    module = sys.modules[sweep_function.__module__]
    (point,) = prepare(BASE, None, seeds=None, with_memory=True)
    assert point.memory
    assert point.device == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(module, "resident", lambda: 10)
    free = {"cpu": 220, "cuda:1": 1000}
    monkeypatch.setattr(module, "free_memory", free.get)
    here = [replace(point, device="cpu", memory=100) for _ in range(2)]
    assert module._fitting(here, 2) == 2
    free["cpu"] = 219
    with pytest.warns(UserWarning, match="1 of 2 processes are used: more runs do not fit"):
        assert module._fitting(here, 2) == 1
    free["cpu"] = 109
    with pytest.raises(ValueError, match="`jobs` must be runs that fit into memory"):
        module._fitting(here, 2)
    there = [replace(point, device="cuda:1", memory=60) for _ in range(4)]
    free["cpu"] = 35
    with pytest.warns(UserWarning, match="3 of 4 processes are used"):
        assert module._fitting(there, 4) == 3
    free |= {"cpu": 1000, "cuda:1": 130}
    with pytest.warns(UserWarning, match="2 of 4 processes are used: .* memory of cuda:1"):
        assert module._fitting(there, 4) == 2
    free["cuda:1"] = 59
    with pytest.raises(ValueError, match="fit into the memory of cuda:1"):
        module._fitting(there, 4)


def test_the_plan_counts_runs_that_are_stored(stored):
    grid = {**GRID, "topology": ["ring"]}
    table = planned(BASE, {**grid, "algorithm.lr": [0.1, 0.3]}, seeds=2, store=stored, jobs=2)
    assert table.column("runs") == (2, 2, 4)
    assert table.column("to do") == (0, 2, 2)
    assert table.column("minutes")[-1] > 0
    assert "in 2 processes" in table.title


def test_the_plan_counts_points_that_differ_in_an_unused_topology(tmp_path):
    base = {**BASE, "run": {"rounds": 1}}
    grid = {"algorithm": ["dsgd,lr=0.1", "fedavg,lr=0.1,epochs=1"]}
    table = planned(base, {**grid, "topology": ["ring", "star", "path"]}, store=tmp_path)
    text = "; 2 of 6 points repeat other points, since fedavg ignores the topology"
    assert table.title.endswith(text)
    assert "in 1 process, estimated" in table.title
    one = planned(base, {**grid, "topology": ["ring"]}, store=tmp_path)
    assert "ignores the topology" not in one.title


@pytest.mark.slow
def test_surplus_processes_are_ended(tmp_path):
    with Processes(2) as processes:
        pids = [pid.result(60) for _, pid in processes._pools.values()]
        processes.keep(1)
        deadline = time.monotonic() + 30
        while _lives(pids[1]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [_lives(pid) for pid in pids] == [True, False]
        assert processes.submit(os.getpid).result(60) == pids[0]
        execute([], tmp_path, processes, limit=1)
        assert not _lives(pids[0])


def test_processes_of_clusters_set_their_threads(tmp_path, monkeypatch):
    before, found = torch.get_num_threads(), []
    monkeypatch.setattr(work, "perform", lambda *_: found.append(torch.get_num_threads()))
    job, me = prepare(BASE, None, seeds=None)[0].job, work.identity()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    try:
        work.perform_elsewhere(job, str(tmp_path), me)
        work.perform_elsewhere(job, str(tmp_path), {**me, "pid": 1})
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        work.perform_elsewhere(job, str(tmp_path), {**me, "pid": 1})
    finally:
        torch.set_num_threads(before)
    assert found == [before, 3, 2]


class Broken:
    """An executor whose futures raise an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def submit(self, *_: object) -> Future[object]:
        future: Future[object] = Future()
        future.set_exception(self.error)
        return future


def of(module: str, name: str, text: str) -> Exception:
    """Return an error of a class of another package."""
    return type(name, (Exception,), {"__module__": module})(text)


FAILED = ("submitit.core.utils", "FailedJobError")


def test_errors_of_an_executor_stop_the_sweep_unless_the_process_was_killed(tmp_path):
    for error in (RuntimeError("no such queue"), of(*FAILED, "ImportError: topofl")):
        with pytest.raises(type(error), match=str(error)) as raised:
            sweep(BASE, store=tmp_path, executor=Broken(error), progress=False)
        assert raised.value is error
    assert RunStore(tmp_path).failures() == ()
    killed = of("distributed.scheduler", "KilledWorker", "b")
    limit = of(*FAILED, "UncompletedJobError: timed-out and not checkpointable")
    (point,) = prepare(BASE, None, seeds=None)
    for error in (BrokenProcessPool("a"), killed, limit):
        how = {"executor": Broken(error), "retry_failed": True, "progress": False}
        found = sweep(BASE, store=tmp_path, **how)
        assert found.failures[0].key == point.key
        assert "the process of the run was killed" in found.failures[0].error


def test_a_repeated_point_keeps_its_first_place(tmp_path):
    """The graph takes its nodes from the data."""
    base = {**BASE, "topology": "dcliques,clique_size=2,inter=ring,seed=0"}
    points = [{"algorithm.lr": lr} for lr in (0.1, 0.2, 0.1)]
    found = sweep(base, points, store=tmp_path, progress=False)
    assert found.table.column("algorithm.lr") == (0.1, 0.2)
    assert found.runs[0].settings["topology.name"] == "dcliques"


def test_the_time_of_a_plan_is_that_of_the_processes_that_fit(monkeypatch):
    monkeypatch.setattr(probe, "free_memory", lambda device: 3 * 2**20)
    assert probe._title(60.0, 1.0, 4).startswith("about 20 min in 3 processes")
    assert "3 of 4 fit into 3 MiB" in probe._title(60.0, 1.0, 4)
    assert probe._title(60.0, 4.0, 4).startswith("about 1 h in 1 process,")
    assert "0 of 4 fit" in probe._title(60.0, 4.0, 4)


def test_a_plan_goes_on_after_a_point_that_diverges(tmp_path):
    table = planned(BASE, DIVERGING, store=tmp_path)
    good, bad, total = table.rows
    assert good[3] > 0
    assert bad[0] == "1e+38"
    assert "DivergenceError: " in bad[3].reason
    assert total[1:] == (2, 2, good[3], good[4])
    assert "1 of 2 points failed in their probes" in table.title


UNGUARDED = f"""
import topofl
topofl.sweep({BASE!r}, {{"algorithm.lr": [0.1, 0.2]}}, store="store", jobs=2, progress=False)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so_and_stores_no_failures(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert 'put the call below `if __name__ == "__main__":`' in last
    store = RunStore(tmp_path / "store")
    assert (store.runs(), store.failures()) == ((), ())


def test_seeds_in_the_grid_are_not_replaced(tmp_path):
    found = sweep(BASE, {"run.seed": [1, 2]}, seeds=1, vary=["data"], store=tmp_path)
    assert [run.settings["run.seed"] for run in found.runs] == [1, 2]


def test_the_best_point_and_the_number_of_trained_runs(tmp_path):
    grid = {"algorithm.lr": [1e-6, 0.1, 1e38]}
    base = {**BASE, "run": {"rounds": 4}}
    found = sweep(base, grid, seeds=2, store=tmp_path)
    assert (len(found.runs), found.trained) == (4, 6)
    best = found.best()
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in found.runs]
    assert best.values == {"algorithm.lr": 0.1}
    assert (best.value, best.seeds) == (pytest.approx(sum(finals[2:]) / 2), 2)
    assert found.best("loss").values == {"algorithm.lr": 0.1}
    assert found.best("loss", low_is_good=False).values == {"algorithm.lr": 1e-6}
    assert sweep(base, grid, seeds=2, store=tmp_path).trained == 0
    with pytest.raises(ValueError, match="`column` must be"):
        found.best("acuracy")


def test_fine_tuning_is_timed_apart():
    tables = {**LONG, "algorithm": "per_fedavg,lr=0.1,fine_tune_epochs=30"}
    assert probe._tuning(topofl.config.build(tables), None, 0.0) > 0
    assert probe._tuning(topofl.config.build(LONG), None, 0.0) == 0


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_live_table(tmp_path, monkeypatch):
    first, second = (point.job for point in prepare(BASE, None, seeds=2))
    live = Live(tmp_path, 3, title="mine", labels={first.key: "seed=0\x1b[2J"})
    assert live.text() == ["mine: 0 of 3 runs done"]
    for job in (first, second):
        live.started(job)
    folder = tmp_path / RUNNING / f"{first.key}+here+1"
    folder.mkdir(parents=True)
    monkeypatch.setattr(work, "PAUSE", 0.0)
    report = work.reporter(folder, 40)
    report(Event("evaluation", 6, {"accuracy_mean": 0.25, "loss_mean": 2.0}))
    report(Event("round", 7, {}))
    shown = ["  seed=0\\x1b[2J: round 7 of 40, score 0.250", f"  {second.key}"]
    assert live.text()[1:] == shown
    others = [replace(second, key=f"{k:016x}") for k in range(SHOWN)]
    for job in others:
        live.started(job)
    assert live.text()[1:3] == shown
    assert live.text()[SHOWN + 1 :] == ["  and 2 more"]
    for job in others:
        live._running.pop(job.key)
    live.ended(Outcome(first.key, "done"))
    live.ended(Outcome(second.key, "failed", "ValueError: no"))
    live._began = time.monotonic() - 8  # two runs have ended, so the third takes four seconds
    (head,) = live.text()
    assert head == "mine: 1 of 3 runs done, 1 failed, about 4 s left"


def test_the_live_table_is_drawn_on_terminals_only_and_erased(tmp_path):
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with Live(tmp_path, 3, stream=stream):
            deadline = time.monotonic() + 10
            while drawn and not stream.getvalue() and time.monotonic() < deadline:
                time.sleep(0.05)
        text = stream.getvalue()
        assert ("0 of 3 runs done\n" in text) is drawn
        assert text.endswith("\x1b[1F\x1b[J") is drawn


def test_the_live_table_is_drawn_over_itself(tmp_path):
    live = Live(tmp_path, 3, stream=Terminal())
    waits = iter([False, False, True])
    live._over.wait = lambda seconds: next(waits)  # drawn twice
    live._draw_on()
    head = "0 of 3 runs done\n"
    assert live.stream.getvalue() == f"{head}\x1b[1F\x1b[J{head}"
