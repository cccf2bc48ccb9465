"""The settings of the race: what is learned, by whom, on which data, and where that is defined."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from topofl import data, mixing, topologies

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """The work of one table: all peers get the same fields and arrays.

    Parameters
    ----------
    label, title, source
        Letter, one line for people, and where the setting is defined: file and version.
    peers
        The peers that can do this work.
    arrays
        ``arrays(setting, images, rng)`` makes the data: ``x, y, x_test, y_test``; ``owned``, the
        indices of each client's examples; of gossip, ``weights``, the mixing matrix.
    n, rounds
        Clients and rounds.
    model
        ``"cnn"``, or the widths of a perceptron, such as ``"784-10"``; empty: no network.
    cohort
        Clients that take part in a round of a server; 0: all gossip over a graph.
    lr, batch, epochs, momentum, decay
        Local steps of SGD; 0 epochs: one step per round.
    test
        Number of test examples.
    """

    label: str
    title: str
    source: str
    peers: tuple[str, ...]
    arrays: Callable[["Setting", data.Dataset | None, np.random.Generator], Arrays]
    n: int
    rounds: int
    model: str = ""
    cohort: int = 0
    lr: float = 0.1
    batch: int = 32
    epochs: int = 1
    momentum: float = 0.0
    decay: float = 0.0
    examples: int = 0
    test: int = 0

    def spec(self, seed: int) -> dict[str, Any]:
        """Return the fields that drivers read, as JSON."""
        keys = ("label", "n", "rounds", "model", "cohort", "lr", "batch", "epochs")
        return {key: getattr(self, key) for key in (*keys, "momentum", "decay")} | {"seed": seed}


def made(setting: Setting, shape: tuple[int, int, int], rng: np.random.Generator) -> Arrays:
    """Return images of bytes: noise around a faint pattern of blocks for each of 10 classes."""
    total = setting.examples + setting.test
    labels = rng.permutation(np.arange(total) % 10)
    channels, height, width = shape
    blocks = rng.normal(scale=25, size=(10, channels, height // 4, width // 4))
    faint = blocks.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)
    images = np.empty((total, *shape), np.uint8)
    for rows in np.array_split(np.arange(total), max(1, total // 1000)):
        noise = rng.standard_normal((len(rows), *shape), dtype=np.float32)
        images[rows] = np.clip(128 + faint[labels[rows]] + 60 * noise, 0, 255)
    return _split(images, labels, setting.test)


def _split(inputs: np.ndarray, labels: np.ndarray, test: int) -> Arrays:
    held = len(inputs) - test
    return {
        "x": inputs[:held], "y": labels[:held], "x_test": inputs[held:], "y_test": labels[held:],
    }  # fmt: skip


def iid_cifar(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return made color images, and clients with as many of them, drawn at random."""
    arrays = made(setting, (3, 32, 32), rng)
    return arrays | {"owned": rng.permutation(len(arrays["x"])).reshape(setting.n, -1)}


