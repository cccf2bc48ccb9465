"""Partitioners: arguments of each for any dataset, and small datasets to divide."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

from topofl import data

NONE = np.zeros(0, np.int64)


def toy(train=(6, 6, 6), test=(2,), **changes):
    """Return `train[c]` training, then `test[c]` test examples of each class c, by place."""
    labels = np.concatenate([np.repeat(np.arange(len(sizes)), sizes) for sizes in (train, test)])
    parts = np.arange(sum(train)), NONE, np.arange(sum(train), len(labels))
    inputs = torch.arange(float(len(labels)))[:, None]
    return data.Dataset(inputs, torch.from_numpy(labels), len(train), "toy", *parts, **changes)


def clients_with(label_counts, test=(2,)):
    """Return nodes with these numbers of training examples of each class."""
    label_counts = np.array(label_counts)
    whole = toy(label_counts.sum(axis=0), test)
    node = np.concatenate([np.repeat(np.arange(len(label_counts)), own) for own in label_counts.T])
    train = [np.flatnonzero(node == k) for k in range(len(label_counts))]
    return data.Partition(whole, train, name="toy")


def lists(nodes):
    return [indices.tolist() for indices in nodes]


def counted(clients, part="test"):
    """Return how many examples of each class each node has in a part."""
    labels, size = clients.dataset.labels.numpy(), clients.n_classes
    return [np.bincount(labels[own], minlength=size).tolist() for own in getattr(clients, part)]


def stock(dataset):
    return np.bincount(dataset.labels.numpy()[dataset.train], minlength=dataset.n_classes)


@st.composite
def datasets(draw):
    """Skewed classes, some without training examples, held-out examples in between."""
    n_classes = draw(st.integers(1, 6))
    labels = np.array(draw(st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=80)))
    use = np.array(draw(st.lists(st.integers(0, 5), min_size=len(labels), max_size=len(labels))))
    use[draw(st.integers(0, len(labels) - 1))] = 2
    parts = (np.flatnonzero(part) for part in (use >= 2, use == 1, use == 0))
    inputs = torch.arange(float(len(labels)))[:, None]
    return data.Dataset(inputs, torch.from_numpy(labels), n_classes, "any", *parts)


@st.composite
def partitions(draw, of=datasets(), seeds=st.integers(0, 1000)):  # noqa: B008 - a strategy
    """Any dataset, divided by any partitioner."""
    dataset, name = draw(of), draw(st.sampled_from(list(ROWS)))
    return getattr(data, name)(dataset, **ROWS[name].draw(draw, dataset), seed=draw(seeds))


ALPHAS = st.one_of(st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e6]), st.floats(1e-3, 100))


def any_n(draw, dataset):
    n_train = len(dataset.train)
    return draw(st.one_of(st.integers(1, n_train), st.just(n_train)))


def iid(draw, dataset):
    return {"n": any_n(draw, dataset)}


def shards(draw, dataset):
    n = any_n(draw, dataset)
    return {"n": n, "per_node": draw(st.integers(1, len(dataset.train) // n))}


def power_law(draw, dataset):
    n = any_n(draw, dataset)
    min_size = draw(st.integers(1, len(dataset.train) // n))
    return {"n": n, "exponent": draw(st.floats(0, 4)), "min_size": min_size}


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


def extended_dirichlet(draw, dataset):
    counts = stock(dataset)[stock(dataset) > 0]
    n = draw(st.integers(1, int(counts.min())))
    classes = draw(st.integers(-(-len(counts) // n), len(counts)))
    min_size = draw(st.integers(1, int(counts.min()) // n))
    return {"n": n, "classes_per_node": classes, "alpha": draw(ALPHAS), "min_size": min_size}


def pathological_shared(draw, dataset):
    counts = np.cumsum(np.sort(stock(dataset)[stock(dataset) > 0]))
    classes = draw(st.integers(1, len(counts)))
    n_train = len(dataset.train)
    least = n_train // (int(counts[classes - 1]) + 1) + 1
    n = draw(st.one_of(st.integers(least, n_train), st.just(least)))
    return {"n": n, "classes_per_node": classes}


class Row(NamedTuple):
    """Arguments that exist for a dataset, those for a small one, and whether nodes share."""

    draw: Callable[..., dict[str, Any]]
    plain: Mapping[str, Any] = MappingProxyType({})
    is_sharing: bool = False


TWO = {"classes_per_node": 2}
ROWS = {
    "shards": Row(shards),
    "iid": Row(iid),
    "power_law": Row(power_law),
    "dirichlet_per_client": Row(dirichlet_per_client, {"alpha": 0.5}),
    "dirichlet_per_class": Row(dirichlet_per_class, {"alpha": 0.5, "min_size": 1}),
    "one_class_per_node": Row(iid),
    "pathological": Row(pathological, TWO),
    "pathological_dirichlet": Row(pathological_dirichlet, TWO | {"min_per_class": 1}),
    "extended_dirichlet": Row(extended_dirichlet, TWO | {"alpha": 0.5, "min_size": 1}),
    "pathological_shared": Row(pathological_shared, TWO, is_sharing=True),
}
