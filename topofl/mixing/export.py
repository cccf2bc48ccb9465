"""Mixing weights as torch tensors and PyG graphs."""

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sparse
import torch

from topofl._support.check import shown

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["as_pyg", "as_tensor"]


def as_tensor(
    weights: sparse.csr_array, device: torch.device | str, dtype: torch.dtype
) -> torch.Tensor:
    """Return the weights as a dense tensor, or raise if `device` or `dtype` is not valid."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"`dtype` must be a floating-point dtype, got {shown(dtype)}; e.g. torch.float32"
        )
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`device` must be a torch device, got {shown(device)}; e.g. 'cpu' or 'cuda:0'"
        ) from error
    return torch.from_numpy(weights.toarray()).to(device=device, dtype=dtype)


def as_pyg(weights: sparse.csr_array) -> "Data":
    """Return PyG ``Data`` with an edge from sender to receiver for each nonzero weight."""
    from torch_geometric.data import Data

    targets, sources = weights.nonzero()
    return Data(
        edge_index=torch.from_numpy(np.stack([sources, targets]).astype(np.int64)),
        edge_weight=torch.from_numpy(weights.data.copy()),
        num_nodes=weights.shape[0],
    )
