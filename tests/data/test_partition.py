"""Partition: checks, derived tables, picture, bad arguments and hand-computed allocations."""

import dataclasses
import inspect

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from topofl import data
from topofl.data import partitioners
from topofl.data.partitioners import _allocation as allocation


def toy(counts=(6, 6, 6), n_test=2):
    """Return `counts[c]` training examples of each class c, then test examples of class 0."""
    labels = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.zeros(n_test, int)])
    n_train, none = sum(counts), np.zeros(0, int)
    inputs = torch.zeros(len(labels), 1)
    test = np.arange(n_train, len(labels))
    return data.Dataset(
        inputs, torch.from_numpy(labels), len(counts), "toy", np.arange(n_train), none, test
    )


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
    figure, ax = plt.subplots()
    assert clients.plot(ax) is ax
    places = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_array_equal(places, np.argwhere(clients.label_counts))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("node", "class")
    assert clients.name in ax.get_title()
    plt.close(figure)


def test_plot_makes_its_own_figure_without_showing_it():
    ax = data.Partition(toy(), [[0]]).plot()
    ax.figure.canvas.draw()
    assert plt.get_fignums() == [ax.figure.number]
    plt.close(ax.figure)


CALLS = {
    "shards": {},
    "iid": {},
    "dirichlet_per_client": {"alpha": 0.5},
    "dirichlet_per_class": {"alpha": 0.5, "min_size": 1},
    "one_class_per_node": {},
    "pathological": {"classes_per_node": 2},
    "pathological_dirichlet": {"classes_per_node": 2, "min_per_class": 1},
    "pathological_shared": {"classes_per_node": 2},
}
NAMES = [name for name in partitioners.__all__ if name != "natural"]


REFUSED = (
    ({"n": 0}, ValueError, "`n` must be between 1 and 18, got 0"),
    ({"n": 19}, ValueError, "`n` must be between 1 and 18, got 19; every node needs"),
    ({"n": 2.0}, TypeError, "`n`"),
    ({"dataset": "digits"}, TypeError, "`dataset` must be a data.Dataset"),
    ({"seed": None}, TypeError, "`seed`"),
    ({"seed": -1}, ValueError, "`seed`"),
    ({"val_fraction": 1}, ValueError, "`val_fraction`"),
    ({"val_fraction": "a"}, TypeError, "`val_fraction`"),
    ({"test_fraction": -0.1}, ValueError, "`test_fraction`"),
    (
        {"val_fraction": 0.5, "test_fraction": 0.5},
        ValueError,
        "`val_fraction` and `test_fraction`.*less than 1",
    ),
)


@pytest.mark.parametrize(
    ("name", "call", "error", "match"),
    [
        (name, *row)
        for name in NAMES
        for row in REFUSED
        if set(row[0]) <= {"dataset", *inspect.signature(getattr(data, name)).parameters}
    ],
)
def test_every_partitioner_refuses(name, call, error, match):
    with pytest.raises(error, match=match):
        getattr(data, name)(**({"dataset": toy(), "n": 3, "seed": 0} | CALLS[name] | call))


@pytest.mark.parametrize("name", NAMES)
def test_every_partitioner_requires_a_seed(name):
    with pytest.raises(TypeError, match="seed"):
        getattr(data, name)(toy(), 3, **CALLS[name])


