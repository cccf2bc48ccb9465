"""Where readers find their files: in `root`, below it, and in $TOPOFL_DATA."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.data.readers.cifar_files import save_binaries, save_pickles
from tests.data.readers.image_files import pixels, save
from tests.data.readers.test_mnist import save_images
from tests.data.readers.test_readers import save_mnist_like
from topofl import config, data
from topofl._spec import parameters
from topofl._support.datasets import dataset_folders
from topofl.data import READERS
from topofl.data.readers import folders

MNIST = {"val": 0, "verify": False}
WITH_ROOT = [name for name, read in READERS.items() if "root" in parameters(read)]
TABLES = {"algorithm": "local_only,lr=1", "run": {"rounds": 1, "seed": 0}}


@pytest.fixture(autouse=True)
def variable(monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)


@pytest.mark.parametrize("below", ["mnist", "mnist/raw", "a/b/mnist", "MNIST/raw"])
def test_mnist_is_found_below_its_root(tmp_path, below):
    save_mnist_like(tmp_path / below)
    assert len(data.mnist(tmp_path, **MNIST).labels) == 42
    assert len(data.mnist(root=str(tmp_path), **MNIST).labels) == 42


def test_mnist_and_fashion_mnist_are_told_apart_by_their_folders(tmp_path):
    save_mnist_like(tmp_path / "FashionMNIST" / "raw", labels=[0, 1] * 20)
    with pytest.raises(FileNotFoundError, match="`root` must hold the four files"):
        data.mnist(tmp_path, **MNIST)
    assert dataset_folders(tmp_path) == {"fashion_mnist": tmp_path / "FashionMNIST" / "raw"}
    save_mnist_like(tmp_path / "MNIST" / "raw", labels=[0, 1] * 10)
    assert len(data.mnist(tmp_path, **MNIST).train) == 20
    assert len(data.fashion_mnist(tmp_path, verify=False).train) == 40
    shutil.move(tmp_path / "FashionMNIST", tmp_path / "sets" / "fashion-mnist")
    assert len(data.fashion_mnist(tmp_path, verify=False).train) == 40


def test_files_in_root_go_before_files_below(tmp_path):
    save_mnist_like(tmp_path / "MNIST" / "raw", labels=[0, 1] * 10)
    save_mnist_like(tmp_path / "a", labels=[0, 1] * 20)
    assert len(data.mnist(tmp_path, **MNIST).train) == 20


def test_readers_of_other_datasets_find_their_files_below(tmp_path):
    save_pickles(tmp_path / "cifar" / "cifar-10-batches-py")
    assert data.cifar10(tmp_path, verify=False).name.startswith("cifar10 (unverified")
    save_binaries(tmp_path / "coarse" / "cifar-100-binary", {"train": (0, 1), "test": (1,)})
    assert len(data.cifar100(tmp_path, verify=False).train) == 2
    prefixes = [f"emnist-digits-{part}" for part in ("train", "test")]
    save_images(tmp_path / "letters", prefixes, [0, 1])
    assert len(data.emnist(tmp_path, split="digits", verify=False).train) == 2
    for split in ("train", "valid", "test"):
        for name in folders._CINIC10:
            save(tmp_path / "images" / "cinic" / split / name / "a.png", pixels(0))
    assert data.cinic10(tmp_path).inputs.shape == (30, 3, 4, 6)
    tiny = tmp_path / "images" / "tiny-imagenet-200"
    save(tiny / "train" / "n01" / "images" / "a.png", pixels(0))
    save(tiny / "val" / "images" / "v.png", pixels(1))
    (tiny / "wnids.txt").write_text("n01")
    (tiny / "val" / "val_annotations.txt").write_text("v.png\tn01")
    assert len(data.tiny_imagenet(tmp_path).labels) == 2


@pytest.mark.parametrize("name", WITH_ROOT)
def test_without_a_root_the_variable_names_it(name, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=rf"`root` must be given.*TOPOFL_DATA.*data.{name}\("):
        READERS[name]()
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"TOPOFL_DATA must be a folder, got .*nowhere"):
        READERS[name]()
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="`root` must hold"):
        READERS[name]()


def test_a_configuration_without_a_root_records_the_folder_of_the_variable(tmp_path, monkeypatch):
    save_mnist_like(tmp_path / "sets" / "mnist")
    table = {"name": "mnist", "n": 2, "partition": "iid", "seed": 0, **MNIST}
    with pytest.raises(ValueError, match=r"\[data\] `root` must be given.*TOPOFL_DATA"):
        config.build({"data": table, **TABLES})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPOFL_DATA", "sets")
    experiment = config.build({"data": table, **TABLES})
    assert experiment.clients.n == 2
    monkeypatch.delenv("TOPOFL_DATA")
    assert experiment.tables["data"]["root"] == str(tmp_path / "sets")
    again = config.build(experiment.tables)
    np.testing.assert_array_equal(again.clients.label_counts, experiment.clients.label_counts)


def test_the_real_files_are_found_from_the_folder_above(mnist_root, monkeypatch):
    monkeypatch.setenv("TOPOFL_DATA", str(mnist_root.parent))
    assert len(data.mnist().labels) == 70_000
    assert len(data.mnist(Path(mnist_root, "..")).labels) == 70_000
