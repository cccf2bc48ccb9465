"""The pictures of the explorer, as PNG files with descriptions."""

import io
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl import metrics
from topofl._support.table import NotApplicable
from topofl.data import Partition
from topofl.explore.compared import spectrum_of
from topofl.explore.setup import Graph
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


def drawings(graphs: Mapping[str, Graph], clients: Partition) -> Picture:
    """Return the graphs side by side, with the labels of their nodes as pies.

    Of graphs that change, the first round is drawn.
    """
    shown = {_in_round_0(name, graph): graph.at(0) for name, graph in graphs.items()}

    def draw(ax: Any, graph: Topology) -> None:
        graph.plot(ax, label_counts=clients)

    figure = _beside(shown, draw, height=4.2)
    sizes = (f"{name} has {graph.n_edges} edges" for name, graph in shown.items())
    return _picture(figure, f"The graphs, with the labels of their nodes: {'; '.join(sizes)}.")


def _in_round_0(name: str, graph: Graph) -> str:
    return name if isinstance(graph, Topology) else f"{name}, round 0"


def spectra(graphs: Mapping[str, Graph], clients: Partition) -> Picture:
    """Return the label energy over the eigenvalues of each graph, with common axes."""
    found = {name: spectrum_of(graph, clients) for name, graph in graphs.items()}
    figure = _beside(found, _draw_spectrum, height=3.0)
    shown = [ax for ax in figure.axes if ax.axison]
    top = max((ax.get_ylim()[1] for ax in shown), default=1.0)
    for ax in shown:
        ax.set(xlim=(-1, 1), ylim=(0, top))
    means = (f"{name} {_mean(one)}" for name, one in found.items())
    return _picture(
        figure,
        "Energy of the labels over the eigenvalues of the mixing matrix; mean modulus of the "
        f"eigenvalues, weighted by energy: {'; '.join(means)}.",
    )


def _draw_spectrum(ax: Any, spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> None:
    if isinstance(spectrum, metrics.HeterogeneitySpectrum):
        spectrum.plot(ax)
        return
    ax.set_axis_off()
    text = textwrap.fill(f"n/a: {spectrum.reason}", 50)
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)


def curves(histories: Mapping[str, History]) -> Picture:
    """Return accuracy over rounds: means over nodes, with bands from 10 % to 90 % of the nodes."""
    last = (f"{name} {h.last('accuracy').mean():.3f}" for name, h in histories.items())
    text = f"Accuracy over rounds; mean over nodes after the last one: {'; '.join(last)}."
    return _picture(compare_histories(histories), text)


def _mean(spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> str:
    """Return the mean modulus of eigenvalues by energy; 0 if there is none, as for equal data."""
    if isinstance(spectrum, NotApplicable):
        return f"n/a ({spectrum.reason})"
    total = spectrum.energies.sum()
    mean = float(np.abs(spectrum.eigenvalues) @ spectrum.energies / total) if total > 0 else 0.0
    return f"{mean:.2f}"


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
