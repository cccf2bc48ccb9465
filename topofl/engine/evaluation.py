"""Models on examples: :func:`sums_on` is the one way to apply models to them.

Nodes' models are scored on own or shared examples (:func:`evaluate`), and trials of nodes ask for
the losses of other models on a node's own examples (:func:`cross_evaluate`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from topofl.algorithms.contract.round import Trial
from topofl.engine.executor import Executor
from topofl.engine.gradients import (
    Order,
    image_order,
    is_linear,
    one_forward,
    sharing_copy,
    stacked_forward,
)
from topofl.engine.memory import bytes_of_forward
from topofl.engine.population import Population
from topofl.tasks import Score, Task, accuracy, classification, cross_entropy

T = TypeVar("T")

ROWS = 50_000
"""Linear models: maximum number of (node, example) pairs per call and thread.

Their logits are the largest tensor, 2 MB for 10 classes in float32. Twice as many pairs took as
long for 100 nodes, and 1.2 to 1.35 times as long for 1,000.
"""

NODES = 128
"""Linear models: maximum number of models per call.

Their weights are concatenated, 4 MB for 7,850 parameters in float32.
"""

EXAMPLES = 128
"""Other models: number of examples whose losses are summed at a time, one node after another."""

PAIRS = 4096
"""Other models off CPU: maximum number of (node, example) pairs per call, which fill a GPU."""

BYTES = 2**29
"""Other models off CPU: bytes of activations per call, but at least those of 256 pairs."""

ACTIVATIONS = 32 * 2**20
"""Other models on CPU: bytes of activations per call, but at least those of the parameters.

Reading the parameters then never dominates. With 4 MiB, GN-LeNet and DPFL's network took 1.2 times
as long as with 128 examples per call; with 32 MiB, 1.05 times.
"""

FEWEST_EXAMPLES = 16
"""Minimum number of examples per call.

Kernels use another order of summation for fewer than 4 examples.
"""

CLASSIFICATION = classification()
"""The default task."""


Evaluated = Mapping[int, Tensor]
"""Evaluated nodes, ascending, and the indices of their examples: the same tensor if shared."""


def is_shared(evaluated: Evaluated) -> bool:
    """Return whether all nodes are evaluated on the same examples."""
    return len({id(examples) for examples in evaluated.values()}) == 1


def scored(evaluated: Evaluated) -> list[int]:
    """Return the evaluated nodes that have examples, and hence scores.

    Examples
    --------
    >>> scored({0: torch.tensor([3]), 1: torch.tensor([])})
    [0]
    """
    return [i for i, examples in evaluated.items() if len(examples)]


Block = tuple[slice | Tensor, Tensor]
"""The rows of consecutive evaluated nodes, and examples on which to score these.

Examples are (b,) indices of shared ones, or (k, b) indices of each node's own ones, padded by -1.
"""

Scores = Mapping[str, Tensor]
"""Scores of an evaluation by name, (n,) each, with ``loss`` last.

