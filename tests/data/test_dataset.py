"""Datasets made of arrays and of torch datasets, and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset
from torch_geometric.data import Data

from topofl import data

X = np.arange(24.0).reshape(12, 2)
Y = np.array([0, 1, 2] * 4)
NONE = np.zeros(0, np.int64)


def made(**changes):
    """Return a valid dataset of 12 examples with some fields changed."""
    fields = {
        "inputs": torch.zeros(12, 2),
        "labels": torch.from_numpy(Y),
        "n_classes": 3,
        "name": "toy",
        "train": np.arange(8),
        "val": np.array([8, 9]),
        "test": np.array([10, 11]),
    }
    return data.Dataset(**(fields | changes))


class Items:
    """The smallest map-style dataset."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(2), 0)])


def test_dataset_is_frozen_and_its_indices_are_read_only_copies():
    train = np.arange(8)
    dataset = made(train=train)
    train[0] = 11
    assert dataset.train.tolist() == list(range(8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"
    for indices in (dataset.train, dataset.val, dataset.test):
        assert indices.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            indices[0] = 3


def test_dataset_repr_says_shape_classes_and_split():
    assert repr(made()) == "Dataset('toy', inputs=(12, 2), n_classes=3, train=8, val=2, test=2)"


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"inputs": np.zeros((12, 2))}, TypeError, "`inputs`.*ndarray"),
        (
            {"inputs": torch.zeros(12, 2).double()},
            TypeError,
            "`inputs`.*float32 or torch.uint8 or .*, got torch.float64",
        ),
        ({"inputs": torch.zeros(12, 2).to(torch.int8)}, TypeError, "`inputs`.*got torch.int8"),
        ({"inputs": torch.zeros(12)}, ValueError, "`inputs` must have shape"),
        ({"inputs": torch.zeros(0, 2)}, ValueError, "`inputs` must have shape"),
        ({"inputs": torch.zeros(11, 2)}, ValueError, "`labels` must have shape \\(11,\\)"),
        ({"labels": torch.zeros(12)}, TypeError, "`labels`.*float32"),
        (
            {"labels": torch.full((12,), 3)},
            ValueError,
            "`labels` must be in 0..2, got 3 at index 0 \\(12 such",
        ),
        ({"labels": torch.tensor([0] * 11 + [-1])}, ValueError, "`labels`.*-1 at index 11"),
        ({"n_classes": 2.0}, TypeError, "`n_classes`"),
        ({"n_classes": 0}, ValueError, "`n_classes`"),
        ({"train": NONE}, ValueError, "`train` must hold at least one"),
        ({"train": [0.0, 1.0]}, TypeError, "`train` must be integer indices"),
        ({"train": [[0, 1]]}, ValueError, "`train` must be a vector"),
        ({"train": [0, 0]}, ValueError, "`train`.*example 0 2 times"),
        ({"train": [0, 8]}, ValueError, "disjoint, got example 8 2 times"),
        ({"val": [12]}, ValueError, "`val` must be in 0..11, got 12 at position 0"),
        ({"test": [-1]}, ValueError, "`test` must be in 0..11, got -1"),
        ({"test": np.ones(12, bool)}, TypeError, "`test`.*flatnonzero"),
    ],
)
def test_dataset_refuses(changes, error, match):
    with pytest.raises(error, match=match):
        made(**changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_dataset_names_the_first_input_that_is_not_finite(bad):
    inputs = torch.zeros(12, 2)
    inputs[3, 1] = inputs[7, 0] = bad
    with pytest.raises(ValueError, match=r"`inputs` must be finite, got .* at \(3, 1\) \(2 such"):
        made(inputs=inputs)


def test_from_arrays_without_split_trains_on_everything():
    dataset = data.from_arrays(X, Y)
    assert dataset.inputs.dtype == torch.float32
    assert dataset.labels.dtype == torch.int64
    np.testing.assert_array_equal(dataset.inputs.numpy(), X)
    np.testing.assert_array_equal(dataset.train, np.arange(12))
    assert (dataset.n_classes, len(dataset.val), len(dataset.test)) == (3, 0, 0)


def test_from_arrays_copies_what_it_is_given():
    for x in (
        X.astype(np.float32),
        X.astype(np.uint8),
        torch.zeros(12, 2),
        torch.zeros(12, 2, dtype=torch.uint8),
    ):
        dataset = data.from_arrays(x, Y)
        before = dataset.inputs.clone()
        x[:] = 77
        assert torch.equal(dataset.inputs, before)


def test_from_arrays_accepts_read_only_arrays_lists_and_tensors():
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


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_from_arrays_keeps_uint8_and_divides_what_models_see(kind):
    pixels = [[0, 51], [255, 102]]
    dataset = data.from_arrays(
        kind(pixels, dtype=(np if kind is np.array else torch).uint8), [0, 1]
    )
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (torch.uint8, pixels)
    np.testing.assert_allclose(dataset.examples(), [[0, 0.2], [1, 0.4]], rtol=1e-6)


NUMPY = ["bool", "i1", "i2", "i4", "i8", ">i4", "u2", "u4", "u8", "f2", "f4", "f8", ">f8", "g"]
TORCH = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


@pytest.mark.parametrize(
    "dtype", [*map(np.dtype, NUMPY), *(getattr(torch, name) for name in TORCH)], ids=str
)
def test_from_arrays_takes_other_numbers_as_they_are(dtype):
    numbers = [[0, 1], [1, 0]] if "bool" in str(dtype) else [[0, 127], [3, 100]]
    x = (
        np.array(numbers, dtype)
        if isinstance(dtype, np.dtype)
        else torch.tensor(numbers, dtype=dtype)
    )
    dataset = data.from_arrays(x, [0, 1])
    integer = torch.int32 if str(dtype) in ("int32", ">i4", "torch.int32") else torch.int64
    wanted = integer if "int" in str(dtype) or str(dtype) == ">i4" else torch.float32
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (wanted, numbers)
    assert dataset.examples() is dataset.inputs


@pytest.mark.parametrize("highest", [255, 2**24 + 1, -(2**62) - 1])
def test_from_arrays_takes_integers_as_they_are(highest):
    dataset = data.from_arrays([[0, highest]], [0])
    assert (
        dataset.inputs.tolist() == dataset.examples([0], torch.float64).tolist() == [[0, highest]]
    )


def test_from_arrays_refuses_integers_beyond_int64():
    with pytest.raises(ValueError, match="`x` must fit into int64, got 18446744073709551615"):
        data.from_arrays(np.array([[2**64 - 1]], np.uint64), [0])


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_from_arrays_stores_in_c_order(dtype):
    x = np.arange(24, dtype=dtype).reshape(2, 3, 2, 2)[::-1].transpose(0, 3, 1, 2)
    for given in (x, torch.from_numpy(x.copy(order="K"))):
        inputs = data.from_arrays(given, [0, 1]).inputs
        assert inputs.is_contiguous()
        np.testing.assert_array_equal(inputs, x)


def test_from_arrays_fractions_are_stratified_disjoint_and_seeded():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    x = np.arange(100.0)[:, None]
    first, again, other = (
        data.from_arrays(x, y, test=0.2, val=0.1, seed=seed) for seed in (3, 3, 4)
    )
    assert np.bincount(y[first.test]).tolist() == [12, 6, 2]
    assert np.bincount(y[first.val]).tolist() == [6, 3, 1]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([first.train, first.val, first.test])), np.arange(100)
    )
    np.testing.assert_array_equal(first.test, again.test)
    assert first.test.tolist() != other.test.tolist()


