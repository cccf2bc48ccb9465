"""Dry run: the first rounds of a run, played on models without memory to find out what it needs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl.algorithms.contract.needs import need_error, static
from topofl.algorithms.contract.round import State
from topofl.engine.memory import AllocationTrace
from topofl.engine.population import Held, Population
from topofl.engine.ranks import one_process
from topofl.engine.requests import (
    Setup,
    Trace,
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


def _models(setup: Setup) -> DryModels:
    """Return the models of a run on the meta device."""
    n, meta, layout = setup.clients.n, torch.device("meta"), setup.trace.layout
    independent = setup.init == "independent"
    stored = n if independent else 1
    rows = torch.empty(stored, layout.d, dtype=setup.compute.dtype, device=meta)
    held = Held(rows) if independent else Held.equal(rows, n)
    graph = setup.topology if isinstance(setup.topology, Topology) else None
    models = DryModels(
        held, layout, one_process(n, meta), setup.algorithm.name, independent, setup.topology,
        graph=graph,
    )  # fmt: skip
    _ = models.push_sum_weights  # allocated now, not while bytes are counted
    return models


def _trace(setup: Setup) -> Trace:
    return Trace(setup.algorithm, setup.trace.layout, setup.clients.n)


def play_rounds(
    setup: Setup, rounds: int, models: DryModels | None = None, trace: Trace | None = None
) -> Iterator[Round]:
    """Yield the first rounds one by one, so that not all of their matrices are in memory.

    What they request is noted in one trace of all rounds, if it is given.
    """
    models = models or _models(setup)
    states: dict[str, State] = {}
    for name, phase in setup.algorithm.phases.items():
        with on_shapes_only(name):
            states[name] = initial_state(name, phase, models)
    models.calls.append("apply")
    for t in range(rounds):
        own = trace or _trace(setup)
        own.state = max(own.state, _bytes_of(states))
        current = Round(replace(setup, trace=own), t, setup.graphs.at(t), models, states)
        for name, phase in setup.algorithm.phases.items():
            current.phase = name
            with AllocationTrace() as allocations, on_shapes_only(name):
                state = phase.apply(models, states[name], current)
                states[name] = checked_state(name, "apply", state)
            own.scratch = max(own.scratch, allocations.peak)
        own.state = max(own.state, _bytes_of(states))
        yield current


def _bytes_of(states: Mapping[str, State]) -> int:
    return sum(value.nbytes for state in states.values() for value in state.values())


def trace_first_rounds(setup: Setup, rounds: int = DRY_ROUNDS) -> Trace:
    """Return the trace of the first rounds and of any fine-tuning.

    Raises
    ------
    ValueError, TypeError
        If a phase cannot be applied to meta tensors or uses a topology that is not given, if two
        phases push, or if nodes exchange anything in fine-tuning; and what a phase itself raises.
    """
    models, trace = _models(setup), _trace(setup)
    for current in play_rounds(setup, rounds, models, trace):
        trace.graphs.append(current.graph)
        trace.mixed.append(current.mixed)
        if current.t == 0:
            trace.exchanged += [one.weights for one in current.exchanges]
    trace.stored = models.held.most
    trace.common_start = "start" in models.calls
    _play_fine_tuning(setup, trace)
    return trace


def _play_fine_tuning(setup: Setup, trace: Trace) -> None:
    """Play any fine-tuning on its own; note its steps and the bytes that it takes."""
    phase = setup.algorithm.fine_tune
    if phase is None:
        return
    name = "fine_tune"
    models, own = _models(setup), _trace(setup)
    current = Round(replace(setup, trace=own), 0, trace.graphs[0], models, phase=name)
    with on_shapes_only(name):
        state = initial_state(name, phase, models)
        try:
            phase.apply(models, state, current)
        except ValueError as error:
            if "another phase of the chain" not in str(error):
                raise
            raise ValueError(f"{_LOCAL}, got one that uses the state of another phase") from error
    if own.calls:
        used = ", ".join(sorted(set().union(*own.calls.values())))
        raise ValueError(f"{_LOCAL}, got one that uses {used}")
    trace.steps[name] = own.steps.get(name, [])
    trace.fine_tuning = len(models) * models.d * models.dtype.itemsize + _bytes_of({name: state})


_LOCAL = "`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5)"
