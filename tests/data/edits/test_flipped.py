"""Nodes with wrong labels: theirs change, and nobody else's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.partitions import ARGUMENTS, NAMES, datasets, lists
from topofl import data


def toy(**changes):
    """Return 9 examples of classes 0, 1, 2 in turn, with their places as inputs; 3 are test."""
    labels = torch.arange(9) % 3
    inputs = torch.arange(9.0)[:, None]
    return replace(
        data.Dataset(inputs, labels, 3, "toy", np.arange(6), np.zeros(0, int), np.arange(6, 9)),
        **changes,
    )


def seen(clients, node, key):
    """Return pairs (input, label) of a node."""
    places = getattr(clients, key)[node].tolist()
    dataset = clients.dataset
    return list(
        zip(dataset.inputs[places, 0].tolist(), dataset.labels[places].tolist(), strict=True)
    )


def test_train_and_validation_labels_are_flipped_and_test_labels_are_not():
    clients = data.Partition(toy(), [[0, 1], [2, 3]], val=[[4], [5]], test=[[6], [7]])
    wrong = data.flip_labels(clients, [0])
    assert seen(wrong, 0, "train") == [(0, 2), (1, 1)]
    assert seen(wrong, 0, "val") == [(4, 1)]
    assert seen(wrong, 0, "test") == [(6, 0)]
    assert [seen(wrong, 1, key) for key in ("train", "val", "test")] == [
        [(2, 2), (3, 0)],
        [(5, 2)],
        [(7, 1)],
    ]
    assert wrong.flipped == (0,)
    assert wrong.name == "flip_labels(partition, nodes=[0])"
    assert repr(wrong).endswith("classes=2..2 per node, flipped=1)")
    assert wrong.label_counts.tolist() == [[0, 1, 1], [1, 0, 1]]
    assert wrong.dataset.inputs is clients.dataset.inputs
    assert clients.dataset.labels.tolist() == [0, 1, 2] * 3


def test_permutations_and_names():
    clients = data.iid(data.digits(), 12, seed=0)
    turned = [*range(1, 10), 0]
    wrong = data.flip_labels(clients, [11, 1, 2, 3, 7, 6], permutation=turned)
    assert (
        wrong.name == f"flip_labels(iid(digits, n=12), nodes=[1-3, 6-7, 11], permutation={turned})"
    )
    for node in range(12):
        right, found = (
            c.dataset.labels[torch.tensor(clients.train[node])] for c in (clients, wrong)
        )
        assert torch.equal(found, (right + 1) % 10 if node in wrong.flipped else right)


def test_shared_examples_get_copies():
    dataset = toy(owners=np.arange(9))
    clients = data.Partition(
        dataset, [[0, 1], [1, 2], [2, 3], [4, 0]], val=[[], [5], [5], []], overlapping=True
    )
    wrong = data.flip_labels(clients, (1, 2))
    assert seen(wrong, 0, "train") == [(0, 0), (1, 1)]
    assert seen(wrong, 1, "train") == [(1, 1), (2, 0)]
    assert seen(wrong, 2, "train") == [(2, 0), (3, 2)]
    assert seen(wrong, 1, "val") == seen(wrong, 2, "val") == [(5, 0)]
    assert wrong.train[1].tolist() == [9, 2], "node 0 has example 1 too"
    assert wrong.dataset.train.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert wrong.dataset.owners.tolist() == [*range(9), 1]
    assert len(wrong.dataset.inputs) == 10


def test_what_is_tested_on_keeps_its_label():
    dataset = toy(train=np.array([0, 1, 2, 3, 4]), val=np.array([5]))
    clients = data.Partition(dataset, [[0, 5], [1]], val=[[4], []], test=[[], [2]])
    wrong = data.flip_labels(clients, [0, 1])
    assert seen(wrong, 0, "train") == [(0, 2), (5, 0)]
    assert wrong.dataset.labels[dataset.val.tolist()].tolist() == [2]
    assert seen(wrong, 1, "test") == [(2, 2)]


def test_so_many_nodes_at_random():
    clients = data.iid(data.digits(), 100, seed=0)
    drawn = [data.flip_labels(clients, 40, seed=seed).flipped for seed in range(50)]
    assert {len(set(nodes)) for nodes in drawn} == {40}
    assert all(list(nodes) == sorted(nodes) for nodes in drawn)
    assert abs(np.bincount(np.concatenate(drawn), minlength=100) / 50 - 0.4).max() < 0.3
    assert data.flip_labels(clients, 40).flipped == drawn[0] != drawn[1]
    assert data.flip_labels(clients, np.int64(100)).flipped == tuple(range(100))


@given(data_=st.data(), seed=st.integers(0, 1000))
def test_flips_the_chosen_nodes_only(data_, seed):
    dataset = data_.draw(datasets())
    dataset = replace(dataset, inputs=torch.arange(float(len(dataset.labels)))[:, None])
    name = data_.draw(st.sampled_from(NAMES))
    clients = getattr(data, name)(dataset, **ARGUMENTS[name](data_.draw, dataset), seed=seed)
    if len(dataset.test):
        clients = data.match_test(
            clients, rule=data_.draw(st.sampled_from(["per_client", "disjoint"])), seed=seed
        )
    if clients.sizes.min() > 1:
        clients = data.with_validation(clients, 0.3, seed=seed)
    permutation = data_.draw(st.none() | st.permutations(range(dataset.n_classes)))
    wrong = data.flip_labels(
        clients, data_.draw(st.integers(1, clients.n)), permutation=permutation, seed=seed
    )
    classes = permutation or list(range(dataset.n_classes))[::-1]
    for node in range(clients.n):
        for key in ("train", "val", "test"):
            flips = node in wrong.flipped and key != "test"
            wanted = [(x, classes[y] if flips else y) for x, y in seen(clients, node, key)]
            assert seen(wrong, node, key) == wanted
    for key in ("val", "test"):
        places = getattr(dataset, key).tolist()
        assert getattr(wrong.dataset, key).tolist() == places
        assert wrong.dataset.labels[places].tolist() == dataset.labels[places].tolist()
    assert clients.overlapping == wrong.overlapping
    assert clients.overlapping or len(wrong.dataset.labels) == len(dataset.labels)
    rest = sorted(set(range(clients.n)) - set(wrong.flipped))
    if rest:
        both = data.flip_labels(wrong, rest[:1])
        assert both.flipped == tuple(sorted((*wrong.flipped, rest[0])))
        assert lists(both.test) == lists(clients.test)


CLIENTS = data.Partition(toy(), [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"clients": toy()}, TypeError, "`clients` must be a data.Partition, got Dataset"),
        ({"nodes": 0}, ValueError, "`nodes` must be between 1 and n=2, got 0"),
        ({"nodes": 3}, ValueError, "`nodes` must be between 1 and n=2, got 3"),
        ({"nodes": 0.4}, TypeError, "`nodes` must be an integer"),
        ({"nodes": True}, TypeError, "`nodes` must be an integer"),
        ({"nodes": [2]}, ValueError, "`nodes` must be in 0..1, got 2"),
        ({"nodes": []}, ValueError, r"`nodes` must list different nodes, got \[\]"),
        ({"nodes": [1, 1]}, ValueError, r"`nodes` must list different nodes, got \[1, 1\]"),
        ({"nodes": "all"}, ValueError, "`nodes` must be a vector"),
        (
            {"clients": data.flip_labels(CLIENTS, [1])},
            ValueError,
            "`nodes` must not be flipped already, node 1 is",
        ),
        (
            {"permutation": [0, 1]},
            ValueError,
            r"`permutation` must contain each of 0..2 once, got \[0, 1\]",
        ),
        ({"permutation": [0, 1, 1]}, ValueError, r"`permutation` must contain each of 0..2 once"),
        ({"permutation": [0, 1, 3]}, ValueError, r"`permutation` must be in 0..2, got 3"),
        ({"permutation": [0, 1, 0.5]}, TypeError, r"`permutation` must be integer"),
        ({"seed": -1}, ValueError, "`seed`"),
    ],
)
def test_refuses(change, error, match):
    with pytest.raises(error, match=match):
        data.flip_labels(**({"clients": CLIENTS, "nodes": [0, 1]} | change))


def test_partitions_refuse_nodes_that_do_not_exist():
    with pytest.raises(ValueError, match=r"`flipped` must be in 0..1, got 2"):
        data.Partition(toy(), [[0], [1]], flipped=[2])
    assert data.Partition(toy(), [[0], [1]], flipped=[1, 0, 1]).flipped == (0, 1)
