"""FEMNIST in the files of LEAF: what is read in which order, and what is refused."""

import json
import os
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl import config, data, models


def images(*levels):
    """Return images as LEAF writes them: a first pixel of one of these levels, then ones."""
    return [[level / 255, *[1.0] * 783] for level in levels]


def leaf(**writers):
    """Return LEAF's object: for each writer (levels, labels)."""
    return {
        "users": list(writers),
        "num_samples": [len(labels) for _, labels in writers.values()],
        "user_data": {
            name: {"x": images(*levels), "y": list(labels)}
            for name, (levels, labels) in writers.items()
        },
    }


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


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


def test_users_may_have_any_names(tmp_path):
    save(tmp_path / "a.json", leaf(**{"x": ([1], [0]), "y": ([2], [1]), "": ([3], [2])}))
    assert data.femnist(tmp_path, test=0).owners.tolist() == [0, 1, 2]


def edited(change):
    content = leaf(ann=([1, 2], [0, 1]), bob=([3], [2]))
    change(content)
    return content


def of_ann(key, value):
    def change(content):
        content["user_data"]["ann"][key] = value

    return change


WIDE = [[1.0] * 783, [1.0] * 784]
HUGE = 10**400


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            of_ann("x", WIDE),
            r"784 numbers in \[0, 1\] .*, got an image of 783 numbers for 'ann' in .*a.json; "
            "make the",
        ),
        (of_ann("x", [1.0, 2.0]), "got the image 1.0 for 'ann'"),
        (
            of_ann("x", [[[1.0]] * 784] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [[[1.0], *[1.0] * 783]] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [["1", *[1.0] * 783]] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [[None, *[1.0] * 783]] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [[HUGE, *[1.0] * 783]] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [[True] * 784] * 2),
            "got an image with entries other than numbers for 'ann'",
        ),
        (
            of_ann("x", [[255, *[0] * 783]] * 2),
            r"divide pixels by 255.*got a pixel of 255 for 'ann'",
        ),
        (of_ann("x", [[-1e-9, *[0] * 783]] * 2), "got a pixel of -1e-09 for 'ann'"),
        (of_ann("x", [[float("nan"), *[0] * 783]] * 2), "got a pixel of nan for 'ann'"),
        (of_ann("x", images(1)), "got 1 images and 2 labels of 'ann', and num_samples 2"),
        (of_ann("y", [0]), "got 2 images and 1 labels of 'ann', and num_samples 2"),
        (of_ann("y", [0, 62]), r"labels in 0..61, got the label 62 for 'ann'"),
        (of_ann("y", [0, -1]), "got the label -1 for 'ann'"),
        (of_ann("y", [0, 1.5]), "got the label 1.5 for 'ann'"),
        (of_ann("y", [0, HUGE]), "got the label 1000.* for 'ann'"),
        (of_ann("y", [0, float("nan")]), "got the label nan for 'ann'"),
        (of_ann("y", [0, True]), "got the label True for 'ann'"),
        (of_ann("y", [0, "1"]), "got the label '1' for 'ann'"),
        (of_ann("y", [[0], [1]]), r"got the label \[0\] for 'ann'"),
        (
            of_ann("y", 3),
            (
                "examples of every user, as lists x and y .*, got none of 'ann' in .*a.json; "
                "remove the name"
            ),
        ),
        (
            lambda content: content["user_data"].pop("ann"),
            "examples of every user, .* got none of 'ann'",
        ),
        (
            lambda content: content["user_data"].update(ann={"x": [], "y": []}),
            "got no images for 'ann'",
        ),
        (
            lambda content: content["num_samples"].__setitem__(0, 3),
            "2 labels of 'ann', and num_samples 3 in .*a.json",
        ),
        (
            lambda content: content["num_samples"].__setitem__(0, "2"),
            "2 labels of 'ann', and num_samples '2'",
        ),
        (
            lambda content: content["num_samples"].pop(),
            "got 2 users, 2 of them different, and 1 numbers in .*a.json",
        ),
        (
            lambda content: content["users"].append("ann"),
            "got 3 users, 2 of them different, and 2 numbers",
        ),
        (
            lambda content: content["users"].append(3),
            "a list of names users, .* got something else in .*a.json",
        ),
        (lambda content: content["users"].append([]), "a list of names users"),
        (lambda content: content.pop("users"), "a list of names users"),
        (lambda content: content.pop("num_samples"), "a list num_samples and an object user_data"),
        (
            lambda content: content.update(user_data=[]),
            "an object user_data, got something else .*; move other files",
        ),
    ],
)
def test_files_in_another_layout_are_refused(tmp_path, change, match):
    save(tmp_path / "a.json", edited(change))
    with pytest.raises(ValueError, match=f"`root` must hold .*{match}"):
        data.femnist(tmp_path)


WHOLE = json.dumps(leaf(ann=([1, 2], [0, 1]))).encode()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (WHOLE[:-1], "is damaged or incomplete .*; copy it again"),
        (WHOLE[:999], "is damaged or incomplete"),
        (b"", "is damaged or incomplete"),
        (b"\xff\xfe\xfa", "is damaged or incomplete"),
        (b"[" * 100_000, "is damaged or incomplete"),
        (b"9" * 5000, "is damaged or incomplete"),
        (WHOLE + b"x", "is damaged or incomplete"),
        (b"[]", "got something else"),
        (b"{}", "got something else"),
        (b"null", "got something else"),
        (b'{"x": [], "y": []}', "got something else"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, match):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=f"`root` must hold .*a.json.*{match}|`root` must hold .*{match}.*a.json"
    ):
        data.femnist(tmp_path)


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


scalars = st.none() | st.booleans() | st.integers(-1, 70) | st.floats() | st.text(max_size=2)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyab"), inner, max_size=3)
    ),
)
of_writers = st.fixed_dictionaries(
    {
        "x": anything | st.lists(st.just([1.0] * 784), max_size=3),
        "y": anything | st.lists(st.integers(0, 61)),
    }
)
contents = st.fixed_dictionaries(
    {
        "users": st.lists(st.sampled_from("abxy"), max_size=3) | anything,
        "num_samples": st.lists(st.integers(0, 3), max_size=3) | anything,
        "user_data": st.dictionaries(st.sampled_from("abxy"), of_writers | anything, max_size=4)
        | anything,
    }
)


@given(contents | anything)
def test_any_json_is_read_or_refused_by_file(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("json")
    save(folder / "a.json", content)
    try:
        dataset = data.femnist(folder)
    except ValueError as error:
        message = str(error)
    else:
        assert len(dataset.train) > 0
        return
    assert "`root`" in message or "`classes`" in message
    assert str(folder) in message


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
