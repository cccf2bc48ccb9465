"""Self-centered clipping: ClippedGossip's exchange with local momentum."""

import torch
from torch import Tensor

from topofl._support.check import check_positive, check_probability
from topofl._support.public import public
from topofl.algorithms.byzantine_robust.clipped_gossip import clipping, outweighed
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import train
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Models, State
from topofl.algorithms.contract.terms import Step, Term

__all__ = ["self_centered_clipping"]


@public
@needing(equal_shares, outweighed)
def self_centered_clipping(
    lr: Rate,
    *,
    tau: float | None = None,
    delta: float | None = None,
    alpha: float = 0.1,
    batch_size: int = 128,
) -> Algorithm:
    """Return self-centered clipping (SCClip) with local momentum.

    Per round, for every node i, with ``m_i`` starting at 0::

        m_i     = (1 - alpha) m_i + alpha * grad F(theta_i; S_i)
        x_i     = theta_i - lr * m_i
        theta_i = x_i + sum_{j != i} W[i, j] clip(x_j - x_i, tau_i)

    The exchange and its tolerance are those of :func:`clipped_gossip`, which the first version of
    the paper calls self-centered clipping. The running averages of gradients are those of the
    paper's training algorithm; they reduce the minibatch noise in which attackers can hide.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`), also where nothing is clipped; a run then warns
    that it weights their losses by these shares.

    Parameters
    ----------
    lr, tau, delta, batch_size
        As in :func:`clipped_gossip`.
    alpha
        Weight of the new gradient, above 0 and at most 1; 1 gives :func:`clipped_gossip` without
        momentum.

    Raises
    ------
    ValueError, TypeError
        As :func:`clipped_gossip`.

    Notes
    -----
    The authors' published code sums gradients, ``m_i = (1 - alpha) m_i + grad F(theta_i; S_i)``, so
    that its `lr` is `alpha` times the one here; without `tau`, it uses the distance of the
    second-farthest neighbor.

    References
    ----------
    He, Karimireddy and Jaggi, "Byzantine-robust decentralized learning via self-centered clipping"
    (2022, first version); the reason for momentum is from Karimireddy, He and Jaggi, "Learning from
    history for Byzantine robust optimization" (2021).

    Examples
    --------
    >>> self_centered_clipping(0.5, tau=1.0)  # doctest: +NORMALIZE_WHITESPACE
    self_centered_clipping: local(lr=0.5, alpha=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, tau=1.0)
    """
    local = train(descend(_averaged(alpha), lr=lr), batch_size=batch_size)
    return chain("self_centered_clipping", local=local, exchange=clipping(tau, delta))


def _averaged(alpha: float) -> Term:
    """Return the term whose direction is the running average of gradients."""
    alpha = check_positive("alpha", check_probability("alpha", alpha))

    def init(models: Models) -> State:
        return {"average": torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        return own["average"].lerp_(g, alpha)

    return Term("averaged", update, init, elementwise=True, settings={"alpha": alpha})
