"""The naive loop over nodes: the time of its step, scaled up from a sample of nodes."""

from typing import Any

import torch

from topofl import data, mixing

from ..cases import Case, setting
from .stopwatch import seconds_of

NAIVE_NODES = 10
"""Nodes of the naive loop if all nodes would take too long; its time is then scaled up."""


def naive_step(case: Case, clients: data.Partition, nodes: int) -> float:
    """Return the seconds per step of the naive loop on CPU.

    With fewer nodes than the case has, the time of local steps is multiplied by n / nodes, and that
    of averaging, which sums over all nodes for each node, by its square.

    Raises
    ------
    ImportError
        Outside of a source tree, which has the naive loop in its tests.
    """
    from tests import naive as reference

    graph, _ = setting(case, clients)
    modules = [case.network.build() for _ in range(nodes)]
    inputs, labels = clients.dataset.examples(), clients.dataset.labels
    given = reference.Nodes(modules, inputs, labels, clients.train, case.batch_size, 0)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    options: dict[str, Any] = {"lr": case.network.lr, "momentum": case.momentum}
    cpu = torch.device("cpu")
    if nodes == case.n and case.clique_averaging:
        return seconds_of(
            lambda: reference.clique_averaging(given, weights, 1, cliques=graph.groups, **options),
            cpu,
        )
    if nodes == case.n:
        return seconds_of(lambda: reference.dsgd(given, weights, 1, **options), cpu)
    local = seconds_of(lambda: reference.local_only(given, 1, **options), cpu)
    average = seconds_of(lambda: reference.average(modules, weights), cpu)
    return local * case.n / nodes + average * (case.n / nodes) ** 2
