"""Scores and losses of every node's model, on a shared set or on each node's own examples."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topofl.engine.population import Population
from topofl.engine.scorer import Scorer
from topofl.engine.train.allocations import bytes_of_forwards
from topofl.engine.train.forward import Forward, Order, image_order, is_linear, stacked_forward
from topofl.engine.train.workers import ParallelMap
from topofl.tasks import Task, classification

__all__ = [
    "CLASSIFICATION",
    "Evaluated",
    "EvaluationPlan",
    "Scores",
    "evaluate",
    "evaluation_plan",
    "scored_nodes",
    "sharing_copy",
]

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
    bytes_of = bytes_of_forwards(model, order, sample, task.loss, targets)
    most = max(ACTIVATIONS, sum(p.nbytes for p in model.parameters()))
    bytes_per_example = max(1, bytes_of(EXAMPLES) - bytes_of(EXAMPLES - 1))
    if sample.is_cuda:
        return EvaluationPlan(
            order, bytes_of, min(PAIRS, max(2 * EXAMPLES, BYTES // bytes_per_example))
        )
    return EvaluationPlan(
        order, bytes_of, min(EXAMPLES, max(FEWEST_EXAMPLES, most // bytes_per_example))
    )


class EvaluationJob(NamedTuple):
    """Models of some consecutive evaluated nodes, to be scored on some examples.

    Attributes
    ----------
    positions
        Positions of the nodes among the evaluated ones.
    rows
        Rows of their models.
    part
        (b,) indices of shared examples, or (k, b) indices of each node's own examples, padded.
    sizes
        Number of own examples of each node in `part`; empty if examples are shared.
    """

    positions: slice
    rows: slice | Tensor
    part: Tensor
    sizes: Sequence[int] = ()


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
    sample = torch.arange(min(2, len(targets)), device=targets.device)
    used_plan = plan or evaluation_plan(model, inputs(sample), task, targets[sample])
    equal = isinstance(on, Tensor) and len(nodes) > 1 and _all_equal(models.flat)
    distinct = evaluated._replace(nodes=nodes[:1]) if equal else evaluated
    scorer = Scorer.of(task)
    whole = any(score.whole for score in task.reported.values())
    jobs = list(_jobs(distinct, is_linear(model), used_plan, targets, whole))

    def work(k: int) -> Tensor:
        # each worker needs its own module, in which torch replaces parameters
        own = model if workers == 1 else sharing_copy(model)
        share = jobs[k * len(jobs) // workers : (k + 1) * len(jobs) // workers]
        forward = stacked_forward(own, used_plan.order)
        return _sums(
            forward, models, inputs, targets, share, scorer, len(nodes), used_plan.examples
        )

    parts = (
        list(map(work, range(workers)))
        if parallel_map is None
        else parallel_map(work, range(workers))
    )
    sums = torch.stack(parts).sum(0)
    sizes = [len(on) if isinstance(on, Tensor) else len(on[i]) for i in nodes]
    counts = torch.tensor(sizes, device=sums.device)
    divisors = [counts.clamp(max=1) if score.whole else counts for score in scorer.scores.values()]
    means = (sums[:, :1] if equal else sums) / torch.stack(divisors)  # 0 / 0 is NaN: no score
    return {
        name: _spread(values, nodes, len(models.flat))
        for name, values in scorer.finished(means).items()
    }


def sharing_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its parameters."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


def _all_equal(flat: Tensor) -> bool:
    """Whether all rows are bitwise equal, as after exact averaging: one score serves all."""
    bits = flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    return torch.equal(bits[0], bits[-1]) and torch.equal(bits, bits[:1].expand_as(bits))


def _spread(values: Tensor, nodes: Sequence[int], n: int) -> Tensor:
    """Return (n,) values: the given ones at `nodes`, NaN elsewhere."""
    if len(nodes) == n:
        return values
    spread = values.new_full((n,), torch.nan)
    spread[list(nodes)] = values
    return spread


def _jobs(
    evaluated: Evaluated, linear: bool, plan: EvaluationPlan, targets: Tensor, whole: bool
) -> Iterator[EvaluationJob]:
    """Yield jobs: several models per job on shared examples or off CPU, otherwise one.

    If scores are of `whole` sets, each job has one model.
    """
    on, nodes = evaluated
    shared = isinstance(on, Tensor)
    off_cpu = targets.device.type != "cpu"
    together = (NODES if linear else plan.nodes) if (shared or off_cpu) and not whole else 1
    pairs = ROWS if linear else plan.examples if off_cpu else EXAMPLES
    indices = torch.tensor(nodes, device=targets.device)
    for start in range(0, len(nodes), together):
        positions = slice(start, start + together)
        group = nodes[positions]
        rows = _rows(group, indices[positions])
        size = max(1, pairs // len(group))
        if shared or len(group) == 1:
            examples = on if isinstance(on, Tensor) else on[group[0]]
            parts = examples.split(max(1, len(examples)) if whole else size)
            yield from (EvaluationJob(positions, rows, part) for part in parts if len(part))
        else:
            for part, sizes in _padded([on[i] for i in group], size):
                yield EvaluationJob(positions, rows, part, sizes)


def _padded(indices: Sequence[Tensor], size: int) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield padded indices (k, b) of k nodes, at most `size` per node, and the numbers of own ones.

    The own indices of a node come first in its row.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(indices), batch_first=True)
    for start in range(0, padded.shape[1], size):
        part = padded[:, start : start + size]
        yield part, [min(max(len(own) - start, 0), part.shape[1]) for own in indices]


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
    jobs: Sequence[EvaluationJob],
    scorer: Scorer,
    size: int,
    examples: int,
) -> Tensor:
    """Return the sums of scores over examples, (scores, size) float64, of `size` nodes."""
    sums = torch.zeros(len(scorer.scores), size, dtype=torch.float64, device=targets.device)
    positions, apply = None, None
    for job in jobs:
        if job.sizes:
            sums[:, job.positions] += _sums_of_own(forward, models, inputs, targets, job, scorer)
            continue
        if apply is None or job.positions != positions:
            apply = None  # frees memory of the previous models before the next are stacked
            apply = forward.shared([view[job.rows] for view in models.views])
            positions = job.positions
        pieces = job.part.tensor_split(-(-len(job.part) // examples))
        if scorer.joins:
            outputs = [apply(inputs(part)) for part in pieces]  # (b, k, ...)
            sums[:, positions] += scorer(
                torch.cat(outputs) if len(outputs) > 1 else outputs[0], targets[job.part]
            )
        else:
            for part in pieces:
                sums[:, positions] += scorer(apply(inputs(part)), targets[part])
    return sums


def _sums_of_own(
    forward: Forward,
    models: Population,
    inputs: Callable[[Tensor], Tensor],
    targets: Tensor,
    job: EvaluationJob,
    scorer: Scorer,
) -> Tensor:
    """Return the sums of scores (scores, k) of k models, each on its own examples."""
    examples = inputs(job.part.flatten()).unflatten(0, job.part.shape)
    outputs = forward.each([view[job.rows] for view in models.views], examples)  # (k, b, ...)
    own = (
        (outputs[k : k + 1, :size].transpose(0, 1), job.part[k, :size])
        for k, size in enumerate(job.sizes)
    )
    return torch.cat([scorer(own_outputs, targets[part]) for own_outputs, part in own], 1)
