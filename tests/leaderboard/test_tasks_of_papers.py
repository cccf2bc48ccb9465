"""Tasks with a paper's own setting: that of the reproductions, and one that trains."""

from dataclasses import replace

import numpy as np
import pytest

from paper_figures.dcliques import arms as dcliques
from paper_figures.dpfl import arms as dpfl
from paper_figures.kit import comparison
from paper_figures.kit.paper import Setting
from topofl import config, models
from topofl.leaderboard import Entry, run_entry, tasks

BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]

SMALL = {
    "cifar10-dcliques": {"n": 10},
    "cifar10-dfedpgp": {"n": 2},
    "cifar10-dpfl": {"n": 4, "min_size": 1},
    "cifar10-pfeddst": {"n": 5},
}
"""What differs in the data of a task on 100 made-up images."""


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    """Return a folder with made-up images in the layout of CIFAR-10: 100 and, for tests, 20."""
    folder = tmp_path_factory.mktemp("cifar10")
    generator = np.random.default_rng(0)
    for name in BATCHES:
        records = generator.integers(0, 256, (20, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] = np.arange(20) % 10
        (folder / name).write_bytes(records.tobytes())
    return folder


def small(task, root):
    """Return the tables of a task with made-up images, few nodes and one round."""
    data = {**task.tables["data"], **SMALL[task.key], "verify": False, "root": str(root)}
    evaluation = {k: v for k, v in task.tables["evaluation"].items() if k != "examples"}
    return {**task.tables, "data": data, "run": {"rounds": 1}, "evaluation": evaluation}


def reproduced(key, root):
    """Return the tables of the reproduction of a task's paper at its own scale."""
    setting = Setting("paper", (0,), root)
    if key == "mnist-shards":
        return dcliques.fig01(setting)[dcliques.TWO_SHARDS][dcliques.FULLY][0].tables
    if key == "cifar10-dcliques":
        (panel,) = dcliques.fig12(replace(setting, datasets=("cifar10",))).values()
        return next(iter(panel.values()))[0].tables
    if key == "cifar10-dpfl":
        return dpfl.arm(setting, dpfl.DIR, dpfl.BASELINES["Local"])[0].tables
    split = "CIFAR-10, Dir(0.3)" if key == "cifar10-dfedpgp" else "CIFAR-10, c=2"
    return comparison.arm(setting, split, "Local")[0].tables


@pytest.mark.parametrize("key", [*SMALL, "mnist-shards"])
def test_the_setting_is_that_of_the_reproduction(tmp_path, key):
    (tmp_path / "data_batch_1").touch()
    (tmp_path / "train-images-idx3-ubyte").touch()
    (task,), paper = tasks([key]), reproduced(key, tmp_path)
    ours, theirs = dict(task.tables["data"]), dict(paper["data"])
    for name in ("root", "seed", "split_seed"):
        theirs.pop(name, None)
    assert ours == theirs
    assert {"name": task.tables["model"]} == paper["model"]
    assert task.tables["run"]["rounds"] == paper["run"]["rounds"]
    assert task.batch_size == paper["algorithm"]["batch_size"]
    assert min(task.rates) < paper["algorithm"]["lr"] < max(task.rates)
    assert paper["algorithm"]["lr"] in task.rates


@pytest.mark.parametrize(
    "key",
    [
        "cifar10-dcliques",
        pytest.param("cifar10-dfedpgp", marks=pytest.mark.slow),
        "cifar10-dpfl",
        pytest.param("cifar10-pfeddst", marks=pytest.mark.slow),
    ],
)
def test_a_task_of_a_paper_trains_on_made_up_images(tmp_path, cifar10, key):
    (task,) = tasks([key])
    short = replace(task, tables=small(task, cifar10), batch_size=4, seeds=(0,))
    entry = Entry("complete", {"topology": "fully_connected"})
    found = run_entry(entry, short, store=tmp_path, lr=0.001, progress=False)
    assert found.messages == SMALL[key]["n"] - 1
    assert (found.models, found.steps) == (found.messages, 1)
    assert np.isfinite(found.learning).all()


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.key)
def test_a_model_has_the_bytes_that_the_task_says(cifar10, task):
    if task.key == "mnist-shards":
        model = models.logistic_regression()  # of the size of MNIST
    else:
        tables = small(task, cifar10) if task.key in SMALL else task.tables
        model = config.build({**tables, "algorithm": "local_only,lr=0.1"}).model
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == task.model_bytes
