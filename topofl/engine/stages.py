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
from topofl.engine.divergence import DivergenceError, DivergenceMonitor
from topofl.engine.evaluation import Scores, bits_of, evaluate
from topofl.engine.memory import returning_freed_memory
from topofl.engine.neighbors import neighbor_scores
from topofl.engine.options import CustomStage, Evaluation
from topofl.engine.population import Held, Population
from topofl.engine.ranks import RankError
from topofl.engine.round_work import RoundWork, computed_round
from topofl.engine.setup import Setup
from topofl.engine.state import RunState
from topofl.metrics import consensus_distance
from topofl.topology import Topology

BLOCK = 64
"""Rows of which the bits are compared at a time."""


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
    """

    run_state: RunState
    setup: Setup
    stages: Mapping[str, "Stage"]
    rounds: int
    done: int
    states: Mapping[str, State] = field(default_factory=dict)
    sharded: Mapping[str, Collection[str]] = field(default_factory=dict)
    graph: Topology | None = None
    lr: float | None = None

    @property
    def t(self) -> int:
        """The current round, from 0; 0 before the first round too."""
        return max(0, self.done - 1)


Stage = Callable[[EvaluationContext], Mapping[str, Scores]]
"""Stage of evaluations: returns the scores on each set."""


def is_due(evaluation: Evaluation, stage: str, done: int, rounds: int) -> bool:
    """Return whether an evaluation after `done` of `rounds` rounds has a stage, or NaN for it."""
    every = evaluation.fine_tune_every
    last = done == rounds or (every is not None and done % every == 0)
    return stage != "fine_tuned" or (done > 0 and last)


def stages_of(setup: Setup, algorithm: Algorithm) -> dict[str, Stage]:
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
    stages: dict[str, Stage] = {"": _at_end_of_round}
    if evaluation.before_exchange:
        stages["before_exchange"] = lambda context: _scores_of(context.run_state)
    if algorithm.neighbors is not None:
        stages["knn"] = lambda context: _scores_of(context.run_state, algorithm.neighbors)
    if algorithm.fine_tune is not None:
        stages["fine_tuned"] = partial(_fine_tuned, algorithm.fine_tune)
    for name, function in evaluation.custom.items():
        stages[name] = partial(_custom_scores, name, function)
    for name, column in columns_of(setup.task.reported, stages, setup.sets).items():
        if column.stage and name in OWN_COLUMNS:
            raise ValueError(
                f"`evaluation.also` must not give a column the name {name!r}, which histories use "
                "already; rename the function's key"
            )
    return stages


def evaluation_columns(
    context: EvaluationContext,
    before_exchange: Mapping[str, Scores] | None,
    diversity: float,
    noted: Mapping[str, Tensor],
) -> dict[str, Any]:
    """Return the columns of an evaluation at the end of a round.

    Scores right `before_exchange` (None: the round had no exchange), the `diversity` of gradients,
    and the values per node that phases `noted` are from within the round.
    """
    run_state = context.run_state
    columns: dict[str, Any] = {
        **_scores_of_stages(context, before_exchange),
        "consensus_distance": _consensus_distance(run_state),
        "gradient_diversity": diversity,
    }
    if run_state.trace.pushes:
        weights = run_state.ranks.all_rows(run_state.models.push_sum_weights)
        columns |= {"push_weight": weights.clone()}
    return columns | dict(noted) | _node_values(context)


def _scores_of_stages(
    context: EvaluationContext, before_exchange: Mapping[str, Scores] | None
) -> dict[str, Tensor]:
    """Return the columns of scores, (n,) each."""
    setup, n = context.setup, context.run_state.models.n
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device="cpu")
    found: dict[str, Mapping[str, Scores]] = {}
    for name, scores_of in context.stages.items():
        if name == "before_exchange":  # without an exchange, these are those at the end
            found[name] = found[""] if before_exchange is None else before_exchange
        elif is_due(setup.evaluation, name, context.done, context.rounds):
            found[name] = scores_of(context)
        else:
            found[name] = {on: dict.fromkeys(setup.task.reported, nothing) for on in setup.sets}
    first = next(iter(setup.sets), "")
    return {
        name_of(ScoreColumn(score, stage, on), first): values
        for stage, sets in found.items()
        for on, scores in sets.items()
        for score, values in scores.items()
    }


def _consensus_distance(run_state: RunState) -> float:
    """Return the consensus distance of the honest nodes' shared columns.

    All columns count if none are shared. Models that are stored once are represented by one.
    """
    models, files, ranks = run_state.models, run_state.files, run_state.ranks
    attack = run_state.mixing.attack
    if models.distinct == 1 and len(models) == models.n:
        flat = models.rows(slice(0, 1))
    elif attack is not None:
        flat = models.rows(slice(None))[ranks.own_rows(~run_state.mixing.is_attacker)]
    else:
        flat = models.rows(slice(None)) if files is None else models.flat
    parts = [flat[:, part] for part in run_state.trace.share]
    if files is not None and len(flat) > 1:
        copies = (copied for part in parts for _, copied in files.blocks(part))
        return math.hypot(*map(consensus_distance, copies))
    shared = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return run_state.ranks.consensus_distance(shared)


def _scores_of(run_state: RunState, neighbors: Neighbors | None = None) -> dict[str, Scores]:
    """Return the scores of the current models, of all ranks' nodes, on each set.

    With `neighbors`, the models are interpolated with nearest training examples.
    """
    plan, models, executor = run_state.evaluation_plan, run_state.models, run_state.executor
    with returning_freed_memory(models.device.type == "cpu" and not plan.linear):
        if neighbors is None:
            found = {
                name: evaluate(plan, models, executor, on) for name, on in run_state.sets.items()
            }
        else:
            found = neighbor_scores(plan, models, executor, neighbors, run_state.sets)
    columns = [values for scores in found.values() for values in scores.values()]
    gathered = iter(run_state.ranks.all_rows(torch.stack(columns, 1)).unbind(1))
    return {name: {score: next(gathered) for score in scores} for name, scores in found.items()}


def _at_end_of_round(context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of the models at the end of a round.

    Raises ``DivergenceError`` for models that are not finite, if that is the policy.
    """
    scores = _scores_of(context.run_state)
    if context.done:
        _check_scores(context, context.run_state.monitor, scores, context.lr)
    return scores


