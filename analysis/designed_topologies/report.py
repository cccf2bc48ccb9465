"""The report: paired differences with intervals, a sentence for each comparison, and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from topofl import Table
from topofl.summary.verdicts import mean_interval
from topofl.toolkit import save_picture

from ..study.records import Records
from .runs import designed_cell, known, other_cell, rate_of
from .settings import OTHERS, SEEDS, SETTINGS, TUNING_SEED, Other, Setting

__all__ = [
    "OUTCOMES",
    "Comparison",
    "Difference",
    "comparisons",
    "difference",
    "further_seeds",
    "write_report",
]

OUTCOMES = ("learning phase", "final", "worst node")

COLORS = {"better": "#0072B2", "worse": "#D55E00", "undecided": "#777777"}
"""Colors of verdicts, from the colorblind-safe palette of Okabe and Ito."""


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, with a 95 % t-interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Where the interval lies: "better" above 0, "worse" below, else "undecided"."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "undecided"

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f} ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


def difference(values: Sequence[float] | np.ndarray) -> Difference:
    """Return the mean of at least two differences with its 95 % t-interval."""
    interval = mean_interval(values)
    if interval is None:
        raise ValueError("`values` must have at least 2 differences, got 1")
    return Difference(float(np.mean(values)), *interval)


@dataclass(frozen=True)
class Comparison:
    """Runs of another graph and of its design, one pair per seed.

    Parameters
    ----------
    setting, other
        What is compared.
    pairs
        The records of the other graph and of the design, by seed.
    """

    setting: Setting
    other: Other
    pairs: tuple[tuple[dict[str, float], dict[str, float]], ...]

    def mean(self, which: int, key: str) -> float:
        """Return the mean over seeds of an entry: of the other graph (0) or of the design (1)."""
        return float(np.mean([pair[which][key] for pair in self.pairs]))

    def difference(self, outcome: str) -> Difference:
        """Return the paired difference of an outcome, design minus other."""
        return difference([ours[outcome] - theirs[outcome] for theirs, ours in self.pairs])

    def __str__(self) -> str:
        verdicts = [f"{outcome} {self.difference(outcome).verdict}" for outcome in OUTCOMES]
        name = f"{self.other.name}, {len(self.pairs)} seeds"
        return f"{self.setting.name}, designed against {name}: {', '.join(verdicts)}."


def comparisons(records: Records, seeds: Sequence[int] = SEEDS) -> list[Comparison]:
    """Return all comparisons of settings whose rate is tuned, with the seeds that are recorded."""
    found = []
    for setting in SETTINGS.values():
        lr = rate_of(setting, records)
        if lr is None:
            continue
        for other in OTHERS.values():
            pairs = [_pair(setting, other, seed, lr, records) for seed in seeds]
            found.append(Comparison(setting, other, tuple(p for p in pairs if p is not None)))
    return found


def _pair(
    setting: Setting, other: Other, seed: int, lr: float, records: Records
) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return the records of another graph and of its design; None if one is missing."""
    theirs = known(other_cell(setting, other, seed), lr, records)
    if theirs is None:
        return None
    ours = known(designed_cell(setting, theirs["messages"], seed), lr, records)
    return None if ours is None else (theirs, ours)


def further_seeds(records: Records, seeds: Sequence[int] = SEEDS) -> list[int]:
    """Return the seeds of graphs that are not in the protocol."""
    return sorted({cell.seed for cell in records.cells.values()} - {TUNING_SEED, *seeds})


def write_report(records: Records, out: Path, seeds: Sequence[int] = SEEDS) -> list[Path]:
    """Write the report, the runs and the picture of what is known, and return their paths.

    Parameters
    ----------
    records, out
        Results, and the folder of the report.
    seeds
        Seeds of the protocol: comparisons that lack one have no verdict, and those of all other
        recorded seeds have a section of their own.
    """
    found = comparisons(records, seeds)
    if not any(one.pairs for one in found):
        return []
    out.mkdir(parents=True, exist_ok=True)
    complete = [one for one in found if len(one.pairs) == len(seeds)]
    parts = ["# Designed topologies against other graphs of equal messages", "", _INTRODUCTION]
    for setting in SETTINGS.values():
        parts += ["", f"## {setting.name}", "", *_setting(setting, found, complete, records)]
    parts += _further(records, seeds)
    if complete:
        parts += ["", "![Differences with intervals.](differences.png)"]
    report = out / "report.md"
    report.write_text("\n".join([*parts, ""]), encoding="utf-8")
    runs = out / "runs.csv"
    every = comparisons(records, [*seeds, *further_seeds(records, seeds)])
    _runs_table(every).to_csv(runs, index=False)
    return [report, runs, *([_picture(complete, out / "differences.png")] if complete else [])]


def _runs_table(found: Sequence[Comparison]) -> pd.DataFrame:
    """Return one row per run of the pairs: those of another graph, and of its design."""
    return pd.DataFrame(
        {"setting": one.setting.name, "compared with": one.other.name, "graph": graph} | run
        for one in found
        for pair in one.pairs
        for graph, run in zip(("other", "designed"), pair, strict=True)
    )


