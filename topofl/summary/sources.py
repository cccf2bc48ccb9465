"""Runs of any origin as one kind of entry: settings, curves, and how to get the history."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topofl import config
from topofl._spec import at
from topofl._support.calls import NONE
from topofl._support.check import check_path, shown
from topofl.clocks import as_clock
from topofl.history import History, saved_in
from topofl.runs import Failure, RunStore, StoredRun, Sweep, curves_of
from topofl.runs.record import flat_settings

MEMBERS = "data.members"
"""A digest of the examples that each node holds: as a seed, it says which partition was drawn."""

POSITION = "position"
"""Stands for the seed of runs of a name whose seeds are not known."""

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


def is_seed(name: str) -> bool:
    """Return whether a setting is a seed, over which summaries average.

    Examples
    --------
    >>> is_seed("run.seed"), is_seed("data.split_seed"), is_seed("data.alpha")
    (True, True, False)
    """
    is_named = name.rpartition(".")[2] == "seed" or name.endswith("_seed")
    return is_named or name in (MEMBERS, POSITION)


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
    settings |= flat_settings({"hardware": meta.get("hardware") or {}})
    if len(history.matrices):
        settings[MIXING] = history.matrices[0].name.partition("(")[0]
    return settings | {name: meta[key] for key, name in _KNOWN.items() if key in meta}


_CLOCK = re.compile(r"(?:.*\.)?clock(?:\.(\w+))?")
"""Setting of a clock, as text or by argument; methods may have it in a phase of their own."""


def timing_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the simulated seconds of a run, by the same names for all.

    They are those of the hardware or else of the clock, which is the default one if a configuration
    has none.

    Examples
    --------
    >>> timing_of({"algorithm.events.clock.delay": "0.1", "algorithm.lr": 0.5})
    {'clock.compute': '1', 'clock.delay': '0.1'}
    >>> timing_of({"algorithm.clock": "Clock(delay=0.10)"})
    {'clock.compute': '1', 'clock.delay': '0.1'}
    """
    hardware = {name: x for name, x in settings.items() if name.startswith("hardware.")}
    if hardware:
        return {name: x for name, x in hardware.items() if name != "hardware.waiting"}
    found = {m[1]: x for name, x in settings.items() if (m := _CLOCK.fullmatch(name))}
    text = found.pop(None, None)
    try:
        found = as_clock(found or (None if text == NONE else text)).settings
    except (TypeError, ValueError):  # times that a user defined
        found = found or {"text": text}
    return {f"clock.{name}": x for name, x in found.items()}


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
        own = {name: x for name, x in self.settings.items() if not name.startswith("hardware.")}
        settings = own | flat_settings({"hardware": history.meta["hardware"]})
        return replace(self, settings=settings, curves=curves_of(history), load=lambda: history)


WANTED = (
    "runs of a sweep or of a store, the path of a store, folders of topofl run, or a mapping from "
    "names to a History or a list of them"
)


