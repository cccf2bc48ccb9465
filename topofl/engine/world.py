"""What a run is made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import nn

from topofl.algorithms.parts import Part
from topofl.algorithms.phase import Rule
from topofl.data import Partition
from topofl.engine.batches import Batches
from topofl.engine.buffers import Buffers
from topofl.engine.divergence import Guard
from topofl.engine.evaluate import Way, way_of
from topofl.engine.examples import Examples
from topofl.engine.executors import Learner, Worker, differentiate
from topofl.engine.forward import Order, image_order, is_linear
from topofl.engine.free_memory import free_memory
from topofl.engine.gradients import new_gradients
from topofl.engine.memory import check_memory, facts_of, fits_into, groups_of, largest_batch
from topofl.engine.mixer import Mixer, mixer
from topofl.engine.plan import Backend, Plan, Trial, choose_plan
from topofl.engine.population import Layout, Population, initial_population
from topofl.engine.rehearsal import check_phases
from topofl.engine.setup import Setup
from topofl.engine.threads import Each, torch_threads, worker_threads
from topofl.mixing import (
    MixingMatrix,
    check_pulls,
    check_pushes,
    warning_once,
)
from topofl.topology import Topology, TopologySequence

__all__ = ["World"]


@dataclass(frozen=True, eq=False)
class World:
    """Everything that stays the same from round to round (the models' numbers, and who diverged, apart)."""

    module: nn.Module
    evaluated: Way
    models: Population
    learner: Learner
    guard: Guard
    graphs: Topology | TopologySequence
    seed: int
    share: Part
    pushed: Part
    rule: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]
    held: Mapping[str, Sequence[np.ndarray]]
    mixer: Callable[[MixingMatrix], Mixer]

    @classmethod
    def build(cls, setup: Setup, compute: Backend) -> "World":
        """Check that the run fits into memory, put models and data on the device and choose how to compute.

        Raises
        ------
        ValueError
            If the run does not fit into the free memory.
        """
        algorithm, module, clients, graphs = setup.algorithm, setup.module, setup.clients, setup.graphs
        order, way = image_order(module, setup.sample, compute.channels_last), way_of(module, setup.sample)
        rule = setup.rule
        if setup.mixing is None and graphs.period is None:  # run has looked at all rounds of a period
            rule = warning_once(rule, "mixing", pushes=algorithm.pushes)
        resolve = lru_cache(maxsize=max(64, graphs.period or 0))(_weights_on)
        first = graphs.at(0)
        if not first.adjacency.nnz:  # where mixing would change nothing, unnoticed
            sizes, layout = np.array(list(map(len, clients.train))), Layout.of(module)
            check_phases(algorithm, layout, first, lambda own: resolve(rule, own), compute.dtype, sizes, setup.seed)
        mixes = algorithm.needs_topology and any(phase.exchanges == "models" for phase in algorithm.phases.values())
        matrices = [resolve(rule, first)] if mixes else []
        groups = groups_of(algorithm, graphs, lambda own: resolve(own, first), compute)
        facts = facts_of(
            algorithm, module, setup.sample, order, way, clients, matrices, list(setup.sets.values()), compute,
            clients.augment, groups,
        )  # fmt: skip
        check_memory(facts, compute, free := free_memory(compute.device))

        def plan(trial: Trial) -> Plan:
            return choose_plan(compute, is_linear(module), facts.sizes, trial, fits_into(facts, free))

        examples = Examples.of(clients.dataset, compute.device, compute.dtype, clients.augment)
        models = initial_population(
            module, clients.n, init=setup.init, seed=setup.seed, device=compute.device, dtype=compute.dtype
        )
        return cls(
            module,
            way,
            models,
            new_learner(module, order, models, examples, clients, setup.seed, compute, largest_batch(algorithm), plan),
            Guard(setup.compute.on_divergence, clients.n),
            graphs,
            setup.seed,
            algorithm.share,
            algorithm.pushed,
            rule,
            resolve,
            {"train": clients.train, "val": clients.val},
            lru_cache(maxsize=1 if algorithm.chooses else max(64, graphs.period or 0))(_mixer_for(models)),
        )

    @contextmanager
    def threads(self) -> Iterator[Each]:
        """Use the threads that were planned, and put torch's setting back.

        Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy one: more than all the
        work of a step with 50 nodes and logistic regression on digits.
        """
        with torch_threads(self.learner.plan.threads), worker_threads(self.learner.plan.workers) as each:
            yield each

    def push_weights(self, graph: Topology) -> MixingMatrix:
        """Return the matrix by which nodes of a graph push, by the run's rule."""
        return check_pushes(self.resolve(self.rule, graph))

    def weights(self, graph: Topology, rule: Rule | None = None) -> MixingMatrix:
        """Return the mixing matrix of a graph, by the run's rule unless another is given."""
        return check_pulls(self.resolve(rule or self.rule, graph))


def new_learner(
    module: nn.Module,
    order: Order,
    models: Population,
    examples: Examples,
    clients: Partition,
    seed: int,
    compute: Backend,
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
            for start in range(0, nodes, chunk):
                differentiate(tried, tried.workers[0], models, minibatches, slice(start, min(start + chunk, nodes)))

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
