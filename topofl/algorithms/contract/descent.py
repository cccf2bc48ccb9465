"""Local steps: learning rates, chains of terms, and points at which gradients are taken."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topofl._support.calls import evaluate_call
from topofl._support.check import (
    check_int,
    check_kind,
    check_nonnegative,
    check_positive,
    check_probability,
    check_switch,
    check_takes,
    shown,
)
from topofl._support.public import ELSEWHERE, public
from topofl._support.text import is_number
from topofl.algorithms.contract.phase import check_same_shape
from topofl.algorithms.contract.round import Models, State, no_state
from topofl.algorithms.contract.terms import Step, Term, checked_update, writable_result

__all__ = [
    "Descend",
    "GradientPoint",
    "ascent",
    "constant",
    "cosine",
    "descend",
    "exponential",
    "lookahead",
    "mixture",
]

Schedule = Callable[[int, int], float]
"""``lr(round, step)`` -> learning rate, at least 0; both count from 0."""

Rate = float | str | Schedule
"""A learning rate: a number, a schedule, or text such as ``"cosine(0.5, rounds=300)"``."""


@dataclass(frozen=True)
class _Schedule:
    """A schedule of this module, and what is saved with results of it: a number or text."""

    described: float | str
    rate: Schedule = field(compare=False, repr=False)

    def __call__(self, round: int, step: int) -> float:
        return self.rate(round, step)

    def __str__(self) -> str:
        return str(self.described)


@public
def constant(lr: float) -> Schedule:
    """Return the schedule with the same learning rate in all rounds, equivalent to a number.

    Examples
    --------
    >>> constant(0.1)(5, 0)
    0.1
    """
    return as_schedule("lr", check_positive("lr", lr))


@public
def exponential(lr: float, decay: float) -> Schedule:
    """Return the schedule with exponential decay, ``lr * decay**round``.

    Parameters
    ----------
    lr
        Above 0.
    decay
        Above 0 and at most 1.

    Examples
    --------
    >>> [round(exponential(0.1, 0.5)(t, 0), 4) for t in range(3)]
    [0.1, 0.05, 0.025]
    """
    lr, decay = check_positive("lr", lr), check_positive("lr_decay", decay)
    if decay > 1:
        raise ValueError(
            f"`lr_decay` must be at most 1, got {decay:g}; it is the factor from round to round, "
            "e.g. 0.99"
        )
    if decay == 1:
        return constant(lr)
    told = f"exponential({lr!r}, {decay!r})"
    return _Schedule(told, lambda round, step: lr * decay**round)


@public
def cosine(lr: float, *, rounds: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Return the schedule with cosine decay after a linear warmup.

    In the ``w`` rounds of `warmup` it is ``lr * (round + 1) / (w + 1)``, then
    ``end + (lr - end) * (1 + cos(pi * (round - w) / (rounds - w))) / 2``, and `end` after `rounds`.

    Parameters
    ----------
    lr
        The highest learning rate, above 0.
    rounds
        The number of rounds after which it is `end`, usually that of the run.
    warmup
        The number of rounds in which it rises, fewer than `rounds`.
    end
        The last learning rate, at least 0.

    References
    ----------
    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), equation
    5.

    Examples
    --------
    >>> schedule = cosine(0.1, rounds=10, warmup=2)
    >>> [round(schedule(t, 0), 3) for t in (0, 1, 2, 6, 10)]
    [0.033, 0.067, 0.1, 0.05, 0.0]
    """
    lr, end = check_positive("lr", lr), check_nonnegative("end", end)
    rounds = check_int("rounds", rounds, minimum=1)
    warmup = check_int("warmup", warmup, minimum=0, maximum=rounds - 1, maximum_name="rounds - 1")

    def rate(round: int, step: int) -> float:
        if round < warmup:
            return lr * (round + 1) / (warmup + 1)
        done = min(1.0, (round - warmup) / max(1, rounds - warmup))
        return end + (lr - end) * (1 + math.cos(math.pi * done)) / 2

    rest = f", {warmup=!r}" * bool(warmup) + f", {end=!r}" * bool(end)
    return _Schedule(f"cosine({lr!r}, rounds={rounds}{rest})", rate)


def decayed(lr: Rate, decay: float) -> Schedule:
    """Return the schedule ``lr * decay**round``; if `lr` is a schedule, `decay` must be 1."""
    schedule = as_schedule("lr", lr)
    if not callable(lr) and not isinstance(lr, str):
        return exponential(lr, decay)
    if check_positive("lr_decay", decay) != 1:
        raise ValueError(
            f"`lr_decay` must be 1 where `lr` is a schedule, got {decay:g}; leave it out"
        )
    return schedule


