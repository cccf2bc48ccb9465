"""Allocation traces: peak bytes of tensors in a step, its terms, or an evaluation of a model."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from topofl.algorithms.contract.gradient_points import GradientPoint, checked_point
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.schedules import constant
from topofl.engine.gradients import Order, batched_gradients, looped_gradients, stacked_forward
from topofl.engine.plan import Buffers
from topofl.engine.population import Layout, Population, trained_parameters
from topofl.engine.training import Chunk, LocalSteps
from topofl.tasks import Function, cross_entropy


class AllocationTrace(TorchDispatchMode):
    """Context that records the bytes of live tensors allocated within it.

    Attributes
    ----------
    timeline
        Live bytes after each new tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.timeline: list[int] = []
        self._sizes: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler, which takes two seconds

    @property
    def peak(self) -> int:
        """The largest number of live bytes."""
        return max(self.timeline, default=0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record the storages that it allocates."""
        del types
        kwargs = kwargs or {}
        given = {
            x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)
        }
        result = func(*args, **kwargs)
        for x in tree_leaves(result):
            if (
                isinstance(x, Tensor)
                and x.untyped_storage()._cdata not in given | self._sizes.keys()
            ):
                self._record(x.untyped_storage())
        return result

    def _record(self, storage: torch.UntypedStorage) -> None:
        self._sizes[storage._cdata] = storage.nbytes()
        self.alive += storage.nbytes()
        self.timeline.append(self.alive)
        weakref.finalize(storage, self._forget, storage._cdata).atexit = False

    def _forget(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)


def bytes_of_step(
    model: nn.Module,
    executor: str,
    order: Order,
    sample: Tensor,
    width: int,
    loss: Function = cross_entropy,
    targets: Tensor | None = None,
) -> int:
    """Return the peak bytes of one node's gradients and activations on `width` examples.

    With the batched executor, this is one node's share of a batched step. Temporary memory inside
    of kernels is not traced. The loss gets targets like `targets`; None: class labels.

    Raises
    ------
    RuntimeError
        If the executor is ``"batched"``, and torch cannot batch the model.
    """
    nodes = 2 if executor == "batched" else 1  # a stack of one model takes a shortcut
    build = batched_gradients if executor == "batched" else partial(looped_gradients, order=order)
    gradients = build(model, loss=loss)
    parameters = [
        p.detach().expand(nodes, *p.shape).contiguous() for p in trained_parameters(model)
    ]

    def step(inputs: Tensor) -> Callable[[], object]:
        stacked_inputs, stacked_targets = (
            part.expand(nodes, *part.shape).contiguous()
            for part in (inputs, _repeated_targets(targets, inputs))
        )
        return lambda: gradients(parameters, stacked_inputs, stacked_targets, None)

    return -(-_extrapolated(step, sample)(width) // nodes)


def _repeated_targets(like: Tensor | None, inputs: Tensor) -> Tensor:
    """Return one target (b, ...) for each of b inputs."""
    one = torch.zeros(1, dtype=torch.long, device=inputs.device) if like is None else like[:1]
    return one.expand(len(inputs), *one.shape[1:])


def bytes_of_forward(model: nn.Module, order: Order, sample: Tensor, width: int) -> int:
    """Return the peak bytes of evaluating one model on `width` examples, without the inputs."""
    return bytes_of_forwards(model, order, sample)(width)


def bytes_of_forwards(
    model: nn.Module,
    order: Order,
    sample: Tensor,
    loss: Function = cross_entropy,
    targets: Tensor | None = None,
) -> Callable[[int], int]:
    """Return :func:`bytes_of_forward` as a function of `width`, tracing the model once."""
    shared = stacked_forward(model, order).shared
    parameters = [p.detach()[None] for p in trained_parameters(model)]

    def evaluate(inputs: Tensor) -> Callable[[], object]:
        expected = _repeated_targets(targets, inputs).contiguous()
        return torch.no_grad()(lambda: loss(shared(parameters)(inputs)[:, 0], expected))

    return _extrapolated(evaluate, sample)


def _extrapolated(
    prepare: Callable[[Tensor], Callable[[], object]], sample: Tensor
) -> Callable[[int], int]:
    """Return the peak bytes as a function of width, extrapolated from 2 and 3 examples."""

    def timeline(examples: int) -> Sequence[int]:
        return _timeline(prepare(sample[:1].expand(examples, *sample.shape[1:]).contiguous()))

    two, three = timeline(2), timeline(3)

    def peak_bytes(width: int) -> int:
        if width == 1:  # kernels may treat a single example differently
            return max(timeline(1))
        if len(two) != len(three):
            return -(-max(three) * width // 3)
        return max(a + (b - a) * (width - 2) for a, b in zip(two, three, strict=True))

    return peak_bytes


def _timeline(function: Callable[[], object]) -> Sequence[int]:
    with AllocationTrace() as allocations:
        function()
    return allocations.timeline


FEW_NUMBERS = 2**20
"""Number of parameters of all models up to which a dry step uses zeros instead of meta tensors.

The first operation on a meta tensor makes torch load sympy, and some operations its compiler; each
takes 35 MB and a second.
"""


class _ShapesOnlyTrace(AllocationTrace):
    """Allocation trace that refuses to read numbers, which meta tensors do not have."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record the storages that it allocates."""
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise RuntimeError("meta tensors have no numbers to read")
        return super().__torch_dispatch__(func, types, args, kwargs)


def bytes_of_terms(training: Training, layout: Layout, dtype: torch.dtype, n: int) -> int:
    """Return the bytes of a node's local step in addition to its model and gradient.

    They include the state that terms create in each round, but not the state that they carry from
    round to round. Two nodes take a step; `init` gets all n, whose number its result may depend on.
    """
    nodes = min(n, 2)
    # A custom schedule may not be defined for this step.
    training = replace(training, descend=replace(training.descend, lr=constant(1.0)))
    device = "cpu" if n * layout.d <= FEW_NUMBERS else "meta"
    models = Population.alone(torch.zeros(n, layout.d, dtype=dtype, device=device), layout)
    bad = torch.zeros(n, dtype=torch.bool, device=device)
    job = LocalSteps(models, training, training.init(models), 0, bad, dry=True)
    shapes = [layout.shapes[k] for k in job.trained]
    gradients = [torch.zeros(nodes, *shape, dtype=dtype, device=device) for shape in shapes]
    with _ShapesOnlyTrace() as allocations:
        chunk = job.chunk(slice(0, nodes), Buffers(models.flat.device))
        if training.at is None:
            job.take_step(chunk, 1, gradients)
        else:
            job.take_step(chunk, 1, [_gradient_at_point(job, training.at, chunk, gradients)])
    return -(-allocations.peak // nodes)


def _gradient_at_point(
    job: LocalSteps, at: GradientPoint, chunk: Chunk, gradients: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of a gradient point in a dry run, from given gradients of the model."""
    theta = job.trained_columns(job.models.flat[chunk.rows])
    own = chunk.parts[0]
    step = job.step(1)
    values = at.where(theta, own, step, lambda _: job.flat(gradients))
    point = job.parameters(checked_point(at, "where", values, theta), chunk)
    g = at.back(job.flat(gradients), theta, own, step, lambda _: job.flat(gradients))
    del values, point
    return checked_point(at, "back", g, theta)
