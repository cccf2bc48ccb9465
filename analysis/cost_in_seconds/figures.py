"""Figures and tables of the costs in seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from topofl import Table

from .settings import HARDWARE, MODELS

__all__ = ["regimes_figure", "seconds_figure", "seconds_table", "stragglers_figure"]

Records = Sequence[Mapping[str, Any]]

MARKERS = {"compute": "o", "latency": "s", "transfer": "^"}
PARTS = tuple(MARKERS)


def _families(records: Records) -> list[str]:
    return list(dict.fromkeys(record["family"] for record in records))


def _cell(record: Mapping[str, Any], model: str, hardware: str) -> Mapping[str, Any]:
    return next(
        cell for cell in record["cells"] if (cell["model"], cell["hardware"]) == (model, hardware)
    )


def seconds_figure(records: Records) -> Figure:
    """Return seconds per round against the number of nodes, a panel per model and hardware."""
    shown = [MODELS[0], MODELS[-1]]
    figure = Figure((11, 6.5), layout="constrained")
    axes = figure.subplots(len(shown), len(HARDWARE), sharex=True, squeeze=False)
    for row, model in zip(axes, shown, strict=True):
        for ax, hardware in zip(row, HARDWARE, strict=True):
            _panel(ax, [r for r in records if "cells" in r], model.label, hardware)
            ax.set_title(f"{model.label}, {hardware}", fontsize=9)
        row[0].set_ylabel("seconds per round")
    for ax in axes[-1]:
        ax.set_xlabel("nodes")
    handles, labels = axes[0][0].get_legend_handles_labels()
    for part, marker in MARKERS.items():
        handles += axes[0][0].plot([], [], marker, color="black")
        labels.append(f"mostly {part}")
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _panel(ax: Axes, records: Records, model: str, hardware: str) -> None:
    for k, family in enumerate(_families(records)):
        own = [record for record in records if record["family"] == family]
        cells = [_cell(record, model, hardware) for record in own]
        n, seconds = [record["n"] for record in own], [cell["seconds"] for cell in cells]
        ax.plot(n, seconds, color=f"C{k}", linewidth=1, label=family)
        for x, cell in zip(n, cells, strict=True):
            ax.plot(x, cell["seconds"], MARKERS[cell["bound"]], color=f"C{k}", markersize=5)
    ax.set_xscale("log")
    ax.set_yscale("log")


def regimes_figure(records: Records, n: int) -> Figure:
    """Return what bounds each graph, by message size and local work relative to latency.

    With equal machines a round is ``compute + latency + busiest * message``, with the number of
    messages of the busiest link and the seconds that one message takes.
    """
    own = [record for record in records if record["n"] == n and "cells" in record]
    message, compute = np.logspace(-4, 2, 241), np.logspace(-3, 3, 241)
    colors = ListedColormap(["#4c78a8", "#bab0ac", "#f58518"])
    figure = Figure((11, 2.9), layout="constrained")
    for ax, record in zip(figure.subplots(1, len(own), sharey=True), own, strict=True):
        parts = np.broadcast_arrays(compute[:, None], np.ones((1, 1)), record["busiest"] * message)
        ax.pcolormesh(
            message, compute, np.argmax(parts, axis=0), cmap=colors, vmin=0, vmax=2, rasterized=True
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"{record['family']}\n{record['busiest']:g} messages", fontsize=7)
    figure.supxlabel("seconds of one message / latency", fontsize=9)
    figure.supylabel("compute / latency", fontsize=9)
    patches = [Patch(color=colors(k), label=f"mostly {p}") for k, p in enumerate(PARTS)]
    figure.legend(handles=patches, loc="outside right center", fontsize=8)
    return figure


def stragglers_figure(records: Records) -> Figure:
    """Return seconds per round with random steps: waiting for all nodes, or for neighbors."""
    figure = Figure((6, 3.6), layout="constrained")
    ax = figure.subplots()
    for k, family in enumerate(_families(records)):
        own = [record for record in records if record["family"] == family]
        n = [record["n"] for record in own]
        near = [record["neighbors"] for record in own]
        ax.plot(n, near, "o-", color=f"C{k + 1}", label=f"{family}, neighbors")
        if k == 0:
            ax.plot(n, [record["all"] for record in own], "s-", color="C0", label="all nodes")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("nodes")
    ax.set_ylabel("seconds per round (mean step 1 s)")
    ax.legend(fontsize=8)
    return figure


def seconds_table(records: Records, n: int, model: str) -> Table:
    """Return seconds per round on all hardware, with the part that bounds each, and H_10."""
    rows = []
    for record in records:
        if record["n"] != n or "cells" not in record:
            continue
        cells = [_cell(record, model, hardware) for hardware in HARDWARE]
        texts = [f"{cell['seconds']:.3g} ({cell['bound']})" for cell in cells]
        rows.append((record["family"], round(record["busiest"]), *texts, record["h10"]))
    return Table(("graph", "messages of busiest link", *HARDWARE, "H_10"), tuple(rows))
