"""Runs on disk: found by what determines them, done once, never half."""

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import topofl
from paper_figures.kit.store import Failed, Store, compute_missing, job_of
from topofl import config, metrics
from topofl.runs import execute as execution
from topofl.runs import identity, work
from topofl.runs.identity import Run
from topofl.runs.work import Outcome


def tables(**changes):
    """Tables of a run of a second; changes as ``run_rounds=3``."""
    given = {
        "data": {"name": "digits", "partition": "shards", "n": 6, "seed": 0},
        "topology": {"name": "dcliques", "clique_size": 3, "seed": 0},
        "algorithm": {"name": "clique_averaging", "lr": 0.5, "batch_size": 64},
        "run": {"rounds": 2, "seed": 0},
        "evaluation": {"every": 1},
    }
    for key, value in changes.items():
        table, _, name = key.partition("_")
        given[table] = given.get(table, {}) | {name: value}
    return given


CHANGES = [
    {"data_n": 9},
    {"data_seed": 1},
    {"data_split_seed": 1},
    {"data_enlarge": 2},
    {"topology_inter": "ring"},
    {"topology_seed": 1},
    {"algorithm_name": "dsgd"},
    {"algorithm_lr": 0.4},
    {"algorithm_momentum": 0.5},
    {"run_rounds": 3},
    {"run_seed": 1},
    {"run_init": "independent"},
    {"run_eval_examples": 50},
]


def test_everything_that_determines_a_run_is_in_its_key():
    keys = [Run(tables(**change)).key for change in ({}, *CHANGES)]
    assert len(set(keys)) == len(keys)
    assert Run(tables()).key == keys[0]


def test_the_order_of_tables_is_not_in_the_key():
    turned = {name: dict(reversed(table.items())) for name, table in reversed(tables().items())}
    assert Run(turned).key == Run(tables()).key


@pytest.mark.parametrize("module", ["topofl.runs.identity", "torch", "numpy"])
def test_versions_are_in_the_key(module, monkeypatch):
    before = Run(tables()).key
    monkeypatch.setattr(f"{module}.__version__", "0.0.0")
    assert Run(tables()).key != before


def save_mnist_like(folder, seed):
    """Write four small files with the names of MNIST's."""
    folder.mkdir()
    images = np.random.default_rng(seed).integers(0, 256, (60, 4, 4)).astype(np.uint8)
    for prefix in ("train", "t10k"):
        for kind, array in (
            ("images-idx3", images),
            ("labels-idx1", np.arange(60).astype(np.uint8) % 10),
        ):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (folder / f"{prefix}-{kind}-ubyte").write_bytes(head + array.tobytes())


def test_contents_of_data_are_in_the_key_not_their_place(tmp_path):
    key = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        save_mnist_like(tmp_path / name, seed)
        key[name] = Run(
            tables(data_name="mnist", data_root=str(tmp_path / name), data_verify=False)
        ).key
    assert key["a"] == key["b"] != key["c"]


@pytest.mark.parametrize("change", [{"mean": 0.5}, {"std": 0.5}])
def test_what_models_see_of_pixels_is_in_the_key(tmp_path, monkeypatch, change):
    key, mnist = {}, topofl.data.mnist
    for name in "ab":  # the same files; contents of a folder are read once
        save_mnist_like(tmp_path / name, 0)
        key[name] = Run(
            tables(data_name="mnist", data_root=str(tmp_path / name), data_verify=False)
        ).key
        changed = functools.wraps(mnist)(lambda **how: replace(mnist(**how), **change))
        monkeypatch.setattr(topofl.data, "mnist", changed)
    assert key["a"] != key["b"]


def test_a_run_is_done_once_and_is_what_run_returns(tmp_path, monkeypatch):
    store, run = Store(tmp_path), Run(tables())
    compute_missing([run, run], store, progress=False)
    history, note = store.load(run)
    again = config.build(run.tables).run(progress=False)
    np.testing.assert_array_equal(history["accuracy"], again["accuracy"])
    assert note["rounds_per_epoch"] == 4  # 249 or 250 examples a node in minibatches of 64
    assert note["megabytes"] > 50
    assert 0 < note["seconds"] < 60
    assert len(store.runs.runs()) == 1

    monkeypatch.setattr(work, "_train", lambda *_: pytest.fail("it was done again"))
    compute_missing([run], store, progress=False)


def test_numbers_of_a_run(tmp_path):
    store, run = Store(tmp_path), Run(tables())
    compute_missing([run], store, progress=False)
    numbers = store.load_note(run)["numbers"]
    assert numbers["degree"] == pytest.approx(
        14 / 6
    )  # 2 cliques of 3 with 3 edges, and one edge between them
    assert numbers["messages"] == pytest.approx(
        14 / 6 + 2
    )  # models to all neighbors, gradients inside cliques
    assert numbers["messages_paper"] == pytest.approx(2 * 14 / 6)
    assert numbers["bytes"] == pytest.approx(4 * 650 * numbers["messages"])
    experiment = config.build(run.tables)
    weights = topofl.mixing.metropolis_hastings(experiment.topology)
    assert numbers["gap"] == pytest.approx(weights.spectral_gap)
    skews = metrics.clique_skew(experiment.topology.groups, experiment.clients.label_counts)
    assert numbers["skew"] == pytest.approx(np.mean(skews))


