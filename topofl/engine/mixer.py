"""Multiplying by a mixing matrix, in place and in the cheapest way its structure allows."""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from topofl.mixing import TOLERANCE, MixingMatrix

__all__ = ["mixer"]

COLUMNS = 1024
"""Columns mixed at a time: for 1,000 nodes in float32 a block of 4 MB, which stays in cache while rows are reused."""

SPARSE_BELOW = 0.25
"""Density under which the sparse product wins (measured on 2 CPU cores at 100 and 1,000 nodes)."""


def mixer(weights: MixingMatrix, device: torch.device, dtype: torch.dtype) -> Callable[[Tensor], None]:
    """Return a function that replaces a (n, k) tensor by ``weights @ tensor``, in place.

    Where the matrix is a mean over its connected components (fully-connected, clique averaging) it takes means; else it
    multiplies block after block of columns, sparse or dense by its density.
    """
    labels = _component_means(weights)
    if labels is not None and (device.type == "cpu" or labels.max() == 0):
        return _mean_mixer(labels, device, dtype)
    is_sparse = weights.weights.nnz < SPARSE_BELOW * weights.n**2
    if is_sparse and dtype in (torch.float32, torch.float64):  # torch has no sparse products of halves on CPU
        return _block_mixer(_sparse(weights, device, dtype))
    return _block_mixer(weights.to_torch(device, dtype))


def _sparse(weights: MixingMatrix, device: torch.device, dtype: torch.dtype) -> Tensor:
    matrix = weights.weights
    parts = (torch.tensor(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(*parts, size=matrix.shape, dtype=dtype, device=device, check_invariants=True)


def _component_means(weights: MixingMatrix) -> np.ndarray | None:
    """Return each node's component if every row is the mean over its component, else None."""
    matrix = weights.weights
    labels = connected_components(matrix, directed=False)[1]
    sizes = np.bincount(labels)[labels]
    rows = np.diff(matrix.indptr)
    if (rows != sizes).any() or np.abs(matrix.data * np.repeat(rows, rows) - 1).max() > TOLERANCE:
        return None
    return labels


def _mean_mixer(labels: np.ndarray, device: torch.device, dtype: torch.dtype) -> Callable[[Tensor], None]:
    groups = torch.from_numpy(labels.astype(np.int64)).to(device)
    share = 1 / torch.bincount(groups).to(dtype)[:, None]

    def mean(values: Tensor) -> None:
        if len(share) == 1:
            values.copy_(values.mean(0, keepdim=True).expand_as(values))
        elif len(share) < len(groups):
            sums = values.new_zeros(len(share), values.shape[1]).index_add_(0, groups, values)
            torch.index_select(sums.mul_(share), 0, groups, out=values)

    return mean


def _block_mixer(matrix: Tensor) -> Callable[[Tensor], None]:
    def multiply(values: Tensor) -> None:
        for block in values.split(COLUMNS, dim=1):
            block.copy_(matrix @ block)

    return multiply
