"""Exchanges in which attackers send forged models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import check_same_shape
from topofl.attacks import Attack
from topofl.mixing import MixingMatrix

__all__ = ["ActiveAttack", "ReceivedRows"]

FORGED_AT_ONCE = 2**22
"""Entries of the models, over all nodes, that are forged at a time."""

Mix = Callable[[MixingMatrix, Tensor], None]
"""(weights, values (n, m)) -> None; mixes `values` in place."""


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
    def honest(self) -> Tensor:
        """(n - a,) indices of the honest nodes."""
        others = [i for i in range(self.n) if i not in self.attack.nodes]
        return torch.tensor(others, device=self.device)

    @cached_property
    def is_attacker(self) -> Tensor:
        """(n,) mask of the attackers."""
        return torch.zeros(self.n, dtype=torch.bool, device=self.device).index_fill_(
            0, self.attackers, True
        )

    @cached_property
    def _dense(self) -> Callable[[MixingMatrix], Tensor]:
        def dense(weights: MixingMatrix) -> Tensor:
            return torch.from_numpy(weights.weights.toarray()).to(self.device)

        return lru_cache(maxsize=1)(dense)

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

    def serve(
        self, serve: Mix, weights: MixingMatrix, values: Tensor, t: int, exchange: str
    ) -> None:
        """Average the sent values by a server, in place."""
        values[self.attackers] = self.forged(values, weights, t, exchange)
        serve(weights, values)

    def published(self, values: Tensor, t: int, exchange: str) -> Tensor:
        """Return the values (n, d) that nodes publish, those of attackers forged."""
        if self.attack.to_each:
            return values  # rows for each receiver are forged once there are weights
        return values.index_copy(0, self.attackers, self.forged(values, None, t, exchange))


@dataclass(frozen=True, eq=False)
class ReceivedRows:
    """Rows that each node receives in an exchange.

    Parameters
    ----------
    weights
        Row i has the weights of the nodes that node i receives from.
    values
        (n, d) rows of all nodes.
    active_attack, forged
        The attack and its forged rows; None: no attackers.
    only
        The nodes whose rows are wanted, ascending; None: all.
    place
        The row of each node in `values`, if these are not the rows of all nodes.
    """

    weights: MixingMatrix
    values: Tensor
    active_attack: ActiveAttack | None = None
    forged: Tensor | None = None
    only: Sequence[int] | None = None
    place: Mapping[int, int] | None = None

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield each node, its received rows (k, d) in order of senders, and their weights (k,)."""
        senders, shares, bounds = self._senders
        sent, active = self._sent, self.active_attack
        for i in range(self.weights.n) if self.only is None else self.only:
            own = slice(*bounds[i : i + 2])
            if active is not None and i in active.attack.nodes:
                rows = self.values[senders[own]]  # attackers receive the true rows
            else:
                rows = sent[senders[own]]
                if active is not None and active.attack.to_each and self.forged is not None:
                    is_forged = active.is_attacker[senders[own]][:, None]
                    rows = torch.where(is_forged, self.forged[i], rows)
            yield i, rows, shares[own]

    @cached_property
    def _sent(self) -> Tensor:
        """(n, d) rows that nodes send to all receivers alike."""
        if self.active_attack is None or self.forged is None or self.active_attack.attack.to_each:
            return self.values
        return self.values.index_copy(0, self.active_attack.attackers, self.forged)

    @cached_property
    def _senders(self) -> tuple[Tensor, Tensor, Sequence[int]]:
        """Senders and weights of all nodes, concatenated on the device, and their offsets."""
        matrix = self.weights.weights.tocoo()
        apart = (matrix.row != matrix.col) & (matrix.data != 0)
        rows, columns, data = matrix.row[apart], matrix.col[apart], matrix.data[apart]
        order = np.lexsort((columns, rows))
        bounds = np.searchsorted(rows[order], np.arange(self.weights.n + 1)).tolist()
        senders = columns[order].astype(np.int64)
        if self.place is not None:
            senders = np.array([self.place.get(node, 0) for node in senders.tolist()], np.int64)
        senders = torch.from_numpy(senders).to(self.values.device)
        return senders, torch.from_numpy(data[order]).to(self.values), bounds
