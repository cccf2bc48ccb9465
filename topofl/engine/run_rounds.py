"""The only loop over rounds."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import State
from topofl.callbacks import Callback, Event
from topofl.engine.active_run import ActiveRun
from topofl.engine.divergence import Diverged, DivergenceError, GradientStatistics
from topofl.engine.evaluation import Scores
from topofl.engine.recorder import totals_of
from topofl.engine.requests import checked_state
from topofl.engine.round import Round
from topofl.engine.round_work import RoundWork, computed_round
from topofl.engine.saving import CheckpointSchedule
from topofl.engine.stages import EvaluationContext, Stage, evaluation_columns
from topofl.engine.state import RunState
from topofl.history import evaluation_record

__all__ = ["evaluate_start", "run_rounds"]


def evaluate_start(active: ActiveRun, checkpoints: CheckpointSchedule, emit: Callback) -> None:
    """Evaluate the models before the first round."""
    began = time.perf_counter()
    context = active.context(0)
    n = active.run_state.models.n
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device="cpu")
    noted = dict.fromkeys(active.noted_per_node, nothing)
    scores = evaluation_columns(context, None, math.nan, noted)
    recorded = active.recorder.add_evaluation({"round": 0} | scores)
    seconds = time.perf_counter() - began
    values = evaluation_record(recorded) | {"seconds": seconds}
    with checkpoints.after_round(0):
        emit(Event("evaluation", 0, values, active.run_state.models))


def run_rounds(
    active: ActiveRun,
    checkpoints: CheckpointSchedule,
    emit: Callback,
    rounds: Iterator[int],
) -> None:
    """Run the remaining rounds."""
    run_state = active.run_state
    for t in rounds:
        began = time.perf_counter()
        try:
            diverged, columns, scores = _round(active, t)
        except DivergenceError as error:
            _emit_divergence(error.found, t + 1, run_state, emit)
            raise
        with checkpoints.after_round(t + 1):
            _emit_divergence(diverged, t + 1, run_state, emit)
            values = columns | {"seconds": time.perf_counter() - began}
            emit(Event("round", t + 1, values, run_state.models))
            if scores is not None:
                emit(Event("evaluation", t + 1, scores, run_state.models))


def _round(
    active: ActiveRun, t: int
) -> tuple[Sequence[Diverged], dict[str, float], dict[str, float] | None]:
    """Run and record a round; return diverged nodes, its columns, and those of any evaluation."""
    run_state = active.run_state
    evaluated = active.evaluated(t + 1)
    statistics = GradientStatistics() if evaluated else None
    work = RoundWork(run_state, t, statistics)
    current = computed_round(work, active.states, active.sharded)
    run_state.ranks.begin_round(t)
    context = active.context(t + 1)
    stage = active.stages.get("before_exchange") if evaluated else None
    before_exchange = _apply_phases(active.phases, current, active.states, context, stage)
    push_sum_weights = run_state.models.push_sum_weights
    totals: dict[str, float] = {"steps": work.steps, **totals_of(current.exchanges, current.used)}
    if run_state.trace.pushes:
        totals |= {"smallest_push_weight": float(current.all_rows(push_sum_weights).min())}
    totals |= current.numbers
    losses = work.node_losses
    if active.setup.compute.distributed:
        totals |= run_state.ranks.traffic(current.used)
    columns = active.recorder.add_round(losses, run_state.models.n, totals, current.used)
    if not evaluated:
        return work.diverged, columns, None
    if work.statistics:
        work.statistics.add_ranks(run_state.ranks)
    diversity = work.statistics.diversity if work.statistics else math.nan
    work.statistics = statistics = None  # frees its memory before the evaluation
    began = time.perf_counter()
    context = replace(context, graph=current.graph, lr=work.lr)
    noted = current.node_values
    scores = evaluation_columns(context, before_exchange, diversity, noted)
    recorded = evaluation_record(active.recorder.add_evaluation({"round": t + 1} | scores))
    return work.diverged, columns, recorded | {"seconds": time.perf_counter() - began}


def _emit_divergence(
    found: Sequence[Diverged], done: int, run_state: RunState, emit: Callback
) -> None:
    for node, _, lr in found:
        labels = run_state.monitor.labels
        label = {"label": str(labels[node])} if labels else {}
        values = {"node": node, **label, "lr": lr, "policy": run_state.monitor.policy}
        emit(Event("divergence", done, values, run_state.models))


def _apply_phases(
    phases: Mapping[str, Phase],
    current: Round,
    states: dict[str, State],
    context: EvaluationContext,
    before_exchange: Stage | None,
) -> Mapping[str, Scores] | None:
    """Apply the phases of a round; return the scores of a stage right before an exchange."""
    run_state, scores = context.run_state, None
    for name, phase in phases.items():
        if name == run_state.trace.exchange and before_exchange is not None:
            scores = before_exchange(context)
        current.phase = name
        state = checked_state(name, "apply", phase.apply(run_state.models, states[name], current))
        states[name] = run_state.executor.buffers.apart(state)  # such as last round's gradients
    return scores
