"""Methods whose nodes train, keep and send sparse models, each under a mask of its own."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from topofl._check import check_choice, check_int, check_positive, check_probability
from topofl.algorithms.local import sgd
from topofl.algorithms.phase import Algorithm, Phase, chain, sharing
from topofl.algorithms.round import Models, Round, State
from topofl.algorithms.terms import masked
from topofl.mixing import MixingMatrix, uniform

__all__ = ["dispfl", "erk_densities"]

BLOCK = 2**20
"""Numbers averaged, or ranked, at a time, 4 MB in float32: masks of all nodes are never held as floats at once."""


def dispfl(
    lr: float,
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
    """Return Dis-PFL: personal sparse models, whose masks change while they are trained and averaged.

    Per round t, for every node i with weights ``w_i``, which are 0 outside its mask ``m_i``, and each layer with ``k``
    ones in it::

        w_i <- w_i - lr * (grad F_i(w_i) * m_i)                                     (`epochs` passes)
        m_i <- m_i without its ceil(rho_t k) smallest |w_i|, and with as many of what is then outside it by largest
               |grad F_i(w_i)| on one minibatch;   rho_t = (prune / 2) (1 + cos(pi t / rounds))
        w_i <- w_i * m_i
        w_i <- m_i * sum_{j in N_i and i} w_j / sum_{j in N_i and i} m_j

    The round of the paper begins with the average. This is the same sequence from its first local pass on: models that
    start as one are their own average. Ending with the average, ``Evaluation(before_exchange=True)`` evaluates both
    moments of the paper: before the exchange, after local training under the old mask; and at the end of the round, the
    average under the new mask. What is pruned and comes back at once keeps its value, what is new starts at 0.

    Every parameter, biases too, is a layer with a number of ones that stays, see :func:`erk_densities`. Masks are drawn
    at random at the start of the first round; the evaluation before it is of the dense models. Neighbors count alike,
    whatever the run's `mixing`; on the paper's graphs, ``topologies.random_in(n, k=10, seed=...)``. A message holds the
    weights in the mask, and a bit a parameter for the mask itself.

    By default weights are regrown by their gradients, as in the paper, and all nodes start with one mask. The authors'
    scripts regrow at random (``regrow="random"``) and give every node a first mask of its own
    (``different_initial=True``); their other settings are ``lr=0.1``, ``lr_decay=0.998``, ``weight_decay=5e-4``,
    ``clip=10`` and the defaults here.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round, and gradients are clipped before
        they are masked.
    rounds
        Number of rounds after which masks stay as they are: that of the run.
    dense_ratio
        Share of all parameters that are in a mask, above 0 and at most 1 (where nothing is pruned).
    prune
        Share of a layer's weights that are exchanged for others in the first round, between 0 and 1.
    regrow
        ``"gradient"``, as above, on a minibatch of `batch_size` examples; ``"random"``: uniformly at random, which the
        authors' scripts do.
    different_initial
        Whether each node draws a first mask of its own, as in the authors' scripts; else all start with one.
    epochs
        Passes over a node's data a round.

    References
    ----------
    Dai, Shen, He, Tian and Tao, "DisPFL: towards communication-efficient personalized federated learning via
    decentralized sparse training" (2022), Algorithms 1 and 2; a baseline of DFedPGP.
    """
    dense_ratio = check_positive("dense_ratio", check_probability("dense_ratio", dense_ratio))
    local = sgd(
        lr, batch_size=batch_size, epochs=epochs, momentum=momentum, reset_momentum=True, lr_decay=lr_decay,
        weight_decay=weight_decay, clip=clip, terms=[masked(MASK)],
    )  # fmt: skip
    exchange = _prune_and_average(
        dense_ratio,
        check_int("rounds", rounds, minimum=1),
        check_probability("prune", prune),
        check_choice("regrow", regrow, ["gradient", "random"]),
        int(batch_size),
    )
    return chain("dispfl", local=_masked(local, dense_ratio, different_initial), exchange=exchange)


def erk_densities(shapes: Sequence[Sequence[int]], dense_ratio: float) -> list[float]:
    """Return the share of ones in the mask of each layer: the smaller, the larger the layer (Erdos-Renyi-Kernel).

    ::

        density_l = min(1, eps * sum(shape_l) / prod(shape_l)),   sum_l density_l prod(shape_l) = dense_ratio * total

    Parameters
    ----------
    shapes
        Of the layers' parameters; a single number counts as one of shape (1,).
    dense_ratio
        Share of all parameters.

    References
    ----------
    Evci et al., "Rigging the lottery" (2020), section 3.

    Examples
    --------
    >>> [round(density, 3) for density in erk_densities([(20, 10), (20,), (3, 20), (3,)], 0.5)]
    [0.335, 1.0, 0.857, 1.0]
    """
    sizes, sums = [math.prod(shape) for shape in shapes], [sum(shape) or 1 for shape in shapes]
    dense: set[int] = set()
    while True:
        rest = [k for k in range(len(sizes)) if k not in dense]
        free = dense_ratio * sum(sizes) - sum(sizes[k] for k in dense)
        eps = free / sum(sums[k] for k in rest) if rest else 0.0
        above = [k for k in rest if eps * sums[k] > sizes[k]]
        if not above:
            return [1.0 if k in dense else eps * sums[k] / sizes[k] for k in range(len(sizes))]
        dense.update(above)


class _Layer(NamedTuple):
    """A parameter: its columns, how many they are, and how many of them are in a mask."""

    name: str
    columns: slice
    size: int
    kept: int


MASK = "mask"
"""Name of the state that holds what is trained of each model, (n, d) booleans."""


def _layers(models: Models, dense_ratio: float) -> list[_Layer]:
    shapes, found, start = models.shapes, [], 0
    densities = erk_densities(list(shapes.values()), dense_ratio)
    for (name, shape), density in zip(shapes.items(), densities, strict=True):
        size = math.prod(shape)
        found.append(_Layer(name, slice(start, start + size), size, round(density * size)))
        start += size
    return found


def _masked(phase: Phase, dense_ratio: float, different: bool) -> Phase:
    """Return a phase of training under masks, (n, d), that it draws in the first round and keeps."""

    def apply(models: Models, state: State, round: Round) -> State:
        if round.t == 0 and not models.flat.is_meta:
            _draw(state[MASK], _layers(models, dense_ratio), round, different)
            models.flat.mul_(state[MASK])
        return phase.apply(models, state, round)

    masks = "different" if different else "common"
    return phase._replace(apply=apply, settings={**phase.settings, "dense_ratio": dense_ratio, "initial_masks": masks})


def _draw(mask: Tensor, layers: Sequence[_Layer], round: Round, different: bool) -> None:
    """Draw one mask for all nodes, or one a node."""
    for node in range(len(mask)) if different else [None]:
        rng = round.rng("masks" if node is None else f"masks/{node}")
        ones = np.zeros(mask.shape[1], dtype=bool)
        for layer in layers:
            ones[layer.columns][rng.permutation(layer.size)[: layer.kept]] = True
        mask[slice(None) if node is None else node] = torch.from_numpy(ones).to(mask.device)


def _prune_and_average(dense_ratio: float, rounds: int, prune: float, regrow: str, batch_size: int) -> Phase:
    peers = lru_cache(maxsize=1)(uniform)  # the quotient of two means is that of two sums

    def apply(models: Models, state: State, round: Round) -> State:
        layers, weights = _layers(models, dense_ratio), peers(round.topology)
        rho = prune / 2 * (1 + math.cos(math.pi * min(round.t / rounds, 1)))
        if rho and dense_ratio < 1:
            _adapt(models.flat, state[MASK], layers, rho, _scores(models, round, regrow, batch_size))
        _average(models.flat, state[MASK], weights, round)
        numbers, bits = sum(layer.kept for layer in layers), models.flat.shape[1]
        round.send(weights, models.flat.element_size() * numbers + -(-bits // 8))
        return state

    settings = {"weights": "masked", "rounds": rounds, "prune": prune, "regrow": regrow, "batch_size": batch_size}
    return sharing("local", Phase(lambda models: {}, apply, settings))


Scores = Callable[[slice, _Layer], Tensor]
"""(rows, layer) -> (rows, size): the larger in magnitude, the sooner it is regrown."""


def _scores(models: Models, round: Round, regrow: str, batch_size: int) -> Scores:
    if regrow == "gradient":
        gradients = round.gradients(models, batch_size, key="")
        return lambda rows, layer: gradients[rows, layer.columns]

    def drawn(rows: slice, layer: _Layer) -> Tensor:
        nodes = range(rows.start, rows.stop)
        draws = [round.rng(f"regrow/{node}/{layer.name}").random(layer.size) for node in nodes]
        return torch.from_numpy(np.stack(draws)).to(models.flat.device)

    return drawn


def _adapt(flat: Tensor, mask: Tensor, layers: Sequence[_Layer], rho: float, scores: Scores) -> None:
    """Prune and regrow the masks, and set to 0 what is no longer in them, in place."""
    if flat.is_meta:
        return
    for layer in layers:
        count = math.ceil(round(rho * layer.kept, 9))  # 3 of 12 are 3, however cos rounds
        if not count or layer.kept == layer.size:
            continue
        step = max(1, BLOCK // layer.size)
        for start in range(0, len(flat), step):
            rows = slice(start, min(start + step, len(flat)))
            values, kept = flat[rows, layer.columns], mask[rows, layer.columns]
            kept &= ~_first(_magnitudes(values), kept, count)
            kept |= _first(_magnitudes(scores(rows, layer)).neg_(), ~kept, count)
            values.masked_fill_(~kept, 0)


def _magnitudes(values: Tensor) -> Tensor:
    """Return absolute values, where diverged nodes do not have finite ones too."""
    return values.abs().nan_to_num_()


def _first(keys: Tensor, among: Tensor, count: int) -> Tensor:
    """Return which `count` entries of each row, `among` some of them, are lowest; of equal ones the first."""
    last = keys.masked_fill_(~among, torch.inf).kthvalue(count, dim=1, keepdim=True).values
    below, equal = keys < last, keys == last  # a third of the time of a stable sort
    room = count - below.sum(1, keepdim=True)
    return below | (equal & (equal.cumsum(1, dtype=torch.int32) <= room))


def _average(flat: Tensor, mask: Tensor, weights: MixingMatrix, round: Round) -> None:
    """Average every number over the neighbors that have it, where the node has it too; else it is 0."""
    n, d = flat.shape
    width = max(1, BLOCK // n)
    for start in range(0, d, width):
        part = slice(start, min(start + width, d))
        outside, counts = ~mask[:, part], mask[:, part].to(flat.dtype)
        round.mix(weights, flat, [part], counted=False)
        round.mix(weights, counts, counted=False)
        flat[:, part].div_(counts.masked_fill_(outside, 1)).masked_fill_(outside, 0)
