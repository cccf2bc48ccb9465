"""Partition: what is derived from it, and its picture."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.rows.partitioners import lists, toy
from topofl import data, topologies
from topofl.report.rounds import node_order


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
    assert lists(clients.train) == [[0, 1], [2]]
    assert lists(clients.val + clients.test) == [[], [], [], []]
    with pytest.raises(dataclasses.FrozenInstanceError):
        clients.name = "other"
    for indices in clients.train + clients.val + clients.test:
        assert (indices.dtype, indices.flags.writeable) == (np.int64, False)


def test_partition_repr():
    plain = data.Partition(toy(), [[0, 1, 6], [12]], name="mine")
    held = data.Partition(toy(), [[0, 1, 6], [12, 0]], val=[[2], []], overlapping=True)
    assert repr(plain) == "Partition('mine', n=2, train=1..3 and classes=1..2 per node)"
    sizes = "n=2, train=2..3, val=0..1 and classes=2..2 per node, overlapping"
    assert repr(held) == f"Partition('partition', {sizes})"


def test_nodes_may_share_examples_of_the_global_test_set_but_no_other_ones():
    clients = data.Partition(toy(), [[0, 1], [1, 2]], test=[[18, 19], [18]], overlapping=True)
    assert clients.label_counts.tolist() == [[2, 0, 0], [2, 0, 0]]
    clients = data.Partition(toy(), [[0, 1], [2]], test=[[18, 3], [19, 18]])
    assert lists(clients.test) == [[18, 3], [19, 18]]
    assert not clients.overlapping
    assert clients.pooled().test[0].tolist() == [3, 18, 19]


def test_pooled_is_one_node_with_everything_once():
    held_out = {"val_fraction": 0.1, "test_fraction": 0.2}
    clients = data.dirichlet_per_class(data.digits(), 20, alpha=0.5, seed=0, **held_out)
    pooled = clients.pooled()
    assert (pooled.n, pooled.name) == (1, f"pooled({clients.name})")
    for key in ("train", "val", "test"):
        everybody = np.sort(np.concatenate(getattr(clients, key)))
        np.testing.assert_array_equal(getattr(pooled, key)[0], everybody)
    np.testing.assert_array_equal(pooled.label_counts[0], clients.label_counts.sum(axis=0))
    parts = [[0, 1], [1, 2]], [[2, 3], [3, 4]], [[4], [5]]
    pooled = data.Partition(toy(), *parts, overlapping=True).pooled()
    assert lists(pooled.train + pooled.val + pooled.test) == [[0, 1, 2], [3], [4, 5]]


def test_plot_draws_one_disk_for_each_node_and_class_it_holds():
    clients = data.shards(data.digits(), 30, seed=0)
    ax = Figure().subplots()
    assert clients.plot(ax) is ax.figure
    places = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_array_equal(places, np.argwhere(clients.label_counts))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("node", "class")
    assert clients.name in ax.get_title()
    before = plt.get_fignums()
    data.Partition(toy(), [[0]]).plot().canvas.draw()
    assert plt.get_fignums() == before


def test_plots_name_the_classes():
    names = ["$dog", "_cat", "owl"]
    clients = data.shards(data.from_arrays(np.eye(24), names * 8), 4, seed=0)
    assert clients.class_names == ("$dog", "_cat", "owl")
    ticks = [text.get_text() for text in clients.plot().axes[0].get_yticklabels()]
    assert ticks == names

    def legend(counts):
        found = topologies.ring(4).plot(label_counts=counts).axes[0].get_legend()
        return [text.get_text() for text in found.get_texts()]

    assert legend(clients) == names
    assert legend(clients.label_counts) == ["0", "1", "2"]
    _, _, strips = node_order(4, (), clients, (), "ring")
    most = sorted({*clients.label_counts.argmax(axis=1)})
    assert [name for _, name in strips[0]["legend"]] == [clients.class_names[k] for k in most]
