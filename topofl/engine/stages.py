"""Stages of evaluations: which models are scored, and when; and the columns of an evaluation.

Models are scored at the end of a round, and optionally right before they are exchanged, after
fine-tuning, together with nearest neighbors, and by user-defined stages. Further columns are the
consensus distance, push-sum weights, and user-defined values per node.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import shown
from topofl._support.machine import returning_freed_memory
from topofl.algorithms.contract.phase import Neighbors, Phase
from topofl.algorithms.contract.round import Models
from topofl.engine.divergence import DivergenceError
from topofl.engine.evaluation import Scores, evaluate, scored
from topofl.engine.neighbors import neighbor_scores
from topofl.engine.population import ROWS, Held, Population
from topofl.engine.ranks import RankError, one_process
from topofl.engine.round import computed_round
from topofl.engine.state import Run, is_due
from topofl.metrics import consensus_distance

Before = Mapping[str, Scores] | None
"""Scores right before an exchange, on each set; None: the round had no exchange."""


def evaluation_columns(
    run: Run, before: Before, diversities: Sequence[float], noted: Mapping[str, Tensor]
) -> list[dict[str, Any]]:
    """Return the columns of an evaluation at the end of a round, of each run.

    Scores right `before` an exchange, the diversities of gradients, and the values per node that
    phases `noted` are from within the round.
    """
    scores, others = _scores_of_stages(run, before), dict(noted) | _node_values(run)
    if run.setup.trace.pushes:
        weights = run.ranks.all_rows(run.models.push_sum_weights).clone()
        others = {"push_weight": weights} | others
    left_out = "consensus_distance" in run.setup.evaluation.without
    columns = []
    for rows, diversity in zip(run.setup.rows, diversities, strict=True):
        distance = math.nan if left_out else _consensus_distance(run, rows)
        numbers = {"consensus_distance": distance, "gradient_diversity": diversity}
        own = ({name: x[rows] for name, x in some.items()} for some in (scores, others))
        columns.append({**next(own), **numbers, **next(own)})
    return columns


def _scores_of_stages(run: Run, before: Before) -> dict[str, Tensor]:
    """Return the columns of scores, (n,) each."""
    setup, phase = run.setup, run.algorithm.fine_tune
    nothing = torch.full((run.models.n,), torch.nan, dtype=torch.float64, device="cpu")
    found: dict[str, Mapping[str, Scores]] = {}
    for stage in setup.stages:
        if stage == "before_exchange":  # without an exchange, these are those at the end
            found[stage] = found[""] if before is None else before
        elif not is_due(setup.evaluation, stage, run.done, run.rounds):
            continue
        elif stage == "":
            found[stage] = _finite(run, scores_of(run), run.lr) if run.done else scores_of(run)
        elif stage == "knn":
            found[stage] = scores_of(run, run.algorithm.neighbors)
        elif stage == "fine_tuned" and phase is not None:
            found[stage] = _fine_tuned(phase, run)
        else:
            everyone = _of_all_nodes(run.models)
            flat = _check_returned_models(stage, _returned("also", stage, run, everyone), everyone)
            models = run.models.like(run.ranks.own_rows(flat))
            found[stage] = scores_of(replace(run, models=models))
    return {
        name: found[stage][on][score] if stage in found else nothing
        for name, (score, stage, on) in setup.columns.items()
    }


def _consensus_distance(run: Run, rows: slice) -> float:
    """Return the consensus distance of the honest nodes' shared columns, of one run's rows.

    All columns count if none are shared. Models that are stored once are represented by one.
    """
    models, files, ranks, mixing = run.models, run.files, run.ranks, run.mixing
    if run.setup.parts:
        flat = models.rows(rows)
    elif models.distinct == 1 and len(models) == models.n:
        flat = models.rows(slice(0, 1))
    elif mixing.attack is not None:
        flat = models.rows(slice(None))[ranks.own_rows(~mixing.is_attacker)]
    else:
        flat = models.rows(slice(None)) if files is None else models.flat
    parts = [flat[:, part] for part in run.setup.trace.share]
    if files is not None and len(flat) > 1:
        copies = (copied for part in parts for _, copied in files.blocks(part))
        return math.hypot(*map(consensus_distance, copies))
    shared = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return ranks.consensus_distance(shared)


def scores_of(run: Run, neighbors: Neighbors | None = None) -> dict[str, Scores]:
    """Return the scores of the current models, of all ranks' nodes, on each set.

    With `neighbors`, the models are interpolated with nearest training examples.
    """
    if run.setup.parts:
        return _scores_of_parts(run)
    plan, models, executor, sets = (
        run.setup.evaluation_plan, run.models, run.executor, run.sets
    )  # fmt: skip
    with returning_freed_memory(models.device.type == "cpu" and not plan.linear):
        if neighbors is None:
            found = {name: evaluate(plan, models, executor, on) for name, on in sets.items()}
        else:
            found = neighbor_scores(plan, models, executor, neighbors, sets)
    columns = [values for scores in found.values() for values in scores.values()]
    gathered = iter(run.ranks.all_rows(torch.stack(columns, 1)).unbind(1))
    return {name: {score: next(gathered) for score in scores} for name, scores in found.items()}


def _scores_of_parts(run: Run) -> dict[str, Scores]:
    """Return the scores of several runs' models, evaluated one run after another.

    They are copied, since sums of products depend on how memory is aligned. Equal models that each
    run stores once, as before the first round, are stored once here, too.
    """
    found: list[dict[str, Scores]] = []
    for setup, rows in zip(run.setup.parts, run.setup.rows, strict=True):
        n, held = setup.clients.n, Held(run.models.rows(rows).clone())
        if run.models.distinct < len(run.models):
            held = Held.equal(held.stored[:1], n)
        models = Population(held, run.models.layout, one_process(n, run.models.device))
        own = replace(run, setup=setup, models=models, ranks=models.ranks, sets=setup.sets)
        found.append(scores_of(own))
    return {
        name: {score: torch.cat([one[name][score] for one in found]) for score in scores}
        for name, scores in found[0].items()
    }


def _finite(run: Run, scores: dict[str, Scores], lr: float | None) -> dict[str, Scores]:
    """Return scores; raise ``DivergenceError`` for losses that are not finite, by the policy."""
    for name, found in scores.items():
        run.monitor.check_scores(found["loss"], scored(run.setup.sets[name]), run.t, lr)
    return scores


def _fine_tuned(phase: Phase, run: Run) -> dict[str, Scores]:
    """Return the scores of copies of the models, fine-tuned by a phase after the round.

    The run is not affected: the copies have push-sum weights of 1, their own state and divergence
    monitor, and another stream of minibatches. Their steps send no messages that count. Nodes
    without a score and frozen nodes are not trained.

    Raises
    ------
    DivergenceError
        If a copy becomes NaN or infinite, and that is the policy.
    """
    own, trained = run.models, np.zeros(run.models.n, dtype=bool)
    models = own.like(Held(own.held.stored.clone(), own.held.place).apart())
    for on in run.setup.sets.values():
        trained[scored(on)] = True
    isolated = _isolated(run, models)
    only = None if trained.all() else trained
    current = computed_round(isolated, phase="fine_tune", only=only)
    try:
        phase.apply(models, phase.init(models), current)
        return _finite(isolated, scores_of(isolated), current.lr)
    except DivergenceError as error:
        raise DivergenceError(f"in fine-tuning, {error}", error.found) from error


def _isolated(run: Run, models: Population) -> Run:
    """Return a copy of a run in which training and divergence do not affect the run."""
    monitor = replace(run.monitor, found=list(run.monitor.found))
    return replace(run, models=models, monitor=monitor)


def _node_values(run: Run) -> dict[str, Tensor]:
    """Return the values per node, (n,), of user-defined columns, by name."""
    functions = run.setup.evaluation.per_node
    if not functions:
        return {}
    everyone = _of_all_nodes(run.models)
    returned = ((name, _returned("per_node", name, run, everyone)) for name in functions)
    return {name: _checked_values(name, x, run.models.n) for name, x in returned}


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


def _returned(option: str, name: str, run: Run, everyone: Population) -> Any:
    """Return what a user-defined function returns for the models of all nodes.

    Raises ``ValueError`` if it changes them or the states of phases.
    """
    argument = f"`evaluation.{option}[{name!r}]`"
    isolated = _isolated(run, everyone)
    current = computed_round(isolated, phase=f"evaluation.{name}", states=run.states)
    if len(everyone) > len(run.models):
        current.gathered = {}  # states, too, are those of all nodes
    stored = everyone.held.stored
    own = {"models": stored, "push_sum_weights": everyone.push_sum_weights}

    def versions() -> list[tuple[Any, ...]]:
        every = {**run.states, "": own}
        tensors = ((phase, key, x) for phase in every for key, x in every[phase].items())
        return [(phase, key, id(x), x._version) for phase, key, x in tensors]

    before = versions()
    try:
        returned = getattr(run.setup.evaluation, option)[name](everyone, current)
    except DivergenceError as error:
        raise DivergenceError(f"in the evaluation {name!r}, {error}", error.found) from error
    except (RankError, OSError, MemoryError, torch.OutOfMemoryError):
        raise  # not of the function itself
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"{argument} must return a result for models of shape {(len(everyone), everyone.d)} "
            f"after round {run.done}, got {type(error).__name__}: {error}; correct the function"
        ) from error
    if versions() != before or not _unchanged(everyone, run.models, stored):
        must = f"{argument} must not change the models or the states of phases"
        raise ValueError(f"{must}; work on a copy, models.like(models.flat.clone())")
    return returned


def _unchanged(everyone: Population, models: Population, stored: Tensor) -> bool:
    """Return whether models that are no longer `stored` as before still are bitwise the run's."""
    if everyone.held.stored is stored:
        return True
    blocks = (slice(start, start + ROWS) for start in range(0, len(models), ROWS))
    pairs = ((everyone.rows(rows), models.rows(rows)) for rows in blocks)
    return all(torch.equal(one.view(torch.uint8), own.view(torch.uint8)) for one, own in pairs)


def _check_returned_models(name: str, returned: Models | Tensor, models: Population) -> Tensor:
    """Return the models (n, d) of a user-defined stage; raise unless they fit this run."""
    flat = returned if isinstance(returned, Tensor) else getattr(returned, "flat", None)
    shape = (len(models), models.d)
    wanted = f"`evaluation.also[{name!r}]` must return models or a tensor of shape (n, d)={shape}"
    if not isinstance(flat, Tensor):
        raise TypeError(f"{wanted}, got {shown(returned)}; return models.like(flat)")
    if flat.shape != shape:
        text = f"{wanted}, got shape {tuple(flat.shape)}"
        raise ValueError(f"{text}; for one model for all nodes, return flat.expand(n, -1)")
    if (flat.dtype, flat.device) != (models.dtype, models.device):
        text = f"{wanted} of {models.dtype} on {models.device}"
        raise ValueError(f"{text}, got {flat.dtype} on {flat.device}; return flat.to(models.flat)")
    return flat.detach().contiguous()


def _checked_values(name: str, returned: Tensor | np.ndarray, n: int) -> Tensor:
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
