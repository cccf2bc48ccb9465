"""Playing the first rounds of a run on tensors without memory."""

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
from topofl.engine.dry_run.round import DryModels, DryRound, PhaseRequests, WeightRules
from topofl.engine.dry_run.trace import Trace
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import Ledger
from topofl.engine.train.allocations import AllocationTrace
from topofl.topology import Topology, TopologySequence

__all__ = ["DRY_ROUNDS", "DryRunInputs", "complete_graph", "play_rounds", "trace_first_rounds"]


DRY_ROUNDS = 3
"""Rounds that are played: methods that begin in another way do so in round 0."""


@dataclass(frozen=True, eq=False)
class DryRunInputs:
    """What is played.

    Parameters
    ----------
    algorithm, layout, dtype, rules, sizes, seed
        Of the run.
    graphs
        None: no topology was given.
    independent_start
        Whether nodes start from models of their own.
    attack
        What some nodes send in place of what they hold; None: nobody attacks.
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
        """Return the models, without numbers."""
        flat = torch.empty(len(self.sizes), self.layout.d, dtype=self.dtype, device="meta")
        graph = self.graphs if isinstance(self.graphs, Topology) else None
        models = DryModels(
            flat, self.layout, self.algorithm.name, self.independent_start, self.graphs, graph=graph
        )
        _ = models.push_sum_weights  # made now, not while bytes are counted
        return models

    def round(
        self, t: int, models: Population, requests: PhaseRequests, states: dict[str, State]
    ) -> DryRound:
        """Return round t, which nobody has used."""
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
        """Return the same on a graph that is known."""
        return DryRound(
            t,
            graph,
            self.graphs is not None,
            self.algorithm.name,
            self.rules,
            models,
            self.sizes,
            self.seed,
            Ledger(self.dtype.itemsize),
            requests,
            states,
            self.attack,
        )


@lru_cache(maxsize=1)
def complete_graph(n: int) -> Topology:
    """Return the graph on which every node can hear all others."""
    return Topology(sparse.csr_array(~np.eye(n, dtype=bool)), name="everybody")


def play_rounds(inputs: DryRunInputs, rounds: int) -> Iterator[DryRound]:
    """Yield rounds, of which the matrices may be more than fit into memory."""
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
    """Play a round; return it, and the bytes that a phase made besides where it was most."""
    current, largest = inputs.round(t, models, requests, states), 0
    models.calls.append("apply")
    for name, phase in inputs.algorithm.phases.items():
        current.phase = name
        with AllocationTrace() as allocations, on_shapes_only(name):
            states[name] = checked_state(name, "apply", phase.apply(models, states[name], current))
        largest = max(largest, allocations.peak)
    return current, largest


def _state_bytes(states: Mapping[str, State]) -> int:
    return sum(value.nbytes for state in states.values() for value in state.values())


def trace_first_rounds(inputs: DryRunInputs, rounds: int = DRY_ROUNDS) -> Trace:
    """Play the first rounds, and the fine-tuning if there is one, and return what they need.

    Raises
    ------
    ValueError, TypeError
        If a phase cannot be played without numbers, asks for a graph that is not given, pushes
        twice, or nodes exchange anything in fine-tuning; and what a phase itself raises.
    """
    models, requests = inputs.models(), PhaseRequests()
    states = _initial_states(inputs.algorithm, models)
    sizes, found = [_state_bytes(states)], []
    for t in range(rounds):
        found.append(_play_round(inputs, t, models, requests, states))
        sizes.append(_state_bytes(states))
    tuning = _play_fine_tuning(inputs, requests, found[0][0].graph)
    return Trace(
        inputs.algorithm, inputs.layout, [played for played, _ in found], requests, max(sizes),
        max(size for _, size in found), tuning, "start" in models.calls,
    )  # fmt: skip


def _play_fine_tuning(inputs: DryRunInputs, requests: PhaseRequests, graph: Topology) -> int:
    """Play the fine-tuning by itself; return the bytes that it takes, 0 if there is none."""
    phase = inputs.algorithm.fine_tune
    if phase is None:
        return 0
    models, alone, name = inputs.models(), PhaseRequests(), "fine_tune"
    current = inputs.on(graph, 0, models, alone, {})
    current.phase = name
    with on_shapes_only(name):
        state = initial_state(name, phase, models)
        try:
            phase.apply(models, state, current)
        except ValueError as error:
            if "another phase of the chain" not in str(error):
                raise
            raise ValueError(f"{_ALONE}, got one that uses the state of another phase") from error
    if alone.doors:
        raise ValueError(
            f"{_ALONE}, got one that uses {', '.join(sorted(set().union(*alone.doors.values())))}"
        )
    requests.trained[name] = alone.trained.get(name, [])
    return models.flat.nbytes + sum(value.nbytes for value in state.values())


_ALONE = "`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5)"
