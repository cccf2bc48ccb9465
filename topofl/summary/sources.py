"""Runs of any origin as one kind of entry: settings, curves, and how to get the history."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topofl import config
from topofl._spec import at
from topofl._support.check import check_path, shown
from topofl.history import History, saved_in
from topofl.runs import Failure, RunStore, StoredRun, Sweep, curves_of
from topofl.runs.records import flat_settings

__all__ = ["Entry", "Sources", "entries_of"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One finished run.

    Parameters
    ----------
    name
        What messages call it: its folder, its key, or the name that a mapping gave it.
    settings
        Its settings by dotted names, such as ``"data.alpha"``.
    curves
        As :func:`topofl.runs.curves_of` returns them.
    load
        Returns its history, which may have to be read.
    """

    name: str
    settings: Mapping[str, Any]
    curves: Mapping[str, Any]
    load: Callable[[], History]

    def on(self, hardware: Any) -> "Entry":
        """Return the run with the seconds that its rounds take on this hardware."""
        with at(f"{self.name}:"):
            history = self.load().with_seconds(hardware, seed=0)
        return replace(self, curves=curves_of(history), load=lambda: history)


@dataclass(frozen=True)
class Sources:
    """The runs found, and what to say about them.

    Parameters
    ----------
    entries
        The finished runs.
    notes
        Sentences for the reader, such as how many runs failed.
    named
        Whether the runs came from a mapping, whose names give groups and their order.
    """

    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = field(default=())
    named: bool = False


WANTED = (
    "runs of a sweep or of a store, the path of a store, folders of topofl run, or a mapping from "
    "names to a History or a list of them"
)


def entries_of(runs: Any) -> Sources:
    """Return the runs in anything that :func:`topofl.summarize` takes.

    Raises
    ------
    TypeError
        If `runs`, or an item of it, is of none of these kinds.
    ValueError
        If there is no run, or files are damaged.
    OSError
        If a folder does not exist or cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> scores = {"round": np.array([0]), "accuracy": np.array([[0.5, 0.7]])}
    >>> history = History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))
    >>> [entry.settings for entry in entries_of({"ring": [history]}).entries]
    [{'name': 'ring', 'run.seed': 0}]
    """
    if isinstance(runs, Mapping):
        found = Sources(tuple(_named(runs)), named=True)
    else:
        single = str | os.PathLike | RunStore | Sweep | History
        items = [runs] if isinstance(runs, single) else runs
        found = _listed(_items(items, f"`runs` must be {WANTED}, got {shown(runs)}"))
    if not found.entries:
        why = f"; {found.notes[0]}" if found.notes else ""
        raise ValueError(f"`runs` must contain at least one finished run, got none{why}")
    return found


def _items(value: Any, message: str) -> list[Any]:
    """Return the items of anything that has some, or raise ``TypeError`` with a message."""
    if not isinstance(value, str | bytes | Mapping):
        try:
            return list(value)
        except TypeError as error:  # also from some arrays that claim to be iterable
            raise TypeError(message) from error
    raise TypeError(message)


def _listed(items: Iterable[Any]) -> Sources:
    """Return the runs in a sequence of any kinds of items."""
    entries: list[Entry] = []
    failed = 0
    for item in items:
        if isinstance(item, StoredRun):
            entries.append(_stored(item))
        elif isinstance(item, Failure):
            failed += 1
        elif isinstance(item, History):
            entries.append(_of_history(item, f"run {len(entries) + 1}"))
        elif isinstance(item, Sweep):
            entries += [_stored(run) for run in item.runs]
            failed += len(item.failures)
        elif isinstance(item, RunStore):
            entries += [_stored(run) for run in item.runs()]
            failed += len(item.failures())
        elif isinstance(item, str | os.PathLike):
            found = _of_path(check_path("runs", item))
            if isinstance(found, RunStore):
                entries += [_stored(run) for run in found.runs()]
                failed += len(found.failures())
            else:
                entries.append(found)
        else:
            raise TypeError(f"`runs` must be {WANTED}, got an item {shown(item)}")
    return Sources(tuple(entries), (_failures(failed),) if failed else ())