Nodes without examples and nodes that are not evaluated have NaN.
"""


def uploaded(indices: Sequence[np.ndarray], device: torch.device) -> Sequence[Tensor]:
    """Return vectors of indices on a device, to which they are copied together."""
    return torch.from_numpy(np.concatenate(indices)).to(device).split(list(map(len, indices)))


class EvaluationPlan(NamedTuple):
    """How models are applied to many examples.

    Attributes
    ----------
    model, task
        The network, whose own parameters are not used, and the task whose scores are reported.
    linear
        Whether the network is one linear layer.
    order
        Memory format of images and kernels.
    bytes_of
        Number of examples -> bytes of a forward pass on them, without the images; 0 for linear
        models.
    examples
        Maximum number of (node, example) pairs per call.
    """

    model: nn.Module
    task: Task
    linear: bool
    order: Order
    bytes_of: Callable[[int], int]
    examples: int


def evaluation_plan(
    model: nn.Module, sample: Tensor, task: Task = CLASSIFICATION, targets: Tensor | None = None
) -> EvaluationPlan:
    """Return how models like `model` are applied to many examples like `sample`.

    The memory of forward passes is measured. `targets` are those of the sample; None: class labels.
    """
    order = image_order(model, sample)
    if is_linear(model):
        return EvaluationPlan(model, task, True, order, lambda examples: 0, ROWS)
    bytes_of = bytes_of_forward(model, order, sample, task.loss, targets)
    per_example = max(1, bytes_of(EXAMPLES) - bytes_of(EXAMPLES - 1))
    if sample.is_cuda:
        fewest, room, most = 2 * EXAMPLES, BYTES, PAIRS
    else:
        room = max(ACTIVATIONS, sum(p.nbytes for p in model.parameters()))
        fewest, most = FEWEST_EXAMPLES, EXAMPLES
    examples = min(most, max(fewest, room // per_example))
    return EvaluationPlan(model, task, False, order, bytes_of, examples)


Apply = Callable[[Tensor], Tensor]
"""Inputs -> outputs (k, b, ...) of k models."""

AtOnce = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None
"""(logits (k, classes, b), labels (k, b)) -> correct predictions and cross-entropies, (k, b)."""


Batch = tuple[Tensor, Tensor, Tensor | None]
"""Inputs, targets, and a mask of examples to which k models are applied.

Inputs are (b, ...) of all models or (k, b, ...) of each, targets (1, b, ...) or (k, b, ...). The
mask (k, b) is of the examples that are not padding; None: all.
"""


def batches_of(executor: Executor, parts: Iterable[Tensor]) -> Iterator[Batch]:
    """Yield the examples at indices (b,), or at those of each model, (k, b), padded by -1."""
    for part in parts:
        if part.dim() == 1:
            yield executor.examples(part), executor.targets[part][None], None
        else:
            indices = part.clamp(min=0)
            inputs = executor.examples(indices.flatten()).unflatten(0, indices.shape)
            yield inputs, executor.targets[indices], part >= 0


def padded(indices: Sequence[Tensor], size: int) -> Sequence[Tensor]:
    """Return each model's indices as (k, b) parts with at most `size` columns, padded by -1."""
    whole = torch.nn.utils.rnn.pad_sequence(list(indices), batch_first=True, padding_value=-1)
    return whole.split(size, 1)


def sums_on(
    scores: Mapping[str, Score], apply: Apply, batches: Iterable[Batch], at_once: AtOnce = None
) -> Tensor:
    """Return the sums of scores of k models over the examples of batches, (scores, k) float64.

    Scores of whole sets are returned as they are. If `at_once` is given, it computes accuracies and
    cross-entropies.
    """
    found = ((apply(inputs), targets, real) for inputs, targets, real in batches)
    if at_once is None and not any(score.whole for score in scores.values()):
        return reduce(torch.add, (_sums(scores, one) for one in found))
    # all outputs together, since some score needs them, or since those of classes are small
    outputs, targets, reals = zip(*found, strict=True)
    if len(outputs) == 1:
        return _sums(scores, (outputs[0], targets[0], reals[0]), at_once)
    # padded sets have one batch
    return _sums(scores, (torch.cat(outputs, 1), torch.cat(targets, 1), None), at_once)


def _sums(scores: Mapping[str, Score], batch: Batch, at_once: AtOnce = None) -> Tensor:
    """Return sums over real examples, (scores, k) float64, for outputs (k, b, ...) of k models."""
    outputs, targets, real = batch
    outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
    targets = targets.expand(len(outputs), *targets.shape[1:])
    known: dict[Any, Tensor] = {}
    if at_once is not None:
        known[accuracy], known[cross_entropy] = at_once(outputs.transpose(1, 2), targets)
    rows = []
    whole = any(score.whole for score in scores.values())
    on_host = (outputs.cpu(), targets.cpu()) if whole else ()
    for name, score in scores.items():
        if score.whole:
            found = [_score_of_set(name, score, *own) for own in zip(*on_host, strict=True)]
            rows.append(torch.tensor(found, dtype=torch.float64, device=targets.device))
            continue
        if score.function not in known:
            values = score.function(outputs.flatten(0, 1), targets.flatten(0, 1))
            check_per_example(repr(name), values, targets.shape[:2].numel())
            known[score.function] = values.view(targets.shape[:2])
        values = known[score.function]
        values = values if real is None else values.masked_fill(~real, 0)  # it may be infinite
        rows.append(values.sum(1, dtype=torch.float64))
    return torch.stack(rows)


