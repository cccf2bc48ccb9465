"""Mixing: rows of models, gradients and states multiplied by mixing matrices, in place.

A process multiplies the rows of its own nodes and those that it receives from other ranks; a run in
one process receives none. What attackers send, and averages by a server or by a rule, are here too.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional

from topofl._matrices import digest_of
from topofl._support.check import TOLERANCE
from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import check_same_shape
from topofl.attacks import Attack
from topofl.engine.memory import MappedFiles
from topofl.engine.ranks import Ranks, one_process
from topofl.mixing import MixingMatrix
from topofl.mixing.export import as_tensor

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

SENT = 2**22
"""Numbers that a rank sends and receives at a time; beyond, columns are exchanged in blocks."""

FORGED_AT_ONCE = 2**22
"""Entries of the models, over all nodes, that are forged at a time."""

Mix = Callable[[MixingMatrix, Tensor], None]
"""(weights, values (n, m)) -> None; mixes `values` in place."""

Aggregate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(own (d,), received rows (k, d), weights (k,)) -> the node's new row (d,)."""


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
    """Function that replaces own rows (k, c) by their rows of ``weights @ values``, in place.

    Attributes
    ----------
    apply
        The function.
    by_columns
        Whether several threads may each take a share of the columns; means reach memory speed with
        one thread, and ranks exchange the same columns at the same time.
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


class Product(NamedTuple):
    """Product with a matrix (k, m): the function (m, c) -> (k, c), and columns at a time."""

    apply: Callable[[Tensor], Tensor]
    width: int


@dataclass(frozen=True, eq=False)
class Mixing:
    """How the nodes of a run exchange rows.

    Values with the rows of one rank's nodes are exchanged with other ranks; values with the rows of
    all nodes, which each rank holds, are mixed by each rank alone.

    Parameters
    ----------
    ranks
        The ranks of the run.
    dtype
        Dtype of the models.
    known
        Number of matrices whose mixers are kept.
    attack
        The attack of the run; None: no attackers.
    files
        Files that hold the models; None: they are in memory.
    """

    ranks: Ranks
    dtype: torch.dtype
    known: int
    attack: "ActiveAttack | None" = None
    files: MappedFiles | None = None

    @cached_property
    def _alone(self) -> Ranks:
        """The ranks by which values of all nodes are mixed."""
        return one_process(self.ranks.n, self.ranks.device)

    def _ranks_of(self, values: Tensor) -> Ranks:
        return self.ranks if len(values) == len(self.ranks.nodes) else self._alone

    @cached_property
    def _mixers(self) -> Callable[[MixingMatrix, Ranks], Mixer]:
        def mixer_of(weights: MixingMatrix, ranks: Ranks) -> Mixer:
            found = mixer(weights, ranks, self.dtype)
            if self.files is None:
                return found
            return found._replace(apply=self.files.by_copies(found.apply), by_columns=False)

        return lru_cache(maxsize=self.known)(mixer_of)

    @cached_property
    def _halos(self) -> Callable[[MixingMatrix, Ranks], "Halo"]:
        return lru_cache(maxsize=self.known)(halo_of)

    def of_rank(self, weights: MixingMatrix) -> Mixer:
        """Return the mixer of values with the rows of this rank."""
        return self._mixers(weights, self.ranks)

    def of(self, weights: MixingMatrix, values: Tensor) -> Mixer:
        """Return the mixer of values with the rows of this rank, or of all nodes."""
        return self._mixers(weights, self._ranks_of(values))

    def mix(self, apply: Mix, weights: MixingMatrix, values: Tensor, t: int, exchange: str) -> None:
        """Apply `apply` in place; rows of attackers are forged, for which all models are needed.

        `exchange` is the name of the exchange, which seeds the random numbers of attackers.
        """
        if self.attack is None:
            apply(weights, values)
            return
        everyone = self.ranks.all_rows(values)
        self.attack.mix(apply, weights, everyone, t, exchange)
        if everyone is not values:
            values.copy_(self.ranks.own_rows(everyone))

    def serve(self, weights: MixingMatrix, values: Tensor, t: int, exchange: str) -> None:
        """Replace rows by their weighted mean over all nodes; all rows of `weights` are equal."""
        if self.attack is not None:
            everyone = self.ranks.all_rows(values)
            forged = self.attack.forged(everyone, weights, t, exchange)
            everyone[self.attack.attackers] = forged
            self._average(weights, everyone)
            if everyone is not values:
                values.copy_(self.ranks.own_rows(everyone))
        else:
            self._average(weights, values)

    def _average(self, weights: MixingMatrix, values: Tensor) -> None:
        values.copy_(self.average(weights, _rows_of(values), len(values)).expand_as(values))

    def average(
        self, weights: MixingMatrix, rows: Callable[[np.ndarray], Tensor], k: int
    ) -> Tensor:
        """Return the weighted mean (1, d) over all nodes, given the function that reads own rows.

        There are k own rows: those of this rank, or of all nodes. All rows of `weights` are equal.
        """
        ranks = self.ranks if k == len(self.ranks.nodes) else self._alone
        row = slice(*weights.weights.indptr[:2])
        nodes, shares = weights.weights.indices[row], weights.weights.data[row]
        own = ranks.owner[nodes] == ranks.rank
        read = rows(ranks.row_of[nodes[own]])
        return ranks.sum_(torch.from_numpy(shares[own]).to(read) @ read)[None]

    def aggregate(
        self, weights: MixingMatrix, values: Tensor, rule: Aggregate, t: int, exchange: str
    ) -> None:
        """Replace each row by what `rule` returns for it and the rows that its node receives."""
        ranks = self._ranks_of(values)
        forged = None
        if self.attack is not None:
            rows, nodes = ranks.all_rows(values), np.arange(ranks.n)
            forged = self.attack.forged(rows, weights, t, exchange)
        else:
            halo = self._halos(weights, ranks)
            rows, nodes = halo.with_received(ranks, values)
        found = torch.empty_like(values)
        received = received_rows(weights, rows, nodes, ranks.nodes, self.attack, forged)
        for k, (some, row_weights) in enumerate(received):
            found[k] = rule(values[k], some, row_weights)
        values.copy_(found)

    def published(self, values: Tensor, t: int, exchange: str) -> Tensor:
        """Return the values (n, d) that nodes publish, those of attackers forged."""
        values = self.ranks.all_rows(values)
        if self.attack is None or self.attack.attack.to_each:
            return values  # rows for each receiver are forged once there are weights
        forged = self.attack.forged(values, None, t, exchange)
        return values.index_copy(0, self.attack.attackers, forged)


def _rows_of(values: Tensor) -> Callable[[np.ndarray], Tensor]:
    return lambda which: values[torch.from_numpy(which).to(values.device)]


def mixer(weights: MixingMatrix, ranks: Ranks, dtype: torch.dtype) -> Mixer:
    """Return the function that multiplies the rows of a rank by a mixing matrix, in place.

    If the matrix is a mean over its connected components (complete graphs, clique averaging),
    means are taken, and sums over several ranks reduced. Otherwise blocks of columns are gathered
    or multiplied, sparse or dense by the matrix's density, while rows of other ranks travel. No
    call allocates more than one block of own and received rows, or one mean per component.

    Examples
    --------
    >>> from topofl.mixing import metropolis_hastings
    >>> from topofl.topologies import ring
    >>> values = torch.tensor([[3.0], [0.0], [0.0], [0.0]])
    >>> mix = mixer(metropolis_hastings(ring(4)), one_process(4, values.device), values.dtype)
    >>> mix(values)
    >>> values.flatten()
    tensor([1., 1., 0., 1.])
    """
    halo = halo_of(weights, ranks)
    labels = component_means(weights)
    if labels is not None:
        cut = _cut_groups(labels, ranks)
        if cut or ranks.device.type == "cpu" or labels.max() == 0:
            return _mean_mixer(labels, cut, ranks, dtype)
    own = _block(weights.weights, ranks.nodes, np.arange(weights.n))
    local = product_with(_block(own, None, ranks.nodes), ranks.device, dtype)
    remote = product_with(own[:, halo.nodes], ranks.device, dtype) if len(halo.nodes) else None

    def mix(values: Tensor) -> None:
        for block in values.split(halo.width, dim=1):
            received, requests = halo.begin(ranks, block)
            for some in block.split(local.width, dim=1):
                some.copy_(local.apply(some))
            ranks.finish(requests)
            if remote is not None:
                parts = zip(
                    block.split(remote.width, 1), received.split(remote.width, 1), strict=True
                )
                for some, more in parts:
                    some.add_(remote.apply(more))

    return Mixer(mix, by_columns=halo.is_empty)


def _block(
    matrix: sparse.csr_array, rows: np.ndarray | None, columns: np.ndarray
) -> sparse.csr_array:
    """Return some rows and columns of a matrix, or the matrix itself if these are all."""
    if rows is not None and len(rows) < matrix.shape[0]:
        matrix = matrix[rows]
    return matrix[:, columns] if len(columns) < matrix.shape[1] else matrix


def product_with(matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> Product:
    """Return the product with a matrix (k, m), by the fastest method for its density."""
    k, m = matrix.shape
    is_sparse = matrix.nnz < SPARSE_BELOW * k * m
    if is_sparse and dtype == torch.float32 and device.type == "cpu":
        return _bags(matrix)
    width = columns_at_a_time(m, device)
    # torch has no sparse products in 16 bits on CPU
    if is_sparse and dtype in (torch.float32, torch.float64):
        stored = sparse_on_device(matrix, device, dtype)
        return Product(lambda values: stored @ values, width)
    dense = as_tensor(matrix, device, dtype)
    return Product(lambda values: dense @ values, width)


def _bags(matrix: sparse.csr_array) -> Product:
    """Return the product as weighted sums of gathered rows, for float32 on CPU.

    Embedding bags of weighted rows take 0.5 to 0.6 of the time of a sparse product for 1,000 nodes
    (ring, exponential, D-Cliques) and about as long for 100 nodes, but 1.6 times as long in
    float64, for which torch has no such kernel.
    """
    sources, starts = (
        torch.from_numpy(part.astype(np.int64)) for part in (matrix.indices, matrix.indptr[:-1])
    )
    shares = torch.from_numpy(matrix.data.astype(np.float32))

    def gather(values: Tensor) -> Tensor:
        return functional.embedding_bag(
            sources, values, starts, mode="sum", per_sample_weights=shares
        )

    return Product(gather, max(FEWEST, GATHERED // matrix.shape[1]))


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

    @property
    def is_empty(self) -> bool:
        """Whether nothing is sent or received."""
        return not self.outgoing and not self.incoming

    def begin(self, ranks: Ranks, values: Tensor) -> tuple[Tensor, Sequence[Any]]:
        """Begin to exchange rows of values (k, c); return the received ones and the requests.

        The received rows (h, c) are complete after ``ranks.finish(requests)``; `values` may change
        at once, since the rows are copied.
        """
        received = values.new_empty(len(self.nodes), values.shape[1])
        parts = received.split([count for _, count in self.incoming]) if self.incoming else []
        requests = ranks.post(
            [(peer, values.index_select(0, rows)) for peer, rows in self.outgoing],
            [(peer, part) for (peer, _), part in zip(self.incoming, parts, strict=True)],
        )
        return received, requests

    def with_received(self, ranks: Ranks, values: Tensor) -> tuple[Tensor, np.ndarray]:
        """Return own and received rows (k + h, d), given own ones, and their nodes (k + h,)."""
        if self.is_empty:
            return values, ranks.nodes
        received, requests = self.begin(ranks, values)
        ranks.finish(requests)
        return torch.cat([values, received]), np.append(ranks.nodes, self.nodes)


def halo_of(weights: MixingMatrix, ranks: Ranks) -> Halo:
    """Return the rows that a rank sends and receives if nodes average by a mixing matrix.

    Raises
    ------
    RuntimeError
        If ranks have different matrices, for example from random numbers of their own.
    """
    rank, n = ranks.rank, ranks.n
    if len(ranks.nodes) == n:
        return Halo((), (), np.zeros(0, dtype=np.int64), SENT)
    _check_same_on_all_ranks(weights, ranks)
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


def _cut_groups(labels: np.ndarray, ranks: Ranks) -> list[int]:
    """Return the groups with nodes on several ranks, the same on all ranks."""
    pairs = np.unique(np.stack([labels, ranks.owner]), axis=1)
    return np.flatnonzero(np.bincount(pairs[0]) > 1).tolist()


def _mean_mixer(labels: np.ndarray, cut: Sequence[int], ranks: Ranks, dtype: torch.dtype) -> Mixer:
    """Return the mixer that replaces rows by the means of their groups.

    Sums of the groups in `cut`, which have nodes on several ranks, are reduced.
    """
    share = 1 / torch.from_numpy(np.bincount(labels)).to(ranks.device, dtype)[:, None]
    groups = torch.from_numpy(labels[ranks.nodes].astype(np.int64)).to(ranks.device)
    reduced = torch.tensor(cut, dtype=torch.int64, device=ranks.device)

    def mean(values: Tensor) -> None:
        if len(share) == 1 and not cut:
            values.copy_(values.mean(0, keepdim=True).expand_as(values))
        elif len(share) < len(labels):
            for block in values.split(max(1, SENT // len(share)) if cut else values.shape[1], 1):
                sums = block.new_zeros(len(share), block.shape[1]).index_add_(0, groups, block)
                if cut:
                    sums[reduced] = ranks.sum_(sums[reduced])
                torch.index_select(sums.mul_(share), 0, groups, out=block)

    by_group = not cut and sums_by_group(ranks.device, dtype)
    return Mixer(mean, by_columns=False, means=Means(groups, share) if by_group else None)


@dataclass(frozen=True, eq=False)
class ActiveAttack:
    """The attack of a run, on its device.

    Parameters
    ----------
    attack, n, seed, device
        Attack, number of nodes, seed and device of the run.
    """

    attack: Attack
    n: int
    seed: int
    device: torch.device

    @cached_property
    def attackers(self) -> Tensor:
        """(a,) indices of the attackers."""
        return torch.tensor(self.attack.nodes, device=self.device)

    @cached_property
    def is_attacker(self) -> Tensor:
        """(n,) mask of the attackers."""
        return torch.zeros(self.n, dtype=torch.bool, device=self.device).index_fill_(
            0, self.attackers, True
        )

    @cached_property
    def _dense(self) -> Callable[[MixingMatrix], Tensor]:
        return lru_cache(maxsize=1)(lambda weights: weights.to_torch(self.device, torch.float64))

    def forged(self, values: Tensor, weights: MixingMatrix | None, t: int, exchange: str) -> Tensor:
        """Return the forged rows: one per attacker, (a, d), or one per receiver, (n, d).

        The latter if the attack sends each neighbor a different row. Weights None: senders are not
        chosen yet, and all have equal weights.
        """
        shares = torch.full((self.n, self.n), 1 / self.n, dtype=torch.float64, device=self.device)
        shares = shares if weights is None else self._dense(weights)
        rng = stream(self.seed, f"attack/{exchange}", t)
        blocks = [
            self._forge_block(block, shares, rng)
            for block in values.split(max(1, FORGED_AT_ONCE // self.n), 1)
        ]
        return torch.cat(blocks, 1)

    def _forge_block(self, block: Tensor, shares: Tensor, rng: np.random.Generator) -> Tensor:
        version = block._version
        forged = self.attack.forge(block, self.is_attacker, shares, rng)
        what = f"`forge` of the attack {self.attack.name!r}"
        check_same_shape(
            what, "a tensor", forged, block, "start from the models, which have that shape"
        )
        if block._version != version:
            raise ValueError(f"{what} must not change its arguments in place; clone them")
        return (forged if self.attack.to_each else forged[self.attackers]).to(block.dtype)

    def mix(self, mix: Mix, weights: MixingMatrix, values: Tensor, t: int, exchange: str) -> None:
        """Mix the sent values, in place; attackers themselves average the true models."""
        forged = self.forged(values, weights, t, exchange)
        dense = self._dense(weights).to(values.dtype)
        own = dense[self.attackers] @ values
        values[self.attackers] = 0 if self.attack.to_each else forged
        mix(weights, values)
        if self.attack.to_each:
            values += forged.mul_(dense[:, self.attackers].sum(1, keepdim=True))
        values[self.attackers] = own


def received_rows(
    weights: MixingMatrix,
    rows: Tensor,
    nodes: np.ndarray,
    receivers: np.ndarray,
    attack: ActiveAttack | None,
    forged: Tensor | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each receiver its received rows (k, d), in order of senders, and weights (k,).

    Parameters
    ----------
    weights
        Row i has the weights of the nodes that node i receives from.
    rows, nodes
        Rows (m, d) of some nodes, (m,); with an attack, of all nodes.
    receivers
        Nodes that receive rows of these nodes only.
    attack, forged
        The attack and its forged rows; None: no attackers.
    """
    senders, shares, bounds = _senders(weights, nodes, rows)
    sent = rows
    if attack is not None and forged is not None and not attack.attack.to_each:
        sent = rows.index_copy(0, attack.attackers, forged)
    for i in receivers.tolist():
        own = slice(*bounds[i : i + 2])
        if attack is not None and i in attack.attack.nodes:
            some = rows[senders[own]]  # attackers receive the true rows
        else:
            some = sent[senders[own]]
            if attack is not None and forged is not None and attack.attack.to_each:
                is_forged = attack.is_attacker[senders[own]][:, None]
                some = torch.where(is_forged, forged[i], some)
        yield some, shares[own]


def _senders(
    weights: MixingMatrix, nodes: np.ndarray, rows: Tensor
) -> tuple[Tensor, Tensor, Sequence[int]]:
    """Return all nodes' senders, as places in `nodes`, and weights, concatenated, and offsets."""
    matrix = weights.weights.tocoo()
    apart = (matrix.row != matrix.col) & (matrix.data != 0)
    receivers, columns, data = matrix.row[apart], matrix.col[apart], matrix.data[apart]
    order = np.lexsort((columns, receivers))
    bounds = np.searchsorted(receivers[order], np.arange(weights.n + 1)).tolist()
    place = np.zeros(weights.n, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    senders = torch.from_numpy(place[columns[order]]).to(rows.device)
    return senders, torch.from_numpy(data[order]).to(rows), bounds
