"""Dot plots of every arm's numbers per seed, next to the paper's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Dots:
    """Numbers of one arm: ours, one per seed (missing where not finite), and the paper's."""

    ours: np.ndarray
    paper: float | None = None


def dots(panels: Mapping[str, Mapping[str, Dots]], *, xlabel: str) -> Picture:
    """Return a dot plot with one axes per panel and one row per arm.

    Parameters
    ----------
    panels
        Dots by panel title and arm label; all panels have the same labels.
    xlabel
        Label of every x axis.
    """
    labels = list(next(iter(panels.values())))
    size = (
        1.6 + 2.8 * min(4, len(panels)),
        0.9 + (0.26 * len(labels) + 0.7) * -(-len(panels) // 4),
    )
    picture = Picture(figsize=size, layout="constrained")
    axes = list(
        picture.subplots(-(-len(panels) // 4), min(4, len(panels)), sharey=True, squeeze=False).flat
    )
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, arms) in zip(axes, panels.items(), strict=False):
        for place, label in enumerate(labels):
            _row(ax, -place, arms[label])
        ax.set_title(title, fontsize=9)
        ax.set_yticks([-place for place in range(len(labels))], labels, fontsize=8)
        ax.set_xlabel(xlabel, fontsize=8)
        ax.tick_params(labelsize=8)
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.spines[["top", "right"]].set_visible(False)
    words = "bar: mean over seeds; circles: seeds; hollow diamond: the paper's number"
    picture.supxlabel(words, x=0.01, ha="left", fontsize=7)  # scale "smoke" writes at the right
    return picture


def _row(ax: Any, place: float, arm: Dots) -> None:
    seen = arm.ours[np.isfinite(arm.ours)]
    if len(seen) == len(arm.ours):
        ax.plot([seen.mean()] * 2, [place - 0.3, place + 0.3], color="#0072B2", linewidth=1.8)
    ax.plot(seen, [place] * len(seen), "o", color="#0072B2", markersize=3, alpha=0.6)
    if arm.paper is not None:
        ax.plot(
            [arm.paper],
            [place],
            "D",
            markersize=4.5,
            markerfacecolor="none",
            markeredgecolor="#D55E00",
        )