def check_per_example(what: str, values: object, count: int) -> None:
    """Raise ``ValueError`` unless a loss or score gave a number for each of some examples."""
    if isinstance(values, Tensor) and values.shape == (count,) and not values.is_complex():
        return
    got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    remedy = "take means over the numbers of an example, but not over examples (reduction='none')"
    if what != "a loss":
        remedy += ", or mark a score of a whole set by Score(function, whole=True)"
    if isinstance(values, np.ndarray):
        got, remedy = f"a numpy array of shape {values.shape}", "return a tensor"
    must = f"`task` must have {what} per example, shape (b,)=({count},)"
    raise ValueError(f"{must}, got {got}; {remedy}")


def _score_of_set(name: str, score: Score, outputs: Tensor, targets: Tensor) -> float:
    """Return the score of one model on a whole set."""
    try:
        return float(score.function(outputs, targets))
    except Exception as error:  # whatever the user's function raises
        shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
        raise ValueError(
            f"`task` must have a number for {name!r} of {shapes}, got {type(error).__name__}: "
            f"{error}; return NaN where it is not defined"
        ) from error


def finished(scores: Mapping[str, Score], sums: Tensor, evaluated: Evaluated) -> Scores:
    """Return the scores of nodes from sums (scores, n) over their examples."""
    sizes = [len(evaluated.get(i, ())) for i in range(sums.shape[1])]
    counts, found = torch.tensor(sizes, device=sums.device), dict[str, Tensor]()
    for (name, score), own in zip(scores.items(), sums, strict=True):
        means = own / (counts.clamp(max=1) if score.whole else counts)
        found[name] = means if score.finish is None else score.finish(means)
    return found


