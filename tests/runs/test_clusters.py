"""Sweeps on local clusters of two workers, one of which is killed during a run."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import BASE
from topofl._support.locks import LOCK
from topofl.runs import Sweep, dask_executor, ray_executor, search, slurm_executor, sweep
from topofl.runs.folder import RUNNING
from topofl.runs.plan import log_uniform

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LONG = {
    "base": {**BASE, "run": {"rounds": 800}},
    "grid": {"topology": ["ring", "star"], "algorithm.lr": [0.1, 0.5]},
    "seeds": 1,
    "progress": False,
}
"""Runs of half a second or more, so that a worker can be killed during one."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the same sweep in this process."""
    return sweep(**LONG, store=tmp_path_factory.mktemp("alone"))


@contextmanager
def killing_one(store: Path, limit: float = 240.0) -> Iterator[list[int]]:
    """Kill the process of the first run that is found in progress, and yield its number."""
    killed: list[int] = []
    over = threading.Event()

    def hunt() -> None:
        deadline = time.monotonic() + limit
        while not (killed or over.is_set()) and time.monotonic() < deadline:
            with suppress(OSError, ValueError, LookupError):
                for lock in (store / RUNNING).glob(f"[0-9a-f]*+*/{LOCK}"):
                    pid = int(lock.read_text().splitlines()[0])
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=hunt, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def check(store: Path, executor: Any, alone: Sweep, *, retried: bool) -> None:
    """Sweep while a worker is killed; compare with the same sweep in this process."""
    with killing_one(store) as killed:
        first = sweep(**LONG, store=store, executor=executor)
    assert killed
    assert killed[0] != os.getpid()
    if retried:  # the cluster repeats the run elsewhere
        assert len(first.runs) == 4
    else:  # the killed process cost its own run only
        assert (len(first.runs), len(first.failures)) == (3, 1)
        assert "was killed" in first.failures[0].error
    again = sweep(**LONG, store=store, executor=executor, retry_failed=True)
    assert str(again.table) == str(alone.table)
    assert again.failures == ()


def test_dask(tmp_path, alone):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(tmp_path / "store", client, alone, retried=True)
        found = sweep(
            BASE,
            store=tmp_path / "by-address",
            executor=dask_executor(cluster.scheduler_address),
            progress=False,
        )
        assert len(found.runs) == 1


def test_ray(tmp_path, alone):
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=100 * 2**20,
        log_to_driver=False,
    )
    try:
        check(tmp_path / "store", ray_executor(), alone, retried=True)
    finally:
        ray.shutdown()


def test_submitit(tmp_path, alone):
    pytest.importorskip("submitit")
    executor = slurm_executor(str(tmp_path / "logs"), cluster="local", timeout_min=5)
    check(tmp_path / "store", executor, alone, retried=False)
    with pytest.raises(ValueError, match=r"submitit: .*timeout_mn"):
        slurm_executor(str(tmp_path / "logs"), cluster="local", timeout_mn=5)


def test_without_a_cluster_runs_are_submitted_to_slurm_or_refused(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))  # no srun
    with pytest.raises(ValueError, match="`cluster` must be 'local' on a machine without the com"):
        slurm_executor(str(tmp_path / "logs"))


def test_optuna(tmp_path):
    pytest.importorskip("optuna")
    space = {"algorithm.lr": log_uniform(1e-3, 1), "topology": ["ring", "star"]}
    how = {"trials": 5, "batch": 2, "store": tmp_path, "progress": False}
    first = search(BASE, space, **how)
    assert len(first.points) == 5
    again = search(BASE, space, **how)  # the same trials, all of them stored
    assert [point.values for point in again.points] == [point.values for point in first.points]
    assert len(list(tmp_path.glob("*/run.json"))) == len({point.key for point in first.points})
    with pytest.raises(ValueError, match="`column` must be one of accuracy, loss, got 'acuracy'"):
        search(BASE, space, **how, column="acuracy")


def test_optuna_is_told_the_score_of_each_trial(tmp_path, monkeypatch):
    optuna, told = pytest.importorskip("optuna"), []
    tell = optuna.study.Study.tell
    monkeypatch.setattr(
        optuna.study.Study, "tell", lambda *given: told.append(given[2]) or tell(*given)
    )
    space = {"algorithm.lr": log_uniform(1e-4, 1)}
    found = search(BASE, space, trials=3, batch=2, store=tmp_path, progress=False)
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in found.runs]
    assert told == finals
    assert len(set(told)) > 1


def test_ray_must_be_started():
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match=r"must be called after ray.init\(\)"):
        ray_executor()
