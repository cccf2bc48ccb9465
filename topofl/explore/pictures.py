"""The pictures of the explorer, as PNG files with descriptions."""

import io
import textwrap
from collections.abc import Mapping
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


def drawings(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture of each graph, with the labels of its nodes as pies.

    Of graphs that change, the first round is drawn.
    """
    shown = {_in_round_0(name, graph): graph.at(0) for name, graph in graphs.items()}
    found = []
    for name, graph in shown.items():
        figure, ax = _figure(height=4.2)
        graph.plot(ax, label_counts=clients)
        ax.set_title(name)
        text = f"{name} has {graph.n_edges} edges; the nodes are pies of their labels."
        found.append(_picture(figure, text))
    return found


def _in_round_0(name: str, graph: Graph) -> str:
    return name if isinstance(graph, Topology) else f"{name}, round 0"


def spectra(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture per graph of label energy over eigenvalues, with common axes."""
    found = {name: spectrum_of(graph, clients) for name, graph in graphs.items()}
    drawn = {name: _figure(height=3.0) for name in found}
    for name, spectrum in found.items():
        _draw_spectrum(drawn[name][1], spectrum)
        drawn[name][1].set_title(name)
    axes = [ax for _, ax in drawn.values() if ax.axison]
    top = max((ax.get_ylim()[1] for ax in axes), default=1.0)
    for ax in axes:
        ax.set(xlim=(-1, 1), ylim=(0, top))
    return [
        _picture(
            figure,
            f"{name}: energy of the labels over the eigenvalues of the mixing matrix; mean modulus "
            f"of the eigenvalues, weighted by energy: {_mean(found[name])}.",
        )
        for name, (figure, _) in drawn.items()
    ]


def _draw_spectrum(ax: Any, spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> None:
    if isinstance(spectrum, metrics.HeterogeneitySpectrum):
        spectrum.plot(ax)
        return
    ax.set_axis_off()
    text = textwrap.fill(f"n/a: {spectrum.reason}", 40)
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=12, transform=ax.transAxes)


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


def _figure(height: float) -> tuple["Figure", Any]:
    """Return a figure and its axes, half as wide as the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, height), layout="constrained")
    return figure, figure.subplots()


def _picture(figure: "Figure", text: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * PIXELS)  # for screens with many pixels
    return Picture(file.getvalue(), text, round(PIXELS * figure.get_figwidth()))
