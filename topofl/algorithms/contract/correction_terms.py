"""Terms that correct gradients: proximal, mask, correction, gradient tracking, cosine pull."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_nonnegative,
    check_sequence,
)
from topofl._support.public import public
from topofl.algorithms.contract.round import Models, State, no_state
from topofl.algorithms.contract.terms import Step, Term, per_row

__all__ = ["correction", "cosine_pull", "masked", "proximal", "tracking"]


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
    strengths = _check_strength(strength)
    name = kept or "start_of_round"
    of_nodes = f"strength of {name}"

    def anchors(models: Models) -> State:
        return {name: models.flat.clone()}

    def init(models: Models) -> State:
        held = anchors(models) if kept else {}
        if not isinstance(strengths, tuple):
            return held
        if len(strengths) != models.n:
            raise ValueError(
                f"`strength` must be one number or one per node, n={models.n}, got "
                f"{len(strengths)} numbers"
            )
        own = [strengths[node] for node in models.nodes]
        return held | {of_nodes: models.flat.new_tensor(own)}

    def begin(models: Models) -> State:
        # one buffer for all steps, since allocating large ones takes time
        scratch = {f"from {name}": torch.empty_like(models.flat)}
        return scratch if kept else anchors(models) | scratch

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del step
        apart = torch.sub(theta, own[name], out=own[f"from {name}"])
        if isinstance(strengths, tuple):
            return g.addcmul_(apart, per_row(own[of_nodes], g))
        return g.add_(apart, alpha=strengths)

    settings: dict[str, Any] = {
        "strength": list(strengths) if isinstance(strengths, tuple) else strengths
    }
    settings |= {} if kept else {"anchor": "start of the round"}
    has_state = bool(kept) or isinstance(strengths, tuple)
    return Term("proximal", update, init if has_state else no_state, begin, True, settings)


def _check_strength(strength: Any) -> float | tuple[float, ...]:
    """Return one number of at least 0, or one per node, or raise."""
    if isinstance(strength, Sequence | np.ndarray) and not isinstance(strength, str):
        numbers = check_sequence("strength", strength, "one number per node")
        if not numbers:
            raise ValueError("`strength` must be one number or one per node, got none")
        return tuple(check_nonnegative(f"strength[{i}]", value) for i, value in enumerate(numbers))
    return check_nonnegative("strength", strength)


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
        del theta, step
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

    def init(models: Models) -> State:
        return {name: torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del theta, step
        return g.add_(own[name])

    return Term("correction", update, init, elementwise=True, settings={"correction": name})


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

    def init(models: Models) -> State:
        return {"tracked": torch.zeros_like(models.flat), "gradient": torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del theta, step
        tracked = own["tracked"].add_(g).sub_(own["gradient"])
        own["gradient"].copy_(g)
        return tracked

    return Term("tracking", update, init, elementwise=True)


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

    def init(models: Models) -> State:
        return {name: torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        del step
        squares = _inner_products(theta, theta)
        products = _inner_products(own[name], theta)
        inverse = torch.where(squares > 0, squares.rsqrt(), 0)
        g.addcmul_(own[name], per_row(inverse, g), value=-1)
        return g.addcmul_(theta, per_row(products * inverse**3, g))

    return Term("cosine_pull", update, init, settings={"toward": name})


def _inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Return (k,) inner products of rows (k, m), without a temporary (k, m) tensor."""
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).view(-1)
