"""Plots and tables of a history."""

from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._drawing import new_axes
from topofl._support.check import check_choice
from topofl.history.columns import COSTS, why_unrecorded
from topofl.history.statistics import evaluation_record, over_nodes
from topofl.history.summary import with_attack
from topofl.history.targets import elapsed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from topofl.history.history import History

__all__ = ["dataframe", "plot", "records"]

AXIS_LABELS = {
    "rounds": "round",
    "seconds": "simulated seconds",
    "megabytes": "megabytes sent by all nodes",
    "steps": "local steps per node",
}
"""Label of each x axis."""


def plot(
    history: "History", column: str | None, x: str, ax: "Axes | None", label: str | None
) -> "Axes":
    """See :meth:`topofl.History.plot`."""
    import matplotlib.pyplot as plt

    column = history.primary if column is None else column
    values = history[column]
    check_choice("x", x, list(AXIS_LABELS))
    if x != "rounds" and COSTS[x] not in history.rounds:
        raise ValueError(f"`x` must be a recorded cost, got {x!r}, {why_unrecorded(history, x)}")
    ax = plt.subplots()[1] if ax is None else new_axes(ax)
    places = np.arange(1, history.n_rounds + 1)
    if column in history.evaluations:
        places = history.evaluations["round"]
    if column in history.columns and history.columns[column].stage:
        evaluated = ~np.isnan(values).all(1)  # NaN would interrupt the line
        places = places[evaluated]
        values = values[evaluated]
    if x != "rounds":
        unit = {"steps": history.node_loss.shape[1], "megabytes": 1e6}.get(x, 1)
        places = elapsed(history, x, places, column) / unit
    run = f"{history.meta.get('algorithm')}, {history.meta.get('topology')}"
    name = label or with_attack(history, run)
    marker = "o" if len(places) == 1 else None
    if values.ndim == 1:
        ax.plot(places, values, marker=marker, label=name)
    else:
        nodes = over_nodes(values)
        (line,) = ax.plot(places, nodes["mean"], marker=marker, label=name)
        color = line.get_color()
        ax.fill_between(places, nodes["min"], nodes["max"], alpha=0.2, color=color, linewidth=0)
    ax.set_xlabel(AXIS_LABELS[x])
    ax.set_ylabel(column.replace("_", " "))
    return ax


def dataframe(history: "History", per: str) -> "pd.DataFrame":
    """See :meth:`topofl.History.to_pandas`."""
    import pandas as pd

    check_choice("per", per, ["round", "node"])
    if per == "round":
        return pd.DataFrame(records(history)).set_index("round")
    shape = history.evaluations[history.primary].shape
    table = {
        "round": np.repeat(history.evaluations["round"], shape[1]),
        "node": np.tile(np.arange(shape[1]), shape[0]),
    }
    for name, values in history.evaluations.items():
        if values.shape == shape:
            table[name] = values.reshape(-1)
    return pd.DataFrame(table)


def records(history: "History") -> list[dict[str, Any]]:
    """Return one dict of numbers per round, round 0 first; they may be NaN or infinite."""
    found: list[dict[str, Any]] = [{"round": t} for t in range(history.n_rounds + 1)]
    for name, column in history.rounds.items():
        for t, value in enumerate(column.tolist(), start=1):
            found[t][name] = value
    for k, t in enumerate(history.evaluations["round"].tolist()):
        evaluation = {name: column[k] for name, column in history.evaluations.items()}
        found[t] |= evaluation_record(evaluation)
    return found
