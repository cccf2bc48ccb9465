"""Runs in groups by their settings, with their curves: the common start of tables and figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from topofl._support.check import did_you_mean, shown
from topofl.summary.sources import MEMBERS, POSITION, Entry, entries_of, is_seed

MISSING = "-"
"""Stands for a setting that a run does not have."""

INCIDENTAL = {
    *("compute.device", "compute.executor", "compute.chunk", "run.progress"),
    *("data.root", "data.cache", "data.verify", "modules.folder"),
}
"""Settings that change results by rounding at most; those of the table ``saving`` do not either."""


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of R runs, each as an array of codes (R,) and the values that these stand for.

    Parameters
    ----------
    codes
        (R,) integers by setting: the position of the run's value in `levels`.
    levels
        The distinct values by setting, in order of occurrence, :data:`MISSING` among them.
    """

    codes: Mapping[str, np.ndarray]
    levels: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Settings":
        """Return the settings of runs, from one mapping per run.

        Examples
        --------
        >>> settings = Settings.of([{"data.alpha": 0.1}, {"data.alpha": 1.0}, {"data.alpha": 0.1}])
        >>> settings.codes["data.alpha"].tolist(), settings.levels["data.alpha"]
        ([0, 1, 0], [0.1, 1.0])
        """
        codes, levels = {}, {}
        for name in dict.fromkeys(name for row in rows for name in row):
            if name in INCIDENTAL or name.startswith("saving."):
                continue
            values = [row.get(name, MISSING) for row in rows]
            if MISSING in values:  # None is no setting where files of some runs leave it out
                values = [MISSING if value is None else value for value in values]
            # lists have no hash
            values = [str(value) if isinstance(value, list | dict) else value for value in values]
            position = {value: k for k, value in enumerate(dict.fromkeys(values))}
            codes[name] = np.fromiter(map(position.__getitem__, values), np.int64, len(values))
            levels[name] = list(position)
        return cls(codes, levels)

    @property
    def varying(self) -> list[str]:
        """Names of settings with more than one value."""
        return [name for name, values in self.levels.items() if len(values) > 1]

    @property
    def tables(self) -> list[str]:
        """Tables of functions with arguments, such as ``"topology"``."""
        return [name.removesuffix(".name") for name in self.levels if name.endswith(".name")]

    def default(self) -> list[str]:
        """Return the settings that vary and are no seeds; tables whose function varies as one."""
        names = [name for name in self.varying if not is_seed(name)]
        tables = [table for table in self.tables if f"{table}.name" in names]
        tables.sort(key=len)  # the outermost table has all settings of those within
        return list(
            dict.fromkeys(
                next((table for table in tables if name.startswith(f"{table}.")), name)
                for name in names
            )
        )

    def resolve(self, argument: str, name: Any) -> str:
        """Return the full name of a setting, or of a table, that `name` is short for.

        Raises
        ------
        TypeError
            If `name` is not text.
        ValueError
            If no setting has this name, with the nearest one, or several have.

        Examples
        --------
        >>> rows = [{"data.alpha": 0.1, "topology.name": "ring", "topology.n": 8, "data.n": 8}]
        >>> settings = Settings.of(rows)
        >>> settings.resolve("by", "alpha"), settings.resolve("by", "topology")
        ('data.alpha', 'topology')
        """
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must contain names of settings, got {shown(name)}")
        if name in self.levels or name in self.tables:
            return name
        found = [full for full in self.levels if full.rpartition(".")[2] == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(
                f"`{argument}` must name one setting, {name!r} may be any of {', '.join(found)}; "
                "give the full name"
            )
        short = {full.rpartition(".")[2] for full in self.levels}
        known = list(dict.fromkeys([*self.tables, *short, *self.levels]))
        listed = ", ".join(self.varying) or ", ".join(self.levels) or "none"
        raise ValueError(
            f"`{argument}` must name settings of the runs, got {shown(name)}"
            f"{did_you_mean(name, known)}; those that vary: {listed}"
        )

    def members(self, name: str) -> list[str]:
        """Return the settings that a full name covers: itself, or those of a table but seeds."""
        if name in self.levels:
            return [name]
        return [full for full in self.levels if full.startswith(f"{name}.") and not is_seed(full)]

    def column(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """Return codes (R,) and values of a setting, or of a table as text such as ``ring``.

        The text of a table has its function, and those of its arguments that vary among the runs
        with this function, seeds apart.
        """
        if name in self.levels:
            return self.codes[name], list(self.levels[name])
        members = self.members(name)
        rows, codes = np.unique(
            np.stack([self.codes[member] for member in members]), axis=1, return_inverse=True
        )
        tuples = [
            tuple(self.levels[member][k] for member, k in zip(members, column, strict=True))
            for column in rows.T
        ]
        return codes.reshape(-1), _specs(members, tuples, name)

    def vary_within(self, groups: np.ndarray) -> list[str]:
        """Return the settings that vary within a group, from the group of each run, (R,)."""
        distinct = len(np.unique(groups))
        return [
            name
            for name in self.varying
            if len(np.unique(groups * len(self.levels[name]) + self.codes[name])) > distinct
        ]


def levels_text(values: Sequence[Any], limit: int = 4) -> str:
    """Return some values of a setting as text, for messages.

    Examples
    --------
    >>> levels_text([0.1, 1.0]), levels_text(range(10))
    ('0.1, 1.0', '0, 1, 2, 3, ... (10 values)')
    """
    listed = ", ".join(str(value) for value in values[:limit])
    return f"{listed}, ... ({len(values)} values)" if len(values) > limit else listed


def _specs(members: Sequence[str], rows: Sequence[tuple[Any, ...]], table: str) -> list[str]:
    """Return each distinct row of a table's settings as text, such as ``timed(dsgd), lr=0.1``.

    Arguments of a function within the table, as of a method that is timed, have its place only if
    the outer function has one of the same name.
    """
    keys = [member.removeprefix(f"{table}.") for member in members]
    inner = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    own = [
        key.removeprefix(max(filter(key.startswith, inner), key=len, default="")) for key in keys
    ]
    functions = [k for k, key in enumerate(keys) if f".{key}".endswith(".name")]
    functions.sort(key=lambda k: keys[k].count("."))  # the outermost first
    texts = []
    for row in rows:
        given = [k for k, value in enumerate(row) if value is not MISSING]
        outer, others = str(row[functions[0]]), [str(row[k]) for k in functions[1:] if k in given]
        same = [other for other in rows if all(other[k] == row[k] for k in functions)]
        short = [own[k] for k in given]
        parts = [
            f"{keys[k] if short.count(own[k]) > 1 else own[k]}={row[k]}"
            for k in given
            if k not in functions and len({other[k] for other in same}) > 1
        ]
        texts.append(", ".join([f"{outer}({', '.join(others)})" if others else outer, *parts]))
    return texts


def padded(rows: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Return the curves of R runs, (R, E), from one list of numbers per run.

    Shorter ones continue with their last number; those of runs without any are NaN.

    Examples
    --------
    >>> padded([[0.1, None, 0.7], [0.0, 0.5]]).tolist()
    [[0.1, nan, 0.7], [0.0, 0.5, 0.5]]
    """
    found = np.full((len(rows), max(map(len, rows), default=0) or 1), np.nan)
    for curve, row in zip(found, rows, strict=True):
        if len(row):
            curve[: len(row)] = np.array(row, dtype=np.float64)
            curve[len(row) :] = curve[len(row) - 1]
    return found


def check_column(entries: Sequence[Entry], column: Any) -> str:
    """Return the name of the column of scores, the first one recorded if it is None.

    Raises
    ------
    TypeError
        If `column` is not text.
    ValueError
        If runs lack it, with the nearest name or the names of these runs.
    """
    known = dict.fromkeys(chain.from_iterable(entry.curves["scores"] for entry in entries))
    if not known:
        raise ValueError(
            "`runs` must have evaluations with scores, got none with any; runs with "
            "Evaluation(on=()) evaluate nothing, so run them with a set, as in evaluation='test'"
        )
    name = next(iter(known)) if column is None else column
    if not isinstance(name, str):
        raise TypeError(f"`column` must be the name of a score, got {shown(column)}")
    if name not in known:
        listed = ", ".join(map(repr, known))
        raise ValueError(
            f"`column` must be one of {listed}, got {shown(name)}{did_you_mean(name, known)}"
        )
    without = [entry for entry in entries if not entry.curves["scores"].get(name, {}).get("mean")]
    if without:
        shared = [
            other for other in known if all(other in entry.curves["scores"] for entry in entries)
        ]
        remedy = f"all runs have {', '.join(shared)}" if shared else "no score is in all runs"
        raise ValueError(
            f"`column` must be in all runs, {len(without)} of {len(entries)} lack {name!r} "
            f"({', '.join(entry.name for entry in without[:3])}"
            f"{', ...' if len(without) > 3 else ''}); {remedy}; leave the others out"
        )
    return name


def goes_down(score: str, best: np.ndarray, worst: np.ndarray) -> bool:
    """Return whether low values are good, for runs that did not record it.

    The sign of the difference between what is called the best and the worst node tells.

    If all nodes of all runs have equal scores, the name decides: losses and errors are low.

    Examples
    --------
    >>> goes_down("mse", np.array([0.1]), np.array([0.9]))
    True
    """
    with np.errstate(invalid="ignore"):
        sign = float(np.nansum(np.sign(best - worst)))
    if sign:
        return sign < 0
    return any(word in score for word in ("loss", "mse", "mae", "error", "perplexity"))


COSTS = {"rounds": ("round", 1.0), "megabytes": ("bytes", 1e6), "seconds": ("seconds", 1.0)}
"""Column of the curves, and its unit, by the name of a cost."""

EQUAL = COSTS | {"messages": ("messages", 1.0)}
"""Costs at which runs can be compared."""

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

    def statistic(self, name: str) -> np.ndarray:
        """Return the curves (R, E) of a statistic over nodes.

        It is ``"mean"``, ``"worst"``, ``"worst_tenth"`` or ``"best"``.
        """
        return padded([entry.curves["scores"][self.column][name] for entry in self.entries])

    def cost(self, name: str) -> np.ndarray:
        """Return the curves (R, E) of a cost of `EQUAL`; those of runs that lack it are NaN.

        For scores before an exchange, what that exchange sends does not count.
        """
        column, unit = EQUAL[name]
        rows = []
        for entry in self.entries:
            early = entry.curves.get("before_exchange", {})
            is_early = column in ("bytes", "messages") and self.column in early.get("scores", ())
            rows.append((early if is_early else entry.curves).get(column) or ())
        return padded(rows) / unit

    def budget(self, name: str) -> float:
        """Return the smallest cost of a whole run, except of runs that cost nothing.

        Runs that did not end with a finite score do not count.

        Raises
        ------
        ValueError
            If a run did not record the cost.
        """
        totals = self.cost(name)[:, -1]
        if without := [self.entries[r].name for r in np.flatnonzero(np.isnan(totals))]:
            raise ValueError(
                f"`equal` must be recorded by all runs, {len(without)} of {len(totals)} have no "
                f"{name} ({', '.join(without[:3])}{', ...' if len(without) > 3 else ''}); take "
                f"'rounds'{', or give `hardware`' if name == 'seconds' else ''}"
            )
        counted = totals[(totals > 0) & np.isfinite(self.statistic("mean")[:, -1])]
        return float(counted.min(initial=np.inf))

    def at_cost(self, values: np.ndarray, name: str, budget: float) -> np.ndarray:
        """Return curves (R, E) at a cost, (R,), interpolated between evaluations.

        Those that end before, or with NaN, are taken at their end.
        """
        found = values[:, -1].copy()
        for r, spent in enumerate(self.cost(name)):
            known = np.isfinite(values[r])
            if known[-1] and spent[-1] > budget:
                found[r] = np.interp(budget, spent[known], values[r][known])
        return found

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
        inside = self.settings.vary_within(self.group_of)
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
        entries, found, is_named = runs.entries, (), runs.by == ("name",)
    else:
        (entries, found), is_named = entries_of(runs), isinstance(runs, Mapping)
    if hardware is not None:
        entries = tuple(entry.on(hardware) for entry in entries)
    settings = Settings.of([entry.settings for entry in entries])
    column = check_column(entries, column)
    full = tuple(dict.fromkeys(_resolved(settings, "by", by))) or (
        ("name",) if is_named else tuple(settings.default())
    )
    extra = _expanded(settings, _resolved(settings, "over", over))
    groups, group_of = _groups(settings, full, len(entries), in_order=is_named)
    labels = _short(full)
    named = [*_expanded(settings, full), *extra]
    _check_averages(settings, groups, group_of, named)
    _check_distinct(entries, settings)
    notes = (*found, *_confounded(settings, named, group_of))
    return Collected(entries, settings, full, labels, tuple(extra), groups, group_of, column, notes)


def _resolved(settings: Settings, argument: str, value: Any) -> list[str]:
    """Return full names of settings from one name, from a sequence of them, or from None."""
    if value is None:
        return []
    try:
        names = [value] if isinstance(value, str) else list(value)
    except TypeError:
        raise TypeError(
            f"`{argument}` must be the name of a setting or a list of names, got {shown(value)}"
        ) from None
    return [settings.resolve(argument, name) for name in names]


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
    settings: Settings, by: Sequence[str], n: int, *, in_order: bool
) -> tuple[tuple[tuple[Any, ...], ...], np.ndarray]:
    """Return the sorted groups and the group of each of n runs; numbers come before text."""
    columns = []
    for name in by:
        codes, levels = settings.column(name)
        order = list(range(len(levels)))
        if not in_order:
            order.sort(key=[sort_key(value) for value in levels].__getitem__)
        columns.append((np.argsort(order)[codes], [levels[k] for k in order]))
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
    forgotten = [
        name for name in settings.vary_within(group_of) if name not in named and not is_seed(name)
    ]
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
    inside = settings.vary_within(group_of)
    seeds = [name for name in settings.varying if is_seed(name) and name not in inside]
    if MEMBERS in seeds and {"data.seed", "data.name"} & {*settings.varying}:
        seeds.remove(MEMBERS)
    others = [name for name in settings.varying if name not in named and not is_seed(name)]
    start = "groups also differ in"
    if named == ["name"]:  # names stand for settings, usually one
        others = [name for name in settings.default() if name != "name"]
        others, start = (others, "groups differ in") if len(others) > 1 else ([], start)
    others += [name for name in seeds if name not in named]
    levels = settings.levels
    differ = [
        name
        for name in others  # a table always differs
        if name not in levels or sum(value is not MISSING for value in levels[name]) > 1
    ]
    return [f"{start} {', '.join(differ)}"] if differ else []
