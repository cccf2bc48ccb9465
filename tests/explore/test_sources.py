"""The datasets that the explorer offers, and how many of their examples it uses."""

from types import SimpleNamespace

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

from tests.explore.images import FOLDER, write_images
from topofl import data
from topofl.data import READERS
from topofl.explore import model, results

CIFAR = "CIFAR-10, 16 x 16 pixels"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Return a folder with 40 training and 10 test images, and be in the folder above it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    write_images(tmp_path / "own" / FOLDER)
    return tmp_path / "own"


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(model, "TRAIN", 15)
    monkeypatch.setattr(model, "TEST", 20)


def test_digits_need_no_folder(tmp_path):
    assert list(model.sources()) == ["handwritten digits"]
    assert model.DIGITS.note == "1,497 training examples and 300 test examples."
    assert list(model.sources(tmp_path / "own")) == ["handwritten digits", CIFAR]


@pytest.mark.parametrize("way", ["variable", "usual place"])
def test_datasets_are_found_where_doctor_finds_them(place, way, monkeypatch):
    if way == "variable":
        monkeypatch.setenv("TOPOFL_DATA", str(place))
    else:
        place.rename("data")
    assert list(model.sources()) == ["handwritten digits", CIFAR]


@pytest.mark.parametrize("name", model.READERS)
def test_readers_take_their_options(name, tmp_path):
    _, reader, options = model.READERS[name]
    assert READERS[name] is reader
    with pytest.raises(FileNotFoundError, match=r"`root` must"):
        reader(tmp_path / "empty", **options)


@pytest.mark.parametrize("large", [False, True])
def test_code_has_the_same_examples(place, large, request):
    if large:
        request.getfixturevalue("few")
    source = model.sources(place)[CIFAR]
    nodes = model.Nodes(4, model.titled(model.PARTITIONS)["iid"], seed=1, source=source)
    made = {}
    exec(results.THINNING + "from topofl import data\n" + nodes.code, made)
    dataset, clients = source.dataset, nodes.clients()
    assert dataset.inputs.shape[1:] == (3, 16, 16)
    assert len(dataset.train) == (14 if large else 40)
    assert (made["dataset"].train == dataset.train).all()
    assert (made["dataset"].test == dataset.test).all()
    assert (made["clients"].label_counts == clients.label_counts).all()
    assert len(parameters_to_vector(model.model_of(dataset).parameters())) == 10 * (3 * 16 * 16 + 1)
    assert ("replace" in nodes.code) == large


def test_examples_are_spread_over_sorted_classes(place, few):
    source = model.sources(place)[CIFAR]
    counts = np.bincount(source.dataset.labels[source.dataset.train.copy()], minlength=10)
    assert counts.min() >= 1
    assert counts.max() <= 2
    assert source.note == (
        "14 training examples and 10 test examples of 40 and 10, with the same shares of classes, "
        "so that training takes seconds."
    )


@pytest.mark.parametrize("owned", [False, True])
def test_classes_and_owners_in_a_periodic_order_keep_their_shares(owned, monkeypatch):
    k = np.arange(600)
    owners = k // 10 % 4 if owned else None  # for each class 0, 1, 2, 3, 0, ...

    def periodic():
        return data.from_arrays(np.zeros((600, 2)), k % 10, owners=owners, test=k >= 400)

    monkeypatch.setattr(model, "TRAIN", 40)  # every 10th example, of which the class is 0
    monkeypatch.setattr(model, "TEST", 20)
    source = model.Source("periodic", periodic)
    made = {"data": SimpleNamespace(periodic=periodic)}
    exec(results.THINNING + source.code, made)
    for found in (source.dataset, made["dataset"]):
        for part, each in ((found.train, 4), (found.test, 2)):
            assert np.bincount(part % 10).tolist() == [each] * 10
        if owned:
            pairs = 4 * (found.train % 10) + found.owners[found.train]
            assert np.bincount(pairs).tolist() == [1] * 40


def test_what_cannot_be_read_or_divided_has_a_reason(place):
    source = model.sources(place)[CIFAR]
    assert "41" in model.clients_of(model.Nodes(41, model.PARTITIONS[-1], source=source))[1]
    (place / FOLDER / "test_batch.bin").write_bytes(b"damaged")
    damaged = model.sources(place)[CIFAR]
    clients, reason = model.clients_of(model.Nodes(4, source=damaged))
    assert clients is None
    assert "test_batch.bin" in reason
