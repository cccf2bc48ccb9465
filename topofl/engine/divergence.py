"""Nodes whose training leaves the finite numbers: which was first, and what is done about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Diverged", "DivergenceError", "Guard"]


class DivergenceError(ArithmeticError):
    """Training left the finite numbers."""


class Diverged(NamedTuple):
    """Where a node's training left the finite numbers: node, round (from 0), and the learning rate (NaN: none)."""

    node: int
    round: int
    lr: float


@dataclass(eq=False)
class Guard:
    """What a run knows of nodes that diverged.

    Parameters
    ----------
    policy
        ``"raise"``, ``"freeze"`` or ``"record"``; see :func:`topofl.run`.
    n
        Number of nodes.
    """

    policy: str
    n: int
    found: list[Diverged] = field(default_factory=list)

    def frozen(self, device: torch.device) -> Tensor:
        """Return (n,) which nodes train no more."""
        frozen = torch.zeros(self.n, dtype=torch.bool, device=device)
        if self.policy == "freeze":
            frozen[[diverged.node for diverged in self.found]] = True
        return frozen

    def note(self, bad: Tensor, t: int, lr: float | None, reason: str) -> list[Diverged]:
        """Note that the `bad` nodes, (n,) booleans, are no longer finite in round `t`, and return those that are new.

        Raises
        ------
        DivergenceError
            If the policy is ``"raise"`` and there is one; `reason` is what it says of the first of them.
        """
        known = {diverged.node for diverged in self.found}
        nodes = [int(i) for i in torch.nonzero(bad).flatten() if int(i) not in known]
        new = [Diverged(node, t, float("nan") if lr is None else lr) for node in nodes]
        self.found += new
        if new and self.policy == "raise":
            raise DivergenceError(_told(reason, new))
        return new

    def note_losses(self, losses: Tensor, bad: Tensor, t: int, lr: float) -> list[Diverged]:
        """Note nodes that diverged while training; `losses` are (n, steps), `bad` (n,) booleans."""
        if not bool(bad.any()):
            return []
        node = int(torch.nonzero(bad)[0])
        finite = torch.isfinite(losses[node])
        step = int(torch.nonzero(~finite)[0]) if not bool(finite.all()) else losses.shape[1] - 1
        what = f"the loss of node {node} is {float(losses[node, step])}"
        if bool(finite.all()):
            what = f"the model of node {node} is no longer finite"
        return self.note(bad, t, lr, f"{what} in round {t} (step {step} of it)")

    def note_scores(self, losses: Tensor, nodes: Sequence[int], t: int, lr: float | None) -> list[Diverged]:
        """Note evaluated `nodes` whose loss after round `t` is not finite; `losses` are (n,)."""
        bad = torch.zeros(self.n, dtype=torch.bool, device=losses.device)
        bad[list(nodes)] = ~torch.isfinite(losses[list(nodes)])
        if not bool(bad.any()):
            return []
        node = int(torch.nonzero(bad)[0])
        return self.note(bad, t, lr, f"the loss of node {node} is {float(losses[node])} after round {t}")

    def state(self) -> dict[str, Tensor]:
        """Return what was found as tensors, for a checkpoint."""
        return {
            name: torch.tensor([getattr(diverged, name) for diverged in self.found], dtype=dtype)
            for name, dtype in (("node", torch.int64), ("round", torch.int64), ("lr", torch.float64))
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        columns = (state[name].tolist() for name in Diverged._fields)
        self.found[:] = [Diverged(*values) for values in zip(*columns, strict=True)]


def _told(reason: str, found: Sequence[Diverged]) -> str:
    lr = found[0].lr
    step = "" if lr != lr else f" with lr={lr:g}"
    others = f" ({len(found) - 1} more nodes diverged in that round)" if len(found) > 1 else ""
    return (
        f"{reason}{step}; lower the learning rate, look for extreme values in that node's data, or go on with "
        f"on_divergence='freeze' or 'record'{others}"
    )
