"""Local updates: the terms of a phase turn gradients into directions of descent."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.text import node_name
from topofl.algorithms.contract.gradient_points import GradientPoint, checked_point
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import State
from topofl.algorithms.contract.schedules import constant, rate_at
from topofl.algorithms.contract.terms import Step, merged_states, per_row, writable_result
from topofl.engine.population import Layout, Population
from topofl.engine.train.allocations import AllocationTrace
from topofl.engine.train.buffers import Buffers

__all__ = ["Chunk", "LocalUpdate", "bytes_of_terms", "finite_rows"]


class Chunk(NamedTuple):
    """Nodes that take their steps together, with the state of their terms.

    Attributes
    ----------
    rows
        The nodes.
    own
        Their rows (k, ...) of the terms' state by name, including state that is new in each round.
    parts
        The state as it is passed to the terms: for each trained parameter, or once for all trained
        columns if terms are not elementwise.
    buffers
        Reused memory of the thread.
    """

    rows: slice
    own: State
    parts: Sequence[State]
    buffers: Buffers


@dataclass(frozen=True, eq=False)
class LocalUpdate:
    """The local steps of all nodes in a phase of one round.

    Parameters
    ----------
    models
        The models, changed in place.
    training
        Settings of training: terms, learning rate, gradient point, trained parameters.
    own
        The state of the phase: tensors (n, ...), changed in place.
    t
        The round, from 0.
    push_sum_weights, weighted
        (n,) push-sum weights, and the indices of the parameters whose steps they divide.
    nodes
        (n,) the numbers of the nodes; None: 0, 1, and so on.
    dry
        Whether this is a dry run, which measures memory and checks that terms obey their contract.
    first_directions
        In the first step of a run: name of the term, rows, and mask (k,) of directions that are not
        finite although their gradients were.
    """

    models: Population
    training: Training
    own: State
    t: int
    push_sum_weights: Tensor | None = None
    weighted: Sequence[int] = ()
    nodes: np.ndarray | None = None
    dry: bool = False
    first_directions: list[tuple[str, slice, Tensor]] = field(default_factory=list)

    @property
    def trained(self) -> Sequence[int] | None:
        """Indices of the trained parameters; None: all."""
        part = self.training.part
        return None if part.is_everything else self.models.layout.places(part)

    @property
    def _columns(self) -> list[slice]:
        return self.models.columns(self.training.part)

    @property
    def _by_parameter(self) -> bool:
        """Whether terms get one parameter at a time, which saves a copy of the gradients."""
        return self.training.descend.elementwise and self.training.at is None

    def step(self, k: int) -> Step:
        """Return round, step and learning rate of step k; ValueError if the rate is invalid."""
        return Step(self.t, k, rate_at(self.training.descend.lr, self.t, k, self.models.dtype))

    def chunk(self, rows: slice, buffers: Buffers) -> Chunk:
        """Return some nodes with their state, ready for the first step of the round."""
        flat, n = self.models.flat, len(self.models.flat)
        own = {name: x[rows] if x.dim() and len(x) == n else x for name, x in self.own.items()}
        if self.training.begins:
            own = merged_states([own, self.training.begin(self.models.like(flat[rows]))])
        if not own:
            count = len(self._trained_indices) if self._by_parameter else 1
            return Chunk(rows, own, [own] * count, buffers)
        wide = {name: x for name, x in own.items() if x.dim() == 2 and x.shape[1] == flat.shape[1]}
        rest = {name: x for name, x in own.items() if name not in wide}
        if self._by_parameter:
            split = {name: self._views(x) for name, x in wide.items()}
            parts = [
                rest | {name: x[k] for name, x in split.items()} for k in self._trained_indices
            ]
        else:
            parts = [rest | {name: self.trained_columns(x) for name, x in wide.items()}]
        return Chunk(rows, own, parts, buffers)

    @property
    def _trained_indices(self) -> range:
        return range(len(self.models.layout.names) if self.trained is None else len(self.trained))

    def trained_columns(self, values: Tensor) -> Tensor:
        """Return the trained columns of (k, d) values: a view if contiguous, else a copy."""
        parts = [values[:, part] for part in self._columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def write_trained(self, target: Tensor, values: Tensor) -> None:
        """Write trained columns (k, m) into values (k, d), unless they are a view of these."""
        if len(self._columns) > 1:  # otherwise they are a view
            self._write(target, values)

    def _write(self, target: Tensor, values: Tensor) -> None:
        widths = [part.stop - part.start for part in self._columns]
        for part, some in zip(self._columns, values.split(widths, 1), strict=True):
            target[:, part] = some

    def flat(self, gradients: Sequence[Tensor], buffers: Buffers | None = None) -> Tensor:
        """Return gradients of parameters, (k, *shape) each, concatenated to (k, m)."""
        wide = [g.reshape(len(g), -1) for g in gradients]
        if len(wide) == 1 and buffers is not None:
            return wide[0]
        if buffers is None:
            return torch.cat(wide, 1)
        shape = (len(wide[0]), sum(g.shape[1] for g in wide))
        return torch.cat(wide, 1, out=buffers.take("directions", shape, wide[0].dtype))

    def parameters(self, values: Tensor, chunk: Chunk) -> Sequence[Tensor]:
        """Return parameters (k, *shape) of a chunk, trained columns replaced by (k, m) values."""
        whole = self.models.flat[chunk.rows]
        if values.shape == whole.shape:
            return self.models.layout.views(values)
        full = chunk.buffers.take("point", tuple(whole.shape), whole.dtype).copy_(whole)
        self._write(full, values)
        return self.models.layout.views(full)

    def take_step(self, chunk: Chunk, k: int, gradients: Sequence[Tensor]) -> None:
        """Take step k along gradients: (k, *shape) per trained parameter, or (k, m) joined."""
        step = self.step(k)
        rows = self.models.flat[chunk.rows]
        whole = (
            len(gradients) == 1
            and gradients[0].dim() == 2
            and gradients[0].shape[1] == rows.shape[1]
        )
        if self._by_parameter and not whole:
            for index, (g, theta, own) in enumerate(
                zip(gradients, self._views(rows), chunk.parts, strict=True)
            ):
                direction = self._direction(chunk, g, theta, own, step)
                self._move(chunk, theta, direction, step.lr, index)
            return
        own = chunk.own if self._by_parameter else chunk.parts[0]
        theta = self.trained_columns(rows)
        g = gradients[0] if whole else self.flat(gradients, chunk.buffers)
        direction = self._direction(chunk, g, theta, own, step)
        if self.push_sum_weights is None:
            theta.sub_(direction, alpha=step.lr)
        else:
            for index, (part, direction_of_part) in enumerate(
                zip(self._split(theta), self._split(direction), strict=True)
            ):
                self._move(chunk, part, direction_of_part, step.lr, index)
        self.write_trained(rows, theta)

    def _move(self, chunk: Chunk, theta: Tensor, direction: Tensor, lr: float, index: int) -> None:
        """Move the trained parameter at an index, (k, ...), by -lr times the direction."""
        parameter = index if self.trained is None else self.trained[index]
        if self.push_sum_weights is None or parameter not in self.weighted:
            theta.add_(direction, alpha=-lr)
        else:
            rates = (lr / self.push_sum_weights[chunk.rows]).to(theta.dtype)
            theta.sub_(direction * per_row(rates, theta))

    def _views(self, flat: Tensor) -> Sequence[Tensor]:
        views = self.models.layout.views(flat)
        return views if self.trained is None else [views[k] for k in self.trained]

    def _split(self, values: Tensor) -> Sequence[Tensor]:
        """Return trained columns (k, m) split by parameter, (k, size) each."""
        sizes = self.models.layout.sizes
        return values.split(sizes if self.trained is None else [sizes[k] for k in self.trained], 1)

    def _direction(self, chunk: Chunk, g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        terms = self.training.descend.terms
        if step.k or step.round:
            return self.training.descend.direction(g, theta, own, step, checked=self.dry)
        for place, term in enumerate(terms):  # wrong terms usually fail in the first step
            finite = _all_finite(g)
            direction = term.update(g, theta, own, step)
            self.first_directions.append((term.name, chunk.rows, finite & ~_all_finite(direction)))
            g = writable_result(direction, g, own) if place < len(terms) - 1 else direction
        return g

    def check(self, labels: Sequence[object]) -> None:
        """Raise ``ValueError`` if a term turned finite gradients into NaN or infinity in step 0.

        The message names the node by its label.
        """
        if not self.first_directions:
            return
        nodes = np.arange(len(self.models.flat)) if self.nodes is None else self.nodes
        found = [
            (node, name) for name, rows, _ in self.first_directions for node in nodes[rows].tolist()
        ]
        flags = torch.cat([bad for _, _, bad in self.first_directions]).tolist()
        if failed := [entry for entry, bad in zip(found, flags, strict=True) if bad]:
            # The lowest node and its first term, whatever the order of training.
            node, name = min(failed, key=lambda entry: entry[0])
            raise ValueError(
                f"the term {name!r} must return finite directions for finite gradients, but does "
                f"not for node {node_name(labels, node)} in round {self.t + 1}; look for divisions "
                "by 0 in it"
            )


def _all_finite(values: Tensor) -> Tensor:
    """Return a mask (k,) of the rows of (k, ...) that contain only finite numbers."""
    return values.isfinite().reshape(len(values), -1).all(1)


def finite_rows(values: Tensor, sums: Tensor | None = None) -> Tensor:
    """Return a mask of rows with only finite numbers; finite `sums` of rows save a second look."""
    if values.device.type != "cpu":  # checking the sums first would wait for the device
        return torch.isfinite(values).all(1)
    finite = torch.isfinite(values.sum(1) if sums is None else sums)
    return finite if bool(finite.all()) else torch.isfinite(values).all(1)


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
    update = LocalUpdate(models, training, training.init(models), t=0, dry=True)
    shapes = layout.shapes if update.trained is None else [layout.shapes[k] for k in update.trained]
    gradients = [torch.zeros(nodes, *shape, dtype=dtype, device=device) for shape in shapes]
    with _ShapesOnlyTrace() as allocations:
        chunk = update.chunk(slice(0, nodes), Buffers(models.flat.device))
        if training.at is None:
            update.take_step(chunk, 1, gradients)
        else:
            update.take_step(chunk, 1, [_gradient_at_point(update, training.at, chunk, gradients)])
    return -(-allocations.peak // nodes)


def _gradient_at_point(
    update: LocalUpdate, at: GradientPoint, chunk: Chunk, gradients: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of a gradient point in a dry run, from given gradients of the model."""
    theta = update.trained_columns(update.models.flat[chunk.rows])
    own = chunk.parts[0]
    step = update.step(1)
    values = at.where(theta, own, step, lambda _: update.flat(gradients))
    point = update.parameters(checked_point(at, "where", values, theta), chunk)
    g = at.back(update.flat(gradients), theta, own, step, lambda _: update.flat(gradients))
    del values, point
    return checked_point(at, "back", g, theta)
