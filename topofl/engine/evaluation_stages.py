"""Stages of evaluations: which models are scored, and when.

Models are scored at the end of a round, and optionally right before they are exchanged, after
fine-tuning, together with nearest neighbors, and by user-defined stages.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._columns import OWN_COLUMNS, ScoreColumn, columns_of, name_of
from topofl.algorithms.contract.phase import Algorithm, Neighbors, Phase
from topofl.algorithms.contract.round import State
from topofl.engine.evaluate.custom import check_returned_models, check_returned_values, versions_of
from topofl.engine.evaluate.nearest_neighbors import neighbor_scores
from topofl.engine.evaluate.scores import Evaluated, Scores, evaluate, scored_nodes
from topofl.engine.memory.system import returning_freed_memory
from topofl.engine.options import CustomStage, NodeValues
from topofl.engine.population import Population
from topofl.engine.rank_failure import RankError
from topofl.engine.rounds import EngineRound
from topofl.engine.setup import Setup
from topofl.engine.state import RunState
from topofl.engine.train.divergence import DivergenceError, DivergenceMonitor
from topofl.engine.train.forward import is_linear
from topofl.engine.train.workers import ParallelMap
from topofl.tasks import Task
from topofl.topology import Topology

__all__ = [
    "EvaluationContext",
    "EvaluationSets",
    "EvaluationStage",
    "columns_in",
    "node_values",
    "scores_of",
    "scores_of_stages",
    "stages_of",
]

EvaluationSets = Mapping[str, Evaluated]
"""Evaluated nodes and examples, by the name of the set; the first name is in no column."""


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """Context of an evaluation: the run, its sets, and the round.

    Parameters
    ----------
    run_state, parallel_map, sets
        State, threads and evaluated sets of the run.
    done
        Number of rounds done, including the current one.
    states
        States of the phases.
    sharded
        For each phase, the names of the tensors in its state that have the rows of this rank.
    graph
        Graph of the round; None before the first round.
    lr
        Learning rate of the round's last phase that trains; None if no phase trained.
    found
        Scores of earlier stages of this evaluation.
    """

    run_state: RunState
    parallel_map: ParallelMap
    sets: EvaluationSets
    done: int
    states: Mapping[str, State] = field(default_factory=dict)
    sharded: Mapping[str, Collection[str]] = field(default_factory=dict)
    graph: Topology | None = None
    lr: float | None = None
    found: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)

    @property
    def t(self) -> int:
        """The current round, from 0; 0 before the first round too."""
        return max(0, self.done - 1)


def _always(done: int, rounds: int) -> bool:
    return True


@dataclass(frozen=True)
class EvaluationStage:
    """One stage of an evaluation.

    Parameters
    ----------
    scores
        Returns the scores on each set.
    due
        (rounds done, rounds of the run) -> whether the evaluation has this stage; otherwise its
        scores are NaN.
    before_exchange
        Whether models are scored right before they are exchanged, not at the end of a round.
    action
        Participle for errors: models were not "evaluated", for example.
    """

    scores: Callable[[EvaluationContext], Mapping[str, Scores]]
    due: Callable[[int, int], bool] = _always
    before_exchange: bool = False
    action: str = "evaluated"


def stages_of(setup: Setup, algorithm: Algorithm) -> dict[str, EvaluationStage]:
    """Return the stages of a run's evaluations, by name.

    Parameters
    ----------
    setup
        The setup of the run. Without evaluated sets there are no stages.
    algorithm
        Its algorithm, or in a distributed run the phases that a rank applies.

    Raises
    ------
    ValueError
        If a column of a user-defined stage would have the name of another column.
    """
    evaluation = setup.evaluation
    if not evaluation.on:
        return {}
    stages = {"": EvaluationStage(_at_end_of_round)}
    if evaluation.before_exchange:
        stages["before_exchange"] = EvaluationStage(_before_exchange, before_exchange=True)
    if algorithm.neighbors is not None:
        stages["knn"] = EvaluationStage(partial(_scores_with_neighbors, algorithm.neighbors))
    if algorithm.fine_tune is not None:
        due = partial(_fine_tunes_after, evaluation.fine_tune_every)
        stages["fine_tuned"] = EvaluationStage(
            partial(_fine_tuned_scores, algorithm.fine_tune), due, action="fine-tuned"
        )
    stages |= {
        name: EvaluationStage(partial(_custom_scores, name, function))
        for name, function in evaluation.custom.items()
    }
    for name, column in columns_in(stages, setup.sets, setup.task).items():
        if column.stage and name in OWN_COLUMNS:
            raise ValueError(
                f"`evaluation.also` must not give a column the name {name!r}, which histories use "
                "already; rename the function's key"
            )
    return stages


def columns_in(
    stages: Mapping[str, Any], sets: EvaluationSets, task: Task
) -> dict[str, ScoreColumn]:
    """Return the columns of scores of a run, by name."""
    return columns_of(task.reported, stages, sets)


def scores_of_stages(
    stages: Mapping[str, EvaluationStage],
    context: EvaluationContext,
    rounds: int,
    scores_before_exchange: Mapping[str, Mapping[str, Scores]],
) -> dict[str, Tensor]:
    """Return the columns, (n,) each, of an evaluation at the end of a round.

    Parameters
    ----------
    stages
        Stages of the run's evaluations.
    context
        Context at the end of the round.
    rounds
        Number of rounds of the run.
    scores_before_exchange
        Scores of stages from within the round, right before an exchange.
    """
    found: dict[str, Mapping[str, Scores]] = {}
    for name, stage in stages.items():
        if name in scores_before_exchange:
            found[name] = scores_before_exchange[name]
        elif stage.due(context.done, rounds):
            found[name] = stage.scores(replace(context, found=found))
        else:
            found[name] = no_scores(
                context.sets, context.run_state.models.n, context.run_state.task
            )
    first = next(iter(context.sets), "")
    return {
        name_of(ScoreColumn(score, stage, on), first): values
        for stage, sets in found.items()
        for on, scores in sets.items()
        for score, values in scores.items()
    }


def _at_end_of_round(context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of the models at the end of a round.

    Raises ``DivergenceError`` for models that are not finite, if that is the policy.
    """
    scores = scores_of(context.run_state, context.parallel_map, context.sets)
    if context.done:
        check_scores(context.run_state.monitor, scores, context.sets, context.t, context.lr)
    return scores


