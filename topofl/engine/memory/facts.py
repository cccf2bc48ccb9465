"""What the memory of a run depends on, found by playing steps and evaluations on a few examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from topofl.algorithms.contract.phase import Algorithm
from topofl.data import Augmentation, Partition
from topofl.engine.dry_run.requests import RecordedSteps
from topofl.engine.dry_run.trace import Trace
from topofl.engine.evaluate.nearest_neighbors import bytes_of_neighbors
from topofl.engine.evaluate.scores import CLASSIFICATION, NODES, ROWS, Evaluated, EvaluationPlan
from topofl.engine.exchange import (
    FEWEST,
    GATHERED,
    SPARSE_BELOW,
    columns_at_a_time,
    component_means,
    sums_by_group,
)
from topofl.engine.population import Layout
from topofl.engine.train.allocations import bytes_of_step
from topofl.engine.train.forward import Order, is_linear
from topofl.engine.train.gradients import in_closed_form
from topofl.engine.train.plan import Backend, Sizes
from topofl.engine.train.terms import bytes_of_terms
from topofl.metrics.averaging import consensus
from topofl.mixing import MixingMatrix
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence

__all__ = ["TRAINED", "MemoryFacts", "groups_of", "memory_facts"]


TORCH = 10 * 2**20
"""What torch and Python take on first use, whatever the run.

These are threads, buffers of products, and modules loaded late.
"""


CONVOLUTIONS = 12 * 2**20
"""What the first convolutions take in addition: the kernels that oneDNN compiles.

This and `TORCH` were fitted on CPU, to the peaks of 100 logistic regressions and of 10 DPFL CNNs in
analysis/peak_memory.py; all other rows there check them.
"""


TRAINED = 2.5
"""What steps with autograd take on CPU of each byte that lives.

