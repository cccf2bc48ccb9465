"""Mixing weights as torch tensors and PyG graphs."""

import warnings
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sparse
import torch

from topofl._support.check import shown

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["as_pyg", "as_sparse_tensor", "as_tensor"]


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


def as_sparse_tensor(
    weights: sparse.csr_array, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """Return the weights as a sparse tensor on a device."""
    parts = (
        torch.from_numpy(part.copy()) for part in (weights.indptr, weights.indices, weights.data)
    )
    with _CREATION_LOCK:
        _drop_csr_warning()
        csr = torch.sparse_csr_tensor(
            *parts, size=weights.shape, dtype=dtype, device="cpu", check_invariants=True
        )
    return csr.to(device)  # checked on the CPU, since a check on a GPU would wait for it


_CREATION_LOCK = Lock()
"""Held while torch checks the invariants of a sparse tensor, a setting of the whole process."""


@cache
def _drop_csr_warning() -> None:
    """Trigger and ignore torch's warning that CSR tensors are in beta, given once per process.

    Done only once, since ``warnings.catch_warnings`` is not thread-safe.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse CSR tensor support is in beta", category=UserWarning
        )
        torch.sparse_csr_tensor(
            [0, 1],
            [0],
            [1.0],
            size=(1, 1),
            dtype=torch.float32,
            device="cpu",
            check_invariants=True,
        )


def as_pyg(weights: sparse.csr_array) -> "Data":
    """Return PyG ``Data`` with an edge from sender to receiver for each nonzero weight."""
    from torch_geometric.data import Data

    targets, sources = weights.nonzero()
    return Data(
        edge_index=torch.from_numpy(np.stack([sources, targets]).astype(np.int64)),
        edge_weight=torch.from_numpy(weights.data.copy()),
        num_nodes=weights.shape[0],
    )
