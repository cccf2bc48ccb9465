"""Messages and bytes that a run will send per round, including methods that send at random."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

from topofl.engine.dry_run import play_rounds
from topofl.engine.recorder import totals_of
from topofl.engine.requests import Setup
from topofl.engine.round import Round

__all__ = ["MOST_ROUNDS", "SAMPLED_ROUNDS", "Traffic", "traffic_of"]

SAMPLED_ROUNDS = 10
"""Rounds over which the messages of graphs without a period are averaged."""

MOST_ROUNDS = 100
"""Largest number of rounds in means of random messages, before rounding up to whole periods."""

DRAWN_EVENTS = 20_000
"""Nodes times rounds in means of random messages, within 10 to 100 rounds."""

PRECISION = 0.01
"""Relative standard error at which the mean of random messages is precise enough."""

Totals = dict[str, int]
"""Messages and bytes of one round."""


class Traffic(NamedTuple):
    """Messages and bytes of some rounds.

    Attributes
    ----------
    totals
        Totals of each round.
    drawn
        As in :class:`topofl.estimate.Estimate`.
    """

    totals: Sequence[Totals]
    drawn: tuple[int, int, int] | None

    def per_round(self) -> dict[str, Any]:
        """Return means over rounds (maxima for the busiest node); whole numbers are ints."""
        found: dict[str, Any] = {}
        for name in self.totals[0]:
            column = [total[name] for total in self.totals]
            if name.startswith("busiest"):
                found[name] = max(column)
            else:
                mean = math.fsum(column) / len(column)
                found[name] = int(mean) if mean.is_integer() else mean
        return found


def traffic_of(setup: Setup, played: Sequence[Round], later: Iterator[Round]) -> Traffic:
    """Return the totals of the rounds `played`, and of more rounds if messages are random.

    Messages are random if the first rounds differ under a second seed. They are averaged over whole
    periods of the graphs until the mean is precise.

    Parameters
    ----------
    setup
        The setup of the run.
    played
        A dry run of the first rounds: one period of the graphs, or :data:`SAMPLED_ROUNDS`.
    later
        The rounds after these, at least :data:`MOST_ROUNDS`.
    """
    totals = [_totals(round) for round in played]
    if not setup.trace.drawn:
        return Traffic(totals, None)
    period = 1 if setup.trace.chooses else setup.graphs.period or 1

    def extend(rounds: int) -> None:
        """Play rounds until there are `rounds`, rounded up to whole periods."""
        rounds = -(-rounds // period) * period
        totals.extend(_totals(next(later)) for _ in range(rounds - len(totals)))

    drawn = False
    other_seed = replace(setup, seed=setup.seed + 1)
    for t, other in enumerate(play_rounds(other_seed, SAMPLED_ROUNDS)):
        extend(t + 1)
        drawn = totals[t] != _totals(other)
        if drawn:
            break
    if not drawn:
        return Traffic(totals, None)
    if not setup.trace.chooses:
        n = setup.clients.n
        extend(min(SAMPLED_ROUNDS, max(3, DRAWN_EVENTS // (2 * n))))
        most = min(MOST_ROUNDS, max(SAMPLED_ROUNDS, DRAWN_EVENTS // n))
        while len(totals) < most and not _is_precise(totals):
            extend(len(totals) + 1)
    messages = [total["messages"] for total in totals]
    return Traffic(totals, (len(totals), min(messages), max(messages)))


def _totals(round: Round) -> Totals:
    return totals_of(round.exchanges, round.used)


def _is_precise(totals: Sequence[Totals]) -> bool:
    """Return whether the means of messages and bytes have small standard errors."""
    for name in ("messages", "bytes"):
        column = [total[name] for total in totals]
        mean = fmean(column)
        if mean == 0 or stdev(column) > PRECISION * mean * math.sqrt(len(column)):
            return False
    return True
