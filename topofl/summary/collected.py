"""Runs that are read, checked and sorted into groups: the common start of tables and plots."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from topofl._support.check import shown
from topofl.summary.curves import Curves, check_column, goes_down
from topofl.summary.settings import MEMBERS, MISSING, POSITION, Settings, is_seed, levels_text
from topofl.summary.sources import Entry, Sources, entries_of

__all__ = ["Collected", "collect", "sort_key"]


AVERAGED = {MEMBERS: "partitions of the data", POSITION: "runs of unknown seeds"}
"""What notes call things that are averaged over and have no seed of their own."""


@dataclass(frozen=True, eq=False)
class Collected:
    """R runs in G groups.

    Parameters
    ----------
    entries
        The runs.
    settings
        Their settings.
    by
        Full names of the settings that make a group.
    labels
        Short names of `by`, for headings.
    over
        Full names of settings to average over in addition to seeds.
    groups
        The values of `by`, one tuple per group, sorted.
    group_of
        (R,) group of each run.
    column
        Name of the column of scores.
    notes
        Sentences for the reader.
    """

    entries: tuple[Entry, ...]
    settings: Settings
    by: tuple[str, ...]
    labels: tuple[str, ...]
    over: tuple[str, ...]
    groups: tuple[tuple[Any, ...], ...]
    group_of: np.ndarray
    column: str
    notes: tuple[str, ...]

    def statistic(self, name: str) -> Curves:
        """Return a statistic over nodes: ``"mean"``, ``"worst"``, ``"worst_tenth"``, ``"best"``."""
        return Curves.of([entry.curves["scores"][self.column][name] for entry in self.entries])

    def cost(self, name: str) -> Curves:
        """Return ``"round"``, ``"bytes"``, ``"seconds"``; runs that lack it have no numbers.

        For scores before an exchange, the bytes of that exchange do not count.
        """
        rows = []
        for entry in self.entries:
            early = entry.curves.get("before_exchange", {})
            is_early = name == "bytes" and self.column in early.get("scores", ())
            rows.append((early if is_early else entry.curves).get(name) or ())
        return Curves.of(rows)

    @cached_property
    def low_is_good(self) -> bool:
        """Whether low values of the score are good."""
        known = {entry.curves.get("low_is_good", {}).get(self.column) for entry in self.entries}
        if len(known) == 1 and None not in known:
            return bool(*known)
        return goes_down(self.column, self.statistic("best"), self.statistic("worst"))

    @property
    def averaged(self) -> list[str]:
        """Settings over which groups may differ, and do: seeds, and those in `over`."""
        return [name for name in self.settings.varying if is_seed(name) or name in self.over]

    @property
    def averaged_text(self) -> str:
        """What means are over, as text: seeds, and settings in `over`, that vary within a group."""
        inside = self.settings.vary_within(self.group_of, (), seeds=True)
        names = [name for name in self.averaged if name in inside]
        if "data.seed" in names and MEMBERS in names:  # the seed decides the members
            names.remove(MEMBERS)
        return ", ".join(AVERAGED.get(name, name) for name in names)

    def name_of(self, group: int, *, without: int = -1) -> str:
        """Return a group's values as text, numbers with the names of their settings.

        Parameters
        ----------
        group
            Number of the group.
        without
            Position in `by` of a setting to leave out.
        """
        texts = [
            value if isinstance(value, str) else f"{label}={value}"
            for k, (label, value) in enumerate(zip(self.labels, self.groups[group], strict=True))
            if k != without
        ]
        return ", ".join(texts) or "all runs"


def collect(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    over: str | Sequence[str] = (),
    hardware: Any = None,
) -> Collected:
    """Return the runs with their groups; arguments and errors as :func:`topofl.summarize`."""
    if isinstance(runs, Collected) and by is None and column is None and not over:
        return runs
    if isinstance(runs, Collected):
        found = Sources(runs.entries, named=runs.by == ("name",))
    else:
        found = entries_of(runs)
    if hardware is not None:
        timed = tuple(entry.on(hardware) for entry in found.entries)
        found = Sources(timed, found.notes, found.named)
    settings = Settings.of([entry.settings for entry in found.entries])
    column = check_column(found.entries, column)
    full = tuple(dict.fromkeys(settings.resolve("by", name) for name in _names("by", by))) or (
        ("name",) if found.named else tuple(settings.default())
    )
    extra = _expanded(settings, [settings.resolve("over", name) for name in _names("over", over)])
    groups, group_of = _groups(settings, full, in_order=found.named)
    labels = _short(full)
    named = [*_expanded(settings, full), *extra]
    _check_averages(settings, groups, group_of, named)
    _check_distinct(found.entries, settings)
    notes = (*found.notes, *_confounded(settings, named, group_of))
    return Collected(
        found.entries, settings, full, labels, tuple(extra), groups, group_of, column, notes
    )


def _names(argument: str, value: Any) -> list[Any]:
    """Return names given as one text, as a sequence of them, or as None."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:
        raise TypeError(
            f"`{argument}` must be the name of a setting or a list of names, got {shown(value)}"
        ) from None


def _expanded(settings: Settings, names: Sequence[str]) -> list[str]:
    """Return settings with tables replaced by their settings."""
    return [member for name in names for member in settings.members(name)]


