"""Pictures of DPFL's experiments: accuracies, variances over clients, and malicious clients."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Picture

from ..kit.dots import Dots, dots
from ..kit.drawing import convergence
from ..kit.figure import Data
from .arms import Outcome
from .claims import hidden
from .graphs import malicious_share
from .methods import BASELINES
from .printed_numbers import TABLE_1


def draw_accuracies(panels: Mapping[str, Mapping[str, Outcome]]) -> Picture:
    """Return a dot plot of accuracies with the paper's numbers."""
    paper = {
        title: {label: row[title][0] for label, row in TABLE_1.items() if title in row}
        for title in panels
    }
    return dots(
        {
            title: {
                label: Dots(one.accuracy, paper[title].get(label)) for label, one in arms.items()
            }
            for title, arms in panels.items()
        },
        xlabel="test accuracy, %",
    )


def draw_variances(panels: Mapping[str, Mapping[str, Outcome]]) -> Picture:
    """Return a plot of variance over clients against accuracy, one dot per method (seed means)."""
    picture = Picture(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    axes = picture.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, arms) in zip(axes, panels.items(), strict=True):
        for label, one in arms.items():
            if label in hidden(title):
                continue
            color = "#7F7F7F" if label in BASELINES else "#D55E00"
            ax.plot([one.accuracy.mean()], [one.variance.mean()], "o", color=color, markersize=4)
            ax.annotate(
                label,
                (one.accuracy.mean(), one.variance.mean()),
                fontsize=7,
                xytext=(3, 2),
                textcoords="offset points",
            )
        ax.set(title=title, xlabel="test accuracy, mean over clients, %")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("variance over clients, points²")
    return picture


def draw_own_accuracies(panels: Mapping[str, Mapping[str, Outcome]]) -> Picture:
    """Return a dot plot of accuracies without the paper's numbers."""
    return dots(
        {t: {k: Dots(one.accuracy) for k, one in arms.items()} for t, arms in panels.items()},
        xlabel="test accuracy, %",
    )


def draw_curves(panels: Mapping[str, Mapping[str, Outcome]]) -> Picture:
    """Return a plot of accuracy against rounds."""
    curves = {
        title: {label: one.curve for label, one in arms.items()} for title, arms in panels.items()
    }
    return convergence(curves, xlabel="round", extremes=False)


def draw_malicious_shares(data: Data) -> Picture:
    """Return a plot of the share of malicious peers against rounds, per seed and on average."""
    picture = Picture(figsize=(4.8, 3.2), layout="constrained")
    ax = picture.subplots()
    shares = np.array(
        [
            [
                100 * malicious_share(neighbors, seed["malicious"])
                for neighbors in seed["heard"].values()
            ]
            for seed in data["graphs"]["DPFL"]
        ]
    )
    ax.plot(shares.T, color="#D55E00", alpha=0.35, linewidth=0.8)
    ax.plot(shares.mean(axis=0), color="#D55E00", linewidth=1.8)
    ax.set(xlabel="round", ylabel="malicious among benign clients' peers, %", ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    return picture


def draw_three_clients(data: Data) -> Picture:
    """Return a dot plot of the first client's accuracies."""
    arms = {label: Dots(np.array(row)) for label, row in data["accuracies"].items()}
    return dots({"client 1": arms}, xlabel="test accuracy, %")
