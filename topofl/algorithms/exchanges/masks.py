"""Sparse models: training under masks, pruning and regrowth of masks, and averaging."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.phase import Phase, sharing
from topofl.algorithms.contract.round import Models, Round, State
from topofl.mixing import MixingMatrix, uniform

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
