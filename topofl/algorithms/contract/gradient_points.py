"""Points at which gradients are taken: a step ahead, a step uphill, or between two models."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topofl._support.check import check_positive, check_probability, check_switch
from topofl.algorithms.contract.checked import shaped_as
from topofl.algorithms.contract.round import Models, State, nothing
from topofl.algorithms.contract.schedules import rate_at
from topofl.algorithms.contract.terms import Descend, Step

__all__ = ["At", "ascent", "checked_point", "lookahead", "mixture"]

Gradient = Callable[[Tensor], Tensor]
"""(k, m) trained values -> (k, m) gradients there, on the first minibatch of the step."""


def _unchanged(g: Tensor, theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
    return g


class At(NamedTuple):
    """Where the gradients of a step are taken.

    Attributes
    ----------
    name
        Its name in settings and messages.
    where
        ``where(theta, own, step, gradient) -> point``, of k nodes at a time: `theta` are (k, m)
        trained columns of the models, `own` the rows of the tensors that the phase keeps, as in
        :class:`Term`, and ``gradient(values)`` the gradients, (k, m), at other values of `theta`.
        It returns a new tensor (k, m), and leaves `theta` as it is.
    back
        ``back(g, theta, own, step, gradient) -> g`` turns gradients by the point into gradients by
        the models (chain rule), before the terms see them; left out: they are used unchanged.
    init, begin
        As in :class:`Term`.
    minibatches
        How many a step takes: 1, or 2, of which ``gradient`` uses the first and the step itself the
        second.
    settings
        Its arguments, kept with results.
    """

    name: str
    where: Callable[[Tensor, State, Step, Gradient], Tensor]
    back: Callable[[Tensor, Tensor, State, Step, Gradient], Tensor] = _unchanged
    init: Callable[[Models], State] = nothing
    begin: Callable[[Models], State] = nothing
    minibatches: int = 1
    settings: Mapping[str, Any] = MappingProxyType({})


def checked_point(at: At, part: str, made: Any, theta: Tensor) -> Tensor:
    """Return what ``where`` or ``back`` of a point made, or raise ``ValueError`` for its shape."""
    noun = "a point" if part == "where" else "gradients"
    return shaped_as(f"`{part}` of the point {at.name!r}", noun, made, theta)


def lookahead(inner_lr: float) -> At:
    """Return the point one gradient step ahead, taken on a further minibatch (Per-FedAvg).

    ::

        g_i = grad F(theta_i - inner_lr * grad F(theta_i; S'_i); S_i)

    A step takes two minibatches, one after the other, and passes have half as many steps, rounded
    up. Losses in training are those one step ahead.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees"
    (2020), FO variant.
    """
    inner_lr = check_positive("inner_lr", inner_lr)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        del own, step
        return theta.sub(gradient(theta), alpha=inner_lr)

    return At("lookahead", where, minibatches=2, settings={"inner_lr": inner_lr})


def ascent(radius: float) -> At:
    """Return the point a step uphill, on the same minibatch, at which gradients are taken (SAM).

    ::

        u_i = grad F(theta_i; S_i) / (||grad F(theta_i; S_i)|| + 1e-12)
        g_i = grad F(theta_i + radius * u_i; S_i)

    Parameters
    ----------
    radius
        Length of the step, above 0, over all that is trained.

    References
    ----------
    Foret et al., "Sharpness-aware minimization for efficiently improving generalization" (2021),
    equation 3.
    """
    radius = check_positive("radius", radius)

    def where(theta: Tensor, own: State, step: Step, gradient: Gradient) -> Tensor:
        del own, step
        up = gradient(theta)
        norms = torch.linalg.vector_norm(up, dim=1, keepdim=True)
        return theta + up * (radius / (norms + 1e-12))

    return At("ascent", where, settings={"radius": radius})


def mixture(common: Descend, *, share: float = 0.5, adaptive: bool = False) -> At:
    """Return the mixture of models with others that are trained on the same minibatches (APFL).

    ::

        z_i = share_i * theta_i + (1 - share_i) * common_i
        g_i = share_i * grad F(z_i)

    and ``common_i`` goes along ``grad F(common_i)`` by a descent of its own. The phase keeps
    ``common``, (n, d), which starts like the models, and ``share``, (n,).

    Parameters
    ----------
    common
        How the other models descend.
    share
        Of the models, at the start, between 0 and 1.
    adaptive
        Whether the first step of a round moves the share too, along ``<grad F(z_i), theta_i -
        common_i>`` by the learning rate, cut to [0, 1].

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1.
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
        mine = {
            name.removeprefix(_PREFIX): tensor
            for name, tensor in own.items()
            if name.startswith(_PREFIX)
        }
        g = g.clone()  # the next gradient may lie in the same memory
        apart = step._replace(lr=rate_at(common.lr, step.round, step.k, g.dtype))
        direction = common.direction(gradient(own["common"]), own["common"], mine, apart)
        own["common"].sub_(direction, alpha=apart.lr)
        return g.mul_(shares[:, None])

    return At(
        "mixture",
        where,
        back,
        init,
        begin,
        settings={"alpha": share, "adaptive": adaptive, "common": common.settings},
    )


_PREFIX = "common "


def _prefixed(state: State) -> State:
    return {f"{_PREFIX}{name}": tensor for name, tensor in state.items()}
