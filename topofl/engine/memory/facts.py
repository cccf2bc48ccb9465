"""Facts that determine the memory of a run, from dry steps and evaluations of a few examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from topofl.data import Partition
from topofl.engine.dry_run.requests import RecordedSteps
from topofl.engine.dry_run.trace import Trace
from topofl.engine.evaluation import CLASSIFICATION, Evaluated, EvaluationPlan
from topofl.engine.memory.parts import (
    bytes_held,
    bytes_of_evaluation,
    bytes_of_matrix,
    bytes_of_moves,
    bytes_of_steps,
    bytes_with_neighbors,
    example_size,
    numbers_of_mixing,
)
from topofl.engine.memory.system import is_in_memory
from topofl.engine.mixer import (
    component_means,
    sums_by_group,
)
from topofl.engine.population import Layout
from topofl.engine.train.forward import Order, is_linear
from topofl.engine.train.plan import Backend, Sizes
from topofl.engine.train.terms import bytes_of_terms
from topofl.metrics.averaging import consensus
from topofl.mixing import MixingMatrix
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence

__all__ = ["MemoryFacts", "groups_of", "memory_facts"]


TORCH = 10 * 2**20
"""Bytes that torch and Python allocate on first use in any run.

They are for threads, buffers of matrix products, and modules that are loaded lazily.
"""


CONVOLUTIONS = 12 * 2**20
"""Additional bytes of the first convolutions, for kernels that oneDNN compiles.

This and `TORCH` were fitted on CPU, to the peaks of 100 logistic regressions and of 10 DPFL CNNs in
analysis/peak_memory.py, and are tested on all other rows there.
"""


@dataclass(frozen=True)
class MemoryFacts:
    """Facts that determine the memory of a run, except for its plan; sizes are in bytes.

    Parameters
    ----------
    n, d
        Number of nodes, and of parameters of one model.
    itemsize
        Size of one parameter.
    width, example
        Number of examples of the largest minibatch, and size of one of them as model input.
    minibatch
        Size of one node's largest minibatch, gathered.
    looped, batched
        Peak of gradients and activations in one node's step, alone and as one of many nodes.
    state
        Size of the state that phases carry from round to round.
    fine_tuning
        Size of the copies of models that are fine-tuned, and of the state of fine-tuning.
    groups
        Number of means over which gradients are mixed in local steps; n if the gradients of all
        nodes must exist at once, 0 if none are mixed.
    all_gradients
        Number of gradients that phases request at once, over all nodes.
    phases
        Temporary memory of a phase, such as copies of the models.
    largest
        Number of parameters of the largest layer.
    distance
        Size of the block that the consensus distance converts to float64.
    matrices
        Size of the mixing matrices.
    mixing, evaluation
        Buffers of one worker that exist only while models are mixed or evaluated.
    data
        Size of the dataset on the run's device.
    held
        The part of `data` that is in memory before the run.
    torch
        Memory that torch allocates on first use, and the network itself.
    returned
        Whether memory is returned to the system between training and evaluation.
    steps
        As in :class:`Sizes`.
    history
        Size of the record of all rounds; 0 if their number is unknown.
    on_disk
        Whether the models are in a file, of which at most a part is in memory.
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
    on_disk: bool = False

    @property
    def sizes(self) -> Sizes:
        """The sizes that the choice of a plan depends on."""
        return Sizes(
            self.n, self.d, self.width, self.width * self.example, self.batched, self.steps
        )


