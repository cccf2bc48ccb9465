"""The reason for a candidate's rank: what is left of heterogeneity, or of noise, on average."""

import math
from dataclasses import dataclass

__all__ = ["Yardstick", "reason"]


@dataclass(frozen=True)
class Yardstick:
    """What candidates are compared with.

    Parameters
    ----------
    hops
        K.
    spread
        Label heterogeneity without communication.
    n
        Number of nodes.
    noise_ratio
        Weight of N_K against H_K; infinite if nodes differ by noise only.
    ring
        H_K and N_K of the ring.
    """

    hops: int
    spread: float
    n: int
    noise_ratio: float
    ring: tuple[float, float]

    def terms(self, heterogeneity: float, noise: float) -> tuple[float, float]:
        """Return both terms of the deviation: H_K and c N_K, or 0 and N_K if c is infinite."""
        if math.isinf(self.noise_ratio):
            return 0.0, noise
        return heterogeneity, self.noise_ratio * noise


def reason(heterogeneity: float, noise: float, yardstick: Yardstick) -> str:
    """Return a sentence on the larger term: its mean per hop, relative to no communication.

    H_K / K is the mean over hops of the squared distance of label shares from the global
    ones, N_K / K that of the variance of averaged noise.
    """
    of_labels, of_noise = yardstick.terms(heterogeneity, noise)
    if of_labels >= of_noise and yardstick.spread > 0:
        what, whole = "label heterogeneity", yardstick.spread
        larger, left, on_ring = of_labels, heterogeneity, yardstick.ring[0]
    else:
        what, whole = "gradient noise between nodes", 1 - 1 / yardstick.n
        larger, left, on_ring = of_noise, noise, yardstick.ring[1]
    share = larger / (of_labels + of_noise) if larger else 1.0
    per_hop, ring_per_hop = (_percent(v / (yardstick.hops * whole)) for v in (left, on_ring))
    same = abs(left - on_ring) <= 1e-9 * on_ring
    against = "" if same else f", against {ring_per_hop} on the ring"
    hops = f"{yardstick.hops} hop{'s' * (yardstick.hops != 1)}"
    return (
        f"Over {hops}, {per_hop} of the {what} is left on average{against}; it accounts for "
        f"{_percent(share)} of the predicted deviation."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
