"""The part of a run that one rank holds: data, evaluated sets, and states of phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, eq=False)
class Shard:
    """The data of one rank's nodes.

    Parameters
    ----------
    dataset
        The examples that the rank needs.
    members
        For each node of the rank, the indices of its training examples.
    examples_of_nodes
        By the name of a set, the indices of each node of the run; those of other ranks' nodes have
        the right number only.
    sets
        Evaluated examples by set; the nodes are numbered by rows of the rank.
    """

    dataset: Dataset
    members: Sequence[np.ndarray]
    examples_of_nodes: Mapping[str, Sequence[np.ndarray]]
    sets: Mapping[str, Evaluated]


def shard_of(clients: Partition, sets: Mapping[str, Evaluated], ranks: Ranks) -> Shard:
    """Return the data of a rank, with indices into the examples that it holds."""
    nodes, of_nodes = ranks.nodes.tolist(), {"train": clients.train, "val": clients.val}
    if len(nodes) == ranks.n:
        return Shard(clients.dataset, clients.train, of_nodes, sets)
    used = [own[node] for own in of_nodes.values() for node in nodes]
    for on in sets.values():
        used += [part.cpu().numpy() for part in {on[node] for node in nodes if node in on}]
    kept = np.unique(np.concatenate(used))
    members = {name: list(own) for name, own in of_nodes.items()}
    for own in members.values():
        for node in nodes:
            own[node] = np.searchsorted(kept, own[node])
    train = [members["train"][node] for node in nodes]
    local = {name: _on_rank(one, ranks, kept) for name, one in sets.items()}
    return Shard(_subset(clients.dataset, kept), train, members, local)


def _on_rank(evaluated: Evaluated, ranks: Ranks, kept: np.ndarray) -> Evaluated:
    """Return the evaluated nodes of a rank as rows, and their examples among the kept ones."""

    @lru_cache(maxsize=1)  # all nodes may share one tensor
    def moved(indices: Tensor) -> Tensor:
        return torch.from_numpy(np.searchsorted(kept, indices.cpu().numpy())).to(indices.device)

    own = [node for node in evaluated if ranks.owner[node] == ranks.rank]
    return {int(ranks.row_of[node]): moved(evaluated[node]) for node in own}


def _subset(dataset: Dataset, kept: np.ndarray) -> Dataset:
    """Return a dataset of some examples."""
    index = torch.from_numpy(kept)

    def some(values: Tensor) -> Tensor:
        return values[index.to(values.device)]

    return replace(
        dataset,
        inputs=some(dataset.inputs),
        labels=some(dataset.labels),
        targets=None if dataset.targets is None else some(dataset.targets),
        train=np.arange(len(kept)),
        val=kept[:0],
        test=kept[:0],
        owners=None,
        owner_names=None,
    )


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

    A phase's `init` is called on models without values, of all nodes and of this rank's: tensors
    whose length changes have a row per node that a rank holds; the others are the same on all
    ranks.
    """
    found: dict[str, set[str]] = {}
    n, k = models.n, len(models)
    if k == n:
        return found
    everyone = one_process(n, torch.device("meta"))
    for name, phase in phases.items():
        whole, part = (_lengths(phase, models, ranks) for ranks in (everyone, models.ranks))
        changed = {key for key in part if part[key] == k and whole.get(key) == n}
        unknown = {
            key for key, x in states[name].items() if key not in part and x.dim() and len(x) == k
        }
        found[name] = changed | unknown
    return found


def _lengths(phase: Phase, models: Population, ranks: Ranks) -> dict[str, int]:
    """Return the lengths of the tensors in a phase's state for the nodes of some ranks."""
    flat = torch.empty(len(ranks.nodes), models.d, dtype=torch.float32, device="meta")
    state = phase.init(Population(Held(flat), models.layout, ranks, graph=models.graph))
    return {key: len(x) for key, x in state.items() if x.dim()}
