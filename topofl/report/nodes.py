"""Order of the nodes in a picture of an adjacency matrix, and the colors along its axes."""

import itertools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from topofl._drawing.axes import class_colors
from topofl.metrics import label_distributions
from topofl.metrics.labels import check_row_per_node

__all__ = ["NodeOrder", "Strip", "node_order"]

ENTRIES = 20
"""Largest number of classes that are listed in a legend; of more, the first and the last are."""


class Strip(NamedTuple):
    """Colors along the axes, as stops of a CSS gradient, with the legend's colors and names."""

    title: str
    stops: str
    legend: list[tuple[str, str]]


class NodeOrder(NamedTuple):
    """Nodes from first to last, what they are ordered by, and colors that show it."""

    order: np.ndarray
    words: str
    strips: list[Strip]


def node_order(
    n: int,
    groups: Sequence[Sequence[int]],
    label_counts: Any,
    last: Collection[int],
    name: str,
) -> NodeOrder:
    """Return nodes by whether they are in `last`, by group, most frequent class and number.

    Parameters
    ----------
    n, name
        Number of nodes, and name of the graph for error messages.
    groups
        Groups of nodes, in their order; nodes outside follow.
    label_counts
        (n, classes) counts, a Partition, whose class names are in the legend, or None.
    last
        Nodes that follow all others.

    Raises
    ------
    ValueError
        If `label_counts` does not have one row per node.
    """
    most, classes = np.zeros(n, dtype=int), 0
    if label_counts is not None:
        shares = label_distributions(label_counts)
        check_row_per_node(shares, n, name)
        most, classes = shares.argmax(axis=1), shares.shape[1]
    group = np.full(n, len(groups))
    for k, members in enumerate(groups):
        group[list(members)] = k
    order = np.lexsort((np.arange(n), most, group, np.isin(np.arange(n), sorted(last))))
    keys = [f"group ({len(groups)})"] * bool(groups) + ["most frequent class"] * bool(classes)
    strips = [_group_strip(group[order], len(groups))] if groups else []
    names = getattr(label_counts, "class_names", None) or [f"class {k}" for k in range(classes)]
    strips += [_class_strip(most[order], names)] if classes else []
    return NodeOrder(order, ", then by ".join(keys) or "number", strips)


def _group_strip(group: np.ndarray, count: int) -> Strip:
    tones = ["var(--soft)", "var(--rule)"]
    colors = ["transparent" if k == count else tones[k % 2] for k in group.tolist()]
    return Strip("Groups", _stops(colors), list(zip(tones, ("one group", "the next"), strict=True)))


def _class_strip(most: np.ndarray, names: Sequence[str]) -> Strip:
    colors = class_colors(len(names))
    found = sorted(set(most.tolist()))
    listed = found if len(found) <= ENTRIES else [found[0], found[-1]]
    legend = [(colors[k], str(names[k])) for k in listed]
    return Strip("Most frequent class", _stops([colors[k] for k in most.tolist()]), legend)


def _stops(colors: Sequence[str]) -> str:
    """Return stops of a gradient with one band per run of equal colors."""
    stops, start = [], 0
    for color, run in itertools.groupby(colors):
        end = start + len(list(run))
        stops.append(f"{color} {100 * start / len(colors):.4g}% {100 * end / len(colors):.4g}%")
        start = end
    return ", ".join(stops)
