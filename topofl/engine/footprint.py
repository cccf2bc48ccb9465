"""What a run takes: bytes of each part of memory with a plan, from dry steps and evaluations."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.machine import is_in_memory
from topofl._support.threads import Buffers
from topofl.algorithms.contract.descent import constant
from topofl.algorithms.contract.local import Training
from topofl.engine.evaluation import NODES, ROWS, Evaluated, is_shared
from topofl.engine.gradients import (
    Bound,
    Order,
    autograd_gradients,
    hidden_widths,
    in_closed_form,
    is_linear,
    objective_gradients,
    rows_of,
)
from topofl.engine.memory import LARGEST, AllocationTrace, extrapolated
from topofl.engine.mixing import (
    FEWEST,
    GATHERED,
    SPARSE_BELOW,
    columns_at_a_time,
    sums_by_group,
)
from topofl.engine.neighbors import bytes_of_neighbors
from topofl.engine.network import Network
from topofl.engine.plan import Fits, Plan, Sizes, most_nodes
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import NUMBERS
from topofl.engine.requests import Setup
from topofl.engine.training import LocalSteps, gradients_in_memory, nodes_per_update
from topofl.metrics import consensus
from topofl.mixing import MixingMatrix
from topofl.mixing.matrix import component_means
from topofl.tasks import Function, cross_entropy

TORCH = 10 * 2**20
"""Bytes that torch and Python allocate on first use in any run.

They are for threads, buffers of matrix products, and modules that are loaded lazily.
"""

CONVOLUTIONS = 12 * 2**20
"""Additional bytes of the first convolutions, for kernels that oneDNN compiles.

This and `TORCH` were fitted on CPU, to the peaks of 100 logistic regressions and of 10 DPFL CNNs in
analysis/peak_memory.py, and are tested on all other rows there.
"""

TRAINED = 2.5
"""Bytes that a step with autograd takes from the system per byte of live tensors, on CPU.

