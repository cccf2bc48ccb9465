"""The reason for a candidate's rank: what is left of heterogeneity, or of noise, on average."""

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
        Weight of N_K against H_K.
    ring
        H_K and N_K of the ring.
    """

    hops: int
    spread: float
    n: int
    noise_ratio: float
    ring: tuple[float, float]


def reason(heterogeneity: float, noise: float, yardstick: Yardstick) -> str:
    """Return a sentence on the larger term: its mean per hop, relative to no communication.

    H_K / K is the mean over hops of the squared distance of label shares from the global
    ones, N_K / K that of the variance of averaged noise.
    """
    of_noise = yardstick.noise_ratio * noise
    if heterogeneity >= of_noise and yardstick.spread > 0:
        what, whole = "label heterogeneity", yardstick.spread
        left, ring = heterogeneity, yardstick.ring[0]
        share = heterogeneity / (heterogeneity + of_noise) if heterogeneity else 1.0
    else:
        what, whole = "gradient noise between nodes", 1 - 1 / yardstick.n
        left, ring = noise, yardstick.ring[1]
        share = of_noise / (heterogeneity + of_noise) if of_noise else 1.0
    own, other = (_percent(value / (yardstick.hops * whole)) for value in (left, ring))
    against = "" if abs(left - ring) <= 1e-9 * ring else f", against {other} on the ring"
    hops = f"{yardstick.hops} hop{'s' * (yardstick.hops != 1)}"
    return (
        f"Over {hops}, {own} of the {what} is left on average{against}; it accounts for "
        f"{_percent(share)} of the predicted deviation."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