@pytest.mark.parametrize(
    ("name", "call", "match"),
    [
        ("shards", {"per_node": 0}, "`per_node` must be at least 1"),
        (
            "shards",
            {"n": 4, "per_node": 5},
            "`per_node` must be at most 4 for n=4 nodes and 18 training examples, got 5",
        ),
        ("dirichlet_per_client", {"alpha": 0}, "`alpha`"),
        ("dirichlet_per_client", {"alpha": np.inf}, "`alpha`"),
        ("dirichlet_per_class", {"alpha": -1}, "`alpha`"),
        ("dirichlet_per_class", {"alpha": np.nan}, "`alpha`"),
        ("dirichlet_per_class", {"min_size": 0}, "`min_size` must be at least 1"),
        (
            "dirichlet_per_class",
            {"n": 4, "min_size": 5},
            "`min_size` must be at most 4 .* use min_size=4 or n=3$",
        ),
        (
            "dirichlet_per_class",
            {"n": 4, "min_size": 19},
            "`min_size` must be at most 4 .* use min_size=4$",
        ),
        ("pathological", {"classes_per_node": 0}, "`classes_per_node`"),
        (
            "pathological",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3, got 4",
        ),
        (
            "pathological_shared",
            {"classes_per_node": 0},
            "`classes_per_node` must be between 1 and 3",
        ),
        (
            "pathological_shared",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3",
        ),
        (
            "pathological_shared",
            {"n": 2, "classes_per_node": 1},
            (
                "`classes_per_node` must provide 9 .* got 1 with n=2, .* 6 examples together; "
                "use n=3 or classes_per_node=2"
            ),
        ),
        (
            "pathological_dirichlet",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3",
        ),
        ("pathological_dirichlet", {"alpha": 0}, "`alpha`"),
        ("pathological_dirichlet", {"min_per_class": 0}, "`min_per_class` must be at least 1"),
        (
            "pathological_dirichlet",
            {"classes_per_node": 3, "min_per_class": 3},
            (
                "`min_per_class` .* 3 nodes that drew class 0, which has 6 .*, got 3; use "
                "min_per_class=2, or fewer nodes"
            ),
        ),
        (
            "pathological_dirichlet",
            {"n": 7, "classes_per_node": 3},
            "7 nodes that drew class 0, which has 6 .*; use fewer nodes or classes_per_node",
        ),
        (
            "pathological",
            {"n": 10},
            "`classes_per_node`.*got 2 with n=10.*6 .*; use n=9 or classes_per_node=1",
        ),
    ],
)
def test_partitioners_refuse_their_own_arguments(name, call, match):
    with pytest.raises(ValueError, match=match):
        getattr(data, name)(**({"dataset": toy(), "n": 3, "seed": 0} | CALLS[name] | call))


def test_pathological_names_a_setting_that_exists_when_a_class_is_rare():
    rare = toy(counts=(20, 20, 2))
    with pytest.raises(ValueError, match=r"class 2 has 2 training examples; use n=8$"):
        data.pathological(rare, 12, classes_per_node=1, seed=0)
    assert (data.pathological(rare, 8, classes_per_node=1, seed=0).sizes > 0).all()


def test_fraction_that_cannot_be_held_out_names_the_node():
    with pytest.raises(
        ValueError, match=r"`val_fraction`.*got 0.2 where node 0 has 1 examples and needs 2"
    ):
        data.iid(toy(), 18, seed=0, val_fraction=0.2)
    with pytest.raises(ValueError, match=r"`test_fraction`.*node 0 has 1 examples and needs 2"):
        data.iid(toy(), 18, seed=0, test_fraction=0.2)
    with pytest.raises(ValueError, match=r"`val_fraction`.*node 0 has 2 examples and needs 3"):
        data.iid(toy(), 9, seed=0, val_fraction=0.1, test_fraction=0.1)


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ((0.2, 0), (8, 2, 0)),
        ((0, 0.3), (7, 0, 3)),
        ((0.01, 0.01), (8, 1, 1)),
        ((0.49, 0.5), (1, 4, 5)),
    ],
)
def test_held_out_sizes(fractions, sizes):
    clients = data.iid(
        toy((10, 10)), 2, seed=0, val_fraction=fractions[0], test_fraction=fractions[1]
    )
    assert [
        (len(a), len(b), len(c))
        for a, b, c in zip(clients.train, clients.val, clients.test, strict=True)
    ] == [sizes] * 2


def test_holding_out_keeps_class_proportions():
    clients = data.iid(toy((40, 20)), 1, seed=0, val_fraction=0.1, test_fraction=0.2)
    labels = clients.dataset.labels.numpy()
    assert np.bincount(labels[clients.test[0]]).tolist() == [8, 4]
    assert np.bincount(labels[clients.val[0]]).tolist() == [4, 2]


