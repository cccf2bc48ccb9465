"""Files in another layout than LEAF's, and damaged ones, which are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.readers.leaf_files import images, leaf, save
from topofl import data


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
