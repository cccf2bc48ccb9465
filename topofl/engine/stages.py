"""Stages of evaluations: which models are scored, and when; and the columns of an evaluation.

Models are scored at the end of a round, and optionally right before they are exchanged, after
fine-tuning, together with nearest neighbors, and by user-defined stages. Further columns are the
consensus distance, push-sum weights, and user-defined values per node.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._columns import OWN_COLUMNS, ScoreColumn, columns_of, name_of
from topofl._support.check import shown
from topofl.algorithms.contract.phase import Algorithm, Neighbors, Phase
from topofl.algorithms.contract.round import Models, State
from topofl.engine.distributed.measured import distance_of_ranks
from topofl.engine.divergence import DivergenceError, DivergenceMonitor
from topofl.engine.evaluation import Evaluated, Scores, evaluate, scored_nodes
from topofl.engine.gradients import is_linear
from topofl.engine.memory import returning_freed_memory
from topofl.engine.neighbors import neighbor_scores
from topofl.engine.options import CustomStage
from topofl.engine.population import Population
from topofl.engine.rank_failure import RankError
from topofl.engine.round_work import RoundWork, computed_round
from topofl.engine.setup import Setup
from topofl.engine.state import RunState
from topofl.metrics import consensus_distance
from topofl.topology import Topology


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """Context of an evaluation: the run and the round.

    Parameters
    ----------
    run_state
        State of the run.
    setup, stages, rounds
        Setup, stages of evaluations, and number of rounds of the run.
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
    setup: Setup
    stages: Mapping[str, "EvaluationStage"]
    rounds: int
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

    @property
    def sets(self) -> Mapping[str, Evaluated]:
        """Evaluated nodes and examples, by the name of the set; the first name is in no column."""
        return self.setup.sets


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
        stages["knn"] = EvaluationStage(partial(_with_neighbors, algorithm.neighbors))
    if algorithm.fine_tune is not None:
        due = partial(_fine_tunes_after, evaluation.fine_tune_every)
        stages["fine_tuned"] = EvaluationStage(
            partial(_fine_tuned, algorithm.fine_tune), due, action="fine-tuned"
        )
    stages |= {
        name: EvaluationStage(partial(_custom_scores, name, function))
        for name, function in evaluation.custom.items()
    }
    for name, column in columns_of(setup.task.reported, stages, setup.sets).items():
        if column.stage and name in OWN_COLUMNS:
            raise ValueError(
                f"`evaluation.also` must not give a column the name {name!r}, which histories use "
                "already; rename the function's key"
            )
    return stages


def evaluation_columns(
    context: EvaluationContext,
    scores_before_exchange: Mapping[str, Mapping[str, Scores]],
    diversity: float,
    noted: Mapping[str, Tensor],
) -> dict[str, Any]:
    """Return the columns of an evaluation at the end of a round.

    Scores of stages right before an exchange, the `diversity` of gradients, and the values per node
    that phases `noted` are from within the round.
    """
    run_state = context.run_state
    columns: dict[str, Any] = dict(_scores_of_stages(context, scores_before_exchange))
    columns |= {
        "consensus_distance": _consensus_distance(run_state),
        "gradient_diversity": diversity,
    }
    if run_state.trace.pushes:
        weights = run_state.ranks.all_rows(run_state.models.push_sum_weights)
        columns |= {"push_weight": weights.clone()}
    return columns | dict(noted) | _node_values(context)


def _scores_of_stages(
    context: EvaluationContext, scores_before_exchange: Mapping[str, Mapping[str, Scores]]
) -> dict[str, Tensor]:
    """Return the columns of scores, (n,) each."""
    found: dict[str, Mapping[str, Scores]] = {}
    for name, stage in context.stages.items():
        if name in scores_before_exchange:
            found[name] = scores_before_exchange[name]
        elif stage.due(context.done, context.rounds):
            found[name] = stage.scores(replace(context, found=found))
        else:
            found[name] = _no_scores(context, context.run_state.models.n)
    first = next(iter(context.sets), "")
    return {
        name_of(ScoreColumn(score, stage, on), first): values
        for stage, sets in found.items()
        for on, scores in sets.items()
        for score, values in scores.items()
    }


def _consensus_distance(run_state: RunState) -> float:
    """Return the consensus distance of the honest nodes' shared columns."""
    parts, files, ranks = _shared_parts(run_state), run_state.files, run_state.ranks
    if files is not None and run_state.models.distinct > 1:
        copies = (copied for part in parts for _, copied in files.blocks(part))
        return math.hypot(*map(consensus_distance, copies))
    shared = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return consensus_distance(shared) if ranks.size == 1 else distance_of_ranks(shared, ranks)