glibc retains freed memory in pieces that rarely fit new tensors, and gives each thread heaps of 64
MiB, which a few large tensors do not fill. The factor depends on the model, 1.4 to 2.5: a probe
measures it. Fitted to 100 GN-LeNets, looped and batched by 8.
"""

EVALUATED = 1.4
"""The same factor for evaluations of models that are not linear."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a run takes: once, for each worker, and for each node in progress.

    Parameters
    ----------
    sizes
        Numbers of nodes and of parameters, and the bytes of a node's step as one of many nodes.
    models, model
        Number of models that are stored at once, and bytes of one of them.
    largest
        Number of parameters of the largest layer.
    minibatch, looped
        Bytes of one node's largest minibatch, gathered, and of its step alone: gradients and
        activations.
    groups
        Number of means over which gradients are mixed in local steps; n if the gradients of all
        nodes must exist at once, 0 if none are mixed.
    of_nodes
        Parts that grow with the number of nodes: ``"state"`` that phases carry from round to
        round, with the buffers of which each node has its own, ``"fine_tuning"`` with copies of
        models, all ``"gradients"`` that phases request at once, temporary memory of ``"phases"``,
        and mixing ``"matrices"``.
    of_run
        Other parts: ``"data"``, ``"torch"`` with the network itself, and ``"history"``.
    of_worker
        Buffers that exist only during ``"mixing"`` and ``"evaluation"``.
    held
        Bytes of the data that are in memory before the run.
    returned
        Whether memory is returned to the system between training and evaluation.
    on_disk
        Whether the models are in a file, of which at most a part is in memory.
    """

    sizes: Sizes
    models: int
    model: int
    largest: int
    minibatch: int
    looped: int
    groups: int
    of_nodes: Mapping[str, int]
    of_run: Mapping[str, int]
    of_worker: Mapping[str, int]
    held: int
    returned: bool
    on_disk: bool = False

    def parts(self, plan: Plan) -> dict[str, int]:
        """Return the bytes of each part of memory; :func:`peak` says which exist at once."""
        n, d, workers = self.sizes.n, self.sizes.d, plan.workers
        chunk, together = min(plan.chunk, n), min(workers * plan.chunk, n)
        step = self.looped if plan.executor == "looped" else self.sizes.step_bytes
        gradients = (together + self._mixed_gradients(workers, chunk)) * self.model
        diversity = workers * 8 * min(chunk * self.largest, NUMBERS)
        distance = 8 * min(n * d, max(n, consensus.NUMBERS))
        return {
            **self.of_nodes,
            **self.of_run,
            **{name: workers * size for name, size in self.of_worker.items()},
            "parameters": min(self.models * self.model, LARGEST if self.on_disk else sys.maxsize),
            "gradients": self.of_nodes["gradients"] + gradients,
            "minibatches": together * self.minibatch,
            "activations": together * max(step - self.model, 0),
            "statistics": workers * 8 * d,
            "float64": max(distance, diversity),
        }

    def _mixed_gradients(self, workers: int, chunk: int) -> int:
        """Return how many gradients exist at once to be mixed."""
        if not self.groups:
            return 0
        n = self.sizes.n
        kept = gradients_in_memory(self.groups, workers, chunk, n)
        if kept == n:
            return n
        return kept + workers * (nodes_per_update(n, workers, chunk, self.model) - chunk)

    def needed(self, plan: Plan) -> int:
        """Return the bytes that a run adds to the memory in use before it."""
        return peak(self.parts(plan), self.returned) - self.held

    def of_first(self, k: int, **known: int) -> "Footprint":
        """Return the footprint of the run with k of its nodes only; some parts may be `known`."""
        n, models = self.sizes.n, min(k, self.models)
        nodes = {name: known.get(name, size * k // n) for name, size in self.of_nodes.items()}
        once = {name: known.get(name, size) for name, size in self.of_run.items()}
        worker = {**self.of_worker, "mixing": min(self.of_worker["mixing"], 2 * k * self.model)}
        parts: dict[str, Any] = {"of_nodes": nodes, "of_run": once, "of_worker": worker}
        return replace(self, sizes=self.sizes._replace(n=k), models=models, **parts)

    def fits_into(self, free: int | None) -> Fits:
        """Return a function that tells whether a run with a plan fits into free memory.

        If the free memory is unknown, every plan fits.
        """
        return lambda plan: free is None or self.needed(plan) <= free

    def check(self, plans: Sequence[Plan], free: int | None) -> None:
        """Raise if a run does not fit into free memory with any of some plans.

        Raises
        ------
        ValueError
            Naming the needed and the free memory, and the largest chunk or the executor that would
            fit; if none does, the largest part of memory.
        """
        if free is None:
            return
        need, plan = min((self.needed(plan), plan) for plan in plans)
        if need > free:
            raise ValueError(
                f"the run must fit into memory, but needs {in_gib(need)} ({plan.executor}, "
                f"chunk={plan.chunk}) and {in_gib(free)} are free; {self.remedy(free)}"
            )

    def remedy(self, free: int) -> str:
        """Return the settings that would fit into memory, or the largest part of memory."""
        chunk = most_nodes(self.sizes.n, 1, self.fits_into(free))
        if chunk:
            need = self.needed(Plan("batched", chunk, 1, 1))
            return f"chunk={chunk} would need {in_gib(need)}"
        alone = Plan("looped", 1, 1, 1)
        if self.needed(alone) <= free:
            return f'executor="looped" would need {in_gib(self.needed(alone))}'
        parts = self.parts(alone)
        name = max(parts, key=lambda part: parts[part])
        advice = _ADVICE.get(name, _ADVICE["parameters"])
        if name == "parameters" and not self.on_disk:
            advice += ", or keep the models on a disk by Compute(device='cpu', scratch=folder)"
        return f"{name} alone take {in_gib(parts[name])} with either executor: {advice}"


_ADVICE = {
    "parameters": "use fewer nodes or a smaller model",
    "state": "use no momentum, or fewer nodes",
    "fine_tuning": "turn it off with fine_tune=False, or use fewer nodes",
    "gradients": "use an algorithm that does not mix gradients, or fewer nodes",
    "minibatches": "lower batch_size",
    "activations": "lower batch_size",
    "data": "keep images as uint8, or use fewer examples",
    "matrices": "use a sparser topology or fewer nodes",
    "history": "run fewer rounds, evaluate less often, or use a sparser topology",
}
"""How to reduce each part of memory."""


def peak(parts: Mapping[str, int], returned: bool) -> int:
    """Return the peak memory of parts that do not all exist at once.

    Training and evaluation take turns, and so does their memory if it is `returned` in between;
    otherwise it adds up. Gradients stay allocated in buffers.
    """
    if not returned:
        return sum(parts.values())
    temporary = ("activations", "statistics", "float64", "phases", "mixing", "evaluation")
    permanent = sum(size for name, size in parts.items() if name not in temporary)
    # Statistics of gradients convert them to float64 after a step, when activations are freed.
    step = parts["statistics"] + max(parts["activations"], parts["float64"])
    return permanent + max(step, parts["phases"] + parts["mixing"], parts["evaluation"])


def in_gib(size: float) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 1 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{math.ceil(size / 2**20)} MiB"


def footprint(setup: Setup, matrices: Sequence[MixingMatrix], history: int = 0) -> Footprint:
    """Return the memory of a run, from dry steps and evaluations of a few examples.

    Parameters
    ----------
    setup
        The checked arguments of the run.
    matrices
        Mixing matrices that exist at once.
    history
        Bytes of the record of all rounds; 0 if their number is unknown.
    """
    compute, trace, module, dtype = setup.compute, setup.trace, setup.module, setup.compute.dtype
    n, d, model = setup.clients.n, trace.layout.d, trace.layout.d * dtype.itemsize
    width = int(np.minimum(trace.batch_sizes(), setup.sizes).max())
    data, held, example, gathered, seen = _bytes_of_data(setup)
    asked = trace.steps.items()  # of each phase, in the round in which it takes the most steps
    most = {name: max(some, key=lambda one: int(one[1].sum())) for name, some in asked if some}
    terms = [bytes_of_terms(training, trace.layout, dtype, n) for training, _ in most.values()]
    bounds = trace.bounds_on(setup.sample.device)
    found = zip(*(_bytes_of_step(setup, width, bound) for bound in bounds), strict=True)
    looped, batched = (max(some) + max(terms, default=0) for some in found)
    counts = [own[own > 0].tolist() for name, (_, own) in most.items() if name != "fine_tune"]
    counts += [[1] * n for _ in trace.gradient_sizes]
    steps = tuple(tuple(sorted(own, reverse=True)) for own in counts)
    evaluations = [_bytes_of_evaluation(setup, one, gathered) for one in setup.sets.values()]
    convolves = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    buffers = sum(module.get_buffer(name).nbytes for name in setup.network.buffers)
    sizes = Sizes(n, d, width, width * seen, batched, steps)
    largest, groups = max(p.numel() for p in module.parameters()), groups_of(setup)
    of_nodes = {
        "state": trace.state + n * buffers,
        "fine_tuning": trace.fine_tuning,
        "gradients": n * len(trace.gradients) * model,
        "phases": trace.scratch,
        "matrices": sum(_bytes_of_matrix(matrix, dtype) for matrix in matrices),
    }
    torch_itself = model + TORCH + CONVOLUTIONS * convolves
    of_run = {"data": data, "torch": torch_itself, "history": history}
    evaluation = max(_bytes_with_neighbors(setup, gathered), *evaluations, 0)
    of_worker = {"mixing": _bytes_of_mixing(setup, matrices), "evaluation": evaluation}
    on_disk = compute.scratch is not None and not is_in_memory(Path(compute.scratch))
    returned = not (is_linear(module) and setup.is_planned_by_rule)
    numbers = trace.stored, model, largest, width * example, looped, groups
    parts = of_nodes, of_run, of_worker
    return Footprint(sizes, *numbers, *parts, held, returned, on_disk)


def _bytes_of_data(setup: Setup) -> tuple[int, int, int, int, int]:
    """Return the bytes of the data, those that are in memory before the run, and of one example.

    These are of an example in a minibatch, of gathering its input, and of this as models see it.
    """
    dataset, dtype = setup.clients.dataset, setup.compute.dtype
    inputs, targets = dataset.inputs, dataset.learned(dtype)
    stored = dtype if inputs.is_floating_point() else inputs.dtype
    seen = dtype if inputs.dtype == torch.uint8 else stored
    numbers, held = inputs[0].numel(), 0  # of a dataset that is used without a copy
    if setup.device.type == "cpu":
        held = inputs.nbytes * (inputs.dtype == stored)
        held += targets.nbytes * (targets is dataset.labels or targets is dataset.targets)
    gathered = numbers * (stored.itemsize + (seen.itemsize if stored != seen else 0))
    data = inputs.numel() * stored.itemsize + targets.nbytes
    example = gathered + _bytes_of_augmenting(setup, stored) + targets[0].nbytes
    return data, held, example, gathered, numbers * seen.itemsize


def groups_of(setup: Setup) -> int:
    """Return the number of means over which gradients are mixed in local steps.

    It is n if the gradients of all nodes must exist at once, as with graphs that change, and 0 if
    none are mixed.
    """
    rules, n = setup.trace.rules, setup.clients.n
    if setup.graphs.period != 1 or not sums_by_group(setup.device, setup.compute.dtype):
        return n if rules else 0
    labels = map(component_means, rules)
    return max((n if own is None else 1 + int(own.max()) for own in labels), default=0)


def _bytes_of_augmenting(setup: Setup, stored: torch.dtype) -> int:
    """Return the bytes for augmenting an image: a padded copy, and positions of its pixels."""
    augment = setup.clients.augment
    if augment is None:
        return 0
    channels, height, width = setup.clients.dataset.inputs.shape[1:]
    padded = (height + 2 * augment.padding) * (width + 2 * augment.padding)
    return channels * padded * stored.itemsize + height * width * torch.int64.itemsize


def _bytes_of_step(setup: Setup, width: int, bound: Bound | None) -> tuple[int, int]:
    """Return the bytes of one node's step on `width` examples, looped and batched."""
    network, sample, task, compute = setup.network, setup.sample, setup.task, setup.compute
    module = network.module
    if bound is None and in_closed_form(module, task):
        # Gradients, hidden layers with their errors, logits, their log-softmax, and three numbers
        # per example.
        hidden = 2 * sum(hidden_widths(module) or [])
        numbers = setup.trace.layout.d + width * (hidden + 2 * _classes(module) + 3)
        return numbers * compute.dtype.itemsize, numbers * compute.dtype.itemsize
    target = setup.clients.dataset.learned(compute.dtype)[:1].to(sample.device)

    def step(executor: str) -> int:
        how = setup.order, sample, width, task.loss, target, bound
        live = bytes_of_step(network, executor, *how)
        return live if sample.is_cuda else int(TRAINED * live)

    looped = step("looped")
    try:
        return looped, looped if compute.executor == "looped" else step("batched")
    except (RuntimeError, ValueError):  # torch.func cannot batch this: the run will loop
        return looped, looped


