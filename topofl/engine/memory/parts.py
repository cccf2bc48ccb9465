"""Bytes of the parts of a run: examples, steps, mixing and evaluation of one node or worker."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topofl.algorithms.contract.phase import Algorithm
from topofl.data import Augmentation, Partition
from topofl.engine.evaluation import NODES, ROWS, Evaluated, EvaluationPlan
from topofl.engine.mixer import (
    FEWEST,
    GATHERED,
    SPARSE_BELOW,
    columns_at_a_time,
)
from topofl.engine.neighbors import bytes_of_neighbors
from topofl.engine.population import Layout
from topofl.engine.train.allocations import bytes_of_step
from topofl.engine.train.forward import Order, is_linear
from topofl.engine.train.gradients import in_closed_form
from topofl.engine.train.plan import Backend
from topofl.mixing import MixingMatrix
from topofl.tasks import Task

__all__ = [
    "EVALUATED",
    "TRAINED",
    "ExampleSize",
    "bytes_held",
    "bytes_of_evaluation",
    "bytes_of_matrix",
    "bytes_of_moves",
    "bytes_of_steps",
    "bytes_with_neighbors",
    "example_size",
    "numbers_of_mixing",
]

TRAINED = 2.5
"""Bytes that a step with autograd takes from the system per byte of live tensors, on CPU.

glibc retains freed memory in pieces that rarely fit new tensors, and gives each thread heaps of 64
MiB, which a few large tensors do not fill. The factor depends on the model, 1.4 to 2.5: a probe
measures it. Fitted to 100 GN-LeNets, looped and batched by 8.
"""


EVALUATED = 1.4
"""The same factor for evaluations of models that are not linear."""


class ExampleSize(NamedTuple):
    """Dtype of stored examples, and bytes of one as model input and with its stored copy."""

    stored: torch.dtype
    seen: int
    gathered: int


def example_size(inputs: Tensor, dtype: torch.dtype) -> ExampleSize:
    """Return the sizes of one example in a run of a dtype."""
    stored = dtype if inputs.is_floating_point() else inputs.dtype
    seen = dtype if inputs.dtype == torch.uint8 else stored
    numbers = inputs[0].numel()
    gathered = numbers * (stored.itemsize + seen.itemsize * (stored != seen))
    return ExampleSize(stored, numbers * seen.itemsize, gathered)


def bytes_held(clients: Partition, stored: torch.dtype, targets: Tensor) -> int:
    """Return the bytes of the dataset that the run uses without a copy."""
    dataset = clients.dataset
    inputs = dataset.inputs.nbytes if dataset.inputs.dtype == stored else 0
    uncopied = targets is dataset.labels or targets is dataset.targets
    return inputs + (targets.nbytes if uncopied else 0)


def bytes_of_steps(
    module: nn.Module,
    sample: Tensor,
    order: Order,
    width: int,
    compute: Backend,
    task: Task,
    targets: Tensor,
) -> tuple[int, int]:
    """Return the bytes of one node's step, looped and batched."""
    if in_closed_form(module, task):
        classes = _classes(module)
        d = Layout.of(module).d
        # Gradients, logits, their log-softmax, and three numbers per example.
        size = (d + width * (2 * classes + 3)) * compute.dtype.itemsize
        return size, size
    factor = 1 if sample.is_cuda else TRAINED
    learned = (task.loss, targets.to(sample.device))
    looped = int(factor * bytes_of_step(module, "looped", order, sample, width, *learned))
    if compute.executor == "looped":
        return looped, looped
    try:
        return looped, int(
            factor * bytes_of_step(module, "batched", order, sample, width, *learned)
        )
    except RuntimeError:  # torch.func cannot batch this module: the run will loop
        return looped, looped


def bytes_of_moves(inputs: Tensor, stored: torch.dtype, augment: Augmentation | None) -> int:
    """Return the bytes for augmenting an image: a padded copy, and positions of its pixels."""
    if augment is None:
        return 0
    channels, height, width = inputs.shape[1:]
    padded = (height + 2 * augment.padding) * (width + 2 * augment.padding)
    return channels * padded * stored.itemsize + height * width * torch.int64.itemsize


def bytes_of_matrix(matrix: MixingMatrix, dtype: torch.dtype) -> int:
    """Return the bytes of a mixing matrix in scipy and in torch."""
    nonzero = matrix.weights.nnz
    square = matrix.n**2
    sparse = nonzero < SPARSE_BELOW * square
    in_torch = nonzero * (8 + dtype.itemsize) if sparse else square * dtype.itemsize
    return 12 * nonzero + in_torch


def numbers_of_mixing(matrices: Sequence[MixingMatrix], n: int, d: int, compute: Backend) -> int:
    """Return how many numbers a worker needs for mixing: a block of columns, two if it gathers."""
    gathers = compute.device.type == "cpu" and compute.dtype == torch.float32
    if gathers and any(matrix.weights.nnz < SPARSE_BELOW * n**2 for matrix in matrices):
        return 2 * min(n * d, max(n * FEWEST, GATHERED))
    return n * min(d, columns_at_a_time(n, compute.device))


def bytes_of_evaluation(
    module: nn.Module,
    sample: Tensor,
    plan_of_evaluation: EvaluationPlan,
    sets: Evaluated,
    gathered: int,
    task: Task,
) -> int:
    """Return the peak bytes of one worker's part of an evaluation."""
    on, nodes = sets
    shared = isinstance(on, Tensor)
    largest = len(on) if shared else max((len(on[i]) for i in nodes), default=0)
    kept = _bytes_of_outputs(module, sample, task) * largest
    if not is_linear(module):
        width = plan_of_evaluation.examples
        if not sample.is_cuda:
            width = max(1, min(width, largest))
        live = plan_of_evaluation.bytes_of(width) + width * gathered + kept
        return int((1 if sample.is_cuda else EVALUATED) * live)
    size = sample.element_size()
    classes = _classes(module)
    d = Layout.of(module).d
    together = min(NODES, len(nodes)) if shared and not kept else 1
    width = min(max(1, ROWS // together), largest)
    wide = max(size, 4)  # scores are computed in at least float32: if wider, on a copy of logits
    logits = classes * size
    # Exponentials of logits (and their copy), three numbers, and a label.
    scores = classes * (wide + wide * (wide != size)) + 3 * wide + 8
    models = together * d * size
    return models + width * (together * logits + max(gathered, together * scores)) + kept


def _bytes_of_outputs(module: nn.Module, sample: Tensor, task: Task) -> int:
    """Return the bytes of outputs that are kept per example, for scores of whole sets.

    Outputs are stored twice, in parts and as a whole.
    """
    if not any(score.whole for score in task.reported.values()):
        return 0
    with torch.no_grad():
        return 2 * module(sample[:1]).nbytes


def bytes_with_neighbors(
    algorithm: Algorithm,
    module: nn.Module,
    sample: Tensor,
    order: Order,
    clients: Partition,
    gathered: int,
) -> int:
    """Return the peak bytes of an evaluation with nearest neighbors; 0 without one."""
    if algorithm.neighbors is None:
        return 0
    factor = 1 if sample.is_cuda else EVALUATED
    largest = max(map(len, clients.train))
    live = bytes_of_neighbors(module, sample, order, algorithm.neighbors, largest, gathered)
    return int(factor * live)


def _classes(module: nn.Module) -> int:
    """Return the number of classes of a linear model."""
    return next(layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear))
