"""The state of a run: models, executor, graphs, mixing and divergence monitor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from topofl._support.torchrun import processes_on_machine
from topofl.engine.divergence import DivergenceMonitor
from topofl.engine.evaluation import Evaluated, EvaluationPlan
from topofl.engine.executor import Executor, new_executor
from topofl.engine.footprint import Footprint, footprint
from topofl.engine.gradients import is_linear
from topofl.engine.memory import MappedFiles, free_memory
from topofl.engine.minibatches import Batches, Examples
from topofl.engine.mixing import Mixing
from topofl.engine.plan import Plan, TimingTrial, choose_plan, least_plans
from topofl.engine.population import Population, initial_population
from topofl.engine.ranks import Ranks
from topofl.engine.requests import Inputs, Trace
from topofl.engine.setup import Setup
from topofl.engine.shards import Shard, shard_of
from topofl.topology import Topology, TopologySequence

__all__ = ["RunState"]


@dataclass(frozen=True, eq=False)
class RunState:
    """State of a run that lasts from round to round: models, executor, graphs and mixers."""

    evaluation_plan: EvaluationPlan
    models: Population
    executor: Executor
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
        plan: Plan | None,
        ranks: Ranks,
        files: MappedFiles | None = None,
    ) -> "RunState":
        """Return the state before round 0 of the nodes of this rank, on the device.

        With a `plan`, none is chosen. With `files`, the models are in one of them.

        Raises
        ------
        ValueError
            If the run does not fit into free memory.
        """
        module, clients, graphs = setup.module, setup.clients, setup.graphs
        order, compute, device = setup.order, setup.compute, setup.device
        shard = shard_of(clients, setup.sets, ranks)
        choose = _plan_chooser(setup, plan, ranks, shard)
        examples = Examples.of(shard.dataset, device, compute.dtype, clients.augment)
        models = _initial_models(setup, ranks, files)
        executor = new_executor(
            module, order, models, examples,
            shard.dataset.learned(compute.dtype).to(device),
            Batches(shard.members, setup.seed, examples.augment, ranks.nodes), compute, setup.task,
            int(setup.trace.batch_sizes().max()), choose,
        )  # fmt: skip
        attack = setup.attack
        known_matrices = 1 if setup.trace.chooses else max(64, graphs.period or 0)
        return cls(
            evaluation_plan=setup.evaluation_plan,
            models=models,
            executor=executor,
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
            mixing=Mixing(
                ranks, compute.dtype, executor, known_matrices, setup.seed, attack, files
            ),
            sets=shard.sets,
            files=files,
            ranks=ranks,
        )


def _initial_models(setup: Setup, ranks: Ranks, files: MappedFiles | None) -> Population:
    """Return the models of the nodes of this rank at the start of a run."""
    return initial_population(
        setup.module,
        setup.clients.n,
        init=setup.init,
        seed=setup.seed,
        device=setup.device,
        dtype=setup.compute.dtype,
        graph=setup.graphs if isinstance(setup.graphs, Topology) else None,
        ranks=ranks,
        new=None if files is None else files.new,
    )


def _plan_chooser(
    setup: Setup, plan: Plan | None, ranks: Ranks, shard: Shard
) -> Callable[[TimingTrial], Plan]:
    """Return the function that chooses a plan by timing trials, on rank 0 for all ranks.

    Raises ``ValueError`` if the run does not fit into memory.
    """
    need = _need_of_rank(footprint(setup, list(setup.trace.mixed[0])), shard, setup)
    free = free_memory(setup.device)
    if free is not None and setup.device.type == "cpu":
        free //= processes_on_machine()  # which start together
    need.check([plan] if plan else least_plans(setup.compute, need.sizes.n), free)
    linear = is_linear(setup.module)

    def choose(trial: TimingTrial) -> Plan:
        return plan or choose_plan(setup.compute, linear, need.sizes, trial, need.fits_into(free))

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
