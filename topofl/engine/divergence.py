"""Nodes that diverge to NaN or infinity: what is recorded, and what an error says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from topofl._support.text import node_name


class Diverged(NamedTuple):
    """Where a node's training became NaN or infinite: node, round (from 1), learning rate."""

    node: int
    round: int
    lr: float


class DivergenceError(ArithmeticError):
    """The loss, gradient or model of a node became NaN or infinite.

    Attributes
    ----------
    found
        (node, round, learning rate) of the nodes that diverged, in order of occurrence.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> try:
    ...     topofl.run(
    ...         algorithms.dsgd(lr=1e38),
    ...         model=models.logistic_regression(64),
    ...         clients=clients,
    ...         topology=topologies.ring(4),
    ...         rounds=5,
    ...         seed=0,
    ...     )
    ... except DivergenceError as error:
    ...     print(error.found[0].lr)
    1e+38
    """

    def __init__(self, message: str, found: Sequence[Diverged] = ()) -> None:
        super().__init__(message)
        self.found = tuple(found)


@dataclass(eq=False)
class DivergenceMonitor:
    """Record of the nodes that diverged in a run, and the policy for handling them.

    Parameters
    ----------
    policy
        ``"raise"``, ``"freeze"`` or ``"record"``; see :func:`topofl.run`.
    n
        Number of nodes.
    found
        The nodes that diverged so far.
    attack
        The attack, such as ``"2 attackers (sign_flip)"``; empty if there is none.
    labels
        Labels of the nodes; empty means 0..n-1.
    """

    policy: str
    n: int
    found: list[Diverged] = field(default_factory=list)
    attack: str = ""
    labels: Sequence[object] = ()

    def frozen(self, device: torch.device) -> Tensor:
        """Return a mask (n,) of the nodes that no longer train."""
        if self.policy != "freeze" or not self.found:
            return torch.zeros(self.n, dtype=torch.bool, device=device)
        frozen = torch.zeros(self.n, dtype=torch.bool, device="cpu")
        frozen[[diverged.node for diverged in self.found]] = True
        return frozen.to(device)

    def note(self, losses: Tensor, bad: Tensor, t: int, lr: float) -> list[Diverged]:
        """Record nodes that diverged in training, and return the new ones, earliest step first.

        Parameters
        ----------
        losses
            (n, steps) losses before each step.
        bad
            (n,) booleans: which nodes diverged.
        t
            The round, from 0.

        Raises
        ------
        DivergenceError
            If the policy is ``"raise"`` and a new node diverged.
        """
        if not bool(bad.any()):
            return []
        known = {diverged.node for diverged in self.found}
        finite_steps = torch.isfinite(losses).int().cumprod(1).sum(1).tolist()
        found = (i for i in torch.nonzero(bad).flatten().tolist() if i not in known)
        nodes = sorted((finite_steps[i], i) for i in found)
        new = [Diverged(node, t + 1, lr) for _, node in nodes]
        self.found += new
        if new and self.policy == "raise":
            step, node = nodes[0]
            name = node_name(self.labels, node)
            reason = f"the model of node {name} is no longer finite after step {step - 1}"
            if step < losses.shape[1]:
                reason = f"the loss of node {name} is {float(losses[node, step])} in step {step}"
            raise self._error(f"{reason} of round {t + 1}", new)
        return new

    def check_scores(self, losses: Tensor, nodes: Sequence[int], t: int, lr: float | None) -> None:
        """Raise ``DivergenceError`` if the policy is ``"raise"`` and an evaluated loss not finite.

        Other policies only concern training, so that the frequency of evaluations changes nothing.
        """
        if self.policy != "raise":
            return
        finite = torch.isfinite(losses).tolist()
        if bad := [i for i in nodes if not finite[i]]:
            found = [Diverged(node, t + 1, float("nan") if lr is None else lr) for node in bad]
            name = node_name(self.labels, bad[0])
            reason = f"the loss of node {name} is {float(losses[bad[0]])} after round {t + 1}"
            raise self._error(reason, found)

    def _error(self, reason: str, found: Sequence[Diverged]) -> DivergenceError:
        lr = found[0].lr
        rate = "" if math.isnan(lr) else f" with lr={lr:g}"
        others = f" ({len(found) - 1} more nodes diverged in this round)" if len(found) > 1 else ""
        cause = self.attack and (
            f"messages from {self.attack} may be the cause: use fewer attackers or a more robust "
            "aggregation rule; or "
        )
        return DivergenceError(
            f"{reason}{rate}; {cause}lower the learning rate, look for extreme values in this "
            f"node's data, or continue with on_divergence='freeze' or 'record'{others}",
            found,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the record as tensors, for a checkpoint."""
        dtypes = (torch.int64, torch.int64, torch.float64)
        found = {}
        for name, dtype in zip(Diverged._fields, dtypes, strict=True):
            own = [getattr(one, name) for one in self.found]
            found[name] = torch.tensor(own, dtype=dtype, device="cpu")
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the record from the result of :meth:`state`."""
        columns = (state[name].tolist() for name in Diverged._fields)
        self.found[:] = [Diverged(*values) for values in zip(*columns, strict=True)]
