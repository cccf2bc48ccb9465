"""DPFL's three clients (appendix A): each partner alone hurts the first, both together help."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import topofl
from topofl import algorithms, data, models

from ..kit.setting import Setting

CLIENTS: tuple[Mapping[int, int], ...] = (
    {0: 50, 4: 50, 6: 50, 8: 50},
    {0: 300, 6: 300, 1: 200, 3: 200},
    {4: 300, 8: 300, 5: 200, 7: 200},
)
"""Training images of each client, by class."""

GROUPS: Mapping[str, tuple[int, ...]] = {
    "alone": (0,),
    "with 2": (0, 1),
    "with 3": (0, 2),
    "with both": (0, 1, 2),
}
"""Collaborating clients by label."""


def accuracies(
    setting: Setting, *, rounds: int, epochs: int, share: float = 1.0
) -> dict[str, list[float]]:
    """Return the accuracies in % of the first client's model, one per seed, by group.

    All clients of a group train by FedAvg; the first one then fine-tunes the model for the epochs
    of a round and tests it on all test images of its classes. Alone, it trains for the same total
    number of epochs.

    Parameters
    ----------
    setting
        Seeds and data.
    rounds, epochs
        Rounds of FedAvg, and epochs per round.
    share
        Share of the clients' images that are used.
    """
    return {
        label: [
            100 * _accuracy(setting, group, seed, rounds, epochs, share) for seed in setting.seeds
        ]
        for label, group in GROUPS.items()
    }


def _accuracy(
    setting: Setting, group: tuple[int, ...], seed: int, rounds: int, epochs: int, share: float
) -> float:
    dataset = _dataset(setting)
    clients = three_clients(dataset, seed, share)
    some = data.Partition(
        dataset,
        *(tuple(part[i] for i in group) for part in (clients.train, clients.val, clients.test)),
        name="some",
    )
    algorithm = algorithms.fedavg(
        0.01, batch_size=16, epochs=epochs, weight_decay=1e-3, fine_tune_epochs=epochs
    )
    channels, height, width = dataset.inputs.shape[1:]
    history = topofl.run(
        algorithm,
        model=models.dpfl_cnn((channels, height, width)),
        clients=some,
        rounds=rounds,
        seed=seed,
        evaluation=topofl.Evaluation(every=rounds, on="own_test"),
        compute=setting.device,
        progress=False,
    )
    return float(history.last(history.column(stage="fine_tuned"))[0])


def _dataset(setting: Setting) -> data.Dataset:
    if setting.scale == "smoke":
        return data.digits(enlarge=2)
    return data.cifar10(setting.root_of("cifar10"), verify=setting.scale == "paper")


def three_clients(dataset: data.Dataset, seed: int, share: float = 1.0) -> data.Partition:
    """Return the partition: disjoint training images, and all test images of a client's classes."""
    rng = np.random.default_rng(seed)
    labels = dataset.labels.numpy()
    left: dict[int, Any] = {
        y: rng.permutation(dataset.train[labels[dataset.train] == y]) for y in range(10)
    }
    held = []
    for client in CLIENTS:
        own = []
        for y, count in client.items():
            size = max(1, round(share * count))
            own.append(left[y][:size])
            left[y] = left[y][size:]
        held.append(np.concatenate(own))
    tests = tuple(dataset.test[np.isin(labels[dataset.test], list(client))] for client in CLIENTS)
    none = tuple(np.zeros(0, dtype=np.int64) for _ in CLIENTS)
    return data.Partition(dataset, tuple(held), none, tests, name="three clients", overlapping=True)
