"""Accuracy curves over nodes and seeds: the data of figures and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from topofl import History

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
        columns = {name: np.array([row[name] for row in numbers]) for name in numbers[0]}
        return cls(
            np.array(seeds),
            histories[0]["round"][evaluated] / rounds_per_epoch,
            mean,
            low,
            high,
            columns,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the curve as nested lists of numbers, rounded to 6 decimals."""
        return _rounded(asdict(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Curve":
        """Return the curve from the output of :meth:`as_json`."""
        arrays = {name: np.array(entry) for name, entry in value.items() if name != "numbers"}
        return cls(
            **arrays, numbers={name: np.array(entry) for name, entry in value["numbers"].items()}
        )


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return np.round(value, 6).tolist()


def write_panels(panels: Panels) -> dict[str, Any]:
    """Return panels as JSON values."""
    return {
        title: {label: curve.as_json() for label, curve in arms.items()}
        for title, arms in panels.items()
    }


def read_panels(value: Mapping[str, Any]) -> Panels:
    """Return panels from the output of :func:`write_panels`."""
    return {
        title: {label: Curve.from_json(arm) for label, arm in arms.items()}
        for title, arms in value.items()
    }


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
    levels = np.broadcast_to(accuracy, len(curve.mean))
    return np.array(
        [
            _first_crossing(curve.epochs, mean, level)
            for mean, level in zip(curve.mean, levels, strict=True)
        ]
    )


def rounds_to(curve: Curve, accuracy: float) -> np.ndarray:
    """Return :func:`epochs_to` for a curve over rounds, at least 1."""
    return np.maximum(epochs_to(curve, accuracy), 1.0)


def _first_crossing(epochs: np.ndarray, mean: np.ndarray, accuracy: float) -> float:
    reached = np.flatnonzero(mean >= accuracy)
    if not len(reached):
        return float("inf")
    k = reached[0]
    return (
        float(np.interp(accuracy, mean[k - 1 : k + 1], epochs[k - 1 : k + 1]))
        if k
        else float(epochs[0])
    )


def _between(curve: Curve, start: float, stop: float) -> np.ndarray:
    inside = (curve.epochs > start) & (curve.epochs <= stop)
    if not inside.any():
        raise ValueError(
            f"there is no evaluation between epochs {start:g} and {stop:g}; the last one is at "
            f"epoch {curve.epochs[-1]:g}"
        )
    return inside
