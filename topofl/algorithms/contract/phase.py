"""Algorithms as chains of phases, participation, and checks of user-defined functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import as_trace, check_int, check_kind, check_share, check_switch, shown
from topofl._support.plugins import user_line
from topofl._support.public import public
from topofl._support.table import Table
from topofl._support.text import printable
from topofl.algorithms.contract.needs import Need
from topofl.algorithms.contract.round import Models, Part, Round, State

__all__ = [
    "Algorithm",
    "Phase",
    "available",
    "chain",
    "on_all_models",
    "on_kept_models",
    "sampled",
    "sharing",
]


def check_same_shape(what: str, noun: str, made: object, like: Tensor, remedy: str = "") -> Tensor:
    """Return the result of a user-defined function, or raise ``ValueError`` for a wrong shape.

    Parameters
    ----------
    what
        The function, as in "`forge` of the attack 'mine'".
    noun
        What it returns, as in "a row".
    made, like
        The result, and a tensor of the required shape.
    remedy
        How to fix it.

    Examples
    --------
    >>> check_same_shape("`rule`", "a row", torch.ones(2), torch.zeros(3))
    Traceback (most recent call last):
    ValueError: `rule` must return a row of shape (3,), got shape (2,)
    """
    if isinstance(made, Tensor) and made.shape == like.shape:
        return made
    got = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
    raise ValueError(
        f"{what} must return {noun} of shape {tuple(like.shape)}, got "
        f"{got}{f'; {remedy}' * bool(remedy)}"
    )


@contextmanager
def explaining_meta_errors(what: str, remedy: str) -> Iterator[None]:
    """Replace torch's errors for meta tensors, which have no values, by a readable ``ValueError``.

    Parameters
    ----------
    what
        The requirement, as in "the term 'mine' must work on tensors without values, on which ...".
    remedy
        How to fix it.
    """
    try:
        yield
    except (RuntimeError, TypeError) as error:  # NotImplementedError is a RuntimeError
        if "meta" not in str(error).lower():
            raise
        text = f"{what}: {_first_line(error)}{user_line(error)}; {remedy}"
        raise ValueError(text) from error


@contextmanager
def naming_phase(name: str) -> Iterator[None]:
    """Add the phase, and the line of the user's file, to errors that arise in a user's code."""
    try:
        yield
    except Exception as error:
        line = user_line(error)
        if line and not type(error).__module__.startswith("topofl."):
            error.add_note(f"raised in the phase {name!r}{line}")
        raise


@contextmanager
def named_errors(what: str, given: Tensor) -> Iterator[None]:
    """Raise the errors of a user-defined function as a ``ValueError`` that names the function.

    Out-of-memory errors, errors for meta tensors, and those about the task pass unchanged.

    Parameters
    ----------
    what
        The function, as in "`apply` of the compressor 'mine'".
    given
        The tensor that it was called with.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if "meta" in str(error).lower() or str(error).startswith("`task` must"):
            raise
        shape = tuple(given.shape)
        raise ValueError(
            f"{what} must work on a tensor of shape {shape}, but it raised "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error message, at most 120 characters."""
    return str(error).strip().partition(chr(10))[0][:120].rstrip(".")


WHY_PLAYED = "on which a run plays its first rounds to see what it needs"
"""The reason in error messages why a function is called with tensors without values."""

NO_BRANCHES = (
    "use torch's functions on the device of the arguments, and torch.where in place of branches"
)
"""The remedy in error messages if a computation depends on values of a tensor."""


Participation = Callable[[Round], np.ndarray]
"""(round) -> (n,) booleans: the nodes that train and send. A pure function of the round.

It may use ``round.t``, ``round.sizes`` (numbers of training examples) and ``round.rng(purpose)``.
"""

AnyParticipation = float | int | str | Participation
"""What :func:`sampled` takes: a share or a number of nodes, a file of a trace, or a rule."""


@public
def sampled(amount: AnyParticipation) -> Participation:
    """Return the rule by which a random sample of nodes participates, redrawn in every round.

    Parameters
    ----------
    amount
        A number of nodes (integer), or a share of them (float, 0 to 1), rounded half up and at
        least one node. A rule, such as :func:`available`, is returned as it is, and the path of a
        CSV file stands for the rule of this trace.

    Raises
    ------
    ValueError, TypeError
        If it is none of these. A number above n raises in the first round.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from topofl.algorithms import sgd
    >>> [sgd(0.1, participants=sampled(k)).settings["participation"] for k in (0.1, 8)]
    ['0.1 of all', '8 nodes']
    """
    if isinstance(amount, float | np.floating):
        return Sampled(check_share("participation", amount))
    if callable(amount):
        return amount
    if isinstance(amount, str) and amount.endswith(".csv"):
        return available(amount)
    if isinstance(amount, str) or amount is None:
        raise TypeError(
            "`participation` must be a number of nodes, a share such as 0.1, or a CSV file that "
            f"says who is there when, got {shown(amount)}; 1.0 takes all"
        )
    return Sampled(check_int("participation", amount, minimum=1))


@dataclass(frozen=True)
class Sampled:
    """A number of nodes, or a share of them, that is drawn in every round."""

    amount: float | int

    def __call__(self, round: Round) -> np.ndarray:
        n, amount = len(round.sizes), self.amount
        size = max(1, int(np.floor(amount * n + 0.5))) if isinstance(amount, float) else amount
        if size > n:
            raise ValueError(
                f"`participation` must be at most n={n} nodes, got {size}; 1.0 takes all"
            )
        return np.isin(np.arange(n), round.rng("participation").permutation(n)[:size])

    def __str__(self) -> str:
        is_share = isinstance(self.amount, float)
        return f"{self.amount:g} of all" if is_share else f"{self.amount} nodes"


@public
def available(trace: Any) -> Participation:
    """Return the rule by which those nodes participate that a trace says are there.

    Parameters
    ----------
    trace
        Who is there when: (rounds, n) of 0 and 1, at least one 1 per round, or the path of a CSV
        file with one line per round and 0 or 1 per node. After its last round it begins again.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If there are other numbers than 0 and 1, no rounds, or a round with nobody. Another number
        of nodes than that of the run raises in the first round.

    See Also
    --------
    topofl.topologies.availability : the same for methods over graphs.

    Examples
    --------
    >>> from topofl.algorithms import fedavg
    >>> trace = [[1, 1, 0], [0, 1, 1]]
    >>> fedavg(0.1, participation=available(trace)).settings["server"]["participation"]
    'a trace of 2 rounds #6a8fefaf'
    """
    there = as_trace("trace", trace)
    if len(nobody := np.flatnonzero(~there.any(axis=1))):
        raise ValueError(f"`trace` must have a node in each round, got none in round {nobody[0]}")
    return _Available(tuple(map(tuple, there.tolist())))


@dataclass(frozen=True)
class _Available:
    """The nodes that are there in the rounds of a trace."""

    there: tuple[tuple[bool, ...], ...] = field(repr=False)

    def __call__(self, round: Round) -> np.ndarray:
        now, n = self.there[round.t % len(self.there)], len(round.sizes)
        if len(now) != n:
            raise ValueError(f"`trace` must have n={n} nodes in each round, got {len(now)}")
        return np.array(now)

    def __str__(self) -> str:
        bits = np.packbits(np.array(self.there)).tobytes()
        digest = sha256(repr((len(self.there[0]), bits)).encode()).hexdigest()[:8]
        return f"a trace of {len(self.there)} rounds #{digest}"


def first_round(round: Round) -> np.ndarray:
    """Return the participants, (n,): all nodes in round 0, and none later."""
    return np.full(len(round.sizes), round.t == 0)


def later_rounds(round: Round) -> np.ndarray:
    """Return the participants, (n,): no node in round 0, and all nodes later."""
    return np.full(len(round.sizes), round.t > 0)


def participation_setting(participants: Participation | None) -> dict[str, str]:
    """Return the setting that names a participation rule; none without one."""
    if participants is None:
        return {}
    return {"participation": getattr(participants, "__name__", str(participants))}


class Phase(NamedTuple):
    """One part of a round: a function that changes the models, and its state.

    A phase does not declare what it needs, such as a graph, memory for the gradients of all nodes,
    or examples to evaluate models on. Before a run, the first rounds are played on models that have
    shapes but no values, which shows its needs; see :class:`topofl.algorithms.Round`.

    See the page :doc:`Write your own method </docs/write-your-own-method>`.

    Attributes
    ----------
    init
        ``init(models) -> state`` before the first round: tensors by name. Their first axis is the
        node, or an edge of ``models.topology``, or has length 1 for what all nodes share.
    apply
        ``apply(models, state, round) -> state``; changes the models in place.
    settings
        Its arguments, saved with results and not read by the engine.
    rowwise
        Whether `init` and `apply` work on the rows of some of the nodes: each row of the result
        depends on the same row of models and state, on what methods of the round return, and on
        states of phases that are rowwise, too. In a distributed run, such a phase has the rows of
        its process, and other phases have the models of all nodes, as if wrapped by
        :func:`on_all_models`. Other runs do not read it.

    Examples
    --------
    A phase that shrinks all models by 1 %:

    >>> def shrink(models, state, round):
    ...     models.flat.mul_(0.99)
    ...     return state
    >>> chain("shrinking", shrink=Phase(lambda models: {}, shrink, {"factor": 0.99}))
    shrinking: shrink(factor=0.99)
    """

    init: Callable[[Models], State]
    apply: Callable[[Models, State, Round], State]
    settings: Mapping[str, Any] = MappingProxyType({})
    rowwise: bool = False


@dataclass(frozen=True)
class Neighbors:
    """Prediction by nearest training examples; see :func:`topofl.algorithms.knn_per`.

    Parameters
    ----------
    k
        Number of neighbors, or all examples if there are fewer.
    weight
        Weight of the neighbors' votes, between 0 and 1; the model's prediction has the rest.
    scale
        Scale of distances: with a larger one, nearer neighbors outweigh distant ones less.
    head
        The layer whose inputs are compared.
    """

    k: int
    weight: float
    scale: float
    head: Part

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments, as they are saved with results."""
        return {"k": self.k, "weight": self.weight, "scale": self.scale, "head": str(self.head)}


@dataclass(frozen=True)
class Algorithm:
    """A named list of phases, run in order every round.

    Parameters
    ----------
    name
        The method's name.
    phases
        Phases by name; the name of a phase also determines its stream of minibatches.
    pooled
        Whether one model is trained on the data of all nodes together (a reference, not a
        decentralized method).
    fine_tune
        A phase that fine-tunes copies of the models for an additional evaluation, such as
        ``sgd(lr=0.1, epochs=5)``; the models themselves do not change.
    neighbors
        Nearest-neighbor prediction that is combined with the models in an additional evaluation.
    needs
        Requirements on the graphs of a run and their weights that a dry run of the phases does not
        show, such as :data:`topofl.algorithms.static`.

    Examples
    --------
    >>> from topofl.algorithms import dsgd
    >>> algorithm = dsgd(lr=0.1)
    >>> list(algorithm.phases)
    ['local', 'exchange']
    >>> algorithm.settings["local"]
    {'lr': 0.1, 'batch_size': 128, 'steps': 1}
    """

    name: str
    phases: Mapping[str, Phase]
    pooled: bool = field(default=False, kw_only=True)
    fine_tune: Phase | None = field(default=None, kw_only=True)
    neighbors: Neighbors | None = field(default=None, kw_only=True)
    needs: tuple[Need, ...] = field(default=(), kw_only=True)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings of each phase, and of ``fine_tune`` and ``neighbors`` if given."""
        return {
            name: dict(part.settings)
            for name, part in (*self.phases.items(), *self._evaluated.items())
        }

    @property
    def _evaluated(self) -> dict[str, Phase | Neighbors]:
        """The additional evaluations of the models by name."""
        parts = {"fine_tune": self.fine_tune, "neighbors": self.neighbors}
        return {name: part for name, part in parts.items() if part is not None}

    def _repr_html_(self) -> str:
        parts = {**self.phases, **self._evaluated}
        rows = tuple((name, _listed(part)) for name, part in parts.items())
        return Table(("phase", "settings"), rows, self.name)._repr_html_()

    def __repr__(self) -> str:
        phases = [f"{name}({_listed(phase)})" for name, phase in self.phases.items()]
        evaluations = [f"; {name}({_listed(part)})" for name, part in self._evaluated.items()]
        return printable(f"{self.name}: {' -> '.join(phases)}{''.join(evaluations)}")


def _listed(part: Phase | Neighbors) -> str:
    return ", ".join(f"{key}={value}" for key, value in part.settings.items())


def _check_phase(key: str, phase: object) -> None:
    """Raise ``TypeError`` unless a phase consists of two functions and a dictionary."""
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
    check_switch(f"rowwise` of the phase `{key}", phase.rowwise, auto=False)


def check_fine_tune(phase: object) -> Phase:
    """Return the phase for fine-tuning, or raise ``TypeError``."""
    return check_kind("fine_tune", phase, Phase, "a Phase such as sgd(lr=0.1, epochs=5)")


@public
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
    """Return the algorithm that runs some phases in order in every round.

    Parameters
    ----------
    name, phases
        The method's name, and its phases by name.
    pooled, fine_tune, neighbors, needs
        As in :class:`Algorithm`. A function that returns algorithms had better declare `needs` by
        :func:`topofl.algorithms.needing`, which ``topofl list --needs`` reads.

    Raises
    ------
    ValueError
        If there is no phase, or a need depends on arguments.
    TypeError
        If a phase has no name or is not a :class:`Phase`, or an argument has the wrong type.

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
            "`needs` must not depend on arguments, because a chain has none, got "
            f"{unbound.name!r}, which does; decorate the function that returns the chain with "
            "algorithms.needing(...)"
        )
    return Algorithm(
        name, phases, pooled=pooled, fine_tune=tuned, neighbors=neighbors, needs=tuple(needs)
    )


