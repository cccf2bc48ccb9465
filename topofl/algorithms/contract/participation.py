"""Participation: which nodes train and send in a round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from topofl._support.check import check_int, check_positive, check_probability, shown
from topofl._support.public import public

__all__ = ["Participation", "first_round", "later_rounds", "participation_name", "sampled"]


class _Round(Protocol):
    @property
    def t(self) -> int: ...

    @property
    def sizes(self) -> np.ndarray: ...

    def rng(self, purpose: str) -> np.random.Generator: ...


Participation = Callable[[_Round], np.ndarray]
"""(round) -> (n,) booleans: the nodes that train and send. A pure function of the round.

It may use ``round.t``, ``round.sizes`` (numbers of training examples) and ``round.rng(purpose)``.
"""


@dataclass(frozen=True)
class _Sampled:
    amount: float | int

    def __call__(self, round: _Round) -> np.ndarray:
        n = len(round.sizes)
        size = (
            self.amount
            if isinstance(self.amount, int)
            else max(1, int(np.floor(self.amount * n + 0.5)))
        )
        if size > n:
            raise ValueError(
                f"`participation` must be at most n={n} nodes, got {size}; 1.0 takes all"
            )
        chosen = np.zeros(n, dtype=bool)
        chosen[round.rng("participation").permutation(n)[:size]] = True
        return chosen

    def __str__(self) -> str:
        return (
            f"{self.amount:g} of all" if isinstance(self.amount, float) else f"{self.amount} nodes"
        )


@public
def sampled(amount: float | int) -> Participation:
    """Return the rule by which a random sample of nodes participates, redrawn in every round.

    Parameters
    ----------
    amount
        A number of nodes (integer), or a share of them (float, 0 to 1), rounded half up and at
        least one node.

    Raises
    ------
    ValueError, TypeError
        If it is neither. A number above n raises in the first round.

    Examples
    --------
    >>> str(sampled(0.1)), str(sampled(8))
    ('0.1 of all', '8 nodes')
    """
    if isinstance(amount, float | np.floating):
        share = check_positive("participation", check_probability("participation", amount))
        return _Sampled(share)
    if isinstance(amount, str) or amount is None:
        raise TypeError(
            "`participation` must be a number of nodes or a share such as 0.1, got "
            f"{shown(amount)}; 1.0 takes all"
        )
    return _Sampled(check_int("participation", amount, minimum=1))


def first_round(round: _Round) -> np.ndarray:
    """Return the participants, (n,): all nodes in round 0, and none later."""
    return np.full(len(round.sizes), round.t == 0)


def later_rounds(round: _Round) -> np.ndarray:
    """Return the participants, (n,): no node in round 0, and all nodes later."""
    return np.full(len(round.sizes), round.t > 0)


def participation_name(participants: Participation) -> str:
    """Return the name of a participation rule, which is saved with results."""
    return getattr(participants, "__name__", str(participants))
