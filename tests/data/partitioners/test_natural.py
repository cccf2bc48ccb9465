"""Nodes that are the owners of the examples: hand-computed, and what holds for any dataset."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.partitions import datasets, lists
from topofl import data


def written(owners, labels, test=(), val=(), n_classes=3):
    train = np.setdiff1d(np.arange(len(labels)), [*test, *val])
    parts = train, np.array(val, int), np.array(test, int)
    inputs = torch.zeros(len(labels), 1)
    return data.Dataset(
        inputs, torch.tensor(labels), n_classes, "toy", *parts, owners=np.array(owners)
    )


TOY = written(
    #       0  1  2  3  4  5  6  7  8  9 10 11
    owners=[1, 0, 1, 2, 2, 2, 4, 4, 1, 2, 3, 4],
    labels=[0, 1, 2, 0, 0, 1, 2, 2, 0, 2, 1, 2],
    test=[8, 9, 10, 11],
    val=[2, 7],
)


def test_nodes_hold_what_their_owners_made():
    clients = data.natural(TOY, min_size=1, seed=0)
    assert clients.name == "natural(toy, n=4, min_size=1)"
    assert lists(clients.train) == [[1], [0], [3, 4, 5], [6]]
    assert lists(clients.val) == [[], [], [], [7]], "node 1 trains on class 0 only"
    assert lists(clients.test) == [[], [8], [], [11]], "node 2 trains on classes 0 and 1 only"
    assert not clients.overlapping


def test_owners_need_enough_training_examples():
    assert lists(data.natural(TOY, min_size=2, seed=0).train) == [[3, 4, 5]]
    with pytest.raises(
        ValueError,
        match=r"`min_size` must leave at least one node, got 4 where the largest would have 3",
    ):
        data.natural(TOY, min_size=4, seed=0)
    with pytest.raises(
        ValueError,
        match="`n` must be between 1 and 1, got 2; only 1 of the 5 owners have min_size=2",
    ):
        data.natural(TOY, 2, min_size=2, seed=0)


def test_nodes_and_classes_are_drawn_uniformly():
    nodes, classes = np.zeros(5), np.zeros(3)
    dataset = written(np.repeat(np.arange(5), 6), [0, 1, 2] * 10)
    for seed in range(400):
        clients = data.natural(dataset, 2, classes_per_node=1, min_size=2, seed=seed)
        assert clients.sizes.tolist() == [2, 2]
        nodes += np.bincount(dataset.owners[[own[0] for own in clients.train]], minlength=5)
        classes += clients.label_counts.sum(axis=0) / 2
    assert abs(nodes / 400 - 2 / 5).max() < 0.1
    assert abs(classes / 800 - 1 / 3).max() < 0.07


def test_missing_classes_are_missing_everywhere():
    clients = data.natural(
        written([0] * 6, [0, 1, 2] * 2, test=[3, 4, 5]), classes_per_node=2, min_size=1, seed=0
    )
    assert clients.name == "natural(toy, n=1, classes_per_node=2, min_size=1)"
    assert (
        clients.dataset.labels[clients.test[0].tolist()]
        == clients.dataset.labels[clients.train[0].tolist()]
    ).all()
    assert clients.sizes[0] == 2


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_every_node_is_one_owner(dataset, data_, seed):
    size = len(dataset.labels)
    owners = np.array(
        data_.draw(st.lists(st.integers(0, min(6, size - 1)), min_size=size, max_size=size))
    )
    dataset = replace(dataset, owners=owners)
    labels = dataset.labels.numpy()
    most, least = data_.draw(st.none() | st.integers(1, 7)), data_.draw(st.integers(1, 4))
    try:
        whole = data.natural(dataset, classes_per_node=most, min_size=least, seed=seed)
    except ValueError as error:
        assert "`min_size` must leave at least one node" in str(error)  # noqa: PT017 - no node at all
        return
    n = data_.draw(st.integers(1, whole.n))
    clients = data.natural(dataset, n, classes_per_node=most, min_size=least, seed=seed)
    assert clients.n == n
    assert clients.sizes.min() >= least
    makers = []
    for own, val, test, counts in zip(
        clients.train, clients.val, clients.test, clients.label_counts, strict=True
    ):
        (maker,) = {*owners[own].tolist(), *owners[val].tolist(), *owners[test].tolist()}
        makers.append(maker)
        kept = np.flatnonzero(counts)
        assert len(kept) <= (most or 99)
        for part, there in ((own, dataset.train), (val, dataset.val), (test, dataset.test)):
            wanted = [
                i for i in np.sort(there).tolist() if owners[i] == maker and labels[i] in kept
            ]
            assert part.tolist() == wanted
        if most is None:
            assert counts.sum() == (owners[dataset.train] == maker).sum()
        else:
            assert len(kept) == min(
                most, len(set(labels[dataset.train[owners[dataset.train] == maker]].tolist()))
            )
    assert makers == sorted(set(makers))
    again = data.natural(dataset, n, classes_per_node=most, min_size=least, seed=seed)
    assert lists(again.train) == lists(clients.train)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"dataset": "toy"}, TypeError, "`dataset` must be a data.Dataset, got str"),
        (
            {"dataset": data.digits()},
            ValueError,
            "`dataset` must have `owners`, got none in digits; name their column, as in",
        ),
        ({"n": 0}, ValueError, "`n` must be between 1 and 4, got 0"),
        ({"n": 2.0}, TypeError, "`n`"),
        (
            {"classes_per_node": 0},
            ValueError,
            "`classes_per_node` must be at least 1, got 0; None keeps all",
        ),
        ({"min_size": 0}, ValueError, "`min_size` must be at least 1"),
        ({"seed": None}, TypeError, "`seed`"),
    ],
)
def test_refuses(call, error, match):
    with pytest.raises(error, match=match):
        data.natural(**({"dataset": TOY, "min_size": 1, "seed": 0} | call))


@pytest.mark.parametrize(
    ("owners", "error", "match"),
    [
        ([0, 1], ValueError, r"`owners` must have shape \(3,\), one per label, got \(2,\)"),
        ([0, 1, 3], ValueError, "`owners` must be in 0..2, got 3"),
        ([0, 1, -1], ValueError, "`owners` must be in 0..2, got -1"),
        ([[0], [1], [2]], ValueError, "`owners` must be a vector"),
        ([0.5, 1, 1], TypeError, "`owners` must be integer"),
    ],
)
def test_datasets_refuse_owners(owners, error, match):
    with pytest.raises(error, match=match):
        written(owners, [0, 1, 2])


def test_owners_are_read_only_copies():
    owners = np.array([0, 1, 1])
    dataset = replace(written([0, 0, 0], [0, 1, 2]), owners=owners)
    owners[0] = 2
    assert dataset.owners.tolist() == [0, 1, 1]
    assert not dataset.owners.flags.writeable
    assert data.digits().owners is None