def _short(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without their tables, unless two would then be equal."""
    last = [name.rpartition(".")[2] for name in names]
    return tuple(
        name if short == "name" or last.count(short) > 1 else short
        for name, short in zip(names, last, strict=True)
    )


def _groups(
    settings: Settings, by: Sequence[str], *, in_order: bool
) -> tuple[tuple[tuple[Any, ...], ...], np.ndarray]:
    """Return the sorted groups and the group of each run; numbers come before text."""
    n, columns = settings.n, []
    for name in by:
        codes, levels = settings.column(name)
        order = (
            range(len(levels))
            if in_order
            else sorted(range(len(levels)), key=[sort_key(value) for value in levels].__getitem__)
        )
        rank = np.empty(len(levels), np.int64)
        rank[list(order)] = np.arange(len(levels))
        columns.append((rank[codes], [levels[k] for k in order]))
    if not columns:
        return ((),), np.zeros(n, np.int64)
    rows, group_of = np.unique(
        np.stack([codes for codes, _ in columns]), axis=1, return_inverse=True
    )
    groups = tuple(
        tuple(levels[k] for k, (_, levels) in zip(row, columns, strict=True)) for row in rows.T
    )
    return groups, group_of.reshape(-1)


def sort_key(value: Any) -> tuple[Any, ...]:
    """Return the sort key of a value: numbers first, and text by the numbers in it.

    Examples
    --------
    >>> sorted(["k=10", 3, "k=9", 0.5], key=sort_key)
    [0.5, 3, 'k=9', 'k=10']
    """
    if isinstance(value, int | float) and value == value:
        return 0, float(value)
    parts = re.split(r"(\d+)", str(value))  # text and digits in turn
    return 1, *(int(part[:20]) if k % 2 else part for k, part in enumerate(parts))


def _check_averages(
    settings: Settings, groups: Sequence[Any], group_of: np.ndarray, named: Sequence[str]
) -> None:
    """Raise unless groups differ within themselves in seeds and named settings only."""
    forgotten = settings.vary_within(group_of, named)
    if not forgotten:
        return
    levels = {name: list(settings.levels[name]) for name in forgotten}
    if named == ["name"]:
        codes = settings.codes[forgotten[0]]
        k = next(k for k in range(len(groups)) if len(set(codes[group_of == k].tolist())) > 1)
        inside = {name: dict.fromkeys(settings.codes[name][group_of == k]) for name in forgotten}
        levels = {
            name: [levels[name][code] for code in codes]
            for name, codes in inside.items()
            if len(codes) > 1
        }
        start = f"`runs[{groups[k][0]!r}]` must contain runs that differ in seeds only, they differ"
        end = "give each setting a name of its own, or add it to `over` to average over it"
    else:
        start = "`by` must name every setting that varies, apart from seeds; runs of a group differ"
        end = "add it to `by`, or to `over` to average over it"
    listed = "; ".join(f"{name}: {levels_text(levels[name])}" for name in list(levels)[:5])
    more = f" and {len(levels) - 5} more" if len(levels) > 5 else ""
    raise ValueError(f"{start} in {listed}{more}; {end}")


def _check_distinct(entries: Sequence[Entry], settings: Settings) -> None:
    """Raise if two runs have equal settings and seeds, which would count one result twice."""
    if len(entries) < 2 or not settings.codes:
        return
    rows = np.stack([settings.codes[name] for name in settings.varying or settings.levels])
    _, first, inverse = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    original = first[inverse.reshape(-1)].tolist()
    again = [k for k, same in enumerate(original) if same != k]
    if again:
        one, other = entries[original[again[0]]], entries[again[0]]
        raise ValueError(
            f"`runs` must differ in a setting or a seed, {one.name} and {other.name} do not "
            f"({len(again)} such run{'s' if len(again) > 1 else ''}); leave copies out"
        )


def _confounded(settings: Settings, named: Sequence[str], group_of: np.ndarray) -> list[str]:
    """Return a note on settings that differ between groups without being named.

    Arguments that only some functions have, with the same value in all their runs, do not count.
    Nor does a seed that varies within a group, or what the nodes hold if partitions differ anyway.
    """
    inside = settings.vary_within(group_of, (), seeds=True)
    seeds = [name for name in settings.varying if is_seed(name) and name not in inside]
    if MEMBERS in seeds and {"data.seed", "data.name"} & {*settings.varying}:
        seeds.remove(MEMBERS)
    others = [name for name in settings.varying if name not in named and not is_seed(name)]
    start = "groups also differ in"
    if named == ["name"]:  # names stand for settings, usually one
        others = [name for name in settings.default() if name != "name"]
        others, start = (others, "groups differ in") if len(others) > 1 else ([], start)
    others += [name for name in seeds if name not in named]
    differ = [name for name in others if _differs(settings, name)]
    return [f"{start} {', '.join(differ)}"] if differ else []


def _differs(settings: Settings, name: str) -> bool:
    """Return whether runs that have a setting differ in it; a table always does."""
    if name not in settings.levels:
        return True
    return sum(value is not MISSING for value in settings.levels[name]) > 1
