"""The executor of a run: plan, threads, reused memory, and gradients of chunks of nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topofl.engine.gradients import Drawing, Gradients, Order, new_gradients
from topofl.engine.minibatches import Batches, Examples, Minibatches, on_device
from topofl.engine.options import Compute
from topofl.engine.plan import (
    Buffers,
    ParallelMap,
    Plan,
    TimingTrial,
    in_turn,
    torch_threads,
    worker_threads,
)
from topofl.engine.population import Population
from topofl.tasks import Task


class Worker(NamedTuple):
    """Number, gradient function and buffers of one thread."""

    number: int
    gradients: Gradients
    buffers: Buffers


@dataclass(eq=False)
class Executor:
    """How a run computes, and on which data: the same from its first to its last round.

    Parameters
    ----------
    plan
        Batched or looped, nodes per call, and threads.
    workers
        One per thread.
    examples, targets
        The whole dataset on the device, (N, ...) each.
    batches
        Minibatches of all nodes, by step and phase.
    buffers
        Memory for tensors of all nodes, which every step reuses.
    parallel_map
        The map over the plan's worker threads within :meth:`threads`; otherwise one in turn.
    """

    plan: Plan
    workers: Sequence[Worker]
    examples: Examples
    targets: Tensor
    batches: Batches
    buffers: Buffers
    parallel_map: ParallelMap = field(default=in_turn, init=False)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Use the number of threads of the plan; torch's setting is restored afterwards.

        Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy
        one: more than a whole step with 50 nodes and logistic regression on digits.
        """
        with torch_threads(self.plan.threads), worker_threads(self.plan.workers) as parallel_map:
            self.parallel_map = parallel_map
            try:
                yield
            finally:
                self.parallel_map = in_turn

    def on_device(self, batches: Sequence[Minibatches]) -> list[Minibatches]:
        """Return the minibatches of some steps on the device, to which they are copied together."""
        return on_device(batches, self.targets.device, self.examples.dtype)

    def gradients(
        self,
        worker: Worker,
        models: Population,
        minibatches: Minibatches,
        rows: slice,
        trained: Sequence[int] | None = None,
        point: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return losses (k,) and gradients of some nodes on their minibatches.

        They are taken at the models, or at parameters (k, *shape) of another `point`.
        """
        indices = minibatches.indices[rows]
        weights = None if minibatches.weights is None else minibatches.weights[rows]
        choices = None if minibatches.choices is None else minibatches.choices[rows].view(-1)
        inputs = self.examples.gather(indices.view(-1), worker.buffers, choices).unflatten(
            0, indices.shape
        )
        targets = torch.index_select(self.targets, 0, indices.view(-1)).unflatten(0, indices.shape)
        parameters = models.views_of(rows) if point is None else [*point, *models.buffers_of(rows)]
        if minibatches.keys is not None:
            parameters.append(minibatches.keys[rows])
        return worker.gradients(parameters, inputs, targets, weights, trained)

    def chunks(self, n: int, size: int | None = None) -> list[slice]:
        """Return n nodes as slices of at most `size` nodes; None: those of one call."""
        size = self.plan.chunk if size is None else size
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def over_chunks(
        self,
        function: Callable[[Worker, slice], None],
        chunks: Sequence[slice],
        *,
        interleaved: bool = False,
    ) -> None:
        """Call ``function(worker, rows)`` for every chunk; workers take equal shares of them."""
        workers = len(self.workers)

        def work(k: int) -> None:
            own = slice(k * len(chunks) // workers, (k + 1) * len(chunks) // workers)
            for rows in chunks[slice(k, None, workers) if interleaved else own]:
                function(self.workers[k], rows)

        self.parallel_map(work, range(workers))


def new_executor(
    module: nn.Module,
    order: Order,
    models: Population,
    examples: Examples,
    targets: Tensor,
    batches: Batches,
    compute: Compute,
    task: Task,
    batch_size: int,
    choose: Callable[[TimingTrial], Plan],
    drawing: Drawing | None = None,
) -> Executor:
    """Return the executor of a run, with a plan chosen by trials on its largest minibatches.

    Trials do not change the models' buffers, which are equal before a run, and so are copied.
    """

    def executor(plan: Plan) -> Executor:
        workers = [worker(k, plan.executor) for k in range(plan.workers)]
        return Executor(plan, workers, examples, targets, batches, Buffers(targets.device))

    def worker(number: int, name: str) -> Worker:
        buffers = Buffers(targets.device)
        gradients = new_gradients(
            module, name, order, buffers, compute, task, tuple(models.buffers), drawing
        )
        return Worker(number, gradients, buffers)

    def trial(name: str, chunk: int, nodes: int) -> None:
        tried = executor(Plan(name, chunk, 1, 1))
        (minibatches,) = tried.on_device([batches.at(0, batch_size, "probe")])
        with _explaining_compile_errors(compute.compile):
            for rows in tried.chunks(nodes):
                tried.gradients(tried.workers[0], models, minibatches, rows)

    plan = choose(trial)
    if compute.compile:
        trial(plan.executor, 1, 1)
    return executor(plan)


@contextmanager
def _explaining_compile_errors(compiled: bool) -> Iterator[None]:
    """Turn the errors of ``torch.compile`` into one ``ValueError``."""
    try:
        yield
    except RuntimeError as error:
        if not compiled:
            raise
        raise ValueError(
            "`compile` must be False for this model on this machine, torch cannot compile it: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error
