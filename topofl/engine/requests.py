"""What phases may request of rounds: a run's inputs, notes of a dry run, checks of arguments."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, field
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from topofl._columns import OWN_COLUMNS, SECONDS
from topofl._support.check import check_takes, did_you_mean, shown
from topofl.algorithms.contract.checked import WHY_PLAYED, check_same_shape, explaining_meta_errors
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import Algorithm, Phase
from topofl.algorithms.contract.round import Models, Rule, State
from topofl.attacks import Attack
from topofl.engine.mixing import Aggregate
from topofl.engine.population import Layout
from topofl.mixing import MixingMatrix, check_pulls, check_pushes
from topofl.topology import Topology, TopologySequence

EXCHANGES = frozenset(("mix", "send", "server"))
"""Calls that exchange models. A phase may use different ones in different rounds, but not none."""


@dataclass(frozen=True, eq=False)
class WeightRules:
    """Weight rules of a run, which turn graphs into mixing matrices.

    Parameters
    ----------
    pull, push
        Rules for nodes that average what they receive, and for nodes that push.
    resolve
        (rule, graph) -> the checked matrix.
    """

    pull: Rule
    push: Rule
    resolve: Callable[[Rule, Topology], MixingMatrix]

    def pulled(self, graph: Topology, rule: Rule | None = None) -> MixingMatrix:
        """Return the row-stochastic matrix of a graph, by `rule` or by default the run's rule."""
        return check_pulls(self.resolve(rule or self.pull, graph))

    def pushed(self, graph: Topology) -> MixingMatrix:
        """Return the column-stochastic matrix of a graph by which nodes push."""
        return check_pushes(self.resolve(self.push, graph))


@dataclass(frozen=True, eq=False)
class Inputs:
    """What all rounds of a run have in common, whether they are computed or not.

    Parameters
    ----------
    algorithm, layout, dtype
        Algorithm of the run, and layout and dtype of its models.
    graphs
        Topology of the run; None: not given.
    rules, sizes, seed
        Weight rules, node data sizes (n,) and seed of the run.
    independent_start
        Whether each node starts from its own model.
    attack
        The attack of the run; None: no attackers.
    """

    algorithm: Algorithm
    layout: Layout
    dtype: torch.dtype
    graphs: Topology | TopologySequence | None
    rules: WeightRules
    sizes: np.ndarray
    seed: int = 0
    independent_start: bool = False
    attack: Attack | None = None


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """Local steps that a phase requested.

    Parameters
    ----------
    training
        The local steps.
    counts
        (n,) number of steps of each node.
    """

    training: Training
    counts: np.ndarray


@dataclass(eq=False)
class Requests:
    """What phases request in the rounds of a dry run; a run may request nothing else.

    Attributes
    ----------
    calls
        Calls and properties of the round that each phase used, by phase.
    trained
        Local steps, by phase.
    columns
        Columns of the models that were mixed, by phase.
    rules
        Matrices by which gradients were mixed.
    gradients
        Tensors of all nodes' gradients, by key.
    batch_sizes
        Batch sizes of gradients.
    trial_sets
        Sets of examples on which nodes cross-evaluated models.
    noted
        Names of numbers that phases note, and whether they note a value per node.
    drawn
        Purposes for which phases drew random numbers.
    """

    calls: dict[str, set[str]] = field(default_factory=dict)
    trained: dict[str, list[RecordedSteps]] = field(default_factory=dict)
    columns: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    rules: list[MixingMatrix] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    trial_sets: set[str] = field(default_factory=set)
    noted: dict[str, bool] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)

    def note_call(self, phase: str, call: str) -> None:
        """Note a call; raise ``ValueError`` if several phases push models."""
        self.calls.setdefault(phase, set()).add(call)
        if sum("push" in calls for calls in self.calls.values()) > 1:
            raise ValueError(
                "`phases` must push models once per round, since a node has one push-sum weight; "
                "share both parts in one"
            )

    def check_call(self, phase: str, call: str, t: int) -> None:
        """Raise ``ValueError`` if a phase makes a call in round t that it did not make before."""
        interchangeable = EXCHANGES if call in EXCHANGES else {call}
        if not interchangeable & self.calls.get(phase, set()):
            raise ValueError(
                f"the phase {phase!r} must use round.{call} in the first rounds too, which show a "
                f"run what it needs; it does so in round {t + 1} only: where "
                "`models.flat.is_meta`, let it make every call that it may make in any round"
            )


def topology_missing(method: str, n: int) -> TypeError:
    """Return the error of a method that exchanges models without a topology."""
    return TypeError(
        f"`topology` must be given, since {method} exchanges models: e.g. topologies.ring({n})"
    )


