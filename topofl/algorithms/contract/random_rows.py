"""Random numbers with a row per node, the same for every division of the nodes among processes."""

import numpy as np
import torch
from torch import Tensor

from topofl.algorithms.contract.round import Models

__all__ = ["normal_rows"]


def normal_rows(values: Tensor, models: Models, rng: np.random.Generator) -> Tensor:
    """Return standard normal numbers in the shape of values (k, m), a row for each of the nodes.

    They are drawn on the CPU node by node, for all nodes of the run in order, and the rows of
    ``models.nodes`` are copied to the device at once.
    """
    if values.is_meta:
        return torch.empty_like(values)
    drawn = torch.empty_like(values, device="cpu")
    row_of = {node: row for row, node in enumerate(models.nodes.tolist())}
    for node in range(models.n):
        numbers = torch.from_numpy(rng.standard_normal(values.shape[1]))
        if node in row_of:
            drawn[row_of[node]] = numbers
    return drawn.to(values.device)
