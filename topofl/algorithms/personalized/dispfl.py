"""Dis-PFL: personalized sparse models with evolving masks."""

from topofl._support.check import check_choice, check_int, check_probability, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import Epochs, Steps, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.terms import masked
from topofl.algorithms.exchanges.masks import MASK, prune_and_average, under_masks

__all__ = ["dispfl"]


@public
def dispfl(
    lr: Rate,
    *,
    rounds: int,
    dense_ratio: float = 0.5,
    prune: float = 0.5,
    regrow: str = "gradient",
    different_initial: bool = False,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return Dis-PFL: personal sparse models with masks that evolve during training.

    Per round t, for every node i with weights ``w_i``, which are 0 outside its mask ``m_i``, and
    each layer with ``k`` ones in its mask::

        w_i <- w_i - lr * (grad F_i(w_i) * m_i)  (`epochs` passes)
        m_i <- m_i without its ceil(rho_t k) smallest |w_i|, then with as many entries outside it
               that have the largest |grad F_i(w_i)| on one minibatch;
               rho_t = (prune / 2) (1 + cos(pi t / rounds))
        w_i <- w_i * m_i
        w_i <- m_i * sum_{j in N_i and i} w_j / sum_{j in N_i and i} m_j

    In the paper, a round begins with the average. The sequence is the same from the first local
    pass on, since models that start equal are their own average. With the average at the end,
    ``Evaluation(before_exchange=True)`` evaluates the models of both steps of the paper: before the
    exchange, those trained under the old mask; at the end of the round, the average under the new
    mask. A weight that is pruned and regrown in the same round keeps its value; other regrown
    weights start at 0.

    Every parameter tensor, including biases, is a layer with a fixed number of ones, see
    ``topofl.algorithms.exchanges.masks.erk_densities``. Masks are drawn at random at the start
    of the first round; an evaluation before it is of the dense models. All neighbors have equal
    weights, whatever the run's `mixing`; the paper's graphs are ``topologies.random_in(n, k=10,
    seed=...)``. A message holds the weights in the mask, and one bit per parameter for the mask
    itself.

    By default, weights are regrown by their gradients, as in the paper, and all nodes start with
    the same mask. The authors' scripts regrow at random (``regrow="random"``) and give every node a
    different initial mask (``different_initial=True``); their other settings are ``lr=0.1``,
    ``lr_decay=0.998``, ``weight_decay=5e-4``, ``clip=10`` and the defaults here.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round, and gradients
        are clipped before they are masked.
    rounds
        Number of rounds of the run, after which masks no longer change.
    dense_ratio
        Fraction of all parameters that a mask keeps, above 0 and at most 1 (nothing is pruned).
    prune
        Fraction of a layer's weights that are pruned and regrown in the first round, between 0 and
        1.
    regrow
        ``"gradient"``: as above, on a minibatch of `batch_size` examples; ``"random"``: uniformly
        at random, as in the authors' scripts.
    different_initial
        Whether each node draws its own initial mask, as in the authors' scripts, or all share one.
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`.

    References
    ----------
    Dai, Shen, He, Tian and Tao, "DisPFL: towards communication-efficient personalized federated
    learning via decentralized sparse training" (2022), Algorithms 1 and 2; a baseline of DFedPGP.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.random_in(4, 2, seed=0), "rounds": 2, "seed": 0}
    >>> sparse = topofl.run(dispfl(lr=0.1, rounds=2, epochs=1), **how)
    >>> dense = topofl.run(algorithms.dfedavgm(lr=0.1, epochs=1), **how)
    >>> round(float(sparse["bytes"][-1] / dense["bytes"][-1]), 2)  # half of the weights, and masks
    0.53
    """
    dense_ratio = check_share("dense_ratio", dense_ratio)
    how = (momentum, lr_decay, weight_decay, clip)
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps, terms=[masked(MASK)])
    exchange = prune_and_average(
        dense_ratio,
        check_int("rounds", rounds, minimum=1),
        check_probability("prune", prune),
        check_choice("regrow", regrow, ["gradient", "random"]),
        int(batch_size),
    )
    return chain(
        "dispfl", local=under_masks(local, dense_ratio, different_initial), exchange=exchange
    )
