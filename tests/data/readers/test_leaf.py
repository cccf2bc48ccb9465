"""FEMNIST in the files of LEAF: what is read in which order."""

import os
import tracemalloc

import numpy as np
import pytest
import torch

from tests.data.readers.leaf_files import images, leaf, save
from topofl import config, data, models


def first_pixels(dataset):
    return dataset.inputs[:, 0, 0, 0].tolist()


@pytest.fixture
def root(tmp_path):
    """Three writers; ann has no test file, dan no training file."""
    save(tmp_path / "train" / "all_data_1.json", leaf(ann=([5, 6], [36, 61])))
    save(tmp_path / "train" / "all_data_0.json", leaf(bob=([1, 2, 3], [0, 10, 37]), eve=([4], [0])))
    save(
        tmp_path / "test" / "all_data_0.json",
        leaf(eve=([7, 8], [9, 45]), dan=([10], [1]), bob=([9], [1])),
    )
    (tmp_path / "train" / "notes.txt").write_text("not JSON")
    (tmp_path / "train" / "._all_data_0.json").write_bytes(b"\0\5\x16\7")
    return tmp_path


def test_reads_writers_in_the_order_of_the_files(root):
    dataset = data.femnist(root)
    assert (
        repr(dataset)
        == "Dataset('femnist', inputs=(10, 1, 28, 28), n_classes=62, train=6, val=0, test=4)"
    )
    assert first_pixels(dataset) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 9]
    assert (dataset.inputs[:, 0].flatten(1)[:, 1:] == 255).all()
    assert dataset.labels.tolist() == [0, 10, 37, 0, 36, 61, 9, 45, 1, 1]
    assert dataset.owners.tolist() == [0, 0, 0, 1, 2, 2, 1, 1, 3, 0]
    assert [dataset.train.tolist(), dataset.test.tolist()] == [[*range(6)], [*range(6, 10)]]
    assert dataset.inputs.dtype == torch.uint8
    wanted = torch.tensor(images(*first_pixels(dataset))).view(-1, 1, 28, 28)
    torch.testing.assert_close(dataset.examples(), wanted, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("classes", "labels", "levels"),
    [
        ("0-9", [0, 0, 9, 1, 1], [1, 4, 7, 10, 9]),
        ("a-j", [1, 0, 9], [3, 5, 8]),
        ("zA0", [2, 1, 2, 0], [1, 2, 4, 6]),
        ("0A-Za", [0, 1, 0, 27], [1, 2, 4, 5]),
    ],
)
def test_classes_are_characters_in_their_order(root, classes, labels, levels):
    dataset = data.femnist(root, classes=classes)
    assert dataset.name == f"femnist ({classes})"
    assert dataset.n_classes == {"0-9": 10, "a-j": 10, "zA0": 3, "0A-Za": 28}[classes]
    assert dataset.labels.tolist() == labels
    assert first_pixels(dataset) == levels
    assert sorted(set(dataset.owners.tolist())) == list(range(len(set(dataset.owners.tolist()))))


def test_characters_have_the_labels_of_leaf():
    """LEAF: 0 to 9 for digits, 10 to 35 for capitals, 36 to 61 for small letters."""
    from topofl.data.readers.leaf import _labels_of

    assert _labels_of("0-9") == list(range(10))
    assert _labels_of("A-Z") == list(range(10, 36))
    assert _labels_of("a-z") == list(range(36, 62))
    assert _labels_of("a-j") == list(range(36, 46))
    assert _labels_of("0-9A-Za-z") == list(range(62))
    assert _labels_of("9Zb-d0") == [9, 35, 37, 38, 39, 0]


@pytest.mark.parametrize(
    "classes", ["", "-", "a-", "-a", "j-a", "aa", "a-ca", "0 1", "é", "a-j-k", "a-é", "\n"]
)
def test_other_classes_are_refused(root, classes):
    with pytest.raises(ValueError, match="`classes` must be characters and ranges"):
        data.femnist(root, classes=classes)


def test_classes_are_text(root):
    for classes in (10, None, ["a"]):
        with pytest.raises(TypeError, match="`classes` must be text, such as 'a-j', got"):
            data.femnist(root, classes=classes)


@pytest.mark.parametrize("inside", [".", "data"])
def test_finds_train_and_test(root, tmp_path_factory, inside):
    folder = tmp_path_factory.mktemp("other") / inside
    folder.mkdir(exist_ok=True)
    for part in ("train", "test"):
        (root / part).rename(folder / part)
    assert len(data.femnist(folder if inside == "." else folder.parent).test) == 4


@pytest.mark.parametrize("inside", [".", "all_data", "data/all_data"])
def test_files_that_are_not_split_are_split_writer_by_writer(tmp_path, inside):
    sizes = {"a": 1, "b": 2, "c": 10, "d": 40}
    writers = {name: (range(size), [i % 3 for i in range(size)]) for name, size in sizes.items()}
    save(tmp_path / inside / "all_data_0.json", leaf(**{name: writers[name] for name in "ab"}))
    save(tmp_path / inside / "any.json", leaf(**{name: writers[name] for name in "cd"}))

    def tests(**options):
        dataset = data.femnist(str(tmp_path), **options)
        assert sorted([*dataset.train, *dataset.test]) == list(range(53))
        assert first_pixels(dataset) == [0, 0, 1, *range(10), *range(40)]
        return np.bincount(
            dataset.owners[dataset.test], minlength=4
        ).tolist(), dataset.test.tolist()

    assert tests()[0] == [0, 1, 1, 4], "a tenth of each, but one at least, and one stays"
    assert tests(test=0.5)[0] == [0, 1, 5, 20]
    assert tests(test=0.99)[0] == [0, 1, 9, 39]
    assert tests(test=0)[0] == [0, 0, 0, 0]
    assert tests(test=0.5) == tests(test=0.5, seed=0) != tests(test=0.5, seed=1)


