"""Dis-PFL: personalized sparse models with evolving masks."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_choice, check_int, check_probability, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, sharing
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import masked
from topofl.mixing import MixingMatrix, uniform

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
    epochs: int = 5,
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
    epochs
        Passes over a node's data per round.

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
    local = sgd_of_rounds(lr, batch_size, epochs, *how, terms=[masked(MASK)])
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


BLOCK = 2**20
"""Numbers averaged or ranked at a time, 4 MB in float32."""


def erk_densities(shapes: Sequence[Sequence[int]], dense_ratio: float) -> list[float]:
    """Return the density of each layer's mask by the Erdos-Renyi-Kernel rule.

    ::

        density_l = min(1, eps * sum(shape_l) / prod(shape_l))
        sum_l density_l prod(shape_l) = dense_ratio * total

    Parameters
    ----------
    shapes
        Shapes of the layers' parameters; a scalar counts as shape (1,).
    dense_ratio
        Share of all parameters that are in the mask.

    References
    ----------
    Evci et al., "Rigging the lottery" (2020), section 3.

    Examples
    --------
    >>> [round(density, 3) for density in erk_densities([(20, 10), (20,), (3, 20), (3,)], 0.5)]
    [0.335, 1.0, 0.857, 1.0]
    """
    sizes = [math.prod(shape) for shape in shapes]
    sums = [sum(shape) or 1 for shape in shapes]
    dense: set[int] = set()
    while True:
        rest = [k for k in range(len(sizes)) if k not in dense]
        free = dense_ratio * sum(sizes) - sum(sizes[k] for k in dense)
        eps = free / sum(sums[k] for k in rest) if rest else 0.0
        above = [k for k in rest if eps * sums[k] > sizes[k]]
        if not above:
            return [1.0 if k in dense else eps * sums[k] / sizes[k] for k in range(len(sizes))]
        dense.update(above)


Layer = tuple[str, slice, int, int]
"""The name of a parameter, its columns, their number, and the number of them in a mask."""


MASK = "mask"
"""Name of the state that holds the masks, (n, d) booleans: True for trained parameters."""


def _layers(models: Models, dense_ratio: float) -> list[Layer]:
    """Return the layers of the models with the sizes of their masks."""
    shapes = models.shapes
    sizes = [math.prod(shape) for shape in shapes.values()]
    densities = erk_densities(list(shapes.values()), dense_ratio)
    return [
        (name, slice(end - size, end), size, round(density * size))
        for name, size, end, density in zip(
            shapes, sizes, accumulate(sizes), densities, strict=True
        )
    ]


def under_masks(phase: Phase, dense_ratio: float, different: bool) -> Phase:
    """Return a training phase whose masks, (n, d), are drawn in the first round."""

    def apply(models: Models, state: State, round: Round) -> State:
        if round.t == 0 and not models.flat.is_meta:
            _draw_masks(state[MASK], models, _layers(models, dense_ratio), round, different)
            models.flat.mul_(state[MASK])
        return phase.apply(models, state, round)

    masks = "different" if different else "common"
    return phase._replace(
        apply=apply, settings={**phase.settings, "dense_ratio": dense_ratio, "initial_masks": masks}
    )


def _draw_masks(
    mask: Tensor, models: Models, layers: Sequence[Layer], round: Round, different: bool
) -> None:
    """Draw random masks in place: one for all nodes, or, if `different`, one per node."""
    for row, node in enumerate(models.nodes.tolist() if different else [None]):
        rng = round.rng("masks" if node is None else f"masks/{node}")
        ones = np.zeros(mask.shape[1], dtype=bool)
        for _, columns, size, kept in layers:
            ones[columns][rng.permutation(size)[:kept]] = True
        mask[slice(None) if node is None else row] = torch.from_numpy(ones).to(mask.device)


def prune_and_average(
    dense_ratio: float, rounds: int, prune: float, regrow: str, batch_size: int
) -> Phase:
    """Return the phase that prunes and regrows masks, and averages models under them."""
    uniform_weights = lru_cache(maxsize=1)(uniform)  # a ratio of means equals a ratio of sums

    def apply(models: Models, state: State, round: Round) -> State:
        layers = _layers(models, dense_ratio)
        weights = uniform_weights(round.topology)
        rho = prune / 2 * (1 + math.cos(math.pi * min(round.t / rounds, 1)))
        if rho and dense_ratio < 1:
            scores = _scores(models, round, regrow, batch_size)
            _prune_and_regrow(models.flat, state[MASK], layers, rho, scores)
        _average(models.flat, state[MASK], weights, round)
        numbers = sum(kept for *_, kept in layers)
        mask_bits = models.flat.shape[1]
        round.send(weights, models.flat.element_size() * numbers + -(-mask_bits // 8))
        return state

    settings = {
        "weights": "masked",
        "rounds": rounds,
        "prune": prune,
        "regrow": regrow,
        "batch_size": batch_size,
    }
    return sharing("local", Phase(lambda models: {}, apply, settings, rowwise=True))


Scores = Callable[[slice, Layer], Tensor]
"""(rows, layer) -> (rows, size): parameters with the largest magnitudes are regrown first."""


def _scores(models: Models, round: Round, regrow: str, batch_size: int) -> Scores:
    """Return the scores by which masked parameters are regrown: gradients or random numbers."""
    if regrow == "gradient":
        gradients = round.gradients(models, batch_size, key="")
        return lambda rows, layer: gradients[rows, layer[1]]

    def drawn(rows: slice, layer: Layer) -> Tensor:
        name, _, size, _ = layer
        nodes = models.nodes[rows].tolist()
        draws = [round.rng(f"regrow/{node}/{name}").random(size) for node in nodes]
        return torch.from_numpy(np.stack(draws)).to(models.flat.device)

    return drawn


def _prune_and_regrow(
    flat: Tensor, mask: Tensor, layers: Sequence[Layer], rho: float, scores: Scores
) -> None:
    """Prune and regrow the masks, and set parameters outside of them to 0, in place."""
    if flat.is_meta:
        return
    for layer in layers:
        _, columns, size, ones = layer
        count = math.ceil(round(rho * ones, 9))  # a quarter of 12 is 3, however cos rounds
        if not count or ones == size:
            continue
        step = max(1, BLOCK // size)
        for start in range(0, len(flat), step):
            rows = slice(start, start + step)
            values = flat[rows, columns]
            kept = mask[rows, columns]
            kept &= ~_smallest(_magnitudes(values), kept, count)
            kept |= _smallest(_magnitudes(scores(rows, layer)).neg_(), ~kept, count)
            values.masked_fill_(~kept, 0)


def _magnitudes(values: Tensor) -> Tensor:
    """Return finite absolute values, even for models that diverged."""
    return values.abs().nan_to_num_()


def _smallest(keys: Tensor, among: Tensor, count: int) -> Tensor:
    """Return booleans for the `count` smallest keys per row `among` some; ties by position."""
    last = keys.masked_fill_(~among, torch.inf).kthvalue(count, dim=1, keepdim=True).values
    below = keys < last
    equal = keys == last  # this takes a third of the time of a stable sort
    remaining = count - below.sum(1, keepdim=True)
    return below | (equal & (equal.cumsum(1, dtype=torch.int32) <= remaining))


def _average(flat: Tensor, mask: Tensor, weights: MixingMatrix, round: Round) -> None:
    """Average each parameter over the nodes that have it in their masks; 0 outside of a mask."""
    d = flat.shape[1]
    width = max(1, BLOCK // round.n)  # the same in all processes of a run
    own = round.own_rows(torch.from_numpy(weights.weights.diagonal())).to(flat)[:, None]
    for start in range(0, d, width):
        part = slice(start, min(start + width, d))
        outside = ~mask[:, part]
        counts = mask[:, part].to(flat.dtype)
        round.mix(weights, flat, [part], counted=False)
        round.mix(weights, counts, counted=False)
        # a node counts itself, whatever masks attackers send
        torch.maximum(counts, own, out=counts)
        flat[:, part].div_(counts.masked_fill_(outside, 1)).masked_fill_(outside, 0)