glibc keeps what is freed, in pieces that the next tensors rarely fit, and gives each thread heaps
of 64 MiB, which a few large tensors do not fill. The factor differs by model, 1.4 to 2.5: a probe
measures it. Fitted to 100 GN-LeNets, looped and batched by 8.
"""


EVALUATED = 1.4
"""The same of evaluations of models that are not linear."""


@dataclass(frozen=True)
class MemoryFacts:
    """What the memory of a run depends on, its plan apart; sizes in bytes.

    Parameters
    ----------
    n, d
        Number of nodes, and of parameters of one model.
    itemsize
        Of one parameter.
    width, example
        Examples of the largest minibatch, and bytes of one of them as models see it.
    minibatch
        One node's largest minibatch, gathered.
    looped, batched
        What one node's step takes for gradients and activations where they are most, alone and as
        one of many.
    state
        What phases carry from round to round.
    fine_tuning
        Copies of the models that are fine-tuned, and what that carries from step to step.
    groups
        Into how many means gradients are mixed in local steps; n if all nodes' must exist at once,
        0 if none are.
    all_gradients
        How many gradients phases ask for at once, of all nodes.
    phases
        What a phase allocates in addition, such as copies of the models, for as long as it takes.
    largest
        Parameters of the largest layer.
    distance
        What the consensus distance makes float64 at a time.
    matrices
        Mixing matrices.
    mixing, evaluation
        Buffers of one worker that exist only while models are mixed or evaluated.
    data
        The dataset on the run's device.
    held
        The part of `data` that is there before the run.
    torch
        What torch takes on first use, and the network itself.
    returned
        Whether memory is given back between training and evaluation.
    steps
        As in :class:`Sizes`.
    history
        What is recorded over all rounds, if their number is known.
    """

    n: int
    d: int
    itemsize: int
    width: int
    example: int
    minibatch: int
    looped: int
    batched: int
    state: int
    fine_tuning: int
    groups: int
    all_gradients: int
    phases: int
    largest: int
    distance: int
    matrices: int
    mixing: int
    evaluation: int
    data: int
    held: int
    torch: int
    returned: bool
    steps: tuple[tuple[int, ...], ...] = ()
    history: int = 0

    @property
    def sizes(self) -> Sizes:
        """What the choice of a plan depends on."""
        return Sizes(
            self.n, self.d, self.width, self.width * self.example, self.batched, self.steps
        )


def groups_of(trace: Trace, graphs: Topology | TopologySequence, compute: Backend) -> int:
    """Return into how many means gradients are mixed in local steps.

    That is n if all nodes' gradients must exist at once, and 0 if none are mixed. Where graphs
    change nothing is said of their groups.
    """
    found, n = [0], graphs.n
    for weights in trace.requests.rules:
        if graphs.period == 1 and sums_by_group(compute.device, compute.dtype):
            labels = component_means(weights)
            found.append(n if labels is None else 1 + int(labels.max()))
        else:
            found.append(n)
    return max(found)


def memory_facts(
    trace: Trace,
    module: nn.Module,
    sample: Tensor,
    order: Order,
    plan_of_evaluation: EvaluationPlan,
    clients: Partition,
    matrices: Sequence[MixingMatrix],
    sets: Sequence[Evaluated],
    compute: Backend,
    graphs: Topology | TopologySequence,
    task: Task = CLASSIFICATION,
) -> MemoryFacts:
    """Return the facts of a run.

    Parameters
    ----------
    trace
        Of the first rounds.
    clients
        As in :func:`topofl.run`, pooled where the algorithm pools them.
    module, sample, order, plan_of_evaluation
        The checked model and some examples, on the device, how images lie in memory, and how they
        are evaluated.
    matrices
        Mixing matrices that exist at once.
    sets
        What is evaluated, one after the other.
    compute
        Device, dtype and executor.
    graphs
        Of the run.
    task
        What is learned.
    """
    n, d, dtype = clients.n, Layout.of(module).d, compute.dtype
    inputs, targets = clients.dataset.inputs, clients.dataset.learned(dtype)
    stored = dtype if inputs.is_floating_point() else inputs.dtype
    pixels, seen = inputs[0].numel(), dtype if inputs.dtype == torch.uint8 else stored
    gathered = pixels * (stored.itemsize + seen.itemsize * (stored != seen))
    layout, sizes = Layout.of(module), np.array(list(map(len, clients.train)))
    width = int(np.minimum(trace.batch_sizes(), sizes).max())
    looped, batched = _bytes_of_steps(module, sample, order, width, compute, task, targets[:1])
    terms = max(
        (bytes_of_terms(one.how, layout, dtype, n) for one in _largest_steps(trace).values()),
        default=0,
    )
    return MemoryFacts(
        n=n,
        d=d,
        itemsize=dtype.itemsize,
        width=width,
        example=pixels * seen.itemsize,
        minibatch=width
        * (gathered + _bytes_of_moves(inputs, stored, clients.augment) + targets[0].nbytes),
        looped=looped + terms,
        batched=batched + terms,
        state=trace.state,
        fine_tuning=trace.fine_tuning,
        groups=groups_of(trace, graphs, compute),
        all_gradients=n * len(trace.requests.gradients),
        phases=trace.scratch,
        largest=max(p.numel() for p in module.parameters()),
        distance=8 * min(n * d, max(n, consensus.NUMBERS)),
        matrices=sum(_bytes_of_matrix(matrix, dtype) for matrix in matrices),
        mixing=_numbers_of_mixing(matrices, n, d, compute) * dtype.itemsize * trace.exchanges,
        evaluation=max(
            _bytes_with_neighbors(trace.algorithm, module, sample, order, clients, gathered),
            *(
                _bytes_of_evaluation(module, sample, plan_of_evaluation, one, gathered, task)
                for one in sets
            ),
        ),
        data=inputs.numel() * stored.itemsize + targets.nbytes,
        torch=d * dtype.itemsize
        + TORCH
        + CONVOLUTIONS * any(isinstance(m, nn.Conv2d) for m in module.modules()),
        returned=not is_linear(module),
        steps=tuple(
            _steps(one.counts) for name, one in _largest_steps(trace).items() if name != "fine_tune"
        ),
        held=_bytes_held(clients, stored, targets) if compute.device.type == "cpu" else 0,
    )


def _bytes_held(clients: Partition, stored: torch.dtype, targets: Tensor) -> int:
    """Return the bytes of the dataset that the run uses where they are."""
    dataset = clients.dataset
    kept = targets is dataset.labels or targets is dataset.targets
    return (dataset.inputs.nbytes if dataset.inputs.dtype == stored else 0) + (
        targets.nbytes if kept else 0
    )


def _largest_steps(trace: Trace) -> dict[str, RecordedSteps]:
    """Return the local steps of each phase in the round in which it takes most."""
    return {
        name: max(some, key=lambda one: int(one.counts.sum()))
        for name, some in trace.requests.trained.items()
        if some
    }


def _steps(counts: np.ndarray) -> tuple[int, ...]:
    """Return how many steps nodes take, of those that take some, most first."""
    return tuple(sorted(counts[counts > 0].tolist(), reverse=True))


def _bytes_of_steps(
    module: nn.Module,
    sample: Tensor,
    order: Order,
    width: int,
    compute: Backend,
    task: Task,
    targets: Tensor,
) -> tuple[int, int]:
    """Return the bytes of one node's step, alone and among others."""
    if in_closed_form(
        module, task
    ):  # in closed form: gradients, logits, their log-softmax, and three numbers an example
        classes, d = _classes(module), Layout.of(module).d
        size = (d + width * (2 * classes + 3)) * compute.dtype.itemsize
        return size, size
    taken = 1 if sample.is_cuda else TRAINED
    learned = (task.loss, targets.to(sample.device))
    looped = int(taken * bytes_of_step(module, "looped", order, sample, width, *learned))
    if compute.executor == "looped":
        return looped, looped
    try:
        return looped, int(taken * bytes_of_step(module, "batched", order, sample, width, *learned))
    except RuntimeError:  # torch.func cannot batch every module: the run will loop
        return looped, looped


