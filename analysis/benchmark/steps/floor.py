"""Training steps of the floor: stacked or looped over nodes, and which of them is fastest."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from topofl import data

from ..cases import Case
from .floor_state import Floor
from .stopwatch import seconds_of

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
                x, y = _gather(floor, indices[rows], buffers)
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


def _gather(floor: Floor, indices: Tensor, buffers: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return inputs (k, b, ...) and labels (k, b)."""
    x = floor.gather(floor.inputs, indices.view(-1), buffers)
    return x.view(*indices.shape, *x.shape[1:]), floor.labels[indices]


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
