"""DPFL's three clients (appendix A): each partner alone hurts the first, both together help."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

import topofl
from topofl import algorithms, data, models

from ..kit.claims import Bound, Claim, at_most, judge
from ..kit.drawing import Dots, dots
from ..kit.paper import Data, Setting
from ..kit.store import Store
from .claims import ANY_LEAD

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


def compute(setting: Setting, store: Store) -> Data:
    """Return the accuracies in % of the first client's model, one per seed, by group.

    All clients of a group train by FedAvg; the first one then fine-tunes the model for the epochs
    of a round and tests it on all test images of its classes. Alone, it trains for the same total
    number of epochs. At scale ``smoke`` a tenth of the images is used.
    """
    smoke = setting.scale == "smoke"
    rounds, epochs, share = (2, 1, 0.1) if smoke else (20, 5, 1.0)
    return {
        "accuracies": {
            label: [
                100 * _accuracy(setting, group, seed, rounds, epochs, share)
                for seed in setting.seeds
            ]
            for label, group in GROUPS.items()
        }
    }


def _accuracy(
    setting: Setting, group: tuple[int, ...], seed: int, rounds: int, epochs: int, share: float
) -> float:
    if setting.scale == "smoke":
        dataset = data.digits(enlarge=2)
    else:
        dataset = data.cifar10(setting.root_of("cifar10"), verify=setting.scale == "paper")
    clients = three_clients(dataset, seed, share)
    parts = (clients.train, clients.val, clients.test)
    some = (tuple(part[i] for i in group) for part in parts)
    training = {"batch_size": 16, "epochs": epochs, "weight_decay": 1e-3}
    channels, height, width = dataset.inputs.shape[1:]
    history = topofl.run(
        algorithms.fedavg(0.01, **training, fine_tune_epochs=epochs),
        model=models.dpfl_cnn((channels, height, width)),
        clients=data.Partition(dataset, *some, name="some"),
        rounds=rounds,
        seed=seed,
        evaluation=topofl.Evaluation(every=rounds, on="own_test"),
        compute=setting.device,
        progress=False,
    )
    return float(history.last(history.column(stage="fine_tuned"))[0])


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


def draw(data: Data) -> Picture:
    """Return a dot plot of the first client's accuracies."""
    arms = {label: Dots(np.array(row)) for label, row in data["accuracies"].items()}
    return dots({"client 1": arms}, xlabel="test accuracy, %")


def judged(accuracies: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Judge that each of two partners alone hurts the first client, and that both together help."""
    values = {label: np.array(row) for label, row in accuracies.items()}
    hurt = at_most(0, ANY_LEAD.why)

    def lead(statement: str, label: str, bound: Bound, paper: str) -> Claim:
        statistic = f"accuracy of client 1: {label} minus alone, points"
        return judge(statement, statistic, values[label] - values["alone"], bound, paper=paper)

    return [
        lead("Collaboration with client 2 alone hurts client 1.", "with 2", hurt, "-11 points"),
        lead("Collaboration with client 3 alone hurts client 1.", "with 3", hurt, "-11 points"),
        lead("Collaboration with both helps client 1.", "with both", ANY_LEAD, "+6 points"),
    ]
