"""Cross-evaluation: nodes evaluate other nodes' models on their own examples."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.round import Trial
from topofl.engine.evaluation import (
    EXAMPLES,
    Batch,
    Scorer,
    applied_together,
    batch_of,
    padded,
    sharing_copy,
    sums_on,
)
from topofl.engine.gradients import is_linear, one_forward, stacked_forward
from topofl.engine.state import RunState
from topofl.tasks import Score

T = TypeVar("T")

SumsOf = Callable[[Mapping[int, Tensor]], Tensor]
"""Models (k, d) by node -> sums of their losses over the node's examples, concatenated."""


def cross_evaluate(
    run_state: RunState,
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
    run_state
        State of the run.
    trials
        Generators by node, which yield models (k, d) and receive their mean losses (k,).
    indices_of
        Indices of each node's examples.
    """
    plan, nodes, device = run_state.executor.plan, list(trials), run_state.executor.targets.device
    indices = torch.from_numpy(np.concatenate([indices_of[i] for i in nodes])).to(device)
    own = dict(zip(nodes, indices.split([len(indices_of[i]) for i in nodes]), strict=True))
    linear, on_cpu = is_linear(run_state.module), device.type == "cpu"
    in_turn = on_cpu if linear else plan.executor == "looped"
    size = len(nodes) if not on_cpu else 1 if in_turn else plan.chunk
    # shared by all workers: a worker that is ready takes the next group
    pending = iter([nodes[start : start + size] for start in range(0, len(nodes), size)])

    @torch.no_grad()
    def work(k: int) -> dict[int, T]:
        del k
        sums_of = _sums_in_turn(run_state, own) if in_turn else _sums_together(run_state, own)
        found: dict[int, T] = {}
        try:
            for group in pending:
                chosen = {i: trials[i] for i in group}
                found |= _answers(run_state, chosen, sums_of, indices_of)
        finally:
            list(pending)  # after an error, no worker begins another group
        return found

    results = run_state.executor.parallel_map(work, range(plan.workers))
    return {i: found[i] for i in nodes for found in results if i in found}


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
    run_state: RunState,
    trials: Mapping[int, Trial[T]],
    sums_of: SumsOf,
    indices_of: Sequence[np.ndarray],
) -> dict[int, T]:
    """Return the results of some nodes' trials, with one call per chunk and request.

    Only the losses of a chunk stay in memory until all chunks are evaluated.
    """
    chunk, d, nodes = run_state.executor.plan.chunk, run_state.models.d, list(trials)
    found = dict[int, T]()
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
        answers = {i: own / len(indices_of[i]) for i, own in parts}
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


def _losses(run_state: RunState) -> Scorer:
    return Scorer({"loss": Score(run_state.task.loss)})


def _sums_in_turn(run_state: RunState, own: Mapping[int, Tensor]) -> SumsOf:
    """Return the function that applies models to one node's examples after another's.

    Linear models of a node are applied together, others in turn, with few small operations.
    """
    executor, plan, layout = run_state.executor, run_state.evaluation_plan, run_state.models.layout
    linear, scorer = is_linear(run_state.module), _losses(run_state)

    @lru_cache(maxsize=1)  # a node asks again and again
    def batches_of(i: int) -> list[Batch]:
        parts = own[i].split(len(own[i]) if linear else plan.examples)
        return [
            batch_of(lambda part: plan.order(executor.examples(part)), executor.targets, part)
            for part in parts
        ]

    if linear:
        forward = stacked_forward(run_state.module)
        return lambda models_of: torch.cat(
            [
                sums_on(
                    scorer,
                    applied_together(forward, layout.views(models), shared=True),
                    batches_of(i),
                )[0]
                for i, models in models_of.items()
            ]
        )
    applied_to = one_forward(run_state.module, plan.order)

    def sums_of_model(model: Tensor, batches: Sequence[Batch]) -> Tensor:
        apply = applied_to(model)
        return sums_on(scorer, lambda inputs: apply(inputs)[None], batches)[0]

    return lambda models_of: torch.cat(
        [sums_of_model(model, batches_of(i)) for i, models in models_of.items() for model in models]
    )


def _sums_together(run_state: RunState, own: Mapping[int, Tensor]) -> SumsOf:
    """Return the function that applies the models of several nodes in one call."""
    executor, layout, scorer = run_state.executor, run_state.models.layout, _losses(run_state)
    forward = stacked_forward(sharing_copy(run_state.module))  # torch replaces parameters in it

    def sums(models_of: Mapping[int, Tensor]) -> Tensor:
        views = layout.views(torch.cat(list(models_of.values())))
        of_models = [own[i] for i, models in models_of.items() for _ in models]
        batches = map(
            partial(batch_of, executor.examples, executor.targets), padded(of_models, EXAMPLES)
        )
        return sums_on(scorer, applied_together(forward, views, shared=False), batches)[0]

    return sums
