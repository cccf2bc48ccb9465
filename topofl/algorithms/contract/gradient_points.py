"""Points at which gradients are taken: one step ahead, one step uphill, or between two models."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topofl._support.check import check_positive, check_probability, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.checked import check_same_shape
from topofl.algorithms.contract.round import Models, State, no_state
from topofl.algorithms.contract.schedules import rate_at
from topofl.algorithms.contract.terms import Descend, Step

__all__ = ["GradientPoint", "ascent", "checked_point", "lookahead", "mixture"]

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
        del own, step
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
        del own, step
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

    def init(models: Models) -> State:
        flat = models.flat
        return {"common": flat.clone(), "share": flat.new_full((len(flat),), share)} | _prefixed(
            common.init(models)
        )

    def begin(models: Models) -> State:
        return _prefixed(common.begin(models))

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        del step, gradient
        return torch.lerp(own["common"], theta, own["share"][:, None])

    def back(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        shares = own["share"].clone()
        if adaptive and step.k == 0:
            slopes = (g * (theta - own["common"])).sum(1)
            moved = (shares - step.lr * slopes).clamp(0, 1)
            own["share"].copy_(torch.where(torch.isfinite(slopes), moved, shares))
        g = g.clone()  # the next gradient may use the same memory
        _descend_common(common, gradient, own, step)
        return g.mul_(shares[:, None])

    settings = {"alpha": share, "adaptive": adaptive, "common": common.settings}
    return GradientPoint("mixture", where, back, init, begin, settings=settings)


_PREFIX = "common "
"""Start of the names under which the state of the common models' terms is stored."""


def _prefixed(state: State) -> State:
    return {f"{_PREFIX}{name}": tensor for name, tensor in state.items()}


def _descend_common(common: Descend, gradient: Gradient, own: State, step: Step) -> None:
    """Take one step of the common models, in place."""
    state = {
        name.removeprefix(_PREFIX): tensor
        for name, tensor in own.items()
        if name.startswith(_PREFIX)
    }
    g = gradient(own["common"])
    step = step._replace(lr=rate_at(common.lr, step.round, step.k, g.dtype))
    direction = common.direction(g, own["common"], state, step)
    own["common"].sub_(direction, alpha=step.lr)
