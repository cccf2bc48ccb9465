"""Test examples matched to what nodes train on: hand-computed sizes, and what is refused."""

import numpy as np
import pytest
import torch

import topofl
from topofl import algorithms, data, models


def dataset(train, test):
    """Return a dataset with `train[c]` training, then `test[c]` test examples of each class c."""
    labels = np.concatenate(
        [np.repeat(np.arange(len(train)), train), np.repeat(np.arange(len(test)), test)]
    )
    size = sum(train)
    inputs = torch.arange(len(labels), dtype=torch.float32)[:, None]
    parts = np.arange(size), np.zeros(0, int), np.arange(size, len(labels))
    return data.Dataset(inputs, torch.from_numpy(labels), len(train), "toy", *parts)


def counts(clients):
    labels = clients.dataset.labels.numpy()
    return [np.bincount(labels[own], minlength=clients.n_classes).tolist() for own in clients.test]


def clients_with(label_counts, test):
    """Return nodes with these numbers of training examples of each class."""
    label_counts = np.array(label_counts)
    whole = dataset(label_counts.sum(axis=0), test)
    stacks = np.split(whole.train, np.cumsum(label_counts.sum(axis=0))[:-1])
    pieces = [
        np.split(stack, np.cumsum(own)[:-1])
        for stack, own in zip(stacks, label_counts.T, strict=True)
    ]
    clients = data.Partition(
        whole, [np.concatenate(parts) for parts in zip(*pieces, strict=True)], name="toy"
    )
    np.testing.assert_array_equal(clients.label_counts, label_counts)
    return clients


def test_per_client_rounds_up_class_by_class():
    clients = clients_with([[9, 1, 0], [1, 1, 1]], test=[10, 10, 1])
    assert counts(data.match_test(clients, rule="per_client")) == [[10, 2, 0], [4, 4, 1]]


def test_per_client_rounds_up_exactly():
    clients = clients_with([[1, 48], [48, 1]], test=[49, 49])
    assert counts(data.match_test(clients, rule="per_client")) == [[1, 48], [48, 1]], (
        "1 / 49 * 49 is 1 and not more"
    )


def test_per_client_draws_overlap_and_are_uniform():
    clients = clients_with([[5], [5]], test=[4])
    draws = [data.match_test(clients, rule="per_client", seed=seed).test for seed in range(300)]
    assert {len(np.intersect1d(*pair)) for pair in draws} == {0, 1, 2}
    often = np.bincount(np.concatenate([own for pair in draws for own in pair]) - 10)
    assert abs(often / 600 - 0.5).max() < 0.1


def test_disjoint_follows_the_shares_of_the_training_examples():
    clients = clients_with([[30, 0], [10, 5], [0, 5]], test=[8, 6])
    assert counts(data.match_test(clients, rule="disjoint")) == [[6, 0], [2, 3], [0, 3]]


@pytest.mark.parametrize(
    ("held", "size", "expected"),
    [
        ([1, 1, 1], 10, [4, 3, 3]),  # 3.3 each: one is left over
        ([1, 1, 1, 1], 6, [2, 2, 2, 0]),  # 1.5 each become 2: there are not enough
        ([1, 1], 5, [3, 2]),  # 2.5 each become 2, as halves are rounded to even
        ([1, 9], 4, [0, 4]),
        ([1, 1, 1, 1, 1], 2, [1, 1, 0, 0, 0]),  # 0.4 each: all are left over
        (
            [3, 1, 1, 1, 1, 1],
            3,
            [3, 0, 0, 0, 0, 0],
        ),  # 1.1 and 0.4: left over for the one that has some
        ([2, 0, 2], 0, [0, 0, 0]),
    ],
)
def test_disjoint_rounds_truncates_and_deals_the_rest(held, size, expected):
    other = [[count, 1] for count in held]
    clients = clients_with(other, test=[size, 1])
    assert [own[0] for own in counts(data.match_test(clients, rule="disjoint"))] == expected


def test_disjoint_shares_of_overlapping_nodes_are_of_what_they_hold_together():
    whole = dataset([4, 1], [6, 0])
    clients = data.Partition(whole, [[0, 1], [1, 2], [0, 3]], overlapping=True)
    assert counts(data.match_test(clients, rule="disjoint")) == [[2, 0]] * 3


def test_classes_without_test_examples_are_passed_over():
    clients = clients_with([[4, 0], [0, 4]], test=[2, 0])
    for rule in ("per_client", "disjoint"):
        assert counts(data.match_test(clients, rule=rule))[1] == [0, 0]


def test_name_seed_and_generator():
    clients = data.dirichlet_per_client(data.digits(), 20, alpha=0.3, seed=0, val_fraction=0.2)
    first = data.match_test(clients, rule="per_client")
    assert first.name == f"match_test({clients.name}, rule=per_client)"
    assert [own.tolist() for own in first.val] == [own.tolist() for own in clients.val]
    for rule in ("per_client", "disjoint"):
        zero, again, one = (
            [own.tolist() for own in data.match_test(clients, rule=rule, seed=seed).test]
            for seed in (0, 0, 1)
        )
        assert zero == again != one
        drawn = [
            data.match_test(clients, rule=rule, seed=np.random.default_rng(3)).test
            for _ in range(2)
        ]
        assert [own.tolist() for own in drawn[0]] == [own.tolist() for own in drawn[1]]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            {"rule": "disjoined"},
            ValueError,
            "`rule` must be one of 'per_client', 'disjoint'.*did you mean 'disjoint'",
        ),
        ({"clients": np.eye(3)}, TypeError, "`clients` must be a data.Partition, got ndarray"),
        (
            {"clients": clients_with([[1, 1]], [0, 0])},
            ValueError,
            "`clients` must be of a dataset with test examples",
        ),
        (
            {"clients": data.iid(data.digits(), 5, seed=0, test_fraction=0.1)},
            ValueError,
            "`clients` must hold out no",
        ),
        (
            {"clients": data.flip_labels(data.iid(data.digits(), 5, seed=0), [1])},
            ValueError,
            "must have true",
        ),
        ({"seed": -1}, ValueError, "`seed`"),
    ],
)
def test_refuses(change, error, match):
    with pytest.raises(error, match=match):
        data.match_test(
            **({"clients": clients_with([[1, 1]], [2, 2]), "rule": "disjoint", "seed": 0} | change)
        )


@pytest.mark.parametrize("rule", ["per_client", "disjoint"])
def test_own_tests_are_what_a_run_is_evaluated_on(rule):
    clients = data.match_test(
        data.pathological(data.digits(), 6, classes_per_node=2, seed=0), rule=rule
    )
    history = topofl.run(
        algorithms.local_only(lr=0.5, batch_size=16, local_steps=20),
        model=models.logistic_regression(64),
        clients=clients,
        topology=None,
        rounds=1,
        seed=0,
        evaluation="own_test",
    )
    assert history["accuracy"][-1].min() > 0.7, "two classes are easy when no other is asked for"
