"""Datasets of any shape, and arguments of every partitioner for them."""

import numpy as np
import torch
from hypothesis import strategies as st

from topofl import data
from topofl.data import partitioners

ALPHAS = st.one_of(st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e6]), st.floats(1e-3, 100))


@st.composite
def datasets(draw):
    """Skewed classes, some without training examples, held-out examples in between."""
    n_classes = draw(st.integers(1, 6))
    labels = np.array(draw(st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=80)))
    use = np.array(draw(st.lists(st.integers(0, 5), min_size=len(labels), max_size=len(labels))))
    use[draw(st.integers(0, len(labels) - 1))] = 2
    train, val, test = (np.flatnonzero(part) for part in (use >= 2, use == 1, use == 0))
    return data.Dataset(
        torch.zeros(len(labels), 1), torch.from_numpy(labels), n_classes, "any", train, val, test
    )


def stock(dataset):
    return np.bincount(dataset.labels.numpy()[dataset.train], minlength=dataset.n_classes)


def any_n(draw, dataset):
    n_train = len(dataset.train)
    return draw(st.one_of(st.integers(1, n_train), st.just(n_train)))


def shards(draw, dataset):
    n = any_n(draw, dataset)
    return {"n": n, "per_node": draw(st.integers(1, len(dataset.train) // n))}


def iid(draw, dataset):
    return {"n": any_n(draw, dataset)}


def dirichlet_per_client(draw, dataset):
    return {"n": any_n(draw, dataset), "alpha": draw(ALPHAS)}


def dirichlet_per_class(draw, dataset):
    n = any_n(draw, dataset)
    limit = len(dataset.train) // n
    min_size = draw(st.one_of(st.integers(1, limit), st.just(limit)))
    return {"n": n, "alpha": draw(ALPHAS), "min_size": min_size}


def pathological(draw, dataset):
    counts = stock(dataset)[stock(dataset) > 0]
    classes = draw(st.integers(1, len(counts)))
    most = max(1, int(counts.min()) * len(counts) // classes)
    return {"n": draw(st.integers(1, most)), "classes_per_node": classes}


def pathological_dirichlet(draw, dataset):
    fewest = int(stock(dataset)[stock(dataset) > 0].min())
    n = draw(st.integers(1, fewest))
    classes = draw(st.integers(1, int((stock(dataset) > 0).sum())))
    least = draw(st.integers(1, fewest // n))
    return {"n": n, "classes_per_node": classes, "alpha": draw(ALPHAS), "min_per_class": least}


def pathological_shared(draw, dataset):
    counts = np.cumsum(np.sort(stock(dataset)[stock(dataset) > 0]))
    classes = draw(st.integers(1, len(counts)))
    n_train = len(dataset.train)
    least = n_train // (int(counts[classes - 1]) + 1) + 1
    return {
        "n": draw(st.one_of(st.integers(least, n_train), st.just(least))),
        "classes_per_node": classes,
    }


one_class_per_node = iid


ARGUMENTS = {
    "shards": shards,
    "iid": iid,
    "dirichlet_per_client": dirichlet_per_client,
    "dirichlet_per_class": dirichlet_per_class,
    "one_class_per_node": one_class_per_node,
    "pathological": pathological,
    "pathological_dirichlet": pathological_dirichlet,
    "pathological_shared": pathological_shared,
}
"""For each partitioner, arguments that exist for a dataset."""


NAMES = [name for name in partitioners.__all__ if name != "natural"]


def lists(nodes):
    return [indices.tolist() for indices in nodes]
