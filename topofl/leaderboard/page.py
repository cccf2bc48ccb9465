"""The page of the leaderboard: a table for each budget of a task, and a picture."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl._support.check import check_path, shown
from topofl._support.table import Table
from topofl._support.text import did_you_mean
from topofl.leaderboard.entries import Task, tasks
from topofl.leaderboard.results import Result, read_results
from topofl.summary.verdicts import mean_interval, with_interval

__all__ = ["build", "ranks"]

SLACK = 1e-9
"""Relative rounding by which a budget may be exceeded."""

COLORS = ("#0072B2", "#D55E00")
"""Of entries that another beats while it sends less, and of the others."""

OTHERS = "#999999"
"""Color of kinds of entries that are not compared with the first in a picture."""

KINDS = (
    ("", "o"),
    ("several local steps", "^"),
    ("with a server", "s"),
    ("with a server, several local steps", "D"),
)
"""Kinds of entries, which are compared with their own, and their marks in pictures."""

LEADERS = 10
"""Number of entries at the top of a table that are there although a smaller budget has them."""

COLUMNS = (
    "rank", "entry", "over rounds, %", "behind the best", "final, %", "worst node, %",
    "messages", "models", "bytes", "steps", "rate",
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
            *_tables(results, task),
            f"![Accuracy over rounds against messages and bytes, {task.title}.]({task.key}.png)",
        ]
    known = {task.key for task, _ in found}
    if missing := [task for task in tasks() if task.key not in known]:
        parts += ["## Tasks without results", *(f"`{one.key}`: {_about(one)}" for one in missing)]
    path = folder / "leaderboard.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


_INTRODUCTION = """\
`topofl leaderboard build` writes this page from results of `topofl leaderboard run`.

- **Scores** are means over seeds with 95 % t-intervals, in percent.
- **Ranks.** Entries of rank 1 are not told apart from the first by their paired differences; the
  others are ordered by their means alone.
- **Budgets.** Messages, models and bytes are those that a node sends per round, on average. Entries
  of a table send at most its budget of messages, and of bytes. They are ranked with all that send
  less, which are shown only if they are among the first ten.
- **Separate tables** list entries above all budgets; entries with several local steps per node and
  round, which compute more for the same messages; and entries with a server, which need one machine
  that serves all nodes instead of a graph, and whose messages are divided among the nodes.
- ***Own code*** marks entries with functions that are not topofl's, which a reviewer must have
  read, since messages are counted where a method exchanges through the engine; results have the
  hashes of their files.
- **A rate that is marked** is the smallest or the largest of the grid, beyond which a better one
  may lie.
