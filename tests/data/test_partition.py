"""Partition: checks, derived tables and picture."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.data.partitioners.small import toy
from topofl import data


def test_partition_counts_labels_of_training_examples():
    clients = data.Partition(toy(), [[0, 1, 6], [12]], val=[[2], []], test=[[], [3, 4]])
    assert (clients.n, clients.n_classes) == (2, 3)
    assert clients.sizes.tolist() == [3, 1]
    assert clients.label_counts.tolist() == [[2, 1, 0], [0, 0, 1]]
    assert clients.label_counts.dtype == clients.sizes.dtype == np.int64
    assert clients.label_counts is clients.label_counts
    with pytest.raises(ValueError, match="read-only"):
        clients.label_counts[0, 0] = 7


def test_partition_is_frozen_and_holds_read_only_copies():
    train = [np.array([0, 1]), np.array([2])]
    clients = data.Partition(toy(), train)
    train[0][0] = 17
    assert [indices.tolist() for indices in clients.train] == [[0, 1], [2]]
    assert [indices.tolist() for indices in clients.val + clients.test] == [[], [], [], []]
    with pytest.raises(dataclasses.FrozenInstanceError):
        clients.name = "other"
    for indices in clients.train + clients.val + clients.test:
        assert indices.dtype == np.int64
        assert not indices.flags.writeable


def test_partition_repr():
    plain = data.Partition(toy(), [[0, 1, 6], [12]], name="mine")
    held = data.Partition(toy(), [[0, 1, 6], [12, 0]], val=[[2], []], overlapping=True)
    assert repr(plain) == "Partition('mine', n=2, train=1..3 and classes=1..2 per node)"
    assert (
        repr(held) == "Partition('partition', n=2, train=2..3, val=0..1 and classes=2..2 per node, "
        "overlapping)"
    )


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            {"dataset": np.zeros(3), "train": [[0]]},
            TypeError,
            "`dataset` must be a data.Dataset, got ndarray.*from_arrays",
        ),
        (
            {"train": 3},
            TypeError,
            "`train` must be a sequence of index arrays, one for each node, got int",
        ),
        ({"train": []}, ValueError, "`train` must hold at least one example"),
        (
            {"train": [[0], [], [1], []]},
            ValueError,
            r"`train`.*\[1, 3\] of 4 nodes have none; use fewer nodes",
        ),
        ({"train": [[]] * 9}, ValueError, r"\[0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\] of 9"),
        ({"train": [[0.5]]}, TypeError, r"`train\[0\]` must be integer indices"),
        ({"train": [0, 1]}, ValueError, r"`train\[0\]` must be a vector"),
        ({"train": [[0], [20]]}, ValueError, r"`train\[1\]` must be in 0..19, got 20"),
        (
            {"train": [[0], [1]], "val": [[2]]},
            ValueError,
            "`val` must have one array for each of the n=2 nodes, got 1",
        ),
        (
            {"train": [[0], [1]], "test": [[2]] * 3},
            ValueError,
            "`test` must have one array for each",
        ),
        (
            {"train": [[0], [1, 0]]},
            ValueError,
            "disjoint, example 0 is held by nodes 0 and 1.*overlapping=True",
        ),
        (
            {"train": [[0], [1]], "val": [[], [0]]},
            ValueError,
            "disjoint, example 0 is held by nodes 0 and 1",
        ),
        ({"train": [[0, 0]]}, ValueError, "disjoint, example 0 is held twice by node 0; remove it"),
        (
            {"train": [[3], [4, 5, 4]], "overlapping": True},
            ValueError,
            "example 4 is held twice by node 1",
        ),
        (
            {"train": [[3], [4]], "val": [[], [4]], "overlapping": True},
            ValueError,
            "example 4 is held twice by node 1",
        ),
        (
            {"train": [[0], [1, 18]]},
            ValueError,
            "`train` must not hold test examples, node 1 holds example 18",
        ),
        (
            {"train": [[0], [1]], "test": [[1], []], "overlapping": True},
            ValueError,
            "`train` must not .* node 1",
        ),
        (
            {"train": [[0], [1]], "test": [[2], [2]]},
            ValueError,
            "disjoint, example 2 is held by nodes 0 and 1",
        ),
        (
            {"train": [[0], [1]], "test": [[], [18, 18]]},
            ValueError,
            "disjoint, example 18 is held twice by node 1",
        ),
        (
            {"train": [[0], [1]], "val": [[], [2, 19]]},
            ValueError,
            "`val` must not .*, node 1 holds example 19 .1 such",
        ),
        (
            {"train": [[0], [1]], "val": [[19], []], "test": [[], [19]]},
            ValueError,
            "`val` must not .* node 0",
        ),
    ],
)
def test_partition_refuses(call, error, match):
    with pytest.raises(error, match=match):
        data.Partition(**({"dataset": toy()} | call))


def test_partition_may_overlap_if_it_says_so_and_may_use_the_global_test_set():
    clients = data.Partition(toy(), [[0, 1], [1, 2]], test=[[18, 19], [18]], overlapping=True)
    assert clients.label_counts.tolist() == [[2, 0, 0], [2, 0, 0]]


def test_nodes_may_share_examples_of_the_global_test_set_but_no_other_ones():
    clients = data.Partition(toy(), [[0, 1], [2]], test=[[18, 3], [19, 18]])
    assert [indices.tolist() for indices in clients.test] == [[18, 3], [19, 18]]
    assert not clients.overlapping
    assert clients.pooled().test[0].tolist() == [3, 18, 19]


def test_pooled_is_one_node_with_everything():
    clients = data.dirichlet_per_class(
        data.digits(), 20, alpha=0.5, seed=0, val_fraction=0.1, test_fraction=0.2
    )
    pooled = clients.pooled()
    assert pooled.n == 1
    assert pooled.name == f"pooled({clients.name})"
    for key in ("train", "val", "test"):
        everybody = np.sort(np.concatenate(getattr(clients, key)))
        np.testing.assert_array_equal(getattr(pooled, key)[0], everybody)
    np.testing.assert_array_equal(pooled.label_counts[0], clients.label_counts.sum(axis=0))


def test_pooled_of_overlapping_nodes_counts_examples_once():
    clients = data.Partition(
        toy(), [[0, 1], [1, 2]], val=[[2, 3], [3, 4]], test=[[4], [5]], overlapping=True
    )
    pooled = clients.pooled()
    assert [nodes[0].tolist() for nodes in (pooled.train, pooled.val, pooled.test)] == [
        [0, 1, 2],
        [3],
        [4, 5],
    ]


def test_plot_draws_one_disk_for_each_node_and_class_it_holds():
    clients = data.shards(data.digits(), 30, seed=0)
    ax = Figure().subplots()
    assert clients.plot(ax) is ax.figure
    places = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_array_equal(places, np.argwhere(clients.label_counts))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("node", "class")
    assert clients.name in ax.get_title()


def test_plot_makes_its_own_figure_without_showing_it():
    before = plt.get_fignums()
    data.Partition(toy(), [[0]]).plot().canvas.draw()
    assert plt.get_fignums() == before
