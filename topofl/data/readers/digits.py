"""Handwritten digits that are included in scikit-learn."""

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from topofl._support.check import check_int
from topofl._support.machine import total_memory
from topofl._support.seeding import stream
from topofl.data._labels import stratified
from topofl.data.dataset import Dataset, reader, with_notes

__all__ = ["digits"]


@reader
def digits(
    *, test: int = 300, val: int = 0, seed: int | np.random.Generator = 0, enlarge: int = 1
) -> Dataset:
    """Return the 1,797 handwritten digits of scikit-learn, a real dataset that needs no files.

    Parameters
    ----------
    test, val
        Numbers of examples held out at random, in the class proportions as far as whole numbers
        allow.
    seed
        Seed of their choice.
    enlarge
        Each pixel is repeated `enlarge` x `enlarge` times. With 2, images are large enough for
        ``models.gn_lenet((1, 16, 16))``. The name of the dataset then states the size.

    Returns
    -------
    Dataset
        Inputs (1797, 1, 8, 8), or (1797, 1, 8 * enlarge, 8 * enlarge): float32 pixels / 16, in [0,
        1].

    Raises
    ------
    ValueError
        If no examples would remain for training, or the images do not fit into memory.

    References
    ----------
    Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning
    Repository.

    Examples
    --------
    >>> digits(test=200, val=100)
    Dataset('digits', inputs=(1797, 1, 8, 8), n_classes=10, train=1497, val=100, test=200)
    >>> digits(enlarge=2)
    Dataset('digits (16 x 16 pixels)', inputs=(1797, 1, 16, 16), n_classes=10, train=1497, \
val=0, test=300)
    """
    pixels, labels = _pixels_and_labels()
    test = check_int("test", test, minimum=0, maximum=len(labels) - 1)
    val = check_int(
        "val",
        val,
        minimum=0,
        maximum=len(labels) - 1 - test,
        remedy="one example must remain for training",
    )
    enlarge = check_int("enlarge", enlarge, minimum=1)
    if (needed := 4 * pixels.size * enlarge**2) > (total_memory() or math.inf):
        raise ValueError(
            f"`enlarge` must be small enough for images to fit into memory, got {enlarge}: "
            f"{needed / 2**30:.3g} GiB"
        )
    rng = stream(seed, "split")
    test_indices, rest = stratified(np.arange(len(labels)), labels, test, rng)
    val_indices, train = stratified(rest, labels, val, rng)
    inputs = torch.from_numpy((pixels / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    inputs = inputs.repeat_interleave(enlarge, 2).repeat_interleave(enlarge, 3)
    name = with_notes("digits", f"{8 * enlarge} x {8 * enlarge} pixels" if enlarge > 1 else "")
    return Dataset(inputs, torch.from_numpy(labels), 10, name, train, val_indices, test_indices)


def _pixels_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels (1797, 64), float64 in [0, 16], and the labels (1797,), int64.

    They are read from the file of scikit-learn, whose import takes about a second.
    """
    spec = find_spec("sklearn")
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits  # of a version with another layout, or none

    pixels, classes = (np.asarray(array) for array in load_digits(return_X_y=True))
    return pixels, classes.astype(np.int64)
