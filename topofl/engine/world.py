"""What a run is made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor, nn

from topofl._check import shown
from topofl.algorithms.parts import Part
from topofl.algorithms.phase import Algorithm, Rule
from topofl.data import Augmentation, Partition
from topofl.engine.batches import Batches
from topofl.engine.buffers import Buffers
from topofl.engine.checks import check_batched, check_output
from topofl.engine.divergence import Guard
from topofl.engine.evaluate import Evaluated, Way, way_of
from topofl.engine.examples import Examples
from topofl.engine.executors import Learner, Worker, differentiate
from topofl.engine.forward import Order, image_order, is_linear
from topofl.engine.free_memory import free_memory
from topofl.engine.gradients import new_gradients
from topofl.engine.memory import check_memory, facts_of, fits_into, groups_of, largest_batch
from topofl.engine.mixer import Mixer, mixer
from topofl.engine.plan import Compute, Plan, Trial, choose_plan
from topofl.engine.population import Layout, Population, check_model, initial_population
from topofl.engine.rehearsal import check_phases
from topofl.engine.task_checks import check_task
from topofl.engine.threads import Each, torch_threads, worker_threads
from topofl.mixing import (
    MixingMatrix,
    check_pulls,
    check_pushes,
    metropolis_or_uniform,
    own_weights,
    uniform,
    warning_once,
)
from topofl.tasks import Task, cross_entropy
from topofl.topology import Topology, TopologySequence

__all__ = ["World", "as_rule", "checked_model"]


@dataclass(frozen=True, eq=False)
class World:
    """Everything that stays the same from round to round (the models' numbers, and who diverged, apart)."""

    module: nn.Module
    task: Task
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
        task: Task,
    ) -> "World":
        """Check that the run fits into memory, put models and data on the device and choose how to compute.

        Raises
        ------
        ValueError
            If the model does not fit the data, or the run the free memory.
        """
        module, few = checked_model(model, clients, compute, task)
        order = image_order(module, few, compute.channels_last)
        rule = as_rule(mixing, algorithm.pushes)
        if mixing is None and graphs.period is None:  # run has looked at all rounds of a period
            rule = warning_once(rule, "mixing", pushes=algorithm.pushes)
        resolve = lru_cache(maxsize=max(64, graphs.period or 0))(_weights_on)
        first = graphs.at(0)
        if not first.adjacency.nnz:  # where mixing would change nothing, unnoticed
            sizes, layout = np.array(list(map(len, clients.train))), Layout.of(module)
            check_phases(algorithm, layout, first, lambda own: resolve(rule, own), compute.dtype, sizes, seed)
        mixes = algorithm.needs_topology and any(phase.exchanges == "models" for phase in algorithm.phases.values())
        matrices = [resolve(rule, first)] if mixes else []
        way = way_of(module, few, task, clients.dataset.learned(compute.dtype)[:2].to(compute.device))
        groups = groups_of(algorithm, graphs, lambda own: resolve(own, first), compute)
        facts = facts_of(algorithm, module, few, order, way, clients, matrices, sets, compute, augment, groups, task)
        check_memory(facts, compute, free := free_memory(compute.device))

        def plan(trial: Trial) -> Plan:
            return choose_plan(compute, is_linear(module), facts.sizes, trial, fits_into(facts, free))

        examples = Examples.of(clients.dataset, compute.device, compute.dtype, augment)
        models = initial_population(module, clients.n, init=init, seed=seed, device=compute.device, dtype=compute.dtype)
        return cls(
            module,
            task,
            way,
            models,
            new_learner(module, order, models, examples, clients, seed, compute, largest_batch(algorithm), plan, task),
            Guard(on_divergence, clients.n),
            graphs,
            seed,
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


def checked_model(model: nn.Module, clients: Partition, compute: Compute, task: Task) -> tuple[nn.Module, Tensor]:
    """Return a copy of the model, and at most two examples, both on the device; or raise if they do not fit."""
    module = check_model(model).to(device=compute.device, dtype=compute.dtype)
    few = clients.dataset.examples(range(min(2, len(clients.dataset.labels))), compute.dtype).to(compute.device)
    known = task.loss is cross_entropy and clients.dataset.targets is None
    check_output(module, few, clients.n_classes if known else None)
    check_task(module, few, clients.dataset, task)
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
    task: Task,
) -> Learner:
    """Return the learner of a run, planned by trials on its largest minibatches."""
    batches = Batches(clients.train, seed, examples.augment)
    targets = clients.dataset.learned(compute.dtype).to(compute.device)

    def learner(plan: Plan) -> Learner:
        return Learner(
            plan,
            [worker(plan.executor) for _ in range(plan.workers)],
            examples,
            targets,
            batches,
            Buffers(compute.device),
        )

    def worker(executor: str) -> Worker:
        buffers = Buffers(compute.device)
        return Worker(new_gradients(module, executor, order, buffers, compute, task), buffers)

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


def as_rule(mixing: Rule | MixingMatrix | None, pushes: bool = False) -> Rule:
    """Return the weight rule of a run; a fixed matrix becomes the rule that checks it on each graph."""
    if mixing is None:
        return _pushed if pushes else metropolis_or_uniform
    if not isinstance(mixing, MixingMatrix) and not callable(mixing):
        raise TypeError(
            f"`mixing` must be a weight rule such as mixing.metropolis_hastings or a MixingMatrix, got {shown(mixing)}"
        )
    return mixing.check_on if isinstance(mixing, MixingMatrix) else mixing


def _pushed(graph: Topology) -> MixingMatrix:
    """Return the default weights of an algorithm that pushes, or raise ``ValueError`` if the graph's own cannot."""
    if not graph.own_weights:
        return uniform(graph, direction="push")
    weights = own_weights(graph)
    if not weights.is_column_stochastic:
        sums = weights.weights.sum(axis=0)
        node = int(np.abs(sums - 1).argmax())
        raise ValueError(
            f"`topology` must, with `own_weights`, have columns that sum to 1 to push models: what node {node} of "
            f"{graph.name} keeps and what others take from it sum to {sums[node]:.6g}; push in equal shares by "
            "mixing=functools.partial(mixing.uniform, direction='push'), or average by an algorithm such as dsgd"
        )
    return weights
