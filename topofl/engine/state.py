"""A run in progress: its models, states of phases and records, and how to save and restore them."""

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from topofl._columns import as_json
from topofl._support.machine import free_memory, versions
from topofl._support.processes import processes_on_machine
from topofl._version import RESULTS
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import State
from topofl.callbacks import Callback, Event
from topofl.data import Dataset
from topofl.engine.checkpoint import Checkpoint, ResumeError, SavedRows, check_space, naming_file
from topofl.engine.divergence import DivergenceMonitor
from topofl.engine.evaluation import Evaluated
from topofl.engine.executor import Executor
from topofl.engine.fingerprint import (
    RESULTS_ENTRY,
    check_same,
    fingerprint,
    members_of,
    structure_of,
)
from topofl.engine.footprint import footprint
from topofl.engine.gradients import new_gradients
from topofl.engine.memory import MappedFiles
from topofl.engine.minibatches import Batches, Examples
from topofl.engine.mixing import Mixing
from topofl.engine.network import copy_of_trained
from topofl.engine.options import Compute, Evaluation
from topofl.engine.plan import Plan, TimingTrial, choose_plan, least_plans
from topofl.engine.population import Held, Layout, Population, initial_population
from topofl.engine.ranks import Ranks, one_process
from topofl.engine.recorder import Recorder
from topofl.engine.requests import NotTogether, Setup, checked_state
from topofl.engine.shards import data_of_rank, divided, sharded_names
from topofl.history import History
from topofl.metrics._rounds import node_groups
from topofl.topology import Topology
from topofl.trained import Normalization, Trained

Choose = Callable[[TimingTrial], Plan]
"""Function that chooses a plan by trials."""

_BUFFER = "buffer "
"""How names of buffers begin in checkpoints."""


