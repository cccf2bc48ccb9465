"""Scores of models on examples: :func:`sums_on` is the one way to apply models to them."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from topofl.engine.gradients import Forward, Order, image_order, is_linear, stacked_forward
from topofl.engine.memory import bytes_of_forward
from topofl.engine.plan import ParallelMap
from topofl.engine.population import Population
from topofl.tasks import Function, Score, Task, accuracy, classification, cross_entropy

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


class Evaluated(NamedTuple):
    """Evaluated nodes and examples.

    Attributes
    ----------
    on
        Indices of the examples: one vector shared by all nodes, or one vector per node.
    nodes
        The nodes whose models are evaluated, ascending.
    """

    on: Tensor | Sequence[Tensor]
    nodes: Sequence[int]


def scored_nodes(evaluated: Evaluated) -> list[int]:
    """Return the evaluated nodes that have examples, and hence scores.

    Examples
    --------
    >>> scored_nodes(Evaluated([torch.tensor([3]), torch.tensor([])], nodes=[0, 1]))
    [0]
    """
    on, nodes = evaluated
    return [i for i in nodes if isinstance(on, Tensor) or len(on[i])]


Scores = Mapping[str, Tensor]
"""Scores of an evaluation by name, (n,) each, with ``loss`` last.

Nodes without examples and nodes that are not evaluated have NaN.
"""


class EvaluationPlan(NamedTuple):
    """How models are applied to many examples.

    Attributes
    ----------
    order
        Memory format of images and kernels.
    bytes_of
        Number of examples -> bytes of a forward pass on them, without the images; 0 for linear
        models.
    examples
        Maximum number of (node, example) pairs per call.
    nodes
        Models per call if they are not linear.
    """

    order: Order
    bytes_of: Callable[[int], int]
    examples: int
    nodes: int = 1


def evaluation_plan(
    model: nn.Module, sample: Tensor, task: Task = CLASSIFICATION, targets: Tensor | None = None
) -> EvaluationPlan:
    """Return how models like `model` are applied to many examples like `sample`.

    The memory of forward passes is measured. `targets` are those of the sample; None: class labels.
    """
    order = image_order(model, sample)
    if is_linear(model):
        return EvaluationPlan(order, lambda examples: 0, ROWS)
    bytes_of = bytes_of_forward(model, order, sample, task.loss, targets)
    most = max(ACTIVATIONS, sum(p.nbytes for p in model.parameters()))
    bytes_per_example = max(1, bytes_of(EXAMPLES) - bytes_of(EXAMPLES - 1))
    if sample.is_cuda:
        return EvaluationPlan(
            order, bytes_of, min(PAIRS, max(2 * EXAMPLES, BYTES // bytes_per_example))
        )
    return EvaluationPlan(
        order, bytes_of, min(EXAMPLES, max(FEWEST_EXAMPLES, most // bytes_per_example))
    )


Apply = Callable[[Tensor], Tensor]
"""Inputs -> outputs (k, b, ...) of k models."""

AtOnce = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits (k, classes, b), labels (k, b)) -> correct predictions and cross-entropies, (k, b)."""


class Batch(NamedTuple):
    """Examples to which k models are applied.

    Attributes
    ----------
    inputs
        (b, ...) of all models, or (k, b, ...) of each.
    targets
        (1, b, ...) of all models, or (k, b, ...) of each.
    real
        (k, b) mask of the examples that are not padding; None: all.
    """

    inputs: Tensor
    targets: Tensor
    real: Tensor | None = None


def batch_of(inputs: Callable[[Tensor], Tensor], targets: Tensor, part: Tensor) -> Batch:
    """Return the examples at indices (b,), or at those of each model, (k, b), padded by -1."""
    if part.dim() == 1:
        return Batch(inputs(part), targets[part][None])
    real, indices = part >= 0, part.clamp(min=0)
    examples = inputs(indices.flatten()).unflatten(0, indices.shape)
    return Batch(examples, targets[indices], real)


def padded(indices: Sequence[Tensor], size: int) -> Sequence[Tensor]:
    """Return each model's indices as (k, b) parts with at most `size` columns, padded by -1."""
    whole = torch.nn.utils.rnn.pad_sequence(list(indices), batch_first=True, padding_value=-1)
    return whole.split(size, 1)