def _check_scores(
    context: EvaluationContext,
    monitor: DivergenceMonitor,
    scores: Mapping[str, Scores],
    lr: float | None,
) -> None:
    """Raise ``DivergenceError`` for nodes with an infinite or NaN loss, if that is the policy."""
    for name, found in scores.items():
        monitor.check_scores(found["loss"], context.setup.sets[name].scored, context.t, lr)


def _fine_tuned(phase: Phase, context: EvaluationContext) -> dict[str, Scores]:
    """Return the scores of copies of the models, fine-tuned by a phase after the round.

    The run is not affected: the copies have push-sum weights of 1, their own state and divergence
    monitor, and another stream of minibatches. Their steps send no messages that count. Nodes
    without a score and frozen nodes are not trained.

    Raises
    ------
    DivergenceError
        If a copy becomes NaN or infinite, and that is the policy.
    """
    own, scored = context.run_state.models, np.zeros(context.run_state.models.n, dtype=bool)
    models = own.like(Held(own.held.stored.clone(), own.held.place).apart())
    for on in context.setup.sets.values():
        scored[on.scored] = True
    isolated = _isolated(context, models)
    work = RoundWork(isolated, context.t, only=None if scored.all() else scored)
    try:
        phase.apply(models, phase.init(models), computed_round(work, phase="fine_tune"))
        scores = _scores_of(isolated)
        _check_scores(context, isolated.monitor, scores, work.lr)
    except DivergenceError as error:
        raise DivergenceError(f"in fine-tuning, {error}", error.found) from error
    return scores


def _isolated(context: EvaluationContext, models: Population) -> RunState:
    """Return a copy of the run's state in which training and divergence do not affect the run."""
    run_state = context.run_state
    monitor = replace(run_state.monitor, found=list(run_state.monitor.found))
    graphs = run_state.graphs if context.graph is None else context.graph
    return replace(run_state, models=models, monitor=monitor, graphs=graphs)


