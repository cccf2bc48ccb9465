"""Dry run: the first rounds of a run, played on models without memory to find out what it needs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl.algorithms.contract.needs import need_error, static
from topofl.algorithms.contract.phase import WHY_PLAYED, Phase, explaining_meta_errors, naming_phase
from topofl.algorithms.contract.round import State
from topofl.engine.memory import AllocationTrace
from topofl.engine.population import Held, Population
from topofl.engine.ranks import one_process
from topofl.engine.requests import Setup, Trace, checked_state, topology_missing
from topofl.engine.round import Round
from topofl.topology import Topology

DRY_ROUNDS = 3
"""Number of rounds that are played; algorithms with a different beginning differ in round 0."""


def _models(setup: Setup, states: Mapping[str, State]) -> Population:
    """Return the models of a run on the meta device; rounds begin once all phases have states."""
    n, method, given = setup.clients.n, setup.algorithm.name, setup.topology
    independent, meta = setup.init == "independent", torch.device("meta")
    graph = given if isinstance(given, Topology) else None

    def check(read: str) -> None:
        if read == "topology":
            if given is None:
                raise topology_missing(method, n)
            if graph is None:
                raise need_error(method, "topology", static, given.name, static.graphs(given))
            setup.trace.reads_all = True
            return
        if len(states) == len(setup.algorithm.phases):
            must = "`models.start` must be read in `init`, since models change later"
            raise ValueError(f"{must}; store a copy in the state")
        setup.trace.common_start = True
        if independent:
            raise ValueError(
                f"`init` must be 'common' or 'given' for {method}, which compares how far models "
                "moved from a common start, got 'independent'"
            )

    def new(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        with _disable_current_modes():  # it does not belong to the phase that reads the models
            return torch.empty(*shape, dtype=dtype, device=meta)

    layout = setup.trace.layout
    rows = new((n if independent else 1, layout.d), setup.compute.dtype)
    held = Held(rows) if independent else Held.equal(rows, n, new)
    network = setup.network
    named = ((name, network.module.get_buffer(name)) for name in network.buffers)
    buffers = {name: Held.equal(new((1, *x.shape), x.dtype), n, new) for name, x in named}
    models = Population(
        held, layout, one_process(n, meta),
        graph=graph, reads=check, buffers=buffers, travels=setup.travels,
        kept=tuple(network.starts),
    )  # fmt: skip
    _ = models.push_sum_weights  # allocated now, not while bytes are counted
    return models


@contextmanager
def _on_shapes_only(name: str) -> Iterator[None]:
    """Turn errors on meta tensors, and replaced models, into errors that name the phase."""
    remedy = (
        "to multiply by a mixing matrix use round.mix(weights, values), which works in place; "
        "otherwise, where `models.flat.is_meta`, let it make every call that it may make, such as "
        "round.mix, and return"
    )
    must = f"the phase {name!r} must"
    try:
        what = f"{must} work on models without numbers, {WHY_PLAYED}"
        with explaining_meta_errors(what, remedy), naming_phase(name):
            yield
    except FrozenInstanceError as error:
        remedy = "write models.flat.copy_(values), or models.flat.add_(change)"
        raise TypeError(f"{must} change models in place: {error}; {remedy}") from error


def play_rounds(setup: Setup, rounds: int, trace: Trace | None = None) -> Iterator[Round]:
    """Yield the first rounds one by one, so that not all of their matrices are in memory.

    What they request is noted in the trace, if it is given.
    """
    trace = trace or setup.trace.anew()
    setup = replace(setup, trace=trace)
    phases = setup.algorithm.phases
    states: dict[str, State] = {}
    models = _models(setup, states)
    for name, phase in phases.items():
        with _on_shapes_only(name):
            states[name] = checked_state(name, "init", phase.init(models))
    for t in range(rounds):
        trace.state = max(trace.state, _bytes_of(states))
        current = Round(setup, t, setup.graphs.at(t), models, states)
        for name, phase in phases.items():
            current.phase = name
            with AllocationTrace() as allocations, _on_shapes_only(name):
                state = phase.apply(models, states[name], current)
                states[name] = checked_state(name, "apply", state)
            trace.scratch = max(trace.scratch, allocations.peak)
        trace.state = max(trace.state, _bytes_of(states))
        trace.stored = models.held.most
        yield current


def _bytes_of(states: Mapping[str, State]) -> int:
    return sum(value.nbytes for state in states.values() for value in state.values())


def trace_first_rounds(setup: Setup, rounds: int) -> None:
    """Note what the first rounds and any fine-tuning request in the trace of the setup.

    Raises
    ------
    ValueError, TypeError
        If a phase cannot be applied to meta tensors or uses a topology that is not given, if two
        phases push, or if nodes exchange anything in fine-tuning; and what a phase itself raises.
    """
    trace = setup.trace
    for current in play_rounds(setup, rounds, trace):
        trace.graphs.append(current.graph)
        trace.mixed.append(current.mixed)
        if current.t == 0:
            trace.exchanged += [one.weights for one in current.exchanges]
    if setup.algorithm.fine_tune is not None:
        _play_fine_tuning(setup, setup.algorithm.fine_tune)


def _play_fine_tuning(setup: Setup, phase: Phase) -> None:
    """Play the fine-tuning on its own; note its steps and the bytes that it takes."""
    name, trace, own = "fine_tune", setup.trace, setup.trace.anew()
    setup = replace(setup, trace=own)
    models = _models(setup, {})
    current = Round(setup, 0, trace.graphs[0], models, phase=name)
    with _on_shapes_only(name):
        state = checked_state(name, "init", phase.init(models))
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
    trace.bounds |= own.bounds
    trace.fine_tuning = len(models) * models.d * models.dtype.itemsize + _bytes_of({name: state})


_LOCAL = "`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5)"
