"""The floor: the kernels that a training step requires, on the same data and without the engine.

A step gathers every node's minibatch by index into a reused buffer, computes the forward and
backward pass, updates the models and mixes them. Each part uses the fastest known implementation:

* stacked: many nodes per call, as matrix products for logistic regression (gradients by autograd or
  in closed form), else by ``torch.func.vmap``;
* looped: node by node, in one thread that uses all cores or in one Python thread per core, with
  images in channels-last format.

For Clique Averaging, rows are ordered by clique, so that means are over blocks.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from topofl import data, mixing
from topofl.engine.minibatches import Batches

from ..cases import Case, setting
from .stopwatch import seconds_of

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
