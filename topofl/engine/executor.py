"""The executor of a run: plan, threads, reused memory, and gradients of chunks of nodes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from topofl._support.threads import Buffers, ParallelMap, in_turn, torch_threads, worker_threads
from topofl.algorithms.contract.terms import per_row
from topofl.engine.gradients import Bound, Found, Gradients, Trained
from topofl.engine.minibatches import Batches, Examples, Minibatches, on_device
from topofl.engine.plan import Plan
from topofl.engine.population import Population

T = TypeVar("T")


@dataclass(eq=False)
class Executor:
    """How a run computes, and on which data: the same from its first to its last round.

    Parameters
    ----------
    plan
        Batched or looped, nodes per call, and threads.
    examples, targets
        The whole dataset on the device, (N, ...) each.
    batches
        Minibatches of all nodes, by step and phase.
    new_gradients
        Returns the gradient function of a thread, given the memory that it reuses.
    rows
        The nodes of each run, if several are trained together, which no chunk joins. None: one run.
    unpadded
        Whether nodes with fewer examples in a minibatch than others are differentiated apart from
        these, since their outputs may depend on padding.

    Attributes
    ----------
    memory, differentiate
        Reused memory, and the gradient function, of each thread.
    buffers
        Reused memory for tensors of all nodes.
    parallel_map
        The map over the plan's worker threads within :meth:`threads`; otherwise one in turn.
    """

    plan: Plan
    examples: Examples
    targets: Tensor
    batches: Batches
    new_gradients: Callable[[Buffers], Gradients]
    rows: Sequence[slice] | None = None
    unpadded: bool = False
    memory: Sequence[Buffers] = field(init=False)
    differentiate: Sequence[Gradients] = field(init=False)
    buffers: Buffers = field(init=False)
    parallel_map: ParallelMap = field(default=in_turn, init=False)

    def __post_init__(self) -> None:
        device = self.targets.device
        self.memory = [Buffers(device) for _ in range(self.plan.workers)]
        self.differentiate = [self.new_gradients(memory) for memory in self.memory]
        self.buffers = Buffers(device)

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
        worker: int,
        at: Sequence[Tensor],
        drawn: Minibatches,
        rows: slice,
        trained: Trained = None,
        bound: Bound | None = None,
    ) -> Found:
        """Return losses (k,) and gradients of some nodes on their minibatches, by a thread.

        They are taken `at` parameters (k, *shape) each, followed by the buffers of which each node
        has its own. With an objective `bound` to its state, they are those of the objective.
        """
        some = Minibatches._make([None if x is None else x[rows] for x in drawn])
        if not self.unpadded or some.weights is None:
            return self._gradients(worker, at, some, trained, bound)
        counts, losses, gradients, start = (some.weights > 0).sum(1).tolist(), [], [], 0
        for count, same in itertools.groupby(counts):  # one call for equally many examples
            part = slice(start, start := start + len(list(same)))
            own = Minibatches._make([None if x is None else x[part] for x in some])
            choices = None if own.choices is None else own.choices[:, :count].contiguous()
            own = Minibatches(own.indices[:, :count].contiguous(), None, choices, own.keys)
            of_part = bound and (
                bound[0],
                {name: x[part] if x.dim() and len(x) > 1 else x for name, x in bound[1].items()},
            )
            found = self._gradients(worker, [x[part] for x in at], own, trained, of_part)
            losses.append(found[0].clone())
            gradients.append([g.clone() for g in found[1]])
        return torch.cat(losses), [torch.cat(parts) for parts in zip(*gradients, strict=True)]

    def _gradients(
        self,
        worker: int,
        at: Sequence[Tensor],
        some: Minibatches,
        trained: Trained,
        bound: Bound | None,
    ) -> Found:
        chosen, shape = some.indices.view(-1), some.indices.shape
        choices = None if some.choices is None else some.choices.view(-1)
        inputs = self.examples.gather(chosen, self.memory[worker], choices)
        inputs = inputs.view(*shape, *inputs.shape[1:])
        targets = torch.index_select(self.targets, 0, chosen)
        targets = targets.view(*shape, *targets.shape[1:])
        at = at if some.keys is None else [*at, some.keys]
        batch = inputs, targets, some.weights
        return self.differentiate[worker](at, batch, trained, bound)

    def all_gradients(
        self, models: Population, batch: Minibatches, key: str = "", frozen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return all nodes' losses (n,) and gradients (n, d) on one minibatch.

        The gradients are in a buffer that the next call with the same `key` reuses. If nodes may be
        `frozen`, (n,), those that are or whose loss is not finite keep their buffers.
        """
        (drawn,), like = self.on_device([batch]), models.flat
        buffer = f"gradients of {key}" if key else "gradients"
        flat = self.buffers.take(buffer, tuple(like.shape), like.dtype)
        views, losses = models.layout.views(flat), like.new_empty(len(like))

        def work(worker: int, rows: slice) -> None:
            out = None if frozen is None else frozen[rows]
            at = models.views_of(rows)
            if self.rows:  # sums of products depend on how memory is aligned
                at = models.layout.views(models.rows(rows).clone())
            with keeping(models.buffers_of(rows), losses[rows], out):
                losses[rows], gradients = self.gradients(worker, at, drawn, rows)
            for view, g in zip(views, gradients, strict=True):
                view[rows].copy_(g)

        self.over_chunks(work, self.chunks(len(like)))
        return losses, flat

    def chunks(self, n: int, size: int | None = None) -> list[slice]:
        """Return n nodes as slices of at most `size` nodes; None: those of one call."""
        size = self.plan.chunk if size is None else size
        return [
            slice(start, min(start + size, part.stop))
            for part in self.rows or [slice(0, n)]
            for start in range(part.start, part.stop, size)
        ]

    def over_chunks(
        self, function: Callable[[int, T], None], chunks: Sequence[T], *, interleaved: bool = False
    ) -> None:
        """Call ``function(thread, chunk)`` for every chunk; threads take equal shares of them."""
        workers = self.plan.workers

        def work(k: int) -> None:
            own = slice(k * len(chunks) // workers, (k + 1) * len(chunks) // workers)
            for chunk in chunks[slice(k, None, workers) if interleaved else own]:
                function(k, chunk)

        self.parallel_map(work, range(workers))


@contextmanager
def keeping(buffers: Sequence[Tensor], losses: Tensor, frozen: Tensor | None) -> Iterator[None]:
    """Restore the buffers of frozen nodes, and of those whose losses in this context diverge.

    Nothing is restored if no node is ever frozen, None.
    """
    if frozen is None:
        yield
        return
    before = [x.clone() for x in buffers]
    yield
    for x, old in zip(buffers, before, strict=True):
        undone = ~torch.isfinite(losses) | frozen
        x.copy_(torch.where(per_row(undone, x), old, x))
