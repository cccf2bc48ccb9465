"""Participation: which nodes train and send in a round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from topofl._support.check import check_int, check_positive, check_probability, shown

__all__ = ["Participation", "first_round", "later_rounds", "participation_name", "sampled"]


class _Round(Protocol):
    @property
    def t(self) -> int: ...

    @property
    def sizes(self) -> np.ndarray: ...

    def rng(self, purpose: str) -> np.random.Generator: ...


Participation = Callable[[_Round], np.ndarray]
"""(round) -> (n,) booleans: which nodes train and send. A pure function of the round.

It may look at ``round.t``, ``round.sizes`` (numbers of training examples) and
``round.rng(purpose)``.
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


def sampled(amount: float | int) -> Participation:
    """Return the rule by which nodes drawn at random take part, others in every round.

    Parameters
    ----------
    amount
        A number of nodes (integer), or a share of them (float, 0 to 1), rounded half up and at
        least one.

    Raises
    ------
    ValueError, TypeError
        If it is neither; that it is more than all is seen in the first round.
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
    """Return that all nodes take part in round 0, and none later."""
    return np.full(len(round.sizes), round.t == 0)


def later_rounds(round: _Round) -> np.ndarray:
    """Return that all nodes take part in all rounds but round 0."""
    return np.full(len(round.sizes), round.t > 0)


def participation_name(participants: Participation) -> str:
    """Return what a rule of participation is called, to be kept with results."""
    return getattr(participants, "__name__", str(participants))
