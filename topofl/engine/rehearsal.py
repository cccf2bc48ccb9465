"""Rounds in which nothing is computed: what phases ask for, and what nodes send, before a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._generators import answered
from topofl._seeding import stream
from topofl.algorithms.phase import Algorithm, LocalSGD, Mixture, Models, Phase, Proximal, State, Trial, check_key
from topofl.engine.declared import UndeclaredError, check_declared, check_gradients
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import Ledger
from topofl.mixing import MixingMatrix, check_pulls, check_pushes
from topofl.topology import Topology, TopologySequence

__all__ = ["DryRound", "check_phases", "one_by_one", "rehearse"]

T = TypeVar("T")


@dataclass(eq=False)
class DryRound:
    """A round that notes what the phases ask for (see ``algorithms.phase.Round``)."""

    t: int
    topology: Topology
    rule: Callable[[Topology], MixingMatrix]
    d: int
    sizes: np.ndarray
    seed: int
    ledger: Ledger
    phase: str = ""
    declared: Phase | None = None
    batch_size: int = 0
    mixes_gradients: bool = False
    used: MixingMatrix | None = field(default=None, init=False)
    mixed: dict[MixingMatrix, int] = field(default_factory=dict, init=False)
    """Columns that each matrix multiplies, counted as messages or not."""

    @property
    def weights(self) -> MixingMatrix:
        """See the protocol."""
        check_declared(self.phase, self.declared, "weights")
        self.used = check_pulls(self.rule(self.topology))
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """See the protocol."""
        check_declared(self.phase, self.declared, "push_weights")
        self.used = check_pushes(self.rule(self.topology))
        return self.used

    def rng(self, purpose: str) -> np.random.Generator:
        """See the protocol."""
        return stream(self.seed, purpose, self.t)

    def local_sgd(
        self,
        models: Models,
        how: LocalSGD,
        *,
        velocity: Tensor | None = None,
        proximal: Proximal | None = None,
        mask: Tensor | None = None,
        toward: Tensor | None = None,
        who: np.ndarray | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        """See the protocol."""
        del models, velocity, proximal, mask, toward, who, mixture
        self.batch_size = max(self.batch_size, how.batch_size)
        if how.gradient is not None:
            check_declared(self.phase, self.declared, "local_sgd with a `gradient` rule", "gradients")
            self.mixes_gradients = True
            weights = how.gradient(self.topology)
            self._note(weights, how.steps * self.d)
            for _ in range(how.steps):
                self.ledger.add(weights, self.d, gradients=True)

    def _note(self, weights: MixingMatrix, columns: int) -> None:
        self.mixed[weights] = self.mixed.get(weights, 0) + columns

    def ask(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See the protocol; all losses are 0."""
        del on
        return {i: answered(trial, _no_losses) for i, trial in trials.items()}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See the protocol."""
        check_key(key)
        check_gradients(self.phase, self.declared)
        self.batch_size = max(self.batch_size, batch_size)
        return torch.empty_like(models.flat)

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
        check_declared(self.phase, self.declared, "mix")
        self.used, width = self.used or weights, sum(values[:, part].shape[1] for part in columns)
        self._note(weights, width)
        if counted:
            self.ledger.add(weights, width + scalars, server=server)

    def send(self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False) -> None:
        """See the protocol."""
        check_declared(self.phase, self.declared, "send")
        self.used = self.used or weights
        self.ledger.send(weights, nbytes, server=server)


def _no_losses(models: Tensor) -> Tensor:
    return torch.zeros(len(models), dtype=torch.float64, device="cpu")


def rehearse(
    algorithm: Algorithm,
    layout: Layout,
    graphs: Topology | TopologySequence,
    rule: Callable[[Topology], MixingMatrix],
    dtype: torch.dtype,
    rounds: int,
    sizes: np.ndarray,
    seed: int = 0,
) -> tuple[list[DryRound], int]:
    """Return the first rounds of `algorithm`, played without memory, and the bytes of the states of all phases."""
    states = _states(algorithm, _models(layout, graphs.n, dtype))
    size = sum(value.nbytes for state in states.values() for value in state.values())
    return list(one_by_one(algorithm, layout, graphs, rule, dtype, rounds, sizes, seed)), size


def one_by_one(
    algorithm: Algorithm,
    layout: Layout,
    graphs: Topology | TopologySequence,
    rule: Callable[[Topology], MixingMatrix],
    dtype: torch.dtype,
    rounds: int,
    sizes: np.ndarray,
    seed: int = 0,
) -> Iterator[DryRound]:
    """Yield the rounds of :func:`rehearse`, of which the matrices may be more than fit into memory."""
    models = _models(layout, graphs.n, dtype)
    states = _states(algorithm, models)
    for t in range(rounds):
        current = DryRound(t, graphs.at(t), rule, layout.d, sizes, seed, Ledger(dtype.itemsize))
        for name, phase in algorithm.phases.items():
            own, current.phase, current.declared = phase.uses or name, name, phase
            states[own] = phase.apply(models, states[own], current)
        yield current


def _models(layout: Layout, n: int, dtype: torch.dtype) -> Population:
    return Population(torch.empty(n, layout.d, dtype=dtype, device="meta"), layout)


def _states(algorithm: Algorithm, models: Population) -> dict[str, State]:
    return {name: init(models) for name, init in algorithm.states.items()}


def check_phases(
    algorithm: Algorithm,
    layout: Layout,
    graph: Topology,
    rule: Callable[[Topology], MixingMatrix],
    dtype: torch.dtype,
    sizes: np.ndarray,
    seed: int,
) -> None:
    """Raise ``UndeclaredError`` for a phase that exchanges something and declares that it does not.

    Such phases are played once, each by itself, on models that have shapes but no numbers. Those that need numbers, and
    other kinds of phases, are refused in the first round, when they use what they have not declared.
    """
    models = _models(layout, graph.n, dtype)
    tuning = {} if algorithm.fine_tune is None else {"fine_tune": algorithm.fine_tune}
    for name, phase in {**algorithm.phases, **tuning}.items():
        if phase.exchanges:
            continue
        current = DryRound(0, graph, rule, layout.d, sizes, seed, Ledger(dtype.itemsize), name, phase)
        try:
            phase.apply(models, algorithm.states.get(phase.uses, phase.init)(models), current)
        except UndeclaredError:
            raise
        except Exception:  # whatever the absence of numbers makes a user's phase raise
            continue
