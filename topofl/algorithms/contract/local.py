"""Phases in which every node trains on its own data, and what its local steps minimize."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_fraction,
    check_int,
    check_kind,
    check_nonnegative,
    check_positive,
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl.algorithms.contract import terms as ready
from topofl.algorithms.contract.descent import (
    Descend,
    GradientPoint,
    Rate,
    decayed,
    descend,
    merged_states,
)
from topofl.algorithms.contract.phase import Participation, Phase, participation_setting
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    Rule,
    State,
    as_part,
    everything,
    head,
    no_state,
)
from topofl.algorithms.contract.terms import Term, check_per_node, one_or_per_node

__all__ = ["Objective", "Training", "sgd", "train"]

Amount = int | tuple[int, ...]
"""One number for all nodes, or one per node."""

Passes = float | Sequence[float]
"""Passes over a node's data: one number for all nodes, or one per node."""

Epochs = Passes | None
Steps = int | Sequence[int] | None
"""The two ways to say how long nodes train in a round, of which at most one is given."""

EPOCHS = 5
"""Passes per round of methods whose `epochs` and `steps` are both None."""


def check_amount(name: str, value: Any, *, least: int = 0) -> Amount:
    """Return one number, at least 1, or one per node, each at least `least`, or raise.

    Examples
    --------
    >>> check_amount("steps", 3), check_amount("steps", [3, 0])
    (3, (3, 0))
    """
    at_least = partial(check_int, minimum=least)
    return one_or_per_node(name, value, partial(check_int, minimum=1), at_least)


def check_epochs(
    name: str, epochs: Epochs, *, least: float = 0
) -> float | tuple[float, ...] | None:
    """Return passes over the local data, one number or one per node, or raise.

    They may be fractions. One number must be above 0, and one per node at least 0, or above 0 if
    `least` is; whole numbers are returned as integers.

    Examples
    --------
    >>> check_epochs("epochs", 0.5), check_epochs("epochs", [2.0, 0])
    (0.5, (2, 0))
    """

    def above_0(name: str, value: Any) -> float:
        remedy = "0.5 takes half of a node's minibatches, rounded up"
        return _whole(check_positive(name, value, remedy=remedy))

    def at_least_0(name: str, value: Any) -> float:
        return _whole(check_nonnegative(name, value))

    if epochs is None:
        return None
    return one_or_per_node(name, epochs, above_0, above_0 if least else at_least_0)


def _whole(number: float) -> float:
    """Return a number as an integer if it is whole."""
    return int(number) if number == int(number) else number


def check_work(
    steps: Any, epochs: Any, *, least: int = 0, name: str = "steps"
) -> tuple[Amount, float | tuple[float, ...] | None]:
    """Return steps (1 by default) and epochs, or raise if both are given.

    Examples
    --------
    >>> check_work(None, 5)
    (1, 5)
    """
    if steps is not None and epochs is not None:
        raise ValueError(
            f"one of `{name}` and `epochs` must be None, as each sets how long nodes train, got "
            f"{name}={shown(steps)} and epochs={shown(epochs)}; give {name}=None for passes over "
            "the data, or epochs=None for steps"
        )
    passes = check_epochs("epochs", epochs, least=least)
    return check_amount(name, 1 if steps is None else steps, least=least), passes


def epochs_or_steps(epochs: Epochs, steps: Steps) -> dict[str, Any]:
    """Return the arguments of :func:`train`; :data:`EPOCHS` passes if neither is given."""
    return {"epochs": EPOCHS if epochs is None and steps is None else epochs, "steps": steps}