def _accuracy_and_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are correct, and cross-entropies, (k, b) each.

    `logits` are (k, classes, b), `labels` (k, b). One pass for the largest logit serves both. If
    examples are contiguous, as in the outputs of linear models, it takes a fifth of the time of
    ``cross_entropy`` and ``argmax``.
    """
    largest, predicted = logits.max(1)
    own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    losses = (logits - largest.unsqueeze(1)).exp_().sum(1).log_().add_(largest - own)
    return predicted == labels, losses


def evaluate(
    plan: EvaluationPlan, models: Population, executor: Executor, evaluated: Evaluated
) -> Scores:
    """Return the scores of nodes' models.

    Parameters
    ----------
    plan
        How models are applied to many examples.
    models
        All nodes' models.
    executor
        The examples and their targets, and the workers, which take equal shares.
    evaluated
        Evaluated nodes and examples.

    Raises
    ------
    ValueError
        If a score of the task cannot be computed, or has a wrong shape.
    """
    workers, first = executor.plan.workers, min(evaluated, default=0)
    equal = len(evaluated) > 1 and is_shared(evaluated) and _all_equal(models)
    distinct = {first: evaluated[first]} if equal else evaluated
    blocks = list(_blocks(plan, executor, distinct))

    def work(k: int) -> Tensor:
        # each worker needs its own module, in which torch replaces parameters
        own = plan if workers == 1 else plan._replace(model=sharing_copy(plan.model))
        share = blocks[k * len(blocks) // workers : (k + 1) * len(blocks) // workers]
        return _sums_of_blocks(own, models, executor, share)

    sums = torch.stack(executor.parallel_map(work, range(workers))).sum(0)
    if equal:
        sums[:, list(evaluated)] = sums[:, first : first + 1].clone()
    return finished(plan.task.reported, sums, evaluated)


def _all_equal(models: Population) -> bool:
    """Whether all models are bitwise equal, as after exact averaging: one score serves all."""
    if any(len(buffer.stored) > 1 for buffer in models.buffers.values()):
        return False  # their buffers may differ
    if models.distinct == 1:
        return True
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[models.dtype.itemsize]
    bits = models.held.stored.view(integers)
    return torch.equal(bits[0], bits[-1]) and torch.equal(bits, bits[:1].expand_as(bits))


def _blocks(plan: EvaluationPlan, executor: Executor, evaluated: Evaluated) -> Iterator[Block]:
    """Yield blocks: of several models on shared examples or off CPU, but not for whole sets."""
    nodes, device = list(evaluated), executor.targets.device
    shared, on_cpu = is_shared(evaluated), device.type == "cpu"
    whole = any(score.whole for score in plan.task.reported.values())
    if whole or (on_cpu and not shared):
        together = 1
    else:
        together = NODES if plan.linear else 1 if on_cpu else executor.plan.chunk
    pairs = ROWS if plan.linear else EXAMPLES if on_cpu else plan.examples
    indices = torch.tensor(nodes, device=device)
    for start in range(0, len(nodes), together):
        group = nodes[start : start + together]
        consecutive = group[-1] - group[0] + 1 == len(group)  # a slice copies nothing
        rows = slice(group[0], group[-1] + 1) if consecutive else indices[start : start + together]
        size = max(1, pairs // len(group))
        if shared or len(group) == 1:
            examples = evaluated[group[0]]
            parts = examples.split(max(1, len(examples)) if whole else size)
        else:
            parts = padded([evaluated[i] for i in group], size)
        yield from ((rows, part) for part in parts if part.numel())


@torch.no_grad()
def _sums_of_blocks(
    plan: EvaluationPlan, models: Population, executor: Executor, blocks: Iterable[Block]
) -> Tensor:
    """Return the sums of scores over the examples of blocks, (scores, n) float64, of all models."""
    scores = plan.task.reported
    at_once = _accuracy_and_loss if plan.task.loss is cross_entropy else None
    shape, device = (len(scores), len(models)), executor.targets.device
    sums = torch.zeros(shape, dtype=torch.float64, device=device)
    forward = stacked_forward(plan.model, plan.order, tuple(models.buffers))
    latest, apply = None, None
    for rows, part in blocks:
        shared = part.dim() == 1
        if apply is None or rows is not latest:
            apply = None  # frees memory of the previous models before the next are stacked
            latest, apply = rows, forward(models.views_of(rows), shared)
        pieces = part.tensor_split(-(-len(part) // plan.examples)) if shared else [part]
        sums[:, rows] += sums_on(scores, apply, batches_of(executor, pieces), at_once)
    return sums


SumsOf = Callable[[Mapping[int, Tensor]], Iterator[Tensor]]
"""Models (k, d) by node -> parts of the sums of their losses over the node's examples."""


