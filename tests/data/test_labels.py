"""Labels of any kind become classes, owners of any kind become numbers, and both keep names."""

import datetime
import enum
import importlib
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import topofl
from topofl import algorithms, data, topologies
from topofl.report.rounds import node_order

X = np.arange(16.0).reshape(8, 2)


class Pet(enum.Enum):
    DOG = 1
    CAT = 2


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        (["dog", "cat"] * 4, ("cat", "dog"), [1, 0] * 4),
        (np.array(["dog", "cat"] * 4), ("cat", "dog"), [1, 0] * 4),
        (np.array(["dog", "cat"] * 4, object), ("cat", "dog"), [1, 0] * 4),
        (pd.Series(["dog", "cat"] * 4), ("cat", "dog"), [1, 0] * 4),
        (pd.Series(["dog", "cat"] * 4, dtype="category"), ("cat", "dog"), [1, 0] * 4),
        ([np.str_("dog"), "cat"] * 4, ("cat", "dog"), [1, 0] * 4),
        ([True, False] * 4, ("False", "True"), [1, 0] * 4),
        (np.array([True, False] * 4), ("False", "True"), [1, 0] * 4),
        (torch.tensor([True, False] * 4), ("False", "True"), [1, 0] * 4),
        ([("b", 1), ("a", 2)] * 4, ("('a', 2)", "('b', 1)"), [1, 0] * 4),
        ([Pet.DOG, Pet.CAT] * 4, ("Pet.CAT", "Pet.DOG"), [1, 0] * 4),
        ([datetime.date(2024, 2, 1), datetime.date(2023, 3, 1)] * 4, None, [1, 0] * 4),
        (np.array(["2024", "2023"] * 4, "M8[Y]"), ("2023", "2024"), [1, 0] * 4),
        (["10", "9"] * 4, ("10", "9"), [0, 1] * 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_are_numbered_in_sorted_order(labels, names, classes):
    dataset = data.from_arrays(X, labels)
    assert dataset.labels.tolist() == classes
    assert dataset.n_classes == 2
    assert dataset.class_names == (names or ("2023-03-01", "2024-02-01"))


@pytest.mark.parametrize(
    "labels",
    [[7, 3] * 4, np.array([7, 3] * 4, np.int8), torch.tensor([7, 3] * 4), [np.int64(7), 3] * 4],
    ids=["list", "int8", "tensor", "mixed integers"],
)
def test_integers_stay_as_they_are(labels):
    dataset = data.from_arrays(X, labels)
    assert dataset.labels.tolist() == [7, 3] * 4
    assert dataset.n_classes == 8
    assert dataset.class_names is None
    assert dataset.name_of(7) == "7"


def test_class_names_set_the_order_of_texts_and_name_integers():
    texts = data.from_arrays(X, ["dog", "cat"] * 4, class_names=["dog", "cat", "owl"])
    assert (texts.labels.tolist(), texts.n_classes) == ([0, 1] * 4, 3)
    numbers = data.from_arrays(X, [0, 1] * 4, class_names=["dog", "cat", "owl"])
    assert [numbers.name_of(k) for k in range(numbers.n_classes)] == ["dog", "cat", "owl"]
    targets = data.from_arrays(X, targets=X, class_names=["one"])
    assert targets.n_classes == 1


def test_held_out_pairs_have_the_same_classes():
    dataset = data.from_arrays(X, ["dog", "cat"] * 4, test=(X[:1], ["dog"]))
    assert dataset.labels.tolist() == [1, 0] * 4 + [1]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"y": ["cat", 1] * 4}, TypeError, r"`y` must be of one type, got str \('cat'\) in row 0"),
        ({"y": ["a", 1.5] * 4}, TypeError, r"`y` must be of one type, .* list\(map\(str"),
        ({"y": [True, 1] * 4}, TypeError, "`y` must be of one type, got bool"),
        ({"y": ["cat"] * 6 + [None, "cat"]}, ValueError, "`y` must have a value .* None in row 6"),
        ({"y": ["cat"] * 6 + [float("nan")] * 2}, ValueError, "got nan in rows 6, 7; leave"),
        ({"y": [pd.NA, "cat"] * 4}, ValueError, "in rows 0, 2, 4, 6; leave"),
        ({"y": np.array(["NaT", "2020"] * 4, "M8[D]")}, ValueError, "rows 0, 2, 4, 6; leave"),
        ({"y": [0.0, 1.0] * 4}, TypeError, r"`y` must be integers, got dtype float64; if they"),
        ({"y": [["cat"]] * 8}, TypeError, r"`y` must be integers or hashable labels such as text"),
        ({"y": ["cat", "cat "] * 4}, ValueError, "in more than spaces .* got 'cat' and 'cat '"),
        ({"y": ["cat"] * 7}, ValueError, "`y` must have one label for each of the 8 inputs, got 7"),
        ({"y": []}, ValueError, "`y` must be a non-empty vector"),
        ({"y": [["a", "b"]] * 8}, TypeError, "hashable"),
        ({"y": np.array([["a", "b"]] * 8)}, ValueError, "`y` must be a non-empty vector"),
        (
            {"class_names": ["cat", "doge"]},
            ValueError,
            r"`y` must be one of the 2 classes .* got 'dog' at index 0 \(4 .* mean 'doge'\?",
        ),
        ({"class_names": ["cat", "cat"]}, ValueError, "`class_names` must differ, got 'cat' 2"),
        ({"class_names": "cat"}, TypeError, "`class_names` must be a sequence of texts"),
        ({"class_names": ["cat", 3]}, TypeError, r"`class_names` must be texts, got 3 \(int\)"),
        ({"class_names": [None, "dog"]}, TypeError, r"`class_names` must be texts, got None"),
        ({"owners": []}, ValueError, "`owners` must be a vector of owners"),
        ({"class_names": ["c"], "n_classes": 2}, ValueError, "must have 2 names, got 1"),
        ({"test": (X, ["owl"] * 8)}, ValueError, r"`test\[1\]` must be one of the 2 classes"),
        ({"test": (X, [0, 1] * 4)}, TypeError, "`test` must have labels like `y`, either integers"),
        (
            {"y": ["a"] * 7 + ["b"], "test": np.arange(8) == 7},
            ValueError,
            r"`y` must have training examples .* class 'b' in held-out examples only \(example 7\)",
        ),
        ({"test": np.arange(8)}, TypeError, "`test` must be a fraction, an array of booleans or"),
        ({"test": np.ones(7, bool)}, ValueError, "one boolean for each of the 8 inputs, got shape"),
        ({"test": np.ones(8, bool)}, ValueError, "`test` must leave an example for training"),
        ({"owners": ["a"] * 7}, ValueError, "`owners` must have one owner for each of the 8"),
        ({"owners": ["a", 1] * 4}, TypeError, "`owners` must be of one type"),
        ({"owners": ["a", None] * 4}, ValueError, "`owners` must have a value .* rows 1, 3, 5, 7"),
        ({"owners": X}, ValueError, r"`owners` must be a vector of owners, got shape \(8, 2\)"),
        (
            {"owners": [0] * 8, "test": (X, ["cat"] * 8)},
            ValueError,
            "`test` must be a fraction or an array of booleans if there are `owners`",
        ),
    ],
)
def test_refuses(arguments, error, match):
    with pytest.raises(error, match=match):
        data.from_arrays(X, **{"y": ["dog", "cat"] * 4, **arguments})