def _shared_parts(run_state: RunState) -> list[Tensor]:
    """Return the shared columns of the honest nodes' models; all columns if none are shared.

    Models that are stored once are represented by one.
    """
    models, mixing = run_state.models, run_state.mixing
    if models.distinct == 1 and run_state.ranks.size == 1:
        flat = models.rows(slice(0, 1))
    elif mixing.attack is None:
        flat = models.flat
    else:
        flat = models.flat[run_state.ranks.own_rows(~mixing.is_attacker)]
    return [flat[:, part] for part in run_state.trace.share]


def _at_end_of_round(context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of the models at the end of a round.

    Raises ``DivergenceError`` for models that are not finite, if that is the policy.
    """
    scores = _scores_of(context)
    if context.done:
        _check_scores(context, scores, context.lr)
    return scores


def _before_exchange(context: EvaluationContext) -> Mapping[str, Scores]:
    """Return the scores of the models right before an exchange.

    In a round without an exchange, return the scores at its end.
    """
    if "" in context.found:
        return context.found[""]
    return _scores_of(context)


def _fine_tunes_after(every: int | None, done: int, rounds: int) -> bool:
    return done > 0 and (done == rounds or (every is not None and done % every == 0))


def _custom_scores(
    name: str, function: CustomStage, context: EvaluationContext
) -> dict[str, Scores]:
    """Return the scores of the models that a user-defined stage returns."""
    run_state = context.run_state
    everyone = run_state.models.of_all_nodes()
    isolated = _isolated(context, everyone)
    returned = _returned(f"`evaluation.also[{name!r}]`", name, function, context, isolated)
    flat = _check_returned_models(name, returned, everyone)
    models = run_state.models.like(run_state.ranks.own_rows(flat))
    return _scores_of(replace(context, run_state=replace(isolated, models=models)))


def _node_values(context: EvaluationContext) -> dict[str, Tensor]:
    """Return the values per node, (n,), of user-defined columns, by name."""
    functions, run_state = context.setup.evaluation.per_node, context.run_state
    if not functions:
        return {}
    isolated = _isolated(context, run_state.models.of_all_nodes())
    found = {}
    for name, function in functions.items():
        argument = f"`evaluation.per_node[{name!r}]`"
        returned = _returned(argument, name, function, context, isolated)
        found[name] = _check_returned_values(name, returned, run_state.models.n)
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
    work = RoundWork(isolated, context.t)
    current = computed_round(work, context.states, context.sharded, f"evaluation.{name}")
    if everyone is not models:
        current.gathered = {}  # states, too, are those of all nodes
    before = _versions_of(everyone, models.push_sum_weights, context.states)
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
    if _versions_of(everyone, models.push_sum_weights, context.states) != before:
        raise ValueError(
            f"{argument} must not change the models or the states of phases; work on a copy, "
            "models.like(models.flat.clone())"
        )
    return returned


def _isolated(context: EvaluationContext, models: Population) -> RunState:
    """Return a copy of the run's state in which training and divergence do not affect the run."""
    run_state, own = context.run_state, context.run_state.monitor
    monitor = DivergenceMonitor(own.policy, own.n, list(own.found), own.attack, own.labels)
    graphs = run_state.graphs if context.graph is None else context.graph
    return replace(run_state, models=models, monitor=monitor, graphs=graphs)


def _versions_of(
    models: Population, push_sum_weights: Tensor, states: Mapping[str, State]
) -> list[tuple[Any, ...]]:
    """Return versions of the models, push-sum weights and states, to detect in-place changes."""
    tensors = [
        ("", "models", models.flat),
        ("", "push_sum_weights", push_sum_weights),
        *((phase, key, value) for phase, state in states.items() for key, value in state.items()),
    ]
    return [(phase, key, id(tensor), tensor._version) for phase, key, tensor in tensors]


def _check_returned_models(name: str, returned: Models | Tensor, models: Population) -> Tensor:
    """Return the models (n, d) of a user-defined stage; raise unless they fit this run."""
    flat = returned if isinstance(returned, Tensor) else getattr(returned, "flat", None)
    shape = (len(models), models.d)
    wanted = f"`evaluation.also[{name!r}]` must return models or a tensor of shape (n, d)={shape}"
    if not isinstance(flat, Tensor):
        raise TypeError(f"{wanted}, got {shown(returned)}; return models.like(flat)")
    if flat.shape != shape:
        raise ValueError(
            f"{wanted}, got shape {tuple(flat.shape)}; for one model for all nodes, return "
            "flat.expand(n, -1)"
        )
    if (flat.dtype, flat.device) != (models.dtype, models.device):
        raise ValueError(
            f"{wanted} of {models.dtype} on {models.device}, got {flat.dtype} on "
            f"{flat.device}; return flat.to(models.flat)"
        )
    return flat.detach().contiguous()


def _check_returned_values(name: str, returned: Tensor | np.ndarray, n: int) -> Tensor:
    """Return the values per node, (n,), of a user-defined column; raise unless they are such."""
    if not isinstance(returned, Tensor | np.ndarray) or tuple(returned.shape) != (n,):
        array = isinstance(returned, Tensor | np.ndarray)
        got = f"shape {tuple(returned.shape)}" if array else shown(returned)
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return one number per node, a tensor or an "
            f"array of shape (n,)=({n},), got {got}; reduce the other axes, as by values.mean(1)"
        )
    real = (
        not returned.is_complex() if isinstance(returned, Tensor) else returned.dtype.kind in "biuf"
    )
    if not real:
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return real numbers, got {returned.dtype}; "
            "convert them"
        )
    if isinstance(returned, Tensor):
        return returned.detach().clone()
    return torch.from_numpy(returned.copy())


