"""Text files become sequences of tokens, labeled by file."""

import numpy as np
import pytest
import torch

from topofl import data

TEXT = {"b": "the quick brown fox", "a": "größe", "c": "x" * 9}


@pytest.fixture
def folder(tmp_path):
    for name, text in TEXT.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "notes.md").write_bytes(b"\xff")
    return tmp_path


@pytest.mark.parametrize("vocabulary", [None, "".join(sorted(set("".join(TEXT.values()))))])
def test_inputs_and_targets_are_consecutive_tokens_of_one_file(folder, vocabulary):
    dataset = data.text_files(folder, length=3, vocabulary=vocabulary, test=0)
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.inputs.dtype == dataset.targets.dtype == torch.int64
    assert dataset.owners.tolist() == dataset.labels.tolist()
    for k, name in enumerate(dataset.class_names):
        text = TEXT[name]
        tokens = list(text.encode()) if vocabulary is None else [vocabulary.index(c) for c in text]
        found = [
            [*x.tolist(), y[-1].item()]
            for x, y, label in zip(dataset.inputs, dataset.targets, dataset.labels, strict=True)
            if label == k
        ]
        assert found == [tokens[i : i + 4] for i in range(0, len(tokens) - 3, 4)]
    assert torch.equal(dataset.inputs[:, 1:], dataset.targets[:, :-1])


def test_shares_are_held_out_by_the_seed(folder):
    (folder / "long.txt").write_text("abcd" * 100)
    one, two = (data.text_files(folder, length=3, test=0.2, val=0.1, seed=s) for s in (0, 1))
    assert len(one.test) == len(two.test) == round(0.2 * len(one.labels))
    assert not np.array_equal(one.test, two.test)
    assert len(one.val) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "abca"}, "`vocabulary` must have each character once, got 'a' twice"),
        (
            {"vocabulary": "größe", "length": 3},
            "`vocabulary` must have all characters of the files, ' ' of .*b.txt",
        ),
        ({"length": 7}, "`length` must be below the number of tokens in each file, got 7 and 7 "),
        ({"length": 0}, "`length` must be at least 1"),
        ({"test": 1.0}, "`test`"),
    ],
)
def test_refused(folder, options, message):
    with pytest.raises(ValueError, match=message):
        data.text_files(folder, **options)
    data.text_files(folder, length=6)


def test_files_that_are_missing_or_no_text_are_named(folder, tmp_path):
    (folder / "d.txt").write_bytes(b"abc\xff")
    with pytest.raises(ValueError, match=r"UTF-8, got another encoding in .*d\.txt: .* at byte 3"):
        data.text_files(folder, length=3)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"`root` must hold \*\.txt files"):
        data.text_files(empty)
