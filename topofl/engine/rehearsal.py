"""Rounds in which nothing is computed: what phases ask for, and what nodes send, before a run."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from topofl.algorithms.phase import Algorithm, Models, Rule
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import Ledger
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence

__all__ = ["DryRound", "rehearse"]


@dataclass(eq=False)
class DryRound:
    """A round that notes what the phases ask for (see ``algorithms.phase.Round``)."""

    t: int
    topology: Topology
    rule: Callable[[Topology], MixingMatrix]
    d: int
    ledger: Ledger
    batch_size: int = 0
    mixes_gradients: bool = False
    used: MixingMatrix | None = field(default=None, init=False)

    @property
    def weights(self) -> MixingMatrix:
        """See the protocol."""
        self.used = self.rule(self.topology)
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
        del models, lr, momentum, velocity
        self.batch_size = max(self.batch_size, batch_size)
        if gradient is not None:
            self.mixes_gradients = True
            weights = gradient(self.topology)
            for _ in range(steps):
                self.ledger.add(weights, self.d, gradients=True)

    def mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """See the protocol."""
        self.ledger.add(weights, values.shape[1])


def rehearse(
    algorithm: Algorithm,
    layout: Layout,
    graphs: Topology | TopologySequence,
    rule: Callable[[Topology], MixingMatrix],
    dtype: torch.dtype,
    rounds: int,
) -> tuple[list[DryRound], int]:
    """Return the first rounds of `algorithm`, played without memory, and the bytes of the states of all phases."""
    models = Population(torch.empty(graphs.n, layout.d, dtype=dtype, device="meta"), layout)
    states = {name: phase.init(models) for name, phase in algorithm.phases.items()}
    size = sum(value.nbytes for state in states.values() for value in state.values())
    played = []
    for t in range(rounds):
        current = DryRound(t, graphs.at(t), rule, layout.d, Ledger(dtype.itemsize))
        for name, phase in algorithm.phases.items():
            states[name] = phase.apply(models, states[name], current)
        played.append(current)
    return played, size