def test_masks_hold_out_rows_and_fractions_are_of_the_others():
    mask = np.arange(8) >= 6
    dataset = data.from_arrays(X, ["a", "b"] * 4, test=mask, val=1 / 3)
    assert dataset.test.tolist() == [6, 7]
    assert len(dataset.val) == 2
    assert sorted([*dataset.train, *dataset.val]) == list(range(6))
    tensor = data.from_arrays(X, ["a", "b"] * 4, test=torch.tensor(mask))
    assert tensor.test.tolist() == [6, 7]


@pytest.mark.parametrize(
    ("owners", "names", "numbers"),
    [
        (["n", "s"] * 4, ("n", "s"), [0, 1] * 4),
        ([10, 9] * 4, ("9", "10"), [1, 0] * 4),
        (np.array([1e6, 2.0] * 4), ("2.0", "1000000.0"), [1, 0] * 4),
        (pd.Series(["s", "n"] * 4), ("n", "s"), [1, 0] * 4),
        (torch.tensor([5, 7] * 4), ("5", "7"), [0, 1] * 4),
    ],
    ids=["text", "integers", "floats", "series", "tensor"],
)
def test_owners_are_numbered_in_sorted_order(owners, names, numbers):
    dataset = data.from_arrays(X, [0, 1] * 4, owners=owners)
    assert dataset.owner_names == names
    assert dataset.owners.tolist() == numbers
    clients = data.natural(dataset, min_size=1, seed=0)
    assert [own.tolist() for own in clients.train] == [
        np.flatnonzero(np.array(numbers) == node).tolist() for node in range(2)
    ]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"class_names": ("one",)}, "`class_names` must have 2 names, got 1"),
        ({"owners": np.arange(8), "owner_names": ("a", "b")}, "`owner_names` must have 8 names"),
    ],
)
def test_datasets_check_their_names(fields, match):
    with pytest.raises(ValueError, match=match):
        replace(data.from_arrays(X, [0, 1] * 4), **fields)


