"""Edits of partitions: matched tests, validation, wrong labels; private histograms, and bins."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.degenerate.inputs import run
from tests.rows.partitioners import clients_with, counted, datasets, lists, partitions, toy
from topofl import algorithms, config, data, models, topologies
from topofl.metrics import clique_skew

# Tests that match


@pytest.mark.parametrize(
    ("held", "test", "found"),
    [
        ([[9, 1, 0], [1, 1, 1]], [10, 10, 1], [[10, 2, 0], [4, 4, 1]]),
        ([[1, 48], [48, 1]], [49, 49], [[1, 48], [48, 1]]),  # 1 / 49 * 49 is 1 and not more
        ([[4, 0], [0, 4]], [2, 0], [[1, 0], [0, 0]]),
    ],
)
def test_per_client_rounds_up_class_by_class(held, test, found):
    assert counted(data.match_test(clients_with(held, test), rule="per_client")) == found


def test_per_client_draws_overlap_and_are_uniform():
    clients = clients_with([[5], [5]], test=[4])
    draws = [data.match_test(clients, rule="per_client", seed=seed).test for seed in range(300)]
    assert {len(np.intersect1d(*pair)) for pair in draws} == {0, 1, 2}
    often = np.bincount(np.concatenate([own for pair in draws for own in pair]) - 10)
    assert abs(often / 600 - 0.5).max() < 0.1


@pytest.mark.parametrize("rule", ["per_client", "disjoint"])
def test_matched_tests_have_a_name_and_a_seed(rule):
    clients = data.dirichlet_per_client(data.digits(), 20, alpha=0.3, seed=0, val_fraction=0.2)

    def tests(seed):
        return lists(data.match_test(clients, rule=rule, seed=seed).test)

    matched = data.match_test(clients, rule=rule)
    assert matched.name == f"match_test({clients.name}, rule={rule})"
    assert lists(matched.val) == lists(clients.val)
    assert tests(0) == lists(matched.test) != tests(1)
    assert tests(np.random.default_rng(3)) == tests(np.random.default_rng(3))


def pathological():
    return data.pathological(data.digits(), 6, classes_per_node=2, seed=0)


@pytest.mark.parametrize(
    ("edit", "on"),
    [
        (lambda clients: data.match_test(clients, rule="per_client"), "own_test"),
        (lambda clients: data.match_test(clients, rule="disjoint"), "own_test"),
        (data.with_validation, "own_val"),
    ],
)
def test_what_nodes_hold_out_is_what_a_run_is_evaluated_on(edit, on):
    algorithm = algorithms.local_only(lr=0.5, batch_size=16, local_steps=20)
    options = {"model": models.logistic_regression(64), "topology": None, "rounds": 1, "on": on}
    history = run(algorithm, clients=edit(pathological()), **options)
    assert history["accuracy"][-1].min() > 0.7, "two classes are easy when no other is asked for"


# Validation


def test_validation_is_stratified_where_every_class_has_two():
    clients = clients_with([[10, 20, 0], [3, 2, 5], [0, 0, 4]], test=[1, 1, 1])
    held = data.with_validation(clients)
    assert counted(held, "val") == [[2, 4, 0], [1, 0, 1], [0, 0, 1]]
    assert counted(held, "train") == [[8, 16, 0], [2, 2, 4], [0, 0, 3]]


def test_validation_is_at_random_where_a_class_has_one_and_uniform_within_a_class():
    clients = clients_with([[1, 9]], test=[1, 1])
    held = [data.with_validation(clients, 0.5, seed=seed) for seed in range(200)]
    drawn = [counted(own, "val")[0] for own in held]
    assert {tuple(own) for own in drawn} == {(0, 5), (1, 4)}
    assert abs(np.mean(drawn, axis=0)[0] - 0.5) < 0.12
    clients = clients_with([[5, 5]], test=[1, 1])
    val = [data.with_validation(clients, 0.4, seed=seed).val[0] for seed in range(300)]
    often = np.bincount(np.concatenate(val))
    assert often.sum() == 1200
    assert abs(often / 300 - 0.4).max() < 0.1


def test_one_example_of_each_class_stays():
    clients = data.with_validation(clients_with([[2, 2, 6]], test=[1, 1, 1]), 0.9)
    assert counted(clients, "train") == [[1, 1, 1]]
    assert data.with_validation(clients_with([[2, 5]], test=[1, 1]), 0.6).label_counts.min() >= 1


@given(data_=st.data(), share=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
@pytest.mark.parametrize("matched", [False, True])
def test_validation_divides_each_nodes_examples_and_nothing_else(matched, data_, share, seed):
    tested = datasets().filter(lambda dataset: len(dataset.test))
    clients = data_.draw(partitions(tested, st.just(0)))
    clients = data.match_test(clients, rule="disjoint") if matched else clients
    if clients.sizes.min() < 2:
        with pytest.raises(ValueError, match=f"per node, node {clients.sizes.argmin()} has one"):
            data.with_validation(clients, share, seed=seed)
        return
    held = data.with_validation(clients, share, seed=seed)
    assert held.name == f"with_validation({clients.name}, share={share:g})"
    assert held.overlapping == clients.overlapping
    assert lists(held.test) == lists(clients.test)
    assert lists(data.with_validation(clients, share, seed=seed).val) == lists(held.val)
    kept, moved = (np.array(counted(held, part)) for part in ("train", "val"))
    whole = zip(clients.train, clients.label_counts, held.train, held.val, strict=True)
    for node, (before, had, train, val) in enumerate(whole):
        assert sorted([*train.tolist(), *val.tolist()]) == sorted(before.tolist())
        assert len(train) > 0
        assert len(val) > 0
        if had[had > 0].min() > 1:
            assert ((kept[node] > 0) == (had > 0)).all()
            wanted = had * len(val) / len(before)
            assert share > 0.5 or abs(moved[node] - wanted).max() < 1
        if had[had > 0].min() == 1 or share <= 0.5:
            assert len(val) == min(max(1, round(share * len(before))), len(before) - 1)


def test_the_data_of_dpfl():
    """As in its experiments, on digits: Dir(0.1), matched tests, a fifth for validation."""
    clients = data.dirichlet_per_class(data.digits(), 20, alpha=0.1, min_size=20, seed=0)
    clients = data.with_validation(data.match_test(clients, rule="disjoint", seed=0), seed=0)
    val = np.array([len(own) for own in clients.val])
    sizes = clients.sizes + val
    assert sizes.min() >= 20
    assert (sizes.sum(), sum(map(len, clients.test))) == (1497, 300)
    np.testing.assert_array_equal(val, np.rint(0.2 * sizes).astype(int))
    dealt = "dirichlet_per_class(digits, n=20, alpha=0.1, min_size=20)"
    assert clients.name == f"with_validation(match_test({dealt}, rule=disjoint), share=0.2)"


def test_edits_are_configured():
    table = {"name": "digits", "partition": "dirichlet_per_class", "alpha": 0.5, "n": 10, "seed": 3}
    after = {"flip_labels": 4, "with_validation": 0.25, "match_test": "disjoint"}
    tables = {"algorithm": "local_only,lr=0.1", "run": {"rounds": 1}}
    tables |= {"evaluation": {"on": ["own_test", "own_val"]}}

    def built(**more):
        return config.build(tables | {"data": table | more})

    experiment = built(**after)
    wanted = data.dirichlet_per_class(data.digits(), 10, alpha=0.5, seed=3)
    wanted = data.match_test(wanted, rule="disjoint", seed=3)
    wanted = data.flip_labels(data.with_validation(wanted, 0.25, seed=3), 4, seed=3)
    for clients in (experiment.clients, config.build(experiment.tables).clients):
        assert (clients.name, clients.flipped) == (wanted.name, wanted.flipped)
        assert lists(clients.val) == lists(wanted.val)
        np.testing.assert_array_equal(clients.dataset.labels, wanted.dataset.labels)
    assert built(**after | {"flip_labels": [2, 0]}).clients.flipped == (0, 2)
    for more, match in (
        (after | {"with_validation": 0}, r"\[data\] `share` must be above 0"),
        (after | {"flip_labels": 11}, r"\[data\] `nodes` must be"),
        ({"with_valdation": 0.2}, "did you mean 'with_validation'"),
    ):
        with pytest.raises(ValueError, match=match):
            built(**more)


# Wrong labels


def nine(**changes):
    """Return 9 examples of classes 0, 1, 2 in turn, with their places as inputs; 3 are test."""
    labels, inputs = torch.arange(9) % 3, torch.arange(9.0)[:, None]
    parts = np.arange(6), np.zeros(0, int), np.arange(6, 9)
    return replace(data.Dataset(inputs, labels, 3, "toy", *parts), **changes)


def seen(clients, node, key):
    """Return pairs (input, label) of a node."""
    places, dataset = getattr(clients, key)[node].tolist(), clients.dataset
    return [(float(dataset.inputs[place]), int(dataset.labels[place])) for place in places]


def test_train_and_validation_labels_are_flipped_and_test_labels_are_not():
    clients = data.Partition(nine(), [[0, 1], [2, 3]], val=[[4], [5]], test=[[6], [7]])
    wrong = data.flip_labels(clients, [0])
    parts = ("train", "val", "test")
    assert [seen(wrong, 0, key) for key in parts] == [[(0, 2), (1, 1)], [(4, 1)], [(6, 0)]]
    assert [seen(wrong, 1, key) for key in parts] == [[(2, 2), (3, 0)], [(5, 2)], [(7, 1)]]
    assert wrong.flipped == (0,)
    assert wrong.name == "flip_labels(partition, nodes=[0])"
    assert repr(wrong).endswith("classes=2..2 per node, flipped=1)")
    assert wrong.label_counts.tolist() == [[0, 1, 1], [1, 0, 1]]
    assert wrong.dataset.inputs is clients.dataset.inputs
    assert clients.dataset.labels.tolist() == [0, 1, 2] * 3
    assert data.Partition(toy(), [[0], [1]], flipped=[1, 0, 1]).flipped == (0, 1)


def test_permutations_and_names():
    clients, turned = data.iid(data.digits(), 12, seed=0), [*range(1, 10), 0]
    wrong = data.flip_labels(clients, [11, 1, 2, 3, 7, 6], permutation=turned)
    about = f"nodes=[1-3, 6-7, 11], permutation={turned}"
    assert wrong.name == f"flip_labels(iid(digits, n=12), {about})"
    for node, own in enumerate(clients.train):
        right, found = (c.dataset.labels[torch.tensor(own)] for c in (clients, wrong))
        assert torch.equal(found, (right + 1) % 10 if node in wrong.flipped else right)


def test_shared_examples_get_copies_and_what_is_tested_on_keeps_its_label():
    dataset, train = nine(owners=np.arange(9)), [[0, 1], [1, 2], [2, 3], [4, 0]]
    clients = data.Partition(dataset, train, val=[[], [5], [5], []], overlapping=True)
    wrong = data.flip_labels(clients, (1, 2))
    assert seen(wrong, 0, "train") == [(0, 0), (1, 1)]
    assert seen(wrong, 1, "train") == [(1, 1), (2, 0)]
    assert seen(wrong, 2, "train") == [(2, 0), (3, 2)]
    assert seen(wrong, 1, "val") == seen(wrong, 2, "val") == [(5, 0)]
    assert wrong.train[1].tolist() == [9, 2], "node 0 has example 1 too"
    assert wrong.dataset.train.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert wrong.dataset.owners.tolist() == [*range(9), 1]
    assert len(wrong.dataset.inputs) == 10
    dataset = nine(train=np.array([0, 1, 2, 3, 4]), val=np.array([5]))
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


@given(data_=st.data(), clients=partitions(), seed=st.integers(0, 1000))
def test_flips_the_chosen_nodes_only(data_, clients, seed):
    dataset = clients.dataset
    if len(dataset.test):
        rule = data_.draw(st.sampled_from(["per_client", "disjoint"]))
        clients = data.match_test(clients, rule=rule, seed=seed)
    if clients.sizes.min() > 1:
        clients = data.with_validation(clients, 0.3, seed=seed)
    permutation = data_.draw(st.none() | st.permutations(range(dataset.n_classes)))
    count = data_.draw(st.integers(1, clients.n))
    wrong = data.flip_labels(clients, count, permutation=permutation, seed=seed)
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


def test_bins_hold_as_many_and_keep_the_order():
    values = np.random.default_rng(0).permutation(100) / 7
    bins = data.binned(values, 4)
    assert np.bincount(bins).tolist() == [25] * 4
    assert (np.diff(bins[np.argsort(values)]) >= 0).all()
    assert len(set(data.binned([1, 1, 1, 2], 2)[:3])) == 1


# Private histograms

SCALES = {"scale": 1.0, "sd": 1 / np.sqrt(2), "replace_one": 2.0}


def two_shards(n, seed):
    """Return label counts of n nodes with two of 2n shards of 50 examples, of ten classes."""
    shards = np.repeat(np.arange(10), n * 10).reshape(2 * n, -1)
    order = np.random.default_rng(seed).permutation(2 * n).reshape(n, 2)
    return np.stack([np.bincount(shards[pair].ravel(), minlength=10) for pair in order])


def told(counts, epsilon, seed=0, **how):
    return data.private_label_histograms(counts, epsilon=epsilon, seed=seed, **how)


@pytest.mark.parametrize("noise", SCALES)
def test_noise_is_laplace_of_the_scale(noise):
    counts = np.tile([[300, 200], [1500, 500]], (20_000, 1))
    added = told(counts, 0.5, noise=noise) - counts / counts.sum(axis=1, keepdims=True)
    for row, m in ((0, 500), (1, 2000)):
        mine, b = added[row::2].ravel(), SCALES[noise] / (m * 0.5)
        assert stats.kstest(mine, stats.laplace(scale=b).cdf).pvalue > 1e-3
        # Standard errors: sd / sqrt(k) of the mean; of the variance sqrt(20 / k) b^2, by the fourth
        # moment 24 b^4.
        assert abs(mine.mean()) < 4 * np.sqrt(2 / len(mine)) * b  # unbiased
        assert abs(mine.var() - 2 * b**2) < 4 * np.sqrt(20 / len(mine)) * b**2
    assert abs(np.corrcoef(added.T)[0, 1]) < 4 / np.sqrt(len(added))  # entries are independent


def test_the_papers_example():
    """With epsilon = 1 and 500 examples the standard deviation is 0.002, as literally read."""
    counts = np.full((40_000, 1), 500)
    root = np.sqrt(2)
    for noise, expected in (("sd", 0.002), ("scale", 0.002 * root), ("replace_one", 0.004 * root)):
        sd = (told(counts, 1, seed=1, noise=noise) - 1).std()
        assert sd == pytest.approx(expected, rel=4 * np.sqrt(5 / 40_000))
    size = np.abs(told(counts, 1, seed=1) - 1).mean()  # that of Laplace noise is b
    assert size == pytest.approx(0.002, rel=4 / np.sqrt(40_000))


def test_noise_depends_on_the_seed_and_only_its_size_on_epsilon():
    counts = two_shards(20, seed=0)
    shares = counts / counts.sum(axis=1, keepdims=True)
    one, tenth = (told(counts, e, seed=3) - shares for e in (1, 0.1))
    np.testing.assert_allclose(tenth, 10 * one, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, told(counts, 1, seed=4) - shares)
    given = told(SimpleNamespace(label_counts=counts), 1, seed=3)
    np.testing.assert_array_equal(given - shares, one)
    twins = [told(counts, 1, seed=np.random.default_rng(5)) for _ in range(2)]
    np.testing.assert_array_equal(*twins)


def test_clipped_histograms_are_distributions():
    clipped = told(two_shards(200, seed=0), 1e-3, clip=True)
    assert (clipped >= 0).all()
    np.testing.assert_allclose(clipped.sum(axis=1), 1, rtol=1e-12)
    single = np.ones((500, 1), int)
    assert (told(single, 1e-3) < 0).any()
    assert (told(single, 1e-3, clip=True) == 1).all()


@pytest.mark.parametrize("noise", SCALES)
def test_the_least_epsilon_gives_finite_shares(noise):
    counts = np.ones((3, 10_000), int)
    for seed in range(5):
        assert np.isfinite(told(counts[:, :1], 1e-300, seed, noise=noise)).all()
        clipped = told(counts, 1e-300, seed, noise=noise, clip=True)
        np.testing.assert_allclose(clipped.sum(axis=1), 1, rtol=1e-12)
    largest = -np.log(2.0**-53) * 2 / 1e-300  # of `replace_one`, for one example
    assert 1e6 * largest < np.finfo(float).max


def test_much_noise_gives_random_cliques_and_none_gives_those_of_greedy_swap():
    known, random, lost, negligible = [], [], [], []

    def cliques(shares, seed):
        return topologies.greedy_swap(label_shares=shares, clique_size=10, seed=seed)

    for seed in range(15):
        counts = two_shards(100, seed)
        exact = topologies.greedy_swap(counts, 10, seed=seed)
        assert cliques(told(counts, 1e12, seed), seed).groups == exact.groups
        for epsilon, skews in ((1e-6, lost), (1, negligible)):
            graph = cliques(told(counts * 5, epsilon, seed), seed)
            skews.append(clique_skew(graph, counts).mean())
        known.append(clique_skew(exact, counts).mean())
        random.append(clique_skew(topologies.random_cliques(100, 10, seed=seed), counts).mean())
    lost, random, best = np.array(lost), np.array(random), np.mean(known)
    assert abs((lost - random).mean()) < 3 * (lost - random).std(ddof=1) / np.sqrt(15)
    assert np.mean(negligible) < best + 0.1 * (random.mean() - best)  # the paper: negligible


def test_distances_between_distributions_need_clipping():
    counts = two_shards(40, seed=0)
    with pytest.raises(ValueError, match="clip=True"):
        topologies.greedy_swap(label_shares=told(counts, 1), distance="hellinger", seed=0)
    shares = told(counts, 1, clip=True)
    graph = topologies.greedy_swap(label_shares=shares, distance="hellinger", seed=0)
    before = topologies.random_cliques(40, seed=0)
    assert clique_skew(graph, counts).mean() < clique_skew(before, counts).mean()