def digits(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return images of MNIST, or made ones of its shape if there are none."""
    if images is None:
        return made(setting, (1, 28, 28), rng)
    used = rng.permutation(images.train)[: setting.examples]
    tested = rng.permutation(images.test)[: setting.test]
    order = np.concatenate([used, tested])
    return _split(images.inputs[order].numpy(), np.asarray(images.labels)[order], setting.test)


def iid_digits(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return digits, and clients with as many of them, drawn at random."""
    arrays = digits(setting, images, rng)
    return arrays | {"owned": rng.permutation(len(arrays["x"])).reshape(setting.n, -1)}


def spam(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return two classes of 57 features, as spambase has, over a random 20-regular graph."""
    total = setting.examples + setting.test
    labels = (rng.random(total) < 0.394).astype(np.int64)
    inputs = rng.normal(size=(total, 57)) + 0.3 * labels[:, None] * rng.normal(size=57)
    arrays = _split(inputs.astype(np.float32), labels, setting.test)
    graph = topologies.random_regular(setting.n, min(20, setting.n - 1), seed=42)
    owned = np.arange(setting.examples).reshape(setting.n, -1)
    return arrays | {"owned": owned, "weights": mixing.uniform(graph).weights.toarray()}


def cliques(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return digits, clients with two classes, and D-Cliques with uniform weights over them."""
    arrays = digits(setting, images, rng)
    shards = np.argsort(arrays["y"], kind="stable").reshape(2 * setting.n, -1)
    owned = shards[rng.permutation(2 * setting.n)].reshape(setting.n, -1)
    counts = np.stack([np.bincount(arrays["y"][own], minlength=10) for own in owned])
    graph = topologies.dcliques(counts, clique_size=10, steps=10 * setting.n, seed=0)
    return arrays | {"owned": owned, "weights": mixing.uniform(graph).weights.toarray()}


def quadratics(setting: Setting, images: data.Dataset | None, rng: np.random.Generator) -> Arrays:
    """Return 1/2 x'Ax + b'x in 10 dimensions for each agent, over the complete graph."""
    draws = rng.random((setting.n, 10, 10), np.float32)
    matrices = (draws + draws.transpose(0, 2, 1)) / 2 + 10 * np.eye(10, dtype=np.float32)
    vectors = 10 * rng.standard_normal((setting.n, 10), np.float32)
    weights = np.full((setting.n, setting.n), 1 / setting.n)
    owned = np.arange(setting.n)[:, None]
    return {"matrices": matrices, "vectors": vectors, "weights": weights, "owned": owned}


SERVERS = ("topofl", "pfl", "fluke", "flower")
D = Setting(
    "D100",
    "D-SGD on D-Cliques of 10, 100 nodes with 2 classes each: MNIST, logistic regression, "
    "batch 128, uniform weights",
    "Bellet, Kermarrec and Lavoie (2022); weights are uniform since gossipy's own are not of sum 1",
    ("topofl", "gossipy"),
    cliques, n=100, rounds=100, model="784-10", batch=128, epochs=0, examples=50_000, test=10_000,
)  # fmt: skip
B = Setting(
    "B",
    "FedAvg: 100 clients, 20 per round, 784-200-100-10 on MNIST, 10 epochs of batch 64, "
    "momentum 0.9 from zero in each round",
    "fluke 0.8.1, configs/exp.yaml and configs/fedavg.yaml, without clients' own test sets and "
    "with persistency off, so that momentum starts anew in each round",
    SERVERS, iid_digits, n=100, cohort=20, rounds=8, model="784-200-100-10", lr=0.01, batch=64,
    epochs=10, momentum=0.9, decay=1e-5, examples=60_000, test=10_000,
)  # fmt: skip
SETTINGS = (
    Setting(
        "A",
        "FedAvg: 1,000 users of 50 images, 50 per round, a CNN of 1.63 million parameters with "
        "dropout, one epoch of batch 10",
        "pfl 0.6.0, benchmarks/image_classification/configs/baseline.yaml (cifar10_iid, "
        "simple_cnn); images of the shape of CIFAR-10 are made",
        SERVERS, iid_cifar, n=1000, cohort=50, rounds=8, model="cnn", lr=0.1, batch=10,
        examples=50_000, test=2_000,
    ),
    B,
    Setting(
        "C",
        "Gossip with all neighbors: 100 nodes of 41 examples with 57 features, random 20-regular "
        "graph, logistic regression, an epoch of batch 32 per round, weight decay 0.01",
        "gossipy at commit ea85ab1, main_all2all.py (release 0.0.1 has no such gossip); features "
        "like those of spambase are made, and all nodes act in the same time step, so that each "
        "merges 20 models",
        ("topofl", "gossipy"), spam, n=100, rounds=100, model="57-2", decay=0.01,
        examples=4_100, test=501,
    ),
    D,
    replace(
        D, label="D1000", title=D.title.replace("100 nodes", "1,000 nodes").replace("128", "13"),
        n=1000, rounds=20, batch=13,
    ),
    Setting(
        "E",
        "Distributed gradient descent (adapt, then combine): 100 agents with quadratics in 10 "
        "dimensions on the complete graph, float64",
        "decent-bench 0.3.0, create_quadratic_problem(10, 100) and the user guide's example "
        "(ATC, step 0.001, complete graph)",
        ("topofl", "decent_bench"), quadratics, n=100, rounds=1000, lr=0.001, epochs=0, batch=1,
    ),
    replace(
        B, label="F", title="FedAvg: 1,000 clients of 60 images, 10 per round, otherwise B",
        source="a server with many clients that rarely take part; otherwise as B",
        n=1000, cohort=10, rounds=12,
    ),
)  # fmt: skip


def write_arrays(setting: Setting, folder: Path, images: data.Dataset | None) -> Path:
    """Write the data of a setting to ``LABEL.npz``, the same for all peers and seeds."""
    path = folder / f"{setting.label}.npz"
    arrays: dict[str, Any] = setting.arrays(setting, images, np.random.default_rng(0))
    np.savez(path, **arrays)
    return path