@dataclass(eq=False)
class Run:
    """A run in progress, of the nodes of this rank: all that changes from round to round.

    Parameters
    ----------
    setup, rounds
        The checked arguments, and the number of rounds.
    algorithm
        The algorithm, with phases that can be given the rows of a rank.
    ranks, models
        Who holds which nodes, and the models of this rank's.
    executor, mixing, monitor
        How nodes train, how rows are exchanged, and which nodes diverged.
    examples_of_nodes, sets
        The examples of each node, and evaluated examples, as this rank numbers them.
    states, sharded
        The states of the phases, and for each phase the names of the tensors in its state that have
        the rows of this rank.
    recorders
        What the history of each run will have: of this run, or of several that are trained
        together.
    files
        The files that hold the models; None: they are in memory.
    callbacks
        What is called with events.
    graph
        Graph of the current round; that of the first round before it.
    done
        Number of rounds done, including the current one; 0: before the first round.
    lr
        Learning rate of the round's last phase that trains; None if no phase trained.
    """

    setup: Setup
    rounds: int
    algorithm: Algorithm
    ranks: Ranks
    models: Population
    executor: Executor
    mixing: Mixing
    monitor: DivergenceMonitor
    examples_of_nodes: Mapping[str, Sequence[np.ndarray]]
    sets: Mapping[str, Evaluated]
    states: dict[str, State]
    sharded: Mapping[str, Collection[str]]
    recorders: Sequence[Recorder]
    files: MappedFiles | None
    callbacks: Sequence[Callback]
    graph: Topology
    done: int = 0
    lr: float | None = None

    @classmethod
    def build(
        cls,
        setup: Setup,
        plan: Plan | None,
        ranks: Ranks,
        files: MappedFiles | None,
        callbacks: Sequence[Callback],
    ) -> "Run":
        """Return a run before its first round, or the part of this rank, on the device.

        With a `plan`, none is chosen. With `files`, the models are in one of them.

        Raises
        ------
        ValueError
            If the run does not fit into free memory.
        """
        compute, graphs, algorithm = setup.compute, setup.graphs, divided(setup.algorithm)
        rounds = cast(int, setup.rounds)
        dataset, of_nodes, sets = data_of_rank(setup.clients, setup.sets, ranks)
        choose = _plan_chooser(setup, plan, ranks, dataset)
        models = _initial_models(setup, ranks, files)
        members = [of_nodes["train"][node] for node in ranks.nodes]
        executor = _executor(setup, dataset, members, models, choose)
        if setup.parts and executor.plan.workers > 1:
            raise NotTogether("each run uses several threads")
        phases = algorithm.phases
        states = {key: checked_state(key, "init", own.init(models)) for key, own in phases.items()}
        known_matrices = 1 if setup.trace.chooses else max(64, graphs.period or 0)
        attack = str(setup.attack) if setup.attack else ""
        return cls(
            setup, rounds, algorithm, ranks, models, executor,
            Mixing(
                ranks, compute.dtype, executor, known_matrices, setup.seed, setup.attack, files,
                setup.matrices_of,
            ),
            DivergenceMonitor(
                compute.on_divergence, setup.clients.n, attack=attack, labels=graphs.nodes
            ),
            of_nodes, sets, states, sharded_names(phases, states, models),
            [Recorder(rounds, setup.evaluation.every, compute.distributed) for _ in setup.rows],
            files, callbacks, graphs.at(0),
        )  # fmt: skip

    @property
    def recorder(self) -> Recorder:
        """What the history of a single run will have."""
        (found,) = self.recorders
        return found

    @property
    def t(self) -> int:
        """The current round, from 0; 0 before the first round too."""
        return max(0, self.done - 1)

    def begin_round(self, t: int) -> None:
        """Begin round t, of all ranks."""
        self.done, self.graph, self.lr = t + 1, self.setup.graphs.at(t), None
        self.ranks.begin_round(t)

    def emit(self, event: Event) -> None:
        """Call all callbacks with an event; other ranks do not communicate meanwhile."""
        with self.ranks.alone():
            for callback in self.callbacks:
                callback(event)

    def evaluated(self, done: int) -> bool:
        """Whether models are evaluated after `done` rounds."""
        return done % self.setup.evaluation.every == 0 or done == self.rounds

    def _scored(self, column: str, done: int) -> bool:
        """Whether there is an evaluation after `done` rounds, with a column if it is a stage's."""
        found = self.setup.columns.get(column)
        stage = "" if found is None else found.stage
        return self.evaluated(done) and is_due(self.setup.evaluation, stage, done, self.rounds)

    @property
    def size(self) -> int:
        """Bytes of a checkpoint, without mixing matrices."""
        models = self.models
        noted = [name for name, per_node in self.setup.trace.noted.items() if per_node]
        of_nodes = [*self.setup.columns, *noted, *(self.setup.evaluation.per_node or ())]
        scores = len(of_nodes) * (2 + self.rounds // self.setup.evaluation.every)
        recorded = 8 * models.n * (self.rounds + scores)
        held = len(models) * (models.d * models.dtype.itemsize + models.buffer_bytes)
        held += sum(x.nbytes for state in self.states.values() for x in state.values())
        return held * models.n // len(models) + recorded + 2**14

    def state(self) -> dict[str, Any]:
        """Return everything that the next round starts from, as tensors, numbers and text.

        Without :meth:`own_rows`.
        """
        # "guard" and "mass" are names of the stored format
        guard, parts = self.monitor.state(), self._parts(own=False)
        return {"recorder": self.recorder.state(), "guard": guard, "phases": parts}

    def own_rows(self) -> dict[str, Any]:
        """Return all that has a row for each of this rank's nodes."""
        models, parts = self.models, self._parts(own=True)
        rows, mass = models.rows(slice(None)), models.push_sum_weights
        buffers = {_BUFFER + name: held.rows(slice(None)) for name, held in models.buffers.items()}
        return {"models": rows, "mass": mass, "phases": parts} | buffers

    def _parts(self, own: bool) -> dict[str, State]:
        """Return the states of phases: what has a row for each of the `own` nodes, or all else."""
        parts: dict[str, State] = {}
        for name, state in self.states.items():
            sharded = self.sharded.get(name, ())
            parts[name] = {key: x for key, x in sorted(state.items()) if (key in sharded) == own}
        return parts

    def resume(self, found: Checkpoint, marker: Mapping[str, Any]) -> int:
        """Restore a checkpoint of this run, and return the number of completed rounds.

        Raises
        ------
        ResumeError
            If the checkpoint is of another run, or has more rounds than `rounds`.
        """
        check_same(found.marker, marker)
        if self.rounds < found.round:
            raise ResumeError(
                f"`rounds` must be at least {found.round}, the number completed in "
                f"{found.path.parent}, got {self.rounds}; start a shorter run in another folder"
            )
        with naming_file(found):
            state, nodes = found.state(), self.ranks.nodes
            state["models"].copy_to(self.models.flat, nodes)
            state["mass"].copy_to(self.models.push_sum_weights, nodes)
            for name, held in self.models.buffers.items():
                state[_BUFFER + name].copy_to(held.apart(), nodes)
            if set(state["phases"]) != set(self.states):
                text = f"states of {', '.join(self.states)} are needed"
                raise ValueError(f"{text}, got {', '.join(state['phases'])}")
            for name, saved in state["phases"].items():
                names = self.sharded.get(name, ())
                saved = {key: self._rows_of(x, key in names) for key, x in saved.items()}
                _restore(self.states[name], saved, self.models.device)
            self.recorder.restore(state["recorder"], self._scored, found.round)
            self.monitor.restore(state["guard"])
        if self.rounds == found.round and (missing := self._missing_at_end(found)):
            raise ResumeError(
                f"`rounds` must be at least {found.round + 1}, got {self.rounds}: "
                f"{found.path.parent} has a checkpoint of round {found.round}, after which models "
                f"were not {missing}"
            )
        self.done = found.round
        return found.round

    def _rows_of(self, saved: Tensor | SavedRows, own: bool) -> Tensor:
        """Return saved rows of this process's nodes if `own`, else of all nodes."""
        if isinstance(saved, SavedRows):
            return saved.of(self.ranks.nodes if own else np.arange(self.setup.clients.n))
        return self.ranks.own_rows(saved) if own else saved

    def _missing_at_end(self, found: Checkpoint) -> str:
        """Return what the last round lacks since it was not the last before; "" if nothing."""
        if found.round != self.recorder.last_evaluation:
            return "evaluated"
        evaluation, before = self.setup.evaluation, found.marker["rounds"]
        tuned = is_due(evaluation, "fine_tuned", self.rounds, before)
        return "fine-tuned" if "fine_tuned" in self.setup.stages and not tuned else ""

    def histories(self, models: bool) -> list[History]:
        """Return the history of each run, with its trained models if they are wanted.

        Models that are trained together with those of other runs are not returned.
        """
        found, runs = [], self.setup.parts or (self.setup,)
        for setup, rows, recorder in zip(runs, self.setup.rows, self.recorders, strict=True):
            own = [one for one in self.monitor.found if rows.start <= one.node < rows.stop]
            diverged = [one._replace(node=one.node - rows.start)._asdict() for one in own]
            meta = replace(self, setup=setup).metadata() | {"diverged": diverged}
            found.append(recorder.history(meta, self.trained() if models else None))
        return found

    def trained(self) -> Trained | None:
        """Return the current models on the CPU, with everything that predictions need.

        In a distributed run they are gathered by rank 0, and other ranks return None.
        """
        models, setup = self.models, self.setup
        flat = models.rows(slice(0, 1)).cpu().expand(models.n, -1)
        if models.distinct > 1 or len(models) < models.n:
            flat = self.ranks.to_first(models.rows(slice(None)))
        rows = {name: held.rows(slice(None)) for name, held in models.buffers.items()}
        gathered = {name: self.ranks.to_first(own) for name, own in rows.items()}
        if flat is None:
            return None
        buffers = {name: own.clone() for name, own in gathered.items() if own is not None}
        dataset = setup.clients.dataset
        affine = dataset.affine(models.dtype)
        scale, shift = (None, None) if affine is None else (part.cpu() for part in affine)
        inputs = Normalization(tuple(dataset.inputs.shape[1:]), dataset.inputs.dtype, scale, shift)
        shapes = {name: tuple(shape) for name, shape in models.shapes.items()}
        on_cpu = setup.device.type == "cpu"
        network = copy_of_trained(setup.module) if on_cpu else copy.deepcopy(setup.module).cpu()
        return Trained(shapes, inputs, network, flat, buffers)

    def metadata(self) -> dict[str, Any]:
        """Return the settings of the run as JSON values."""
        setup, compute, clients = self.setup, self.setup.compute, self.setup.clients
        groups = node_groups(setup.graphs)
        labels = [x if isinstance(x, str | int) else str(x) for x in setup.graphs.at(0).nodes]
        return {
            "algorithm": setup.algorithm.name,
            "settings": setup.algorithm.settings,
            "topology": setup.graphs.name,
            **({"groups": list(map(list, groups))} if groups else {}),
            **({"nodes": labels} if labels else {}),
            **({"server": True} if setup.trace.uses_server else {}),
            "clients": clients.name,
            "partition": {"seed": clients.seed, "members": members_of(clients)},
            "model": structure_of(setup.model),
            "augment": None if clients.augment is None else clients.augment.name,
            "n": clients.n,
            "parameters": self.models.d,
            "rounds": setup.rounds,
            "seed": setup.seed,
            "init": setup.init,
            **({"buffers": setup.compute.buffers} if setup.network.statistics else {}),
            "on_disconnected": compute.on_disconnected,
            **({} if setup.attack is None else {"attackers": setup.attack.description}),
            **({} if setup.share is None else {"largest_share": list(setup.share)}),
            "task": {"name": setup.task.name, "scores": setup.task.directions},
            "evaluation": setup.evaluation_settings,
            "columns": as_json(setup.columns),
            **self.executor.plan._asdict(),
            "asked": {"executor": compute.executor, "chunk": compute.chunk},
            "device": str(self.models.device),
            "dtype": str(self.models.dtype).removeprefix("torch."),
            "precision": compute.precision,
            "on_divergence": compute.on_divergence,
            **({"ranks": self.ranks.description} if compute.distributed else {}),
            "versions": {name: one for name, one in versions().items() if name != "topofl"},
        }

    def marker(self, folder: Path) -> dict[str, Any]:
        """Return what its checkpoints are marked with; raise if the disk lacks space."""
        if self.ranks.is_first:
            check_space(folder, self.size)
        compute, device = self.setup.compute, str(self.setup.device)
        asked = [compute.executor, compute.chunk]
        known = versions() | {RESULTS_ENTRY: RESULTS}
        found = {"rounds": self.rounds, "versions": known, "device": device, "asked": asked}
        return found | {"run": fingerprint(self.setup, self.executor.plan)}


def is_due(evaluation: Evaluation, stage: str, done: int, rounds: int) -> bool:
    """Return whether an evaluation after `done` of `rounds` rounds has a stage, or NaN for it."""
    every = evaluation.fine_tune_every
    last = done == rounds or (every is not None and done % every == 0)
    return stage != "fine_tuned" or (done > 0 and last)


def _restore(state: State, saved: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the state of a phase, in place for tensors that it already has.

    Raises ``ValueError`` unless these have the same shape and dtype.
    """
    for key in set(state) - set(saved):
        del state[key]
    for key, tensor in saved.items():
        own = state.get(key)
        if own is None or not own.is_contiguous():
            state[key] = tensor.to(device, copy=True)
            continue
        if (own.shape, own.dtype) != (tensor.shape, tensor.dtype):
            text = f"{tuple(own.shape)} numbers of {own.dtype} are needed"
            raise ValueError(f"{text}, got {tuple(tensor.shape)} of {tensor.dtype}")
        own.copy_(tensor)


def plan_of_checkpoint(found: Checkpoint, compute: Compute) -> Plan | None:
    """Return the plan of a checkpoint; None if `compute` now requests another one."""
    with naming_file(found):
        plan = Plan(*(found.marker["run"][name] for name in Plan._fields))
    now = compute.executor, compute.chunk
    requested = zip(now, found.marker["asked"], (plan.executor, plan.chunk), strict=True)
    unchanged = all(now in ("auto", then, chosen) for now, then, chosen in requested)
    return plan if unchanged else None


def _executor(
    setup: Setup,
    dataset: Dataset,
    members: Sequence[np.ndarray],
    models: Population,
    choose: Choose,
) -> Executor:
    """Return the executor of a run, with the examples of this rank on the device.

    Its plan is chosen by trials on the largest minibatches. Trials do not change the models'
    buffers, which are equal before a run, and so are copied.
    """
    compute, network, largest = setup.compute, setup.network, setup.trace.batch_sizes().max()
    examples = Examples.of(dataset, setup.device, compute.dtype, setup.clients.augment)
    targets = dataset.learned(compute.dtype).to(setup.device)
    draws, bounds = network.drawing is not None, setup.trace.bounds_on(setup.device)
    numbers, seeds = _numbers_and_seeds(setup, models.ranks)
    batches = Batches(members, seeds, examples.augment, numbers, draws)

    def executor(plan: Plan) -> Executor:
        build = partial(new_gradients, network, plan.executor, setup.order, compute, setup.task)
        rows = setup.rows if setup.parts else None
        return Executor(plan, examples, targets, batches, build, rows, network.unpadded)

    def trial(name: str, chunk: int, nodes: int) -> None:
        tried = executor(Plan(name, chunk, 1, 1))
        (minibatches,) = tried.on_device([batches.at(0, int(largest), "probe")])
        with _explaining_compile_errors(compute.compile), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # which is measured
            chunks = [rows for rows in tried.chunks(nodes) if rows.start < nodes]
            for rows, bound in product(chunks, bounds):
                tried.gradients(0, models.views_of(rows), minibatches, rows, None, bound)

    plan = choose(trial)
    if compute.compile:
        trial(plan.executor, 1, 1)
    return executor(plan)


@contextmanager
def _explaining_compile_errors(compiled: bool) -> Iterator[None]:
    """Turn the errors of ``torch.compile`` into one ``ValueError``."""
    try:
        yield
    except RuntimeError as error:
        if not compiled:
            raise
        raise ValueError(
            "`compile` must be False for this model on this machine, torch cannot compile it: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error


def _numbers_and_seeds(setup: Setup, ranks: Ranks) -> tuple[np.ndarray, int | list[int]]:
    """Return the numbers of this rank's nodes in their runs, and the seeds of these runs."""
    if not setup.parts:
        return ranks.nodes, setup.seed
    sizes = [part.clients.n for part in setup.parts]
    seeds = [part.seed for part, n in zip(setup.parts, sizes, strict=True) for _ in range(n)]
    return np.concatenate([np.arange(n) for n in sizes]), seeds


def _initial_models(setup: Setup, ranks: Ranks, files: MappedFiles | None) -> Population:
    """Return the models of the nodes of this rank at the start of a run."""
    if setup.parts:
        parts = [
            _initial_models(part, one_process(part.clients.n, ranks.device), None)
            for part in setup.parts
        ]
        held, graph = Held(torch.cat([part.rows(slice(0, part.distinct)) for part in parts])), None
        if all(part.distinct == 1 for part in parts):
            held = Held(held.stored, np.repeat(np.arange(len(parts)), [part.n for part in parts]))
        if isinstance(setup.graphs, Topology):
            graph = setup.graphs
        return Population(held, Layout.of(setup.module), ranks, graph=graph)
    return initial_population(
        setup.module, setup.clients.n, init=setup.init, seed=setup.seed, device=setup.device,
        dtype=setup.compute.dtype,
        graph=setup.graphs if isinstance(setup.graphs, Topology) else None,
        ranks=ranks, new=None if files is None else files.new,
        buffers=setup.network.buffers, travels=setup.travels, starts=setup.network.starts,
    )  # fmt: skip


def _plan_chooser(setup: Setup, plan: Plan | None, ranks: Ranks, dataset: Dataset) -> Choose:
    """Return the function that chooses a plan by timing trials, on rank 0 for all ranks.

    Raises ``ValueError`` if the run does not fit into memory.
    """
    need, whole = footprint(setup, list(setup.trace.mixed[0])), setup.clients.dataset
    if dataset is not whole:  # a rank holds some of the nodes and examples
        data = need.of_run["data"] * len(dataset.inputs) // len(whole.inputs)
        need = replace(need.of_first(len(ranks.nodes), data=data), held=0)
    free = free_memory(setup.device)
    if free is not None and setup.device.type == "cpu":
        free //= processes_on_machine()  # which start together
    need.check([plan] if plan else least_plans(setup.compute, need.sizes.n), free)
    by_rule, sizes = setup.is_planned_by_rule, need.sizes
    if setup.parts:  # each run is computed as it would be alone
        sizes = footprint(setup.parts[0], list(setup.parts[0].trace.mixed[0])).sizes

    def choose(trial: TimingTrial) -> Plan:
        return plan or choose_plan(setup.compute, by_rule, sizes, trial, need.fits_into(free))

    # all ranks use the executor that rank 0 timed
    unknown = Plan("", 0, 0, 0)
    return lambda trial: ranks.of_first(choose(trial) if ranks.is_first else unknown)
