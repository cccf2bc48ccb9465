"""The record ``run.json`` of a run, its learning curves, and what is shown of it."""

import copy
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from topofl._support.public import warn_caller
from topofl._support.table import NotApplicable, Table
from topofl.history import SECONDS, History
from topofl.history.statistics import spread_over_nodes

ABOUT = "store.json"
"""The file of a store with the version of its layout."""

RECORD = "run.json"
"""The file of a finished run with its settings, curves, cost and environment."""


def flat_settings(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the entries of nested tables by dotted names, those of ``point`` by their own.

    Lists in it are copies: changing the result does not change the tables.

    Examples
    --------
    >>> flat_settings({"data": {"alpha": 0.1}, "point": {"lr": 1}})
    {'data.alpha': 0.1, 'lr': 1}
    """
    found: dict[str, Any] = {}
    for name, value in tables.items():
        if not isinstance(value, Mapping):
            found[f"{prefix}{name}"] = copy.deepcopy(value)
        elif prefix == "" and name == "point":
            found |= copy.deepcopy(dict(value))
        else:
            found |= flat_settings(value, f"{prefix}{name}.")
    return found


def read_record(path: Path, remedy: str = "") -> dict[str, Any] | None:
    """Return the object in a JSON file, None if there is no file, or raise ``ValueError``."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; {remedy or _remedy(path)}") from error
    if not isinstance(found, dict):
        raise ValueError(
            f"{path} is damaged: it must hold a JSON object; {remedy or _remedy(path)}"
        )
    return found


def in_folder_of_run(path: Path) -> bool:
    """Return whether there is this record, in a folder of ``topofl run`` and not in a store."""
    is_key = not set(path.absolute().parent.name) - set("0123456789abcdef")
    is_run = (path.parent / "config.toml").is_file()
    return is_run and path.is_file() and not (is_key or (path.parents[1] / ABOUT).exists())


def _remedy(path: Path) -> str:
    if path.name == RECORD and in_folder_of_run(path.absolute()):
        place = quote(str(path.parent))
        return (
            f"to train the run again, move {place}/config.toml elsewhere, remove the folder "
            f"{place}, and run the configuration: topofl run config.toml --out {place}"
        )
    if path.name == RECORD:
        store, key = quote(str(path.parents[1])), path.parent.name
        return f"to train the run again: topofl runs {store} --where key={key} --remove"
    return "remove it"


def readable(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None with a warning if it is damaged, as if not there."""
    try:
        return read_record(path)
    except ValueError as error:
        warn_caller(f"{error}; it is left out")
        return None


def record_of(
    key: str, history: History, tables: Mapping[str, Any], note: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the contents of ``run.json``: key, configuration, curves and further entries."""
    return {"key": key, "tables": tables, "curves": curves_of(history), **(note or {})}


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
        ``before_exchange`` has their names and the ``bytes`` and ``messages`` sent until then.

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
    totals = {
        name: np.concatenate([[0], np.cumsum(history.rounds[name])])
        for name in ("bytes", "messages")
    }
    columns |= {name: total[rounds].tolist() for name, total in totals.items()}
    if SECONDS in history.rounds:
        columns["seconds"] = _plain(np.concatenate([[0.0], history.rounds[SECONDS]])[rounds])
    scored = [name for name in history.score_columns if name in history.evaluations]
    early = [name for name in scored if history.score_columns[name].stage == "before_exchange"]
    if early:
        until = np.maximum(0, rounds - 1)
        sent = {name: total[until].tolist() for name, total in totals.items()}
        columns["before_exchange"] = {"scores": early, **sent}
    columns["low_is_good"] = {name: history.low_is_good(name) for name in scored}
    columns["scores"] = {
        name: {
            statistic: _plain(numbers)
            for statistic, numbers in spread_over_nodes(
                history.evaluations[name], history.low_is_good(name)
            ).items()
        }
        for name in scored
    }
    return columns


def _plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON values: None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


BOTH = {"": "mean", " worst tenth": "worst_tenth"}
"""Statistics over nodes in a table of results, by the ends of their headings."""


def cell_of(value: Any) -> Any:
    """Return the value of a setting as a cell.

    Examples
    --------
    >>> cell_of(None), cell_of(0.5), cell_of([1, 2])
    ('none', 0.5, '[1, 2]')
    """
    if value is None:
        return "none"
    return value if isinstance(value, str | int | float) else str(value)


def results_of(
    runs: Sequence[Mapping[str, Any] | NotApplicable], statistics: Mapping[str, str] = BOTH
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return headings and a row per run: its last round, final scores and megabytes.

    Parameters
    ----------
    runs
        The curves of each run, or why it has none.
    statistics
        Statistics over nodes by the ends of their headings.
    """
    finished = [own for own in runs if not isinstance(own, NotApplicable)]
    scores = list(dict.fromkeys(name for own in finished for name in own["scores"]))
    heads = ["round", *(f"{name}{end}" for name in scores for end in statistics), "MB sent"]
    rows = []
    for own in runs:
        if isinstance(own, NotApplicable):
            rows.append((own,) * len(heads))
            continue
        cells = [own["round"][-1]]
        for name in scores:
            why = f"no finite {name}" if name in own["scores"] else f"{name} was not evaluated"
            for statistic in statistics.values():
                last = own["scores"].get(name, {}).get(statistic, [None])[-1]
                cells.append(NotApplicable(why) if last is None else last)
        rows.append((*cells, own["bytes"][-1] / 1e6))
    return heads, rows


def heads_of(settings: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the names of settings as columns, different from those of the `others`.

    Arguments of a user's function have the names that their author gave them.

    Examples
    --------
    >>> heads_of(["algorithm.lr", "round"], ["round", "accuracy"])
    ['algorithm.lr', 'setting round']
    """
    heads = list(settings)
    for k in range(len(heads)):
        while heads[k] in others or heads.count(heads[k]) > 1:
            heads[k] = f"setting {heads[k]}"
    return heads


def settings_as_html(settings: Mapping[str, Any]) -> str:
    """Return a table of settings."""
    rows = tuple((name, cell_of(value)) for name, value in settings.items())
    return Table(("setting", "value"), rows)._repr_html_()
