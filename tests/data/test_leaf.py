"""FEMNIST in the files of LEAF: what is read in which order."""

import string
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.readers import ink, leaf, save_json, save_leaf
from topofl import data, models


def first_pixels(dataset):
    return dataset.inputs[:, 0, 0, 0].tolist()


@pytest.fixture
def root(tmp_path):
    save_leaf(tmp_path)
    return tmp_path


def test_owners_are_the_writers_in_the_order_of_the_files(root):
    dataset = data.femnist(root)
    assert dataset.owners.tolist() == [0, 0, 0, 1, 2, 2, 1, 1, 3, 0]
    assert dataset.owner_names == ("bob", "eve", "ann", "dan")
    wanted = torch.tensor(ink(*first_pixels(dataset))).view(-1, 1, 28, 28)
    torch.testing.assert_close(dataset.examples(), wanted, rtol=0, atol=1e-7)
    clients = data.natural(dataset, min_size=1, seed=0)
    assert clients.name == "natural(femnist, n=3, min_size=1)"
    assert [own.tolist() for own in clients.train] == [[0, 1, 2], [3], [4, 5]]
    assert models.dpfl_femnist_cnn(n_classes=62)(dataset.examples([0])).shape == (1, 62)


@pytest.mark.parametrize(
    ("classes", "characters", "labels", "levels"),
    [
        ("0-9", string.digits, [0, 0, 9, 1, 1], [1, 4, 7, 10, 9]),
        ("a-j", "abcdefghij", [1, 0, 9], [3, 5, 8]),
        ("zA0", "zA0", [2, 1, 2, 0], [1, 2, 4, 6]),
        ("0A-Za", f"0{string.ascii_uppercase}a", [0, 1, 0, 27], [1, 2, 4, 5]),
    ],
)
def test_classes_are_characters_in_their_order(root, classes, characters, labels, levels):
    dataset = data.femnist(root, classes=classes)
    assert dataset.name == f"femnist ({classes})"
    assert "".join(dataset.class_names) == characters
    assert dataset.n_classes == len(characters)
    assert dataset.labels.tolist() == labels
    assert first_pixels(dataset) == levels
    assert sorted(set(dataset.owners.tolist())) == list(range(len(set(dataset.owners.tolist()))))


@pytest.mark.parametrize("inside", [".", "all_data", "data/all_data"])
def test_files_that_are_not_split_are_split_writer_by_writer(tmp_path, inside):
    sizes = {"a": 1, "b": 2, "c": 10, "d": 40}
    writers = {name: (range(size), [i % 3 for i in range(size)]) for name, size in sizes.items()}
    for file, names in (("all_data_0", "ab"), ("any", "cd")):
        own = {name: writers[name] for name in names}
        save_json(tmp_path / inside / f"{file}.json", leaf(**own))

    def tests(**options):
        dataset = data.femnist(str(tmp_path), **options)
        assert sorted([*dataset.train, *dataset.test]) == list(range(53))
        assert first_pixels(dataset) == [0, 0, 1, *range(10), *range(40)]
        sizes = np.bincount(dataset.owners[dataset.test], minlength=4).tolist()
        return sizes, dataset.test.tolist()

    assert tests()[0] == [0, 1, 1, 4], "a tenth of each, but one at least, and one stays"
    assert tests(test=0.5)[0] == [0, 1, 5, 20]
    assert tests(test=0.99)[0] == [0, 1, 9, 39]
    assert tests(test=0)[0] == [0, 0, 0, 0]
    assert tests(test=0.5) == tests(test=0.5, seed=0) != tests(test=0.5, seed=1)
    for test, error in ((1, ValueError), ("a", TypeError)):
        with pytest.raises(error, match="`test` must be"):
            tests(test=test)


