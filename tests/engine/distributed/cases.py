"""Runs that must give the same results on any number of ranks."""

import torch

from tests.algorithms.table import ALGORITHMS
from tests.engine.killed import settings

ROUNDS = 4


def _plain(name, **changes):
    """Return the arguments of a run of an algorithm, as for runs that are killed."""
    how = settings(name) | {"rounds": ROUNDS, "every": 2, "dtype": torch.float64}
    return how | {"on_disconnected": "allow"} | changes


def _cases():
    return {name: lambda name=name: _plain(name) for name in ALGORITHMS}


CASES = _cases()
"""Arguments of runs by name, as functions, so that their data exist one after the other."""
