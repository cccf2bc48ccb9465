"""Learning curves of a history as JSON values, small enough to be kept next to every stored run."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from topofl.history import SECONDS, History

__all__ = ["curves_of"]


def curves_of(history: History) -> dict[str, Any]:
    """Return the curves of a run at its evaluations, as JSON values.

    Parameters
    ----------
    history
        The history of a run with E evaluations.

    Returns
    -------
    dict
        Lists of length E: ``round``; ``bytes`` and ``messages`` that all nodes sent up to the end
        of that round; ``seconds`` on the simulated clock, only if the run recorded it. ``scores``
        has an entry for every column of scores, such as ``accuracy``, with statistics over nodes:
        ``mean``, ``worst``, ``worst_tenth`` (mean of the worst tenth of the nodes, rounded down,
        but at least one), ``best`` and ``std`` (population standard deviation). Nodes without a
        score are left out. Numbers that are not finite, which JSON lacks, are None.
        ``low_is_good`` says so by column. If there are scores before an exchange,
        ``before_exchange`` has their names and the ``bytes`` sent until then.

    Examples
    --------
    >>> scores = {"round": np.array([0, 2]), "accuracy": np.array([[0.0, 0.5], [0.5, 1.0]])}
    >>> sent = {"messages": np.array([4, 4]), "bytes": np.array([80, 80])}
    >>> curves = curves_of(History({}, sent, scores, np.zeros((2, 2))))
    >>> curves["round"], curves["bytes"], curves["scores"]["accuracy"]["mean"]
    ([0, 2], [0, 160], [0.25, 0.75])
    """
    rounds = history.evaluations["round"].astype(int)
    columns: dict[str, Any] = {"round": rounds.tolist()}
    for name in ("bytes", "messages"):
        total = np.concatenate([[0], np.cumsum(history.rounds[name])])
        columns[name] = total[rounds].tolist()
    if SECONDS in history.rounds:
        times = np.concatenate([[0.0], history.rounds[SECONDS]])
        columns["seconds"] = _plain(times[rounds])
    scored = [name for name in history.score_columns if name in history.evaluations]
    early = [name for name in scored if history.score_columns[name].stage == "before_exchange"]
    if early:
        total = np.concatenate([[0], np.cumsum(history.rounds["bytes"])])
        sent = total[np.maximum(0, rounds - 1)].tolist()
        columns["before_exchange"] = {"scores": early, "bytes": sent}
    columns["low_is_good"] = {name: history.low_is_good(name) for name in scored}
    columns["scores"] = {
        name: _over_nodes(history.evaluations[name], columns["low_is_good"][name])
        for name in scored
    }
    return columns


def _over_nodes(values: np.ndarray, low_is_good: bool) -> dict[str, list[float | None]]:
    """Return statistics over nodes of scores (E, n)."""
    found: dict[str, list[float]] = {
        key: [] for key in ("mean", "worst", "worst_tenth", "best", "std")
    }
    for row in values:
        wide = row.astype(np.float64)
        known = wide[~np.isnan(wide)]
        worst_first = np.sort(known)[::-1] if low_is_good else np.sort(known)
        worst = worst_first[: max(1, len(known) // 10)]
        with np.errstate(invalid="ignore"):  # infinite losses have no deviation
            numbers = (
                (np.nanmean(wide), worst[0], worst.mean(), worst_first[-1], np.nanstd(wide))
                if len(known)
                else (np.nan,) * 5
            )
        for column, number in zip(found.values(), numbers, strict=True):
            column.append(float(number))
    return {key: _plain(column) for key, column in found.items()}


def _plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON values: None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]
