"""Augmentation checks its arguments, and operations on clients keep it."""

import numpy as np
import pytest

from tests import problems
from tests.engine.train.test_augment import CROPS, MIRRORS, N
from topofl import data


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1,), ValueError, "`padding` must be between 0 and 1024, got -1"),
        ((2**50,), ValueError, "`padding` must be between 0 and"),
        ((1.5,), TypeError, "`padding` must be an integer"),
        ((4, 1), ValueError, "`flip` must be True or False, got 1"),
        ((0, False), ValueError, "`flip` must be True with padding=0"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        data.crop_and_flip(*arguments)


FLAT = data.from_arrays(np.eye(30, 36), np.arange(30) % 3, test=0.2)


@pytest.mark.parametrize(
    ("clients", "augment", "error", "message"),
    [
        (
            problems.equal_clients(),
            True,
            TypeError,
            r"`augment` must be .* data.crop_and_flip\(padding=4\), got True",
        ),
        (
            problems.equal_clients(),
            data.crop_and_flip(6),
            ValueError,
            "`augment` must have a padding below the shorter side of the images, 6, got crop",
        ),
        (
            data.iid(FLAT, N, seed=0),
            CROPS,
            ValueError,
            r"`augment` must be None for data other than images, .*\(30, 36\)",
        ),
        (FLAT, CROPS, TypeError, "`clients` must be a data.Partition, got Dataset"),
    ],
    ids=["no augmentation", "too far", "no images", "no partition"],
)
def test_datasets_that_cannot_be_augmented_are_refused(clients, augment, error, message):
    with pytest.raises(error, match=message):
        data.augmented(clients, augment)


@pytest.mark.parametrize(
    "make",
    [
        lambda clients: clients.pooled(),
        lambda clients: data.match_test(clients, rule="disjoint"),
        lambda clients: data.with_validation(clients, 0.2),
        lambda clients: data.flip_labels(clients, 2, seed=0),
        lambda clients: data.augmented(clients, CROPS),
    ],
    ids=["pooled", "match_test", "with_validation", "flip_labels", "augmented"],
)
def test_operations_on_clients_keep_augmentation(make):
    clients = data.augmented(problems.equal_clients(), MIRRORS)
    made = make(clients)
    assert made.augment == (CROPS if make(problems.equal_clients()).augment else MIRRORS)
    assert made.augment.name in repr(made)
    assert make(problems.equal_clients()).augment in (None, CROPS)