class Apply(Protocol):
    """A node's model in a local step, as an :class:`Objective` sees it."""

    def __call__(self, inputs: Tensor, model: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return outputs (b, ...) and features (b, m) of the model, or of another one (d,).

        Features are None for an objective without them.
        """
        ...


class Objective(NamedTuple):
    """What local steps minimize in place of the mean loss of the task.

    Attributes
    ----------
    name
        Its name in settings and messages.
    losses
        ``losses(apply, inputs, targets, own, loss) -> (b,)``, for one node: its minibatch, inputs
        (b, ...) and targets (b, ...); its rows of the tensors in the state of the phase, by name;
        and the loss of the task, ``loss(outputs, targets) -> (b,)``. ``apply(inputs)`` returns the
        outputs of the node's model and its features, ``apply(inputs, row)`` those of a model (d,)
        that is constant. It is called for several nodes at a time by ``torch.func.vmap``, and so
        must not branch on values.
    features
        The layer whose inputs are the features, (b, m), one for all nodes; the model must call it
        once per minibatch. None: `losses` needs no features and gets None in their place.
    init
        ``init(models) -> {name: tensor}``: the state that it reads, one row per node. Other phases
        change it by ``round.state``.
    settings
        Its arguments, saved with results.

    Examples
    --------
    An objective that also keeps features small:

    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> def losses(apply, inputs, targets, own, loss):
    ...     outputs, features = apply(inputs)
    ...     return loss(outputs, targets) + 0.01 * features.square().mean(1)
    >>> small = Objective("small features", losses, settings={"strength": 0.01})
    >>> local = algorithms.train(algorithms.descend(lr=0.1), objective=small)
    >>> history = topofl.run(
    ...     algorithms.chain("D-SGD of small features", local=local, exchange=algorithms.gossip()),
    ...     model=models.logistic_regression(64),
    ...     clients=data.iid(data.digits(), n=4, seed=0),
    ...     topology=topologies.ring(4),
    ...     rounds=2,
    ...     seed=0,
    ... )
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """

    name: str
    losses: Callable[..., Tensor]
    features: Part | None = head
    init: Callable[[Models], State] = no_state
    settings: Mapping[str, Any] = MappingProxyType({})

    def begin(self, models: Models) -> State:
        """Return the state that starts anew in every round: none."""
        del models
        return {}


def check_objective(objective: Any) -> Objective | None:
    """Return what local steps minimize, or raise ``TypeError``; None: the loss of the task."""
    if objective is None:
        return None
    wanted = "an Objective, or None for the loss of the task"
    check_kind("objective", objective, Objective, wanted)
    what = f"`losses` of the objective {objective.name!r}"
    check_takes(what, objective.losses, "apply", "inputs", "targets", "own", "loss")
    check_takes(f"`init` of the objective {objective.name!r}", objective.init, "models")
    return objective


@dataclass(frozen=True)
class Training:
    """The local steps of a round; see :func:`train`.

    Parameters
    ----------
    descend
        How a step is computed from gradients.
    batch_size
        Examples per minibatch.
    steps
        Steps per round, where `epochs` is None.
    epochs
        Passes over a node's data per round. A fraction takes that fraction of the minibatches of a
        pass, rounded up, and the next round continues with the next ones.
    part
        The part of the model that is trained; the rest does not change.
    at
        The point at which gradients are taken; None: at the models.
    gradient
        Weight rule by which the gradients of nodes are averaged before they are passed to the
        terms.
    per_step
        Number of steps that a history counts as one local step; above 1 if, for example, each
        record of a minibatch takes a step of its own.
    objective
        What steps minimize; None: the loss of the task.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> Training(descend(lr=0.1), batch_size=32, epochs=2).counts(np.array([100, 64])).tolist()
    [8, 4]
    """

    descend: Descend
    batch_size: Amount
    steps: Amount = 1
    epochs: float | tuple[float, ...] | None = None
    part: Part = everything
    at: GradientPoint | None = None
    gradient: Rule | None = None
    per_step: int = 1
    objective: Objective | None = None

    def __post_init__(self) -> None:
        if self.gradient is None:
            return
        if not callable(self.gradient):
            raise TypeError(
                "`gradient` must be a weight rule such as mixing.within_groups, got "
                f"{shown(self.gradient)}"
            )
        one_number = all(isinstance(value, int) for value in (self.steps, self.batch_size))
        if not one_number or self.epochs is not None or not self.part.is_everything:
            raise ValueError(_SAME_STEPS)
        if self.at is not None:
            raise ValueError(
                f"`gradient` must be None with at={self.at.name}, whose gradients are not "
                "averaged; leave one out"
            )
        if self.objective is not None:
            raise ValueError(
                f"`gradient` must be None with objective={self.objective.name!r}, whose gradients "
                "are not averaged; leave one out"
            )

    @property
    def minibatches(self) -> int:
        """Number of minibatches per step."""
        return 1 if self.at is None else self.at.minibatches

    @property
    def sizes(self) -> int | np.ndarray:
        """Examples per minibatch, one number or (n,)."""
        return self.batch_size if isinstance(self.batch_size, int) else np.array(self.batch_size)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that differ from their defaults."""
        amount = {"steps": self.steps} if self.epochs is None else {"epochs": self.epochs}
        settings = self.descend.settings | {"batch_size": self.batch_size} | amount
        settings = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        }
        settings |= {} if self.part.is_everything else {"part": str(self.part)}
        settings |= {} if self.at is None else dict(self.at.settings)
        if self.objective is not None:
            layer = self.objective.features
            settings["objective"] = self.objective.name
            settings |= {} if layer is None else {"features": str(layer)}
            settings |= self.objective.settings
        if self.gradient is not None:
            settings["gradient"] = getattr(self.gradient, "__name__", repr(self.gradient))
        return settings

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Return each node's steps per round, (n,), from its number of examples.

        Raises
        ------
        ValueError
            If `batch_size`, `steps` or `epochs` do not have one number per node.
        """
        for name in ("batch_size", "steps", "epochs"):
            check_per_node(name, getattr(self, name), len(sizes))
        if self.epochs is None:
            return np.full(len(sizes), self.steps)
        minibatches = np.asarray(self.epochs) * -(-sizes // self.sizes)
        # rounding: 0.1 * 30 is above 3
        minibatches = np.ceil(minibatches * (1 - 1e-12)).astype(np.int64)
        return -(-minibatches // self.minibatches)

    def init(self, models: Models) -> State:
        """Return the state of the terms, and of the point, that lasts from round to round."""
        models.columns(self.part)  # raises before any work
        return merged_states(one.init(models) for one in self._stateful)

    @property
    def begins(self) -> bool:
        """Whether the terms or the point have state that starts anew in every round."""
        points = () if self.at is None else (self.at,)
        return any(one.begin is not no_state for one in (*self.descend.terms, *points))

    def begin(self, models: Models) -> State:
        """Return the state of the terms, and of the point, that starts anew in every round."""
        return merged_states(one.begin(models) for one in self._stateful)

    @property
    def _stateful(self) -> tuple[Descend | GradientPoint | Objective, ...]:
        others = (self.at, self.objective)
        return (self.descend, *(one for one in others if one is not None))


@public
def train(
    descend: Descend,
    *,
    batch_size: int | Sequence[int] = 128,
    steps: int | Sequence[int] | None = None,
    epochs: float | Sequence[float] | None = None,
    part: Part | str = everything,
    at: GradientPoint | None = None,
    participants: Participation | None = None,
    gradient: Rule | None = None,
    objective: Objective | None = None,
) -> Phase:
    """Return the phase in which nodes take local steps on minibatches of their own data.

    After a push-sum exchange, steps of shared parameters are divided by the node's push-sum weight:
    they are the steps of the biased variable, along the gradient at the de-biased one.

    Parameters
    ----------
    descend
        How a step is computed from gradients, built by :func:`topofl.algorithms.descend`.
    batch_size
        Examples per minibatch, one number or one per node. In every epoch a node passes over its
        data in a new random order, without replacement; the last minibatch may be smaller.
    steps
        Steps per round, one number or one per node (0: it does not train). None: as many as
        `epochs` take, or 1.
    epochs
        Passes over a node's own data per round, in place of `steps`: one number, or one per node.
        A fraction, such as 0.5, takes that fraction of the minibatches of a pass, rounded up; the
        next round continues with the next ones.
    part
        The part of the model that is trained, such as :data:`topofl.algorithms.head`; the rest does
        not change, and no gradients are computed for it.
    at
        The point at which gradients are taken, such as :func:`topofl.algorithms.lookahead`; None:
        at the models.
    participants
        The nodes that train: ``sampled(0.1)``, or any function of the round (``round.t``,
        ``round.sizes``, ``round.rng(purpose)``) that returns n booleans; None: all nodes.
    gradient
        Weight rule by which nodes average their gradients in each step before these are passed to
        the terms, such as :func:`topofl.mixing.within_groups`; None: each node uses its own.
    objective
        What steps minimize, such as a loss with a penalty on features; None: the loss of the task.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or has the wrong type, if both `steps` and `epochs` are
        given, or if `gradient` is given and nodes take different steps or train only a part of the
        model.

    Examples
    --------
    >>> from topofl.algorithms import clip, cosine, descend, momentum
    >>> steps = descend(clip(10.0), momentum(0.9), lr=cosine(0.1, rounds=500))
    >>> train(steps, batch_size=32, epochs=5).settings["epochs"]
    5
    """
    wanted = "local steps such as descend(momentum(0.9), lr=0.1)"
    training = Training(
        check_kind("descend", descend, Descend, wanted),
        check_amount("batch_size", batch_size, least=1),
        *check_work(steps, epochs),
        as_part("part", part),
        _check_point(at),
        gradient,
        objective=check_objective(objective),
    )
    if participants is not None and not callable(participants):
        raise TypeError(
            "`participants` must be a function of the round such as sampled(0.1), got "
            f"{shown(participants)}"
        )
    if participants is not None and gradient is not None:
        raise ValueError(_SAME_STEPS)

    def apply(models: Models, state: State, round: Round) -> State:
        chosen = None if participants is None else np.asarray(participants(round))
        round.train(models, training, state, participants=chosen)
        return state

    settings = training.settings | participation_setting(participants)
    return Phase(training.init, apply, settings, rowwise=True)


def _check_point(at: Any) -> GradientPoint | None:
    """Return the point at which gradients are taken, or raise ``TypeError``."""
    if at is None:
        return None
    if not isinstance(at, GradientPoint) or at.minibatches not in (1, 2):
        raise TypeError(
            f"`at` must be a GradientPoint of 1 or 2 minibatches, such as lookahead(0.01), got "
            f"{shown(at)}"
        )
    for name, arguments in _POINT_ARGUMENTS.items():
        check_takes(f"`{name}` of the point {at.name!r}", getattr(at, name), *arguments)
    return at


_POINT_ARGUMENTS = {
    "where": ("theta", "own", "step", "gradient"),
    "back": ("g", "theta", "own", "step", "gradient"),
    "init": ("models",),
    "begin": ("models",),
}


_SAME_STEPS = (
    "`gradient` must be None unless all nodes take the same steps of all parameters; use steps="
)
"""The error where gradients are averaged between nodes that take different steps."""


def sgd_descent(
    lr: Rate,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    *,
    reset_momentum: bool = False,
    terms: Sequence[Term] = (),
) -> Descend:
    """Return the step of :func:`sgd`: clipping, weight decay, additional terms and momentum."""
    chosen = [] if clip is None else [ready.clip(clip)]
    if check_nonnegative("weight_decay", weight_decay):
        chosen.append(ready.weight_decay(weight_decay))
    chosen += terms
    if check_fraction("momentum", momentum):
        chosen.append(ready.momentum(momentum, reset=reset_momentum))
    return descend(*chosen, lr=decayed(lr, lr_decay))


@public
def sgd(
    lr: Rate,
    *,
    batch_size: int | Sequence[int] = 128,
    steps: int | Sequence[int] | None = None,
    epochs: float | Sequence[float] | None = None,
    momentum: float = 0.0,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    part: Part | str = everything,
    participants: Participation | None = None,
    terms: Sequence[Term] = (),
) -> Phase:
    """Return the phase of local minibatch SGD with heavy-ball momentum.

    Per step in round t, for every node i with minibatch ``S_i``::

        g_i = clip(grad F(theta_i; S_i)) + weight_decay * theta_i      (then `terms`)
        v_i = momentum * v_i + g_i
        theta_i = theta_i - lr * lr_decay^t * v_i

    :func:`train` takes any other steps, gradients at other points, and averaged gradients.

    Parameters
    ----------
    lr
        Step size in round 0.
    batch_size, steps, epochs, part, participants
        As in :func:`train`.
    terms
        Additional terms between the weight decay and the momentum, such as ``[proximal(0.1)]``.
    momentum
        In [0, 1). The velocity ``v`` stays at its node, is never communicated, and lasts from round
        to round.
    reset_momentum
        Whether velocities start from zero in every round instead.
    lr_decay
        Factor of the step size from round to round, above 0 and at most 1.
    weight_decay
        At least 0; part of the gradient, as in ``torch.optim.SGD``.
    clip
        Largest norm of a gradient, over all trained parameters; None: gradients are not clipped.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or has the wrong type.

    Examples
    --------
    >>> sgd(0.1, batch_size=32, momentum=0.9).settings
    {'lr': 0.1, 'momentum': 0.9, 'batch_size': 32, 'steps': 1}
    """
    how = (momentum, lr_decay, weight_decay, clip)
    descent = sgd_descent(lr, *how, reset_momentum=reset_momentum, terms=terms)
    amount: dict[str, Any] = {"steps": steps, "epochs": epochs}
    return train(descent, batch_size=batch_size, part=part, participants=participants, **amount)


def dsgd_steps(lr: Rate, batch_size: int, momentum: float, local_steps: int) -> Phase:
    """Return the local steps of D-SGD with momentum, as a phase."""
    steps = check_int("local_steps", local_steps, minimum=1)
    return sgd(lr, batch_size=batch_size, steps=steps, momentum=momentum)


def sgd_of_rounds(
    lr: Rate, batch_size: int, epochs: Any, *how: Any, terms: Sequence[Term] = (), **options: Any
) -> Phase:
    """Return the phase of :func:`sgd` whose momentum starts anew in every round.

    `how` are the momentum, the decay of `lr`, the weight decay and the clip, and `options` further
    arguments of :func:`train`. Without epochs and steps, it takes :data:`EPOCHS`.
    """
    descent = sgd_descent(lr, *how, reset_momentum=True, terms=terms)
    work = epochs_or_steps(epochs, options.pop("steps", None))
    return train(descent, batch_size=batch_size, **work, **options)


def fine_tuning(
    lr: Rate,
    epochs: float | None,
    batch_size: int,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Phase | None:
    """Return the phase of local SGD that fine-tunes copies of the models; None without epochs."""
    if epochs is None:
        return None
    passes = check_epochs("fine_tune_epochs", check_positive("fine_tune_epochs", epochs))
    return sgd_of_rounds(lr, batch_size, passes, momentum, 1.0, weight_decay, clip)


def without_statistics(method: str, training: Training, models: Models) -> State:
    """Return the state of local steps; raise ``ValueError`` if models keep running statistics.

    They would be sent without the noise of a private method.
    """
    if models.statistics:
        raise ValueError(
            f"`model` must not keep running statistics in {method}, which would be sent without "
            f"noise, got {models.statistics[0]!r}; use models.with_group_norm(model)"
        )
    return training.init(models)


def steps_and_rates(
    models: Models, training: Training, state: State, round: Round, **participants: Any
) -> Tensor:
    """Train models, and return the sum of the learning rates of each node's steps, (k, 1)."""
    steps = round.train(models, training, state, **participants)
    rates = [training.descend.lr(round.t, k) for k in range(int(steps.max()))]
    total = np.cumsum([0.0, *rates])[round.own_rows(steps)]
    return torch.from_numpy(total).to(models.flat)[:, None]