def _custom_scores(
    name: str, function: CustomStage, context: EvaluationContext
) -> dict[str, Scores]:
    """Return the scores of the models that a user-defined stage returns."""
    run_state, everyone = context.run_state, _of_all_nodes(context.run_state.models)
    returned = _returned(f"`evaluation.also[{name!r}]`", name, function, context, everyone)
    flat = _check_returned_models(name, returned, everyone)
    models = run_state.models.like(run_state.ranks.own_rows(flat))
    return _scores_of(replace(run_state, models=models))


def _node_values(context: EvaluationContext) -> dict[str, Tensor]:
    """Return the values per node, (n,), of user-defined columns, by name."""
    functions, found = context.setup.evaluation.per_node, {}
    if not functions:
        return {}
    everyone = _of_all_nodes(context.run_state.models)
    for name, function in functions.items():
        returned = _returned(f"`evaluation.per_node[{name!r}]`", name, function, context, everyone)
        found[name] = _check_returned_values(name, returned, context.run_state.models.n)
    return found


def _of_all_nodes(models: Population) -> Population:
    """Return the models of all nodes for user-defined functions.

    Functions that read `flat` store models apart that the run stores once: in a copy, unless the
    run's models are in a file.
    """
    everyone = models.of_all_nodes()
    if everyone.held.place is None or everyone.held.new is not None:
        everyone.held.apart()
        return everyone
    copied = replace(everyone, held=Held(everyone.held.stored, everyone.held.place))
    copied.push_sum_weights.copy_(everyone.push_sum_weights)
    return copied


def _returned(
    argument: str,
    name: str,
    function: Callable[..., Any],
    context: EvaluationContext,
    everyone: Population,
) -> Any:
    """Return what a user-defined function returns for the models of all nodes.

    Raises ``ValueError`` if it changes them or the states of phases.
    """
    models = context.run_state.models
    work = RoundWork(_isolated(context, everyone), context.t)
    current = computed_round(work, context.states, context.sharded, f"evaluation.{name}")
    if len(everyone) > len(models):
        current.gathered = {}  # states, too, are those of all nodes
    stored = everyone.held.stored

    def versions() -> list[tuple[Any, ...]]:
        own = {"models": stored, "push_sum_weights": everyone.push_sum_weights}
        every = {**context.states, "": own}
        tensors = ((phase, key, x) for phase in every for key, x in every[phase].items())
        return [(phase, key, id(x), x._version) for phase, key, x in tensors]

    before = versions()
    try:
        returned = function(everyone, current)
    except DivergenceError as error:
        raise DivergenceError(f"in the evaluation {name!r}, {error}", error.found) from error
    except (RankError, OSError, MemoryError, torch.OutOfMemoryError):
        raise  # not of the function itself
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"{argument} must return a result for models of shape {(len(everyone), everyone.d)} "
            f"after round {context.done}, got {type(error).__name__}: {error}; correct the function"
        ) from error
    if versions() != before or not _unchanged(everyone, models, stored):
        raise ValueError(
            f"{argument} must not change the models or the states of phases; work on a copy, "
            "models.like(models.flat.clone())"
        )
    return returned


def _unchanged(everyone: Population, models: Population, stored: Tensor) -> bool:
    """Return whether models that are no longer `stored` as before still are bitwise the run's."""
    if everyone.held.stored is stored:
        return True
    blocks = (slice(start, start + BLOCK) for start in range(0, len(models), BLOCK))
    return all(
        torch.equal(bits_of(everyone.rows(rows)), bits_of(models.rows(rows))) for rows in blocks
    )


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
    array = isinstance(returned, Tensor | np.ndarray)
    if not array or tuple(returned.shape) != (n,):
        got = f"shape {tuple(returned.shape)}" if array else shown(returned)
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return one number per node, a tensor or an "
            f"array of shape (n,)=({n},), got {got}; reduce the other axes, as by values.mean(1)"
        )
    dtype = returned.dtype
    if dtype.is_complex if isinstance(dtype, torch.dtype) else dtype.kind not in "biuf":
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return real numbers, got {dtype}; convert them"
        )
    if isinstance(returned, Tensor):
        return returned.detach().clone()
    return torch.from_numpy(returned.copy())