def check_name(phase: str, name: object) -> None:
    """Raise ``ValueError`` unless a phase can note a number by this name."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"`name` of round.note must be an identifier, such as 'moved', got {shown(name)} in "
            f"the phase {phase!r}; use letters, digits and underscores"
        )
    if name in OWN_COLUMNS - {SECONDS}:
        raise ValueError(
            f"`name` of round.note must differ from all columns of the history, got {name!r} in "
            f"the phase {phase!r}; rename it"
        )


def aggregated(
    phase: str, rule: Aggregate, own: Tensor, received: Tensor, weights: Tensor
) -> Tensor:
    """Return the row that `rule` computes from a node's own row and the received ones.

    Raises
    ------
    ValueError
        If the row does not have the shape of the node's own, or `rule` changed `own` in place.
    """
    version = own._version
    row = rule(own, received, weights)
    if own._version != version:
        raise ValueError(
            f"`rule` of the phase {phase!r} must not change `own` in place, which other nodes "
            "still receive; return a new row, e.g. own + step instead of own.add_(step)"
        )
    what, remedy = (
        f"`rule` of the phase {phase!r}",
        "combine the received rows over their first axis",
    )
    return check_same_shape(what, "a row", row, own, remedy)


def check_rule(phase: str, rule: object) -> None:
    """Raise ``TypeError`` unless `rule` can be called to aggregate models."""
    if not callable(rule):
        raise TypeError(
            "`rule` of round.aggregate must be a function of (own, received, weights), got "
            f"{shown(rule)} in the phase {phase!r}; give one such as lambda own, received, "
            "weights: received.median(0).values"
        )
    check_takes(f"`rule` of the phase {phase!r}", rule, "own", "received", "weights")


def check_noted(phase: str, name: str, value: object, n: int) -> bool:
    """Return whether a phase notes a value per node, (n,), or raise unless it notes one number.

    Raises ``ValueError`` for anything else. With a single node, one value is one number.
    """
    if isinstance(value, Tensor | np.ndarray):
        real = not value.is_complex() if isinstance(value, Tensor) else value.dtype.kind in "biuf"
        shape = tuple(value.shape)
        if real and (math.prod(shape) == 1 or shape == (n,)):
            return n > 1 and shape == (n,)
        got = f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {shape}"
    elif isinstance(value, Real | np.bool_):
        return False
    else:
        got = shown(value)
    raise ValueError(
        f"`value` of round.note must be one real number, or one per node, ({n},), got {got} as "
        f"{name!r} in the phase {phase!r}; note its mean, or give each number its own name"
    )


def check_same_kind(phase: str, name: str, per_node: bool, before: bool) -> None:
    """Raise ``ValueError`` if a phase notes a value per node, and before noted one number."""
    if per_node != before:
        raise ValueError(
            f"`value` of round.note must be of one shape in all rounds, got {name!r} both as one "
            f"number and as one per node in the phase {phase!r}; note them by two names"
        )


def check_matrix(call: str, weights: object) -> None:
    """Raise ``TypeError`` unless the weights of an exchange are a MixingMatrix."""
    if not isinstance(weights, MixingMatrix):
        raise TypeError(
            f"`weights` of round.{call} must be a MixingMatrix such as round.weights, got "
            f"{type(weights).__name__}; convert an array by topofl.mixing.from_weights(array)"
        )


def check_participants(participants: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the participants, or raise unless they are one boolean per node."""
    if participants.dtype != bool or participants.shape != counts.shape:
        raise ValueError(
            f"`participants` must return one boolean per node, shape {counts.shape}, got "
            f"{participants.dtype} of shape {participants.shape}"
        )
    return participants


def state_of_phase(states: Mapping[str, State], owner: str, phase: str) -> State:
    """Return the state of another phase of the chain; raise ``ValueError`` if there is none.

    Examples
    --------
    >>> state_of_phase({"local": {}, "exchange": {}}, owner="local", phase="exchange")
    {}
    """
    if owner not in states or owner == phase:
        others = ", ".join(name for name in states if name != phase) or "none"
        raise ValueError(
            f"`owner` must be another phase of the chain, got {owner!r} in the phase {phase!r}; "
            f"the other phases are {others}{did_you_mean(owner, list(states))}"
        )
    return states[owner]


@contextmanager
def on_shapes_only(name: str) -> Iterator[None]:
    """Turn errors on meta tensors, and replaced models, into errors that name the phase."""
    remedy = (
        "to multiply by a mixing matrix use round.mix(weights, values), which works in place; "
        "otherwise, where `models.flat.is_meta`, let it make every call that it may make, such as "
        "round.mix, and return"
    )
    try:
        with explaining_meta_errors(
            f"the phase {name!r} must work on models without numbers, {WHY_PLAYED}", remedy
        ):
            yield
    except FrozenInstanceError as error:
        raise TypeError(
            f"the phase {name!r} must change models in place: {error}; write "
            "models.flat.copy_(values), or models.flat.add_(change)"
        ) from error


def initial_state(name: str, phase: Phase, models: Models) -> State:
    """Return the initial state of a phase, or raise ``TypeError`` if it is not valid."""
    return checked_state(name, "init", phase.init(models))


def checked_state(name: str, function: str, state: object) -> State:
    """Return the state of a phase, or raise ``TypeError`` unless it is a dict of tensors."""
    if not isinstance(state, dict):
        raise TypeError(
            f"`{function}` of the phase {name!r} must return its state, a dict of tensors such as "
            f"{{}}, got {type(state).__name__}"
        )
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"`{function}` of the phase {name!r} must return tensors by name, got "
                f"{type(value).__name__} as {key!r}; use torch.tensor(...)"
            )
    return state
