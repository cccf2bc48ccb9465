"""The local update of some nodes: terms turn gradients into directions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topofl.algorithms.contract.gradient_points import At, checked_point
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import State
from topofl.algorithms.contract.schedules import constant, rate_at
from topofl.algorithms.contract.terms import Step, merged_states, per_row, writable_result
from topofl.engine.population import Layout, Population
from topofl.engine.train.allocations import AllocationTrace
from topofl.engine.train.buffers import Buffers

__all__ = ["Chunk", "LocalUpdate", "bytes_of_terms", "finite_rows"]


class Chunk(NamedTuple):
    """Some nodes that take their steps together.

    Attributes
    ----------
    rows
        Which nodes.
    own
        Their rows of what the terms keep, and what these made anew for the round, (k, ...) each, by
        name.
    parts
        Of each trained parameter, the same as the terms get it; of the trained columns at once, if
        they are not elementwise.
    buffers
        Memory of the thread.
    """

    rows: slice
    own: State
    parts: Sequence[State]
    buffers: Buffers


@dataclass(frozen=True, eq=False)
class LocalUpdate:
    """The local steps of all nodes in a phase of a round.

    Parameters
    ----------
    models
        Changed in place.
    how
        What is done.
    own
        What the phase keeps from round to round: tensors (n, ...), changed in place.
    t
        The round, from 0.
    push_sum_weights, weighted
        (n,) push-sum weights, and the places of the parameters whose steps they divide.
    nodes
        Which nodes these are, where they are not all.
    dry
        Whether a step is played to see what it takes, and whether terms do only what they may.
    first_directions
        In the first step of a run: terms, rows, and which of these (k,) are not finite although
        their gradients were.
    """

    models: Population
    how: Training
    own: State
    t: int
    push_sum_weights: Tensor | None = None
    weighted: Sequence[int] = ()
    nodes: Sequence[int] | None = None
    dry: bool = False
    first_directions: list[tuple[str, slice, Tensor]] = field(default_factory=list)

    @property
    def trained(self) -> Sequence[int] | None:
        """Parameters by their places, None: all."""
        part = self.how.part
        return None if part.is_everything else self.models.layout.places(part)

    @property
    def _columns(self) -> list[slice]:
        return self.models.columns(self.how.part)

    @property
    def _by_parameter(self) -> bool:
        """Whether terms are given a parameter after the other, which saves a copy of gradients."""
        return self.how.descend.elementwise and self.how.at is None

    def step(self, k: int) -> Step:
        """Return what is said of step k; ValueError if its learning rate cannot be used."""
        return Step(self.t, k, rate_at(self.how.descend.lr, self.t, k, self.models.flat.dtype))

    def chunk(self, rows: slice, buffers: Buffers) -> Chunk:
        """Return some nodes, ready for the first step of the round."""
        flat, n = self.models.flat, self.models.n
        own = {name: x[rows] if x.dim() and len(x) == n else x for name, x in self.own.items()}
        if self.how.begins:
            own = merged_states([own, self.how.begin(self.models.like(flat[rows]))])
        if not own:
            return Chunk(
                rows,
                own,
                [own] * (len(self._trained_indices) if self._by_parameter else 1),
                buffers,
            )
        wide = {name: x for name, x in own.items() if x.dim() == 2 and x.shape[1] == flat.shape[1]}
        rest = {name: x for name, x in own.items() if name not in wide}
        if self._by_parameter:
            split = {name: self._views(x) for name, x in wide.items()}
            return Chunk(
                rows,
                own,
                [rest | {name: x[k] for name, x in split.items()} for k in self._trained_indices],
                buffers,
            )
        return Chunk(
            rows, own, [rest | {name: self.trained_columns(x) for name, x in wide.items()}], buffers
        )

    @property
    def _trained_indices(self) -> range:
        return range(len(self.models.layout.names) if self.trained is None else len(self.trained))

    def trained_columns(self, values: Tensor) -> Tensor:
        """Return the trained columns of (k, d) values: a view if contiguous, else a copy."""
        parts = [values[:, part] for part in self._columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def write_trained(self, target: Tensor, values: Tensor) -> None:
        """Write trained columns back into (k, d) values."""
        if len(self._columns) > 1:  # else what was taken is a view
            self._write(target, values)

    def _write(self, target: Tensor, values: Tensor) -> None:
        widths = [part.stop - part.start for part in self._columns]
        for part, some in zip(self._columns, values.split(widths, 1), strict=True):
            target[:, part] = some

    def flat(self, gradients: Sequence[Tensor], buffers: Buffers | None = None) -> Tensor:
        """Return gradients of parameters, (k, *shape) each, side by side, (k, m)."""
        wide = [g.reshape(len(g), -1) for g in gradients]
        if len(wide) == 1 and buffers is not None:
            return wide[0]
        shape = (len(wide[0]), sum(g.shape[1] for g in wide))
        return torch.cat(
            wide,
            1,
            out=None if buffers is None else buffers.take("directions", shape, wide[0].dtype),
        )

    def parameters(self, values: Tensor, chunk: Chunk) -> Sequence[Tensor]:
        """Return parameters (k, *shape) of nodes, the trained columns replaced by (k, m) values."""
        whole = self.models.flat[chunk.rows]
        if values.shape == whole.shape:
            return self.models.layout.views(values)
        full = chunk.buffers.take("point", tuple(whole.shape), whole.dtype).copy_(whole)
        self._write(full, values)
        return self.models.layout.views(full)

    def descend(self, chunk: Chunk, k: int, gradients: Sequence[Tensor]) -> None:
        """Take step k along gradients, (k, *shape) per trained parameter or (k, m) joined."""
        step, rows = self.step(k), self.models.flat[chunk.rows]
        whole = (
            len(gradients) == 1
            and gradients[0].dim() == 2
            and gradients[0].shape[1] == rows.shape[1]
        )
        if self._by_parameter and not whole:
            for place, (g, theta, own) in enumerate(
                zip(gradients, self._views(rows), chunk.parts, strict=True)
            ):
                self._move(
                    chunk, theta, self._direction(chunk, g, theta, own, step), step.lr, place
                )
            return
        own = chunk.own if self._by_parameter else chunk.parts[0]
        theta = self.trained_columns(rows)
        g = gradients[0] if whole else self.flat(gradients, chunk.buffers)
        direction = self._direction(chunk, g, theta, own, step)
        if self.push_sum_weights is None:
            theta.sub_(direction, alpha=step.lr)
        else:
            for place, (part, some) in enumerate(
                zip(self._split(theta), self._split(direction), strict=True)
            ):
                self._move(chunk, part, some, step.lr, place)
        self.write_trained(rows, theta)

    def _move(self, chunk: Chunk, theta: Tensor, direction: Tensor, lr: float, place: int) -> None:
        """Go along a direction, (k, ...), of the trained parameter at a place."""
        if (
            self.push_sum_weights is None
            or (place if self.trained is None else self.trained[place]) not in self.weighted
        ):
            theta.add_(direction, alpha=-lr)
        else:
            theta.sub_(
                direction * per_row((lr / self.push_sum_weights[chunk.rows]).to(theta.dtype), theta)
            )

    def _views(self, flat: Tensor) -> Sequence[Tensor]:
        views = self.models.layout.views(flat)
        return views if self.trained is None else [views[k] for k in self.trained]

    def _split(self, values: Tensor) -> Sequence[Tensor]:
        """Return trained columns (k, m) parameter by parameter, (k, size) each."""
        sizes = self.models.layout.sizes
        return values.split(sizes if self.trained is None else [sizes[k] for k in self.trained], 1)

    def _direction(self, chunk: Chunk, g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        terms = self.how.descend.terms
        if step.k or step.round:
            return self.how.descend.direction(g, theta, own, step, checked=self.dry)
        for place, term in enumerate(terms):  # one that errs does so in the first step, as a rule
            finite = _all_finite(g)
            made = term.update(g, theta, own, step)
            self.first_directions.append((term.name, chunk.rows, finite & ~_all_finite(made)))
            g = writable_result(made, g, own) if place < len(terms) - 1 else made
        return g

    def check(self) -> None:
        """Raise if a term turned finite gradients into NaN or infinity in the first step."""
        if not self.first_directions:
            return
        nodes = range(self.models.n) if self.nodes is None else self.nodes
        found = [(node, name) for name, rows, bad in self.first_directions for node in nodes[rows]]
        flags = torch.cat([bad for _, _, bad in self.first_directions]).tolist()
        if erred := [one for one, bad in zip(found, flags, strict=True) if bad]:
            node, name = min(
                erred, key=lambda one: one[0]
            )  # of one node the first term, whoever was trained first
            raise ValueError(
                f"the term {name!r} must return finite directions for finite gradients, it does "
                f"not for node {node} in round {self.t + 1}; look for divisions by 0 in it"
            )


def _all_finite(values: Tensor) -> Tensor:
    """Return which rows of (k, ...) numbers hold only finite ones, (k,)."""
    return values.isfinite().reshape(len(values), -1).all(1)


def finite_rows(values: Tensor, sums: Tensor | None = None) -> Tensor:
    """Return which rows are finite, by their `sums` where these are finite too."""
    if values.device.type != "cpu":  # where it would wait for a first look
        return torch.isfinite(values).all(1)
    finite = torch.isfinite(values.sum(1) if sums is None else sums)
    return finite if bool(finite.all()) else torch.isfinite(values).all(1)


FEW_NUMBERS = 2**20
"""Numbers of all models up to which a step is played on zeros.

