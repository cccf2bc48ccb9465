"""The calibration: predicted rounds to a target, relative to the complete graph, by deviation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

__all__ = ["Calibration", "Curve", "stored"]


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
        """Return the relative rounds and the ends of their interval; flat beyond the curve."""
        at = np.log(max(deviation, self.deviation[0]))
        x = np.log(self.deviation)
        found = (np.interp(at, x, np.log(y)) for y in (self.ratio, self.low, self.high))
        ratio, low, high = (float(np.exp(value)) for value in found)
        return ratio, low, high


@dataclass(frozen=True, eq=False)
class Calibration:
    """Curves by kind of noise and hops, and the settings in which they were validated.

    Parameters
    ----------
    noise_ratio
        Default ratio of minibatch variance to squared heterogeneity of gradients.
    level
        Share of held-out runs within the intervals.
    curves
        One per kind of noise and number of hops.
    validated_on
        Ranges of ``n``, ``spread`` (label heterogeneity without communication) and ``lr``, and
        lists of ``data``, ``partitions``, ``methods`` and ``models``.
    """

    noise_ratio: float
    level: float
    curves: tuple[Curve, ...]
    validated_on: Mapping[str, Any]

    @property
    def hops(self) -> tuple[int, ...]:
        """Numbers of hops with a curve."""
        return tuple(sorted({curve.hops for curve in self.curves}))

    def curve(self, noise: str, hops: int) -> Curve:
        """Return the curve of the nearest number of hops."""
        own = [curve for curve in self.curves if curve.noise == noise]
        return min(own, key=lambda curve: abs(np.log(curve.hops / hops)))

    def warnings(
        self, n: int, spread: float, lr: float | None, hops: int, n_tensors: int | None
    ) -> list[str]:
        """Return a sentence for each setting outside of those that were validated."""
        known = self.validated_on
        found = [
            _outside("number of nodes", n, known["n"]),
            _outside("label heterogeneity of the nodes", spread, known["spread"]),
            None if lr is None else _outside("learning rate", lr, known["lr"]),
            _outside("number of hops", hops, [self.hops[0], self.hops[-1]]),
        ]
        if n_tensors is not None and n_tensors > 2:
            found.append(
                f"the predicted rounds were validated for {' and '.join(known['models'])} only, "
                f"the model has {n_tensors} parameter tensors"
            )
        return [text for text in found if text is not None]

    def describe(self) -> str:
        """Return the settings in which the predictions were validated, as a sentence."""
        known = self.validated_on
        (n_low, n_high), (lr_low, lr_high) = known["n"], known["lr"]
        nodes = f"{n_low}" if n_low == n_high else f"{n_low} to {n_high}"
        rates = f"{lr_low:g}" if lr_low == lr_high else f"{lr_low:g} to {lr_high:g}"
        return (
            f"{known['runs']:,} runs of {', '.join(known['methods'])} on "
            f"{', '.join(known['data'])} ({', '.join(known['models'])}; {nodes} nodes; "
            f"learning rates {rates}; partitions {', '.join(known['partitions'])})"
        )


def _outside(what: str, value: float, limits: list[float]) -> str | None:
    low, high = limits
    # Limits are rounded in the file: a value that equals one is within.
    if low * (1 - 1e-6) <= value <= high * (1 + 1e-6):
        return None
    ends = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"the predicted rounds were validated for a {what} of {ends} only, here it is {value:g}"


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
    return Calibration(found["noise_ratio"], found["level"], curves, found["validated_on"])