- **Pictures** have entries of all kinds, and name those of the first kind that no other of it beats
  with less."""


def _about(task: Task) -> str:
    rates = ", ".join(f"{rate:g}" for rate in task.rates)
    seeds = ", ".join(map(str, task.seeds))
    return (
        f"{task.about} Version {task.version} ({task.digest}): minibatches of {task.batch_size}, "
        f"{task.tables['run']['rounds']} rounds, learning rates {rates}, seeds {seeds}, models of "
        f"{_size(task.model_bytes)}."
    )


def _size(count: float) -> str:
    """Return a number of bytes in the largest unit of which it is at least one."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} bytes"


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

    Each kind of entries has its own; those with a server have no budgets. No table is empty.
    """
    groups = []
    for kind, _ in KINDS:
        group = [one for one in results if _kind(one) == kind]
        ending, within = f", {kind}" if kind else "", list[Result]()
        if kind.startswith("with a server"):
            groups += [(kind.capitalize(), group)] if group else []
            continue
        for budget in task.budgets:
            if within := [one for one in group if _sent(one) <= budget * (1 + SLACK)]:
                groups.append((f"{_budget(budget, task)}{ending}", within))
        if left := [one for one in group if one not in within]:
            groups.append((f"More than that{ending}", left))
    return groups


def _kind(result: Result) -> str:
    """Return which of :data:`KINDS` an entry is of."""
    return KINDS[2 * result.has_server + (result.steps > 1 + SLACK)][0]


def _budget(budget: float, task: Task) -> str:
    """Return a budget in words, in messages, bytes and models."""
    plural = "" if budget == 1 else "s"
    return (
        f"At most {budget:g} message{plural} and {_size(budget * task.model_bytes)} "
        f"({budget:g} model{plural}) per node and round"
    )


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


def _tables(results: Sequence[Result], task: Task) -> list[str]:
    """Return the tables of a task, in which entries of smaller tables are only if they lead."""
    shown, texts = set[str](), list[str]()
    for title, group in _groups(results, task):
        ranked = _ranked(group)
        rows = ranked[:LEADERS] + [
            row for row in ranked[LEADERS:] if row[2].entry["name"] not in shown
        ]
        texts.append(_table(rows, title, task))
        shown |= {one.entry["name"] for one in group}
    return texts


def _table(ranked: Sequence[tuple[int, str, Result]], title: str, task: Task) -> str:
    rows = []
    for rank, behind, one in ranked:
        name = f"{one.entry['name']} (*own code*)" if one.own_code else one.entry["name"]
        scores = [_spread(values) for values in (one.learning, one.final, one.worst)]
        size = _size(one.models * task.model_bytes)
        sent = f"{one.messages:.2f}", f"{one.models:.2f}", size, f"{one.steps:.3g}"
        rate = f"{one.lr:g} ({one.edge})" if one.edge else f"{one.lr:g}"
        rows.append((rank, name, scores[0], behind, *scores[1:], *sent, rate))
    return Table(COLUMNS, tuple(rows), title=title).to_markdown()


def _behind(best: Result, other: Result) -> tuple[str, bool]:
    """Return how far an entry is behind the first, in points, and whether it may not be."""
    apart = 100 * (np.array(best.learning) - np.array(other.learning))
    interval = mean_interval(apart)
    said = with_interval(float(apart.mean()), interval, ".1f", ends=True)
    return said, interval is None or interval[0] <= 0


def _percent(values: Sequence[float]) -> tuple[float, float | None]:
    """Return a mean in percent and the half-width of its interval; None for a single value."""
    interval = mean_interval(values)
    half = None if interval is None else 50 * (interval[1] - interval[0])
    return 100 * float(np.mean(values)), half


def _spread(values: Sequence[float]) -> str:
    """Return a mean in percent with the half-width of its interval, as text."""
    mean, half = _percent(values)
    interval = None if half is None else (mean - half, mean + half)
    return with_interval(mean, interval, ".1f")


def _draw(results: Sequence[Result], task: Task, path: Path) -> None:
    """Draw accuracy over rounds against messages, and against bytes, with the entries to beat."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    for ax, unit in zip(figure.subplots(1, 2, sharey=True), ("messages", "kB"), strict=True):
        scale = 1.0 if unit == "messages" else task.model_bytes / 1000
        sent = [one.messages if unit == "messages" else scale * one.models for one in results]
        _draw_against(ax, results, sent)
        ax.set_xlabel(f"{unit} sent per node and round")
        ax.set_xscale("symlog", linthresh=scale)
        ax.set_xlim(-0.1 * scale, 2.5 * max(scale, *sent))  # with room for a name
    figure.axes[0].set_ylabel("accuracy over rounds, %")
    figure.axes[0].legend(fontsize=7, loc="lower right")
    figure.suptitle(task.title, fontsize=10)
    figure.savefig(path, dpi=100)


def _draw_against(ax: Any, results: Sequence[Result], sent: Sequence[float]) -> None:
    """Draw points of all kinds, and name those of the first kind that none beats with less."""
    kinds = [kind for kind, _ in KINDS if any(_kind(one) == kind for one in results)]
    best = 0.0
    pairs = sorted(zip(sent, results, strict=True), key=lambda p: (p[0], -np.mean(p[1].learning)))
    for x, one in pairs:
        mean, half = _percent(one.learning)
        is_front = _kind(one) == kinds[0] and mean > best
        best = mean if is_front else best
        color = COLORS[is_front] if _kind(one) == kinds[0] else OTHERS
        mark = dict(KINDS)[_kind(one)]
        ax.errorbar(x, mean, half, fmt=mark, color=color, markersize=4, linewidth=1)
        if is_front:
            offset = {"xytext": (4, -10), "textcoords": "offset points"}
            ax.annotate(one.entry["name"], (x, mean), fontsize=7, **offset)
    for kind in kinds:
        color = COLORS[0] if kind == kinds[0] else OTHERS
        label = kind or "without a server, one local step"
        ax.plot([], [], dict(KINDS)[kind], color=color, markersize=4, label=label)
