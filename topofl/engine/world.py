"""What a run is made of, and what its phases see of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from topofl._seeding import stream
from topofl.algorithms.parts import Part
from topofl.algorithms.phase import Algorithm, LocalSGD, Models, Proximal, Rule
from topofl.data import Augmentation, Partition
from topofl.engine.batches import Batch, Batches
from topofl.engine.buffers import Buffers
from topofl.engine.checks import check_batched, check_output
from topofl.engine.divergence import Diverged, Guard
from topofl.engine.diversity import GradientStatistics
from topofl.engine.evaluate import Evaluated
from topofl.engine.examples import Examples
from topofl.engine.executors import Descent, Learner, Worker, all_gradients, differentiate, local_sgd
from topofl.engine.forward import Order, image_order, is_linear
from topofl.engine.free_memory import free_memory
from topofl.engine.gradients import new_gradients
from topofl.engine.memory import check_memory, facts_of, fits_into, largest_batch
from topofl.engine.mixer import Mixer, mixer
from topofl.engine.plan import Compute, Plan, Trial, choose_plan
from topofl.engine.population import Population, check_model, initial_population
from topofl.engine.recorder import Ledger
from topofl.engine.threads import Each, worker_threads
from topofl.mixing import MixingMatrix, metropolis_or_uniform, own_weights, uniform
from topofl.topology import Topology, TopologySequence

__all__ = ["World", "WorldRound", "as_rule", "checked_model"]


@dataclass(frozen=True, eq=False)
class World:
    """Everything that stays the same from round to round (the models' numbers, and who diverged, apart)."""

    module: nn.Module
    models: Population
    learner: Learner
    guard: Guard
    graphs: Topology | TopologySequence
    seed: int
    share: Part
    rule: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]
    mixer: Callable[[MixingMatrix], Mixer]

    @classmethod
    def build(
        cls,
        algorithm: Algorithm,
        model: nn.Module,
        clients: Partition,
        graphs: Topology | TopologySequence,
        mixing: Rule | MixingMatrix | None,
        seed: int,
        init: str,
        compute: Compute,
        on_divergence: str,
        sets: Sequence[Evaluated],
        augment: Augmentation | None,
    ) -> "World":
        """Check that the run fits into memory, put models and data on the device and choose how to compute.

        Raises
        ------
        ValueError
            If the model does not fit the data, or the run the free memory.
        """
        module, few = checked_model(model, clients, compute)
        order = image_order(module, few, compute.channels_last)
        rule = as_rule(mixing, algorithm.pushes)
        resolve = lru_cache(maxsize=max(64, graphs.period or 0))(_weights_on)
        mixes = algorithm.needs_topology and any(phase.exchanges == "models" for phase in algorithm.phases.values())
        matrices = [resolve(rule, graphs.at(0))] if mixes else []
        facts = facts_of(algorithm, module, few, order, clients, matrices, sets, compute, augment)
        check_memory(facts, compute, free := free_memory(compute.device))

        def plan(trial: Trial) -> Plan:
            return choose_plan(compute, is_linear(module), facts.sizes, trial, fits_into(facts, free))

        examples = Examples.of(clients.dataset, compute.device, compute.dtype, augment)
        models = initial_population(module, clients.n, init=init, seed=seed, device=compute.device, dtype=compute.dtype)
        return cls(
            module,
            models,
            new_learner(module, order, models, examples, clients, seed, compute, largest_batch(algorithm), plan),
            Guard(on_divergence, clients.n),
            graphs,
            seed,
            algorithm.share,
            rule,
            resolve,
            lru_cache(maxsize=max(64, graphs.period or 0))(_mixer_for(models)),
        )

    @contextmanager
    def threads(self) -> Iterator[Each]:
        """Use the threads that were planned, and put torch's setting back.

        Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy one: more than all the
        work of a step with 50 nodes and logistic regression on digits.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(self.learner.plan.threads)
        try:
            with worker_threads(self.learner.plan.workers) as each:
                yield each
        finally:
            torch.set_num_threads(before)

    def push_weights(self, graph: Topology) -> MixingMatrix:
        """Return the matrix by which nodes of a graph push, by the run's rule."""
        weights = self.resolve(self.rule, graph)
        if not weights.is_column_stochastic:
            raise ValueError(
                f"`mixing` must have columns that sum to 1 to push models, {weights.name} is only row stochastic; "
                "use uniform(topology, direction='push'), or leave it out"
            )
        return weights

    def weights(self, graph: Topology, rule: Rule | None = None) -> MixingMatrix:
        """Return the mixing matrix of a graph, by the run's rule unless another is given."""
        weights = self.resolve(rule or self.rule, graph)
        if not weights.is_row_stochastic:
            raise ValueError(
                f"`mixing` must have rows that sum to 1 to average models, {weights.name} is only column stochastic; "
                "use uniform(topology, direction='pull')"
            )
        return weights


