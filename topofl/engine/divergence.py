"""What training shows: nodes that diverge to NaN or infinity, and how much gradients differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from topofl._support.text import node_name
from topofl.engine.ranks import Ranks


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
        nodes = sorted(
            (finite_steps[i], i) for i in torch.nonzero(bad).flatten().tolist() if i not in known
        )
        new = [Diverged(node, t + 1, lr) for _, node in nodes]
        self.found += new
        if new and self.policy == "raise":
            step, node = nodes[0]
            raise DivergenceError(
                _message(self._reason_in_training(losses, node, step, t), new, self.attack), new
            )
        return new

    def check_scores(self, losses: Tensor, nodes: Sequence[int], t: int, lr: float | None) -> None:
        """Raise ``DivergenceError`` if the policy is ``"raise"`` and an evaluated loss not finite.

        Other policies only concern training, so that the frequency of evaluations changes nothing.
        """
        finite = torch.isfinite(losses).tolist() if self.policy == "raise" else [True] * len(losses)
        bad = [i for i in nodes if not finite[i]]
        if bad:
            found = [Diverged(node, t + 1, float("nan") if lr is None else lr) for node in bad]
            name = node_name(self.labels, bad[0])
            reason = f"the loss of node {name} is {float(losses[bad[0]])} after round {t + 1}"
            raise DivergenceError(_message(reason, found, self.attack), found)

    def _reason_in_training(self, losses: Tensor, node: int, step: int, t: int) -> str:
        """Return what is NaN or infinite: the loss at `step`, or the model after the last step."""
        name = node_name(self.labels, node)
        if step < losses.shape[1]:
            loss = float(losses[node, step])
            return f"the loss of node {name} is {loss} in step {step} of round {t + 1}"
        return (
            f"the model of node {name} is no longer finite after step {step - 1} of round {t + 1}"
        )

    def state(self) -> dict[str, Tensor]:
        """Return the record as tensors, for a checkpoint."""
        return {
            name: torch.tensor(
                [getattr(diverged, name) for diverged in self.found], dtype=dtype, device="cpu"
            )
            for name, dtype in (
                ("node", torch.int64),
                ("round", torch.int64),
                ("lr", torch.float64),
            )
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the record from the result of :meth:`state`."""
        columns = (state[name].tolist() for name in Diverged._fields)
        self.found[:] = [Diverged(*values) for values in zip(*columns, strict=True)]


def _message(reason: str, found: Sequence[Diverged], attack: str) -> str:
    lr = found[0].lr
    rate = "" if lr != lr else f" with lr={lr:g}"
    others = f" ({len(found) - 1} more nodes diverged in this round)" if len(found) > 1 else ""
    cause = attack and (
        f"messages from {attack} may be the cause: use fewer attackers or a more robust "
        "aggregation rule; or "
    )
    return (
        f"{reason}{rate}; {cause}lower the learning rate, look for extreme values in this node's "
        f"data, or continue with on_divergence='freeze' or 'record'{others}"
    )


NUMBERS = 2**18
"""Numbers that are converted to float64 at a time on CPU."""


class GradientStatistics:
    """Gradient diversity ``sum_i |g_i|^2 / |sum_i g_i|^2`` of one step.

    This is definition 1 of Yin et al. (2018): 1/n if all gradients are equal, 1 if they are
    orthogonal, more if they oppose each other.
    """

    def __init__(self) -> None:
        self._squares: Tensor | None = None
        self._sums: list[Tensor] = []

    def observe(self, gradients: Sequence[Tensor], rows: Tensor | None = None) -> None:
        """Add the gradients (k, *shape) of some nodes, or of those where `rows` (k,) is True."""
        gradients = gradients if rows is None else _selected(rows, gradients)
        gradients = [g if g.dim() > 1 else g.unsqueeze(1) for g in gradients]
        if self._squares is None:
            # Allocated here: later, they would take the place of a freed copy that the next reuses.
            self._sums = [g.new_zeros(g.shape[1:], dtype=torch.float64) for g in gradients]
        norms = []
        for total, g in zip(self._sums, gradients, strict=True):
            size = _block_size(g)
            for block, part in zip(total.split(size), g.split(size, dim=1), strict=True):
                norms.append(torch.linalg.vector_norm(part, dtype=torch.float64))
                block.add_(part.sum(0, dtype=torch.float64))
        squares = torch.stack(norms).square().sum()
        self._squares = squares if self._squares is None else self._squares + squares

    def add(self, other: "GradientStatistics") -> None:
        """Add the observations of another object, whose tensors may be taken over."""
        if self._squares is None or other._squares is None:
            if self._squares is None:
                self._squares, self._sums = other._squares, other._sums
            return
        self._squares = self._squares + other._squares
        for total, more in zip(self._sums, other._sums, strict=True):
            total.add_(more)

    def add_ranks(self, ranks: Ranks) -> None:
        """Add the observations of the other ranks of a distributed run."""
        shapes = next(filter(None, ranks.objects([s.shape for s in self._sums])), None)
        if shapes is None:
            return
        if self._squares is None:
            self._squares = torch.zeros((), dtype=torch.float64, device=ranks.device)
            self._sums = [self._squares.new_zeros(shape) for shape in shapes]
        self._squares = ranks.sum_(self._squares.clone())
        self._sums = [ranks.sum_(total.contiguous()) for total in self._sums]

    @property
    def diversity(self) -> float:
        """Gradient diversity; NaN without gradients, infinite if they cancel exactly."""
        if self._squares is None:
            return float("nan")
        total = torch.stack([s.square().sum() for s in self._sums]).sum()
        squares, total = torch.stack([self._squares, total]).tolist()  # a single synchronization
        return squares / total if total else float("inf")


def _selected(rows: Tensor, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients at `rows`; other devices get zeros elsewhere, to avoid a sync."""
    if rows.device.type != "cpu":
        return [torch.where(rows.view(-1, *[1] * (g.dim() - 1)), g, 0) for g in gradients]
    return gradients if bool(rows.all()) else [g[rows] for g in gradients]


def _block_size(g: Tensor) -> int:
    """Return how many rows of gradients (k, rows, ...) are summed over nodes at a time."""
    copied = g.device.type == "cpu" and g.dtype != torch.float64
    return max(1, NUMBERS // max(1, g[:, :1].numel()) if copied else g.shape[1])
