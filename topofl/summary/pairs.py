"""Differences between groups and a baseline, of runs with the same seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl._support.check import did_you_mean, shown
from topofl.summary.groups import MEMBERS, MISSING, Collected, levels_text
from topofl.summary.verdicts import CONFIDENCE, mean_interval, statistic_of, verdict


@dataclass(frozen=True)
class Pair:
    """Differences of one group to its baseline.

    Parameters
    ----------
    baseline
        Number of the baseline's group.
    n
        Number of pairs.
    mean
        Mean of group minus baseline over pairs; NaN without any.
    error
        Standard error of this mean; NaN for less than two pairs.
    half
        Half-width of its confidence interval by Student's t, NaN as `error`.
    verdict
        Whether the group is better than the baseline: HOLDS if the interval lies on the better side
        of 0, FAILS if on the other, UNDECIDED otherwise; see
        :func:`topofl.summary.verdicts.verdict`.
    reason
        Why there are no pairs; empty if there are.
    """

    baseline: int
    n: int = 0
    mean: float = np.nan
    error: float = np.nan
    half: float = np.nan
    verdict: str = ""
    reason: str = ""


def baseline_of(collected: Collected, baseline: Any) -> list[int]:
    """Return the number of each group's baseline, -1 for none, from a value or several by setting.

    With one of several settings given, as in ``baseline="ring"`` for groups by topology and alpha,
    the baseline of a group has the group's own values of the others.

    Raises
    ------
    ValueError
        If no group, or more than one setting, has the value.
    """
    if isinstance(baseline, Mapping):
        given = {_place_of_name(collected, name): value for name, value in baseline.items()}
    else:
        given = {_place(collected, baseline): baseline}
    if not given:
        raise ValueError("`baseline` must have a value of at least one setting, got {}")
    wanted: dict[int, Any] = {}
    for place, value in given.items():
        known = list(dict.fromkeys(group[place] for group in collected.groups))
        wanted[place] = _level(value, known, collected.labels[place])
    number = {group: k for k, group in enumerate(collected.groups)}
    found = [
        number.get(tuple(wanted.get(k, own) for k, own in enumerate(group)), -1)
        for group in collected.groups
    ]
    if all(k < 0 for k in found):
        raise ValueError(
            f"`baseline` must be a group, no runs have {shown(baseline)} together; groups are "
            f"{levels_text([collected.name_of(k) for k in range(len(collected.groups))])}"
        )
    return found


def _place(collected: Collected, value: Any) -> int:
    """Return the position in `by` of the setting that has a value."""
    columns = list(zip(*collected.groups, strict=True))
    found = [k for k, column in enumerate(columns) if any(_equal(value, one) for one in column)]
    if len(found) == 1:
        return found[0]
    names = [collected.labels[k] for k in found]
    if names:
        raise ValueError(
            f"`baseline` must name one setting, {shown(value)} is a value of {' and '.join(names)};"
            f" give {{{names[0]!r}: {shown(value)}}}"
        )
    known = list(dict.fromkeys(str(one) for column in columns for one in column))
    raise ValueError(
        f"`baseline` must be among the groups, {levels_text(known, 8) or 'of which there is one'}, "
        f"got {shown(value)}{did_you_mean(value, known)}"
    )


def _place_of_name(collected: Collected, name: Any) -> int:
    for names in (collected.by, collected.labels):
        if name in names:
            return names.index(name)
    raise ValueError(
        f"`baseline` must have settings of `by`, {', '.join(collected.labels) or 'which is empty'},"
        f" got {shown(name)}{did_you_mean(name, collected.labels)}"
    )


def _level(value: Any, known: list[Any], name: str) -> Any:
    """Return the known value that is equal to `value`, or has its text."""
    for one in known:
        if _equal(value, one):
            return one
    texts = [str(one) for one in known]
    raise ValueError(
        f"`baseline` must have a value of {name}, {levels_text(texts, 8)}, got {shown(value)}"
        f"{did_you_mean(value, texts)}"
    )


def _equal(value: Any, level: Any) -> bool:
    """Return whether a value is a level of a setting, which text may stand for."""
    if not isinstance(value, str | int | float):
        return False
    same = isinstance(value, bool) == isinstance(level, bool) and value == level
    return same or value == str(level)


def pairs_with(collected: Collected, values: np.ndarray, baseline: Any) -> list[Pair]:
    """Return the differences of every group's values (R,) to those of its baseline.

    Runs are paired by the seeds (and settings averaged over on purpose) that both groups have, and
    averaged first if several have the same ones, as for several graphs per seed of the run. The
    members of partitions are compared for partitions of the same name.

    Raises
    ------
    ValueError
        If no group has a pair, and as :func:`baseline_of`.
    """
    of_group = baseline_of(collected, baseline)
    members = [np.flatnonzero(collected.group_of == k) for k in range(len(collected.groups))]
    averaged, pairs = collected.averaged, []
    for group, base in enumerate(of_group):
        if base in (-1, group):
            reason = "" if base == group else "no runs of the baseline have its other settings"
            pairs.append(Pair(base, reason=reason))
            continue
        shared = [
            collected.settings.codes[name]
            for name in averaged
            if _corresponds(collected, name, members[group], members[base])
        ]
        differences = _differences(values, shared, members[group], members[base])
        pairs.append(_pair(differences, base, collected.low_is_good))
    if not any(pair.n for pair in pairs) and len(pairs) > 1:
        raise ValueError(
            "`baseline` must have seeds in common with another group, to pair runs by them; "
            f"{_seeds_of(collected, members, of_group)}; run all groups with the same seeds, at "
            "least two, or leave `baseline` out"
        )
    return pairs


def _corresponds(collected: Collected, name: str, one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether runs of two groups are to have equal values of a seed to be a pair.

    Partitions by other functions or arguments hold other examples, and correspond by their seeds
    only. A single graph in each group is what is compared, whichever seed it was drawn with.
    """
    codes, levels = collected.settings.codes, collected.settings.levels[name]
    if any(
        MISSING in [levels[code] for code in np.unique(codes[name][runs])] for runs in (one, other)
    ):
        return False
    if name == MEMBERS and "data.name" in codes:
        return {*codes["data.name"][one].tolist()} == {*codes["data.name"][other].tolist()}
    if name.startswith("topology."):
        return any(len(np.unique(codes[name][runs])) > 1 for runs in (one, other))
    return True


