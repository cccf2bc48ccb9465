"""Local steps of all nodes: chunks of nodes on worker threads, each with gradients and memory of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.phase import Mixture, Proximal
from topofl.engine.batches import Batch, Batches
from topofl.engine.buffers import Buffers
from topofl.engine.divergence import Guard
from topofl.engine.diversity import GradientStatistics
from topofl.engine.examples import Examples
from topofl.engine.gradients import Gradients
from topofl.engine.mixer import Means, Mixer
from topofl.engine.plan import Plan
from topofl.engine.points import adapt, mixed, stepped
from topofl.engine.population import Population
from topofl.engine.threads import Each

__all__ = ["Descent", "Learner", "Minibatches", "Worker", "all_gradients", "differentiate", "local_sgd",
           "models_kept"]  # fmt: skip


class Minibatches(NamedTuple):
    """One step's minibatches of all nodes, on the device.

    Attributes
    ----------
    indices
        (n, width) int64.
    weights
        (n, width) of each example in its node's mean loss, None where all are 1 / width.
    choices
        (n, width) int64: what becomes of each image, None: all stay.
    """

    indices: Tensor
    weights: Tensor | None
    choices: Tensor | None


class Worker(NamedTuple):
    """What one thread needs to train nodes."""

    gradients: Gradients
    buffers: Buffers


@dataclass(frozen=True, eq=False)
class Learner:
    """What training needs and what does not change during a run.

    Parameters
    ----------
    plan
        Executor, nodes a call and threads.
    workers
        One a thread.
    examples, targets
        The whole dataset on the device, (N, ...) each.
    batches
        Who trains on what, when.
    buffers
        Memory for what concerns all nodes, used again in every step.
    """

    plan: Plan
    workers: Sequence[Worker]
    examples: Examples
    targets: Tensor
    batches: Batches
    buffers: Buffers

    def minibatches(self, batch: Batch) -> Minibatches:
        """Return a step's minibatches on the device."""
        indices = torch.from_numpy(np.ascontiguousarray(batch.indices)).to(self.targets.device)
        weights = batch.weights
        if weights is not None:
            weights = torch.from_numpy(weights).to(device=indices.device, dtype=self.examples.dtype)
        choices = None if batch.choices is None else torch.from_numpy(batch.choices).to(indices.device)
        return Minibatches(indices, weights, choices)