def test_from_arrays_small_fraction_holds_out_one_example():
    assert len(data.from_arrays(X, Y, val=1e-6).val) == 1


def test_from_arrays_appends_pairs():
    dataset = data.from_arrays(X, Y, val=(X[:2] + 100, [2, 2]), test=(X[:1] + 200, np.array([1])))
    np.testing.assert_array_equal(dataset.train, np.arange(12))
    np.testing.assert_array_equal(dataset.inputs.numpy()[dataset.val], X[:2] + 100)
    np.testing.assert_array_equal(dataset.inputs.numpy()[dataset.test], X[:1] + 200)
    assert dataset.labels.numpy()[dataset.test].tolist() == [1]
    with pytest.raises(
        ValueError,
        match=r"`y` must have training examples of every class, got class '3' .*\(example 12\)",
    ):
        data.from_arrays(X, Y, test=(X[:1] + 200, np.array([3])))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"x": [["a", "b"]] * 12}, TypeError, "`x` must be real numbers"),
        ({"x": X + 1j}, TypeError, "`x` must be real numbers"),
        ({"x": torch.zeros(12, 2, dtype=torch.complex64)}, TypeError, "`x` must be real numbers"),
        (
            {"x": torch.eye(12).to_sparse()},
            TypeError,
            "`x` must be real numbers in a dense tensor, got .* in .*sparse",
        ),
        ({"x": X.astype("M8[s]")}, TypeError, "`x` must be real numbers"),
        ({"x": X[:, :0]}, ValueError, "`x` must have shape"),
        ({"x": X[:, 0]}, ValueError, "`x` must have shape"),
        ({"x": X[:0], "y": []}, ValueError, "`x` must have shape"),
        ({"x": X * np.nan}, ValueError, r"`inputs` must be finite, got nan at \(0, 0\)"),
        ({"x": X * 1e300}, ValueError, "`inputs` must be finite, got inf"),
        ({"y": Y[:5]}, ValueError, "`y` must have one label for each of the 12"),
        ({"y": Y.astype(float)}, TypeError, "`y` must be integers"),
        ({"y": torch.from_numpy(Y).float()}, TypeError, "`y` must be integers"),
        ({"y": Y - 1}, ValueError, "`y` must be non-negative"),
        ({"y": np.eye(12, dtype=int)}, ValueError, "`y` must be a non-empty vector"),
        ({"n_classes": 2}, ValueError, "`labels` must be in 0..1, got 2 at index 2"),
        ({"test": 1.0}, ValueError, r"`test` must be in \[0, 1\)"),
        ({"test": 3}, ValueError, r"`test` must be in \[0, 1\)"),
        ({"val": -0.1}, ValueError, "`val`"),
        ({"val": "half"}, TypeError, "`val` must be a number"),
        ({"test": 0.6, "val": 0.6}, ValueError, "`val` must leave an example for training"),
        ({"test": (X, Y, Y)}, ValueError, "`test` must be a fraction or a pair"),
        ({"test": (X[:, :1], Y)}, ValueError, r"`test` must have inputs of shape \(2,\)"),
        ({"test": (X, Y[:3])}, ValueError, r"`test\[1\]` must have one label"),
        ({"val": (X.astype("u1"), Y)}, TypeError, "`val` must have uint8 inputs .* if and only if"),
        ({"seed": -1}, ValueError, "`seed`"),
    ],
)
def test_from_arrays_refuses(call, error, match):
    with pytest.raises(error, match=match):
        data.from_arrays(**({"x": X, "y": Y} | call))


