"""Exchanges in which some nodes send others something else than what they hold."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from topofl._support.seeding import stream
from topofl.algorithms.contract.checked import check_shape
from topofl.attacks import Attack
from topofl.mixing import MixingMatrix

__all__ = ["ActiveAttack", "ReceivedRows"]

FORGED_AT_ONCE = 2**22
"""Numbers of all nodes that are forged at a time."""

Mix = Callable[[MixingMatrix, Tensor], None]
"""Replaces values (n, m) by the mixed ones, in place."""


@dataclass(frozen=True, eq=False)
class ActiveAttack:
    """The attack of a run on a device.

    Parameters
    ----------
    attack, n, seed, device
        Of the run.
    """

    attack: Attack
    n: int
    seed: int
    device: torch.device

    @cached_property
    def places(self) -> Tensor:
        """(a,) the attackers."""
        return torch.tensor(self.attack.nodes, device=self.device)

    @cached_property
    def honest(self) -> Tensor:
        """(n - a,) the others."""
        others = [i for i in range(self.n) if i not in self.attack.nodes]
        return torch.tensor(others, device=self.device)

    @cached_property
    def bad(self) -> Tensor:
        """(n,) who attacks."""
        return torch.zeros(self.n, dtype=torch.bool, device=self.device).index_fill_(
            0, self.places, True
        )

    @cached_property
    def _dense(self) -> Callable[[MixingMatrix], Tensor]:
        def dense(weights: MixingMatrix) -> Tensor:
            return torch.from_numpy(weights.weights.toarray()).to(self.device)

        return lru_cache(maxsize=1)(dense)

    def forged(self, values: Tensor, weights: MixingMatrix | None, t: int, exchange: str) -> Tensor:
        """Return what attackers send, (a, d), or what each node receives from all of them, (n, d).

        Weights None: nodes have not chosen whom they hear, all have equal shares.
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
        made = self.attack.forge(block, self.bad, shares, rng)
        what = f"`forge` of the attack {self.attack.name!r}"
        check_shape(what, "a tensor", made, block, "make it of what is sent, which has that shape")
        if block._version != version:
            raise ValueError(
                f"`forge` of the attack {self.attack.name!r} must not change what it is given; "
                "clone it"
            )
        return (made if self.attack.to_each else made[self.places]).to(block.dtype)

    def mix(self, mix: Mix, weights: MixingMatrix, values: Tensor, t: int, exchange: str) -> None:
        """Mix what is sent, in place; attackers themselves average the true models."""
        forged, dense = (
            self.forged(values, weights, t, exchange),
            self._dense(weights).to(values.dtype),
        )
        own = dense[self.places] @ values
        values[self.places] = 0 if self.attack.to_each else forged
        mix(weights, values)
        if self.attack.to_each:
            values += forged.mul_(dense[:, self.places].sum(1, keepdim=True))
        values[self.places] = own

    def serve(
        self, serve: Mix, weights: MixingMatrix, values: Tensor, t: int, exchange: str
    ) -> None:
        """Let a server average what is sent, in place."""
        values[self.places] = self.forged(values, weights, t, exchange)
        serve(weights, values)

    def shown(self, values: Tensor, t: int, exchange: str) -> Tensor:
        """Return values (n, d) as nodes show them to all."""
        if self.attack.to_each:
            return values  # what is sent to each is known when there are weights
        return values.index_copy(0, self.places, self.forged(values, None, t, exchange))


@dataclass(frozen=True, eq=False)
class ReceivedRows:
    """What each node hears in an exchange.

    Parameters
    ----------
    weights
        Whose off-diagonal entries say who hears whom.
    values
        (n, d) what nodes hold.
    active_attack, forged
        None: nobody attacks.
    """

    weights: MixingMatrix
    values: Tensor
    active_attack: ActiveAttack | None = None
    forged: Tensor | None = None

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield each node, its received rows (k, d) in order of senders, and their weights (k,)."""
        senders, shares, bounds = self._senders
        sent, attackers = (
            self._sent,
            () if self.active_attack is None else self.active_attack.attack.nodes,
        )
        for i in range(len(self.values)):
            own = slice(*bounds[i : i + 2])
            is_attacker = i in attackers  # what others really hold
            rows = (self.values if is_attacker else sent)[senders[own]]
            if (
                self.forged is not None
                and self.active_attack is not None
                and self.active_attack.attack.to_each
                and not is_attacker
            ):
                rows = torch.where(
                    self.active_attack.bad[senders[own]][:, None], self.forged[i], rows
                )
            yield i, rows, shares[own]

    @cached_property
    def _sent(self) -> Tensor:
        """(n, d) what nodes send to everybody."""
        if self.active_attack is None or self.forged is None or self.active_attack.attack.to_each:
            return self.values
        return self.values.index_copy(0, self.active_attack.places, self.forged)

    @cached_property
    def _senders(self) -> tuple[Tensor, Tensor, Sequence[int]]:
        """Senders and weights of all nodes, in a row on the device, and where each node's begin."""
        matrix = self.weights.weights.tocoo()
        apart = (matrix.row != matrix.col) & (matrix.data != 0)
        rows, columns, data = matrix.row[apart], matrix.col[apart], matrix.data[apart]
        order = np.lexsort((columns, rows))
        bounds = np.searchsorted(rows[order], np.arange(len(self.values) + 1)).tolist()
        senders = torch.from_numpy(columns[order].astype(np.int64)).to(self.values.device)
        return senders, torch.from_numpy(data[order]).to(self.values), bounds