def test_names_tell_the_settings():
    digits = data.digits()
    assert data.shards(digits, 50, seed=0).name == "shards(digits, n=50, per_node=2)"
    assert (
        data.iid(digits, 5, seed=0, val_fraction=0.25).name == "iid(digits, n=5, val_fraction=0.25)"
    )
    held = data.dirichlet_per_class(digits, 5, alpha=1, seed=0, min_size=3, test_fraction=0.1)
    assert held.name == "dirichlet_per_class(digits, n=5, alpha=1, min_size=3, test_fraction=0.1)"


def test_shards_of_one_class_each_when_classes_are_multiples_of_shards():
    clients = data.shards(toy((20, 40, 20)), 8, per_node=1, seed=0)
    assert sorted(clients.label_counts.tolist()) == sorted(
        [[10, 0, 0]] * 2 + [[0, 10, 0]] * 4 + [[0, 0, 10]] * 2
    )


def test_dirichlet_per_client_follows_alpha():
    dataset = toy((500,) * 4)
    counts = [
        data.dirichlet_per_client(dataset, 20, alpha=alpha, seed=0).label_counts
        for alpha in (1e-3, 1, 1e6)
    ]
    single, mixed, alike = (table.max(axis=1).mean() / 100 for table in counts)
    assert single > 0.6 > mixed > 0.4 > alike
    alone = data.dirichlet_per_client(dataset, 3, alpha=1e-3, seed=1).label_counts
    assert (alone.max(axis=1) > 450).all(), "a node takes its class until that is used up"


def test_dirichlet_per_class_follows_alpha():
    dataset = toy((500,) * 4)
    alike = data.dirichlet_per_class(dataset, 4, alpha=1e6, seed=0).label_counts
    single = data.dirichlet_per_class(dataset, 20, alpha=1e-3, seed=0, min_size=1).label_counts
    assert np.abs(alike - 125).max() <= 2
    assert (single.max(axis=0) > 400).all()


