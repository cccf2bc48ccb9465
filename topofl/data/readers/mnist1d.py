"""MNIST-1D: signals that are made by the package of its authors."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from topofl._support.check import check_int
from topofl._support.plugins import imported
from topofl._support.seeding import Seed
from topofl.data.dataset import Dataset, reader

__all__ = ["mnist1d"]

LARGEST = 1_000_000
"""Most examples of a dataset; a million takes minutes to make."""


@reader
def mnist1d(*, train: int = 4000, val: int = 0, test: int = 1000, seed: Seed = 42) -> Dataset:
    """Return MNIST-1D, signals in the shape of ten digits, made by the package of its authors.

    A signal is the template of its class: padded, scaled, shifted by up to 48 of 72 places, with
    noise and a slope, and sampled at 40 places. Since a template may stand anywhere, it is made for
    convolutions rather than linear models. There are as many examples as are asked for, and other
    seeds make others.

    Parameters
    ----------
    train, val, test
        Numbers of examples, which together are a multiple of 10: classes are equally frequent.
    seed
        Seed of all examples, below 2**32. The defaults make the dataset of the authors' defaults.

    Returns
    -------
    Dataset
        Inputs (N, 1, 40), float32, with mean 0 and standard deviation 1 over all of them, as the
        package makes them; training examples come first, test examples last.

    Raises
    ------
    ModuleNotFoundError
        If the package mnist1d, an extra of topofl of this name, is not installed.
    ValueError
        If the examples are not a multiple of 10, none is for training, or they are too many.

    Notes
    -----
    Data card. Content: synthetic, without people or personal data. Source: the package ``mnist1d``
    of Sam Greydanus, Peter Steinbach and others, which is called, not copied. License: Apache 2.0.
    Use: comparing methods and architectures cheaply; accuracies say nothing about images. The
    package draws from the global generators of numpy and Python, whose states are restored.

    References
    ----------
    Greydanus and Kobak, "Scaling down deep learning with MNIST-1D" (ICML 2024), arXiv:2011.14439.

    Examples
    --------
    >>> mnist1d(train=50, test=20)
    Dataset('mnist1d', inputs=(70, 1, 40), n_classes=10, train=50, val=0, test=20)
    """
    sizes = [
        check_int(name, size, minimum=least, maximum=LARGEST)
        for name, size, least in (("train", train, 1), ("val", val, 0), ("test", test, 0))
    ]
    if sum(sizes) % 10:
        raise ValueError(
            f"`train`, `val` and `test` must together be a multiple of 10, got {sum(sizes)}; every "
            "class has equally many examples"
        )
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**32))
    args = {
        "seed": check_int("seed", seed, minimum=0, maximum=2**32 - 1),
        "num_samples": sum(sizes),
    }
    package = imported("mnist1d.data", "mnist1d", "`data.mnist1d`", name="the package mnist1d")
    defaults = package.get_dataset_args(as_dict=True)
    with _global_generators_restored():
        made = package.make_dataset(package.ObjectView({**defaults, **args}))
    signals = np.concatenate([made["x"], made["x_test"]]).astype(np.float32)
    labels = np.concatenate([made["y"], made["y_test"]]).astype(np.int64)
    splits = np.split(np.arange(len(labels)), np.cumsum(sizes[:-1]))
    return Dataset(
        torch.from_numpy(signals)[:, None], torch.from_numpy(labels), 10, "mnist1d", *splits
    )


@contextlib.contextmanager
def _global_generators_restored() -> Iterator[None]:
    """Restore the global generators of numpy and Python after a ``with`` block."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])
