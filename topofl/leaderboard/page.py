"""The page of the leaderboard: a table for each budget of a task, and a picture."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topofl._support.check import check_path, shown
from topofl._support.table import Table
from topofl._support.text import did_you_mean
from topofl.leaderboard.entries import Task, tasks
from topofl.leaderboard.results import Result, read_results
from topofl.summary.verdicts import mean_interval

__all__ = ["build", "ranks"]

SLACK = 1e-9
"""Relative rounding by which a budget may be exceeded."""

COLORS = ("#0072B2", "#D55E00")
"""Of entries that another beats with fewer models, and of the others."""

COLUMNS = (
    "rank", "entry", "over rounds, %", "behind the best", "final, %", "worst node, %",
    "messages", "models", "steps", "rate",
)  # fmt: skip


def build(folder: str | os.PathLike[str]) -> Path:
    """Write ``leaderboard.md`` and a picture per task from the results in a folder.

    Entries are ordered by their mean accuracy over rounds, averaged over seeds. Those whose paired
    difference from the first has a 95 % t-interval that contains 0 share its rank.

    Parameters
    ----------
    folder
        Folder with ``TASK/ENTRY.json``.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    ValueError
        If there are no results of the tasks of topofl, or some of another version of a task.
    OSError
        If a file cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> from topofl.leaderboard import Result, tasks
    >>> (task,) = tasks(["digits-shards"])
    >>> scores = {name: (0.5, 0.6, 0.5, 0.6, 0.7) for name in ("learning", "final", "worst")}
    >>> scores |= {"rounds": (0, 80), "curve": (0.1, 0.7)}
    >>> folder = tempfile.mkdtemp()
    >>> _ = Result(
    ...     {"name": "ring"}, task.key, 1, task.digest, 0.3, {"0.3": 0.5}, task.seeds, **scores,
    ...     messages=2.0, models=2.0, steps=1.0, software={},
    ... ).save(folder)
    >>> build(folder).name
    'leaderboard.md'
    """
    folder = check_path("folder", folder)
    found = [(task, results) for task in tasks() if (results := read_results(folder, task))]
    if not found:
        raise ValueError(
            f"`folder` must have results, got {folder}, which has none; topofl leaderboard run "
            "ENTRY.toml makes them"
        )
    parts = ["# Leaderboard", _INTRODUCTION]
    for task, results in found:
        _draw(results, task, folder / f"{task.key}.png")
        parts += [
            f"## {task.title}",
            _about(task),
            *(_table(group, title) for title, group in _groups(results, task)),
        ]
        parts.append(f"![Accuracy over rounds against models sent, {task.title}.]({task.key}.png)")
    path = folder / "leaderboard.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


_INTRODUCTION = """\
`topofl leaderboard build` writes this page from results of `topofl leaderboard run`. Scores are
means over seeds with 95 % t-intervals, in percent. Entries of rank 1 are not told apart from the
first by their paired differences; the others are ordered by their means alone. Messages and
models are those that a node sends per round, on average; entries of a table send at most its
budget of either. Entries that take more than one local step per node and round compute more for
the same messages, and have tables of their own, as do entries above all budgets. *Own code* marks
entries with functions that are not topofl's, which a reviewer must have read, since messages are
counted where a method exchanges through the engine; results have the hashes of their files. A rate
that is marked is the smallest or the largest of the grid, beyond which a better one may lie."""


def _about(task: Task) -> str:
    rates = ", ".join(f"{rate:g}" for rate in task.rates)
    seeds = ", ".join(map(str, task.seeds))
    return (
        f"{task.about} Version {task.version} ({task.digest}): minibatches of {task.batch_size}, "
        f"{task.tables['run']['rounds']} rounds, learning rates {rates}, seeds {seeds}."
    )


def ranks(folder: str | os.PathLike[str], entry: str) -> Table:
    """Return the rank of an entry in each table of the page in which it appears.

    Parameters
    ----------
    folder
        Folder with ``TASK/ENTRY.json``.
    entry
        Name of the entry.

    Raises
    ------
    ValueError
        If no result is of that entry, or a result cannot be compared with the others.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> ranks(tempfile.mkdtemp(), "ring")
    Traceback (most recent call last):
        ...
    ValueError: `entry` must name an entry with results, got 'ring'; there are none
    """
    rows, known = [], dict[str, None]()
    folder = check_path("folder", folder)
    for task in tasks():
        for title, group in _groups(read_results(folder, task), task):
            known |= dict.fromkeys(one.entry["name"] for one in group)
            for rank, behind, one in _ranked(group):
                if one.entry["name"] == entry:
                    rows.append((task.key, title, rank, len(group), behind or "0"))
    if not rows:
        there = ", ".join(map(repr, known)) or "none"
        hint = did_you_mean(entry, known) or f"; there are {there}"
        raise ValueError(f"`entry` must name an entry with results, got {shown(entry)}{hint}")
    columns = ("task", "table", "rank", "entries", "behind the best")
    return Table(columns, tuple(rows), title=entry)


def _groups(results: Sequence[Result], task: Task) -> list[tuple[str, list[Result]]]:
    """Return title and results of a table for each budget, and of one for what is above them all.

    Those with several local steps come in tables of their own. No table is empty.
    """
    single = [one for one in results if one.steps <= 1 + SLACK]
    several = [one for one in results if one not in single]
    groups = []
    for group, ending in ((single, ""), (several, ", several local steps")):
        within: list[Result] = []
        for budget in task.budgets:
            if within := [one for one in group if _sent(one) <= budget * (1 + SLACK)]:
                models = "model" if budget == 1 else "models"
                groups.append((f"At most {budget:g} {models} per node and round{ending}", within))
        if left := [one for one in group if one not in within]:
            groups.append((f"More than that{ending}", left))
    return groups


def _sent(result: Result) -> float:
    """Return what counts against a budget: messages, or models, whichever are more."""
    return max(result.messages, result.models)


def _ranked(results: Sequence[Result]) -> list[tuple[int, str, Result]]:
    """Return rank, distance from the best in words, and result, beginning with the best."""
    ordered = sorted(results, key=lambda one: -np.mean(one.learning))
    ranked = [(1, "", ordered[0])]
    for place, one in enumerate(ordered[1:], 2):
        behind, is_tied = _behind(ordered[0], one)
        ranked.append((1 if is_tied else place, behind, one))
    return ranked


def _table(results: Sequence[Result], title: str) -> str:
    rows = []
    for rank, behind, one in _ranked(results):
        name = f"{one.entry['name']} (*own code*)" if one.own_code else one.entry["name"]
        scores = [_spread(values) for values in (one.learning, one.final, one.worst)]
        sent = f"{one.messages:.2f}", f"{one.models:.2f}", f"{one.steps:g}"
        rate = f"{one.lr:g} ({one.edge})" if one.edge else f"{one.lr:g}"
        rows.append((rank, name, scores[0], behind, *scores[1:], *sent, rate))
    return Table(COLUMNS, tuple(rows), title=title).to_markdown()


def _behind(best: Result, other: Result) -> tuple[str, bool]:
    """Return how far an entry is behind the first, in points, and whether it may not be."""
    apart = 100 * (np.array(best.learning) - np.array(other.learning))
    interval = mean_interval(apart)
    if interval is None:
        return f"{apart.mean():.1f}", True
    low, high = interval
    return f"{apart.mean():.1f} ({low:.1f} to {high:.1f})", low <= 0


def _percent(values: Sequence[float]) -> tuple[float, float | None]:
    """Return a mean in percent and the half-width of its interval; None for a single value."""
    interval = mean_interval(values)
    half = None if interval is None else 50 * (interval[1] - interval[0])
    return 100 * float(np.mean(values)), half


def _spread(values: Sequence[float]) -> str:
    """Return a mean in percent with the half-width of its interval, as text."""
    mean, half = _percent(values)
    return f"{mean:.1f}" if half is None else f"{mean:.1f} ± {half:.1f}"


def _draw(results: Sequence[Result], task: Task, path: Path) -> None:
    """Draw accuracy over rounds against models sent, and the entries that no other beats."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    ax = figure.subplots()
    best = 0.0
    for one in sorted(results, key=lambda one: (one.models, -np.mean(one.learning))):
        mean, half = _percent(one.learning)
        is_front, best = mean > best, max(best, mean)
        ax.errorbar(one.models, mean, half, fmt="o", color=COLORS[is_front], markersize=4)
        if is_front:
            offset = {"xytext": (4, -10), "textcoords": "offset points"}
            ax.annotate(one.entry["name"], (one.models, mean), fontsize=7, **offset)
    ax.set(xlabel="models sent per node and round", ylabel="accuracy over rounds, %")
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.1, 2.5 * max(1.0, *(one.models for one in results)))  # with room for a name
    ax.set_title(task.title, fontsize=10)
    figure.savefig(path, dpi=100)
