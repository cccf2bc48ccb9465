"""Settings of many runs: short names, values that vary, and groups of runs with equal values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import did_you_mean, shown

__all__ = ["MEMBERS", "MISSING", "POSITION", "Settings", "is_seed", "levels_text"]

MISSING = "-"
"""Stands for a setting that a run does not have."""

MEMBERS = "data.members"
"""A digest of the examples that each node holds: as a seed, it says which partition was drawn."""

POSITION = "position"
"""Stands for the seed of runs of a name whose seeds are not known."""

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
        names = dict.fromkeys(name for row in rows for name in row if not _is_incidental(name))
        codes, levels = {}, {}
        for name in names:
            codes[name], levels[name] = _encoded(_values(rows, name))
        return cls(codes, levels)

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(next(iter(self.codes.values()))) if self.codes else 0

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

    def vary_within(
        self, groups: np.ndarray, apart: Iterable[str], *, seeds: bool = False
    ) -> list[str]:
        """Return the settings that vary within a group, other than `apart`.

        Parameters
        ----------
        groups
            (R,) group of each run.
        apart
            Full names of settings to leave out.
        seeds
            Whether seeds are among them.
        """
        left_out = set(apart)
        found = []
        for name in self.varying:
            if name in left_out or (is_seed(name) and not seeds):
                continue
            pairs = groups.astype(np.int64) * len(self.levels[name]) + self.codes[name]
            if len(np.unique(pairs)) > len(np.unique(groups)):
                found.append(name)
        return found


def is_seed(name: str) -> bool:
    """Return whether a setting is a seed, over which summaries average.

    Examples
    --------
    >>> is_seed("run.seed"), is_seed("data.split_seed"), is_seed("data.alpha")
    (True, True, False)
    """
    is_named = name.rpartition(".")[2] == "seed" or name.endswith("_seed")
    return is_named or name in (MEMBERS, POSITION)


def levels_text(values: Sequence[Any], limit: int = 4) -> str:
    """Return some values of a setting as text, for messages.

    Examples
    --------
    >>> levels_text([0.1, 1.0]), levels_text(range(10))
    ('0.1, 1.0', '0, 1, 2, 3, ... (10 values)')
    """
    listed = ", ".join(str(value) for value in values[:limit])
    return f"{listed}, ... ({len(values)} values)" if len(values) > limit else listed


def _is_incidental(name: str) -> bool:
    return name in INCIDENTAL or name.startswith("saving.")


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a setting of all runs; None is no setting where files of some runs leave it out."""
    values = [row.get(name, MISSING) for row in rows]
    if MISSING in values:
        return [MISSING if value is None else value for value in values]
    return values


def _encoded(values: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return the codes of values and the distinct ones, in order of occurrence."""
    try:
        levels = dict.fromkeys(values)
    except TypeError:  # lists have no hash
        values = [str(value) if isinstance(value, list | dict) else value for value in values]
        levels = dict.fromkeys(values)
    position = {value: k for k, value in enumerate(levels)}
    return np.fromiter(map(position.__getitem__, values), np.int64, len(values)), list(levels)


def _specs(members: Sequence[str], rows: Sequence[tuple[Any, ...]], table: str) -> list[str]:
    """Return each distinct row of a table's settings as text."""
    place = members.index(f"{table}.name")
    texts = []
    for row in rows:
        same = [other for other in rows if other[place] == row[place]]
        parts = [
            f"{member.removeprefix(f'{table}.')}={value}"
            for k, (member, value) in enumerate(zip(members, row, strict=True))
            if k != place and value is not MISSING and len({other[k] for other in same}) > 1
        ]
        texts.append(", ".join([str(row[place]), *parts]))
    return texts
