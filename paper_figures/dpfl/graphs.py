"""Pictures and numbers of the graphs that DPFL learns: who hears whom, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Patch

from topofl import Topology, config, metrics, report
from topofl.topology import from_edges

from ..kit.training.run import Run
from ..kit.training.store import Store

__all__ = [
    "adjacency",
    "crossing",
    "draw_graphs",
    "graph",
    "kept",
    "malicious_share",
    "reciprocity",
    "round_page",
    "sparsity",
]

Received = Sequence[Sequence[int]]
"""For each node, whom it hears."""

COLORS = {
    "not heard": "#FFFFFF",
    "candidate": "#C6DBEF",
    "heard": "#08519C",
    "heard, malicious": "#D55E00",
}
"""Of pairs of nodes."""


def adjacency(received: Received) -> np.ndarray:
    """Return (n, n) booleans, row k: whom node k hears."""
    matrix = np.zeros((len(received), len(received)), dtype=bool)
    for k, nodes in enumerate(received):
        matrix[k, list(nodes)] = True
    return matrix


def graph(received: Received) -> Topology:
    """Return the directed graph with an edge to each node from everyone it hears."""
    return from_edges(
        [(j, k) for k, nodes in enumerate(received) for j in nodes], len(received), directed=True
    )


def sparsity(received: Received) -> float:
    """Return the share of pairs without an edge; a node with itself counts as an edge.

    The paper says 95 % for budgets of 5 of 100, which are 4 others by its code: nodes count
    themselves.
    """
    return metrics.sparsity(graph(received), count_self=True)


def reciprocity(received: Received) -> float:
    """Return the share of edges whose opposite is there too, 1 if there is no edge."""
    return metrics.reciprocity(graph(received))


def kept(before: Received, after: Received) -> float:
    """Return the share of common edges among the edges of either graph, 1 if there are none."""
    one, other = adjacency(before), adjacency(after)
    either = int((one | other).sum())
    return float((one & other).sum() / either) if either else 1.0


def malicious_share(received: Received, malicious: Sequence[int]) -> float:
    """Return the share of malicious nodes among the peers of benign ones, 0 if these have none."""
    bad = set(malicious)
    chosen = [j for k, nodes in enumerate(received) if k not in bad for j in nodes]
    return sum(j in bad for j in chosen) / max(1, len(chosen))


def crossing(received: Received, malicious: Sequence[int]) -> float:
    """Return the share of edges between a benign and a malicious node, 0 without edges."""
    bad = set(malicious)
    apart = [(j in bad) != (k in bad) for k, nodes in enumerate(received) for j in nodes]
    return sum(apart) / max(1, len(apart))


def _codes(received: Received, candidates: Received, malicious: Sequence[int]) -> np.ndarray:
    """Return the index into :data:`COLORS` of each pair, with malicious nodes last."""
    now, ever = adjacency(received), adjacency(candidates)
    codes = np.where(now, 2, np.where(ever, 1, 0))
    codes[:, list(malicious)] = np.where(now[:, list(malicious)], 3, codes[:, list(malicious)])
    order = [k for k in range(len(received)) if k not in set(malicious)] + sorted(malicious)
    return codes[np.ix_(order, order)]


def draw_graphs(panels: Mapping[str, Mapping[str, Any]], *, columns: int = 6) -> Picture:
    """Return small multiples: one row of adjacency matrices per panel, one per round.

    Parameters
    ----------
    panels
        By title, ``heard`` (by round, for each node whom it hears) and ``malicious`` nodes.
        Candidates are those heard in the first of the rounds.
    columns
        Most squares in a row; of more rounds some are left out, evenly.
    """
    shown = {title: _some(list(panel["heard"]), columns) for title, panel in panels.items()}
    width = max(map(len, shown.values()))
    picture = Picture(figsize=(1.0 + 1.5 * width, 0.7 + 1.75 * len(panels)), layout="constrained")
    axes = picture.subplots(len(panels), width, squeeze=False)
    colors, used = ListedColormap(list(COLORS.values())), set()
    for row, (title, panel) in zip(axes, panels.items(), strict=True):
        first = next(iter(panel["heard"].values()))
        for ax in row[len(shown[title]) :]:
            ax.set_visible(False)
        for ax, t in zip(row, shown[title], strict=False):
            codes = _codes(panel["heard"][t], first, panel["malicious"])
            used |= set(np.unique(codes).tolist())
            ax.imshow(codes, cmap=colors, vmin=0, vmax=len(COLORS) - 1, interpolation="nearest")
            ax.set_title(f"round {t}", fontsize=8)
            ax.set_xticks([])
            ax.set_yticks([])
        row[0].set_ylabel(title, fontsize=8)
    patches = [
        Patch(facecolor=color, edgecolor="#888888", label=name)
        for k, (name, color) in enumerate(COLORS.items())
        if k in used
    ]
    picture.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
    picture.suptitle("row: a node; column: whom it hears", x=0.01, ha="left", fontsize=7)
    return picture


def round_page(run: Run, store: Store, title: str) -> str:
    """Return an HTML page with the graphs of all rounds of a run; malicious nodes are last."""
    history, _ = store.load(run)
    clients = config.build(run.tables).clients
    flipped = (
        ["labels are those that nodes train on, wrong ones too"] if len(clients.flipped) else []
    )
    return report.rounds_report(
        history,
        metrics.over_rounds(history, label_counts=clients),
        label_counts=clients,
        marked=clients.flipped,
        marked_name="malicious",
        title=title,
        notes=["DPFL's candidates are those heard in round 0", f"seed {run.seed}", *flipped],
    )


def _some(rounds: Sequence[str], count: int) -> list[str]:
    places = np.unique(np.linspace(0, len(rounds) - 1, min(count, len(rounds))).round().astype(int))
    return [rounds[int(k)] for k in places]
