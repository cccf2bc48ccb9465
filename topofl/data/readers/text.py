"""Reader of plain text: sequences of characters or bytes, with the file that they are from."""

import os

import numpy as np

from topofl._support.check import check_fraction, check_int, check_path, shown
from topofl._support.files import read_file
from topofl._support.seeding import Seed
from topofl.data.arrays import from_arrays
from topofl.data.dataset import Dataset, reader, with_notes

__all__ = ["text_files"]


@reader
def text_files(
    root: str | os.PathLike[str] | None = None,
    *,
    length: int = 64,
    vocabulary: str | None = None,
    test: float = 0.1,
    val: float = 0.0,
    seed: Seed = 0,
) -> Dataset:
    """Return sequences of tokens from the text files of a folder, to predict the next token.

    Each file is cut into consecutive sequences of ``length + 1`` tokens, the rest of it is left
    out: the first `length` are the inputs of an example, and the last `length` its targets, as
    :func:`topofl.tasks.next_token` expects. The class of a sequence is its file, such as a topic or
    an author: partitioners by label give nodes some of the files.

    Parameters
    ----------
    root
        Folder with ``*.txt`` files in UTF-8. None: the environment variable TOPOFL_DATA.
    length
        Number of tokens that a model sees at once.
    vocabulary
        The characters, of which token k is the k-th. None: tokens are bytes of UTF-8, 0 to 255.
    test, val
        Shares of the sequences of all files to use for test and validation, drawn at random.
    seed
        Seed of this draw.

    Returns
    -------
    Dataset
        Inputs and targets (N, length) int64. Classes are the names of the files without ``.txt``,
        in alphabetical order; `owners` are the same numbers, for :func:`natural`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    OSError
        If a file cannot be read.
    TypeError
        If `vocabulary` is not text.
    ValueError
        If a file is not UTF-8, has a character that is not in `vocabulary`, or is too short for a
        sequence; if a character is in `vocabulary` twice.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ann.txt").write_text("abcabcabcabc")
    ...     _ = Path(folder, "bob.txt").write_text("cbacbacbacba")
    ...     dataset = text_files(folder, length=3, vocabulary="abc", test=0.0)
    >>> dataset.name, dataset.class_names, len(dataset.labels)
    ('text_files (characters)', ('ann', 'bob'), 6)
    >>> dataset.inputs[0].tolist(), dataset.targets[0].tolist()
    ([0, 1, 2], [1, 2, 0])
    """
    place, length = check_path("root", root), check_int("length", length, minimum=1)
    test, val = check_fraction("test", test), check_fraction("val", val)
    if vocabulary is not None and not isinstance(vocabulary, str):
        raise TypeError(f"`vocabulary` must be text, or None for bytes, got {shown(vocabulary)}")
    if vocabulary is not None and len(set(vocabulary)) < len(vocabulary):
        twice = next(c for c in vocabulary if vocabulary.count(c) > 1)
        raise ValueError(f"`vocabulary` must have each character once, got {twice!r} twice")
    files = sorted(place.glob("*.txt"))
    if not files:
        raise FileNotFoundError(f"`root` must hold *.txt files, got {shown(str(place))}")
    parts = [_sequences(_tokens(read_file(path), vocabulary, path), length, path) for path in files]
    sequences = np.concatenate(parts)
    labels = np.repeat(np.arange(len(files)), list(map(len, parts)))
    return from_arrays(
        sequences[:, :-1],
        labels,
        targets=sequences[:, 1:],
        class_names=[path.stem for path in files],
        owners=labels,
        test=test or None,
        val=val or None,
        seed=seed,
        name=with_notes("text_files", "bytes" if vocabulary is None else "characters"),
    )


def _tokens(content: bytes, vocabulary: str | None, path: os.PathLike[str]) -> np.ndarray:
    """Return the tokens of a file: its bytes, or the positions of its characters."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`root` must hold text in UTF-8, got another encoding in {path}: {error.reason} at "
            f"byte {error.start}"
        ) from error
    if vocabulary is None:
        return np.frombuffer(content, np.uint8).astype(np.int64)
    place_of = {character: k for k, character in enumerate(vocabulary)}
    if unknown := sorted(set(text) - place_of.keys()):
        raise ValueError(
            f"`vocabulary` must have all characters of the files, {unknown[0]!r} of {path} is not "
            f"in it ({len(unknown)} such characters); None reads bytes"
        )
    return np.array([place_of[character] for character in text], dtype=np.int64)


def _sequences(tokens: np.ndarray, length: int, path: os.PathLike[str]) -> np.ndarray:
    """Return consecutive sequences, (k, length + 1)."""
    count = len(tokens) // (length + 1)
    if not count:
        raise ValueError(
            f"`length` must be below the number of tokens in each file, got {length} and "
            f"{len(tokens)} tokens in {path}; use shorter sequences, or leave this file out"
        )
    return tokens[: count * (length + 1)].reshape(count, length + 1)