def as_schedule(name: str, lr: Rate) -> Schedule:
    """Return the schedule given by a number, a function or text.

    Text must be a call of :func:`constant`, :func:`exponential` or :func:`cosine`; no other code is
    executed.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, such as an optimizer of torch or one of its schedulers, or if a
        number or an argument is out of its range.

    Examples
    --------
    >>> schedule = as_schedule("lr", "cosine(0.5, rounds=300)")
    >>> str(schedule), schedule(0, 0), round(schedule(150, 0), 4)
    ('cosine(0.5, rounds=300)', 0.5, 0.25)
    """
    if isinstance(lr, str):
        if is_number(lr):
            raise TypeError(
                f"`{name}` must be a number or a schedule, got {shown(lr)}; remove the quotes"
            )
        functions = {"constant": constant, "exponential": exponential, "cosine": cosine}
        made = evaluate_call(name, lr, functions, "0.1 or cosine(0.5, rounds=300)")
        return as_schedule(name, made)
    _check_no_other_kind(name, lr)
    if not callable(lr):
        rate = check_positive(name, lr)
        return _Schedule(rate, lambda round, step: rate)
    check_takes(f"`{name}`", lr, "round", "step")
    return lr


def _check_no_other_kind(name: str, lr: object) -> None:
    """Raise ``TypeError`` for classes, optimizers, schedulers, layers, and such as print."""
    kind = lr if isinstance(lr, type) else type(lr)
    module = kind.__module__
    if isinstance(lr, BuiltinFunctionType) and lr.__module__ == "builtins":
        got = f"the built-in function {lr.__name__}"
    elif isinstance(lr, type):
        got = f"the class {module}.{kind.__qualname__}"
    elif module.startswith("torch.optim") or isinstance(lr, torch.nn.Module):
        got = f"an object of {module}.{kind.__qualname__}"
    else:
        return
    remedy = "pass 0.1, cosine(0.1, rounds=300), or a function of (round, step)"
    if module.startswith("torch.optim.lr_scheduler"):
        remedy = "write it as a function of (round, step), or use cosine or exponential"
    elif module.startswith("torch.optim"):
        remedy = f"{remedy}; {ELSEWHERE['optimizer']}"
    raise TypeError(f"`{name}` must be a number or a schedule, got {got}; {remedy}")


def rate_at(lr: Schedule, round: int, step: int, dtype: torch.dtype, phase: str = "") -> float:
    """Return the learning rate of a step, or raise ``ValueError`` unless the dtype can hold it."""
    rate = lr(round, step)
    place = f"{f'the phase {phase!r}, ' if phase else ''}round {round + 1} (step {step} of it)"
    # raised by text, by vectors, and by integers that are too large for a float
    no_number = (TypeError, ValueError, RuntimeError, OverflowError)
    try:
        usable = math.isfinite(rate) and rate >= 0
    except no_number:
        usable = False
    if not usable:
        raise ValueError(
            f"`lr` must return a finite learning rate of at least 0, got {shown(rate)} in {place}"
        )
    rate = float(rate)
    most = torch.finfo(dtype).max
    if rate > most:
        raise ValueError(
            f"`lr` must be at most {most:g} for {dtype}, got {rate:g} in {place}; lower it"
        )
    return rate


def described(lr: Schedule) -> Any:
    """Return a schedule as a number or text, as it is saved with results."""
    if isinstance(lr, _Schedule):
        return lr.described
    return getattr(lr, "__name__", type(lr).__name__)


@dataclass(frozen=True)
class Descend:
    """A local step: terms and a learning rate; see :func:`descend`.

    Parameters
    ----------
    terms
        The terms in the order in which they are applied.
    lr
        ``lr(round, step)`` -> learning rate.

    Examples
    --------
    >>> import torch
    >>> from topofl.algorithms import clip
    >>> local = descend(clip(1.0), lr=0.1)
    >>> local.settings
    {'lr': 0.1, 'clip': 1.0}
    >>> local.direction(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2), {}, Step(0, 0, 0.1))
    tensor([[0.6000, 0.8000]])
    """

    terms: tuple[Term, ...]
    lr: Schedule

    @property
    def settings(self) -> dict[str, Any]:
        """The learning rate and the settings of all terms."""
        settings: dict[str, Any] = {"lr": described(self.lr)}
        for term in self.terms:
            for name, value in (dict(term.settings) or {term.name: True}).items():
                repeated = f"{name} of {term.name} {len(settings)}"
                settings[repeated if name in settings else name] = value
        return settings

    @property
    def elementwise(self) -> bool:
        """Whether all terms are elementwise."""
        return all(term.elementwise for term in self.terms)

    def init(self, models: Models) -> State:
        """Return the state of all terms that lasts from round to round."""
        return merged_states(term.init(models) for term in self.terms)

    def begin(self, models: Models) -> State:
        """Return the state of all terms that starts anew in every round."""
        return merged_states(term.begin(models) for term in self.terms)

    def direction(
        self, g: Tensor, theta: Tensor, own: State, step: Step, *, checked: bool = False
    ) -> Tensor:
        """Return the direction of a step; with `checked`, raise if a term violates its contract."""
        for place, term in enumerate(self.terms):
            update = partial(checked_update, term) if checked else term.update
            made = update(g, theta, own, step)
            g = writable_result(made, g, own) if place < len(self.terms) - 1 else made
        return g