def cross_evaluate(
    plan: EvaluationPlan,
    population: Population,
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
    plan
        How models are applied to many examples.
    population
        The models of this process, by whose layout and with whose buffers models are applied: a
        node has its own statistics, whatever the parameters that it tries.
    executor
        The examples and their targets, and the workers.
    trials
        Generators by node, which yield models (k, d) and receive their mean losses (k,).
    indices_of
        Indices of each node's examples.
    """
    nodes, chunk, device = list(trials), executor.plan.chunk, executor.targets.device
    own = dict(zip(nodes, uploaded([indices_of[i] for i in nodes], device), strict=True))
    on_cpu = device.type == "cpu"
    in_turn = on_cpu if plan.linear else executor.plan.executor == "looped"
    size = len(nodes) if not on_cpu else 1 if in_turn else chunk
    build = _sums_in_turn if in_turn else _sums_together
    idle = [build(plan, population, executor, own) for _ in range(executor.plan.workers)]

    @torch.no_grad()
    def work(group: Sequence[int]) -> dict[int, T]:
        sums_of = idle.pop()  # of the worker that is ready for this group
        try:
            return _answers({i: trials[i] for i in group}, sums_of, own, chunk, population.d)
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
    trials: Mapping[int, Trial[T]], sums_of: SumsOf, own: Mapping[int, Tensor], chunk: int, d: int
) -> dict[int, T]:
    """Return the results of some nodes' trials, with one call per chunk and request.

    Only the losses of a chunk stay in memory until all chunks are evaluated.
    """
    nodes, found = list(trials), dict[int, T]()
    answers: dict[int, Any] = dict.fromkeys(nodes)  # None starts a generator
    while answers:
        sums, sizes = list[Tensor](), dict[int, int]()
        for start in range(0, len(nodes), chunk):
            models_of = dict[int, Tensor]()
            for i in nodes[start : start + chunk]:
                if i not in answers:
                    continue
                try:
                    models_of[i] = _checked_models(trials[i].send(answers[i]), d)
                except StopIteration as end:
                    found[i] = end.value
            sizes |= {i: len(models) for i, models in models_of.items()}
            if any(map(len, models_of.values())):
                sums += sums_of(models_of)
        known = torch.cat(sums).cpu() if sums else torch.zeros(0, dtype=torch.float64, device="cpu")
        parts = zip(sizes, known.split(list(sizes.values())), strict=True)
        answers = {i: losses / len(own[i]) for i, losses in parts}
    return found


def _checked_models(models: object, d: int) -> Tensor:
    """Return the models that a trial yields; raise ``TypeError`` unless they are (k, d)."""
    if not isinstance(models, Tensor) or models.dim() != 2 or models.shape[1] != d:
        shape = getattr(models, "shape", None)
        got = type(models).__name__ if shape is None else f"shape {tuple(shape)}"
        raise TypeError(f"`trials` must yield models as a tensor (k, d={d:,}), got {got}")
    return models


def _sums_in_turn(
    plan: EvaluationPlan, population: Population, executor: Executor, own: Mapping[int, Tensor]
) -> SumsOf:
    """Return the function that applies models to one node's examples after another's.

    Linear models of a node are applied together, others in turn, with few small operations.
    """
    loss = {"loss": Score(plan.task.loss)}
    views, names = population.layout.views, tuple(population.buffers)
    forward, one = stacked_forward(plan.model), one_forward(plan.model, plan.order, names)

    @lru_cache(maxsize=1)  # a node asks again and again
    def examples_of(i: int) -> list[Batch]:
        parts = own[i].split(len(own[i]) if plan.linear else plan.examples)
        batches = batches_of(executor, parts)
        return [(plan.order(inputs), targets, real) for inputs, targets, real in batches]

    def sums(models_of: Mapping[int, Tensor]) -> Iterator[Tensor]:
        for i, models in models_of.items():
            own_buffers = [held[0] for held in population.buffers_of_node(i)]
            together = [forward(views(models), True)] if plan.linear else None
            for apply in together or (one(model, own_buffers) for model in models):
                yield sums_on(loss, apply, examples_of(i))[0]

    return sums


def _sums_together(
    plan: EvaluationPlan, population: Population, executor: Executor, own: Mapping[int, Tensor]
) -> SumsOf:
    """Return the function that applies the models of several nodes in one call."""
    loss = {"loss": Score(plan.task.loss)}
    # torch replaces parameters in it
    forward = stacked_forward(sharing_copy(plan.model), buffers=tuple(population.buffers))

    def sums(models_of: Mapping[int, Tensor]) -> Iterator[Tensor]:
        nodes = [i for i, models in models_of.items() for _ in models]
        views = population.layout.views(torch.cat(list(models_of.values())))
        views += map(torch.cat, zip(*map(population.buffers_of_node, nodes), strict=True))
        batches = batches_of(executor, padded([own[i] for i in nodes], EXAMPLES))
        yield sums_on(loss, forward(views, False), batches)[0]

    return sums