@pytest.mark.parametrize(("n", "alpha"), [(100, 0.1), (500, 0.5), (6000, 1e-3)])
def test_dirichlet_finishes_where_redrawing_until_it_fits_does_not(n, alpha):
    dataset = toy((6000,) * 10)
    clients = data.dirichlet_per_class(dataset, n, alpha=alpha, seed=0, min_size=10)
    assert clients.sizes.min() >= 10
    assert clients.sizes.sum() == 60_000
    clients = data.dirichlet_per_client(dataset, n, alpha=alpha, seed=0)
    assert (clients.sizes == 60_000 // n).all()


def test_pathological_spreads_holders_evenly_and_in_no_order():
    clients = data.pathological(toy((100,) * 10, n_test=0), 50, classes_per_node=2, seed=0)
    held = clients.label_counts > 0
    assert (held.sum(axis=1) == 2).all()
    assert (held.sum(axis=0) == 10).all()
    assert (clients.label_counts[held] == 10).all()
    blocks = held.reshape(10, 5, 10).sum(axis=1)
    assert not (blocks == 1).all(axis=1).any(), (
        "runs of five nodes must not always cover all ten classes"
    )


def test_pathological_ignores_classes_without_examples():
    clients = data.pathological(toy((6, 0, 6)), 3, classes_per_node=2, seed=0)
    assert (clients.label_counts[:, 1] == 0).all()
    assert clients.sizes.sum() == 12


def test_pathological_shared_starts_a_class_again_only_when_it_has_run_out():
    dataset = toy((200,) * 5)
    clients = data.pathological_shared(dataset, 25, classes_per_node=2, seed=0)
    uses = np.bincount(np.concatenate(clients.train), minlength=1000)[:1000].reshape(5, 200)
    wanted = clients.label_counts.sum(axis=0)
    assert (wanted > 200).any(), "or the seed shows nothing"
    assert (wanted < 200).any(), "or the seed shows nothing"
    assert (uses.sum(axis=1) == wanted).all()
    assert (uses[wanted >= 200] >= 1).all()
    assert (uses[wanted <= 200] <= 1).all()


def test_pathological_shared_draws_classes_and_examples_uniformly():
    dataset = toy((300,) * 6)
    held = sum(
        data.pathological_shared(dataset, 60, classes_per_node=2, seed=i).label_counts > 0
        for i in range(50)
    )
    assert abs(held.sum(axis=0) / 3000 - 2 / 6).max() < 0.05
    counts = data.pathological_shared(dataset, 3, classes_per_node=2, seed=0).label_counts
    assert (counts.max(axis=1) == 300).all(), "two classes are just enough"
    counts = data.pathological_shared(dataset, 60, classes_per_node=2, seed=0).label_counts
    assert len(set(counts[counts > 0].tolist())) > 5, "numbers are drawn, not divided evenly"
    assert abs(counts[counts > 0].mean() - 15) < 1


def test_drawn_counts_go_where_there_is_room():
    rng = np.random.default_rng(0)
    assert allocation.drawn_counts(np.array([3, 0, 9]), 12, rng).tolist() == [3, 0, 9]
    assert allocation.drawn_counts(np.array([3, 0, 9]), 0, rng).tolist() == [0, 0, 0]
    mean = np.mean(
        [allocation.drawn_counts(np.array([99, 99, 1]), 30, rng) for _ in range(300)], axis=0
    )
    np.testing.assert_allclose(mean, [14.5, 14.5, 1], atol=0.6)


def test_dealt_again_goes_on_from_a_random_place_with_what_a_taker_has_not():
    stack = np.array([10, 11, 12])
    rng = np.random.default_rng(0)
    assert allocation.dealt_again(stack, np.array([5, 6, 5]), rng).tolist() == [10, 11, 12]
    fourth = {int(allocation.dealt_again(stack, np.array([1, 1, 2, 3]), rng)[3]) for _ in range(50)}
    assert fourth == {10, 11, 12}
    for _ in range(20):
        assert allocation.dealt_again(stack, np.array([1, 2, 1, 1]), rng)[3] == 11


def test_pathological_dirichlet_follows_alpha():
    dataset = toy((600,) * 10)
    alike = data.pathological_dirichlet(
        dataset, 20, classes_per_node=10, alpha=1e6, seed=0
    ).label_counts
    assert np.abs(alike - 30).max() <= 2
    skewed = data.pathological_dirichlet(
        dataset, 20, classes_per_node=3, alpha=1e-3, seed=0
    ).label_counts
    for held in skewed.T:
        assert (held[held > 0] == 10).sum() >= (held > 0).sum() - 3, (
            "nearly all to few nodes, 10 to each of the others"
        )
    assert data.pathological_dirichlet(dataset, 20, classes_per_node=3, seed=0).name == (
        "pathological_dirichlet(toy, n=20, classes_per_node=3, alpha=0.5, min_per_class=10)"
    )


def test_pathological_dirichlet_draws_until_every_node_has_enough():
    """As in DPFL on CIFAR-10: one draw in 600 gives each of a class's 30 nodes 10 examples."""
    held = data.pathological_dirichlet(
        toy((5000,) * 10), 100, classes_per_node=3, seed=0
    ).label_counts
    assert ((held > 0).sum(axis=1) == 3).all()
    assert held[held > 0].min() >= 10
    assert (held == 10).sum() < 30, "a repaired division has far more that have just enough"


def test_best_cut_is_the_first_draw_that_will_do():
    counts = [
        allocation.best_cut(4, 100, 0.5, 5, np.random.default_rng(seed)) for seed in range(300)
    ]
    assert {int(own.sum()) for own in counts} == {100}
    assert min(own.min() for own in counts) == 5
    assert abs(np.mean(counts, axis=0) - 25).max() < 3
    logs = allocation.log_dirichlet(0.5, (allocation.BLOCK, 4), np.random.default_rng(7))
    shares = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    drawn = np.diff(np.floor(100 * np.cumsum(shares, axis=1) + 1e-9), axis=1, prepend=0)
    first = drawn[(drawn >= 5).all(axis=1)][0]
    assert allocation.best_cut(4, 100, 0.5, 5, np.random.default_rng(7)).tolist() == first.tolist()


def test_best_cut_lacks_little_where_no_draw_will_do():
    rng = np.random.default_rng(0)
    counts = allocation.best_cut(20, 200, 0.5, 10, rng)
    assert counts.sum() == 200
    lacking = [
        np.maximum(10 - allocation.best_division(20, np.array([200]), 0.5, 1, rng), 0).sum()
        for _ in range(50)
    ]
    assert np.maximum(10 - counts, 0).sum() < min(lacking)
    assert allocation.best_cut(1, 7, 1e-300, 7, rng).tolist() == [7]


def test_one_class_per_node_gives_rare_classes_a_node_for_each_example():
    clients = data.one_class_per_node(toy((20, 2, 20, 0)), 12, seed=0)
    assert ((clients.label_counts > 0).sum(axis=1) == 1).all()
    assert (clients.label_counts > 0).sum(axis=0).tolist() == [5, 2, 5, 0]
    assert clients.label_counts.sum(axis=0).tolist() == [20, 2, 20, 0]
    assert sorted(clients.sizes.tolist()) == [1] * 2 + [4] * 10
    assert (data.one_class_per_node(toy((20, 2, 20, 0)), 42, seed=0).sizes == 1).all()


def test_one_class_per_node_draws_classes_at_random_where_nodes_are_few():
    seen = {
        tuple(data.one_class_per_node(toy(), 1, seed=seed).label_counts[0] > 0)
        for seed in range(30)
    }
    assert len(seen) == 3
    held = [
        data.one_class_per_node(toy((30,) * 3), 6, seed=seed).label_counts.argmax(axis=1)
        for seed in range(5)
    ]
    assert len({tuple(classes) for classes in held}) == 5


@pytest.mark.parametrize(
    ("total", "capacity", "expected"),
    [
        (0, [3, 3], [0, 0]),
        (7, [1, 0, 9, 9], [1, 0, 3, 3]),
        (12, [1, 2, 9], [1, 2, 9]),
        (9, [2, 4, 4], [2, 3, 4]),
    ],
)
def test_shared_out_is_as_equal_as_capacities_allow(total, capacity, expected):
    taken = allocation.shared_out(total, np.array(capacity), np.random.default_rng(0))
    assert sorted(taken) == sorted(expected)
    assert (taken <= capacity).all()


def test_log_dirichlet_has_the_moments_of_the_distribution():
    alpha, k, draws = 0.5, 4, 20_000
    logs = allocation.log_dirichlet(alpha, (draws, k), np.random.default_rng(0))
    shares = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    variance = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    assert np.abs(shares.mean(axis=0) - 1 / k).max() < 5 * np.sqrt(variance / draws)
    assert np.abs(shares.var(axis=0) / variance - 1).max() < 0.05


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-3, 1.0, 1e15, 1e300])
def test_log_dirichlet_stays_finite(alpha):
    assert np.isfinite(allocation.log_dirichlet(alpha, (50, 5), np.random.default_rng(0))).all()


