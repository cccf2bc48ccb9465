"""Partitions from the examples of each client."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import topofl
from topofl import algorithms, data, models, topologies

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(size, 3)) for size in (4, 6, 5)]
Y = [np.arange(size) % classes for size, classes in ((4, 2), (6, 3), (5, 2))]
PAIRS = list(zip(X, Y, strict=True))


def held(clients, part, node):
    """Return inputs and labels that a node holds."""
    places = torch.tensor(getattr(clients, part)[node])
    return clients.dataset.inputs[places].numpy(), clients.dataset.labels[places].numpy()


def test_node_i_holds_the_examples_of_client_i_in_order():
    clients = data.from_clients(PAIRS, name="mine")
    assert (clients.n, clients.n_classes, clients.name) == (3, 3, "mine")
    assert clients.dataset.name == "mine"
    for node, (x, y) in enumerate(PAIRS):
        inputs, labels = held(clients, "train", node)
        np.testing.assert_array_equal(inputs, x.astype(np.float32))
        np.testing.assert_array_equal(labels, y)
    assert clients.dataset.train.tolist() == list(range(15))
    assert not len(clients.dataset.test)
    assert not any(map(len, clients.test))


def test_clients_are_arrays_tensors_or_torch_datasets():
    tensors = torch.from_numpy(X[1]), torch.from_numpy(Y[1])
    mixed = [PAIRS[0], tensors, TensorDataset(torch.from_numpy(X[2]), torch.from_numpy(Y[2]))]
    ours, theirs = data.from_clients(mixed).dataset, data.from_clients(PAIRS).dataset
    assert torch.equal(ours.inputs, theirs.inputs)
    assert torch.equal(ours.labels, theirs.labels)


def test_own_and_shared_tests_are_held_apart():
    own, shared = [(X[1], Y[1]), None, (X[0][:2], Y[0][:2])], (X[2], Y[2])
    both = data.from_clients(PAIRS, own_test=own, test=shared)
    assert [len(places) for places in both.test] == [6, 0, 2]
    for node in (0, 2):
        inputs, labels = held(both, "test", node)
        np.testing.assert_array_equal(inputs, own[node][0].astype(np.float32))
        np.testing.assert_array_equal(labels, own[node][1])
    np.testing.assert_array_equal(
        both.dataset.inputs[torch.tensor(both.dataset.test)], X[2].astype(np.float32)
    )
    only_own = data.from_clients(PAIRS, own_test=own)
    assert only_own.dataset.test.tolist() == np.concatenate(only_own.test).tolist()
    assert len(only_own.dataset.test) == 8


def test_classes_are_those_of_all_clients():
    words = [(X[0][:2], ["dog", "cat"]), (X[1][:2], ["emu", "dog"])]
    clients = data.from_clients(words, test=(X[2][:1], ["emu"]))
    assert clients.class_names == ("cat", "dog", "emu")
    assert clients.dataset.labels.tolist() == [1, 0, 2, 1, 2]
    assert data.from_clients(words, class_names=["emu", "dog", "cat"]).dataset.labels.tolist() == [
        *(1, 2, 0, 1)
    ]
    assert data.from_clients(PAIRS, n_classes=7).n_classes == 7


def test_runs_train_on_them():
    clients = data.from_clients(PAIRS, own_test=PAIRS[::-1])
    history = topofl.run(
        algorithms.dsgd(lr=0.1),
        model=models.logistic_regression(3, 3),
        clients=clients,
        topology=topologies.ring(3),
        rounds=2,
        seed=0,
        evaluation="own_test",
        progress=False,
    )
    assert np.isfinite(history.last("accuracy")).all()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"clients": []}, ValueError, "`clients` must have at least one client, got none"),
        ({"clients": 3}, TypeError, r"`clients` must be a sequence of pairs \(x, y\), got 3"),
        ({"clients": [X[0]]}, TypeError, r"`clients\[0\]` must give pairs"),
        ({"clients": [(X[0],)]}, TypeError, r"`clients\[0\]` must be a pair .* tuple of 1 items"),
        (
            {"clients": [*PAIRS, (X[0][:0], [])]},
            ValueError,
            r"`clients\[3\]` must have at least one example, got none; leave it out",
        ),
        (
            {"own_test": [None, (X[0][:0], []), None]},
            ValueError,
            r"`own_test\[1\]` must have at least one example, got none; pass None",
        ),
        (
            {"clients": [*PAIRS, (X[0][:, :2], Y[0])]},
            ValueError,
            r"`clients\[3\]` must have inputs of shape \(3,\), as clients\[0\] has, got \(2,\)",
        ),
        (
            {"test": (X[0].astype("u1"), Y[0])},
            TypeError,
            r"`test` must have inputs of torch.float32, as clients\[0\] has, got torch.uint8",
        ),
        (
            {"clients": [*PAIRS, (X[0], list("abab"))]},
            TypeError,
            r"`clients\[3\]` must have class numbers as labels, as clients\[0\] has, got names",
        ),
        ({"clients": [(X[0], Y[1])]}, ValueError, r"`clients\[0\]\[1\]` must have one label"),
        ({"clients": [(X[0], Y[0] / 2)]}, TypeError, r"`clients\[0\]\[1\]` must be integers"),
        ({"n_classes": 2}, ValueError, r"`clients\[1\]` must have labels in 0..1, got 2"),
        (
            {"clients": [(X[0], list("abab"))], "n_classes": 3},
            ValueError,
            "`n_classes` must be the number of names, 2, got 3",
        ),
        (
            {"clients": [(X[0], list("abab"))], "test": (X[0][:1], ["c"])},
            ValueError,
            "`clients` must have training examples of every class, got class 'c'",
        ),
        (
            {"clients": PAIRS[:1], "test": PAIRS[1]},
            ValueError,
            "`clients` must have training examples of every class, got class '2'",
        ),
        (
            {"test": 0.2},
            TypeError,
            r"`test` must be a pair \(x, y\) or a map-style torch dataset, got 0.2; .* own_test=",
        ),
        (
            {"clients": [*PAIRS, (X[0] * np.nan, Y[0])]},
            ValueError,
            r"`clients\[3\]\[0\]` must be finite",
        ),
        (
            {"own_test": PAIRS[:2]},
            ValueError,
            "`own_test` must have one .* of the 3 clients, got 2",
        ),
    ],
)
def test_invalid_clients_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        data.from_clients(**({"clients": PAIRS} | call))


def test_run_names_the_function_that_makes_a_partition_of_pairs():
    with pytest.raises(
        TypeError, match=r"`clients` must be a Partition .* got list; .*from_clients\("
    ):
        topofl.run(
            algorithms.dsgd(lr=0.1),
            model=models.logistic_regression(3, 2),
            clients=[PAIRS[0]] * 10,
            topology=topologies.ring(10),
            rounds=1,
            seed=0,
        )