def groups_of(trace: Trace, graphs: Topology | TopologySequence, compute: Backend) -> int:
    """Return the number of means over which gradients are mixed in local steps.

    It is n if the gradients of all nodes must exist at once, as with graphs that change, and 0 if
    none are mixed.
    """
    n = graphs.n
    counts = [0]
    for weights in trace.requests.rules:
        if graphs.period == 1 and sums_by_group(compute.device, compute.dtype):
            labels = component_means(weights)
            counts.append(n if labels is None else 1 + int(labels.max()))
        else:
            counts.append(n)
    return max(counts)


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
    """Return the facts that determine the memory of a run.

    Parameters
    ----------
    trace
        Trace of the first rounds.
    module, sample, order, plan_of_evaluation
        The checked model and some examples on the device, the memory format of images, and the plan
        of their evaluation.
    clients
        As in :func:`topofl.run`, pooled if the algorithm pools them.
    matrices
        Mixing matrices that exist at once.
    sets
        The sets that are evaluated, one after the other.
    compute
        Device, dtype and executor.
    graphs
        The graphs of the run.
    task
        The learning task.
    """
    dtype = compute.dtype
    layout = Layout.of(module)
    n, d = clients.n, layout.d
    targets = clients.dataset.learned(dtype)
    stored, seen, gathered = example_size(clients.dataset.inputs, dtype)
    sizes = np.array(list(map(len, clients.train)))
    width = int(np.minimum(trace.batch_sizes(), sizes).max())
    looped, batched = bytes_of_steps(module, sample, order, width, compute, task, targets[:1])
    terms = _bytes_of_all_terms(trace, layout, dtype, n)
    moved = bytes_of_moves(clients.dataset.inputs, stored, clients.augment)
    neighbors = bytes_with_neighbors(trace.algorithm, module, sample, order, clients, gathered)
    evaluations = (
        bytes_of_evaluation(module, sample, plan_of_evaluation, one, gathered, task) for one in sets
    )
    return MemoryFacts(
        n=n,
        d=d,
        itemsize=dtype.itemsize,
        width=width,
        example=seen,
        minibatch=width * (gathered + moved + targets[0].nbytes),
        looped=looped + terms,
        batched=batched + terms,
        state=trace.state,
        fine_tuning=trace.fine_tuning,
        groups=groups_of(trace, graphs, compute),
        all_gradients=n * len(trace.requests.gradients),
        phases=trace.scratch,
        largest=max(p.numel() for p in module.parameters()),
        distance=8 * min(n * d, max(n, consensus.NUMBERS)),
        matrices=sum(bytes_of_matrix(matrix, dtype) for matrix in matrices),
        mixing=numbers_of_mixing(matrices, n, d, compute) * dtype.itemsize * trace.exchanges,
        evaluation=max([neighbors, *evaluations]),
        data=clients.dataset.inputs.numel() * stored.itemsize + targets.nbytes,
        torch=d * dtype.itemsize + _bytes_of_torch(module),
        returned=not is_linear(module),
        steps=_steps_by_phase(trace),
        on_disk=compute.scratch is not None and not is_in_memory(compute.scratch),
        held=bytes_held(clients, stored, targets) if compute.device.type == "cpu" else 0,
    )


def _largest_steps(trace: Trace) -> dict[str, RecordedSteps]:
    """Return the local steps of each phase in the round in which it takes the most steps."""
    return {
        name: max(some, key=lambda one: int(one.counts.sum()))
        for name, some in trace.requests.trained.items()
        if some
    }


def _steps_by_phase(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of steps of nodes that take any, in descending order, for each phase."""
    counts = [one.counts for name, one in _largest_steps(trace).items() if name != "fine_tune"]
    return tuple(tuple(sorted(own[own > 0].tolist(), reverse=True)) for own in counts)


def _bytes_of_all_terms(trace: Trace, layout: Layout, dtype: torch.dtype, n: int) -> int:
    """Return the bytes that terms add to a step, in the phase where they need the most."""
    steps = _largest_steps(trace).values()
    return max((bytes_of_terms(one.training, layout, dtype, n) for one in steps), default=0)


def _bytes_of_torch(module: nn.Module) -> int:
    """Return the bytes that torch allocates on first use in a run of this model."""
    convolves = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    return TORCH + CONVOLUTIONS * convolves
