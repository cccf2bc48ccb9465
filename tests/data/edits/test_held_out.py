"""Validation examples out of what nodes train on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topofl
from tests.data.edits.test_matched import clients_with
from tests.properties.partitions import ARGUMENTS, NAMES, datasets, lists
from topofl import algorithms, config, data, models


def counts(clients, key):
    labels = clients.dataset.labels.numpy()
    return [
        np.bincount(labels[own], minlength=clients.n_classes).tolist()
        for own in getattr(clients, key)
    ]


def test_is_stratified_where_every_class_has_two():
    clients = data.with_validation(
        clients_with([[10, 20, 0], [3, 2, 5], [0, 0, 4]], test=[1, 1, 1])
    )
    assert counts(clients, "val") == [[2, 4, 0], [1, 0, 1], [0, 0, 1]]
    assert counts(clients, "train") == [[8, 16, 0], [2, 2, 4], [0, 0, 3]]


def test_is_at_random_where_a_class_has_one():
    clients = clients_with([[1, 9]], test=[1, 1])
    held = [counts(data.with_validation(clients, 0.5, seed=seed), "val")[0] for seed in range(200)]
    assert {tuple(own) for own in held} == {(0, 5), (1, 4)}
    assert abs(np.mean(held, axis=0)[0] - 0.5) < 0.12


def test_examples_are_drawn_uniformly_within_a_class():
    clients = clients_with([[5, 5]], test=[1, 1])
    often = np.bincount(
        np.concatenate(
            [data.with_validation(clients, 0.4, seed=seed).val[0] for seed in range(300)]
        )
    )
    assert often.sum() == 1200
    assert abs(often / 300 - 0.4).max() < 0.1


@pytest.mark.parametrize(
    ("share", "size", "val"),
    [(0.2, 2, 1), (0.2, 12, 2), (0.2, 13, 3), (0.01, 9, 1), (0.99, 9, 8), (0.5, 3, 2)],
)
def test_sizes(share, size, val):
    clients = data.with_validation(clients_with([[size]], test=[1]), share)
    assert (len(clients.val[0]), clients.sizes[0]) == (val, size - val)


def test_one_example_of_each_class_stays():
    clients = data.with_validation(clients_with([[2, 2, 6]], test=[1, 1, 1]), 0.9)
    assert counts(clients, "train") == [[1, 1, 1]]
    assert data.with_validation(clients_with([[2, 5]], test=[1, 1]), 0.6).label_counts.min() >= 1


@given(data_=st.data(), share=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
@pytest.mark.parametrize("matched", [False, True])
def test_divides_each_nodes_examples_and_nothing_else(matched, data_, share, seed):
    dataset = data_.draw(datasets().filter(lambda dataset: len(dataset.test)))
    name = data_.draw(st.sampled_from(NAMES))
    clients = getattr(data, name)(dataset, **ARGUMENTS[name](data_.draw, dataset), seed=0)
    clients = data.match_test(clients, rule="disjoint") if matched else clients
    if clients.sizes.min() < 2:
        with pytest.raises(ValueError, match=f"per node, node {clients.sizes.argmin()} has one"):
            data.with_validation(clients, share, seed=seed)
        return
    held = data.with_validation(clients, share, seed=seed)
    assert held.name == f"with_validation({clients.name}, share={share:g})"
    assert held.overlapping == clients.overlapping
    assert lists(held.test) == lists(clients.test)
    labels = dataset.labels.numpy()
    for before, train, val, test in zip(
        clients.train, held.train, held.val, held.test, strict=True
    ):
        assert sorted([*train.tolist(), *val.tolist()]) == sorted(before.tolist())
        assert len(train) > 0
        assert len(val) > 0
        had = np.bincount(labels[before], minlength=dataset.n_classes)
        assert set(labels[test].tolist()) <= set(np.flatnonzero(had).tolist())
        if had[had > 0].min() > 1:
            assert set(labels[train].tolist()) == set(labels[before].tolist())
            wanted = had * len(val) / len(before)
            assert (
                share > 0.5
                or abs(np.bincount(labels[val], minlength=dataset.n_classes) - wanted).max() < 1
            )
        if had[had > 0].min() == 1 or share <= 0.5:
            assert len(val) == min(max(1, round(share * len(before))), len(before) - 1)
    assert lists(data.with_validation(clients, share, seed=seed).val) == lists(held.val)


def test_the_data_of_dpfl():
    """As in its experiments, on digits: Dir(0.1), matched tests, a fifth for validation."""
    clients = data.dirichlet_per_class(data.digits(), 20, alpha=0.1, min_size=20, seed=0)
    clients = data.with_validation(data.match_test(clients, rule="disjoint", seed=0), seed=0)
    sizes = clients.sizes + [len(own) for own in clients.val]
    assert sizes.min() >= 20
    assert sizes.sum() == 1497
    assert sum(map(len, clients.test)) == 300
    np.testing.assert_array_equal(
        [len(own) for own in clients.val], np.rint(0.2 * sizes).astype(int)
    )
    dealt = "dirichlet_per_class(digits, n=20, alpha=0.1, min_size=20)"
    assert clients.name == f"with_validation(match_test({dealt}, rule=disjoint), share=0.2)"


def test_configured():
    table = {"name": "digits", "partition": "dirichlet_per_class", "alpha": 0.5, "n": 10, "seed": 3}
    after = {"flip_labels": 4, "with_validation": 0.25, "match_test": "disjoint"}
    tables = {
        "algorithm": "local_only,lr=0.1",
        "run": {"rounds": 1},
        "evaluation": {"on": ["own_test", "own_val"]},
    }
    experiment = config.build(tables | {"data": table | after})
    wanted = data.dirichlet_per_class(data.digits(), 10, alpha=0.5, seed=3)
    wanted = data.match_test(wanted, rule="disjoint", seed=3)
    wanted = data.flip_labels(data.with_validation(wanted, 0.25, seed=3), 4, seed=3)
    for clients in (experiment.clients, config.build(experiment.tables).clients):
        assert clients.name == wanted.name
        assert lists(clients.val) == lists(wanted.val)
        assert clients.flipped == wanted.flipped
        np.testing.assert_array_equal(clients.dataset.labels, wanted.dataset.labels)
    listed = config.build(tables | {"data": table | after | {"flip_labels": [2, 0]}})
    assert listed.clients.flipped == (0, 2)
    for key, value, match in (
        ("with_validation", 0, "`share` must be above 0"),
        ("flip_labels", 11, "`nodes` must be"),
    ):
        with pytest.raises(ValueError, match=rf"\[data\] {match}"):
            config.build(tables | {"data": table | after | {key: value}})
    with pytest.raises(ValueError, match="did you mean 'with_validation'"):
        config.build(tables | {"data": table | {"with_valdation": 0.2}})


def test_validation_is_what_a_run_is_evaluated_on():
    clients = data.with_validation(data.pathological(data.digits(), 6, classes_per_node=2, seed=0))
    history = topofl.run(
        algorithms.local_only(lr=0.5, batch_size=16, local_steps=20),
        model=models.logistic_regression(64),
        clients=clients,
        topology=None,
        rounds=1,
        seed=0,
        evaluation="own_val",
    )
    assert history["accuracy"][-1].min() > 0.7


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"clients": np.eye(3)}, TypeError, "`clients` must be a data.Partition, got ndarray"),
        ({"share": 0}, ValueError, "`share` must be above 0, got 0; use the partition unchanged"),
        ({"share": 1}, ValueError, "`share`"),
        ({"share": -0.1}, ValueError, "`share`"),
        ({"share": "a fifth"}, TypeError, "`share`"),
        (
            {"clients": clients_with([[2], [1]], [1])},
            ValueError,
            "two training examples per node, node 1 has one; use",
        ),
        (
            {"clients": data.iid(data.digits(), 5, seed=0, val_fraction=0.1)},
            ValueError,
            "`clients` must hold out no validation examples, .*val_fraction=0",
        ),
        ({"seed": -1}, ValueError, "`seed`"),
    ],
)
def test_refuses(change, error, match):
    with pytest.raises(error, match=match):
        data.with_validation(**({"clients": clients_with([[3, 3]], [1, 1]), "seed": 0} | change))