def _setting(
    setting: Setting, found: Sequence[Comparison], complete: Sequence[Comparison], records: Records
) -> list[str]:
    """Return the lines of a setting: what it is, complete comparisons, and what is missing."""
    ours = [one for one in found if one.setting is setting]
    if not ours:
        return ["Not run: no learning rate was chosen."]
    rows = [one for one in complete if one.setting is setting]
    lines = [_about(setting, records), ""]
    if rows:
        lines += [_outcome_table(rows).to_markdown(), "", _graph_table(rows).to_markdown(), ""]
        lines += [f"- {one}" for one in rows]
    left = [one for one in ours if one not in rows]
    if left:
        names = ", ".join(f"{one.other.name} ({len(one.pairs)} seeds)" for one in left)
        lines += ["", f"Incomplete, and therefore without a verdict: {names}."]
    if begun := [one for one in left if one.pairs]:
        lines += ["", "Their mean differences so far:", "", _begun_table(begun).to_markdown()]
    return lines


def _begun_table(rows: Sequence[Comparison]) -> Table:
    """Return the mean differences of comparisons that lack seeds."""
    columns = ("compared with", "seeds", *(f"difference, {outcome}" for outcome in OUTCOMES))
    body = [
        (
            one.other.name,
            len(one.pairs),
            *(f"{100 * (one.mean(1, o) - one.mean(0, o)):+.2f}" for o in OUTCOMES),
        )
        for one in rows
    ]
    return Table(columns, tuple(body))


def _further(records: Records, seeds: Sequence[int]) -> list[str]:
    """Return the lines on comparisons with seeds that are not in the protocol."""
    others = further_seeds(records, seeds)
    rows = [one for one in comparisons(records, others) if len(one.pairs) > 1]
    if not rows:
        return []
    lines = ["", f"## Seeds {others[0]} to {others[-1]}", "", _FURTHER]
    for setting in dict.fromkeys(one.setting for one in rows):
        of_setting = [one for one in rows if one.setting is setting]
        lines += ["", f"{setting.name}:", "", _outcome_table(of_setting).to_markdown()]
    return lines


_FURTHER = """\
These seeds are not in the protocol: they were run after the results above were known. They are
part of neither the tables above nor the picture, and their verdicts do not replace those above."""

_INTRODUCTION = """\
Paired differences of test accuracy in percentage points, designed minus other, with 95 %
t-intervals over seeds; above 0, the designed topology is better. The number in a name is the size
of the D-Cliques that set the budget of messages. `python -m analysis.designed_topologies --help`
prints the protocol, which was written before the first run."""


def _about(setting: Setting, records: Records) -> str:
    return (
        f"{setting.n} nodes with two shards each, {setting.rounds} rounds of D-SGD with "
        f"minibatches of {setting.batch_size}, momentum {setting.momentum:g} and learning rate "
        f"{rate_of(setting, records):g}."
    )


def _outcome_table(rows: Sequence[Comparison]) -> Table:
    """Return accuracies of the learning phase, and the differences of all outcomes."""
    columns = ("compared with", "seeds", "its accuracy, learning phase", "designed")
    body = [
        (
            one.other.name,
            len(one.pairs),
            f"{100 * one.mean(0, OUTCOMES[0]):.2f}",
            f"{100 * one.mean(1, OUTCOMES[0]):.2f}",
            *(
                f"{one.difference(outcome)} {one.difference(outcome).verdict}"
                for outcome in OUTCOMES
            ),
        )
        for one in rows
    ]
    return Table((*columns, *(f"difference, {outcome}" for outcome in OUTCOMES)), tuple(body))


def _graph_table(rows: Sequence[Comparison]) -> Table:
    """Return messages, accumulated heterogeneity and noise: of the other graph, of the design."""
    entries = {"messages": ".1f", "H_1": ".4f", "H_10": ".4f", "N_10": ".3f"}
    columns = ["compared with", *(f"{key}: its, designed" for key in entries)]
    body = [
        (
            one.other.name,
            *(
                f"{one.mean(0, key):{form}}, {one.mean(1, key):{form}}"
                for key, form in entries.items()
            ),
        )
        for one in rows
    ]
    return Table(tuple(columns), tuple(body))


def _picture(found: Sequence[Comparison], path: Path) -> Path:
    """Draw the differences with intervals: one row per setting, one column per outcome."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(one.setting for one in found))
    figure = Figure(figsize=(11, 3.4 * len(settings)), layout="constrained")
    axes = figure.subplots(len(settings), len(OUTCOMES), squeeze=False)
    for row, setting in zip(axes, settings, strict=True):
        rows = [one for one in found if one.setting is setting]
        for ax, outcome in zip(row, OUTCOMES, strict=True):
            for place, one in enumerate(rows):
                value = one.difference(outcome)
                color = COLORS[value.verdict]
                ax.plot([100 * value.low, 100 * value.high], [place, place], color=color)
                ax.plot(100 * value.mean, place, "o", color=color)
            ax.axvline(0, color="black", linewidth=0.8)
            ax.set_yticks(range(len(rows)), [one.other.name for one in rows], fontsize=8)
            ax.tick_params(labelleft=ax is row[0])
            ax.set_ylim(len(rows) - 0.5, -0.5)
            ax.grid(axis="x", alpha=0.3)
            ax.set_title(f"{setting.name}, {outcome}", fontsize=10)
            ax.set_xlabel("designed minus other, percentage points", fontsize=8)
    save_picture(figure, path, dpi=100)
    return path
