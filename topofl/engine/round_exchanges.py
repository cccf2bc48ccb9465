"""The exchanges of one round: mixing, aggregation, forged models, and the messages they cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from topofl.engine.attackers import ReceivedRows
from topofl.engine.distributed.exchange import average_by_server
from topofl.engine.dry_run.checked import AggregationRule, aggregated
from topofl.engine.ledger import Ledger
from topofl.engine.mixing import Mixer
from topofl.engine.state import RunState
from topofl.engine.train.workers import ParallelMap
from topofl.mixing import MixingMatrix

__all__ = ["RoundExchanges"]


@dataclass(eq=False)
class RoundExchanges:
    """Exchanges of one round, with their messages and the mixing matrix that is recorded.

    Parameters
    ----------
    run_state, parallel_map
        State and threads of the run.
    t
        The round, from 0.
    """

    run_state: RunState
    parallel_map: ParallelMap
    t: int
    used: MixingMatrix | None = field(default=None, init=False)
    ledger: Ledger = field(init=False)
    calls: dict[str, int] = field(default_factory=dict, init=False)
    """Number of exchanges so far, by phase."""

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.run_state.models.flat.element_size())

    def gradient_mixer(self, weights: MixingMatrix, steps: int) -> Mixer:
        """Return the function that mixes all nodes' gradients on all threads; count `steps`."""
        for _ in range(steps):
            self.ledger.add(weights, self.run_state.models.layout.d, gradients=True)
        if self.run_state.ranks.size > 1:
            return Mixer(partial(self._mix, weights), by_columns=False)
        return self.run_state.mixer(weights)._replace(apply=partial(self._mix, weights))

    def _is_split(self, values: Tensor) -> bool:
        """Whether values have the rows of this rank only, and not those of all nodes."""
        return not self.run_state.ranks.holds_all(values)

    def _mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """Mix without counting messages; each worker takes a share of the columns."""
        if self._is_split(values):
            self.run_state.mixes_ranks(weights)(values)
            return
        mix = self.run_state.mixer(weights)
        shares = self.run_state.learner.plan.workers if mix.by_columns else 1
        self.parallel_map(mix, values.tensor_split(shares, dim=1))

    def mix(
        self,
        phase: str,
        weights: MixingMatrix,
        parts: Sequence[Tensor],
        *,
        scalars: int,
        server: bool,
        counted: bool,
    ) -> None:
        """Multiply each part (n, k) of the values by `weights`, in place."""
        if counted:
            self.ledger.add(weights, sum(part.shape[1] for part in parts) + scalars, server=server)
        self.used = self.used or weights
        ranks, active_attack = self.run_state.ranks, self.run_state.active_attack
        exchange = self._next_exchange(phase, server=server)
        apply = self._average_by_server if server else self._mix
        for k, part in enumerate(parts):
            if active_attack is None:
                apply(weights, part)
                continue
            attacked = active_attack.serve if server else active_attack.mix
            everyone = ranks.all_rows(part)  # attackers may know the models of all nodes
            attacked(apply, weights, everyone, self.t, f"{exchange}/{k}")
            if everyone is not part:
                part.copy_(ranks.own_rows(everyone))

    def _average_by_server(self, weights: MixingMatrix, values: Tensor) -> None:
        if self._is_split(values):
            average_by_server(weights, values, self.run_state.ranks)
        else:
            _average_by_server(weights, values)

    def _next_exchange(self, phase: str, *, server: bool = False) -> str:
        """Return the name of the next exchange, which seeds the attackers' random numbers."""
        self.calls[phase] = call = self.calls.get(phase, 0) + 1
        return f"{phase}/{call}{' by a server' * server}"

    def aggregate(
        self,
        phase: str,
        weights: MixingMatrix,
        values: Tensor,
        rule: AggregationRule,
        *,
        scalars: int,
        counted: bool,
    ) -> None:
        """Replace each row of `values` by what `rule` returns for it and the received rows."""
        if counted:
            self.ledger.add(weights, values.shape[1] + scalars)
        self.used = self.used or weights
        active_attack = self.run_state.active_attack
        exchange = self._next_exchange(phase)
        if self._is_split(values):
            self._aggregate_own(phase, weights, values, rule, f"{exchange}/0")
            return
        forged = (
            None
            if active_attack is None
            else active_attack.forged(values, weights, self.t, f"{exchange}/0")
        )
        rows = torch.empty_like(values)
        for i, received, row_weights in ReceivedRows(weights, values, active_attack, forged):
            rows[i] = aggregated(phase, rule, values[i], received, row_weights)
        values.copy_(rows)

    def _aggregate_own(
        self, phase: str, weights: MixingMatrix, values: Tensor, rule: AggregationRule, seed: str
    ) -> None:
        """Aggregate the rows of this rank, given those that they receive from other ranks."""
        run_state = self.run_state
        ranks, attack = run_state.ranks, run_state.active_attack
        own = ranks.nodes.tolist()
        if attack is not None:
            everyone = ranks.all_rows(values)
            forged = attack.forged(everyone, weights, self.t, seed)
            received = ReceivedRows(weights, everyone, attack, forged, only=own)
        else:
            halo = run_state.halo(weights)
            stacked = torch.cat([values, halo.fetch(ranks, values)])
            place = {node: k for k, node in enumerate([*own, *halo.nodes.tolist()])}
            received = ReceivedRows(weights, stacked, only=own, place=place)
        rows = torch.empty_like(values)
        for k, (_, some, row_weights) in enumerate(received):
            rows[k] = aggregated(phase, rule, values[k], some, row_weights)
        values.copy_(rows)

    def published(self, phase: str, values: Tensor) -> Tensor:
        """Return the values (n, d) that nodes publish: those of their next exchange."""
        values = self.run_state.ranks.all_rows(values)
        if self.run_state.active_attack is None:
            return values
        call = self.calls.get(phase, 0) + 1
        return self.run_state.active_attack.published(values, self.t, f"{phase}/{call}/0")

    def send(self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool) -> None:
        """Count messages of `nbytes` bytes, one number or (n,) by sender."""
        self.ledger.send(weights, nbytes, server=server)
        self.used = self.used or weights


def _average_by_server(weights: MixingMatrix, values: Tensor) -> None:
    """Replace all rows by their weighted mean; all rows of `weights` are equal."""
    row = slice(*weights.weights.indptr[:2])
    nodes = torch.from_numpy(weights.weights.indices[row].astype(np.int64)).to(values.device)
    shares = torch.from_numpy(weights.weights.data[row].copy()).to(values)
    values.copy_((shares @ values[nodes]).expand_as(values))
