"""MNIST-1D is what its authors' package makes, by seed; global generators stay as they are."""

import random
import sys
from functools import partial

import numpy as np
import pytest
import torch

from tests.refusals import refused
from topofl import config, data

package = pytest.importorskip("mnist1d.data", reason="the dataset needs the package mnist1d")


@pytest.mark.slow
def test_defaults_make_the_dataset_of_the_authors_defaults():
    wanted, dataset = package.make_dataset(), data.mnist1d()
    assert repr(dataset) == (
        "Dataset('mnist1d', inputs=(5000, 1, 40), n_classes=10, train=4000, val=0, test=1000)"
    )
    for part, inputs, labels in (("train", "x", "y"), ("test", "x_test", "y_test")):
        own = getattr(dataset, part)
        np.testing.assert_allclose(
            dataset.inputs.numpy()[own, 0], wanted[inputs], rtol=1e-6, atol=1e-6
        )
        np.testing.assert_array_equal(dataset.labels.numpy()[own], wanted[labels])


def test_seeds_make_examples_of_equally_frequent_classes():
    made = partial(data.mnist1d, train=60, val=20, test=40)
    one, again, other = made(seed=1), made(seed=1), made(seed=2)
    assert torch.equal(one.inputs, again.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert np.bincount(one.labels).tolist() == [12] * 10
    assert [len(part) for part in (one.train, one.val, one.test)] == [60, 20, 40]
    assert np.concatenate([one.train, one.val, one.test]).tolist() == list(range(120))
    drawn = made(seed=np.random.default_rng(3)), made(seed=np.random.default_rng(3))
    assert torch.equal(drawn[0].inputs, drawn[1].inputs)


def test_global_generators_are_as_before():
    def state():
        return np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = state()
    data.mnist1d(train=10, test=0)
    assert state() == before


def test_configurations_name_it_and_its_network():
    tables = {
        "data": {"name": "mnist1d", "train": 40, "test": 20, "n": 2, "partition": "iid"},
        "model": {"name": "mnist1d_cnn"},
        "topology": "ring,n=2",
        "algorithm": "dsgd,lr=0.1",
        "run": {"rounds": 1, "seed": 0},
    }
    experiment = config.build(tables)
    assert experiment.tables["model"]["in_shape"] == [1, 40]
    assert experiment.run(progress=False).n_rounds == 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)
    match = r"`data.mnist1d` needs the package mnist1d, .* pip install 'topofl\[mnist1d\]'"
    with pytest.raises(ModuleNotFoundError, match=match):
        data.mnist1d(train=10, test=0)


ROWS = [
    (ValueError, "`train` must be between 1 and 1000000, got 0", {"train": 0}),
    (ValueError, "`val` must be between 0 and", {"val": -1}),
    (ValueError, "`test` must be between 0 and 1000000", {"test": 2**40}),
    (TypeError, "`train` must be an integer", {"train": 10.5}),
    (ValueError, "`val` and `test` must together be a multiple of 10, got 35", {"val": 5}),
    (ValueError, "`seed` must be between 0 and 4294967295", {"seed": 2**32}),
]


@pytest.mark.parametrize(("error", "message", "change"), ROWS)
def test_wrong_sizes_and_seeds_are_refused(error, message, change):
    usual = {"train": 20, "val": 0, "test": 10}
    refused(error, message, lambda: data.mnist1d(**usual | change), lambda: data.mnist1d(**usual))
