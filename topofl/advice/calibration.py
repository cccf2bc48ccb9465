"""The calibration: predicted rounds to a target, relative to the complete graph, by deviation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

__all__ = ["ROUNDING", "Calibration", "Curve", "Setting", "stored"]

ROUNDING = 1e-12
"""Deviations up to this are rounding; they are in units of squared label shares, at most 2."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A monotone curve from predicted deviation to relative rounds, with an interval.

    Parameters
    ----------
    noise
        ``"default"`` if the deviation was computed with the default ratio of noise to
        heterogeneity, ``"measured"`` if with that of gradients.
    hops
        Hops of the deviation.
    deviation
        (m,) increasing.
    ratio, low, high
        (m,) rounds over those of the complete graph, not decreasing.
    """

    noise: str
    hops: int
    deviation: np.ndarray
    ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def predict(self, deviation: float) -> tuple[float, float, float]:
        """Return the relative rounds and the ends of their interval; flat beyond the curve.

        Only the complete graph has a deviation of 0, up to rounding: its rounds are exactly 1.
        """
        if deviation <= ROUNDING:
            return 1.0, 1.0, 1.0
        at = np.log(max(deviation, self.deviation[0]))
        x = np.log(self.deviation)
        found = (np.interp(at, x, np.log(y)) for y in (self.ratio, self.low, self.high))
        ratio, low, high = (float(np.exp(value)) for value in found)
        return ratio, low, high


@dataclass(frozen=True)
class Setting:
    """What advice is asked for, as far as it is known.

    Parameters
    ----------
    n, spread
        Number of nodes, and their label heterogeneity without communication.
    lr, batch_size
        Learning rate and examples per minibatch; None if they are not given.
    dataset
        Name of the dataset in lower case; None for label counts.
    n_tensors
        Number of parameter tensors; None without a model.
    """

    n: int
    spread: float
    lr: float | None
    batch_size: int | None
    dataset: str | None = None
    n_tensors: int | None = None


@dataclass(frozen=True, eq=False)
class Calibration:
    """Curves by kind of noise and hops, and the settings to which they are fitted.

    Parameters
    ----------
    noise_ratio
        Default ratio of minibatch variance to squared heterogeneity of gradients.
    level
        Share of held-out residuals within the intervals, whose ends are set so that it holds.
    curves
        One per kind of noise and number of hops.
    fitted_to
        Ranges of ``n``, ``spread`` (label heterogeneity without communication), ``lr`` and
        ``batch_size``, and lists of ``data``, ``partitions``, ``methods`` and ``models``.
    """

    noise_ratio: float
    level: float
    curves: tuple[Curve, ...]
    fitted_to: Mapping[str, Any]

    @property
    def hops(self) -> tuple[int, ...]:
        """Numbers of hops with a curve."""
        return tuple(sorted({curve.hops for curve in self.curves}))

    def curve(self, noise: str, hops: int) -> Curve | None:
        """Return the curve of a kind of noise and a number of hops; None if there is none."""
        for curve in self.curves:
            if (curve.noise, curve.hops) == (noise, hops):
                return curve
        return None

    def warnings(self, setting: Setting) -> list[str]:
        """Return a sentence for everything in which a setting is outside of the fit."""
        known = self.fitted_to
        found = [
            _outside("number of nodes", setting.n, known["n"]),
            _outside("label heterogeneity of the nodes", setting.spread, known["spread"]),
            _outside("learning rate", setting.lr, known["lr"]),
            _outside("batch size", setting.batch_size, known["batch_size"]),
        ]
        names = " and ".join(known["data"])
        if setting.dataset is not None and setting.dataset not in map(str.lower, known["data"]):
            found.append(f"{_FITTED} {names} only, here the data are {setting.dataset}")
        if setting.n_tensors is not None and setting.n_tensors > 2:
            found.append(
                f"{_FITTED} {' and '.join(known['models'])} only, the model has "
                f"{setting.n_tensors} parameter tensors"
            )
        return [text for text in found if text is not None]

    def describe(self) -> str:
        """Return the settings to which the curves are fitted, as words without a verb."""
        known = self.fitted_to
        return (
            f"{known['runs']:,} runs of {', '.join(known['methods'])} on "
            f"{', '.join(known['data'])} ({', '.join(known['models'])}; "
            f"{_range(known['n'])} nodes; learning rates {_range(known['lr'])}; "
            f"minibatches of {_range(known['batch_size'])}; "
            f"partitions {', '.join(known['partitions'])})"
        )


_FITTED = "the predicted rounds are fitted to"


def _range(limits: list[float]) -> str:
    low, high = limits
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _outside(what: str, value: float | None, limits: list[float]) -> str | None:
    """Return a warning about a number that is outside of the limits, or is not known."""
    low, high = limits
    # Limits are rounded in the file: a value that equals one is within.
    if value is not None and low * (1 - 1e-6) <= value <= high * (1 + 1e-6):
        return None
    here = "here it is not given" if value is None else f"here it is {value:g}"
    return f"{_FITTED} a {what} of {_range(limits)} only, {here}"


@cache
def stored() -> Calibration:
    """Return the calibration that is part of the package."""
    file = resources.files("topofl.advice").joinpath("calibration.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    curves = tuple(
        Curve(
            curve["noise"],
            curve["hops"],
            *(np.array(curve[key]) for key in ("deviation", "ratio", "low", "high")),
        )
        for curve in found["curves"]
    )
    return Calibration(found["noise_ratio"], found["level"], curves, found["fitted_to"])
