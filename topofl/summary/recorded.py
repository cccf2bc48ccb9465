"""What histories say about their settings, and which of it distinguishes several runs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from topofl.history import History
from topofl.runs.record import flat_settings
from topofl.summary.settings import MEMBERS, is_seed

__all__ = ["comparable", "settings_of"]

_SEED = re.compile(r"(?:, *)?\b(\w*seed)=(\d+)")
"""A seed in the name of a topology or a partition, as in ``random_regular(n=10, k=4, seed=3)``."""

MODEL, PARAMETERS = "model", "model.parameters"
"""The structure of the model, and its number of parameters, which older histories have only."""

_KNOWN = {
    **{"seed": "run.seed", "rounds": "run.rounds", "init": "run.init", "n": "data.n"},
    **{"model": MODEL, "parameters": PARAMETERS, "augment": "data.augment"},
}
"""Settings by the names that metadata give them."""

MIXING = "mixing.name"
"""The rule of the weights of a history, which its topology and algorithm usually decide."""


def settings_of(history: History) -> dict[str, Any]:
    """Return the settings of a run by dotted names, as far as its history has them.

    Examples
    --------
    >>> import numpy as np
    >>> scores = {"round": np.array([0]), "accuracy": np.array([[0.5, 0.7]])}
    >>> meta = {"algorithm": "dsgd", "topology": "random_regular(n=8, k=4, seed=3)", "seed": 1}
    >>> found = settings_of(History(meta, {"messages": [], "bytes": []}, scores, np.zeros((0, 2))))
    >>> found["topology.name"], found["topology.seed"], found["run.seed"]
    ('random_regular(n=8, k=4)', 3, 1)
    """
    meta = history.meta
    settings = flat_settings({"algorithm": meta.get("settings") or {}})
    settings["algorithm.name"] = meta.get("algorithm")
    for table, key in (("topology", "topology"), ("data", "clients")):
        text = str(meta.get(key))
        settings[f"{table}.name"] = _SEED.sub("", text)
        settings |= {f"{table}.{name}": int(seed) for name, seed in _SEED.findall(text)}
    if isinstance(drawn := meta.get("partition"), Mapping):
        known = {"data.seed": drawn.get("seed"), MEMBERS: drawn.get("members")}
        settings |= {name: value for name, value in known.items() if value is not None}
    if "attackers" in meta:
        settings["attackers"] = str(meta["attackers"])
    if isinstance(task := meta.get("task"), Mapping):
        settings["task"] = task.get("name")
    if len(history.matrices):
        settings[MIXING] = history.matrices[0].name.partition("(")[0]
    return settings | {name: meta[key] for key, name in _KNOWN.items() if key in meta}


def comparable(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the settings of runs without those that follow from others or only some runs know.

    Older histories do not say which model and which partition they had, and settings from files
    say it in other ways.

    Examples
    --------
    >>> rows = [{"topology.name": "ring", "mixing.name": "metropolis_hastings", "run.seed": 0}]
    >>> comparable(rows)
    [{'topology.name': 'ring', 'run.seed': 0}]
    """
    left_out = {name for name in (MODEL, MEMBERS) if any(name not in row for row in rows)}
    if MODEL not in left_out:
        left_out.add(PARAMETERS)
    if any(MIXING in row for row in rows) and _follows(rows, MIXING):
        left_out.add(MIXING)
    if all(left_out.isdisjoint(row) for row in rows):
        return list(rows)
    return [{name: x for name, x in row.items() if name not in left_out} for row in rows]


def _follows(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether runs with equal other settings, apart from seeds, have the same value."""
    found: dict[str, Any] = {}
    for row in rows:
        others = repr(sorted((k, str(v)) for k, v in row.items() if k != name and not is_seed(k)))
        if found.setdefault(others, row.get(name)) != row.get(name):
            return False
    return True
