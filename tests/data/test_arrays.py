"""Datasets and partitions of arrays and of torch datasets, with labels and owners of any kind."""

import datetime
import enum

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import topofl
from tests.degenerate.inputs import run
from tests.rows.partitioners import lists
from topofl import algorithms, data, models, topologies

X = np.arange(24.0).reshape(12, 2)
Y = np.array([0, 1, 2] * 4)
PETS = ["dog", "cat"] * 6


def test_without_split_everything_is_for_training():
    dataset = data.from_arrays(X, Y)
    assert (dataset.inputs.dtype, dataset.labels.dtype) == (torch.float32, torch.int64)
    np.testing.assert_array_equal(dataset.inputs.numpy(), X)
    np.testing.assert_array_equal(dataset.train, np.arange(12))
    assert (dataset.n_classes, len(dataset.val), len(dataset.test)) == (3, 0, 0)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_what_is_given_is_copied(kind, dtype):
    x = kind(np.zeros((12, 2), dtype))
    dataset = data.from_arrays(x, Y)
    x[:] = 77
    assert not dataset.inputs.any()


def test_arrays_may_be_read_only_lists_and_tensors():
    frozen = X.copy()
    frozen.setflags(write=False)
    expected = data.from_arrays(X, Y)
    for x, y in (
        (frozen, Y),
        (X.tolist(), Y.tolist()),
        (torch.from_numpy(X), torch.from_numpy(Y)),
        (X, Y.astype("u1")),
        (X.astype("u1").astype("f2"), Y),
    ):
        dataset = data.from_arrays(x, y)
        assert torch.equal(dataset.inputs, expected.inputs)
        assert torch.equal(dataset.labels, expected.labels)