def _pair(differences: np.ndarray, base: int, low_is_good: bool) -> Pair:
    """Return the summary of differences, which may be none."""
    n = len(differences)
    if n == 0:
        return Pair(base, reason="no seeds in common with the baseline")
    mean = float(differences.mean())
    interval = mean_interval(differences, CONFIDENCE)
    half = np.nan if interval is None else (interval[1] - interval[0]) / 2
    error = float(differences.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return Pair(base, n, mean, error, half, verdict(differences, 0.0, -1 if low_is_good else 1))


def _differences(
    values: np.ndarray, keys: list[np.ndarray], group: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Return group minus baseline for each combination of keys that both have, without NaN."""
    if not keys:
        return np.zeros(0)
    both = np.concatenate([group, base])
    _, key = np.unique(np.stack([one[both] for one in keys]), axis=1, return_inverse=True)
    key, size, k = key.reshape(-1), int(key.max()) + 1, len(group)
    own, others = (
        statistic_of(values[runs], key_of, size).mean
        for runs, key_of in ((group, key[:k]), (base, key[k:]))
    )
    differences = own - others
    return differences[~np.isnan(differences)]


def _seeds_of(collected: Collected, members: list[np.ndarray], of_group: list[int]) -> str:
    """Return the seeds of a baseline and of another group as text."""
    group = next(k for k, base in enumerate(of_group) if base not in (-1, k))
    texts = []
    for k in (of_group[group], group):
        seeds = [
            f"{name} {levels_text(sorted({str(levels[c]) for c in codes[members[k]]}))}"
            for name in collected.averaged
            for levels, codes in [(collected.settings.levels[name], collected.settings.codes[name])]
        ]
        texts.append(f"{collected.name_of(k)} has {'; '.join(seeds) or 'no seeds that vary'}")
    return ", ".join(texts)