def test_single_files_as_of_other_projects(tmp_path):
    """FedProx writes labels as floats, and calls its users f_00000."""
    save(tmp_path / "mytrain.json", leaf(f_00000=([1, 2], [3.0, 9.0]), f_00001=([3], [0.0])))
    assert len(data.femnist(tmp_path).test) == 1
    save(tmp_path / "mytest.json", leaf(f_00000=([4], [3.0])))
    dataset = data.femnist(tmp_path, classes="0-9")
    assert dataset.labels.tolist() == [3, 9, 0, 3]
    assert dataset.labels.dtype == torch.int64
    assert [dataset.train.tolist(), dataset.test.tolist()] == [[0, 1, 2], [3]]


def test_other_numbers_stay_as_they_are(root):
    content = leaf(zoe=([0], [0]))
    content["user_data"]["zoe"]["x"][0][:2] = [0.123, 1]
    save(root / "train" / "zoe.json", content)
    dataset = data.femnist(root)
    assert dataset.inputs.dtype == torch.float32
    wanted = torch.tensor([*images(1, 2, 3, 4, 5, 6), content["user_data"]["zoe"]["x"][0]])
    assert torch.equal(dataset.inputs[:7].flatten(1), wanted)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_every_level_of_grey_is_recognized_in_both_precisions(tmp_path, kind):
    content = leaf(ann=([0] * 256, [0] * 256))
    for level, image in enumerate(content["user_data"]["ann"]["x"]):
        image[0] = float(kind(level / 255))
    content["user_data"]["ann"]["x"][0][0] = 0
    save(tmp_path / "a.json", content)
    dataset = data.femnist(tmp_path, test=0)
    assert dataset.inputs.dtype == torch.uint8
    assert first_pixels(dataset) == list(range(256))


@pytest.mark.slow
def test_memory_holds_the_lists_of_one_writer_at_a_time(tmp_path):
    for part in range(3):
        save(
            tmp_path / f"{part}.json",
            leaf(**{f"{part}-{i}": (range(20), [0] * 20) for i in range(40)}),
        )
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


def test_users_who_are_not_listed_are_passed_over(root):
    """LEAF's split leaves users with a single example in user_data, without examples."""
    content = leaf(kim=([1], [0]), lee=([2], [0]))
    content["user_data"]["gone"] = {"x": [], "y": []}
    content["hierarchies"] = ["a", "b"]
    save(root / "train" / "more.json", content)
    assert len(data.femnist(root).train) == 8


def test_a_file_that_cannot_be_read_is_named(root):
    (root / "train" / "gone.json").symlink_to("nowhere")
    with pytest.raises(
        OSError, match=r"`root` must hold files that can be read, .*gone.json cannot"
    ):
        data.femnist(root)


@pytest.mark.parametrize("name", ["train/other.json", "test/other.json"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_not_opened(root, name, make):
    make(root / name)
    with pytest.raises(
        ValueError, match=r"`root` must hold regular files, got .*other.json, which is"
    ):
        data.femnist(root)


def test_a_writer_in_two_files_is_refused(root):
    save(root / "train" / "copy.json", leaf(eve=([4], [0])))
    with pytest.raises(
        ValueError,
        match=r"each writer in one file .* got 'eve' in .*all_data_0.json and in .*copy.json",
    ):
        data.femnist(root)


def test_what_is_missing_is_said(tmp_path):
    message = (
        r"`root` must hold FEMNIST as train/\*.json .*, got none in .*; "
        r"make them .* ./preprocess.sh -s niid"
    )
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match=message):
            data.femnist(path)
    save(tmp_path / "test" / "a.json", leaf(ann=([1], [0])))
    with pytest.raises(FileNotFoundError, match=message):
        data.femnist(tmp_path)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            {"classes": "B"},
            ValueError,
            "`classes` must have training examples, got 'B', of which .* has none",
        ),
        ({"classes": "9"}, ValueError, "`classes` must have training examples"),
        (
            {"test": 0.1},
            ValueError,
            "`test` must be None if there are test files, such as .*all_data_0.json, got 0",
        ),
        ({"seed": -1}, ValueError, "`seed`"),
        ({"seed": None}, TypeError, "`seed`"),
    ],
)
def test_refuses(root, call, error, match):
    with pytest.raises(error, match=match):
        data.femnist(root, **call)


@pytest.mark.parametrize(("test", "error"), [(1, ValueError), (-0.1, ValueError), ("a", TypeError)])
def test_refuses_shares(tmp_path, test, error):
    save(tmp_path / "a.json", leaf(ann=([1], [0])))
    with pytest.raises(error, match="`test`"):
        data.femnist(tmp_path, test=test)


def test_configured_with_natural_clients(root, monkeypatch):
    monkeypatch.chdir(root)
    table = {"name": "femnist", "root": ".", "partition": "natural", "min_size": 1, "seed": 0}
    tables = {"data": table, "algorithm": "local_only,lr=0.1", "run": {"rounds": 1}}
    experiment = config.build(tables | {"model": "dpfl_femnist_cnn"})
    wanted = data.natural(data.femnist(root), min_size=1, seed=0)
    assert experiment.clients.name == wanted.name == "natural(femnist, n=3, min_size=1)"
    assert experiment.tables["data"]["root"] == os.path.abspath(root)
    again = config.build(experiment.tables).clients
    assert (
        [own.tolist() for own in again.train]
        == [own.tolist() for own in wanted.train]
        == [[0, 1, 2], [3], [4, 5]]
    )
    assert models.dpfl_femnist_cnn(n_classes=62)(again.dataset.examples([0])).shape == (1, 62)
