"""Pictures and metrics of the directed graphs that DPFL learns, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Patch

from topofl import Topology, config, metrics, report
from topofl.runs.identity import Run
from topofl.topology import from_edges

from ..kit.training.store import Store

Neighbors = Sequence[Sequence[int]]
"""In-neighbors of each node: the peers whose models it averages."""

COLORS = {
    "no edge": "#FFFFFF",
    "candidate": "#C6DBEF",
    "chosen": "#08519C",
    "chosen, malicious": "#D55E00",
}
"""Colors of pairs of nodes."""


def adjacency(neighbors: Neighbors) -> np.ndarray:
    """Return an (n, n) boolean matrix whose row k marks the in-neighbors of node k."""
    matrix = np.zeros((len(neighbors), len(neighbors)), dtype=bool)
    for k, nodes in enumerate(neighbors):
        matrix[k, list(nodes)] = True
    return matrix


def graph(neighbors: Neighbors) -> Topology:
    """Return the directed graph with an edge to each node from each of its in-neighbors."""
    return from_edges(
        [(j, k) for k, nodes in enumerate(neighbors) for j in nodes], len(neighbors), directed=True
    )


def sparsity(neighbors: Neighbors) -> float:
    """Return the share of pairs without an edge, where every node counts as its own neighbor.

    The paper's 95 % for a budget of 5 of 100, which are 4 others in its code, imply that nodes
    count themselves.
    """
    return metrics.sparsity(graph(neighbors), count_self=True)


def reciprocity(neighbors: Neighbors) -> float:
    """Return the share of edges whose reverse exists, 1 without edges."""
    return metrics.reciprocity(graph(neighbors))


def common_edges(before: Neighbors, after: Neighbors) -> float:
    """Return the share of common edges in the union of two graphs' edges, 1 without edges."""
    one, other = adjacency(before), adjacency(after)
    either = int((one | other).sum())
    return float((one & other).sum() / either) if either else 1.0


def malicious_share(neighbors: Neighbors, malicious: Sequence[int]) -> float:
    """Return the share of malicious nodes among benign nodes' in-neighbors, 0 without any."""
    bad = set(malicious)
    chosen = [j for k, nodes in enumerate(neighbors) if k not in bad for j in nodes]
    return sum(j in bad for j in chosen) / max(1, len(chosen))


def crossing(neighbors: Neighbors, malicious: Sequence[int]) -> float:
    """Return the share of edges between a benign and a malicious node, 0 without edges."""
    bad = set(malicious)
    apart = [(j in bad) != (k in bad) for k, nodes in enumerate(neighbors) for j in nodes]
    return sum(apart) / max(1, len(apart))


def _codes(neighbors: Neighbors, candidates: Neighbors, malicious: Sequence[int]) -> np.ndarray:
    """Return the index into :data:`COLORS` of each pair, with malicious nodes last."""
    chosen = adjacency(neighbors)
    codes = np.where(chosen, 2, np.where(adjacency(candidates), 1, 0))
    codes[:, list(malicious)] = np.where(chosen[:, list(malicious)], 3, codes[:, list(malicious)])
    order = [k for k in range(len(neighbors)) if k not in set(malicious)] + sorted(malicious)
    return codes[np.ix_(order, order)]


def draw_graphs(panels: Mapping[str, Mapping[str, Any]], *, columns: int = 6) -> Picture:
    """Return adjacency matrices as small multiples, one row per panel and one column per round.

    Parameters
    ----------
    panels
        In-neighbors of each node by round (``heard``) and ``malicious`` nodes, by panel title.
        Candidates are the in-neighbors in the first of the rounds.
    columns
        Largest number of matrices in a row; more rounds are thinned out evenly.
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
    picture.suptitle("row: a node; columns: its peers", x=0.01, ha="left", fontsize=7)
    return picture


def round_page(run: Run, store: Store, title: str) -> str:
    """Return an HTML page with the graphs of all rounds of a run and malicious nodes marked."""
    history, _ = store.load(run)
    clients = config.build(run.tables).clients
    flipped = (
        ["labels are those used for training, including flipped ones"]
        if len(clients.flipped)
        else []
    )
    return report.rounds_report(
        history,
        metrics.over_rounds(history, label_counts=clients),
        label_counts=clients,
        marked=clients.flipped,
        marked_name="malicious",
        title=title,
        notes=["DPFL's candidates are the peers of round 0", f"seed {run.seed}", *flipped],
    )


def _some(rounds: Sequence[str], count: int) -> list[str]:
    places = np.unique(np.linspace(0, len(rounds) - 1, min(count, len(rounds))).round().astype(int))
    return [rounds[int(k)] for k in places]
