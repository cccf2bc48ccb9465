"""Local steps of all nodes: worker threads train chunks of nodes by the terms of a phase."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.text import node_name
from topofl._support.threads import Buffers
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import State
from topofl.algorithms.contract.schedules import rate_at
from topofl.algorithms.contract.terms import Step, merged_states, per_row, writable_result
from topofl.engine.executor import Executor
from topofl.engine.minibatches import Minibatches
from topofl.engine.mixing import Means, Mixer
from topofl.engine.population import Population
from topofl.engine.recorder import GradientStatistics

UPDATED = 2**21
"""Bytes of models that are updated at a time after gradients were mixed, which stay in cache."""


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
class LocalSteps:
    """The local steps of all nodes in a phase of one round, and the nodes that diverge in them.

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
    bad
        (n,) mask of nodes that do not train, or diverged. It is set before their values can spread
        to other nodes.
    policy
        What happens to nodes that diverge, see :func:`topofl.run`: with ``"freeze"``, steps are
        undone for nodes in `bad`, and where they would produce NaN or infinity.
    counts
        (n,) number of steps that each node takes; None: all steps.
    statistics
        Statistics of each node's own gradient in the first step; None: not recorded.
    push_sum_weights, weighted
        (n,) push-sum weights, and the indices of the parameters whose steps they divide.
    nodes
        (n,) the numbers of the nodes; None: 0, 1, and so on.
    labels
        Labels of all nodes of the run, by number.
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
    bad: Tensor
    policy: str = "raise"
    counts: np.ndarray | None = None
    statistics: GradientStatistics | None = None
    push_sum_weights: Tensor | None = None
    weighted: Sequence[int] = ()
    nodes: np.ndarray | None = None
    labels: Sequence[object] = ()
    dry: bool = False
    first_directions: list[tuple[str, slice, Tensor]] = field(default_factory=list)

    @cached_property
    def device_counts(self) -> Tensor | None:
        """`counts` on the device."""
        return None if self.counts is None else torch.from_numpy(self.counts).to(self.bad.device)

    def idle(self, rows: slice, k: int) -> Tensor | None:
        """Return a mask of the nodes in `rows` that do not take step k; None if all take it."""
        if self.counts is None or self.device_counts is None or bool((self.counts[rows] > k).all()):
            return None
        return self.device_counts[rows] <= k

    @contextmanager
    def undoing(self, chunk: Chunk, losses: Tensor, idle: Tensor | None) -> Iterator[None]:
        """Undo the step taken in this context for idle and frozen nodes; idle losses become 0."""
        freezes = self.policy == "freeze"
        if idle is None and not freezes:
            yield
            return
        state = [
            part[name]
            for part in chunk.parts
            for name in part
            if part[name].dim() and len(part[name]) == len(losses)
        ]
        current = [self.models.flat[chunk.rows], *state, *self.models.buffers_of(chunk.rows)]
        if idle is not None and not freezes and idle.device.type == "cpu":
            # On other devices, nonzero would wait for the result.
            indices = idle.nonzero().view(-1)
            previous = [x[indices] for x in current]
            yield
            losses[indices] = 0
            for x, before in zip(current, previous, strict=True):
                x[indices] = before
            return
        previous = [x.clone() for x in current]
        yield
        undone = torch.zeros_like(self.bad[chunk.rows]) if idle is None else idle
        losses.masked_fill_(undone, 0)
        if freezes:
            finite = torch.isfinite(losses)
            # The state of a gradient point is trained, too.
            for x in current if self.training.at is not None else current[:1]:
                finite &= finite_rows(x) if x.dim() == 2 and x.is_floating_point() else True
            self.bad[chunk.rows] |= ~undone & ~finite
            undone = undone | self.bad[chunk.rows]
        for x, before in zip(current, previous, strict=True):
            x.copy_(torch.where(per_row(undone, x), before, x))

    def observe(
        self,
        observed: GradientStatistics,
        rows: slice,
        k: int,
        idle: Tensor | None,
        gradients: Sequence[Tensor],
    ) -> None:
        """Add the gradients of the first step to the statistics, for nodes that take it."""
        if k == 0 and self.statistics is not None:
            bad = self.bad[rows]
            observed.observe(gradients, ~bad if idle is None else ~(bad | idle))

    @cached_property
    def trained(self) -> Sequence[int]:
        """Indices of the trained parameters."""
        layout, part = self.models.layout, self.training.part
        return range(len(layout.names)) if part.is_everything else layout.places(part)

    @cached_property
    def _columns(self) -> list[slice]:
        return self.models.columns(self.training.part)

    @cached_property
    def by_parameter(self) -> bool:
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
            count = len(self.trained) if self.by_parameter else 1
            return Chunk(rows, own, [own] * count, buffers)
        wide = {name: x for name, x in own.items() if x.dim() == 2 and x.shape[1] == flat.shape[1]}
        rest = {name: x for name, x in own.items() if name not in wide}
        if self.by_parameter:
            split = {name: self._views(x) for name, x in wide.items()}
            parts = [
                rest | {name: x[k] for name, x in split.items()} for k in range(len(self.trained))
            ]
        else:
            parts = [rest | {name: self.trained_columns(x) for name, x in wide.items()}]
        return Chunk(rows, own, parts, buffers)

    def trained_columns(self, values: Tensor) -> Tensor:
        """Return the trained columns of (k, d) values: a view if contiguous, else a copy."""
        parts = [values[:, part] for part in self._columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def write_trained(self, target: Tensor, values: Tensor) -> None:
        """Write trained columns (k, m) into values (k, d), unless they are a view of these."""
        widths = [part.stop - part.start for part in self._columns]
        for part, some in zip(self._columns, values.split(widths, 1), strict=True):
            if target[:, part].data_ptr() != some.data_ptr():
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
        self.write_trained(full, values)
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
        if self.by_parameter and not whole:
            for index, (g, theta, own) in enumerate(
                zip(gradients, self._views(rows), chunk.parts, strict=True)
            ):
                direction = self._direction(chunk, g, theta, own, step)
                self._move(chunk, theta, direction, step.lr, index)
            return
        own = chunk.own if self.by_parameter else chunk.parts[0]
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
        if self.push_sum_weights is None or self.trained[index] not in self.weighted:
            theta.add_(direction, alpha=-lr)
        else:
            rates = (lr / self.push_sum_weights[chunk.rows]).to(theta.dtype)
            theta.sub_(direction * per_row(rates, theta))

    def _views(self, flat: Tensor) -> Sequence[Tensor]:
        views = self.models.layout.views(flat)
        return [views[k] for k in self.trained]

    def _split(self, values: Tensor) -> Sequence[Tensor]:
        """Return trained columns (k, m) split by parameter, (k, size) each."""
        return values.split([self.models.layout.sizes[k] for k in self.trained], 1)

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

    def check(self) -> None:
        """Raise ``ValueError`` if a term turned finite gradients into NaN or infinity in step 0.

        The message names the node by its label.
        """
        if not self.first_directions:
            return
        nodes = np.arange(len(self.models)) if self.nodes is None else self.nodes
        found = [
            (node, name) for name, rows, _ in self.first_directions for node in nodes[rows].tolist()
        ]
        flags = torch.cat([bad for _, _, bad in self.first_directions]).tolist()
        if failed := [entry for entry, bad in zip(found, flags, strict=True) if bad]:
            # The lowest node and its first term, whatever the order of training.
            node, name = min(failed, key=lambda entry: entry[0])
            raise ValueError(
                f"the term {name!r} must return finite directions for finite gradients, but does "
                f"not for node {node_name(self.labels, node)} in round {self.t + 1}; look for "
                "divisions by 0 in it"
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


def has_rows(x: Tensor, n: int) -> bool:
    """Whether a tensor of a state has a row for each of n nodes."""
    return x.dim() > 0 and len(x) == n


def take_steps(
    executor: Executor,
    job: LocalSteps,
    batches: Sequence[Minibatches],
    mix_gradients: Mixer | None,
) -> Tensor:
    """Take local steps as :func:`local_steps`, and return the losses (n, steps).

    Where nodes take different numbers of steps in one call, or some models are stored once, those
    that take any are trained in one block, most steps first.
    """
    n, counts = len(job.models), job.counts
    if counts is None or (executor.plan.chunk == 1 and job.models.distinct == n):
        return local_steps(executor, job, batches, mix_gradients)
    nodes = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    rows = torch.from_numpy(nodes).to(job.bad.device)
    weights, of_nodes = job.push_sum_weights, [k for k, x in job.own.items() if has_rows(x, n)]
    small = replace(
        job,
        models=job.models.some(nodes),
        own={k: x[rows.to(x.device)] if k in of_nodes else x for k, x in job.own.items()},
        bad=job.bad[rows],
        counts=counts[nodes],
        push_sum_weights=None if weights is None else weights[rows],
        nodes=nodes if job.nodes is None else job.nodes[nodes],
    )
    found = local_steps(executor, small, [batch.of(nodes) for batch in batches], mix_gradients)
    job.models.write(nodes, small.models.flat)
    for name, buffer in small.models.buffers.items():
        job.models.buffers[name].write(nodes, buffer.stored)
    job.bad[rows] = small.bad
    for name in of_nodes:
        job.own[name][rows.to(job.own[name].device)] = small.own[name]
    losses = found.new_zeros(n, found.shape[1])
    losses[rows] = found
    return losses


def local_steps(
    executor: Executor,
    job: LocalSteps,
    batches: Sequence[Minibatches],
    mix_gradients: Mixer | None = None,
) -> Tensor:
    """Take local steps on every node in place: one step per batch, or per pair of batches.

    Without gradient mixing, each chunk of nodes takes all of its steps while it is in cache, and
    only one chunk's gradients per worker exist at a time. Nodes that diverge are added to
    ``job.bad``; those that are frozen keep their last finite model.

    Returns
    -------
    losses
        (n, steps); 0 for steps that were not taken.

    Raises
    ------
    ValueError
        If a term does not return finite directions for finite gradients in the first step of a run.
    """
    minibatches = executor.on_device(batches)
    per_step = job.training.minibatches
    steps = [minibatches[k : k + per_step] for k in range(0, len(minibatches), per_step)]
    if mix_gradients is None:
        losses = _train_separately(executor, job, steps)
    else:
        losses = _train_with_mixed_gradients(executor, job, steps, mix_gradients)
    job.check()
    return losses


def _train_separately(
    executor: Executor, job: LocalSteps, steps: Sequence[Sequence[Minibatches]]
) -> Tensor:
    """Take all steps of a chunk before those of the next, and return the losses (n, steps)."""
    flat = job.models.flat
    losses = flat.new_zeros(len(flat), len(steps))
    sums = flat.sum(1) if job.counts is not None else flat.new_empty(len(flat))

    def train(worker: int, rows: slice, observed: GradientStatistics) -> None:
        chunk = job.chunk(rows, executor.memory[worker])
        for k in range(len(steps) if job.counts is None else int(job.counts[rows].max())):
            idle = job.idle(rows, k)
            observe = partial(job.observe, observed, rows, k, idle)
            with job.undoing(chunk, losses[rows, k], idle):
                losses[rows, k], gradients = _gradients_of_step(
                    executor, worker, job, chunk, k, steps[k], observe
                )
                job.take_step(chunk, k, gradients)
        if not job.by_parameter:  # trained columns may have been copied
            for name, x in chunk.own.items():
                if x.dim() == 2 and x.shape[1] == flat.shape[1]:
                    job.write_trained(x, chunk.parts[0][name])
        torch.sum(flat[rows], 1, out=sums[rows])  # while they are in cache

    _on_chunks(executor, job, train)
    diverged = ~(torch.isfinite(losses).all(1) & finite_rows(flat, sums))
    if job.training.at is not None:  # the state of a gradient point is trained, too
        for own in job.own.values():
            diverged |= ~finite_rows(own) if own.shape == flat.shape else False
    if job.device_counts is not None:
        diverged &= job.device_counts > 0  # others had diverged before
    job.bad.logical_or_(diverged)
    return losses


def _gradients_of_step(
    executor: Executor,
    worker: int,
    job: LocalSteps,
    chunk: Chunk,
    k: int,
    minibatches: Sequence[Minibatches],
    observe: Callable[[Sequence[Tensor]], None],
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the losses and gradients of step k, taken at the gradient point of the phase."""
    differentiate = partial(executor.gradients, worker, job.models)
    at = job.training.at
    if at is None:
        losses, found = differentiate(minibatches[-1], chunk.rows, job.trained)
        observe(found)
        return losses, found

    def gradient(values: Tensor) -> Tensor:
        point = job.parameters(values, chunk)
        return job.flat(differentiate(minibatches[0], chunk.rows, job.trained, point)[1])

    step, own = job.step(k), chunk.parts[0]
    theta = job.trained_columns(job.models.flat[chunk.rows])
    point = job.parameters(at.where(theta, own, step, gradient), chunk)
    losses, found = differentiate(minibatches[-1], chunk.rows, job.trained, point)
    losses = losses.clone()  # the next losses may reuse their memory
    observe(found)
    g = job.flat(found)
    return losses, [at.back(g, theta, own, step, gradient)]


def gradients_in_memory(groups: int, workers: int, chunk: int, n: int) -> int:
    """Return how many gradients exist at once while n nodes average over `groups` groups."""
    return min(n, workers * (groups + chunk))


def nodes_per_update(n: int, workers: int, chunk: int, row_bytes: int) -> int:
    """Return how many of n nodes take a step together after their gradients were mixed.

    Examples
    --------
    >>> nodes_per_update(100, workers=2, chunk=10, row_bytes=4 * 7850)
    50
    >>> nodes_per_update(1000, workers=2, chunk=10, row_bytes=4 * 7850)
    66
    """
    return max(chunk, min(-(-n // workers), UPDATED // row_bytes))


@dataclass(frozen=True, eq=False)
class _MixedGradients:
    """Gradients of all nodes in a step, which are mixed: all of them, or as means of groups.

    Sums of groups take less memory, and are added while gradients are in cache (1.2 times as fast
    for 1,000 logistic regressions). Each worker has its own, so that rounding depends on the number
    of workers.

    Attributes
    ----------
    executor, job, mixer
        The executor, the local steps, and what mixes their gradients.
    losses, sums
        (n, steps) losses, and (n,) sums of the gradients or models of each node.
    means
        The groups; None: gradients of all nodes are stored.
    memory
        Sums of the groups (groups, d) for each worker; or one tensor (n, d), all gradients.
    """

    executor: Executor
    job: LocalSteps
    mixer: Mixer
    losses: Tensor
    sums: Tensor
    means: Means | None
    memory: Sequence[Tensor]

    @classmethod
    def of(cls, executor: Executor, job: LocalSteps, mixer: Mixer, steps: int) -> "_MixedGradients":
        """Return gradients in the form that takes less memory."""
        flat, plan, means = job.models.flat, executor.plan, mixer.means
        n, shape = len(flat), tuple(flat.shape)
        sums, losses = flat.new_empty(n), flat.new_empty(n, steps)
        if means is not None:
            shape = (len(means.share), flat.shape[1])
            if gradients_in_memory(shape[0], plan.workers, plan.chunk, n) < n:
                memory = [own.take("sums of groups", shape, flat.dtype) for own in executor.memory]
                return cls(executor, job, mixer, losses, sums, means, memory)
        stored = executor.buffers.take("gradients", tuple(flat.shape), flat.dtype)
        return cls(executor, job, mixer, losses, sums, None, [stored])

    def place(self, worker: int, rows: slice) -> Tensor:
        """Return memory (k, d) for the gradients of some nodes."""
        if self.means is None:
            return self.memory[0][rows]
        shape, dtype = tuple(self.job.models.flat[rows].shape), self.job.models.dtype
        return self.executor.memory[worker].take("gradients of a chunk", shape, dtype)

    def add(self, worker: int, rows: slice, k: int, any_bad: bool, gradients: Tensor) -> None:
        """Note that the gradients of some nodes are complete, in their place."""
        if self.means is not None:
            self._contain(rows, k, any_bad, gradients)
            self.memory[worker].index_add_(0, self.means.groups[rows], gradients)

    def mix(self, k: int, any_bad: bool) -> None:
        """Mix the gradients of all nodes, which are complete; sums of groups are means then."""
        first = self.memory[0]
        if self.means is None:
            self._contain(slice(0, len(first)), k, any_bad, first)  # once per step
            self.mixer(first)
            return
        for other in self.memory[1:]:
            first.add_(other)
        first.mul_(self.means.share)

    def mixed(self, worker: int, rows: slice) -> Tensor:
        """Return the mixed gradients (k, d) of some nodes, which may be modified."""
        place = self.place(worker, rows)
        if self.means is None:
            return place
        return torch.index_select(self.memory[0], 0, self.means.groups[rows], out=place)

    def _contain(self, rows: slice, k: int, any_bad: bool, gradients: Tensor) -> None:
        """Record diverged nodes, and zero their gradients; skipped on CPU if there are none."""
        sums, losses, bad = self.sums[rows], self.losses[rows, k], self.job.bad[rows]
        on_cpu = sums.device.type == "cpu"
        if on_cpu and not any_bad and bool(torch.isfinite(sums + losses).all()):
            return  # as nearly always; each further operation would hold up the other workers
        bad |= ~(torch.isfinite(losses) & finite_rows(gradients, sums))
        if self.job.policy != "record":
            gradients.masked_fill_(bad[:, None], 0)


def _train_with_mixed_gradients(
    executor: Executor, job: LocalSteps, steps: Sequence[Sequence[Minibatches]], mixer: Mixer
) -> Tensor:
    """Mix all nodes' gradients in every step, and return the losses (n, steps)."""
    models, plan = job.models, executor.plan
    flat = models.flat
    mixed = _MixedGradients.of(executor, job, mixer, len(steps))
    losses, sums = mixed.losses, mixed.sums
    chunks: dict[int, Chunk] = {}

    def differentiate(
        k: int, any_bad: bool, worker: int, rows: slice, observed: GradientStatistics
    ) -> None:
        losses[rows, k], gradients = executor.gradients(worker, models, steps[k][-1], rows)
        job.observe(observed, rows, k, None, gradients)
        own = mixed.place(worker, rows)
        for view, g in zip(models.layout.views(own), gradients, strict=True):
            view.copy_(g)
        torch.sum(own, 1, out=sums[rows])
        mixed.add(worker, rows, k, any_bad, own)

    def take_step(k: int, worker: int, rows: slice, observed: GradientStatistics) -> None:
        del observed
        if rows.start not in chunks:
            chunks[rows.start] = job.chunk(rows, executor.memory[worker])
        chunk = chunks[rows.start]
        with job.undoing(chunk, losses[rows, k], None):
            job.take_step(chunk, k, [mixed.mixed(worker, rows)])
        torch.sum(flat[rows], 1, out=sums[rows])

    together = nodes_per_update(len(flat), plan.workers, plan.chunk, flat[0].nbytes)
    for k in range(len(steps)):
        any_bad = flat.device.type == "cpu" and bool(job.bad.any())
        if mixed.means is not None:
            for total in mixed.memory:
                total.zero_()
        _on_chunks(executor, job, partial(differentiate, k, any_bad))
        mixed.mix(k, any_bad)
        _on_chunks(executor, job, partial(take_step, k), size=together)
        job.bad.logical_or_(~finite_rows(flat, sums))
    return losses


def all_gradients(
    executor: Executor, models: Population, batch: Minibatches, key: str = ""
) -> tuple[Tensor, Tensor]:
    """Return all nodes' losses (n,) and gradients (n, d) on one minibatch.

    The gradients are in a buffer that the next call with the same `key` reuses.
    """
    (minibatches,) = executor.on_device([batch])
    buffer = f"gradients of {key}" if key else "gradients"
    flat = executor.buffers.take(buffer, tuple(models.flat.shape), models.flat.dtype)
    views = models.layout.views(flat)
    losses = models.flat.new_empty(len(models.flat))

    def work(worker: int, rows: slice) -> None:
        losses[rows], gradients = executor.gradients(worker, models, minibatches, rows)
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)

    executor.over_chunks(work, executor.chunks(len(models.flat)))
    return losses, flat


def _on_chunks(
    executor: Executor,
    job: LocalSteps,
    function: Callable[[int, slice, GradientStatistics], None],
    size: int | None = None,
) -> None:
    """Call ``function(worker, rows, the worker's statistics)`` for chunks, and add the statistics.

    A chunk has at most `size` nodes; None: as many as are differentiated together. Those in which
    no node takes a step are left out.
    """
    chunks = executor.chunks(len(job.models), size)
    if job.counts is not None:  # those with the most steps come first
        most = {rows.start: int(job.counts[rows].max()) for rows in chunks}
        chunks = sorted(
            (rows for rows in chunks if most[rows.start]), key=lambda rows: -most[rows.start]
        )
    found = [GradientStatistics() for _ in executor.memory]
    executor.over_chunks(
        lambda worker, rows: function(worker, rows, found[worker]),
        chunks,
        interleaved=job.counts is not None,
    )
    if job.statistics is not None:
        for observed in found:
            job.statistics.add(observed)
