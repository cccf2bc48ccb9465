"""Notes below plots on what they leave out, such as the nodes of diverged runs."""

from collections.abc import Sequence

import numpy as np

from topofl._drawing.charts.style import wrapped
from topofl.history.plots.series import Series

__all__ = ["note_on", "note_on_last", "note_on_lines", "note_on_nodes"]

LISTED = 3
"""Largest number of runs that a note lists."""

WIDTH = 56
"""Characters in a line of a note, which fits below axes of 3.5 inches."""

NOT_FINITE = "not drawn, since not finite"
"""What is said of nodes, runs and evaluations whose scores are NaN or infinite."""


def note_on_nodes(series: Sequence[Series], rounds: Sequence[int | None] = (None,)) -> str:
    """Return lines for the label of an axis on what the drawn scores of nodes lack.

    They count the nodes without a finite score, and have those of :func:`note_on_last`.

    Parameters
    ----------
    series
        The runs.
    rounds
        Rounds whose scores are drawn; None is the last one.
    """
    left_out = []
    for one in series:
        for round_ in rounds:
            scores = one.scores(round_)
            of = f" of {one.name}" * (len(series) > 1) + f" in round {round_}" * (len(rounds) > 1)
            if count := int((~np.isfinite(scores)).sum()):
                left_out.append(f"{count} of {len(scores)} nodes{of}")
    return note_on(left_out) + (note_on_last(series) if None in rounds else "")


def note_on_lines(series: Sequence[Series]) -> str:
    """Return lines for the label of an axis on the nodes that have no line, since none is finite.

    Among several runs, those without any line are named.
    """
    left_out = []
    for one in series:
        n = one.per_node.shape[1]
        count = n - int(np.isfinite(one.per_node).any(0).sum())
        if count == n and len(series) > 1:
            left_out.append(one.name)
        elif count:
            left_out.append(f"{count} of {n} nodes" + f" of {one.name}" * (len(series) > 1))
    return note_on(left_out)


def note_on_last(series: Sequence[Series]) -> str:
    """Return lines that say which last scores are not of the run's last evaluation."""
    early = []
    for one in series:
        if one.rounds[-1] != one.final:
            name = f"{one.name}, " * (len(series) > 1)
            early.append(f"{name}round {one.rounds[-1]} of {one.final}")
    return note_on(early, "last scores")


def note_on(items: Sequence[str], what: str = NOT_FINITE) -> str:
    r"""Return lines for the label of an axis that list some items; empty without any.

    Examples
    --------
    >>> note_on(["1 of 8 nodes"]), note_on([])
    ('\n(not drawn, since not finite: 1 of 8 nodes)', '')
    """
    if not items:
        return ""
    rows = [f"({what}: {items[0]})"]
    if len(items) > 1:
        more = [f"and {len(items) - LISTED} more"] * (len(items) > LISTED)
        rows = [f"({what}:", *items[:LISTED], *more]
        rows[-1] += ")"
    return "".join(f"\n{wrapped(row, WIDTH, 2)}" for row in rows)
