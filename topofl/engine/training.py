"""Local steps of all nodes: worker threads train chunks of nodes by the terms of a phase."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.text import node_name
from topofl._support.threads import Buffers
from topofl.algorithms.contract.descent import checked_point, merged_states, rate_at
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import State
from topofl.algorithms.contract.terms import Step, per_row, writable_result
from topofl.engine.executor import Executor, keeping
from topofl.engine.gradients import Bound, Found
from topofl.engine.minibatches import Minibatches
from topofl.engine.mixing import Mixer
from topofl.engine.population import Population
from topofl.engine.recorder import GradientStatistics

UPDATED = 2**21
"""Bytes of models that are updated at a time after gradients were mixed, which stay in cache."""

STEPPED = 2**18
"""Bytes of parameters that take a step at a time on CPU, so that all terms find them in cache.

A row is not divided further.
"""


Steps = Sequence[Sequence[Minibatches]]
"""The minibatches of each step, one or two."""

Differentiate = Callable[[int, Sequence[Tensor]], Found]
"""(minibatch, parameters) -> losses and gradients of the trained parameters of k nodes.

The minibatch is the first (0) or the last (-1) of a step; its buffers follow the parameters.
"""


@dataclass(eq=False)
class LocalSteps:
    """The local steps of nodes in a phase of one round, and the nodes that diverge in them.

    Parameters
    ----------
    models
        The models of all nodes, changed in place.
    training
        Settings of training: terms, learning rate, gradient point, trained parameters.
    own
        The state of the phase: tensors (n, ...), changed in place.
    t
        The round, from 0.
    bad
        (n,) mask of nodes that do not train, or diverged. It is set before their values can spread
        to other nodes.
    nodes
        (n,) the numbers of the nodes.
    policy
        What happens to nodes that diverge, see :func:`topofl.run`: with ``"freeze"``, steps are
        undone for nodes in `bad`, and where they would produce NaN or infinity.
    counts, taken
        (n,) number of steps that each node takes, in memory and on the device; None: all steps.
    statistics
        Statistics of each node's own gradient in the first step; None: not recorded.
    push_sum_weights, weighted
        (n,) push-sum weights, and the indices of the parameters whose steps they divide.
    labels
        Labels of all nodes of the run, by number.
    dry
        Whether this is a dry run, which measures memory and checks that terms obey their contract.
    first_directions
        In the first step of a run: name of the term, nodes (k,), and mask (k,) of directions that
        are not finite although their gradients were.
    joined
        Whether several runs are trained together. Gradients are then taken at copies, since sums of
        products depend on how memory is aligned.
    rows
        The rows of these nodes in `models`: all, or those of a chunk of nodes that take their steps
        together, of which all other tensors are then.
    """

    models: Population
    training: Training
    own: State
    t: int
    bad: Tensor
    nodes: np.ndarray
    policy: str = "raise"
    counts: np.ndarray | None = None
    taken: Tensor | None = None
    statistics: GradientStatistics | None = None
    push_sum_weights: Tensor | None = None
    weighted: Sequence[int] = ()
    labels: Sequence[object] = ()
    dry: bool = False
    joined: bool = False
    first_directions: list[tuple[str, np.ndarray, Tensor]] = field(default_factory=list)
    rows: slice = field(default_factory=lambda: slice(None))

    def of(self, which: slice | np.ndarray) -> "LocalSteps":
        """Return the steps of some nodes: on views of a slice, or of models of their own."""
        n = len(self.nodes)
        if isinstance(which, slice):
            if which == slice(0, n):
                return self
            models, rows, index = self.models, which, which
        else:
            models, rows = self.models.some(which), slice(None)
            index = torch.from_numpy(which).to(self.bad.device)

        def some(x: Any) -> Any:
            if x is None or not has_rows(x, n):
                return x
            return x[index.to(x.device) if isinstance(index, Tensor) else index]

        own = {name: some(x) for name, x in self.own.items()}
        more = {name: some(getattr(self, name)) for name in ("bad", "taken", "push_sum_weights")}
        more["counts"] = None if self.counts is None else self.counts[which]
        return replace(self, models=models, rows=rows, nodes=self.nodes[which], own=own, **more)

    @cached_property
    def flat(self) -> Tensor:
        """(k, d) the models of these nodes, changed in place."""
        flat = self.models.flat
        return flat if self.rows == slice(None) else flat[self.rows]

    @property
    def bound(self) -> Bound | None:
        """What steps minimize, with the state that it reads; None: the loss of the task."""
        objective = self.training.objective
        return None if objective is None else (objective, self.own)

    @property
    def buffers(self) -> list[Tensor]:
        """Their buffers, changed in place."""
        return self.models.buffers_of(self.rows)

    @cached_property
    def parameters(self) -> list[Tensor]:
        """One view (k, *shape) per parameter of their models, followed by their buffers."""
        return self.models.layout.views(self.flat) + self.buffers

    @cached_property
    def trained(self) -> Sequence[int]:
        """Indices of the trained parameters."""
        layout, part = self.models.layout, self.training.part
        return range(len(layout.names)) if part.is_everything else layout.places(part)

    @cached_property
    def _columns(self) -> list[slice]:
        return self.models.columns(self.training.part)

    @cached_property
    def _joined(self) -> bool:
        """Whether terms get all trained columns at once.

        Otherwise they get one parameter at a time, which saves a copy of the gradients.
        """
        training = self.training
        alone = training.at is None and training.gradient is None
        return not (alone and training.descend.elementwise)

    @cached_property
    def _moved(self) -> list[tuple[Tensor, bool]]:
        """Views of what a step moves, and whether it is divided by push-sum weights.

        They are (k, *shape) of each trained parameter, or (k, columns) if terms get them joined.
        """
        divided = [k in self.weighted for k in self.trained]
        if self._joined and not any(divided):
            return [(self.flat[:, part], False) for part in self._columns]
        sizes = self.models.layout.sizes
        parts = self.flat.split(sizes, 1) if self._joined else self.parameters
        return [(parts[k], each) for k, each in zip(self.trained, divided, strict=True)]

    @cached_property
    def _states(self) -> list[State]:
        """The state as terms get it: for each trained parameter, or once if these are joined."""
        own, d = self.own, self.models.d
        if self.training.begins:
            own = merged_states([own, self.training.begin(self.models.like(self.flat))])
        wide = {name: x for name, x in own.items() if x.dim() == 2 and x.shape[1] == d}
        if self._joined:
            return [own | {name: self._trained_columns(x) for name, x in wide.items()}]
        split = {name: self.models.layout.views(x) for name, x in wide.items()}
        return [own | {name: x[k] for name, x in split.items()} for k in self.trained]

    def _trained_columns(self, values: Tensor) -> Tensor:
        """Return the trained columns of (k, d) values: a view if contiguous, else a copy."""
        parts = [values[:, part] for part in self._columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _write_trained(self, target: Tensor, values: Tensor) -> None:
        """Write trained columns (k, m) into values (k, d)."""
        widths = [part.stop - part.start for part in self._columns]
        for part, some in zip(self._columns, values.split(widths, 1), strict=True):
            target[:, part] = some

    def write_states(self) -> None:
        """Write the state after the last step to its rows, unless terms changed views of these."""
        if self._joined and len(self._columns) > 1:
            for name, x in self.own.items():
                if self._states[0][name].shape != x.shape:
                    self._write_trained(x, self._states[0][name])

    def idle(self, k: int) -> Tensor | None:
        """Return a mask of the nodes that do not take step k; None if all take it."""
        if self.counts is None or self.taken is None or bool((self.counts > k).all()):
            return None
        return self.taken <= k

    @contextmanager
    def undoing(self, losses: Tensor, idle: Tensor | None) -> Iterator[None]:
        """Undo the step taken in this context for idle and frozen nodes; idle losses become 0."""
        freezes = self.policy == "freeze"
        if idle is None and not freezes:
            yield
            return
        states = (x for own in self._states for x in own.values())
        state = [x for x in states if x.shape[:1] == losses.shape]
        current = [self.flat, *state, *self.buffers]
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
        undone = torch.zeros_like(self.bad) if idle is None else idle
        losses.masked_fill_(undone, 0)
        if freezes:
            finite = torch.isfinite(losses)
            # The state of a gradient point is trained, too.
            for x in current if self.training.at is not None else current[:1]:
                finite &= finite_rows(x) if x.dim() == 2 and x.is_floating_point() else True
            self.bad.logical_or_(~undone & ~finite)
            undone = undone | self.bad
        for x, before in zip(current, previous, strict=True):
            x.copy_(torch.where(per_row(undone, x), before, x))

    def gradients(self, k: int, differentiate: Differentiate, memory: Buffers) -> Found:
        """Return the losses and gradients of step k, taken at the gradient point of the phase."""
        at = self.training.at
        if at is None and not self.joined:
            return differentiate(-1, self.parameters)
        if at is None:
            full = memory.take("point", tuple(self.flat.shape), self.flat.dtype).copy_(self.flat)
            return differentiate(-1, self.models.layout.views(full))
        theta, own, step = self._trained_columns(self.flat), self._states[0], self.step(k)

        def checked(name: str, values: Tensor) -> Tensor:
            return checked_point(at, name, values, theta) if self.dry else values

        def gradient(values: Tensor) -> Tensor:
            return _flat(differentiate(0, self._parameters_at(values, memory))[1])

        point = checked("where", at.where(theta, own, step, gradient))
        losses, found = differentiate(-1, self._parameters_at(point, memory))
        losses = losses.clone()  # the next losses may reuse their memory
        return losses, [checked("back", at.back(_flat(found), theta, own, step, gradient))]

    def _parameters_at(self, values: Tensor, memory: Buffers) -> list[Tensor]:
        """Return the parameters with the trained columns replaced by values (k, m), and buffers."""
        if values.shape != self.flat.shape:
            full = memory.take("point", tuple(self.flat.shape), self.flat.dtype).copy_(self.flat)
            self._write_trained(full, values)
            values = full
        return self.models.layout.views(values) + self.buffers

    def step(self, k: int) -> Step:
        """Return round, step and learning rate of step k; ValueError if the rate is invalid."""
        return Step(self.t, k, rate_at(self.training.descend.lr, self.t, k, self.models.dtype))

    def take_step(self, k: int, gradients: Sequence[Tensor], memory: Buffers) -> None:
        """Take step k along gradients: (k, *shape) per trained parameter, or (k, m) joined."""
        step, moved = self.step(k), self._moved
        if self._joined:
            theta = moved[0][0] if len(moved) == 1 else self._trained_columns(self.flat)
            joined = _flat(gradients, memory)
            for rows in self._stepped(theta, self._states[0], step):
                own = rows_of(self._states[0], rows, len(theta))
                direction = self._direction(joined[rows], theta[rows], own, step)
                parts = direction.split([target.shape[1] for target, _ in moved], 1)
                for (target, divided), part in zip(moved, parts, strict=True):
                    self._move(target[rows], part, step, rows if divided else None)
            return
        for g, (theta, divided), state in zip(gradients, moved, self._states, strict=True):
            for rows in self._stepped(theta, state, step):
                own = rows_of(state, rows, len(theta))
                direction = self._direction(g[rows], theta[rows], own, step)
                self._move(theta[rows], direction, step, rows if divided else None)

    def _move(self, target: Tensor, direction: Tensor, step: Step, weighted: slice | None) -> None:
        """Move some rows along a direction, divided by the push-sum weights of `weighted` rows."""
        if weighted is not None and self.push_sum_weights is not None:
            rates = (step.lr / self.push_sum_weights[weighted]).to(target.dtype)
            target.sub_(direction * per_row(rates, target))
        else:
            target.sub_(direction, alpha=step.lr)

    def _stepped(self, theta: Tensor, own: State, step: Step) -> Sequence[slice]:
        """Return the rows that take a step at a time: few if models are large.

        All rows take it together in the first step of a run and in a dry run, where terms are
        checked; if there are no terms; and if a term keeps a tensor without a row per node.
        """
        k, size = len(theta), max(1, STEPPED * len(theta) // max(1, theta.nbytes))
        if size >= k or self.dry or theta.device.type != "cpu" or not (step.k or step.round):
            return (slice(0, k),)
        if not self.training.descend.terms or not all(has_rows(x, k) for x in own.values()):
            return (slice(0, k),)
        return [slice(start, start + size) for start in range(0, k, size)]

    def _direction(self, g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        terms = self.training.descend.terms
        if step.k or step.round:
            return self.training.descend.direction(g, theta, own, step, checked=self.dry)
        for place, term in enumerate(terms):  # wrong terms usually fail in the first step
            finite = _all_finite(g)
            direction = term.update(g, theta, own, step)
            self.first_directions.append((term.name, self.nodes, finite & ~_all_finite(direction)))
            g = writable_result(direction, g, own) if place < len(terms) - 1 else direction
        return g

    def check(self) -> None:
        """Raise ``ValueError`` if a term turned finite gradients into NaN or infinity in step 0.

        The message names the node by its label.
        """
        if not self.first_directions:
            return
        found = [(i, name) for name, nodes, _ in self.first_directions for i in nodes.tolist()]
        flags = torch.cat([bad for _, _, bad in self.first_directions]).tolist()
        if failed := [entry for entry, bad in zip(found, flags, strict=True) if bad]:
            # The lowest node and its first term, whatever the order of training.
            node, name = min(failed, key=lambda entry: entry[0])
            raise ValueError(
                f"the term {name!r} must return finite directions for finite gradients, but does "
                f"not for node {node_name(self.labels, node)} in round {self.t + 1}; look for "
                "divisions by 0 in it"
            )


def _flat(gradients: Sequence[Tensor], memory: Buffers | None = None) -> Tensor:
    """Return gradients of parameters, (k, *shape) each, joined to (k, m) in memory, or new."""
    wide = [g if g.ndim == 2 else g.reshape(len(g), -1) for g in gradients]
    if memory is None:
        return torch.cat(wide, 1)
    if len(wide) == 1:
        return wide[0]
    shape = (len(wide[0]), sum(g.shape[1] for g in wide))
    return torch.cat(wide, 1, out=memory.take("directions", shape, wide[0].dtype))


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
    return x.shape[:1] == (n,)


def rows_of(state: State, rows: slice, n: int) -> State:
    """Return some rows of a state of n nodes, as views: the state itself if these are all."""
    if rows == slice(0, n):
        return state
    return {name: x[rows] for name, x in state.items()}


def local_steps(
    executor: Executor, job: LocalSteps, batches: Sequence[Minibatches], mixer: Mixer | None = None
) -> Tensor:
    """Take local steps on every node in place: one step per batch, or per pair of batches.

    Without a `mixer` of gradients, each chunk of nodes takes all of its steps while it is in cache,
    and only one chunk's gradients per worker exist at a time. Nodes that take no step fill no
    chunks, and their models stay stored as they are. Nodes that diverge are added to ``job.bad``;
    those that are frozen keep their last finite model.

    Returns
    -------
    losses
        (n, steps); 0 for steps that were not taken.

    Raises
    ------
    ValueError
        If a term does not return finite directions for finite gradients in the first step of a run.
    """
    together = executor.plan.chunk > 1 or job.models.distinct < len(job.models)
    if job.counts is None or not together:
        return _take_steps(executor, job, batches, mixer)
    # Nodes that take steps are trained in one block, most steps first.
    nodes = np.argsort(-job.counts, kind="stable")[: np.count_nonzero(job.counts)]
    small, some_batches = job.of(nodes), [batch.of(nodes) for batch in batches]
    some_losses = _take_steps(executor, small, some_batches, mixer)
    job.models.put(nodes, small.models)
    rows = torch.from_numpy(nodes).to(job.bad.device)
    losses = some_losses.new_zeros(len(job.bad), some_losses.shape[1])
    losses[rows], job.bad[rows] = some_losses, small.bad
    for name, x in job.own.items():
        if has_rows(x, len(job.bad)):
            x[rows.to(x.device)] = small.own[name]
    return losses


def _take_steps(
    executor: Executor, job: LocalSteps, batches: Sequence[Minibatches], mixer: Mixer | None
) -> Tensor:
    """Take the local steps, and return the losses (n, steps)."""
    minibatches = executor.on_device(batches)
    per_step = job.training.minibatches
    steps = [minibatches[k : k + per_step] for k in range(0, len(minibatches), per_step)]
    statistics = job.statistics or GradientStatistics()
    observed = [statistics.anew() for _ in executor.memory]  # of each thread
    if mixer is None:
        losses = _train_separately(executor, job, steps, observed)
    else:
        losses = _MixedGradients(executor, job, mixer, steps, observed).train()
    if job.statistics is not None:
        for some in observed:
            job.statistics.add(some)
    job.check()
    return losses


def _train_separately(
    executor: Executor, job: LocalSteps, steps: Steps, observed: Sequence[GradientStatistics]
) -> Tensor:
    """Take all steps of a chunk before those of the next, and return the losses (n, steps)."""
    flat, counts = job.models.flat, job.counts
    losses = flat.new_zeros(len(flat), len(steps))
    sums = flat.sum(1) if counts is not None else flat.new_empty(len(flat))

    def differentiate(
        worker: int,
        chunk: LocalSteps,
        k: int,
        idle: Tensor | None,
        which: int,
        at: Sequence[Tensor],
    ) -> Found:
        minibatches, bound = steps[k][which], chunk.bound
        found = executor.gradients(worker, at, minibatches, chunk.rows, chunk.trained, bound)
        if k == 0 and which == -1 and job.statistics is not None:
            out = chunk.bad if idle is None else chunk.bad | idle
            observed[worker].observe(found[1], chunk.nodes, ~out)
        return found

    def train(worker: int, rows: slice) -> None:
        chunk, memory = job.of(rows), executor.memory[worker]
        for k in range(len(steps) if chunk.counts is None else int(chunk.counts.max())):
            idle = chunk.idle(k)
            undone = idle is not None or chunk.policy == "freeze"
            with chunk.undoing(losses[rows, k], idle) if undone else nullcontext():
                found = partial(differentiate, worker, chunk, k, idle)
                losses[rows, k], gradients = chunk.gradients(k, found, memory)
                chunk.take_step(k, gradients, memory)
        chunk.write_states()
        torch.sum(chunk.flat, 1, out=sums[rows])  # while they are in cache

    chunks = executor.chunks(len(flat))
    if counts is not None:  # those with the most steps come first
        chunks = [rows for rows in chunks if counts[rows].any()]
        chunks.sort(key=lambda rows: -int(counts[rows].max()))
    executor.over_chunks(train, chunks, interleaved=counts is not None)
    diverged = ~(torch.isfinite(losses).all(1) & finite_rows(flat, sums))
    if job.training.at is not None:  # the state of a gradient point is trained, too
        for own in job.own.values():
            diverged |= ~finite_rows(own) if own.shape == flat.shape else False
    if job.taken is not None:
        diverged &= job.taken > 0  # others had diverged before
    job.bad.logical_or_(diverged)
    return losses


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


@dataclass(eq=False)
class _MixedGradients:
    """Gradients of all nodes in a step, which are mixed: all of them, or as means of groups.

    Sums of groups take less memory, and are added while gradients are in cache (1.2 times as fast
    for 1,000 logistic regressions). Each worker has its own, so that rounding depends on the number
    of workers.

    Attributes
    ----------
    losses, sums
        (n, steps) losses, and (n,) sums of the gradients or models of each node.
    means
        The groups; None: gradients of all nodes are stored.
    stored
        Sums of the groups (groups, d) for each worker; or one tensor (n, d), all gradients.
    """

    executor: Executor
    job: LocalSteps
    mixer: Mixer
    steps: Steps
    observed: Sequence[GradientStatistics]

    def __post_init__(self) -> None:
        executor, flat, means = self.executor, self.job.flat, self.mixer.means
        (n, d), plan = flat.shape, executor.plan
        groups = n if means is None else len(means[1])
        self.losses, self.sums = flat.new_empty(n, len(self.steps)), flat.new_empty(n)
        if gradients_in_memory(groups, plan.workers, plan.chunk, n) < n:
            self.means, name, shape = means, "sums of groups", (groups, d)
            self.stored = [own.take(name, shape, flat.dtype) for own in executor.memory]
        else:
            self.means = None
            self.stored = [executor.buffers.take("gradients", (n, d), flat.dtype)]

    def train(self) -> Tensor:
        """Mix all nodes' gradients in every step, and return the losses (n, steps)."""
        executor, job, plan = self.executor, self.job, self.executor.plan
        n, on_cpu = len(job.bad), job.bad.device.type == "cpu"
        together = nodes_per_update(n, plan.workers, plan.chunk, job.flat[0].nbytes)
        parts = [job.of(rows) for rows in executor.chunks(n)]
        chunks = [job.of(rows) for rows in executor.chunks(n, together)]
        for k in range(len(self.steps)):
            any_bad = on_cpu and bool(job.bad.any())
            if self.means is not None:
                for total in self.stored:
                    total.zero_()
            executor.over_chunks(partial(self._differentiate, k, any_bad), parts)
            self._mix(k, any_bad)
            executor.over_chunks(partial(self._take_step, k), chunks)
            job.bad.logical_or_(~finite_rows(job.flat, self.sums))
        return self.losses

    def _differentiate(self, k: int, any_bad: bool, worker: int, chunk: LocalSteps) -> None:
        """Store the gradients of some nodes, or add them to the sums of their groups."""
        rows, minibatches = chunk.rows, self.steps[k][-1]
        frozen = chunk.bad if self.job.policy == "freeze" else None
        with keeping(chunk.buffers, self.losses[rows, k], frozen):
            losses, found = self.executor.gradients(worker, chunk.parameters, minibatches, rows)
            self.losses[rows, k] = losses
        if k == 0 and self.job.statistics is not None:
            self.observed[worker].observe(found, chunk.nodes, ~chunk.bad)
        own = self._place(worker, rows)
        for view, g in zip(chunk.models.layout.views(own), found, strict=True):
            view.copy_(g)
        torch.sum(own, 1, out=self.sums[rows])
        if self.means is not None:
            self._contain(rows, k, any_bad, own)
            self.stored[worker].index_add_(0, self.means[0][rows], own)

    def _mix(self, k: int, any_bad: bool) -> None:
        """Mix the gradients of all nodes, which are complete; sums of groups are means then."""
        first, *others = self.stored
        if self.means is None:
            self._contain(slice(None), k, any_bad, first)  # once per step
            self.mixer(first)
            return
        for other in others:
            first.add_(other)
        first.mul_(self.means[1])

    def _take_step(self, k: int, worker: int, chunk: LocalSteps) -> None:
        """Take a step of a chunk along the mixed gradients."""
        rows, memory = chunk.rows, self.executor.memory[worker]
        g = self._place(worker, rows)
        if self.means is not None:
            torch.index_select(self.stored[0], 0, self.means[0][rows], out=g)
        with chunk.undoing(self.losses[rows, k], None):
            chunk.take_step(k, [g], memory)
        torch.sum(chunk.flat, 1, out=self.sums[rows])

    def _place(self, worker: int, rows: slice) -> Tensor:
        """Return memory (k, d) for the gradients of some nodes."""
        if self.means is None:
            return self.stored[0][rows]
        shape = tuple(self.job.models.flat[rows].shape)
        return self.executor.memory[worker].take("gradients of a chunk", shape, self.sums.dtype)

    def _contain(self, rows: slice, k: int, any_bad: bool, gradients: Tensor) -> None:
        """Record diverged nodes, and zero their gradients; skipped on CPU if there are none."""
        sums, losses, bad = self.sums[rows], self.losses[rows, k], self.job.bad[rows]
        on_cpu = sums.device.type == "cpu"
        if on_cpu and not any_bad and bool(torch.isfinite(sums + losses).all()):
            return  # as nearly always; each further operation would hold up the other workers
        bad |= ~(torch.isfinite(losses) & finite_rows(gradients, sums))
        if self.job.policy != "record":
            gradients.masked_fill_(bad[:, None], 0)
