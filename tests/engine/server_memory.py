"""Prints the growth of memory of a run with n clients of which ten take part, from its start on."""

import json
import sys

import psutil
import torch
from torch import nn

import topofl
from topofl import algorithms, data


def network():
    """Return a network of 99,985 parameters."""
    layers = nn.Flatten(), nn.Linear(64, 1333), nn.ReLU(), nn.Linear(1333, 10)
    return nn.Sequential(*layers)


def growth(n):
    """Return the bytes by which memory grew at the start of a run, and the models it stores."""
    process, found = psutil.Process(), []
    before = process.memory_info().rss

    def look(event):
        if event.kind in ("start", "evaluation", "round"):
            found.append((process.memory_info().rss - before, event.models.distinct))

    clients = data.iid(data.digits(), n=n, seed=0)
    topofl.run(
        algorithms.fedavg(lr=0.1, epochs=1, momentum=0, participation=10),
        model=network(), clients=clients, rounds=2, seed=0,
        compute=topofl.Compute(executor="looped", device="cpu"), callbacks=[look],
    )  # fmt: skip
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    growth(10)  # what is allocated once
    print(json.dumps(growth(int(sys.argv[1]))))