def _bytes_of_matrix(matrix: MixingMatrix, dtype: torch.dtype) -> int:
    """Return the bytes of a mixing matrix in scipy and in torch."""
    nonzero = matrix.weights.nnz
    square = matrix.n**2
    sparse = nonzero < SPARSE_BELOW * square
    in_torch = nonzero * (8 + dtype.itemsize) if sparse else square * dtype.itemsize
    return 12 * nonzero + in_torch


def _bytes_of_mixing(setup: Setup, matrices: Sequence[MixingMatrix]) -> int:
    """Return the bytes that a worker needs for mixing: a block of columns, two if it gathers."""
    n, d, dtype = setup.clients.n, setup.trace.layout.d, setup.compute.dtype
    numbers = n * min(d, columns_at_a_time(n, setup.device))
    gathers = setup.device.type == "cpu" and dtype == torch.float32
    if gathers and any(matrix.weights.nnz < SPARSE_BELOW * n**2 for matrix in matrices):
        numbers = 2 * min(n * d, max(n * FEWEST, GATHERED))
    return numbers * dtype.itemsize * setup.trace.exchanges


def _bytes_of_evaluation(setup: Setup, evaluated: Evaluated, gathered: int) -> int:
    """Return the peak bytes of one worker's part of an evaluation."""
    module, sample = setup.module, setup.sample
    largest = max(map(len, evaluated.values()), default=0)
    kept = 0
    if any(score.whole for score in setup.task.reported.values()):  # outputs of the whole set
        with torch.no_grad():
            kept = 2 * largest * module(sample[:1]).nbytes  # in parts and as a whole
    if not is_linear(module):
        way = setup.evaluation_plan
        width = way.examples if sample.is_cuda else max(1, min(way.examples, largest))
        live = way.bytes_of(width) + width * gathered + kept
        return live if sample.is_cuda else int(EVALUATED * live)
    size = sample.element_size()
    classes = _classes(module)
    together = min(NODES, len(evaluated)) if is_shared(evaluated) and not kept else 1
    width = min(max(1, ROWS // together), largest)
    wide = max(size, 4)  # scores are computed in at least float32: if wider, on a copy of logits
    logits = classes * size
    # Exponentials of logits (and their copy), three numbers, and a label.
    scores = classes * (wide + wide * (wide != size)) + 3 * wide + 8
    models = together * setup.trace.layout.d * size
    return models + width * (together * logits + max(gathered, together * scores)) + kept


def _bytes_with_neighbors(setup: Setup, gathered: int) -> int:
    """Return the peak bytes of an evaluation with nearest neighbors; 0 without one."""
    neighbors, sample = setup.algorithm.neighbors, setup.sample
    if neighbors is None:
        return 0
    live = bytes_of_neighbors(setup, neighbors, gathered)
    return live if sample.is_cuda else int(EVALUATED * live)


def _classes(module: nn.Module) -> int:
    """Return the number of classes of a perceptron: the width of its last layer."""
    return [layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear)][-1]


FEW_NUMBERS = 2**20
"""Number of parameters of all models up to which a dry step uses zeros instead of meta tensors.

The first operation on a meta tensor makes torch load sympy, and some operations its compiler; each
takes 35 MB and a second.
"""


def bytes_of_step(
    network: Network,
    executor: str,
    order: Order,
    sample: Tensor,
    width: int,
    loss: Function = cross_entropy,
    targets: Tensor | None = None,
    bound: Bound | None = None,
) -> int:
    """Return the peak bytes of one node's gradients and activations on `width` examples.

    With the batched executor, this is one node's share of a batched step. Temporary memory inside
    of kernels is not traced. The loss gets targets like `targets`; None: class labels. With an
    objective `bound` to its state, the gradients are those of the objective.

    Raises
    ------
    RuntimeError
        If the executor is ``"batched"``, and torch cannot batch the model.
    """
    nodes = 2 if executor == "batched" else 1  # a stack of one model takes a shortcut
    gradients: Any = autograd_gradients(network, executor, order, loss=loss)
    if bound is not None:
        differentiate: Any = objective_gradients(network, order, nullcontext, loss)
        gradients = partial(differentiate, trained=None, bound=bound)

    def prepare(*examples: Tensor) -> Callable[[], object]:
        inputs, expected = (part.expand(nodes, *part.shape).contiguous() for part in examples)
        own = rows_of(network, nodes)  # of which a step changes buffers
        return lambda: gradients(own, (inputs, expected, None))

    return -(-extrapolated(prepare, sample, targets)(width) // nodes)


def bytes_of_terms(training: Training, layout: Layout, dtype: torch.dtype, n: int) -> int:
    """Return the bytes of a node's local step in addition to its model and gradient.

    They include the state that terms create in each round, but not the state that they carry from
    round to round. Two nodes take a step; `init` gets all n, whose number its result may depend on.
    """
    nodes = min(n, 2)
    # A custom schedule may not be defined for this step.
    training = replace(training, descend=replace(training.descend, lr=constant(1.0)), gradient=None)
    device = "cpu" if n * layout.d <= FEW_NUMBERS else "meta"
    models = Population.alone(torch.zeros(n, layout.d, dtype=dtype, device=device), layout)
    bad = torch.zeros(n, dtype=torch.bool, device=device)
    job = LocalSteps(models, training, training.init(models), 0, bad, np.arange(n), dry=True)
    shapes = [layout.shapes[k] for k in job.trained]
    gradients = [torch.zeros(nodes, *shape, dtype=dtype, device=device) for shape in shapes]
    losses = torch.zeros(0, dtype=dtype, device=device)
    with AllocationTrace(shapes_only=True) as allocations:
        chunk, memory = job.of(slice(0, nodes)), Buffers(models.flat.device)
        _, found = chunk.gradients(1, lambda *_: (losses, gradients), memory)
        chunk.take_step(1, found, memory)
    return -(-allocations.peak // nodes)
