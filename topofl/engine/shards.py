"""The part of a run that one rank holds: data, evaluated sets, and states of phases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.phase import Algorithm, Phase, on_all_models
from topofl.algorithms.contract.round import State
from topofl.data import Dataset, Partition
from topofl.engine.evaluation import Evaluated
from topofl.engine.population import Held, Population
from topofl.engine.ranks import Ranks, one_process


def data_of_rank(
    clients: Partition, sets: Mapping[str, Evaluated], ranks: Ranks
) -> tuple[Dataset, dict[str, Sequence[np.ndarray]], Mapping[str, Evaluated]]:
    """Return the data of a rank.

    Returns
    -------
    dataset
        The examples that the rank needs.
    examples_of_nodes
        By the name of a set, the indices of each node of the run; those of other ranks' nodes have
        the right number only.
    sets
        Evaluated examples by set; the nodes are numbered by rows of the rank.
    """
    dataset, nodes = clients.dataset, ranks.nodes.tolist()
    of_nodes: dict[str, Sequence[np.ndarray]] = {"train": clients.train, "val": clients.val}
    if len(nodes) == ranks.n:
        return dataset, of_nodes, sets
    used = [own[node] for own in of_nodes.values() for node in nodes]
    for on in sets.values():
        used += [part.cpu().numpy() for part in {on[node] for node in nodes if node in on}]
    kept = np.unique(np.concatenate(used))
    for name, indices in of_nodes.items():
        mine = {node: np.searchsorted(kept, indices[node]) for node in nodes}
        of_nodes[name] = [mine.get(node, own) for node, own in enumerate(indices)]
    local = {name: _on_rank(one, ranks, kept) for name, one in sets.items()}
    return _subset(dataset, kept), of_nodes, local


def _on_rank(evaluated: Evaluated, ranks: Ranks, kept: np.ndarray) -> Evaluated:
    """Return the evaluated nodes of a rank as rows, and their examples among the kept ones."""

    @lru_cache(maxsize=1)  # all nodes may share one tensor
    def moved(indices: Tensor) -> Tensor:
        return torch.from_numpy(np.searchsorted(kept, indices.cpu().numpy())).to(indices.device)

    own = [node for node in evaluated if ranks.owner[node] == ranks.rank]
    return {int(ranks.row_of[node]): moved(evaluated[node]) for node in own}


def _subset(dataset: Dataset, kept: np.ndarray) -> Dataset:
    """Return a dataset of some examples."""
    tensors = {"inputs": dataset.inputs, "labels": dataset.labels, "targets": dataset.targets}
    rows = torch.from_numpy(kept)
    some = {name: x if x is None else x[rows.to(x.device)] for name, x in tensors.items()}
    splits = {"train": np.arange(len(kept)), "val": kept[:0], "test": kept[:0], "triggered": None}
    return replace(dataset, **some, **splits, owners=None, owner_names=None)


def divided(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm whose phases can be given the rows of a rank."""

    def given_rows(phase: Phase) -> Phase:
        return phase if phase.rowwise else on_all_models(phase)

    phases = {name: given_rows(phase) for name, phase in algorithm.phases.items()}
    tuned = None if algorithm.fine_tune is None else given_rows(algorithm.fine_tune)
    return replace(algorithm, phases=phases, fine_tune=tuned)


def sharded_names(
    phases: Mapping[str, Phase], states: Mapping[str, State], models: Population
) -> dict[str, set[str]]:
    """Return the names of the tensors in each phase's state that have a row per own node.

    A phase's `init` is called on models of all nodes, without values: tensors whose length differs
    have a row per node that a rank holds; the others are the same on all ranks.
    """
    n, k = models.n, len(models)
    if k == n:
        return {}
    flat = torch.empty(n, models.d, dtype=torch.float32, device="meta")
    ranks = one_process(n, flat.device)
    found = {}
    for name, phase in phases.items():
        whole = phase.init(Population(Held(flat), models.layout, ranks, graph=models.graph))
        own = {key for key, x in states[name].items() if x.dim() and len(x) == k}
        found[name] = {key for key in own if key not in whole or len(whole[key]) == n}
    return found
