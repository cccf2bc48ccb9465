"""Dry run: the first rounds of a run, played on models without memory to find out what it needs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl.algorithms.contract.needs import need_error, static
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import State
from topofl.engine.memory import AllocationTrace
from topofl.engine.population import Held, Layout, Population
from topofl.engine.ranks import one_process
from topofl.engine.requests import (
    EXCHANGES,
    Inputs,
    RecordedSteps,
    Requests,
    checked_state,
    initial_state,
    on_shapes_only,
    topology_missing,
)
from topofl.engine.round import Round
from topofl.topology import Topology, TopologySequence

DRY_ROUNDS = 3
"""Number of rounds that are played; algorithms with a different beginning differ in round 0."""


@dataclass(frozen=True, eq=False)
class DryModels(Population):
    """Models on the meta device, which record whether a phase relies on a common start.

    Parameters
    ----------
    method
        Name of the algorithm.
    independent_start
        Whether each node starts from its own model.
    given
        The topology of the run; None: not given.
    calls
        ``"start"`` for each access to `start`, ``"apply"`` once rounds began.
    """

    method: str = ""
    independent_start: bool = False
    given: Topology | TopologySequence | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def flat(self) -> Tensor:
        """See :attr:`topofl.algorithms.Models.flat`."""
        with _disable_current_modes():  # their memory does not belong to the phase that reads them
            return super().flat

    @property
    def start(self) -> Tensor:
        """See :attr:`topofl.algorithms.Models.start`."""
        if "apply" in self.calls:
            raise ValueError(
                "`models.start` must be read in `init`, since models change later; store a copy in "
                "the state"
            )
        self.calls.append("start")
        if self.independent_start:
            raise ValueError(
                f"`init` must be 'common' or 'given' for {self.method}, which compares how far "
                "models moved from a common start, got 'independent'"
            )
        return self.rows(slice(0, 1)).clone()

    @property
    def topology(self) -> Topology:
        """See :attr:`topofl.algorithms.Models.topology`."""
        if self.given is None:
            raise topology_missing(self.method, self.n)
        if self.graph is None:
            raise need_error(
                self.method, "topology", static, self.given.name, static.graphs(self.given)
            )
        return self.graph


@dataclass(frozen=True, eq=False)
class Trace:
    """Findings of the dry run of an algorithm.

    Parameters
    ----------
    algorithm, layout
        Algorithm of the run, and layout of its models.
    rounds
        The rounds that were played.
    requests
        Calls and requests of the phases.
    state
        Bytes of the phases' states.
    scratch
        Largest number of bytes that a phase allocates for a while, without training.
    fine_tuning
        Bytes of the copies of models that are fine-tuned, and of the phase's state.
    stored
        Largest number of models that are stored at once.
    common_start
        Whether all nodes must start from the same model.
    """

    algorithm: Algorithm
    layout: Layout
    rounds: Sequence[Round]
    requests: Requests
    state: int
    scratch: int
    fine_tuning: int
    stored: int
    common_start: bool

    def _uses(self, *calls: str) -> bool:
        return any(set(calls) & used for used in self.requests.calls.values())

    @property
    def exchanges(self) -> bool:
        """Whether nodes exchange anything, directly or through a server."""
        return self._uses(*EXCHANGES, "mixed gradients")

    @property
    def needs_topology(self) -> bool:
        """Whether nodes exchange with neighbors, so that a topology must be given."""
        return self._uses("topology")

    @property
    def chooses(self) -> bool:
        """Whether nodes choose their peers; a topology may limit the choice."""
        return self._uses("peers")

    @property
    def uses_server(self) -> bool:
        """Whether nodes send anything to a server."""
        return self._uses("server")

    @property
    def is_served(self) -> bool:
        """Whether nodes communicate through a server only."""
        return self.uses_server and not self.needs_topology and not self.chooses

    @cached_property
    def pushes(self) -> bool:
        """Whether models are pushed and have push-sum weights."""
        return self._uses("push")

    @cached_property
    def exchange(self) -> str | None:
        """The first phase that exchanges models; None if no phase does."""
        calls = self.requests.calls
        return next(
            (name for name in self.algorithm.phases if calls.get(name, set()) & EXCHANGES), None
        )

    @cached_property
    def share(self) -> list[slice]:
        """Columns of the models that the first phase that mixes sends; all if no phase mixes."""
        found = next(
            (
                self.requests.columns[name]
                for name in self.algorithm.phases
                if name in self.requests.columns
            ),
            None,
        )
        return [slice(0, self.layout.d)] if not found else _merged_ranges(found)

    @cached_property
    def pushed(self) -> tuple[int, ...]:
        """Indices of the parameters that are pushed; push-sum weights divide their steps."""
        phases = [name for name, calls in self.requests.calls.items() if "push" in calls]
        columns = _merged_ranges(
            set().union(*(self.requests.columns.get(name, set()) for name in phases))
        )
        bounds = np.cumsum([0, *self.layout.sizes]).tolist()
        inside = [
            any(s.start <= bounds[k] and bounds[k + 1] <= s.stop for s in columns)
            for k in range(len(bounds) - 1)
        ]
        return tuple(k for k, pushed in enumerate(inside) if pushed)

    @property
    def trained(self) -> list[RecordedSteps]:
        """All local steps that phases requested, phase by phase."""
        return [steps for of_phase in self.requests.trained.values() for steps in of_phase]

    def batch_sizes(self) -> np.ndarray:
        """Return the size of the largest minibatch that each node draws, (n,)."""
        n = len(self.rounds[0].sizes)
        sizes = [np.broadcast_to(steps.training.sizes, n) for steps in self.trained]
        sizes += [np.full(n, size) for size in self.requests.batch_sizes]
        return np.max(sizes, axis=0) if sizes else np.ones(n, dtype=np.int64)


def _merged_ranges(columns: set[tuple[int, int]]) -> list[slice]:
    """Return sorted slices that cover the ranges of columns, with overlapping ranges merged."""
    found: list[slice] = []
    for start, stop in sorted(columns):
        if found and start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(stop, found[-1].stop))
        elif stop > start:
            found.append(slice(start, stop))
    return found


def _models(inputs: Inputs) -> "DryModels":
    """Return the models of a run on the meta device."""
    n, meta = len(inputs.sizes), torch.device("meta")
    stored = n if inputs.independent_start else 1
    rows = torch.empty(stored, inputs.layout.d, dtype=inputs.dtype, device=meta)
    held = Held(rows) if inputs.independent_start else Held.equal(rows, n)
    graph = inputs.graphs if isinstance(inputs.graphs, Topology) else None
    models = DryModels(
        held, inputs.layout, one_process(n, meta), inputs.algorithm.name,
        inputs.independent_start, inputs.graphs, graph=graph,
    )  # fmt: skip
    _ = models.push_sum_weights  # allocated now, not while bytes are counted
    return models


def _round(
    inputs: Inputs, t: int, models: Population, requests: Requests, states: dict[str, State]
) -> Round:
    """Return a fresh round t on its graph."""
    graph = complete_graph(len(inputs.sizes)) if inputs.graphs is None else inputs.graphs.at(t)
    return Round(inputs, t, graph, models, requests, states=states)


@lru_cache(maxsize=1)
def complete_graph(n: int) -> Topology:
    """Return the complete graph of n nodes, for runs without a topology.

    Examples
    --------
    >>> complete_graph(4).n_edges
    6
    """
    return Topology(sparse.csr_array(~np.eye(n, dtype=bool)), name="everybody")


def play_rounds(inputs: Inputs, rounds: int) -> Iterator[Round]:
    """Yield the first rounds one by one, so that not all of their matrices are in memory."""
    models = _models(inputs)
    states = _initial_states(inputs.algorithm, models)
    for t in range(rounds):
        yield _play_round(inputs, t, models, Requests(), states)[0]


def _initial_states(algorithm: Algorithm, models: Population) -> dict[str, State]:
    states: dict[str, State] = {}
    for name, phase in algorithm.phases.items():
        with on_shapes_only(name):
            states[name] = initial_state(name, phase, models)
    return states


def _play_round(
    inputs: Inputs,
    t: int,
    models: DryModels,
    requests: Requests,
    states: dict[str, State],
) -> tuple[Round, int]:
    """Play a round; return it, and the largest number of bytes that a phase allocated."""
    current = _round(inputs, t, models, requests, states)
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


def trace_first_rounds(inputs: Inputs, rounds: int = DRY_ROUNDS) -> Trace:
    """Return the trace of the first rounds and of any fine-tuning.

    Raises
    ------
    ValueError, TypeError
        If a phase cannot be applied to meta tensors or uses a topology that is not given, if two
        phases push, or if nodes exchange anything in fine-tuning; and what a phase itself raises.
    """
    models, requests = _models(inputs), Requests()
    states = _initial_states(inputs.algorithm, models)
    state_sizes = [_state_bytes(states)]
    played, scratch_sizes = list[Round](), list[int]()
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
        stored=models.held.most,
        common_start="start" in models.calls,
    )


def _play_fine_tuning(inputs: Inputs, requests: Requests, graph: Topology) -> int:
    """Play any fine-tuning on its own; return the bytes that it takes, 0 if there is none."""
    phase = inputs.algorithm.fine_tune
    if phase is None:
        return 0
    name = "fine_tune"
    models, own_requests = _models(inputs), Requests()
    current = Round(inputs, 0, graph, models, own_requests)
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
    return len(models) * models.d * models.dtype.itemsize + sum(
        value.nbytes for value in state.values()
    )


_LOCAL = "`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5)"