def _before_exchange(context: EvaluationContext) -> Mapping[str, Scores]:
    """Return the scores of the models right before an exchange.

    In a round without an exchange, return the scores at its end.
    """
    if "" in context.found:
        return context.found[""]
    return scores_of(context.run_state, context.parallel_map, context.sets)


def _scores_with_neighbors(neighbors: Neighbors, context: EvaluationContext) -> dict[str, Scores]:
    return scores_with_neighbors(context.run_state, context.parallel_map, neighbors, context.sets)


def _fine_tunes_after(every: int | None, done: int, rounds: int) -> bool:
    return done > 0 and (done == rounds or (every is not None and done % every == 0))


def _fine_tuned_scores(phase: Phase, context: EvaluationContext) -> dict[str, Scores]:
    assert context.graph is not None, "models are not fine-tuned before the first round"
    return fine_tuned(
        context.run_state, context.parallel_map, phase, context.sets, context.t, context.graph
    )


def _custom_scores(
    name: str, function: CustomStage, context: EvaluationContext
) -> dict[str, Scores]:
    """Return the scores of the models that a user-defined stage returns."""
    run_state = context.run_state
    everyone = run_state.models.of_all_nodes()
    isolated = _isolated(run_state, everyone, context.graph)
    returned = _returned(f"`evaluation.also[{name!r}]`", name, function, context, isolated)
    flat = check_returned_models(name, returned, everyone)
    models = run_state.models.like(run_state.ranks.own_rows(flat))
    return scores_of(replace(isolated, models=models), context.parallel_map, context.sets)


def node_values(
    functions: Mapping[str, NodeValues], context: EvaluationContext
) -> dict[str, Tensor]:
    """Return the values per node, (n,), of user-defined columns, by name."""
    if not functions:
        return {}
    run_state = context.run_state
    isolated = _isolated(run_state, run_state.models.of_all_nodes(), context.graph)
    found = {}
    for name, function in functions.items():
        argument = f"`evaluation.per_node[{name!r}]`"
        returned = _returned(argument, name, function, context, isolated)
        found[name] = check_returned_values(name, returned, run_state.models.n)
    return found


def _returned(
    argument: str,
    name: str,
    function: Callable[..., Any],
    context: EvaluationContext,
    isolated: RunState,
) -> Any:
    """Return what a user-defined function returns for the models of all nodes, in `isolated`.

    Raises ``ValueError`` if it changes them or the states of phases.
    """
    everyone, models = isolated.models, context.run_state.models
    current = EngineRound(
        isolated, context.parallel_map, context.t, statistics=None, phase=f"evaluation.{name}",
        sharded=context.sharded,
    )  # fmt: skip
    current.states = context.states
    if everyone is not models:
        current.gathered = {}  # states, too, are those of all nodes
    before = versions_of(everyone, models.push_sum_weights, context.states)
    try:
        returned = function(everyone, current)
    except DivergenceError as error:
        raise DivergenceError(f"in the evaluation {name!r}, {error}", error.found) from error
    except (RankError, OSError, MemoryError, torch.OutOfMemoryError):
        raise  # not of the function itself
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"{argument} must return a result for models of shape {tuple(everyone.flat.shape)} "
            f"after round {context.done}, got {type(error).__name__}: {error}; correct the function"
        ) from error
    if versions_of(everyone, models.push_sum_weights, context.states) != before:
        raise ValueError(
            f"{argument} must not change the models or the states of phases; work on a copy, "
            "models.like(models.flat.clone())"
        )
    return returned


