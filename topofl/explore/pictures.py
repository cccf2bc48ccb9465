"""The pictures of the explorer, as PNG files with descriptions."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl import metrics
from topofl.data import Partition
from topofl.history import History, compare_histories
from topofl.topology import Topology

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "curves", "drawings", "spectra"]

PIXELS = 90
"""Pixels per inch of a figure."""


@dataclass(frozen=True)
class Picture:
    """A PNG file, what it shows in words, and the width in pixels at which to show it."""

    png: bytes
    text: str
    width: int


def drawings(graphs: Mapping[str, Topology], clients: Partition) -> Picture:
    """Return the graphs side by side, with the labels of their nodes as pies."""

    def draw(ax: Any, graph: Topology) -> None:
        graph.plot(ax, label_counts=clients)

    figure = _beside(graphs, draw, height=4.2)
    sizes = (f"{name} has {graph.n_edges} edges" for name, graph in graphs.items())
    return _picture(figure, f"The graphs, with the labels of their nodes: {'; '.join(sizes)}.")


def spectra(graphs: Mapping[str, Topology], clients: Partition) -> Picture:
    """Return the label energy over the eigenvalues of each graph, with common axes."""
    found = {name: metrics.heterogeneity_spectrum(graph, clients) for name, graph in graphs.items()}

    def draw(ax: Any, spectrum: metrics.HeterogeneitySpectrum) -> None:
        spectrum.plot(ax)

    figure = _beside(found, draw, height=3.0)
    top = max(ax.get_ylim()[1] for ax in figure.axes)
    for ax in figure.axes:
        ax.set(xlim=(-1, 1), ylim=(0, top))
    means = (f"{name} {_mean(one):.2f}" for name, one in found.items())
    return _picture(
        figure,
        "Energy of the labels over the eigenvalues of the mixing matrix; mean modulus of the "
        f"eigenvalues, weighted by energy: {'; '.join(means)}.",
    )


def curves(histories: Mapping[str, History]) -> Picture:
    """Return accuracy over rounds: means over nodes, with bands from 10 % to 90 % of the nodes."""
    last = (f"{name} {h.last('accuracy').mean():.3f}" for name, h in histories.items())
    text = f"Accuracy over rounds; mean over nodes after the last one: {'; '.join(last)}."
    return _picture(compare_histories(histories), text)


def _mean(spectrum: metrics.HeterogeneitySpectrum) -> float:
    """Return the mean modulus of eigenvalues by energy; 0 if there is none, as for equal data."""
    total = spectrum.energies.sum()
    return float(np.abs(spectrum.eigenvalues) @ spectrum.energies / total) if total > 0 else 0.0


def _beside(shown: Mapping[str, Any], draw: Callable[[Any, Any], None], height: float) -> "Figure":
    """Return a figure with one drawing per column, under its name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, height), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for ax, (name, value) in zip(axes, shown.items(), strict=True):
        draw(ax, value)
        ax.set_title(name)
    return figure


def _picture(figure: "Figure", text: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * PIXELS)  # for screens with many pixels
    return Picture(file.getvalue(), text, round(PIXELS * figure.get_figwidth()))
