"""Algorithms as lists of phases: the contract between methods (here) and the engine (which owns memory and loops)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = ["Algorithm", "Models", "Phase", "Round", "State", "chain"]

State = dict[str, Tensor]
"""What one phase carries to the next round: tensors whose first axis is the node."""

Rule = Callable[[Topology], MixingMatrix]
"""A weight rule, for example :func:`topofl.mixing.metropolis_hastings`."""


class Models(Protocol):
    """All nodes' models; phases change them in place through the round."""

    @property
    def flat(self) -> Tensor:
        """(n, d): row i holds the parameters of node i's model."""
        ...


class Round(Protocol):
    """What a phase may see of the world, and the only doors to training and mixing."""

    @property
    def t(self) -> int:
        """Number of the round, from 0."""
        ...

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
        ...

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round."""
        ...

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
        """Take `steps` minibatch steps on every node, in place; the rule `gradient` mixes gradients before each."""
        ...

    def mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """Replace `values` (n, k) by ``weights @ values`` in place, and count the messages."""
        ...


class Phase(NamedTuple):
    """One part of a round.

    Attributes
    ----------
    init
        ``init(models) -> state`` before the first round.
    apply
        ``apply(models, state, round) -> state``; changes the models in place.
    settings
        What it was built with; kept with the results.
    exchanges
        What nodes send each other in it: ``"models"``, ``"gradients"``, or nothing, ``""``.
    """

    init: Callable[[Models], State]
    apply: Callable[[Models, State, Round], State]
    settings: Mapping[str, Any]
    exchanges: str = ""


@dataclass(frozen=True)
class Algorithm:
    """A named list of phases, run in order every round.

    Parameters
    ----------
    name
        The method's name.
    phases
        Phases by name; the name of a phase also names its stream of minibatches.
    pooled
        Whether it trains one model on all nodes' data together (a reference, not a decentralized method).
    """

    name: str
    phases: Mapping[str, Phase]
    pooled: bool = field(default=False, kw_only=True)

    @property
    def exchanges(self) -> bool:
        """Whether nodes talk to each other."""
        return any(phase.exchanges != "" for phase in self.phases.values())

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What each phase was built with."""
        return {name: dict(phase.settings) for name, phase in self.phases.items()}

    def __repr__(self) -> str:
        parts = [
            f"{name}({', '.join(f'{key}={value}' for key, value in phase.settings.items())})"
            for name, phase in self.phases.items()
        ]
        return f"{self.name}: {' -> '.join(parts)}"


def chain(name: str, /, *, pooled: bool = False, **phases: Phase) -> Algorithm:
    """Return the algorithm that runs these phases in order, every round.

    Raises
    ------
    ValueError
        If there is no phase.
    TypeError
        If one of them is not a :class:`Phase`.

    Examples
    --------
    >>> from topofl.algorithms import gossip, sgd
    >>> chain("dsgd", local=sgd(lr=0.1, batch_size=32), exchange=gossip())
    dsgd: local(lr=0.1, batch_size=32, steps=1, momentum=0.0, gradient=own) -> exchange(weights=round)
    """
    if not phases:
        raise ValueError("`phases` must have at least one phase, e.g. chain('mine', local=sgd(lr=0.1))")
    for key, phase in phases.items():
        if not isinstance(phase, Phase):
            raise TypeError(f"`{key}` must be a Phase such as sgd(lr=0.1) or gossip(), got {type(phase).__name__}")
    return Algorithm(name, phases, pooled=pooled)
