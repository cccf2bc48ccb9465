"""Multiplication by a mixing matrix, in place and by the fastest method for its structure."""

import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional

from topofl._support.check import TOLERANCE
from topofl.mixing import MixingMatrix

__all__ = [
    "COLUMNS",
    "SPARSE_BELOW",
    "Means",
    "Mixer",
    "columns_at_a_time",
    "component_means",
    "mixer",
    "sparse_on_device",
    "sums_by_group",
]

COLUMNS = 1024
"""Columns multiplied at a time.

For 1,000 nodes in float32 a block takes 4 MB, and stays in cache while its rows are reused.
"""

PRODUCTS = 2**26
"""Numbers multiplied at a time off CPU, 256 MB in float32.

There each product costs a launch, and blocks need not fit into a cache. For 100 ResNet-18 an
exchange takes 34 launches; with blocks of 1,024 columns it took 21,800.
"""

GATHERED = 2**18
"""Numbers gathered from at a time, 1 MB in float32.

Blocks of 4 MB take 1.4 times as long for 1,000 nodes, whole matrices 2 times.
"""

FEWEST = 64
"""Smallest number of columns gathered from at a time."""

SPARSE_BELOW = 0.25
"""Density below which sparse products are used.

Measured on CPU: gathering takes 0.4 of the dense product's time for 1,000 nodes and density 0.15,
0.9 for 100 nodes and 0.21.
"""


class Means(NamedTuple):
    """Mixing that replaces every row by the mean of its group.

    Attributes
    ----------
    groups
        (n,) int64, the group of each row.
    share
        (groups, 1), the inverse of the size of each group.
    """

    groups: Tensor
    share: Tensor


class Mixer(NamedTuple):
    """Function that replaces a (n, k) tensor by ``weights @ tensor``, in place.

    Attributes
    ----------
    apply
        The function.
    by_columns
        Whether several threads may each take a share of the columns; means reach memory speed with
        one thread.
    means
        The groups whose means are taken, if gradients may be summed group by group: on CPU, where
        sums are bitwise reproducible, and not in 16 bits, in which large sums overflow. None
        otherwise, or if the matrix is not a mean over groups.
    """

    apply: Callable[[Tensor], None]
    by_columns: bool
    means: Means | None = None

    def __call__(self, values: Tensor) -> None:
        """Mix the columns of `values`."""
        self.apply(values)


def mixer(weights: MixingMatrix, device: torch.device, dtype: torch.dtype) -> Mixer:
    """Return the function that multiplies by a mixing matrix, in place.

    If the matrix is a mean over its connected components (complete graphs, clique averaging),
    means are taken. Otherwise blocks of columns are gathered or multiplied, sparse or dense by the
    matrix's density. No call allocates more than one block, or one mean per component.

    Examples
    --------
    >>> from topofl.mixing import metropolis_hastings
    >>> from topofl.topologies import ring
    >>> values = torch.tensor([[3.0], [0.0], [0.0], [0.0]])
    >>> mixer(metropolis_hastings(ring(4)), values.device, values.dtype)(values)
    >>> values.flatten()
    tensor([1., 1., 0., 1.])
    """
    labels = component_means(weights)
    if labels is not None and (device.type == "cpu" or labels.max() == 0):
        means = _group_means(labels, device, dtype)
        return Mixer(
            _mean_mixer(means),
            by_columns=False,
            means=means if sums_by_group(device, dtype) else None,
        )
    is_sparse = weights.weights.nnz < SPARSE_BELOW * weights.n**2
    if is_sparse and dtype == torch.float32 and device.type == "cpu":
        return Mixer(_gathering_mixer(weights), by_columns=True)
    # torch has no sparse products in 16 bits on CPU
    if is_sparse and dtype in (torch.float32, torch.float64):
        return Mixer(
            _block_mixer(sparse_on_device(weights.weights, device, dtype)), by_columns=True
        )
    return Mixer(_block_mixer(weights.to_torch(device, dtype)), by_columns=True)


def sums_by_group(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether gradients may be summed group by group; see :class:`Mixer`.

    Examples
    --------
    >>> sums_by_group(torch.device("cpu"), torch.float32)
    True
    """
    return device.type == "cpu" and dtype.itemsize >= 4


def columns_at_a_time(n: int, device: torch.device) -> int:
    """Return how many columns of n rows are multiplied at a time on a device.

    Examples
    --------
    >>> columns_at_a_time(100, torch.device("cpu"))
    1024
    """
    return COLUMNS if device.type == "cpu" else max(COLUMNS, PRODUCTS // n)


def sparse_on_device(matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a sparse matrix as a tensor on a device."""
    parts = (torch.from_numpy(part.copy()) for part in (matrix.indptr, matrix.indices, matrix.data))
    with _CREATION_LOCK:
        _drop_csr_warning()
        csr = torch.sparse_csr_tensor(
            *parts, size=matrix.shape, dtype=dtype, device="cpu", check_invariants=True
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


def component_means(weights: MixingMatrix) -> np.ndarray | None:
    """Return each node's component if every row is the mean over its component, else None.

    Examples
    --------
    >>> from topofl.mixing import uniform
    >>> from topofl.topologies import fully_connected, ring
    >>> component_means(uniform(fully_connected(3))).tolist(), component_means(uniform(ring(4)))
    ([0, 0, 0], None)
    """
    matrix = weights.weights
    labels = connected_components(matrix, directed=False)[1]
    sizes = np.bincount(labels)[labels]
    rows = np.diff(matrix.indptr)
    if (rows != sizes).any() or np.abs(matrix.data * np.repeat(rows, rows) - 1).max() > TOLERANCE:
        return None
    return labels


def _group_means(labels: np.ndarray, device: torch.device, dtype: torch.dtype) -> Means:
    groups = torch.from_numpy(labels.astype(np.int64))
    share = 1 / torch.bincount(groups).to(dtype)[:, None]
    return Means(groups.to(device), share.to(device))


def _mean_mixer(means: Means) -> Callable[[Tensor], None]:
    groups, share = means

    def mean(values: Tensor) -> None:
        if len(share) == 1:
            values.copy_(values.mean(0, keepdim=True).expand_as(values))
        elif len(share) < len(groups):
            sums = values.new_zeros(len(share), values.shape[1]).index_add_(0, groups, values)
            torch.index_select(sums.mul_(share), 0, groups, out=values)

    return mean


def _gathering_mixer(weights: MixingMatrix) -> Callable[[Tensor], None]:
    """Return the sparse mixer for float32 on CPU.

    Embedding bags of weighted rows take 0.5 to 0.6 of the time of a sparse product for 1,000 nodes
    (ring, exponential, D-Cliques) and about as long for 100 nodes, but 1.6 times as long in
    float64, for which torch has no such kernel.
    """
    matrix = weights.weights
    sources, starts = (
        torch.from_numpy(part.astype(np.int64)) for part in (matrix.indices, matrix.indptr[:-1])
    )
    shares = torch.from_numpy(matrix.data.astype(np.float32))
    columns = max(FEWEST, GATHERED // weights.n)

    def gather(values: Tensor) -> None:
        for block in values.split(columns, dim=1):
            block.copy_(
                functional.embedding_bag(
                    sources, block, starts, mode="sum", per_sample_weights=shares
                )
            )

    return gather


def _block_mixer(matrix: Tensor) -> Callable[[Tensor], None]:
    def multiply(values: Tensor) -> None:
        for block in values.split(columns_at_a_time(len(values), values.device), dim=1):
            block.copy_(matrix @ block)

    return multiply
