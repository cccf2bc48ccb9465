"""Exchanges between ranks: rows that a mixing matrix needs, and reductions for means."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor
from torch.nn import functional

from topofl._matrices import digest_of
from topofl.engine.mixing import (
    COLUMNS,
    SPARSE_BELOW,
    columns_at_a_time,
    component_means,
    sparse_on_device,
)
from topofl.engine.ranks import Ranks
from topofl.mixing import MixingMatrix

__all__ = ["Halo", "average_by_server", "halo_of", "rank_mixer"]

SENT = 2**22
"""Numbers that a rank sends and receives at a time; beyond, columns are exchanged in blocks."""

Product = Callable[[Tensor], Tensor]
"""(m, c) -> (k, c): the product of a matrix (k, m) with values."""


@dataclass(frozen=True, eq=False)
class Halo:
    """The rows that a rank sends and receives in an exchange; each travels once to a rank.

    Parameters
    ----------
    outgoing
        For each receiving rank, the own rows that it needs.
    incoming
        For each sending rank, the number of its rows.
    nodes
        (h,) nodes of the received rows, in the order in which they are received.
    width
        Number of columns that are exchanged at a time, the same on all ranks.
    """

    outgoing: Sequence[tuple[int, Tensor]]
    incoming: Sequence[tuple[int, int]]
    nodes: np.ndarray
    width: int

    def begin(self, ranks: Ranks, values: Tensor) -> tuple[Tensor, Sequence[Any]]:
        """Begin to exchange rows of values (k, c); return the received ones and the requests.

        The received rows (h, c) are complete after ``ranks.finish(requests)``; `values` may change
        at once, since the rows are copied.
        """
        received = values.new_empty(len(self.nodes), values.shape[1])
        parts = received.split([count for _, count in self.incoming])
        requests = ranks.post(
            [(peer, values.index_select(0, rows)) for peer, rows in self.outgoing],
            [(peer, part) for (peer, _), part in zip(self.incoming, parts, strict=False)],
        )
        return received, requests

    def fetch(self, ranks: Ranks, values: Tensor) -> Tensor:
        """Return the received rows (h, d) of an exchange of values (k, d)."""
        received, requests = self.begin(ranks, values)
        ranks.finish(requests)
        return received


def halo_of(weights: MixingMatrix, ranks: Ranks) -> Halo:
    """Return the rows that a rank sends and receives if nodes average by a mixing matrix.

    Raises
    ------
    RuntimeError
        If ranks have different matrices, for example from random numbers of their own.
    """
    _check_same_on_all_ranks(weights, ranks)
    rank, n = ranks.rank, ranks.n
    entries = weights.weights.tocoo()
    crosses = (ranks.owner[entries.row] != ranks.owner[entries.col]) & (entries.data != 0)
    pairs = np.unique(ranks.owner[entries.row[crosses]] * n + entries.col[crosses])
    reader, nodes = np.divmod(pairs, n)  # each pair is a row that travels
    holder = ranks.owner[nodes]
    received = nodes[reader == rank]
    received = received[np.lexsort((received, ranks.owner[received]))]
    counts = np.bincount(ranks.owner[received], minlength=ranks.size)
    sent = [nodes[(holder == rank) & (reader == peer)] for peer in range(ranks.size)]
    most = max(np.bincount(np.append(reader, holder), minlength=1))
    return Halo(
        [
            (peer, torch.from_numpy(ranks.row_of[rows]).to(ranks.device))
            for peer, rows in enumerate(sent)
            if len(rows)
        ],
        [(peer, int(count)) for peer, count in enumerate(counts) if count],
        received,
        max(1, SENT // max(1, int(most))),
    )


def _check_same_on_all_ranks(weights: MixingMatrix, ranks: Ranks) -> None:
    found = ranks.numbers([int.from_bytes(digest_of(weights)[:6], "big")])
    if (found != found[0]).any():
        raise RuntimeError(
            f"ranks have different mixing matrices {weights.name!r}: a weight rule, a policy or a "
            "graph depends on something other than its arguments, or processors round differently"
        )


def rank_mixer(weights: MixingMatrix, ranks: Ranks, dtype: torch.dtype) -> Callable[[Tensor], None]:
    """Return the function that replaces own rows (k, c) by their rows of ``weights @ values``.

    Means over groups are reductions; otherwise the rows that the matrix needs are exchanged while
    the product with own rows is computed.
    """
    labels = component_means(weights)
    halo = halo_of(weights, ranks)
    if labels is not None and (cut := _cut_groups(labels, ranks)):
        return _mean_of_groups(labels, cut, ranks, dtype)
    own = weights.weights[ranks.nodes]
    local = product_with(own[:, ranks.nodes], ranks.device, dtype)
    remote = product_with(own[:, halo.nodes], ranks.device, dtype)

    def mix(values: Tensor) -> None:
        for block in values.split(halo.width, dim=1):
            received, requests = halo.begin(ranks, block)
            for some in _cached_blocks(block):
                some.copy_(local(some))
            ranks.finish(requests)
            if len(received):
                for some, more in zip(_cached_blocks(block), _cached_blocks(received), strict=True):
                    some.add_(remote(more))

    return mix


def _cached_blocks(values: Tensor) -> Iterator[Tensor]:
    """Yield blocks of columns that stay in the cache."""
    yield from values.split(
        COLUMNS if values.device.type == "cpu" else columns_at_a_time(len(values), values.device),
        dim=1,
    )


def product_with(matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> Product:
    """Return the product with a matrix (k, m), by the fastest method for its density."""
    matrix = sparse.csr_array(matrix)
    k, m = matrix.shape
    if not matrix.nnz:
        return lambda values: values.new_zeros(k, values.shape[1])
    if matrix.nnz < SPARSE_BELOW * k * m and dtype == torch.float32 and device.type == "cpu":
        return _bags(matrix)
    if matrix.nnz < SPARSE_BELOW * k * m and dtype in (torch.float32, torch.float64):
        stored = sparse_on_device(matrix, device, dtype)
        return lambda values: stored @ values
    dense = torch.from_numpy(matrix.toarray()).to(device, dtype)
    return lambda values: dense @ values


def _bags(matrix: sparse.csr_array) -> Product:
    """Return the product as weighted sums of gathered rows, for float32 on CPU."""
    sources, starts = (
        torch.from_numpy(part.astype(np.int64)) for part in (matrix.indices, matrix.indptr[:-1])
    )
    shares = torch.from_numpy(matrix.data.astype(np.float32))
    return lambda values: functional.embedding_bag(
        sources, values, starts, mode="sum", per_sample_weights=shares
    )


def _cut_groups(labels: np.ndarray, ranks: Ranks) -> list[int]:
    """Return the groups with nodes on several ranks, the same on all ranks."""
    pairs = np.unique(np.stack([labels, ranks.owner]), axis=1)
    return np.flatnonzero(np.bincount(pairs[0]) > 1).tolist()


def _mean_of_groups(
    labels: np.ndarray, cut: Sequence[int], ranks: Ranks, dtype: torch.dtype
) -> Callable[[Tensor], None]:
    """Return the function that replaces rows by the means of their groups.

    Sums of the groups in `cut`, which have nodes on several ranks, are reduced.
    """
    share = 1 / torch.from_numpy(np.bincount(labels)).to(ranks.device, dtype)[:, None]
    own = labels[ranks.nodes]
    groups = torch.from_numpy(own).to(ranks.device, torch.int64)
    reduced = torch.tensor(cut, dtype=torch.int64, device=ranks.device)

    def mean(values: Tensor) -> None:
        width = max(1, SENT // len(share))
        for block in values.split(width, dim=1):
            sums = block.new_zeros(len(share), block.shape[1]).index_add_(0, groups, block)
            if len(cut) == len(share):
                ranks.sum_(sums)
            else:
                sums[reduced] = ranks.sum_(sums[reduced])
            block.copy_(sums.mul_(share)[groups])

    return mean


def average_by_server(weights: MixingMatrix, values: Tensor, ranks: Ranks) -> None:
    """Replace own rows by the weighted mean over all nodes; all rows of `weights` are equal."""
    row = slice(*weights.weights.indptr[:2])
    nodes, shares = weights.weights.indices[row], weights.weights.data[row]
    own = ranks.owner[nodes] == ranks.rank
    rows = torch.from_numpy(ranks.row_of[nodes[own]]).to(values.device)
    total = torch.from_numpy(shares[own]).to(values) @ values[rows]
    values.copy_(ranks.sum_(total).expand_as(values))
