"""Cross-evaluation: nodes evaluate other nodes' models on their own examples."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.generators import answer_queries
from topofl.algorithms.contract.round import Trial
from topofl.engine.evaluation import EXAMPLES, EvaluationPlan, sharing_copy
from topofl.engine.population import Layout, Population
from topofl.engine.scorer import loss_of
from topofl.engine.train.forward import is_linear, one_forward, stacked_forward
from topofl.engine.train.learner import Learner
from topofl.engine.train.workers import ParallelMap
from topofl.tasks import Task

__all__ = ["check_trials", "cross_evaluate"]

T = TypeVar("T")


Parts = Sequence[tuple[Tensor, Tensor]]
"""Inputs and targets of a node, in batches."""

LossesOf = Callable[[Tensor, Parts], Tensor]
"""(models (k, d), examples of a node) -> mean losses (k,)."""


class _PaddedExamples(NamedTuple):
    """Inputs and targets (k, b, ...) of k nodes, and their weights (k, b) in the nodes' means.

    Padding has a weight of 0.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor


class EvaluatedRun(Protocol):
    """Parts of a run's state that cross-evaluation reads."""

    @property
    def module(self) -> nn.Module:
        """The network that all models share."""
        ...

    @property
    def task(self) -> Task:
        """The task of the run."""
        ...

    @property
    def evaluation_plan(self) -> EvaluationPlan:
        """How models are evaluated."""
        ...

    @property
    def models(self) -> Population:
        """All nodes' models."""
        ...

    @property
    def learner(self) -> Learner:
        """Data, memory and plan of the run."""
        ...