NUMPY = ["bool", "i1", "i2", "i4", "i8", ">i4", "u2", "u4", "u8", "f2", "f4", "f8", ">f8", "g"]
TORCH = ["bool", "int8", "int16", "int32", "int64", "uint16", "float16", "bfloat16", "float32"]
DTYPES = [*map(np.dtype, NUMPY), *(getattr(torch, name) for name in (*TORCH, "float64"))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_numbers_than_pixels_are_taken_as_they_are(dtype):
    numbers = [[0, 1], [1, 0]] if "bool" in str(dtype) else [[0, 127], [3, 100]]
    x = (np.array if isinstance(dtype, np.dtype) else torch.tensor)(numbers, dtype=dtype)
    dataset = data.from_arrays(x, [0, 1])
    integer = torch.int32 if str(dtype) in ("int32", ">i4", "torch.int32") else torch.int64
    wanted = integer if "int" in str(dtype) or str(dtype) == ">i4" else torch.float32
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (wanted, numbers)
    assert dataset.examples() is dataset.inputs


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_pixels_stay_bytes_and_are_divided_for_models(kind):
    pixels = [[0, 51], [255, 102]]
    dtype = np.uint8 if kind is np.array else torch.uint8
    dataset = data.from_arrays(kind(pixels, dtype=dtype), [0, 1])
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (torch.uint8, pixels)
    np.testing.assert_allclose(dataset.examples(), [[0, 0.2], [1, 0.4]], rtol=1e-6)


@pytest.mark.parametrize("highest", [255, 2**24 + 1, -(2**62) - 1])
def test_integers_keep_their_value(highest):
    dataset = data.from_arrays([[0, highest]], [0])
    seen = dataset.examples([0], torch.float64).tolist()
    assert dataset.inputs.tolist() == seen == [[0, highest]]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_inputs_are_stored_in_c_order(dtype):
    x = np.arange(24, dtype=dtype).reshape(2, 3, 2, 2)[::-1].transpose(0, 3, 1, 2)
    for given in (x, torch.from_numpy(x.copy(order="K"))):
        inputs = data.from_arrays(given, [0, 1]).inputs
        assert inputs.is_contiguous()
        np.testing.assert_array_equal(inputs, x)


def test_fractions_are_stratified_disjoint_and_seeded():
    x, y = np.arange(100.0)[:, None], np.repeat([0, 1, 2], [60, 30, 10])
    first, again, other = (
        data.from_arrays(x, y, test=0.2, val=0.1, seed=seed) for seed in (3, 3, 4)
    )
    assert np.bincount(y[first.test]).tolist() == [12, 6, 2]
    assert np.bincount(y[first.val]).tolist() == [6, 3, 1]
    parts = np.concatenate([first.train, first.val, first.test])
    np.testing.assert_array_equal(np.sort(parts), np.arange(100))
    assert first.test.tolist() == again.test.tolist() != other.test.tolist()
    assert len(data.from_arrays(X, Y, val=1e-6).val) == 1


def test_pairs_are_appended():
    dataset = data.from_arrays(X, Y, val=(X[:2] + 100, [2, 2]), test=(X[:1] + 200, np.array([1])))
    np.testing.assert_array_equal(dataset.train, np.arange(12))
    np.testing.assert_array_equal(dataset.inputs.numpy()[dataset.val], X[:2] + 100)
    np.testing.assert_array_equal(dataset.inputs.numpy()[dataset.test], X[:1] + 200)
    assert dataset.labels.numpy()[dataset.test].tolist() == [1]
    pets = data.from_arrays(X, PETS, test=(X[:1], ["dog"]))
    assert pets.labels.tolist() == [1, 0] * 6 + [1], "with the same classes"


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_masks_hold_out_rows_and_fractions_are_of_the_others(kind):
    dataset = data.from_arrays(X, PETS, test=kind(np.arange(12) >= 9), val=1 / 3)
    assert dataset.test.tolist() == [9, 10, 11]
    assert len(dataset.val) == 3
    assert sorted([*dataset.train, *dataset.val]) == list(range(9))


# Targets


def test_targets_beside_labels():
    targets = X / 7
    dataset = data.from_arrays(X, Y, targets=targets, test=0.25, seed=0)
    assert (dataset.targets.dtype, dataset.learned().dtype) == (torch.float64, torch.float32)
    np.testing.assert_array_equal(dataset.targets, targets)
    np.testing.assert_array_equal(dataset.labels, Y)
    plain = data.from_arrays(X, Y)
    assert plain.targets is None
    assert torch.equal(plain.learned(), plain.labels)
    assert data.from_arrays(X, targets=X, class_names=["one"]).n_classes == 1
    held = data.from_arrays(X[:8], Y[:8], targets=X[:8], val=(X[8:], Y[8:], X[8:]))
    np.testing.assert_array_equal(held.targets[held.val.tolist()], X[8:])


def test_from_torch_reads_targets():
    x, y = torch.from_numpy(X).float(), torch.from_numpy(X / 7)
    labels = torch.from_numpy(Y)
    pairs = data.from_torch(TensorDataset(x, y), targets=True)
    some = TensorDataset(x[:5], labels[:5], y[:5])
    triples = data.from_torch(TensorDataset(x, labels, y), targets=True, test=some)
    assert torch.equal(pairs.targets, y)
    assert not pairs.labels.any()
    assert torch.equal(triples.targets, torch.cat([y, y[:5]]))
    assert triples.labels.tolist() == [*Y, *Y[:5]]
    floats = data.from_torch([(torch.ones(2), 0.5), (torch.zeros(2), 1.5)], targets=True)
    assert floats.targets.tolist() == [0.5, 1.5]


# Torch datasets


class Items(list):
    """The smallest map-style dataset."""


def test_from_torch_reads_items_in_order():
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    test = TensorDataset(torch.ones(2, 2).double(), torch.tensor([0, 1]))
    dataset = data.from_torch(pairs, test=test, val=0.25)
    expected = data.from_arrays(X, Y, test=(np.ones((2, 2)), [0, 1]), val=0.25)
    assert dataset.name == "TensorDataset"
    assert torch.equal(dataset.inputs, expected.inputs)
    assert torch.equal(dataset.labels, expected.labels)
    for key in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(dataset, key), getattr(expected, key))


def test_from_torch_takes_any_map_style_dataset_of_arrays():
    items = Items([(np.array([0, 255], "u1"), np.int32(1)), (np.array([51, 0], "u1"), 0)])
    dataset = data.from_torch(items, name="mine", n_classes=5)
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (torch.uint8, [[0, 255], [51, 0]])
    assert dataset.labels.tolist() == [1, 0]
    assert (dataset.name, dataset.n_classes) == ("mine", 5)


class Named(TensorDataset):
    classes = ["cat", "dog"]  # noqa: RUF012 - as in torchvision


def test_torch_datasets_have_texts_numpy_integers_or_the_names_of_torchvision():
    def of(labels):
        return data.from_torch(Items((torch.zeros(2), label) for label in labels))

    assert of(PETS).class_names == ("cat", "dog")
    for kind in (np.int16, np.array):
        assert of([kind(k % 2) for k in range(8)]).labels.tolist() == [0, 1] * 4
    named = Named(torch.zeros(8, 2), torch.arange(8) % 2)
    assert data.from_torch(named, owners=["n"] * 8).class_names == ("cat", "dog")
    assert data.from_torch(Named(torch.zeros(8, 2), torch.arange(8) % 3)).class_names is None
    first = Named(torch.zeros(4, 2), torch.zeros(4).long())
    assert data.from_torch(first, test=named).class_names == ("cat", "dog")