def _scores_of(context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of the current models on each set."""
    run_state, executor = context.run_state, context.run_state.executor
    on_host = executor.targets.device.type == "cpu"
    plan = run_state.evaluation_plan
    plan = plan if on_host else plan._replace(nodes=executor.plan.chunk)
    with returning_freed_memory(on_host and not is_linear(run_state.module)):
        found = {
            name: evaluate(
                run_state.module, run_state.models, executor.examples, executor.targets, on,
                executor.parallel_map, executor.plan.workers, plan, run_state.task,
            )
            for name, on in run_state.sets.items()
            if on.nodes
        }  # fmt: skip
    return _of_all_ranks(context, found)


def _with_neighbors(neighbors: Neighbors, context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores, on each set, of models interpolated with nearest training examples."""
    run_state, executor = context.run_state, context.run_state.executor
    device = executor.targets.device
    indices = list(map(executor.batches.members, range(len(run_state.models))))
    members = torch.from_numpy(np.concatenate(indices)).to(device).split(list(map(len, indices)))
    with returning_freed_memory(device.type == "cpu" and not is_linear(run_state.module)):
        found = neighbor_scores(
            run_state.module, run_state.models, executor.examples, executor.targets,
            members.__getitem__, neighbors, run_state.sets, executor.parallel_map,
            executor.plan.workers, run_state.task,
        )  # fmt: skip
    return _of_all_ranks(context, found)


def _of_all_ranks(context: EvaluationContext, found: Mapping[str, Scores]) -> dict[str, Scores]:
    """Return the scores of the nodes of all ranks, given those of the own ones."""
    models, ranks = context.run_state.models, context.run_state.ranks
    scores = {
        name: dict(found.get(name, nothing))
        for name, nothing in _no_scores(context, len(models)).items()
    }
    columns = [values.to(models.device) for own in scores.values() for values in own.values()]
    gathered = iter(ranks.all_rows(torch.stack(columns, 1)).unbind(1))
    return {name: {score: next(gathered) for score in own} for name, own in scores.items()}


def _no_scores(context: EvaluationContext, n: int) -> dict[str, Scores]:
    """Return NaN scores of n nodes, for a stage that is not due."""
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device="cpu")
    return {name: dict.fromkeys(context.setup.task.reported, nothing) for name in context.sets}


def _check_scores(
    context: EvaluationContext, scores: Mapping[str, Scores], lr: float | None
) -> None:
    """Raise ``DivergenceError`` for nodes with an infinite or NaN loss, if that is the policy."""
    monitor = context.run_state.monitor
    for name, found in scores.items():
        nodes = scored_nodes(context.sets[name])
        monitor.check_scores(found["loss"], nodes, context.t, lr)


def _fine_tuned(phase: Phase, context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of copies of the models, fine-tuned by a phase after the round.

    The run is not affected: the copies have push-sum weights of 1, and their own state, ledger,
    divergence monitor and stream of minibatches. Nodes without a score and frozen nodes are not
    trained.

    Raises
    ------
    DivergenceError
        If a copy becomes NaN or infinite, and that is the policy.
    """
    own = context.run_state.models
    models = own.like(own.rows(slice(None)).clone())
    isolated = replace(context, run_state=_isolated(context, models))
    only = _scored_somewhere(context.sets, own.n)
    work = RoundWork(isolated.run_state, context.t, only=only)
    current = computed_round(work, phase="fine_tune")
    try:
        phase.apply(models, phase.init(models), current)
        scores = _scores_of(isolated)
        _check_scores(isolated, scores, work.lr)
    except DivergenceError as error:
        raise DivergenceError(f"in fine-tuning, {error}", error.found) from error
    return scores


def _scored_somewhere(sets: Mapping[str, Evaluated], n: int) -> np.ndarray | None:
    """Return a mask (n,) of the nodes with a score on some set; None if all have one."""
    found = np.zeros(n, dtype=bool)
    for on in sets.values():
        found[scored_nodes(on)] = True
    return None if found.all() else found