def merged_states(states: Any) -> State:
    """Return the union of several states, or raise ``ValueError`` if two share a name."""
    found: State = {}
    for state in states:
        for name, tensor in state.items():
            if name in found:
                raise ValueError(
                    f"`terms` must keep tensors of different names, two of them keep {name!r}; "
                    "rename one"
                )
            found[name] = tensor
    return found


@public
def descend(*terms: Term, lr: Rate) -> Descend:
    """Return the local step that passes gradients through terms and descends along the result.

    Parameters
    ----------
    terms
        The terms in order, such as :func:`topofl.algorithms.clip`,
        :func:`topofl.algorithms.weight_decay`, :func:`topofl.algorithms.momentum`,
        :func:`topofl.algorithms.adam`, or a custom :class:`Term`; without any, plain SGD. The order
        matters: a clip before a weight decay does not clip the decay.
    lr
        Learning rate: a number above 0, or a function ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.

    Raises
    ------
    TypeError, ValueError
        If a term is not a :class:`Term` or takes other arguments, or if `lr` is neither a positive
        number nor a function of round and step.

    Examples
    --------
    >>> from topofl.algorithms import clip, momentum, weight_decay
    >>> descend(clip(10.0), weight_decay(1e-3), momentum(0.9), lr=0.1).settings
    {'lr': 0.1, 'clip': 10.0, 'weight_decay': 0.001, 'momentum': 0.9}
    """
    for term in terms:
        check_kind("terms", term, Term, "terms such as momentum(0.9) or Term('mine', update)")
        check_takes(f"`update` of the term {term.name!r}", term.update, "g", "theta", "own", "step")
        for name in ("init", "begin"):
            check_takes(f"`{name}` of the term {term.name!r}", getattr(term, name), "models")
    return Descend(tuple(terms), as_schedule("lr", lr))


Gradient = Callable[[Tensor], Tensor]
"""(k, m) trained parameters -> (k, m) gradients at them, on the first minibatch of the step."""