# Labels and owners of any kind


class Pet(enum.Enum):
    DOG = 1
    CAT = 2


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        (PETS, ("cat", "dog"), [1, 0]),
        (np.array(PETS), ("cat", "dog"), [1, 0]),
        (np.array(PETS, object), ("cat", "dog"), [1, 0]),
        (pd.Series(PETS), ("cat", "dog"), [1, 0]),
        (pd.Series(PETS, dtype="category"), ("cat", "dog"), [1, 0]),
        ([np.str_("dog"), "cat"] * 6, ("cat", "dog"), [1, 0]),
        ([True, False] * 6, ("False", "True"), [1, 0]),
        (np.array([True, False] * 6), ("False", "True"), [1, 0]),
        (torch.tensor([True, False] * 6), ("False", "True"), [1, 0]),
        ([("b", 1), ("a", 2)] * 6, ("('a', 2)", "('b', 1)"), [1, 0]),
        ([Pet.DOG, Pet.CAT] * 6, ("Pet.CAT", "Pet.DOG"), [1, 0]),
        ([datetime.date(2024, 2, 1), datetime.date(2023, 3, 1)] * 6, None, [1, 0]),
        (np.array(["2024", "2023"] * 6, "M8[Y]"), ("2023", "2024"), [1, 0]),
        (["10", "9"] * 6, ("10", "9"), [0, 1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_are_numbered_in_sorted_order(labels, names, classes):
    dataset = data.from_arrays(X, labels)
    assert dataset.labels.tolist() == classes * 6
    assert dataset.n_classes == 2
    assert dataset.class_names == (names or ("2023-03-01", "2024-02-01"))


@pytest.mark.parametrize(
    "kind", [list, lambda y: np.array(y, "i1"), torch.tensor, lambda y: [np.int64(7), *y[1:]]]
)
def test_integers_are_class_numbers(kind):
    dataset = data.from_arrays(X, kind([7, 3] * 6))
    assert dataset.labels.tolist() == [7, 3] * 6
    assert (dataset.n_classes, dataset.class_names, dataset.name_of(7)) == (8, None, "7")


def test_class_names_set_the_order_of_texts_and_name_integers():
    texts = data.from_arrays(X, PETS, class_names=["dog", "cat", "owl"])
    assert (texts.labels.tolist(), texts.n_classes) == ([0, 1] * 6, 3)
    numbers = data.from_arrays(X, [0, 1] * 6, class_names=["dog", "cat", "owl"])
    assert [numbers.name_of(k) for k in range(numbers.n_classes)] == ["dog", "cat", "owl"]


@pytest.mark.parametrize(
    ("owners", "names", "numbers"),
    [
        (["n", "s"] * 6, ("n", "s"), [0, 1]),
        ([10, 9] * 6, ("9", "10"), [1, 0]),
        (np.array([1e6, 2.0] * 6), ("2.0", "1000000.0"), [1, 0]),
        (pd.Series(["s", "n"] * 6), ("n", "s"), [1, 0]),
        (torch.tensor([5, 7] * 6), ("5", "7"), [0, 1]),
    ],
    ids=["text", "integers", "floats", "series", "tensor"],
)
def test_owners_are_numbered_in_sorted_order(owners, names, numbers):
    dataset = data.from_arrays(X, [0, 1] * 6, owners=owners)
    assert (dataset.owner_names, dataset.owners.tolist()) == (names, numbers * 6)


def test_readers_check_a_dataset_once_and_keep_its_names(monkeypatch):
    checked, check = [], data.Dataset.__post_init__
    monkeypatch.setattr(
        data.Dataset, "__post_init__", lambda self: checked.append(1) or check(self)
    )
    frame = pd.DataFrame({"a": np.arange(12.0), "kind": PETS})
    numbers, names = frame.assign(kind=[0, 1] * 6), ["cat", "dog"]
    read = [
        data.from_dataframe(frame, label="kind"),
        data.from_dataframe(numbers, label="kind", class_names=names),
        data.from_torch(Named(torch.zeros(8, 2), torch.arange(8) % 2)),
    ]
    assert [dataset.class_names for dataset in read] == [("cat", "dog")] * 3
    assert len(checked) == 3


class Bag(nn.Module):
    """The mean of embeddings, and then a linear layer; notes the dtypes of its inputs."""

    seen: list

    def __init__(self):
        super().__init__()
        self.seen, self.embed, self.head = [], nn.Embedding(20, 8), nn.Linear(8, 2)

    def forward(self, x):
        Bag.seen = {*Bag.seen, x.dtype}
        return self.head(self.embed(x).mean(1))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_token_ids_stay_integers_from_the_array_to_predictions(dtype):
    """The label is whether token 7 occurs; an embedding, which takes integers, learns it."""
    tokens = np.random.default_rng(0).integers(0, 20, (400, 6)).astype(dtype)
    labels = np.where((tokens == 7).any(axis=1), "seven", "none")
    dataset = data.from_arrays(tokens, labels, test=0.25)
    Bag.seen = set()
    options = {"clients": data.iid(dataset, 4, seed=0), "topology": topologies.ring(4)}
    history = run(algorithms.dsgd(lr=2.0, local_steps=5), model=Bag(), rounds=30, **options)
    assert Bag.seen == {dataset.inputs.dtype} == {getattr(torch, dtype)}
    assert history.last("accuracy").min() > (labels == "none").mean() + 0.1
    assert history.predict(tokens[:5], node=0).argmax(1).shape == (5,)


# Clients

EXAMPLES = [(X[:4], Y[:4] % 2), (X[:6], Y[:6]), (X[4:9], Y[4:9] % 2)]


def held(clients, part, node):
    """Return inputs and labels that a node holds."""
    places = torch.tensor(getattr(clients, part)[node])
    return clients.dataset.inputs[places].tolist(), clients.dataset.labels[places].tolist()


def test_node_i_holds_the_examples_of_client_i_in_order():
    clients = data.from_clients(EXAMPLES, name="mine")
    assert (clients.n, clients.n_classes, clients.name) == (3, 3, "mine")
    assert clients.dataset.name == "mine"
    for node, (x, y) in enumerate(EXAMPLES):
        assert held(clients, "train", node) == (x.tolist(), y.tolist())
    assert clients.dataset.train.tolist() == list(range(15))
    assert not len(clients.dataset.test)
    assert not any(lists(clients.test))


def test_clients_are_arrays_tensors_or_torch_datasets():
    (a, b), (c, d) = (map(torch.from_numpy, pair) for pair in EXAMPLES[1:])
    mixed = data.from_clients([EXAMPLES[0], (a, b), TensorDataset(c, d)]).dataset
    plain = data.from_clients(EXAMPLES).dataset
    assert torch.equal(mixed.inputs, plain.inputs)
    assert torch.equal(mixed.labels, plain.labels)


def test_own_and_shared_tests_are_held_apart():
    own = [EXAMPLES[1], None, (X[:2], Y[:2])]
    both = data.from_clients(EXAMPLES, own_test=own, test=EXAMPLES[2])
    assert [len(places) for places in both.test] == [6, 0, 2]
    for node in (0, 2):
        assert held(both, "test", node) == tuple(part.tolist() for part in own[node])
    assert both.dataset.inputs[torch.tensor(both.dataset.test)].tolist() == X[4:9].tolist()
    only_own = data.from_clients(EXAMPLES, own_test=own)
    assert only_own.dataset.test.tolist() == np.concatenate(only_own.test).tolist()
    assert len(only_own.dataset.test) == 8


def test_classes_are_those_of_all_clients():
    words = [(X[:2], ["dog", "cat"]), (X[:2], ["emu", "dog"])]
    clients = data.from_clients(words, test=(X[:1], ["emu"]))
    assert clients.class_names == ("cat", "dog", "emu")
    assert clients.dataset.labels.tolist() == [1, 0, 2, 1, 2]
    named = data.from_clients(words, class_names=["emu", "dog", "cat"])
    assert named.dataset.labels.tolist() == [1, 2, 0, 1]
    assert data.from_clients(EXAMPLES, n_classes=7).n_classes == 7


def test_runs_train_on_clients_and_name_the_function_that_makes_them():
    how = {"model": models.logistic_regression(2, 3), "topology": topologies.ring(3)}
    how |= {"rounds": 2, "seed": 0, "evaluation": "own_test", "progress": False}
    clients = data.from_clients(EXAMPLES, own_test=EXAMPLES[::-1])
    history = topofl.run(algorithms.dsgd(lr=0.1), clients=clients, **how)
    assert np.isfinite(history.last("accuracy")).all()
    with pytest.raises(TypeError, match=r"a Partition .* got list; .*from_clients\("):
        topofl.run(algorithms.dsgd(lr=0.1), clients=EXAMPLES, **how)
