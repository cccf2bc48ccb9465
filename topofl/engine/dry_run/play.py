"""Dry run: play the first rounds of a run on meta tensors, which have no memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sparse
import torch

from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import State
from topofl.attacks import Attack
from topofl.engine.dry_run.checked import checked_state, initial_state, on_shapes_only
from topofl.engine.dry_run.requests import PhaseRequests
from topofl.engine.dry_run.round import DryModels, DryRound, WeightRules
from topofl.engine.dry_run.trace import Trace
from topofl.engine.ledger import Ledger
from topofl.engine.population import Layout, Population
from topofl.engine.ranks import one_process
from topofl.engine.train.allocations import AllocationTrace
from topofl.topology import Topology, TopologySequence

__all__ = ["DRY_ROUNDS", "DryRunInputs", "complete_graph", "play_rounds", "trace_first_rounds"]


DRY_ROUNDS = 3
"""Number of rounds that are played; algorithms with a different beginning differ in round 0."""


@dataclass(frozen=True, eq=False)
class DryRunInputs:
    """Inputs of a dry run.

    Parameters
    ----------
    algorithm, layout, dtype
        Algorithm of the run, and layout and dtype of its models.
    graphs
        Topology of the run; None: not given.
    rules, sizes, seed
        Weight rules, node data sizes (n,) and seed of the run.
    independent_start
        Whether each node starts from its own model.
    attack
        The attack of the run; None: no attackers.
    """

    algorithm: Algorithm
    layout: Layout
    dtype: torch.dtype
    graphs: Topology | TopologySequence | None
    rules: WeightRules
    sizes: np.ndarray
    seed: int = 0
    independent_start: bool = False
    attack: Attack | None = None

    def models(self) -> DryModels:
        """Return the models on the meta device."""
        flat = torch.empty(len(self.sizes), self.layout.d, dtype=self.dtype, device="meta")
        graph = self.graphs if isinstance(self.graphs, Topology) else None
        models = DryModels(
            flat, self.layout, one_process(len(flat), flat.device), self.algorithm.name,
            self.independent_start, self.graphs, graph=graph,
        )  # fmt: skip
        _ = models.push_sum_weights  # allocated now, not while bytes are counted
        return models

    def round(
        self, t: int, models: Population, requests: PhaseRequests, states: dict[str, State]
    ) -> DryRound:
        """Return a fresh round t on its graph."""
        graph = complete_graph(len(self.sizes)) if self.graphs is None else self.graphs.at(t)
        return self.on(graph, t, models, requests, states)

    def on(
        self,
        graph: Topology,
        t: int,
        models: Population,
        requests: PhaseRequests,
        states: dict[str, State],
    ) -> DryRound:
        """Return a fresh round t on the given graph."""
        return DryRound(
            t, graph, self.graphs is not None, self.algorithm.name, self.rules, models, self.sizes,
            self.seed, Ledger(self.dtype.itemsize), requests, states, self.attack,
        )  # fmt: skip


@lru_cache(maxsize=1)
def complete_graph(n: int) -> Topology:
    """Return the complete graph of n nodes, for runs without a topology.

    Examples
    --------
    >>> complete_graph(4).n_edges
    6
    """
    return Topology(sparse.csr_array(~np.eye(n, dtype=bool)), name="everybody")


def play_rounds(inputs: DryRunInputs, rounds: int) -> Iterator[DryRound]:
    """Yield the first rounds one by one, so that not all of their matrices are in memory."""
    models = inputs.models()
    states = _initial_states(inputs.algorithm, models)
    for t in range(rounds):
        yield _play_round(inputs, t, models, PhaseRequests(), states)[0]


def _initial_states(algorithm: Algorithm, models: Population) -> dict[str, State]:
    states: dict[str, State] = {}
    for name, phase in algorithm.phases.items():
        with on_shapes_only(name):
            states[name] = initial_state(name, phase, models)
    return states


def _play_round(
    inputs: DryRunInputs,
    t: int,
    models: DryModels,
    requests: PhaseRequests,
    states: dict[str, State],
) -> tuple[DryRound, int]:
    """Play a round; return it, and the largest number of bytes that a phase allocated."""
    current = inputs.round(t, models, requests, states)
    models.calls.append("apply")
    largest = 0
    for name, phase in inputs.algorithm.phases.items():
        current.phase = name
        with AllocationTrace() as allocations, on_shapes_only(name):
            states[name] = checked_state(name, "apply", phase.apply(models, states[name], current))
        largest = max(largest, allocations.peak)
    return current, largest


def _state_bytes(states: Mapping[str, State]) -> int:
    return sum(value.nbytes for state in states.values() for value in state.values())


def trace_first_rounds(inputs: DryRunInputs, rounds: int = DRY_ROUNDS) -> Trace:
    """Return the trace of the first rounds and of any fine-tuning.

    Raises
    ------
    ValueError, TypeError
        If a phase cannot be applied to meta tensors or uses a topology that is not given, if two
        phases push, or if nodes exchange anything in fine-tuning; and what a phase itself raises.
    """
    models, requests = inputs.models(), PhaseRequests()
    states = _initial_states(inputs.algorithm, models)
    state_sizes = [_state_bytes(states)]
    played, scratch_sizes = list[DryRound](), list[int]()
    for t in range(rounds):
        current, largest = _play_round(inputs, t, models, requests, states)
        played.append(current)
        scratch_sizes.append(largest)
        state_sizes.append(_state_bytes(states))
    return Trace(
        inputs.algorithm,
        inputs.layout,
        played,
        requests,
        state=max(state_sizes),
        scratch=max(scratch_sizes),
        fine_tuning=_play_fine_tuning(inputs, requests, played[0].graph),
        common_start="start" in models.calls,
    )


def _play_fine_tuning(inputs: DryRunInputs, requests: PhaseRequests, graph: Topology) -> int:
    """Play any fine-tuning on its own; return the bytes that it takes, 0 if there is none."""
    phase = inputs.algorithm.fine_tune
    if phase is None:
        return 0
    name = "fine_tune"
    models, own_requests = inputs.models(), PhaseRequests()
    current = inputs.on(graph, 0, models, own_requests, {})
    current.phase = name
    with on_shapes_only(name):
        state = initial_state(name, phase, models)
        try:
            phase.apply(models, state, current)
        except ValueError as error:
            if "another phase of the chain" not in str(error):
                raise
            raise ValueError(f"{_LOCAL}, got one that uses the state of another phase") from error
    if own_requests.calls:
        used = ", ".join(sorted(set().union(*own_requests.calls.values())))
        raise ValueError(f"{_LOCAL}, got one that uses {used}")
    requests.trained[name] = own_requests.trained.get(name, [])
    return models.flat.nbytes + sum(value.nbytes for value in state.values())


_LOCAL = "`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5)"