@public
def sharing(owner: str, phase: Phase) -> Phase:
    """Return a phase that uses the state of an earlier phase instead of its own.

    Parameters
    ----------
    owner
        Name of an earlier phase of the chain, whose state is passed to the phase.
    phase
        The phase whose `apply` runs.

    Examples
    --------
    >>> sharing("exchange", Phase(lambda models: {}, lambda models, state, round: state)).settings
    {'of': 'exchange'}
    """

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models, round.state(owner), round)
        return state

    settings = dict(phase.settings) | {"of": owner}
    return Phase(lambda models: {}, apply, settings, rowwise=phase.rowwise)


@public
def on_all_models(phase: Phase) -> Phase:
    """Return a phase that has the models of all nodes also if a run is distributed.

    For phases that combine the models of different nodes in another way than by the methods of a
    round. In a distributed run, every process gathers the models of all nodes, computes the phase
    for all of them, and takes those of its own nodes, which costs memory and time; the state holds
    all nodes in every process. Phases that do not declare ``rowwise=True`` run in this way by
    themselves. In other runs, the phase is unchanged.

    Parameters
    ----------
    phase
        The phase.

    Examples
    --------
    >>> def average(models, state, round):
    ...     models.flat.copy_(models.flat.mean(0, keepdim=True).expand_as(models.flat))
    ...     return state
    >>> on_all_models(Phase(lambda models: {}, average, {"weights": "equal"})).settings
    {'weights': 'equal'}
    """

    def init(models: Models) -> State:
        return phase.init(models.of_all_nodes())

    def apply(models: Models, state: State, round: Round) -> State:
        def on_all(everyone: Models, own: State) -> State:
            return phase.apply(everyone, own, round)

        return round.on_all_models(on_all, models, state)

    return phase._replace(init=init, apply=apply, rowwise=True)


@public
def on_kept_models(owner: str, phase: Phase, kept: str = "anchor") -> Phase:
    """Return a phase that acts on models in the state of an earlier phase, not on the main models.

    Parameters
    ----------
    owner
        Name of an earlier phase of the chain.
    phase
        The phase to run on the models in its state.
    kept
        Name of these models, (n, d), in the state, such as those of ``proximal(0.1,
        kept="anchor")``.

    Examples
    --------
    >>> from topofl.algorithms import gossip
    >>> on_kept_models("personal", gossip()).settings
    {'weights': 'round', 'of': 'personal'}
    """

    def apply(models: Models, state: State, round: Round) -> State:
        others = round.state(owner)
        if kept not in others:
            raise ValueError(
                f"`owner` must be a phase with models {kept!r} in its state, but {owner!r} has "
                f"none; train it with proximal(0.1, kept={kept!r})"
            )
        return phase.apply(models.like(others[kept]), state, round)

    return phase._replace(apply=apply, settings=dict(phase.settings) | {"of": owner})
