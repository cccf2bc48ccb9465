"""The part of a run that one rank holds: data, evaluated sets, and states of phases."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

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
    for on, _ in sets.values():
        parts = [on] if isinstance(on, Tensor) else [on[node] for node in nodes]
        used += [part.cpu().numpy() for part in parts]
    kept = np.unique(np.concatenate(used))
    for name, indices in of_nodes.items():
        mine = {node: np.searchsorted(kept, indices[node]) for node in nodes}
        of_nodes[name] = [mine.get(node, own) for node, own in enumerate(indices)]
    local = {name: _on_rank(one, ranks, kept) for name, one in sets.items()}
    return _subset(dataset, kept), of_nodes, local


def _on_rank(evaluated: Evaluated, ranks: Ranks, kept: np.ndarray) -> Evaluated:
    """Return the evaluated nodes of a rank as rows, and their examples among the kept ones."""
    on, nodes = evaluated
    own = [int(ranks.row_of[node]) for node in nodes if ranks.owner[node] == ranks.rank]

    def moved(indices: Tensor) -> Tensor:
        return torch.from_numpy(np.searchsorted(kept, indices.cpu().numpy())).to(indices.device)

    if isinstance(on, Tensor):
        return Evaluated(moved(on), own)
    return Evaluated([moved(on[node]) for node in ranks.nodes.tolist()], own)


def _subset(dataset: Dataset, kept: np.ndarray) -> Dataset:
    """Return a dataset of some examples."""
    tensors = {"inputs": dataset.inputs, "labels": dataset.labels, "targets": dataset.targets}
    some = {
        name: None if x is None else x[torch.from_numpy(kept).to(x.device)]
        for name, x in tensors.items()
    }
    splits = {"train": np.arange(len(kept)), "val": kept[:0], "test": kept[:0]}
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


@contextmanager
def own_part(models: Population, state: State) -> Iterator[tuple[Population, State]]:
    """Yield the models and state of the own nodes; if all are given, gather them afterwards."""
    ranks, own = models.ranks, models.of_own_nodes()
    if own is models:
        yield models, state
        return
    rows = {name: x for name, x in state.items() if x.dim() and len(x) == ranks.n}
    own_state = {**state, **{name: ranks.own_rows(x) for name, x in rows.items()}}
    yield own, own_state
    models.take(own, ranks.all_rows)
    for name, x in rows.items():
        x.copy_(ranks.all_rows(own_state[name]))