class Named(TensorDataset):
    classes = ["cat", "dog"]  # noqa: RUF012 - as in torchvision


def test_readers_check_a_dataset_once_and_keep_its_names(monkeypatch):
    checked, check = [], data.Dataset.__post_init__
    monkeypatch.setattr(
        data.Dataset, "__post_init__", lambda self: checked.append(1) or check(self)
    )
    frame = pd.DataFrame({"a": np.arange(8.0), "kind": ["dog", "cat"] * 4})
    read = [
        data.from_dataframe(frame, label="kind"),
        data.from_dataframe(
            frame.assign(kind=[0, 1] * 4), label="kind", class_names=["cat", "dog"]
        ),
        data.from_torch(Named(torch.zeros(8, 2), torch.arange(8) % 2)),
    ]
    assert [dataset.class_names for dataset in read] == [("cat", "dog")] * 3
    assert len(checked) == 3


def test_a_torch_dataset_names_classes_that_only_held_out_examples_have():
    held = Named(torch.zeros(2, 2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="training examples of every class, got class '1'"):
        data.from_torch(TensorDataset(torch.zeros(4, 2), torch.zeros(4).long()), test=held)
    first = Named(torch.zeros(4, 2), torch.zeros(4).long())
    assert data.from_torch(first, test=held).class_names == ("cat", "dog")


def test_torch_datasets_have_texts_numpy_integers_or_the_names_of_torchvision():
    class Items(list):
        pass

    texts = Items((torch.zeros(2), label) for label in ["dog", "cat"] * 4)
    assert data.from_torch(texts).class_names == ("cat", "dog")
    numbers = Items((torch.zeros(2), np.int16(k % 2)) for k in range(8))
    assert data.from_torch(numbers).labels.tolist() == [0, 1] * 4
    zero_d = Items((torch.zeros(2), np.array(k % 2)) for k in range(8))
    assert data.from_torch(zero_d).labels.tolist() == [0, 1] * 4
    named = Named(torch.zeros(8, 2), torch.arange(8) % 2)
    assert data.from_torch(named, owners=["n"] * 8).class_names == ("cat", "dog")
    more = Named(torch.zeros(8, 2), torch.arange(8) % 3)
    assert data.from_torch(more).class_names is None
    with pytest.raises(TypeError, match=r"`y` must be of one type, got str .* in row 0 and int"):
        data.from_torch(Items([(torch.zeros(2), "dog"), (torch.zeros(2), 1)]))


def test_plots_and_messages_name_the_classes():
    names = ["$dog", "_cat", "owl"]
    clients = data.shards(data.from_arrays(np.eye(24), names * 8), 4, seed=0)
    assert clients.class_names == ("$dog", "_cat", "owl")
    ticks = [text.get_text() for text in clients.plot().axes[0].get_yticklabels()]
    assert ticks == ["$dog", "_cat", "owl"]
    legend = topologies.ring(4).plot(label_counts=clients).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["$dog", "_cat", "owl"]
    numbers = topologies.ring(4).plot(label_counts=clients.label_counts).axes[0].get_legend()
    assert [text.get_text() for text in numbers.get_texts()] == ["0", "1", "2"]
    strips = node_order(4, (), clients, (), "ring").strips
    most = clients.label_counts.argmax(axis=1)
    assert [name for _, name in strips[0]["legend"]] == [
        clients.class_names[k] for k in sorted({*most})
    ]
    rare = data.from_arrays(np.eye(9), ["a"] * 8 + ["b"])
    with pytest.raises(ValueError, match="where class b has 1 training"):
        data.pathological(rare, 4, classes_per_node=2, seed=0)


LETTERS = ["a", "a", "b", "b", "c", "c", "c", "c"]


def test_owners_become_nodes_in_the_given_order():
    dataset = data.from_arrays(X, [0, 1] * 4, owners=LETTERS)
    clients = data.natural(dataset, owners=["c", "a"], min_size=2, seed=0)
    assert [own.tolist() for own in clients.train] == [[4, 5, 6, 7], [0, 1]]
    assert clients.name == "natural(arrays, n=2, owners given, min_size=2)"


def test_nodes_are_the_owners_of_a_graph_in_its_order():
    dataset = data.from_arrays(X, [0, 1] * 4, owners=LETTERS)
    graph = topofl.as_topology(nx.Graph([("c", "a"), ("a", "b")]))
    clients = data.natural(dataset, owners=graph.nodes, min_size=2, seed=0)
    assert [own.tolist() for own in clients.train] == [[4, 5, 6, 7], [0, 1], [2, 3]]


def test_nodes_of_a_numbered_graph_are_the_owners_in_sorted_order():
    graph = topofl.as_topology(topologies.path(2).to_networkx(), name="p")
    assert graph.nodes == ()
    dataset = data.from_arrays(X, [0, 1] * 4, owners=[1, 1, 0, 0] * 2)
    with pytest.raises(ValueError, match="got none; leave `owners` out; labels 0"):
        data.natural(dataset, owners=graph.nodes, min_size=1, seed=0)
    clients = data.natural(dataset, min_size=1, seed=0)
    assert [own.tolist() for own in clients.train] == [[2, 3, 6, 7], [0, 1, 4, 5]]


def test_names_alike_are_sought_for_an_unknown_owner_only(monkeypatch):
    dataset = data.from_arrays(X, [0, 1] * 4, owners=[f"id{k}" for k in range(8)])
    sought = []
    module = importlib.import_module("topofl.data.partitioners.natural")
    monkeypatch.setattr(module, "did_you_mean", lambda word, _: sought.append(word))
    data.natural(dataset, owners=dataset.owner_names, min_size=1, seed=0)
    assert sought == []
    with pytest.raises(ValueError, match="got 'id8'; they are"):
        data.natural(dataset, owners=["id0", "id8"], min_size=1, seed=0)
    assert sought == ["id8"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            {"owners": ["c", "d"]},
            r"owners of examples in arrays, got 'd'; they are \['a', 'b', 'c'",
        ),
        ({"owners": ["c", "c"]}, "`owners` must differ, got 'c' twice"),
        ({"owners": ["c", "a"], "min_size": 3}, "min_size=3 training examples each, 'a' has 2"),
        ({"owners": ["c"], "n": 2}, "as many as `n` if it is given, got 1 and n=2"),
        ({"owners": []}, "`owners` must be at least one"),
    ],
)
def test_natural_refuses_owners(arguments, match):
    dataset = data.from_arrays(X, [0, 1] * 4, owners=LETTERS)
    with pytest.raises(ValueError, match=match):
        data.natural(dataset, seed=0, **{"min_size": 1, **arguments})


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_token_ids_stay_integers_from_the_array_to_predictions(dtype):
    """The label is whether token 7 occurs; an embedding, which takes integers, learns it."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 20, (400, 6)).astype(dtype)
    labels = np.where((tokens == 7).any(axis=1), "seven", "none")
    dataset = data.from_arrays(tokens, labels, test=0.25)
    assert dataset.inputs.dtype == {np.int32: torch.int32, np.int64: torch.int64}[dtype]
    seen = []

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            seen.append(x.dtype)
            return self.head(self.embed(x).mean(1))

    history = topofl.run(
        algorithms.dsgd(lr=2.0, local_steps=5),
        model=Bag(),
        clients=data.iid(dataset, 4, seed=0),
        topology=topologies.ring(4),
        rounds=30,
        seed=0,
        progress=False,
    )
    assert set(seen) == {dataset.inputs.dtype}
    majority = (labels == "none").mean()
    assert history.last("accuracy").min() > majority + 0.1
    predicted = history.predict(tokens[:5], node=0).argmax(1)
    assert predicted.shape == (5,)