The first operation on a tensor without numbers makes torch load sympy, and some its compiler, 35 MB
and a second for either.
"""


class _ShapesOnlyTrace(AllocationTrace):
    """Counts bytes, and refuses to tell numbers, which models of more parameters will not have."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the storages that an operation made."""
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise RuntimeError("numbers of meta tensors were asked for")
        return super().__torch_dispatch__(func, types, args, kwargs)


def bytes_of_terms(how: Training, layout: Layout, dtype: torch.dtype, n: int) -> int:
    """Return the bytes of a node's local step in addition to its model and gradient.

    What terms make anew in a round is among them, what they keep from round to round is not. Two of
    all n nodes play: what is made in `init` may be of n alone.
    """
    nodes = min(n, 2)
    how = replace(
        how, descend=replace(how.descend, lr=constant(1.0))
    )  # one's own may not know of such a step
    device = "cpu" if n * layout.d <= FEW_NUMBERS else "meta"
    models = Population(torch.zeros(n, layout.d, dtype=dtype, device=device), layout)
    update = LocalUpdate(models, how, how.init(models), t=0, dry=True)
    shapes = layout.shapes if update.trained is None else [layout.shapes[k] for k in update.trained]
    gradients = [torch.zeros(nodes, *shape, dtype=dtype, device=device) for shape in shapes]
    with _ShapesOnlyTrace() as allocations:
        chunk = update.chunk(slice(0, nodes), Buffers(models.flat.device))
        update.descend(
            chunk,
            1,
            gradients if how.at is None else [_gradient_at_point(update, how.at, chunk, gradients)],
        )
    return -(-allocations.peak // nodes)


def _gradient_at_point(
    update: LocalUpdate, at: At, chunk: Chunk, gradients: Sequence[Tensor]
) -> Tensor:
    """Return a gradient that was taken at another point, without computing it."""
    theta, own, step = (
        update.trained_columns(update.models.flat[chunk.rows]),
        chunk.parts[0],
        update.step(1),
    )
    made = at.where(theta, own, step, lambda values: update.flat(gradients))
    point = update.parameters(checked_point(at, "where", made, theta), chunk)
    g = at.back(update.flat(gradients), theta, own, step, lambda values: update.flat(gradients))
    del made, point
    return checked_point(at, "back", g, theta)