class Scorer(NamedTuple):
    """Function from model outputs and targets to scores.

    Attributes
    ----------
    scores
        Scores by name.
    joins
        Whether the outputs of all batches are scored together, since they are small, or since some
        score is of a whole set.
    at_once
        Computes accuracy and cross-entropy in one pass; None: each by its own function.
    """

    scores: Mapping[str, Score]
    joins: bool = False
    at_once: AtOnce | None = None

    @classmethod
    def of(cls, task: Task, at_once: AtOnce | None = None) -> "Scorer":
        """Return the scorer of the scores that a task reports."""
        if at_once is None and task.loss is cross_entropy:
            at_once = _accuracy_and_loss
        whole = any(score.whole for score in task.reported.values())
        return cls(task.reported, whole or at_once is not None, at_once)

    def __call__(self, outputs: Tensor, targets: Tensor, real: Tensor | None = None) -> Tensor:
        """Return sums over real examples, (scores, k) float64, for outputs (k, b, ...) of k models.

        Scores of whole sets are returned as they are.
        """
        outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
        targets = targets.expand(len(outputs), *targets.shape[1:])
        known: dict[Any, Tensor] = {}
        if self.at_once is not None:
            known[accuracy], known[cross_entropy] = self.at_once(outputs.transpose(1, 2), targets)
        rows = []
        on_host = (outputs, targets)
        if any(score.whole for score in self.scores.values()):
            on_host = outputs.cpu(), targets.cpu()  # once for all scores
        for name, score in self.scores.items():
            if score.whole:
                found = [_score_of_set(name, score, *own) for own in zip(*on_host, strict=True)]
                rows.append(torch.tensor(found, dtype=torch.float64, device=targets.device))
                continue
            if score.function not in known:
                known[score.function] = _score_per_example(name, score.function, outputs, targets)
            values = known[score.function]
            values = values if real is None else values.masked_fill(~real, 0)  # it may be infinite
            rows.append(values.sum(1, dtype=torch.float64))
        return torch.stack(rows)

    def finished(self, sums: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """Return the scores (n,) from sums (scores, n) over (n,) numbers of examples; NaN for 0."""
        found = {}
        for (name, score), own in zip(self.scores.items(), sums, strict=True):
            means = own / (counts.clamp(max=1) if score.whole else counts)
            found[name] = means if score.finish is None else score.finish(means)
        return found


def sums_on(scorer: Scorer, apply: Apply, batches: Iterable[Batch]) -> Tensor:
    """Return the sums of scores of k models over the examples of batches, (scores, k) float64."""
    if not scorer.joins:
        return reduce(
            torch.add,
            (scorer(apply(inputs), targets, real) for inputs, targets, real in batches),
        )
    outputs, targets, reals = zip(
        *((apply(inputs), targets, real) for inputs, targets, real in batches), strict=True
    )
    if len(outputs) == 1:
        return scorer(outputs[0], targets[0], reals[0])
    return scorer(torch.cat(outputs, 1), torch.cat(targets, 1))  # padded sets have one batch


def _score_per_example(name: str, function: Function, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the score (k, b) of each example, for outputs and targets (k, b, ...)."""
    k, b = outputs.shape[:2]
    found = function(outputs.flatten(0, 1), targets.flatten(0, 1))
    if not isinstance(found, Tensor) or found.shape != (k * b,):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"`task` must have a number per example for {name!r}, shape (b,)=({k * b},), got "
            f"{got}; leave out the mean over the batch, or mark it as a score of a whole set by "
            "Score(function, whole=True)"
        )
    return found.view(k, b)


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


def _accuracy_and_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are correct, and cross-entropies, (k, b) each.

    `logits` are (k, classes, b), `labels` (k, b). One pass for the largest logit serves both. If
    examples are contiguous, as in the outputs of linear models, it takes a fifth of the time of
    ``cross_entropy`` and ``argmax``.
    """
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    largest, predicted = logits.max(1)
    own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    losses = (logits - largest.unsqueeze(1)).exp_().sum(1).log_().add_(largest - own)
    return predicted == labels, losses


class Block(NamedTuple):
    """Models of some consecutive evaluated nodes, and examples on which they are scored.

    Attributes
    ----------
    rows
        Rows of the models.
    part
        (b,) indices of shared examples, or (k, b) indices of each node's own examples, padded by
        -1.
    """

    rows: slice | Tensor
    part: Tensor


def evaluate(
    model: nn.Module,
    models: Population,
    inputs: Callable[[Tensor], Tensor],
    targets: Tensor,
    evaluated: Evaluated,
    parallel_map: ParallelMap | None = None,
    workers: int = 1,
    plan: EvaluationPlan | None = None,
    task: Task = CLASSIFICATION,
) -> Scores:
    """Return the scores of nodes' models.

    Parameters
    ----------
    model
        The network; its own parameters are not used.
    models
        All nodes' models.
    inputs
        (k,) indices -> (k, ...) examples as inputs of the network.
    targets
        (N, ...) targets of the whole dataset.
    evaluated
        Evaluated nodes and examples.
    parallel_map, workers
        Runs the work on `workers` threads; None: sequentially.
    plan
        Result of :func:`evaluation_plan` for the model; None: computed.
    task
        The task whose scores are reported.

    Raises
    ------
    ValueError
        If a score of the task cannot be computed, or has a wrong shape.
    """
    on, nodes = evaluated
    n, linear = len(models), is_linear(model)
    sample = torch.arange(min(2, len(targets)), device=targets.device)
    used_plan = plan or evaluation_plan(model, inputs(sample), task, targets[sample])
    equal = isinstance(on, Tensor) and len(nodes) > 1 and _all_equal(models)
    scorer = Scorer.of(task)
    whole = any(score.whole for score in task.reported.values())
    distinct = evaluated._replace(nodes=nodes[:1]) if equal else evaluated
    blocks = list(_blocks(distinct, linear, used_plan, targets, whole))

    def work(k: int) -> Tensor:
        # each worker needs its own module, in which torch replaces parameters
        own = model if workers == 1 else sharing_copy(model)
        share = blocks[k * len(blocks) // workers : (k + 1) * len(blocks) // workers]
        forward = stacked_forward(own, used_plan.order, tuple(models.buffers))
        return _sums(forward, models, inputs, targets, share, scorer, used_plan.examples)

    parts = (
        list(map(work, range(workers)))
        if parallel_map is None
        else parallel_map(work, range(workers))
    )
    sums = torch.stack(parts).sum(0)
    sizes = [0] * n
    for i in nodes:
        sizes[i] = len(on) if isinstance(on, Tensor) else len(on[i])
    counts = torch.tensor(sizes, device=sums.device)
    if equal:
        sums = sums[:, nodes[0] : nodes[0] + 1] * (counts > 0)
    return scorer.finished(sums, counts)


def sharing_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its parameters."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


def _all_equal(models: Population) -> bool:
    """Whether all models are bitwise equal, as after exact averaging: one score serves all."""
    if models.distinct == 1:
        return True
    stored = models.held.stored
    bits = stored.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[stored.element_size()])
    return torch.equal(bits[0], bits[-1]) and torch.equal(bits, bits[:1].expand_as(bits))


def _blocks(
    evaluated: Evaluated, linear: bool, plan: EvaluationPlan, targets: Tensor, whole: bool
) -> Iterator[Block]:
    """Yield blocks: several models on shared examples or off CPU, otherwise one.

    If scores are of `whole` sets, each block has one model.
    """
    on, nodes = evaluated
    shared = isinstance(on, Tensor)
    off_cpu = targets.device.type != "cpu"
    together = (NODES if linear else plan.nodes) if (shared or off_cpu) and not whole else 1
    pairs = ROWS if linear else plan.examples if off_cpu else EXAMPLES
    indices = torch.tensor(nodes, device=targets.device)
    for start in range(0, len(nodes), together):
        group = nodes[start : start + together]
        rows = _rows(group, indices[start : start + together])
        size = max(1, pairs // len(group))
        if shared or len(group) == 1:
            examples = on if isinstance(on, Tensor) else on[group[0]]
            parts = examples.split(max(1, len(examples)) if whole else size)
        else:
            parts = padded([on[i] for i in group], size)
        yield from (Block(rows, part) for part in parts if part.numel())


def _rows(nodes: Sequence[int], indices: Tensor) -> slice | Tensor:
    """Return the index of the nodes' rows: a slice, which copies nothing, if consecutive."""
    consecutive = nodes[-1] - nodes[0] + 1 == len(nodes)
    return slice(nodes[0], nodes[-1] + 1) if consecutive else indices


@torch.no_grad()
def _sums(
    forward: Forward,
    models: Population,
    inputs: Callable[[Tensor], Tensor],
    targets: Tensor,
    blocks: Sequence[Block],
    scorer: Scorer,
    examples: int,
) -> Tensor:
    """Return the sums of scores over the examples of blocks, (scores, n) float64, of all models."""
    shape = (len(scorer.scores), len(models))
    sums = torch.zeros(shape, dtype=torch.float64, device=targets.device)
    rows, apply = None, None
    for block in blocks:
        if apply is None or block.rows is not rows:
            apply = None  # frees memory of the previous models before the next are stacked
            rows, views = block.rows, models.views_of(block.rows)
            apply = applied_together(forward, views, shared=block.part.dim() == 1)
        pieces = [block.part]
        if block.part.dim() == 1:
            pieces = block.part.tensor_split(-(-len(block.part) // examples))
        batches = (batch_of(inputs, targets, piece) for piece in pieces)
        sums[:, rows] += sums_on(scorer, apply, batches)
    return sums


def applied_together(forward: Forward, parameters: Sequence[Tensor], *, shared: bool) -> Apply:
    """Return the function that applies k models to the same inputs, or each to its own."""
    if not shared:
        return partial(forward.each, parameters)
    apply = forward.shared(parameters)
    return lambda inputs: apply(inputs).transpose(0, 1)
