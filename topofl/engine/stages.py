"""The moments at which models are evaluated: before an exchange, at the end of a round, after fine-tuning.

At the end of a round also beside their neighbors, if the algorithm says so.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.phase import Neighbors, Phase
from topofl.engine.divergence import DivergenceError, Guard
from topofl.engine.evaluate import Evaluated, Scores, evaluate, scored
from topofl.engine.forward import is_linear
from topofl.engine.free_memory import giving_back
from topofl.engine.neighbors import near_scores
from topofl.engine.round import WorldRound
from topofl.engine.threads import Each
from topofl.engine.world import World
from topofl.tasks import Task
from topofl.topology import Topology

__all__ = ["Sets", "beside_neighbors", "check_scores", "columns_of", "fine_tuned", "no_scores", "scores_of"]

Sets = Mapping[str, Evaluated]
"""What is evaluated, by the names of the sets of examples; the first one gives its name to no column."""


def scores_of(world: World, each: Each, sets: Sets) -> dict[str, Scores]:
    """Return the scores of the models as they are, on each set."""
    learner, workers = world.learner, world.learner.plan.workers
    on_host = learner.targets.device.type == "cpu"
    way = world.evaluated if on_host else world.evaluated._replace(nodes=learner.plan.chunk)
    with giving_back(on_host and not is_linear(world.module)):
        return {
            name: evaluate(
                world.module, world.models, learner.examples, learner.targets, on, each, workers, way, world.task
            )
            for name, on in sets.items()
        }


def beside_neighbors(world: World, each: Each, how: Neighbors, sets: Sets) -> dict[str, Scores]:
    """Return the scores of the models beside the nearest of their nodes' training examples, on each set."""
    learner = world.learner
    device = learner.targets.device
    held = list(map(learner.batches.members, range(world.models.n)))
    members = torch.from_numpy(np.concatenate(held)).to(device).split(list(map(len, held)))

    with giving_back(device.type == "cpu" and not is_linear(world.module)):
        return near_scores(
            world.module, world.models, learner.examples, learner.targets, members.__getitem__, how, sets, each,
            learner.plan.workers, world.task,
        )  # fmt: skip


def no_scores(sets: Sets, n: int, task: Task) -> dict[str, Scores]:
    """Return NaN for n nodes: the scores of a moment that a round does not have."""
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device="cpu")
    return {name: dict.fromkeys(task.reported, nothing) for name in sets}


def columns_of(scores: Mapping[str, Scores], moment: str = "") -> dict[str, Tensor]:
    """Return scores as columns, (n,) each: the score's name, then moment, then the set unless it is the first.

    Examples
    --------
    >>> zeros = {"accuracy": torch.zeros(3), "loss": torch.zeros(3)}
    >>> list(columns_of({"own_test": zeros, "own_val": zeros}, "_fine_tuned"))
    ['accuracy_fine_tuned', 'loss_fine_tuned', 'accuracy_fine_tuned_own_val', 'loss_fine_tuned_own_val']
    """
    columns = {}
    for place, (name, found) in enumerate(scores.items()):
        ending = moment + (f"_{name}" if place else "")
        columns |= {f"{score}{ending}": values for score, values in found.items()}
    return columns


def check_scores(guard: Guard, scores: Mapping[str, Scores], sets: Sets, t: int, lr: float | None) -> None:
    """Raise ``DivergenceError``, if that is the policy, for nodes whose loss on some set is not finite."""
    for name, found in scores.items():
        guard.check_scores(found["loss"], scored(sets[name]), t, lr)


def fine_tuned(world: World, each: Each, phase: Phase, sets: Sets, t: int, graph: Topology) -> dict[str, Scores]:
    """Return the scores of copies of the models that went through a phase, as if it came after round `t`.

    Nothing else notices: the copies have push-sum weights of 1, a state, a ledger and a guard of their own, and their
    minibatches are a stream of their own. Nodes that have no score, and those that were frozen, are not trained.

    Raises
    ------
    DivergenceError
        If a copy leaves the finite numbers, and that is the policy.
    """
    models = world.models.like(world.models.flat.clone())
    guard = Guard(world.guard.policy, world.guard.n, list(world.guard.found))
    apart = replace(world, models=models, guard=guard, graphs=graph)
    only = _with_scores(sets, world.models.n)
    current = WorldRound(apart, each, t, statistics=None, phase="fine_tune", only=only)
    try:
        phase.apply(models, phase.init(models), current)
        scores = scores_of(apart, each, sets)
        check_scores(guard, scores, sets, t, current.lr)
    except DivergenceError as error:
        raise DivergenceError(f"in fine-tuning, {error}", error.found) from error
    return scores


def _with_scores(sets: Sets, n: int) -> np.ndarray | None:
    """Return (n,) which nodes have a score on some set; None if all have."""
    found = np.zeros(n, dtype=bool)
    for on in sets.values():
        found[scored(on)] = True
    return None if found.all() else found
