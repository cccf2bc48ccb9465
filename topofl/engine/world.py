"""What a run is made of, and what its phases see of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn

from topofl.algorithms.phase import Algorithm, Models, Rule
from topofl.data import Partition
from topofl.engine.batches import Batches
from topofl.engine.checks import check_batched, check_output
from topofl.engine.evaluate import Evaluated
from topofl.engine.executors import DivergenceError, Learner, choose_executor, local_sgd, new_learner
from topofl.engine.mixer import mixer
from topofl.engine.population import Population, check_model, initial_population
from topofl.engine.recorder import GradientStatistics, Ledger
from topofl.mixing import MixingMatrix, metropolis_or_uniform
from topofl.topology import Topology, TopologySequence

__all__ = ["World", "WorldRound", "as_rule", "check_scores", "threads_for"]

SHARED_WORK = 10_000_000
"""Parameters of all models times minibatch size from which a step is spread over torch's CPU threads."""


@dataclass(frozen=True, eq=False)
class World:
    """Everything that stays the same from round to round (the models' numbers apart)."""

    module: nn.Module
    models: Population
    learner: Learner
    graphs: Topology | TopologySequence
    rule: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]
    mixer: Callable[[MixingMatrix], Callable[[Tensor], None]]

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
        executor: str,
        chunk: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "World":
        """Put models and data on the device and choose the executor."""
        module = check_model(model).to(device=device, dtype=dtype)
        inputs = clients.dataset.inputs.to(device=device, dtype=dtype)
        labels = clients.dataset.labels.to(device)
        check_output(module, inputs, clients.dataset.n_classes)
        models = initial_population(module, clients.n, init=init, seed=seed, device=device, dtype=dtype)
        batches = Batches(clients.train, seed)
        if executor == "auto":
            size = _largest_batch(algorithm)
            executor = choose_executor(module, models, inputs, labels, batches, size, chunk)
        elif executor == "batched":
            check_batched(module, inputs)
        learner = new_learner(module, executor, inputs, labels, batches, chunk)
        resolve = lru_cache(maxsize=max(64, graphs.period or 0))(_weights_on)
        return cls(
            module,
            models,
            learner,
            graphs,
            as_rule(mixing),
            resolve,
            lru_cache(maxsize=max(64, graphs.period or 0))(_mixer_for(models)),
        )

    def weights(self, graph: Topology) -> MixingMatrix:
        """Return a round's mixing matrix."""
        weights = self.resolve(self.rule, graph)
        if not weights.is_row_stochastic:
            raise ValueError(
                f"`mixing` must have rows that sum to 1 to average models, {weights.name} is only column stochastic; "
                "use uniform(topology, direction='pull')"
            )
        return weights


def _largest_batch(algorithm: Algorithm) -> int:
    return max((int(phase.settings.get("batch_size", 1)) for phase in algorithm.phases.values()), default=1)


@contextmanager
def threads_for(world: World, algorithm: Algorithm) -> Iterator[None]:
    """Use one CPU thread where a step is too small to share, and put the setting back.

    Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy one: more than all the work
    of a step with 50 nodes and logistic regression on digits.
    """
    before = torch.get_num_threads()
    if world.models.flat.numel() * _largest_batch(algorithm) < SHARED_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _weights_on(rule: Rule, graph: Topology) -> MixingMatrix:
    """Return the matrix that a rule gives a graph, checked."""
    weights = rule(graph)
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`mixing` must return a MixingMatrix, got {type(weights).__name__}; use from_weights(weights, graph)"
        )
    return weights.check_on(graph)


def _mixer_for(models: Population) -> Callable[[MixingMatrix], Callable[[Tensor], None]]:
    return lambda weights: mixer(weights, models.flat.device, models.flat.dtype)


def as_rule(mixing: Rule | MixingMatrix | None) -> Rule:
    """Return the weight rule of a run; a fixed matrix becomes the rule that checks it on each graph."""
    if mixing is None:
        return metropolis_or_uniform
    if not isinstance(mixing, MixingMatrix) and not callable(mixing):
        raise TypeError(
            f"`mixing` must be a weight rule such as mixing.metropolis_hastings or a MixingMatrix, got {mixing!r}"
        )
    return mixing.check_on if isinstance(mixing, MixingMatrix) else mixing


@dataclass(eq=False)
class WorldRound:
    """The round that phases see; see :class:`topofl.algorithms.phase.Round`."""

    world: World
    t: int
    statistics: GradientStatistics | None
    phase: str = ""
    losses: Tensor | None = None
    lr: float | None = None
    used: MixingMatrix | None = None
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.world.models.flat.element_size())
        self.topology = self.world.graphs.at(self.t)

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; asking for it records it as used."""
        self.used = self.world.weights(self.topology)
        return self.used

    def local_sgd(
        self,
        models: Models,
        *,
        lr: float,
        batch_size: int,
        steps: int = 1,
        momentum: float = 0.0,
        velocity: Tensor | None = None,
        gradient: Rule | None = None,
    ) -> None:
        """See the protocol."""
        del models  # there is one population so far, and the learner's views are into it
        world, first = self.world, self.t * steps
        batches = [world.learner.batches.at(first + k, batch_size, self.phase) for k in range(steps)]
        mix = None if gradient is None else self._gradient_mixer(gradient, steps)
        observe = None if self.statistics is None or self.losses is not None else self.statistics.observe
        losses = local_sgd(
            world.learner, world.models, batches, lr=lr, momentum=momentum, velocity=velocity, mix_gradients=mix,
            observe=observe,
        )  # fmt: skip
        _check_losses(losses, self.t, lr)
        self.losses, self.lr = losses.mean(1), lr  # of the last phase that trains

    def _gradient_mixer(self, rule: Rule, steps: int) -> Callable[[Tensor], None]:
        weights = self.world.resolve(rule, self.topology)
        for _ in range(steps):
            self.ledger.add(weights, self.world.models.layout.d, gradients=True)
        return self.world.mixer(weights)

    def mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """See the protocol."""
        self.ledger.add(weights, values.shape[1])
        self.world.mixer(weights)(values)


def check_scores(losses: Tensor, evaluated: Evaluated, t: int, lr: float | None) -> None:
    """Raise if an evaluation after round `t` found a loss that is not finite: the round's last step diverged."""
    on, nodes = evaluated
    scored = [i for i in nodes if isinstance(on, Tensor) or len(on[i])]  # no examples, no score
    bad = [node for node, finite in zip(scored, torch.isfinite(losses[scored]).tolist(), strict=True) if not finite]
    if bad:
        node = bad[0]
        raise DivergenceError(
            f"the loss of node {node} is {float(losses[node])} after round {t}"
            + (f" with lr={lr:g}; lower the learning rate" if lr is not None else "")
        )


def _check_losses(losses: Tensor, t: int, lr: float) -> None:
    if not bool(torch.isfinite(losses).all()):
        node, step = (int(i) for i in torch.nonzero(~torch.isfinite(losses))[0])
        raise DivergenceError(
            f"the loss of node {node} is {float(losses[node, step])} in round {t} (step {step} of it) with lr={lr:g}; "
            "lower the learning rate, or look for extreme values in that node's data"
        )
