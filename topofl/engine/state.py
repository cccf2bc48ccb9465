"""The state of a run: models, learner, graphs, mixing and divergence monitor."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from topofl._support.torchrun import processes_on_machine
from topofl.engine.distributed.shard import Shard, shard_of
from topofl.engine.dry_run import Trace
from topofl.engine.evaluation import Evaluated, EvaluationPlan, evaluation_plan
from topofl.engine.mapped_files import MappedFiles
from topofl.engine.memory import Footprint, footprint, free_memory
from topofl.engine.mixing import ActiveAttack, Mixing
from topofl.engine.population import Population, initial_population
from topofl.engine.ranks import Ranks
from topofl.engine.requests import Inputs
from topofl.engine.setup import Setup
from topofl.engine.train.batches import Batches
from topofl.engine.train.buffers import Buffers
from topofl.engine.train.divergence import DivergenceMonitor
from topofl.engine.train.examples import Examples
from topofl.engine.train.forward import Order, is_linear
from topofl.engine.train.gradients import new_gradients
from topofl.engine.train.learner import Learner, Worker, differentiate
from topofl.engine.train.plan import Backend, Plan, TimingTrial, choose_plan
from topofl.engine.train.workers import ParallelMap, torch_threads, worker_threads
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence

__all__ = ["RunState"]


@dataclass(frozen=True, eq=False)
class RunState:
    """State of a run that lasts from round to round: models, learner, graphs and mixers."""

    module: nn.Module
    task: Task
    evaluation_plan: EvaluationPlan
    models: Population
    learner: Learner
    monitor: DivergenceMonitor
    graphs: Topology | TopologySequence
    inputs: Inputs
    trace: Trace
    examples_of_nodes: Mapping[str, Sequence[np.ndarray]]
    mixing: Mixing
    sets: Mapping[str, Evaluated]
    ranks: Ranks
    files: MappedFiles | None = None

    @classmethod
    def build(
        cls,
        setup: Setup,
        compute: Backend,
        ranks: Ranks,
        files: MappedFiles | None = None,
    ) -> "RunState":
        """Return the state before round 0 of the nodes of this rank, on the device.

        With `files`, the models are in one of them.

        Raises
        ------
        ValueError
            If the run does not fit into free memory.
        """
        module, clients, graphs = setup.module, setup.clients, setup.graphs
        order = setup.order
        targets = clients.dataset.learned(compute.dtype)[:2].to(compute.device)
        how_evaluated = evaluation_plan(module, setup.sample, setup.task, targets)
        shard = shard_of(clients, setup.sets, ranks)
        choose = _plan_chooser(setup, compute, how_evaluated, ranks, shard)
        examples = Examples.of(shard.dataset, compute.device, compute.dtype, clients.augment)
        models = _initial_models(setup, compute, ranks, files)
        learner = new_learner(
            module, order, models, examples, shard, setup.seed, compute,
            int(setup.trace.batch_sizes().max()), choose, setup.task, ranks,
        )  # fmt: skip
        attack = setup.attack
        active_attack = attack and ActiveAttack(attack, clients.n, setup.seed, compute.device)
        known_matrices = 1 if setup.trace.chooses else max(64, graphs.period or 0)
        return cls(
            module=module,
            task=setup.task,
            evaluation_plan=how_evaluated,
            models=models,
            learner=learner,
            monitor=DivergenceMonitor(
                setup.compute.on_divergence,
                clients.n,
                attack=str(attack) if attack else "",
                labels=graphs.nodes,
            ),
            graphs=graphs,
            inputs=setup.inputs,
            trace=setup.trace,
            examples_of_nodes=shard.examples_of_nodes,
            mixing=Mixing(ranks, compute.dtype, known_matrices, active_attack, files),
            sets=shard.sets,
            files=files,
            ranks=ranks,
        )

    @contextmanager
    def threads(self) -> Iterator[ParallelMap]:
        """Use the number of threads of the plan; torch's setting is restored afterwards.

        Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy
        one: more than a whole step with 50 nodes and logistic regression on digits.
        """
        with (
            torch_threads(self.learner.plan.threads),
            worker_threads(self.learner.plan.workers) as parallel_map,
        ):
            yield parallel_map


def _initial_models(
    setup: Setup, compute: Backend, ranks: Ranks, files: MappedFiles | None
) -> Population:
    """Return the models of the nodes of this rank at the start of a run."""
    return initial_population(
        setup.module,
        setup.clients.n,
        init=setup.init,
        seed=setup.seed,
        device=compute.device,
        dtype=compute.dtype,
        graph=setup.graphs if isinstance(setup.graphs, Topology) else None,
        ranks=ranks,
        new=None if files is None else files.new,
    )


def _plan_chooser(
    setup: Setup,
    compute: Backend,
    how_evaluated: EvaluationPlan,
    ranks: Ranks,
    shard: Shard,
) -> Callable[[TimingTrial], Plan]:
    """Return the function that chooses a plan by timing trials, on rank 0 for all ranks.

    Raises ``ValueError`` if the run does not fit into memory.
    """
    need = _need_of_rank(
        footprint(setup, how_evaluated, list(setup.trace.rounds[0].mixed)), shard, setup
    )
    free = free_memory(compute.device)
    if free is not None and compute.device.type == "cpu":
        free //= processes_on_machine()  # which start together
    need.check(compute, free)
    linear = is_linear(setup.module)

    def choose(trial: TimingTrial) -> Plan:
        return choose_plan(compute, linear, need.sizes, trial, need.fits_into(free))

    # all ranks use the executor that rank 0 timed
    unknown = Plan("", 0, 0, 0)
    return lambda trial: ranks.of_first(choose(trial) if ranks.is_first else unknown)


def _need_of_rank(need: Footprint, shard: Shard, setup: Setup) -> Footprint:
    """Return the memory of a rank, which holds some of the nodes and examples."""
    whole = setup.clients.dataset
    if shard.dataset is whole:
        return need
    data = need.of_run["data"] * len(shard.dataset.inputs) // len(whole.inputs)
    return replace(need.of_first(len(shard.members), data=data), held=0)


def new_learner(
    module: nn.Module,
    order: Order,
    models: Population,
    examples: Examples,
    shard: Shard,
    seed: int,
    compute: Backend,
    batch_size: int,
    choose: Callable[[TimingTrial], Plan],
    task: Task,
    ranks: Ranks,
) -> Learner:
    """Return the learner of a run, with a plan chosen by trials on its largest minibatches."""
    batches = Batches(shard.members, seed, examples.augment, ranks.nodes)
    targets = shard.dataset.learned(compute.dtype).to(compute.device)

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
        (minibatches,) = tried.minibatches([batches.at(0, batch_size, "probe")])
        with _explaining_compile_errors(compute.compile):
            for start in range(0, nodes, chunk):
                differentiate(
                    tried,
                    tried.workers[0],
                    models,
                    minibatches,
                    slice(start, min(start + chunk, nodes)),
                )

    plan = choose(trial)
    if compute.compile:
        trial(plan.executor, 1, 1)
    return learner(plan)


@contextmanager
def _explaining_compile_errors(compiled: bool) -> Iterator[None]:
    """Turn the errors of ``torch.compile`` into one ``ValueError``."""
    try:
        yield
    except RuntimeError as error:
        if not compiled:
            raise
        raise ValueError(
            "`compile` must be False for this model on this machine, torch cannot compile it: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error
