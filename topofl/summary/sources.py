"""Runs of any origin as one kind of entry: settings, curves, and how to get the history."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topofl import config
from topofl._spec import at
from topofl._support.check import check_path, shown
from topofl.config.toml import resume_command
from topofl.history import History, saved_in
from topofl.runs import Failure, RunStore, StoredRun, Sweep, curves_of
from topofl.runs.records import flat_settings
from topofl.summary.recorded import comparable, settings_of
from topofl.summary.settings import MEMBERS, POSITION

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
    >>> history = History({"seed": 3}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))
    >>> [entry.settings["run.seed"] for entry in entries_of({"ring": [history]}).entries]
    [3]
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
    rows = comparable([entry.settings for entry in found.entries])
    entries = [replace(one, settings=row) for one, row in zip(found.entries, rows, strict=True)]
    return replace(found, entries=tuple(entries))


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
                f"`runs` must be finished, {path} has no history; finish it with "
                f"{resume_command(path)}, or leave it out"
            )
        return RunStore(path)
    with at(f"{path}:"):
        history = History.load(path)
        settings = settings_of(history)
        if (path / "config.toml").is_file():
            settings = flat_settings(config.read(path / "config.toml"))
    return Entry(str(path), settings, curves_of(history), lambda: history)


def _of_history(history: History, name: str) -> Entry:
    return Entry(name, settings_of(history), curves_of(history), lambda: history)


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
    items = [one for own in histories.values() for one in own]
    if len({type(one) for one in items}) > 1:  # files have settings that metadata do not have
        items = [_history(one) for one in items]
    texts = [
        (name if isinstance(name, str) else shown(name), k)
        for name, own in histories.items()
        for k in range(len(own))
    ]
    rows = [one.settings if isinstance(one, StoredRun) else settings_of(one) for one in items]
    entries = [
        Entry(f"{text}, run {k + 1}", {"name": text, **row}, _curves(one), _loader(one))
        for (text, k), row, one in zip(texts, rows, items, strict=True)
    ]
    lack_seeds = _lack_seeds(histories, entries)
    _check_groups(histories, entries)
    return _by_position(entries) if lack_seeds else entries


def _lack_seeds(
    histories: Mapping[Any, Sequence[History | StoredRun]], entries: Sequence[Entry]
) -> bool:
    """Return whether seeds do not distinguish the runs of names; errors as :func:`_named`."""
    unclear, copies, start = [], [], 0
    for name, own in histories.items():
        part = entries[start : start + len(own)]
        start += len(own)
        seeds = [entry.settings.get("run.seed") for entry in part]
        if None in seeds or len({_as_key(entry) for entry in part}) < len(part):
            unclear.append((name, seeds))
        copies += [(name, *pair) for pair in _copies(part, own)]
    if unclear and len(unclear) < sum(map(bool, histories.values())):
        name, seeds = unclear[0]
        raise ValueError(
            f"`runs[{shown(name)}]` must have a different seed for each run, as other names "
            f"have, got {shown(seeds)}; leave copies out"
        )
    if copies:
        name, first, second = copies[0]
        raise ValueError(
            f"`runs[{shown(name)}]` must contain runs that differ in a setting or a seed, its "
            f"items {first} and {second} do not; leave copies out"
        )
    return bool(unclear)


def _check_groups(histories: Mapping[Any, Sequence[Any]], entries: Sequence[Entry]) -> None:
    """Raise ``ValueError`` if two names have the same run, or copies of it of a known seed."""
    names = [name for name, own in histories.items() for _ in own]
    items = [one for own in histories.values() for one in own]
    seen: dict[Any, Any] = {}
    for name, one, entry in zip(names, items, entries, strict=True):
        settings = {key: x for key, x in entry.settings.items() if key != "name"}
        known = entry.settings.get("run.seed") is not None
        text = repr((sorted((key, str(x)) for key, x in settings.items()), entry.curves))
        for key in (id(one), text)[: 1 + known]:
            if (other := seen.setdefault(key, name)) != name:
                raise ValueError(
                    f"`runs` must have different runs under each name, got the same one under "
                    f"{shown(other)} and {shown(name)}; leave one of them out"
                )


def _copies(entries: Sequence[Entry], own: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield the positions of two runs with equal settings and seeds.

    Older histories, which do not say which partition they had, are copies only if their curves are
    equal, and those of unknown seeds, which may agree by chance, if they are the same object.
    """
    seen: dict[Any, int] = {}
    for k, (entry, one) in enumerate(zip(entries, own, strict=True)):
        says_all = isinstance(one, StoredRun) or MEMBERS in entry.settings
        key = (_as_key(entry), "" if says_all else repr(entry.curves))
        first = seen.setdefault(id(one) if entry.settings.get("run.seed") is None else key, k)
        if first != k:
            yield first, k


def _as_key(entry: Entry) -> str:
    return repr(sorted((name, str(value)) for name, value in entry.settings.items()))


def _by_position(entries: Sequence[Entry]) -> list[Entry]:
    """Return the runs of names with their positions in place of the seed of the run."""
    found, count = [], Counter[Any]()
    for entry in entries:
        settings = {key: x for key, x in entry.settings.items() if key != "run.seed"}
        position = {POSITION: count[entry.settings["name"]]}
        count[entry.settings["name"]] += 1
        found.append(replace(entry, settings=settings | position))
    return found


def _histories(name: Any, value: Any) -> list[History | StoredRun]:
    """Return the runs of a name, or raise ``TypeError``."""
    message = f"`runs[{shown(name)}]` must be a History or a list of them, got {shown(value)}"
    found = _items([value] if isinstance(value, History | StoredRun) else value, message)
    for one in found:
        if not isinstance(one, History | StoredRun):
            raise TypeError(f"`runs[{shown(name)}]` must contain histories, got {shown(one)}")
    return found


def _history(run: History | StoredRun) -> History:
    return run if isinstance(run, History) else run.history


def _curves(run: History | StoredRun) -> Mapping[str, Any]:
    return curves_of(run) if isinstance(run, History) else run.curves


def _loader(run: History | StoredRun) -> Callable[[], History]:
    return lambda: _history(run)
