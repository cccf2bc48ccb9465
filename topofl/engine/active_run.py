"""A run in progress: its state, its checkpoints and its metadata."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._columns import ScoreColumn, as_json, columns_of
from topofl.algorithms.contract.phase import Algorithm, Phase
from topofl.algorithms.contract.round import State
from topofl.engine.checkpoint import (
    Checkpoint,
    ResumeError,
    SavedRows,
    check_space,
    naming_its_file,
)
from topofl.engine.fingerprint import (
    check_same,
    fingerprint,
    members_of,
    structure_of,
    versions,
)
from topofl.engine.memory import MappedFiles, returning_freed_memory
from topofl.engine.options import Compute
from topofl.engine.plan import Plan
from topofl.engine.ranks import Ranks
from topofl.engine.recorder import Recorder
from topofl.engine.requests import initial_state
from topofl.engine.setup import Setup
from topofl.engine.shards import divided, sharded_names
from topofl.engine.stages import EvaluationContext, Stage, is_due, stages_of
from topofl.engine.state import RunState
from topofl.metrics._rounds import node_groups
from topofl.trained import Normalization, Trained

__all__ = ["ActiveRun", "checkpoint_marker", "metadata", "plan_of_checkpoint", "trained_models"]


_BUFFER = "buffer "
"""How names of buffers begin in checkpoints."""


@dataclass(frozen=True, eq=False)
class ActiveRun:
    """A run in progress: its setup, and everything that changes from round to round."""

    setup: Setup
    rounds: int
    run_state: RunState
    states: dict[str, State]
    recorder: Recorder
    stages: Mapping[str, Stage]
    phases: Mapping[str, Phase]
    sharded: Mapping[str, Collection[str]]

    @classmethod
    def build(
        cls,
        setup: Setup,
        rounds: int,
        plan: Plan | None,
        ranks: Ranks,
        files: MappedFiles | None = None,
    ) -> "ActiveRun":
        """Return a run before its first round, or the part of this rank.

        With a `plan`, none is chosen. With `files`, the models are in one of them.
        """
        algorithm = divided(setup.algorithm)
        stages = stages_of(setup, algorithm)
        # memory of checks and of the choice of an executor is given back
        with returning_freed_memory(setup.device.type == "cpu"):
            run_state = RunState.build(setup, plan, ranks, files)
        phases, models = algorithm.phases, run_state.models
        states = {name: initial_state(name, phase, models) for name, phase in phases.items()}
        sharded = sharded_names(phases, states, models)
        active = cls(
            setup,
            rounds,
            run_state,
            states,
            Recorder(rounds, setup.evaluation.every, setup.compute.distributed),
            stages,
            phases,
            sharded,
        )
        if taken := sorted(active.columns.keys() & setup.trace.noted):
            raise ValueError(
                f"`name` of a number that a phase notes must differ from all scores, got "
                f"{taken[0]!r}; rename it"
            )
        own = set(setup.evaluation.per_node or ())
        if taken := sorted(own & (active.columns.keys() | setup.trace.noted)):
            raise ValueError(
                f"names in `evaluation.per_node` must differ from all columns of the history, got "
                f"{taken[0]!r}; rename it"
            )
        return active

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of the run."""
        return self.setup.algorithm

    @property
    def title(self) -> str:
        """Names of algorithm and topology, for progress bars."""
        return f"{self.algorithm.name} on {self.run_state.graphs.name}"

    def evaluated(self, done: int) -> bool:
        """Whether models are evaluated after `done` rounds."""
        return done % self.setup.evaluation.every == 0 or done == self.rounds

    @cached_property
    def columns(self) -> dict[str, ScoreColumn]:
        """Columns of scores, by name."""
        return columns_of(self.setup.task.reported, self.stages, self.setup.sets)

    @property
    def noted_per_node(self) -> list[str]:
        """Names of the values per node that phases note."""
        return [name for name, per_node in self.setup.trace.noted.items() if per_node]

    def scored(self, column: str, done: int) -> bool:
        """Whether an evaluation after `done` rounds has a column; True for columns of no stage."""
        found = self.columns.get(column)
        return found is None or is_due(self.setup.evaluation, found.stage, done, self.rounds)

    def context(self, done: int) -> EvaluationContext:
        """Return the context of an evaluation during round `done`; 0: before the first round."""
        return EvaluationContext(
            self.run_state,
            self.setup,
            self.stages,
            self.rounds,
            done,
            self.states,
            self.sharded,
        )

    @property
    def ranks(self) -> Ranks:
        """The ranks of the run."""
        return self.run_state.ranks

    @property
    def size(self) -> int:
        """Bytes of a checkpoint, without mixing matrices."""
        models = self.run_state.models
        tensors = (tensor for state in self.states.values() for tensor in state.values())
        of_nodes = [*self.columns, *self.noted_per_node, *(self.setup.evaluation.per_node or ())]
        scores = len(of_nodes) * (2 + self.rounds // self.setup.evaluation.every)
        recorded = 8 * models.n * (self.rounds + scores)
        held = len(models) * models.d * models.dtype.itemsize
        held += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return held * models.n // len(models) + recorded + 2**14

    def state(self) -> dict[str, Any]:
        """Return everything that the next round starts from, as tensors, numbers and text.

        Without :meth:`own_rows`.
        """
        shared = {
            name: {key: x for key, x in sorted(own.items()) if key not in self._row_names(name)}
            for name, own in self.states.items()
        }  # "guard" and "mass" are names of the stored format
        guard = self.run_state.monitor.state()
        return {"recorder": self.recorder.state(), "guard": guard, "phases": shared}

    def own_rows(self) -> dict[str, Any]:
        """Return all that has a row for each of this rank's nodes."""
        models = self.run_state.models
        phases = {
            name: {key: state[key] for key in self._row_names(name)}
            for name, state in self.states.items()
        }
        return {
            "models": models.rows(slice(None)),
            "mass": models.push_sum_weights,
            "phases": phases,
            **{_BUFFER + name: held.rows(slice(None)) for name, held in models.buffers.items()},
        }

    def _row_names(self, phase: str) -> list[str]:
        """Return the tensors in the state of a phase that have a row for each of the own nodes."""
        return sorted(self.states[phase].keys() & set(self.sharded.get(phase, ())))

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
        with naming_its_file(found):
            state, nodes = found.state(), self.ranks.nodes
            state["models"].copy_to(self.run_state.models.flat, nodes)
            state["mass"].copy_to(self.run_state.models.push_sum_weights, nodes)
            for name, held in self.run_state.models.buffers.items():
                state[_BUFFER + name].copy_to(held.apart(), nodes)
            if set(state["phases"]) != set(self.states):
                raise ValueError(
                    f"states of {', '.join(self.states)} are needed, got "
                    f"{', '.join(state['phases'])}"
                )
            for name, saved in state["phases"].items():
                names = self.sharded.get(name, ())
                saved = {key: self._rows_of(x, key in names) for key, x in saved.items()}
                _restore(self.states[name], saved, self.run_state.models.device)
            self.recorder.restore(state["recorder"], self.evaluated, self.scored, found.round)
            self.run_state.monitor.restore(state["guard"])
        if self.rounds == found.round and (missing := self._missing_at_end(found)):
            raise ResumeError(
                f"`rounds` must be at least {found.round + 1}, got {self.rounds}: "
                f"{found.path.parent} has a checkpoint of round {found.round}, after which models "
                f"were not {missing}"
            )
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
        return "fine-tuned" if "fine_tuned" in self.stages and not tuned else ""


def _copy_into(own: Tensor, saved: Tensor) -> None:
    """Copy a tensor; raise ``ValueError`` unless it has the same shape and dtype."""
    if (own.shape, own.dtype) != (saved.shape, saved.dtype):
        raise ValueError(
            f"{tuple(own.shape)} numbers of {own.dtype} are needed, got {tuple(saved.shape)} of "
            f"{saved.dtype}"
        )
    own.copy_(saved)


def _restore(state: State, saved: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the state of a phase, in place for tensors that it already has."""
    for key in set(state) - set(saved):
        del state[key]
    for key, tensor in saved.items():
        own = state.get(key)
        if own is not None and own.is_contiguous():
            _copy_into(own, tensor)
        else:
            state[key] = tensor.to(device, copy=True)


def plan_of_checkpoint(found: Checkpoint, compute: Compute) -> Plan | None:
    """Return the plan of a checkpoint; None if `compute` now requests another one."""
    with naming_its_file(found):
        plan = Plan(*(found.marker["run"][name] for name in Plan._fields))
    requested = zip(
        (compute.executor, compute.chunk),
        found.marker["asked"],
        (plan.executor, plan.chunk),
        strict=True,
    )
    unchanged = all(now in ("auto", then, chosen) for now, then, chosen in requested)
    return plan if unchanged else None


def trained_models(active: ActiveRun) -> Trained | None:
    """Return the current models on the CPU, with everything that predictions need.

    In a distributed run they are gathered by rank 0, and other ranks return None.
    """
    models, setup = active.run_state.models, active.setup
    ranks = active.ranks
    flat = ranks.to_first(models.rows(slice(None)))
    if flat is None:
        return None
    dataset, dtype = setup.clients.dataset, models.dtype
    affine = dataset.affine(dtype)
    scale, shift = (None, None) if affine is None else (part.cpu() for part in affine)
    inputs = Normalization(tuple(dataset.inputs.shape[1:]), dataset.inputs.dtype, scale, shift)
    shapes = {name: tuple(shape) for name, shape in models.shapes.items()}
    return Trained(shapes, inputs, copy.deepcopy(setup.module).cpu(), flat)


def metadata(active: ActiveRun) -> dict[str, Any]:
    """Return the settings of a run as JSON values."""
    setup, run_state = active.setup, active.run_state
    augment, compute = setup.clients.augment, setup.compute
    groups = node_groups(setup.graphs)
    labels = [x if isinstance(x, str | int) else str(x) for x in setup.graphs.at(0).nodes]
    return {
        "algorithm": setup.algorithm.name,
        "settings": setup.algorithm.settings,
        "topology": setup.graphs.name,
        **({"groups": list(map(list, groups))} if groups else {}),
        **({"nodes": labels} if labels else {}),
        **({"server": True} if run_state.trace.uses_server else {}),
        "clients": setup.clients.name,
        "partition": {"seed": setup.clients.seed, "members": members_of(setup.clients)},
        "model": structure_of(setup.model),
        "augment": None if augment is None else augment.name,
        "n": setup.clients.n,
        "parameters": run_state.models.d,
        "rounds": setup.rounds,
        "seed": setup.seed,
        "init": setup.init,
        "on_disconnected": compute.on_disconnected,
        **({} if setup.attack is None else {"attackers": setup.attack.description}),
        **({} if setup.share is None else {"largest_share": list(setup.share)}),
        "task": {"name": setup.task.name, "scores": setup.task.directions},
        "evaluation": setup.evaluation_settings,
        "columns": as_json(active.columns),
        **run_state.executor.plan._asdict(),
        "asked": {"executor": compute.executor, "chunk": compute.chunk},
        "device": str(run_state.models.device),
        "dtype": str(run_state.models.dtype).removeprefix("torch."),
        "precision": compute.precision,
        "on_divergence": compute.on_divergence,
        **({"ranks": active.ranks.description} if compute.distributed else {}),
        "versions": {name: one for name, one in versions().items() if name != "topofl"},
    }


def checkpoint_marker(active: ActiveRun, folder: Path) -> dict[str, Any]:
    """Return the description of a run for its checkpoints; raise if the disk lacks space."""
    if active.ranks.is_first:
        check_space(folder, active.size)
    setup = active.setup
    return {
        "rounds": active.rounds,
        "versions": versions(),
        "device": str(setup.device),
        "asked": [setup.compute.executor, setup.compute.chunk],
        "run": fingerprint(setup, active.run_state),
    }
