"""The part of a run that one rank holds: data, evaluated sets, and states of phases."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.phase import Algorithm, Phase, on_all_models
from topofl.algorithms.contract.round import Rows, State
from topofl.data import Dataset, Partition
from topofl.engine.evaluation import Evaluated
from topofl.engine.population import Held, Layout, Population
from topofl.engine.ranks import Ranks
from topofl.topology import Topology

__all__ = ["Shard", "divided", "losses_of_all", "own_part", "shard_of", "sharded_names"]


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
    of_nodes = {"train": clients.train, "val": clients.val}
    if ranks.size == 1:
        return Shard(clients.dataset, clients.train, of_nodes, sets)
    nodes = ranks.nodes.tolist()
    used = [own[node] for own in of_nodes.values() for node in nodes]
    used += [part for one in sets.values() for part in _indices_on_rank(one, nodes)]
    kept = np.unique(np.concatenate(used))
    members = {
        name: [
            np.searchsorted(kept, own) if node in set(nodes) else own
            for node, own in enumerate(all_own)
        ]
        for name, all_own in of_nodes.items()
    }
    local = {name: _on_rank(one, ranks, kept) for name, one in sets.items()}
    train = [members["train"][node] for node in nodes]
    return Shard(_subset(clients.dataset, kept), train, members, local)


def _indices_on_rank(evaluated: Evaluated, nodes: Sequence[int]) -> list[np.ndarray]:
    on, _ = evaluated
    parts = [on] if isinstance(on, Tensor) else [on[node] for node in nodes]
    return [part.cpu().numpy() for part in parts]


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
    index = torch.from_numpy(kept)
    none = np.zeros(0, dtype=np.int64)

    def some(values: Tensor) -> Tensor:
        return values[index.to(values.device)]

    return Dataset(
        some(dataset.inputs), some(dataset.labels), dataset.n_classes, dataset.name,
        np.arange(len(kept)), none, none, mean=dataset.mean, std=dataset.std,
        targets=None if dataset.targets is None else some(dataset.targets),
    )  # fmt: skip


def divided(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm whose phases can be given the rows of a rank."""
    phases = {name: _divided(phase) for name, phase in algorithm.phases.items()}
    tuned = None if algorithm.fine_tune is None else _divided(algorithm.fine_tune)
    return replace(algorithm, phases=phases, fine_tune=tuned)


def _divided(phase: Phase) -> Phase:
    return phase if phase.rowwise else on_all_models(phase)


@dataclass(frozen=True, eq=False)
class _SomeNodes:
    """The first k of n nodes, for models without values."""

    n: int
    nodes: np.ndarray

    def all_rows(self, values: Tensor) -> Tensor:
        return values.new_empty(self.n, *values.shape[1:])

    def own_rows(self, values: Rows) -> Rows:
        return values[: len(self.nodes)]


def sharded_names(
    phases: Mapping[str, Phase],
    states: Mapping[str, State],
    layout: Layout,
    graph: Topology | None,
    ranks: Ranks,
) -> dict[str, set[str]]:
    """Return the names of the tensors in each phase's state that have a row per own node.

    A phase's `init` is called on models without values, of all nodes and of some: tensors whose
    length changes have a row per node that a rank holds; the others are the same on all ranks.
    """
    found: dict[str, set[str]] = {}
    if ranks.size == 1:
        return found
    k = len(ranks.nodes)
    for name, phase in phases.items():
        whole, part = (_lengths(phase, layout, graph, ranks.n, rows) for rows in (ranks.n, k))
        changed = {key for key in part if part[key] == k and whole.get(key) == ranks.n}
        unknown = {
            key for key, x in states[name].items() if key not in part and x.dim() and len(x) == k
        }
        found[name] = changed | unknown
    return found


def _lengths(
    phase: Phase, layout: Layout, graph: Topology | None, n: int, rows: int
) -> dict[str, int]:
    flat = torch.empty(rows, layout.d, dtype=torch.float32, device="meta")
    ranks = cast(Ranks, _SomeNodes(n, np.arange(rows)))
    state = phase.init(Population(Held(flat), layout, ranks, graph=graph))
    return {key: len(x) for key, x in state.items() if x.dim()}


@contextmanager
def own_part(ranks: Ranks, models: Population, state: State) -> Iterator[tuple[Population, State]]:
    """Yield the models and state of the own nodes; if all are given, gather them afterwards."""
    own = models.of_own_nodes()
    if own is models:
        yield models, state
        return
    rows = {name: x for name, x in state.items() if x.dim() and len(x) == ranks.n}
    own_state = {**state, **{name: ranks.own_rows(x) for name, x in rows.items()}}
    yield own, own_state
    models.take(own, ranks.all_rows)
    for name, x in rows.items():
        x.copy_(ranks.all_rows(own_state[name]))


def losses_of_all(ranks: Ranks, losses: Tensor) -> Tensor:
    """Return the losses (n, steps) of all ranks' nodes, 0 for steps that a rank did not take."""
    steps = int(ranks.numbers([losses.shape[1]]).max())
    return ranks.all_rows(torch.nn.functional.pad(losses, (0, steps - losses.shape[1])))