def _bytes_of_moves(inputs: Tensor, stored: torch.dtype, augment: Augmentation | None) -> int:
    """Return the bytes that it takes to move an image: a padded copy, and its pixels' places."""
    if augment is None:
        return 0
    channels, height, width = inputs.shape[1:]
    padded = (height + 2 * augment.padding) * (width + 2 * augment.padding)
    return channels * padded * stored.itemsize + height * width * torch.int64.itemsize


def _bytes_of_matrix(matrix: MixingMatrix, dtype: torch.dtype) -> int:
    """Return the bytes of a mixing matrix, as scipy and torch hold it."""
    nonzero, square = matrix.weights.nnz, matrix.n**2
    return 12 * nonzero + (
        nonzero * (8 + dtype.itemsize)
        if nonzero < SPARSE_BELOW * square
        else square * dtype.itemsize
    )


def _numbers_of_mixing(matrices: Sequence[MixingMatrix], n: int, d: int, compute: Backend) -> int:
    """Return how many numbers a worker needs to mix: a block of columns, twice if it gathers."""
    gathers = compute.device.type == "cpu" and compute.dtype == torch.float32
    if gathers and any(matrix.weights.nnz < SPARSE_BELOW * n**2 for matrix in matrices):
        return 2 * min(n * d, max(n * FEWEST, GATHERED))
    return n * min(d, columns_at_a_time(n, compute.device))


def _bytes_of_evaluation(
    module: nn.Module,
    sample: Tensor,
    plan_of_evaluation: EvaluationPlan,
    sets: Evaluated,
    gathered: int,
    task: Task,
) -> int:
    """Return the bytes that one worker's part of an evaluation needs at most at once."""
    on, nodes = sets
    shared = isinstance(on, Tensor)
    largest = len(on) if shared else max((len(on[i]) for i in nodes), default=0)
    kept = _bytes_of_outputs(module, sample, task) * largest
    if not is_linear(module):
        width = (
            plan_of_evaluation.examples
            if sample.is_cuda
            else max(1, min(plan_of_evaluation.examples, largest))
        )
        living = plan_of_evaluation.bytes_of(width) + width * gathered + kept
        return int((1 if sample.is_cuda else EVALUATED) * living)
    size, classes, d = sample.element_size(), _classes(module), Layout.of(module).d
    together = min(NODES, len(nodes)) if shared and not kept else 1
    width = min(max(1, ROWS // together), largest)
    wide = max(size, 4)  # in which logits are looked at: a copy of them, if it is another
    logits = classes * size
    scores = (
        classes * (wide + wide * (wide != size)) + 3 * wide + 8
    )  # their exponentials, three numbers and a label
    return (
        together * d * size + width * (together * logits + max(gathered, together * scores)) + kept
    )


def _bytes_of_outputs(module: nn.Module, sample: Tensor, task: Task) -> int:
    """Return the bytes of outputs that are kept for each example of a node's set.

    They are kept twice, in parts and as a whole.
    """
    if not any(score.whole for score in task.reported.values()):
        return 0
    with torch.no_grad():
        return 2 * module(sample[:1]).nbytes


def _bytes_with_neighbors(
    algorithm: Algorithm,
    module: nn.Module,
    sample: Tensor,
    order: Order,
    clients: Partition,
    gathered: int,
) -> int:
    """Return the same of an evaluation with neighbors, 0 if there are none."""
    if algorithm.neighbors is None:
        return 0
    taken = 1 if sample.is_cuda else EVALUATED
    largest = max(map(len, clients.train))
    return int(
        taken * bytes_of_neighbors(module, sample, order, algorithm.neighbors, largest, gathered)
    )


def _classes(module: nn.Module) -> int:
    return next(layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear))