def test_from_torch_reads_items_in_order():
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    dataset = data.from_torch(
        pairs, test=TensorDataset(torch.ones(2, 2).double(), torch.tensor([0, 1])), val=0.25
    )
    expected = data.from_arrays(X, Y, test=(np.ones((2, 2)), [0, 1]), val=0.25)
    assert dataset.name == "TensorDataset"
    assert torch.equal(dataset.inputs, expected.inputs)
    assert torch.equal(dataset.labels, expected.labels)
    for key in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(dataset, key), getattr(expected, key))


def test_from_torch_takes_any_map_style_dataset_of_arrays():
    items = Items((np.array([0, 255], np.uint8), np.int32(1)), (np.array([51, 0], np.uint8), 0))
    dataset = data.from_torch(items, name="mine", n_classes=5)
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (torch.uint8, [[0, 255], [51, 0]])
    assert dataset.labels.tolist() == [1, 0]
    assert (dataset.name, dataset.n_classes) == ("mine", 5)


@pytest.mark.parametrize(
    ("dataset", "error", "match"),
    [
        (Stream(), TypeError, "`dataset` must be a map-style dataset"),
        (Items(), ValueError, "`dataset` must have at least one item"),
        (Items(torch.zeros(2)), TypeError, "`dataset` must give pairs .* item 0"),
        (
            Items((torch.zeros(2), 0), ("image", 1)),
            TypeError,
            "`dataset`.*got str in item 1.*ToTensor",
        ),
        (
            Items((torch.zeros(2), 0.0)),
            TypeError,
            "`dataset` must give integers or texts as labels, got 0.0 in item 0",
        ),
        (
            Items((torch.zeros(2), torch.tensor([0, 1]))),
            TypeError,
            "`dataset` must give integers or texts as labels",
        ),
        (
            Items((torch.zeros(2), 0), (torch.zeros(3), 0)),
            ValueError,
            r"`dataset`.*\(2,\).*\(3,\) in item 1",
        ),
        (
            Items((torch.zeros(2), 0), (torch.zeros(2).int(), 0)),
            ValueError,
            "`dataset`.*int32 in item 1",
        ),
        (Items((torch.zeros(2), -1)), ValueError, "`y` must be non-negative"),
    ],
)
def test_from_torch_refuses(dataset, error, match):
    with pytest.raises(error, match=match):
        data.from_torch(dataset)


GRAPH = Data(x=torch.eye(2), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]))


@pytest.mark.parametrize(
    ("dataset", "where"),
    [
        (GRAPH, ""),
        ([GRAPH, GRAPH], " in item 0"),
        ([(GRAPH, 0), (GRAPH, 1)], " as input of item 0"),
    ],
)
@pytest.mark.parametrize("targets", [False, True])
def test_from_torch_says_that_a_graph_is_a_topology(dataset, where, targets):
    pairs = r"pairs \(input, target\) or triples .*" if targets else r"pairs \(input, label\)"
    message = rf"`dataset` must give {pairs}, got a PyG graph \(Data\){where}; .*as_topology\(graph"
    with pytest.raises(TypeError, match=message):
        data.from_torch(dataset, targets=targets)
    good = Items((torch.zeros(2), 0))
    with pytest.raises(TypeError, match=r"`test` must give .* PyG graph .*as_topology\(graph"):
        data.from_torch(good, test=dataset)


def test_from_torch_names_the_held_out_dataset_that_is_wrong():
    good = Items((torch.zeros(2), 0))
    with pytest.raises(TypeError, match="`test` must give pairs"):
        data.from_torch(good, test=Items(torch.zeros(2)))
    with pytest.raises(TypeError, match="`val` must be a map-style dataset"):
        data.from_torch(good, val=Stream())
    with pytest.raises(TypeError, match=r"`val`.*got str in item 0"):
        data.from_torch(good, val="half")