def entries_of(runs: Any) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the runs in anything that :func:`topofl.summarize` takes, and sentences about them.

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
    >>> history = History({"seed": 3}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))
    >>> [entry.settings["run.seed"] for entry in entries_of({"ring": [history]})[0]]
    [3]
    """
    failed = 0
    if isinstance(runs, Mapping):
        found = _named(runs)
    else:
        single = str | os.PathLike | RunStore | Sweep | History
        message = f"`runs` must be {WANTED}, got {shown(runs)}"
        found, failed = _listed(_items([runs] if isinstance(runs, single) else runs, message))
    verb = "are" if failed > 1 else "is"
    notes = (f"{failed} run{'s' * (failed > 1)} failed and {verb} absent",) if failed else ()
    if not found:
        why = f"; {notes[0]}" if notes else ""
        raise ValueError(f"`runs` must contain at least one finished run, got none{why}")
    rows = comparable([entry.settings for entry in found])
    entries = (replace(one, settings=row) for one, row in zip(found, rows, strict=True))
    return tuple(entries), notes


def _items(value: Any, message: str) -> list[Any]:
    """Return the items of anything that has some, or raise ``TypeError`` with a message."""
    if not isinstance(value, str | bytes | Mapping):
        try:
            return list(value)
        except TypeError as error:  # also from some arrays that claim to be iterable
            raise TypeError(message) from error
    raise TypeError(message)


def _listed(items: Iterable[Any]) -> tuple[list[Entry], int]:
    """Return the runs in a sequence of any kinds of items, and the number of those that failed."""
    entries: list[Entry] = []
    failed = 0
    for item in items:
        if isinstance(item, str | os.PathLike):
            item = _of_path(check_path("runs", item))
        if isinstance(item, Entry):
            entries.append(item)
        elif isinstance(item, StoredRun | History):
            entries.append(_entry(item, f"run {len(entries) + 1}"))
        elif isinstance(item, Failure):
            failed += 1
        elif isinstance(item, Sweep):
            entries += [_entry(run) for run in item.runs]
            failed += len(item.failures)
        elif isinstance(item, RunStore):
            entries += [_entry(run) for run in item.runs()]
            failed += len(item.failures())
        else:
            raise TypeError(f"`runs` must be {WANTED}, got an item {shown(item)}")
    return entries, failed


def _entry(run: History | StoredRun, name: str = "") -> Entry:
    """Return a run; a stored one has its key as the name."""
    if isinstance(run, StoredRun):
        return Entry(run.key, run.settings, run.curves, lambda: run.history)
    return Entry(name, settings_of(run), curves_of(run), lambda: run)


def _of_path(path: Path) -> Entry | RunStore:
    """Return the run in a folder, or the store that it is."""
    if not path.exists():
        raise FileNotFoundError(f"`runs` must be {WANTED}, got {path}, which does not exist")
    if saved_in(path / "history") is None and saved_in(path) is None:
        if (path / "config.toml").is_file():
            raise FileNotFoundError(
                f"`runs` must be finished, {path} has no history; finish it with "
                f"{shlex.join(['topofl', 'resume', str(path)])}, or leave it out"
            )
        return RunStore(path)
    with at(f"{path}:"):
        history = History.load(path)
        settings = settings_of(history)
        if (path / "config.toml").is_file():
            settings = flat_settings(config.read(path / "config.toml"))
    return Entry(str(path), settings, curves_of(history), lambda: history)


def _named(runs: Mapping[Any, Any]) -> list[Entry]:
    """Return the runs of all names, with their settings.

    If seeds are unknown in all names, runs are paired by their positions.

    Raises
    ------
    ValueError
        If runs of some names are distinct by seeds and others are not, so that they cannot be
        paired; if a name has the same run twice, or two names have the same run.
    """
    histories = {name: _histories(name, value) for name, value in runs.items()}
    items = [(name, k, one) for name, own in histories.items() for k, one in enumerate(own)]
    if len({type(one) for *_, one in items}) > 1:  # files have settings that metadata do not have
        items = [
            (name, k, one.history if isinstance(one, StoredRun) else one) for name, k, one in items
        ]
    entries = []
    for name, k, one in items:
        text = name if isinstance(name, str) else shown(name)
        entry = _entry(one)
        settings = {"name": text, **entry.settings}
        entries.append(replace(entry, name=f"{text}, run {k + 1}", settings=settings))
    if not _lack_seeds(items, entries):
        return entries
    return [
        replace(
            entry,
            settings={
                **{key: x for key, x in entry.settings.items() if key != "run.seed"},
                POSITION: k,
            },
        )
        for (_, k, _), entry in zip(items, entries, strict=True)
    ]


def _histories(name: Any, value: Any) -> list[History | StoredRun]:
    """Return the runs of a name, or raise ``TypeError``."""
    message = f"`runs[{shown(name)}]` must be a History or a list of them, got {shown(value)}"
    found = _items([value] if isinstance(value, History | StoredRun) else value, message)
    for one in found:
        if not isinstance(one, History | StoredRun):
            raise TypeError(f"`runs[{shown(name)}]` must contain histories, got {shown(one)}")
    return found


def _lack_seeds(
    items: Sequence[tuple[Any, int, History | StoredRun]], entries: Sequence[Entry]
) -> bool:
    """Return whether seeds do not distinguish the runs of names; errors as :func:`_named`.

    Older histories, which do not say which partition they had, are copies only if their curves are
    equal, and those of unknown seeds, which may agree by chance, if they are the same object. Runs
    of two names may have equal settings, for which the names stand, but not equal curves, too.
    """
    copies, shared = [], []
    seeds: dict[Any, list[Any]] = {}
    settings_of_name: dict[Any, set[str]] = {}
    within: dict[Any, int] = {}
    anywhere: dict[Any, Any] = {}
    for (name, k, one), entry in zip(items, entries, strict=True):
        seed = entry.settings.get("run.seed")
        seeds.setdefault(name, []).append(seed)
        own = ((key, str(x)) for key, x in entry.settings.items() if key != "name")
        settings, curves = repr(sorted(own)), repr(entry.curves)
        settings_of_name.setdefault(name, set()).add(settings)
        says_all = isinstance(one, StoredRun) or MEMBERS in entry.settings
        what = id(one) if seed is None else (settings, "" if says_all else curves)
        if (first := within.setdefault((name, what), k)) != k:
            copies.append((name, first, k))
        for key in (id(one), (settings, curves))[: 1 if seed is None else 2]:
            if (other := anywhere.setdefault(key, name)) != name:
                shared.append((other, name))
    unclear = [
        name for name, own in seeds.items() if None in own or len(settings_of_name[name]) < len(own)
    ]
    if unclear and len(unclear) < len(seeds):
        raise ValueError(
            f"`runs[{shown(unclear[0])}]` must have a different seed for each run, as other names "
            f"have, got {shown(seeds[unclear[0]])}; leave copies out"
        )
    for name, first, second in copies:
        raise ValueError(
            f"`runs[{shown(name)}]` must contain runs that differ in a setting or a seed, its "
            f"items {first} and {second} do not; leave copies out"
        )
    for one, other in shared:
        raise ValueError(
            "`runs` must have different runs under each name, got the same one under "
            f"{shown(one)} and {shown(other)}; leave one of them out"
        )
    return bool(unclear)