@dataclass(frozen=True, eq=False)
class Descent:
    """Heavy-ball steps on what is made of gradients.

    ::

        g     = clip(gradient) + weight_decay * theta + strength * (theta - anchor)   (times the mask)
        v     = momentum * v + g
        theta = theta - lr * v                                                        (divided by the mass)

    Parameters
    ----------
    models
        Changed in place.
    lr, momentum, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`.
    velocity
        (n, d) that lasts; with momentum but without it, velocities start from zero.
    trained
        Parameters by their places, None: all.
    proximal, mask, mixture, toward
        As in ``algorithms.phase.Round.local_sgd``; the gradient of the last is added to ``g`` before the mask.
    mass, weighted
        (n,) push-sum weights, and the places of the parameters whose steps they divide.
    inner_lr
        As in :class:`topofl.algorithms.phase.LocalSGD`.
    """

    models: Population
    lr: float
    momentum: float = 0.0
    velocity: Tensor | None = None
    weight_decay: float = 0.0
    clip: float | None = None
    trained: Sequence[int] | None = None
    proximal: Proximal | None = None
    mask: Tensor | None = None
    mass: Tensor | None = None
    weighted: Sequence[int] = ()
    inner_lr: float | None = None
    mixture: Mixture | None = None
    toward: Tensor | None = None

    def __call__(
        self, rows: slice, gradients: Sequence[Tensor], speeds: Sequence[Tensor] | None, anchor: Tensor | None
    ) -> None:
        """Take a step of some nodes, in place; `speeds` are their velocities, and `anchor` (k, d) draws them."""
        thetas = self.parts(self.models.flat, rows, gradients)
        self._complete(rows, gradients, thetas, anchor)
        if speeds is not None:
            for v, g in zip(speeds, gradients, strict=True):
                v.mul_(self.momentum).add_(g)
        for k, (theta, g) in enumerate(zip(thetas, speeds or gradients, strict=True)):
            if self.mass is None or self._places[k] not in self.weighted:
                theta.add_(g, alpha=-self.lr)
            else:
                rates = (self.lr / self.mass[rows]).to(theta.dtype)
                theta.sub_(g * _along(rates, theta))

    @property
    def _places(self) -> Sequence[int]:
        return range(len(self.models.layout.names)) if self.trained is None else self.trained

    def parts(self, flat: Tensor, rows: slice, like: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return some nodes' rows of (n, d) numbers as views, one a trained parameter, or whole if `like` are.

        Whole rows take fewer calls, which wait for each other where several threads descend.
        """
        if len(like) == 1 and like[0].dim() == 2 and like[0].shape[1] == flat.shape[1]:
            return [flat[rows]]
        return self._views(flat[rows])

    def _views(self, flat: Tensor) -> Sequence[Tensor]:
        views = self.models.layout.views(flat)
        return views if self.trained is None else [views[k] for k in self.trained]

    def speeds(self, rows: slice, buffers: Buffers, name: str = "velocity") -> Sequence[Tensor] | None:
        """Return the velocities that some nodes start from, one a trained parameter."""
        if not self.momentum:
            return None
        if self.velocity is not None:
            return self._views(self.velocity[rows])
        flat = self.models.flat
        return self._views(buffers.take(name, (len(flat[rows]), flat.shape[1]), flat.dtype).zero_())

    def anchor(self, rows: slice, buffers: Buffers) -> Tensor | None:
        """Return what draws some nodes' models, (k, d): what is kept, or the models as they are now."""
        if self.proximal is None:
            return None
        if self.proximal.anchor is not None:
            return self.proximal.anchor[rows]
        flat = self.models.flat[rows]
        return buffers.take("anchor", tuple(flat.shape), flat.dtype).copy_(flat)

    def _complete(
        self, rows: slice, gradients: Sequence[Tensor], thetas: Sequence[Tensor], anchor: Tensor | None
    ) -> None:
        """Make of gradients, in place, what nodes descend along."""
        if self.clip is not None:
            norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
            shares = (self.clip / (norms + 1e-6)).clamp(max=1)
            for g in gradients:
                g.mul_(_along(shares, g))
        if self.weight_decay:
            for g, theta in zip(gradients, thetas, strict=True):
                g.add_(theta, alpha=self.weight_decay)
        if self.proximal is not None and anchor is not None:
            anchors = self.parts(anchor, slice(None), gradients)
            for g, theta, drawing in zip(gradients, thetas, anchors, strict=True):
                g.add_(theta - drawing, alpha=self.proximal.strength)
        if self.toward is not None:
            _turn(gradients, thetas, self.parts(self.toward, rows, gradients))
        if self.mask is not None:
            for g, mask in zip(gradients, self.parts(self.mask, rows, gradients), strict=True):
                g.mul_(mask)


def _along(values: Tensor, like: Tensor) -> Tensor:
    """Return (k,) numbers in the shape that multiplies (k, ...) ones."""
    return values.view(-1, *[1] * (like.dim() - 1))


def _turn(gradients: Sequence[Tensor], thetas: Sequence[Tensor], towards: Sequence[Tensor]) -> None:
    """Add to gradients, in place, those of ``-<toward, theta> / ||theta||``; where theta is 0 it has none."""
    squares, products = _inner(thetas, thetas), _inner(towards, thetas)
    inverse = torch.where(squares > 0, squares.rsqrt(), 0)
    for g, theta, toward in zip(gradients, thetas, towards, strict=True):
        g.addcmul_(toward, _along(inverse, g), value=-1)
        g.addcmul_(theta, _along(products * inverse**3, g))


def _inner(some: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return (k,) inner products of rows, over all parameters, without a product of each number."""
    pairs = ((a.reshape(len(a), 1, -1), b.reshape(len(b), -1, 1)) for a, b in zip(some, others, strict=True))
    return torch.stack([torch.bmm(a, b).view(-1) for a, b in pairs]).sum(0)


class Job(NamedTuple):
    """Local steps that are to be taken.

    Attributes
    ----------
    descent
        The models, changed in place, and their steps.
    steps
        Their minibatches.
    ahead
        Those on which they look one step ahead, as many, if they do.
    counts
        (n,) how many steps each node takes of them, None: all.
    bad
        (n,) nodes that left the finite numbers, noted here before others can catch it from them.
    freezes
        Whether steps are undone for nodes that they would lead out of the finite numbers, and for bad ones.
    statistics
        Of each node's own gradient in the first step, if wanted.
    """

    descent: Descent
    steps: Sequence[Minibatches]
    counts: np.ndarray | None
    bad: Tensor
    freezes: bool
    statistics: GradientStatistics | None
    ahead: Sequence[Minibatches] = ()

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.descent.models.n

    def idle(self, rows: slice, k: int) -> Tensor | None:
        """Return which of some nodes take no step k any more, None if all do."""
        if self.counts is None or bool((self.counts[rows] > k).all()):
            return None
        return torch.from_numpy(self.counts[rows] <= k).to(self.bad.device)

    def take(
        self,
        rows: slice,
        losses: Tensor,
        gradients: Sequence[Tensor],
        speeds: Sequence[Tensor] | None,
        anchor: Tensor | None = None,
        idle: Tensor | None = None,
    ) -> None:
        """Take a step of those nodes that are neither idle nor frozen; set the losses of idle ones to 0."""
        models, descent = self.descent.models.flat[rows], self.descent
        if idle is not None:
            losses[idle] = 0
        if idle is None and not self.freezes:
            descent(rows, gradients, speeds, anchor)
            return
        before, speeds_before = models.clone(), [v.clone() for v in speeds or ()]
        descent(rows, gradients, speeds, anchor)
        kept = torch.zeros_like(self.bad[rows]) if idle is None else idle
        if self.freezes:
            self.bad[rows] |= ~kept & ~(torch.isfinite(losses) & _finite_rows(models, models.sum(1)))
            kept = kept | self.bad[rows]
        for now, then in zip([models, *(speeds or ())], [before, *speeds_before], strict=True):
            now[kept] = then[kept]


def local_sgd(
    learner: Learner,
    each: Each,
    descent: Descent,
    steps: Sequence[Batch],
    guard: Guard,
    *,
    counts: np.ndarray | None = None,
    bad: Tensor | None = None,
    mix_gradients: Mixer | None = None,
    statistics: GradientStatistics | None = None,
) -> tuple[Tensor, Tensor]:
    """Take one SGD step per given batch, or per two if it looks ahead, on every node, in place; with `counts`, fewer.

    Without gradient mixing each chunk of nodes takes all its steps while it is in cache, and no more than one chunk's
    gradients exist at a time. Nodes that are `bad` from the start, by default those that `guard` has frozen, do not
    train.

    Returns
    -------
    losses
        (n, steps); 0 for steps that were not taken.
    bad
        (n,) which nodes left the finite numbers; those that `guard` freezes keep the last finite model they had.
    """
    bad = guard.frozen(descent.models.flat.device) if bad is None else bad
    minibatches, ahead = [learner.minibatches(batch) for batch in steps], []
    if descent.inner_lr is not None:
        ahead, minibatches = minibatches[::2], minibatches[1::2]
    job = Job(descent, minibatches, counts, bad, guard.policy == "freeze", statistics, ahead)
    if mix_gradients is None:
        return _apart(learner, each, job), bad
    return _together(learner, each, job, mix_gradients, contained=guard.policy != "record"), bad


def _apart(learner: Learner, each: Each, job: Job) -> Tensor:
    """Train every chunk on its own, and return the losses."""
    models, trained = job.descent.models, job.descent.trained
    losses = models.flat.new_zeros(models.n, len(job.steps))
    sums = models.flat.sum(1) if job.counts is not None else models.flat.new_empty(models.n)
    common = _common(job)

    def train(worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        speeds, anchor = job.descent.speeds(rows, worker.buffers), job.descent.anchor(rows, worker.buffers)
        others = None if common is None else common.descent.speeds(rows, worker.buffers, "velocity of the common")
        for k, minibatches in enumerate(job.steps[: None if job.counts is None else job.counts[rows].max()]):
            point = _point(learner, worker, job, rows, k)
            losses[rows, k], gradients = differentiate(learner, worker, models, minibatches, rows, trained, point)
            idle = job.idle(rows, k)
            if k == 0 and job.statistics is not None:
                seen.observe(_of(~job.bad[rows] if idle is None else ~(job.bad[rows] | idle), gradients))
            if common is not None:
                _weigh(job, rows, k, gradients, idle)
            job.take(rows, losses[rows, k], gradients, speeds, anchor, idle)
            if common is not None:
                found = differentiate(learner, worker, common.descent.models, minibatches, rows, trained)
                common.take(rows, *found, others, idle=idle)
        torch.sum(models.flat[rows], 1, out=sums[rows])  # while they are in cache

    _on_chunks(learner, each, job, train)
    found = ~(torch.isfinite(losses).all(1) & _finite_rows(models.flat, sums))
    if common is not None:
        flat = common.descent.models.flat
        found |= ~_finite_rows(flat, flat.sum(1))
    if job.counts is not None:
        found &= torch.from_numpy(job.counts > 0).to(found.device)  # others brought it along
    job.bad.logical_or_(found)
    return losses


def _point(learner: Learner, worker: Worker, job: Job, rows: slice, k: int) -> Sequence[Tensor] | None:
    """Return where the gradients of step k are taken, as parameters; None: at the models."""
    descent = job.descent
    if descent.mixture is not None:
        return mixed(descent.models, descent.mixture, rows, worker.buffers)
    if descent.inner_lr is None:
        return None
    _, gradients = differentiate(learner, worker, descent.models, job.ahead[k], rows, descent.trained)
    return stepped(descent.models, rows, gradients, descent.trained, descent.inner_lr, worker.buffers)


def _common(job: Job) -> Job | None:
    """Return the same steps of the models that are mixed in, if some are."""
    mixture = job.descent.mixture
    if mixture is None:
        return None
    descent = replace(job.descent, models=cast(Population, mixture.common), mixture=None)
    return job._replace(descent=descent, statistics=None)


def _weigh(job: Job, rows: slice, k: int, gradients: Sequence[Tensor], idle: Tensor | None) -> None:
    """Make of the gradients of mixtures, in place, those of the models; the first of them move the shares too."""
    descent, mixture = job.descent, cast(Mixture, job.descent.mixture)
    shares = mixture.share[rows]
    if mixture.adaptive and k == 0:
        shares = shares.clone()
        still = job.bad[rows] if idle is None else job.bad[rows] | idle
        adapt(descent.models, mixture, rows, gradients, descent.trained, descent.lr, still)
    for g in gradients:
        g.mul_(_along(shares, g))


Contain = Callable[[slice, Tensor], None]
"""Notes who of some nodes has left the finite numbers, and keeps their gradients (k, d) from the others, in place."""


class Meeting(NamedTuple):
    """Where the gradients of all nodes meet in a step.

    Attributes
    ----------
    begin
        Starts a step.
    place
        (worker, rows) -> (k, d) memory for the gradients of some nodes.
    add
        (worker, rows, those gradients, contain): they are complete.
    mix
        (contain): mixes them, when all nodes' are.
    mixed
        (worker, rows) -> (k, d) mixed gradients of some nodes, which may be changed.
    """

    begin: Callable[[], None]
    place: Callable[[Worker, slice], Tensor]
    add: Callable[[Worker, slice, Tensor, Contain], None]
    mix: Callable[[Contain], None]
    mixed: Callable[[Worker, slice], Tensor]


def _meeting(learner: Learner, like: Tensor, mixer: Mixer) -> Meeting:
    """Return where gradients meet: in means of groups where these take less memory than all nodes' gradients."""
    if mixer.means is None:
        return _in_full(learner, like, mixer)
    kept = models_kept(len(mixer.means.share), learner.plan.workers, learner.plan.chunk, len(like))
    return _in_full(learner, like, mixer) if kept == len(like) else _in_means(learner, like, mixer.means)


def models_kept(groups: int, workers: int, chunk: int, n: int) -> int:
    """Return how many models' gradients are kept from chunk to chunk while `groups` of n nodes take their means."""
    return min(n, workers * (groups + chunk))


def _in_full(learner: Learner, like: Tensor, mixer: Mixer) -> Meeting:
    """Keep all nodes' gradients; who diverged is looked at once a step."""
    flat = learner.buffers.take("gradients", tuple(like.shape), like.dtype)

    def begin() -> None:
        pass

    def place(worker: Worker, rows: slice) -> Tensor:
        del worker
        return flat[rows]

    def add(worker: Worker, rows: slice, gradients: Tensor, contain: Contain) -> None:
        del worker, rows, gradients, contain  # they are in place

    def mix(contain: Contain) -> None:
        contain(slice(0, len(flat)), flat)
        mixer(flat)

    return Meeting(begin, place, add, mix, place)


def _in_means(learner: Learner, like: Tensor, means: Means) -> Meeting:
    """Add gradients up while they are in cache; 1.2 times as fast as means of all, for 1,000 logistic regressions.

    Each worker has sums of its own: how they are rounded depends on how many workers there are.
    """
    d = like.shape[1]
    sums = [worker.buffers.take("sums of groups", (len(means.share), d), like.dtype) for worker in learner.workers]
    own = {id(worker.buffers): total for worker, total in zip(learner.workers, sums, strict=True)}

    def begin() -> None:
        for total in sums:
            total.zero_()

    def place(worker: Worker, rows: slice) -> Tensor:
        return worker.buffers.take("gradients of a chunk", (len(like[rows]), d), like.dtype)

    def add(worker: Worker, rows: slice, gradients: Tensor, contain: Contain) -> None:
        contain(rows, gradients)
        own[id(worker.buffers)].index_add_(0, means.groups[rows], gradients)

    def mix(contain: Contain) -> None:
        del contain
        for other in sums[1:]:
            sums[0].add_(other)
        sums[0].mul_(means.share)

    def mixed(worker: Worker, rows: slice) -> Tensor:
        return torch.index_select(sums[0], 0, means.groups[rows], out=place(worker, rows))

    return Meeting(begin, place, add, mix, mixed)


def _together(learner: Learner, each: Each, job: Job, mixer: Mixer, contained: bool) -> Tensor:
    """Mix all nodes' gradients in every step, and return the losses.

    Gradients of nodes that have left the finite numbers are `contained`: they count as zero for the others.
    """
    models = job.descent.models
    n, like, meeting = models.n, models.flat, _meeting(learner, models.flat, mixer)
    sums, losses = like.new_empty(n), like.new_empty(n, len(job.steps))
    velocity = job.descent.velocity
    if job.descent.momentum and velocity is None:
        velocity = learner.buffers.take("velocity", tuple(like.shape), like.dtype).zero_()
    anchors = job.descent.anchor(slice(0, n), learner.buffers)

    def contain(k: int, rows: slice, gradients: Tensor) -> None:
        job.bad[rows] |= ~(torch.isfinite(losses[rows, k]) & _finite_rows(gradients, sums[rows]))
        if contained:
            gradients[job.bad[rows]] = 0  # the others do not catch it

    def differentiate_step(k: int, worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        losses[rows, k], gradients = differentiate(learner, worker, models, job.steps[k], rows)
        if k == 0 and job.statistics is not None:
            seen.observe(_of(~job.bad[rows], gradients))
        own = meeting.place(worker, rows)
        for view, g in zip(models.layout.views(own), gradients, strict=True):
            view.copy_(g)
        torch.sum(own, 1, out=sums[rows])
        meeting.add(worker, rows, own, partial(contain, k))

    def descend(k: int, worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        anchor, gradients = None if anchors is None else anchors[rows], meeting.mixed(worker, rows)
        job.take(rows, losses[rows, k], [gradients], None if velocity is None else [velocity[rows]], anchor)
        torch.sum(like[rows], 1, out=sums[rows])

    for k in range(len(job.steps)):
        meeting.begin()
        _on_chunks(learner, each, job, partial(differentiate_step, k))
        meeting.mix(partial(contain, k))
        _on_chunks(learner, each, job, partial(descend, k))
        job.bad.logical_or_(~_finite_rows(like, sums))
    return losses


def all_gradients(
    learner: Learner, each: Each, models: Population, batch: Batch, key: str = ""
) -> tuple[Tensor, Tensor]:
    """Return all nodes' losses (n,) and gradients (n, d) on one minibatch, these in memory used again for the key."""
    minibatches, like = learner.minibatches(batch), models.flat
    place = f"gradients of {key}" if key else "gradients"
    nobody = torch.zeros(models.n, dtype=torch.bool, device=like.device)
    job = Job(Descent(models, lr=0.0), [minibatches], None, nobody, freezes=False, statistics=None)
    flat = learner.buffers.take(place, tuple(like.shape), like.dtype)
    views, losses = models.layout.views(flat), like.new_empty(models.n)

    def work(worker: Worker, rows: slice, seen: GradientStatistics) -> None:
        del seen
        losses[rows], gradients = differentiate(learner, worker, models, minibatches, rows)
        for view, g in zip(views, gradients, strict=True):
            view[rows].copy_(g)

    _on_chunks(learner, each, job, work)
    return losses, flat


def differentiate(
    learner: Learner,
    worker: Worker,
    models: Population,
    minibatches: Minibatches,
    rows: slice,
    trained: Sequence[int] | None = None,
    point: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return losses (k,) of some nodes on their minibatches, and their gradients, of all or the trained parameters.

    They are those of the models, or of parameters (k, *shape) at another `point`.
    """
    indices = minibatches.indices[rows]
    weights = None if minibatches.weights is None else minibatches.weights[rows]
    choices = None if minibatches.choices is None else minibatches.choices[rows].view(-1)
    inputs = learner.examples.gather(indices.view(-1), worker.buffers, choices).unflatten(0, indices.shape)
    targets = torch.index_select(learner.targets, 0, indices.view(-1)).unflatten(0, indices.shape)
    parameters = [view[rows] for view in models.views] if point is None else point
    return worker.gradients(parameters, inputs, targets, weights, trained)


def _on_chunks(
    learner: Learner, each: Each, job: Job, function: Callable[[Worker, slice, GradientStatistics], None]
) -> None:
    """Call `function` for every chunk of nodes that take a step; each worker has its share of them."""
    workers = len(learner.workers)
    chunks, seen = _chunks(job, learner.plan.chunk), [GradientStatistics() for _ in learner.workers]

    def work(k: int) -> None:
        own = slice(k * len(chunks) // workers, (k + 1) * len(chunks) // workers)  # neighbors
        for rows in chunks[own if job.counts is None else slice(k, None, workers)]:
            function(learner.workers[k], rows, seen[k])

    each(work, range(workers))
    if job.statistics is not None:
        for found in seen:
            job.statistics.add(found)


def _chunks(job: Job, size: int) -> list[slice]:
    """Return chunks of nodes that take steps, those that take most first."""
    chunks = [slice(start, min(start + size, job.n)) for start in range(0, job.n, size)]
    if job.counts is None:
        return chunks
    most = [int(job.counts[chunk].max()) for chunk in chunks]
    return [chunks[k] for k in sorted(range(len(chunks)), key=lambda k: -most[k]) if most[k]]


def _of(rows: Tensor, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of some rows, (k,) booleans."""
    return gradients if bool(rows.all()) else [g[rows] for g in gradients]


def _finite_rows(values: Tensor, sums: Tensor) -> Tensor:
    """Return which rows hold only finite numbers; `sums` are theirs. Sums of finite numbers may overflow."""
    finite = torch.isfinite(sums)
    return finite if bool(finite.all()) else torch.isfinite(values).all(1)
