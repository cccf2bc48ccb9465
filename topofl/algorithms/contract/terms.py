"""Terms of local steps, which turn gradients into directions.

A step of node i on its minibatch ``S_i`` passes the gradient through the terms in order::

    g_i     = grad F(theta_i; S_i)
    g_i     = term(g_i, theta_i)                  for each term in order
    theta_i = theta_i - lr(round, step) * g_i
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_fraction,
    check_nonnegative,
    check_positive,
    check_sequence,
    check_switch,
)
from topofl._support.public import public
from topofl.algorithms.contract.phase import NO_BRANCHES, check_same_shape, explaining_meta_errors
from topofl.algorithms.contract.round import Models, State, no_state

__all__ = [
    "Step",
    "Term",
    "adam",
    "adamw",
    "clip",
    "correction",
    "cosine_pull",
    "masked",
    "momentum",
    "proximal",
    "tracking",
    "weight_decay",
]


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


Number = TypeVar("Number", int, float)

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

    >>> from topofl.algorithms import descend
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


def zeros(*names: str) -> Callable[[Models], State]:
    """Return the function from models to zeros of their shape, by name."""
    return lambda models: {name: torch.zeros_like(models.flat) for name in names}


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


@public
def clip(norm: float) -> Term:
    """Return the term that clips gradients to a largest norm, over all trained parameters.

    ``g * min(1, norm / (||g|| + 1e-6))``, as in ``torch.nn.utils.clip_grad_norm_``.

    Parameters
    ----------
    norm
        The largest norm, above 0.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(clip(10.0), lr=0.1).settings
    {'lr': 0.1, 'clip': 10.0}
    """
    norm = check_positive("clip", norm)

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        norms = torch.linalg.vector_norm(g, dim=1)
        return g.mul_(per_row((norm / (norms + 1e-6)).clamp(max=1), g))

    return Term("clip", update, settings={"clip": norm})


@public
def weight_decay(rate: float) -> Term:
    """Return the weight decay of ``torch.optim.SGD``, which adds ``rate * theta`` to gradients.

    Parameters
    ----------
    rate
        At least 0.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(weight_decay(0.001), lr=0.1).settings
    {'lr': 0.1, 'weight_decay': 0.001}
    """
    rate = check_nonnegative("weight_decay", rate)

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return g.add_(theta, alpha=rate)

    return Term("weight_decay", update, elementwise=True, settings={"weight_decay": rate})


@public
def momentum(
    rate: float, *, nesterov: bool = False, reset: bool = False, name: str = "velocity"
) -> Term:
    """Return the term of heavy-ball momentum, ``v = rate * v + g``, or of Nesterov momentum.

    Parameters
    ----------
    rate
        In [0, 1).
    nesterov
        Whether the direction is ``g + rate * v``, as in ``torch.optim.SGD(nesterov=True)``.
    reset
        Whether ``v`` starts from zero in every round; otherwise it lasts. In both cases it stays at
        its node.
    name
        Name of ``v``, (n, d), in the state of the phase.

    References
    ----------
    Polyak, "Some methods of speeding up the convergence of iteration methods" (1964); Sutskever et
    al., "On the importance of initialization and momentum in deep learning" (2013).

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(momentum(0.9, nesterov=True), lr=0.1).settings
    {'lr': 0.1, 'momentum': 0.9, 'nesterov': True}
    """
    rate = check_fraction("momentum", rate)
    check_switch("nesterov", nesterov, auto=False)
    check_switch("reset", reset, auto=False)

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        velocity = own[name].mul_(rate).add_(g)
        return g.add_(velocity, alpha=rate) if nesterov else velocity

    settings = {"momentum": rate} | ({"nesterov": True} if nesterov else {})
    settings |= {"reset_momentum": True} if reset else {}
    init, begin = (no_state, zeros(name)) if reset else (zeros(name), no_state)
    return Term("momentum", update, init, begin, True, settings)


@public
def adam(
    beta1: float = 0.9, beta2: float = 0.999, *, eps: float = 1e-8, reset: bool = False
) -> Term:
    """Return the term of Adam: mean gradients over the root of mean squared gradients.

    ::

        m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
        direction = (m / (1 - beta1^s)) / (sqrt(v / (1 - beta2^s)) + eps)
            (s: steps that the node has taken)

    Parameters
    ----------
    beta1, beta2
        In [0, 1).
    eps
        Above 0.
    reset
        Whether m, v and s start from zero in every round; otherwise they last, which takes the
        memory of two additional models per node.

    References
    ----------
    Kingma and Ba, "Adam: a method for stochastic optimization" (2015), Algorithm 1.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(adam(), lr=0.001).settings
    {'lr': 0.001, 'adam': [0.9, 0.999, 1e-08]}
    """
    beta1 = check_fraction("beta1", beta1)
    beta2 = check_fraction("beta2", beta2)
    eps = check_positive("eps", eps)
    check_switch("reset", reset, auto=False)

    def start(models: Models) -> State:
        taken = models.flat.new_zeros(len(models.flat), dtype=torch.float64)
        return zeros("mean", "square")(models) | {"taken": taken}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        taken = own["taken"].add_(1)
        own["mean"].lerp_(g, 1 - beta1)
        square = own["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        first, second = ((1 - beta**taken).to(g.dtype)[:, None] for beta in (beta1, beta2))
        torch.div(square, second, out=g)
        return g.sqrt_().add_(eps).reciprocal_().mul_(own["mean"]).div_(first)

    settings = {"adam": [beta1, beta2, eps]} | ({"reset_adam": True} if reset else {})
    init, begin = (no_state, start) if reset else (start, no_state)
    return Term("adam", update, init, begin, settings=settings)


@public
def adamw(
    beta1: float = 0.9,
    beta2: float = 0.999,
    *,
    decay: float = 0.01,
    eps: float = 1e-8,
    reset: bool = False,
) -> Term:
    """Return the term of AdamW: Adam's direction plus the decoupled weight decay.

    Parameters
    ----------
    beta1, beta2, eps, reset
        As in :func:`adam`.
    decay
        At least 0; the direction includes ``decay * theta``, so that a step subtracts ``lr *
        decay`` of each parameter.

    References
    ----------
    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), Algorithm 2.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(adamw(decay=0.1), lr=0.001).settings
    {'lr': 0.001, 'adamw': [0.9, 0.999, 1e-08], 'decay': 0.1}
    """
    plain = adam(beta1, beta2, eps=eps, reset=reset)
    decay = check_nonnegative("decay", decay)

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return plain.update(g, theta, own, step).add_(theta, alpha=decay)

    settings = {"adamw": [beta1, beta2, eps], "decay": decay}
    settings |= {"reset_adam": True} if reset else {}
    return Term("adamw", update, plain.init, plain.begin, settings=settings)


@public
def proximal(strength: float | Sequence[float], *, kept: str | None = None) -> Term:
    """Return the proximal term, which adds ``strength * (theta - anchor)`` to gradients.

    Parameters
    ----------
    strength
        At least 0: one number, or one per node.
    kept
        None: the anchor is each model before the first step of the round. A name: the anchors are
        models (n, d) in the phase's state under that name, initially equal to the models, which
        only other phases change.

    References
    ----------
    Li et al., "Federated optimization in heterogeneous networks" (2020), equation 2.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(proximal(0.1), lr=0.1).settings
    {'lr': 0.1, 'strength': 0.1, 'anchor': 'start of the round'}
    """
    strengths = one_or_per_node("strength", strength, check_nonnegative)
    name = kept or "start_of_round"
    of_nodes = f"strength of {name}"

    def anchors(models: Models) -> State:
        return {name: models.flat.clone()}

    def init(models: Models) -> State:
        held = anchors(models) if kept else {}
        if not isinstance(strengths, tuple):
            return held
        check_per_node("strength", strengths, models.n)
        own = [strengths[node] for node in models.nodes]
        return held | {of_nodes: models.flat.new_tensor(own)}

    def begin(models: Models) -> State:
        # one buffer for all steps, since allocating large ones takes time
        scratch = {f"from {name}": torch.empty_like(models.flat)}
        return scratch if kept else anchors(models) | scratch

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        apart = torch.sub(theta, own[name], out=own[f"from {name}"])
        if isinstance(strengths, tuple):
            return g.addcmul_(apart, per_row(own[of_nodes], g))
        return g.add_(apart, alpha=strengths)

    own = list(strengths) if isinstance(strengths, tuple) else strengths
    settings: dict[str, Any] = {"strength": own}
    settings |= {} if kept else {"anchor": "start of the round"}
    return Term("proximal", update, init, begin, True, settings)


def one_or_per_node(
    name: str,
    value: Any,
    check: Callable[[str, Any], Number],
    check_each: Callable[[str, Any], Number] | None = None,
) -> Number | tuple[Number, ...]:
    """Return one number for all nodes that passes `check`, or a tuple of one per node, or raise."""
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        return check(name, value)
    numbers = check_sequence(name, value, "one number per node")
    if not len(numbers):
        raise ValueError(f"`{name}` must be one number or one per node, got none")
    each = check_each or check
    return tuple(each(f"{name}[{i}]", number) for i, number in enumerate(numbers))


def check_per_node(name: str, numbers: object, n: int) -> None:
    """Raise ``ValueError`` if there are several numbers, but not one per node."""
    if isinstance(numbers, tuple) and len(numbers) != n:
        raise ValueError(
            f"`{name}` must be one number or one per node, n={n}, got {len(numbers)} numbers"
        )


@public
def masked(name: str = "mask") -> Term:
    """Return the term that multiplies gradients by a mask, which freezes masked parameters.

    Parameters
    ----------
    name
        Name of the masks in the state of the phase: (n, d) booleans, initially all True, which
        another phase may change.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(masked(), lr=0.1).settings
    {'lr': 0.1, 'masked': 'mask'}
    """

    def init(models: Models) -> State:
        return {name: torch.ones_like(models.flat, dtype=torch.bool)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return g.mul_(own[name])

    return Term("masked", update, init, elementwise=True, settings={"masked": name})


@public
def correction(name: str = "correction") -> Term:
    """Return the term that adds a correction from the phase's state, initially 0, to gradients.

    Other phases of the chain, or the phase itself after training, set the correction: SCAFFOLD's
    ``c - c_i``, the difference of a tracked gradient from the node's own, or noise.

    Parameters
    ----------
    name
        Name of the correction, (n, d), in the state of the phase.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(correction(), lr=0.1).settings
    {'lr': 0.1, 'correction': 'correction'}
    """

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return g.add_(own[name])

    return Term("correction", update, zeros(name), elementwise=True, settings={"correction": name})


@public
def tracking() -> Term:
    """Return the term of gradient tracking: an estimate of the mean gradient of all nodes.

    Its state holds the estimates ``tracked``, (n, d), and each node's last ``gradient``, (n, d),
    both initially 0::

        tracked = tracked + g - gradient,   gradient = g

    Another phase of the chain mixes the estimates by weights whose columns sum to 1. Their sum over
    nodes is then the sum of the last gradients.

    References
    ----------
    Nedic, Olshevsky and Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs" (2017).

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(tracking(), lr=0.1).settings
    {'lr': 0.1, 'tracking': True}
    """

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        tracked = own["tracked"].add_(g).sub_(own["gradient"])
        own["gradient"].copy_(g)
        return tracked

    return Term("tracking", update, zeros("tracked", "gradient"), elementwise=True)


def averaged(share: float, **settings: float) -> Term:
    """Return the term whose direction is the running average of gradients, ``average``, (n, d).

    Each gradient counts with a share, in (0, 1]; `settings` name it as the method does.
    """

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return own["average"].lerp_(g, share)

    return Term("averaged", update, zeros("average"), elementwise=True, settings=settings)


@public
def cosine_pull(name: str = "toward") -> Term:
    """Return the term that pulls models toward directions ``a`` by cosine similarity.

    It adds the gradient of ``-<a, theta> / ||theta||``, or 0 where theta is 0. Norms and products
    are over all trained parameters.

    Parameters
    ----------
    name
        Name of the directions, (n, d), in the state of the phase; initially 0.

    Examples
    --------
    >>> from topofl.algorithms import descend
    >>> descend(cosine_pull(), lr=0.1).settings
    {'lr': 0.1, 'toward': 'toward'}
    """

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        squares = _inner_products(theta, theta)
        products = _inner_products(own[name], theta)
        inverse = torch.where(squares > 0, squares.rsqrt(), 0)
        g.addcmul_(own[name], per_row(inverse, g), value=-1)
        return g.addcmul_(theta, per_row(products * inverse**3, g))

    return Term("cosine_pull", update, zeros(name), settings={"toward": name})


def _inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Return (k,) inner products of rows (k, m), without a temporary (k, m) tensor."""
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).view(-1)
