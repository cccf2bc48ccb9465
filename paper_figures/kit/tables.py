"""Tables of a figure's arms, one row per arm."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from topofl import NotApplicable, Spread, Table

from .curves import Curve, epochs_to, final
from .drawing import listed_counts


def arms_table(title: str, arms: Mapping[str, Curve]) -> Table:
    """Return a table with one row per arm: graph, communication, final accuracy and speed.

    Parameters
    ----------
    title
        Title of the comparison, to which the table adds units. Accuracies are means over the last
        tenth of the epochs, heterogeneity is that of neighborhoods, and the last column is the
        epoch at which the mean over nodes first reaches 95 % of the best arm's final accuracy,
        rounded down to a whole number.
    arms
        Curves by label; numbers that an arm lacks are n/a.

    Raises
    ------
    ValueError
        If there is no arm.
    """
    if not arms:
        raise ValueError("`arms` must contain at least one curve, got none")
    target = _target(arms.values())
    columns = (
        "arm",
        "mean degree",
        "messages",
        "messages, as in the paper",
        "MB",
        "spectral gap",
        "heterogeneity",
    )
    columns += (
        "clique skew",
        "accuracy % mean",
        "worst node",
        "best node",
        f"epochs to {target} %",
    )
    seeds = listed_counts(len(curve.seeds) for curve in arms.values())
    notes = (
        f"messages and MB per node and round; final accuracy; spreads: lowest to highest of "
        f"{seeds} seed"
    )
    notes += "" if seeds == "1" else "s"
    rows = tuple(_row(label, curve, target) for label, curve in arms.items())
    return Table(columns, rows, title=f"{title}: {notes}")


def _target(curves: Iterable[Curve]) -> int:
    """Return 95 % of the best arm's final accuracy, rounded down, in %."""
    return int(0.95 * max(final(curve).mean() for curve in curves))


def _row(label: str, curve: Curve, target: int) -> tuple[Any, ...]:
    degree, messages, paper, gap = (
        _number(curve, key) for key in ("degree", "messages", "messages_paper", "gap")
    )
    megabytes, heterogeneity = _number(curve, "bytes", 1e-6), _number(curve, "heterogeneity")
    skew = (
        _number(curve, "skew")
        if "skew" in curve.numbers
        else NotApplicable("the graph has no cliques")
    )
    accuracy = [
        _spread(final(replace(curve, mean=part))) for part in (curve.mean, curve.low, curve.high)
    ]
    reached = _reached(epochs_to(curve, target), label, target)
    return label, degree, messages, paper, megabytes, gap, heterogeneity, skew, *accuracy, reached


def _number(curve: Curve, key: str, unit: float = 1.0) -> float | NotApplicable:
    """Return the mean over seeds, rounded so that the mean of equal numbers is that number."""
    if key not in curve.numbers:
        return NotApplicable("was not recorded")
    return round(float(np.mean(curve.numbers[key])) * unit, 9)


def _reached(epochs: np.ndarray, label: str, target: int) -> Spread | NotApplicable:
    missed = int(np.isinf(epochs).sum())
    if missed:
        return NotApplicable(f"{label}: {missed} of {len(epochs)} seeds stayed below {target} %")
    return _spread(epochs)


def _spread(values: np.ndarray) -> Spread:
    return Spread(float(values.mean()), float(values.min()), float(values.max()))


Cell = str | float | NotApplicable


def plus_minus(values: np.ndarray) -> str:
    """Return mean and standard deviation over seeds as text.

    Examples
    --------
    >>> plus_minus(np.array([1.0, 2.0, 3.0]))
    '2.00 ± 1.00'
    """
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