def _unchanged(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
    return g


class GradientPoint(NamedTuple):
    """The point at which the gradients of a step are taken.

    Attributes
    ----------
    name
        Its name in settings and messages.
    where
        ``where(theta, own, step, gradient) -> point``, for k nodes at a time: `theta` holds the
        (k, m) trained columns of the models, `own` the rows of the phase's state, as in
        :class:`Term`, and ``gradient(values)`` returns the gradients, (k, m), at other values of
        `theta`. It returns a new tensor (k, m) and does not change `theta`.
    back
        ``back(g, theta, own, step, gradient) -> g`` converts gradients with respect to the point
        into gradients with respect to the models (chain rule), which are passed to the terms.
        Default: gradients are used unchanged.
    init, begin
        As in :class:`Term`.
    minibatches
        Number of minibatches per step: 1, or 2, of which ``gradient`` uses the first and the step
        itself the second.
    settings
        Its arguments, saved with results.

    Examples
    --------
    Gradients at models that are shrunk by 1 %:

    >>> GradientPoint("shrunk", lambda theta, own, step, gradient: 0.99 * theta).minibatches
    1
    """

    name: str
    where: Callable[[Tensor, State, Step, Gradient], Tensor]
    back: Callable[[Tensor, Tensor, State, Step, Gradient], Tensor] = _unchanged
    init: Callable[[Models], State] = no_state
    begin: Callable[[Models], State] = no_state
    minibatches: int = 1
    settings: Mapping[str, Any] = MappingProxyType({})


def checked_point(at: GradientPoint, part: str, made: Any, theta: Tensor) -> Tensor:
    """Return the result of ``where`` or ``back``, or raise ``ValueError`` for a wrong shape."""
    noun = "a point" if part == "where" else "gradients"
    return check_same_shape(f"`{part}` of the point {at.name!r}", noun, made, theta)


@public
def lookahead(inner_lr: float) -> GradientPoint:
    """Return the point one gradient step ahead, computed on an additional minibatch (Per-FedAvg).

    ::

        g_i = grad F(theta_i - inner_lr * grad F(theta_i; S'_i); S_i)

    A step takes two consecutive minibatches, so that an epoch has half as many steps, rounded up.
    Training losses are those one step ahead.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees"
    (2020), FO variant.

    Examples
    --------
    >>> from topofl.algorithms import descend, train
    >>> train(descend(lr=0.1), at=lookahead(0.01)).settings["inner_lr"]
    0.01
    """
    inner_lr = check_positive("inner_lr", inner_lr)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        return theta.sub(gradient(theta), alpha=inner_lr)

    return GradientPoint("lookahead", where, minibatches=2, settings={"inner_lr": inner_lr})


@public
def ascent(radius: float) -> GradientPoint:
    """Return the point one step uphill, computed on the same minibatch (SAM).

    ::

        u_i = grad F(theta_i; S_i) / (||grad F(theta_i; S_i)|| + 1e-12)
        g_i = grad F(theta_i + radius * u_i; S_i)

    Parameters
    ----------
    radius
        Length of the step over all trained parameters, above 0.

    References
    ----------
    Foret et al., "Sharpness-aware minimization for efficiently improving generalization" (2021),
    equation 3.

    Examples
    --------
    >>> from topofl.algorithms import descend, train
    >>> train(descend(lr=0.1), at=ascent(0.05)).settings["radius"]
    0.05
    """
    radius = check_positive("radius", radius)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        up = gradient(theta)
        norms = torch.linalg.vector_norm(up, dim=1, keepdim=True)
        return theta + up * (radius / (norms + 1e-12))

    return GradientPoint("ascent", where, settings={"radius": radius})


@public
def mixture(common: Descend, *, share: float = 0.5, adaptive: bool = False) -> GradientPoint:
    """Return the mixture of models with common ones trained on the same minibatches (APFL).

    ::

        z_i = share_i * theta_i + (1 - share_i) * common_i
        g_i = share_i * grad F(z_i)

    ``common_i`` descends along ``grad F(common_i)`` by its own terms and learning rate. The state
    holds ``common``, (n, d), initially equal to the models, and ``share``, (n,).

    Parameters
    ----------
    common
        How the common models descend.
    share
        Initial share of the models in the mixture, between 0 and 1.
    adaptive
        Whether the first step of a round also updates the share, along ``<grad F(z_i), theta_i -
        common_i>`` with the learning rate, clipped to [0, 1].

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1.

    Examples
    --------
    >>> from topofl.algorithms import descend, train
    >>> train(descend(lr=0.1), at=mixture(descend(lr=0.1), share=0.3)).settings["alpha"]
    0.3
    """
    share = check_probability("alpha", share)
    check_switch("adaptive", adaptive, auto=False)

    state_of, begin, move = descent_of_kept("common", common)

    def init(models: Models) -> State:
        flat = models.flat
        return {"share": flat.new_full((len(flat),), share)} | state_of(models)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        return torch.lerp(own["common"], theta, own["share"][:, None])

    def back(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        shares = own["share"].clone()
        if adaptive and step.k == 0:
            slopes = (g * (theta - own["common"])).sum(1)
            moved = (shares - step.lr * slopes).clamp(0, 1)
            own["share"].copy_(torch.where(torch.isfinite(slopes), moved, shares))
        g = g.clone()  # the next gradient may use the same memory
        move(gradient(own["common"]), own, step)
        return g.mul_(shares[:, None])

    settings = {"alpha": share, "adaptive": adaptive, "common": common.settings}
    return GradientPoint("mixture", where, back, init, begin, settings=settings)


Moves = Callable[[Tensor, State, Step], None]
"""``move(g, own, step)`` takes the step of kept models along their gradients (k, m)."""


def descent_of_kept(
    name: str, descend: Descend
) -> tuple[Callable[[Models], State], Callable[[Models], State], Moves]:
    """Return `init`, `begin` and the step of models that descend in the state of a phase.

    Parameters
    ----------
    name
        Name of these models, (n, d), in the state, initially equal to those of the run. Names in
        the state of the terms begin with it.
    descend
        How they descend.
    """
    prefix = f"{name} "

    def prefixed(state: State) -> State:
        return {f"{prefix}{key}": tensor for key, tensor in state.items()}

    def init(models: Models) -> State:
        return {name: models.flat.clone()} | prefixed(descend.init(models))

    def begin(models: Models) -> State:
        return prefixed(descend.begin(models))

    def move(g: Tensor, own: State, step: Step) -> None:
        state = {
            key.removeprefix(prefix): tensor
            for key, tensor in own.items()
            if key.startswith(prefix)
        }
        step = step._replace(lr=rate_at(descend.lr, step.round, step.k, g.dtype))
        direction = descend.direction(g, own[name], state, step)
        own[name].sub_(direction, alpha=step.lr)

    return init, begin, move
