"""The columns of an evaluation: scores, consensus distance and push-sum weights."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from topofl.engine.active_run import ActiveRun
from topofl.engine.distributed.measured import distance_of_ranks
from topofl.engine.evaluation import Scores
from topofl.engine.stages import EvaluationContext, node_values, scores_of_stages
from topofl.engine.state import RunState
from topofl.metrics import consensus_distance

__all__ = ["evaluation_columns"]


def evaluation_columns(
    active: ActiveRun,
    context: EvaluationContext,
    scores_before_exchange: Mapping[str, Mapping[str, Scores]],
    diversity: float,
    noted: Mapping[str, Tensor],
) -> dict[str, Any]:
    """Return the columns of an evaluation.

    `scores_before_exchange`, the `diversity` of gradients and the values per node that phases
    `noted` are from within the round.
    """
    run_state = context.run_state
    columns: dict[str, Any] = dict(
        scores_of_stages(active.stages, context, active.rounds, scores_before_exchange)
    )
    columns |= {
        "consensus_distance": _consensus_distance(run_state),
        "gradient_diversity": diversity,
    }
    if run_state.trace.pushes:
        weights = run_state.ranks.all_rows(run_state.models.push_sum_weights)
        columns |= {"push_weight": weights.clone()}
    return columns | dict(noted) | node_values(active.setup.evaluation.per_node or {}, context)


def _consensus_distance(run_state: RunState) -> float:
    """Return the consensus distance of the honest nodes' shared columns."""
    parts, files, ranks = _shared_parts(run_state), run_state.files, run_state.ranks
    if files is not None:
        copies = (copied for part in parts for _, copied in files.blocks(part))
        return math.hypot(*map(consensus_distance, copies))
    shared = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return consensus_distance(shared) if ranks.size == 1 else distance_of_ranks(shared, ranks)


def _shared_parts(run_state: RunState) -> list[Tensor]:
    """Return the shared columns of the honest nodes' models; all columns if none are shared."""
    flat, active_attack = run_state.models.flat, run_state.mixing.attack
    if active_attack is not None:
        flat = flat[run_state.ranks.own_rows(~active_attack.is_attacker)]
    return [flat[:, part] for part in run_state.trace.share]
