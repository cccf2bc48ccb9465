"""Methods that predict with something between a common and a personal model."""

import torch

from topofl._check import check_probability, check_switch
from topofl.algorithms.exchange import server_average
from topofl.algorithms.federated import steps
from topofl.algorithms.local import ADAPTIVE_SHARE, ANCHOR, SHARE, beside, sgd
from topofl.algorithms.participation import sampled
from topofl.algorithms.phase import Algorithm, Models, Phase, Round, State, chain

__all__ = ["apfl"]


def apfl(
    lr: float,
    *,
    alpha: float = 0.5,
    adaptive: bool = True,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return APFL: each node predicts with a mixture of the model that FedAvg finds and one of its own.

    Per round, for nodes A drawn at random, with ``z_i = alpha_i v_i + (1 - alpha_i) w_i``, and both models trained
    on the same minibatches (`epochs` passes, i in A)::

        v_i     <- v_i - lr * alpha_i * grad F_i(z_i)
        w_i     <- w_i - lr * grad F_i(w_i)                                 (from the server's model w)
        alpha_i <- alpha_i - lr * <grad F_i(z_i), v_i - w_i>, cut to [0, 1]    (in the first step of a round only)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) w_i

    The right-hand sides are of before the step. Evaluated are the mixtures, at the end of the round with the server's
    model, before the exchange with the node's own; the consensus distance is theirs too, though only ``w`` travels.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`, of both models; `alpha` takes plain steps, and `clip` is of the gradient
        by ``v_i``, which `alpha` is a factor of.
    alpha
        Between 0 and 1, at the start: the share of the personal model.
    adaptive
        Whether it changes, at each node by itself. The paper updates it "at every communication round", and so does its
        code, which adds a decay of 0.02 that the paper does not have.

    References
    ----------
    Deng, Kamani and Mahdavi, "Adaptive personalized federated learning" (2020), Algorithm 1 and its update of alpha; a
    baseline of Kharrat, Canini and Horváth (2025), DPFL.
    """
    alpha, who = check_probability("alpha", alpha), sampled(participation)
    check_switch("adaptive", adaptive, auto=False)
    rest = steps(batch_size, momentum, weight_decay, clip)
    local = _mixing(sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, **rest), alpha, adaptive)
    server = beside("local", server_average(who=who))
    return chain("apfl", local=local, server=server, mixture=_mixture("local"))


PERSONAL = "personal"
"""Name of the state that holds the models that are mixed with those of `ANCHOR`, (n, d)."""


def _mixing(phase: Phase, alpha: float, adaptive: bool) -> Phase:
    """Return the phase of training for common models and for personal ones that it keeps, at the mixture of both."""
    share = ADAPTIVE_SHARE if adaptive else SHARE

    def init(models: Models) -> State:
        flat = models.flat
        return {ANCHOR: flat.clone(), PERSONAL: flat.clone(), share: flat.new_full((len(flat),), alpha)}

    def apply(models: Models, state: State, round: Round) -> State:
        phase.apply(models.like(state[PERSONAL]), state, round)
        return _mix(models, state)

    return phase._replace(init=init, apply=apply, settings={**phase.settings, "alpha": alpha, "adaptive": adaptive})


def _mixture(owner: str) -> Phase:
    """Return the phase after which models predict as the mixtures of another phase."""
    return Phase(lambda models: {}, lambda models, state, round: _mix(models, state), {"of": owner}, uses=owner)


def _mix(models: Models, state: State) -> State:
    share = next(state[name] for name in (SHARE, ADAPTIVE_SHARE) if name in state)
    torch.lerp(state[ANCHOR], state[PERSONAL], share[:, None], out=models.flat)
    return state
