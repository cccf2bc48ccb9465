"""Local steps as chains of terms, which turn gradients into directions.

A step of node i on its minibatch ``S_i`` passes the gradient through the terms in order::

    g_i     = grad F(theta_i; S_i)
    g_i     = term(g_i, theta_i)                  for each term in order
    theta_i = theta_i - lr(round, step) * g_i
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from topofl._support.check import (
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl.algorithms.contract.checked import NO_BRANCHES, check_same_shape, explaining_meta_errors
from topofl.algorithms.contract.round import Models, State, no_state
from topofl.algorithms.contract.schedules import Rate, Schedule, as_schedule, described

__all__ = ["Descend", "Step", "Term", "descend", "per_row"]


class Step(NamedTuple):
    """The local step in which a term is applied.

    Attributes
    ----------
    round
        Index of the round, from 0.
    k
        Index of the step in the round, from 0.
    lr
        Learning rate of the step.

    Examples
    --------
    A term that scales gradients by 1, 1/2, 1/3, ... in the steps of a round:

    >>> import torch
    >>> shrink = Term("shrink", lambda g, theta, own, step: g.div_(step.k + 1), elementwise=True)
    >>> shrink.update(torch.ones(1, 2), torch.zeros(1, 2), {}, Step(round=0, k=1, lr=0.1))
    tensor([[0.5000, 0.5000]])
    """

    round: int
    k: int
    lr: float


Update = Callable[[Tensor, Tensor, State, Step], Tensor]
"""``update(g, theta, own, step) -> g``: from gradients of some nodes to directions."""


class Term(NamedTuple):
    """One term of a local step: a function of gradients that returns directions, with its state.

    Attributes
    ----------
    name
        Its name in settings and messages.
    update
        ``update(g, theta, own, step) -> g``, for k nodes at a time: `g` and `theta` are (k, m)
        tensors, the gradients and the trained columns of the models; `own` holds the same rows and
        columns of the phase's state, by name. It returns the input of the next term, (k, m). It may
        write to `g` and `own`, but not to `theta`. Rows must not depend on each other, because any
        nodes may be passed together.
    init
        ``init(models) -> {name: tensor}``: state that lasts from round to round, one row per node:
        (n, d) or (n,). Other phases of the chain access it by ``round.state``.
    begin
        The same for state that starts anew in every round, such as a momentum that is reset. It is
        called with the models of the k nodes that are trained together.
    elementwise
        Whether each number of the result depends only on the numbers at its own position. Such a
        term may be called with tensors (k, ...) of equal shapes, one parameter at a time, which
        saves a copy; its state still has shapes (n, d) or (n,).
    settings
        Its arguments, saved with results.

    Examples
    --------
    A custom term that replaces gradients by their signs:

    >>> sign = Term("sign", lambda g, theta, own, step: g.sign_(), elementwise=True)
    >>> descend(sign, lr=0.01).settings
    {'lr': 0.01, 'sign': True}
    """

    name: str
    update: Update
    init: Callable[[Models], State] = no_state
    begin: Callable[[Models], State] = no_state
    elementwise: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})


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
                settings[
                    name if name not in settings else f"{name} of {term.name} {len(settings)}"
                ] = value
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
            made = (
                checked_update(term, g, theta, own, step)
                if checked
                else term.update(g, theta, own, step)
            )
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
        if not isinstance(term, Term):
            raise TypeError(
                "`terms` must be terms such as momentum(0.9) or Term('mine', update), got "
                f"{shown(term)}"
            )
        if not callable(term.update) or not callable(term.init) or not callable(term.begin):
            raise TypeError(
                f"`update`, `init` and `begin` of the term {term.name!r} must be functions"
            )
        check_takes(f"`update` of the term {term.name!r}", term.update, "g", "theta", "own", "step")
        for name in ("init", "begin"):
            check_takes(f"`{name}` of the term {term.name!r}", getattr(term, name), "models")
    return Descend(tuple(terms), as_schedule("lr", lr))


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Return one number per row, (k,), in the shape that broadcasts with a (k, ...) tensor."""
    return values.view(-1, *[1] * (like.dim() - 1))


def writable_result(made: Tensor, g: Tensor, own: State) -> Tensor:
    """Return a term's result as the next term may overwrite it: copied to `g` if it is state."""
    memory = made.untyped_storage()._cdata
    is_state = any(memory == x.untyped_storage()._cdata for x in own.values())
    return g.copy_(made) if is_state else made


def checked_update(term: Term, g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
    """Return a term's result on meta tensors, or raise ``ValueError`` if it violates its contract.

    A term must work without values, must not change `theta`, must change its state in place, and
    must return directions of the shape of `g`.
    """
    version = theta._version
    before = dict(own)
    must = (
        f"the term {term.name!r} must work on tensors without values (device 'meta'), on which a "
        "step is played to see what memory it takes"
    )
    with explaining_meta_errors(must, NO_BRANCHES):
        made: Any = term.update(g, theta, own, step)
    if theta._version != version:
        raise ValueError(
            f"the term {term.name!r} must not change `theta`; return a direction, or work on a copy"
        )
    replaced = next((name for name in before | own if own.get(name) is not before.get(name)), None)
    if replaced is not None:
        raise ValueError(
            f"the term {term.name!r} must change its state in place, but put another tensor as "
            f"{replaced!r} into `own`; use own[{replaced!r}].copy_(...), and `init` or `begin` for "
            "new tensors"
        )
    return check_same_shape(f"the term {term.name!r}", "directions", made, g)