def test_fill_renormalizes_over_the_classes_that_are_left():
    log_priors = np.array([[0.0, -1e100, -1e99], [-1e100, 0.0, -1e99]])
    counts = allocation.fill(log_priors, np.array([3, 3, 4]), 5, np.random.default_rng(0))
    assert counts.tolist() == [[3, 0, 2], [0, 3, 2]]


def test_division_gives_nothing_to_nodes_that_are_full():
    stock = np.array([40, 0, 30, 30])
    counts = allocation.best_division(10, stock, 0.2, 1, np.random.default_rng(0))
    np.testing.assert_array_equal(counts.sum(axis=0), stock)
    before = np.cumsum(counts, axis=1) - counts
    assert (before >= 10).any()
    assert (counts[before >= 10] == 0).all()


def test_repaired_moves_from_the_largest_node_and_its_most_frequent_class():
    counts = np.array([[8, 2], [0, 1], [3, 0]])
    assert allocation.repaired(counts, 3).tolist() == [[6, 2], [2, 1], [3, 0]]
    assert allocation.repaired(np.array([[0, 0], [2, 3], [4, 0], [0, 0]]), 2).tolist() == [
        [1, 1],
        [1, 1],
        [3, 0],
        [1, 1],
    ]
    assert counts.tolist() == [[8, 2], [0, 1], [3, 0]]
