"""Tables of a history."""

from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import check_choice
from topofl.history.columns import why_not_scored
from topofl.history.statistics import evaluation_record

if TYPE_CHECKING:
    import pandas as pd

    from topofl.history.history import History

__all__ = ["dataframe", "records"]


def dataframe(history: "History", per: str) -> "pd.DataFrame":
    """See :meth:`topofl.History.to_pandas`."""
    import pandas as pd

    check_choice("per", per, ["round", "node"])
    if per == "round":
        return pd.DataFrame(records(history)).set_index("round")
    why = why_not_scored(history)
    shape = (len(history.evaluations["round"]), history.node_loss.shape[1])
    if why and all(values.shape != shape for values in history.evaluations.values()):
        raise ValueError(f"`per` must be 'round', got 'node': {why}")
    if not why:
        shape = history.evaluations[history.primary].shape
    table: dict[str, Any] = {
        "round": np.repeat(history.evaluations["round"], shape[1]),
        "node": np.tile(np.arange(shape[1]), shape[0]),
    }
    if labels := history.meta.get("nodes"):
        table["label"] = list(labels) * shape[0]
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
