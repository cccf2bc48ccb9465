"""The floor: the kernels that a training step requires, on the same data and without the engine.

A step gathers every node's minibatch by index into a reused buffer, computes the forward and
backward pass, updates the models and mixes them. Each part uses the fastest known implementation:

* stacked: many nodes per call, as matrix products for logistic regression (gradients by autograd or
  in closed form), else by ``torch.func.vmap``;
* looped: node by node, in one thread that uses all cores or in one Python thread per core, with
  images in channels-last format.

For Clique Averaging, rows are ordered by clique, so that means are over blocks.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from topofl import data, mixing
from topofl.engine.minibatches import Batches

from ..program import seconds_of
from .cases import Case, setting

COLUMNS = 1024
"""Columns that the floor mixes at a time, the fastest number that was tried."""


@dataclass(frozen=True, eq=False)
class Floor:
    """The tensors of a training step, created once before timing.

    Parameters
    ----------
    case
        The case that is trained.
    flat, velocity
        (n, d) models and momentum (no rows without momentum), in the order of `order`.
    columns, speeds
        Their columns, one (n, size) view per parameter.
    inputs, labels
        The dataset.
    steps
        (n, width) example indices of each step of an epoch.
    order
        (n,) node of each row.
    group
        Number of consecutive rows whose gradients are averaged.
    mix
        Function that multiplies by the mixing matrix in place.
    module
        The network; its parameters are the initial model.
    """

    case: Case
    flat: Tensor
    columns: Sequence[Tensor]
    speeds: Sequence[Tensor]
    inputs: Tensor
    affine: Sequence[Tensor]
    labels: Tensor
    steps: Sequence[Tensor]
    order: np.ndarray
    group: int
    mix: Callable[[Tensor], None]
    module: nn.Module

    @classmethod
    def build(cls, case: Case, clients: data.Partition, device: torch.device) -> "Floor":
        """Return the initial state of :func:`topofl.run` with ``init="given"`` and ``seed=0``."""
        graph, _ = setting(case, clients)
        module = case.network.build().to(device)
        start = nn.utils.parameters_to_vector(module.parameters()).detach()
        flat = start.repeat(case.n, 1)
        sizes = [p.numel() for p in module.parameters()]
        velocity = torch.zeros_like(flat) if case.momentum else flat[:0]
        order = np.concatenate(graph.groups) if case.clique_averaging else np.arange(case.n)
        weights = mixing.metropolis_hastings(graph).weights.toarray()[order][:, order]
        return cls(
            case=case,
            flat=flat,
            columns=flat.split(sizes, 1),
            speeds=velocity.split(sizes, 1),
            inputs=clients.dataset.inputs.to(device),
            affine=[part.to(device) for part in clients.dataset.affine() or ()],
            labels=clients.dataset.labels.to(device),
            steps=[step.to(device) for step in _epoch(case, clients, order)],
            order=order,
            group=_group_size(graph.groups) if case.clique_averaging else 1,
            mix=_mixer(weights, flat),
            module=module,
        )

    @cached_property
    def channels_last(self) -> Tensor:
        """The images as (N, height, width, channels), so that minibatches are channels-last."""
        return self.inputs.permute(0, 2, 3, 1).contiguous()

    def buffers(self, stored: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return buffers for `size` examples: as stored, and converted for the model."""
        pixels = stored.new_empty(size, *stored.shape[1:])
        return pixels, torch.empty_like(pixels, dtype=self.flat.dtype)

    def gather(self, stored: Tensor, indices: Tensor, buffers: tuple[Tensor, Tensor]) -> Tensor:
        """Return examples, (k, ...): gathered as bytes and converted while they are in cache."""
        pixels, numbers = (buffer[: len(indices)] for buffer in buffers)
        scale, shift = self.affine
        return (
            numbers.copy_(torch.index_select(stored, 0, indices, out=pixels))
            .mul_(scale)
            .add_(shift)
        )

    def views(self, rows: slice) -> list[Tensor]:
        """Return one (k, *shape) view per parameter of some rows."""
        shapes = [p.shape for p in self.module.parameters()]
        return [
            column[rows].unflatten(1, shape)
            for column, shape in zip(self.columns, shapes, strict=True)
        ]

    def models(self) -> Tensor:
        """Return a copy of the models in the order of the nodes."""
        models = torch.empty_like(self.flat)
        models[torch.from_numpy(self.order).to(models.device)] = self.flat
        return models

    def descend(self, rows: slice, gradients: Sequence[Tensor]) -> None:
        """Update rows with gradients (groups, 1, size), one mean per group of rows."""
        for k, gradient in enumerate(gradients):
            if self.case.momentum:
                speed = self.speeds[k][rows].unflatten(0, (-1, self.group))
                gradient = speed.mul_(self.case.momentum).add_(gradient)
            self.columns[k][rows].unflatten(0, (-1, self.group)).add_(
                gradient, alpha=-self.case.network.lr
            )

    def precision(self) -> torch.autocast:
        """Return the autocast context of the forward pass."""
        return torch.autocast(
            self.flat.device.type, torch.bfloat16, enabled=self.case.precision == "bf16"
        )


