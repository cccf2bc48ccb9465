"""What happens in a run, collected while it happens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl.history import History
from topofl.mixing import MixingMatrix

__all__ = ["GradientStatistics", "Ledger", "Recorder"]


@dataclass
class Ledger:
    """The messages of one round.

    Parameters
    ----------
    itemsize
        Bytes a number.
    """

    itemsize: int
    exchanges: list[tuple[MixingMatrix, int, bool]] = field(default_factory=list)

    def add(self, weights: MixingMatrix, columns: int, *, gradients: bool = False) -> None:
        """Note that every node's `columns` numbers travelled along the off-diagonal entries of `weights`."""
        self.exchanges.append((weights, columns, gradients))

    def totals(self, round_weights: MixingMatrix | None) -> dict[str, int]:
        """Return the round's messages and bytes: exact, of the busiest node, and as the D-Cliques paper counts.

        The paper's accounting sends gradients to all neighbors, that is along all edges of `round_weights`.
        """
        size = self.itemsize
        exact = [(w, columns) for w, columns, _ in self.exchanges]
        paper = [(round_weights or w if gradients else w, columns) for w, columns, gradients in self.exchanges]
        loads = [(w.in_messages + w.out_messages, columns) for w, columns in exact]
        return {
            "messages": sum(w.n_messages for w, _ in exact),
            "bytes": sum(w.n_messages * columns * size for w, columns in exact),
            "messages_paper": sum(w.n_messages for w, _ in paper),
            "bytes_paper": sum(w.n_messages * columns * size for w, columns in paper),
            "busiest_messages": int(np.max(sum(load for load, _ in loads))) if loads else 0,
            "busiest_bytes": int(np.max(sum(load * columns * size for load, columns in loads))) if loads else 0,
        }


NUMBERS = 2**20
"""Numbers of gradients that are made float64 at a time."""


class GradientStatistics:
    """Gradient diversity ``sum_i |g_i|^2 / |sum_i g_i|^2`` of one step (Yin et al. 2018, definition 1).

    1/n if all gradients are equal, 1 if they are orthogonal, more if they oppose each other.
    """

    def __init__(self) -> None:
        self._squares = 0.0
        self._sums: list[Tensor] = []

    def observe(self, rows: slice, gradients: Sequence[Tensor]) -> None:
        """Add the gradients of some nodes, each (k, *shape)."""
        del rows
        if not self._sums:
            self._sums = [torch.zeros_like(g[0], dtype=torch.float64) for g in gradients]
        for total, g in zip(self._sums, gradients, strict=True):
            for part in g.split(max(1, NUMBERS // g[0].numel())):
                exact = part.double()
                total += exact.sum(0)
                self._squares += float(exact.square().sum())

    @property
    def diversity(self) -> float:
        """The ratio; NaN before any gradient was seen, infinite if they cancel exactly."""
        if not self._sums:
            return float("nan")
        total = sum(float(s.square().sum()) for s in self._sums)
        return self._squares / total if total else float("inf")


class Recorder:
    """The growing history of one run."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, float]] = []
        self._evaluations: list[dict[str, Any]] = []
        self._node_loss: list[np.ndarray] = []
        self._matrices: dict[int, tuple[int, MixingMatrix]] = {}
        self._matrix_of_round: list[int] = []

    def add_round(self, losses: Tensor | None, n: int, totals: dict[str, int], weights: MixingMatrix | None) -> None:
        """Add a round: losses (n,), its messages, and its mixing matrix if nodes exchanged anything."""
        values = np.full(n, np.nan) if losses is None else losses.double().cpu().numpy()
        self._node_loss.append(values)
        self._rounds.append({"train_loss": float(values.mean())} | totals)
        if weights is not None:
            index, _ = self._matrices.setdefault(id(weights), (len(self._matrices), weights))
            self._matrix_of_round.append(index)

    def add_evaluation(self, values: dict[str, Any]) -> None:
        """Add an evaluation: numbers and (n,) tensors."""
        converted = {k: v.double().cpu().numpy() if isinstance(v, Tensor) else v for k, v in values.items()}
        self._evaluations.append(converted)

    def history(self, meta: dict[str, Any]) -> History:
        """Return all of it."""
        return History(
            meta=meta,
            rounds={key: np.array([r[key] for r in self._rounds]) for key in self._rounds[0]},
            evaluations={key: np.array([e[key] for e in self._evaluations]) for key in self._evaluations[0]},
            node_loss=np.array(self._node_loss),
            matrices=tuple(matrix for _, matrix in self._matrices.values()),
            matrix_of_round=np.array(self._matrix_of_round, dtype=np.int64),
        )
