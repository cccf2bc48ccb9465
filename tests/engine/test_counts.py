"""What a round computes, allocates and copies, counted: a slower path changes these numbers."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import topofl
from topofl import algorithms, data, models, topologies

TORCH = "2.13"
"""Version of torch whose operations are counted; others divide the same work differently."""

COPIES = ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::cat", "aten::stack")

CLIENTS = data.shards(data.digits(), n=20, per_node=2, seed=0)
LOGISTIC = models.logistic_regression(64)
IMAGES = np.random.default_rng(0).integers(0, 256, (200, 1, 16, 16), dtype=np.uint8)
OF_IMAGES = data.shards(data.from_arrays(IMAGES, np.arange(200) % 10), n=20, per_node=2, seed=0)
CLIQUES = topologies.dcliques(CLIENTS.label_counts, clique_size=10, seed=0)
EXPONENTIAL = topologies.exponential(20)


class Counts(TorchDispatchMode):
    """Counts of operations other than views, and of the bytes that they allocate and copy."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        if func.is_view:
            return returned
        given = {
            x.untyped_storage().data_ptr() for x in _tensors([*args, *(kwargs or {}).values()])
        }
        results = list(_tensors([returned]))
        new = [x for x in results if x.untyped_storage().data_ptr() not in given]
        self.found["operations"] += 1
        self.found["allocated"] += sum(x.nbytes for x in new)
        if func.name().partition(".")[0] in COPIES:
            self.found["copied"] += sum(x.nbytes for x in results)
        return returned


def _tensors(values):
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def of_a_round(algorithm, model=LOGISTIC, clients=CLIENTS, **how):
    """Return the counts of one round that is not evaluated: those of three rounds, less two."""
    found = []
    for rounds in (2, 3):
        with Counts() as counts:
            topofl.run(
                algorithm, model=model, clients=clients, rounds=rounds, seed=0,
                evaluation=topofl.Evaluation(every=100, on=()), progress=False, **how,
            )  # fmt: skip
        found.append(counts.found)
    return {name: found[1][name] - found[0][name] for name in found[1]}


SETTINGS = {
    "D-SGD, logistic": lambda: of_a_round(
        algorithms.dsgd(lr=0.1, batch_size=16), topology=EXPONENTIAL
    ),
    "clique averaging, logistic": lambda: of_a_round(
        algorithms.clique_averaging(lr=0.1, batch_size=16), topology=CLIQUES
    ),
    "FedAvg, 5 of 20, logistic": lambda: of_a_round(
        algorithms.fedavg(lr=0.1, batch_size=16, epochs=1, participation=0.25)
    ),
    "push-sum with momentum, logistic": lambda: of_a_round(
        algorithms.osgp(lr=0.1, batch_size=16, momentum=0.9), topology=EXPONENTIAL
    ),
    "D-SGD with momentum, GN-LeNet": lambda: of_a_round(
        algorithms.dsgd(lr=0.1, momentum=0.9, batch_size=4),
        models.gn_lenet((1, 16, 16)),
        OF_IMAGES,
        topology=EXPONENTIAL,
        compute=topofl.Compute(executor="looped"),
    ),
}

PINNED = {
    "D-SGD, logistic": (44, 71_902, 52_240),
    "clique averaging, logistic": (53, 77_144, 104_240),
    "FedAvg, 5 of 20, logistic": (154, 64_211, 5_720),
    "push-sum with momentum, logistic": (755, 1_887_771, 63_600),
    "D-SGD with momentum, GN-LeNet": (1_879, 18_930_382, 6_331_920),
}
"""Operations, and bytes allocated and copied, of a round by setting."""


@pytest.mark.skipif(not torch.__version__.startswith(TORCH), reason=f"counts are of torch {TORCH}")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_round_computes_allocates_and_copies_as_much_as_before(name):
    found = SETTINGS[name]()
    assert (found["operations"], found["allocated"], found["copied"]) == PINNED[name]