def test_single_files_as_of_other_projects(tmp_path):
    """FedProx writes labels as floats, and calls its users f_00000."""
    train = leaf(f_00000=([1, 2], [3.0, 9.0]), f_00001=([3], [0.0]))
    save_json(tmp_path / "mytrain.json", train)
    assert len(data.femnist(tmp_path).test) == 1
    save_json(tmp_path / "mytest.json", leaf(f_00000=([4], [3.0])))
    dataset = data.femnist(tmp_path, classes="0-9")
    assert dataset.labels.tolist() == [3, 9, 0, 3]
    assert dataset.labels.dtype == torch.int64
    assert [dataset.train.tolist(), dataset.test.tolist()] == [[0, 1, 2], [3]]


def test_other_numbers_stay_as_they_are(root):
    content = leaf(zoe=([0], [0]))
    image = content["user_data"]["zoe"]["x"][0]
    image[:2] = [0.123, 1]
    save_json(root / "train" / "zoe.json", content)
    dataset = data.femnist(root)
    assert dataset.inputs.dtype == torch.float32
    wanted = torch.tensor([*ink(1, 2, 3, 4, 5, 6), image])
    assert torch.equal(dataset.inputs[:7].flatten(1), wanted)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_every_level_of_grey_is_recognized_in_both_precisions(tmp_path, kind):
    content = leaf(ann=([0] * 256, [0] * 256))
    for level, image in enumerate(content["user_data"]["ann"]["x"]):
        image[0] = float(kind(level / 255))
    content["user_data"]["ann"]["x"][0][0] = 0
    save_json(tmp_path / "a.json", content)
    dataset = data.femnist(tmp_path, test=0)
    assert dataset.inputs.dtype == torch.uint8
    assert first_pixels(dataset) == list(range(256))


@pytest.mark.slow
def test_memory_holds_the_lists_of_one_writer_at_a_time(tmp_path):
    for part in range(3):
        writers = {f"{part}-{i}": (range(20), [0] * 20) for i in range(40)}
        save_json(tmp_path / f"{part}.json", leaf(**writers))
    data.femnist(tmp_path)
    text = (tmp_path / "0.json").stat().st_size
    tracemalloc.start()
    try:
        dataset = data.femnist(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lists = 32 * 784 * 20  # of a writer: numbers, and pointers to them
    assert dataset.inputs.nbytes == 3 * 40 * 20 * 784
    assert peak < 2 * text + 2 * dataset.inputs.nbytes + 3 * lists < 0.7 * 40 * lists


def test_users_may_have_any_names_and_those_not_listed_are_passed_over(root):
    """LEAF's split leaves users with a single example in user_data, without examples."""
    content = leaf(**{"x": ([1], [0]), "y": ([2], [1]), "": ([3], [2])})
    content["user_data"]["gone"] = {"x": [], "y": []}
    content["hierarchies"] = ["a", "b"]
    save_json(root / "train" / "more.json", content)
    assert data.femnist(root).owners.tolist()[6:9] == [3, 4, 5]


scalars = st.none() | st.booleans() | st.integers(-1, 70) | st.floats() | st.text(max_size=2)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyab"), inner, max_size=3)
    ),
)
lists = st.fixed_dictionaries(
    {
        "x": anything | st.lists(st.just([1.0] * 784), max_size=3),
        "y": anything | st.lists(st.integers(0, 61)),
    }
)
names = st.sampled_from("abxy")
contents = st.fixed_dictionaries(
    {
        "users": st.lists(names, max_size=3) | anything,
        "num_samples": st.lists(st.integers(0, 3), max_size=3) | anything,
        "user_data": st.dictionaries(names, lists | anything, max_size=4) | anything,
    }
)


@given(contents | anything)
def test_any_json_is_read_or_refused_by_file(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("json")
    save_json(folder / "a.json", content)
    try:
        assert len(data.femnist(folder).train) > 0
    except ValueError as error:
        message = str(error)
        assert "`root`" in message or "`classes`" in message
        assert str(folder) in message