def cross_evaluate(
    run_state: EvaluatedRun,
    parallel_map: ParallelMap,
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
    run_state, parallel_map
        State and threads of the run.
    trials
        Generators by node, which yield models (k, d) and receive their mean losses (k,).
    indices_of
        Indices of each node's examples.
    """
    check_trials(trials, indices_of)
    plan, nodes, linear = run_state.learner.plan, list(trials), is_linear(run_state.module)
    if run_state.learner.targets.device.type != "cpu":
        return _answer_all(run_state, trials, indices_of)
    size = 1 if plan.executor == "looped" or linear else plan.chunk
    # shared by all workers: a worker that is ready takes the next group
    pending = iter([nodes[start : start + size] for start in range(0, len(nodes), size)])

    def work(k: int) -> dict[int, T]:
        del k
        answer = _answerer(run_state, trials, indices_of, alone=size == 1)
        found: dict[int, T] = {}
        try:
            for group in pending:
                found |= answer(group)
        finally:
            list(pending)  # after an error, no worker begins another group
        return found

    results = parallel_map(work, range(plan.workers))
    return {i: found[i] for i in nodes for found in results if i in found}


def _answerer(
    run_state: EvaluatedRun,
    trials: Mapping[int, Trial[T]],
    indices_of: Sequence[np.ndarray],
    *,
    alone: bool,
) -> Callable[[Sequence[int]], dict[int, T]]:
    """Return the function from a group of nodes to the results of their trials, for one worker."""
    if not alone:
        module = sharing_copy(run_state.module)  # torch replaces parameters in it
        return lambda group: _answer_chunk(
            run_state, module, {i: trials[i] for i in group}, indices_of
        )
    linear = is_linear(run_state.module)
    losses_of = _losses_together(run_state) if linear else _losses_in_turn(run_state)
    return lambda group: {
        i: _answer_one(run_state, losses_of, trials[i], indices_of[i]) for i in group
    }


def _losses_together(run_state: EvaluatedRun) -> LossesOf:
    """Return the function that applies all models at once, for linear models."""
    layout, shared = run_state.models.layout, stacked_forward(run_state.module).shared

    def losses(models: Tensor, parts: Parts) -> Tensor:
        apply = shared(layout.views(models))
        total = models.new_zeros(len(models), dtype=torch.float64)
        for inputs, targets in parts:
            wanted = targets.expand(len(models), *targets.shape)
            total += loss_of(run_state.task, apply(inputs).transpose(0, 1), wanted).sum(1)
        return total / sum(len(targets) for _, targets in parts)

    return losses


def _losses_in_turn(run_state: EvaluatedRun) -> LossesOf:
    """Return the function that applies one model after another, with few small operations."""
    loss = run_state.task.loss
    applied_to = one_forward(run_state.module, run_state.evaluation_plan.order)

    def losses(models: Tensor, parts: Parts) -> Tensor:
        found = [models.new_zeros(0, dtype=torch.float64)]
        for model in models:
            apply = applied_to(model)
            found += [
                loss(apply(inputs), targets).double().sum()[None] for inputs, targets in parts
            ]
        sums = torch.cat(found).view(len(models), len(parts)).sum(1)
        return sums / sum(len(targets) for _, targets in parts)

    return losses


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


def _check_models(models: Any, d: int) -> Tensor:
    """Return the models that a trial yields, or raise."""
    if not isinstance(models, Tensor) or models.dim() != 2 or models.shape[1] != d:
        got = (
            f"shape {tuple(models.shape)}" if isinstance(models, Tensor) else type(models).__name__
        )
        raise TypeError(f"`trials` must yield models as a tensor (k, d={d:,}), got {got}")
    return models


@torch.no_grad()
def _answer_one(
    run_state: EvaluatedRun, losses_of: LossesOf, trial: Trial[T], indices_of: np.ndarray
) -> T:
    """Return the result of one node's trial."""
    parts = _parts_of_node(
        run_state, torch.tensor(indices_of, device=run_state.learner.targets.device)
    )
    d = run_state.models.layout.d
    return answer_queries(trial, lambda models: losses_of(_check_models(models, d), parts).cpu())


def _parts_of_node(run_state: EvaluatedRun, indices: Tensor) -> Parts:
    """Return one node's inputs and targets, split into the batches that models are applied to."""
    learner, order = run_state.learner, run_state.evaluation_plan.order
    size = len(indices) if is_linear(run_state.module) else run_state.evaluation_plan.examples
    return [(order(learner.examples(part)), learner.targets[part]) for part in indices.split(size)]


@torch.no_grad()
def _answer_chunk(
    run_state: EvaluatedRun,
    module: nn.Module,
    trials: Mapping[int, Trial[T]],
    indices_of: Sequence[np.ndarray],
) -> dict[int, T]:
    """Return the results of some nodes' trials, whose models are evaluated in one call."""
    examples = _padded(run_state, [indices_of[i] for i in trials])
    position = {i: k for k, i in enumerate(trials)}
    each, layout = stacked_forward(module).each, Layout.of(module)
    found: dict[int, T] = {}
    models_of = _next_models(trials, dict.fromkeys(trials), found, layout.d)
    while models_of:
        counts = [len(models) for models in models_of.values()]
        positions = [position[i] for i in models_of]
        means = _means(run_state.task, each, layout, examples, positions, list(models_of.values()))
        models_of = _next_models(
            trials, dict(zip(models_of, means.split(counts), strict=True)), found, layout.d
        )
    return found


def _means(
    task: Task,
    each: Callable[[Sequence[Tensor], Tensor], Tensor],
    layout: Layout,
    examples: _PaddedExamples,
    positions: Sequence[int],
    models_of: Sequence[Tensor],
) -> Tensor:
    """Return the mean losses of several nodes' models (k, d) on their examples, concatenated.

    `positions` are those of the nodes in `examples`.
    """
    owners = np.repeat(positions, [len(models) for models in models_of])
    parameters = layout.views(torch.cat(list(models_of)))
    means = torch.zeros(len(owners), dtype=torch.float64, device=examples.targets.device)
    take = _row_selector(owners, means.device)
    for batch in zip(*(part.split(EXAMPLES, dim=1) for part in examples), strict=True):
        inputs, targets, weights = map(take, batch)
        losses = loss_of(task, each(parameters, inputs), targets) * weights
        losses.masked_fill_(weights == 0, 0)  # since the loss of padding may be infinite
        means += losses.sum(1)
    return means


def _row_selector(rows: np.ndarray, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function that selects rows of tensors; off CPU it copies no indices."""
    if device.type != "cpu":
        return lambda part: torch.cat([part[k : k + 1] for k in rows.tolist()])
    indices = torch.tensor(rows, device=device)
    return lambda part: part[indices]


@torch.no_grad()
def _answer_all(
    run_state: EvaluatedRun, trials: Mapping[int, Trial[T]], indices_of: Sequence[np.ndarray]
) -> dict[int, T]:
    """Return the results of all nodes' trials, with one call per chunk and request.

    Only the losses of a chunk stay in memory until all chunks are evaluated.
    """
    chunk, d, nodes = run_state.learner.plan.chunk, run_state.models.layout.d, list(trials)
    losses_of = _losses_on_device(run_state, nodes, indices_of)
    found = dict[int, T]()
    answers: dict[int, Tensor | None] = dict.fromkeys(nodes)
    while answers:
        losses, sizes = list[Tensor](), dict[int, int]()
        for start in range(0, len(nodes), chunk):
            group = {i: answers[i] for i in nodes[start : start + chunk] if i in answers}
            if models_of := _next_models(trials, group, found, d):
                losses.append(losses_of(models_of))
                sizes |= {i: len(models) for i, models in models_of.items()}
        known = torch.cat(losses).cpu().split(list(sizes.values())) if losses else ()
        answers = dict(zip(sizes, known, strict=True))
    return found


def _losses_on_device(
    run_state: EvaluatedRun, nodes: Sequence[int], indices_of: Sequence[np.ndarray]
) -> Callable[[Mapping[int, Tensor]], Tensor]:
    """Return the function from models by node to their concatenated mean losses."""
    indices = torch.from_numpy(np.concatenate([indices_of[i] for i in nodes])).to(
        run_state.learner.targets.device
    )
    own = dict(zip(nodes, indices.split([len(indices_of[i]) for i in nodes]), strict=True))
    if run_state.learner.plan.executor == "looped" and not is_linear(run_state.module):
        losses = _losses_in_turn(run_state)
        return lambda models_of: torch.cat(
            [losses(models, _parts_of_node(run_state, own[i])) for i, models in models_of.items()]
        )
    each, layout = stacked_forward(run_state.module).each, run_state.models.layout
    return lambda models_of: _means(
        run_state.task,
        each,
        layout,
        _padded_on_device(run_state, [own[i] for i in models_of]),
        range(len(models_of)),
        list(models_of.values()),
    )


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
            models_of[i] = _check_models(
                next(trials[i]) if answer is None else trials[i].send(answer), d
            )
        except StopIteration as end:
            found[i] = end.value
    return models_of


def _padded(run_state: EvaluatedRun, indices_of: Sequence[np.ndarray]) -> _PaddedExamples:
    """Return some nodes' examples, padded to the largest number of examples of a node.

    Padding repeats a node's examples with a weight of 0.
    """
    learner, most = run_state.learner, max(map(len, indices_of))
    indices = torch.from_numpy(np.stack([np.resize(own, most) for own in indices_of])).to(
        learner.targets.device
    )
    sizes = torch.tensor([len(own) for own in indices_of], device=indices.device)[:, None]
    weights = (torch.arange(most, device=indices.device) < sizes) / sizes.double()
    inputs = learner.examples(indices.flatten()).unflatten(0, indices.shape)
    return _PaddedExamples(inputs, learner.targets[indices], weights)


def _padded_on_device(run_state: EvaluatedRun, indices_of: Sequence[Tensor]) -> _PaddedExamples:
    """Return padded examples for indices that are on the device.

    Padding is the first example of the dataset with a weight of 0.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(indices_of), batch_first=True, padding_value=-1)
    real, indices = padded >= 0, padded.clamp(min=0)
    inputs = run_state.learner.examples(indices.flatten()).unflatten(0, indices.shape)
    return _PaddedExamples(
        inputs, run_state.learner.targets[indices], real / real.sum(1, keepdim=True).double()
    )