def checked_model(model: nn.Module, clients: Partition, compute: Compute) -> tuple[nn.Module, Tensor]:
    """Return a copy of the model, and at most two examples, both on the device; or raise if they do not fit."""
    module = check_model(model).to(device=compute.device, dtype=compute.dtype)
    few = clients.dataset.examples(range(min(2, len(clients.dataset.labels))), compute.dtype).to(compute.device)
    check_output(module, few, clients.n_classes)
    if compute.executor == "batched":
        check_batched(module, few)
    return module, few


def new_learner(
    module: nn.Module,
    order: Order,
    models: Population,
    examples: Examples,
    clients: Partition,
    seed: int,
    compute: Compute,
    batch_size: int,
    choose: Callable[[Trial], Plan],
) -> Learner:
    """Return the learner of a run, planned by trials on its largest minibatches."""
    batches = Batches(clients.train, seed, examples.augment)
    labels = clients.dataset.labels.to(compute.device)

    def learner(plan: Plan) -> Learner:
        return Learner(
            plan,
            [worker(plan.executor) for _ in range(plan.workers)],
            examples,
            labels,
            batches,
            Buffers(compute.device),
        )

    def worker(executor: str) -> Worker:
        buffers = Buffers(compute.device)
        return Worker(new_gradients(module, executor, order, buffers, compute), buffers)

    def trial(executor: str, chunk: int, nodes: int) -> None:
        tried = learner(Plan(executor, chunk, 1, 1))
        minibatches = tried.minibatches(batches.at(0, batch_size, "probe"))
        with _told_of_compiling(compute.compile):
            differentiate(tried, tried.workers[0], models, minibatches, slice(0, nodes))

    plan = choose(trial)
    if compute.compile:
        trial(plan.executor, 1, 1)
    return learner(plan)


@contextmanager
def _told_of_compiling(compiled: bool) -> Iterator[None]:
    """Turn what compilers raise into one message."""
    try:
        yield
    except RuntimeError as error:
        if not compiled:
            raise
        raise ValueError(
            "`compile` must be False for this model on this machine, torch cannot compile it: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error


def _weights_on(rule: Rule, graph: Topology) -> MixingMatrix:
    """Return the matrix that a rule gives a graph, checked."""
    weights = rule(graph)
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`mixing` must return a MixingMatrix, got {type(weights).__name__}; use from_weights(weights, graph)"
        )
    return weights.check_on(graph)


def _mixer_for(models: Population) -> Callable[[MixingMatrix], Mixer]:
    return lambda weights: mixer(weights, models.flat.device, models.flat.dtype)


def as_rule(mixing: Rule | MixingMatrix | None, pushes: bool = False) -> Rule:
    """Return the weight rule of a run; a fixed matrix becomes the rule that checks it on each graph."""
    if mixing is None:
        return _pushed if pushes else metropolis_or_uniform
    if not isinstance(mixing, MixingMatrix) and not callable(mixing):
        raise TypeError(
            f"`mixing` must be a weight rule such as mixing.metropolis_hastings or a MixingMatrix, got {mixing!r}"
        )
    return mixing.check_on if isinstance(mixing, MixingMatrix) else mixing


def _pushed(graph: Topology) -> MixingMatrix:
    return own_weights(graph) if graph.own_weights else uniform(graph, direction="push")


