"""Algorithms as chains of phases: the contract between methods and the engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from topofl._support.check import shown
from topofl._support.text import printable
from topofl.algorithms.contract.needs import Need
from topofl.algorithms.contract.parts import Part
from topofl.algorithms.contract.round import Models, Round, State

__all__ = [
    "Algorithm",
    "Neighbors",
    "Phase",
    "chain",
    "check_fine_tune",
    "on_kept_models",
    "sharing",
]


class Phase(NamedTuple):
    """One part of a round.

    What it needs, such as a graph, memory for the gradients of all nodes, or examples to try models
    on, a run observes before it starts, by playing the first rounds with models that have shapes
    but no numbers; see
    :class:`topofl.algorithms.Round`.

    Attributes
    ----------
    init
        ``init(models) -> state`` before the first round: tensors by name, whose first axis is the
        node, or an edge of ``models.topology``, or of length 1 for all of them.
    apply
        ``apply(models, state, round) -> state``; changes the models in place.
    settings
        Its arguments, kept with results and not read by the engine.

    Examples
    --------
    A phase that makes all models a little smaller:

    >>> def shrink(models, state, round):
    ...     models.flat.mul_(0.99)
    ...     return state
    >>> chain("shrinking", shrink=Phase(lambda models: {}, shrink, {"factor": 0.99}))
    shrinking: shrink(factor=0.99)
    """

    init: Callable[[Models], State]
    apply: Callable[[Models, State, Round], State]
    settings: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Neighbors:
    """Prediction by nearest training examples; see :func:`topofl.algorithms.knn_per`.

    Parameters
    ----------
    k
        Number of neighbors, or all examples if there are fewer.
    weight
        Weight of the neighbors' votes, between 0 and 1; the model has the rest.
    scale
        Scale of distances: the larger it is, the less nearness counts.
    head
        The layer whose inputs are compared.
    """

    k: int
    weight: float
    scale: float
    head: Part

    @property
    def settings(self) -> dict[str, Any]:
        """Its numbers and names, to be kept with results."""
        return {"k": self.k, "weight": self.weight, "scale": self.scale, "head": str(self.head)}


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
        Whether it trains one model on all nodes' data together (a reference, not a decentralized
        method).
    fine_tune
        A phase by which copies of the models are fine-tuned for a further evaluation, such as
        ``sgd(lr=0.1, epochs=5)``; the models themselves do not change.
    neighbors
        Nearest-neighbor prediction that is combined with the models in a further evaluation.
    needs
        Requirements on the graphs of a run and their weights that its rounds alone do not show,
        such as :data:`topofl.algorithms.static`.
    """

    name: str
    phases: Mapping[str, Phase]
    pooled: bool = field(default=False, kw_only=True)
    fine_tune: Phase | None = field(default=None, kw_only=True)
    neighbors: Neighbors | None = field(default=None, kw_only=True)
    needs: tuple[Need, ...] = field(default=(), kw_only=True)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What each phase was built with, ``fine_tune`` and ``neighbors`` too if there are some."""
        return {
            name: dict(part.settings)
            for name, part in (*self.phases.items(), *self._evaluated.items())
        }

    @property
    def _evaluated(self) -> dict[str, Phase | Neighbors]:
        """How models are evaluated further, in addition to their plain evaluation."""
        parts = {"fine_tune": self.fine_tune, "neighbors": self.neighbors}
        return {name: part for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        parts = [f"{name}({_listed(phase)})" for name, phase in self.phases.items()]
        besides = [f"; {name}({_listed(part)})" for name, part in self._evaluated.items()]
        return printable(f"{self.name}: {' -> '.join(parts)}{''.join(besides)}")


def _listed(part: Phase | Neighbors) -> str:
    return ", ".join(f"{key}={value}" for key, value in part.settings.items())


def _check_phase(key: str, phase: object) -> None:
    """Raise unless a phase has functions, settings and words that a run knows."""
    if not isinstance(phase, Phase):
        raise TypeError(
            f"`{key}` must be a Phase such as sgd(lr=0.1) or gossip(), got {type(phase).__name__}"
        )
    for part in ("init", "apply"):
        if not callable(getattr(phase, part)):
            raise TypeError(
                f"`{part}` of the phase {key!r} must be a function, got "
                f"{shown(getattr(phase, part))}"
            )
    if not isinstance(phase.settings, Mapping):
        raise TypeError(
            f"`settings` of the phase {key!r} must be a dictionary, got {shown(phase.settings)}"
        )


def check_fine_tune(phase: object) -> Phase:
    """Return a phase for fine-tuning, or raise ``TypeError``."""
    if not isinstance(phase, Phase):
        raise TypeError(
            f"`fine_tune` must be a Phase such as sgd(lr=0.1, epochs=5), got {shown(phase)}"
        )
    return phase


def chain(
    name: str,
    /,
    *unnamed: Phase,
    pooled: bool = False,
    fine_tune: Phase | None = None,
    neighbors: Neighbors | None = None,
    needs: Sequence[Need] = (),
    **phases: Phase,
) -> Algorithm:
    """Return the algorithm that runs these phases in order, every round.

    Parameters
    ----------
    name, phases
        The method's name, and its phases by name.
    pooled, fine_tune, neighbors, needs
        As in :class:`Algorithm`; a function that builds algorithms says `needs` better by
        :func:`topofl.algorithms.needing`, as ``topofl list --needs`` sees it then.

    Raises
    ------
    ValueError
        If there is no phase.
    TypeError
        If one of them has no name or is not a :class:`Phase`, or a part of it is of another kind.

    Examples
    --------
    >>> from topofl.algorithms import gossip, sgd
    >>> chain("dsgd", local=sgd(lr=0.1, batch_size=32), exchange=gossip())
    dsgd: local(lr=0.1, batch_size=32, steps=1) -> exchange(weights=round)
    """
    if unnamed:
        raise TypeError(
            f"each phase must have a name, got one without; write chain({name!r}, "
            "local=sgd(lr=0.1))"
        )
    if not phases:
        raise ValueError(
            "`phases` must have at least one phase, e.g. chain('mine', local=sgd(lr=0.1))"
        )
    for key, phase in phases.items():
        _check_phase(key, phase)
    tuned = None if fine_tune is None else check_fine_tune(fine_tune)
    if not isinstance(needs, Sequence) or not all(isinstance(need, Need) for need in needs):
        raise TypeError(
            f"`needs` must be a list of needs such as algorithms.static, got {shown(needs)}"
        )
    if unbound := next((need for need in needs if need.of or need.when), None):
        raise ValueError(
            f"`needs` must not depend on arguments, which a chain does not have, {unbound.name!r} "
            "does; put algorithms.needing(...) above the function that returns the chain"
        )
    return Algorithm(
        name, phases, pooled=pooled, fine_tune=tuned, neighbors=neighbors, needs=tuple(needs)
    )


def sharing(owner: str, phase: Phase) -> Phase:
    """Return a phase that works on the state of an earlier phase instead of its own.

    Parameters
    ----------
    owner
        Name of an earlier phase of the chain.
    phase
        What is done.
    """

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models, round.state(owner), round)
        return state

    return Phase(lambda models: {}, apply, dict(phase.settings) | {"of": owner})


def on_kept_models(owner: str, phase: Phase, kept: str = "anchor") -> Phase:
    """Return a phase that works on models that an earlier phase keeps, not on those that predict.

    Parameters
    ----------
    owner
        An earlier phase of the chain.
    phase
        What is done.
    kept
        Name of the models (n, d) in its state, such as those of ``proximal(0.1, kept="anchor")``.
    """

    def apply(models: Models, state: State, round: Round) -> State:
        held = round.state(owner)
        if kept not in held:
            raise ValueError(
                f"`owner` must be a phase that keeps models as {kept!r}, {owner!r} has none; train "
                f"it with proximal(0.1, kept={kept!r})"
            )
        return phase.apply(models.like(held[kept]), state, round)

    return phase._replace(apply=apply, settings=dict(phase.settings) | {"of": owner})