def _isolated(run_state: RunState, models: Population, graph: Topology | None) -> RunState:
    """Return a copy of the run's state in which training and divergence do not affect the run."""
    monitor = DivergenceMonitor(
        run_state.monitor.policy,
        run_state.monitor.n,
        list(run_state.monitor.found),
        run_state.monitor.attack,
        run_state.monitor.labels,
    )
    return replace(
        run_state,
        models=models,
        monitor=monitor,
        graphs=run_state.graphs if graph is None else graph,
    )


def scores_of(
    run_state: RunState, parallel_map: ParallelMap, sets: EvaluationSets
) -> dict[str, Scores]:
    """Return the scores of the current models on each set."""
    learner = run_state.learner
    on_host = learner.targets.device.type == "cpu"
    plan = run_state.evaluation_plan
    plan = plan if on_host else plan._replace(nodes=learner.plan.chunk)
    with returning_freed_memory(on_host and not is_linear(run_state.module)):
        found = {
            name: evaluate(
                run_state.module, run_state.models, learner.examples, learner.targets, on,
                parallel_map, learner.plan.workers, plan, run_state.task,
            )
            for name, on in run_state.sets.items()
            if on.nodes
        }  # fmt: skip
    return _of_all_ranks(run_state, found, sets)


def _of_all_ranks(
    run_state: RunState, found: Mapping[str, Scores], sets: EvaluationSets
) -> dict[str, Scores]:
    """Return the scores of the nodes of all ranks, given those of the own ones."""
    if run_state.ranks.size == 1:
        return dict(found)
    nothing = no_scores(sets, len(run_state.models.flat), run_state.task)
    device = run_state.models.flat.device
    columns = {
        (name, score): found.get(name, nothing[name])[score].to(device)
        for name in sets
        for score in nothing[name]
    }
    gathered = run_state.ranks.all_rows(torch.stack(list(columns.values()), 1)).unbind(1)
    scores: dict[str, dict[str, Tensor]] = {name: {} for name in sets}
    for (name, score), values in zip(columns, gathered, strict=True):
        scores[name][score] = values
    return dict(scores)


def scores_with_neighbors(
    run_state: RunState, parallel_map: ParallelMap, neighbors: Neighbors, sets: EvaluationSets
) -> dict[str, Scores]:
    """Return the scores, on each set, of models interpolated with nearest training examples."""
    learner = run_state.learner
    device = learner.targets.device
    indices = list(map(learner.batches.members, range(len(run_state.models.flat))))
    members = torch.from_numpy(np.concatenate(indices)).to(device).split(list(map(len, indices)))
    with returning_freed_memory(device.type == "cpu" and not is_linear(run_state.module)):
        found = neighbor_scores(
            run_state.module,
            run_state.models,
            learner.examples,
            learner.targets,
            members.__getitem__,
            neighbors,
            run_state.sets,
            parallel_map,
            learner.plan.workers,
            run_state.task,
        )
    return _of_all_ranks(run_state, found, sets)


def no_scores(sets: EvaluationSets, n: int, task: Task) -> dict[str, Scores]:
    """Return NaN scores of n nodes, for a stage that is not due."""
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device="cpu")
    return {name: dict.fromkeys(task.reported, nothing) for name in sets}


def check_scores(
    monitor: DivergenceMonitor,
    scores: Mapping[str, Scores],
    sets: EvaluationSets,
    t: int,
    lr: float | None,
) -> None:
    """Raise ``DivergenceError`` for nodes with an infinite or NaN loss, if that is the policy."""
    for name, found in scores.items():
        monitor.check_scores(found["loss"], scored_nodes(sets[name]), t, lr)


def fine_tuned(
    run_state: RunState,
    parallel_map: ParallelMap,
    phase: Phase,
    sets: EvaluationSets,
    t: int,
    graph: Topology,
) -> dict[str, Scores]:
    """Return the scores of copies of the models, fine-tuned by a phase after round `t`.

    The run is not affected: the copies have push-sum weights of 1, and their own state, ledger,
    divergence monitor and stream of minibatches. Nodes without a score and frozen nodes are not
    trained.

    Raises
    ------
    DivergenceError
        If a copy becomes NaN or infinite, and that is the policy.
    """
    models = run_state.models.like(run_state.models.flat.clone())
    isolated = _isolated(run_state, models, graph)
    only = _scored_somewhere(sets, run_state.models.n)
    current = EngineRound(isolated, parallel_map, t, statistics=None, phase="fine_tune", only=only)
    try:
        phase.apply(models, phase.init(models), current)
        scores = scores_of(isolated, parallel_map, sets)
        check_scores(isolated.monitor, scores, sets, t, current.training.lr)
    except DivergenceError as error:
        raise DivergenceError(f"in fine-tuning, {error}", error.found) from error
    return scores


def _scored_somewhere(sets: EvaluationSets, n: int) -> np.ndarray | None:
    """Return a mask (n,) of the nodes with a score on some set; None if all have one."""
    found = np.zeros(n, dtype=bool)
    for on in sets.values():
        found[scored_nodes(on)] = True
    return None if found.all() else found
