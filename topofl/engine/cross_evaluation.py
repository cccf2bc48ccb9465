"""Cross-evaluation: nodes evaluate other nodes' models on their own examples."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.round import Trial
from topofl.engine.evaluation import (
    EXAMPLES,
    Apply,
    Batch,
    EvaluationPlan,
    Scorer,
    applied_together,
    batch_of,
    padded,
    sharing_copy,
    sums_on,
    uploaded,
)
from topofl.engine.executor import Executor
from topofl.engine.gradients import one_forward, stacked_forward
from topofl.engine.population import Layout
from topofl.tasks import Score

T = TypeVar("T")

SumsOf = Callable[[Mapping[int, Tensor]], Tensor]
"""Models (k, d) by node -> sums of their losses over the node's examples, concatenated."""


def cross_evaluate(
    plan: EvaluationPlan,
    layout: Layout,
    executor: Executor,
    trials: Mapping[int, Trial[T]],
    indices_of: Sequence[np.ndarray],
) -> dict[int, T]:
    """Return the result of each node's trial, given the losses of models on its own examples.

    The looped executor evaluates one model of one node at a time (linear models together); the
    batched executor evaluates the models of a chunk of nodes in one call, on 128 examples at a
    time. Off CPU, the losses of all nodes are returned together, so that the number of waits for
    the device is the largest number of requests of a node.

    Parameters
    ----------
    plan, layout
        How models are applied to many examples, and the columns of their parameters.
    executor
        The examples and their targets, and the workers.
    trials
        Generators by node, which yield models (k, d) and receive their mean losses (k,).
    indices_of
        Indices of each node's examples.
    """
    nodes, chunk = list(trials), executor.plan.chunk
    own = dict(
        zip(nodes, uploaded([indices_of[i] for i in nodes], executor.targets.device), strict=True)
    )
    on_cpu = executor.targets.device.type == "cpu"
    in_turn = on_cpu if plan.linear else executor.plan.executor == "looped"
    size = len(nodes) if not on_cpu else 1 if in_turn else chunk
    build = _sums_in_turn if in_turn else _sums_together
    idle = [build(plan, layout, executor, own) for _ in range(executor.plan.workers)]

    @torch.no_grad()
    def work(group: Sequence[int]) -> dict[int, T]:
        sums_of = idle.pop()  # of the worker that is ready for this group
        try:
            return _answers({i: trials[i] for i in group}, sums_of, own, chunk, layout.d)
        finally:
            idle.append(sums_of)

    groups = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    results = executor.parallel_map(work, groups)
    return {i: result for found in results for i, result in found.items()}


def check_trials(trials: Mapping[int, Any], indices_of: Sequence[np.ndarray]) -> None:
    """Raise unless trials are generators of existing nodes with examples."""
    for i, trial in trials.items():
        if i not in range(len(indices_of)):
            raise ValueError(
                f"`trials` must be of nodes from 0 to n-1={len(indices_of) - 1}, got {i!r}"
            )
        if not isinstance(trial, Generator):
            kind = type(trial).__name__
            raise TypeError(
                f"`trials` must be generators, which yield models (k, d), got a {kind} for node {i}"
            )
        if not len(indices_of[i]):
            raise ValueError(
                f"`trials` must be of nodes with such examples, node {i} has none; leave it out"
            )


def _answers(
    trials: Mapping[int, Trial[T]],
    sums_of: SumsOf,
    own: Mapping[int, Tensor],
    chunk: int,
    d: int,
) -> dict[int, T]:
    """Return the results of some nodes' trials, with one call per chunk and request.

    Only the losses of a chunk stay in memory until all chunks are evaluated.
    """
    nodes, found = list(trials), dict[int, T]()
    answers: dict[int, Tensor | None] = dict.fromkeys(nodes)
    while answers:
        sums, sizes = list[Tensor](), dict[int, int]()
        for start in range(0, len(nodes), chunk):
            group = {i: answers[i] for i in nodes[start : start + chunk] if i in answers}
            models_of = _next_models(trials, group, found, d)
            sizes |= {i: len(models) for i, models in models_of.items()}
            if any(map(len, models_of.values())):
                sums.append(sums_of(models_of))
        known = torch.cat(sums).cpu() if sums else torch.zeros(0, dtype=torch.float64, device="cpu")
        parts = zip(sizes, known.split(list(sizes.values())), strict=True)
        answers = {i: losses / len(own[i]) for i, losses in parts}
    return found


def _next_models(
    trials: Mapping[int, Trial[T]],
    answers: Mapping[int, Tensor | None],
    found: dict[int, T],
    d: int,
) -> dict[int, Tensor]:
    """Send losses to trials, and return the models that they yield next, by node.

    The results of completed trials are added to `found`.
    """
    models_of = {}
    for i, answer in answers.items():
        try:
            models = next(trials[i]) if answer is None else trials[i].send(answer)
        except StopIteration as end:
            found[i] = end.value
            continue
        if not isinstance(models, Tensor) or models.dim() != 2 or models.shape[1] != d:
            shape = getattr(models, "shape", None)
            got = type(models).__name__ if shape is None else f"shape {tuple(shape)}"
            raise TypeError(f"`trials` must yield models as a tensor (k, d={d:,}), got {got}")
        models_of[i] = models
    return models_of


def _sums_in_turn(
    plan: EvaluationPlan, layout: Layout, executor: Executor, own: Mapping[int, Tensor]
) -> SumsOf:
    """Return the function that applies models to one node's examples after another's.

    Linear models of a node are applied together, others in turn, with few small operations.
    """
    scorer = Scorer({"loss": Score(plan.task.loss)})

    @lru_cache(maxsize=1)  # a node asks again and again
    def batches_of(i: int) -> list[Batch]:
        parts = own[i].split(len(own[i]) if plan.linear else plan.examples)
        batches = (batch_of(executor, part) for part in parts)
        return [batch._replace(inputs=plan.order(batch.inputs)) for batch in batches]

    if plan.linear:
        forward = stacked_forward(plan.model)

        def applied(models: Tensor) -> Iterable[Apply]:
            return [applied_together(forward, layout.views(models), shared=True)]

    else:
        applied_to = one_forward(plan.model, plan.order)

        def applied(models: Tensor) -> Iterable[Apply]:
            for model in models:
                apply = applied_to(model)
                yield lambda inputs, apply=apply: apply(inputs)[None]

    return lambda models_of: torch.cat(
        [
            sums_on(scorer, apply, batches_of(i))[0]
            for i, models in models_of.items()
            for apply in applied(models)
        ]
    )


def _sums_together(
    plan: EvaluationPlan, layout: Layout, executor: Executor, own: Mapping[int, Tensor]
) -> SumsOf:
    """Return the function that applies the models of several nodes in one call."""
    scorer = Scorer({"loss": Score(plan.task.loss)})
    forward = stacked_forward(sharing_copy(plan.model))  # torch replaces parameters in it

    def sums(models_of: Mapping[int, Tensor]) -> Tensor:
        views = layout.views(torch.cat(list(models_of.values())))
        of_models = [own[i] for i, models in models_of.items() for _ in models]
        batches = (batch_of(executor, part) for part in padded(of_models, EXAMPLES))
        return sums_on(scorer, applied_together(forward, views, shared=False), batches)[0]

    return sums