def _epoch(case: Case, clients: data.Partition, order: np.ndarray) -> Iterator[Tensor]:
    """Yield the (n, width) minibatches of the first epoch."""
    batches = Batches(clients.train, 0)
    if len(set(batches.sizes)) > 1:
        raise ValueError(
            f"`examples` must give all {case.n} nodes equally many, got {case.network.examples}"
        )
    for step in range(-(-int(batches.sizes[0]) // case.batch_size)):
        yield batches.at(step, case.batch_size, "local").indices[order]


def _group_size(groups: Sequence[Sequence[int]]) -> int:
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise ValueError(
            f"`n` must be a multiple of the clique size, got cliques of {sorted(sizes)}"
        )
    return sizes.pop()


def _mixer(weights: np.ndarray, flat: Tensor) -> Callable[[Tensor], None]:
    """Return the fastest implementation of mixing: mean, sparse or dense product."""
    if np.ptp(weights) < 1e-12:
        return _mean
    dense = torch.from_numpy(weights).to(flat)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse CSR tensor support is in beta", category=UserWarning
        )
        products = [_product(dense), _product(dense.to_sparse_csr())]
    sample = flat[:, : 4 * COLUMNS].clone()
    return min(
        products,
        key=lambda product: min(seconds_of(lambda: product(sample), flat.device) for _ in range(3)),
    )


def _mean(flat: Tensor) -> None:
    flat.copy_(flat.mean(0, keepdim=True).expand_as(flat))


def _product(matrix: Tensor) -> Callable[[Tensor], None]:
    def multiply(flat: Tensor) -> None:
        for block in flat.split(COLUMNS, dim=1):
            block.copy_(matrix @ block)

    return multiply


Gradients = Callable[[Sequence[Tensor], Tensor, Tensor], Sequence[Tensor]]
"""(parameters (k, *shape), inputs (k, b, ...), labels (k, b)) -> gradients of the parameters."""


def floors(case: Case, executor: str, device: torch.device) -> Mapping[str, Callable]:
    """Return the known implementations of an executor's step, by name.

    Each is a context manager that takes a :class:`Floor` and yields a function of the step's index.
    """
    if executor == "looped":
        several = {
            f"{k} Python threads": _threads(k)
            for k in [torch.get_num_threads()]
            if k > 1 and device.type == "cpu"
        }
        return {"one Python thread": _looped} | several
    sizes = [10, 100] if device.type == "cpu" else [10, 100, 1000]
    sizes = sorted(
        {min(size, case.n) for size in [*sizes, case.n if case.network.is_linear else 1]} - {1}
    )
    if not case.network.is_linear:
        return {f"chunks of {size}": _stacked(size, _mapped_gradients) for size in sizes or [1]}
    closed = {
        f"closed form, chunks of {size}": _stacked(size, lambda _: _closed_gradients)
        for size in sizes or [1]
    }
    return {"autograd, all at once": _stacked(case.n, lambda _: _linear_gradients)} | closed


def _stacked(chunk: int, gradients_of: Callable[[Floor], Gradients]) -> Callable:
    @contextmanager
    def opened(floor: Floor) -> Iterator[Callable[[int], None]]:
        gradients = gradients_of(floor)
        size = max(floor.group, chunk - chunk % floor.group)
        buffers = floor.buffers(floor.inputs, size * floor.case.batch_size)

        def step(t: int) -> None:
            indices = floor.steps[t % len(floor.steps)]
            for start in range(0, floor.case.n, size):
                rows = slice(start, min(start + size, floor.case.n))
                own = indices[rows]  # (k, b)
                x = floor.gather(floor.inputs, own.view(-1), buffers)
                x, y = x.view(*own.shape, *x.shape[1:]), floor.labels[own]
                with floor.precision():
                    found = gradients(floor.views(rows), x, y)
                floor.descend(rows, [_group_means(g, floor.group) for g in found])
            floor.mix(floor.flat)

        yield step

    return opened


def _group_means(gradients: Tensor, group: int) -> Tensor:
    """Return the means (k / group, 1, size) of gradients (k, *shape) over groups of rows."""
    apart = gradients.reshape(len(gradients) // group, group, -1)
    return apart if group == 1 else apart.mean(1, keepdim=True)


def _linear_gradients(views: Sequence[Tensor], x: Tensor, y: Tensor) -> Sequence[Tensor]:
    weight, bias = (view.detach().requires_grad_() for view in views)
    # 3x faster than x @ w^T, forward and backward
    logits = weight @ x.flatten(2).transpose(1, 2) + bias.unsqueeze(2)
    losses = functional.cross_entropy(logits, y, reduction="none").mean(1)
    return torch.autograd.grad(losses.sum(), (weight, bias))


def _closed_gradients(views: Sequence[Tensor], x: Tensor, y: Tensor) -> Sequence[Tensor]:
    """Return the gradient of the cross-entropy in closed form: (softmax - one-hot) / b, times x."""
    weight, bias = views
    x = x.flatten(2)
    errors = torch.softmax(torch.baddbmm(bias.unsqueeze(2), weight, x.transpose(1, 2)).float(), 1)
    errors.scatter_add_(1, y.unsqueeze(1), errors.new_full((), -1).expand(len(y), 1, y.shape[1]))
    errors.div_(y.shape[1])
    return errors @ x, errors.sum(2)


def _mapped_gradients(floor: Floor) -> Gradients:
    names = [name for name, _ in floor.module.named_parameters()]

    def loss(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(floor.module, dict(zip(names, parameters, strict=True)), (x,))
        return functional.cross_entropy(logits, y)

    return lambda views, x, y: vmap(grad(loss))(views, x, y)


@contextmanager
def _looped(floor: Floor) -> Iterator[Callable[[int], None]]:
    walk = _walker(floor)

    def step(t: int) -> None:
        walk(t, 0, floor.case.n)
        floor.mix(floor.flat)

    yield step


def _threads(count: int) -> Callable:
    """Return the loop over nodes, divided among Python threads of one core each."""

    @contextmanager
    def opened(floor: Floor) -> Iterator[Callable[[int], None]]:
        blocks = floor.case.n // floor.group
        bounds = [floor.group * (blocks * k // count) for k in range(count + 1)]
        walks = [_walker(floor) for _ in range(count)]
        before = torch.get_num_threads()

        def step(t: int) -> None:
            torch.set_num_threads(1)
            parts = [pool.submit(walks[k], t, bounds[k], bounds[k + 1]) for k in range(count)]
            for part in parts:
                part.result()
            torch.set_num_threads(before)
            floor.mix(floor.flat)

        try:
            with ThreadPoolExecutor(
                count, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                yield step
        finally:
            torch.set_num_threads(before)

    return opened


def _walker(floor: Floor) -> Callable[[int, int, int], None]:
    """Return a function that trains rows `first` to `last` sequentially in step t."""
    module = copy.deepcopy(floor.module)
    parameters = list(module.parameters())
    views = floor.views(slice(None))
    stored = floor.inputs if floor.case.network.is_linear else floor.channels_last
    buffers = floor.buffers(stored, floor.case.batch_size)

    def one(row: int, indices: Tensor) -> list[Tensor]:
        for own, view in zip(parameters, views, strict=True):
            own.data = view[row]
        x = floor.gather(stored, indices, buffers)
        x = x if floor.case.network.is_linear else x.permute(0, 3, 1, 2)
        with floor.precision():
            loss = functional.cross_entropy(module(x), floor.labels[indices])
        return list(torch.autograd.grad(loss, parameters))

    def walk(t: int, first: int, last: int) -> None:
        indices = floor.steps[t % len(floor.steps)]
        for start in range(first, last, floor.group):
            mean = one(start, indices[start])
            for row in range(start + 1, start + floor.group):
                for total, g in zip(mean, one(row, indices[row]), strict=True):
                    total.add_(g)
            rows = slice(start, start + floor.group)
            floor.descend(
                rows,
                [(g if floor.group == 1 else g.div_(floor.group)).reshape(1, 1, -1) for g in mean],
            )

    return walk


def steps_of(opened: Callable, floor: Floor, steps: int) -> list[float]:
    """Return the seconds of each of `steps` steps after one warm-up step."""
    device = floor.flat.device
    with opened(floor) as step:
        step(0)
        return [seconds_of(lambda t=t: step(t), device) for t in range(1, steps + 1)]


def fastest(case: Case, executor: str, clients: data.Partition, device: torch.device) -> str:
    """Return the name of the fastest implementation on this machine that fits into memory."""
    ways = floors(case, executor, device)
    if len(ways) == 1:
        return next(iter(ways))
    floor = Floor.build(case, clients, device)

    def trial(name: str) -> float:
        try:
            return min(steps_of(ways[name], floor, 5 if case.network.is_linear else 1))
        except torch.OutOfMemoryError:
            return float("inf")

    return min(ways, key=trial)
