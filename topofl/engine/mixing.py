"""Mixing: rows of models, gradients and states multiplied by mixing matrices, in place.

A process multiplies the rows of its own nodes and those that it receives from other ranks; a run in
one process receives none. What attackers send, and averages by a server or by a rule, are here too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor
from torch.nn import functional

from topofl._support.arrays import sparse_tensor
from topofl._support.seeding import stream
from topofl.algorithms.contract.phase import check_same_shape
from topofl.attacks import Attack
from topofl.engine.executor import Executor
from topofl.engine.memory import MappedFiles
from topofl.engine.population import Held
from topofl.engine.ranks import Ranks, one_process
from topofl.history.matrices import digest_of
from topofl.mixing import MixingMatrix
from topofl.mixing.matrix import as_tensor, component_means

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

Aggregate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(own (d,), received rows (k, d), weights (k,)) -> the node's new row (d,)."""


Means = tuple[Tensor, Tensor]
"""The group of each row, (n,) int64, and the inverse of the size of each group, (groups, 1).

Every row is replaced by the mean of its group.
"""


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


@dataclass(frozen=True, eq=False)
class Mixing:
    """How the nodes of a run exchange rows, and what attackers send.

    Values with the rows of one rank's nodes are exchanged with other ranks; values with the rows of
    all nodes, which each rank holds, are mixed by each rank alone.

    Parameters
    ----------
    ranks
        The ranks of the run.
    dtype
        Dtype of the models.
    executor
        Its threads take shares of the columns.
    known
        Number of matrices whose mixers are kept.
    seed, attack
        Seed and attack of the run; None: no attackers.
    files
        Files that hold the models; None: they are in memory.
    matrices_of
        (matrix) -> those of the runs that are trained together, whose nodes are the executor's
        rows; not called for one run.
    """

    ranks: Ranks
    dtype: torch.dtype
    executor: Executor
    known: int
    seed: int
    attack: Attack | None = None
    files: MappedFiles | None = None
    matrices_of: Callable[[MixingMatrix], Sequence[MixingMatrix]] | None = None

    @cached_property
    def _alone(self) -> Ranks:
        """The ranks by which values of all nodes are mixed."""
        return one_process(self.ranks.n, self.ranks.device)

    def _ranks_of(self, k: int) -> Ranks:
        """Return the ranks that mix k rows: those of this rank's nodes, or of all nodes."""
        return self.ranks if k == len(self.ranks.nodes) else self._alone

    @cached_property
    def _mixers(self) -> Callable[[MixingMatrix, Ranks], Mixer]:
        def mixer_of(weights: MixingMatrix, ranks: Ranks) -> Mixer:
            if self.executor.rows and self.matrices_of:
                parts = zip(self.executor.rows, self.matrices_of(weights), strict=True)
                return self._of_parts([(rows, known(own, ranks)) for rows, own in parts])
            return known(weights, ranks)

        def known(weights: MixingMatrix, ranks: Ranks) -> Mixer:
            if ranks.n != weights.n:
                ranks = one_process(weights.n, ranks.device)
            found, executor = mixer(weights, ranks, self.dtype), self.executor
            apply = found.apply if self.files is None else self.files.by_copies(found.apply)
            shares = executor.plan.workers if found.by_columns and self.files is None else 1
            return found._replace(
                apply=lambda values: executor.parallel_map(apply, values.tensor_split(shares, 1))
            )

        return lru_cache(maxsize=self.known)(mixer_of)

    def _of_parts(self, parts: Sequence[tuple[slice, Mixer]]) -> Mixer:
        """Return the mixer of several runs, whose rows are mixed one run after another.

        They are mixed in copies, since sums of products depend on how memory is aligned.
        """

        def apply(values: Tensor) -> None:
            for rows, own in parts:
                copied = values[rows].clone()
                own(copied)
                values[rows] = copied

        return Mixer(apply, by_columns=False)

    @cached_property
    def _halos(self) -> Callable[[MixingMatrix, Ranks], "Halo"]:
        return lru_cache(maxsize=self.known)(halo_of)

    def mixer(self, weights: MixingMatrix, k: int) -> Mixer:
        """Return the mixer of k rows, those of this rank's nodes or of all, on all threads."""
        return self._mixers(weights, self._ranks_of(k))

    def mix(
        self, weights: MixingMatrix, values: Tensor, t: int, exchange: str, server: bool = False
    ) -> None:
        """Multiply values by a matrix in place; a `server` averages if all its rows are equal.

        Rows of attackers are forged, for which those of all nodes are needed. `exchange` is the
        name of the exchange, which seeds the random numbers of attackers.
        """
        attack = self.attack
        if attack is None:
            self.multiply(weights, values, server)
            return
        everyone = self.ranks.all_rows(values)
        forged = self._forged(attack, everyone, weights, t, exchange)
        if server:
            everyone[self.attackers] = forged
            self.multiply(weights, everyone, server)
        else:  # attackers themselves average the true models
            dense = self._dense(weights).to(values.dtype)
            own = dense[self.attackers] @ everyone
            everyone[self.attackers] = 0 if attack.to_each else forged
            self.multiply(weights, everyone)
            if attack.to_each:
                everyone += forged.mul_(dense[:, self.attackers].sum(1, keepdim=True))
            everyone[self.attackers] = own
        if everyone is not values:
            values.copy_(self.ranks.own_rows(everyone))

    def multiply(self, weights: MixingMatrix, values: Tensor, server: bool = False) -> None:
        """Multiply values by a matrix in place; nothing is forged, also if there are attackers."""
        if server:
            self.average(weights, Held(values))
        else:
            self.mixer(weights, len(values))(values)

    def average(self, weights: MixingMatrix, held: Held) -> None:
        """Let rows, of this rank's nodes or of all, be the weighted mean over all nodes.

        All rows of `weights` are equal.
        """
        ranks = self._ranks_of(len(held))
        row = slice(*weights.weights.indptr[:2])
        nodes, shares = weights.weights.indices[row], weights.weights.data[row]
        own = ranks.owner[nodes] == ranks.rank
        read = held.read(ranks.row_of[nodes[own]])
        flat = read.flatten(1) if read.dim() > 1 else read[:, None]
        mean = torch.from_numpy(shares[own]).to(read) @ flat
        held.fill(ranks.sum_(mean).view(1, *read.shape[1:]))

    def mix_buffer(self, weights: MixingMatrix, held: Held, pushed: Tensor, server: bool) -> None:
        """Average a buffer by a matrix; by push-sum weights `pushed` (k,) if its rows are pushed.

        Attackers forge models, but not their statistics.
        """
        if server:
            self.average(weights, held)
            return
        buffer = held.apart().view(len(held), -1)
        if weights.is_row_stochastic:
            self.multiply(weights, buffer)
            return
        everywhere = weights.weights @ self.ranks.all_rows(pushed).cpu().numpy()
        after = self._ranks_of(len(held)).own_rows(torch.from_numpy(everywhere).to(pushed))
        self.multiply(weights, buffer.mul_(pushed[:, None].to(buffer)))
        buffer.div_(after[:, None].to(buffer))

    def aggregate(
        self, weights: MixingMatrix, values: Tensor, rule: Aggregate, t: int, exchange: str
    ) -> None:
        """Replace each row by what `rule` returns for it and the rows that its node receives.

        Received rows (k, d) and their weights (k,) are in order of senders.
        """
        ranks, attack = self._ranks_of(len(values)), self.attack
        if attack is None:
            rows, nodes = self._halos(weights, ranks).with_received(ranks, values)
        else:
            rows, nodes = ranks.all_rows(values), np.arange(ranks.n)
        forged = attack and self._forged(attack, rows, weights, t, exchange)
        to_each = attack is not None and attack.to_each
        attackers = set() if attack is None else set(attack.nodes)
        entries = weights.weights.tocoo()
        apart = entries.row != entries.col
        bounds = np.searchsorted(entries.row[apart], np.arange(weights.n + 1)).tolist()
        place = np.zeros(weights.n, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        senders = torch.from_numpy(place[entries.col[apart]]).to(rows.device)
        shares = torch.from_numpy(entries.data[apart]).to(rows)
        sent = rows if forged is None or to_each else rows.index_copy(0, self.attackers, forged)
        found = torch.empty_like(values)
        for k, i in enumerate(ranks.nodes.tolist()):
            part = slice(*bounds[i : i + 2])
            some = (rows if i in attackers else sent)[senders[part]]  # attackers get the true rows
            if forged is not None and to_each and i not in attackers:
                some = torch.where(self.is_attacker[senders[part]][:, None], forged[i], some)
            found[k] = rule(values[k], some, shares[part])
        values.copy_(found)

    def published(self, values: Tensor, t: int, exchange: str, *, own: bool = False) -> Tensor:
        """Return all rows as published, or with `own` those of this rank; attackers' are forged."""
        if self.attack is None or self.attack.to_each:
            # rows for each receiver are forged once there are weights
            return values if own else self.ranks.all_rows(values)
        everyone = self.ranks.all_rows(values)
        forged = self._forged(self.attack, everyone, None, t, exchange)
        everyone = everyone.index_copy(0, self.attackers, forged)
        return self._ranks_of(len(values)).own_rows(everyone) if own else everyone

    @cached_property
    def attackers(self) -> Tensor:
        """(a,) indices of the attackers."""
        nodes = () if self.attack is None else self.attack.nodes
        return torch.tensor(nodes, dtype=torch.int64, device=self.ranks.device)

    @cached_property
    def is_attacker(self) -> Tensor:
        """(n,) mask of the attackers."""
        honest = torch.zeros(self.ranks.n, dtype=torch.bool, device=self.ranks.device)
        return honest.index_fill_(0, self.attackers, True)

    @cached_property
    def _dense(self) -> Callable[[MixingMatrix], Tensor]:
        device = self.ranks.device
        return lru_cache(maxsize=1)(lambda weights: weights.to_torch(device, torch.float64))

    def _forged(
        self, attack: Attack, values: Tensor, weights: MixingMatrix | None, t: int, exchange: str
    ) -> Tensor:
        """Return the forged rows: one per attacker, (a, d), or one per receiver, (n, d).

        The latter if the attack sends each neighbor a different row. Weights None: senders are not
        chosen yet, and all have equal weights.
        """
        n = self.ranks.n
        if weights is None:
            shares = torch.full((n, n), 1 / n, dtype=torch.float64, device=self.ranks.device)
        else:
            shares = self._dense(weights)
        rng = stream(self.seed, f"attack/{exchange}", t)
        what, forged = f"`forge` of the attack {attack.name!r}", []
        remedy = "start from the models, which have that shape"
        for block in values.split(max(1, FORGED_AT_ONCE // n), 1):
            version = block._version
            found = attack.forge(block, self.is_attacker, shares, rng)
            check_same_shape(what, "a tensor", found, block, remedy)
            if block._version != version:
                raise ValueError(f"{what} must not change its arguments in place; clone them")
            forged.append((found if attack.to_each else found[self.attackers]).to(block.dtype))
        return torch.cat(forged, 1)


def mixer(weights: MixingMatrix, ranks: Ranks, dtype: torch.dtype) -> Mixer:
    """Return the function that multiplies the rows of a rank by a mixing matrix, in place.

    If the matrix is a mean over its connected components (complete graphs, clique averaging),
    means are taken, and sums of groups on several ranks reduced over those ranks, which never sends
    more than rows would. Otherwise blocks of columns are gathered or multiplied, sparse or dense by
    the matrix's density, while rows of other ranks travel. No call allocates more than one block of
    own and received rows, or one mean per component.

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
    halo, matrix, of_received = halo_of(weights, ranks), weights.weights, None
    labels = component_means(weights)
    if labels is not None:
        parts, _ = np.unique(np.stack([labels, ranks.owner]), axis=1)
        cut = np.flatnonzero(np.bincount(parts) > 1)  # groups with nodes on several ranks
        if len(cut) or ranks.device.type == "cpu" or labels.max() == 0:
            return _mean_mixer(labels, cut, ranks, dtype)
    if len(ranks.nodes) < weights.n:
        matrix = matrix[ranks.nodes]
        if len(halo.nodes):
            of_received = _product(matrix[:, halo.nodes], ranks.device, dtype)
        matrix = matrix[:, ranks.nodes]
    times, width = _product(matrix, ranks.device, dtype)

    def multiply(block: Tensor) -> None:
        for some in block.split(width, 1):
            some.copy_(times(some))

    if halo.is_empty:
        return Mixer(multiply, by_columns=True)

    def mix(values: Tensor) -> None:
        for block in values.split(halo.width, dim=1):
            received, requests = halo.begin(ranks, block)
            multiply(block)
            ranks.finish(requests)
            if of_received is not None:
                of_others, wide = of_received
                for some, more in zip(block.split(wide, 1), received.split(wide, 1), strict=True):
                    some.add_(of_others(more))

    return Mixer(mix, by_columns=False)


def _product(
    matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype
) -> tuple[Callable[[Tensor], Tensor], int]:
    """Return the function that multiplies a matrix (k, m) and rows (m, c), and its best width c.

    It is the fastest method for the density of the matrix.
    """
    k, m = matrix.shape
    is_sparse = matrix.nnz < SPARSE_BELOW * k * m
    if is_sparse and dtype == torch.float32 and device.type == "cpu":
        return _gathering(matrix), max(FEWEST, GATHERED // m)
    # torch has no sparse products in 16 bits on CPU
    stores = sparse_tensor if is_sparse and dtype in (torch.float32, torch.float64) else as_tensor
    return stores(matrix, device, dtype).matmul, columns_at_a_time(m, device)


def _gathering(matrix: sparse.csr_array) -> Callable[[Tensor], Tensor]:
    """Return the product as weighted sums of gathered rows, for float32 on CPU.

    Embedding bags of weighted rows take 0.5 to 0.6 of the time of a sparse product for 1,000 nodes
    (ring, exponential, D-Cliques) and about as long for 100 nodes, but 1.6 times as long in
    float64, for which torch has no such kernel.
    """
    sources = torch.from_numpy(matrix.indices.astype(np.int64))
    starts = torch.from_numpy(matrix.indptr[:-1].astype(np.int64))
    shares = torch.from_numpy(matrix.data.astype(np.float32))
    return lambda rows: functional.embedding_bag(
        sources, rows, starts, mode="sum", per_sample_weights=shares
    )


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
    found = ranks.numbers([int.from_bytes(digest_of(weights)[:6], "big")])
    if (found != found[0]).any():
        raise RuntimeError(
            f"ranks have different mixing matrices {weights.name!r}: a weight rule, a policy or a "
            "graph depends on something other than its arguments, or processors round differently"
        )
    entries = weights.weights.tocoo()
    crosses = ranks.owner[entries.row] != ranks.owner[entries.col]
    pairs = np.unique(ranks.owner[entries.row[crosses]] * n + entries.col[crosses])
    reader, nodes = np.divmod(pairs, n)  # each pair is a row that travels
    holder = ranks.owner[nodes]
    received = nodes[reader == rank]
    received = received[np.lexsort((received, ranks.owner[received]))]
    counts = np.bincount(ranks.owner[received], minlength=ranks.size)
    read_by = [nodes[(holder == rank) & (reader == peer)] for peer in range(ranks.size)]
    sent = [ranks.row_of[some] for some in read_by]
    most = max(np.bincount(np.append(reader, holder), minlength=1))
    outgoing = [(k, torch.from_numpy(x).to(ranks.device)) for k, x in enumerate(sent) if len(x)]
    incoming = [(peer, int(count)) for peer, count in enumerate(counts) if count]
    return Halo(outgoing, incoming, received, max(1, SENT // max(1, int(most))))


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


def _mean_mixer(labels: np.ndarray, cut: np.ndarray, ranks: Ranks, dtype: torch.dtype) -> Mixer:
    """Return the mixer that replaces rows by the means of their groups.

    Sums of the groups in `cut`, which have nodes on several ranks, are reduced: over all ranks
    those of groups that all hold, and the others over the ranks that hold them.
    """
    share = 1 / torch.from_numpy(np.bincount(labels)).to(ranks.device, dtype)[:, None]
    groups = torch.from_numpy(labels[ranks.nodes].astype(np.int64)).to(ranks.device)
    everywhere, moves = _reductions(labels, cut, ranks)
    reduced, is_cut = torch.from_numpy(everywhere).to(ranks.device), len(cut) > 0
    there, back = (_halo_of_groups(one, ranks) for one in moves)

    def reduce(sums: Tensor) -> None:
        received, requests = there.begin(ranks, sums)
        ranks.finish(requests)
        sums.index_add_(0, torch.from_numpy(there.nodes).to(ranks.device), received)
        received, requests = back.begin(ranks, sums)
        ranks.finish(requests)
        sums.index_copy_(0, torch.from_numpy(back.nodes).to(ranks.device), received)
        if len(reduced):
            sums[reduced] = ranks.sum_(sums[reduced])

    def mean(values: Tensor) -> None:
        if len(share) == 1 and not is_cut:
            values.copy_(values.mean(0, keepdim=True).expand_as(values))
        elif len(share) < len(labels):
            width = max(1, SENT // len(share)) if is_cut else values.shape[1]
            for block in values.split(width, 1):
                sums = block.new_zeros(len(share), block.shape[1]).index_add_(0, groups, block)
                if is_cut:
                    reduce(sums)
                torch.index_select(sums.mul_(share), 0, groups, out=block)

    by_group = not is_cut and sums_by_group(ranks.device, dtype)
    return Mixer(mean, by_columns=False, means=(groups, share) if by_group else None)


def _reductions(
    labels: np.ndarray, cut: np.ndarray, ranks: Ranks
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the groups of `cut` that all ranks hold, and how sums of the others travel.

    Each of the two steps is a mask (groups, ranks, ranks) of sums that the second rank sends to the
    third. First, the ranks that hold a group send their sums to one of them, chosen in turn so that
    the load is spread; two ranks exchange their sums. Then that rank sends the total back. Of a
    group of k nodes on r ranks, 2 (r - 1) rows travel, as by an all-reduce, instead of its
    k (r - 1) models.
    """
    held = np.zeros((labels.max() + 1, ranks.size), dtype=bool)
    held[labels, ranks.owner] = True
    count = held.sum(axis=1)
    everywhere = cut[count[cut] == ranks.size]
    held[count == ranks.size] = False
    order = np.cumsum(held, axis=1) - 1
    sums = held & ((count == 2)[:, None] | (order == (np.arange(len(held)) % count)[:, None]))
    there = held[:, :, None] & sums[:, None, :] & ~np.eye(ranks.size, dtype=bool)
    back = sums[:, :, None] & (held & ~sums)[:, None, :]
    return everywhere, (there, back)


def _halo_of_groups(moves: np.ndarray, ranks: Ranks) -> Halo:
    """Return the sums of groups that a rank sends and receives in a step of a reduction."""
    sent = [np.flatnonzero(one) for one in moves[:, ranks.rank].T]
    received = [np.flatnonzero(one) for one in moves[:, :, ranks.rank].T]
    outgoing = [(k, torch.from_numpy(x).to(ranks.device)) for k, x in enumerate(sent) if len(x)]
    incoming = [(peer, len(groups)) for peer, groups in enumerate(received) if len(groups)]
    return Halo(outgoing, incoming, np.concatenate(received), SENT)