def _failures(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''} failed and {'are' if count > 1 else 'is'} absent"


def _stored(run: StoredRun) -> Entry:
    return Entry(run.key, run.settings, run.curves, lambda: run.history)


def _of_path(path: Path) -> Entry | RunStore:
    """Return the run in a folder, or the store that it is."""
    if not path.exists():
        raise FileNotFoundError(f"`runs` must be {WANTED}, got {path}, which does not exist")
    if saved_in(path / "history") is None and saved_in(path) is None:
        if (path / "config.toml").is_file():
            raise FileNotFoundError(
                f"`runs` must be finished, {path} has no history; finish it with topofl resume "
                f"{path}, or leave it out"
            )
        return RunStore(path)
    with at(f"{path}:"):
        history = History.load(path)
        settings = _of_meta(history.meta)
        if (path / "config.toml").is_file():
            settings = flat_settings(config.read(path / "config.toml"))
    return Entry(str(path), settings, curves_of(history), lambda: history)


def _of_history(history: History, name: str) -> Entry:
    return Entry(name, _of_meta(history.meta), curves_of(history), lambda: history)


def _named(runs: Mapping[Any, Any]) -> Iterator[Entry]:
    """Yield the runs of all names, with their seeds or, if no name has distinct ones, positions.

    Raises
    ------
    ValueError
        If some names have distinct seeds and others do not, so that runs cannot be paired.
    """
    histories = {name: _histories(name, value) for name, value in runs.items()}
    seeds = {name: [_seed(one) for one in own] for name, own in histories.items()}
    unclear = [n for n, own in seeds.items() if None in own or len(set(own)) < len(own)]
    if unclear and len(unclear) < len(seeds):
        raise ValueError(
            f"`runs[{shown(unclear[0])}]` must have a different seed for each run, as other names "
            f"have, got {shown(seeds[unclear[0]])}; leave copies out"
        )
    for name, own in histories.items():
        text = name if isinstance(name, str) else shown(name)
        for seed, one in zip(range(len(own)) if unclear else seeds[name], own, strict=True):
            curves = curves_of(one) if isinstance(one, History) else one.curves
            settings = {"name": text, "run.seed": seed}
            yield Entry(f"{text}, seed {seed}", settings, curves, _loader(one))


def _histories(name: Any, value: Any) -> list[History | StoredRun]:
    """Return the runs of a name, or raise ``TypeError``."""
    message = f"`runs[{shown(name)}]` must be a History or a list of them, got {shown(value)}"
    found = _items([value] if isinstance(value, History | StoredRun) else value, message)
    for one in found:
        if not isinstance(one, History | StoredRun):
            raise TypeError(f"`runs[{shown(name)}]` must contain histories, got {shown(one)}")
    return found


def _seed(run: History | StoredRun) -> Any:
    return run.meta.get("seed") if isinstance(run, History) else run.settings.get("run.seed")


def _loader(run: History | StoredRun) -> Callable[[], History]:
    return lambda: run if isinstance(run, History) else run.history


_SEED = re.compile(r"(?:, *)?\b(\w*seed)=(\d+)")
"""A seed in the name of a topology or a partition, as in ``random_regular(n=10, k=4, seed=3)``."""


def _of_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of a history say about its settings."""
    settings = flat_settings({"algorithm": meta.get("settings") or {}})
    settings["algorithm.name"] = meta.get("algorithm")
    for table, key in (("topology", "topology"), ("data", "clients")):
        text = str(meta.get(key))
        settings[f"{table}.name"] = _SEED.sub("", text)
        settings |= {f"{table}.{name}": int(seed) for name, seed in _SEED.findall(text)}
    if "attackers" in meta:
        settings["attackers"] = str(meta["attackers"])
    known = {"seed": "run.seed", "rounds": "run.rounds", "init": "run.init", "n": "data.n"}
    return settings | {name: meta[key] for key, name in known.items() if key in meta}
