"""Phases in which every node trains on its own data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import (
    check_fraction,
    check_int,
    check_nonnegative,
    check_sequence,
    check_takes,
    shown,
)
from topofl.algorithms.contract import terms as words
from topofl.algorithms.contract.gradient_points import At
from topofl.algorithms.contract.participation import Participation, name_of
from topofl.algorithms.contract.parts import Part, as_part, everything
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import Models, Round, Rule, State, nothing
from topofl.algorithms.contract.schedules import Rate, decayed
from topofl.algorithms.contract.terms import Descend, Term, merged

__all__ = [
    "Training",
    "check_amount",
    "check_epochs",
    "check_work",
    "fine_tuning",
    "sgd",
    "steps",
    "train",
    "usual",
]

Amount = int | tuple[int, ...]
"""One number for all nodes, or one per node."""


@dataclass(frozen=True)
class Training:
    """What nodes do with their own data in a round; see :func:`train`.

    Parameters
    ----------
    descend
        What is made of gradients.
    batch_size
        Examples per minibatch.
    steps
        Steps per round, where `epochs` is None.
    epochs
        Passes over a node's data per round.
    part
        What is trained; the rest stays as it is.
    at
        Where gradients are taken; None: at the models.
    gradient
        Weight rule by which the gradients of nodes are averaged before the terms see them.
    per_step
        How many of these steps a history counts as one local step, such as one per record of a
        minibatch.
    """

    descend: Descend
    batch_size: Amount
    steps: Amount = 1
    epochs: Amount | None = None
    part: Part = everything
    at: At | None = None
    gradient: Rule | None = None
    per_step: int = 1

    def __post_init__(self) -> None:
        _check_together(self)

    @property
    def minibatches(self) -> int:
        """Minibatches that a step takes."""
        return 1 if self.at is None else self.at.minibatches

    @property
    def sizes(self) -> int | np.ndarray:
        """Examples per minibatch, one number or (n,)."""
        return self.batch_size if isinstance(self.batch_size, int) else np.array(self.batch_size)

    @property
    def settings(self) -> dict[str, Any]:
        """Its arguments without those that have usual values."""
        amount = {"steps": self.steps} if self.epochs is None else {"epochs": self.epochs}
        settings = self.descend.settings | {"batch_size": self.batch_size} | amount
        settings = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        }
        settings |= {} if self.part.is_everything else {"part": str(self.part)}
        settings |= {} if self.at is None else dict(self.at.settings)
        rule = self.gradient
        return (
            settings
            if rule is None
            else settings | {"gradient": getattr(rule, "__name__", repr(rule))}
        )

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Return each node's steps per round, (n,), from its number of examples.

        Raises
        ------
        ValueError
            If `batch_size`, `steps` or `epochs` are of another number of nodes.
        """
        for name in ("batch_size", "steps", "epochs"):
            amount = getattr(self, name)
            if isinstance(amount, tuple) and len(amount) != len(sizes):
                raise ValueError(
                    f"`{name}` must be one number or one per node, n={len(sizes)}, got "
                    f"{len(amount)} numbers"
                )
        if self.epochs is None:
            return np.full(len(sizes), self.steps)
        return -(-np.asarray(self.epochs) * -(-sizes // self.sizes) // self.minibatches)

    def init(self, models: Models) -> State:
        """Return what the terms, and the point, keep from round to round."""
        models.columns(self.part)  # raises before any work
        return merged([self.descend.init(models), {} if self.at is None else self.at.init(models)])

    @property
    def begins(self) -> bool:
        """Whether they make anything anew in every round."""
        return any(
            one.begin is not nothing
            for one in (*self.descend.terms, *([self.at] if self.at else []))
        )

    def begin(self, models: Models) -> State:
        """Return what they make anew in every round."""
        return merged(
            [self.descend.begin(models), {} if self.at is None else self.at.begin(models)]
        )


def train(
    descend: Descend,
    *,
    batch_size: int | Sequence[int] = 128,
    steps: int | Sequence[int] | None = None,
    epochs: int | Sequence[int] | None = None,
    part: Part | str = everything,
    at: At | None = None,
    participants: Participation | None = None,
    gradient: Rule | None = None,
) -> Phase:
    """Return the phase in which nodes take local steps on minibatches of their own data.

    After a push-sum exchange the steps of what travels are divided by the node's push-sum weight:
    they are then those of the biased variable, at the gradient of the de-biased one.

    Parameters
    ----------
    descend
        What a step makes of gradients, by :func:`topofl.algorithms.descend`.
    batch_size
        Examples per minibatch, one number or one per node; each node passes over its data in a
        fresh random order every epoch, without replacement, and keeps the last, smaller minibatch.
    steps
        Steps per round, one number or one per node (0: it does not train); None: 1, or as many as
        `epochs` take.
    epochs
        Passes over a node's own data per round, in place of `steps`: one number, or one per node.
    part
        What is trained, such as :data:`topofl.algorithms.head`; the rest stays as it is, and takes
        no gradient.
    at
        Where gradients are taken, such as :func:`topofl.algorithms.lookahead`; None: at the models.
    who
        Who trains, such as ``sampled(0.1)``, or any function of the round (``round.t``,
        ``round.sizes``, ``round.rng(purpose)``) that returns n booleans; None: all nodes.
    gradient
        Weight rule by which gradients are averaged between nodes in each step, before the terms see
        them, such as
        :func:`topofl.mixing.within_groups`; None: each node uses its own.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, both `steps` and `epochs` are given, or
        `gradient` is given where nodes take different steps, or only of a part of the model.

    Examples
    --------
    >>> from topofl.algorithms import clip, cosine, descend, momentum
    >>> steps = descend(clip(10.0), momentum(0.9), lr=cosine(0.1, rounds=500))
    >>> train(steps, batch_size=32, epochs=5).settings["epochs"]
    5
    """
    if not isinstance(descend, Descend):
        raise TypeError(
            f"`descend` must be such as descend(momentum(0.9), lr=0.1), got {shown(descend)}"
        )
    how = Training(
        descend,
        check_amount("batch_size", batch_size, least=1),
        *check_work(steps, epochs),
        as_part("part", part),
        _check_point(at),
        gradient,
    )
    if participants is not None and not callable(participants):
        raise TypeError(
            "`participants` must be a function of the round such as sampled(0.1), got "
            f"{shown(participants)}"
        )
    if participants is not None and gradient is not None:
        raise ValueError(_TOGETHER)

    def apply(models: Models, state: State, round: Round) -> State:
        round.train(
            models,
            how,
            state,
            participants=None if participants is None else np.asarray(participants(round)),
        )
        return state

    return Phase(
        how.init,
        apply,
        how.settings | ({} if participants is None else {"participation": name_of(participants)}),
    )


def _check_point(at: Any) -> At | None:
    if at is not None and (not isinstance(at, At) or at.minibatches not in (1, 2)):
        raise TypeError(
            f"`at` must be such as lookahead(0.01), of 1 or 2 minibatches, got {shown(at)}"
        )
    if at is not None:
        check_takes(
            f"`where` of the point {at.name!r}", at.where, "theta", "own", "step", "gradient"
        )
        check_takes(
            f"`back` of the point {at.name!r}", at.back, "g", "theta", "own", "step", "gradient"
        )
        for name in ("init", "begin"):
            check_takes(f"`{name}` of the point {at.name!r}", getattr(at, name), "models")
    return at


_TOGETHER = (
    "`gradient` must be None unless all nodes take the same steps of all parameters; use steps="
)


def _check_together(how: Training) -> None:
    """Raise if gradients are mixed while nodes take different steps, or by no function."""
    if how.gradient is None:
        return
    if not callable(how.gradient):
        raise TypeError(
            "`gradient` must be a weight rule such as mixing.within_groups, got "
            f"{shown(how.gradient)}"
        )
    alike = how.epochs is None and isinstance(how.steps, int) and isinstance(how.batch_size, int)
    if not alike or not how.part.is_everything:
        raise ValueError(_TOGETHER)
    if how.at is not None:
        raise ValueError(
            f"`gradient` must be None with at={how.at.name}, which each node does alone; leave one "
            "out"
        )


def usual(
    lr: Rate,
    *,
    momentum: float = 0.0,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    terms: Sequence[Term] = (),
) -> Descend:
    """Return the usual local step: clipping, weight decay, further terms and momentum.

    Parameters
    ----------
    lr, momentum, reset_momentum, lr_decay, weight_decay, clip, terms
        As in :func:`sgd`.
    """
    chosen = [] if clip is None else [words.clip(clip)]
    chosen += (
        [words.weight_decay(weight_decay)]
        if check_nonnegative("weight_decay", weight_decay)
        else []
    )
    chosen += terms
    chosen += (
        [words.momentum(momentum, reset=reset_momentum)]
        if check_fraction("momentum", momentum)
        else []
    )
    return words.descend(*chosen, lr=decayed(lr, lr_decay))


def sgd(
    lr: Rate,
    *,
    batch_size: int | Sequence[int] = 128,
    steps: int | Sequence[int] | None = None,
    epochs: int | Sequence[int] | None = None,
    momentum: float = 0.0,
    reset_momentum: bool = False,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    part: Part | str = everything,
    participants: Participation | None = None,
    terms: Sequence[Term] = (),
    at: At | None = None,
    gradient: Rule | None = None,
) -> Phase:
    """Return the phase of minibatch SGD with heavy-ball momentum, in the words of :func:`train`.

    Per step in round t, for every node i with minibatch ``S_i``::

        g_i = clip(grad F(theta_i; S_i)) + weight_decay * theta_i      (then `terms`)
        v_i = momentum * v_i + g_i
        theta_i = theta_i - lr * lr_decay^t * v_i

    Parameters
    ----------
    lr
        Step size in round 0.
    batch_size, steps, epochs, part, who, at, gradient
        As in :func:`train`.
    terms
        What else is made of gradients, between the weight decay and the momentum, such as
        ``[proximal(0.1)]``.
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
        Largest norm of a gradient, over what is trained; None: as it is.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    """
    descent = usual(
        lr,
        momentum=momentum,
        reset_momentum=reset_momentum,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        clip=clip,
        terms=terms,
    )
    return train(
        descent,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        part=part,
        at=at,
        participants=participants,
        gradient=gradient,
    )


def check_amount(name: str, value: Any, *, least: int = 0) -> Amount:
    """Return one number, at least 1, or one per node, each at least `least`, or raise."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        numbers = check_sequence(name, value, "one number per node")
        if not len(numbers):
            raise ValueError(f"`{name}` must be one number or one per node, got none")
        return tuple(
            check_int(f"{name}[{i}]", number, minimum=least) for i, number in enumerate(numbers)
        )
    return check_int(name, value, minimum=1)


def check_epochs(name: str, epochs: int | Sequence[int] | None) -> Amount | None:
    """Return passes over the local data, one number or one per node, or raise."""
    return None if epochs is None else check_amount(name, epochs)


def check_work(
    steps: Any, epochs: Any, *, least: int = 0, name: str = "steps"
) -> tuple[Amount, Amount | None]:
    """Return steps (1 by default) and epochs, or raise if both are given."""
    if steps is not None and epochs is not None:
        raise ValueError(
            f"one of `{name}` and `epochs` must be None, as each says how long nodes train, got "
            f"{name}={shown(steps)} and epochs={shown(epochs)}; give {name}=None for passes over "
            "the data, or epochs=None for steps"
        )
    passes = None if epochs is None else check_amount("epochs", epochs, least=least)
    return check_amount(name, 1 if steps is None else steps, least=least), passes


def steps(
    batch_size: int, momentum: float, weight_decay: float, clip: float | None
) -> dict[str, Any]:
    """Return arguments of :func:`sgd` whose momentum starts from zero in every round."""
    return {
        "batch_size": batch_size,
        "momentum": momentum,
        "reset_momentum": True,
        "weight_decay": weight_decay,
        "clip": clip,
    }


def fine_tuning(lr: Rate, epochs: int | None, **rest: Any) -> Phase | None:
    """Return the phase of fine-tuning, in which nodes pass over their data; None without epochs."""
    if epochs is None:
        return None
    return sgd(lr, epochs=check_int("fine_tune_epochs", epochs, minimum=1), **rest)
