"""Runs on disk: found by what determines them, done once, with numbers for figures."""

import functools
import pickle
from dataclasses import replace

import numpy as np
import pytest

import topofl
from paper_figures.kit.store import Failed, Store, compute_missing
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


RUN = Run(tables())
BAD = Run(tables(algorithm_lr=1e38, run_rounds=5))


def test_neither_the_order_of_settings_nor_the_device_is_in_the_key():
    turned = {name: dict(reversed(table.items())) for name, table in reversed(tables().items())}
    assert Run(turned).key == RUN.key
    assert Run(tables(compute_device="cpu")).key == Run(tables(compute_device=None)).key == RUN.key


@pytest.mark.parametrize(
    "name", ["topofl.runs.identity.RESULTS", "torch.__version__", "numpy.__version__"]
)
def test_versions_are_in_the_key(name, monkeypatch):
    monkeypatch.setattr(name, "0.0.0")
    assert Run(tables()).key != RUN.key


def test_a_release_that_changes_no_result_has_the_same_keys(monkeypatch):
    monkeypatch.setattr("topofl._support.machine.__version__", "0.0.0")
    assert Run(tables()).key == RUN.key


def mnist_like(folder, seed):
    """Return the key of a run on four small files with the names of MNIST's."""
    folder.mkdir()
    images = np.random.default_rng(seed).integers(0, 256, (60, 4, 4)).astype(np.uint8)
    parts = {"images-idx3": images, "labels-idx1": np.arange(60).astype(np.uint8) % 10}
    for prefix in ("train", "t10k"):
        for kind, array in parts.items():
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (folder / f"{prefix}-{kind}-ubyte").write_bytes(head + array.tobytes())
    return Run(tables(data_name="mnist", data_root=str(folder), data_verify=False)).key


def test_contents_of_data_are_in_the_key_not_their_place(tmp_path):
    a, b, c = (mnist_like(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert a == b != c


@pytest.mark.parametrize("change", [{"mean": 0.5}, {"std": 0.5}])
def test_what_models_see_of_pixels_is_in_the_key(tmp_path, monkeypatch, change):
    mnist, before = topofl.data.mnist, mnist_like(tmp_path / "a", 0)
    changed = functools.wraps(mnist)(lambda **how: replace(mnist(**how), **change))
    monkeypatch.setattr(topofl.data, "mnist", changed)
    assert mnist_like(tmp_path / "b", 0) != before  # contents of a folder are read once


def test_a_run_is_done_once_and_is_what_run_returns_with_numbers(tmp_path, monkeypatch):
    store = Store(tmp_path)
    compute_missing([RUN, RUN], store, progress=False)
    history, note = store.load(RUN)
    experiment = config.build(RUN.tables)
    np.testing.assert_array_equal(history["accuracy"], experiment.run(progress=False)["accuracy"])
    assert note["rounds_per_epoch"] == 4  # 249 or 250 examples a node in minibatches of 64
    assert note["megabytes"] > 50
    assert 0 < note["seconds"] < 60
    weights = topofl.mixing.metropolis_hastings(experiment.topology)
    skews = metrics.clique_skew(experiment.topology.groups, experiment.clients.label_counts)
    expected = {
        "degree": 14 / 6,  # 2 cliques of 3 with 3 edges, and one edge between them
        "messages": 14 / 6 + 2,  # models to all neighbors, gradients inside cliques
        "messages_paper": 2 * 14 / 6,
        "bytes": 4 * 650 * (14 / 6 + 2),
        "gap": weights.spectral_gap,
        "skew": np.mean(skews),
    }
    assert {name: note["numbers"][name] for name in expected} == pytest.approx(expected)
    assert len(store.runs.runs()) == 1
    monkeypatch.setattr(work, "_train", lambda *_: pytest.fail("it was done again"))
    compute_missing([RUN], store, progress=False)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failing_run_does_not_stop_the_others_and_is_not_tried_again(tmp_path, monkeypatch, jobs):
    store, other = Store(tmp_path), Run(tables(run_seed=1))
    said = "1 of 3 runs failed, the others are stored: clique_averaging on dcliques, seed 0"
    with pytest.raises(Failed, match=said) as first:
        compute_missing([BAD, RUN, other], store, jobs=jobs, progress=False)
    assert [store.has(run) for run in (BAD, RUN, other)] == [False, True, True]
    assert list(first.value.errors) == [BAD.key]
    tried, new = [], Run(tables(run_seed=2))
    done = Outcome(new.key, "done")
    monkeypatch.setattr(execution, "perform", lambda job, root: tried.append(job.key) or done)
    with pytest.raises(Failed, match="1 of 2 runs failed") as second:
        compute_missing([BAD, new], store, progress=False, failed=first.value.errors)
    assert (tried, second.value.errors) == ([new.key], first.value.errors)


def test_another_process_need_not_read_the_data_for_the_key(monkeypatch):
    key = RUN.key
    monkeypatch.setattr(identity, "content", lambda *_: pytest.fail("the data were read again"))
    assert pickle.loads(pickle.dumps(RUN)).key == key


def test_a_full_disk_stops_everything_and_leaves_nothing_half(tmp_path, monkeypatch):
    def full(tables):
        raise OSError(28, "No space left on device")

    store, runs = Store(tmp_path), [RUN, Run(tables(run_seed=1))]
    with monkeypatch.context() as patch:
        patch.setattr(config, "dumps", full)
        with pytest.raises(OSError, match="No space left"):
            compute_missing(runs, store, progress=False)
    assert store.runs.runs() == ()
    (store.folder(RUN) / "history").mkdir(parents=True)  # no whole run
    assert not store.has(RUN)
    compute_missing(runs, store, progress=False)
    assert all(store.has(run) for run in runs)


def test_damaged_notes_are_told(tmp_path):
    store = Store(tmp_path)
    compute_missing([RUN], store, progress=False)
    path = store.folder(RUN) / "run.json"
    path.write_text(path.read_text()[:-20])
    with (
        pytest.warns(UserWarning, match=r"run.json is damaged: .*to train the run again"),
        pytest.raises(FileNotFoundError, match="must be a finished run"),
    ):
        store.load(RUN)