@dataclass(eq=False)
class WorldRound:
    """The round that phases see; see :class:`topofl.algorithms.phase.Round`."""

    world: World
    each: Each
    t: int
    statistics: GradientStatistics | None
    phase: str = ""
    only: np.ndarray | None = None
    losses: Tensor | None = None
    lr: float | None = None
    used: MixingMatrix | None = None
    diverged: list[Diverged] = field(default_factory=list)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.world.models.flat.element_size())
        self.topology = self.world.graphs.at(self.t)

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; asking for it records it as used."""
        self.used = self.world.weights(self.topology)
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column stochastic matrix of the round; asking for it records it as used."""
        self.used = self.world.push_weights(self.topology)
        return self.used

    @property
    def sizes(self) -> np.ndarray:
        """See the protocol."""
        return self.world.learner.batches.sizes

    def rng(self, purpose: str) -> np.random.Generator:
        """See the protocol."""
        return stream(self.world.seed, purpose, self.t)

    def local_sgd(
        self,
        models: Models,
        how: LocalSGD,
        *,
        velocity: Tensor | None = None,
        proximal: Proximal | None = None,
        mask: Tensor | None = None,
        who: np.ndarray | None = None,
    ) -> None:
        """See the protocol."""
        world = self.world
        counts = self._counts(how, who)
        if not counts.any():
            return
        steps = int(counts.max())
        even = bool((counts == steps).all())
        firsts = self.t * how.counts(self.sizes)
        batches = [world.learner.batches.at(firsts + k, how.batch_size, self.phase) for k in range(steps)]
        descent = self._descent(cast(Population, models), how, velocity, proximal, mask)
        bad = world.guard.frozen(models.flat.device)
        mix_gradients = None if how.gradient is None else self._gradient_mixer(how.gradient, steps)
        statistics = None if self.losses is not None else self.statistics  # of the first phase that trains
        options = {"mix_gradients": mix_gradients, "statistics": statistics}
        if even or world.learner.plan.chunk == 1:
            options["counts"] = None if even else counts
            losses, bad = local_sgd(world.learner, self.each, descent, batches, world.guard, bad=bad, **options)
        else:
            losses = self._compact(descent, batches, counts, bad, options)
        self._note(losses, bad, counts, how.lr, predicts=models is world.models)

    def _counts(self, how: LocalSGD, who: np.ndarray | None) -> np.ndarray:
        """Return how many steps each node takes: none where it does not take part, or the round is not about it."""
        counts = how.counts(self.sizes)
        for taking_part in (who, self.only):
            counts = counts if taking_part is None else np.where(taking_part, counts, 0)
        return counts

    def _descent(
        self,
        models: Population,
        how: LocalSGD,
        velocity: Tensor | None,
        proximal: Proximal | None,
        mask: Tensor | None,
    ) -> Descent:
        layout = models.layout
        trained = None if how.train.is_everything else tuple(how.train.places(layout.names))
        weighted = () if bool((models.mass == 1).all()) else tuple(self.world.share.places(layout.names))
        return Descent(
            models, how.lr, how.momentum, velocity, how.weight_decay, how.clip, trained, proximal, mask,
            models.mass if weighted else None, weighted,
        )  # fmt: skip

    def _compact(
        self, descent: Descent, batches: Sequence[Batch], counts: np.ndarray, bad: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """Train in one piece the nodes that take steps, those that take most first; return all losses."""
        world = self.world
        nodes = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        rows = torch.from_numpy(nodes).to(bad.device)
        models = descent.models.like(descent.models.flat[rows])
        small = replace(
            descent,
            models=models,
            **{name: _taken(getattr(descent, name), rows) for name in ("velocity", "mask", "mass")},
            proximal=descent.proximal and Proximal(descent.proximal.anchor[rows], descent.proximal.strength),
        )
        few = [batch.of(nodes) for batch in batches]
        some, found = local_sgd(
            world.learner, self.each, small, few, world.guard, counts=counts[nodes], bad=bad[rows], **options
        )
        descent.models.flat[rows], bad[rows] = models.flat, found
        if descent.velocity is not None and small.velocity is not None:
            descent.velocity[rows] = small.velocity
        losses = some.new_zeros(len(counts), some.shape[1])
        losses[rows] = some
        return losses

    def _note(self, losses: Tensor, bad: Tensor, counts: np.ndarray, lr: float, predicts: bool) -> None:
        """Keep the losses of the last phase that trains the models that predict, and who diverged."""
        taken = torch.from_numpy(counts).to(losses.device)
        idle = self.world.guard.frozen(losses.device) | (taken == 0)  # what they computed is not theirs
        if predicts or self.losses is None:
            self.losses, self.lr = (losses.sum(1) / taken.clamp(min=1)).masked_fill(idle, torch.nan), lr
        self.diverged += self.world.guard.note(losses, bad, self.t, lr)

    def gradients(self, models: Models, batch_size: int) -> Tensor:
        """See the protocol."""
        learner = self.world.learner
        batch = learner.batches.at(self.t, batch_size, self.phase)
        return all_gradients(learner, self.each, cast(Population, models), batch)

    def _gradient_mixer(self, rule: Rule, steps: int) -> Callable[[Tensor], None]:
        weights = self.world.weights(self.topology, rule)
        for _ in range(steps):
            self.ledger.add(weights, self.world.models.layout.d, gradients=True)
        return partial(self._mix, weights)

    def _mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """Mix without counting; each worker takes a share of the columns."""
        mix = self.world.mixer(weights)
        self.each(mix, values.tensor_split(self.world.learner.plan.workers if mix.by_columns else 1, dim=1))

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See the protocol."""
        parts = [values[:, part] for part in columns]
        if counted:
            self.ledger.add(weights, sum(part.shape[1] for part in parts) + scalars, server=server)
        self.used = self.used or weights
        for part in parts:
            self._mix(weights, part)

    def send(self, weights: MixingMatrix, nbytes: int | np.ndarray) -> None:
        """See the protocol."""
        self.ledger.send(weights, nbytes)
        self.used = self.used or weights


def _taken(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows]
