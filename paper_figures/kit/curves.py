"""Accuracy curves over nodes and seeds: the data of figures and claims, and tables of arms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from topofl import History, NotApplicable, Spread, Table

from .claims import spread_of

Panels = Mapping[str, Mapping[str, "Curve"]]
"""Curves by panel title and arm label."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Test accuracy of one arm in %, for S seeds and E evaluations.

    Parameters
    ----------
    seeds
        (S,) seeds, the same for all arms that are compared.
    epochs
        (E,) passes over the local data; the first evaluation, at 0, precedes training.
    mean, low, high
        (S, E) mean, lowest and highest accuracy over the nodes.
    numbers
        Further numbers of the arm, (S,) each: ``degree`` (mean over nodes), ``messages`` and
        ``messages_paper`` (per node and round; see :func:`topofl.metrics.round_cost`), ``bytes``
        (per node and round), ``busiest_bytes`` (of the busiest node or server, per round), ``gap``
        (spectral), ``heterogeneity`` (of neighborhoods), ``skew`` (mean over cliques; missing
        without cliques), ``seconds`` and ``megabytes`` (wall time of the run and peak memory of its
        process).
    """

    seeds: np.ndarray
    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    numbers: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        seeds: Sequence[int],
        histories: Sequence[History],
        rounds_per_epoch: float,
        numbers: Sequence[Mapping[str, float]],
        column: str = "accuracy",
    ) -> "Curve":
        """Return the curve of an arm from one history and its numbers per seed.

        `column` names the accuracies. Evaluations without accuracies, for example of fine-tuned
        models before training, are left out.
        """
        evaluated = ~np.isnan(histories[0][column]).all(axis=1)
        accuracy = [100 * history[column][evaluated] for history in histories]
        mean, low, high = (
            np.array([f(a, axis=1) for a in accuracy]) for f in (np.nanmean, np.nanmin, np.nanmax)
        )
        epochs = histories[0]["round"][evaluated] / rounds_per_epoch
        columns = {name: np.array([row[name] for row in numbers]) for name in numbers[0]}
        return cls(np.array(seeds), epochs, mean, low, high, columns)


def write_panels(value: Any, *, rounded: bool = False) -> Any:
    """Return nested mappings of curves and arrays as JSON values.

    Curves become mappings of lists, rounded to 6 decimals.
    """
    if isinstance(value, Curve):
        return write_panels(asdict(value), rounded=True)
    if isinstance(value, Mapping):
        return {key: write_panels(entry, rounded=rounded) for key, entry in value.items()}
    return (np.round(value, 6) if rounded else np.asarray(value)).tolist()


def read_panels(value: Any) -> Any:
    """Return curves and arrays from the output of :func:`write_panels`."""
    if not isinstance(value, Mapping):
        return np.array(value)
    entries = {key: read_panels(entry) for key, entry in value.items()}
    return Curve(**entries) if "epochs" in entries else entries


def average(curve: Curve, start: float = 0.0, stop: float = np.inf) -> np.ndarray:
    """Return the mean accuracy, averaged over evaluations in (`start`, `stop`] epochs, (S,) in %.

    This is the normalized area under the curve: the higher, the faster the learning.
    """
    return curve.mean[:, _between(curve, start, stop)].mean(axis=1)


def spread(curve: Curve, start: float = 0.0, stop: float = np.inf) -> np.ndarray:
    """Return best minus worst node, averaged over (`start`, `stop`] epochs, (S,) in points."""
    return (curve.high - curve.low)[:, _between(curve, start, stop)].mean(axis=1)


def final(curve: Curve) -> np.ndarray:
    """Return the mean accuracy over nodes in the last tenth of the epochs, (S,) in %."""
    return average(curve, start=0.9 * curve.epochs[-1] - 1e-9)


def epochs_to(curve: Curve, accuracy: float | np.ndarray) -> np.ndarray:
    """Return the epochs until the mean accuracy reaches `accuracy` in %, interpolated linearly.

    `accuracy` is a number or one per seed, (S,). The result is (S,), infinite where the accuracy
    is not reached.
    """
    epochs = []
    for mean, level in zip(curve.mean, np.broadcast_to(accuracy, len(curve.mean)), strict=True):
        reached = np.flatnonzero(mean >= level)
        if not len(reached):
            epochs.append(np.inf)
        elif not (k := reached[0]):
            epochs.append(curve.epochs[0])
        else:
            epochs.append(np.interp(level, mean[k - 1 : k + 1], curve.epochs[k - 1 : k + 1]))
    return np.array(epochs, float)


def rounds_to(curve: Curve, accuracy: float) -> np.ndarray:
    """Return :func:`epochs_to` for a curve over rounds, at least 1."""
    return np.maximum(epochs_to(curve, accuracy), 1.0)


def _between(curve: Curve, start: float, stop: float) -> np.ndarray:
    inside = (curve.epochs > start) & (curve.epochs <= stop)
    if not inside.any():
        raise ValueError(
            f"there is no evaluation between epochs {start:g} and {stop:g}; the last one is at "
            f"epoch {curve.epochs[-1]:g}"
        )
    return inside


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
    target = int(0.95 * max(final(curve).mean() for curve in arms.values()))
    columns = (
        *("arm", "mean degree", "messages", "messages, as in the paper", "MB", "spectral gap"),
        *("heterogeneity", "clique skew", "accuracy % mean", "worst node", "best node"),
        f"epochs to {target} %",
    )
    seeds = listed_counts(len(curve.seeds) for curve in arms.values())
    notes = (
        f"messages and MB per node and round; final accuracy; spreads: lowest to highest of "
        f"{seeds} seed{'' if seeds == '1' else 's'}"
    )
    rows = tuple(_row(label, curve, target) for label, curve in arms.items())
    return Table(columns, rows, title=f"{title}: {notes}")


def _row(label: str, curve: Curve, target: int) -> tuple[Any, ...]:
    absent = {"skew": NotApplicable("the graph has no cliques")}
    numbers = [
        # Rounded so that the mean of equal numbers is that number.
        round(float(np.mean(curve.numbers[key])) * (1e-6 if key == "bytes" else 1), 9)
        if key in curve.numbers
        else absent.get(key, NotApplicable("was not recorded"))
        for key in ("degree", "messages", "messages_paper", "bytes", "gap", "heterogeneity", "skew")
    ]
    accuracies = [
        spread_of(final(replace(curve, mean=part))) for part in (curve.mean, curve.low, curve.high)
    ]
    epochs = epochs_to(curve, target)
    missed = int(np.isinf(epochs).sum())
    reached: Spread | NotApplicable = spread_of(epochs)
    if missed:
        reached = NotApplicable(f"{label}: {missed} of {len(epochs)} seeds stayed below {target} %")
    return label, *numbers, *accuracies, reached


def listed_counts(counts: Iterable[int]) -> str:
    """Return the distinct counts in ascending order, joined by "or"."""
    return " or ".join(map(str, sorted(set(counts))))


Cell = str | float | NotApplicable


def plus_minus(values: np.ndarray) -> str:
    """Return mean and standard deviation over seeds as text.

    Examples
    --------
    >>> plus_minus(np.array([1.0, 2.0, 3.0]))
    '2.00 ± 1.00'
    """
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
