"""Arguments that recommendations and predictions share."""

from typing import Any

import numpy as np

from topofl._support.check import check_int, check_positive, shown
from topofl.advice.calibration import stored
from topofl.advice.prediction import horizon
from topofl.data import Partition
from topofl.metrics.hops import check_hops
from topofl.topologies._generator import check_nonempty_label_counts

__all__ = ["check_clients", "check_horizon"]


def check_clients(clients: Any) -> np.ndarray:
    """Return the label counts (n, classes) of at least two nodes, or raise."""
    if isinstance(clients, Partition) and clients.dataset.targets is not None:
        raise TypeError(
            "`clients` must have class labels, got data with targets; compare graphs for them by "
            'metrics.predicted_deviation(graph, clients, model=..., by="gradients")'
        )
    if not isinstance(clients, Partition) and not hasattr(clients, "__len__"):
        raise TypeError(
            f"`clients` must be a Partition or (n, classes) label counts, got {shown(clients)}"
        )
    counts = check_nonempty_label_counts(clients)
    if len(counts) < 2:
        raise ValueError("`clients` must have at least 2 nodes, got 1, which needs no graph")
    return counts


def check_horizon(hops: Any, lr: Any, rounds: Any) -> int:
    """Return the hops that are given, or those of a learning rate and a number of rounds."""
    rate = None if lr is None else check_positive("lr", lr)
    last = None if rounds is None else check_int("rounds", rounds, minimum=1)
    if hops is None:
        return horizon(rate, last, stored().hops)
    found = check_hops(hops)
    if isinstance(found, str):
        raise ValueError("`hops` must be a number, got 'inf'; the predictions are for 10 or 20")
    return found
