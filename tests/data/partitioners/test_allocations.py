"""Hand-computed allocations, and the distributions that partitioners draw from."""

import numpy as np
import pytest

from tests.data.partitioners.small import toy
from topofl import data
from topofl.data.partitioners import _dealing as allocation


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
