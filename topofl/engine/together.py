"""Several runs that are trained as one: their nodes are the rows of one population.

Their graphs are parts of one graph without edges between them. Phases see all nodes at once, so
that what a round costs besides arithmetic is paid once for all runs: with small models, that is
most of it. Gradients, exchanges and scores are computed run by run, by the same calls as in each
run alone, and so have the same bits.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sparse
import torch

from topofl.algorithms.contract.round import Rule
from topofl.data import Partition
from topofl.engine.dry_run import DRY_ROUNDS, play_rounds
from topofl.engine.evaluation import Evaluated, is_shared
from topofl.engine.fingerprint import structure_of
from topofl.engine.requests import NotTogether, Setup, Trace
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence

CALLS = frozenset(("topology", "mix", "push", "gradients"))
"""What phases may ask of a round: its answer for a node depends on its own part of the graph."""

PERIOD = 64
"""Longest period of a joint graph whose rounds are known to repeat."""


def joins(setup: Setup) -> bool:
    """Return whether a run could be trained together with others that differ in their nodes."""
    return not [*_differences([setup]), *_requests(setup)]


def joined(setups: Sequence[Setup]) -> Setup:
    """Return the setup of one run that trains the nodes of several runs, one after another.

    The runs may differ in seeds, partitions of the same dataset, graphs and weights of graphs. The
    algorithm is that of the first. Its phases must not depend on ``models.n``, ``models.nodes`` or
    properties of whole graphs and matrices, such as a spectral gap: this is not checked, and so
    sweeps join runs of topofl's own methods only.

    Raises
    ------
    NotTogether
        If the runs differ in other settings; if phases are not rowwise, draw random numbers, have a
        server, note numbers or hold a state that all nodes share; if models have buffers, or
        evaluations more stages than the models at the end of a round.
    """
    for reason in (*_differences(setups), *_requests(setups[0])):
        raise NotTogether(reason)
    first, clients = setups[0], _clients([setup.clients for setup in setups])
    graphs = _Graphs(setups)
    whole = replace(
        first,
        clients=clients,
        topology=graphs.sequence,
        weights_of=graphs.weights_of,
        trace=Trace(first.algorithm, first.trace.layout, clients.n),
        sets={
            name: _evaluated([(s.sets[name], s.clients.n) for s in setups]) for name in first.sets
        },
        parts=tuple(setups),
        matrices_of=graphs.matrices_of,
    )
    _play(whole)
    return whole


def _differences(setups: Sequence[Setup]) -> Iterator[str]:
    """Yield why runs with these settings cannot be trained together."""
    first = setups[0]
    for name in ("rounds", "init", "evaluation", "compute", "device"):
        if any(getattr(setup, name) != getattr(first, name) for setup in setups):
            yield f"they differ in `{name}`"
    if any(_described(setup) != _described(first) for setup in setups):
        yield "they differ in algorithm, model or task"
    if any(setup.clients.dataset is not first.clients.dataset for setup in setups):
        yield "they have different datasets"
    if any(_of_clients(setup.clients) != _of_clients(first.clients) for setup in setups):
        yield "they differ in number of nodes, numbers of examples or augmentation"
    if any(setup.attack is not None for setup in setups):
        yield "some have attackers"
    if first.compute.distributed or first.compute.scratch is not None:
        yield "their models are in several processes, or on a disk"
    if first.evaluation.per_node or any(stage for stage in first.stages):
        yield "their evaluations have stages or columns of their own"
    network = first.network
    trained = all(p.requires_grad for p in network.module.parameters())
    if network.buffers or network.partial or network.drawing is not None or not trained:
        yield "their models have buffers or frozen parameters, differ between nodes, or draw"


def _of_clients(clients: Partition) -> tuple[int, set[int], object]:
    """Return what clients of several runs share: numbers of examples decide on padding."""
    return clients.n, set(clients.sizes.tolist()), clients.augment


def _described(setup: Setup) -> str:
    algorithm, task = setup.algorithm, setup.task
    return repr(
        (
            algorithm.name,
            dict(algorithm.settings),
            task.name,
            task.directions,
            structure_of(setup.model),
        )
    )


def _requests(setup: Setup) -> Iterator[str]:
    """Yield why the nodes of other runs would change what phases of a run do."""
    trace = setup.trace
    if not all(phase.rowwise for phase in setup.algorithm.phases.values()):
        yield "a phase is not rowwise"
    if set().union(*trace.calls.values()) - CALLS:
        yield "a phase asks for more than weights, exchanges and gradients"
    counts = [counts for some in trace.steps.values() for _, counts in some]
    if any(np.ptp(own) for own in counts):
        yield "nodes take different numbers of steps"
    if trace.drawn or trace.noted or trace.trial_sets or trace.reads_all or trace.common_start:
        yield "a phase depends on all nodes of a run"


def _play(whole: Setup) -> None:
    """Play the first rounds of a joint run; raise unless all that they mix and keep is by node."""
    trace, n = whole.trace, whole.clients.n
    for current in play_rounds(whole, min(DRY_ROUNDS, whole.rounds or DRY_ROUNDS), trace):
        trace.graphs.append(current.graph)
        trace.mixed.append(current.mixed)
        for weights in current.mixed:
            whole.matrices_of(weights)  # raises for one that a phase made
        states = (x for state in current.states.values() for x in state.values())
        if any(x.shape[:1] != (n,) for x in states):
            raise NotTogether("a phase has a state that nodes share")


def _clients(parts: Sequence[Partition]) -> Partition:
    """Return the clients of several runs on one dataset, whose examples overlap."""
    train, val = ([own for part in parts for own in getattr(part, on)] for on in ("train", "val"))
    name = f"{parts[0].name} and {len(parts) - 1} more"
    return replace(
        parts[0], train=train, val=val, test=(), name=name, overlapping=True, flipped=(), seed=None
    )


def _evaluated(sets: Sequence[tuple[Evaluated, int]]) -> Evaluated:
    """Return the evaluated nodes of several runs, each with its number of nodes.

    Raises :class:`NotTogether` if nodes of a run share examples that differ between the runs.
    """
    shared, found, start = None, dict[int, torch.Tensor](), 0
    for own, n in sets:
        if is_shared(own):
            (mine,) = {id(x): x for x in own.values()}.values()
            shared = mine if shared is None else shared
            if not torch.equal(shared, mine):
                raise NotTogether("they are evaluated on different examples")
            own = dict.fromkeys(own, shared)
        found |= {start + i: x for i, x in own.items()}
        start += n
    return found


class _Graphs:
    """The graphs and mixing matrices of several runs as parts of joint ones."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        self._setups = setups
        self._graphs: WeakKeyDictionary[Topology, tuple[Topology, ...]] = WeakKeyDictionary()
        self._matrices: WeakKeyDictionary[MixingMatrix, tuple[MixingMatrix, ...]] = (
            WeakKeyDictionary()
        )
        periods = [setup.graphs.period for setup in setups]
        period = math.lcm(*(p or 0 for p in periods))  # 0 if some graphs do not repeat
        known = period if 0 < period <= PERIOD else None
        self._at = lru_cache(maxsize=known or 1)(self._joint)
        n = sum(setup.clients.n for setup in setups)
        name = f"{setups[0].graphs.name} and {len(setups) - 1} more"
        # one graph as such, since phases may read the graph of their run
        self.sequence: Topology | TopologySequence = (
            self._at(0) if known == 1 else TopologySequence(n, self._at, name, known)
        )
        self.weights_of = lru_cache(maxsize=max(64, known or 0))(self._weights)

    def _joint(self, t: int) -> Topology:
        graphs = tuple(setup.graphs.at(t) for setup in self._setups)
        adjacency = sparse.block_diag([graph.adjacency for graph in graphs], format="csr")
        name = f"{graphs[0].name} and {len(graphs) - 1} more"
        whole = Topology(sparse.csr_array(adjacency), name)
        self._graphs[whole] = graphs
        return whole

    def _weights(self, rule: Rule, graph: Topology) -> MixingMatrix:
        """Return the joint matrix of the runs' own matrices, by a rule of theirs."""
        if graph not in self._graphs:
            raise NotTogether("a phase makes graphs of its own")
        first = self._setups[0]
        which = "pull" if rule is first.pull else "push" if rule is first.push else ""
        parts = tuple(
            setup.weights_of(getattr(setup, which) if which else rule, own)
            for setup, own in zip(self._setups, self._graphs[graph], strict=True)
        )
        blocks = sparse.block_diag([one.weights for one in parts], format="csr")
        whole = MixingMatrix(sparse.csr_array(blocks), f"{parts[0].name} and {len(parts) - 1} more")
        self._matrices[whole] = parts
        return whole

    def matrices_of(self, whole: MixingMatrix) -> tuple[MixingMatrix, ...]:
        """Return the runs' own matrices; raise :class:`NotTogether` for one made by a phase."""
        found = self._matrices.get(whole)
        if found is None:
            raise NotTogether("a phase makes mixing matrices of its own")
        return found