def test_a_failing_run_does_not_stop_the_others(tmp_path):
    bad, good = Run(tables(algorithm_lr=1e38, run_rounds=5)), Run(tables())
    with pytest.raises(
        Failed,
        match=r"1 of 2 runs failed, the others are stored: clique_averaging on dcliques, seed 0",
    ):
        compute_missing([bad, good], Store(tmp_path), progress=False)
    assert [Store(tmp_path).has(run) for run in (bad, good)] == [False, True]


def test_processes_get_the_same_results_and_a_failing_run_does_not_stop_them(tmp_path):
    bad, good = (
        Run(tables(algorithm_lr=1e38, run_rounds=5)),
        [Run(tables(run_seed=seed)) for seed in (0, 1)],
    )
    alone, shared = Store(tmp_path / "alone"), Store(tmp_path / "shared")
    with pytest.raises(Failed, match="1 of 3 runs failed"):
        compute_missing([bad, *good], shared, jobs=2, progress=False)
    compute_missing(good, alone, progress=False)
    for run in good:
        np.testing.assert_array_equal(
            alone.load(run)[0]["accuracy"], shared.load(run)[0]["accuracy"]
        )
    assert not shared.has(bad)


def test_another_process_need_not_read_the_data_for_the_key(monkeypatch):
    run = Run(tables())
    key = run.key
    monkeypatch.setattr(
        identity, "content", lambda *source: pytest.fail("the data were read again")
    )
    assert pickle.loads(pickle.dumps(run)).key == key


def test_a_full_disk_stops_everything_and_leaves_nothing_half(tmp_path, monkeypatch):
    def full(tables):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config, "dumps", full)
    store, runs = Store(tmp_path), [Run(tables(run_seed=seed)) for seed in (0, 1)]
    with pytest.raises(OSError, match="No space left"):
        compute_missing(runs, store, progress=False)
    assert store.runs.runs() == ()
    monkeypatch.undo()
    compute_missing(runs, store, progress=False)
    assert all(store.has(run) for run in runs)


def test_what_another_process_kept_meanwhile_stays(tmp_path):
    store, run = Store(tmp_path), Run(tables())
    work.perform(job_of(run), str(tmp_path))
    kept = (store.folder(run) / "run.json").read_bytes()
    experiment = config.build(run.tables)
    store.runs.add(run.key, experiment.run(progress=False), experiment.tables)
    assert (store.folder(run) / "run.json").read_bytes() == kept


def test_a_folder_that_is_no_whole_run_is_replaced(tmp_path):
    store, run = Store(tmp_path), Run(tables())
    (store.folder(run) / "history").mkdir(parents=True)
    assert not store.has(run)
    compute_missing([run], store, progress=False)
    assert store.load(run)[0].n_rounds == 2


def test_a_run_that_is_known_to_fail_is_not_tried_again(tmp_path, monkeypatch):
    bad, good = Run(tables(algorithm_lr=1e38, run_rounds=5)), Run(tables())
    with pytest.raises(Failed) as first:
        compute_missing([bad], Store(tmp_path), progress=False)
    assert list(first.value.errors) == [bad.key]
    tried = []
    done = Outcome(good.key, "done")
    monkeypatch.setattr(execution, "perform", lambda job, root: tried.append(job.key) or done)
    with pytest.raises(Failed, match="1 of 2 runs failed") as second:
        compute_missing([bad, good], Store(tmp_path), progress=False, failed=first.value.errors)
    assert (tried, second.value.errors) == ([good.key], first.value.errors)


def test_the_device_is_not_in_the_key():
    assert (
        Run(tables(compute_device="cpu")).key
        == Run(tables(compute_device=None)).key
        == Run(tables()).key
    )


def test_an_interrupted_command_keeps_what_is_finished(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)  # ignored "
        "where tests run in the background\nsys.path[:0] = "
        f"{[os.getcwd(), os.path.dirname(__file__)]!r}\nfrom pathlib import Path\nfrom test_runs "
        "import tables\nfrom paper_figures.kit.store import Store, compute_missing\nfrom "
        "topofl.runs.identity import Run\nruns = "
        "[Run(tables(run_seed=s, run_rounds=r)) for s, r in ((0, 1), (1, 1000000))]\n"
        f"compute_missing(runs, Store(Path({str(tmp_path / 'runs')!r})), progress=False)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    store, first = Store(tmp_path / "runs"), Run(tables(run_rounds=1))
    deadline = time.monotonic() + 60
    while not store.has(first) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    assert store.has(first)
    assert not store.has(Run(tables(run_seed=1, run_rounds=1000000)))


def test_damaged_notes_are_told(tmp_path):
    store, run = Store(tmp_path), Run(tables())
    compute_missing([run], store, progress=False)
    path = store.folder(run) / "run.json"
    path.write_text(path.read_text()[:-20])
    with (
        pytest.warns(UserWarning, match=r"run.json is damaged: .*to train the run again"),
        pytest.raises(FileNotFoundError, match="must be a finished run"),
    ):
        store.load(run)


def test_the_saved_configuration_repeats_the_run(tmp_path):
    store, run = Store(tmp_path), Run(tables())
    compute_missing([run], store, progress=False)
    again = config.load(store.folder(run) / "config.toml").run(progress=False)
    np.testing.assert_array_equal(again["accuracy"], store.load(run)[0]["accuracy"])
    assert (
        json.loads((store.folder(run) / "run.json").read_text())["environment"]["device"] == "cpu"
    )


def test_replaced_tables_are_another_run():
    run = Run(tables())
    assert replace(run, tables=tables(run_seed=7)).seed == 7
