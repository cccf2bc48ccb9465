"""What a distributed run measures over all ranks: distances of models, and traffic."""

import torch
from torch import Tensor

from topofl._columns import RANK_COLUMNS
from topofl.engine.placement import cut_edges
from topofl.engine.ranks import Ranks
from topofl.mixing import MixingMatrix

__all__ = ["distance_of_ranks", "traffic_of_round"]

NUMBERS = 2**20
"""Numbers that are converted to float64 at a time."""


def distance_of_ranks(models: Tensor, ranks: Ranks) -> float:
    """Return the consensus distance of models (k, d) on each rank; see ``consensus_distance``."""
    counts = ranks.numbers([len(models)])
    n, most = int(counts.sum()), int(counts.max())
    first = models[:1].double() if len(models) else models.new_zeros(1, models.shape[1]).double()
    origin = ranks.of_first(first.cpu()).to(models.device)
    squares = torch.zeros((), dtype=torch.float64, device=models.device)
    width = max(1, NUMBERS // max(1, most))  # the same on all ranks, which sum each block
    for start in range(0, models.shape[1], width):
        part = slice(start, start + width)
        apart = models[:, part].double() - origin[:, part]
        mean = ranks.sum_(apart.sum(0)) / n
        squares += (apart - mean).square().sum()
    return float((ranks.sum_(squares) / n).sqrt())


def traffic_of_round(ranks: Ranks, used: MixingMatrix | None) -> dict[str, float]:
    """Return the edges between ranks, the bytes that ranks sent, and their longest exchanges."""
    sent = ranks.numbers([float(ranks.traffic.bytes), ranks.traffic.seconds])
    cut = 0 if used is None else cut_edges(used.weights, ranks.owner)
    values = (float(cut), float(sent[:, 0].sum()), float(sent[:, 1].max()))
    return dict(zip(RANK_COLUMNS, values, strict=True))
