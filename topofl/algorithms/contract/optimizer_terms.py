"""Terms of optimizers: gradient clipping, weight decay, momentum, Adam and AdamW."""

import torch
from torch import Tensor

from topofl._support.check import (
    check_fraction,
    check_nonnegative,
    check_positive,
    check_switch,
)
from topofl._support.public import public
from topofl.algorithms.contract.round import Models, State, no_state
from topofl.algorithms.contract.terms import Step, Term, per_row

__all__ = ["adam", "adamw", "clip", "momentum", "weight_decay"]


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
        del theta, own, step
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
        del own, step
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

    def zeros(models: Models) -> State:
        return {name: torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del theta, step
        velocity = own[name].mul_(rate).add_(g)
        return g.add_(velocity, alpha=rate) if nesterov else velocity

    settings = (
        {"momentum": rate}
        | ({"nesterov": True} if nesterov else {})
        | ({"reset_momentum": True} if reset else {})
    )
    return Term(
        "momentum",
        update,
        no_state if reset else zeros,
        zeros if reset else no_state,
        True,
        settings,
    )


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

    def zeros(models: Models) -> State:
        flat = models.flat
        taken = torch.zeros(len(flat), dtype=torch.float64, device=flat.device)
        return {"mean": torch.zeros_like(flat), "square": torch.zeros_like(flat), "taken": taken}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del theta, step
        taken = own["taken"].add_(1)
        own["mean"].lerp_(g, 1 - beta1)
        square = own["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        first, second = ((1 - beta**taken).to(g.dtype)[:, None] for beta in (beta1, beta2))
        torch.div(square, second, out=g)
        return g.sqrt_().add_(eps).reciprocal_().mul_(own["mean"]).div_(first)

    settings = {"adam": [beta1, beta2, eps]} | ({"reset_adam": True} if reset else {})
    return Term(
        "adam",
        update,
        no_state if reset else zeros,
        zeros if reset else no_state,
        settings=settings,
    )


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

    settings = {"adamw": [beta1, beta2, eps], "decay": decay} | (
        {"reset_adam": True} if reset else {}
    )
    return Term("adamw", update, plain.init, plain.begin, settings=settings)
